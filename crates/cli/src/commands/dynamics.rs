//! `offing dynamics`: how good is the learnt model of the world, next to a straight line and to the simulator.

use std::path::PathBuf;

use anyhow::Result;
use indicatif::ProgressBar;
use offing::dynamics::FitEvent;
use offing_experiments::Runtime;
use offing_experiments::dynamics::{DynamicsRequest, SimulatorComparison};
use offing_experiments::format::number;

use super::data::Reading;
use crate::args::JsonFile;
use crate::exit::ExitCode;
use crate::term;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    request: DynamicsRequest,
    #[command(flatten)]
    json: JsonFile,
    /// Also write tables and plots as one HTML page.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    comparison: SimulatorComparison,
}

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    let reading = args.reading.options()?;
    let bar = term::bar(term::EPOCH_BAR, 1, runtime.quiet);
    let mut on_fit = |event: FitEvent<'_>| show(runtime, &bar, &event);
    let report = args.request.run(runtime, reading, &args.comparison, &mut on_fit);
    bar.finish_and_clear();
    let report = report?;
    for (before, table, after) in report.tables() {
        before.iter().for_each(|line| out!("{line}"));
        term::print_table(&table);
        after.iter().for_each(|line| out!("{line}"));
    }
    args.json.write(|| report.json())?;
    if let Some(path) = &args.report {
        report.document()?.write_html(path)?;
        out!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The fit in the terminal: a bar, and a line for each epoch.
fn show(runtime: &Runtime, bar: &ProgressBar, event: &FitEvent<'_>) {
    match event {
        FitEvent::Note(line) => bar.suspend(|| runtime.say(line)),
        FitEvent::Step(now) => {
            if now.epoch_ended {
                let errors: Vec<String> = now.holdout.iter().map(|e| number(*e)).collect();
                let (epoch, loss, errors) = (now.epoch, number(now.loss), errors.join(" "));
                bar.suspend(|| runtime.say(&format!("epoch {epoch}: loss {loss}, hold-out MSE {errors}")));
            }
            bar.set_length(now.updates_per_epoch);
            bar.set_position(now.updates % now.updates_per_epoch.max(1));
            bar.set_message(format!("epoch {}", now.epoch + 1));
        }
    }
}
