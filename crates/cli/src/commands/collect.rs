//! `offing data collect`: trains a behaviour policy online and keeps the snapshots datasets are made with.

use crate::exit::ExitCode;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use indicatif::ProgressBar;
use offing::collect::{Chosen, CollectConfig, Progress, collect, publish};
use offing::env::EnvPool;
use offing::nn::ThreadPool;
use offing::run::{CONFIG, ControlFlow, RunDir};
use offing::tasks::reference_under;
use offing_mujoco::{Physics, make};
use serde::{Deserialize, Serialize};

use super::data::write_json;
use crate::context::Context;
use crate::{signals, term};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The task, such as `hopper`.
    task: String,
    /// Environment steps, each with one update.
    #[arg(long, default_value_t = CollectConfig::default().steps)]
    steps: u64,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Which physics to simulate.
    #[arg(long, default_value_t)]
    physics: Physics,
    /// The run directory; the same command goes on where it stopped [default: runs/collect/<TASK>/s<SEED>].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where to put the policies chosen for datasets [default: policies/ inside the run directory].
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
}

/// What a collecting run writes down; reading it back gives the same run.
#[derive(Serialize, Deserialize)]
struct Written {
    task: String,
    physics: String,
    collect: CollectConfig,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let cfg = CollectConfig { steps: args.steps, seed: args.seed, ..CollectConfig::default() };
    let dir = args.dir.clone().unwrap_or_else(|| format!("runs/collect/{}/s{}", args.task, args.seed).into());
    let engine = context.engine()?;
    engine.prepare(&args.task, &mut |line| context.say(line))?;
    let make_env = || make(engine, &args.task, args.physics);
    let envs = EnvPool::new(&make_env);
    let reference = reference_under(&args.task, args.physics);
    let written =
        Written { task: args.task.clone(), physics: args.physics.to_string(), collect: cfg.clone() };
    let mut run = open(&dir, &written)?;
    signals::listen();
    let bar = term::training_bar(cfg.steps, context.quiet);
    let pool = ThreadPool::new(rayon::current_num_threads());
    let done = collect(&cfg, &envs, reference, &mut run, &pool, &mut |progress| {
        show(&bar, progress);
        if signals::asked_to_stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    run.take_warnings().iter().for_each(|note| context.say(note));
    if !done? {
        context.say(&format!("stopped; the same command goes on from {}", dir.display()));
        return Ok(ExitCode::from(130));
    }
    let Some(reference) = reference else {
        bail!(
            "{} has no reference returns, so no snapshot can be called medium; all are in {}/snapshots",
            args.task,
            dir.display()
        );
    };
    let out = args.policies.clone().unwrap_or_else(|| dir.join("policies"));
    let chosen = publish(&dir, &args.task, &envs, reference, &out)?;
    add_to_index(&out, &args.task, &chosen)?;
    let rows = chosen.iter().map(|c| {
        let (score, ret) = (format!("{:.1}", c.normalized), term::number(c.sampled_return));
        vec![c.file.clone(), c.role.to_string(), term::count(c.step as usize), ret, score]
    });
    out!(
        "{}",
        term::table(&["policy", "for", "steps", "return (sampled actions)", "normalised score"], rows)
    );
    out!("{}", out.display());
    Ok(ExitCode::SUCCESS)
}

/// Takes hold of the run directory. A run that is there already may be made longer, and nothing else.
fn open(dir: &Path, written: &Written) -> Result<RunDir> {
    let text = toml::to_string(written)?;
    let before = std::fs::read_to_string(dir.join(CONFIG)).ok();
    let before: Option<Written> = before.and_then(|t| toml::from_str(&t).ok());
    if let Some(mut before) = before
        && before.collect.steps < written.collect.steps
    {
        let mut run = RunDir::open(dir)?;
        before.collect.steps = written.collect.steps;
        if toml::to_string(&before)? == text {
            run.reconfigure(&text)?;
            return Ok(run);
        }
    }
    Ok(RunDir::open_or_create(dir, &text)?)
}

fn show(bar: &ProgressBar, progress: &Progress) {
    bar.set_position(progress.step);
    let score = match (progress.last_return, progress.last_score) {
        (Some(value), Some(score)) => format!("return {} (score {score:.1})", term::number(value)),
        (Some(value), None) => format!("return {}", term::number(value)),
        _ => String::new(),
    };
    let l = &progress.losses;
    let (critic, alpha) = (term::number(l.critic), term::number(l.alpha));
    bar.set_message(format!("{score} · critic {critic} · Q {} · α {alpha}", term::number(l.q)));
}

/// Puts the chosen policies into the set's index, in the place of older ones of the same body.
fn add_to_index(dir: &Path, body: &str, chosen: &[Chosen]) -> Result<()> {
    let path = dir.join("index.json");
    let mut index: Vec<serde_json::Value> = match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)?,
        Err(_) => Vec::new(),
    };
    let mine = |entry: &serde_json::Value| {
        entry
            .get("file")
            .and_then(|f| f.as_str())
            .is_some_and(|f| f.rsplit_once('-').is_some_and(|(b, _)| b == body))
    };
    index.retain(|entry| !mine(entry));
    for entry in chosen {
        index.push(serde_json::to_value(entry)?);
    }
    write_json(&path, &serde_json::Value::Array(index))
}
