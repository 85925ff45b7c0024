//! `offing dynamics`: how good is the learnt model of the world, next to a straight line and to the simulator.

use std::path::PathBuf;

use anyhow::Result;
use offing::dynamics::FitEvent;
use offing_experiments::Runtime;
use offing_experiments::dynamics::{DynamicsRequest, SimulatorComparison};
use offing_experiments::format::number;

use super::data::Reading;
use crate::args::JsonFile;
use crate::exit::ExitCode;
use crate::live::{LiveLine, Unit};
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
    let line = LiveLine::new("model", Unit::Count("updates"), None, runtime.quiet);
    let mut on_fit = |event: FitEvent<'_>| show(runtime, &line, &event);
    let report = args.request.run(runtime, reading, &args.comparison, &mut on_fit);
    line.clear();
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

/// The fit in the terminal: a live line, and a line for each epoch.
fn show(runtime: &Runtime, line: &LiveLine, event: &FitEvent<'_>) {
    match event {
        FitEvent::Note(text) => line.above(|| runtime.say(text)),
        FitEvent::Step(now) => {
            if now.epoch_ended {
                let errors: Vec<String> = now.holdout.iter().map(|e| number(*e)).collect();
                let (epoch, loss, errors) = (now.epoch, number(now.loss), errors.join(" "));
                line.above(|| runtime.say(&format!("epoch {epoch}: loss {loss}, hold-out MSE {errors}")));
            }
            line.set(now.updates, now.most_updates);
            line.show(vec![format!("epoch {}", now.epoch + 1)]);
        }
    }
}
