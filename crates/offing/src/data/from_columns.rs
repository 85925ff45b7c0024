//! A dataset from columns in memory, by the same rules as from a file.

use std::path::Path;

use ndarray::Array1;

use super::dataset::Dataset;
use super::formats::Format;
use super::options::ReadOptions;
use super::transitions::{FileColumns, FileKeys, assemble};
use crate::batch::Mat;
use crate::error::Result;

/// Logged steps, one entry a row, in the order in which they were logged.
#[derive(Clone, Debug, Default)]
pub struct LogColumns {
    /// Observations s.
    pub obs: Mat,
    /// Actions a.
    pub act: Mat,
    /// Rewards r.
    pub rew: Array1<f32>,
    /// Next observations s'. Without them, the next state of a row is the following row of its episode.
    pub next_obs: Option<Mat>,
    /// Steps after which the task was over.
    pub done: Array1<bool>,
    /// Steps at which a time limit struck or the log was cut.
    pub timeout: Option<Array1<bool>>,
}

impl Dataset {
    /// The dataset of these columns, called `name`.
    ///
    /// ```
    /// use ndarray::{Array1, Array2};
    /// use offing::data::{Dataset, LogColumns};
    /// let log = LogColumns {
    ///     obs: Array2::from_shape_fn((4, 2), |(row, _)| row as f32),
    ///     act: Array2::zeros((4, 1)),
    ///     rew: Array1::ones(4),
    ///     done: Array1::from_elem(4, false),
    ///     timeout: Some(ndarray::arr1(&[false, true, false, false])),
    ///     ..LogColumns::default()
    /// };
    /// // A time limit without a next observation, and the last row, have no next state.
    /// assert_eq!(Dataset::from_columns("log", log)?.rows.len(), 2);
    /// # Ok::<(), offing::Error>(())
    /// ```
    ///
    /// # Errors
    /// Columns of different lengths, values that are not finite, no transition at all.
    pub fn from_columns(name: &str, columns: LogColumns) -> Result<Self> {
        let LogColumns { obs, act, rew, next_obs, done, timeout } = columns;
        let keys = FileKeys::of_arrays("observations", "actions", "rewards", "next_observations");
        let columns = FileColumns { obs, act, rew, next_obs, done, timeout, keys, ..FileColumns::default() };
        let options = ReadOptions { name: Some(name.into()), ..ReadOptions::default() };
        assemble(columns, Path::new(name), Format::NPZ, &options)
    }
}
