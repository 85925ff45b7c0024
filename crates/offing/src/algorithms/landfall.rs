//! Landfall: an actor that stays near logged rows, found by search, and critics that learn from logged and imagined rows.
//!
//! 1. *Warm start.* The actor clones the data and the critics are fitted to its discounted returns.
//! 2. *Dataset constraint.* The actor's loss is −λ·Q(s, π(s)) + ‖π(s) − â‖², where (ŝ, â) is the dataset row nearest to
//!    (β·s, π(s)) and λ = weight / mean |Q| (PRDC, Ran et al. 2023). An exact search finds â for logged and for imagined
//!    states alike, so imagined rows need no clone to hold on to.
//! 3. *Long rollouts.* The model is rolled out from states of the dataset and first states of episodes. A trajectory is
//!    cut where SUMO's score passes the dataset's largest leave-one-out score (Eq. 7 with α = 1).

use ndarray::{Array1, Axis};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Algorithm;
use super::config::{Blocks, ModelConfig, RolloutConfig, TrainConfig};
use super::dataset_constraint::{AdaptiveWeight, Constraint, NearestActions};
use super::returns::Returns;
use super::sac_learner::SacLearner;
use super::session::Session;
use super::train_loop::{Checkpoint, TrainLoop};
use crate::batch::{Batch, Mat};
use crate::error::{Result, ensure};
use crate::nn::{Noise, Tensors};
use crate::pessimism::Pessimism;
use crate::rollout::ModelRollout;
use crate::sac::{Actor, ActorTerms, Cloner, Losses, Objective, Sac, SacConfig, Standardiser};
use crate::uncertainty::UncertaintyConfig;

/// Settings of Landfall.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LandfallConfig {
    /// The training loop.
    pub train: TrainConfig,
    /// What comes before learning by reinforcement.
    pub warm_start: WarmStart,
    /// What holds the actor to the data.
    pub constraint: Constraint,
    /// Rollouts in the model. With `real_ratio = 1` no model is fitted.
    pub rollout: RolloutConfig,
    /// The dynamics model.
    pub model: ModelConfig,
    /// What scores a step. `+ID` in the algorithm's name chooses a kind with its defaults: `mopo+fathom`. What each kind
    /// computes: docs/estimators.md. A program can register one of its own: `{ kind = "custom", name = "mine" }`.
    pub uncertainty: UncertaintyConfig,
    /// What is done about it.
    pub pessimism: Pessimism,
    /// Actor and critics. The policy's noise is fixed, and there is no entropy term.
    pub sac: SacConfig,
    /// Critic steps for each step of the actor.
    pub actor_every: u64,
    /// Which critics the actor follows.
    pub actor_critics: ActorCritics,
    /// What the critics minimise.
    pub critic_loss: CriticLoss,
    /// Let actor and critics see observations with mean 0 and deviation 1. The saved policy takes raw ones.
    pub standardise: bool,
}

/// The warm start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WarmStart {
    /// Gradient steps of cloning and of critics on the data's returns. They count as steps of the training.
    pub steps: u64,
    /// Learning rate of cloning.
    pub lr: f64,
}

/// Which critics the actor follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActorCritics {
    /// The smallest value of all.
    #[default]
    Min,
    /// The mean.
    Mean,
}

/// What the critics minimise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CriticLoss {
    /// (Q − y)².
    #[default]
    Mse,
    /// Huber's loss, quadratic below an error of 1.
    Huber,
}

impl Default for LandfallConfig {
    fn default() -> Self {
        Self {
            train: TrainConfig::default(),
            warm_start: WarmStart::default(),
            constraint: Constraint::default(),
            rollout: RolloutConfig::default(),
            model: ModelConfig::default(),
            uncertainty: UncertaintyConfig::Sumo(Default::default()),
            pessimism: Pessimism::Truncate { alpha: 1.0 },
            sac: SacConfig::default(),
            actor_every: 2,
            actor_critics: ActorCritics::default(),
            critic_loss: CriticLoss::default(),
            standardise: true,
        }
    }
}

impl Default for WarmStart {
    fn default() -> Self {
        Self { steps: 5000, lr: 1e-3 }
    }
}

impl Algorithm for LandfallConfig {
    fn blocks(&self) -> Blocks<'_> {
        let model = self.has_model();
        Blocks {
            rollout: Some(&self.rollout),
            model: model.then_some(&self.model),
            uncertainty: model.then_some(&self.uncertainty),
            pessimism: Some(&self.pessimism),
            sac: Some(&self.sac),
            ..Blocks::new(&self.train)
        }
    }

    fn validate(&self) -> Result<()> {
        let Constraint { weight, spread, state_scale } = self.constraint;
        for (key, value) in [
            ("constraint.weight", f64::from(weight)),
            ("constraint.spread", f64::from(spread.unwrap_or(1.0))),
            ("constraint.state_scale", f64::from(state_scale)),
            ("warm_start.lr", self.warm_start.lr),
        ] {
            ensure(value > 0.0 && value.is_finite(), key, "a positive number", value)?;
        }
        ensure(self.actor_every > 0, "actor_every", "at least 1", self.actor_every)
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Option<Actor>> {
        let model = self.has_model().then(|| session.fit_model(&self.model)).transpose()?;
        let estimator = match &model {
            Some(model) => session.build_estimator(&self.uncertainty, &self.pessimism, model)?,
            None => None,
        };
        let rule = session.calibrate(self.pessimism, estimator.as_deref())?;
        let mut rollout = model.as_ref().map(|model| ModelRollout {
            model,
            estimator: estimator.as_deref(),
            rule,
            pool: session.pool,
            one_member: self.rollout.one_member,
        });
        let standardiser = match self.standardise {
            true => Standardiser::of(&session.data.rows.obs),
            false => Standardiser::identity(session.data.rows.obs_dim()),
        };
        let nearest = session.timer.time("index", || {
            NearestActions::new(
                &session.data.rows,
                &standardiser,
                self.constraint.state_scale,
                session.pool.threads(),
            )
        })?;
        let returns = Returns::of(session.data, self.sac.gamma);
        let learner =
            SacLearner::new(session, &self.sac, &self.rollout, (self.train.steps, self.train.batch))?;
        let weight = AdaptiveWeight::new(&self.constraint);
        let learner = learner.standardised(standardiser);
        let mut state = State { learner, weight, losses: Losses::default() };
        let mut train = TrainLoop::start(session, &self.train, self.rollout.every, &mut state)?;
        let mut cloner = Cloner::new(Objective::Mse, self.warm_start.lr).after(train.status.step);
        while let Some(step) = train.next(&state)? {
            let State { learner, weight, losses } = &mut state;
            let warm = step.index < self.warm_start.steps;
            if let (true, false, Some(rollout)) = (step.starts_block, warm, &mut rollout) {
                learner.rollout(&mut train, rollout, step)?;
                if step.index < self.warm_start.steps + self.rollout.every {
                    self.report_survival(train.session, learner);
                }
            }
            let batch = learner.sample(train.session, step);
            if let Some(rollout) = &rollout {
                let imagined = batch.imagined();
                rollout.rule.penalise(imagined.rewards, imagined.u);
            }
            batch.rows.rew *= returns.scale;
            let session = &mut *train.session;
            let mut rng = session.rng("sac", step.index);
            let (agent, batch) = (&mut learner.agent, &learner.batch);
            if warm {
                let (pool, cfg) = (session.pool, &self.warm_start);
                let y: Array1<f32> = batch.data_rows.iter().map(|&row| returns.values[row]).collect();
                losses.actor =
                    session.timer.time("cloning", || cloner.step(&mut agent.actor, pool, &batch.rows))?;
                weight.clone_took(losses.actor / batch.rows.act_dim() as f64);
                losses.critic = session.timer.time("sac", || self.critic_step(agent, &batch.rows, &y));
                agent.sync_targets();
                if step.index + 1 == cfg.steps {
                    // Cloning had moments of its own.
                    let clone = agent.actor.clone();
                    agent.set_actor(&clone);
                }
            } else {
                losses.critic = session.timer.time("sac", || {
                    let mut y = agent.td_target(&batch.rows, Noise::draw(&mut rng));
                    y.mapv_inplace(|y| y.clamp(returns.least, returns.most));
                    let loss = self.critic_step(agent, &batch.rows, &y);
                    agent.sync_targets();
                    loss
                });
                if step.index.is_multiple_of(self.actor_every) {
                    let timer = &mut session.timer;
                    let found = timer
                        .time("actor", || self.actor_step(agent, &batch.rows, weight.value(), &nearest))?;
                    (losses.actor, losses.q) = (found.loss, found.q / f64::from(returns.scale));
                    weight.adapt(found.distance);
                }
            }
            agent.check_losses(losses)?;
            if train.finish_step(*losses) {
                let policy = if warm { state.learner.actor() } else { state.learner.policy() };
                let mut metrics = state.learner.metrics(&state.losses);
                metrics.put("data_return", json!(returns.mean));
                metrics.put("constraint_weight", json!(state.weight.value()));
                metrics.put("action_distance", json!(state.weight.distance));
                metrics.put("clone_distance", json!(state.weight.of_clone));
                train.evaluate(&policy, metrics)?;
            }
        }
        let policy = state.learner.policy();
        Ok(train.finish(&policy)?.then_some(policy))
    }
}

impl LandfallConfig {
    fn has_model(&self) -> bool {
        self.rollout.real_ratio < 1.0
    }

    /// Says how long the clone survives in the model, beside the log.
    fn report_survival(&self, session: &mut Session<'_>, learner: &SacLearner) {
        let Some(stats) = &learner.stats else { return };
        let lengths = session.data.episodes.iter().map(|episode| episode.len().min(self.rollout.length));
        let logged = lengths.sum::<usize>() as f64 / session.data.episodes.len().max(1) as f64;
        let share = |count: u64| 100.0 * count as f64 / self.rollout.starts as f64;
        session.note(format!(
            "cloned behaviour goes {:.0} steps in the model ({:.0} % of rollouts cut by the estimator, {:.0} % ended); \
             episodes of the log have {logged:.0}",
            stats.imagined as f64 / self.rollout.starts as f64,
            share(stats.truncated),
            share(stats.terminated)
        ));
    }

    pub(super) fn critic_step(&self, agent: &mut Sac, batch: &Batch, y: &Array1<f32>) -> f64 {
        let kind = self.critic_loss;
        agent.critic_step_with(&batch.obs, &batch.act, |q, dq| {
            let (mut loss, rows) = (0.0, y.len() as f32);
            for (q, mut dq) in q.rows().into_iter().zip(dq.rows_mut()) {
                for i in 0..y.len() {
                    let error = q[i] - y[i];
                    let (value, slope) = match kind {
                        CriticLoss::Mse => (error * error, 2.0 * error),
                        CriticLoss::Huber if error.abs() < 1.0 => (0.5 * error * error, error),
                        CriticLoss::Huber => (error.abs() - 0.5, error.signum()),
                    };
                    loss += f64::from(value);
                    dq[i] = slope / rows;
                }
            }
            loss / q.len() as f64
        })
    }

    fn actor_step(
        &self,
        agent: &mut Sac,
        batch: &Batch,
        weight: f32,
        nearest: &NearestActions<'_>,
    ) -> Result<ActorStep> {
        let mut found = Ok(ActorStep::default());
        agent.actor_step_with(&batch.obs, Noise::Zero, |out, gradient| {
            found = nearest
                .find(&batch.obs, &out.act)
                .map(|target| self.actor_loss(out, &target, weight, gradient));
            found.as_ref().map_or(0.0, |found| found.loss)
        });
        found
    }

    /// −λ·Q + mean (π(s) − â)², and its gradient; λ counts as a constant.
    pub(super) fn actor_loss(
        &self,
        out: &ActorTerms,
        target: &Mat,
        weight: f32,
        gradient: &mut ActorTerms,
    ) -> ActorStep {
        let (critics, rows) = out.q.dim();
        let q = match self.actor_critics {
            ActorCritics::Min => out.q.fold_axis(Axis(0), f32::INFINITY, |a, b| a.min(*b)),
            ActorCritics::Mean => out.q.mean_axis(Axis(0)).expect("there are critics"),
        };
        let lambda = weight * rows as f32 / q.mapv(f32::abs).sum().max(1e-6);
        for i in 0..rows {
            match self.actor_critics {
                ActorCritics::Min => {
                    let smallest = (0..critics).find(|&j| out.q[[j, i]] == q[i]).unwrap_or(0);
                    gradient.q[[smallest, i]] = -lambda / rows as f32;
                }
                ActorCritics::Mean => gradient.q.column_mut(i).fill(-lambda / (critics * rows) as f32),
            }
        }
        let error = &out.act - target;
        gradient.act = 2.0 / error.len() as f32 * &error;
        let distance = error.mapv(|e| f64::from(e * e)).mean().unwrap_or(0.0);
        let q = q.mapv(f64::from).mean().unwrap_or(0.0);
        ActorStep { loss: distance - f64::from(lambda) * q, q, distance }
    }
}

/// What a step of the actor found; means over the batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ActorStep {
    pub(super) loss: f64,
    /// Value of the policy's actions, scaled.
    q: f64,
    /// Squared distance from the nearest logged actions.
    distance: f64,
}

/// What a checkpoint keeps.
struct State {
    learner: SacLearner,
    weight: AdaptiveWeight,
    /// Of the last steps of critics and actor; the actor does not step every time.
    losses: Losses,
}

impl Checkpoint for State {
    fn save(&self, out: &mut Tensors) {
        self.learner.save(out);
        let AdaptiveWeight { log_weight, of_clone, distance, .. } = self.weight;
        out.put_f64("constraint", &[log_weight, of_clone, distance]);
        out.put_f64("losses", &[self.losses.critic, self.losses.actor, self.losses.q]);
    }

    fn load(&mut self, from: &Tensors) -> Result<()> {
        let kept = from.f64("constraint", 3)?;
        (self.weight.log_weight, self.weight.of_clone, self.weight.distance) = (kept[0], kept[1], kept[2]);
        let losses = from.f64("losses", 3)?;
        (self.losses.critic, self.losses.actor, self.losses.q) = (losses[0], losses[1], losses[2]);
        self.learner.load(from)
    }
}
