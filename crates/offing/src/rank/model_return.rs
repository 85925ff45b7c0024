//! Penalised model return: the policy acts in a learnt model, and every step costs what Eq. 6 takes for its uncertainty.

use ndarray::Axis;
use serde::{Deserialize, Serialize};

use crate::batch::Mat;
use crate::dynamics::ModelStep;
use crate::error::{Result, invalid};
use crate::rng::Rng;
use crate::rollout::ModelRollout;
use crate::sac::Actor;

/// How far policies are followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelReturnConfig {
    /// Rollouts, each from a first state of the data.
    pub starts: usize,
    /// Steps of a rollout.
    pub length: usize,
    /// Discount (γ).
    pub gamma: f64,
    /// Weight of the penalty (λ).
    pub lambda: f32,
}

impl Default for ModelReturnConfig {
    fn default() -> Self {
        Self { starts: 500, length: 200, gamma: 0.99, lambda: 1.0 }
    }
}

/// What a model predicts of a policy; means over rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ModelReturn {
    /// Σ γᵗ (r − λ·û).
    pub value: f64,
    /// Σ γᵗ r: what the model alone promises.
    pub unpenalised: f64,
    /// Steps until the rollout ended.
    pub length: f64,
    /// Share of rollouts that left the range of numbers.
    pub exploded: f64,
}

/// Rolls the policy out from `starts` and adds up penalised rewards. `rollout` holds the model, the estimator and a
/// rule that penalises; `worst` is the penalised reward of every step after the model left its range, the least a step can bring.
pub fn model_return(
    cfg: &ModelReturnConfig,
    rollout: &mut ModelRollout<'_>,
    policy: &Actor,
    starts: Mat,
    worst: f64,
    rng: &mut Rng,
) -> Result<ModelReturn> {
    if starts.nrows() == 0 || cfg.length == 0 {
        return Err(invalid!("model return: wanted at least one start and one step, found 0"));
    }
    let rollouts = starts.nrows() as f64;
    let mut found = ModelReturn { value: 0.0, unpenalised: 0.0, length: 0.0, exploded: 0.0 };
    let mut obs = starts;
    for t in 0..cfg.length {
        if obs.nrows() == 0 {
            break;
        }
        let made = rollout.run(policy, obs, 1, rng)?;
        let rows = made.rows;
        let mut rewards = rows.rew.to_vec();
        let sum = |rewards: &[f32]| rewards.iter().map(|&r| f64::from(r)).sum::<f64>();
        let discount = cfg.gamma.powi(t as i32);
        found.unpenalised += discount * sum(&rewards);
        found.length += rows.len() as f64;
        let going_on: Vec<usize> = (0..rows.len()).filter(|&i| !rows.done[i]).collect();
        obs = rows.next_obs.select(Axis(0), &going_on);
        let scores = match rollout.estimator {
            // Estimators that look at rows alone leave scoring to the caller.
            Some(estimator) if made.u.iter().any(|u| u.is_nan()) => {
                estimator.score_owned(ModelStep::of_rows(rows))?.to_vec()
            }
            _ => made.u,
        };
        rollout.rule.observe(&scores);
        rollout.rule.penalise(&mut rewards, &scores);
        found.value += discount * sum(&rewards);
        let lost = made.stats.non_finite as f64;
        let rest: f64 = (t..cfg.length).map(|t| cfg.gamma.powi(t as i32)).sum();
        found.value += lost * worst * rest;
        found.exploded += lost;
    }
    found.value /= rollouts;
    found.unpenalised /= rollouts;
    found.length /= rollouts;
    found.exploded /= rollouts;
    Ok(found)
}
