//! Brute force, blocked: the plain answer that the tree is tested against, and the better choice for a
//! few thousand rows.
//!
//! ```
//! use ndarray::array;
//! use offing_knn::{Flat, FlatConfig, NeighborIndex};
//! let index = Flat::new(&FlatConfig::default(), array![[0.0, 0.0], [3.0, 4.0]].view())?;
//! let found = index.search(array![[3.0, 3.0]].view(), 1)?;
//! assert_eq!((found.ids[[0, 0]], found.distances[[0, 0]]), (1, 1.0));
//! # Ok::<(), offing_knn::Error>(())
//! ```

use crate::input::{check_k, check_queries, check_radius, check_rows, flat};
use crate::metric::{Scales, inverse_length};
use crate::neighbors::{Best, Candidate};
use crate::threads::Pool;
use crate::{Metric, NeighborIndex, Neighbors, Result, Threads};
use ndarray::ArrayView2;

/// How a [`Flat`] index is built.
#[derive(Debug, Clone, Copy, Default)]
pub struct FlatConfig {
    /// Distance to rank by.
    pub metric: Metric,
    /// Threads to search with.
    pub threads: Threads,
}

/// An index that compares each query with every row.
#[derive(Debug)]
pub struct Flat {
    metric: Metric,
    dim: usize,
    rows: Vec<f32>,
    /// 1/|row| for cosine, else empty.
    inverse: Vec<f64>,
    pool: Pool,
}

/// Rows compared at once: their columns lie side by side, one lane a row.
const PANEL: usize = 16;
/// Queries that share one pass over the rows.
const QUERY_BLOCK: usize = 64;

impl Flat {
    /// Copies `rows` into a new index.
    ///
    /// # Errors
    /// When there is no row, no column, a value is not finite, or (cosine) a row is zero.
    pub fn new(cfg: &FlatConfig, rows: ArrayView2<f32>) -> Result<Flat> {
        let rows = check_rows(rows, cfg.metric)?;
        let dim = rows.ncols();
        let rows = flat(&rows).to_vec();
        let inverse = inverse_lengths(&rows, dim, cfg.metric);
        Ok(Flat { metric: cfg.metric, dim, rows, inverse, pool: Pool::new(cfg.threads)? })
    }

    fn scan(&self) -> Scan<'_> {
        let Flat { metric, dim, rows, inverse, pool } = self;
        Scan { metric: *metric, dim: *dim, rows, inverse, ids: &[], pool }
    }
}

/// Rows to compare every query with.
pub(crate) struct Scan<'a> {
    pub(crate) metric: Metric,
    pub(crate) dim: usize,
    pub(crate) rows: &'a [f32],
    /// 1/|row| for cosine, else empty.
    pub(crate) inverse: &'a [f64],
    /// The numbers of the rows; empty where they are in order.
    pub(crate) ids: &'a [u32],
    pub(crate) pool: &'a Pool,
}

impl Scan<'_> {
    fn count(&self) -> usize {
        self.rows.len() / self.dim
    }

    /// The best `k` of each query, one after the other; `skip(i)` is the place of a row that query `i` may not return.
    pub(crate) fn run(
        &self,
        queries: &[f32],
        k: usize,
        skip: impl Fn(usize) -> Option<usize> + Sync,
    ) -> Vec<Candidate> {
        let count = queries.len() / self.dim;
        let piece = QUERY_BLOCK.min(count.div_ceil(self.pool.width()));
        let lists = self.pool.pieces(count, piece, |range| {
            let mut best: Vec<Best> = range.clone().map(|_| Best::new(k)).collect();
            let filters: Vec<Filter> = range
                .clone()
                .map(|i| Filter::new(self.metric, &queries[i * self.dim..(i + 1) * self.dim]))
                .collect();
            let mut panel = vec![[0f32; PANEL]; self.dim];
            for start in (0..self.count()).step_by(PANEL) {
                let rows = start..(start + PANEL).min(self.count());
                for (lane, row) in
                    self.rows[start * self.dim..].chunks_exact(self.dim).take(PANEL).enumerate()
                {
                    panel.iter_mut().zip(row).for_each(|(column, v)| column[lane] = *v);
                }
                for ((i, best), filter) in range.clone().zip(&mut best).zip(&filters) {
                    self.scan_panel(filter, &panel, rows.clone(), skip(i), best);
                }
            }
            best.iter().flat_map(|b| b.list().iter().copied()).collect::<Vec<_>>()
        });
        lists.concat()
    }

    fn scan_panel(
        &self,
        filter: &Filter,
        panel: &[[f32; PANEL]],
        rows: std::ops::Range<usize>,
        skip: Option<usize>,
        best: &mut Best,
    ) {
        let Some(sums) = filter.near(panel, best.worst_key()) else { return };
        for (r, sum) in rows.zip(sums) {
            if sum > filter.limit(best.worst_key()) || Some(r) == skip {
                continue;
            }
            let row = &self.rows[r * self.dim..(r + 1) * self.dim];
            let scales = Scales { query: filter.inverse, row: self.inverse.get(r).copied().unwrap_or(1.0) };
            best.offer(Candidate {
                key: self.metric.key(filter.query, row, scales),
                id: self.ids.get(r).copied().unwrap_or(r as u32),
            });
        }
    }
}

impl NeighborIndex for Flat {
    fn len(&self) -> usize {
        self.rows.len() / self.dim
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn metric(&self) -> Metric {
        self.metric
    }

    fn search(&self, queries: ArrayView2<f32>, k: usize) -> Result<Neighbors> {
        check_k(k, self.len(), self.len())?;
        let queries = check_queries(queries, self.dim, self.metric)?;
        Ok(Neighbors::from_lists(self.scan().run(flat(&queries), k, |_| None), k, self.metric))
    }

    fn within(&self, queries: ArrayView2<f32>, radius: f32, k: usize) -> Result<Vec<bool>> {
        check_radius(radius)?;
        Ok(self.search(queries, k)?.kth().into_iter().map(|d| d <= radius).collect())
    }

    fn search_self(&self, k: usize) -> Result<Neighbors> {
        check_k(k, self.len() - 1, self.len())?;
        Ok(Neighbors::from_lists(self.scan().run(&self.rows, k, Some), k, self.metric))
    }

    fn max_self(&self, k: usize) -> Result<f32> {
        Ok(self.search_self(k)?.kth().into_iter().fold(0.0, f32::max))
    }
}

pub(crate) fn inverse_lengths(rows: &[f32], dim: usize, metric: Metric) -> Vec<f64> {
    match metric {
        Metric::Cosine => rows.chunks_exact(dim).map(inverse_length).collect(),
        Metric::Euclidean | Metric::Manhattan => Vec::new(),
    }
}

/// A cheap f32 test that a row cannot enter the list; rows it lets through are measured in f64.
struct Filter<'a> {
    metric: Metric,
    query: &'a [f32],
    inverse: f64,
    /// Relative slack that covers the rounding of an f32 sum over all columns.
    slack: f64,
}

impl<'a> Filter<'a> {
    fn new(metric: Metric, query: &'a [f32]) -> Filter<'a> {
        let inverse = if metric == Metric::Cosine { inverse_length(query) } else { 1.0 };
        Filter { metric, query, inverse, slack: 1.0 + 4e-7 * (query.len() as f64 + 10.0) }
    }

    /// An f32 sum larger than this proves that a row cannot enter a list whose worst key is `worst`.
    #[inline]
    fn limit(&self, worst: f64) -> f32 {
        // The slack also covers denormals (each term loses less than 1e-37); an overflow to infinity is far
        // only when the limit itself is representable.
        let limit = worst * self.slack + 1e-37 * self.query.len() as f64;
        if limit > 1e37 { f32::INFINITY } else { limit as f32 }
    }

    /// The sums of sixteen rows, unless all are too large.
    #[inline]
    fn near(&self, panel: &[[f32; PANEL]], worst: f64) -> Option<[f32; PANEL]> {
        let sums = match self.metric {
            Metric::Euclidean => sums(self.query, panel, |a, b| (a - b) * (a - b)),
            Metric::Manhattan => sums(self.query, panel, |a, b| (a - b).abs()),
            Metric::Cosine => [0.0; PANEL],
        };
        let limit = self.limit(worst);
        let near = sums.iter().fold(false, |near, sum| near | (*sum <= limit));
        near.then_some(sums)
    }
}

#[inline(always)]
fn sums(query: &[f32], panel: &[[f32; PANEL]], f: impl Fn(f32, f32) -> f32) -> [f32; PANEL] {
    let mut sums = [0f32; PANEL];
    for (q, column) in query.iter().zip(panel) {
        for (sum, x) in sums.iter_mut().zip(column) {
            *sum += f(*q, *x);
        }
    }
    sums
}
