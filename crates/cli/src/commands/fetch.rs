//! `offing data fetch`: published datasets, from their addresses or mirrors, with their checksums.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use offing::Error;
use offing::data::fetch::{FetchEvent, FetchOptions, MIRRORS_FILE, Mirrors, Patience, available, fetch};
use offing_experiments::{Runtime, Table};

use super::data::bytes;
use crate::args::{JsonFile, positive};
use crate::exit::ExitCode;
use crate::live::{LiveLine, Unit};
use crate::{signals, term};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which dataset: a D4RL id (`hopper-medium-v2`), a Minari id (`mujoco/hopper/medium-v0`) or a NeoRL-2 file (`neorl2:DMSD`).
    #[arg(required_unless_present = "list")]
    id: Option<String>,
    /// List the ids with size and source; those of Minari are on its hub. With --json also the addresses.
    #[arg(long, conflicts_with_all = ["id", "out", "url", "mirror", "force"])]
    list: bool,
    /// Put it here [default: where offing finds it by its id].
    #[arg(long, short, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Fetch from this address alone, for datasets of one file.
    #[arg(long, value_name = "ADDRESS")]
    url: Option<String>,
    /// Try addresses that begin with PREFIX at ADDRESS first; before those in mirrors.toml under OFFING_HOME. Repeatable.
    #[arg(long, value_name = "PREFIX=ADDRESS")]
    mirror: Vec<String>,
    /// Replace what is there.
    #[arg(long)]
    force: bool,
    /// Seconds without a byte after which to try again.
    #[arg(long, value_name = "SECONDS", default_value_t = Patience::default().stall.as_secs() as usize, value_parser = positive)]
    timeout: usize,
    #[command(flatten)]
    json: JsonFile,
}

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    let Some(id) = &args.id else { return list(args) };
    let mut mirrors = Mirrors::default();
    for rule in &args.mirror {
        mirrors = mirrors.with(rule)?;
    }
    let kept = runtime.home().root().join(MIRRORS_FILE);
    runtime.home().check_owner(&kept)?;
    let stall = Duration::from_secs(args.timeout as u64);
    let default = Patience::default();
    let options = FetchOptions {
        out: args.out.clone(),
        url: args.url.clone(),
        mirrors: mirrors.before(Mirrors::read(&kept)?),
        force: args.force,
        patience: Patience { stall, connect: default.connect.min(stall), ..default },
        ..FetchOptions::default()
    };
    signals::keep_partial_files();
    signals::listen();
    let mut line: Option<(String, LiveLine)> = None;
    let fetched = fetch(&runtime.catalogue, id, &options, &mut |event| {
        show(runtime, &mut line, &event);
        runtime.control_flow()
    });
    line.into_iter().for_each(|(_, line)| line.clear());
    if matches!(fetched, Err(Error::Stopped)) {
        runtime.say("stopped; the same command goes on from here");
        return Ok(ExitCode::STOPPED);
    }
    let fetched = fetched?;
    let verb = if fetched.fresh { "fetched" } else { "found" };
    runtime.say(&format!("{verb} {id}, {}", bytes(fetched.bytes)));
    out!("{}", fetched.path.display());
    args.json.write(|| serde_json::json!(fetched))?;
    Ok(ExitCode::SUCCESS)
}

fn list(args: &Args) -> Result<ExitCode> {
    let all = available();
    let size = |size: Option<u64>| size.map_or_else(|| "?".into(), bytes);
    // Whole addresses, some of 130 letters, are in the JSON.
    let host = |address: &str| address.split('/').nth(2).unwrap_or(address).to_string();
    let rows = all.iter().map(|set| vec![set.id.clone(), size(set.bytes), host(&set.address)]);
    term::print_text_table(&Table::new(["dataset", "size", "source"], rows));
    out!("and Minari's by their ids, such as mujoco/hopper/medium-v0: https://huggingface.co/farama-minari");
    args.json.write(|| serde_json::json!(all))?;
    Ok(ExitCode::SUCCESS)
}

/// One live line for each file that is on its way.
fn show(runtime: &Runtime, line: &mut Option<(String, LiveLine)>, event: &FetchEvent<'_>) {
    match event {
        FetchEvent::Note(text) => match line {
            Some((_, line)) => line.above(|| runtime.say(text)),
            None => runtime.say(text),
        },
        FetchEvent::Progress { name, bytes, total } => {
            if line.as_ref().is_none_or(|(shown, _)| shown != name) {
                line.take().into_iter().for_each(|(_, line)| line.clear());
                *line = Some((name.to_string(), LiveLine::new(name, Unit::Bytes, *total, runtime.quiet)));
            }
            line.iter().for_each(|(_, line)| line.set(*bytes, *total));
        }
        FetchEvent::Waiting => {}
    }
}
