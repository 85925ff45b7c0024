//! `offing dynamics`: how good is the learnt model of the world, next to a straight line and to the
//! simulator.

mod report;
mod table;

use crate::exit::ExitCode;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use offing::Rng;
use offing::data::Dataset;
use offing::dynamics::{
    CachedModel, EnsembleConfig, FitEvent, FitProgress, FitRequest, Linear, OpenLoop, OpenLoopConfig, Oracle,
    TerminationConfig, compare, fit_cached, open_loop,
};
use offing::env::EnvPool;
use offing::nn::ThreadPool;
use offing_mujoco::{Physics, make};
use serde::{Deserialize, Serialize};

use self::report::About;
use super::data::{ReadReport, load, write_json};
use crate::config::Layers;
use crate::context::Context;
use crate::datasets::data_of;
use crate::term;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A path, a D4RL or Minari id, or the name of a made set.
    dataset: String,
    #[command(flatten)]
    reading: ReadReport,
    /// Change a setting, such as model.max_epochs=10; may be given again.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Settings from a TOML file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Learn from so many rows only, drawn at random.
    #[arg(long)]
    rows: Option<usize>,
    /// Seed of the model.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Also write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write tables and plots as one HTML page.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Which physics to compare with (default: those the dataset says it was made with, else D4RL's).
    #[arg(long)]
    physics: Option<Physics>,
    /// Starts from which the model and the simulator are followed.
    #[arg(long, default_value_t = 1000)]
    windows: usize,
}

/// Steps for which model and simulator are followed.
const STEPS: usize = 50;

/// What `--set` and `--config` can change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    model: EnsembleConfig,
    termination: TerminationConfig,
}

impl Default for Config {
    fn default() -> Self {
        // Where an episode ends changes nothing that is measured here.
        Self { model: EnsembleConfig::default(), termination: TerminationConfig::Never {} }
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    fit_and_tell(context, args).map_err(with_own_keys)
}

/// The library names keys as `train` has them; here the ensemble lies directly under `model`, and the rule beside it.
fn with_own_keys(error: anyhow::Error) -> anyhow::Error {
    let text = format!("{error:#}");
    let own = text.replace("model.ensemble.", "model.").replace("model.termination", "termination");
    if own == text { error } else { anyhow!("{own}") }
}

fn fit_and_tell(context: &Context, args: &Args) -> Result<ExitCode> {
    let mut layers = Layers::of::<Config>()?;
    if let Some(path) = &args.config {
        layers.file(path, Some(&args.dataset))?;
    }
    args.sets.iter().try_for_each(|set| layers.set(set))?;
    let config: Config = layers.read()?;
    config.model.validate()?;
    let path = data_of(context, &args.dataset, args.rows)?;
    let (data, origin) = load(context, &path, args.reading.options()?)?;
    let drawn = args.rows.filter(|&n| n < data.rows.len()).map(|n| {
        let mut rows: Vec<usize> = (0..data.rows.len()).collect();
        let mut rng = Rng::stream(args.seed, "rows", 0);
        (0..n).for_each(|i| {
            let other = i + rng.below(rows.len() - i);
            rows.swap(i, other);
        });
        rows.truncate(n);
        rows.sort_unstable();
        data.rows.select(&rows)
    });
    let rows = drawn.as_ref().unwrap_or(&data.rows);
    context.say(&format!("{} ({origin}): {} rows", data.name, term::count(rows.len())));

    let pool = ThreadPool::new(rayon::current_num_threads());
    let fit = FitRequest { rows, config: &config.model, termination: &config.termination, seed: args.seed };
    let fitted = fit_shown(context, fit, &pool)?;
    let (comparison, line) = compare(&fitted.model, rows, &config.model, args.seed);
    table::print(&fitted, &comparison);
    let open = against_simulator(context, args, &data, &fitted, &line)?;
    if let Some(open) = &open {
        table::print_open_loop(open);
    }
    if let Some(path) = &args.json {
        let json = serde_json::json!({
            "dataset": data.name, "origin": origin, "rows": rows.len(), "seed": args.seed, "config": layers.table(),
            "epochs": fitted.epochs, "updates": fitted.updates, "fit": fitted.report,
            "elites": fitted.model.elites(), "holdout": comparison, "open_loop": open,
        });
        write_json(path, &json)?;
    }
    if let Some(path) = &args.report {
        let about = About {
            dataset: &data.name,
            command: command(args),
            config: toml::to_string(layers.table()).context("cannot write the configuration")?,
        };
        report::page(&about, &fitted, &comparison, open.as_ref()).write(path)?;
        out!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// What was asked, as it would be typed.
fn command(args: &Args) -> String {
    let mut words = vec!["offing dynamics".to_string(), args.dataset.clone()];
    words.extend(args.config.iter().map(|path| format!("--config {}", path.display())));
    words.extend(args.sets.iter().map(|set| format!("--set {set}")));
    words.extend(args.rows.map(|n| format!("--rows {n}")));
    words.push(format!("--seed {}", args.seed));
    words.join(" ")
}

/// Open-loop errors, when there is a simulator for the dataset's task.
fn against_simulator(
    context: &Context,
    args: &Args,
    data: &Dataset,
    fitted: &CachedModel,
    line: &Linear,
) -> Result<Option<OpenLoop>> {
    let Some(task) = task_of(&data.name) else {
        context.say(&format!("no simulator is known for `{}`: no open-loop errors", data.name));
        return Ok(None);
    };
    let longest = data.episodes.iter().map(|e| e.len()).max().unwrap_or(0);
    if longest == 0 {
        return Ok(None);
    }
    let said =
        data.meta.get("physics").and_then(|p| p.split_whitespace().next()).and_then(|p| p.parse().ok());
    let physics: Physics = args.physics.or(said).unwrap_or_default();
    let engine = context.engine()?;
    engine.prepare(&task, &mut |line| context.say(line))?;
    let make_env = || make(engine, &task, physics);
    let oracle = Oracle::new(EnvPool::new(&make_env))?;
    if (oracle.spec().obs_dim, oracle.spec().act_dim) != (data.rows.obs_dim(), data.rows.act_dim()) {
        context.say(&format!("{task} has other shapes than these data: no open-loop errors"));
        return Ok(None);
    }
    context.say(&format!("following {task} ({physics}) and the model from {} starts", args.windows));
    let cfg = OpenLoopConfig { windows: args.windows, steps: STEPS.min(longest), seed: args.seed };
    Ok(Some(open_loop(&fitted.model, line, &oracle, data, &cfg)?))
}

/// The simulated task behind a dataset's name, such as `hopper` for `hopper-medium-v2`.
pub(crate) fn task_of(name: &str) -> Option<&'static str> {
    Some(offing::tasks::task_of(name)?.name)
}

/// Fits an ensemble (or finds it fitted) with a progress bar and a line for each epoch.
pub(crate) fn fit_shown(context: &Context, fit: FitRequest<'_>, pool: &ThreadPool) -> Result<CachedModel> {
    let target = if context.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("  {msg} {bar:30} {human_pos}/{human_len} updates · {per_sec}")
        .expect("the template is a constant that parses");
    let bar = ProgressBar::with_draw_target(Some(1), target).with_style(style);
    let fitted = fit_cached(context.home(), fit, pool, &mut |event| {
        match event {
            FitEvent::Note(line) => bar.suspend(|| context.say(&line)),
            FitEvent::Step(now) => {
                if now.epoch_ended {
                    bar.suspend(|| context.say(&epoch_line(now)));
                }
                bar.set_length(now.updates_per_epoch);
                bar.set_position(now.updates % now.updates_per_epoch.max(1));
                bar.set_message(format!("epoch {}", now.epoch + 1));
            }
        }
        Ok(())
    });
    bar.finish_and_clear();
    let fitted = fitted?;
    let verb = if fitted.fresh { "fitted" } else { "found" };
    context.say(&format!(
        "{verb} a model of {} members after {} epochs: {}",
        fitted.model.members(),
        fitted.epochs,
        fitted.dir.display()
    ));
    Ok(fitted)
}

fn epoch_line(now: &FitProgress) -> String {
    let errors: Vec<String> = now.holdout.iter().map(|e| term::number(*e)).collect();
    format!("epoch {}: loss {}, hold-out MSE {}", now.epoch, term::number(now.loss), errors.join(" "))
}
