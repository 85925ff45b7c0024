//! `offing quickstart`: from nothing to a scored policy with a report, in one command.

use std::path::{Path, PathBuf};

use anyhow::Result;
use offing::config::read_text;
use offing::data::audit::audit;
use offing::data::catalogue::{GeneratedName, Origin};
use offing::data::{self, ReadOptions};
use offing::env::{GenerateOptions, Physics};
use offing::eval::{Evaluation, evaluate};
use offing::policy::{Deterministic, TanhGaussian};
use offing::tasks::{horizon, reference};
use offing::train::{RunConfig, mean_return, prepare};
use offing_experiments::format::number;
use offing_experiments::report::RunReport;
use offing_experiments::{Runtime, Table};

use super::eval::mean_with_error;
use super::train;
use crate::audit::print_audit;
use crate::exit::ExitCode;
use crate::term;

/// Medium-replay: the data hold good and bad policies, so there is something to gain.
const DATASET: &str = "hopper-medium-replay";

const LANDFALL_STEPS: u64 = 6000;
const CLONING_STEPS: u64 = 3000;

const PRESET: &str = include_str!("quickstart.toml");

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Transitions to record.
    #[arg(long, default_value_t = 50_000)]
    rows: usize,
    /// Gradient steps of each of the two trainings.
    #[arg(long)]
    steps: Option<u64>,
    /// Episodes to score each finished policy over.
    #[arg(long, default_value_t = 20)]
    episodes: usize,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where to put the two runs and the report.
    #[arg(long, value_name = "DIR", default_value = "runs/quickstart")]
    dir: PathBuf,
}

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    let recipe = GeneratedName::parse(DATASET)?;
    let engine = runtime.mujoco.engine(&mut |line| runtime.say(line))?;
    runtime.say(&format!("MuJoCo {} from {}", engine.version(), engine.library().display()));

    runtime.say("1/4 recording a dataset with the built-in policies");
    let options = GenerateOptions { rows: args.rows, seed: args.seed, ..GenerateOptions::default() };
    let path = runtime.hooks().resolver(|resolver| resolver.generate(DATASET, &options))?;
    let data = data::read(&path, &ReadOptions { name: Some(recipe.name.clone()), ..ReadOptions::default() })?;
    print_audit(&audit(&data, horizon(&data.name)), Origin::Generated);

    runtime.say("2/4 learning with Landfall: a dynamics model, then a policy through it");
    let Some(landfall) = learn(runtime, args, &path, "landfall", Some(PRESET))? else {
        return Ok(ExitCode::STOPPED);
    };
    runtime.say("3/4 cloning the data, to see what that is worth");
    let Some(clone) = learn(runtime, args, &path, "bc", None)? else { return Ok(ExitCode::STOPPED) };

    runtime.say(&format!("4/4 scoring both in the simulator, {} episodes each", args.episodes));
    let envs = runtime.envs(&recipe.task, Physics::default())?;
    let score = |dir: &Path| -> Result<Evaluation> {
        let policy = TanhGaussian::load(&dir.join("policy.safetensors"))?;
        Ok(evaluate(&envs, &Deterministic(&policy), args.episodes, args.seed)?)
    };
    print_scores(&recipe.task, mean_return(&data), &score(&landfall)?, &score(&clone)?);
    let page = args.dir.join("report.html");
    let mut report = RunReport::of(&[&landfall, &clone])?;
    report.add_replay(runtime);
    report.document().write_html(&page)?;
    out!("policy: {}", landfall.join("policy.safetensors").display());
    out!("report: {}", page.display());
    let run = landfall.display();
    term::print_next(&[
        (format!("offing replay {run}"), "watch the policy, and what the model imagined"),
        ("offing data audit LOG".into(), "is a log of your own fit to learn from?"),
        ("offing train LOG".into(), "learn from it"),
    ]);
    Ok(ExitCode::SUCCESS)
}

/// Trains by `algorithm`, over its own preset or that of the quickstart, and returns the directory; `None` when it was
/// stopped.
fn learn(
    runtime: &Runtime,
    args: &Args,
    data: &Path,
    algorithm: &str,
    preset: Option<&str>,
) -> Result<Option<PathBuf>> {
    let steps = args.steps.unwrap_or(if preset.is_some() { LANDFALL_STEPS } else { CLONING_STEPS });
    let config = RunConfig {
        seed: Some(args.seed),
        base: preset.map(|text| read_text(text, "presets/quickstart.toml")).transpose()?,
        overrides: vec![format!("train.steps={steps}"), format!("train.evaluate_every={}", steps.min(1000))],
        dir: Some(args.dir.join(algorithm)),
        ..RunConfig::new(algorithm, data.display().to_string())
    };
    let mut hooks = runtime.hooks();
    let prepared = prepare(&config, &mut hooks)?;
    train::announce(runtime, &prepared.data);
    let trained = train::learn(prepared, hooks)?;
    Ok(trained.finished.then_some(trained.dir))
}

fn print_scores(task: &str, behaviour: Option<f64>, landfall: &Evaluation, clone: &Evaluation) {
    let normalised = |x: f64| reference(task).map_or("-".into(), |r| format!("{:.1}", r.normalise(x)));
    let learnt =
        |name: &str, e: &Evaluation| vec![name.to_string(), mean_with_error(e), normalised(e.mean())];
    let mut rows = vec![learnt("Landfall", landfall), learnt("a clone of the data", clone)];
    if let Some(mean) = behaviour {
        rows.push(vec!["the policies that made the data".into(), number(mean), normalised(mean)]);
    }
    term::print_table(&Table::new([task, "mean return ± s.e.", "normalised score"], rows));
}
