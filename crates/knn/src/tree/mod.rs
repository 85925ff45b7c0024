//! The exact tree: small integer boxes decide what is looked at, f64 sums decide what is returned.
//!
//! ```
//! use ndarray::array;
//! use offing_knn::{Metric, NeighborIndex, Tree, TreeConfig};
//! let rows = array![[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]];
//! let index = Tree::new(&TreeConfig { metric: Metric::Manhattan, ..Default::default() }, rows.view())?;
//! assert_eq!(index.search(array![[4.0, 4.0]].view(), 1)?.distances[[0, 0]], 2.0);
//! assert_eq!(index.within(array![[4.0, 4.0], [9.0, 9.0]].view(), 2.5, 1)?, [true, false]);
//! assert_eq!(index.max_self(1)?, 9.0);
//! # Ok::<(), offing_knn::Error>(())
//! ```

mod build;
mod far;
mod group;
mod groups;
mod kernels;
#[cfg(target_arch = "x86_64")]
mod kernels_avx2;
#[cfg(target_arch = "x86_64")]
mod kernels_avx512;
mod kernels_portable;
pub(crate) mod layout;
mod order;
mod pca;
pub(crate) mod project;
pub(crate) mod quantize;
mod query;
mod run;
mod self_search;
mod smallest;
pub(crate) mod store;
mod walk;

use crate::flat::Scan;
use crate::input::{check_k, check_queries, check_radius, flat};
use crate::threads::Pool;
use crate::{Error, Metric, NeighborIndex, Neighbors, Result, Threads};
pub use kernels::Loops;
use kernels::Width;
use layout::{Layout, Line};
use ndarray::{Array2, ArrayView2};
use project::Projection;
use quantize::Grid;
use run::Outcome;
use std::sync::OnceLock;
use store::Store;
use walk::Task;

/// How a [`Tree`] is built and searched.
#[derive(Debug, Clone, Copy, Default)]
pub struct TreeConfig {
    /// Distance to rank by.
    pub metric: Metric,
    /// Threads to build and search with.
    pub threads: Threads,
    /// Inner loops to use.
    pub loops: Loops,
}

/// An exact index that is far faster than [`Flat`](crate::Flat) when the rows have structure.
#[derive(Debug)]
pub struct Tree {
    pub(crate) parts: Parts,
    pool: Pool,
    width: Width,
    /// Searched by brute force: walking would meet most rows.
    shapeless: bool,
    /// The place of each row in the leaf order, once somebody asks for a row.
    places: OnceLock<Vec<u32>>,
}

/// Everything that makes up a tree and goes into its file.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) metric: Metric,
    pub(crate) layout: Layout,
    pub(crate) projection: Projection,
    pub(crate) grid: Grid,
    /// The rows as given, in leaf order.
    pub(crate) rows: Store<f32>,
    /// The row number each place of the leaf order came from.
    pub(crate) ids: Store<u32>,
    /// 1/|row| in leaf order; empty unless cosine.
    pub(crate) inverse: Store<f64>,
    pub(crate) blocks: Store<Line>,
    pub(crate) nodes: Store<Line>,
}

/// Neighbours found by an approximate search, with proof of how wrong they can be.
#[derive(Debug, Clone, PartialEq)]
pub struct Certified {
    /// The neighbours found. Distances are exact for the rows named; nearer rows may have been missed.
    pub neighbors: Neighbors,
    /// For each distance, a value the exact search's distance at that rank is not below; (queries, k).
    pub lower: Array2<f32>,
}

impl Tree {
    /// Builds a tree over a copy of `rows`.
    ///
    /// # Errors
    /// When there is no row, no column, a value is not finite, or (cosine) a row is zero.
    pub fn new(cfg: &TreeConfig, rows: ArrayView2<f32>) -> Result<Tree> {
        let pool = Pool::new(cfg.threads)?;
        let parts = build::build(cfg, rows, &pool)?;
        Ok(Tree::of(parts, pool, cfg.loops))
    }

    /// A tree over parts read from a file.
    pub(crate) fn from_parts(parts: Parts, threads: Threads, loops: Loops) -> Result<Tree> {
        Ok(Tree::of(parts, Pool::new(threads)?, loops))
    }

    fn of(parts: Parts, pool: Pool, loops: Loops) -> Tree {
        let mut tree = Tree { parts, pool, width: loops.width(), shapeless: false, places: OnceLock::new() };
        tree.shapeless = tree.is_shapeless();
        tree
    }

    /// Brute force over the rows in leaf order.
    fn scan(&self) -> Scan<'_> {
        let Parts { metric, rows, ids, inverse, .. } = &self.parts;
        Scan { metric: *metric, dim: self.dim(), rows, inverse, ids, pool: &self.pool }
    }

    /// Row number `id`, as given.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, id: usize) -> &[f32] {
        let (ids, dim) = (&self.parts.ids, self.dim());
        let places = self.places.get_or_init(|| {
            let mut places = vec![0; self.len()];
            ids.iter().zip(0..).for_each(|(&id, place)| places[id as usize] = place);
            places
        });
        &self.parts.rows[places[id] as usize * dim..][..dim]
    }

    /// The numbers of all rows in the order of the leaves: rows near to one another stand near to one another. Searching in
    /// this order is fastest.
    pub fn order(&self) -> &[u32] {
        &self.parts.ids
    }

    /// Bytes the index occupies, rows included.
    pub fn bytes(&self) -> usize {
        let p = &self.parts;
        size_of_val(&*p.rows)
            + size_of_val(&*p.ids)
            + size_of_val(&*p.inverse)
            + size_of_val(&*p.blocks)
            + size_of_val(&*p.nodes)
    }

    /// Like [`search`](NeighborIndex::search), but a row is also left out when it could improve a distance by
    /// less than the factor 1 + `epsilon`. Faster, and certified: the exact distance at each rank lies between
    /// [`Certified::lower`] and the distance returned, which is at most 1 + `epsilon` times the exact one (for
    /// cosine, (1 + `epsilon`)² times).
    ///
    /// # Errors
    /// As `search`, and an `epsilon` that is negative or not finite.
    pub fn search_approx(&self, queries: ArrayView2<f32>, k: usize, epsilon: f32) -> Result<Certified> {
        if !(epsilon >= 0.0 && epsilon.is_finite()) {
            return Err(Error::BadEpsilon { epsilon });
        }
        check_k(k, self.len(), self.len())?;
        let queries = check_queries(queries, self.dim(), self.metric())?;
        let task = Task { shrink: 1.0 / (1.0 + f64::from(epsilon)), ..Task::SEARCH };
        let found = self.walk_all(flat(&queries), k, &task, |o, out| out.extend(o.best.padded()));
        // A row left out is farther than the last of the list divided by 1 + ε, and so than any of the list.
        let factor = if epsilon == 0.0 { 1.0 } else { task.shrink * (1.0 - 1e-6) };
        let factor = if self.metric() == Metric::Manhattan { factor } else { factor * factor };
        let lower = found.iter().map(|c| self.metric().distance(c.key * factor)).collect();
        let neighbors = Neighbors::from_lists(found, k, self.metric());
        let lower = Array2::from_shape_vec(neighbors.ids.dim(), lower).expect("one bound a neighbour");
        Ok(Certified { neighbors, lower })
    }
}

impl NeighborIndex for Tree {
    fn len(&self) -> usize {
        self.parts.layout.rows
    }

    fn dim(&self) -> usize {
        self.parts.layout.dim
    }

    fn metric(&self) -> Metric {
        self.parts.metric
    }

    fn search(&self, queries: ArrayView2<f32>, k: usize) -> Result<Neighbors> {
        check_k(k, self.len(), self.len())?;
        let queries = check_queries(queries, self.dim(), self.metric())?;
        let queries = flat(&queries);
        let found = if self.shapeless {
            self.scan().run(queries, k, |_| None)
        } else {
            self.walk_all(queries, k, &Task::SEARCH, |o, out| out.extend(o.best.padded()))
        };
        Ok(Neighbors::from_lists(found, k, self.metric()))
    }

    fn within(&self, queries: ArrayView2<f32>, radius: f32, k: usize) -> Result<Vec<bool>> {
        check_radius(radius)?;
        check_k(k, self.len(), self.len())?;
        let queries = check_queries(queries, self.dim(), self.metric())?;
        let (start_key, stop_key) = self.metric().keys_around(radius);
        let task = Task { start_key, stop_key, ..Task::SEARCH };
        let metric = self.metric();
        Ok(self.walk_all(flat(&queries), k, &task, |o: Outcome, out| {
            out.push(o.stopped || metric.distance(o.best.worst_key()) <= radius);
        }))
    }

    fn search_self(&self, k: usize) -> Result<Neighbors> {
        check_k(k, self.len() - 1, self.len())?;
        Ok(Neighbors::from_lists(self.walk_self(k), k, self.metric()))
    }

    fn max_self(&self, k: usize) -> Result<f32> {
        check_k(k, self.len() - 1, self.len())?;
        Ok(self.metric().distance(self.max_self_key(k)))
    }
}
