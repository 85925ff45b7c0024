//! `offing data collect`: trains a behaviour policy online and keeps snapshots to generate datasets with.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use offing::collect::{Chosen, CollectConfig, Progress, collect, publish};
use offing::env::Physics;
use offing::home::write_json;
use offing::nn::ThreadPool;
use offing::run::{CONFIG, RunDir};
use offing::tasks::reference_under;
use offing_experiments::format::{count, number};
use offing_experiments::{Runtime, Table};
use serde::{Deserialize, Serialize};

use crate::exit::ExitCode;
use crate::live::{LiveLine, Unit, sparkline, sparkline_length};
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
    /// The run directory; the same command resumes where it stopped [default: runs/collect/<TASK>/s<SEED>].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where to put the policies chosen for datasets [default: policies/ inside the run directory].
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
}

/// A collecting run's config.toml; reading it back gives the same run.
#[derive(Serialize, Deserialize)]
struct CollectManifest {
    task: String,
    physics: String,
    collect: CollectConfig,
}

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    let cfg = CollectConfig { steps: args.steps, seed: args.seed, ..CollectConfig::default() };
    let dir = args.dir.clone().unwrap_or_else(|| format!("runs/collect/{}/s{}", args.task, args.seed).into());
    let envs = runtime.envs(&args.task, args.physics)?;
    let reference = reference_under(&args.task, args.physics);
    let (task, physics) = (args.task.clone(), args.physics.to_string());
    let mut run = open(&dir, &CollectManifest { task, physics, collect: cfg.clone() })?;
    signals::listen();
    let line = LiveLine::new("collecting", Unit::Count("steps"), Some(cfg.steps), runtime.quiet);
    let mut scores = Vec::new();
    let pool = ThreadPool::new(rayon::current_num_threads());
    let done = collect(&cfg, &envs, reference, &mut run, &pool, &mut |progress| {
        show(&line, &mut scores, progress);
        runtime.control_flow()
    });
    line.clear();
    run.take_warnings().iter().for_each(|warning| term::step(warning));
    if !done? {
        runtime.say(&format!("stopped; the same command resumes in {}", dir.display()));
        return Ok(ExitCode::STOPPED);
    }
    let Some(reference) = reference else {
        let (task, dir) = (&args.task, dir.display());
        bail!(
            "{task} has no reference returns, so no snapshot can be called medium; all are in {dir}/snapshots"
        );
    };
    let out = args.policies.clone().unwrap_or_else(|| dir.join("policies"));
    let chosen = publish(&dir, &args.task, &envs, reference, &out)?;
    add_to_index(&out, &args.task, &chosen)?;
    let rows = chosen.iter().map(|c| {
        let (score, ret) = (format!("{:.1}", c.normalized), number(c.sampled_return));
        vec![c.file.clone(), c.role.to_string(), count(c.step as usize), ret, score]
    });
    let header = ["policy", "for", "steps", "return (sampled actions)", "normalised score"];
    term::print_table(&Table::new(header, rows));
    out!("{}", out.display());
    Ok(ExitCode::SUCCESS)
}

/// Opens the run directory. An existing run may be made longer, and nothing else.
fn open(dir: &Path, manifest: &CollectManifest) -> Result<RunDir> {
    let text = toml::to_string(manifest)?;
    let before = std::fs::read_to_string(dir.join(CONFIG)).ok();
    let before: Option<CollectManifest> = before.and_then(|t| toml::from_str(&t).ok());
    if let Some(mut before) = before
        && before.collect.steps < manifest.collect.steps
    {
        let mut run = RunDir::open(dir)?;
        before.collect.steps = manifest.collect.steps;
        if toml::to_string(&before)? == text {
            run.reconfigure(&text)?;
            return Ok(run);
        }
    }
    Ok(RunDir::open_or_create(dir, &text)?)
}

fn show(line: &LiveLine, scores: &mut Vec<f64>, progress: &Progress) {
    let latest = progress.last_score.or(progress.last_return);
    // Evaluations are rare and never repeat to the last bit.
    scores.extend(latest.filter(|value| scores.last() != Some(value)));
    let name = if progress.last_score.is_some() { "score" } else { "return" };
    let mut words: Vec<String> = latest
        .iter()
        .map(|value| format!("{name} {} {}", number(*value), sparkline(scores, None, sparkline_length())))
        .collect();
    let l = &progress.losses;
    words.extend(
        [("critic", l.critic), ("Q", l.q), ("α", l.alpha)].map(|(name, x)| format!("{name} {}", number(x))),
    );
    line.set(progress.step, None);
    line.show(words);
}

/// Puts the chosen policies into the set's index, in the place of older ones of the same body.
fn add_to_index(dir: &Path, body: &str, chosen: &[Chosen]) -> Result<()> {
    let path = dir.join("index.json");
    let mut index: Vec<serde_json::Value> = match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)?,
        Err(_) => Vec::new(),
    };
    let body_of = |entry: &serde_json::Value| Some(entry["file"].as_str()?.rsplit_once('-')?.0.to_string());
    index.retain(|entry| body_of(entry).is_none_or(|found| found != body));
    for entry in chosen {
        index.push(serde_json::to_value(entry)?);
    }
    Ok(write_json(&path, &index)?)
}
