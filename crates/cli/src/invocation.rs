//! How this program is started again, for commands that start others of its kind.

use std::ffi::OsString;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};

static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says how the command line is reached where it is not a program of its own; the first to say so is believed.
pub(crate) fn is(words: Vec<OsString>) {
    let _ = WORDS.set(words);
}

/// The command line, ready for arguments.
pub(crate) fn command() -> Result<Command> {
    let Some((program, args)) = WORDS.get().and_then(|words| words.split_first()) else {
        return Ok(Command::new(std::env::current_exe().context("cannot find this program's own file")?));
    };
    let mut command = Command::new(program);
    command.args(args);
    Ok(command)
}
