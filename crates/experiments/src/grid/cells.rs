//! Cells, the unit of work, and how each stands. A cell is one run directory: a finished one is found, never run twice;
//! an interrupted one is resumed; a failed one is reported and does not stop the others.
//!
//! The state of a cell is one JSON file in `OUT/cells`, named by the cell's id. The id holds a hash of everything the cell's
//! numbers follow from, so that another choice of settings is another cell. Whoever runs cells, here or on another machine of a
//! cluster, needs nothing but ids; whoever makes tables needs nothing but these files.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use offing::home::{refuse_link, write_atomic};
use offing::run::Provenance;
use offing::stats::nan_as_null;
use serde::{Deserialize, Serialize};

use super::fig1::Fig1Drawing;
use crate::files::read_json;
use crate::table::{Table, csv_number};

/// One unit of work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Its name, unique for everything its numbers follow from.
    pub id: String,
    /// The column it belongs to; a calibration study gives all at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The dataset as it was asked for.
    pub dataset: String,
    /// Its seed.
    pub seed: u64,
}

impl Cell {
    /// Its name in messages.
    pub fn label(&self) -> String {
        let column = self.column.as_ref().map_or(String::new(), |c| format!("{c} on "));
        format!("{column}{}, seed {}", self.dataset, self.seed)
    }
}

/// How a cell stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "state", content = "found", rename_all = "kebab-case")]
pub enum CellState {
    /// Nobody has begun it.
    Missing,
    /// Somebody has, and may still be at it; this is its run directory, where it has one of its own.
    Begun(Option<PathBuf>),
    /// Its numbers.
    Done(CellResult),
    /// Why there are none.
    Failed(String),
}

/// What a finished cell gives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    pub(super) values: Vec<CellValue>,
    /// Steps and scores on the way.
    #[serde(default)]
    pub(super) curve: Vec<(u64, f64)>,
    /// How the numbers came about.
    #[serde(default)]
    pub(super) note: String,
    /// Checksum of the transitions behind them, where there are some.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) data: String,
    /// What made them, and where.
    #[serde(rename = "by", default, skip_serializing_if = "Vec::is_empty")]
    pub(super) provenance: Vec<Provenance>,
    /// What Figure 1 is drawn from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) drawing: Option<Box<Fig1Drawing>>,
}

/// One number of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CellValue {
    pub(super) column: String,
    pub(super) metric: String,
    #[serde(with = "nan_as_null")]
    pub(super) value: f64,
    /// The ends of an interval, where there is one: a study's bootstrap of 95 % over rollouts; the fastest and the slowest
    /// block of a time.
    #[serde(with = "nan_as_null")]
    pub(super) low: f64,
    #[serde(with = "nan_as_null")]
    pub(super) high: f64,
    /// Over how many imagined steps, or blocks.
    pub(super) rows: usize,
}

impl CellValue {
    /// A number without an interval.
    pub(super) fn new(column: &str, metric: &str, value: f64, rows: usize) -> Self {
        let (column, metric) = (column.into(), metric.into());
        Self { column, metric, value, low: f64::NAN, high: f64::NAN, rows }
    }

    /// The same with an interval.
    pub(super) fn within(self, low: f64, high: f64) -> Self {
        Self { low, high, ..self }
    }
}

impl CellResult {
    /// A number by its column and metric.
    pub(super) fn get(&self, column: &str, metric: &str) -> Option<f64> {
        self.values.iter().find(|v| v.column == column && v.metric == metric).map(|v| v.value)
    }
}

impl CellState {
    /// The result of a finished cell.
    pub fn result(&self) -> Option<&CellResult> {
        match self {
            Self::Done(result) => Some(result),
            _ => None,
        }
    }

    /// A word for lists.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Begun(_) => "begun",
            Self::Done(_) => "done",
            Self::Failed(_) => "failed",
        }
    }
}

/// Where the states of cells are written.
#[derive(Clone, Debug)]
pub(super) struct CellStore {
    dir: PathBuf,
}

impl CellStore {
    /// The states of the grid whose tables are in `out`.
    pub(super) fn of(out: &Path) -> Self {
        Self { dir: out.join("cells") }
    }

    fn file(&self, cell: &Cell) -> PathBuf {
        self.dir.join(format!("{}.json", cell.id))
    }

    /// Where a cell's own messages go when it runs as a process of its own.
    pub(super) fn log(&self, cell: &Cell) -> PathBuf {
        self.dir.join(format!("{}.log", cell.id))
    }

    /// How a cell stands. A file that cannot be read is as good as none: the cell is run again, and found if finished.
    pub(super) fn read(&self, cell: &Cell) -> CellState {
        read_json(&self.file(cell)).unwrap_or(CellState::Missing)
    }

    pub(super) fn write(&self, cell: &Cell, state: &CellState) -> Result<()> {
        let text = serde_json::to_vec(state)?;
        Ok(write_atomic(&self.file(cell), |f| f.write_all(&text).and_then(|()| f.write_all(b"\n")))?)
    }

    /// Locks a cell until the file is dropped; waits while another process has it, such as one whose grid was killed and
    /// that is still saving. `None` when `stop_requested` says so meanwhile.
    pub(super) fn lock(&self, cell: &Cell, stop_requested: fn() -> bool) -> Result<Option<File>> {
        let path = self.dir.join(format!(".{}.lock", cell.id));
        refuse_link(&path)?;
        let file = std::fs::create_dir_all(&self.dir)
            .and_then(|()| File::options().create(true).write(true).truncate(false).open(&path))
            .with_context(|| format!("{}: cannot create", path.display()))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::WouldBlock) if stop_requested() => return Ok(None),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(100)),
                Err(TryLockError::Error(e)) => {
                    return Err(e).with_context(|| format!("{}: cannot lock", path.display()));
                }
            }
        }
    }

    /// All cells with their states.
    pub(super) fn all(&self, cells: &[Cell]) -> Vec<(Cell, CellState)> {
        cells.iter().map(|cell| (cell.clone(), self.read(cell))).collect()
    }
}

/// A text as a part of a file name.
pub(super) fn file_part(text: &str) -> String {
    let stem = Path::new(text).file_stem().map_or(text.into(), |s| s.to_string_lossy().into_owned());
    let name = if text.contains(['/', '\\']) { stem } else { text.to_string() };
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.+=".contains(c) { c } else { '_' }).collect()
}

/// The raw numbers: every cell's, one a line. `interval` says what `low` and `high` are.
pub(super) fn cells_csv(cells: &[(Cell, CellState)], interval: &str) -> String {
    let line = |(cell, v): (&Cell, &CellValue)| {
        let [value, low, high] = [v.value, v.low, v.high].map(csv_number);
        let n = if v.rows > 0 { v.rows.to_string() } else { String::new() };
        let interval = if low.is_empty() { "" } else { interval }.to_string();
        let (seed, column) = (cell.seed.to_string(), v.column.clone());
        vec![cell.dataset.clone(), seed, column, v.metric.clone(), value, low, high, interval, n]
    };
    let header = ["dataset", "seed", "column", "metric", "value", "low", "high", "interval", "n"];
    let done = cells.iter().filter_map(|(cell, state)| Some((cell, state.result()?)));
    Table::new(header, done.flat_map(|(cell, found)| found.values.iter().map(move |v| (cell, v))).map(line))
        .csv()
}

/// Every evaluation of every cell, one a line.
pub(super) fn curves_csv(cells: &[(Cell, CellState)]) -> String {
    let mut rows = Vec::new();
    for (cell, state) in cells {
        let Some(found) = state.result() else { continue };
        // Where nothing normalises returns, curves are of returns.
        let metric = if found.values.iter().any(|v| v.metric == "score") { "score" } else { "return" };
        let (column, seed) = (cell.column.clone().unwrap_or_default(), cell.seed.to_string());
        let start = [cell.dataset.clone(), seed, column];
        for (step, value) in &found.curve {
            rows.push([&start[..], &[step.to_string(), metric.into(), value.to_string()]].concat());
        }
    }
    Table::new(["dataset", "seed", "column", "step", "metric", "value"], rows).csv()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_read_back_as_they_were_written_and_half_a_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let store = CellStore::of(dir.path());
        let cell =
            Cell { id: "a".into(), column: Some("mopo".into()), dataset: "hopper-medium".into(), seed: 1 };
        assert_eq!(store.read(&cell).word(), "missing");
        let value = CellValue::new("mopo", "score", 0.1 + 0.2, 0);
        let provenance = Provenance { offing: "0.1.0".into(), cpu: "c".into(), cores: 2, threads: 1 };
        let found = CellResult {
            values: vec![value],
            curve: vec![(5, 1.0 / 3.0)],
            note: "n".into(),
            data: "d".into(),
            provenance: vec![provenance],
            drawing: None,
        };
        store.write(&cell, &CellState::Done(found.clone())).unwrap();
        let back = store.read(&cell).result().unwrap().clone();
        assert_eq!((back.values[0].value, &back.curve), (0.1 + 0.2, &found.curve));
        assert_eq!((&back.data, &back.provenance), (&found.data, &found.provenance));
        assert!(back.values[0].low.is_nan());
        std::fs::write(dir.path().join("cells/a.json"), "{\"state\":\"do").unwrap();
        assert_eq!(store.read(&cell).word(), "missing");
        for state in
            [CellState::Begun(None), CellState::Begun(Some("x".into())), CellState::Failed("w".into())]
        {
            store.write(&cell, &state).unwrap();
            assert_eq!(store.read(&cell).word(), state.word());
        }
        assert!(store.lock(&cell, || false).unwrap().is_some());
        #[cfg(unix)]
        {
            let lock = dir.path().join("cells/.a.lock");
            std::fs::remove_file(&lock).unwrap();
            std::os::unix::fs::symlink(dir.path().join("elsewhere"), &lock).unwrap();
            assert!(store.lock(&cell, || false).unwrap_err().to_string().contains("symbolic link"));
            assert!(!dir.path().join("elsewhere").exists());
        }
    }

    #[test]
    fn ids_are_names_of_files() {
        assert_eq!(file_part("/a b/hopper-medium.hdf5"), "hopper-medium");
        assert_eq!(file_part("mopo+sumo s+a+r+s'"), "mopo+sumo_s+a+r+s_");
        assert_eq!(file_part("η=0.5"), "_=0.5");
    }
}
