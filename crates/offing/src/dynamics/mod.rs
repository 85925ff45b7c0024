//! Models of the world: what happens after (s, a), how sure the model is, and when an episode ends.
//!
//! A model knows nothing of uncertainty estimators and of how its steps are used.

mod adversary;
#[cfg(test)]
mod adversary_tests;
mod cache;
mod config;
mod data;
mod ensemble;
mod expression;
mod head;
mod learnt;
mod linear;
mod open_loop;
mod oracle;
mod part;
mod termination;
#[cfg(test)]
mod tests;
mod trainer;

pub use adversary::{Adversary, AdversaryConfig, AdversaryLosses};
pub use cache::{Cached, Fit, FitEvent, cached, is_kept, key as model_key};
pub use config::EnsembleConfig;
pub use data::{Scaler, check_rows};
pub use ensemble::Ensemble;
pub use expression::Expression;
pub use learnt::{LearnedTermination, LearntConfig};
pub use linear::{Comparison, Linear, compare};
pub use open_loop::{Curve, OpenLoop, OpenLoopConfig, open_loop};
pub use oracle::{Lost, LostCounts, Oracle, Replay, Trajectories};
pub use termination::{Termination, TerminationConfig};
pub use trainer::{FitReport, Progress, Trainer};

use ndarray::{Array1, Array3, Axis};

use crate::batch::{Batch, Mat};
use crate::rng::Rng;

/// Every member's Gaussian over (s', r): arrays of (member, row, obs_dim + 1), the reward last.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Means of s' (not of the change) and r.
    pub mean: Array3<f32>,
    /// Standard deviations.
    pub std: Array3<f32>,
}

/// One imagined step of a batch of rows.
#[derive(Clone, Debug)]
pub struct ModelStep {
    /// (s, a, r, s', done) as sampled; `done` by the termination function.
    pub batch: Batch,
    /// The member that made each row.
    pub member: Array1<u32>,
    /// Mean of (s', r) by that member.
    pub mean: Mat,
    /// Standard deviation of (s', r) by that member.
    pub std: Mat,
    /// All members' opinions, when they were asked for.
    pub prediction: Option<Prediction>,
}

impl ModelStep {
    /// The given rows, in the given order.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self {
            batch: self.batch.select(rows),
            member: self.member.select(Axis(0), rows),
            mean: self.mean.select(Axis(0), rows),
            std: self.std.select(Axis(0), rows),
            prediction: self
                .prediction
                .as_ref()
                .map(|f| Prediction { mean: f.mean.select(Axis(1), rows), std: f.std.select(Axis(1), rows) }),
        }
    }

    /// Transitions that no model made, as a step: the mean is what happened and the spread 0. Enough for estimators that
    /// look at rows alone.
    pub fn of_rows(batch: Batch) -> Self {
        let (rows, width) = (batch.len(), batch.obs_dim() + 1);
        let mut mean = Mat::zeros((rows, width));
        mean.slice_mut(ndarray::s![.., ..width - 1]).assign(&batch.next_obs);
        mean.column_mut(width - 1).assign(&batch.rew);
        Self { member: Array1::zeros(rows), mean, std: Mat::zeros((rows, width)), prediction: None, batch }
    }
}

/// How many members a step has to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Members {
    /// Only the one drawn for each row: a seventh of the work.
    #[default]
    One,
    /// All, for estimators that compare them.
    All,
}

/// A model of the world.
pub trait DynamicsModel: Send + Sync {
    /// Every member's prediction.
    fn predict(&self, obs: &Mat, act: &Mat) -> Prediction;
    /// Whether the episode ends with the step from `obs` to `next_obs`.
    fn done(&self, obs: &Mat, act: &Mat, next_obs: &Mat) -> Array1<bool>;
    /// Draws a member for each row and samples its prediction.
    fn step(&self, obs: &Mat, act: &Mat, members: Members, rng: &mut Rng) -> ModelStep;
}
