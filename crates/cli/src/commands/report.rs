//! `offing report`: runs on one page.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use offing_experiments::Runtime;
use offing_experiments::report::{CAVEAT, RunReport};

use crate::exit::ExitCode;
use crate::term;

/// Between two looks at runs that go on.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run directories, or directories with runs somewhere inside.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Where to write the page.
    #[arg(long, default_value = "report.html")]
    out: PathBuf,
    /// Write the page again every few seconds until all runs are finished; an open page reloads itself.
    #[arg(long)]
    watch: bool,
    /// Leave out the policy in motion: no simulator, no model.
    #[arg(long)]
    no_replay: bool,
}

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    if args.watch {
        watch(runtime, args)?;
    }
    let mut report = RunReport::find(&args.runs)?;
    if !args.no_replay {
        report.add_replay(runtime);
    }
    report.document().write_html(&args.out)?;
    term::print_table(&report.table());
    if let Some(terms) = report.theory_table() {
        term::print_text_table(&terms);
        out!("{CAVEAT}");
    }
    out!("{}", args.out.display());
    Ok(ExitCode::SUCCESS)
}

/// Keeps the page current until all runs are finished. Ctrl-C ends it at once: the last page is whole.
fn watch(runtime: &Runtime, args: &Args) -> Result<()> {
    let mut said = false;
    loop {
        let report = RunReport::find(&args.runs)?;
        if report.is_finished() {
            return Ok(());
        }
        let mut page = report.document();
        page.refresh = Some(PAUSE.as_secs());
        page.write_html(&args.out)?;
        if !said {
            runtime.say(&format!(
                "{}: open it; it follows the runs until they are finished",
                args.out.display()
            ));
            said = true;
        }
        std::thread::sleep(PAUSE);
    }
}
