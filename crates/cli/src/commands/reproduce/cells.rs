//! Cells, the unit of work, and what became of each. A cell is one run directory: a finished one is found, never run twice;
//! an interrupted one goes on; a failed one is told and does not stop the others.
//!
//! What became of a cell is written down as one JSON file in `OUT/cells`, named by the cell's id. The id holds a hash of
//! everything the cell's numbers follow from, so that another choice of settings is another cell. Whoever runs cells, here
//! or on another machine of a cluster, needs nothing but ids; whoever makes tables needs nothing but these files.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use offing::home::write_atomic;
use offing::stats::nan_as_null;
use serde::{Deserialize, Serialize};

use super::idea::Drawing;
use crate::csv::{field, number};
use crate::provenance::By;

/// One unit of work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Cell {
    pub(super) id: String,
    /// The column it belongs to; a calibration study gives all at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) column: Option<String>,
    pub(super) dataset: String,
    pub(super) seed: u64,
}

impl Cell {
    /// Its name in messages.
    pub(super) fn label(&self) -> String {
        let column = self.column.as_ref().map_or(String::new(), |c| format!("{c} on "));
        format!("{column}{}, seed {}", self.dataset, self.seed)
    }
}

/// What became of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "state", content = "found", rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// Nobody has begun it.
    Missing,
    /// Somebody has, and may still be at it; this is its run directory, where it has one of its own.
    Begun(Option<PathBuf>),
    /// Its numbers.
    Done(Found),
    /// Why there are none.
    Failed(String),
}

/// What a finished cell gives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Found {
    pub(super) values: Vec<Value>,
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) by: Vec<By>,
    /// What Figure 1 is drawn from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) drawing: Option<Box<Drawing>>,
}

/// One number of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Value {
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

impl Outcome {
    pub(super) fn found(&self) -> Option<&Found> {
        match self {
            Self::Done(found) => Some(found),
            _ => None,
        }
    }

    /// A word for lists.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Begun(_) => "begun",
            Self::Done(_) => "done",
            Self::Failed(_) => "failed",
        }
    }
}

/// Where outcomes are written down.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    dir: PathBuf,
}

impl Ledger {
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

    /// What became of a cell. A file that cannot be read is as good as none: the cell is run again, and found if finished.
    pub(super) fn read(&self, cell: &Cell) -> Outcome {
        let text = std::fs::read(self.file(cell)).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or(Outcome::Missing)
    }

    pub(super) fn write(&self, cell: &Cell, outcome: &Outcome) -> Result<()> {
        let text = serde_json::to_vec(outcome)?;
        Ok(write_atomic(&self.file(cell), |f| f.write_all(&text).and_then(|()| f.write_all(b"\n")))?)
    }

    /// Takes hold of a cell until the file is dropped; waits while another process has it, such as one whose grid was
    /// killed and that is still saving. `None` when `stop` says so meanwhile.
    pub(super) fn hold(&self, cell: &Cell, stop: fn() -> bool) -> Result<Option<File>> {
        let path = self.dir.join(format!(".{}.lock", cell.id));
        let file = std::fs::create_dir_all(&self.dir)
            .and_then(|()| File::options().create(true).write(true).truncate(false).open(&path))
            .with_context(|| format!("{}: cannot create", path.display()))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::WouldBlock) if stop() => return Ok(None),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(100)),
                Err(TryLockError::Error(e)) => {
                    return Err(e).with_context(|| format!("{}: cannot lock", path.display()));
                }
            }
        }
    }

    /// All cells with what became of them.
    pub(super) fn all(&self, cells: &[Cell]) -> Vec<(Cell, Outcome)> {
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
pub(super) fn cells_csv(cells: &[(Cell, Outcome)], interval: &str) -> String {
    let mut out = String::from("dataset,seed,column,metric,value,low,high,interval,n\n");
    for (cell, outcome) in cells {
        for v in outcome.found().into_iter().flat_map(|f| &f.values) {
            let (dataset, column) = (field(&cell.dataset), field(&v.column));
            let [value, low, high] = [v.value, v.low, v.high].map(|x| number(Some(x)));
            let n = if v.rows > 0 { v.rows.to_string() } else { String::new() };
            let interval = if low.is_empty() { "" } else { interval };
            out.push_str(&format!(
                "{dataset},{},{column},{},{value},{low},{high},{interval},{n}\n",
                cell.seed, v.metric
            ));
        }
    }
    out
}

/// Every evaluation of every cell, one a line.
pub(super) fn curves_csv(cells: &[(Cell, Outcome)]) -> String {
    let mut out = String::from("dataset,seed,column,step,metric,value\n");
    for (cell, outcome) in cells {
        let (dataset, column) = (field(&cell.dataset), field(cell.column.as_deref().unwrap_or_default()));
        let Some(found) = outcome.found() else { continue };
        // Where nothing normalises returns, curves are of returns.
        let metric = if found.values.iter().any(|v| v.metric == "score") { "score" } else { "return" };
        for (step, value) in &found.curve {
            out.push_str(&format!("{dataset},{},{column},{step},{metric},{value}\n", cell.seed));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_read_back_as_they_were_written_and_half_a_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::of(dir.path());
        let cell =
            Cell { id: "a".into(), column: Some("mopo".into()), dataset: "hopper-medium".into(), seed: 1 };
        assert_eq!(ledger.read(&cell).word(), "missing");
        let value = Value {
            column: "mopo".into(),
            metric: "score".into(),
            value: 0.1 + 0.2,
            low: f64::NAN,
            high: f64::NAN,
            rows: 0,
        };
        let by = By { offing: "0.1.0".into(), cpu: "c".into(), cores: 2, threads: 1 };
        let found = Found {
            values: vec![value],
            curve: vec![(5, 1.0 / 3.0)],
            note: "n".into(),
            data: "d".into(),
            by: vec![by],
            drawing: None,
        };
        ledger.write(&cell, &Outcome::Done(found.clone())).unwrap();
        let back = ledger.read(&cell).found().unwrap().clone();
        assert_eq!((back.values[0].value, &back.curve), (0.1 + 0.2, &found.curve));
        assert_eq!((&back.data, &back.by), (&found.data, &found.by));
        assert!(back.values[0].low.is_nan());
        std::fs::write(dir.path().join("cells/a.json"), "{\"state\":\"do").unwrap();
        assert_eq!(ledger.read(&cell).word(), "missing");
        for outcome in [Outcome::Begun(None), Outcome::Begun(Some("x".into())), Outcome::Failed("w".into())] {
            ledger.write(&cell, &outcome).unwrap();
            assert_eq!(ledger.read(&cell).word(), outcome.word());
        }
    }

    #[test]
    fn ids_are_names_of_files_and_fields_are_fields() {
        assert_eq!(file_part("/a b/hopper-medium.hdf5"), "hopper-medium");
        assert_eq!(file_part("mopo+sumo s+a+r+s'"), "mopo+sumo_s+a+r+s_");
        assert_eq!(file_part("η=0.5"), "_=0.5");
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(number(Some(f64::NAN)), "");
    }
}
