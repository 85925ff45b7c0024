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

const PRESET: &str = include_str!("../../../../presets/quickstart.toml");

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

    runtime.say("2/4 learning with SUMO's penalty: a dynamics model, then MOPO+SUMO");
    let Some(sumo) = learn(runtime, args, &path, "mopo+sumo", &[])? else { return Ok(ExitCode::STOPPED) };
    runtime.say("3/4 learning without a penalty, to see what it is worth");
    let trusting = ["pessimism={kind=\"ignore\"}".to_string()];
    let Some(mopo) = learn(runtime, args, &path, "mopo-without-penalty", &trusting)? else {
        return Ok(ExitCode::STOPPED);
    };

    runtime.say(&format!("4/4 scoring both in the simulator, {} episodes each", args.episodes));
    let envs = runtime.envs(&recipe.task, Physics::default())?;
    let score = |dir: &Path| -> Result<Evaluation> {
        let policy = TanhGaussian::load(&dir.join("policy.safetensors"))?;
        Ok(evaluate(&envs, &Deterministic(&policy), args.episodes, args.seed)?)
    };
    print_scores(&recipe.task, mean_return(&data), &score(&sumo)?, &score(&mopo)?);
    let page = args.dir.join("report.html");
    RunReport::of(&[&sumo, &mopo])?.document().write_html(&page)?;
    out!("policy: {}", sumo.join("policy.safetensors").display());
    out!("report: {}", page.display());
    Ok(ExitCode::SUCCESS)
}

/// Trains MOPO+SUMO with `overrides` and returns its directory; `None` when it was stopped.
fn learn(
    runtime: &Runtime,
    args: &Args,
    data: &Path,
    name: &str,
    overrides: &[String],
) -> Result<Option<PathBuf>> {
    let steps = args.steps.map(|steps| format!("train.steps={steps}"));
    let config = RunConfig {
        seed: Some(args.seed),
        base: Some(read_text(PRESET, "presets/quickstart.toml")?),
        overrides: overrides.iter().cloned().chain(steps).collect(),
        dir: Some(args.dir.join(name)),
        ..RunConfig::new("mopo+sumo", data.display().to_string())
    };
    let mut hooks = runtime.hooks();
    let prepared = prepare(&config, &mut hooks)?;
    train::announce(runtime, &prepared.data);
    let trained = train::learn(prepared, hooks)?;
    Ok(trained.finished.then_some(trained.dir))
}

fn print_scores(task: &str, behaviour: Option<f64>, sumo: &Evaluation, mopo: &Evaluation) {
    let normalised = |x: f64| reference(task).map_or("-".into(), |r| format!("{:.1}", r.normalise(x)));
    let learnt =
        |name: &str, e: &Evaluation| vec![name.to_string(), mean_with_error(e), normalised(e.mean())];
    let mut rows = vec![learnt("MOPO+SUMO", sumo), learnt("MOPO without a penalty", mopo)];
    if let Some(mean) = behaviour {
        rows.push(vec!["the policies that made the data".into(), number(mean), normalised(mean)]);
    }
    term::print_table(&Table::new([task, "mean return ± s.e.", "normalised score"], rows));
}
