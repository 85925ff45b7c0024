//! `offing train`: learns a policy from a dataset, in a run directory that can always be resumed.

use std::path::{Path, PathBuf};

use anyhow::Result;
use offing::algorithms::{EstimatorUse, Registry, Scores};
use offing::config::read_table;
use offing::data::Dataset;
use offing::env::Physics;
use offing::train::{
    DataSource, Hooks, PreparedRun, RunConfig, Trained, extend, mean_return, prepare, reference_of, resume,
};
use offing_experiments::arguments::ColumnsFile;
use offing_experiments::configure::plans;
use offing_experiments::estimate::estimate;
use offing_experiments::format::{count, duration, number, or_dash};
use offing_experiments::report::write_run_page;
use offing_experiments::run_record::{BEST_POLICY, LAST_POLICY, PICKED};
use offing_experiments::{Runtime, Table};

use crate::args::positive;
use crate::exit::ExitCode;
use crate::{progress, signals, term};

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    #[arg(required_unless_present_any = ["resume", "config"], help = algorithms())]
    pub(crate) algorithm: Option<String>,
    /// A path, a D4RL or Minari id, or the name of a generated dataset. `offing train DATASET` trains landfall.
    pub(crate) dataset: Option<String>,
    /// Seed of everything random; the same seed gives the same bytes [default: the --config's, or 0].
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Hyperparameters by another source, where they differ from the default: `kit` (mopo), `paper` (amorel), `mjrl`
    /// (morel).
    #[arg(long)]
    pub(crate) preset: Option<String>,
    /// `quick`: 200,000 rows, small networks, 50,000 steps, about 15 minutes on one core (mobile and combo an hour).
    /// `standard`: a million rows, well under an hour.
    #[arg(long)]
    pub(crate) profile: Option<String>,
    /// A TOML file over the preset; the config.toml of a run gives that run again.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Override one value, such as --set pessimism.lambda=5 (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Gradient steps.
    #[arg(long)]
    pub(crate) steps: Option<u64>,
    /// Learn from about this many rows: whole episodes, drawn at random.
    #[arg(long, value_parser = positive)]
    pub(crate) rows: Option<usize>,
    #[command(flatten)]
    pub(crate) columns: ColumnsFile,
    /// Which physics to evaluate in [default: the --config's, or d4rl-v2].
    #[arg(long)]
    pub(crate) physics: Option<Physics>,
    /// The run directory [default: runs/<ALGORITHM>/<DATASET>/s<SEED>-<hash of the configuration>].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Resume the run in this directory. With --steps, go on to so many, also after its end.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["algorithm", "dataset", "config", "set", "rows", "columns", "preset", "profile", "dir", "seed", "physics"])]
    pub(crate) resume: Option<PathBuf>,
    /// On stdout, every line of metrics.jsonl as it is written, and at the end one object with the result; no progress bar.
    #[arg(long)]
    pub(crate) json: bool,
    /// Only show the resolved settings and what the run would cost.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The help of the algorithm's name.
fn algorithms() -> String {
    let registry = Registry::default();
    let names: Vec<&str> = registry.specs().iter().map(|spec| spec.name).collect();
    let with: Vec<&str> =
        registry.specs().iter().filter(|s| s.estimators != EstimatorUse::None).map(|s| s.name).collect();
    format!(
        "The algorithm: {} [default: {}]; {} take any estimator (mopo+sumo)",
        names.join(", "),
        Registry::DEFAULT,
        with.join(", ")
    )
}

/// Shorter trainings start without an estimate: measuring would take longer than training.
const LONG: u64 = 2000;

impl Args {
    /// The algorithm and the dataset. A single name that no algorithm has is a dataset's.
    fn names(&self) -> (Option<&str>, Option<&str>) {
        match (self.algorithm.as_deref(), self.dataset.as_deref()) {
            (Some(one), None) if self.config.is_none() && Registry::default().parse(one).is_err() => {
                (None, Some(one))
            }
            names => names,
        }
    }

    /// The run that was asked for.
    pub(crate) fn run_config(&self) -> Result<RunConfig> {
        let steps = self.steps.map(|steps| format!("train.steps={steps}"));
        let (algorithm, dataset) = self.names();
        Ok(RunConfig {
            algorithm: algorithm.map(str::to_string),
            data: DataSource::Named(dataset.unwrap_or_default().to_string()),
            seed: self.seed,
            preset: self.preset.clone(),
            profile: self.profile.clone(),
            base: None,
            settings_file: self.config.as_deref().map(read_table).transpose()?,
            overrides: self.set.iter().cloned().chain(steps).chain(self.columns.setting()?).collect(),
            rows: self.rows,
            physics: self.physics,
            dir: self.dir.clone(),
            base_dir: "runs".into(),
        })
    }
}

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    let mut hooks = runtime.hooks_with(progress::view(runtime.quiet, args.json));
    let prepared = match &args.resume {
        Some(dir) => match args.steps {
            None => resume(dir, &mut hooks)?,
            Some(steps) => extend(dir, steps, &mut hooks)?,
        },
        None => prepare(&args.run_config()?, &mut hooks)?,
    };
    announce(runtime, &prepared.data);
    if args.dry_run {
        out!("{}", prepared.manifest.to_toml()?.trim_end());
        out!("{}", estimate(runtime, &prepared)?.unwrap_or("the run is finished".into()));
        return Ok(ExitCode::SUCCESS);
    }
    let long = prepared.steps_left() >= LONG || plans(prepared.configured.algorithm.as_ref());
    if !runtime.quiet && !args.json && long {
        match estimate(runtime, &prepared) {
            Ok(words) => words.iter().for_each(|words| runtime.say(words)),
            // Settings were validated before: what fails here is the probe, which is smaller, and no reason not to start.
            Err(error) => runtime.say(&format!("no estimate of the cost: {error:#}")),
        }
    }
    let physics = prepared.physics()?;
    let trained = learn(prepared, hooks)?;
    if !trained.finished {
        runtime.say(&format!("stopped; resume with: offing train --resume {}", trained.dir.display()));
        return Ok(ExitCode::STOPPED);
    }
    match args.json {
        true => out!("{}", result(&trained)),
        false => print(&trained, physics),
    }
    Ok(ExitCode::SUCCESS)
}

/// Trains, until asked to stop, and writes the page of a finished run.
pub(crate) fn learn(prepared: PreparedRun, mut hooks: Hooks<'_>) -> Result<Trained> {
    signals::listen();
    let trained = prepared.run(&mut hooks)?;
    if trained.finished {
        write_run_page(&trained.dir)?;
    }
    Ok(trained)
}

/// Says what will be learnt from.
pub(crate) fn announce(runtime: &Runtime, data: &Dataset) {
    runtime.say(&format!("learning from {} transitions of {}", count(data.rows.len()), data.name));
    // No policy of ours can repeat such actions; an audit says more.
    let beyond = |act: &ndarray::ArrayView1<'_, f32>| act.iter().any(|a| a.abs() > 1.0 + 1e-6);
    let rows = data.rows.act.rows().into_iter().filter(beyond).count();
    if rows > 0 {
        runtime.say(&format!(
            "{} rows have actions outside [-1, 1], where the policy cannot act: scale them with --set train.units=standard",
            count(rows)
        ));
    }
}

/// What a finished run came to, for other programs.
fn result(trained: &Trained) -> serde_json::Value {
    let Scores { last, best, picked } = trained.scores;
    let data = mean_return(&trained.data);
    let seconds = trained.timer.elapsed();
    serde_json::json!({ "dir": trained.dir, "last": last, "best": best, "picked": picked, "data": data, "seconds": seconds })
}

fn print(trained: &Trained, physics: Physics) {
    let reference = reference_of(&trained.data, physics);
    let score = |x: f64| or_dash(reference, |r| format!("{:.1}", r.normalise(x)));
    let Scores { last, best, picked } = trained.scores;
    let mut rows = vec![(LAST_POLICY, last), (PICKED, picked), (BEST_POLICY, best)];
    rows.push(("dataset's mean return", mean_return(&trained.data)));
    // What nobody measured has no row.
    let rows: Vec<_> = rows.into_iter().filter_map(|(name, x)| Some((name, x?))).collect();
    if !rows.is_empty() {
        let scored = reference.is_some();
        let cells = rows.iter().map(|&(name, x)| {
            [name.to_string(), number(x)].into_iter().chain(scored.then(|| score(x))).collect::<Vec<_>>()
        });
        let header = ["return", "normalised score"].into_iter().take(1 + usize::from(scored));
        term::print_table(&Table::new(std::iter::once(&trained.data.name[..]).chain(header), cells));
    }
    let scored = last.is_some();
    if !scored {
        out!("no simulator of {} here, so nobody scored the policy", trained.data.name);
    }
    let mut phases = trained.timer.phases();
    phases.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts: Vec<String> = phases.iter().map(|(name, s)| format!("{name} {}", duration(*s))).collect();
    out!("{} in all: {}", duration(trained.timer.elapsed()), parts.join(", "));
    out!("report: {}", trained.dir.join("report.html").display());
    out!("{}", trained.dir.display());
    term::print_next(&next_steps(&trained.dir, scored));
}

/// What to do with a finished run.
fn next_steps(dir: &Path, scored: bool) -> Vec<(String, &'static str)> {
    let run = dir.display();
    let siblings = dir.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(dir).display();
    let mut next = Vec::new();
    if scored {
        next.push((format!("offing eval {run} --episodes 100"), "a score with a smaller error"));
        next.push((format!("offing replay {run}"), "watch the policy, and what the model imagined"));
    }
    next.push((format!("offing rank {siblings}"), "which policy to take, from the data alone"));
    next.push((format!("offing report {siblings}"), "all these runs on one page"));
    next.push((format!("offing act {run} OBSERVATIONS -o actions.csv"), "its actions for your observations"));
    next.push((format!("offing export {run} policy.onnx"), "for other runtimes"));
    next
}
