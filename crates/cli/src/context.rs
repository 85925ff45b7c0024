//! The surroundings of every command, from the environment. The only place that reads environment variables.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::Result;
use offing::data::catalogue::Catalogue;
use offing::home::Home;
use offing_experiments::Runtime;

use crate::{progress, signals, term};

static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says how the command line is started where it is not a program of its own; the first call counts.
pub(crate) fn set_program(words: Vec<OsString>) {
    let _ = PROGRAM.set(words);
}

/// Directories, the simulator once it is needed, and the terminal.
pub(crate) fn runtime(quiet: bool, threads: Option<usize>) -> Result<Runtime> {
    let path = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let user = dirs::home_dir().unwrap_or_else(|| ".".into());
    let catalogue = Catalogue {
        home: Home::locate(path("OFFING_HOME"))?,
        d4rl: path("D4RL_DATASET_DIR").unwrap_or_else(|| user.join(".d4rl/datasets")),
        minari: path("MINARI_DATASETS_PATH").unwrap_or_else(|| user.join(".minari/datasets")),
    };
    Ok(Runtime {
        threads,
        program: PROGRAM.get().cloned().unwrap_or_default(),
        quiet,
        show_line: term::step,
        view: |quiet| progress::view(quiet, false),
        before_training: signals::listen,
        stop_requested: signals::asked_to_stop,
        ..Runtime::new(catalogue, path("MUJOCO_LIB"))
    })
}
