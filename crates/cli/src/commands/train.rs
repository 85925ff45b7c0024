//! `offing train`: learns a policy from a dataset, in a run directory that can always be gone on with.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use offing::algo::bc;
use offing::algo::recipe;
use offing::algo::{Arena, Event, Session, Status, TrainConfig};
use offing::data::scores::reference;
use offing::data::{Dataset, ReadOptions};
use offing::env::{Env, Pool};
use offing::nn::Team;
use offing::run::{CONFIG, Clock, Flow, RunDir};
use offing_mujoco::{Physics, make};
use serde::{Deserialize, Serialize};
use toml::Table;

use super::data::{load, write_json};
use crate::algorithms::{Algorithm, Plan};
use crate::context::Context;
use crate::{signals, term};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The algorithm: mopo, amorel, morel-sac (each with any estimator: mopo+sumo) or bc.
    #[arg(required_unless_present_any = ["resume", "config"])]
    algorithm: Option<String>,
    /// A path, a D4RL or Minari id, or the name of a made set.
    #[arg(required_unless_present_any = ["resume", "config"])]
    dataset: Option<String>,
    /// Seed of everything random; the same seed gives the same bytes.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Hyperparameters by another source: `paper` or `kit`, where they differ from the default.
    #[arg(long)]
    preset: Option<String>,
    /// `quick`: small networks, 50,000 steps, about an hour on two cores.
    #[arg(long)]
    profile: Option<String>,
    /// A TOML file over the preset; the config.toml of a run gives that run again.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override one value, such as --set pessimism.lambda=5 (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Gradient steps.
    #[arg(long)]
    steps: Option<u64>,
    /// Learn from about so many rows: whole episodes, drawn at random.
    #[arg(long)]
    rows: Option<usize>,
    /// Which physics to evaluate in.
    #[arg(long, default_value_t)]
    physics: Physics,
    /// The run directory [default: runs/<ALGORITHM>/<DATASET>/s<SEED>-<hash of the configuration>].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Go on with the run in this directory.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["algorithm", "dataset", "config", "set", "steps", "rows", "preset", "profile", "dir"])]
    resume: Option<PathBuf>,
    /// One JSON object on stdout for every evaluation, and no progress bar.
    #[arg(long)]
    json: bool,
}

/// What a run writes down as its config.toml; reading it back gives the same run.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    algorithm: String,
    dataset: String,
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<usize>,
    physics: String,
    /// Checksum of the transitions trained on: a run does not go on with other data.
    data: String,
    settings: Table,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let (written, plan, dir, dataset) = match &args.resume {
        Some(dir) => reopen(context, dir)?,
        None => plan_run(context, args)?,
    };
    let mut run = RunDir::open_or_create(&dir, &toml::to_string(&written)?)?;
    let physics: Physics = written.physics.parse()?;
    let task = task_of(&dataset.name).filter(|task| offing_mujoco::TASKS.contains(&task.as_str()));
    let engine = match &task {
        Some(task) => {
            let engine = context.engine()?;
            engine.prepare(task, &mut |line| context.say(line))?;
            Some((engine, task.clone()))
        }
        None => {
            context.say("no simulator for this dataset: the policy is not scored on the way");
            None
        }
    };
    let make_env = || -> offing::Result<Box<dyn Env>> {
        match &engine {
            Some((engine, task)) => make(engine, task, physics),
            None => Err(offing::Error::Invalid("there is no simulator for this dataset".into())),
        }
    };
    let pool = Pool::new(&make_env);
    let reference = reference(&dataset.name).filter(|_| physics != Physics::GymnasiumV5);
    let arena = engine.as_ref().map(|_| Arena { pool: &pool, reference });
    signals::listen();
    let quiet = context.quiet || args.json;
    let mut view =
        View { bar: term::training_bar(plan.train().steps, quiet), json: args.json, seen: None, context };
    let team = Team::new(rayon::current_num_threads());
    let mut watch = |event: Event<'_>| {
        view.show(&event);
        if signals::asked_to_stop() { Flow::Stop } else { Flow::Continue }
    };
    let goal =
        dataset.sim.as_ref().and_then(|s| s.goal.as_ref()).map(|g| [g[[0, 0]] as f32, g[[0, 1]] as f32]);
    let mut session = Session {
        data: &dataset,
        home: context.home(),
        team: &team,
        seed: written.seed,
        arena,
        goal,
        run: &mut run,
        watch: &mut watch,
        clock: Clock::default(),
        scores: Default::default(),
    };
    let done = match &plan {
        Plan::Recipe(cfg) => recipe::train(cfg, &mut session).map(|agent| agent.is_some()),
        Plan::Bc(cfg) => bc::train(cfg, &mut session).map(|actor| actor.is_some()),
    };
    let (clock, scores) = (session.clock.clone(), session.scores);
    view.bar.finish_and_clear();
    match done {
        Ok(true) => {}
        Ok(false) | Err(offing::Error::Stopped) => {
            context.say(&format!("stopped; go on with: offing train --resume {}", dir.display()));
            return Ok(ExitCode::from(130));
        }
        Err(error) => return Err(error.into()),
    }
    write_timing(&dir, &clock)?;
    super::report::write_own(&dir)?;
    if !args.json {
        finish(&dir, &dataset, scores.last, scores.best, reference, &clock);
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts the layers together and finds the data.
fn plan_run(context: &Context, args: &Args) -> Result<(Written, Plan, PathBuf, Dataset)> {
    let given: Option<Table> = match &args.config {
        None => None,
        Some(path) => Some(crate::config::read_table(path)?),
    };
    let from_file = given.as_ref().and_then(|t| t.get("algorithm")).is_some();
    let text =
        |key: &str| given.as_ref().and_then(|t| t.get(key)).and_then(|v| v.as_str()).map(str::to_string);
    let name = args.algorithm.clone().or_else(|| text("algorithm"));
    let name = name.ok_or_else(|| anyhow!("no algorithm: give one, or a --config of a run"))?;
    let dataset_name = args.dataset.clone().or_else(|| text("dataset"));
    let dataset_name = dataset_name.ok_or_else(|| anyhow!("no dataset: give one, or a --config of a run"))?;
    let algorithm = Algorithm::parse(&name)?;
    let mut layers = algorithm.layers(&dataset_name, args.preset.as_deref(), args.profile.as_deref())?;
    let mut rows = args.rows.or(layers.rows);
    let mut seed = args.seed;
    if let Some(table) = &given {
        if from_file {
            let file: Written =
                table.clone().try_into().map_err(|e: toml::de::Error| anyhow!("{}", e.message()))?;
            layers.layers.put(file.settings);
            rows = args.rows.or(file.rows);
            seed = if args.seed == 0 { file.seed } else { args.seed };
        } else {
            layers.layers.put(table.clone());
        }
    }
    args.set.iter().try_for_each(|set| layers.layers.set(set))?;
    if let Some(steps) = args.steps {
        layers.layers.set(&format!("train.steps={steps}"))?;
    }
    let plan = algorithm.plan(&layers.layers)?;
    let dataset = find_data(context, &dataset_name, rows, plan.train())?;
    let written = Written {
        algorithm: algorithm.name(),
        dataset: dataset_name,
        seed,
        rows,
        physics: args.physics.to_string(),
        data: dataset.digest(),
        settings: plan.table()?,
    };
    let hash = short_hash(&toml::to_string(&written)?);
    let dir = args.dir.clone().unwrap_or_else(|| {
        format!("runs/{}/{}/s{seed}-{hash}", written.algorithm, file_word(&written.dataset)).into()
    });
    Ok((written, plan, dir, dataset))
}

/// Reads a run's own configuration and checks that the data are still the same.
fn reopen(context: &Context, dir: &Path) -> Result<(Written, Plan, PathBuf, Dataset)> {
    let path = dir.join(CONFIG);
    if !path.is_file() {
        bail!("{}: wanted a run directory with a {CONFIG}, found none; check the path", dir.display());
    }
    let table = crate::config::read_table(&path)?;
    let written: Written = table.try_into().map_err(|e: toml::de::Error| {
        anyhow!("{}: {}; it is no training run", path.display(), e.message())
    })?;
    let algorithm = Algorithm::parse(&written.algorithm)?;
    let mut layers = algorithm.layers(&written.dataset, None, None)?.layers;
    layers.put(written.settings.clone());
    let plan = algorithm.plan(&layers)?;
    let dataset = find_data(context, &written.dataset, written.rows, plan.train())?;
    if dataset.digest() != written.data {
        bail!(
            "{}: was trained on other transitions than `{}` holds now; give back the old data, or start a new run",
            dir.display(),
            written.dataset
        );
    }
    Ok((written, plan, dir.to_path_buf(), dataset))
}

fn find_data(context: &Context, name: &str, rows: Option<usize>, cfg: &TrainConfig) -> Result<Dataset> {
    let (mut dataset, _) = load(context, name, ReadOptions::default())?;
    if let Some(rows) = rows
        && rows < dataset.rows.len()
    {
        dataset = dataset.thinned(rows, 0);
    }
    if cfg.reward_shift != 0.0 {
        dataset.rows.rew += cfg.reward_shift;
    }
    Ok(dataset)
}

/// The task behind a dataset's name.
fn task_of(name: &str) -> Option<String> {
    let mut words = name.split('-');
    match (words.next()?, words.next()) {
        ("antmaze", Some(maze)) => Some(format!("antmaze-{maze}")),
        (body, _) => Some(body.to_string()),
    }
}

fn file_word(name: &str) -> String {
    let stem = Path::new(name).file_stem().map_or(name.into(), |s| s.to_string_lossy().into_owned());
    stem.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

fn short_hash(text: &str) -> String {
    // FNV-1a: a name, not a proof.
    let hash =
        text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("{:08x}", (hash >> 32) as u32)
}

/// The progress of a run in the terminal.
struct View<'a> {
    bar: indicatif::ProgressBar,
    json: bool,
    seen: Option<f64>,
    context: &'a Context,
}

impl View<'_> {
    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Note(line) if !self.json => self.bar.suspend(|| self.context.say(line)),
            Event::Note(_) => {}
            Event::Fit(p) => {
                let best = p.holdout.iter().copied().fold(f64::INFINITY, f64::min);
                self.bar.set_message(format!(
                    "dynamics model: epoch {}, best hold-out error {}",
                    p.epoch,
                    term::number(best)
                ));
            }
            Event::Step(status) => self.step(status),
        }
    }

    fn step(&mut self, status: &Status) {
        self.bar.set_position(status.step);
        let mut words = Vec::new();
        if let Some(value) = status.scores.last {
            let score = status.last_score.map_or(String::new(), |s| format!(" (score {s:.1})"));
            words.push(format!("return {}{score}", term::number(value)));
        }
        let l = &status.losses;
        if l.critic > 0.0 {
            words.push(format!("critic {} · Q {}", term::number(l.critic), term::number(l.q)));
        } else {
            words.push(format!("loss {}", term::number(l.actor)));
        }
        if let Some(tally) = &status.tally {
            if let Some(u) = tally.mean_score() {
                words.push(format!("u {u:.2}"));
            }
            if tally.guarded > 0 {
                words.push(format!(
                    "cut {:.0} %",
                    100.0 * tally.guarded as f64 / tally.imagined.max(1) as f64
                ));
            }
        }
        self.bar.set_message(words.join(" · "));
        if self.json && status.scores.last != self.seen {
            self.seen = status.scores.last;
            out!(
                "{}",
                serde_json::json!({ "step": status.step, "return": status.scores.last, "best": status.scores.best, "score": status.last_score })
            );
        }
    }
}

fn write_timing(dir: &Path, clock: &Clock) -> Result<()> {
    let phases: serde_json::Map<String, serde_json::Value> =
        clock.phases().into_iter().map(|(name, s)| (name.to_string(), s.into())).collect();
    write_json(&dir.join("timing.json"), &serde_json::json!({ "seconds": clock.elapsed(), "phases": phases }))
}

fn finish(
    dir: &Path,
    data: &Dataset,
    last: Option<f64>,
    best: Option<f64>,
    reference: Option<offing::data::scores::Reference>,
    clock: &Clock,
) {
    let score = |x: Option<f64>| match (x, reference) {
        (Some(x), Some(r)) => format!("{:.1}", r.normalise(x)),
        _ => "-".into(),
    };
    let value = |x: Option<f64>| x.map_or("-".into(), term::number);
    let behaviour =
        offing::data::audit::audit(data, offing_mujoco::horizon(&data.name)).episode_return.map(|s| s.mean);
    let rows = [("last policy", last), ("best on the way", best), ("dataset's mean return", behaviour)]
        .map(|(name, x)| vec![name.to_string(), value(x), score(x)]);
    out!("{}", term::table(&[&data.name, "return", "normalised score"], rows));
    let mut phases = clock.phases();
    phases.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts: Vec<String> = phases.iter().map(|(name, s)| format!("{name} {}", seconds(*s))).collect();
    out!("{} in all: {}", seconds(clock.elapsed()), parts.join(", "));
    out!("{}", dir.display());
}

fn seconds(s: f64) -> String {
    if s < 120.0 { format!("{s:.1} s") } else { format!("{:.0} min", s / 60.0) }
}
