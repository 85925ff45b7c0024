//! `offing reproduce`: a table or figure of the paper as a command, with the published numbers beside ours.

mod calibration;
mod cells;
mod experiment;
mod local;
mod parts;
mod published;
mod training;
mod work;

use crate::exit::ExitCode;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use offing::data::catalogue::{Found as Place, Origin};
use offing::home::write_atomic;
use offing_mujoco::Physics;

use super::bench::{commit, positive};
use super::doctor::cpu_name;
use crate::context::Context;
use crate::{signals, term};
use cells::{Cell, Ledger, Outcome, cells_csv, curves_csv};
use experiment::Experiment;
use local::{Local, program, words};
use parts::{Part, Report};
use published::Published;
use work::{Kind, Work};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The experiment: table1, table2, …, or a TOML file like theirs; without one, all are listed.
    name: Option<String>,
    /// `quick`: small networks, few steps, fewer datasets. `paper`: the paper's own sizes.
    #[arg(long, default_value = "quick")]
    profile: String,
    /// How many seeds [default: the profile's].
    #[arg(long, value_parser = positive)]
    seeds: Option<usize>,
    /// These datasets instead of the profile's: any that can be made, D4RL ids (hopper-medium-v2), or paths.
    #[arg(long, value_name = "DATASET", value_delimiter = ',')]
    only: Vec<String>,
    /// These columns instead of the profile's.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    columns: Vec<String>,
    /// Use about so many rows of each dataset: whole episodes, drawn at random.
    #[arg(long)]
    rows: Option<usize>,
    /// Override one value of every run or study, such as --set starts=50 (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Which physics to evaluate or replay in.
    #[arg(long, default_value_t)]
    physics: Physics,
    /// Where run directories are [default: runs, as for `offing train`; runs/calibrate, as for `offing calibrate`].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where tables and the state of cells are written [default: runs/reproduce/<NAME>-<PROFILE>].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Cells to run at once, as processes; each has --threads threads [default: its share of the cores].
    #[arg(long, value_parser = positive, default_value_t = 1)]
    jobs: usize,
    /// Only tell which cells there are, and how each stands; with --json as one JSON object a line.
    #[arg(long)]
    list_cells: bool,
    /// Together with --list-cells: JSON.
    #[arg(long, requires = "list_cells")]
    json: bool,
    /// Run this one cell and make no tables. Ends with 0 when it is done, 1 when it failed, 130 when stopped.
    #[arg(long, value_name = "ID", conflicts_with_all = ["list_cells", "collect"])]
    cell: Option<String>,
    /// Run nothing: make the tables from the cells that are finished.
    #[arg(long, conflicts_with = "list_cells")]
    collect: bool,
    /// Stop when standard input ends: for whoever starts cells.
    #[arg(long, hide = true)]
    tied: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let Some(name) = &args.name else { return list() };
    let experiment = Experiment::named(name)?;
    let work = Work::new(&experiment, args)?;
    let (cells, ledger) = (work.cells()?, Ledger::of(&args.out()));
    if args.list_cells {
        return list_cells(args, &cells, &ledger);
    }
    if let Some(id) = &args.cell {
        return run_cell(context, &work, &ledger, &work.named(id)?, args.tied);
    }
    if !args.collect {
        let left: Vec<Cell> = cells.iter().filter(|c| ledger.read(c).found().is_none()).cloned().collect();
        context.say(&format!("{} of {} cells are finished", cells.len() - left.len(), cells.len()));
        signals::listen();
        let local = Local {
            context,
            ledger: &ledger,
            grid: args.again(),
            jobs: args.jobs,
            threads: threads(args.jobs),
        };
        if !local.run(left)? {
            context.say("stopped; the same command goes on from here");
            return Ok(ExitCode::from(130));
        }
    }
    collect(context, args, &work, &ledger.all(&cells))
}

impl Args {
    fn out(&self) -> PathBuf {
        let stem = |name: &str| {
            Path::new(name).file_stem().map_or(name.into(), |stem| stem.to_string_lossy().into_owned())
        };
        let name = self.name.as_deref().map_or("all".into(), stem);
        self.out.clone().unwrap_or_else(|| format!("runs/reproduce/{name}-{}", self.profile).into())
    }

    /// Arguments that give the same grid again, with the same cells in the same places.
    fn again(&self) -> Vec<String> {
        let mut words = vec!["reproduce".to_string()];
        words.extend(self.name.clone());
        let mut put = |flag: &str, value: String| words.extend([flag.to_string(), value]);
        put("--profile", self.profile.clone());
        self.seeds.iter().for_each(|seeds| put("--seeds", seeds.to_string()));
        self.only.iter().for_each(|name| put("--only", name.clone()));
        self.columns.iter().for_each(|name| put("--columns", name.clone()));
        self.rows.iter().for_each(|rows| put("--rows", rows.to_string()));
        self.set.iter().for_each(|set| put("--set", set.clone()));
        put("--physics", self.physics.to_string());
        self.dir.iter().for_each(|dir| put("--dir", dir.display().to_string()));
        put("--out", self.out().display().to_string());
        words
    }
}

/// Threads of each of so many processes: as many as were asked for, or their share of the cores.
fn threads(jobs: usize) -> usize {
    let (asked, cores) = (rayon::current_num_threads(), cores());
    if asked == cores { (cores / jobs).max(1) } else { asked }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Names every experiment.
fn list() -> Result<ExitCode> {
    let row = |e: Experiment| -> Result<Vec<String>> {
        let size = |profile: &str| -> Result<String> {
            let profile = e.profile(profile)?;
            Ok(format!("{} datasets × {} seeds", profile.datasets.len(), profile.seeds))
        };
        Ok(vec![e.name.clone(), e.title.clone(), size("quick")?, size("paper")?])
    };
    let rows: Vec<Vec<String>> = Experiment::all()?.into_iter().map(row).collect::<Result<_>>()?;
    out!("{}", term::text_table(&["experiment", "", "--profile quick", "--profile paper"], rows));
    Ok(ExitCode::SUCCESS)
}

/// Tells which cells there are and how each stands; as JSON with the command that runs it.
fn list_cells(args: &Args, cells: &[Cell], ledger: &Ledger) -> Result<ExitCode> {
    let mut rows = Vec::new();
    for cell in cells {
        let outcome = ledger.read(cell);
        if !args.json {
            let column = cell.column.clone().unwrap_or("-".into());
            let (dataset, seed) = (cell.dataset.clone(), cell.seed.to_string());
            rows.push(vec![cell.id.clone(), column, dataset, seed, outcome.word().into()]);
            continue;
        }
        let mut command = program()?;
        command.args(args.again()).args(["--cell", &cell.id]);
        let mut line = serde_json::to_value(cell)?;
        line["state"] = outcome.word().into();
        if let Outcome::Failed(why) = &outcome {
            line["why"] = why.clone().into();
        }
        line["command"] = words(&command).into();
        out!("{line}");
    }
    if !args.json {
        out!("{}", term::text_table(&["cell", "column", "dataset", "seed", "state"], rows));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs one cell and writes down what became of it.
fn run_cell(
    context: &Context,
    work: &Work<'_>,
    ledger: &Ledger,
    cell: &Cell,
    tied: bool,
) -> Result<ExitCode> {
    signals::listen();
    if tied {
        signals::listen_to_parent();
    }
    let Some(_held) = ledger.hold(cell, signals::asked_to_stop)? else { return Ok(ExitCode::from(130)) };
    if ledger.read(cell).found().is_some() {
        context.say(&format!("{}: finished already", cell.label()));
        return Ok(ExitCode::SUCCESS);
    }
    ledger.write(cell, &Outcome::Begun(None))?;
    let begun = |dir: PathBuf| ledger.write(cell, &Outcome::Begun(Some(dir)));
    match work.run(context, cell, &begun) {
        Ok(Some(found)) => {
            ledger.write(cell, &Outcome::Done(found))?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(None) => Ok(ExitCode::from(130)),
        Err(error) => {
            context.say(&format!("failed: {error:#}"));
            ledger.write(cell, &Outcome::Failed(format!("{error:#}")))?;
            Ok(ExitCode::from(1))
        }
    }
}

/// Makes tables and pages from what is finished.
fn collect(context: &Context, args: &Args, work: &Work<'_>, done: &[(Cell, Outcome)]) -> Result<ExitCode> {
    let published = match &work.experiment.paper {
        Some(table) => Published::of(table)?,
        None => Published::default(),
    };
    let (csv, (mut tables, more), mut circumstances) = match &work.kind {
        Kind::Calibration { columns, study } => {
            let table = calibration::Table::of(columns, &published, &work.datasets, done);
            let settings = toml::to_string(study)?;
            let words = calibration::circumstances(study, work.rows, &args.profile);
            (table.csv(), calibration::parts(&table, done, settings), words)
        }
        Kind::Training { columns, .. } => {
            let scores = training::Scores::of(columns, &published, &work.datasets, done);
            let words = training::circumstances(work, &args.profile);
            (scores.csv(), training::parts(work, &scores), words)
        }
    };
    circumstances.push(origins(context, &work.datasets));
    circumstances.extend(work.experiment.notes.iter().cloned());
    circumstances.push(machine(args));
    tables.extend(unfinished(done));
    let report = Report {
        title: work.experiment.title.clone(),
        about: work.experiment.about.clone(),
        command: command(args, work.seeds),
        circumstances,
        tables,
        more,
    };
    report.print();
    write(&args.out(), &work.experiment.name, &report, &csv, done)?;
    let all = done.iter().all(|(_, outcome)| outcome.found().is_some());
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Which cells have no numbers, and why.
fn unfinished(done: &[(Cell, Outcome)]) -> Vec<Part> {
    let mut parts = Vec::new();
    let failed: Vec<Vec<String>> = (done.iter())
        .filter_map(|(cell, outcome)| match outcome {
            Outcome::Failed(why) => Some(vec![cell.label(), why.clone()]),
            _ => None,
        })
        .collect();
    if !failed.is_empty() {
        parts.push(Part::heading(format!("Failed: {} of {} cells", failed.len(), done.len())));
        parts.push(Part::table(&["cell", "why"], failed));
    }
    let open = |(_, o): &&(Cell, Outcome)| matches!(o, Outcome::Missing | Outcome::Begun(_));
    let open = done.iter().filter(open).count();
    if open > 0 {
        let of = done.len();
        parts.push(Part::text(format!(
            "Not finished yet: {open} of {of} cells; the tables are of the others."
        )));
    }
    parts
}

fn write(out: &Path, name: &str, report: &Report, csv: &str, done: &[(Cell, Outcome)]) -> Result<()> {
    std::fs::create_dir_all(out)
        .map_err(|e| anyhow::anyhow!("{}: cannot create: {e}; give another --out", out.display()))?;
    let text = |ending: &str, content: &str| -> Result<()> {
        let path = out.join(format!("{name}.{ending}"));
        Ok(write_atomic(&path, |f| f.write_all(content.as_bytes()))?)
    };
    text("csv", csv)?;
    text("cells.csv", &cells_csv(done))?;
    if done.iter().any(|(_, o)| o.found().is_some_and(|f| !f.curve.is_empty())) {
        text("curves.csv", &curves_csv(done))?;
    }
    text("md", &report.markdown())?;
    text("tex", &report.latex())?;
    let page = out.join(format!("{name}.html"));
    report.html().write(&page)?;
    out!("{}", page.display());
    Ok(())
}

/// The command that gives these numbers again: what decides them, and nothing about this machine.
fn command(args: &Args, seeds: u64) -> String {
    let name = args.name.as_deref().unwrap_or_default();
    let mut words = vec![format!("offing reproduce {name} --profile {} --seeds {seeds}", args.profile)];
    for (flag, names) in [("--only", &args.only), ("--columns", &args.columns)] {
        if !names.is_empty() {
            words.push(format!("{flag} {}", names.join(",")));
        }
    }
    words.extend(args.rows.map(|rows| format!("--rows {rows}")));
    words.extend(args.set.iter().map(|set| format!("--set '{set}'")));
    if args.physics != Physics::default() {
        words.push(format!("--physics {}", args.physics));
    }
    words.join(" ")
}

fn origins(context: &Context, datasets: &[String]) -> String {
    let origin = |name: &String| match context.catalogue.find(name) {
        Ok(Place::File { origin, .. }) => origin,
        // Not there, or there several times: a name that offing makes.
        Ok(Place::ToMake(_)) | Err(_) => Origin::Made,
    };
    let origins: Vec<String> = datasets.iter().map(|d| format!("{d} ({})", origin(d))).collect();
    format!(
        "Datasets: {}. Made sets come from offing's own simulator and built-in policies, the paper's from D4RL.",
        origins.join(", ")
    )
}

fn machine(args: &Args) -> String {
    format!(
        "offing {} ({}), physics {}, {} with {} cores; results do not depend on the number of threads.",
        env!("CARGO_PKG_VERSION"),
        commit(),
        args.physics,
        cpu_name(),
        cores()
    )
}
