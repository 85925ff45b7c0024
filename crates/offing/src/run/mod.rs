//! A run directory: the unit of work. Configuration, metrics, checkpoints; one process at a time; always resumable.
//!
//! ```text
//! config.toml            what was asked for, resolved; itself runnable
//! metrics.jsonl          one JSON object a line; no timer in it, so equal seeds give equal bytes
//! events.out.tfevents.*  the same for TensorBoard
//! checkpoints/           the last two, each with a checksum, written whole or not at all
//! timing.json            seconds by phase, over all processes that worked on it
//! ```
//!
//! ```
//! use offing::nn::Tensors;
//! use offing::run::RunDir;
//! let dir = tempfile::tempdir().unwrap();
//! let mut run = RunDir::open_or_create(dir.path(), "steps = 10\n").unwrap();
//! run.record(serde_json::json!({ "step": 5, "return": 1.5 })).unwrap();
//! let mut state = Tensors::default();
//! state.put_u64("counter", &[5]);
//! run.checkpoint(5, &state).unwrap();
//! drop(run);
//! let mut again = RunDir::open(dir.path()).unwrap();
//! let (step, state) = again.resume().unwrap().unwrap();
//! assert_eq!((step, state.u64("counter", 1).unwrap()[0]), (5, 5));
//! ```

mod checkpoints;
mod timer;
mod events;
mod metrics;
mod provenance;
#[cfg(test)]
mod tests;

pub use metrics::{Record, read_metrics};
pub use provenance::{Provenance, cores, cpu_name};
pub use timer::PhaseTimer;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, bad_file};
use crate::home::{refuse_link, write_atomic};
use crate::nn::Tensors;
use checkpoints::Checkpoints;
use events::Events;
use metrics::Metrics;

/// A run's configuration file.
pub const CONFIG: &str = "config.toml";
/// A run's metrics file.
pub const METRICS: &str = "metrics.jsonl";
/// A run's event file. TensorBoard takes every file with `tfevents` in its name.
pub const EVENTS: &str = "events.out.tfevents.offing";

/// Seconds by phase; it differs from run to run.
pub const TIMING: &str = "timing.json";

const CHECKPOINTS: &str = "checkpoints";

/// What an event handler answers: continue, or write a checkpoint at the next opportunity and stop.
pub use std::ops::ControlFlow;

/// A directory that this process works in. No other process can while it is held.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    metrics: Metrics,
    /// Opened with the first record, which may follow records of an earlier process.
    events: Option<Events>,
    checkpoints: Checkpoints,
    /// Warnings for the user: checkpoints that were refused.
    warnings: Vec<String>,
    /// Directories that were made for it, its own first; none when it was there before.
    made: Vec<PathBuf>,
    _lock: File,
}

impl RunDir {
    /// Locks the run at `path`, or creates it. An existing run must have the same configuration.
    pub fn open_or_create(path: &Path, config: &str) -> Result<Self> {
        Self::try_open_or_create(path, config)?.ok_or_else(|| held_by_another(path))
    }

    /// [`RunDir::open_or_create`]; `None` while another process works in it.
    pub fn try_open_or_create(path: &Path, config: &str) -> Result<Option<Self>> {
        let made = make_dir(path)?;
        let Some(lock) = lock(path)? else { return Ok(None) };
        let file = path.join(CONFIG);
        match fs::read_to_string(&file) {
            Ok(found) if found == config => {}
            Ok(found) => {
                return Err(bad_file!(
                    path,
                    "holds a run with another configuration ({}); give another directory, or remove this one",
                    first_difference(&found, config)
                ));
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                // Of a run that was moved away while it worked, say: nobody knows its settings.
                if let Some(step) = newest_step(path) {
                    return Err(bad_file!(
                        path,
                        "wanted a new directory or a whole run, found a checkpoint of step {step} and no {CONFIG}; give another \
                         directory, or remove this one"
                    ));
                }
                write_atomic(&file, |f| f.write_all(config.as_bytes()))?;
            }
            Err(e) => return Err(Error::io(&file, "read", e)),
        }
        let run = Self::held(path, lock)?;
        Ok(Some(Self { made, ..run }))
    }

    /// Locks the run at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.join(CONFIG).is_file() {
            return Err(bad_file!(
                path,
                "wanted a run directory with a {CONFIG}, found none; check the path"
            ));
        }
        let lock = lock(path)?.ok_or_else(|| held_by_another(path))?;
        Self::held(path, lock)
    }

    fn held(path: &Path, lock: File) -> Result<Self> {
        checkpoints::sweep(path)?;
        let metrics = path.join(METRICS);
        let lost = newest_step(path).filter(|_| !metrics.exists()).map(|step| {
            format!(
                "{}: is gone, and with it what was recorded until step {step}; a new one begins",
                metrics.display()
            )
        });
        Ok(Self {
            path: path.to_path_buf(),
            metrics: Metrics::open(&metrics)?,
            events: None,
            checkpoints: Checkpoints::open(&path.join(CHECKPOINTS))?,
            warnings: lost.into_iter().collect(),
            made: Vec::new(),
            _lock: lock,
        })
    }

    /// Removes the directory if this process created it and it holds neither a record nor a checkpoint. For a run that failed
    /// before it began.
    pub fn remove_if_empty(self) {
        // The lock is still held: nobody else can have begun to work in it.
        let empty = fs::metadata(self.path.join(METRICS)).is_ok_and(|file| file.len() == 0);
        let Some((own, above)) = self.made.split_first() else { return };
        if !empty || newest_step(&self.path).is_some() || fs::remove_dir_all(own).is_err() {
            return;
        }
        for dir in above {
            // One that holds other runs by now stays.
            if fs::remove_dir(dir).is_err() {
                break;
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts another configuration in the place of the old one, for changes that what was done so far does not depend on,
    /// such as more steps.
    pub fn reconfigure(&mut self, config: &str) -> Result<()> {
        self.write(CONFIG, config.as_bytes()).map(drop)
    }

    /// Appends one line to the metrics and one event for TensorBoard. `values` is an object with a `step`.
    pub fn record(&mut self, values: serde_json::Value) -> Result<()> {
        self.metrics.append(&values)?;
        match (&mut self.events, values.as_object()) {
            (Some(events), Some(record)) => events.append(record),
            _ => self.rewrite_events(),
        }
    }

    fn rewrite_events(&mut self) -> Result<()> {
        self.events = Some(Events::rewrite(&self.path.join(EVENTS), &self.records()?)?);
        Ok(())
    }

    /// Everything recorded so far.
    pub fn records(&self) -> Result<Vec<Record>> {
        read_metrics(&self.path.join(METRICS))
    }

    /// Saves the state after `step` steps, after the metrics recorded before it. The last two checkpoints stay.
    pub fn checkpoint(&mut self, step: u64, state: &Tensors) -> Result<()> {
        self.metrics.sync()?;
        self.checkpoints.save(step, state)
    }

    /// The newest state that is whole, or none. Metrics recorded after it are removed, since they will come again.
    pub fn resume(&mut self) -> Result<Option<(u64, Tensors)>> {
        let (found, refused) = self.checkpoints.newest()?;
        self.warnings.extend(refused);
        self.metrics.keep_until(found.as_ref().map(|(step, _)| *step))?;
        self.rewrite_events()?;
        Ok(found)
    }

    /// Takes the warnings for the user: damaged checkpoints that were skipped, metrics that are gone.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Saves how long the run has taken so far, for reports and for the next process.
    pub fn save_timing(&self, timer: &PhaseTimer) -> Result<()> {
        self.write(TIMING, format!("{:#}\n", timer.to_json()).as_bytes()).map(drop)
    }

    /// Writes a file of the run, whole or not at all.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        let path = self.path.join(name);
        write_atomic(&path, |f| f.write_all(content))?;
        Ok(path)
    }
}

/// The step of the newest checkpoint of the run at `path`, without its lock; none when there is none.
pub fn newest_step(path: &Path) -> Option<u64> {
    checkpoints::steps_in(&path.join(CHECKPOINTS)).pop()
}

/// Whether another process is working in the run at `path` at this moment.
pub fn is_held(path: &Path) -> bool {
    // Opened for writing, as some network file systems lock only such files.
    File::options()
        .write(true)
        .open(path.join(".lock"))
        .is_ok_and(|file| matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

fn held_by_another(path: &Path) -> Error {
    Error::file(
        path,
        "another process is working in this run directory; wait for it, stop it, or give another directory",
    )
}

/// Makes a directory and what is missing above it. Returns what it made, the directory first; nothing when that was there.
fn make_dir(path: &Path) -> Result<Vec<PathBuf>> {
    let fail = |e: std::io::Error| Error::io(path, "create the run directory", e);
    let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let above: Vec<PathBuf> = path.ancestors().skip(1).take_while(missing).map(Path::to_path_buf).collect();
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(fail)?;
    }
    match fs::create_dir(path) {
        Ok(()) => Ok(std::iter::once(path.to_path_buf()).chain(above).collect()),
        Err(_) if path.is_dir() => Ok(Vec::new()),
        Err(e) => Err(fail(e)),
    }
}

/// Locks a directory; `None` when another process has the lock.
fn lock(path: &Path) -> Result<Option<File>> {
    let name = path.join(".lock");
    refuse_link(&name)?;
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(&name)
        .map_err(|e| Error::io(&name, "create the lock file", e))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(e)) => Err(Error::io(&name, "take the lock", e)),
    }
}

/// The first line in which two configurations differ, for a message.
fn first_difference(found: &str, wanted: &str) -> String {
    let mut lines = found.lines().zip(wanted.lines());
    match lines.find(|(a, b)| a != b) {
        Some((a, b)) => format!("`{}` there, `{}` asked for", a.trim(), b.trim()),
        None => "one has more lines than the other".into(),
    }
}
