//! The front door: an algorithm, data and settings in; a trained policy in a run directory out.
//!
//! ```no_run
//! use offing::train::{Hooks, RunConfig, train};
//! let config = RunConfig::new("mopo+sumo", "my-logs.parquet").profile("quick").set("pessimism.lambda=5");
//! let trained = train(&config, &mut Hooks::new("offing-home"))?;
//! println!("{}", trained.dir.display());
//! # Ok::<(), offing::Error>(())
//! ```
//!
//! [`train`] is [`prepare`] and then [`PreparedRun::run`]. In between, a caller can look at what will run: its settings,
//! its data, its directory. [`resume`] prepares a run that exists, [`extend`] a longer one. The command line and the Python
//! package are callers of these five, nothing more.

mod behaviour;
mod hooks;
mod run_config;

pub use behaviour::{DATA_CARD, behaviour_score, mean_return, reference_of};
pub use hooks::Hooks;
pub use run_config::{DataSource, RunConfig, RunManifest, slug};

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use crate::algorithms::{self, Configured, Event, Scores, TrainConfig};
use crate::data::Dataset;
use crate::env::Physics;
use crate::error::{Error, Result, invalid, require};
use crate::run::{PhaseTimer, Provenance, RunDir, newest_step};
use crate::sac::Actor;
use crate::uncertainty::{CustomEstimator, UncertaintyConfig};

/// A run before it starts.
#[derive(Debug)]
pub struct PreparedRun {
    /// What its config.toml says.
    pub manifest: RunManifest,
    /// The algorithm with its settings, validated for the data.
    pub configured: Configured,
    /// Where it goes.
    pub dir: PathBuf,
    /// The rows it learns from, as `train` settings change them.
    pub data: Dataset,
    /// Whether it is to be longer than its directory says.
    extends: bool,
}

/// How a training ended.
#[derive(Debug)]
pub struct Trained {
    /// False when an event handler stopped it; the directory holds what is needed to go on.
    pub finished: bool,
    /// The run directory.
    pub dir: PathBuf,
    /// The last policy of a finished run, in the log's units.
    pub policy: Option<Actor>,
    /// Returns in the simulator, where there is one.
    pub scores: Scores,
    /// Where the time went, over all processes that worked on the run.
    pub timer: PhaseTimer,
    /// What it learnt from.
    pub data: Dataset,
}

/// Trains a policy from data: resolves names, validates everything, then runs, or goes on with the run of the same
/// settings in the same directory.
///
/// # Errors
/// One line that says what was wanted, what was found and what to do. A new run that fails before its first checkpoint
/// leaves no directory.
pub fn train(config: &RunConfig, hooks: &mut Hooks<'_>) -> Result<Trained> {
    prepare(config, hooks)?.run(hooks)
}

/// [`train`] with an estimator of one's own in place of the configured one. The run's config.toml names it; to go on with
/// the run, pass it again.
///
/// # Errors
/// As [`train`].
pub fn train_with<'a>(
    config: &RunConfig,
    estimator: CustomEstimator<'a>,
    hooks: &mut Hooks<'a>,
) -> Result<Trained> {
    let config = config.clone().set(format!("uncertainty={{kind=\"custom\",name={:?}}}", estimator.name()));
    hooks.estimators.push(estimator);
    let trained = train(&config, hooks);
    hooks.estimators.pop();
    trained
}

/// Puts the layers of settings together, finds the data and validates both. Nothing is written.
///
/// # Errors
/// As [`train`].
pub fn prepare(config: &RunConfig, hooks: &mut Hooks<'_>) -> Result<PreparedRun> {
    let request = config.resolve(&hooks.registry)?;
    let train = request.configured.algorithm.blocks().train;
    let data = match (&config.data, &request.digest) {
        (DataSource::Rows(data), _) => hooks.adapt((**data).clone(), request.rows, train)?,
        // A configuration gives its run again: with the same transitions, as long as nobody asked for others.
        (DataSource::Named(_), Some(digest)) => {
            match hooks.find_same(&request.dataset, request.rows, train, digest)? {
                Some(same) => same,
                None => hooks.load(&request.dataset, request.rows, train)?,
            }
        }
        (DataSource::Named(_), None) => hooks.load(&request.dataset, request.rows, train)?,
    };
    validate(&request.configured, &data, hooks)?;
    let manifest = RunManifest {
        algorithm: request.algorithm.to_string(),
        dataset: request.dataset,
        seed: request.seed,
        rows: request.rows,
        physics: request.physics.to_string(),
        data: data.digest(),
        settings: request.configured.settings.clone(),
    };
    let dir = match &config.dir {
        Some(dir) => dir.clone(),
        None => manifest.default_dir(&config.base_dir)?,
    };
    Ok(PreparedRun { manifest, configured: request.configured, dir, data, extends: false })
}

/// Prepares to go on with the run in `dir`: reads its configuration and checks that its data are still the same.
///
/// # Errors
/// A directory that holds no run, settings that this version does not know, other data.
pub fn resume(dir: &Path, hooks: &mut Hooks<'_>) -> Result<PreparedRun> {
    let manifest = RunManifest::read(dir)?;
    let configured = manifest.configure(&hooks.registry)?;
    let place = data_near(&manifest.dataset, dir);
    let train = configured.algorithm.blocks().train;
    let Some(data) = hooks.find_same(&place, manifest.rows, train, &manifest.data)? else {
        return Err(invalid!(
            "{}: was trained on other transitions than `{}` holds now; give back the old data, or start a new run",
            dir.display(),
            manifest.dataset
        ));
    };
    let prepared = PreparedRun { manifest, configured, dir: dir.to_path_buf(), data, extends: false };
    if !prepared.is_finished() {
        validate(&prepared.configured, &prepared.data, hooks)?;
    }
    Ok(prepared)
}

/// Prepares to take the run in `dir`, finished or not, to `steps` steps.
///
/// # Errors
/// As [`resume`], and a run that has taken as many steps already.
pub fn extend(dir: &Path, steps: u64, hooks: &mut Hooks<'_>) -> Result<PreparedRun> {
    let mut prepared = resume(dir, hooks)?;
    let (before, done) = (prepared.train_config().steps, newest_step(dir).unwrap_or(0));
    require!(
        steps > done && steps >= before,
        "{}: wanted more steps than the {} it {}, found {steps}; give a larger number",
        dir.display(),
        before.max(done),
        if done >= before { "has taken" } else { "will take" }
    );
    let settings = &mut prepared.manifest.settings;
    if let Some(train) = settings.get_mut("train").and_then(toml::Value::as_table_mut) {
        train.insert("steps".into(), toml::Value::Integer(steps as i64));
    }
    if done > 0 && steps > before && follows_steps(settings) {
        hooks.note(format!(
            "the learning rate falls over all steps of a run: it rises again at step {done}, so the result is not that of a run \
             that had {steps} steps from the start"
        ));
    }
    prepared.configured = prepared.manifest.configure(&hooks.registry)?;
    prepared.extends = steps > before;
    Ok(prepared)
}

/// Whether a learning rate falls over the length of the run.
fn follows_steps(settings: &toml::Table) -> bool {
    settings.iter().any(|(key, value)| match value.as_table() {
        Some(schedule) if key == "actor_schedule" => {
            schedule.get("kind").and_then(toml::Value::as_str) == Some("cosine")
                && !schedule.contains_key("steps")
        }
        Some(inner) => follows_steps(inner),
        None => false,
    })
}

/// Says what these data cannot serve, and whether an estimator from outside is missing.
fn validate(configured: &Configured, data: &Dataset, hooks: &Hooks<'_>) -> Result<()> {
    let estimator = configured.settings.get("uncertainty").cloned();
    if let Some(Ok(estimator)) = estimator.map(toml::Value::try_into::<UncertaintyConfig>) {
        estimator.validate_registered(&hooks.estimators)?;
    }
    if let Some(model) = configured.algorithm.blocks().model {
        model.select_parts(&hooks.parts)?;
    }
    algorithms::validate_for(configured.algorithm.as_ref(), data)
}

impl PreparedRun {
    /// The training loop's settings.
    pub fn train_config(&self) -> &TrainConfig {
        self.configured.algorithm.blocks().train
    }

    /// Steps that are still to be done.
    pub fn steps_left(&self) -> u64 {
        self.train_config().steps.saturating_sub(newest_step(&self.dir).unwrap_or(0))
    }

    /// Whether the run in its directory is complete: its policy and its last checkpoint are there.
    pub fn is_finished(&self) -> bool {
        self.dir.join("policy.safetensors").is_file()
            && newest_step(&self.dir) == Some(self.train_config().steps)
    }

    /// The physics that policies are evaluated in.
    pub fn physics(&self) -> Result<Physics> {
        self.manifest.physics.parse()
    }

    /// Trains in its directory to the end, or until an event handler stops it.
    ///
    /// # Errors
    /// As [`train`].
    pub fn run(self, hooks: &mut Hooks<'_>) -> Result<Trained> {
        let config = self.manifest.to_toml()?;
        let run = match self.extends {
            false => RunDir::open_or_create(&self.dir, &config)?,
            true => {
                let mut run = RunDir::open(&self.dir)?;
                run.reconfigure(&config)?;
                run
            }
        };
        self.run_in(run, hooks)
    }

    /// [`run`](Self::run) in a directory that the caller holds.
    ///
    /// # Errors
    /// As [`train`].
    pub fn run_in(self, mut run: RunDir, hooks: &mut Hooks<'_>) -> Result<Trained> {
        let held = catch_unwind(AssertUnwindSafe(|| self.run_held(&mut run, hooks)));
        let held = match held {
            Ok(held) => held,
            // A panic leaves no more behind than an error does.
            Err(panic) => {
                run.remove_if_empty();
                resume_unwind(panic)
            }
        };
        match held {
            // There is nothing wrong with the run itself: it can go on.
            Err(error) if error.is_out_of_space() => Err(invalid!(
                "{error}; the last checkpoint is intact: make room, then resume with: offing train --resume {}",
                run.path().display()
            )),
            Err(error) => {
                run.remove_if_empty();
                Err(error)
            }
            done => done,
        }
    }

    fn run_held(self, run: &mut RunDir, hooks: &mut Hooks<'_>) -> Result<Trained> {
        let (physics, finished) = (self.physics()?, self.is_finished());
        let (mean_return, score) = behaviour_score(&self.data, physics);
        behaviour::write_data_card(run, &self.data, (mean_return, score))?;
        // The answer counts from the first step on.
        let _ = (hooks.on_event)(Event::Behaviour { mean_return, score });
        // Opening a finished run again makes nothing of it this program's work, and takes it no time.
        if !finished {
            Provenance::here(&hooks.program).sign(&self.dir)?;
        }
        let (done, timer, scores) =
            hooks.in_session(&self.data, physics, self.manifest.seed, run, |session| {
                let done = algorithms::train(self.configured.algorithm.as_ref(), session);
                Ok((done, session.timer.clone(), session.scores))
            })?;
        let policy = match done {
            Err(Error::Stopped) => None,
            other => other?,
        };
        let policy = policy.map(|policy| match &self.data.units {
            Some(units) => units.policy_outward(&policy),
            None => policy,
        });
        if !finished {
            run.save_timing(&timer)?;
        }
        Ok(Trained { finished: policy.is_some(), dir: self.dir, policy, scores, timer, data: self.data })
    }
}

/// The path of a run's data. A relative one counts from where the run was started; it is looked for in the directories above
/// the run, so that a run can be opened from elsewhere. Whether it is the same data is for their checksum to say.
fn data_near(dataset: &str, run: &Path) -> String {
    let path = Path::new(dataset);
    if path.is_absolute() || path.exists() {
        return dataset.into();
    }
    let run = run.canonicalize().unwrap_or_else(|_| run.to_path_buf());
    let mut places = run.ancestors().skip(1).map(|above| above.join(path));
    places.find(|place| place.is_file()).map_or(dataset.into(), |found| found.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
