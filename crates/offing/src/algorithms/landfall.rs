//! Landfall: the policy climbs its own return through the model, and search holds it to the data.
//!
//! 1. *Warm start.* The actor clones the data and the critics are fitted to its discounted returns. From half-way on,
//!    rows that did better than usual for their state count more.
//! 2. *Unrolled returns.* From states of the data, the policy acts for a few steps in the model. The λ-return of that
//!    trajectory is a differentiable function of the actor's weights: its gradient says how each action changes every
//!    later state, reward and value. (Dreamer, Hafner et al. 2020, and LEQ, Park & Lee 2025, learn by it, too.)
//! 3. *Guard.* A step that SUMO's search finds farther from the data than the data's own level costs reward, and the
//!    gradient of its score (Eq. 4) points back to the nearest logged transition. A step beyond the dataset's largest score
//!    (Eq. 7 with α = 1) is not believed at all: the trajectory's value is that before it.
//! 4. *Anchor.* The actor's loss keeps a share of the weighted cloning loss on logged rows (TD3+BC, Fujimoto & Gu 2021).

use ndarray::{Array1, Array2, s};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Algorithm;
use super::config::{Blocks, ModelConfig, TrainConfig};
use super::lambda_return::{Fate, Trajectories};
use super::returns::Returns;
use super::session::{Metrics, Session};
use super::train_loop::{Checkpoint, TrainLoop};
use crate::batch::{Batch, Mat};
use crate::dynamics::{DynamicsModel, Ensemble, Members};
use crate::error::{Error, Result, ensure};
use crate::nn::{Tensors, Weights};
use crate::pessimism::{CalibratedRule, Pessimism, Verdict};
use crate::replay::gather;
use crate::rollout::ModelRollout;
use crate::sac::{Actor, Cloner, Losses, Objective, Sac, SacConfig, Standardiser};
use crate::uncertainty::{Uncertainty, UncertaintyConfig};
use crate::unroll::{Unroll, UnrollGradient, stack};

/// Largest weight of a row in the cloning loss, as a multiple of the mean weight.
const MOST_WEIGHT: f64 = 20.0;
/// Trajectories of a rollout that gathers states of the policy's own.
const GATHERED: usize = 50;
/// Trajectories by which the policy is followed through the model at each evaluation.
const FOLLOWED: usize = 50;

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
    /// Let actor and critics see observations with mean 0 and deviation 1. The saved policy takes raw ones.
    pub standardise: bool,
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
    fn lr_at(&self, step: u64) -> f64 {
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
    /// Updates between two rollouts that gather such states, each as long as the log's longest episode, cut by the guard.
    pub gather_every: u64,
    /// Steps of a trajectory (H).
    pub length: usize,
    /// Weight of longer returns: 0 trusts the critics after one step, 1 only at the end (λ).
    pub lambda: f32,
}

/// The cloning loss beside the return.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Anchor {
    /// Weight of the mean squared distance from logged actions, beside a return that is divided by its mean size.
    pub weight: f32,
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
        Self { starts: 128, own_states: 0.5, gather_every: 250, length: 10, lambda: 0.95 }
    }
}

impl UnrollConfig {
    /// Trajectories that begin at states of the log.
    fn logged(&self) -> usize {
        self.starts - (self.starts as f64 * self.own_states) as usize
    }
}

impl Default for Anchor {
    fn default() -> Self {
        Self { weight: 0.4, selectivity: 1.0 }
    }
}

impl Algorithm for LandfallConfig {
    fn blocks(&self) -> Blocks<'_> {
        Blocks {
            model: Some(&self.model),
            uncertainty: Some(&self.uncertainty),
            pessimism: Some(&self.pessimism),
            sac: Some(&self.sac),
            ..Blocks::new(&self.train)
        }
    }

    fn validate(&self) -> Result<()> {
        let (starts, batch) = (self.unroll.starts, self.train.batch);
        let fits = (1..=batch).contains(&starts);
        ensure(fits, "unroll.starts", &format!("from 1 to {batch} (train.batch)"), starts)?;
        ensure(self.unroll.length > 0, "unroll.length", "at least 1", self.unroll.length)?;
        let UnrollConfig { lambda, own_states, gather_every, .. } = self.unroll;
        ensure((0.0..=1.0).contains(&own_states), "unroll.own_states", "a number from 0 to 1", own_states)?;
        ensure(gather_every > 0, "unroll.gather_every", "at least 1", gather_every)?;
        ensure((0.0..=1.0).contains(&lambda), "unroll.lambda", "a number from 0 to 1", lambda)?;
        let lr = self.warm_start.lr;
        ensure(lr > 0.0 && lr.is_finite(), "warm_start.lr", "a positive number", lr)?;
        let Anchor { weight, selectivity } = self.anchor;
        for (key, value) in [("anchor.weight", f64::from(weight)), ("anchor.selectivity", selectivity)] {
            ensure(value >= 0.0 && value.is_finite(), key, "a number from 0", value)?;
        }
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Option<Actor>> {
        let model = session.fit_model(&self.model)?;
        let estimator = session.build_estimator(&self.uncertainty, &self.pessimism, &model)?;
        let rule = session.calibrate(self.pessimism, estimator.as_deref())?;
        let guard = Guard { estimator: estimator.as_deref(), rule };
        let data = session.data;
        let (obs_dim, act_dim) = (data.rows.obs_dim(), data.rows.act_dim());
        let standardiser = match self.standardise {
            true => Standardiser::of(&data.rows.obs),
            false => Standardiser::identity(obs_dim),
        };
        let returns = Returns::of(data, self.sac.gamma);
        let sac = self.sac.over(self.train.steps.saturating_sub(self.warm_start.steps));
        let agent = Sac::new(&sac, obs_dim, act_dim, session.pool, &mut session.rng("init", 0))?;
        let UnrollConfig { starts, length, .. } = self.unroll;
        let mut unroll = Unroll::new(&agent.actor, &model, (starts, length), self.train.batch, session.pool);
        let own = Mat::zeros((0, obs_dim));
        let mut state = State { agent, weights: Vec::new(), own, found: Found::default() };
        let mut train = TrainLoop::start(session, &self.train, 1, &mut state)?;
        let mut cloner = Cloner::new(Objective::Mse, self.warm_start.lr).after(train.status.step);
        let mut batch = Batch::empty(obs_dim, act_dim);
        while let Some(step) = train.next(&state)? {
            let warm = step.index < self.warm_start.steps;
            let session = &mut *train.session;
            if warm && step.index == self.warm_start.steps / 2 {
                state.weights =
                    session.timer.time("weigh", || self.weigh(&state.agent, data, &standardiser, &returns));
            }
            let mut rng = session.rng("batch", step.index);
            let picks: Vec<usize> = (0..self.train.batch).map(|_| rng.below(data.rows.len())).collect();
            gather(&data.rows, &picks, &mut batch);
            if !warm && (step.index - self.warm_start.steps).is_multiple_of(self.unroll.gather_every) {
                let policy = standardiser.fold(&state.agent.actor);
                state.own = self.gather_states(session, &guard, &model, &policy, step.index)?;
            }
            let mut start = batch.next_obs.slice(s![..starts, ..]).to_owned();
            let logged = if state.own.is_empty() { starts } else { self.unroll.logged() };
            for i in logged..starts {
                start.row_mut(i).assign(&state.own.row(rng.below(state.own.nrows())));
                // What ended in the log did not end here.
                batch.done[i] = false;
            }
            standardiser.apply(&mut batch.obs);
            batch.rew *= returns.scale;
            let State { agent, weights, found, .. } = &mut state;
            let weight = |i: usize| weights.get(picks[i]).copied().unwrap_or(1.0);
            let (pool, timer) = (session.pool, &mut session.timer);
            if warm {
                let y: Array1<f32> = picks.iter().map(|&row| returns.values[row]).collect();
                cloner.set_lr(self.warm_start.lr_at(step.index));
                found.cloning = timer
                    .time("cloning", || cloner.step_weighted(&mut agent.actor, pool, &batch, weight))?
                    / act_dim as f64;
                found.critic =
                    timer.time("critics", || critic_step(agent, &batch.obs, &batch.act, &y, |_| 1.0));
                agent.sync_targets();
                if step.index + 1 == self.warm_start.steps {
                    // Cloning had moments of its own.
                    let clone = agent.actor.clone();
                    agent.set_actor(&clone);
                }
            } else {
                let by = (&model, step.index as usize);
                timer.time("unroll", || unroll.forward(&agent.actor, by, &standardiser, pool, &start));
                let looked_at: Vec<usize> = (0..starts).map(|_| rng.below(length)).collect();
                let scored = timer.time("search", || guard.score(&unroll, &model, &returns, &looked_at))?;
                let y = timer.time("actor", || {
                    let anchored = unroll.anchor(&agent.actor, pool, &batch.obs);
                    let danchored = self.anchor_gradient(anchored, &batch.act, weight, found);
                    let (gradient, y) =
                        self.return_gradient(agent, &unroll, &standardiser, &scored, &batch.done, found);
                    unroll.train_actor(agent, &model, &standardiser, pool, (&gradient, &danchored));
                    y
                });
                found.critic = timer.time("critics", || {
                    self.learn_values(
                        agent,
                        &unroll,
                        &standardiser,
                        (&batch, logged),
                        &scored,
                        &y,
                        &returns,
                        &mut rng,
                    )
                });
                agent.sync_targets();
                found.guard(&scored);
            }
            found.check(step.index)?;
            let losses = Losses { critic: found.critic, actor: found.actor, q: found.q, ..Losses::default() };
            if train.finish_step(losses) {
                let policy =
                    standardiser.fold(&if warm { state.agent.actor.clone() } else { state.agent.policy() });
                let metrics =
                    self.metrics(train.session, &model, &policy, &state.found, &returns, step.index)?;
                train.evaluate(&policy, metrics)?;
            }
        }
        let policy = standardiser.fold(&state.agent.policy());
        Ok(train.finish(&policy)?.then_some(policy))
    }
}

impl LandfallConfig {
    /// Weights of the data's rows in the cloning loss, with mean 1.
    fn weigh(
        &self,
        agent: &Sac,
        data: &crate::data::Dataset,
        standardiser: &Standardiser,
        returns: &Returns,
    ) -> Vec<f32> {
        const ROWS: usize = 4096;
        if self.anchor.selectivity == 0.0 {
            return Vec::new();
        }
        let mut advantage = Vec::with_capacity(data.rows.len());
        for first in (0..data.rows.len()).step_by(ROWS) {
            let rows = first..data.rows.len().min(first + ROWS);
            let mut obs = data.rows.obs.slice(s![rows.clone(), ..]).to_owned();
            standardiser.apply(&mut obs);
            let act = agent.actor.mean_batch(agent.pool(), &obs);
            let value = agent.q_values(Weights::Current, obs.view(), act.view());
            let value = value.mean_axis(ndarray::Axis(0)).expect("there are critics");
            advantage.extend(rows.zip(value).map(|(row, v)| f64::from(returns.values[row] - v)));
        }
        weights_of(&advantage, self.anchor.selectivity)
    }

    /// The gradient of weight · mean w·(π(s) − a)² at the actions π(s).
    pub(super) fn anchor_gradient(
        &self,
        anchored: &Mat,
        act: &Mat,
        weight: impl Fn(usize) -> f32,
        found: &mut Found,
    ) -> Mat {
        let mut gradient = anchored - act;
        found.cloning = gradient.mapv(|e| f64::from(e * e)).mean().unwrap_or(0.0);
        let scale = 2.0 * self.anchor.weight / gradient.len().max(1) as f32;
        for (i, mut row) in gradient.rows_mut().into_iter().enumerate() {
            row *= scale * weight(i);
        }
        gradient
    }

    /// The gradient of −mean y_0 / mean |y_0| at the trajectories, and all y_t. Trajectories that follow a terminal do not
    /// count.
    pub(super) fn return_gradient(
        &self,
        agent: &mut Sac,
        unroll: &Unroll,
        standardiser: &Standardiser,
        scored: &Scored,
        done: &Array1<bool>,
        found: &mut Found,
    ) -> (UnrollGradient, Array2<f32>) {
        let (steps, rows) = scored.rew.dim();
        let (gamma, lambda) = (self.sac.gamma as f32, self.unroll.lambda);
        let mut obs = unroll.obs().clone();
        standardiser.apply(&mut obs);
        let (dobs, dact, (drew, y)) =
            agent.value_gradient(Weights::Target, (&obs, unroll.act()), |values, dq| {
                let smallest: Vec<usize> = values
                    .columns()
                    .into_iter()
                    .map(|q| (0..q.len()).fold(0, |best, j| if q[j] < q[best] { j } else { best }))
                    .collect();
                let q = Array2::from_shape_fn((steps + 1, rows), |(t, i)| {
                    let at = t * rows + i;
                    values[[smallest[at], at]]
                });
                let view = Trajectories {
                    rew: scored.rew.view(),
                    q: q.view(),
                    fate: scored.fate.view(),
                    gamma,
                    lambda,
                };
                let y = view.returns();
                let size = y.row(0).mapv(f32::abs).mean().unwrap_or(0.0).max(1e-6);
                found.q = f64::from(y.row(0).mean().unwrap_or(0.0));
                let scale = -1.0 / (size * rows as f32);
                let (drew, dvalue) = view.gradient(|i| if done[i] { 0.0 } else { scale });
                for (at, &j) in smallest.iter().enumerate() {
                    dq[[j, at]] = dvalue[[at / rows, at % rows]];
                }
                (drew, y)
            });
        found.actor = f64::from(self.anchor.weight) * found.cloning - found.q.signum();
        let mut gradient = UnrollGradient { obs: dobs, act: dact, rew: &drew * scored.reward_scale };
        for mut row in gradient.obs.rows_mut() {
            row.iter_mut().zip(standardiser.std()).for_each(|(d, std)| *d /= std);
        }
        scored.add_gradient(&drew, &mut gradient);
        (gradient, y)
    }

    /// States that the policy reaches in the model, from first states of episodes and from any: as far as the guard lets it.
    fn gather_states(
        &self,
        session: &mut Session<'_>,
        guard: &Guard<'_>,
        model: &Ensemble,
        policy: &Actor,
        step: u64,
    ) -> Result<Mat> {
        let mut rng = session.rng("gather", step);
        let start = session.sample_starts_with_first(GATHERED, 0.5, &mut rng);
        let longest = session.data.episodes.iter().map(|episode| episode.len()).max().unwrap_or(1);
        let rule = match guard.rule.epsilon() {
            Some(_) => guard.rule.clone(),
            None => Pessimism::Truncate { alpha: 1.0 }
                .calibrate(guard.rule.max_score(), &session.data.rows.rew)?,
        };
        let mut rollout =
            ModelRollout { model, estimator: guard.estimator, rule, pool: session.pool, one_member: true };
        let rows =
            session.timer.time("gather", || rollout.run(&MeanActions(policy), start, longest, &mut rng))?;
        Ok(rows.rows.obs)
    }

    /// One step of the critics on logged rows, whose next state begins a trajectory, and on one imagined row of each
    /// trajectory.
    #[allow(clippy::too_many_arguments)]
    fn learn_values(
        &self,
        agent: &mut Sac,
        unroll: &Unroll,
        standardiser: &Standardiser,
        (batch, logged): (&Batch, usize),
        scored: &Scored,
        y: &Array2<f32>,
        returns: &Returns,
        rng: &mut crate::rng::Rng,
    ) -> f64 {
        let (steps, rows) = y.dim();
        let gamma = self.sac.gamma as f32;
        let bound = |y: f32| y.clamp(returns.least, returns.most);
        let mut wanted: Vec<f32> = (0..logged)
            .map(|i| bound(batch.rew[i] + if batch.done[i] { 0.0 } else { gamma * y[[0, i]] }))
            .collect();
        let picks: Vec<(usize, usize)> = (0..rows).map(|i| (rng.below(steps), i)).collect();
        wanted.extend(picks.iter().map(|&at| bound(y[at])));
        let places: Vec<usize> = picks.iter().map(|&(t, i)| t * rows + i).collect();
        let mut imagined = unroll.obs().select(ndarray::Axis(0), &places);
        standardiser.apply(&mut imagined);
        let obs = stack(batch.obs.slice(s![..logged, ..]), imagined.view());
        let imagined = unroll.act().select(ndarray::Axis(0), &places);
        let act = stack(batch.act.slice(s![..logged, ..]), imagined.view());
        // A trajectory counts as far as it is believed, and not at all after a terminal.
        let counts = |i: usize| {
            let (t, i) = picks[i];
            !batch.done[i]
                && (0..=t).all(|t| scored.fate[[t, i]] != Fate::Unbelieved)
                && (0..t).all(|t| scored.fate[[t, i]] == Fate::GoesOn)
        };
        let weight = |i: usize| if i < logged || counts(i - logged) { 1.0 } else { 0.0 };
        critic_step(agent, &obs, &act, &wanted.into(), weight)
    }

    /// Numbers of an evaluation. The policy is followed through the model from first states of the log.
    fn metrics(
        &self,
        session: &mut Session<'_>,
        model: &Ensemble,
        policy: &Actor,
        found: &Found,
        returns: &Returns,
        step: u64,
    ) -> Result<Metrics> {
        let mut metrics = Metrics::default();
        let scale = f64::from(returns.scale);
        metrics.put("critic_loss", json!(found.critic));
        metrics.put("q", json!(found.q / scale));
        metrics.put("data_return", json!(returns.mean));
        metrics.put("cloning_loss", json!(found.cloning));
        metrics.put("u_mean", json!(found.u));
        metrics.put("penalty", json!(found.penalty));
        metrics.put("unbelieved", json!(found.unbelieved));
        let episodes = session.data.episodes.iter().map(|episode| episode.len());
        let longest = episodes.max().unwrap_or(1);
        let mut rng = session.rng("follow", step);
        let start = session.sample_starts_with_first(FOLLOWED, 1.0, &mut rng);
        let mut rollout =
            ModelRollout { one_member: true, ..ModelRollout::without_rule(model, session.pool) };
        let followed =
            session.timer.time("follow", || rollout.run(&MeanActions(policy), start, longest, &mut rng))?;
        let per_start = |sum: f64| sum / FOLLOWED as f64;
        metrics.put("model_length", json!(per_start(followed.stats.imagined as f64)));
        metrics.put("model_ended", json!(per_start(followed.stats.terminated as f64)));
        metrics.put("model_return", json!(per_start(followed.rows.rew.iter().map(|&r| f64::from(r)).sum())));
        Ok(metrics)
    }
}

/// A policy without its noise, for rollouts.
struct MeanActions<'a>(&'a Actor);

impl crate::rollout::BatchPolicy for MeanActions<'_> {
    fn obs_dim(&self) -> usize {
        self.0.obs_dim()
    }

    fn act_dim(&self) -> usize {
        self.0.act_dim()
    }

    fn sample_actions(&self, pool: &crate::nn::ThreadPool, obs: &Mat, _rng: &mut crate::rng::Rng) -> Mat {
        self.0.mean_batch(pool, obs)
    }
}

/// exp(selectivity · A / deviation), with mean 1 and no weight above [`MOST_WEIGHT`].
pub(super) fn weights_of(advantage: &[f64], selectivity: f64) -> Vec<f32> {
    let rows = advantage.len().max(1) as f64;
    let mean = advantage.iter().sum::<f64>() / rows;
    let deviation = (advantage.iter().map(|a| (a - mean).powi(2)).sum::<f64>() / rows).sqrt();
    if deviation <= 1e-9 {
        return Vec::new();
    }
    let raw: Vec<f64> =
        advantage.iter().map(|a| (selectivity * (a - mean) / deviation).exp().min(MOST_WEIGHT)).collect();
    let mean = raw.iter().sum::<f64>() / rows;
    raw.into_iter().map(|w| (w / mean) as f32).collect()
}

/// One step of all critics on Huber's loss, quadratic below an error of 1; returns the weighted mean before it.
pub(super) fn critic_step(
    agent: &mut Sac,
    obs: &Mat,
    act: &Mat,
    y: &Array1<f32>,
    weight: impl Fn(usize) -> f32,
) -> f64 {
    agent.critic_step_with(obs, act, |q, dq| {
        let (mut loss, rows) = (0.0, y.len() as f32);
        for (q, mut dq) in q.rows().into_iter().zip(dq.rows_mut()) {
            for i in 0..y.len() {
                let error = q[i] - y[i];
                let (value, slope) = match error.abs() < 1.0 {
                    true => (0.5 * error * error, error),
                    false => (error.abs() - 0.5, error.signum()),
                };
                loss += f64::from(weight(i) * value);
                dq[i] = weight(i) * slope / rows;
            }
        }
        loss / q.len() as f64
    })
}

/// The estimator and what is done about its scores.
pub(super) struct Guard<'a> {
    pub(super) estimator: Option<&'a dyn Uncertainty>,
    pub(super) rule: CalibratedRule,
}

/// What the guard makes of trajectories.
pub(super) struct Scored {
    /// Rewards less penalties, scaled; H × rows.
    rew: Array2<f32>,
    pub(super) fate: Array2<Fate>,
    /// Factor from rewards to scaled ones.
    reward_scale: f32,
    /// The rows of the steps looked at, and ∂penalty/∂(s, a, s') there, in raw rewards.
    slopes: Option<(Vec<usize>, [Mat; 3])>,
    /// Means over the steps.
    u: f64,
    penalty: f64,
}

impl Guard<'_> {
    /// Looks at step `picks[i]` of each trajectory i and lets it stand for all: its penalty counts as often as there are steps.
    /// That is right on average, and a search for each step would cost more than all else.
    pub(super) fn score(
        &self,
        unroll: &Unroll,
        model: &Ensemble,
        returns: &Returns,
        picks: &[usize],
    ) -> Result<Scored> {
        let all = unroll.steps(model);
        let (steps, rows) = unroll.rew().dim();
        let mut rew = unroll.rew().clone();
        let mut fate = Array2::from_shape_fn((steps, rows), |(t, i)| {
            match (unroll.lost()[[t, i]], all.batch.done[t * rows + i]) {
                (true, _) => Fate::Unbelieved,
                (_, true) => Fate::Ends,
                _ => Fate::GoesOn,
            }
        });
        let (mut slopes, mut u, mut penalty) = (None, 0.0, 0.0);
        if let Some(estimator) = self.estimator {
            let places: Vec<usize> = picks.iter().enumerate().map(|(i, t)| t * rows + i).collect();
            let mut step = all.select(&places);
            if estimator.needs() == Members::All {
                step.prediction = Some(model.predict(&step.batch.obs, &step.batch.act));
            }
            let found = estimator.score_gradient(&step)?;
            let scores = found.score.to_vec();
            let limit = self.rule.epsilon().unwrap_or(self.rule.max_score());
            for (i, (&score, cost)) in scores.iter().zip(self.rule.penalties(&scores)).enumerate() {
                let place = [picks[i], i];
                rew[place] -= steps as f32 * cost;
                u += f64::from(score) / rows as f64;
                penalty += f64::from(cost) / rows as f64;
                if score > limit && limit > 0.0 {
                    fate[place] = match self.rule.verdict(true) {
                        Verdict::Halt => {
                            rew[place] = self.rule.halting_reward();
                            Fate::Ends
                        }
                        _ => Fate::Unbelieved,
                    };
                }
            }
            let mut parts = [found.obs, found.act, found.next_obs];
            let factors: Vec<f32> = self.rule.penalty_slopes(&scores).map(|d| steps as f32 * d).collect();
            for part in &mut parts {
                for (mut row, &factor) in part.rows_mut().into_iter().zip(&factors) {
                    row *= factor;
                }
            }
            slopes = Some((places, parts));
        }
        rew *= returns.scale;
        Ok(Scored { rew, fate, reward_scale: returns.scale, slopes, u, penalty })
    }
}

impl Scored {
    /// Adds what flows through the penalties: `drew` is the loss's gradient at the scaled rewards.
    fn add_gradient(&self, drew: &Array2<f32>, gradient: &mut UnrollGradient) {
        let Some((places, [dobs, dact, dnext])) = &self.slopes else { return };
        let rows = drew.ncols();
        for (i, &at) in places.iter().enumerate() {
            let factor = -drew[[at / rows, at % rows]] * self.reward_scale;
            gradient.obs.row_mut(at).scaled_add(factor, &dobs.row(i));
            gradient.act.row_mut(at).scaled_add(factor, &dact.row(i));
            gradient.obs.row_mut(at + rows).scaled_add(factor, &dnext.row(i));
        }
    }
}

/// What the last step found; means over the batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    critic: f64,
    actor: f64,
    /// λ-return, scaled.
    q: f64,
    /// Squared distance from logged actions.
    cloning: f64,
    u: f64,
    penalty: f64,
    /// Share of steps that were not believed.
    unbelieved: f64,
}

impl Found {
    fn guard(&mut self, scored: &Scored) {
        (self.u, self.penalty) = (scored.u, scored.penalty);
        let lost = scored.fate.iter().filter(|&&fate| fate == Fate::Unbelieved).count();
        self.unbelieved = lost as f64 / scored.fate.len().max(1) as f64;
    }

    fn check(&self, step: u64) -> Result<()> {
        let fits = |x: f64| x.abs() < f64::from(f32::MAX);
        match [("critics' loss", self.critic), ("λ-return", self.q)].iter().find(|(_, x)| !fits(*x)) {
            None => Ok(()),
            Some((name, x)) => Err(Error::Invalid(format!(
                "the {name} became {x:.4e} at step {step}; check the data for huge values, or lower the learning rates"
            ))),
        }
    }

    fn numbers(&self) -> [f64; 7] {
        [self.critic, self.actor, self.q, self.cloning, self.u, self.penalty, self.unbelieved]
    }
}

/// What a checkpoint keeps.
struct State {
    agent: Sac,
    /// Weights of the data's rows in the cloning loss; none while all count alike.
    weights: Vec<f32>,
    /// States that the policy reached in the model.
    own: Mat,
    found: Found,
}

impl Checkpoint for State {
    fn save(&self, out: &mut Tensors) {
        out.put_all("agent", self.agent.save());
        out.put_f32("weights", &[self.weights.len()], self.weights.clone());
        out.put_f32("own", &[self.own.nrows(), self.own.ncols()], self.own.iter().copied().collect());
        out.put_f64("found", &self.found.numbers());
    }

    fn load(&mut self, from: &Tensors) -> Result<()> {
        self.agent.load(&from.under("agent"))?;
        let rows = from.shape("weights").map_or(0, |shape| shape.iter().product());
        self.weights = from.f32("weights", &[rows])?;
        let shape = [from.shape("own").map_or(0, |shape| shape[0]), self.own.ncols()];
        self.own = Mat::from_shape_vec(shape, from.f32("own", &shape)?).expect("the shape was checked");
        let [critic, actor, q, cloning, u, penalty, unbelieved] =
            from.f64("found", 7)?.try_into().expect("seven numbers were asked for");
        self.found = Found { critic, actor, q, cloning, u, penalty, unbelieved };
        Ok(())
    }
}
