//! `offing dynamics`: how good is the learnt model of the world, next to a straight line and to the simulator.

use std::path::PathBuf;

use anyhow::Result;
use indicatif::ProgressBar;
use offing::dynamics::{FitEvent, FitProgress};
use offing::env::Physics;
use offing_experiments::Runtime;
use offing_experiments::dynamics::DynamicsRequest;
use offing_experiments::format::number;

use super::data::Reading;
use crate::args::JsonFile;
use crate::exit::ExitCode;
use crate::term;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A path, a D4RL or Minari id, or the name of a generated dataset.
    dataset: String,
    #[command(flatten)]
    reading: Reading,
    /// Override one value, such as --set model.max_epochs=10 (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Settings from a TOML file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Learn from this many rows only, drawn at random.
    #[arg(long)]
    rows: Option<usize>,
    /// Seed of the model.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    json: JsonFile,
    /// Also write tables and plots as one HTML page.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Which physics to compare with [default: the dataset's own, else D4RL's].
    #[arg(long)]
    physics: Option<Physics>,
    /// Starts from which to follow the model and the simulator.
    #[arg(long, default_value_t = 1000)]
    windows: usize,
}

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    let request = DynamicsRequest {
        dataset: args.dataset.clone(),
        reading: args.reading.options()?,
        config: args.config.clone(),
        set: args.set.clone(),
        rows: args.rows,
        seed: args.seed,
        physics: args.physics,
        windows: args.windows,
    };
    let bar = term::epoch_bar(runtime.quiet);
    let report = request.run(runtime, &mut |event| show(runtime, &bar, &event));
    bar.finish_and_clear();
    let report = report?;
    for (before, table, after) in report.tables() {
        before.iter().for_each(|line| out!("{line}"));
        term::print_table(&table);
        after.iter().for_each(|line| out!("{line}"));
    }
    args.json.write(|| report.json())?;
    if let Some(path) = &args.report {
        report.document(command(args))?.write_html(path)?;
        out!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// What was asked, as it would be typed.
fn command(args: &Args) -> String {
    let mut words = vec!["offing dynamics".to_string(), args.dataset.clone()];
    words.extend(args.config.iter().map(|path| format!("--config {}", path.display())));
    words.extend(args.set.iter().map(|set| format!("--set {set}")));
    words.extend(args.rows.map(|n| format!("--rows {n}")));
    words.push(format!("--seed {}", args.seed));
    words.join(" ")
}

/// The fit in the terminal: a bar, and a line for each epoch.
fn show(runtime: &Runtime, bar: &ProgressBar, event: &FitEvent<'_>) {
    match event {
        FitEvent::Note(line) => bar.suspend(|| runtime.say(line)),
        FitEvent::Step(now) => {
            if now.epoch_ended {
                bar.suspend(|| runtime.say(&epoch_line(now)));
            }
            bar.set_length(now.updates_per_epoch);
            bar.set_position(now.updates % now.updates_per_epoch.max(1));
            bar.set_message(format!("epoch {}", now.epoch + 1));
        }
    }
}

fn epoch_line(now: &FitProgress) -> String {
    let errors: Vec<String> = now.holdout.iter().map(|e| number(*e)).collect();
    format!("epoch {}: loss {}, hold-out MSE {}", now.epoch, number(now.loss), errors.join(" "))
}
