//! Tables with one transition a row: columns as CSV and Parquet load them, put together to transitions and back.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use ndarray::{Array1, Array2, ArrayView1};

use super::super::column_names::ColumnNames;
use super::super::dataset::{Dataset, SimColumns};
use super::super::messages::{escaped, flags};
use super::super::options::{ColumnMap, ReadOptions};
use super::super::transitions::{FileColumns, FileKeys, assemble};
use super::super::unknown_columns;
use super::Format;
use super::cells::{Cells, LoadedColumns, Precision};
use super::guess_columns::{absent, check_columns, check_map, guess, is_time, numbered};
use crate::error::{Error, Result};

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
        check_columns(path, names, &layout.wanted().into_iter().map(|(name, _)| name).collect::<Vec<_>>())?;
        Ok(layout)
    }

    /// Every column to load, each once, with the precision it is needed in.
    pub(super) fn wanted(&self) -> Vec<(String, Precision)> {
        let map = &self.map;
        let single = map.obs.iter().chain(&map.act).chain(map.next_obs.iter().flatten()).chain([&map.rew]);
        let flags = [&map.done, &map.timeout].into_iter().flatten().map(|n| (n, Precision::Flag));
        let double = self.sim.iter().flatten().chain(&map.step).map(|n| (n, Precision::Double));
        let mut wanted: Vec<(String, Precision)> = single.map(|n| (n.clone(), Precision::Single)).collect();
        for (name, precision) in flags.chain(double) {
            wanted.retain(|(n, _)| n != name);
            wanted.push((name.clone(), precision));
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

/// A loaded table: the columns it has and the ones that were read.
pub(super) struct LoadedTable<'a> {
    pub(super) format: Format,
    pub(super) layout: TableLayout,
    /// Every column of the file.
    pub(super) all: Vec<String>,
    /// Those that hold times by their type, whatever they are called.
    pub(super) times: Vec<String>,
    pub(super) columns: LoadedColumns<'a>,
    pub(super) meta: BTreeMap<String, String>,
    /// What the reader has to say.
    pub(super) notes: Vec<String>,
}

impl LoadedTable<'_> {
    /// Puts the columns together.
    pub(super) fn into_dataset(mut self, options: &ReadOptions) -> Result<Dataset> {
        self.columns.check_rows(&self.layout.map.obs[0])?;
        let used: HashSet<String> = self.layout.wanted().into_iter().map(|(n, _)| n).collect();
        let map = &self.layout.map;
        let mut notes = std::mem::take(&mut self.notes);
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
        let episode = match map.episode.as_ref().map(|name| (name, self.columns.cells.get(name))) {
            Some((_, Some(Cells::Labels(labels)))) => Some(labels.ids.clone()),
            Some((name, _)) => Some(self.integers(name)?),
            None => None,
        };
        if done.is_none() {
            notes.push("no column of terminals: no row is taken as terminal".into());
        }
        let ignored: Vec<String> = self.all.iter().filter(|n| !used.contains(*n)).cloned().collect();
        // A map leaves columns out on purpose: then there is nothing to guess.
        let absent = if options.columns.is_some() { Vec::new() } else { absent(map) };
        let (times, others): (Vec<String>, Vec<String>) =
            ignored.iter().cloned().partition(|n| is_time(n) || self.times.contains(n));
        notes.extend(times_note(&times));
        notes.extend(unknown_columns::note(&others, &absent));
        let rew = Array1::from(self.columns.singles(&map.rew)?.into_owned());
        let sim =
            self.layout.sim.iter().map(|names| self.columns.states(names)).collect::<Result<Vec<_>>>()?;
        let shown = |names: &[String]| names.iter().map(|n| escaped(n)).collect();
        let columns = FileColumns {
            obs: self.columns.matrix(&map.obs)?,
            act: self.columns.matrix(&map.act)?,
            next_obs: map.next_obs.as_ref().map(|names| self.columns.matrix(names)).transpose()?,
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
        assemble(columns, self.columns.path, self.format, options)
    }

    fn flags(&self, name: &str) -> Result<Array1<bool>> {
        let place = |row| self.format.row_place(self.columns.path, row);
        flags(self.columns.path, name, self.columns.doubles(name)?.iter().copied(), place)
    }

    fn integers(&self, name: &str) -> Result<Vec<i64>> {
        let integer = |(row, &v): (usize, &f64)| match v.fract() == 0.0 && v.abs() < 9e15 {
            true => Ok(v as i64),
            false => {
                let hint = "number episodes and steps with integers";
                let found = format!("{v} in {}", self.format.row_place(self.columns.path, row));
                Err(Error::key(self.columns.path, escaped(name), "integers", found, hint))
            }
        };
        self.columns.doubles(name)?.iter().enumerate().map(integer).collect()
    }
}

/// A time says when a row was logged, which no policy should act on.
fn times_note(names: &[String]) -> Option<String> {
    let list = names.iter().map(|n| escaped(n)).collect::<Vec<_>>().join(", ");
    let are = if names.len() == 1 { "a time, not an observation" } else { "times, not observations" };
    (!names.is_empty()).then(|| format!("not used: {list} ({are}); rows are taken in the file's order"))
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
