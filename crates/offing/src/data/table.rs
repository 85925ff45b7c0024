//! Tables with one transition a row: which columns hold what, from a [`ColumnMap`] or guessed from their names.
//!
//! Guessed names, case-insensitive: numbered columns `obs_0 obs_1 …` (also `observation`, `state`), `act_0 …` (`action`),
//! `next_obs_0 …`, or one list column of these names in Parquet; `reward`; `terminal` (`terminated`, `done`);
//! `timeout` (`truncated`); `episode`; `step`; and simulator states `qpos_0 …`, `qvel_0 …`, `goal_0 …`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use ndarray::{Array1, Array2, ArrayView1};

use super::csv::place;
use super::dataset::{Dataset, Format, SimColumns};
use super::hdf5::{bad_flag, escaped, some_names};
use super::options::{ColumnMap, ReadOptions};
use super::transitions::{Columns, Keys, assemble};
use super::unknown_columns::{self, Absent, split_number};
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

/// Texts, each distinct one under a number of its own; or numbers as they are.
#[derive(Default)]
pub(super) struct Labels {
    pub(super) ids: Vec<i64>,
    known: HashMap<Vec<u8>, i64>,
}

impl Labels {
    /// Adds a text.
    pub(super) fn push(&mut self, text: &[u8]) {
        let id = match self.known.get(text) {
            Some(&id) => id,
            None => {
                let id = self.known.len() as i64;
                self.known.insert(text.to_vec(), id);
                id
            }
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
pub(super) struct Layout {
    pub(super) map: ColumnMap,
    qpos: Vec<String>,
    qvel: Vec<String>,
    goal: Vec<String>,
}

const OBS: &[&str] = &["obs", "observation", "observations", "state", "states"];
const ACT: &[&str] = &["act", "action", "actions"];
const NEXT: &[&str] = &["next_obs", "next_observation", "next_observations", "next_state", "next_states"];
const REW: &[&str] = &["reward", "rewards", "rew"];
const DONE: &[&str] =
    &["terminal", "terminals", "terminated", "termination", "terminations", "done", "dones"];
const TIMEOUT: &[&str] = &["timeout", "timeouts", "truncated", "truncation", "truncations"];
const EPISODE: &[&str] = &["episode", "episode_id", "episodes", "trajectory"];
const STEP: &[&str] = &["step", "timestep"];

impl Layout {
    /// The columns to use of a table with these names.
    pub(super) fn resolve(path: &Path, names: &[String], map: Option<&ColumnMap>) -> Result<Self> {
        let map = match map {
            Some(map) => check_map(path, names, map)?.clone(),
            None => guess(path, names)?,
        };
        // Simulator states are an extra: an irregular series is left alone and listed with the ignored columns.
        let series = |prefix: &str| numbered(path, names, prefix).unwrap_or_default();
        let (qpos, qvel) = (series("qpos"), series("qvel"));
        let layout = if qpos.is_empty() || qvel.is_empty() {
            Self { map, qpos: Vec::new(), qvel: Vec::new(), goal: Vec::new() }
        } else {
            Self { map, qpos, qvel, goal: series("goal") }
        };
        for (name, _) in layout.wanted() {
            let count = names.iter().filter(|n| **n == name).count();
            if count > 1 {
                let hint = "rename or remove the others";
                return Err(Error::key(
                    path,
                    escaped(&name),
                    "one column of this name",
                    count.to_string(),
                    hint,
                ));
            }
        }
        Ok(layout)
    }

    /// Every column to load, each once, with the precision it is needed in.
    pub(super) fn wanted(&self) -> Vec<(String, Precision)> {
        let map = &self.map;
        let single = map.obs.iter().chain(&map.act).chain(map.next_obs.iter().flatten()).chain([&map.rew]);
        let flags = [&map.done, &map.timeout, &map.step].into_iter().flatten();
        let double = self.qpos.iter().chain(&self.qvel).chain(&self.goal).chain(flags);
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

    /// Puts loaded columns together.
    pub(super) fn build(
        self,
        path: &Path,
        format: Format,
        all: &[String],
        cells: BTreeMap<String, Cells>,
        meta: BTreeMap<String, String>,
        options: &ReadOptions,
    ) -> Result<Dataset> {
        check_rows(path, &self.map.obs[0], &cells)?;
        let used: Vec<String> = self.wanted().into_iter().map(|(n, _)| n).collect();
        let map = self.map;
        let mut notes = Vec::new();
        let flags =
            |cells: &BTreeMap<String, Cells>, name: &Option<String>| -> Result<Option<Array1<bool>>> {
                let Some(name) = name else { return Ok(None) };
                let values = numbers(path, name, cells)?;
                if let Some(row) = values.iter().position(|&v| v != 0.0 && v != 1.0) {
                    return Err(bad_flag(path, name, values[row], &place(path, format, row)));
                }
                Ok(Some(values.into_iter().map(|v| v != 0.0).collect()))
            };
        let whole = |cells: &BTreeMap<String, Cells>, name: &Option<String>| -> Result<Option<Vec<i64>>> {
            let Some(name) = name else { return Ok(None) };
            numbers(path, name, cells)?
                .into_iter()
                .enumerate()
                .map(|(row, v)| match v.fract() == 0.0 && v.abs() < 9e15 {
                    true => Ok(v as i64),
                    false => {
                        let hint = "number episodes and steps with integers";
                        let found = format!("{v} in {}", place(path, format, row));
                        Err(Error::key(path, escaped(name), "integers", found, hint))
                    }
                })
                .collect::<Result<Vec<_>>>()
                .map(Some)
        };
        let timeout = flags(&cells, &map.timeout)?;
        let mut done = flags(&cells, &map.done)?;
        if let (Some(done), Some(timeout), Some("done" | "dones")) =
            (&mut done, &timeout, map.done.as_deref().map(str::to_ascii_lowercase).as_deref())
        {
            let both = done.iter().zip(timeout).filter(|&(&d, &t)| d && t).count();
            done.iter_mut().zip(timeout).for_each(|(d, &t)| *d &= !t);
            if both > 0 {
                notes.push(format!(
                    "rows with both `done` and a timeout ({both}) are taken as time limits, not terminals"
                ));
            }
        }
        let episode = match map.episode.as_ref().and_then(|name| cells.get(name)) {
            Some(Cells::Labels(labels)) => Some(labels.ids.clone()),
            _ => whole(&cells, &map.episode)?,
        };
        let step = whole(&cells, &map.step)?;
        let sim = match self.qpos.is_empty() {
            true => None,
            false => Some(SimColumns {
                qpos: wide(path, &self.qpos, &cells)?,
                qvel: wide(path, &self.qvel, &cells)?,
                goal: if self.goal.is_empty() { None } else { Some(wide(path, &self.goal, &cells)?) },
            }),
        };
        let rew: Array1<f32> = match cells.get(&map.rew) {
            Some(Cells::F32(values)) => Array1::from(values.clone()),
            _ => numbers(path, &map.rew, &cells)?.into_iter().map(|v| v as f32).collect(),
        };
        if done.is_none() {
            notes.push("no column of terminals: no row is taken as terminal".into());
        }
        let ignored: Vec<String> = all.iter().filter(|n| !used.contains(n)).cloned().collect();
        // A map leaves columns out on purpose: then there is nothing to guess.
        let absent = if options.columns.is_some() { Vec::new() } else { absent(&map) };
        notes.extend(unknown_columns::note(&ignored, &absent));
        let columns = Columns {
            obs: matrix(path, &map.obs, &cells)?,
            act: matrix(path, &map.act, &cells)?,
            next_obs: map.next_obs.as_ref().map(|names| matrix(path, names, &cells)).transpose()?,
            done: done.unwrap_or_else(|| Array1::from_elem(rew.len(), false)),
            rew,
            timeout,
            episode,
            step,
            sim,
            keys: Keys {
                obs: map.obs.iter().map(|n| escaped(n)).collect(),
                act: map.act.iter().map(|n| escaped(n)).collect(),
                rew: escaped(&map.rew),
                next_obs: map
                    .next_obs
                    .map_or_else(|| vec![String::new()], |names| names.iter().map(|n| escaped(n)).collect()),
            },
            ignored,
            notes,
            meta,
        };
        assemble(columns, path, format, options)
    }
}

/// A column of a dataset on its way into a table.
pub(super) enum Out<'a> {
    F32(ArrayView1<'a, f32>),
    F64(ArrayView1<'a, f64>),
    Bool(ArrayView1<'a, bool>),
    I64(Vec<i64>),
}

/// The columns of `data` under the names that [`Layout::resolve`] guesses.
pub(super) fn columns_of(data: &Dataset) -> Vec<(String, Out<'_>)> {
    fn add<'a, T>(
        out: &mut Vec<(String, Out<'a>)>,
        name: &str,
        m: &'a Array2<T>,
        wrap: fn(ArrayView1<'a, T>) -> Out<'a>,
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
    let mut out = vec![("episode".into(), Out::I64(episode)), ("step".into(), Out::I64(step))];
    add(&mut out, "obs", &rows.obs, Out::F32);
    add(&mut out, "act", &rows.act, Out::F32);
    out.push(("reward".into(), Out::F32(rows.rew.view())));
    add(&mut out, "next_obs", &rows.next_obs, Out::F32);
    out.push(("terminal".into(), Out::Bool(rows.done.view())));
    out.push(("timeout".into(), Out::Bool(data.timeout.view())));
    if let Some(sim) = &data.sim {
        add(&mut out, "qpos", &sim.qpos, Out::F64);
        add(&mut out, "qvel", &sim.qvel, Out::F64);
        if let Some(goal) = &sim.goal {
            add(&mut out, "goal", goal, Out::F64);
        }
    }
    out
}

fn check_map<'a>(path: &Path, names: &[String], map: &'a ColumnMap) -> Result<&'a ColumnMap> {
    for (what, list) in [("obs", &map.obs), ("act", &map.act)] {
        if list.is_empty() {
            let hint = "list the columns in the column map";
            return Err(Error::key(path, what, "at least one column in the column map", "none", hint));
        }
    }
    let optional = [&map.done, &map.timeout, &map.episode, &map.step].into_iter().flatten();
    let rew = Some(&map.rew).filter(|name| !name.is_empty());
    let all = map.obs.iter().chain(&map.act).chain(map.next_obs.iter().flatten()).chain(rew).chain(optional);
    for name in all {
        if !names.contains(name) {
            return Err(no_column(path, name, "this column, as the column map says", names));
        }
    }
    for (what, list) in
        [("obs", &map.obs), ("act", &map.act), ("next_obs", map.next_obs.as_ref().unwrap_or(&Vec::new()))]
    {
        let mut seen = HashSet::new();
        if let Some(name) = list.iter().find(|n| !seen.insert(*n)) {
            let wanted = format!("this column once in `{what}` of the column map");
            let hint = "correct the column map";
            return Err(Error::key(path, escaped(name), wanted, "it more than once", hint));
        }
    }
    if rew.is_none() {
        let hint = "add `rew`, the name of the column with the reward, to the column map";
        return Err(Error::key(path, "rew", "the name of a column in the column map", "no `rew`", hint));
    }
    Ok(map)
}

fn guess(path: &Path, names: &[String]) -> Result<ColumnMap> {
    let one = |candidates: &[&str]| {
        candidates.iter().find_map(|c| names.iter().find(|n| n.eq_ignore_ascii_case(c)).cloned())
    };
    let many = |candidates: &[&str]| -> Result<Vec<String>> {
        for candidate in candidates {
            let series = numbered(path, names, candidate)?;
            if !series.is_empty() {
                return Ok(series);
            }
        }
        Ok(one(candidates).into_iter().collect())
    };
    let (obs, act, next_obs) = (many(OBS)?, many(ACT)?, many(NEXT)?);
    for (list, what) in [(&obs, "obs_0"), (&act, "act_0")] {
        if list.is_empty() {
            return Err(no_column(path, what, "columns of this name and on", names));
        }
    }
    check_starts(path, &obs, &act, &next_obs)?;
    let rew = one(REW).ok_or_else(|| no_column(path, "reward", "a column of this name", names))?;
    Ok(ColumnMap {
        obs,
        act,
        rew,
        next_obs: Some(next_obs).filter(|n| !n.is_empty()),
        done: one(DONE),
        timeout: one(TIMEOUT),
        episode: one(EPISODE),
        step: one(STEP),
    })
}

/// What a file with these columns has not, and what a column that nothing reads may therefore be a misspelling of.
fn absent(map: &ColumnMap) -> Vec<Absent> {
    let next = Absent { name: "next_obs_0", known: NEXT, also: unknown_columns::NEXT_ALSO, parts: &[] };
    let done = Absent {
        name: "done",
        known: DONE,
        also: unknown_columns::DONE_ALSO,
        parts: &["done", "terminal", "terminated"],
    };
    let timeout = Absent {
        name: "timeout",
        known: TIMEOUT,
        also: unknown_columns::TIMEOUT_ALSO,
        parts: &["timeout", "truncated", "truncation"],
    };
    let episode = Absent { name: "episode", known: EPISODE, also: unknown_columns::EPISODE_ALSO, parts: &[] };
    let roles = [
        (map.next_obs.is_none(), next),
        (map.done.is_none(), done),
        (map.timeout.is_none(), timeout),
        (map.episode.is_none(), episode),
    ];
    roles.into_iter().filter(|(missing, _)| *missing).map(|(_, role)| role).collect()
}

/// Counting from 1 is a habit when observations and actions do it alike; one series alone has lost its first column.
fn check_starts(path: &Path, obs: &[String], act: &[String], next_obs: &[String]) -> Result<()> {
    let start = |series: &[String]| series.first().and_then(|name| split_number(name).1);
    let next_fits = next_obs.is_empty() || start(next_obs) == Some(1);
    if start(obs) == Some(1) && start(act) == Some(1) && next_fits {
        return Ok(());
    }
    for series in [obs, act, next_obs] {
        if let (Some(first), Some(1)) = (series.first(), start(series)) {
            let wanted = "columns counted from 0 (or obs, act and next_obs all from 1)";
            let hint = "add the missing column, rename them, or say which columns to use in a column map";
            return Err(Error::key(path, escaped(first), wanted, "this one as the first", hint));
        }
    }
    Ok(())
}

/// Columns `prefix_0, prefix_1 …` (also `prefix0`, `prefix.0`, `prefix[0]`) by number, which counts from 0 or 1
/// without gaps ([`check_starts`] looks at which).
fn numbered(path: &Path, names: &[String], prefix: &str) -> Result<Vec<String>> {
    let number = |name: &str| -> Option<u32> {
        let (head, rest) = name.split_at_checked(prefix.len())?;
        let rest = rest.strip_prefix(['_', '.', '[']).unwrap_or(rest);
        let rest = rest.strip_suffix(']').unwrap_or(rest);
        (head.eq_ignore_ascii_case(prefix) && rest.bytes().all(|b| b.is_ascii_digit()))
            .then(|| rest.parse().ok())?
    };
    let mut found: Vec<(u32, &String)> = names.iter().filter_map(|n| Some((number(n)?, n))).collect();
    found.sort();
    for pair in found.windows(2) {
        let ((a, first), (b, second)) = (pair[0], pair[1]);
        if a == b {
            let found = match first == second {
                true => "two of this name".into(),
                false => format!("`{}` as well", escaped(second)),
            };
            let (wanted, hint) = (format!("one column with number {a}"), "rename or remove one of them");
            return Err(Error::key(path, escaped(first), wanted, found, hint));
        }
        if b > a + 1 {
            return Err(gap(path, first, a + 1, second));
        }
    }
    match found.first() {
        Some(&(number, first)) if number > 1 => Err(gap(path, prefix, 0, first)),
        _ => Ok(found.into_iter().map(|(_, n)| n.clone()).collect()),
    }
}

fn gap(path: &Path, key: &str, missing: u32, found: &str) -> Error {
    let wanted = format!("number {missing} next");
    let hint = "add the missing column, or say which columns to use in a column map";
    Error::key(path, escaped(key), wanted, format!("`{}`", escaped(found)), hint)
}

fn no_column(path: &Path, key: &str, wanted: &str, names: &[String]) -> Error {
    let hint =
        "say which columns hold what in a column map (obs, act, rew, next_obs, done, timeout, episode, step)";
    Error::key(path, escaped(key), wanted, some_names(names), hint)
}

/// All columns have as many rows as the first of the observation.
fn check_rows(path: &Path, first: &str, cells: &BTreeMap<String, Cells>) -> Result<()> {
    let rows = |cells: &Cells| match cells {
        Cells::F32(values) => values.len(),
        Cells::F64(values) => values.len(),
        Cells::List { width, values } => values.len().checked_div(*width).unwrap_or(0),
        Cells::Labels(labels) => labels.ids.len(),
    };
    let wanted = cells.get(first).map_or(0, rows);
    for (name, column) in cells {
        if rows(column) != wanted {
            let hint = "the table is damaged or was put together wrongly: write it again";
            let (wanted, found) =
                (format!("{wanted} rows, as in `{}`", escaped(first)), rows(column).to_string());
            return Err(Error::key(path, escaped(name), wanted, found, hint));
        }
    }
    Ok(())
}

fn numbers(path: &Path, name: &str, cells: &BTreeMap<String, Cells>) -> Result<Vec<f64>> {
    match cells.get(name) {
        Some(Cells::F64(values)) => Ok(values.clone()),
        Some(Cells::F32(values)) => Ok(values.iter().map(|&v| f64::from(v)).collect()),
        Some(Cells::List { .. } | Cells::Labels(_)) | None => Err(Error::key(
            path,
            escaped(name),
            "one number a row",
            "lists",
            "give a column of plain numbers",
        )),
    }
}

fn wide(path: &Path, names: &[String], cells: &BTreeMap<String, Cells>) -> Result<Array2<f64>> {
    let columns: Vec<Vec<f64>> = names.iter().map(|n| numbers(path, n, cells)).collect::<Result<_>>()?;
    let rows = columns.first().map_or(0, Vec::len);
    Ok(Array2::from_shape_fn((rows, columns.len()), |(i, j)| columns[j][i]))
}

/// The named columns side by side; a list column counts as many.
fn matrix(path: &Path, names: &[String], cells: &BTreeMap<String, Cells>) -> Result<Array2<f32>> {
    if let [name] = names
        && let Some(Cells::List { width, values }) = cells.get(name)
    {
        let rows = values.len().checked_div(*width).unwrap_or(0);
        return Array2::from_shape_vec((rows, *width), values.clone()).map_err(|_| {
            Error::key(path, escaped(name), "lists of one length", "several lengths", "pad or split them")
        });
    }
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        columns.push(match cells.get(name) {
            Some(Cells::F32(values)) => std::borrow::Cow::Borrowed(values),
            _ => std::borrow::Cow::Owned(numbers(path, name, cells)?.into_iter().map(|v| v as f32).collect()),
        });
    }
    let rows = columns.first().map_or(0, |c| c.len());
    let mut out = Array2::zeros((rows, columns.len()));
    for (mut row, i) in out.rows_mut().into_iter().zip(0..) {
        let i: usize = i;
        row.iter_mut().zip(&columns).for_each(|(cell, column)| *cell = column[i]);
    }
    Ok(out)
}
