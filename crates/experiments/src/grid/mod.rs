//! Grids: a table or figure of the paper as cells that run one by one, here or on a cluster, and as tables with the published
//! numbers beside ours.

mod calibration;
mod cells;
mod collect;
mod comparison;
mod executors;
mod experiment;
mod fig1;
mod published;
mod request;
mod timing;
mod training;

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use offing::checksum::short_hash;
use offing::data::catalogue::GeneratedName;
use offing::env::GenerateOptions;

use self::cells::file_part;
use self::collect::Collected;
use self::experiment::{GridSpec, Profile, choose};
use crate::Runtime;
use cells::CellStore;
pub use cells::{Cell, CellState};
pub use collect::GridReport;
pub use executors::{Local, Slurm, SlurmJob, cell_command, shares};
pub use experiment::Experiment;
pub use request::GridRequest;

/// A grid: everything its numbers follow from, and where its runs are.
pub struct Grid {
    request: GridRequest,
    experiment: Experiment,
    profile: Profile,
    datasets: Vec<String>,
    seeds: u64,
    /// About how many rows of a dataset are used, where the user or the study's profile says so.
    rows: Option<usize>,
    /// Settings of every run or study: the profile's, then the user's.
    set: Vec<String>,
    /// Where run directories are.
    dir: PathBuf,
    /// Where the states of its cells are.
    store: CellStore,
}

/// What the cells of a grid are.
trait GridKind {
    /// The cells of a dataset: the column of each, where it has one, and everything its numbers follow from.
    fn cells_of(&self, grid: &Grid, dataset: &str) -> Result<Vec<(Option<&str>, String)>>;

    /// Runs one cell: found finished, resumed, or begun. `None` when it was stopped on the way.
    fn run(&self, runtime: &Runtime, grid: &Grid, cell: &Cell) -> Result<Option<cells::CellResult>>;

    /// Tables and figures of all cells.
    fn collect(&self, grid: &Grid, cells: &[(Cell, CellState)]) -> Result<Collected>;

    /// Whether the request makes sense, and the rows that the profile asks for.
    fn accept(&self, _grid: &Grid) -> Result<Option<usize>> {
        Ok(None)
    }

    /// What `low` and `high` of a cell's numbers are.
    fn interval(&self) -> &'static str {
        ""
    }

    /// Whether cells must not run side by side.
    fn runs_alone(&self) -> bool {
        false
    }

    /// What cells of one dataset have in common when they must learn from the same transitions.
    fn data_key(&self, _grid: &Grid, _cell: &Cell) -> String {
        String::new()
    }
}

/// How running a cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellEnd {
    /// It is finished.
    Done,
    /// It failed; its state says why.
    Failed,
    /// It was stopped, and can be resumed.
    Stopped,
}

impl Grid {
    /// The grid that was asked for; settings are validated when its cells are listed.
    ///
    /// # Errors
    /// Unknown names, or settings that make no run.
    pub fn new(request: GridRequest) -> Result<Self> {
        let mut experiment = Experiment::named(&request.name)?;
        let profile = experiment.profile(&request.profile)?.clone();
        let chosen = experiment.chosen(&request.columns, &profile)?;
        experiment.grid = experiment.grid.with_columns(&chosen);
        let studies = matches!(experiment.grid, GridSpec::Calibration(_));
        let dir = if studies { "runs/calibrate" } else { "runs" };
        let mut grid = Self {
            datasets: choose(&request.only, &profile)?,
            seeds: request.seeds.map_or(profile.seeds, |n| n as u64),
            rows: request.rows,
            set: profile.set.iter().chain(&request.set).cloned().collect(),
            dir: request.dir.clone().unwrap_or_else(|| dir.into()),
            store: CellStore::of(&request.out()),
            request,
            experiment,
            profile,
        };
        grid.rows = grid.rows.or(grid.kind().accept(&grid)?);
        Ok(grid)
    }

    fn kind(&self) -> &dyn GridKind {
        self.experiment.grid.kind()
    }

    /// The profile that settings come from; none where the presets alone count.
    fn settings_profile(&self) -> Option<&str> {
        self.profile.settings(&self.request.profile)
    }

    /// Whether cells must not run side by side: they measure time.
    pub fn runs_alone(&self) -> bool {
        self.kind().runs_alone()
    }

    /// Looks for the datasets of these cells that offing cannot make: what is missing is reported before hours are spent on
    /// the others.
    ///
    /// # Errors
    /// A dataset that is not on this machine.
    pub fn find_files(&self, runtime: &Runtime, cells: &[Cell]) -> Result<()> {
        if !matches!(self.experiment.grid, GridSpec::Fig1(_)) {
            for cell in cells.iter().filter(|cell| GeneratedName::parse(&cell.dataset).is_err()) {
                runtime.catalogue.find(&cell.dataset)?;
            }
        }
        Ok(())
    }

    /// All cells, seed after seed and dataset after dataset, so that a first look at everything comes early.
    ///
    /// # Errors
    /// Settings that make no run.
    pub fn cells(&self) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for seed in 0..self.seeds {
            for dataset in &self.datasets {
                let all = self.kind().cells_of(self, dataset)?;
                cells.extend(all.into_iter().map(|(column, what)| self.cell(column, dataset, seed, &what)));
            }
        }
        Ok(cells)
    }

    fn cell(&self, column: Option<&str>, dataset: &str, seed: u64, what: &str) -> Cell {
        let file = fingerprint(Path::new(dataset));
        let (rows, physics) = (self.rows, self.request.physics);
        let hash = short_hash(format!("{what} {dataset} {file:?} {seed} {rows:?} {physics}"));
        let name = column.map_or(String::new(), |c| format!("{}.", file_part(c)));
        let id = format!("{name}{}.s{seed}.{hash}", file_part(dataset));
        Cell { id, column: column.map(str::to_string), dataset: dataset.into(), seed }
    }

    /// The size of a generated set where neither a user nor the profile says how many rows are used: as many as D4RL's have,
    /// whatever sizes are on disk.
    fn generated_rows(&self, dataset: &str) -> Option<usize> {
        GeneratedName::parse(dataset).is_ok().then(|| GenerateOptions::default().rows)
    }

    /// How a cell stands.
    pub fn state(&self, cell: &Cell) -> CellState {
        self.store.read(cell)
    }

    /// The cell of that id.
    ///
    /// # Errors
    /// There is none.
    pub fn named(&self, id: &str) -> Result<Cell> {
        let found = self.cells()?.into_iter().find(|cell| cell.id == id);
        let all = "--list-cells, with the same other arguments, shows them all";
        found.ok_or_else(|| anyhow!("no cell `{id}` in this grid; {all}"))
    }

    /// Runs one cell and writes its state down.
    ///
    /// # Errors
    /// A state that cannot be written.
    pub fn run_cell(&self, runtime: &Runtime, cell: &Cell) -> Result<CellEnd> {
        let store = &self.store;
        let Some(_lock) = store.lock(cell, runtime.stop_requested)? else { return Ok(CellEnd::Stopped) };
        if store.read(cell).result().is_some() {
            runtime.say(&format!("{}: finished already", cell.label()));
            return Ok(CellEnd::Done);
        }
        store.write(cell, &CellState::Begun(None))?;
        // Wherever a cell runs, a fault of offing's own is written down like any other failure.
        let run = std::panic::AssertUnwindSafe(|| self.kind().run(runtime, self, cell));
        let ended = std::panic::catch_unwind(run)
            .unwrap_or_else(|_| Err(anyhow!("it panicked; its log holds the message, please report it")));
        match ended {
            Ok(Some(found)) => {
                store.write(cell, &CellState::Done(found))?;
                Ok(CellEnd::Done)
            }
            Ok(None) => Ok(CellEnd::Stopped),
            Err(error) => {
                runtime.say(&format!("failed: {error:#}"));
                store.write(cell, &CellState::Failed(format!("{error:#}")))?;
                Ok(CellEnd::Failed)
            }
        }
    }
}

/// What distinguishes a file from another one of its name, without reading all of it: its size and some of its bytes.
fn fingerprint(path: &Path) -> Option<(u64, String)> {
    use std::io::{Read, Seek, SeekFrom};
    const PLACES: u64 = 16;
    let mut file = std::fs::File::open(path).ok().filter(|_| path.is_file())?;
    let len = file.metadata().ok()?.len();
    let mut seen = Vec::new();
    for place in 0..PLACES {
        let mut bytes = [0; 4096];
        file.seek(SeekFrom::Start(len / PLACES * place)).ok()?;
        let read = file.read(&mut bytes).ok()?;
        seen.extend_from_slice(&bytes[..read]);
    }
    Some((len, short_hash(seen)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str) -> GridRequest {
        GridRequest { name: name.into(), profile: "quick".into(), ..GridRequest::default() }
    }

    fn cells(request: GridRequest) -> Result<Vec<Cell>> {
        Grid::new(request)?.cells()
    }

    #[test]
    fn settings_of_every_experiment_are_sound_and_cells_are_told_apart() {
        for experiment in Experiment::all().unwrap() {
            for profile in ["quick", "paper"] {
                let cells =
                    cells(GridRequest { profile: profile.into(), ..request(&experiment.name) }).unwrap();
                let mut ids: Vec<&str> = cells.iter().map(|c| c.id.as_str()).collect();
                ids.sort_unstable();
                ids.dedup();
                assert_eq!(ids.len(), cells.len(), "{} {profile}", experiment.name);
            }
        }
        // 15 datasets, 8 columns, 5 seeds; 5 settings on one dataset.
        for (name, wanted) in [("table1", 600), ("table11", 750), ("fig4", 25)] {
            let paper = GridRequest { profile: "paper".into(), ..request(name) };
            assert_eq!(cells(paper).unwrap().len(), wanted);
        }
        assert!(Grid::new(request("table7")).unwrap().runs_alone());
        let error = cells(GridRequest { rows: Some(9), ..request("fig1") }).unwrap_err().to_string();
        assert!(error.contains("leave --only, --set and --rows out"), "{error}");
    }

    #[test]
    fn another_file_of_the_same_name_is_another_cell_and_a_copy_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.hdf5"), dir.path().join("b.hdf5"));
        std::fs::write(&path, vec![1; 100_000]).unwrap();
        let first = fingerprint(&path);
        std::fs::copy(&path, &copy).unwrap();
        assert_eq!(fingerprint(&copy), first);
        std::fs::write(&path, vec![2; 100_000]).unwrap();
        assert_ne!(fingerprint(&path), first);
        assert_eq!(fingerprint(dir.path()), None, "a directory");
    }

    #[test]
    fn other_settings_are_other_cells() {
        let id = |request: GridRequest| cells(request).unwrap()[0].id.clone();
        let plain = id(request("table4"));
        let elsewhere = GridRequest { out: Some("elsewhere".into()), ..request("table4") };
        assert_eq!(plain, id(elsewhere), "where changes nothing");
        for other in [
            GridRequest { set: vec!["train.steps=5".into()], ..request("table4") },
            GridRequest { rows: Some(1000), ..request("table4") },
            GridRequest { profile: "paper".into(), ..request("table4") },
        ] {
            assert_ne!(plain, id(other));
        }
        let fewer = GridRequest { columns: vec!["mopo".into(), "mopo+sumo".into()], ..request("table7") };
        assert_ne!(id(request("table7")), id(fewer), "they take turns with others");
    }
}
