//! Exact k-nearest-neighbour search on the CPU.
//!
//! Two indexes behind one trait, [`NeighborIndex`]: [`Flat`] compares every row, [`Tree`] skips what it can
//! prove to be too far. Both return the same ids and the same bits, whatever the number of threads and
//! whichever instructions the processor has.
//!
//! ```
//! use ndarray::Array2;
//! use offing_knn::{NeighborIndex, Tree, TreeConfig};
//!
//! let rows = Array2::from_shape_fn((1000, 8), |(i, j)| ((i * 31 + j * 17) % 101) as f32);
//! let index = Tree::new(&TreeConfig::default(), rows.view())?;
//! let found = index.search(rows.view(), 3)?;
//! assert_eq!(found.ids.dim(), (1000, 3));
//! assert_eq!(found.distances[[7, 0]], 0.0);       // a stored row finds itself (or its twin with a lower id)
//! # Ok::<(), offing_knn::Error>(())
//! ```

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod error;
mod metric;
mod input;
mod neighbors;
mod threads;
mod flat;
mod tree;
mod file;

pub use error::{Error, Result};
pub use flat::{Flat, FlatConfig};
pub use metric::Metric;
pub use neighbors::Neighbors;
pub use threads::Threads;
pub use tree::{Certified, Loops, Tree, TreeConfig};

use ndarray::ArrayView2;

/// Most rows one index can hold: ids and places in the tree are 32 bits wide.
pub const MAX_ROWS: usize = (1 << 31) - 64;

/// Nearest-neighbour search over a fixed set of rows.
///
/// Every answer is exact: rows are ranked by a distance summed in f64, ties go to the lower id.
pub trait NeighborIndex: Send + Sync {
    /// Number of rows.
    fn len(&self) -> usize;

    /// Never: an index holds at least one row.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of columns.
    fn dim(&self) -> usize;

    /// The distance rows are ranked by.
    fn metric(&self) -> Metric;

    /// The `k` nearest rows of each query, nearest first.
    ///
    /// # Errors
    /// Queries of the wrong width, not finite or (cosine) zero; `k` outside 1..=len.
    fn search(&self, queries: ArrayView2<f32>, k: usize) -> Result<Neighbors>;

    /// For each query, whether its k-th neighbour is at a distance of at most `radius`. Cheaper than a search.
    ///
    /// # Errors
    /// As [`search`](Self::search), and a radius that is NaN or negative.
    fn within(&self, queries: ArrayView2<f32>, radius: f32, k: usize) -> Result<Vec<bool>>;

    /// The `k` nearest *other* rows of each stored row. A duplicate of a row is a neighbour at distance 0.
    ///
    /// # Errors
    /// `k` outside 1..=len−1.
    fn search_self(&self, k: usize) -> Result<Neighbors>;

    /// The largest distance to a k-th neighbour that [`search_self`](Self::search_self) would report, found
    /// without the full self-search.
    ///
    /// # Errors
    /// `k` outside 1..=len−1.
    fn max_self(&self, k: usize) -> Result<f32>;
}
