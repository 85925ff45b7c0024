//! Training, studies and datasets from Python: the library's front door with arrays on the Python side.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use numpy::{IntoPyArray, PyReadonlyArray1, PyReadonlyArray2};
use offing::data::{Dataset, Format, LogColumns, ReadOptions, write};
use offing::env::{GenerateOptions, Physics};
use offing::train::{DataSource, RunConfig, train as run_training};
use offing_experiments::Runtime;
use offing_experiments::arguments::ColumnsFile;
use offing_experiments::calibrate::CalibrationRequest;
use offing_experiments::report::write_run_page;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{of_command, of_library};
use crate::index::width;

/// How soon Ctrl-C is noticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// The stack of the thread that does the work: what a program's first thread gets.
const STACK: usize = 8 << 20;

/// Runs `work` on threads of its own, so that nothing is left of a parent process's threads after a fork, and listens to
/// Ctrl-C meanwhile: a training saves a checkpoint and stops, and `work` answers `None`.
fn beside<T: Send + 'static>(
    py: Python<'_>,
    threads: Option<usize>,
    quiet: bool,
    work: impl FnOnce(&Runtime) -> anyhow::Result<Option<T>> + Send + 'static,
) -> PyResult<T> {
    let fault = |e: &dyn std::fmt::Display| PyRuntimeError::new_err(format!("cannot start threads: {e}"));
    let mut pool = rayon::ThreadPoolBuilder::new().stack_size(STACK);
    if let Some(count) = width(threads)? {
        pool = pool.num_threads(count);
    }
    let pool = pool.build().map_err(|e| fault(&e))?;
    let (send, mut receive) = sync_channel(1);
    std::thread::Builder::new()
        .spawn(move || {
            let done = pool
                .install(|| offing_cli::embedded_runtime(quiet, threads).and_then(|runtime| work(&runtime)));
            // Nobody waits any more when the receiver is gone: the interpreter is going down.
            let _ = send.send(done);
        })
        .map_err(|e| fault(&e))?;
    let stopped = || PyKeyboardInterrupt::new_err("stopped; the same call goes on from here");
    let mut asked = false;
    loop {
        let answer = py.detach(|| {
            // A receiver may go to another thread, but not be shared by two.
            let receive = &mut receive;
            receive.recv_timeout(PATIENCE)
        });
        match answer {
            Ok(_) if asked => return Err(stopped()),
            Ok(done) => return done.map_err(|e| of_command(&e))?.ok_or_else(stopped),
            Err(RecvTimeoutError::Timeout) => {
                if py.check_signals().is_err() {
                    asked = true;
                    offing_cli::ask_to_stop();
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(
                    "a defect of offing ended the call; its message is above",
                ));
            }
        }
    }
}

/// Runs the command line `offing ARGS…` as the program would and returns its exit code.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, args: Vec<String>) -> u8 {
    py.detach(|| offing_cli::run(std::iter::once("offing".to_string()).chain(args)).0)
}

/// A dataset as Python gives it: a name, or a name and its columns.
#[derive(FromPyObject)]
pub(crate) enum PyData<'py> {
    Named(String),
    Columns(PyColumns<'py>),
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PyColumns<'py> {
    name: String,
    observations: PyReadonlyArray2<'py, f32>,
    actions: PyReadonlyArray2<'py, f32>,
    rewards: PyReadonlyArray1<'py, f32>,
    next_observations: Option<PyReadonlyArray2<'py, f32>>,
    terminals: PyReadonlyArray1<'py, bool>,
    timeouts: PyReadonlyArray1<'py, bool>,
}

impl PyColumns<'_> {
    /// The rows as they are now; later edits of the arrays change nothing.
    fn dataset(&self) -> PyResult<Dataset> {
        let columns = LogColumns {
            obs: self.observations.as_array().to_owned(),
            act: self.actions.as_array().to_owned(),
            rew: self.rewards.as_array().to_owned(),
            next_obs: self.next_observations.as_ref().map(|next| next.as_array().to_owned()),
            done: self.terminals.as_array().to_owned(),
            timeout: Some(self.timeouts.as_array().to_owned()),
        };
        Dataset::from_columns(&self.name, columns).map_err(of_library)
    }
}

/// Trains; the run directory.
#[pyfunction]
#[pyo3(signature = (algorithm, data, *, dir, seed, profile, preset, rows, settings, threads, quiet))]
#[expect(clippy::too_many_arguments, reason = "Python calls it by name")]
pub(crate) fn train(
    py: Python<'_>,
    algorithm: String,
    data: PyData<'_>,
    dir: PathBuf,
    seed: u64,
    profile: Option<String>,
    preset: Option<String>,
    rows: Option<usize>,
    settings: Vec<String>,
    threads: Option<usize>,
    quiet: bool,
) -> PyResult<PathBuf> {
    let data: DataSource = match data {
        PyData::Named(name) => name.into(),
        PyData::Columns(columns) => columns.dataset()?.into(),
    };
    let config = RunConfig { profile, preset, rows, overrides: settings, ..RunConfig::new(algorithm, data) };
    let config = config.seed(seed).dir(dir);
    beside(py, threads, quiet, move |runtime| {
        let trained = run_training(&config, &mut runtime.hooks())?;
        if trained.finished {
            write_run_page(&trained.dir)?;
        }
        Ok(trained.finished.then_some(trained.dir))
    })
}

/// Studies estimators; what `offing calibrate --json` writes.
#[pyfunction]
#[pyo3(signature = (dataset, *, estimators, seeds, profile, rows, dir, settings, threads, quiet))]
#[expect(clippy::too_many_arguments, reason = "Python calls it by name")]
pub(crate) fn calibrate(
    py: Python<'_>,
    dataset: String,
    estimators: Vec<String>,
    seeds: usize,
    profile: Option<String>,
    rows: Option<usize>,
    dir: PathBuf,
    settings: Vec<String>,
    threads: Option<usize>,
    quiet: bool,
) -> PyResult<String> {
    let physics = Physics::default();
    let request = CalibrationRequest {
        dataset,
        estimators,
        seeds,
        profile,
        rows,
        set: settings,
        physics,
        dir,
        columns: ColumnsFile::default(),
    };
    beside(py, threads, quiet, move |runtime| {
        let summary = request.run(runtime)?;
        Ok(summary.map(|summary| summary.json()).transpose()?.map(|json| json.to_string()))
    })
}

/// A dataset's columns as arrays; `name` is a path, a D4RL or Minari id, or the name of a generated dataset.
#[pyfunction]
pub(crate) fn load_dataset<'py>(py: Python<'py>, name: String) -> PyResult<Bound<'py, PyDict>> {
    let data =
        beside(py, None, true, move |runtime| Ok(Some(runtime.read_data(&name, ReadOptions::default())?.0)))?;
    let starts: Vec<u64> = data.episodes.iter().map(|e| e.start as u64).collect();
    let out = PyDict::new(py);
    out.set_item("name", data.name)?;
    out.set_item("observations", data.rows.obs.into_pyarray(py))?;
    out.set_item("actions", data.rows.act.into_pyarray(py))?;
    out.set_item("rewards", data.rows.rew.into_pyarray(py))?;
    out.set_item("next_observations", data.rows.next_obs.into_pyarray(py))?;
    out.set_item("terminals", data.rows.done.into_pyarray(py))?;
    out.set_item("timeouts", data.timeout.into_pyarray(py))?;
    out.set_item("episode_starts", starts.into_pyarray(py))?;
    Ok(out)
}

/// Writes columns as a dataset of the named format.
#[pyfunction]
pub(crate) fn write_dataset(columns: PyColumns<'_>, path: PathBuf, format: &str) -> PyResult<()> {
    write(&columns.dataset()?, &path, Format::named(format).map_err(of_library)?).map_err(of_library)
}

/// Generates a dataset in the simulator, or finds it; its path.
#[pyfunction]
pub(crate) fn make_dataset(
    py: Python<'_>,
    name: String,
    rows: usize,
    seed: u64,
    physics: &str,
    threads: Option<usize>,
) -> PyResult<PathBuf> {
    let physics = physics.parse().map_err(of_library)?;
    let options = GenerateOptions { rows, seed, physics, ..GenerateOptions::default() };
    beside(py, threads, true, move |runtime| {
        Ok(Some(runtime.hooks().resolver(|resolver| resolver.generate(&name, &options))?))
    })
}
