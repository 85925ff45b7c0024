//! Tables with one transition a row: columns as CSV and Parquet load them, put together to transitions and back.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use ndarray::{Array1, Array2, ArrayView1};

use super::super::column_names::ColumnNames;
use super::super::dataset::{Dataset, SimColumns};
use super::super::messages::{escaped, flags};
use super::super::options::{ColumnMap, ReadOptions};
use super::super::transitions::{FileColumns, FileKeys, assemble};
use super::super::unknown_columns;
use super::Format;
use super::guess_columns::{absent, check_map, guess, numbered};
use crate::error::{Error, Result};

/// The entries of one column.
pub(super) enum Cells {
    F32(Vec<f32>),
    F64(Vec<f64>),
    /// A list of the same length in every row, flattened.
    List {
        width: usize,
        values: Vec<f32>,
    },
    /// Of which only "equal or not" counts.
    Labels(Labels),
}

impl Cells {
    /// An empty column to fill.
    pub(super) fn new(precision: Precision) -> Self {
        match precision {
            Precision::Single => Self::F32(Vec::new()),
            Precision::Double => Self::F64(Vec::new()),
            Precision::Label => Self::Labels(Labels::default()),
        }
    }

    /// Adds a number.
    pub(super) fn push_float(&mut self, value: f64) {
        match self {
            Self::F32(values) | Self::List { values, .. } => values.push(value as f32),
            Self::F64(values) => values.push(value),
            Self::Labels(labels) => {
                if value.is_nan() {
                    labels.first_nan.get_or_insert(labels.ids.len());
                }
                labels.ids.push((value + 0.0).to_bits() as i64); // -0 is 0
            }
        }
    }

    /// Adds an integer.
    pub(super) fn push_integer(&mut self, value: i64) {
        match self {
            Self::Labels(labels) => labels.ids.push(value),
            _ => self.push_float(value as f64),
        }
    }

    /// Adds an integer that may be too large for [`Cells::push_integer`].
    pub(super) fn push_unsigned(&mut self, value: u64) {
        match self {
            Self::Labels(labels) => labels.ids.push(value as i64), // the same bits: still one number for each
            _ => self.push_float(value as f64),
        }
    }

    /// Adds a text; columns of numbers hold none.
    pub(super) fn push_text(&mut self, text: &[u8]) {
        if let Self::Labels(labels) = self {
            labels.push(text);
        }
    }

    fn rows(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::List { width, values } => values.len().checked_div(*width).unwrap_or(0),
            Self::Labels(labels) => labels.ids.len(),
        }
    }
}

/// Texts, each distinct one under a number of its own; or numbers as they are.
#[derive(Default)]
pub(super) struct Labels {
    ids: Vec<i64>,
    known: HashMap<Vec<u8>, i64>,
    /// The first row that is not a number.
    pub(super) first_nan: Option<usize>,
}

impl Labels {
    /// Adds a text.
    pub(super) fn push(&mut self, text: &[u8]) {
        let next = self.known.len() as i64;
        let id = match self.known.get(text) {
            Some(&id) => id,
            None => *self.known.entry(text.to_vec()).or_insert(next),
        };
        self.ids.push(id);
    }
}

/// How a column is to be loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    Single,
    Double,
    /// Any number or text, to be compared only.
    Label,
}

/// Which columns are used for what.
pub(super) struct TableLayout {
    map: ColumnMap,
    /// The columns of each matrix of [`SimColumns`].
    sim: Vec<Vec<String>>,
}

impl TableLayout {
    /// The columns to use of a table with these names.
    pub(super) fn resolve(path: &Path, names: &[String], options: &ReadOptions) -> Result<Self> {
        let map = match &options.columns {
            Some(map) => check_map(path, names, map).map(|()| map.clone())?,
            None => guess(path, names)?,
        };
        // Simulator states are an extra: an irregular series is left alone and listed with the ignored columns.
        let series = SimColumns::NAMES.map(|prefix| numbered(path, names, prefix).unwrap_or_default());
        let sim: Vec<_> = series.into_iter().take_while(|columns| !columns.is_empty()).collect();
        let layout = Self { map, sim: if sim.len() < 2 { Vec::new() } else { sim } };
        for (name, _) in layout.wanted() {
            let count = names.iter().filter(|n| **n == name).count();
            if count > 1 {
                let (wanted, hint) = ("one column of this name", "rename or remove the others");
                return Err(Error::key(path, escaped(&name), wanted, count.to_string(), hint));
            }
        }
        Ok(layout)
    }

    /// Every column to load, each once, with the precision it is needed in.
    pub(super) fn wanted(&self) -> Vec<(String, Precision)> {
        let map = &self.map;
        let single = map.obs.iter().chain(&map.act).chain(map.next_obs.iter().flatten()).chain([&map.rew]);
        let flags = [&map.done, &map.timeout, &map.step].into_iter().flatten();
        let double = self.sim.iter().flatten().chain(flags);
        let mut wanted: Vec<(String, Precision)> = single.map(|n| (n.clone(), Precision::Single)).collect();
        for name in double {
            wanted.retain(|(n, _)| n != name);
            wanted.push((name.clone(), Precision::Double));
        }
        match &map.episode {
            // Used as numbers as well: then it must be numbers.
            Some(name) if wanted.iter().any(|(n, _)| n == name) => {
                wanted.iter_mut().filter(|(n, _)| n == name).for_each(|(_, p)| *p = Precision::Double);
            }
            Some(name) => wanted.push((name.clone(), Precision::Label)),
            None => (),
        }
        let mut seen = HashSet::new();
        wanted.retain(|(n, _)| seen.insert(n.clone()));
        wanted
    }
}

/// A loaded table: its file, the columns it has and the ones that were read.
pub(super) struct LoadedTable<'a> {
    pub(super) path: &'a Path,
    pub(super) format: Format,
    pub(super) layout: TableLayout,
    /// Every column of the file.
    pub(super) all: Vec<String>,
    pub(super) cells: BTreeMap<String, Cells>,
    pub(super) meta: BTreeMap<String, String>,
}

impl LoadedTable<'_> {
    /// Puts the columns together.
    pub(super) fn into_dataset(mut self, options: &ReadOptions) -> Result<Dataset> {
        self.check_rows()?;
        let used: Vec<String> = self.layout.wanted().into_iter().map(|(n, _)| n).collect();
        let map = &self.layout.map;
        let mut notes = Vec::new();
        let timeout = map.timeout.as_ref().map(|name| self.flags(name)).transpose()?;
        let mut done = map.done.as_ref().map(|name| self.flags(name)).transpose()?;
        if let (Some(done), Some(timeout), Some(name)) = (&mut done, &timeout, &map.done)
            && ["done", "dones"].iter().any(|word| word.eq_ignore_ascii_case(name))
        {
            let both = done.iter().zip(timeout).filter(|&(&d, &t)| d && t).count();
            done.iter_mut().zip(timeout).for_each(|(d, &t)| *d &= !t);
            if both > 0 {
                notes.push(format!(
                    "rows with both `done` and a timeout ({both}) are taken as time limits, not terminals"
                ));
            }
        }
        let episode = match map.episode.as_ref().map(|name| (name, self.cells.get(name))) {
            Some((_, Some(Cells::Labels(labels)))) => Some(labels.ids.clone()),
            Some((name, _)) => Some(self.integers(name)?),
            None => None,
        };
        if done.is_none() {
            notes.push("no column of terminals: no row is taken as terminal".into());
        }
        let ignored: Vec<String> = self.all.iter().filter(|n| !used.contains(n)).cloned().collect();
        // A map leaves columns out on purpose: then there is nothing to guess.
        let absent = if options.columns.is_some() { Vec::new() } else { absent(map) };
        notes.extend(unknown_columns::note(&ignored, &absent));
        let rew = Array1::from(self.singles(&map.rew)?.into_owned());
        let sim = self.layout.sim.iter().map(|names| self.states(names)).collect::<Result<Vec<_>>>()?;
        let shown = |names: &[String]| names.iter().map(|n| escaped(n)).collect();
        let columns = FileColumns {
            obs: self.matrix(&map.obs)?,
            act: self.matrix(&map.act)?,
            next_obs: map.next_obs.as_ref().map(|names| self.matrix(names)).transpose()?,
            done: done.unwrap_or_else(|| Array1::from_elem(rew.len(), false)),
            rew,
            timeout,
            episode,
            step: map.step.as_ref().map(|name| self.integers(name)).transpose()?,
            sim: SimColumns::from_columns(sim),
            // Guessed columns are numbered: their names say no more than their places.
            names: match options.columns {
                Some(_) => ColumnNames { obs: map.obs.clone(), act: map.act.clone() },
                None => ColumnNames::default(),
            },
            keys: FileKeys {
                obs: shown(&map.obs),
                act: shown(&map.act),
                rew: escaped(&map.rew),
                next_obs: map.next_obs.as_ref().map_or_else(|| vec![String::new()], |names| shown(names)),
            },
            ignored,
            notes,
            meta: std::mem::take(&mut self.meta),
        };
        assemble(columns, self.path, self.format, options)
    }

    /// Makes sure that all columns have as many rows as the first of the observation.
    fn check_rows(&self) -> Result<()> {
        let first = &self.layout.map.obs[0];
        let wanted = self.cells.get(first).map_or(0, Cells::rows);
        for (name, column) in &self.cells {
            if column.rows() != wanted {
                let hint = "the table is damaged or was put together wrongly: write it again";
                let wanted = format!("{wanted} rows, as in `{}`", escaped(first));
                return Err(Error::key(self.path, escaped(name), wanted, column.rows().to_string(), hint));
            }
        }
        Ok(())
    }

    fn flags(&self, name: &str) -> Result<Array1<bool>> {
        let place = |row| self.format.row_place(self.path, row);
        flags(self.path, name, self.doubles(name)?.iter().copied(), place)
    }

    fn integers(&self, name: &str) -> Result<Vec<i64>> {
        let integer = |(row, &v): (usize, &f64)| match v.fract() == 0.0 && v.abs() < 9e15 {
            true => Ok(v as i64),
            false => {
                let hint = "number episodes and steps with integers";
                let found = format!("{v} in {}", self.format.row_place(self.path, row));
                Err(Error::key(self.path, escaped(name), "integers", found, hint))
            }
        };
        self.doubles(name)?.iter().enumerate().map(integer).collect()
    }

    /// A column of numbers in single precision.
    fn singles(&self, name: &str) -> Result<Cow<'_, [f32]>> {
        match self.cells.get(name) {
            Some(Cells::F32(values)) => Ok(values.into()),
            _ => Ok(self.doubles(name)?.iter().map(|&v| v as f32).collect()),
        }
    }

    /// A column of numbers in double precision.
    fn doubles(&self, name: &str) -> Result<Cow<'_, [f64]>> {
        match self.cells.get(name) {
            Some(Cells::F64(values)) => Ok(values.into()),
            Some(Cells::F32(values)) => Ok(values.iter().map(|&v| f64::from(v)).collect()),
            Some(Cells::List { .. } | Cells::Labels(_)) | None => {
                let hint = "give a column of plain numbers";
                Err(Error::key(self.path, escaped(name), "one number a row", "lists", hint))
            }
        }
    }

    fn states(&self, names: &[String]) -> Result<Array2<f64>> {
        let columns = names.iter().map(|name| self.doubles(name)).collect::<Result<Vec<_>>>()?;
        Ok(side_by_side(&columns))
    }

    /// The named columns side by side; a list column counts as many.
    fn matrix(&self, names: &[String]) -> Result<Array2<f32>> {
        if let [name] = names
            && let Some(cells @ Cells::List { width, values }) = self.cells.get(name)
        {
            return Array2::from_shape_vec((cells.rows(), *width), values.clone()).map_err(|_| {
                let (wanted, found) = ("lists of one length", "several lengths");
                Error::key(self.path, escaped(name), wanted, found, "pad or split them")
            });
        }
        let columns = names.iter().map(|name| self.singles(name)).collect::<Result<Vec<_>>>()?;
        Ok(side_by_side(&columns))
    }
}

fn side_by_side<T: Copy>(columns: &[Cow<'_, [T]>]) -> Array2<T> {
    let rows = columns.first().map_or(0, |column| column.len());
    Array2::from_shape_fn((rows, columns.len()), |(i, j)| columns[j][i])
}

/// A column of a dataset on its way into a table.
pub(super) enum OutColumn<'a> {
    F32(ArrayView1<'a, f32>),
    F64(ArrayView1<'a, f64>),
    Bool(ArrayView1<'a, bool>),
    I64(Vec<i64>),
}

/// The columns of `data` under the names that [`guess`] finds.
pub(super) fn columns_of(data: &Dataset) -> Vec<(String, OutColumn<'_>)> {
    fn add<'a, T>(
        out: &mut Vec<(String, OutColumn<'a>)>,
        name: &str,
        m: &'a Array2<T>,
        wrap: fn(ArrayView1<'a, T>) -> OutColumn<'a>,
    ) {
        out.extend(m.columns().into_iter().enumerate().map(|(j, c)| (format!("{name}_{j}"), wrap(c))));
    }
    let rows = &data.rows;
    let mut episode = vec![0i64; rows.len()];
    let mut step = vec![0i64; rows.len()];
    for (number, range) in data.episodes.iter().enumerate() {
        for i in range.clone() {
            (episode[i], step[i]) = (number as i64, (i - range.start) as i64);
        }
    }
    let mut out = vec![("episode".into(), OutColumn::I64(episode)), ("step".into(), OutColumn::I64(step))];
    add(&mut out, "obs", &rows.obs, OutColumn::F32);
    add(&mut out, "act", &rows.act, OutColumn::F32);
    out.push(("reward".into(), OutColumn::F32(rows.rew.view())));
    add(&mut out, "next_obs", &rows.next_obs, OutColumn::F32);
    out.push(("terminal".into(), OutColumn::Bool(rows.done.view())));
    out.push(("timeout".into(), OutColumn::Bool(data.timeout.view())));
    for (name, matrix) in data.sim.iter().flat_map(|sim| sim.columns()) {
        add(&mut out, name, matrix, OutColumn::F64);
    }
    out
}
