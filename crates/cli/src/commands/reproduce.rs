//! `offing reproduce`: a table or figure of the paper as a command, with the published numbers beside ours.

use anyhow::{Result, bail};
use offing::run::cores;
use offing_experiments::format::counted;
use offing_experiments::grid::{
    Cell, CellEnd, CellState, Experiment, Grid, GridRequest, Local, Slurm, cell_command, shares,
};
use offing_experiments::{Runtime, Table};

use crate::args::positive;
use crate::exit::ExitCode;
use crate::{signals, term};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    request: GridRequest,
    /// Who runs the cells: `local`, processes on this machine; `slurm`, an array job.
    #[arg(long, value_enum, default_value_t)]
    executor: Executor,
    /// Cells to run at once [default: one for each core here, or 1 where times are measured; no limit on Slurm]. Each has
    /// --threads threads [default: its share of the cores here, 4 on Slurm].
    #[arg(long, value_parser = positive)]
    jobs: Option<usize>,
    /// An option for sbatch, such as --sbatch=--partition=cpu (may be repeated).
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// With Slurm: wait for the array, then make the tables.
    #[arg(long)]
    wait: bool,
    /// Run nothing: show the state of cells and of Slurm's tasks.
    #[arg(long, conflicts_with_all = ["list_cells", "cell", "collect", "wait"])]
    status: bool,
    /// Run nothing: list the cells and their states; with --json as one JSON object a line.
    #[arg(long)]
    list_cells: bool,
    /// With --list-cells: JSON.
    #[arg(long, requires = "list_cells")]
    json: bool,
    /// Run this one cell and make no tables. The exit code is 0 when it is done, 1 when it failed, 130 when stopped.
    #[arg(long, value_name = "ID", conflicts_with_all = ["list_cells", "collect"])]
    cell: Option<String>,
    /// Run nothing: make the tables from the finished cells.
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

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    if args.request.name.is_empty() {
        return list();
    }
    let grid = Grid::new(args.request.clone())?;
    if grid.runs_alone() && args.jobs.is_some_and(|jobs| jobs > 1) {
        bail!("times mean nothing when cells run side by side; leave --jobs out");
    }
    let cells = grid.cells()?;
    if args.list_cells {
        return list_cells(runtime, &grid, &cells, args.json);
    }
    if let Some(id) = &args.cell {
        return run_cell(runtime, &grid, &grid.named(id)?, args.tied);
    }
    if args.status {
        let (table, lines) = args.slurm(runtime, &grid).status(&cells)?;
        term::print_text_table(&table);
        lines.iter().for_each(|line| out!("{line}"));
        return Ok(ExitCode::SUCCESS);
    }
    if !args.collect
        && let Some(ended) = run_all(runtime, &grid, &cells, args)?
    {
        return Ok(ended);
    }
    let report = grid.report(runtime, &cells)?;
    term::print_results(&report.document);
    out!("{}", report.write()?.display());
    Ok(if report.complete { ExitCode::SUCCESS } else { ExitCode::NEGATIVE })
}

impl Args {
    fn slurm<'a>(&'a self, runtime: &'a Runtime, grid: &'a Grid) -> Slurm<'a> {
        let threads = runtime.threads.unwrap_or(TASK_THREADS);
        Slurm { runtime, grid, jobs: self.jobs, threads, options: &self.sbatch }
    }
}

/// Lists every experiment.
fn list() -> Result<ExitCode> {
    let row = |e: Experiment| Ok(vec![e.name.clone(), e.title.clone(), e.size("quick")?, e.size("paper")?]);
    let rows = Experiment::all()?.into_iter().map(row).collect::<Result<Vec<_>>>()?;
    term::print_text_table(&Table::new(["experiment", "", "--profile quick", "--profile paper"], rows));
    Ok(ExitCode::SUCCESS)
}

/// Runs the cells that are not finished; how the command ends, where that is before the tables.
fn run_all(runtime: &Runtime, grid: &Grid, cells: &[Cell], args: &Args) -> Result<Option<ExitCode>> {
    let left: Vec<Cell> = cells.iter().filter(|c| grid.state(c).result().is_none()).cloned().collect();
    grid.find_files(runtime, &left)?;
    runtime.say(&format!("{} of {} cells are finished", cells.len() - left.len(), cells.len()));
    signals::listen();
    if args.executor == Executor::Slurm && !left.is_empty() {
        let slurm = args.slurm(runtime, grid);
        let job = slurm.submit(&left)?;
        runtime.say(&format!("{} submitted as job {}", counted(left.len(), "cell"), job.id));
        if !args.wait || !slurm.wait(&job)? {
            let again = "run the same command with --status instead of --executor to see their state";
            runtime.say(&format!("{again}, with --collect to make the tables"));
            return Ok(Some(ExitCode::SUCCESS));
        }
        return Ok(None);
    }
    let side_by_side = if grid.runs_alone() { 1 } else { left.len() };
    let (jobs, threads) = shares(cores(), side_by_side, args.jobs, runtime.threads);
    if let Some(asked) = args.jobs.filter(|asked| *asked > jobs) {
        let cores = cores();
        runtime.say(&format!("{jobs} at once instead of {asked}: {cores} cores, {threads} threads for each"));
    }
    if !(Local { runtime, grid, jobs, threads }).run(left)? {
        runtime.say("stopped; the same command resumes from here");
        return Ok(Some(ExitCode::STOPPED));
    }
    Ok(None)
}

/// Lists the cells and their states; as JSON with the command that runs each.
fn list_cells(runtime: &Runtime, grid: &Grid, cells: &[Cell], json: bool) -> Result<ExitCode> {
    if !json {
        let row = |cell: &Cell| {
            let column = cell.column.clone().unwrap_or("-".into());
            let state = grid.state(cell).word().to_string();
            vec![cell.id.clone(), column, cell.dataset.clone(), cell.seed.to_string(), state]
        };
        let header = ["cell", "column", "dataset", "seed", "state"];
        term::print_text_table(&Table::new(header, cells.iter().map(row)));
        return Ok(ExitCode::SUCCESS);
    }
    for cell in cells {
        let state = grid.state(cell);
        let mut line = serde_json::to_value(cell)?;
        line["state"] = state.word().into();
        line["alone"] = grid.runs_alone().into();
        if let CellState::Failed(why) = state {
            line["why"] = why.into();
        }
        line["command"] = cell_command(runtime, grid, cell)?.into();
        out!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

fn run_cell(runtime: &Runtime, grid: &Grid, cell: &Cell, tied: bool) -> Result<ExitCode> {
    signals::listen();
    if tied {
        signals::listen_to_parent();
    }
    Ok(match grid.run_cell(runtime, cell)? {
        CellEnd::Done => ExitCode::SUCCESS,
        CellEnd::Failed => ExitCode::NEGATIVE,
        CellEnd::Stopped => ExitCode::STOPPED,
    })
}
