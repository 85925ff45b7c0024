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
mod actor_pass;
mod checks;
mod cloning;
mod config;
mod custom_loss;
mod grouped_step;
mod shard;
mod standardiser;
mod state;
#[cfg(test)]
mod tests;
mod two_means;
mod value_gradient;

pub use crate::units::Standardiser;
pub use actor::Actor;
pub use actor_pass::ActorPass;
pub use cloning::{Cloner, Objective};
pub use config::{Alpha, Order, SacConfig, Schedule, TargetCritics};
pub use custom_loss::ActorTerms;
pub(crate) use two_means::RowFactors;
pub use two_means::TwoMeans;

pub use crate::policy::Deterministic;

use ndarray::{Array1, ArrayView2};

use crate::batch::{Batch, Mat};
use crate::error::{Error, Result, invalid};
use crate::nn::{
    Activation, Init, Keep, MlpEnsemble, Net, Noise, Scalar, ScratchPool, Shape, ThreadPool, TrainStep,
    Weights,
};
use crate::rng::Rng;
use grouped_step::Groups;
use shard::{CriticPass, UpdateContext, UpdateShard};
use value_gradient::CriticRoom;

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
    pool: ThreadPool,
    shards: Vec<UpdateShard>,
    /// Room for batches of the size before.
    other_shards: Vec<UpdateShard>,
    groups: Groups,
    /// For gradients at the critics' inputs.
    rooms: ScratchPool<CriticRoom>,
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
    /// (Q_j − y)², mean over critics; of two means, their weighted sum.
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
    /// A fresh agent for states of `obs_dim` and actions of `act_dim` numbers; `pool` does its arithmetic.
    pub fn new(
        cfg: &SacConfig,
        obs_dim: usize,
        act_dim: usize,
        pool: &ThreadPool,
        rng: &mut Rng,
    ) -> Result<Self> {
        cfg.validate()?;
        if let Schedule::Cosine { steps: None, .. } = cfg.actor_schedule {
            let wanted =
                "actor_schedule: wanted `steps`, found none; `SacConfig::over` gives it a run's length";
            return Err(Error::Invalid(wanted.into()));
        }
        if obs_dim == 0 || act_dim == 0 {
            return Err(invalid!(
                "an agent needs observations and actions, found widths {obs_dim} and {act_dim}"
            ));
        }
        let mut actor =
            Actor::new(obs_dim, act_dim, &cfg.hidden, cfg.log_std, rng).with_layer_norm(cfg.actor_layer_norm);
        if cfg.actor_average.is_some() {
            actor.net = actor.net.with_targets();
        }
        let shape = Shape::new(obs_dim + act_dim, &cfg.hidden, 1, Activation::Relu);
        let shape = shape.with_layer_norm(cfg.critic_layer_norm);
        let mut critics = MlpEnsemble::new(shape, cfg.critics, Init::Uniform, Keep::MomentsAndTarget, rng);
        cfg.critic_output_scale.into_iter().for_each(|factor| critics.scale_outputs(factor));
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
            pool: pool.clone(),
            shards: Vec::new(),
            other_shards: Vec::new(),
            groups: Groups::default(),
            rooms: ScratchPool::default(),
        })
    }

    /// The configuration this agent was made with.
    pub fn config(&self) -> &SacConfig {
        &self.cfg
    }

    /// The threads that do its arithmetic.
    pub fn pool(&self) -> &ThreadPool {
        &self.pool
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
        let (actor, critic) = (self.actor.net.shape(), self.critics.shape());
        let nets = self.critics.nets();
        let into_actor = critic.multiplies() - self.actor.obs_dim() * critic.outputs(0);
        let targets = actor.multiplies() + nets * critic.multiplies();
        let critics = nets * critic.training_multiplies();
        let policy = actor.training_multiplies() + nets * critic.multiplies() + into_actor;
        (2 * rows * (targets + critics + policy)) as f64
    }

    /// One whole update: the blocks below in the configured order, targets last. Noise comes from `rng`.
    pub fn update(&mut self, batch: &Batch, rng: &mut Rng) -> Result<Losses> {
        self.update_two_means(batch, None, rng)
    }

    /// [`Sac::update`] with the noise of a' and of ã given. A loss that is not finite is an error, after
    /// which the agent is not usable: go back to a checkpoint.
    pub fn update_with(&mut self, batch: &Batch, next: Noise<'_>, current: Noise<'_>) -> Result<Losses> {
        self.update_two_means_with(batch, None, next, current)
    }

    /// [`Sac::update_two_means`] with the noise given.
    pub fn update_two_means_with(
        &mut self,
        batch: &Batch,
        means: Option<TwoMeans>,
        next: Noise<'_>,
        current: Noise<'_>,
    ) -> Result<Losses> {
        self.check(batch)?;
        let rows = RowFactors::of(means, batch.len());
        let mut losses = match self.cfg.order {
            Order::CriticFirst => {
                let critic = self.fused_critic_step(batch, next, &rows);
                Losses { critic, ..self.actor_step(batch, current) }
            }
            Order::ActorFirst => {
                let actor = self.actor_step(batch, current);
                self.temperature_step(-actor.entropy);
                Losses { critic: self.fused_critic_step(batch, next, &rows), ..actor }
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
        self.evaluate_next(batch, noise);
        self.for_shards(batch, |shard, context| shard.td_target(context));
        self.shards.iter().flat_map(|s| s.y.iter().copied()).collect()
    }

    /// One step of all critics towards the targets `y`; returns the mean squared error before it.
    pub fn critic_step(&mut self, batch: &Batch, y: &Array1<f32>) -> f64 {
        assert_eq!(y.len(), batch.len(), "one target a row");
        let rows = RowFactors::of(None, batch.len());
        self.for_shards(batch, |shard, _| {
            let y = y.slice(ndarray::s![shard.rows()]);
            shard.y.iter_mut().zip(y).for_each(|(to, y)| *to = *y);
            shard.load_pairs(batch.obs.view(), batch.act.view());
        });
        self.towards_targets(batch.len(), &rows, None)
    }

    /// One step of the actor on mean (α log π(ã|s) − min_j Q_j(s, ã)), ã ~ π. For other losses, see
    /// [`Sac::actor_step_with`].
    pub fn actor_step(&mut self, batch: &Batch, noise: Noise<'_>) -> Losses {
        self.for_shards(batch, |shard, context| shard.sample(context.actor, batch.obs.view(), noise));
        self.evaluate(Weights::Current);
        self.shards.iter_mut().for_each(UpdateShard::find_smallest);
        let actions = self.action_columns();
        self.for_critics(|j, critic, pass| pass.backward_from_smallest(critic, j, actions.clone()));
        self.for_shards(batch, |shard, context| shard.actor_pass(context));
        self.train_actor();
        let (mut log_prob, mut q) = (0.0, 0.0);
        for shard in &self.shards {
            for i in 0..shard.y.len() {
                log_prob += f64::from(shard.head.log_prob[i]);
                q += f64::from(shard.smallest_q(i));
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
            self.log_alpha.step(lr, self.steps.alpha, -(mean_log_prob + target));
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
        self.critics.predict_first(&self.pool, which, &mut q, |rows, pairs| {
            pairs.load(obs, rows.start, rows.len(), 0);
            pairs.load(act, rows.start, rows.len(), obs.ncols());
        });
        Mat::from_shape_vec((nets, rows), q).expect("one value for each critic and row")
    }

    /// min_j Q_j(s, a) of the current or the target critics.
    pub fn min_q(&self, which: Weights, obs: ArrayView2<'_, f32>, act: ArrayView2<'_, f32>) -> Array1<f32> {
        self.q_values(which, obs, act).fold_axis(ndarray::Axis(0), f32::INFINITY, |a, b| a.min(*b))
    }

    /// td_target, critic_step and sync_targets, with fewer passes over the weights; the same bits.
    fn fused_critic_step(&mut self, batch: &Batch, noise: Noise<'_>, rows: &RowFactors) -> f64 {
        self.evaluate_next(batch, noise);
        self.for_shards(batch, |shard, context| {
            shard.td_target(context);
            shard.load_pairs(batch.obs.view(), batch.act.view());
        });
        self.towards_targets(batch.len(), rows, Some(self.cfg.tau))
    }

    /// The target critics at (s', a'), a' ~ π.
    fn evaluate_next(&mut self, batch: &Batch, noise: Noise<'_>) {
        self.for_shards(batch, |shard, context| shard.sample(context.actor, batch.next_obs.view(), noise));
        self.evaluate(Weights::Target);
    }

    /// One step of all critics at their input towards the shards' targets; returns the mean squared error before it.
    fn towards_targets(&mut self, size: usize, rows: &RowFactors, tau: Option<f32>) -> f64 {
        self.for_critics(|_, critic, pass| pass.squared_error(critic, size, rows));
        self.train_critics(tau);
        self.critic_error(size, rows)
    }

    /// Runs all critics at their input.
    fn evaluate(&mut self, which: Weights) {
        self.for_critics(|_, critic, pass| pass.forward(critic, which));
    }

    /// The columns of the critics' input that are actions.
    fn action_columns(&self) -> std::ops::Range<usize> {
        self.actor.obs_dim()..self.critics.shape().inputs(0)
    }

    /// Calls `work(j, critic, pass)` for each critic and shard.
    fn for_critics(&mut self, work: impl Fn(usize, Net<'_>, &mut CriticPass<'_>) + Sync) {
        let (critics, count) = (&self.critics, self.critics.nets());
        // Critic by critic within a shard: with as many threads as critics, each thread always has the same ones.
        let passes = self.shards.iter_mut().flat_map(UpdateShard::passes);
        self.pool.for_each_item(passes, |i, pass| work(i % count, critics.net(i % count), pass));
    }

    fn train_critics(&mut self, tau: Option<f32>) {
        self.steps.critic += 1;
        let step = TrainStep { tau, ..TrainStep::new(self.cfg.critic_lr, self.steps.critic) };
        let shards = &self.shards;
        self.critics.train(&self.pool, 0..self.cfg.critics, shards.len(), |i| &shards[i].critics, &step);
    }

    /// Counts a step of the actor, and says how it is taken.
    fn next_actor_step(&mut self) -> TrainStep<'static> {
        let lr = self.cfg.actor_lr * self.cfg.actor_schedule.factor(self.steps.actor);
        self.steps.actor += 1;
        TrainStep { tau: self.cfg.actor_average, ..TrainStep::new(lr, self.steps.actor) }
    }

    fn train_actor(&mut self) {
        let step = self.next_actor_step();
        let shards = &self.shards;
        self.actor.net.train(&self.pool, 0..1, shards.len(), |i| &shards[i].actor, &step);
    }

    /// The critics' squared error, summed in the order of the rows whatever shards they were cut into.
    fn critic_error(&self, rows: usize, factors: &RowFactors) -> f64 {
        let of_critic = |j: usize| {
            self.shards.iter().fold(0.0, |total, shard| {
                let pairs = shard.q[j * shard.y.len()..].iter().zip(&shard.y);
                shard.rows().zip(pairs).fold(total, |total, (row, (&q, &y))| {
                    total + f64::from(factors.at(row)) * f64::from(q - y).powi(2)
                })
            })
        };
        (0..self.critics.nets()).map(of_critic).sum::<f64>() / (rows * self.critics.nets()) as f64
    }

    /// Makes room for batches of `rows` rows. Nothing when the size is one of the last two: losses may alternate between a
    /// batch and a larger one.
    fn prepare(&mut self, rows: usize) {
        let fits = |of: &[UpdateShard]| of.iter().map(UpdateShard::rows).eq(self.pool.shards(rows));
        if !fits(&self.shards) {
            std::mem::swap(&mut self.shards, &mut self.other_shards);
        }
        if !fits(&self.shards) {
            self.shards = self.pool.shards(rows).map(|rows| UpdateShard::new(self, rows)).collect();
        }
    }

    fn for_shards(&mut self, batch: &Batch, work: impl Fn(&mut UpdateShard, &UpdateContext<'_>) + Sync) {
        self.prepare(batch.len());
        let context = UpdateContext {
            actor: &self.actor.net,
            batch,
            alpha: self.alpha() as f32,
            gamma: self.cfg.gamma as f32,
            entropy_in_target: !self.cfg.deterministic_backup,
            target_floor: self.cfg.target_floor.unwrap_or(f32::NEG_INFINITY),
            pair: self.target_pair(),
        };
        self.pool.for_each_mut(&mut self.shards, |_, shard| work(shard, &context));
    }

    /// The two critics whose targets count in the coming update, where only two do. A function of the update's number, so
    /// that a resumed run draws the same.
    fn target_pair(&self) -> Option<[usize; 2]> {
        let critics = self.cfg.critics;
        if self.cfg.target_critics == TargetCritics::Min || critics <= 2 {
            return None;
        }
        let mut rng = Rng::stream(0, "critics", self.steps.critic);
        let first = rng.below(critics);
        Some([first, (first + 1 + rng.below(critics - 1)) % critics])
    }

    /// The policy to evaluate and save: the actor, or the average of its weights where one is kept.
    pub fn policy(&self) -> Actor {
        let mut policy = self.actor.clone();
        if self.cfg.actor_average.is_some() {
            policy.net.take_targets();
        }
        policy
    }

    /// Gives the actor the weights of another of the same shape, with fresh moments.
    pub fn set_actor(&mut self, actor: &Actor) {
        self.actor.net.restart_from(&actor.net);
        self.steps.actor = 0;
    }
}
