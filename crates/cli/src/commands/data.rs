//! `offing data …`: make, list, inspect, audit and convert datasets.

use crate::exit::ExitCode;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use offing::data::audit::{Severity, audit};
use offing::data::catalogue::{Located, Origin, GeneratedName, d4rl_id, generated_names};
use offing::data::{self, ColumnMap, Dataset, Format, ReadOptions, TerminalNext};
use offing::env::{GenerateOptions, Simulators};
use offing::tasks::horizon;
use offing_mujoco::Physics;

use crate::context::Context;
use crate::report::print_audit;
use crate::term;

#[derive(Subcommand)]
pub(crate) enum Data {
    /// Make a dataset by rolling out behaviour policies in the simulator.
    Make(Make),
    /// Train a behaviour policy in the simulator, with snapshots to make datasets with.
    Collect(super::collect::Args),
    /// List the datasets on this machine and the names that can be made.
    List,
    /// Tell what a dataset holds and how it is read.
    Info(Named),
    /// Look for rows that would poison a dynamics model or a neighbour index; exit code 1 when there are any.
    Audit(Audit),
    /// Write a dataset in another format.
    Convert(Convert),
}

#[derive(Args)]
pub(crate) struct Make {
    /// Which set, such as `hopper-medium-replay`; `offing data list` shows the names.
    name: String,
    /// Transitions to record.
    #[arg(long, default_value_t = DEFAULT_ROWS)]
    rows: usize,
    /// Seed of everything random; the same seed gives the same bytes.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
    /// Directory of behaviour policies, `<body>-<number>.safetensors` with an `index.json` of scores.
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Number of the snapshot to take for `medium` (default: the first at D4RL's mark).
    #[arg(long, value_name = "NUMBER")]
    medium: Option<usize>,
    /// Number of the snapshot to take for `expert` (default: the best).
    #[arg(long, value_name = "NUMBER")]
    expert: Option<usize>,
    /// Which physics to simulate.
    #[arg(long, default_value_t)]
    physics: Physics,
    /// Write here instead of into the cache.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Rows of a set that is made because it was asked for by name.
pub(crate) const DEFAULT_ROWS: usize = 1_000_000;

#[derive(Args)]
pub(crate) struct Named {
    /// A path, a D4RL or Minari id, or the name of a made set.
    dataset: String,
    #[command(flatten)]
    reading: ReadReport,
}

#[derive(Args)]
pub(crate) struct Audit {
    #[command(flatten)]
    named: Named,
    /// Also write the audit as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Convert {
    #[command(flatten)]
    named: Named,
    #[arg(help = format!("Where to write; the ending chooses the format: {}", Format::endings()))]
    out: PathBuf,
    /// The format to write (default: by the ending of the path).
    #[arg(long, value_name = "FORMAT", value_parser = format_names())]
    to: Option<String>,
    /// Replace a file that is there already.
    #[arg(long)]
    force: bool,
}

/// The formats that `--to` takes.
fn format_names() -> PossibleValuesParser {
    PossibleValuesParser::new(Format::all().iter().map(|format| format.name()))
}

/// The choices a reader makes, as flags.
#[derive(Args)]
pub(crate) struct ReadReport {
    /// A TOML file that says which columns of a table hold what (keys obs, act, rew, next_obs, done, timeout, episode,
    /// step).
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
    /// The next state of a terminal row in a file that has none.
    #[arg(long, value_enum, default_value = "auto")]
    terminal_next: Terminal,
    /// Leave out the rows at which a time limit struck.
    #[arg(long)]
    drop_timeouts: bool,
    /// Parts of a Minari dictionary observation to take, in this order (`observation`, `a/b`).
    #[arg(long, value_delimiter = ',', value_name = "KEY")]
    obs: Option<Vec<String>>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Terminal {
    Auto,
    Drop,
    Repeat,
    Follow,
}

impl ReadReport {
    pub(crate) fn options(&self) -> Result<ReadOptions> {
        let columns = match &self.columns {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("{}: cannot read", path.display()))?;
                let map: ColumnMap = toml::from_str(&text).map_err(|e| {
                    let line = e.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
                    anyhow!(
                        "{}: line {line}: {}; mend the column map",
                        path.display(),
                        e.message().replace('\n', " ")
                    )
                })?;
                Some(map)
            }
        };
        let terminal_next = match self.terminal_next {
            Terminal::Auto => TerminalNext::Auto,
            Terminal::Drop => TerminalNext::Drop,
            Terminal::Repeat => TerminalNext::Repeat,
            Terminal::Follow => TerminalNext::Follow,
        };
        Ok(ReadOptions {
            columns,
            terminal_next,
            drop_timeouts: self.drop_timeouts,
            minari_obs: self.obs.clone(),
            ..ReadOptions::default()
        })
    }
}

pub(crate) fn run(context: &Context, command: &Data) -> Result<ExitCode> {
    match command {
        Data::Make(args) => make(context, args),
        Data::Collect(args) => super::collect::run(context, args),
        Data::List => list(context),
        Data::Info(args) => info(context, args),
        Data::Audit(args) => run_audit(context, args),
        Data::Convert(args) => convert(context, args),
    }
}

fn make(context: &Context, args: &Make) -> Result<ExitCode> {
    let recipe = GeneratedName::parse(&args.name)?;
    let options = GenerateOptions {
        rows: args.rows,
        seed: args.seed,
        physics: args.physics,
        policies: args.policies.clone(),
        medium: args.medium,
        expert: args.expert,
        out: args.out.clone(),
    };
    let path = make_shown(context, &recipe, &options)?;
    out!("{}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// Makes a set (or finds it made) with a progress bar.
pub(crate) fn make_shown(context: &Context, recipe: &GeneratedName, options: &GenerateOptions) -> Result<PathBuf> {
    context.mujoco.prepare(&recipe.task, &mut |line| context.say(line))?;
    let bar = term::progress(options.rows as u64, &recipe.name, context.quiet);
    let made = context.mujoco.generate(&recipe.name, options, &mut |rows| bar.set_position(rows as u64));
    bar.finish_and_clear();
    let made = made?;
    let (verb, by) = (if made.fresh { "made" } else { "found" }, made.behaviour.join(", "));
    context.say(&format!("{verb} {} of {} by {by}", rows_of(options.rows), recipe.name));
    Ok(made.path)
}

/// Reads a dataset by path, id or name and says what a user should know about how it was understood.
pub(crate) fn load(context: &Context, name: &str, options: ReadOptions) -> Result<(Dataset, Origin)> {
    let (dataset, origin) = load_silently(context, name, options)?;
    dataset.reading.notes.iter().for_each(|note| context.say(&format!("{}: {note}", dataset.name)));
    Ok((dataset, origin))
}

/// [`load`] for a command that shows the notes itself. A made set is made on first use.
fn load_silently(context: &Context, name: &str, options: ReadOptions) -> Result<(Dataset, Origin)> {
    let (path, origin) = match context.catalogue.find(name)? {
        Located::File { path, origin } => (path, origin),
        Located::ToGenerate(recipe) => {
            let options = GenerateOptions { rows: DEFAULT_ROWS, ..GenerateOptions::default() };
            (make_shown(context, &recipe, &options)?, Origin::Generated)
        }
    };
    // A file of D4RL's is known by its name wherever it lies: AntMaze's say nothing of a maze that others would recognise.
    let named = match origin {
        Origin::Own => path.file_stem().and_then(|stem| d4rl_id(&stem.to_string_lossy())),
        _ => Some(name.to_string()),
    };
    let dataset = data::read(&path, &ReadOptions { name: named, ..options })?;
    // A made file says itself which set it is, whatever it is called now; of chosen columns it no longer is that set.
    let is_made = dataset.meta.contains_key("made_by") && dataset.meta.get("set") == Some(&dataset.name);
    Ok((dataset, if is_made { Origin::Generated } else { origin }))
}

fn list(context: &Context) -> Result<ExitCode> {
    let all = context.catalogue.all()?;
    if all.is_empty() {
        out!("no datasets on this machine yet");
    } else {
        let rows = all.iter().map(|(name, origin, path)| {
            vec![name.clone(), origin.to_string(), size(path), path.display().to_string()]
        });
        out!("{}", term::text_table(&["dataset", "origin", "size", "path"], rows));
    }
    out!("names that can be made: {}", generated_names().join(", "));
    Ok(ExitCode::SUCCESS)
}

fn size(path: &Path) -> String {
    let file = if path.is_dir() { path.join("data/main_data.hdf5") } else { path.to_path_buf() };
    std::fs::metadata(file).map_or_else(|_| "?".into(), |m| bytes(m.len()))
}

/// A size in the unit that leaves something before the point.
fn bytes(count: u64) -> String {
    match count {
        0..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

fn info(context: &Context, args: &Named) -> Result<ExitCode> {
    let (data, origin) = load_silently(context, &args.dataset, args.reading.options()?)?;
    out!("{} ({origin}, {})", data.name, data.format.name());
    let rows = &data.rows;
    let mut facts = vec![
        (
            "transitions",
            format!("{} of {} in the file", term::count(rows.len()), rows_of(data.reading.rows_in_file)),
        ),
        ("observation", format!("{} wide", rows.obs_dim())),
        ("action", format!("{} wide", rows.act_dim())),
        ("episodes", term::count(data.episodes.len())),
        ("next states", data.reading.next_obs.clone()),
        ("simulator states", if data.sim.is_some() { "yes (qpos, qvel)".into() } else { "no".into() }),
    ];
    facts.extend(data.reading.dropped.iter().map(|(why, n)| ("left out", format!("{}, {why}", rows_of(*n)))));
    facts.extend(data.reading.notes.iter().map(|note| ("note", note.clone())));
    let untold = untold_keys(&data);
    if !untold.is_empty() {
        facts.push(("keys not used", untold.join(", ")));
    }
    facts.extend(data.meta.iter().map(|(k, v)| (k.as_str(), v.clone())));
    out!("{}", term::text_table(&["", ""], facts.into_iter().map(|(k, v)| vec![k.to_string(), v])));
    Ok(ExitCode::SUCCESS)
}

/// Keys that were not used and that no note tells of: of a file with keys that may be misspelt, a note lists these.
fn untold_keys(data: &Dataset) -> Vec<&str> {
    let told = data.reading.notes.iter().any(|note| note.starts_with("not used: "));
    let is_remark = |key: &str| key.starts_with("infos/") || key.starts_with("metadata/");
    data.reading.ignored_keys.iter().map(String::as_str).filter(|key| !told || is_remark(key)).collect()
}

/// "1 row", "2,000 rows".
fn rows_of(count: usize) -> String {
    format!("{} row{}", term::count(count), if count == 1 { "" } else { "s" })
}

fn run_audit(context: &Context, args: &Audit) -> Result<ExitCode> {
    // The audit itself reports values that are not numbers; a reader that stopped at the first would hide the rest.
    let options = ReadOptions { allow_non_finite: true, ..args.named.reading.options()? };
    let (data, origin) = load_silently(context, &args.named.dataset, options)?;
    let found = audit(&data, horizon(&data.name));
    print_audit(&found, origin);
    if let Some(path) = &args.json {
        write_json(
            path,
            &serde_json::json!({ "origin": origin, "verdict": found.verdict(), "audit": found }),
        )?;
    }
    Ok(if found.verdict() == Severity::Poison { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Writes a JSON file, whole or not at all.
pub(crate) fn write_json(path: &Path, value: &serde_json::Value) -> Result<()> {
    use std::io::Write;
    offing::home::write_atomic(path, |f| {
        serde_json::to_writer_pretty(&mut *f, value)?;
        f.write_all(b"\n")
    })?;
    Ok(())
}

fn convert(context: &Context, args: &Convert) -> Result<ExitCode> {
    let out = &args.out;
    if out.exists() && !args.force {
        bail!("{}: there is something already; give another name, or replace it with --force", out.display());
    }
    let (data, _) = load(context, &args.named.dataset, args.named.reading.options()?)?;
    let format = match &args.to {
        Some(name) => Format::named(name)?,
        None => Format::of_target(out)?,
    };
    data::write(&data, out, format)?;
    out!("{}", out.display());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        reading: ReadReport,
    }

    #[test]
    fn counts_and_sizes_read_well() {
        assert_eq!([1, 2, 2000].map(rows_of), ["1 row", "2 rows", "2,000 rows"]);
        assert_eq!([120, 3_500, 12_340_000].map(bytes), ["0.1 kB", "3.5 kB", "12.3 MB"]);
    }

    #[test]
    fn every_choice_of_a_reader_reaches_it() {
        let words = ["x", "--obs", "observation,a/b", "--drop-timeouts", "--terminal-next", "repeat"];
        let options = Alone::parse_from(words).reading.options().unwrap();
        assert_eq!(options.minari_obs, Some(vec!["observation".to_string(), "a/b".into()]));
        assert!(options.drop_timeouts && options.terminal_next == TerminalNext::Repeat);
    }
}
