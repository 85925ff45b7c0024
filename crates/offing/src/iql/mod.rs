//! Implicit Q-learning (Kostrikov, Nair & Levine 2021): values of logged actions only, then regression on good ones.
//!
//! V(s) is an upper expectile of Q(s, a) over the logged actions, Q learns from V, and the actor imitates logged actions
//! with weights that grow with their advantage. No network is ever asked about an action outside the data.
//!
//! ```
//! use offing::iql::{Iql, IqlConfig};
//! use offing::nn::ThreadPool;
//! use offing::{Batch, Mat, Rng};
//! let cfg = IqlConfig { hidden: vec![32, 32], ..IqlConfig::default() }.over(1000);
//! let mut agent = Iql::new(&cfg, 3, 1, &ThreadPool::new(2), &mut Rng::stream(0, "init", 0)).unwrap();
//! let mut batch = Batch::empty(3, 1);
//! (batch.obs, batch.act, batch.next_obs) = (Mat::ones((16, 3)), Mat::zeros((16, 1)), Mat::ones((16, 3)));
//! (batch.rew, batch.done) = (ndarray::Array1::ones(16), ndarray::Array1::from_elem(16, true));
//! let losses = agent.update(&batch).unwrap();
//! assert!(losses.critic > 0.0);
//! ```

mod config;
mod shard;
#[cfg(test)]
mod tests;

pub use config::IqlConfig;

use crate::batch::Batch;
use crate::error::{Result, invalid};
use crate::nn::{Activation, Field, Init, Keep, MlpEnsemble, Scalar, Shape, Tensors, ThreadPool, TrainStep};
use crate::rng::Rng;
use crate::sac::{Actor, Schedule};
use shard::IqlShard;

/// Number of critics; the smaller value counts.
const CRITICS: usize = 2;
const HALF_LN_TAU: f64 = 0.918_938_533_204_672_8;

/// An actor, a value network, two critics with their targets, and their optimisers.
#[derive(Debug)]
pub struct Iql {
    cfg: IqlConfig,
    /// Its outputs for log σ are not used: see `log_std`.
    actor: Actor,
    /// log σ of each entry of an action, the same in all states, as the authors have it.
    log_std: Vec<Scalar>,
    /// The same as the update at work uses it.
    deviations: Vec<Deviation>,
    critics: MlpEnsemble,
    value: MlpEnsemble,
    /// Updates taken.
    steps: u64,
    pool: ThreadPool,
    shards: Vec<IqlShard>,
}

/// One entry's noise.
#[derive(Clone, Copy, Debug)]
struct Deviation {
    /// log σ, clamped.
    log_std: f32,
    /// 1 / σ².
    precision: f32,
}

/// What an update found; means over the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IqlLosses {
    /// (Q_j − y)², mean over critics.
    pub critic: f64,
    /// |τ − 1(Q̄ < V)| (Q̄ − V)².
    pub value: f64,
    /// −w log π(a|s).
    pub actor: f64,
    /// V(s), after its step.
    pub v: f64,
    /// The actor's weight w.
    pub weight: f64,
}

impl Iql {
    /// A fresh agent for states of `obs_dim` and actions of `act_dim` numbers; `pool` does its arithmetic.
    ///
    /// # Errors
    /// Settings that make no sense.
    pub fn new(
        cfg: &IqlConfig,
        obs_dim: usize,
        act_dim: usize,
        pool: &ThreadPool,
        rng: &mut Rng,
    ) -> Result<Self> {
        cfg.validate()?;
        if let Schedule::Cosine { steps: None, .. } = cfg.actor_schedule {
            return Err(invalid!(
                "iql.actor_schedule: wanted `steps`, found none; `IqlConfig::over` gives it a run's length"
            ));
        }
        let actor = Actor::new(obs_dim, act_dim, &cfg.hidden, cfg.log_std, rng);
        let mut nets = |inputs: usize, count: usize, keep: Keep| {
            let shape = Shape::new(inputs, &cfg.hidden, 1, Activation::Relu);
            MlpEnsemble::new(shape, count, Init::Uniform, keep, rng)
        };
        let critics = nets(obs_dim + act_dim, CRITICS, Keep::MomentsAndTarget);
        let value = nets(obs_dim, 1, Keep::Moments);
        let log_std = vec![Scalar::new(0.0); act_dim];
        let (cfg, pool) = (cfg.clone(), pool.clone());
        let deviations = Vec::with_capacity(act_dim);
        Ok(Self { cfg, actor, log_std, deviations, critics, value, steps: 0, pool, shards: Vec::new() })
    }

    /// The policy: its action is tanh μ(s), and its noise has the learnt σ in every state.
    ///
    /// The authors' policy adds the noise after tanh and clips the sum; an [`Actor`] adds it before. Only sampled actions
    /// differ.
    #[must_use]
    pub fn policy(&self) -> Actor {
        let (mut actor, last) = (self.actor.clone(), self.actor.net.shape().layers() - 1);
        let (mut weight, mut bias) = actor.net.get(0, last, Field::Weight);
        let (half, act_dim) = (weight.len() / 2, self.log_std.len());
        weight[half..].fill(0.0);
        bias[act_dim..].iter_mut().zip(&self.log_std).for_each(|(to, log_std)| *to = log_std.value as f32);
        actor.net.set(0, last, Field::Weight, &weight, &bias);
        actor
    }

    /// One update, in the authors' order: V, then the actor and the critics with the new V, then the targets.
    ///
    /// # Errors
    /// A loss that is not finite, after which the agent is not usable: go back to a checkpoint.
    pub fn update(&mut self, batch: &Batch) -> Result<IqlLosses> {
        batch.check_widths("a training batch", self.actor.obs_dim(), self.actor.act_dim())?;
        self.prepare(batch.len());
        let (cfg, pool) = (&self.cfg, &self.pool);
        let (actor, critics, value) = (&self.actor.net, &self.critics, &self.value);
        pool.for_each_mut(&mut self.shards, |_, shard| shard.value_pass(cfg, critics, value, batch));
        let t = self.steps + 1;
        let (shards, step) = (&self.shards, TrainStep::new(cfg.value_lr, t));
        let count = shards.len();
        self.value.train(pool, 0..1, count, |i| &shards[i].value, &step);
        let value = &self.value;
        let [low, high] = cfg.log_std;
        self.deviations.clear();
        self.deviations.extend(self.log_std.iter().map(|it| {
            let log_std = (it.value as f32).clamp(low, high);
            Deviation { log_std, precision: (-2.0 * log_std).exp() }
        }));
        let deviations = &self.deviations;
        pool.for_each_mut(&mut self.shards, |_, shard| {
            shard.actor_pass(cfg, (actor, deviations), value, batch);
            shard.critic_pass(cfg, critics, value, batch);
        });
        let actor_lr = cfg.actor_lr * cfg.actor_schedule.factor(self.steps);
        let (shards, step) = (&self.shards, TrainStep::new(actor_lr, t));
        self.actor.net.train(pool, 0..1, count, |i| &shards[i].actor, &step);
        let step = TrainStep { tau: Some(cfg.tau), ..TrainStep::new(cfg.critic_lr, t) };
        self.critics.train(pool, 0..CRITICS, count, |i| &shards[i].critics, &step);
        self.steps = t;
        self.log_std_step(batch, actor_lr);
        let losses = self.losses(batch);
        for (name, loss) in
            [("critics'", losses.critic), ("value network's", losses.value), ("actor's", losses.actor)]
        {
            if loss.is_nan() || loss.abs() >= f64::from(f32::MAX) {
                return Err(invalid!(
                    "the {name} loss became {loss:.4e} at IQL update {t}; check the data for huge values, or lower the \
                     learning rates"
                ));
            }
        }
        Ok(losses)
    }

    /// The losses before the steps, summed in the order of the rows whatever shards they were cut into.
    fn losses(&self, batch: &Batch) -> IqlLosses {
        let constant: f64 = self.deviations.iter().map(|it| f64::from(it.log_std) + HALF_LN_TAU).sum();
        let mut total = IqlLosses::default();
        let width = self.deviations.len();
        for shard in &self.shards {
            for i in 0..shard.y.len() {
                let off = |net: &crate::nn::Activations| f64::from(net.out.get(i, 0) - shard.y[i]).powi(2);
                total.critic += shard.critics.nets.iter().map(off).sum::<f64>() / CRITICS as f64;
                total.value += f64::from(shard.value_loss[i]);
                total.v += f64::from(shard.v[i]);
                total.weight += f64::from(shard.weight[i]);
                let half: f64 =
                    shard.squares[i * width..][..width].iter().map(|&square| 0.5 * f64::from(square)).sum();
                total.actor += f64::from(shard.weight[i]) * (half + constant);
            }
        }
        total.divided_by(batch.len() as f64)
    }

    /// One step of log σ on the actor's loss: ∂/∂log σ = w (1 − (a − tanh μ)² / σ²).
    fn log_std_step(&mut self, batch: &Batch, lr: f64) {
        let (width, [low, high]) = (self.log_std.len(), self.cfg.log_std.map(f64::from));
        for (j, log_std) in self.log_std.iter_mut().enumerate() {
            let gradient = self.shards.iter().fold(0.0, |total, shard| {
                let squares = shard.squares.iter().skip(j).step_by(width);
                shard.weight.iter().zip(squares).fold(total, |total, (&weight, &square)| {
                    total + f64::from(weight) * (1.0 - f64::from(square))
                })
            });
            let inside = (low..=high).contains(&log_std.value);
            log_std.step(lr, self.steps, if inside { gradient / batch.len() as f64 } else { 0.0 });
        }
    }

    /// Makes room for batches of `rows` rows.
    fn prepare(&mut self, rows: usize) {
        if !self.shards.iter().map(|shard| shard.critics.rows.clone()).eq(self.pool.shards(rows)) {
            let shard = |rows| IqlShard::new(self, rows);
            self.shards = self.pool.shards(rows).map(shard).collect();
        }
    }

    /// Weights, targets, moments, log σ and the step count.
    pub fn save(&self) -> Tensors {
        let mut out = Tensors::default();
        self.actor.net.save("actor", &mut out);
        self.critics.save("critic", &mut out);
        self.value.save("value", &mut out);
        out.put_f64(
            "log_std",
            &self.log_std.iter().flat_map(|it| [it.value, it.m, it.v]).collect::<Vec<_>>(),
        );
        out.put_u64("steps", &[self.steps]);
        out
    }

    /// Restores what [`Iql::save`] returned; the agent must have the same configuration.
    ///
    /// # Errors
    /// Tensors that are missing or of another shape.
    pub fn load(&mut self, from: &Tensors) -> Result<()> {
        let (mut actor, mut critics, mut value) =
            (self.actor.net.clone(), self.critics.clone(), self.value.clone());
        actor.load("actor", from)?;
        critics.load("critic", from)?;
        value.load("value", from)?;
        let log_std = from.f64("log_std", 3 * self.log_std.len())?;
        let steps = from.u64("steps", 1)?[0];
        self.actor = Actor::from_net(actor, self.cfg.log_std, false)?;
        self.log_std = log_std.as_chunks().0.iter().map(|&[value, m, v]| Scalar { value, m, v }).collect();
        (self.critics, self.value, self.steps) = (critics, value, steps);
        Ok(())
    }
}

impl IqlLosses {
    fn divided_by(self, rows: f64) -> Self {
        Self {
            critic: self.critic / rows,
            value: self.value / rows,
            actor: self.actor / rows,
            v: self.v / rows,
            weight: self.weight / rows,
        }
    }
}
