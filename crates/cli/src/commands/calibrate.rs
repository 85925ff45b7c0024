//! `offing calibrate`: which estimator knows where the model is wrong, on any dataset.

use std::path::PathBuf;

use anyhow::Result;
use offing_experiments::Runtime;
use offing_experiments::calibrate::CalibrationRequest;
use offing_experiments::files::write_text;

use crate::args::JsonFile;
use crate::exit::ExitCode;
use crate::term;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    request: CalibrationRequest,
    #[command(flatten)]
    json: JsonFile,
    /// Also write the results as CSV.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write a page with tables and figures.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    let Some(summary) = args.request.run(runtime)? else {
        runtime.say("stopped; the same command resumes from here");
        return Ok(ExitCode::STOPPED);
    };
    out!("{}", summary.dataset);
    summary.row_counts().iter().for_each(|line| out!("{line}"));
    summary.tables().iter().for_each(|(_, table)| term::print_table(table));
    out!("{}", summary.recommendation());
    let json = summary.json()?;
    args.json.write(|| json)?;
    if let Some(path) = &args.csv {
        write_text(path, &summary.csv())?;
    }
    if let Some(path) = &args.report {
        summary.document().write_html(path)?;
        out!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
