//! Soft actor-critic as blocks to call: targets, critics, actor, temperature, averaging; `update` calls them in order.
//!
//! ```
//! use offing::nn::ThreadPool;
//! use offing::sac::{Sac, SacConfig};
//! use offing::{Batch, Rng};
//! let cfg = SacConfig { hidden: vec![32, 32], ..SacConfig::default() };
//! let mut agent = Sac::new(&cfg, 3, 1, &ThreadPool::new(2), &mut Rng::stream(0, "init", 0)).unwrap();
//! let mut batch = Batch::empty(3, 1);
//! batch.obs = offing::Mat::zeros((16, 3));
//! batch.act = offing::Mat::zeros((16, 1));
//! batch.rew = ndarray::Array1::ones(16);
//! batch.next_obs = batch.obs.clone();
//! batch.done = ndarray::Array1::from_elem(16, true);
//! let losses = agent.update(&batch, &mut Rng::stream(0, "sac", 0)).unwrap();
//! assert!(losses.critic > 0.0);
//! ```

mod actor;
mod cloning;
mod config;
mod part;
mod state;
#[cfg(test)]
mod tests;

pub use actor::{Actor, Mean};
pub use cloning::{Cloner, Objective};
pub use config::{Alpha, Order, SacConfig, Schedule};

use ndarray::{Array1, ArrayView2};

use crate::batch::{Batch, Mat};
use crate::error::{Error, Result};
use crate::nn::{
    Activation, Activations, AdamConfig, AdamStep, Init, Keep, LANES, MlpEnsemble, Noise, PackedMatrix,
    Scalar, ScratchPool, Shape, ThreadPool, TrainStep, Weights,
};
use crate::rng::Rng;
use part::{Part, Share};

/// Rows a thread takes at once when critics are only evaluated.
const CHUNK: usize = 120;

/// The most rows of a part: what a layer reads and writes then stays in the second-level cache.
const PART: usize = 256;

/// An actor, its critics with their targets, a temperature, and their optimisers.
#[derive(Debug)]
pub struct Sac {
    cfg: SacConfig,
    /// The policy.
    pub actor: Actor,
    critics: MlpEnsemble,
    log_alpha: Scalar,
    /// Steps taken by the optimisers.
    steps: Steps,
    adam: AdamConfig,
    pool: ThreadPool,
    parts: Vec<Part>,
    /// Room for batches of the size before.
    other_parts: Vec<Part>,
    scratch: ScratchPool<(PackedMatrix, Activations)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Steps {
    actor: u64,
    critic: u64,
    alpha: u64,
}

/// What an update found; means over the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Losses {
    /// (Q_j − y)², mean over critics.
    pub critic: f64,
    /// α log π − min Q.
    pub actor: f64,
    /// min Q at the policy's own actions.
    pub q: f64,
    /// −log π.
    pub entropy: f64,
    /// α after the update.
    pub alpha: f64,
}

impl Sac {
    /// A fresh agent for states of `obs_dim` and actions of `act_dim` numbers; `team` does its arithmetic.
    pub fn new(
        cfg: &SacConfig,
        obs_dim: usize,
        act_dim: usize,
        pool: &ThreadPool,
        rng: &mut Rng,
    ) -> Result<Self> {
        cfg.check()?;
        if let Schedule::Cosine { steps: None, .. } = cfg.actor_schedule {
            let wanted =
                "actor_schedule: wanted `steps`, found none; `SacConfig::over` gives it a run's length";
            return Err(Error::Invalid(wanted.into()));
        }
        if obs_dim == 0 || act_dim == 0 {
            return Err(Error::Invalid(format!(
                "an agent needs observations and actions, found widths {obs_dim} and {act_dim}"
            )));
        }
        let actor = Actor::new(obs_dim, act_dim, &cfg.hidden, cfg.log_std, rng);
        let shape = Shape::new(obs_dim + act_dim, &cfg.hidden, 1, Activation::Relu);
        let critics = MlpEnsemble::new(shape, cfg.critics, Init::Uniform, Keep::MomentsAndTarget, rng);
        let log_alpha = match cfg.alpha {
            Alpha::Auto { log_alpha, .. } => Scalar::new(log_alpha),
            Alpha::Fixed { value } => Scalar::new(value.ln()),
        };
        Ok(Self {
            cfg: cfg.clone(),
            actor,
            critics,
            log_alpha,
            steps: Steps::default(),
            adam: AdamConfig::default(),
            pool: pool.clone(),
            parts: Vec::new(),
            other_parts: Vec::new(),
            scratch: ScratchPool::default(),
        })
    }

    /// The configuration this agent was made with.
    pub fn config(&self) -> &SacConfig {
        &self.cfg
    }

    /// The critics, current and target.
    pub fn critics(&self) -> &MlpEnsemble {
        &self.critics
    }

    /// The temperature α in use.
    pub fn alpha(&self) -> f64 {
        match self.cfg.alpha {
            Alpha::Fixed { value } => value,
            Alpha::Auto { max, .. } => self.log_alpha.value.exp().min(max.unwrap_or(f64::INFINITY)),
        }
    }

    /// Floating-point operations of the matrix products one update of `rows` rows needs, a multiply-add counting as
    /// two. Each row's gradient into the actor passes through its smallest critic only, and only to the action.
    pub fn update_flop(&self, rows: usize) -> f64 {
        let (actor, critic) = (self.actor.stack.shape(), self.critics.shape());
        let nets = self.critics.nets();
        let into_actor = critic.multiplies() - self.actor.obs_dim() * critic.outputs(0);
        let targets = actor.multiplies() + nets * critic.multiplies();
        let critics = nets * critic.training_multiplies();
        let policy = actor.training_multiplies() + nets * critic.multiplies() + into_actor;
        (2 * rows * (targets + critics + policy)) as f64
    }

    /// One whole update: the blocks below in the configured order, targets last. Noise comes from `rng`.
    pub fn update(&mut self, batch: &Batch, rng: &mut Rng) -> Result<Losses> {
        let (next, current) = (Noise::draw(rng), Noise::draw(rng));
        self.update_with(batch, next, current)
    }

    /// [`Sac::update`] with the noise of a' and of ã given. A loss that is not finite is an error, which leaves the agent
    /// unfit for use: go back to a checkpoint.
    pub fn update_with(&mut self, batch: &Batch, next: Noise<'_>, current: Noise<'_>) -> Result<Losses> {
        self.check(batch)?;
        let mut losses = match self.cfg.order {
            Order::CriticFirst => {
                let critic = self.fused_critic_step(batch, next);
                Losses { critic, ..self.actor_step(batch, current) }
            }
            Order::ActorFirst => {
                let actor = self.actor_step(batch, current);
                self.temperature_step(-actor.entropy);
                Losses { critic: self.fused_critic_step(batch, next), ..actor }
            }
        };
        if self.cfg.order == Order::CriticFirst {
            self.temperature_step(-losses.entropy);
        }
        losses.alpha = self.alpha();
        self.check_losses(&losses)?;
        Ok(losses)
    }

    /// y = r + γ (1 − d) (min_j Q̄_j(s', a') − α log π(a'|s')), a' ~ π.
    pub fn td_target(&mut self, batch: &Batch, noise: Noise<'_>) -> Array1<f32> {
        self.prepare(batch.len());
        self.for_parts(batch, |part, share| part.td_target(share, noise));
        self.parts.iter().flat_map(|p| p.y.iter().copied()).collect()
    }

    /// One step of all critics towards the targets `y`; returns the mean squared error before it.
    pub fn critic_step(&mut self, batch: &Batch, y: &Array1<f32>) -> f64 {
        assert_eq!(y.len(), batch.len(), "one target a row");
        self.prepare(batch.len());
        for part in &mut self.parts {
            let rows = part.rows.clone();
            part.y.iter_mut().zip(y.slice(ndarray::s![rows])).for_each(|(to, y)| *to = *y);
        }
        self.for_parts(batch, |part, share| part.critic_pass(share));
        self.train_critics(None);
        self.critic_error(batch.len())
    }

    /// One step of all critics on any loss of their values at any rows: `gradient` gets Q (critics × rows), fills
    /// ∂loss/∂Q, which starts as zeros, and returns the loss. For losses with extra terms, such as COMBO's: pass the
    /// batch's rows followed by the rows of the extra term.
    pub fn critic_step_with(
        &mut self,
        obs: &Mat,
        act: &Mat,
        gradient: impl FnOnce(&Mat, &mut Mat) -> f64,
    ) -> f64 {
        let (rows, nets) = (obs.nrows(), self.critics.nets());
        self.prepare(rows);
        let critics = &self.critics;
        self.pool.for_each_mut(&mut self.parts, |_, part| {
            let (n, first) = (part.rows.len(), part.rows.start);
            part.pair.load(obs.view(), first, n, 0);
            part.pair.load(act.view(), first, n, obs.ncols());
            for (j, trace) in part.critics.iter_mut().enumerate() {
                trace.forward(critics.net(j), Weights::Current, &part.pair, n);
            }
        });
        let (mut q, mut dq) = (Mat::zeros((nets, rows)), Mat::zeros((nets, rows)));
        for part in &self.parts {
            for (j, trace) in part.critics.iter().enumerate() {
                for (i, row) in part.rows.clone().enumerate() {
                    q[[j, row]] = trace.out.data()[i * LANES];
                }
            }
        }
        let loss = gradient(&q, &mut dq);
        self.pool.for_each_mut(&mut self.parts, |_, part| {
            for (j, trace) in part.critics.iter_mut().enumerate() {
                for (i, row) in part.rows.clone().enumerate() {
                    trace.dout.data_mut()[i * LANES] = dq[[j, row]];
                }
                trace.backward(critics.net(j), part.rows.len(), None);
            }
        });
        self.train_critics(None);
        loss
    }

    /// One step of the actor on mean (α log π(ã|s) − min_j Q_j(s, ã)), ã ~ π.
    pub fn actor_step(&mut self, batch: &Batch, noise: Noise<'_>) -> Losses {
        self.prepare(batch.len());
        self.for_parts(batch, |part, share| part.actor_pass(share, noise));
        let lr = self.cfg.actor_lr * self.cfg.actor_schedule.factor(self.steps.actor);
        self.steps.actor += 1;
        let step = TrainStep { adam: AdamStep::new(&self.adam, lr, self.steps.actor), decay: &[], tau: None };
        let parts = &self.parts;
        let source = |_: usize, l: usize, part: usize| {
            let part: &Part = &parts[part];
            let (x, dy) = part.actor.source(l, &part.obs);
            (x, dy, part.rows.len())
        };
        self.actor.stack.train(&self.pool, 0..1, parts.len(), source, &step);
        let (mut log_prob, mut q) = (0.0, 0.0);
        for part in &self.parts {
            for i in 0..part.rows.len() {
                log_prob += f64::from(part.head.log_prob[i]);
                q += f64::from(part.smallest_q(i));
            }
        }
        let (alpha, rows) = (self.alpha(), batch.len() as f64);
        let (log_prob, q) = (log_prob / rows, q / rows);
        Losses { critic: 0.0, actor: alpha * log_prob - q, q, entropy: -log_prob, alpha }
    }

    /// One step of log α on −log α · (mean log π + H); nothing when α is fixed.
    pub fn temperature_step(&mut self, mean_log_prob: f64) {
        if let Alpha::Auto { lr, target_entropy, .. } = self.cfg.alpha {
            let target = target_entropy.unwrap_or(-(self.actor.act_dim() as f64));
            self.steps.alpha += 1;
            self.log_alpha.step(&self.adam, lr, self.steps.alpha, -(mean_log_prob + target));
        }
    }

    /// Targets ← (1 − τ)·targets + τ·critics.
    pub fn sync_targets(&mut self) {
        self.critics.average_targets(&self.pool, self.cfg.tau);
    }

    /// Q_j(s, a) of every critic: critics × rows.
    pub fn q_values(&self, which: Weights, obs: ArrayView2<'_, f32>, act: ArrayView2<'_, f32>) -> Mat {
        let (rows, nets) = (obs.nrows(), self.critics.nets());
        let mut q = vec![0.0; rows * nets];
        let mut chunks: Vec<_> = q.chunks_mut(CHUNK * nets).collect();
        self.pool.for_each_mut(&mut chunks, |i, chunk| {
            let n = chunk.len() / nets;
            let make = || {
                let shape = self.critics.shape();
                (PackedMatrix::new(CHUNK, shape.inputs(0)), Activations::forward_only(shape, CHUNK))
            };
            self.scratch.with(make, |(pair, trace)| {
                pair.load(obs, i * CHUNK, n, 0);
                pair.load(act, i * CHUNK, n, obs.ncols());
                for j in 0..nets {
                    trace.forward(self.critics.net(j), which, pair, n);
                    trace.out.store_flat(&mut chunk[j * n..][..n], 1, 0);
                }
            });
        });
        let mut out = Mat::zeros((nets, rows));
        for (i, chunk) in q.chunks(CHUNK * nets).enumerate() {
            let n = chunk.len() / nets;
            for (j, values) in chunk.chunks_exact(n).enumerate() {
                let mut to = out.slice_mut(ndarray::s![j, i * CHUNK..i * CHUNK + n]);
                to.iter_mut().zip(values).for_each(|(to, q)| *to = *q);
            }
        }
        out
    }

    /// min_j Q_j(s, a) of the current or the target critics.
    pub fn min_q(&self, which: Weights, obs: ArrayView2<'_, f32>, act: ArrayView2<'_, f32>) -> Array1<f32> {
        self.q_values(which, obs, act).fold_axis(ndarray::Axis(0), f32::INFINITY, |a, b| a.min(*b))
    }

    /// td_target, critic_step and sync_targets in two passes over the batch instead of four; the same bits.
    fn fused_critic_step(&mut self, batch: &Batch, noise: Noise<'_>) -> f64 {
        self.prepare(batch.len());
        self.for_parts(batch, |part, share| {
            part.td_target(share, noise);
            part.critic_pass(share);
        });
        self.train_critics(Some(self.cfg.tau));
        self.critic_error(batch.len())
    }

    fn train_critics(&mut self, tau: Option<f32>) {
        self.steps.critic += 1;
        let adam = AdamStep::new(&self.adam, self.cfg.critic_lr, self.steps.critic);
        let parts = &self.parts;
        let source = |net: usize, l: usize, part: usize| {
            let part: &Part = &parts[part];
            let (x, dy) = part.critics[net].source(l, &part.pair);
            (x, dy, part.rows.len())
        };
        let step = TrainStep { adam, decay: &[], tau };
        self.critics.train(&self.pool, 0..self.critics.nets(), parts.len(), source, &step);
    }

    /// The critics' squared error, summed in the order of the rows whatever parts they were cut into.
    fn critic_error(&self, rows: usize) -> f64 {
        let of_critic = |j: usize| {
            self.parts.iter().fold(0.0, |total, part| {
                let q = &part.q[j * part.rows.len()..];
                q.iter().zip(&part.y).fold(total, |total, (&q, &y)| total + f64::from(q - y).powi(2))
            })
        };
        (0..self.critics.nets()).map(of_critic).sum::<f64>() / (rows * self.critics.nets()) as f64
    }

    /// Makes room for batches of `rows` rows, one part per thread, or more where a part would not stay in the cache; nothing
    /// when the size is one of the last two, as COMBO goes to and fro between a batch and a batch with its probes.
    fn prepare(&mut self, rows: usize) {
        let parts = self.pool.parts(rows).max(rows.div_ceil(PART));
        let fits = |of: &[Part]| of.len() == parts && of.last().is_some_and(|p| p.rows.end == rows);
        if !fits(&self.parts) {
            std::mem::swap(&mut self.parts, &mut self.other_parts);
        }
        if !fits(&self.parts) {
            self.parts =
                (0..parts).map(|i| Part::new(self, i * rows / parts..(i + 1) * rows / parts)).collect();
        }
    }

    fn for_parts(&mut self, batch: &Batch, work: impl Fn(&mut Part, &Share<'_>) + Sync) {
        let share = Share {
            actor: &self.actor.stack,
            critics: &self.critics,
            batch,
            alpha: self.alpha() as f32,
            gamma: self.cfg.gamma as f32,
            entropy_in_target: !self.cfg.deterministic_backup,
            target_floor: self.cfg.target_floor.unwrap_or(f32::NEG_INFINITY),
        };
        self.pool.for_each_mut(&mut self.parts, |_, part| work(part, &share));
    }

    fn check(&self, batch: &Batch) -> Result<()> {
        let (obs, act, rows) = (self.actor.obs_dim(), self.actor.act_dim(), batch.len());
        let lengths = [batch.obs.nrows(), batch.act.nrows(), batch.next_obs.nrows(), batch.done.len()];
        let widths = [batch.obs_dim(), batch.next_obs.ncols(), batch.act_dim()];
        if rows == 0 || widths != [obs, obs, act] || lengths.iter().any(|&l| l != rows) {
            return Err(Error::Invalid(format!(
                "a training batch: wanted rows with {obs} observations and {act} actions, found {rows} rewards, columns \
                 of {lengths:?} rows and s, s', a of widths {widths:?}"
            )));
        }
        let rew = batch.rew.view().insert_axis(ndarray::Axis(1));
        let columns = [
            ("obs", batch.obs.view()),
            ("act", batch.act.view()),
            ("next_obs", batch.next_obs.view()),
            ("rew", rew),
        ];
        for (name, values) in columns {
            // All exponent bits set: NaN or infinite. Without a branch on each value it is vector code.
            let bad = |x: &f32| u32::from(x.to_bits() & 0x7f80_0000 == 0x7f80_0000);
            if values.iter().fold(0, |found, x| found | bad(x)) != 0
                && let Some(((row, col), x)) = values.indexed_iter().find(|(_, x)| bad(x) != 0)
            {
                return Err(Error::Invalid(format!(
                    "a training batch: wanted finite values, found {x} in `{name}` at row {row}, column {col}, before SAC \
                     update {}; `offing data audit` lists such rows",
                    self.steps.critic + 1
                )));
            }
        }
        Ok(())
    }

    /// Refuses losses that are not finite, or so large that their gradients' squares would overflow in Adam. `update`
    /// does it by itself; loops made of the blocks should.
    pub fn check_losses(&self, losses: &Losses) -> Result<()> {
        let quantities = [
            ("the critics' loss", losses.critic),
            ("the actor's loss", losses.actor),
            ("the policy's entropy", losses.entropy),
            ("the temperature", losses.alpha),
        ];
        let fits = |x: f64| x.abs() < f64::from(f32::MAX);
        match quantities.iter().find(|(_, x)| !fits(*x)) {
            None => Ok(()),
            Some((name, x)) => Err(Error::Invalid(format!(
                "{name} became {x:.4e} at SAC update {}; check the batch for huge values, or lower the \
                 learning rates",
                self.steps.critic
            ))),
        }
    }
}
