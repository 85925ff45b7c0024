//! `offing rank`: which of several runs' policies is best, without the simulator.

use std::path::PathBuf;

use anyhow::Result;
use offing::rank::{FittedQConfig, ModelReturnConfig};
use offing_experiments::Runtime;
use offing_experiments::rank::{RankConfig, rank};

use crate::args::{JsonFile, positive};
use crate::exit::ExitCode;
use crate::{signals, term};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run directories, or directories with runs somewhere inside; all trained on the same transitions.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Also play N episodes with each policy in the simulator, to check the rankings against.
    #[arg(long, default_value_t = 0, value_name = "N")]
    online: usize,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Gradient steps of fitted Q evaluation for each policy.
    #[arg(long, default_value_t = FittedQConfig::default().steps, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Steps of a policy in the model.
    #[arg(long, default_value_t = ModelReturnConfig::default().length, value_parser = positive)]
    length: usize,
    /// Discount of both estimates.
    #[arg(long, default_value_t = FittedQConfig::default().gamma)]
    gamma: f64,
    #[command(flatten)]
    json: JsonFile,
}

pub(crate) fn run(runtime: &Runtime, args: Args) -> Result<ExitCode> {
    let Args { runs, online, seed, steps, length, gamma, json } = args;
    signals::keep_nothing();
    let Some(ranking) = rank(runtime, &RankConfig { runs, online, seed, steps, length, gamma })? else {
        runtime.say("stopped; nothing was kept");
        return Ok(ExitCode::STOPPED);
    };
    ranking.tables().iter().for_each(term::print_table);
    if let Some(words) = ranking.agreement() {
        out!("{words}");
    }
    out!("{}", ranking.budget());
    json.write(|| ranking.json())?;
    Ok(ExitCode::SUCCESS)
}
