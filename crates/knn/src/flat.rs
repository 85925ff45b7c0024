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

/// Rows compared with a group of queries before moving on: they stay in the first-level cache.
const ROW_BLOCK: usize = 64;
/// Queries that share one pass over the rows.
const QUERY_BLOCK: usize = 32;

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

    /// The best `k` of each query, one after the other; `skip(i)` is a row that query `i` may not return.
    fn scan(
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
            for start in (0..self.len()).step_by(ROW_BLOCK) {
                let end = (start + ROW_BLOCK).min(self.len());
                for ((i, best), filter) in range.clone().zip(&mut best).zip(&filters) {
                    self.scan_block(filter, start..end, skip(i), best);
                }
            }
            best.iter().flat_map(|b| b.list().iter().copied()).collect::<Vec<_>>()
        });
        lists.concat()
    }

    fn scan_block(
        &self,
        filter: &Filter,
        rows: std::ops::Range<usize>,
        skip: Option<usize>,
        best: &mut Best,
    ) {
        for r in rows {
            let row = &self.rows[r * self.dim..(r + 1) * self.dim];
            if filter.far(row, best.worst_key()) || Some(r) == skip {
                continue;
            }
            let scales = Scales { query: filter.inverse, row: self.inverse.get(r).copied().unwrap_or(1.0) };
            best.offer(Candidate { key: self.metric.key(filter.query, row, scales), id: r as u32 });
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
        Ok(Neighbors::from_lists(self.scan(flat(&queries), k, |_| None), k, self.metric))
    }

    fn within(&self, queries: ArrayView2<f32>, radius: f32, k: usize) -> Result<Vec<bool>> {
        check_radius(radius)?;
        Ok(self.search(queries, k)?.kth().into_iter().map(|d| d <= radius).collect())
    }

    fn search_self(&self, k: usize) -> Result<Neighbors> {
        check_k(k, self.len() - 1, self.len())?;
        Ok(Neighbors::from_lists(self.scan(&self.rows, k, Some), k, self.metric))
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
        Filter { metric, query, inverse, slack: 1.0 + 4e-7 * (query.len() as f64 + 8.0) }
    }

    #[inline]
    fn far(&self, row: &[f32], worst: f64) -> bool {
        // The slack also covers denormals (each term loses less than 1e-37); an overflow to infinity is far
        // only when the limit itself is representable.
        let limit = worst * self.slack + 1e-37 * self.query.len() as f64;
        if limit > 1e37 {
            return false;
        }
        match self.metric {
            Metric::Euclidean => f64::from(sum(self.query, row, |a, b| (a - b) * (a - b))) > limit,
            Metric::Manhattan => f64::from(sum(self.query, row, |a, b| (a - b).abs())) > limit,
            Metric::Cosine => false,
        }
    }
}

#[inline(always)]
fn sum(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut part = [0f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    for ((p, &x), &y) in part.iter_mut().zip(a8.remainder()).zip(b8.remainder()) {
        *p += f(x, y);
    }
    for (x, y) in a8.zip(b8) {
        for i in 0..8 {
            part[i] += f(x[i], y[i]);
        }
    }
    part.iter().sum()
}
