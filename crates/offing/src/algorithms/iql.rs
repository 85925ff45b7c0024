//! Implicit Q-learning: learns from the logged rows alone, without a model, and asks for the value of logged actions only.
//! Paper: Kostrikov, Nair & Levine 2021. The losses are in `iql/` beside this directory.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Algorithm;
use super::config::{Blocks, TrainConfig};
use super::record::Metrics;
use super::session::Session;
use super::train_loop::{Checkpoint, TrainLoop};
use crate::batch::Batch;
use crate::data::Dataset;
use crate::error::Result;
use crate::iql::{Iql, IqlConfig, IqlLosses};
use crate::nn::Tensors;
use crate::replay::gather;
use crate::sac::{Actor, Losses, Standardiser};

/// The span of returns that rewards are scaled to.
const RETURNS: f64 = 1000.0;

/// Implicit Q-learning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IqlAlgorithmConfig {
    /// The training loop.
    pub train: TrainConfig,
    /// The learner.
    pub iql: IqlConfig,
}

impl Algorithm for IqlAlgorithmConfig {
    fn blocks(&self) -> Blocks<'_> {
        Blocks::new(&self.train)
    }

    fn validate(&self) -> Result<()> {
        self.iql.validate()
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Option<Actor>> {
        let data = &session.data.rows;
        let (obs_dim, act_dim) = (data.obs_dim(), data.act_dim());
        let standardiser =
            if self.iql.standardise { Standardiser::of(&data.obs) } else { Standardiser::identity(obs_dim) };
        let scale = if self.iql.scale_rewards { reward_scale(session.data) } else { Some(1.0) };
        if scale.is_none() {
            session.note("iql.scale_rewards: all episodes have the same return; rewards stay as they are");
        }
        let scale = scale.unwrap_or(1.0);
        let cfg = self.iql.over(self.train.steps);
        let mut agent = Iql::new(&cfg, obs_dim, act_dim, session.pool, &mut session.rng("init", 0))?;
        let mut batch = Batch::empty(obs_dim, act_dim);
        let mut train = TrainLoop::start(session, &self.train, 1, &mut agent)?;
        while let Some(step) = train.next(&agent)? {
            let mut rng = train.session.rng("batch", step.index);
            let picks: Vec<usize> = (0..self.train.batch).map(|_| rng.below(data.len())).collect();
            gather(data, &picks, &mut batch);
            standardiser.apply(&mut batch.obs);
            standardiser.apply(&mut batch.next_obs);
            batch.rew *= scale;
            let losses = train.session.timer.time("iql", || agent.update(&batch))?;
            let status = Losses { critic: losses.critic, actor: losses.actor, ..Losses::default() };
            if train.finish_step(status) {
                train.evaluate(&standardiser.fold(&agent.policy()), metrics(&losses))?;
            }
            train.show_policy(|| Ok(standardiser.fold(&agent.policy())))?;
        }
        let policy = standardiser.fold(&agent.policy());
        Ok(train.finish(&policy)?.then_some(policy))
    }
}

impl Checkpoint for Iql {
    fn save(&self, out: &mut Tensors) {
        *out = Iql::save(self);
    }

    fn load(&mut self, from: &Tensors) -> Result<()> {
        Iql::load(self, from)
    }
}

/// What makes the returns of the dataset's episodes span 1000; nothing where all are equal.
fn reward_scale(data: &Dataset) -> Option<f32> {
    let total =
        |rows: &std::ops::Range<usize>| rows.clone().map(|i| f64::from(data.rows.rew[i])).sum::<f64>();
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for total in data.episodes.iter().map(total) {
        (low, high) = (low.min(total), high.max(total));
    }
    (high > low).then(|| (RETURNS / (high - low)) as f32)
}

fn metrics(losses: &IqlLosses) -> Metrics {
    let mut metrics = Metrics::default();
    metrics.put("critic_loss", json!(losses.critic));
    metrics.put("value_loss", json!(losses.value));
    metrics.put("actor_loss", json!(losses.actor));
    metrics.put("v", json!(losses.v));
    metrics.put("weight", json!(losses.weight));
    metrics
}
