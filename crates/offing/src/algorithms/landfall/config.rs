//! Landfall's settings.

use serde::{Deserialize, Serialize};

use crate::algorithms::config::{ModelConfig, TrainConfig};
use crate::pessimism::Pessimism;
use crate::sac::SacConfig;
use crate::uncertainty::UncertaintyConfig;

/// Settings of Landfall.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LandfallConfig {
    /// The training loop.
    pub train: TrainConfig,
    /// What comes before learning by reinforcement.
    pub warm_start: WarmStart,
    /// Trajectories through which the actor learns.
    pub unroll: UnrollConfig,
    /// What holds the actor to logged actions.
    pub anchor: Anchor,
    /// The dynamics model.
    pub model: ModelConfig,
    /// What scores a step. `+ID` in the algorithm's name chooses a kind with its defaults: `mopo+fathom`. What each kind
    /// computes: docs/estimators.md. A program can register one of its own: `{ kind = "custom", name = "mine" }`.
    pub uncertainty: UncertaintyConfig,
    /// What is done about it.
    pub pessimism: Pessimism,
    /// Actor and critics. The policy acts without noise and there is no entropy term: `alpha`, `log_std`, `order` and
    /// `target_floor` play no part.
    pub sac: SacConfig,
    /// Which policy the training ends with.
    pub final_policy: FinalPolicy,
    /// Let actor and critics see observations with mean 0 and deviation 1. The saved policy takes raw ones.
    pub standardise: bool,
}

/// Which policy a training ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FinalPolicy {
    /// That of the last step.
    #[default]
    Last,
    /// Of all policies that were evaluated on the way, the one with the highest `model_return`. With more
    /// `model.ensemble.members` than `elites` that is measured in the members that are left over: the policy has not learnt
    /// from them, and cannot have learnt what only they get wrong.
    Picked,
}

/// The warm start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WarmStart {
    /// Gradient steps of cloning and of critics on the data's returns. They count as steps of the training.
    pub steps: u64,
    /// First learning rate of cloning; it falls to 0 along half a cosine.
    pub lr: f64,
}

impl WarmStart {
    /// A training that stays with the clone.
    pub(super) fn over(&self, steps: u64) -> Self {
        Self { steps, ..self.clone() }
    }

    pub(super) fn lr_at(&self, step: u64) -> f64 {
        let done = step as f64 / self.steps.max(1) as f64;
        0.5 * self.lr * (1.0 + (std::f64::consts::PI * done).cos())
    }
}

/// Trajectories through which the actor learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UnrollConfig {
    /// Trajectories of an update. They begin at the next states of the batch's first rows, or at states of the policy's own.
    pub starts: usize,
    /// Share of the trajectories that begin where the policy gets by itself in the model: values are then right on the states
    /// that it will meet, not only on those that the log has.
    pub own_states: f64,
    /// Updates between two rollouts that gather such states, each as long as the log's longest episode (1000 steps at most), cut by the guard.
    pub gather_every: u64,
    /// Steps of a trajectory (H).
    pub length: usize,
    /// Weight of longer returns: 0 trusts the critics after one step, 1 only at the end (λ).
    pub lambda: f32,
    /// Noise on the actions of imagined trajectories, as a share of how far logged actions lie from their clone's: so far the
    /// model knows what other actions do. A policy that earns its return only without noise stands on an edge that the model
    /// does not know well enough.
    pub noise: f32,
    /// Which expectile of their targets the critics learn: 0.5 is the mean, less is wary of returns that only some members of
    /// the model, or some draws of the noise, bring.
    pub expectile: f32,
    /// Evaluated and saved policies are averages of the actor's weights, over this share of the updates through the model:
    /// single policies fall now and then where their average does not. 0 takes the weights as they are.
    pub average: f64,
    /// Weight of the critics' mean loss on logged rows beside that on imagined ones, which has the rest. Without it, all rows
    /// count alike.
    pub logged_weight: Option<f32>,
    /// Learn through a model that predicts held-out rows hardly better than "nothing changes". Without it, such a training
    /// stays with the clone: all its steps are a warm start.
    pub despite_bad_model: bool,
}

/// The cloning loss beside the return.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Anchor {
    /// Weight of the mean squared distance from logged actions, beside a return that is divided by its mean size.
    pub weight: f32,
    /// The weight at the last step, reached in a straight line after the warm start; without it, the weight stays.
    pub weight_end: Option<f32>,
    /// How much more rows count that did better than usual for their state: exp(selectivity · A / deviation of A), where A
    /// is the row's return less the critics' value. 0 counts all rows alike.
    pub selectivity: f64,
}

impl Default for LandfallConfig {
    fn default() -> Self {
        Self {
            train: TrainConfig::default(),
            warm_start: WarmStart::default(),
            unroll: UnrollConfig::default(),
            anchor: Anchor::default(),
            model: ModelConfig::default(),
            uncertainty: UncertaintyConfig::Sumo(Default::default()),
            pessimism: Pessimism::PenalizeExcess { lambda: 1.0, quantile: 0.5 },
            sac: SacConfig::default(),
            final_policy: FinalPolicy::Last,
            standardise: true,
        }
    }
}

impl Default for WarmStart {
    fn default() -> Self {
        Self { steps: 5000, lr: 1e-3 }
    }
}

impl Default for UnrollConfig {
    fn default() -> Self {
        Self {
            starts: 128,
            own_states: 0.5,
            gather_every: 250,
            length: 10,
            lambda: 0.95,
            noise: 0.0,
            expectile: 0.5,
            average: 0.0,
            logged_weight: None,
            despite_bad_model: false,
        }
    }
}

impl UnrollConfig {
    /// Trajectories that begin at states of the log.
    pub(super) fn logged(&self) -> usize {
        self.starts - (self.starts as f64 * self.own_states) as usize
    }

    /// The share of new weights in the average at every one of so many updates.
    pub(super) fn average_rate(&self, updates: u64) -> Option<f32> {
        let over = self.average * updates as f64;
        (over > 0.0).then(|| (1.0 / over).min(1.0) as f32)
    }
}

impl Default for Anchor {
    fn default() -> Self {
        Self { weight: 0.4, weight_end: None, selectivity: 1.0 }
    }
}

impl Anchor {
    /// The weight after a share of the updates.
    pub(super) fn weight_at(&self, done: f64) -> f32 {
        let end = self.weight_end.unwrap_or(self.weight);
        self.weight + (end - self.weight) * done as f32
    }
}
