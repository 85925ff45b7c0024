//! `offing completions`: what a shell needs to complete commands, options and their values.

use std::io::{ErrorKind, Write};

use anyhow::Result;
use clap_complete::{Shell, generate};

use crate::exit::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell to write them for.
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut script = Vec::new();
    generate(args.shell, &mut crate::command(), "offing", &mut script);
    // A script goes out as it is: nothing in it is escaped or wrapped.
    match std::io::stdout().write_all(&script) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
