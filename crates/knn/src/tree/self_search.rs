//! Every stored row against the others.

use super::Tree;
use super::layout::FAN;
use super::project::Image;
use super::walk::{Task, Walker};
use crate::neighbors::Candidate;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows one task takes: they are neighbours already, being in leaf order.
const PIECE: usize = 512;

impl Tree {
    fn stored(&self, place: usize) -> &[f32] {
        let dim = self.parts.layout.dim;
        &self.parts.rows[place * dim..(place + 1) * dim]
    }

    /// The `k` best other rows of every row, in the order of the rows as given.
    pub(crate) fn walk_self(&self, k: usize) -> Vec<Candidate> {
        let rows = self.parts.layout.rows;
        let lists = self.pool.pieces(rows, PIECE, |range| {
            let (mut walker, mut image) = (Walker::new(&self.parts, k), Image::default());
            let mut out = Vec::with_capacity(range.len() * k);
            for place in range {
                let (_, _, q) = self.prepare(self.stored(place), 0, &mut image);
                let task = Task { skip: place as u32, ..Task::SEARCH };
                self.walk(&mut walker, self.stored(place), &q, &task);
                out.extend_from_slice(walker.best.list());
            }
            out
        });
        let mut out = vec![Candidate::NONE; rows * k];
        for (list, &id) in lists.concat().chunks_exact(k).zip(&*self.parts.ids) {
            out[id as usize * k..(id as usize + 1) * k].copy_from_slice(list);
        }
        out
    }

    /// The largest key of a k-th other neighbour.
    ///
    /// A row's neighbourhood in the tree gives a cheap upper bound. Rows are then searched from the largest
    /// bound down, and no row whose bound is at most the largest key found so far needs a search at all.
    pub(crate) fn max_self_key(&self, k: usize) -> f64 {
        let rows = self.parts.layout.rows;
        let uppers = self.pool.pieces(rows, PIECE, |range| {
            let (mut walker, mut image) = (Walker::new(&self.parts, k), Image::default());
            range.map(|place| self.upper(place, k, &mut walker, &mut image)).collect::<Vec<f64>>()
        });
        let mut order: Vec<(f64, u32)> = uppers.concat().into_iter().zip(0..).collect();
        order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        // Keys are not negative, so their bits are ordered as they are.
        let most = AtomicU64::new(0f64.to_bits());
        self.pool.pieces(rows, PIECE / 8, |range| {
            let (mut walker, mut image) = (Walker::new(&self.parts, k), Image::default());
            for &(upper, place) in &order[range] {
                let stop_key = f64::from_bits(most.load(Ordering::Relaxed));
                if upper <= stop_key {
                    break;
                }
                let (_, _, q) = self.prepare(self.stored(place as usize), 0, &mut image);
                let task = Task { start_key: upper, stop_key, skip: place, ..Task::SEARCH };
                self.walk(&mut walker, self.stored(place as usize), &q, &task);
                if !walker.stopped {
                    most.fetch_max(walker.best.worst_key().to_bits(), Ordering::Relaxed);
                }
            }
        });
        f64::from_bits(most.into_inner())
    }

    /// An upper bound on the key of a row's k-th other neighbour, from the rows around it.
    fn upper(&self, place: usize, k: usize, walker: &mut Walker, image: &mut Image) -> f64 {
        let layout = &self.parts.layout;
        if place >= layout.tame {
            return f64::INFINITY;
        }
        let mut level = 0;
        let mut span = FAN * FAN;
        while span < 2 * k && level + 1 < layout.levels.len() {
            level += 1;
            span *= FAN;
        }
        let (_, _, q) = self.prepare(self.stored(place), 0, image);
        let task =
            Task { skip: place as u32, root: Some((level as u32, (place / span) as u32)), ..Task::SEARCH };
        self.walk(walker, self.stored(place), &q, &task);
        walker.best.worst_key()
    }
}
