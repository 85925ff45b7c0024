//! Models of the task: what follows (s, a), how sure the model is, and when an episode ends.
//!
//! A model knows nothing of uncertainty estimators and of how its steps are used.

mod adversary;
#[cfg(test)]
mod adversary_tests;
mod cache;
mod config;
mod custom;
mod data;
mod ensemble;
mod expression;
mod head;
mod learnt;
mod linear;
mod mean_step;
mod open_loop;
mod oracle;
mod part;
mod termination;
#[cfg(test)]
mod tests;
mod trainer;

pub use adversary::{Adversary, AdversaryConfig, AdversaryLosses};
pub use cache::{CachedModel, FitEvent, FitRequest, fit_cached, is_cached, key as model_key};
pub use config::EnsembleConfig;
pub use custom::{Correction, ModelParts, StepFn};
pub use data::{Scaler, check_rows};
pub use ensemble::Ensemble;
pub use expression::Expression;
pub use learnt::{LearnedConfig, LearnedTermination};
pub use linear::{HoldoutComparison, Linear, compare};
pub use mean_step::{MeanStep, StepGradient};
pub use open_loop::{Curve, OpenLoop, OpenLoopConfig, open_loop};
pub use oracle::{LostCounts, LostRows, Oracle, OracleStep, Trajectories};
pub use termination::{Termination, TerminationConfig};
pub use trainer::{FitProgress, FitReport, Trainer};

use ndarray::{Array1, Array3, Axis, s};

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

impl Prediction {
    /// Means and deviations of the member chosen for each row.
    pub fn by(&self, member: &Array1<u32>) -> (Mat, Mat) {
        let (_, rows, width) = self.mean.dim();
        let pick =
            |from: &Array3<f32>| Mat::from_shape_fn((rows, width), |(i, j)| from[[member[i] as usize, i, j]]);
        (pick(&self.mean), pick(&self.std))
    }
}

/// One step of a batch of rows in a model.
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
    /// Every member's prediction, for callers that asked for [`Members::All`].
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
                .map(|p| Prediction { mean: p.mean.select(Axis(1), rows), std: p.std.select(Axis(1), rows) }),
        }
    }

    /// Transitions that no model made, as a step: the mean is what happened and the spread 0. Enough for estimators that
    /// look at rows alone.
    pub fn of_rows(batch: Batch) -> Self {
        let (rows, width) = (batch.len(), batch.obs_dim() + 1);
        let mut mean = Mat::zeros((rows, width));
        mean.slice_mut(s![.., ..width - 1]).assign(&batch.next_obs);
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

/// A model of the task: what follows (s, a). Rollouts, estimators and algorithms work with any.
///
/// ```
/// use ndarray::{Array1, Array3};
/// use offing::dynamics::{DynamicsModel, Members, Prediction};
/// use offing::{Mat, Rng};
///
/// /// The state moves by the action; the reward is its first entry. Two members, sure to 0.1, disagree by 1.
/// struct Drift;
///
/// impl DynamicsModel for Drift {
///     fn members(&self) -> usize {
///         2
///     }
///     fn predict(&self, obs: &Mat, act: &Mat) -> Prediction {
///         let (rows, width) = (obs.nrows(), obs.ncols() + 1);
///         let mean = Array3::from_shape_fn((2, rows, width), |(member, i, j)| match j < width - 1 {
///             true => obs[[i, j]] + act[[i, 0]] + member as f32,
///             false => obs[[i, 0]],
///         });
///         Prediction { std: Array3::from_elem(mean.dim(), 0.1), mean }
///     }
///     fn done(&self, _obs: &Mat, _act: &Mat, next_obs: &Mat) -> Array1<bool> {
///         next_obs.column(0).mapv(|x| x.abs() > 10.0)
///     }
/// }
///
/// let step = Drift.step(&Mat::zeros((4, 2)), &Mat::ones((4, 1)), Members::One, &mut Rng::stream(0, "step", 0));
/// assert!(step.batch.next_obs.iter().all(|x| (0.0..3.0).contains(x)));
/// ```
pub trait DynamicsModel: Send + Sync {
    /// Number of members.
    fn members(&self) -> usize;

    /// What every member predicts.
    fn predict(&self, obs: &Mat, act: &Mat) -> Prediction;

    /// Whether the episode ends with the step from `obs` to `next_obs`.
    fn done(&self, obs: &Mat, act: &Mat, next_obs: &Mat) -> Array1<bool>;

    /// Draws the member that makes the step of each row. The default draws from all.
    fn draw_members(&self, rows: usize, rng: &mut Rng) -> Array1<u32> {
        (0..rows).map(|_| rng.below(self.members()) as u32).collect()
    }

    /// Samples from the Gaussian of the member chosen for each row.
    ///
    /// The default computes every member; a model that can compute one alone has its own.
    fn step_by(
        &self,
        member: Array1<u32>,
        obs: &Mat,
        act: &Mat,
        members: Members,
        rng: &mut Rng,
    ) -> ModelStep {
        let prediction = self.predict(obs, act);
        let (mean, std) = prediction.by(&member);
        let sampled = Mat::from_shape_fn(mean.dim(), |at| mean[at] + std[at] * rng.normal() as f32);
        let batch = sampled_batch(self, obs, act, &sampled);
        ModelStep { batch, member, mean, std, prediction: (members == Members::All).then_some(prediction) }
    }

    /// Draws a member for each row and samples from its Gaussian.
    fn step(&self, obs: &Mat, act: &Mat, members: Members, rng: &mut Rng) -> ModelStep {
        self.step_by(self.draw_members(obs.nrows(), rng), obs, act, members, rng)
    }
}

/// The transitions to sampled (s', r).
fn sampled_batch(model: &(impl DynamicsModel + ?Sized), obs: &Mat, act: &Mat, sampled: &Mat) -> Batch {
    let width = obs.ncols();
    let next_obs = sampled.slice(s![.., ..width]).to_owned();
    let done = model.done(obs, act, &next_obs);
    Batch { obs: obs.clone(), act: act.clone(), rew: sampled.column(width).to_owned(), next_obs, done }
}
