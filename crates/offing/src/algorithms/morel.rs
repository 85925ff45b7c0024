//! MOReL (Kidambi et al. 2020) as its authors plan: natural policy gradient in a pessimistic model, with any estimator.
//! Deviations: docs/deviations.md. Settings and metrics: docs/algorithms/morel.md.

use ndarray::Axis;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Algorithm;
use super::config::{Blocks, ModelConfig, TrainConfig};
use super::record::Metrics;
use super::session::{Event, Session, Status};
use super::train_loop::{Checkpoint, TrainLoop};
use crate::batch::{Batch, Mat};
use crate::dynamics::Ensemble;
use crate::error::{Error, Result, invalid};
use crate::nn::Tensors;
use crate::npg::{
    Baseline, Bootstrap, GaussianPolicy, NpgConfig, NpgStats, Standardizer, Trajectory, advantages,
    clone_behaviour, npg_step, returns, trajectories, whiten,
};
use crate::pessimism::{CalibratedRule, Pessimism};
use crate::rng::Rng;
use crate::rollout::{ModelRollout, RolloutStats, join};
use crate::sac::{Actor, Losses};
use crate::uncertainty::{PairwiseConfig, Uncertainty, UncertaintyConfig};

/// Settings of MOReL. In `train`, a step is an iteration of planning, and a batch is one of cloning and of the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MorelConfig {
    /// The training loop.
    pub train: TrainConfig,
    /// Imagined trajectories.
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

/// Imagined trajectories: what `morel` plans in, one set an iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlanConfig {
    /// States that trajectories start from, for each elite of the model.
    pub starts: usize,
    /// Most steps of a trajectory.
    pub horizon: usize,
    /// Which states of the dataset trajectories start from.
    pub from: Starts,
    /// A trajectory stays with one member from its start to its end, as in MOReL's code; otherwise every step draws an elite.
    pub each_member: bool,
    /// Members answer with their mean, as in MOReL's code; otherwise with a sample.
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

impl Algorithm for MorelConfig {
    fn blocks(&self) -> Blocks<'_> {
        Blocks {
            model: Some(&self.model),
            uncertainty: Some(&self.uncertainty),
            pessimism: Some(&self.pessimism),
            ..Blocks::new(&self.train)
        }
    }

    fn validate(&self) -> Result<()> {
        self.npg.validate()?;
        if self.plan.starts == 0 || self.plan.horizon == 0 {
            return Err(invalid!(
                "plan: wanted starts and a horizon of at least 1, found {} and {}",
                self.plan.starts,
                self.plan.horizon
            ));
        }
        match self.pessimism {
            rule if rule.penalises() => Err(invalid!(
                "pessimism: wanted halt, truncate or ignore, found penalize; MOReL stops where it is unsure, \
                 `mopo` takes penalties"
            )),
            _ => Ok(()),
        }
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Option<Actor>> {
        let mut model = session.fit_model(&self.model)?; // line 1: learn the dynamics
        let estimator = session.build_estimator(&self.uncertainty, &self.pessimism, &model)?;
        let rule = session.calibrate(self.pessimism, estimator.as_deref())?; // line 2: where the model is known
        model.deterministic = self.plan.deterministic;
        let models = match self.plan.each_member {
            true => model.elites().iter().map(|&member| model.clone().with_members(vec![member])).collect(),
            false => vec![model],
        };
        let world = PessimisticModel { models, estimator: estimator.as_deref(), rule };
        let mut learner = Learner::new(self, session);
        let mut train = TrainLoop::start(session, &self.train, 1, &mut learner)?.poll_every_step();
        if !train.is_resumed() {
            learner.clone_data(self, train.session)?; // line 3: π ← imitation of the data
        }
        while let Some(step) = train.next(&learner)? {
            let plan = imagine(self, train.session, &world, &learner.policy, step.index)?; // line 5: trajectories, halted
            let found = learner.learn(self, train.session, &plan, step.index)?; // line 6: natural gradient
            train.status.rollout = Some(plan.stats.clone());
            if train.finish_step(found.losses(&learner.policy)) {
                let metrics = metrics(&found, &plan, &learner.policy, &world.rule);
                train.evaluate(&learner.policy.to_actor()?, metrics)?;
            }
            train.show_policy(|| learner.policy.to_actor())?;
        }
        let actor = learner.policy.to_actor()?;
        Ok(train.finish(&actor)?.then_some(actor))
    }
}

/// Policy and baseline: what planning improves, and what a checkpoint keeps.
struct Learner {
    policy: GaussianPolicy,
    baseline: Baseline,
}

/// Trajectories of one iteration.
struct ImaginedPaths {
    rows: Batch,
    paths: Vec<Trajectory>,
    /// Steps since the start, row by row.
    time: Vec<u32>,
    stats: RolloutStats,
}

/// The model as planning sees it: cut where it is not known.
struct PessimisticModel<'a> {
    /// A model for each member that leads trajectories, or one in which every step draws a member.
    models: Vec<Ensemble>,
    estimator: Option<&'a dyn Uncertainty>,
    rule: CalibratedRule,
}

/// Rolls the policy out in every member's world, from the same states.
fn imagine(
    cfg: &MorelConfig,
    session: &mut Session<'_>,
    world: &PessimisticModel<'_>,
    policy: &GaussianPolicy,
    step: u64,
) -> Result<ImaginedPaths> {
    let each = if cfg.plan.each_member { 1 } else { world.models[0].elites().len() };
    let start = starts(session, cfg.plan.from, cfg.plan.starts * each, &mut session.rng("start", step));
    let (mut parts, mut all, mut time) = (Vec::new(), Vec::new(), Vec::new());
    let (mut rows, mut stats) = (0u32, RolloutStats::default());
    for (i, model) in world.models.iter().enumerate() {
        let (pool, rule) = (session.pool, world.rule.clone());
        let mut in_model = ModelRollout { model, estimator: world.estimator, rule, pool, one_member: false };
        let mut rng = session.rng("plan", step * world.models.len() as u64 + i as u64);
        let horizon = cfg.plan.horizon;
        let rollout =
            session.timer.time("rollout", || in_model.run(policy, start.clone(), horizon, &mut rng))?;
        let mut found = trajectories(&rollout.start, |row| rollout.rows.done[row], horizon);
        found.iter_mut().flat_map(|path| &mut path.rows).for_each(|row| *row += rows);
        all.extend(found);
        rows += rollout.rows.len() as u32;
        stats.add(&rollout.stats);
        time.extend(rollout.depth);
        parts.push(rollout.rows);
    }
    if rows == 0 {
        return Err(invalid!(
            "planning: not one of {} imagined steps was kept ({} were not finite); raise pessimism.alpha, or fit the \
             model longer",
            stats.imagined,
            stats.non_finite
        ));
    }
    Ok(ImaginedPaths { rows: join(parts, policy.obs_dim(), policy.act_dim()), paths: all, time, stats })
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
        let standard = Standardizer::of(&data.obs);
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
        let (on_event, mut batches) = (&mut *session.on_event, 0u64);
        let mut tick = || {
            batches += 1;
            let stop = batches.is_multiple_of(100) && on_event(Event::Step(&status)).is_break();
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
        plan: &ImaginedPaths,
        step: u64,
    ) -> Result<Found> {
        let (npg, pool) = (&cfg.npg, session.pool);
        let rewards = plan.rows.rew.as_slice().expect("a batch is contiguous");
        let Self { policy, baseline } = self;
        let values = session.timer.time("baseline", || baseline.values(pool, &plan.rows.obs, &plan.time));
        let mut advantage =
            advantages(&plan.paths, rewards, &values, (npg.gamma, npg.lambda), cfg.plan.bootstrap);
        whiten(&mut advantage);
        let (obs, act) = (&plan.rows.obs, &plan.rows.act);
        let improvement = session.timer.time("npg", || npg_step(npg, policy, pool, obs, act, &advantage))?;
        let targets = returns(&plan.paths, rewards, npg.gamma);
        let (batch, mut rng) = (cfg.train.batch, session.rng("baseline", step));
        let value_error = session
            .timer
            .time("baseline", || baseline.fit(pool, obs, &plan.time, &targets, batch, &mut rng))?;
        let imagined_return =
            plan.rows.rew.iter().map(|&r| f64::from(r)).sum::<f64>() / plan.paths.len() as f64;
        Ok(Found { step: improvement, value_error, imagined_return })
    }
}

impl Checkpoint for Learner {
    fn save(&self, out: &mut Tensors) {
        out.put_all("policy", self.policy.save());
        out.put_all("baseline", self.baseline.save());
    }

    fn load(&mut self, from: &Tensors) -> Result<()> {
        self.policy.load(&from.under("policy"))?;
        self.baseline.load(&from.under("baseline"))
    }
}

/// What an iteration found.
struct Found {
    step: NpgStats,
    value_error: f64,
    imagined_return: f64,
}

impl Found {
    fn losses(&self, policy: &GaussianPolicy) -> Losses {
        Losses {
            critic: self.value_error,
            actor: -self.step.surrogate,
            q: self.imagined_return,
            entropy: policy.entropy(),
            alpha: 0.0,
        }
    }
}

fn metrics(found: &Found, plan: &ImaginedPaths, policy: &GaussianPolicy, rule: &CalibratedRule) -> Metrics {
    let (mut metrics, count) = (Metrics::default(), plan.paths.len() as f64);
    metrics.put("surrogate", json!(found.step.surrogate));
    metrics.put("kl", json!(found.step.kl));
    metrics.put("gradient", json!(found.step.gradient));
    metrics.put("step_length", json!(found.step.step));
    metrics.put("entropy", json!(policy.entropy()));
    metrics.put("value_error", json!(found.value_error));
    metrics.put("imagined_return", json!(found.imagined_return));
    metrics.put("path_length", json!(plan.rows.len() as f64 / count));
    metrics.put("halted", json!(plan.stats.truncated as f64 / count));
    metrics.put_rollout(&plan.stats);
    if let Some(epsilon) = rule.epsilon() {
        metrics.put("epsilon", json!(epsilon));
        metrics.put("reward_range", json!(rule.reward_range()));
    }
    metrics
}
