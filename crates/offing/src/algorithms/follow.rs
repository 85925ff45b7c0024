//! A policy followed through the model from first states of the log: its return there, before any simulator.

use serde_json::json;

use super::record::Metrics;
use super::session::Session;
use crate::batch::Mat;
use crate::data::Dataset;
use crate::dynamics::DynamicsModel;
use crate::error::Result;
use crate::nn::ThreadPool;
use crate::rng::Rng;
use crate::rollout::{BatchPolicy, ModelRollout};
use crate::sac::Actor;

/// Longest way of a policy through the model: a log without ends is one episode of a million steps.
const LONGEST: usize = 1000;
/// Trajectories by which a policy is followed.
const FOLLOWED: usize = 100;

impl Session<'_> {
    /// Adds how long the policy lives in the model, how often it ends there and what it returns, which is its
    /// [estimated return](Metrics::estimated_return).
    pub(super) fn follow(
        &mut self,
        model: &dyn DynamicsModel,
        policy: &Actor,
        metrics: &mut Metrics,
    ) -> Result<()> {
        let found = self.follow_in(model, policy)?;
        metrics.put("model_length", json!(found.length));
        metrics.put("model_ended", json!(found.ended));
        metrics.put("model_return", json!(found.total));
        metrics.estimated_return = Some(found.total);
        Ok(())
    }

    /// What becomes of the policy in a model.
    pub(super) fn follow_in(&mut self, model: &dyn DynamicsModel, policy: &Actor) -> Result<Followed> {
        // All policies of a run start at the same states with the same draws: what tells them apart is what they do.
        let mut rng = self.rng("follow", 0);
        let start = self.sample_starts_with_first(FOLLOWED, 1.0, &mut rng);
        let mut rollout = ModelRollout { one_member: true, ..ModelRollout::without_rule(model, self.pool) };
        let (longest, policy) = (longest_episode(self.data), MeanActions { policy, noise: &[] });
        let followed = self.timer.time("follow", || rollout.run(&policy, start, longest, &mut rng))?;
        let per_start = |sum: f64| sum / FOLLOWED as f64;
        Ok(Followed {
            length: per_start(followed.stats.imagined as f64),
            ended: per_start(followed.stats.terminated as f64),
            total: per_start(followed.rows.rew.iter().map(|&r| f64::from(r)).sum()),
        })
    }
}

/// What became of a policy in a model; means over trajectories.
pub(super) struct Followed {
    pub(super) length: f64,
    pub(super) ended: f64,
    /// The sum of its rewards.
    pub(super) total: f64,
}

/// How long a policy is followed: as long as the log's longest episode, within reason.
pub(super) fn longest_episode(data: &Dataset) -> usize {
    data.episodes.iter().map(|episode| episode.len()).max().unwrap_or(1).min(LONGEST)
}

/// A policy's mean actions, with noise.
pub(super) struct MeanActions<'a> {
    pub(super) policy: &'a Actor,
    /// Its deviation in each column; nothing for no noise.
    pub(super) noise: &'a [f32],
}

impl BatchPolicy for MeanActions<'_> {
    fn obs_dim(&self) -> usize {
        self.policy.obs_dim()
    }

    fn act_dim(&self) -> usize {
        self.policy.act_dim()
    }

    fn sample_actions(&self, pool: &ThreadPool, obs: &Mat, rng: &mut Rng) -> Mat {
        let mut act = self.policy.mean_batch(pool, obs);
        for mut row in act.rows_mut() {
            for (a, deviation) in row.iter_mut().zip(self.noise) {
                *a = (*a + deviation * rng.normal() as f32).clamp(-1.0, 1.0);
            }
        }
        act
    }
}
