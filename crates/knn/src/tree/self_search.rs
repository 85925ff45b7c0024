//! Every stored row against the others.

use super::Tree;
use super::layout::FAN;
use super::project::Image;
use super::run::in_order;
use super::walk::{Job, Task};
use crate::neighbors::Candidate;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows one task takes: they are neighbours already, being in leaf order.
const PIECE: usize = super::run::GROUP;

/// Rows that walk to see whether walking pays: few enough to walk alone.
const PROBES: usize = 8;
/// A tree of fewer rows is walked whatever they look like: its integers fit a cache.
const LEAST_SHAPELESS: usize = 1 << 16;

impl Tree {
    fn stored(&self, place: usize) -> &[f32] {
        let dim = self.parts.layout.dim;
        &self.parts.rows[place * dim..(place + 1) * dim]
    }

    /// The `k` best other rows of every row, in the order of the rows as given.
    pub(crate) fn walk_self(&self, k: usize) -> Vec<Candidate> {
        let rows = self.parts.layout.rows;
        let lists = self.pool.pieces(rows, PIECE, |range| {
            let (mut numbers, mut out) = (Vec::new(), Vec::new());
            let mut image = Image::default();
            let places = range.clone();
            self.walk(k, &mut places.map(|p| self.own_job(p, Task::SEARCH, &mut image)), &mut |walker| {
                numbers.push(self.parts.ids[walker.job.number as usize]);
                out.extend(walker.best.padded());
            });
            (numbers, out)
        });
        in_order(lists)
    }

    /// Whether the rows have so little structure that the walk of a row meets most of the others. Nothing is gained then
    /// by walking, and brute force reads memory in order.
    pub(super) fn is_shapeless(&self) -> bool {
        let layout = &self.parts.layout;
        if layout.tame < LEAST_SHAPELESS {
            return false;
        }
        let (mut image, mut scanned) = (Image::default(), 0);
        let places = (0..PROBES).map(|i| (2 * i + 1) * layout.tame / (2 * PROBES));
        self.walk(1, &mut places.map(|p| self.own_job(p, Task::SEARCH, &mut image)), &mut |walker| {
            scanned += walker.scanned;
        });
        scanned > layout.leaves() * PROBES / 2
    }

    /// The search of a stored row for others.
    fn own_job(&self, place: usize, task: Task, image: &mut Image) -> Job<'_> {
        let query = self.stored(place);
        let number = place as u32;
        Job { number, query, prepared: self.prepare(query, image), task: Task { skip: number, ..task } }
    }

    /// The largest key of a k-th other neighbour.
    ///
    /// A row's neighbourhood in the tree gives a cheap upper bound. Rows are then searched from the largest
    /// bound down, and no row whose bound is at most the largest key found so far needs a search at all.
    pub(crate) fn max_self_key(&self, k: usize) -> f64 {
        let rows = self.parts.layout.rows;
        let uppers = self.pool.pieces(rows, PIECE, |range| {
            let mut out = vec![f64::INFINITY; range.len()];
            let mut image = Image::default();
            // Rows outside the grid have no neighbourhood and keep an infinite bound.
            let places = range.start..range.end.min(self.parts.layout.tame);
            let task = |place| Task { root: Some(self.surroundings(place, k)), ..Task::SEARCH };
            self.walk(k, &mut places.map(|p| self.own_job(p, task(p), &mut image)), &mut |walker| {
                out[walker.job.number as usize - range.start] = walker.best.worst_key();
            });
            out
        });
        let mut order: Vec<(f64, u32)> = uppers.concat().into_iter().zip(0..).collect();
        order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        // Keys are not negative, so their bits are ordered as they are.
        let most = AtomicU64::new(0f64.to_bits());
        let reached = || f64::from_bits(most.load(Ordering::Relaxed));
        self.pool.pieces(rows, PIECE / 16, |range| {
            let mut image = Image::default();
            let mut jobs = order[range].iter().map_while(|&(upper, place)| {
                let task = Task { start_key: upper, stop_key: reached(), ..Task::SEARCH };
                (upper > task.stop_key).then(|| self.own_job(place as usize, task, &mut image))
            });
            self.walk(k, &mut jobs, &mut |walker| {
                if !walker.stopped {
                    most.fetch_max(walker.best.worst_key().to_bits(), Ordering::Relaxed);
                }
            });
        });
        f64::from_bits(most.into_inner())
    }

    /// Level and index of a node around a row that is large enough to hold k others.
    fn surroundings(&self, place: usize, k: usize) -> (u32, u32) {
        let (mut level, mut span) = (0, FAN * FAN);
        while span < 2 * k && level + 1 < self.parts.layout.levels.len() {
            level += 1;
            span *= FAN;
        }
        (level as u32, (place / span) as u32)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Flat, FlatConfig, Metric, NeighborIndex, Tree, TreeConfig};
    use ndarray::Array2;

    #[test]
    fn rows_without_structure_are_searched_by_brute_force_with_the_same_answers() {
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        let noise = Array2::from_shape_simple_fn((1 << 16, 40), &mut uniform);
        let queries = Array2::from_shape_simple_fn((5, 40), &mut uniform);
        for metric in [Metric::Euclidean, Metric::Manhattan, Metric::Cosine] {
            let tree = Tree::new(&TreeConfig { metric, ..Default::default() }, noise.view()).unwrap();
            let flat = Flat::new(&FlatConfig { metric, ..Default::default() }, noise.view()).unwrap();
            assert!(tree.shapeless, "{metric:?}");
            assert_eq!(tree.search(queries.view(), 7).unwrap(), flat.search(queries.view(), 7).unwrap());
        }
        // The same columns with two numbers behind them.
        let curve = Array2::from_shape_fn((1 << 16, 40), |(i, j)| ((i + 7 * j) as f32 * 1e-3).sin());
        assert!(!Tree::new(&TreeConfig::default(), curve.view()).unwrap().shapeless);
    }
}
