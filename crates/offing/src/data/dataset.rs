//! What a dataset is once it has been read: transitions, episodes, simulator states and how they were obtained.

use std::collections::BTreeMap;
use std::ops::Range;

use ndarray::{Array1, Array2, Axis};

use crate::batch::Batch;

/// Logged transitions with what is known about where they come from.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// The name to print in tables: a dataset id or a file stem.
    pub name: String,
    /// Which file layout it was read from.
    pub format: Format,
    /// The transitions, in the file's order.
    pub rows: Batch,
    /// Rows at which a time limit (not a terminal) ended the episode; the return would go on from `next_obs`. A file
    /// may mark a row as both: then `done` decides.
    pub timeout: Array1<bool>,
    /// Rows of each episode, in order, without gaps; the last may be unfinished.
    pub episodes: Vec<Range<usize>>,
    /// Simulator states at `obs`, when the file has them.
    pub sim: Option<SimColumns>,
    /// How the transitions were obtained from the file: the choice made and the rows it cost.
    pub reading: Reading,
    /// What the file says about itself: D4RL's `metadata/*` texts and numbers, Minari's `metadata.json`.
    pub meta: BTreeMap<String, String>,
}

/// The file layouts offing reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// D4RL's flat HDF5 file.
    D4rl,
    /// A Minari dataset directory (HDF5 storage).
    Minari,
    /// A table of one transition a row.
    Parquet,
    /// A text table of one transition a row.
    Csv,
    /// A NumPy archive with D4RL's keys.
    Npz,
}

/// Simulator states beside the observations (`infos/qpos`, `infos/qvel`, `infos/goal`).
#[derive(Clone, Debug, PartialEq)]
pub struct SimColumns {
    /// Generalised positions, one row a transition.
    pub qpos: Array2<f64>,
    /// Generalised velocities.
    pub qvel: Array2<f64>,
    /// Goal positions, when the task has a goal.
    pub goal: Option<Array2<f64>>,
}

/// Where next observations came from and what had to be left out. Logged with every load.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reading {
    /// Rows in the file.
    pub rows_in_file: usize,
    /// Transitions kept.
    pub rows_kept: usize,
    /// How next observations were obtained, in words.
    pub next_obs: String,
    /// Rows left out because their next observation is not in the file, with the reason.
    pub dropped: Vec<(String, usize)>,
    /// Keys of the file that were not used.
    pub ignored_keys: Vec<String>,
    /// What else a user should know about how the file was understood, one sentence each.
    pub notes: Vec<String>,
}

impl SimColumns {
    /// The given rows, in the given order.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self {
            qpos: self.qpos.select(Axis(0), rows),
            qvel: self.qvel.select(Axis(0), rows),
            goal: self.goal.as_ref().map(|g| g.select(Axis(0), rows)),
        }
    }
}

impl Format {
    /// The name used in messages and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::D4rl => "d4rl",
            Self::Minari => "minari",
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Npz => "npz",
        }
    }
}
