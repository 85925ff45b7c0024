//! `offing reproduce`: a table or figure of the paper as a command, with the published numbers beside ours.

mod calibration;
mod cells;
mod collect;
mod experiment;
mod idea;
mod local;
mod parts;
mod published;
mod slurm;
mod timing;
mod training;
mod work;

use crate::exit::ExitCode;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use offing_mujoco::Physics;

use super::bench::positive;
use super::train::short_hash;
use crate::context::Context;
use crate::provenance::cores;
use crate::{invocation, signals, term};
use cells::{Cell, Ledger, Outcome};
use collect::collect;
use experiment::{Experiment, Profile};
use local::{Local, words};
use slurm::Slurm;
use work::Work;

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
    /// Where tables and the state of cells are written [default: runs/reproduce/<NAME>-<PROFILE>; there, the tables of a part
    /// of the grid or of other settings have a directory of their own].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Who runs the cells: `local`, processes on this machine; `slurm`, an array job.
    #[arg(long, value_enum, default_value_t)]
    executor: Executor,
    /// Cells to run at once [default: 1 here, no limit on Slurm]. Each has --threads threads [default: its share of the
    /// cores here, 4 on Slurm].
    #[arg(long, value_parser = positive)]
    jobs: Option<usize>,
    /// An option for sbatch, such as --sbatch=--partition=cpu (may be repeated).
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// With Slurm: wait until the array is through, then make the tables.
    #[arg(long)]
    wait: bool,
    /// Run nothing: tell how cells, and Slurm's tasks, stand.
    #[arg(long, conflicts_with_all = ["list_cells", "cell", "collect", "wait"])]
    status: bool,
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

/// Who runs cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Executor {
    #[default]
    Local,
    Slurm,
}

/// Cores of a Slurm task where nobody said how many: this machine's may be a login node's.
const TASK_THREADS: usize = 4;

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let Some(name) = &args.name else { return list() };
    let experiment = Experiment::named(name)?;
    let work = Work::new(&experiment, args)?;
    let (cells, ledger) = (work.cells()?, Ledger::of(&args.out()));
    if args.list_cells {
        return list_cells(args, &work, &cells, &ledger);
    }
    if let Some(id) = &args.cell {
        return run_cell(context, &work, &ledger, &work.named(id)?, args.tied);
    }
    if args.status {
        slurm(context, args, &work, &ledger).status(&cells)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.collect {
        let left: Vec<Cell> = cells.iter().filter(|c| ledger.read(c).found().is_none()).cloned().collect();
        work.find_files(context, &left)?;
        context.say(&format!("{} of {} cells are finished", cells.len() - left.len(), cells.len()));
        signals::listen();
        if args.executor == Executor::Slurm && !left.is_empty() {
            let slurm = slurm(context, args, &work, &ledger);
            let job = slurm.submit(&left)?;
            let many = if left.len() == 1 { "1 cell".into() } else { format!("{} cells", left.len()) };
            context.say(&format!("{many} submitted as job {}", job.id));
            if !args.wait || !slurm.wait(&job)? {
                let again = "the same command with --status instead of --executor tells how they stand";
                context.say(&format!("{again}, with --collect it makes the tables"));
                return Ok(ExitCode::SUCCESS);
            }
            return collect(context, args, &work, &ledger.all(&cells));
        }
        let (jobs, threads) = shares(cores(), args.jobs, context.threads);
        if args.jobs.is_some_and(|asked| asked > jobs) {
            context.say(&format!(
                "{jobs} at once instead of {}: {} cores, {threads} threads for each",
                args.jobs.unwrap_or_default(),
                cores()
            ));
        }
        let local = Local { context, ledger: &ledger, grid: args.again(), jobs, threads };
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

    /// Where tables are written: those of a part of the grid, or of other settings, do not replace those of the whole, unless a
    /// user says where they belong.
    fn tables(&self, profile: &Profile) -> PathBuf {
        let seeds = self.seeds.filter(|&n| n as u64 != profile.seeds);
        let physics = Some(self.physics).filter(|p| *p != Physics::default());
        let (only, columns, set) = (&self.only, &self.columns, &self.set);
        let whole = only.is_empty() && columns.is_empty() && set.is_empty();
        if self.out.is_some() || (whole && (seeds, self.rows, physics) == (None, None, None)) {
            return self.out();
        }
        let what = short_hash(format!("{only:?} {columns:?} {set:?} {seeds:?} {:?} {physics:?}", self.rows));
        self.out().join(format!("part-{what}"))
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

fn slurm<'a>(context: &'a Context, args: &'a Args, work: &Work<'_>, ledger: &'a Ledger) -> Slurm<'a> {
    Slurm {
        alone: work.alone(),
        context,
        ledger,
        out: args.out(),
        name: args.name.as_deref().unwrap_or_default(),
        grid: args.again(),
        jobs: args.jobs,
        threads: context.threads.unwrap_or(TASK_THREADS),
        options: &args.sbatch,
    }
}

/// How many processes run at once, and the threads of each: as asked, but no more at once than cores, which would only take
/// turns.
fn shares(cores: usize, jobs: Option<usize>, threads: Option<usize>) -> (usize, usize) {
    let threads = threads.filter(|&n| n > 0); // 0: as many as there are
    let jobs = jobs.unwrap_or(1).min((cores / threads.unwrap_or(1)).max(1));
    (jobs, threads.unwrap_or(cores / jobs).max(1))
}

/// Names every experiment.
fn list() -> Result<ExitCode> {
    let row = |e: Experiment| -> Result<Vec<String>> {
        let size = |profile: &str| -> Result<String> {
            let profile = e.profile(profile)?;
            let many = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            let seeds = many(profile.seeds as usize, "seed");
            Ok(format!("{} × {seeds}", many(profile.datasets.len(), "dataset")))
        };
        Ok(vec![e.name.clone(), e.title.clone(), size("quick")?, size("paper")?])
    };
    let rows: Vec<Vec<String>> = Experiment::all()?.into_iter().map(row).collect::<Result<_>>()?;
    out!("{}", term::text_table(&["experiment", "", "--profile quick", "--profile paper"], rows));
    Ok(ExitCode::SUCCESS)
}

/// Tells which cells there are and how each stands; as JSON with the command that runs it.
fn list_cells(args: &Args, work: &Work<'_>, cells: &[Cell], ledger: &Ledger) -> Result<ExitCode> {
    let mut rows = Vec::new();
    for cell in cells {
        let outcome = ledger.read(cell);
        if !args.json {
            let column = cell.column.clone().unwrap_or("-".into());
            let (dataset, seed) = (cell.dataset.clone(), cell.seed.to_string());
            rows.push(vec![cell.id.clone(), column, dataset, seed, outcome.word().into()]);
            continue;
        }
        let mut command = invocation::command()?;
        command.args(args.again()).args(["--cell", &cell.id]);
        let mut line = serde_json::to_value(cell)?;
        line["state"] = outcome.word().into();
        line["alone"] = work.alone().into();
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
    // Wherever a cell runs, a fault of offing's own is written down like any other failure.
    let run = std::panic::AssertUnwindSafe(|| work.run(context, cell, &begun));
    let ended = std::panic::catch_unwind(run)
        .unwrap_or_else(|_| Err(anyhow!("it panicked; what it printed is in its log, and worth a report")));
    match ended {
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn tables_of_a_part_do_not_replace_those_of_the_whole() {
        let experiment = Experiment::named("table1").unwrap();
        let profile = experiment.profile("quick").unwrap();
        let tables = |words: &[&str]| {
            let args = Alone::try_parse_from([&["reproduce", "table1"], words].concat()).unwrap().args;
            args.tables(profile).display().to_string()
        };
        let whole = "runs/reproduce/table1-quick";
        assert_eq!([tables(&[]), tables(&["--seeds", "2", "--jobs", "2", "--collect"])], [whole; 2]);
        assert_eq!(tables(&["--only", "hopper-medium", "--out", "here"]), "here");
        let parts = [["--only", "hopper-medium"], ["--only", "walker2d-medium"], ["--columns", "mopo"]];
        let more = [["--seeds", "1"], ["--rows", "1000"], ["--set", "train.steps=5"]];
        let mut seen: Vec<String> = parts.iter().chain(&more).map(|words| tables(words)).collect();
        assert!(seen.iter().all(|dir| dir.starts_with("runs/reproduce/table1-quick/part-")), "{seen:?}");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn cells_never_ask_for_more_threads_than_there_are_cores() {
        assert_eq!(shares(8, None, None), (1, 8));
        assert_eq!(shares(8, Some(3), None), (3, 2));
        assert_eq!(shares(2, Some(8), None), (2, 1));
        assert_eq!(shares(8, Some(4), Some(4)), (2, 4));
        assert_eq!(shares(2, Some(4), Some(4)), (1, 4), "threads are as asked");
        assert_eq!(shares(8, Some(2), Some(0)), (2, 4));
    }
}
