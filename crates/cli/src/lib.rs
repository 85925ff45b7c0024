//! The command line of offing, as a library: the binary `offing` and `python -m offing` both call [`run`].

#[macro_use]
mod term;
mod args;
mod audit;
mod exit;
mod live;
mod progress;
mod signals;
mod context;
mod commands;
mod examples;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use offing_experiments::Runtime;

pub use exit::ExitCode;

/// Model-based offline reinforcement learning with search-based uncertainty.
#[derive(Parser)]
#[command(name = "offing", version, max_term_width = 110)]
struct Cli {
    /// Threads to use [default: one for each core]; results never depend on it.
    #[arg(long, global = true, value_name = "N", value_parser = thread_count)]
    threads: Option<usize>,
    /// Show no progress.
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// The whole way in one command: generate a small dataset, learn from it with SUMO, score the policy, write a report.
    Quickstart(commands::quickstart::Args),
    /// Generate, fetch, list, inspect, audit and convert datasets.
    #[command(subcommand)]
    Data(commands::data::Data),
    /// Learn a policy from a dataset.
    Train(commands::train::Args),
    /// Score a run's policies, or one policy, in the simulator.
    Eval(commands::eval::Args),
    /// Fit a dynamics model and measure how good it is.
    Dynamics(commands::dynamics::Args),
    /// Write a policy for other runtimes (ONNX).
    Export(commands::export::Export),
    /// Compute a policy's actions on given observations.
    Act(commands::export::Act),
    /// Measure which estimator knows where the model is wrong.
    Calibrate(commands::calibrate::Args),
    /// Reproduce a table of the paper, with the published numbers beside ours.
    Reproduce(commands::reproduce::Args),
    /// Put runs on one page: curves, tables, times.
    Report(commands::report::Args),
    /// Watch a policy, the data, and what the model imagines: a page or a GIF.
    Replay(offing_experiments::replay::ReplayRequest),
    /// Rank policies offline: fitted Q evaluation and penalised model return.
    Rank(commands::rank::Args),
    /// Score how far transitions are from a dataset, name the rows that support them, and raise an alarm.
    Score(commands::score::Args),
    /// Measure speed; every bench writes the same JSON with --json.
    #[command(subcommand)]
    Bench(commands::bench::Bench),
    /// List the settings of an algorithm: keys, values, meaning.
    Settings(commands::settings::Args),
    /// Check what offing finds on this machine, and delete caches.
    Doctor(commands::doctor::Args),
    /// Write a shell's completions: bash, zsh, fish, elvish, powershell.
    Completions(commands::completions::Args),
}

/// Runs a command line, the program's name first, prints what went wrong, and returns how it ended.
pub fn run(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let parsed = command().try_get_matches_from(args).and_then(|found| Cli::from_arg_matches(&found));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(answer) => {
            // Help and versions go to stdout, mistakes to stderr; nobody can be told if that fails.
            let _ = answer.print();
            return ExitCode(answer.exit_code() as u8);
        }
    };
    execute(cli).unwrap_or_else(|error| {
        term::complain(&format!("{error:#}"));
        ExitCode::ERROR
    })
}

/// The command line's grammar, with examples in every help.
pub(crate) fn command() -> clap::Command {
    examples::with_examples(Cli::command())
}

/// What surrounds experiments inside another program, from the environment: signals stay with that program, which calls
/// [`ask_to_stop`].
///
/// # Errors
/// A home that cannot be used.
pub fn embedded_runtime(quiet: bool, threads: Option<usize>) -> anyhow::Result<Runtime> {
    signals::leave_to_host();
    context::runtime(quiet, threads)
}

/// Says how the command line is started where it is no program of its own, such as `python -m offing`: grids of experiments
/// start one process a cell.
pub fn started_as(words: Vec<OsString>) {
    context::set_program(words);
}

/// Makes an embedded command save and stop, as the first Ctrl-C does.
pub fn ask_to_stop() {
    signals::ask_to_stop();
}

/// More threads than any machine has cores would only get into each other's way.
fn thread_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1024) => Ok(count),
        _ => Err("wanted a number from 1 to 1024".into()),
    }
}

fn execute(cli: Cli) -> anyhow::Result<ExitCode> {
    if let Some(threads) = cli.threads {
        // Fails only when a pool exists already, and none does yet.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    }
    let runtime = context::runtime(cli.quiet, cli.threads)?;
    let Some(command) = cli.command else { return commands::welcome::run() };
    match command {
        Command::Quickstart(args) => commands::quickstart::run(&runtime, &args),
        Command::Data(command) => commands::data::run(&runtime, &command),
        Command::Train(args) => commands::train::run(&runtime, &args),
        Command::Eval(args) => commands::eval::run(&runtime, &args),
        Command::Dynamics(args) => commands::dynamics::run(&runtime, &args),
        Command::Export(args) => commands::export::export(&args),
        Command::Act(args) => commands::export::act(&runtime, &args),
        Command::Calibrate(args) => commands::calibrate::run(&runtime, &args),
        Command::Reproduce(args) => commands::reproduce::run(&runtime, &args),
        Command::Report(args) => commands::report::run(&runtime, &args),
        Command::Replay(request) => commands::replay::run(&runtime, &request),
        Command::Rank(args) => commands::rank::run(&runtime, &args),
        Command::Score(args) => commands::score::run(&runtime, &args),
        Command::Bench(command) => commands::bench::run(&runtime, command),
        Command::Settings(args) => commands::settings::run(&args),
        Command::Doctor(args) => commands::doctor::run(&runtime, &args),
        Command::Completions(args) => commands::completions::run(&args),
    }
}
