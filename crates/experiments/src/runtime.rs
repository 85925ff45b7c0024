//! What an experiment needs from whoever starts it: where things are, the simulator, who listens, when to stop.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use offing::algorithms::{Event, TrainConfig};
use offing::data::catalogue::{Catalogue, Origin};
use offing::data::{Dataset, ReadOptions};
use offing::env::{EnvPool, Physics, Simulators};
use offing::home::Home;
use offing::run::{ControlFlow, RunDir, is_held};
use offing::train::Hooks;
use offing_mujoco::Mujoco;

use crate::provenance::version;

/// Shows what happens in one training, until it is dropped.
pub type EventView = Box<dyn FnMut(&Event<'_>)>;

/// A break where `stop` says so.
pub(crate) fn break_if(stop: bool) -> ControlFlow<()> {
    if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// The surroundings of an experiment. The command line makes one from the environment.
pub struct Runtime {
    /// Where datasets, models and indexes are.
    pub catalogue: Catalogue,
    /// The simulators.
    pub mujoco: Mujoco,
    /// Threads that were asked for, where they were.
    pub threads: Option<usize>,
    /// The words that start this program again, for grids that start one process a cell; its own file where there are none.
    pub program: Vec<OsString>,
    /// Whether to show no progress.
    pub quiet: bool,
    /// Shows one line about what is going on, unless it is to be quiet.
    pub show_line: fn(&str),
    /// Makes a view of one training; the argument says whether it is to be quiet.
    pub view: fn(bool) -> EventView,
    /// Called before a training starts: from then on a request to stop is answered by saving and stopping.
    pub before_training: fn(),
    /// Whether the user asked to stop.
    pub stop_requested: fn() -> bool,
}

impl Runtime {
    /// A silent one that is never asked to stop. `mujoco_lib` is the engine's library, where a user names one.
    pub fn new(catalogue: Catalogue, mujoco_lib: Option<PathBuf>) -> Self {
        Self {
            mujoco: Mujoco::new(catalogue.home.clone(), mujoco_lib),
            catalogue,
            threads: None,
            program: Vec::new(),
            quiet: true,
            show_line: |_| (),
            view: |_| Box::new(|_| ()),
            before_training: || (),
            stop_requested: || false,
        }
    }

    /// Where models and indexes are kept.
    pub fn home(&self) -> &Home {
        &self.catalogue.home
    }

    /// Shows one line about what is going on, unless it is to be quiet.
    pub fn say(&self, line: &str) {
        if !self.quiet {
            (self.show_line)(line);
        }
    }

    /// Whether to continue.
    pub fn control_flow(&self) -> ControlFlow<()> {
        break_if((self.stop_requested)())
    }

    /// What surrounds a training: the simulators, a view of its progress, a stop on request.
    pub fn hooks(&self) -> Hooks<'_> {
        self.hooks_with((self.view)(self.quiet))
    }

    /// [`hooks`](Self::hooks) with another view.
    pub fn hooks_with(&self, mut view: EventView) -> Hooks<'_> {
        let hooks = Hooks::new(self.home().root()).with_simulators(&self.mujoco).with_events(move |event| {
            view(&event);
            self.control_flow()
        });
        Hooks { catalogue: self.catalogue.clone(), program: version(), ..hooks }
    }

    /// The dataset of that name as the `train` settings want it.
    ///
    /// # Errors
    /// An unknown name, or a file that cannot be read.
    pub fn load_data(&self, name: &str, rows: Option<usize>, config: &TrainConfig) -> Result<Dataset> {
        Ok(self.hooks().load(name, rows, config)?)
    }

    /// The dataset of that name as it is.
    ///
    /// # Errors
    /// An unknown name, or a file that cannot be read.
    pub fn read_data(&self, name: &str, options: ReadOptions) -> Result<(Dataset, Origin)> {
        Ok(self.hooks().resolver(|resolver| resolver.read_with_notes(name, options))?)
    }

    /// Simulators of a task.
    ///
    /// # Errors
    /// An unknown task, or something that is not there and cannot be fetched.
    pub fn envs(&self, task: &str, physics: Physics) -> Result<EnvPool<'_>> {
        self.mujoco.prepare(task, &mut |line| self.say(line))?;
        Ok(EnvPool::of_task(&self.mujoco, task, physics))
    }

    /// Opens a run directory as soon as no other process works in it; `None` when asked to stop meanwhile.
    pub(crate) fn open_when_free(&self, dir: &Path, config: &str) -> Result<Option<RunDir>> {
        let mut said = false;
        loop {
            if let Some(run) = RunDir::try_open_or_create(dir, config)? {
                return Ok(Some(run));
            }
            // Another's glance at the lock takes it for a moment: that is no reason to speak.
            if !said && is_held(dir) {
                self.say(&format!("{}: another process is working there; waiting for it", dir.display()));
                said = true;
            }
            if (self.stop_requested)() {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// This program, ready for arguments.
    ///
    /// # Errors
    /// Its own file cannot be found.
    pub fn command(&self) -> Result<Command> {
        let Some((program, args)) = self.program.split_first() else {
            return Ok(Command::new(std::env::current_exe().context("cannot find this program's own file")?));
        };
        let mut command = Command::new(program);
        command.args(args);
        Ok(command)
    }

    /// Where things are, as environment variables for another process.
    pub(crate) fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        let here = std::env::current_dir().unwrap_or_default();
        let mut variables = vec![
            ("OFFING_HOME", here.join(self.home().root())),
            ("D4RL_DATASET_DIR", here.join(&self.catalogue.d4rl)),
            ("MINARI_DATASETS_PATH", here.join(&self.catalogue.minari)),
        ];
        variables.extend(self.mujoco.library().map(|path| ("MUJOCO_LIB", here.join(path))));
        variables
    }
}
