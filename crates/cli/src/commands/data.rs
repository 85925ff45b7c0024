//! `offing data …`: make, fetch, list, inspect, audit and convert datasets.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use offing::data::audit::{ColumnStatistics, Dropped, Severity, audit, drop_bad};
use offing::data::catalogue::{GeneratedName, generated_names};
use offing::data::compare::{CompareConfig, compare};
use offing::data::published::Genuineness;
use offing::data::{self, ColumnMap, Dataset, Format, ReadOptions, TerminalNext};
use offing::env::{GenerateOptions, Physics};
use offing::tasks::horizon;
use offing_experiments::format::{count, counted};
use offing_experiments::{Runtime, Table, audit_page, compare_sets};

use crate::args::{JsonFile, named};
use crate::audit::{print_audit, print_columns};
use crate::exit::ExitCode;
use crate::term;

#[derive(Subcommand)]
pub(crate) enum Data {
    /// Generate a dataset by rolling out behaviour policies in the simulator.
    Make(Make),
    /// Fetch a published dataset of D4RL, Minari or NeoRL-2.
    Fetch(super::fetch::Args),
    /// Train a behaviour policy in the simulator, with snapshots to generate datasets with.
    Collect(super::collect::Args),
    /// List the datasets on this machine and the names that offing can generate.
    List,
    /// Show what a dataset holds, column by column, and how offing reads it.
    Info(Info),
    /// Look for rows that would poison a dynamics model or a neighbour index; exit code 1 when there are any. Or compare
    /// two datasets (--against).
    Audit(Audit),
    /// Write a dataset in another format.
    Convert(Convert),
}

#[derive(Args)]
pub(crate) struct Make {
    /// Which dataset, such as `hopper-medium-replay`; `offing data list` shows the names.
    name: String,
    /// Transitions to record.
    #[arg(long, default_value_t = GenerateOptions::default().rows)]
    rows: usize,
    /// Seed of everything random; the same seed gives the same bytes.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
    /// Directory of behaviour policies, `<body>-<number>.safetensors` with an `index.json` of scores.
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Let the policy act that recorded this D4RL file, which carries it: a twin of the file, of any size.
    #[arg(long, value_name = "FILE.hdf5", conflicts_with_all = ["policies", "medium", "expert"])]
    policy_from: Option<PathBuf>,
    /// Number of the snapshot to use for `medium` [default: the first at D4RL's mark].
    #[arg(long, value_name = "NUMBER")]
    medium: Option<usize>,
    /// Number of the snapshot to use for `expert` [default: the best].
    #[arg(long, value_name = "NUMBER")]
    expert: Option<usize>,
    /// Which physics to simulate.
    #[arg(long, default_value_t)]
    physics: Physics,
    /// Write here instead of into the cache.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Named {
    /// A path, a D4RL, Minari or NeoRL-2 id, or the name of a generated dataset.
    dataset: String,
    #[command(flatten)]
    reading: Reading,
}

#[derive(Args)]
pub(crate) struct Info {
    #[command(flatten)]
    named: Named,
    /// Show every column of a wide dataset, not only the first ones.
    #[arg(long)]
    all_columns: bool,
    #[command(flatten)]
    json: JsonFile,
}

#[derive(Args)]
pub(crate) struct Audit {
    #[command(flatten)]
    named: Named,
    /// Compare with this dataset instead: returns, columns, neighbours, copies. It is read by the same flags.
    #[arg(long, value_name = "DATASET")]
    against: Option<String>,
    /// Also write what was found, or the comparison, as one HTML page.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Rows of each dataset whose nearest neighbours are compared.
    #[arg(long, value_name = "N", requires = "against", default_value_t = CompareConfig::default().sample)]
    sample: usize,
    #[command(flatten)]
    json: JsonFile,
}

#[derive(Args)]
pub(crate) struct Convert {
    #[command(flatten)]
    named: Named,
    #[arg(help = format!("Where to write; the ending chooses the format: {}", Format::endings()))]
    out: PathBuf,
    /// The format to write [default: by the ending of the path].
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(Format::written().map(|f| f.name())))]
    to: Option<String>,
    /// Leave out the rows that `offing data audit` calls POISON, and rare absurd values; each trajectory ends where it
    /// loses one.
    #[arg(long)]
    drop_bad: bool,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
}

/// The choices a reader makes, as flags.
#[derive(Args)]
pub(crate) struct Reading {
    /// A TOML file that maps the columns of a table (keys obs, act, rew, next_obs, done, timeout, episode, step).
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
    /// The next state of a terminal row in a file that has none: auto, drop, repeat or follow.
    #[arg(long, value_parser = named::<TerminalNext>, default_value = "auto")]
    terminal_next: TerminalNext,
    /// Leave out the rows at which a time limit struck.
    #[arg(long)]
    drop_timeouts: bool,
    /// Take every reward as 0 in a file that has none (published OGBench and most LeRobot sets).
    #[arg(long)]
    zero_rewards: bool,
    /// Parts of the observation to take, in this order: of a Minari or robomimic dictionary (`observation`, `a/b`), or
    /// columns of a LeRobot set (`observation.state`).
    #[arg(long, value_delimiter = ',', value_name = "KEY")]
    obs: Option<Vec<String>>,
}

impl Reading {
    pub(crate) fn options(&self) -> Result<ReadOptions> {
        Ok(ReadOptions {
            columns: self.columns.as_deref().map(ColumnMap::from_file).transpose()?,
            terminal_next: self.terminal_next,
            drop_timeouts: self.drop_timeouts,
            zero_rewards: self.zero_rewards,
            minari_obs: self.obs.clone(),
            ..ReadOptions::default()
        })
    }
}

pub(crate) fn run(runtime: &Runtime, command: &Data) -> Result<ExitCode> {
    match command {
        Data::Make(args) => make(runtime, args),
        Data::Fetch(args) => super::fetch::run(runtime, args),
        Data::Collect(args) => super::collect::run(runtime, args),
        Data::List => list(runtime),
        Data::Info(args) => info(runtime, args),
        Data::Audit(args) => match &args.against {
            Some(other) => compare_with(runtime, args, other),
            None => run_audit(runtime, args),
        },
        Data::Convert(args) => convert(runtime, args),
    }
}

fn make(runtime: &Runtime, args: &Make) -> Result<ExitCode> {
    GeneratedName::parse(&args.name)?;
    let options = GenerateOptions {
        rows: args.rows,
        seed: args.seed,
        physics: args.physics,
        policies: args.policies.clone(),
        policy_from: args.policy_from.clone(),
        medium: args.medium,
        expert: args.expert,
        out: args.out.clone(),
    };
    let path = runtime.hooks().resolver(|resolver| resolver.generate(&args.name, &options))?;
    out!("{}", path.display());
    Ok(ExitCode::SUCCESS)
}

fn list(runtime: &Runtime) -> Result<ExitCode> {
    let all = runtime.catalogue.all()?;
    if all.is_empty() {
        out!("no datasets on this machine yet");
    } else {
        let rows = all.iter().map(|(name, origin, path)| {
            vec![name.clone(), origin.to_string(), size(path), path.display().to_string()]
        });
        term::print_text_table(&Table::new(["dataset", "origin", "size", "path"], rows));
    }
    out!("names that can be made: {}", generated_names().join(", "));
    Ok(ExitCode::SUCCESS)
}

fn size(path: &Path) -> String {
    let file = if path.is_dir() { path.join("data/main_data.hdf5") } else { path.to_path_buf() };
    std::fs::metadata(file).map_or_else(|_| "?".into(), |m| bytes(m.len()))
}

/// A size in the unit that leaves something before the point.
pub(super) fn bytes(count: u64) -> String {
    match count {
        0..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

fn info(runtime: &Runtime, args: &Info) -> Result<ExitCode> {
    // Values that are not numbers are counted column by column.
    let options = ReadOptions { allow_non_finite: true, ..args.named.reading.options()? };
    let (data, origin) = runtime.hooks().resolver(|resolver| resolver.read(&args.named.dataset, options))?;
    out!("{} ({origin}, {})", data.name, data.format.name());
    let rows = &data.rows;
    let mut facts = vec![
        (
            "transitions",
            format!("{} of {} in the file", count(rows.len()), counted(data.reading.rows_in_file, "row")),
        ),
        ("observation", format!("{} wide", rows.obs_dim())),
        ("action", format!("{} wide", rows.act_dim())),
        ("episodes", count(data.episodes.len())),
        ("next states", data.reading.next_obs.clone()),
        ("simulator states", if data.sim.is_some() { "yes (qpos, qvel)".into() } else { "no".into() }),
    ];
    facts.extend(
        data.reading.dropped.iter().map(|(why, n)| ("left out", format!("{}, {why}", counted(*n, "row")))),
    );
    facts.extend(data.reading.notes.iter().map(|note| ("note", note.clone())));
    let untold = untold_keys(&data);
    if !untold.is_empty() {
        facts.push(("keys not used", untold.join(", ")));
    }
    facts.extend(data.meta.iter().map(|(k, v)| (k.as_str(), v.clone())));
    let rows = facts.into_iter().map(|(k, v)| vec![k.to_string(), v]);
    term::print_text_table(&Table::new(["", ""], rows));
    let columns = ColumnStatistics::of(&data);
    print_columns(&columns, args.all_columns);
    args.json.write(|| {
        serde_json::json!({
            "name": data.name, "origin": origin, "format": data.format.name(), "rows": data.rows.len(),
            "obs_dim": data.rows.obs_dim(), "act_dim": data.rows.act_dim(), "episodes": data.episodes.len(),
            "simulator_states": data.sim.is_some(), "reading": data.reading, "meta": data.meta, "names": data.names,
            "columns": columns,
        })
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Unused keys that no note lists: for a file with keys that may be misspelt, a note does.
fn untold_keys(data: &Dataset) -> Vec<&str> {
    let listed = data.reading.notes.iter().any(|note| note.starts_with("not used: "));
    let is_remark = |key: &str| key.starts_with("infos/") || key.starts_with("metadata/");
    data.reading.ignored_keys.iter().map(String::as_str).filter(|key| !listed || is_remark(key)).collect()
}

fn run_audit(runtime: &Runtime, args: &Audit) -> Result<ExitCode> {
    // The audit itself reports values that are not numbers; a reader that stopped at the first would hide the rest.
    let options = ReadOptions { allow_non_finite: true, ..args.named.reading.options()? };
    let name = &args.named.dataset;
    let (data, origin) = runtime.hooks().resolver(|resolver| resolver.read(name, options))?;
    let found = audit(&data, horizon(&data.name));
    print_audit(&found, origin);
    let path = runtime.hooks().resolver(|resolver| resolver.locate(name, None))?;
    let genuine = match Path::new(&path).is_file() {
        true => Genuineness::of(Path::new(&path))?.map(|genuine| genuine.words()),
        false => None,
    };
    if let Some(words) = &genuine {
        out!("{words}");
    }
    let verdict = found.verdict();
    if let Some(path) = &args.out {
        let command = format!("offing data audit {name} -o {}", path.display());
        audit_page::document(&data, &found, &ColumnStatistics::of(&data), &command).write_html(path)?;
        out!("{}", path.display());
    }
    args.json.write(
        || serde_json::json!({ "origin": origin, "verdict": verdict, "published": genuine, "audit": found }),
    )?;
    Ok(if verdict == Severity::Poison { ExitCode::NEGATIVE } else { ExitCode::SUCCESS })
}

fn compare_with(runtime: &Runtime, args: &Audit, other: &str) -> Result<ExitCode> {
    let options = ReadOptions { allow_non_finite: true, ..args.named.reading.options()? };
    let read = |name: &str| runtime.hooks().resolver(|resolver| resolver.read(name, options.clone()));
    let ((a, _), (b, _)) = (read(&args.named.dataset)?, read(other)?);
    let config = CompareConfig { sample: args.sample.max(1), ..CompareConfig::default() };
    let mut found = compare(&a, &b, &config)?;
    // Generated files of one set hold one name: then what was typed says which is which.
    let stem = |typed: &str| Path::new(typed).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let stems = [&args.named.dataset, other].map(stem);
    if let ([Some(first), Some(second)], true) = (&stems, a.name == b.name && stems[0] != stems[1]) {
        (found.a.name, found.b.name) = (first.clone(), second.clone());
    }
    let command = format!("offing data audit {} --against {other}", args.named.dataset);
    let document = compare_sets::document(&found, &command);
    term::print_results(&document);
    args.json.write(|| serde_json::json!({ "verdict": found.verdict(), "comparison": found }))?;
    if let Some(path) = &args.out {
        document.write_html(path)?;
        out!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn convert(runtime: &Runtime, args: &Convert) -> Result<ExitCode> {
    let out = &args.out;
    if out.exists() && !args.force {
        bail!("{}: exists already; give another name, or replace it with --force", out.display());
    }
    // Rows that are to be dropped must be read first.
    let options = ReadOptions { allow_non_finite: args.drop_bad, ..args.named.reading.options()? };
    let (mut data, _) = runtime.read_data(&args.named.dataset, options)?;
    if args.drop_bad {
        data = without_bad_rows(&data)?;
    }
    let format = match &args.to {
        Some(name) => Format::named(name)?,
        None => Format::of_target(out)?,
    };
    data::write(&data, out, format)?;
    out!("{}", out.display());
    Ok(ExitCode::SUCCESS)
}

/// The set without its bad rows; prints how many there were, and why they are bad.
fn without_bad_rows(data: &Dataset) -> Result<Dataset> {
    let (left, dropped) = drop_bad(data, horizon(&data.name));
    let all: usize = dropped.iter().map(|d| d.rows).sum();
    let rows = counted(data.rows.len(), "row");
    let Some(left) = left else {
        let why: Vec<String> = dropped.iter().map(|d| format!("{} {}", count(d.rows), d.check)).collect();
        bail!(
            "{}: wanted a row that is not bad, found none of {rows} ({}); mend the log, `offing data audit` says what is wrong",
            data.name,
            why.join(", ")
        );
    };
    out!("dropped {} of {rows}; {} left", count(all), counted(left.rows.len(), "row"));
    for Dropped { check, rows, terminals } in &dropped {
        let terminal =
            if *terminals > 0 { format!(", {} of them terminal", count(*terminals)) } else { String::new() };
        out!("  {}: {check}{terminal}", counted(*rows, "row"));
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct ReadingAlone {
        #[command(flatten)]
        reading: Reading,
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!([120, 3_500, 12_340_000].map(bytes), ["0.1 kB", "3.5 kB", "12.3 MB"]);
    }

    #[test]
    fn every_choice_of_a_reader_reaches_it() {
        let words = [
            "x",
            "--obs",
            "observation,a/b",
            "--drop-timeouts",
            "--terminal-next",
            "repeat",
            "--zero-rewards",
        ];
        let options = ReadingAlone::parse_from(words).reading.options().unwrap();
        assert_eq!(options.minari_obs, Some(vec!["observation".to_string(), "a/b".into()]));
        assert!(
            options.drop_timeouts && options.zero_rewards && options.terminal_next == TerminalNext::Repeat
        );
    }
}
