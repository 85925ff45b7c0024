//! The program as the tests of the command line start it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// One home for all tests and runs, so that the simulator is fetched once.
pub(crate) fn home() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("home")
}

/// The program with these arguments, away from the user's own data and engine.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offing"));
    command
        .args(args)
        .env("OFFING_HOME", home())
        .env("D4RL_DATASET_DIR", home().join("d4rl"))
        .env("MINARI_DATASETS_PATH", home().join("minari"))
        .env_remove("MUJOCO_LIB");
    command
}
