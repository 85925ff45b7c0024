//! `offing quickstart`: from nothing to a scored policy with a report, in one command.

use crate::exit::ExitCode;
use std::path::{Path, PathBuf};

use anyhow::Result;
use offing::data::audit::audit;
use offing::data::catalogue::{GeneratedName, Origin};
use offing::data::{self, ReadOptions};
use offing::env::{EnvPool, GenerateOptions};
use offing::eval::{Evaluation, evaluate};
use offing::policy::{Deterministic, TanhGaussian};
use offing::tasks::{horizon, reference};
use offing_mujoco::{Physics, make};

use super::eval::mean_with_error;
use super::train::{self, mean_return};
use super::{data as data_command, report};
use crate::context::Context;
use crate::report::print_audit;
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
    /// Episodes that the finished policies are scored over.
    #[arg(long, default_value_t = 20)]
    episodes: usize,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where the two runs and the report go.
    #[arg(long, value_name = "DIR", default_value = "runs/quickstart")]
    dir: PathBuf,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let recipe = GeneratedName::parse(DATASET)?;
    let engine = context.engine()?;
    context.say(&format!("MuJoCo {} from {}", engine.version(), engine.library().display()));

    context.say("1/4 recording a dataset with the built-in policies");
    let options = GenerateOptions { rows: args.rows, seed: args.seed, ..GenerateOptions::default() };
    let path = data_command::make_shown(context, &recipe, &options)?;
    let data = data::read(&path, &ReadOptions { name: Some(recipe.name.clone()), ..ReadOptions::default() })?;
    print_audit(&audit(&data, horizon(&data.name)), Origin::Generated);

    context.say("2/4 learning with SUMO's penalty: a dynamics model, then MOPO+SUMO");
    let Some(sumo) = learn(context, args, &path, "mopo+sumo", &[])? else { return Ok(ExitCode::from(130)) };
    context.say("3/4 learning without a penalty, to see what it is worth");
    let trusting = ["pessimism={kind=\"ignore\"}".to_string()];
    let Some(mopo) = learn(context, args, &path, "mopo-without-penalty", &trusting)? else {
        return Ok(ExitCode::from(130));
    };

    context.say(&format!("4/4 scoring both in the simulator, {} episodes each", args.episodes));
    let make_env = || make(engine, &recipe.task, Physics::default());
    let envs = EnvPool::new(&make_env);
    let score = |dir: &Path| -> Result<Evaluation> {
        let policy = TanhGaussian::load(&dir.join("policy.safetensors"))?;
        Ok(evaluate(&envs, &Deterministic(&policy), args.episodes, args.seed)?)
    };
    print_scores(&recipe.task, mean_return(&data), &score(&sumo)?, &score(&mopo)?);
    let page = args.dir.join("report.html");
    report::write_page(&[sumo.clone(), mopo], &page)?;
    out!("policy: {}", sumo.join("policy.safetensors").display());
    out!("report: {}", page.display());
    Ok(ExitCode::SUCCESS)
}

/// Trains MOPO+SUMO with `overrides` and says where; `None` when it was stopped.
fn learn(
    context: &Context,
    args: &Args,
    data: &Path,
    name: &str,
    overrides: &[String],
) -> Result<Option<PathBuf>> {
    let plan = train::Args {
        algorithm: Some("mopo+sumo".into()),
        dataset: Some(data.display().to_string()),
        seed: Some(args.seed),
        steps: args.steps,
        set: overrides.to_vec(),
        dir: Some(args.dir.join(name)),
        ..train::Args::default()
    };
    let outcome = train::train(context, &plan, Some(PRESET))?;
    Ok(outcome.done.then_some(outcome.dir))
}

fn print_scores(task: &str, behaviour: Option<f64>, sumo: &Evaluation, mopo: &Evaluation) {
    let normalised = |x: f64| reference(task).map_or("-".into(), |r| format!("{:.1}", r.normalise(x)));
    let learnt =
        |name: &str, e: &Evaluation| vec![name.to_string(), mean_with_error(e), normalised(e.mean())];
    let mut rows = vec![learnt("MOPO+SUMO", sumo), learnt("MOPO without a penalty", mopo)];
    if let Some(mean) = behaviour {
        rows.push(vec!["the policies that made the data".into(), term::number(mean), normalised(mean)]);
    }
    out!("{}", term::table(&[task, "mean return ± s.e.", "normalised score"], rows));
}
