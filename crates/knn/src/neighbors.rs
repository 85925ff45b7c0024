//! What a search returns, and the short sorted list it is collected in.

use crate::Metric;
use ndarray::Array2;

/// The nearest rows of each query: one line per query, nearest first, ties by id.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbors {
    /// Row numbers in the matrix the index was built from; (queries, k).
    pub ids: Array2<u32>,
    /// Their distances; (queries, k). A distance beyond `f32::MAX` is infinite.
    pub distances: Array2<f32>,
}

impl Neighbors {
    /// Distance of each query to its k-th (last) neighbour.
    pub fn kth(&self) -> Vec<f32> {
        self.distances.column(self.distances.ncols() - 1).to_vec()
    }

    /// Lays out the lists of `k` candidates, one list per query.
    pub(crate) fn from_lists(lists: Vec<Candidate>, k: usize, metric: Metric) -> Neighbors {
        let rows = lists.len() / k;
        let ids = lists.iter().map(|c| c.id).collect();
        let distances = lists.iter().map(|c| metric.distance(c.key)).collect();
        Neighbors {
            ids: Array2::from_shape_vec((rows, k), ids).expect("k candidates a query"),
            distances: Array2::from_shape_vec((rows, k), distances).expect("k candidates a query"),
        }
    }
}

/// A row that may be among the nearest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    /// What rows are ranked by, see [`Metric::key`].
    pub(crate) key: f64,
    pub(crate) id: u32,
}

impl Candidate {
    pub(crate) const NONE: Candidate = Candidate { key: f64::INFINITY, id: u32::MAX };

    #[inline]
    fn before(&self, other: &Candidate) -> bool {
        self.key < other.key || (self.key == other.key && self.id < other.id)
    }
}

/// The `k` best candidates so far, sorted.
#[derive(Debug, Clone)]
pub(crate) struct Best {
    list: Vec<Candidate>,
    k: usize,
}

impl Best {
    pub(crate) fn new(k: usize) -> Best {
        Best { list: Vec::with_capacity(k), k }
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    /// Key of the k-th best, infinite while there are fewer.
    #[inline]
    pub(crate) fn worst_key(&self) -> f64 {
        if self.list.len() == self.k { self.list[self.k - 1].key } else { f64::INFINITY }
    }

    pub(crate) fn list(&self) -> &[Candidate] {
        &self.list
    }

    /// Whether a row is in the list.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.list.iter().any(|c| c.id == id)
    }

    /// The list, filled up to `k` with nothing: only a forged index file leaves a gap.
    pub(crate) fn padded(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.list.iter().copied().chain(std::iter::repeat(Candidate::NONE)).take(self.k)
    }

    /// Takes `c` in if it belongs to the best `k`.
    #[inline]
    pub(crate) fn offer(&mut self, c: Candidate) {
        if self.list.len() == self.k {
            if !c.before(&self.list[self.k - 1]) {
                return;
            }
            self.list.pop();
        }
        // From the end, because rows are measured in nearly ascending order.
        let at = self.list.iter().rposition(|x| x.before(&c)).map_or(0, |last| last + 1);
        self.list.insert(at, c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_keeps_the_smallest_and_breaks_ties_by_id() {
        let mut best = Best::new(3);
        for (key, id) in [(2.0, 7), (1.0, 9), (2.0, 3), (5.0, 1), (1.0, 2)] {
            best.offer(Candidate { key, id });
        }
        let ids: Vec<u32> = best.list().iter().map(|c| c.id).collect();
        assert_eq!(ids, [2, 9, 3]);
        assert_eq!(best.worst_key(), 2.0);
    }
}
