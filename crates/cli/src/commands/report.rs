//! `offing report`: runs on one page.

use std::path::PathBuf;

use anyhow::Result;
use offing_experiments::report::{CAVEAT, RunReport};

use crate::exit::ExitCode;
use crate::term;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run directories, or directories with runs somewhere inside.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Where to write the page.
    #[arg(long, default_value = "report.html")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let report = RunReport::find(&args.runs)?;
    report.document().write_html(&args.out)?;
    term::print_table(&report.table());
    if let Some(terms) = report.theory_table() {
        term::print_text_table(&terms);
        out!("{CAVEAT}");
    }
    out!("{}", args.out.display());
    Ok(ExitCode::SUCCESS)
}
