//! `offing.train`: the library's front door with Python functions behind its hooks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use offing::algorithms::Event;
use offing::data::resolve::DataEvent;
use offing::eval::Evaluation;
use offing::run::ControlFlow;
use offing::sac::Actor;
use offing::train::{PreparedRun, RunConfig, prepare};
use offing::units::ActionRange;
use offing_experiments::report::write_run_page;
use pyo3::prelude::*;

use crate::bridge::{Bridge, beside};
use crate::columns::PyData;
use crate::errors::of_library;
use crate::estimator::{PyParts, SharedUnits, custom_estimator};
use crate::policy::Policy;

/// How often progress is shown.
const REFRESH: Duration = Duration::from_millis(200);

/// What a training is asked for.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PyRequest<'py> {
    algorithm: String,
    data: PyData<'py>,
    dir: Option<PathBuf>,
    base_dir: PathBuf,
    seed: u64,
    profile: Option<String>,
    preset: Option<String>,
    rows: Option<usize>,
    settings: Vec<String>,
    threads: Option<usize>,
    /// Name and wrapped object.
    estimator: Option<(String, Py<PyAny>)>,
    parts: PyParts,
    /// Whether `host` scores policies itself.
    evaluates: bool,
    /// Steps between two calls of `host.policy`.
    watch_every: Option<u64>,
    /// Whether `host.progress` wants to be called.
    progress: bool,
}

/// Trains; the run directory. `host` is told what happens: `offing.training.Host` says by which methods.
#[pyfunction]
pub(crate) fn train(py: Python<'_>, request: PyRequest<'_>, host: Py<PyAny>) -> PyResult<PathBuf> {
    let PyRequest { algorithm, data, profile, preset, rows, settings, threads, .. } = request;
    let data = data.source()?;
    let mut config =
        RunConfig { profile, preset, rows, overrides: settings, ..RunConfig::new(algorithm, data) };
    (config.seed, config.dir, config.base_dir) = (Some(request.seed), request.dir, request.base_dir);
    let (estimator, parts, evaluates) = (request.estimator, request.parts, request.evaluates);
    let (watch_every, shows_progress) = (request.watch_every, request.progress);
    let has_functions = estimator.is_some() || !parts.is_empty();
    let host = Arc::new(host);
    beside(py, threads, move |runtime, bridge| {
        let units = SharedUnits::default();
        let mut hooks = runtime.hooks();
        let mut watcher =
            Watcher { bridge: bridge.clone(), host: host.clone(), shows_progress, shown: Instant::now() };
        hooks.on_event = Box::new(move |event| watcher.see(&event));
        hooks.parts = parts.connect(bridge);
        hooks.watch_every = watch_every;
        if let Some((name, object)) = estimator {
            config = config.set(format!("uncertainty={{kind=\"custom\",name={name:?}}}"));
            hooks.estimators.push(custom_estimator(bridge, &Arc::new(object), &name, &units));
        }
        if evaluates {
            let (bridge, host) = (bridge.clone(), host.clone());
            hooks.own_evaluation = Some(Box::new(move |actor, episodes, seed| {
                own_evaluation(&bridge, &host, actor, episodes, seed)
            }));
        }
        let mut prepared = prepare(&config, &mut hooks)?;
        // Nobody else sets it.
        let _ = units.set(prepared.data.units.clone());
        if config.dir.is_none() && has_functions {
            new_dir(&mut prepared);
        }
        announce(bridge, &host, &prepared)?;
        if bridge.stops() {
            return Ok(None);
        }
        let trained = prepared.run(&mut hooks)?;
        if trained.finished {
            write_run_page(&trained.dir)?;
        }
        Ok(trained.finished.then_some(trained.dir))
    })
}

/// A finished run in the directory of the same settings is the same run, unless Python functions took part: nobody can tell
/// whether they are the same. Then the next free directory is taken.
fn new_dir(prepared: &mut PreparedRun) {
    let first = prepared.dir.clone();
    for number in 2.. {
        if !prepared.is_finished() {
            return;
        }
        prepared.dir = first.with_file_name(format!(
            "{}-{number}",
            first.file_name().map_or_else(Default::default, |name| name.to_string_lossy())
        ));
    }
}

/// Tells Python what the training will be, before it begins: widths, logged actions, where it goes.
fn announce(bridge: &Bridge, host: &Arc<Py<PyAny>>, prepared: &PreparedRun) -> anyhow::Result<()> {
    let (rows, host) = (&prepared.data.rows, host.clone());
    let mut act = rows.act.clone();
    if let Some(range) = prepared.data.units.as_ref().and_then(|units| units.act.as_ref()) {
        range.outward(act.view_mut());
    }
    let ActionRange { low, high } = ActionRange::of(&act);
    let (widths, dir) = ((rows.obs_dim(), rows.act_dim()), prepared.dir.clone());
    let steps = prepared.train_config().steps;
    let told = bridge.call(move |py| {
        host.bind(py).call_method1("begin", (dir, steps, widths.0, widths.1, low, high)).map(drop)
    });
    anyhow::ensure!(told.is_some(), "the training was refused");
    Ok(())
}

fn native(actor: &Actor) -> offing::Result<Policy> {
    Policy::read(actor.to_policy().to_bytes()?, "policy".as_ref())
}

fn own_evaluation(
    bridge: &Bridge,
    host: &Arc<Py<PyAny>>,
    actor: &Actor,
    episodes: usize,
    seed: u64,
) -> offing::Result<Evaluation> {
    let (policy, inner, host) = (native(actor)?, bridge.clone(), host.clone());
    let played = bridge.call(move |py| {
        let policy = Bound::new(py, policy)?;
        let play = || host.bind(py).call_method1("evaluate", (&policy, episodes, seed));
        inner.pure(py, play)?.extract::<(Vec<f64>, Vec<usize>)>()
    });
    let failed = || offing::Error::Invalid("the environment raised an exception".into());
    let (returns, lengths) = played.ok_or_else(failed)?;
    Ok(Evaluation { returns, lengths })
}

/// Carries events to Python.
struct Watcher {
    bridge: Bridge,
    host: Arc<Py<PyAny>>,
    shows_progress: bool,
    shown: Instant,
}

impl Watcher {
    fn see(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Note(line) | Event::Data(DataEvent::Note(line)) => match line.strip_prefix("warning: ") {
                Some(line) => self.tell("warn", line.to_string()),
                None => self.tell("note", line.clone()),
            },
            Event::Warning(line) => self.tell("warn", line.clone()),
            Event::Data(DataEvent::Generated { name, rows, total }) => {
                self.progress(name, *rows as u64, *total as u64, None);
            }
            Event::Fit(progress) => self.progress("dynamics model", progress.updates, 0, None),
            Event::Step(status) => {
                let last = status.scores.last;
                self.progress("training", status.step, status.steps, last);
            }
            Event::Recorded(line) => {
                self.tell("recorded", serde_json::Value::from((*line).clone()).to_string())
            }
            Event::Policy(step, actor) => self.policy(*step, actor),
            Event::Behaviour { .. } => {}
        }
        if self.bridge.stops() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn tell(&self, method: &'static str, line: String) {
        let host = self.host.clone();
        self.bridge.call(move |py| host.bind(py).call_method1(method, (line,)).map(drop));
    }

    fn progress(&mut self, what: &str, done: u64, total: u64, last: Option<f64>) {
        if !self.shows_progress || (self.shown.elapsed() < REFRESH && done != total) {
            return;
        }
        self.shown = Instant::now();
        let (host, what) = (self.host.clone(), what.to_string());
        self.bridge
            .call(move |py| host.bind(py).call_method1("progress", (what, done, total, last)).map(drop));
    }

    fn policy(&self, step: u64, actor: &Actor) {
        let (host, policy) = (self.host.clone(), native(actor));
        self.bridge.call(move |py| {
            let policy = policy.map_err(of_library)?;
            host.bind(py).call_method1("policy", (step, Bound::new(py, policy)?)).map(drop)
        });
    }
}
