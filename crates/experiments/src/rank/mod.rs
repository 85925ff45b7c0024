//! Which of several runs' policies is best, without the simulator: fitted Q evaluation, and the return in a learnt model with
//! SUMO's penalty.

mod ranking;

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use ndarray::Axis;
use offing::algorithms::{ModelConfig, Registry, Session, Status};
use offing::data::Dataset;
use offing::dynamics::EnsembleConfig;
use offing::env::Simulators;
use offing::eval::evaluate;
use offing::pessimism::{Normaliser, Pessimism};
use offing::rank::{
    FittedQ, FittedQConfig, ModelReturn, ModelReturnConfig, clone_behaviour, ends_early, first_states,
    fitted_q, model_return, without_noise,
};
use offing::rollout::ModelRollout;
use offing::run::{CONFIG, METRICS, RunDir, read_metrics};
use offing::sac::{Actor, Deterministic};
use offing::train::{RunManifest, resume};
use offing::uncertainty::{BuildContext, Uncertainty, UncertaintyConfig};
use offing::{Error, Rng};

use crate::Runtime;
use crate::arguments::positive;
use crate::run_record::{BEST_POLICY, PICKED, POLICIES, find_runs, load_actor};

/// Gradient steps of a model that none of the runs has.
const MODEL_UPDATES: u64 = 5000;

/// What to rank, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct RankConfig {
    /// Run directories, or directories with runs somewhere inside; all trained on the same transitions.
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Also play N episodes with each policy in the simulator, to check the rankings against.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub online: usize,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Gradient steps of fitted Q evaluation for each policy.
    #[arg(long, default_value_t = FittedQConfig::default().steps, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    /// Steps of a policy in the model.
    #[arg(long, default_value_t = ModelReturnConfig::default().length, value_parser = positive)]
    pub length: usize,
    /// Discount of both estimates.
    #[arg(long, default_value_t = FittedQConfig::default().gamma)]
    pub gamma: f64,
}

/// Policies with what was found out about them.
pub struct Ranking {
    config: RankConfig,
    policies: Vec<RankedPolicy>,
}

/// One policy.
struct RankedPolicy {
    run: PathBuf,
    algorithm: String,
    seed: u64,
    /// Its name among those of its run.
    which: &'static str,
    policy: Actor,
    /// Episodes in the simulator that chose it among others of its run.
    chosen_by: usize,
    fitted: Option<FittedQ>,
    model: Option<ModelReturn>,
    /// Whether it ends episodes sooner than a clone of the data, where failing pays.
    ends_early: bool,
    online: Option<f64>,
}

/// An estimate of a policy's value: its name, the estimate, a number beside it and that number's name.
struct ValueEstimate {
    name: &'static str,
    value: fn(&RankedPolicy) -> Option<f64>,
    aside_name: &'static str,
    aside: fn(&RankedPolicy) -> Option<f64>,
}

const ESTIMATES: [ValueEstimate; 2] = [
    ValueEstimate {
        name: "fitted Q",
        value: |p| p.fitted.map(|f| f.value),
        aside_name: "error of Q",
        aside: |p| p.fitted.map(|f| f.error),
    },
    ValueEstimate {
        name: "penalised model return",
        value: |p| p.model.map(|m| m.value),
        aside_name: "without penalty",
        aside: |p| p.model.map(|m| m.unpenalised),
    },
];

/// A run and its configuration.
type NamedRun = (PathBuf, RunManifest);

/// Ranks the policies of runs that were trained on the same transitions; `None` when asked to stop on the way.
///
/// # Errors
/// No runs, runs of different data, or runs without a policy.
pub fn rank(runtime: &Runtime, config: &RankConfig) -> Result<Option<Ranking>> {
    rank_on(runtime, config, None)
}

/// [`rank`] with the transitions in memory, for runs whose data no file holds.
///
/// # Errors
/// As [`rank`], and other transitions than the runs learnt from.
pub fn rank_on(runtime: &Runtime, config: &RankConfig, rows: Option<&Dataset>) -> Result<Option<Ranking>> {
    if !(0.0..1.0).contains(&config.gamma) {
        bail!("--gamma: wanted a number from 0 to below 1, found {}", config.gamma);
    }
    let mut runs: Vec<NamedRun> = Vec::new();
    for path in &config.runs {
        for dir in find_runs(path, &[CONFIG])? {
            let manifest = RunManifest::read(&dir)?;
            runs.push((dir, manifest));
        }
    }
    let (first, manifest) = runs.first().ok_or_else(|| {
        anyhow!("no run with a {CONFIG} was found; give directories made by `offing train`")
    })?;
    if let Some((other, _)) = runs.iter().find(|(_, m)| m.data != manifest.data) {
        bail!(
            "{} and {}: were trained on different transitions, so their policies cannot be ranked by them; rank runs of \
             one dataset",
            first.display(),
            other.display()
        );
    }
    let data = match rows {
        None => resume(first, &mut runtime.hooks())?.data,
        Some(rows) => {
            let configured = manifest.configure(&Registry::default())?;
            let train = configured.algorithm.blocks().train;
            let data = runtime.hooks().adapt(rows.clone(), manifest.rows, train)?;
            if data.digest() != manifest.data {
                bail!(
                    "{}: was trained on other transitions than these; give back the old data",
                    first.display()
                );
            }
            data
        }
    };
    let mut policies = Vec::new();
    for run in &runs {
        policies.extend(policies_of(runtime, run, &data)?);
    }
    if policies.is_empty() {
        bail!("none of the runs has a policy yet; wait until one is finished");
    }
    let temporary = tempfile::tempdir()?;
    let mut nowhere = RunDir::open_or_create(temporary.path(), "")?;
    let (physics, seed) = (manifest.physics.parse()?, config.seed);
    (runtime.before_training)();
    let ranked = runtime.hooks().in_session(&data, physics, seed, &mut nowhere, |session| {
        estimate(config, session, &runs, &mut policies)
    });
    match ranked {
        Err(Error::Stopped) => Ok(None),
        ranked => ranked.map(|()| Some(Ranking { config: config.clone(), policies })).map_err(Into::into),
    }
}

/// The policies of one run.
fn policies_of(runtime: &Runtime, (dir, manifest): &NamedRun, data: &Dataset) -> Result<Vec<RankedPolicy>> {
    let mut found = Vec::new();
    let records = read_metrics(&dir.join(METRICS))?;
    let evaluations = records.iter().filter(|r| r.get("return").is_some_and(|v| v.is_number())).count();
    let train = manifest.configure(&Registry::default())?;
    let episodes = evaluations * train.algorithm.blocks().train.episodes;
    for (which, file) in POLICIES {
        let path = dir.join(file);
        if !path.exists() {
            if which == PICKED {
                continue;
            }
            // Without a simulator no policy is ever picked on the way.
            let never = which == BEST_POLICY && runtime.mujoco.task_of(&data.name).is_none();
            let yet = if never { "" } else { " yet" };
            runtime.say(&format!("{}: has no {which}{yet}; the others are ranked", dir.display()));
            continue;
        }
        let mut policy = load_actor(&path)?;
        let (widths, wanted) =
            ((policy.obs_dim(), policy.act_dim()), (data.rows.obs_dim(), data.rows.act_dim()));
        if widths != wanted {
            bail!(
                "{}: wanted a policy of widths {wanted:?}, found {widths:?}; check the run",
                path.display()
            );
        }
        if let Some(units) = &data.units {
            policy = units.policy_inward(&policy);
        }
        found.push(RankedPolicy {
            run: dir.clone(),
            algorithm: manifest.algorithm.clone(),
            seed: manifest.seed,
            which,
            policy,
            chosen_by: if which == BEST_POLICY { episodes } else { 0 },
            fitted: None,
            model: None,
            ends_early: false,
            online: None,
        });
    }
    Ok(found)
}

/// Estimates every policy both ways, and in the simulator where that was allowed.
fn estimate(
    config: &RankConfig,
    session: &mut Session<'_>,
    runs: &[NamedRun],
    policies: &mut [RankedPolicy],
) -> offing::Result<()> {
    let (pool, data) = (session.pool, session.data);
    model_returns(config, session, runs, policies)?;
    let cfg = FittedQConfig { steps: config.steps, gamma: config.gamma, ..FittedQConfig::default() };
    let total = config.steps * policies.len() as u64;
    for (i, ranked) in policies.iter_mut().enumerate() {
        let before = i as u64 * config.steps;
        let mut on_step = |step: u64| {
            session.report_progress(&Status { step: before + step, steps: total, ..Status::default() })
        };
        ranked.fitted = Some(fitted_q(&cfg, data, &ranked.policy, pool, config.seed, &mut on_step)?);
    }
    if config.online > 0 {
        let evaluator = session.evaluator.ok_or_else(|| {
            Error::Invalid("--online: this dataset has no simulator; rank without it".into())
        })?;
        for ranked in policies {
            let found = evaluate(evaluator.envs, &Deterministic(&ranked.policy), config.online, config.seed)?;
            ranked.online = Some(found.mean());
        }
    }
    Ok(())
}

/// Penalised returns of all policies in one model, that of the first run that has one: a yardstick of its own for each
/// policy would not compare, and a policy has learnt what its own model gets wrong. The penalty is Eq. 6's with SUMO and λ = 1.
fn model_returns(
    config: &RankConfig,
    session: &mut Session<'_>,
    runs: &[NamedRun],
    policies: &mut [RankedPolicy],
) -> offing::Result<()> {
    let model_of = |manifest: &RunManifest| {
        let configured = manifest.configure(&Registry::default()).ok()?;
        let model = configured.algorithm.blocks().model?.clone();
        Some(ModelConfig { seed: Some(model.seed.unwrap_or(manifest.seed)), ..model })
    };
    let found = runs.iter().find_map(|(dir, m)| Some((dir, model_of(m)?)));
    let ending_pays = session.data.ending_pays().is_some();
    let model_cfg = match found {
        Some((dir, cfg)) => {
            session.note(format!("all policies act in the model of {}", dir.display()));
            cfg
        }
        None if ending_pays => {
            session.note(
                "none of the runs has a model, and failing pays here: one is fitted to tell who ends early",
            );
            let ensemble = EnsembleConfig { max_updates: Some(MODEL_UPDATES), ..EnsembleConfig::default() };
            ModelConfig { ensemble, seed: Some(config.seed), ..ModelConfig::default() }
        }
        None => {
            session.note("none of the runs has a model: no model return");
            return Ok(());
        }
    };
    let model = session.fit_model(&model_cfg)?;
    let (data, pool) = (session.data, session.pool);
    let context = BuildContext {
        model: Some(&model),
        pool: pool.clone(),
        seed: config.seed,
        home: Some(session.home),
        ..BuildContext::of_data(&data.rows)
    };
    let sumo: Box<dyn Uncertainty> = UncertaintyConfig::from_id("sumo")?.build(&context)?;
    let cfg =
        ModelReturnConfig { length: config.length, gamma: config.gamma, ..ModelReturnConfig::default() };
    let rule =
        Pessimism::Penalize { lambda: cfg.lambda, normaliser: Normaliser::Dataset, reward_range: None };
    let rule = rule.calibrate(sumo.max_loo_score(), &data.rows.rew)?;
    let least = data.rows.rew.iter().copied().fold(f32::INFINITY, f32::min);
    let worst = f64::from(least - cfg.lambda * rule.reward_range());
    let first = first_states(data);
    let rng = &mut Rng::stream(config.seed, "rank/starts", 0);
    let picks: Vec<usize> = (0..cfg.starts).map(|_| rng.below(first.nrows())).collect();
    let starts = first.select(Axis(0), &picks);
    let follow = |policy: &Actor| {
        let mut rollout = ModelRollout {
            model: &model,
            estimator: Some(&*sumo),
            rule: rule.clone(),
            pool,
            one_member: false,
        };
        // The same draws for all: what differs is the policy.
        let rng = &mut Rng::stream(config.seed, "rank/model", 0);
        model_return(&cfg, &mut rollout, &without_noise(policy)?, starts.clone(), worst, rng)
    };
    let clone = match ending_pays {
        true => Some(follow(&clone_behaviour(data, pool, config.seed)?)?),
        false => None,
    };
    for ranked in policies {
        let found = follow(&ranked.policy)?;
        ranked.ends_early = clone.is_some_and(|clone| ends_early(&found, &clone));
        ranked.model = Some(found);
    }
    Ok(())
}
