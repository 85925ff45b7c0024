//! TD3+BC: learns from the logged rows alone, without a model, and stays near the logged actions. Paper: Fujimoto & Gu 2021.
//! The losses are in `td3/`.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Algorithm;
use super::config::{Blocks, TrainConfig};
use super::record::Metrics;
use super::session::Session;
use super::train_loop::{Checkpoint, TrainLoop};
use crate::batch::Batch;
use crate::error::Result;
use crate::nn::Tensors;
use crate::replay::gather;
use crate::sac::{Actor, Losses, Standardiser};
use crate::td3::{Td3Bc, Td3Config, Td3Losses};

/// TD3+BC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Td3BcConfig {
    /// The training loop.
    pub train: TrainConfig,
    /// The learner.
    pub td3: Td3Config,
}

impl Algorithm for Td3BcConfig {
    fn blocks(&self) -> Blocks<'_> {
        Blocks::new(&self.train)
    }

    fn validate(&self) -> Result<()> {
        self.td3.validate()
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Option<Actor>> {
        let data = &session.data.rows;
        let (obs_dim, act_dim) = (data.obs_dim(), data.act_dim());
        let standardiser =
            if self.td3.standardise { Standardiser::of(&data.obs) } else { Standardiser::identity(obs_dim) };
        let mut agent = Td3Bc::new(&self.td3, obs_dim, act_dim, session.pool, &mut session.rng("init", 0))?;
        let mut batch = Batch::empty(obs_dim, act_dim);
        let mut train = TrainLoop::start(session, &self.train, 1, &mut agent)?;
        while let Some(step) = train.next(&agent)? {
            let mut rng = train.session.rng("batch", step.index);
            let picks: Vec<usize> = (0..self.train.batch).map(|_| rng.below(data.len())).collect();
            gather(data, &picks, &mut batch);
            standardiser.apply(&mut batch.obs);
            standardiser.apply(&mut batch.next_obs);
            let losses = train.session.timer.time("td3", || agent.update(&batch, &mut rng))?;
            if train.finish_step(status(&losses)) {
                train.evaluate(&standardiser.fold(&agent.actor), metrics(&losses))?;
            }
            train.show_policy(|| Ok(standardiser.fold(&agent.actor)))?;
        }
        let policy = standardiser.fold(&agent.actor);
        Ok(train.finish(&policy)?.then_some(policy))
    }
}

impl Checkpoint for Td3Bc {
    fn save(&self, out: &mut Tensors) {
        *out = Td3Bc::save(self);
    }

    fn load(&mut self, from: &Tensors) -> Result<()> {
        Td3Bc::load(self, from)
    }
}

fn status(losses: &Td3Losses) -> Losses {
    let actor = losses.actor.unwrap_or_default();
    Losses { critic: losses.critic, actor: actor.total, q: actor.q, ..Losses::default() }
}

/// The actor's numbers are missing where an evaluation falls between two of its steps.
fn metrics(losses: &Td3Losses) -> Metrics {
    let mut metrics = Metrics::default();
    metrics.put("critic_loss", json!(losses.critic));
    if let Some(actor) = losses.actor {
        metrics.put("actor_loss", json!(actor.total));
        metrics.put("q", json!(actor.q));
        metrics.put("cloning_loss", json!(actor.cloning));
    }
    metrics
}
