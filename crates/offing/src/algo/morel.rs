//! MOReL (Kidambi et al. 2020) as its authors plan: natural policy gradient in a pessimistic model, with any estimator.
//! Deviations: docs/deviations.md. Settings and metrics: docs/algorithms/morel.md.

use ndarray::Axis;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::config::{ModelConfig, TrainConfig, check_estimator};
use super::session::{Event, Session, Status, record_tally};
use crate::batch::{Batch, Mat};
use crate::data::Dataset;
use crate::dynamics::Ensemble;
use crate::error::{Error, Result};
use crate::nn::Tensors;
use crate::npg::{
    Baseline, Bootstrap, GaussianPolicy, Improvement, NpgConfig, Path, Standard, advantages, clone_behaviour,
    improve, paths, returns, whiten,
};
use crate::pessimism::{CalibratedRule, Pessimism};
use crate::rng::Rng;
use crate::rollout::{ModelRollout, RolloutStats, join};
use crate::run::ControlFlow;
use crate::uncertainty::{PairwiseConfig, Uncertainty, UncertaintyConfig};

/// Settings of MOReL. In `train`, a step is an iteration of planning, and a batch is one of cloning and of the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MorelConfig {
    /// The training loop.
    pub train: TrainConfig,
    /// ModelBuffer trajectories.
    pub plan: PlanConfig,
    /// The dynamics model.
    pub model: ModelConfig,
    /// What scores a step.
    pub uncertainty: UncertaintyConfig,
    /// What is done about it: `halt`, `truncate` or `ignore`.
    pub pessimism: Pessimism,
    /// The learner.
    pub npg: NpgConfig,
}

impl Default for MorelConfig {
    fn default() -> Self {
        Self {
            train: TrainConfig {
                steps: 500,
                evaluate_every: 10,
                checkpoint_every: 10,
                ..TrainConfig::default()
            },
            plan: PlanConfig::default(),
            model: ModelConfig::default(),
            uncertainty: UncertaintyConfig::Pairwise(PairwiseConfig::default()),
            pessimism: Pessimism::Halt { alpha: 1.0, penalty: 0.0 },
            npg: NpgConfig::default(),
        }
    }
}

/// ModelBuffer trajectories.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlanConfig {
    /// States that trajectories start from, for each elite member of the model.
    pub starts: usize,
    /// Most steps of a trajectory.
    pub horizon: usize,
    /// Which states these are.
    pub from: Starts,
    /// A trajectory stays with one member from its start to its end; otherwise every step draws one.
    pub each_member: bool,
    /// Members answer with their mean; otherwise with a sample.
    pub deterministic: bool,
    /// What lies behind the end of a trajectory.
    pub bootstrap: Bootstrap,
}

impl Default for PlanConfig {
    fn default() -> Self {
        Self {
            starts: 40,
            horizon: 700,
            from: Starts::default(),
            each_member: true,
            deterministic: true,
            bootstrap: Bootstrap::default(),
        }
    }
}

/// Which states of the dataset trajectories start from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Starts {
    /// First states of episodes.
    #[default]
    Initial,
    /// Half first states, half any.
    Half,
    /// Any.
    Any,
}

impl MorelConfig {
    /// Says what is wrong with the values, if anything.
    pub fn check(&self) -> Result<()> {
        self.train.check()?;
        self.npg.check()?;
        self.model.ensemble.check()?;
        if self.plan.starts == 0 || self.plan.horizon == 0 {
            return Err(Error::Invalid(format!(
                "plan: wanted starts and a horizon of at least 1, found {} and {}",
                self.plan.starts, self.plan.horizon
            )));
        }
        match self.pessimism {
            Pessimism::Penalize { .. } => Err(Error::Invalid(
                "pessimism: wanted halt, truncate or ignore, found penalize; MOReL stops where it is unsure, \
                 `mopo` takes penalties"
                    .into(),
            )),
            rule => rule.check(),
        }
    }

    /// Says what these data cannot serve, if anything, before a model is fitted to them.
    pub fn check_for(&self, data: &Dataset) -> Result<()> {
        self.model.check_for(data)?;
        check_estimator(&self.uncertainty, &self.pessimism, &self.model, data.rows.len())
    }
}

/// Policy and baseline: what planning improves.
struct Learner {
    policy: GaussianPolicy,
    baseline: Baseline,
}

/// Trajectories of one iteration.
struct Plan {
    rows: Batch,
    paths: Vec<Path>,
    /// Steps since the start, row by row.
    time: Vec<u32>,
    tally: RolloutStats,
}

/// The world as planning sees it.
struct World<'a> {
    /// A model for each member that leads trajectories, or one in which every step draws a member.
    models: Vec<Ensemble>,
    estimator: Option<&'a dyn Uncertainty>,
    guard: CalibratedRule,
}

/// Trains to the end, or until the watcher stops it; `None` then.
pub fn train(cfg: &MorelConfig, session: &mut Session<'_>) -> Result<Option<GaussianPolicy>> {
    cfg.check()?;
    cfg.check_for(session.data)?;
    let mut model = session.model(&cfg.model)?; // line 1: learn the dynamics
    let (estimator, guard) = session.judge(&cfg.uncertainty, cfg.pessimism, &model)?; // line 2: where the model is known
    if let Some(epsilon) = guard.epsilon() {
        session.note(format!("trajectories end where u > {epsilon:.4} (Eq. 7)"));
    }
    model.deterministic = cfg.plan.deterministic;
    let models = match cfg.plan.each_member {
        true => model.elites().iter().map(|&member| model.clone().with_members(vec![member])).collect(),
        false => vec![model],
    };
    let world = World { models, estimator: estimator.as_deref(), guard };
    let mut learner = Learner::new(cfg, session);
    let mut status = Status { steps: cfg.train.steps, ..Status::default() };
    match session.resume(cfg.train.steps)? {
        Some((step, state)) => {
            status.step = step;
            learner.load(&state)?;
        }
        None => learner.clone_data(cfg, session)?, // line 3: π ← imitation of the data
    }
    while status.step < cfg.train.steps {
        if session.tell(&status) == ControlFlow::Break(()) {
            session.checkpoint(status.step, learner.save())?;
            return Ok(None);
        }
        let plan = imagine(cfg, session, &world, &learner.policy, status.step)?; // line 5: trajectories, halted
        let found = learner.learn(cfg, session, &plan, &mut status)?; // line 6: natural gradient
        status.step += 1;
        let last = status.step == cfg.train.steps;
        if status.step.is_multiple_of(cfg.train.evaluate_every) || last {
            let values = findings(&found, &plan, &learner.policy, &world.guard);
            session.record(&cfg.train, &mut status, &learner.policy.to_actor()?, values)?;
        }
        if status.step.is_multiple_of(cfg.train.checkpoint_every) || last {
            session.checkpoint(status.step, learner.save())?;
        }
    }
    let _ = session.tell(&status);
    session.finish(&learner.policy.to_actor()?)?;
    Ok(Some(learner.policy))
}

/// Rolls the policy out in every member's world, from the same states.
fn imagine(
    cfg: &MorelConfig,
    session: &mut Session<'_>,
    world: &World<'_>,
    policy: &GaussianPolicy,
    step: u64,
) -> Result<Plan> {
    let each = if cfg.plan.each_member { 1 } else { world.models[0].elites().len() };
    let start = starts(session, cfg.plan.from, cfg.plan.starts * each, &mut session.rng("start", step));
    let (mut parts, mut all, mut rows, mut tally) = (Vec::new(), Vec::new(), 0u32, RolloutStats::default());
    for (i, model) in world.models.iter().enumerate() {
        let (pool, guard) = (session.pool, world.guard.clone());
        let mut dream = ModelRollout { model, estimator: world.estimator, guard, pool };
        let mut rng = session.rng("plan", step * world.models.len() as u64 + i as u64);
        let horizon = cfg.plan.horizon;
        let rollout =
            session.timer.time("rollout", || dream.rollout(policy, start.clone(), horizon, &mut rng))?;
        let mut found = paths(&rollout.start, |row| rollout.rows.done[row], horizon);
        found.iter_mut().flat_map(|path| &mut path.rows).for_each(|row| *row += rows);
        all.extend(found);
        rows += rollout.rows.len() as u32;
        tally.add(&rollout.tally);
        parts.push(rollout.rows);
    }
    if rows == 0 {
        return Err(Error::Invalid(format!(
            "planning: not one of {} imagined steps was kept ({} exploded); raise pessimism.alpha, or fit the \
             model longer",
            tally.imagined, tally.exploded
        )));
    }
    let mut time = vec![0; rows as usize];
    for path in &all {
        path.rows.iter().zip(0..).for_each(|(&row, t)| time[row as usize] = t);
    }
    Ok(Plan { rows: join(parts, policy.obs_dim(), policy.act_dim()), paths: all, time, tally })
}

/// States to start from, drawn with replacement.
fn starts(session: &Session<'_>, from: Starts, count: usize, rng: &mut Rng) -> Mat {
    let (data, episodes) = (&session.data.rows, &session.data.episodes);
    let pick = |i: usize, rng: &mut Rng| {
        let initial = match from {
            Starts::Initial => true,
            Starts::Half => i.is_multiple_of(2),
            Starts::Any => false,
        };
        // Data without episodes have no first states.
        if initial && !episodes.is_empty() {
            episodes[rng.below(episodes.len())].start
        } else {
            rng.below(data.len())
        }
    };
    let rows: Vec<usize> = (0..count).map(|i| pick(i, rng)).collect();
    data.obs.select(Axis(0), &rows)
}

impl Learner {
    fn new(cfg: &MorelConfig, session: &Session<'_>) -> Self {
        let (data, mut rng) = (&session.data.rows, session.rng("init", 0));
        let standard = Standard::of(&data.obs);
        let policy = GaussianPolicy::new(&cfg.npg, standard.clone(), data.act_dim(), &mut rng);
        Self { policy, baseline: Baseline::new(&cfg.npg.baseline, standard, &mut rng) }
    }

    /// Imitates the data.
    fn clone_data(&mut self, cfg: &MorelConfig, session: &mut Session<'_>) -> Result<()> {
        if cfg.npg.clone_epochs == 0 {
            return Ok(());
        }
        let (data, pool, mut rng) = (&session.data.rows, session.pool, session.rng("clone", 0));
        let status = Status { steps: cfg.train.steps, ..Status::default() };
        let (watch, mut batches) = (&mut *session.watch, 0u64);
        let mut tick = || {
            batches += 1;
            let stop = batches.is_multiple_of(100) && watch(Event::Step(&status)) == ControlFlow::Break(());
            if stop { Err(Error::Stopped) } else { Ok(()) }
        };
        let (policy, batch) = (&mut self.policy, cfg.train.batch);
        let loss = session
            .timer
            .time("cloning", || clone_behaviour(&cfg.npg, policy, pool, data, batch, &mut rng, &mut tick))?;
        session.note(format!("cloned the data's behaviour (mean squared error {loss:.4} an action)"));
        Ok(())
    }

    /// Advantages by the baseline, one step of the policy, then the baseline learns what these trajectories returned.
    fn learn(
        &mut self,
        cfg: &MorelConfig,
        session: &mut Session<'_>,
        plan: &Plan,
        status: &mut Status,
    ) -> Result<Found> {
        let (npg, pool) = (&cfg.npg, session.pool);
        let rewards = plan.rows.rew.as_slice().expect("a batch is contiguous");
        let Self { policy, baseline } = self;
        let values = session.timer.time("baseline", || baseline.values(pool, &plan.rows.obs, &plan.time));
        let mut advantage =
            advantages(&plan.paths, rewards, &values, (npg.gamma, npg.lambda), cfg.plan.bootstrap);
        whiten(&mut advantage);
        let (obs, act) = (&plan.rows.obs, &plan.rows.act);
        let step = session.timer.time("npg", || improve(npg, policy, pool, obs, act, &advantage))?;
        let targets = returns(&plan.paths, rewards, npg.gamma);
        let (batch, mut rng) = (cfg.train.batch, session.rng("baseline", status.step));
        let value_error = session
            .timer
            .time("baseline", || baseline.fit(pool, obs, &plan.time, &targets, batch, &mut rng))?;
        let imagined_return =
            plan.rows.rew.iter().map(|&r| f64::from(r)).sum::<f64>() / plan.paths.len() as f64;
        status.losses.critic = value_error;
        status.losses.actor = -step.surrogate;
        status.losses.q = imagined_return;
        status.losses.entropy = policy.entropy();
        status.tally = Some(plan.tally.clone());
        Ok(Found { step, value_error, imagined_return })
    }

    fn save(&self) -> Tensors {
        let mut out = Tensors::default();
        out.put_all("policy", self.policy.save());
        out.put_all("baseline", self.baseline.save());
        out
    }

    fn load(&mut self, from: &Tensors) -> Result<()> {
        self.policy.load(&from.under("policy"))?;
        self.baseline.load(&from.under("baseline"))
    }
}

/// What an iteration found.
struct Found {
    step: Improvement,
    value_error: f64,
    imagined_return: f64,
}

fn findings(
    found: &Found,
    plan: &Plan,
    policy: &GaussianPolicy,
    guard: &CalibratedRule,
) -> Map<String, Value> {
    let mut values = Map::new();
    let mut put = |name: &str, value: Value| drop(values.insert(name.into(), value));
    let (tally, count) = (&plan.tally, plan.paths.len() as f64);
    put("surrogate", json!(found.step.surrogate));
    put("kl", json!(found.step.kl));
    put("gradient", json!(found.step.gradient));
    put("step_length", json!(found.step.step));
    put("entropy", json!(policy.entropy()));
    put("value_error", json!(found.value_error));
    put("imagined_return", json!(found.imagined_return));
    put("path_length", json!(plan.rows.len() as f64 / count));
    put("halted", json!(tally.guarded as f64 / count));
    record_tally(tally, &mut put);
    if let Some(epsilon) = guard.epsilon() {
        put("epsilon", json!(epsilon));
        put("reward_range", json!(guard.reward_range()));
    }
    values
}
