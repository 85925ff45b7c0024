//! The command line and datasets, from Python.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use numpy::IntoPyArray;
use offing_cli::Failure;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::of_command;
use crate::index::width;

/// How soon Ctrl-C is noticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// The stack of the thread that runs a command: what a program's first thread gets.
const STACK: usize = 8 << 20;

/// Runs `work` on threads of its own, so that nothing is left of a parent process's threads after a fork, and listens to
/// Ctrl-C meanwhile: a training saves a checkpoint and stops.
fn beside<T: Send + 'static>(
    py: Python<'_>,
    threads: Option<usize>,
    work: impl FnOnce() -> T + Send + 'static,
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
            // Nobody waits any more when the receiver is gone: the interpreter is going down.
            let _ = send.send(pool.install(work));
        })
        .map_err(|e| fault(&e))?;
    let mut asked = false;
    loop {
        let answer = py.detach(|| {
            // A receiver may go to another thread, but not be shared by two.
            let receive = &mut receive;
            receive.recv_timeout(PATIENCE)
        });
        match answer {
            Ok(_) if asked => {
                return Err(PyKeyboardInterrupt::new_err("stopped; the same call goes on from here"));
            }
            Ok(done) => return Ok(done),
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

/// Runs a command inside the interpreter: errors are raised, Ctrl-C makes it save and stop.
#[pyfunction]
pub(crate) fn run(py: Python<'_>, args: Vec<String>, mute: bool, threads: Option<usize>) -> PyResult<u8> {
    let args = std::iter::once("offing".to_string()).chain(args);
    match beside(py, threads, move || offing_cli::run_embedded(args, mute))? {
        Ok(code) if code.0 == 130 => {
            Err(PyKeyboardInterrupt::new_err("stopped; the same call goes on from here"))
        }
        Ok(code) => Ok(code.0),
        Err(Failure::Usage(answer)) => Err(PyValueError::new_err(first_line(&answer.to_string()))),
        Err(Failure::Failed(error)) => Err(of_command(&error)),
    }
}

/// What is wrong with a command line; usage and hints about flags say nothing to a caller from Python.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string()
}

/// A dataset's columns as arrays; `name` is a path, a D4RL or Minari id, or the name of a made set.
#[pyfunction]
pub(crate) fn load_dataset<'py>(py: Python<'py>, name: String) -> PyResult<Bound<'py, PyDict>> {
    let data = beside(py, None, move || offing_cli::load_dataset(&name))?.map_err(|e| of_command(&e))?;
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

/// Makes a set in the simulator, or finds it made; its path.
#[pyfunction]
pub(crate) fn make_dataset(
    py: Python<'_>,
    name: String,
    rows: usize,
    seed: u64,
    physics: String,
    threads: Option<usize>,
) -> PyResult<PathBuf> {
    beside(py, threads, move || offing_cli::make_dataset(&name, rows, seed, &physics))?
        .map_err(|e| of_command(&e))
}
