//! `offing rank`: which of several runs' policies is best, without the simulator.

use anyhow::Result;
use offing_experiments::Runtime;
use offing_experiments::rank::{RankConfig, rank};

use crate::args::JsonFile;
use crate::exit::ExitCode;
use crate::{signals, term};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: RankConfig,
    #[command(flatten)]
    json: JsonFile,
}

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    signals::keep_nothing();
    let Some(ranking) = rank(runtime, &args.config)? else {
        runtime.say("stopped; nothing was kept");
        return Ok(ExitCode::STOPPED);
    };
    ranking.tables().iter().for_each(term::print_table);
    if let Some(words) = ranking.agreement() {
        out!("{words}");
    }
    out!("{}", ranking.budget());
    args.json.write(|| ranking.json())?;
    Ok(ExitCode::SUCCESS)
}
