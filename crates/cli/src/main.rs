//! The command line of offing.

#[macro_use]
mod term;
mod algorithms;
mod commands;
mod config;
mod context;
mod estimate;
mod page;
mod plot;
mod report;
mod signals;
mod workshop;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use context::Context;

/// Model-based offline reinforcement learning with search-based uncertainty.
#[derive(Parser)]
#[command(name = "offing", version, max_term_width = 110)]
struct Cli {
    /// Threads to use (default: one for each core); results never depend on it.
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,
    /// No progress lines.
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The whole way in one command: make a small dataset, learn from it with SUMO, score the policy, write a report.
    Quickstart(commands::quickstart::Args),
    /// Make, list, inspect, audit and convert datasets.
    #[command(subcommand)]
    Data(commands::data::Data),
    /// Learn a policy from a dataset.
    Train(commands::train::Args),
    /// Score a run's policies, or one policy, in the simulator.
    Eval(commands::eval::Args),
    /// Fit the model of the world and tell how good it is.
    Dynamics(commands::dynamics::Args),
    /// Write a policy for other runtimes (ONNX).
    Export(commands::export::Export),
    /// Ask a policy for its actions on given observations.
    Act(commands::export::Act),
    /// Find out which estimator knows where the model is wrong.
    Calibrate(commands::calibrate::Args),
    /// Make a table of the paper again, with the published numbers beside ours.
    Reproduce(commands::reproduce::Args),
    /// Put runs on one page: curves, tables, times.
    Report(commands::report::Args),
    /// Rank the policies of runs without the simulator: fitted Q evaluation and penalised model return.
    Rank(commands::rank::Args),
    /// Tell how far transitions are from a dataset, which of its rows support them, and raise an alarm.
    Score(commands::score::Args),
    /// Measure speed; every bench writes the same JSON with --json.
    #[command(subcommand)]
    Bench(commands::bench::Bench),
    /// Tell what offing finds on this machine.
    Doctor(commands::doctor::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(threads) = cli.threads {
        // Fails only when a pool exists already, and none does yet.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    }
    let context = Context::from_environment(cli.quiet);
    let done = context.and_then(|context| match cli.command {
        Command::Quickstart(args) => commands::quickstart::run(&context, &args),
        Command::Data(command) => commands::data::run(&context, &command),
        Command::Train(args) => commands::train::run(&context, &args),
        Command::Eval(args) => commands::eval::run(&context, &args),
        Command::Dynamics(args) => commands::dynamics::run(&context, &args),
        Command::Export(args) => commands::export::export(&args),
        Command::Act(args) => commands::export::act(&args),
        Command::Calibrate(args) => commands::calibrate::run(&context, &args),
        Command::Reproduce(args) => commands::reproduce::run(&context, &args),
        Command::Report(args) => commands::report::run(&context, &args),
        Command::Rank(args) => commands::rank::run(&context, &args),
        Command::Score(args) => commands::score::run(&context, &args),
        Command::Bench(command) => commands::bench::run(&context, &command),
        Command::Doctor(args) => commands::doctor::run(&context, &args),
    });
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
