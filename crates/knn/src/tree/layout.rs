//! Where everything lies: an implicit 8-ary tree over leaves of 8 rows, addressed by arithmetic alone.
//!
//! There are no pointers to follow or to corrupt. Leaf `i` holds rows `8i..8i+8` (in leaf order), node `j` of
//! level 0 has leaves `8j..8j+8` as children, node `j` of level `l` has nodes `8j..8j+8` of level `l − 1`.

/// Children of a node, and rows of a leaf: the eight 32-bit lanes of one AVX2 register.
pub(crate) const FAN: usize = 8;
/// Most pairs of lanes in a leaf block.
pub(crate) const MAX_LEAF_PAIRS: usize = 16;
/// Most pairs of lanes in a node.
pub(crate) const MAX_NODE_PAIRS: usize = 8;

/// One pair of lanes of eight rows (or boxes): row 0 lane a, row 0 lane b, row 1 lane a, …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(32))]
pub(crate) struct Line(pub(crate) [u16; 2 * FAN]);

/// Sizes of an index and the place of each node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Rows in the tree.
    pub(crate) tame: usize,
    /// All rows: those after the first `tame` lie outside the quantised range and are always measured.
    pub(crate) rows: usize,
    /// Columns of a row.
    pub(crate) dim: usize,
    /// Pairs of lanes in a leaf block.
    pub(crate) leaf_pairs: usize,
    /// Pairs of lanes in a node.
    pub(crate) node_pairs: usize,
    /// First node and number of nodes of each level, from the leaves up; the last level is the root.
    pub(crate) levels: Vec<(usize, usize)>,
}

impl Layout {
    pub(crate) fn new(tame: usize, rows: usize, dim: usize, leaf_pairs: usize, node_pairs: usize) -> Layout {
        let mut levels: Vec<(usize, usize)> = Vec::new();
        let mut count = tame.div_ceil(FAN);
        let mut first = 0;
        while count > 0 && levels.last().is_none_or(|l| l.1 > 1) {
            count = count.div_ceil(FAN);
            levels.push((first, count));
            first += count;
        }
        Layout { tame, rows, dim, leaf_pairs, node_pairs, levels }
    }

    pub(crate) fn leaves(&self) -> usize {
        self.tame.div_ceil(FAN)
    }

    /// Children that exist one level below `level`.
    pub(crate) fn count_below(&self, level: usize) -> usize {
        if level == 0 { self.leaves() } else { self.levels[level - 1].1 }
    }

    /// Lines of all leaf blocks.
    pub(crate) fn block_lines(&self) -> usize {
        self.leaves() * self.leaf_pairs
    }

    /// Lines of all nodes: a low and a high line for each pair.
    pub(crate) fn node_lines(&self) -> usize {
        self.levels.last().map_or(0, |l| l.0 + l.1) * self.node_pairs * 2
    }

    /// First line of node `index` of `level`.
    #[inline]
    pub(crate) fn node_line(&self, level: usize, index: usize) -> usize {
        (self.levels[level].0 + index) * self.node_pairs * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_ends_in_one_root() {
        for n in [1, 7, 8, 9, 63, 64, 65, 512, 513, 100_000] {
            let l = Layout::new(n, n, 3, 2, 2);
            assert_eq!(l.levels.last().map(|l| l.1), Some(1), "n = {n}");
            assert!(l.levels[0].1 * FAN >= l.leaves());
            assert_eq!(l.count_below(0), n.div_ceil(8));
        }
        assert!(Layout::new(0, 1, 3, 2, 2).levels.is_empty());
    }
}
