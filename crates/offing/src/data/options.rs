//! The choices of a reader, spelled out so that none is silent.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Result, bad_file};

/// How a file is turned into transitions. The default suits D4RL and Minari files as published.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Name to give the dataset; the file stem when absent. A generated file holds its own name. A name that belongs to a
    /// task with other widths is changed, with a note.
    pub name: Option<String>,
    /// Which columns of a table hold what; guessed from their names when absent. An error for formats without columns.
    pub columns: Option<ColumnMap>,
    /// What to do with a terminal row whose next observation is not in the file.
    pub terminal_next: TerminalNext,
    /// Leave out the rows at which a time limit ended the episode. By default they bootstrap like any other row,
    /// where the file has next observations.
    pub drop_timeouts: bool,
    /// Accept NaN and infinities (the audit counts them); otherwise the first one is an error.
    pub allow_non_finite: bool,
    /// Take every reward as 0 where the file has none, to learn its dynamics; otherwise that is an error.
    pub zero_rewards: bool,
    /// Bytes that reading may take; when absent, what the system says is free. A file that promises more is an error.
    pub memory_limit: Option<u64>,
    /// Which parts of an observation to concatenate, in this order, where a file has several (Minari's dictionaries,
    /// "observation" or "a/b"; robomimic's, "object"; LeRobot's columns, "observation.state").
    /// When absent: all leaves in the order given by [`read`](super::read)'s documentation.
    pub minari_obs: Option<Vec<String>>,
}

/// The next state of a terminal row in a file without next observations. It never enters a bootstrap, but a dynamics
/// model and a neighbour index do see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TerminalNext {
    /// The following row when the step to it is clearly an ordinary one (AntMaze: the ant walks on after the goal is
    /// reached, so its rewards are kept); otherwise the row is dropped, since the following row is a reset state.
    #[default]
    Auto,
    /// Drop every such row (loses all AntMaze rewards).
    Drop,
    /// Repeat the observation itself: keeps the reward, teaches a model that nothing moves there.
    Repeat,
    /// Always the following row, as `d4rl.qlearning_dataset` does. Poisons models at resets; for comparisons only.
    Follow,
}

/// Which columns of a table hold what. Also readable from TOML.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColumnMap {
    /// Columns of the observation, in order (or one Parquet list column).
    pub obs: Vec<String>,
    /// Columns of the action, in order (or one Parquet list column).
    pub act: Vec<String>,
    /// Column of the reward.
    pub rew: String,
    /// Columns of the next observation, in the order of `obs`.
    pub next_obs: Option<Vec<String>>,
    /// Column of true terminals (0/1, true/false, yes/no).
    pub done: Option<String>,
    /// Column of time limits (0/1, true/false, yes/no).
    pub timeout: Option<String>,
    /// Column that is constant within an episode.
    pub episode: Option<String>,
    /// Column that counts up by one within an episode.
    pub step: Option<String>,
}

impl ColumnMap {
    /// Reads a map from a TOML file.
    ///
    /// # Errors
    /// A file that cannot be read or holds something else.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| bad_file!(path, "cannot read: {e}"))?;
        toml::from_str(&text).map_err(|e| {
            let line = e.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            bad_file!(path, "line {line}: {}; fix the column map", e.message().replace('\n', " "))
        })
    }
}
