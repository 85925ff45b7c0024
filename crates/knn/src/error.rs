//! Everything that can go wrong, each in one line that says what was wanted and what was found.

use std::path::PathBuf;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why an index could not be built, searched, saved or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A stored row holds NaN or an infinity.
    #[error("row {row} column {col} is {value}: every row must be finite; drop or repair it before indexing")]
    BadRow {
        /// Row of the matrix the index was built from.
        row: usize,
        /// Column of the offending value.
        col: usize,
        /// The value itself.
        value: f32,
    },
    /// A query holds NaN or an infinity.
    #[error("query {row} column {col} is {value}: every query must be finite")]
    BadQuery {
        /// Row of the query matrix.
        row: usize,
        /// Column of the offending value.
        col: usize,
        /// The value itself.
        value: f32,
    },
    /// A stored row has length zero, so it has no direction.
    #[error("row {row} is a zero vector: cosine distance needs a direction; drop it or use another metric")]
    ZeroRow {
        /// Row of the matrix the index was built from.
        row: usize,
    },
    /// A query has length zero, so it has no direction.
    #[error("query {row} is a zero vector: cosine distance needs a direction")]
    ZeroQuery {
        /// Row of the query matrix.
        row: usize,
    },
    /// The index would be empty or its rows would have no columns.
    #[error("cannot index {rows} rows of {cols} columns: at least one row and one column are needed")]
    Empty {
        /// Number of rows given.
        rows: usize,
        /// Number of columns given.
        cols: usize,
    },
    /// More rows than a 32-bit id can name.
    #[error("cannot index {rows} rows: at most {max} fit one index; split the data", max = crate::MAX_ROWS)]
    TooManyRows {
        /// Number of rows given.
        rows: usize,
    },
    /// Queries and index disagree on the number of columns.
    #[error("queries have {found} columns, the index has {wanted}")]
    Dimension {
        /// Columns of the index.
        wanted: usize,
        /// Columns of the queries.
        found: usize,
    },
    /// `k` is zero or larger than the number of rows that may be returned.
    #[error("k = {k} is out of range: this search can return 1 to {max} neighbours of {rows} rows")]
    BadK {
        /// The k asked for.
        k: usize,
        /// Largest k possible here (one less for a self-search).
        max: usize,
        /// Number of rows in the index.
        rows: usize,
    },
    /// A radius that is NaN or negative.
    #[error("radius {radius} is not a distance: it must be 0 or more")]
    BadRadius {
        /// The radius asked for.
        radius: f32,
    },
    /// An approximation factor that is negative, NaN or infinite.
    #[error("epsilon {epsilon} is not a tolerance: it must be finite and 0 or more")]
    BadEpsilon {
        /// The ε asked for.
        epsilon: f32,
    },
    /// The worker threads could not be started.
    #[error("could not start {threads} search threads: {why}")]
    Threads {
        /// Number of threads asked for.
        threads: usize,
        /// What the thread pool said.
        why: String,
    },
    /// The file is no index of this crate, or not one this version can read, or damaged.
    #[error("{path}: {why}", path = path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it and what to do.
        why: String,
    },
    /// The operating system refused a read or a write.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
}
