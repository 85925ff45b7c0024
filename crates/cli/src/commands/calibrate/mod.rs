//! `offing calibrate`: which estimator tells where the model is wrong, on any dataset (Tables 2, 3, 5 and 9).

mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use ndarray::Axis;
use offing::calibration::{Study, StudyConfig, held_out, imagine, study};
use offing::data::Dataset;
use offing::dynamics::{Ensemble, EnsembleConfig, Fit, Oracle, TerminationConfig};
use offing::env::Pool;
use offing::nn::{Team, Tensors};
use offing::sac::Actor;
use offing::uncertainty::{Source, Uncertainty, UncertaintyConfig, build_all};
use offing::{Batch, Rng};
use offing_mujoco::{Physics, make};
use serde::{Deserialize, Serialize};

use super::data::{Reading, load, write_json};
use super::dynamics::{fit_shown, task_of};
use crate::config::Layers;
use crate::context::Context;
use crate::term;

/// Share of the episodes held out when there is no simulator.
const HELD: usize = 10;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A path, a D4RL or Minari id, or the name of a made set.
    dataset: String,
    #[command(flatten)]
    reading: Reading,
    /// Estimators by id, or as JSON settings such as {"kind":"sumo","k":5} [default: every one that needs no critics].
    #[arg(long, value_delimiter = ' ', num_args = 1..)]
    estimators: Vec<String>,
    /// The policy that acts in the model (safetensors). Not needed for data without a simulator.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Models and rollouts to repeat the study with.
    #[arg(long, default_value_t = 5, value_parser = super::bench::positive)]
    seeds: usize,
    /// States of the dataset to start from.
    #[arg(long, default_value_t = 100, value_parser = super::bench::positive)]
    starts: usize,
    /// Steps of each rollout.
    #[arg(long, default_value_t = 100, value_parser = super::bench::positive)]
    steps: usize,
    /// Learn and search among so many rows only, drawn at random.
    #[arg(long)]
    rows: Option<usize>,
    /// Change a setting, such as model.max_epochs=10; may be given again.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Which physics to replay in (default: those the dataset says it was made with, else D4RL's).
    #[arg(long)]
    physics: Option<Physics>,
    /// Also write everything as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write tables and plots as one HTML page.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// What `--set` can change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    model: EnsembleConfig,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let mut layers = Layers::of::<Config>()?;
    args.sets.iter().try_for_each(|set| layers.set(set))?;
    let config: Config = layers.read()?;
    let estimators = estimators(&args.estimators)?;
    let (mut data, origin) = load(context, &args.dataset, args.reading.options()?)?;
    if let Some(rows) = args.rows.filter(|&n| n < data.rows.len()) {
        first_episodes(&mut data, rows);
    }
    context.say(&format!("{} ({origin}): {} rows", data.name, term::count(data.rows.len())));
    let task = task_of(&data.name);
    let mut studies = Vec::new();
    for seed in 0..args.seeds as u64 {
        context.say(&format!("seed {seed}"));
        studies.push(match &task {
            Some(task) => with_simulator(context, args, &config, &estimators, &data, task, seed)?,
            None => without_simulator(context, &config, &estimators, &data, seed)?,
        });
    }
    report::print(&studies);
    if let Some(path) = &args.json {
        let value = serde_json::json!({
            "dataset": data.name, "origin": origin, "rows": data.rows.len(), "starts": args.starts, "steps": args.steps,
            "error": if task.is_some() { "against the simulator" } else { "on held-out episodes" },
            "config": layers.table(), "estimators": estimators, "studies": studies,
        });
        write_json(path, &value)?;
    }
    if let Some(path) = &args.report {
        report::page(&data.name, &studies).write(path)?;
        out!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Estimators by id or by settings; all that are built once when none is named.
fn estimators(named: &[String]) -> Result<Vec<UncertaintyConfig>> {
    if named.is_empty() {
        return Ok(UncertaintyConfig::all().into_iter().filter(UncertaintyConfig::is_built_once).collect());
    }
    let parse = |text: &String| {
        if text.starts_with('{') {
            return serde_json::from_str(text).with_context(|| format!("--estimators {text}"));
        }
        Ok(UncertaintyConfig::from_id(text)?)
    };
    named.iter().map(parse).collect()
}

/// Imagined rollouts, replayed in the simulator.
fn with_simulator(
    context: &Context,
    args: &Args,
    config: &Config,
    estimators: &[UncertaintyConfig],
    data: &Dataset,
    task: &str,
    seed: u64,
) -> Result<Study> {
    let Some(path) = &args.policy else {
        bail!("calibrate: wanted --policy FILE, the policy that acts in the model of {task}, found none");
    };
    let policy = read_policy(path, data)?;
    let team = Team::new(rayon::current_num_threads());
    let termination = TerminationConfig::of_task(task, None)?;
    let fit = Fit { rows: &data.rows, config: &config.model, termination: &termination, seed };
    let model = fit_shown(context, fit, &team)?.model;
    let said =
        data.meta.get("physics").and_then(|p| p.split_whitespace().next()).and_then(|p| p.parse().ok());
    let physics: Physics = args.physics.or(said).unwrap_or_default();
    let engine = context.engine()?;
    engine.prepare(task, &mut |line| context.say(line))?;
    let make_env = || make(engine, task, physics);
    let oracle = Oracle::new(Pool::new(&make_env))?;
    let mut rng = Rng::stream(seed, "calibrate", 0);
    let rows: Vec<usize> = (0..args.starts).map(|_| rng.below(data.rows.len())).collect();
    let start = data.rows.obs.select(Axis(0), &rows);
    context.say(&format!("{} rollouts of {} steps, replayed in {task} ({physics})", args.starts, args.steps));
    let trial = imagine(&model, &policy, start, args.steps, &team, &mut rng)?.replay(&oracle)?;
    let built = build(context, estimators, &data.rows, &model, &team, seed)?;
    let cfg = StudyConfig { clip: clipped_columns(task), ..StudyConfig::default() };
    Ok(study(&trial, &named(estimators, &built), &cfg, &mut rng)?)
}

/// The model's steps from held-out rows, against the logged next states.
fn without_simulator(
    context: &Context,
    config: &Config,
    estimators: &[UncertaintyConfig],
    data: &Dataset,
    seed: u64,
) -> Result<Study> {
    if data.episodes.len() < 2 {
        bail!("{}: wanted at least two episodes, to hold some out, found {}", data.name, data.episodes.len());
    }
    context.say("no simulator is known for these data: errors are measured on held-out episodes");
    let mut rng = Rng::stream(seed, "calibrate", 0);
    let mut order: Vec<usize> = (0..data.episodes.len()).collect();
    (0..order.len() - 1).for_each(|i| {
        let other = i + rng.below(order.len() - i);
        order.swap(i, other);
    });
    let held_count = data.episodes.len().div_ceil(HELD);
    let rows_of =
        |chosen: &[usize]| -> Vec<usize> { chosen.iter().flat_map(|&e| data.episodes[e].clone()).collect() };
    let (held, kept) = order.split_at(held_count);
    let (held_rows, kept_rows) = (data.rows.select(&rows_of(held)), data.rows.select(&rows_of(kept)));
    let mut episodes = Vec::new();
    for &e in held {
        let start = episodes.last().map_or(0, |last: &std::ops::Range<usize>| last.end);
        episodes.push(start..start + data.episodes[e].len());
    }
    let team = Team::new(rayon::current_num_threads());
    let termination = TerminationConfig::Never {};
    let fit = Fit { rows: &kept_rows, config: &config.model, termination: &termination, seed };
    let model = fit_shown(context, fit, &team)?.model;
    let trial = held_out(&model, &held_rows, &episodes, &mut rng)?;
    let built = build(context, estimators, &kept_rows, &model, &team, seed)?;
    Ok(study(&trial, &named(estimators, &built), &StudyConfig::default(), &mut rng)?)
}

fn build(
    context: &Context,
    estimators: &[UncertaintyConfig],
    rows: &Batch,
    model: &Ensemble,
    team: &Team,
    seed: u64,
) -> Result<Vec<Box<dyn Uncertainty>>> {
    context.say("building the estimators");
    let source =
        Source { data: rows, model: Some(model), team: team.clone(), seed, home: Some(context.home()) };
    Ok(build_all(estimators, &source)?)
}

/// Names for tables: the id, with the settings that are not the defaults.
fn named<'a>(
    configs: &[UncertaintyConfig],
    built: &'a [Box<dyn Uncertainty>],
) -> Vec<(String, &'a dyn Uncertainty)> {
    configs.iter().zip(built).map(|(c, b)| (super::bench::estimator_label(c), &**b)).collect()
}

fn read_policy(path: &Path, data: &Dataset) -> Result<Actor> {
    let bytes = std::fs::read(path).with_context(|| format!("{}: cannot read", path.display()))?;
    let policy =
        Actor::from_policy(&Tensors::from_bytes(&bytes)?).with_context(|| path.display().to_string())?;
    let (wanted, found) = ((data.rows.obs_dim(), data.rows.act_dim()), (policy.obs_dim(), policy.act_dim()));
    if wanted != found {
        bail!(
            "{}: wanted a policy for {} observations and {} actions, found one for {} and {}",
            path.display(),
            wanted.0,
            wanted.1,
            found.0,
            found.1
        );
    }
    Ok(policy)
}

/// Velocities that the simulator clips when it observes.
fn clipped_columns(task: &str) -> Option<(std::ops::Range<usize>, f32)> {
    match task {
        "hopper" => Some((5..11, 10.0)),
        "walker2d" => Some((8..17, 10.0)),
        _ => None,
    }
}

/// Keeps whole episodes from a random order until about `rows` rows are kept, in their old order.
fn first_episodes(data: &mut Dataset, rows: usize) {
    let mut rng = Rng::stream(0, "rows", 0);
    let mut order: Vec<usize> = (0..data.episodes.len()).collect();
    (0..order.len().saturating_sub(1)).for_each(|i| {
        let other = i + rng.below(order.len() - i);
        order.swap(i, other);
    });
    let mut kept = 0;
    let mut chosen: Vec<usize> = order
        .into_iter()
        .take_while(|&e| {
            let going_on = kept < rows;
            kept += data.episodes[e].len();
            going_on
        })
        .collect();
    chosen.sort_unstable();
    let list: Vec<usize> = chosen.iter().flat_map(|&e| data.episodes[e].clone()).collect();
    let mut start = 0;
    data.episodes = chosen
        .iter()
        .map(|&e| {
            let range = start..start + data.episodes[e].len();
            start = range.end;
            range
        })
        .collect();
    data.rows = data.rows.select(&list);
    data.timeout = data.timeout.select(Axis(0), &list);
    data.sim = data.sim.as_ref().map(|sim| sim.select(&list));
}
