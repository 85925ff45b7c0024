//! Columns of transitions: what datasets, models and learners exchange.

use ndarray::{Array1, Array2, Axis};

use crate::error::{Result, require};
use crate::prefetch::fetch_early;

/// A row-major matrix of f32.
pub type Mat = Array2<f32>;

/// Columns of transitions (s, a, r, s', done). The same type serves dataset rows, imagined rows and a training batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// States s, one a row.
    pub obs: Mat,
    /// Actions a.
    pub act: Mat,
    /// Rewards r.
    pub rew: Array1<f32>,
    /// Next states s'.
    pub next_obs: Mat,
    /// True terminals only: the return stops here. A time limit is not a terminal.
    pub done: Array1<bool>,
}

impl Batch {
    /// A batch without rows.
    pub fn empty(obs_dim: usize, act_dim: usize) -> Self {
        Self {
            obs: Mat::zeros((0, obs_dim)),
            act: Mat::zeros((0, act_dim)),
            rew: Array1::zeros(0),
            next_obs: Mat::zeros((0, obs_dim)),
            done: Array1::from_elem(0, false),
        }
    }

    /// Number of transitions.
    pub fn len(&self) -> usize {
        self.rew.len()
    }

    /// True when there is no transition.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows picked at random come from memory, not from a cache: how many rows before its use to ask for one.
    pub(crate) const AHEAD: usize = 16;

    /// Prefetches a row that is read soon.
    #[inline]
    pub(crate) fn fetch_early(&self, row: usize) {
        for columns in [&self.obs, &self.act, &self.next_obs] {
            if let Some(values) = columns.row(row).to_slice() {
                fetch_early(values);
            }
        }
        fetch_early(std::slice::from_ref(&self.rew[row]));
        fetch_early(std::slice::from_ref(&self.done[row]));
    }

    /// Width of a state.
    pub fn obs_dim(&self) -> usize {
        self.obs.ncols()
    }

    /// Width of an action.
    pub fn act_dim(&self) -> usize {
        self.act.ncols()
    }

    /// Refuses rows of other widths than wanted; `whose` begins the message.
    pub(crate) fn check_widths(&self, whose: &str, obs_dim: usize, act_dim: usize) -> Result<()> {
        let (obs, act) = (self.obs_dim(), self.act_dim());
        require!(
            (obs, act) == (obs_dim, act_dim),
            "{whose}: wanted {obs_dim} observation and {act_dim} action columns, found {obs} and {act}; use rows of the \
             same task"
        );
        Ok(())
    }

    /// The given rows, in the given order.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self {
            obs: self.obs.select(Axis(0), rows),
            act: self.act.select(Axis(0), rows),
            rew: self.rew.select(Axis(0), rows),
            next_obs: self.next_obs.select(Axis(0), rows),
            done: self.done.select(Axis(0), rows),
        }
    }
}
