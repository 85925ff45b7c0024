//! `offing completions`: what a shell needs to complete commands, options and their values.

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
    // Written whole, by the way that minds no closed pipe.
    out!("{}", String::from_utf8_lossy(&script).trim_end());
    Ok(ExitCode::SUCCESS)
}
