//! TD3+BC (Fujimoto & Gu 2021): twin critics, delayed actor, smoothed target actions, and a pull to the logged actions.
//!
//! ```
//! use offing::nn::ThreadPool;
//! use offing::td3::{Td3Bc, Td3Config};
//! use offing::{Batch, Mat, Rng};
//! let cfg = Td3Config { hidden: vec![32, 32], ..Td3Config::default() };
//! let mut agent = Td3Bc::new(&cfg, 3, 1, &ThreadPool::new(2), &mut Rng::stream(0, "init", 0)).unwrap();
//! let mut batch = Batch::empty(3, 1);
//! (batch.obs, batch.act, batch.next_obs) = (Mat::ones((16, 3)), Mat::zeros((16, 1)), Mat::ones((16, 3)));
//! (batch.rew, batch.done) = (ndarray::Array1::ones(16), ndarray::Array1::from_elem(16, true));
//! let losses = agent.update(&batch, &mut Rng::stream(0, "td3", 0)).unwrap();
//! assert!(losses.critic > 0.0 && losses.actor.is_none(), "the actor learns in every second update");
//! ```

mod config;
mod shard;
#[cfg(test)]
mod tests;

pub use config::Td3Config;

use crate::batch::Batch;
use crate::error::{Result, invalid};
use crate::nn::{Activation, Init, Keep, MlpEnsemble, Noise, Shape, Tensors, ThreadPool, TrainStep};
use crate::rng::Rng;
use crate::sac::Actor;
use shard::Td3Shard;

/// Number of critics; the smaller value counts.
const CRITICS: usize = 2;
/// Clamp of log σ of the saved policy. The policy is deterministic: its action is tanh μ. A policy file has a log σ all the
/// same; with both ends equal it is this constant for every state, whatever the network says. So what samples a policy
/// finds a deviation of 0.007, and the weights behind log σ are never used and never learn.
const LOG_STD: [f32; 2] = [-5.0, -5.0];

/// A deterministic actor, two critics, the targets of all three, and their optimisers.
#[derive(Debug)]
pub struct Td3Bc {
    cfg: Td3Config,
    /// The policy; its action is tanh μ.
    pub actor: Actor,
    critics: MlpEnsemble,
    /// Steps taken by the optimisers of the actor and of the critics.
    steps: [u64; 2],
    pool: ThreadPool,
    shards: Vec<Td3Shard>,
}

/// What an update found; means over the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Td3Losses {
    /// (Q_j − y)², mean over critics.
    pub critic: f64,
    /// What the actor's step found, in updates that have one.
    pub actor: Option<ActorLoss>,
}

/// The actor's loss −λQ + cloning and its parts; means over the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ActorLoss {
    /// −λ Q_1(s, π(s)) + cloning.
    pub total: f64,
    /// Q_1(s, π(s)).
    pub q: f64,
    /// (π(s) − a)², mean over the action's entries too.
    pub cloning: f64,
}

impl Td3Bc {
    /// A fresh agent for states of `obs_dim` and actions of `act_dim` numbers; `pool` does its arithmetic.
    ///
    /// # Errors
    /// Settings that make no sense.
    pub fn new(
        cfg: &Td3Config,
        obs_dim: usize,
        act_dim: usize,
        pool: &ThreadPool,
        rng: &mut Rng,
    ) -> Result<Self> {
        cfg.validate()?;
        let mut nets = |inputs: usize, outputs: usize, count: usize| {
            let shape = Shape::new(inputs, &cfg.hidden, outputs, Activation::Relu);
            MlpEnsemble::new(shape, count, Init::Uniform, Keep::MomentsAndTarget, rng)
        };
        let actor = Actor::from_net(nets(obs_dim, 2 * act_dim, 1), LOG_STD, false)?;
        let critics = nets(obs_dim + act_dim, 1, CRITICS);
        Ok(Self { cfg: cfg.clone(), actor, critics, steps: [0; 2], pool: pool.clone(), shards: Vec::new() })
    }

    /// One update: the critics, and in every `policy_delay`-th the actor and all targets.
    ///
    /// # Errors
    /// A loss that is not finite, after which the agent is not usable: go back to a checkpoint.
    pub fn update(&mut self, batch: &Batch, rng: &mut Rng) -> Result<Td3Losses> {
        self.update_with(batch, Noise::draw(rng))
    }

    /// [`Td3Bc::update`] with the noise on target actions given.
    ///
    /// # Errors
    /// As [`Td3Bc::update`].
    pub fn update_with(&mut self, batch: &Batch, noise: Noise<'_>) -> Result<Td3Losses> {
        batch.check_widths("a training batch", self.actor.obs_dim(), self.actor.act_dim())?;
        self.prepare(batch.len());
        let delayed = (self.steps[1] + 1).is_multiple_of(self.cfg.policy_delay);
        // The actor's step reads no target, so the critics' may move with the critics.
        let critic = self.critic_step(batch, noise, delayed.then_some(self.cfg.tau));
        let actor = delayed.then(|| self.actor_step(batch));
        let losses = Td3Losses { critic, actor };
        for (name, loss) in [("critics'", Some(critic)), ("actor's", actor.map(|loss| loss.total))] {
            if loss.is_some_and(|loss| loss.is_nan() || loss.abs() >= f64::from(f32::MAX)) {
                return Err(invalid!(
                    "the {name} loss became {:.4e} at TD3+BC update {}; check the data for huge values, or lower the \
                     learning rates",
                    loss.unwrap_or_default(),
                    self.steps[1]
                ));
            }
        }
        Ok(losses)
    }

    /// One step of both critics towards y = r + γ (1 − d) min_j Q̄_j(s', a'), a' = π̄(s') + noise.
    fn critic_step(&mut self, batch: &Batch, noise: Noise<'_>, tau: Option<f32>) -> f64 {
        let (cfg, actor, critics) = (&self.cfg, &self.actor.net, &self.critics);
        self.pool.for_each_mut(&mut self.shards, |_, shard| {
            shard.td_target(cfg, actor, critics, batch, noise);
            shard.critic_pass(critics, batch);
        });
        self.steps[1] += 1;
        let step = TrainStep { tau, ..TrainStep::new(self.cfg.critic_lr, self.steps[1]) };
        let shards = &self.shards;
        self.critics.train(&self.pool, 0..CRITICS, shards.len(), |i| &shards[i].critics, &step);
        // In the order of the rows whatever shards they were cut into.
        let of_critic = |j: usize| {
            shards.iter().fold(0.0, |total, shard| {
                let q = &shard.q[j * shard.y.len()..];
                q.iter().zip(&shard.y).fold(total, |total, (&q, &y)| total + f64::from(q - y).powi(2))
            })
        };
        (0..CRITICS).map(of_critic).sum::<f64>() / (batch.len() * CRITICS) as f64
    }

    /// One step of the actor on −λ mean Q_1(s, π(s)) + mean (π(s) − a)², where λ = α / mean |Q_1(s, π(s))| is a constant
    /// to the gradient; and of its target.
    fn actor_step(&mut self, batch: &Batch) -> ActorLoss {
        let (actor, critics) = (&self.actor.net, &self.critics);
        self.pool.for_each_mut(&mut self.shards, |_, shard| shard.evaluate_policy(actor, critics, batch));
        let rows = batch.len() as f64;
        let (mut q, mut size) = (0.0, 0.0);
        for &value in self.shards.iter().flat_map(|shard| &shard.q[..shard.y.len()]) {
            q += f64::from(value) / rows;
            size += f64::from(value).abs() / rows;
        }
        // Fresh critics of rows that are all zero would divide by nothing.
        let lambda = self.cfg.alpha / size.max(f64::from(f32::MIN_POSITIVE));
        let dq = (-lambda / rows) as f32;
        self.pool.for_each_mut(&mut self.shards, |_, shard| shard.actor_pass(actor, critics, batch, dq));
        self.steps[0] += 1;
        let step = TrainStep { tau: Some(self.cfg.tau), ..TrainStep::new(self.cfg.actor_lr, self.steps[0]) };
        let shards = &self.shards;
        self.actor.net.train(&self.pool, 0..1, shards.len(), |i| &shards[i].actor, &step);
        let acts = shards.iter().flat_map(|shard| &shard.head.act).zip(&batch.act);
        let squares = acts.fold(0.0, |total, (a, logged)| total + f64::from(a - logged).powi(2));
        let cloning = squares / batch.act.len() as f64;
        ActorLoss { total: cloning - lambda * q, q, cloning }
    }

    /// Makes room for batches of `rows` rows.
    fn prepare(&mut self, rows: usize) {
        if !self.shards.iter().map(|shard| shard.critics.rows.clone()).eq(self.pool.shards(rows)) {
            let shard = |rows| Td3Shard::new(&self.actor, &self.critics, rows);
            self.shards = self.pool.shards(rows).map(shard).collect();
        }
    }

    /// Weights, targets, moments and step counts.
    pub fn save(&self) -> Tensors {
        let mut out = Tensors::default();
        self.actor.net.save("actor", &mut out);
        self.critics.save("critic", &mut out);
        out.put_u64("steps", &self.steps);
        out
    }

    /// Restores what [`Td3Bc::save`] returned; the agent must have the same configuration.
    ///
    /// # Errors
    /// Tensors that are missing or of another shape.
    pub fn load(&mut self, from: &Tensors) -> Result<()> {
        let (mut actor, mut critics) = (self.actor.net.clone(), self.critics.clone());
        actor.load("actor", from)?;
        critics.load("critic", from)?;
        let steps = from.u64("steps", 2)?;
        self.actor = Actor::from_net(actor, LOG_STD, false)?;
        (self.critics, self.steps) = (critics, [steps[0], steps[1]]);
        Ok(())
    }
}
