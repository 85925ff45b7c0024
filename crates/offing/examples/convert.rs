//! Reads a dataset in any format and writes it in the one the target's name asks for:
//! `cargo run --example convert -- from.hdf5 to.hdf5`. With one argument it prints what was read.

use std::path::Path;
use std::process::ExitCode;

use offing::data::{Format, ReadOptions, read, write};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> offing::Result<()> {
    let [from, rest @ ..] = arguments else {
        return Err(offing::Error::Invalid("usage: convert FROM [TO]".into()));
    };
    let start = cpu_seconds();
    let data = read(Path::new(from), &ReadOptions::default())?;
    let rows = &data.rows;
    println!(
        "{}: {} rows, obs {}, act {}, {} episodes, {:.3} CPU-s\n{}",
        data.name,
        rows.len(),
        rows.obs_dim(),
        rows.act_dim(),
        data.episodes.len(),
        cpu_seconds() - start,
        serde_json::to_string(&data.reading).expect("plain strings and numbers"),
    );
    match rest.first() {
        Some(to) => write(&data, Path::new(to), Format::of_target(Path::new(to))?),
        None => Ok(()),
    }
}

/// User and system time of this process so far, in seconds (0 where /proc is missing).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks =
        |n: usize| after_name.split_whitespace().nth(n).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
