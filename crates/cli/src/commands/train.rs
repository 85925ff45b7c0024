//! `offing train`: learns a policy from a dataset, in a run directory that can always be gone on with.

use crate::exit::ExitCode;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use offing::algo::session::Scores;
use offing::data::Dataset;
use offing::run::{CONFIG, PhaseTimer, RunDir, is_held, newest_step};
use offing_mujoco::Physics;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::data::write_json;
use crate::algorithms::{Algorithm, Plan};
use crate::context::Context;
use crate::datasets::{find_data, find_same};
use crate::estimate::{Forecast, estimate};
use crate::provenance::By;
use crate::workshop::{Job, in_session, reference_of};
use crate::{signals, term};

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// The algorithm: mopo, amorel, morel, morel-sac, mobile (each with any estimator: mopo+sumo), combo, rambo or bc.
    #[arg(required_unless_present_any = ["resume", "config"])]
    pub(crate) algorithm: Option<String>,
    /// A path, a D4RL or Minari id, or the name of a made set.
    #[arg(required_unless_present_any = ["resume", "config"])]
    pub(crate) dataset: Option<String>,
    /// Seed of everything random; the same seed gives the same bytes [default: the --config's, or 0].
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Hyperparameters by another source, where they differ from the default: `kit` (mopo), `paper` (amorel), `mjrl`
    /// (morel).
    #[arg(long)]
    pub(crate) preset: Option<String>,
    /// `quick`: small networks, 50,000 steps, about 15 minutes on one core (mobile and combo an hour).
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
    /// Learn from about so many rows: whole episodes, drawn at random.
    #[arg(long, value_parser = super::bench::positive)]
    pub(crate) rows: Option<usize>,
    /// Which physics to evaluate in [default: the --config's, or d4rl-v2].
    #[arg(long)]
    pub(crate) physics: Option<Physics>,
    /// The run directory [default: runs/<ALGORITHM>/<DATASET>/s<SEED>-<hash of the configuration>].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Go on with the run in this directory.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["algorithm", "dataset", "config", "set", "steps", "rows", "preset", "profile", "dir", "seed", "physics"])]
    pub(crate) resume: Option<PathBuf>,
    /// One JSON object on stdout for every evaluation, and no progress bar.
    #[arg(long)]
    pub(crate) json: bool,
    /// Only tell the resolved settings and what the run would cost.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Shorter trainings start without an estimate: measuring would take longer than it tells.
const LONG: u64 = 2000;

/// What a run writes down as its config.toml; reading it back gives the same run.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    pub(crate) algorithm: String,
    pub(crate) dataset: String,
    pub(crate) seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rows: Option<usize>,
    pub(crate) physics: String,
    /// Checksum of the transitions trained on: a run does not go on with other data.
    pub(crate) data: String,
    pub(crate) settings: Table,
}

impl Written {
    /// The typed settings.
    pub(crate) fn plan(&self) -> Result<Plan> {
        let algorithm = Algorithm::parse(&self.algorithm)?;
        // Not over today's presets: what they have learnt since is not part of the run.
        let mut layers = algorithm.defaults()?;
        layers.put(self.settings.clone());
        algorithm.plan(&layers)
    }
}

/// How a training ended.
pub(crate) struct Outcome {
    /// False when it was stopped; the directory holds what is needed to go on.
    pub(crate) done: bool,
    pub(crate) dir: PathBuf,
    dataset: Dataset,
    physics: Physics,
    timer: PhaseTimer,
    scores: Scores,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    if args.dry_run {
        let (written, plan, dir, dataset) = planned(context, args, None)?;
        let cost = cost(context, &written, &plan, &dir, &dataset)?.unwrap_or("the run is finished".into());
        out!("{}", toml::to_string(&written)?.trim_end());
        out!("{cost}");
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = train(context, args, None)?;
    if !outcome.done {
        return Ok(ExitCode::from(130));
    }
    if !args.json {
        outcome.print();
    }
    Ok(ExitCode::SUCCESS)
}

/// Trains, with `preset` (TOML) between the algorithm's own presets and the user's settings.
pub(crate) fn train(context: &Context, args: &Args, preset: Option<&str>) -> Result<Outcome> {
    let planned = planned(context, args, preset)?;
    let (written, plan, dir, dataset) = &planned;
    let left = plan.train().steps.saturating_sub(newest_step(dir).unwrap_or(0));
    // A step of planning (MOReL) is a whole iteration.
    let long = left >= LONG || matches!(plan, Plan::Morel(_));
    if !context.quiet && !args.json && long {
        match cost(context, written, plan, dir, dataset) {
            Ok(words) => words.iter().for_each(|words| context.say(words)),
            // Settings were checked before: what fails here is the probe, which is smaller, and no reason not to start.
            Err(error) => context.say(&format!("no estimate of the cost: {error:#}")),
        }
    }
    let run = RunDir::open_or_create(&planned.2, &toml::to_string(&planned.0)?)?;
    train_in(context, run, planned, args.json)
}

/// Takes hold of a run directory as soon as no other process works in it; `None` when asked to stop meanwhile.
pub(crate) fn open_when_free(context: &Context, dir: &Path, config: &str) -> Result<Option<RunDir>> {
    let mut said = false;
    loop {
        if let Some(run) = RunDir::try_open_or_create(dir, config)? {
            return Ok(Some(run));
        }
        // Another's glance at the lock takes it for a moment: that is no reason to speak.
        if !said && is_held(dir) {
            context.say(&format!("{}: another process is working there; waiting for it", dir.display()));
            said = true;
        }
        if signals::asked_to_stop() {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// What a finished run is told apart by: the last file an algorithm writes, and its last checkpoint.
pub(crate) fn is_whole(dir: &Path, steps: u64) -> bool {
    dir.join("policy.safetensors").is_file() && newest_step(dir) == Some(steps)
}

/// Trains what was planned, in its directory, which is held, to the end or until it is stopped. A new run that fails before
/// anything has come of it leaves no directory.
pub(crate) fn train_in(context: &Context, mut run: RunDir, planned: Planned, json: bool) -> Result<Outcome> {
    match train_held(context, &mut run, planned, json) {
        // There is nothing wrong with the run itself: it can go on.
        Err(error) if is_out_of_room(&error) => {
            let dir = run.path().display();
            Err(anyhow!(
                "{error}; what was kept before is whole: make room, then go on with: offing train --resume {dir}"
            ))
        }
        Err(error) => {
            run.forget_if_untouched();
            Err(error)
        }
        done => done,
    }
}

fn train_held(
    context: &Context,
    run: &mut RunDir,
    (written, plan, dir, dataset): Planned,
    json: bool,
) -> Result<Outcome> {
    let (physics, steps) = (written.physics.parse()?, plan.train().steps);
    // Nobody works on a run that is finished: opening it again makes nothing of it theirs, and takes it no time.
    let finished = is_whole(&dir, steps);
    let signed = if finished { Ok(()) } else { By::sign(&dir) };
    write_data_card(&dir, &dataset, physics).and(signed)?;
    let job = Job { dataset: &dataset, physics, seed: written.seed, steps, json };
    let (done, timer, scores) = in_session(context, &job, run, |session, simulators| {
        if simulators.is_none() {
            session.note("no simulator for this dataset: the policy is not scored on the way");
        }
        let done = plan.run(session);
        Ok((done, session.timer.clone(), session.scores))
    })?;
    let done = match done {
        Err(offing::Error::Stopped) => false,
        other => other?,
    };
    if !finished {
        run.keep_times(&timer)?;
    }
    if done {
        super::report::write_own(&dir)?;
    } else {
        context.say(&format!("stopped; go on with: offing train --resume {}", dir.display()));
    }
    Ok(Outcome { done, dir, dataset, physics, timer, scores })
}

/// A run before it starts: what is written down, its typed settings, its directory, its data.
pub(crate) type Planned = (Written, Plan, PathBuf, Dataset);

/// The run that was asked for: a new one, or one to go on with.
fn planned(context: &Context, args: &Args, preset: Option<&str>) -> Result<Planned> {
    let planned = match &args.resume {
        Some(dir) => reopen(context, dir)?,
        None => plan_run(context, args, preset)?,
    };
    let (_, plan, dir, data) = &planned;
    if args.resume.is_some() && !is_whole(dir, plan.train().steps) {
        plan.check_for(data)?;
    }
    context.say(&format!("learning from {} transitions of {}", term::count(data.rows.len()), data.name));
    if let Some(note) = out_of_reach(data) {
        context.say(&note);
    }
    Ok(planned)
}

/// A word about logged actions that no policy of ours can repeat, if there are any: an audit tells more.
fn out_of_reach(data: &Dataset) -> Option<String> {
    let beyond = |act: &ndarray::ArrayView1<'_, f32>| act.iter().any(|a| a.abs() > 1.0 + 1e-6);
    let rows = data.rows.act.rows().into_iter().filter(beyond).count();
    (rows > 0).then(|| {
        format!(
            "{} rows have actions outside [-1, 1], where the policy cannot act: rescale them, see `offing data audit`",
            term::count(rows)
        )
    })
}

/// What is left of the run will cost so much; nothing when nothing is left.
fn cost(
    context: &Context,
    written: &Written,
    plan: &Plan,
    dir: &Path,
    data: &Dataset,
) -> Result<Option<String>> {
    let left = plan.train().steps.saturating_sub(newest_step(dir).unwrap_or(0));
    let physics = written.physics.parse()?;
    (left > 0).then(|| estimate(context, &Forecast { written, data, physics, left })).transpose()
}

/// Whether a disk is full, or a file may not grow. Nothing that was kept is lost then.
fn is_out_of_room(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match error.downcast_ref() {
        Some(offing::Error::Io { cause, .. }) => {
            matches!(cause.kind(), StorageFull | QuotaExceeded | FileTooLarge)
        }
        _ => false,
    }
}

/// Puts the layers together and finds the data.
pub(crate) fn plan_run(context: &Context, args: &Args, preset: Option<&str>) -> Result<Planned> {
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
    if let Some(preset) = preset {
        layers.layers.preset(preset, "the command's preset", None)?;
    }
    let mut rows = args.rows.or(layers.rows);
    let (mut seed, mut physics) = (args.seed.unwrap_or_default(), args.physics.unwrap_or_default());
    if let Some(table) = &given {
        if from_file {
            let file: Written =
                table.clone().try_into().map_err(|e: toml::de::Error| anyhow!("{}", e.message()))?;
            if args.preset.is_none() && args.profile.is_none() {
                layers.layers = algorithm.defaults()?;
            }
            layers.layers.put(file.settings);
            rows = args.rows.or(file.rows);
            seed = args.seed.unwrap_or(file.seed);
            physics = args.physics.map_or_else(|| file.physics.parse(), Ok)?;
        } else {
            layers.layers.put(table.clone());
        }
    }
    args.set.iter().try_for_each(|set| layers.layers.set(set))?;
    if let Some(steps) = args.steps {
        layers.layers.set(&format!("train.steps={steps}"))?;
    }
    let plan = algorithm.plan(&layers.layers)?;
    // A configuration gives its run again: with the same transitions, as long as nobody asked for others.
    let same = match text("data").filter(|_| from_file && args.dataset.is_none() && args.rows.is_none()) {
        Some(digest) => find_same(context, &dataset_name, rows, plan.train(), &digest)?,
        None => None,
    };
    let dataset = match same {
        Some(dataset) => dataset,
        None => find_data(context, &dataset_name, rows, plan.train())?,
    };
    plan.check_for(&dataset)?;
    let written = Written {
        algorithm: algorithm.name(),
        dataset: dataset_name,
        seed,
        rows,
        physics: physics.to_string(),
        data: dataset.digest(),
        settings: plan.table()?,
    };
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => run_dir(Path::new("runs"), &written)?,
    };
    Ok((written, plan, dir, dataset))
}

/// Where a run lies under `base` when no directory is given for it.
pub(crate) fn run_dir(base: &Path, written: &Written) -> Result<PathBuf> {
    let hash = short_hash(toml::to_string(written)?);
    let dataset = file_word(&written.dataset);
    Ok(base.join(&written.algorithm).join(dataset).join(format!("s{}-{hash}", written.seed)))
}

/// Reads a run's own configuration and checks that the data are still the same.
pub(crate) fn reopen(context: &Context, dir: &Path) -> Result<Planned> {
    let path = dir.join(CONFIG);
    if !path.is_file() {
        bail!("{}: wanted a run directory with a {CONFIG}, found none; check the path", dir.display());
    }
    let table = crate::config::read_table(&path)?;
    let written: Written = table.try_into().map_err(|e: toml::de::Error| {
        anyhow!("{}: {}; it is no training run", path.display(), e.message())
    })?;
    let plan = written.plan()?;
    let place = where_it_lies(&written.dataset, dir);
    let same = find_same(context, &place, written.rows, plan.train(), &written.data)?;
    let Some(dataset) = same else {
        bail!(
            "{}: was trained on other transitions than `{}` holds now; give back the old data, or start a new run",
            dir.display(),
            written.dataset
        );
    };
    Ok((written, plan, dir.to_path_buf(), dataset))
}

/// The path of a run's data. One that counts from where the run was started is looked for from the directories above the run, so
/// that a run can be opened from elsewhere; whether it is the same data is for their checksum to say.
fn where_it_lies(dataset: &str, run: &Path) -> String {
    let path = Path::new(dataset);
    if path.is_absolute() || path.exists() {
        return dataset.into();
    }
    let run = run.canonicalize().unwrap_or_else(|_| run.to_path_buf());
    let mut places = run.ancestors().skip(1).map(|above| above.join(path));
    places.find(|place| place.is_file()).map_or(dataset.into(), |found| found.to_string_lossy().into_owned())
}

pub(crate) fn file_word(name: &str) -> String {
    let stem = Path::new(name).file_stem().map_or(name.into(), |s| s.to_string_lossy().into_owned());
    stem.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

pub(crate) fn short_hash(of: impl AsRef<[u8]>) -> String {
    // FNV-1a: a name, not a proof.
    let hash = of
        .as_ref()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    format!("{:08x}", (hash >> 32) as u32)
}

/// What a run learnt from, for reports: how well the data's own episodes went is what a policy has to beat.
pub(crate) const DATA_CARD: &str = "data.json";

fn write_data_card(dir: &Path, data: &Dataset, physics: Physics) -> Result<()> {
    let (mean, score) = reached(data, physics);
    let card = serde_json::json!({
        "dataset": data.name, "transitions": data.rows.len(), "episodes": data.episodes.len(), "return": mean, "score": score,
    });
    write_json(&dir.join(DATA_CARD), &card)
}

impl Outcome {
    fn print(&self) {
        let reference = reference_of(&self.dataset, self.physics);
        let score = |x: Option<f64>| match (x, reference) {
            (Some(x), Some(r)) => format!("{:.1}", r.normalise(x)),
            _ => "-".into(),
        };
        let value = |x: Option<f64>| x.map_or("-".into(), term::number);
        let behaviour = mean_return(&self.dataset);
        let (last, best) = (self.scores.last, self.scores.best);
        let rows = [("last policy", last), ("best on the way", best), ("dataset's mean return", behaviour)]
            .map(|(name, x)| vec![name.to_string(), value(x), score(x)]);
        out!("{}", term::table(&[&self.dataset.name, "return", "normalised score"], rows));
        let mut phases = self.timer.phases();
        phases.sort_by(|a, b| b.1.total_cmp(&a.1));
        let parts: Vec<String> =
            phases.iter().map(|(name, s)| format!("{name} {}", term::duration(*s))).collect();
        out!("{} in all: {}", term::duration(self.timer.elapsed()), parts.join(", "));
        out!("{}", self.dir.display());
    }
}

/// What the data's own episodes reached: mean return, and its normalised score.
pub(crate) fn reached(data: &Dataset, physics: Physics) -> (Option<f64>, Option<f64>) {
    let mean = mean_return(data);
    (mean, mean.zip(reference_of(data, physics)).map(|(mean, reference)| reference.normalise(mean)))
}

/// Mean return of the dataset's episodes that ended by themselves or by the timer, without what was added to every
/// reward.
pub(crate) fn mean_return(data: &Dataset) -> Option<f64> {
    let ended = |e: &&std::ops::Range<usize>| {
        e.end > e.start && (data.rows.done[e.end - 1] || data.timeout[e.end - 1])
    };
    let total = |e: &std::ops::Range<usize>| {
        e.clone().map(|i| f64::from(data.rows.rew[i] - data.reward_shift)).sum::<f64>()
    };
    let returns: Vec<f64> = data.episodes.iter().filter(ended).map(total).collect();
    (!returns.is_empty()).then(|| returns.iter().sum::<f64>() / returns.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use offing::sac::Alpha;

    #[test]
    fn data_of_a_run_are_found_from_elsewhere() {
        let temp = tempfile::tempdir().unwrap();
        let run = temp.path().join("runs/mopo/log/s0");
        std::fs::create_dir_all(&run).unwrap();
        assert_eq!(where_it_lies("log.csv", &run), "log.csv", "it is not there");
        let log = temp.path().canonicalize().unwrap().join("log.csv");
        std::fs::write(&log, "").unwrap();
        assert_eq!(where_it_lies("log.csv", &run), log.to_str().unwrap());
        assert_eq!(where_it_lies("log", &run), "log", "a directory of runs is no data");
    }

    #[test]
    fn a_run_of_yesterday_goes_on_without_what_presets_say_today() {
        // MOBILE's preset now clamps the temperature; this run was written before it did.
        let text = "algorithm = 'mobile'\ndataset = 'halfcheetah-medium'\nseed = 0\nphysics = 'd4rl-v2'\ndata = ''\n\
                    [settings.sac.alpha]\nkind = 'auto'\nlr = 0.0003\n\
                    [settings.uncertainty]\nkind = 'bellman-std'\n\
                    [settings.pessimism]\nkind = 'penalize'\nlambda = 0.5\nnormaliser = 'none'";
        let written: Written = toml::from_str(text).unwrap();
        let Plan::Mobile(cfg) = written.plan().unwrap() else { panic!("mobile") };
        assert!(matches!(cfg.sac.alpha, Alpha::Auto { max: None, .. }), "{:?}", cfg.sac.alpha);
        let today = Algorithm::parse("mobile").unwrap();
        let today = today.plan(&today.layers("halfcheetah-medium", None, None).unwrap().layers).unwrap();
        let Plan::Mobile(cfg) = today else { panic!("mobile") };
        assert!(matches!(cfg.sac.alpha, Alpha::Auto { max: Some(_), .. }), "or this test says nothing");
    }
}
