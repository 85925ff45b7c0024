//! From the columns of a file to transitions: which row follows which, and which rows lack a next state.
//!
//! The rules, in one place for every flat format:
//! - Next observations are used when the file has them. Otherwise the next state of a row is the following row, but
//!   only inside an episode: never across a time limit, never across a reset.
//! - Time limits bootstrap, terminals do not. A time-limit row without a next observation is dropped and counted.
//! - An episode ends where the file says so. Without numbers of episodes or steps it also ends where the next
//!   observation is not the following observation.
//! - A terminal does not by itself end an episode: AntMaze marks every step near the goal while the ant walks on.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::Path;

use ndarray::{Array1, ArrayView1, Axis};

use super::checks::{check_finite, check_lengths};
use super::column_names::ColumnNames;
use super::dataset::{Dataset, Ends, ReadReport, SimColumns};
use super::formats::Format;
use super::messages::escaped;
use super::naming;
use super::options::{ReadOptions, TerminalNext};
use super::reset_detection::Resets;
use crate::batch::{Batch, Mat};
use crate::error::{Result, bad_file};

/// What a file holds, one entry a row.
#[derive(Default)]
pub(super) struct FileColumns {
    pub(super) obs: Mat,
    pub(super) act: Mat,
    pub(super) rew: Array1<f32>,
    pub(super) next_obs: Option<Mat>,
    pub(super) done: Array1<bool>,
    pub(super) timeout: Option<Array1<bool>>,
    /// Constant within an episode.
    pub(super) episode: Option<Vec<i64>>,
    /// Counts up by one within an episode.
    pub(super) step: Option<Vec<i64>>,
    pub(super) sim: Option<SimColumns>,
    pub(super) keys: FileKeys,
    /// What the columns are called, where the file says more than their places.
    pub(super) names: ColumnNames,
    pub(super) ignored: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) meta: BTreeMap<String, String>,
}

/// Under which keys the file holds the columns, for messages: one for a whole matrix, or one a column.
#[derive(Default)]
pub(super) struct FileKeys {
    pub(super) obs: Vec<String>,
    pub(super) act: Vec<String>,
    pub(super) rew: String,
    pub(super) next_obs: Vec<String>,
}

impl FileKeys {
    /// One key for each matrix.
    pub(super) fn of_arrays(obs: &str, act: &str, rew: &str, next_obs: &str) -> Self {
        Self {
            obs: vec![obs.into()],
            act: vec![act.into()],
            rew: rew.into(),
            next_obs: vec![next_obs.into()],
        }
    }
}

/// Turns columns into a dataset.
pub(super) fn assemble(
    mut columns: FileColumns,
    path: &Path,
    format: Format,
    options: &ReadOptions,
) -> Result<Dataset> {
    check_lengths(&columns, path)?;
    if !options.allow_non_finite {
        check_finite(&columns, path, format)?;
    }
    let rows_in_file = columns.rew.len();
    let mut notes = std::mem::take(&mut columns.notes);
    let name = naming::name_of(&columns, path, options, &mut notes)?;
    let ends = ends(&columns);
    let Links { kept, mut dropped, next_obs: how, follows } = match &columns.next_obs {
        Some(next) => link_with_next(&columns, next, options, &mut notes),
        None => link_by_order(&columns, options, &mut notes),
    };
    dropped.retain(|(_, count)| *count > 0);
    if kept.is_empty() {
        let reasons: Vec<String> = dropped.iter().map(|(why, n)| format!("{n} {why}")).collect();
        return Err(bad_file!(
            path,
            "wanted at least one transition, found none ({rows_in_file} {} in the file; {}); {}",
            if rows_in_file == 1 { "row" } else { "rows" },
            reasons.join(", "),
            match columns.is_interleaved() {
                true => "sort the rows by episode and step",
                false => "add next observations to the file",
            }
        ));
    }
    let cut = cut_after(&columns, &kept, &follows);
    let mut left_out = vec![true; rows_in_file];
    kept.iter().for_each(|&row| left_out[row] = false);
    let lost_ends = || (0..rows_in_file).filter(|&row| left_out[row] && columns.done[row]);
    let dropped_terminals = lost_ends().count();
    let dropped_terminal_rewards = lost_ends().map(|row| f64::from(columns.rew[row])).sum();
    let kept_names = ColumnNames::from_meta(&mut columns.meta);
    let FileColumns { obs, act, rew, next_obs, done, timeout, sim, names, .. } = columns;
    let names = if names.is_empty() { kept_names } else { names };
    let mut timeout = timeout.unwrap_or_else(|| Array1::from_elem(rows_in_file, false));
    for row in cut {
        timeout[row] |= !done[row];
    }
    let next_obs = next_obs.unwrap_or_else(|| {
        let successors: Vec<usize> = (0..rows_in_file).map(|i| i + usize::from(follows[i])).collect();
        obs.select(Axis(0), &successors)
    });
    let rows = Batch { obs, act, rew, next_obs, done };
    let whole = kept.len() == rows_in_file;
    let reading = ReadReport {
        rows_in_file,
        rows_kept: kept.len(),
        next_obs: how,
        dropped,
        dropped_terminals,
        dropped_terminal_rewards,
        ignored_keys: columns.ignored.iter().map(|key| escaped(key)).collect(),
        ends,
        notes,
    };
    Ok(Dataset {
        name,
        format,
        names: names.fitting(rows.obs_dim(), rows.act_dim()),
        reward_shift: 0.0,
        units: None,
        rows: if whole { rows } else { rows.select(&kept) },
        timeout: if whole { timeout } else { timeout.select(Axis(0), &kept) },
        episodes: episodes(&kept, &follows),
        sim: sim.map(|sim| if whole { sim } else { sim.select(&kept) }),
        reading,
        meta: columns.meta,
    })
}

/// What the file itself says about where episodes end. Flags that are never set mark nothing.
fn ends(columns: &FileColumns) -> Ends {
    let limits = columns.timeout.as_ref().is_some_and(|t| t.iter().any(|&t| t));
    if columns.next_obs.is_some() || columns.episode.is_some() || columns.step.is_some() || limits {
        Ends::Marked
    } else if columns.done.iter().any(|&d| d) {
        Ends::TerminalsOnly
    } else {
        Ends::Unknown
    }
}

/// Which rows are kept, and which row follows which.
struct Links {
    /// Kept rows, by their number in the file.
    kept: Vec<usize>,
    /// Why rows were dropped, and how many.
    dropped: Vec<(String, usize)>,
    /// How next observations were obtained.
    next_obs: String,
    /// Per row of the file: the following row goes on with the same episode. In a file without next observations, a
    /// kept row that nothing follows repeats its own observation.
    follows: Vec<bool>,
}

/// The file has next observations: every row is a transition.
fn link_with_next(
    columns: &FileColumns,
    next: &Mat,
    options: &ReadOptions,
    notes: &mut Vec<String>,
) -> Links {
    let n = columns.rew.len();
    let scales = column_scales(&columns.obs);
    let inside: Vec<usize> = (0..n).filter(|&i| !columns.ends_at(i)).collect();
    let goes_on = |i: usize, share: f32| same_state(next.row(i), columns.obs.row(i + 1), &scales, share);
    // Numbers of episodes and steps say it all, however coarsely states were rounded. One of them alone does, unless rows
    // are out of order. Only after a terminal another episode may go under the same number.
    let numbered = columns.episode.is_some() || columns.step.is_some();
    let apart = inside.iter().filter(|&&i| numbered && !columns.done[i] && !goes_on(i, COARSE)).count();
    let both = columns.episode.is_some() && columns.step.is_some();
    let by_number = both || (numbered && 2 * apart <= inside.len());
    let mut follows = vec![false; n];
    for &i in &inside {
        follows[i] = match by_number {
            true => !columns.done[i] || goes_on(i, COARSE),
            false => goes_on(i, ROUNDING),
        };
    }
    let unmarked = inside.iter().filter(|&&i| !follows[i] && !columns.done[i]).count();
    if by_number && apart > 0 {
        notes.push(format!(
            "next_obs is not the following obs in {apart} rows inside an episode: the numbers of episodes or steps decide"
        ));
    }
    if columns.timeout.is_none() && !by_number {
        notes
            .push("no timeouts in the file: episode ends are where next_obs is not the following obs".into());
    }
    if unmarked > 0 {
        notes.push(format!(
            "{unmarked} episode ends are marked neither terminal nor timeout: found where next_obs is not the \
             following obs"
        ));
    }
    let is_kept = |&i: &usize| !options.drop_timeouts || columns.done[i] || !columns.timed_out(i);
    let kept: Vec<usize> = (0..n).filter(is_kept).collect();
    let dropped = vec![("at a time limit (drop_timeouts)".into(), n - kept.len())];
    Links { kept, dropped, next_obs: "next observations of the file".into(), follows }
}

/// The file has no next observations: the following row, where it can only be the successor.
fn link_by_order(columns: &FileColumns, options: &ReadOptions, notes: &mut Vec<String>) -> Links {
    let n = columns.rew.len();
    let marked = columns.timeout.is_some() || columns.episode.is_some();
    let looks = !marked || (options.terminal_next == TerminalNext::Auto && columns.done.iter().any(|&d| d));
    let ordinary = |i: usize| !columns.done[i] && !columns.ends_at(i);
    let resets = if looks {
        let starts = (0..n).filter(|&i| i == 0 || columns.ends_at(i - 1)).collect();
        Resets::find(&columns.obs, &columns.act, ordinary, starts)
    } else {
        None
    };
    // Where terminals are followed by resets, as a rule, one that looks like a step is a reset like the others.
    let inner: Vec<usize> = (0..n).filter(|&i| columns.done[i] && !columns.ends_at(i)).collect();
    let possible = |i: usize| resets.as_ref().is_none_or(|r| r.is_possible(i));
    let all_reset = 2 * inner.iter().filter(|&&i| possible(i)).count() > inner.len();
    let mut inferred = 0;
    let follows: Vec<bool> = (0..n)
        .map(|i| {
            if columns.ends_at(i) {
                false
            } else if columns.done[i] {
                match options.terminal_next {
                    TerminalNext::Auto => !all_reset && !possible(i),
                    TerminalNext::Follow => true,
                    TerminalNext::Drop | TerminalNext::Repeat => false,
                }
            } else {
                let is_reset = !marked && resets.as_ref().is_some_and(|r| r.is_likely(i));
                inferred += usize::from(is_reset);
                !is_reset
            }
        })
        .collect();

    let mut kept = Vec::with_capacity(n);
    let (mut at_limit, mut at_reset, mut rewarded, mut at_gap) = (0, 0, 0, 0);
    let best = columns.rew.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for (i, &goes_on) in follows.iter().enumerate() {
        if goes_on || (columns.done[i] && options.terminal_next == TerminalNext::Repeat) {
            kept.push(i);
        } else if columns.done[i] {
            at_reset += 1;
            rewarded += usize::from(columns.rew[i] == best);
        } else if columns.timed_out(i) {
            at_limit += 1;
        } else {
            at_gap += 1;
        }
    }
    let dropped = vec![
        ("at a time limit: the next observation is not in the file".into(), at_limit),
        (
            format!(
                "terminal before a reset: the next observation is not in the file ({rewarded} of them carry the \
                 largest reward)"
            ),
            at_reset,
        ),
        ("last of the file or before a gap: the next observation is not in the file".into(), at_gap),
    ];
    if !marked {
        notes.push(match &resets {
            Some(_) => {
                format!("no timeouts in the file: {inferred} episode ends inferred from implausible steps")
            }
            None => "no timeouts in the file and too few rows to infer episode ends: taken as one log".into(),
        });
    }
    Links { kept, dropped, next_obs: by_order_text(options.terminal_next).into(), follows }
}

fn by_order_text(choice: TerminalNext) -> &'static str {
    match choice {
        TerminalNext::Auto => {
            "the following row inside an episode; terminal rows too where the step is plausible, else dropped"
        }
        TerminalNext::Drop => "the following row inside an episode; terminal rows dropped",
        TerminalNext::Repeat => "the following row inside an episode; terminal rows repeat their observation",
        TerminalNext::Follow => {
            "the following row inside an episode; after a terminal as well, even across a reset"
        }
    }
}

/// Kept rows after which the rest of the episode had to be dropped: the log is cut there.
fn cut_after(columns: &FileColumns, kept: &[usize], follows: &[bool]) -> Vec<usize> {
    let n = follows.len();
    // Where the file just stops, nothing was cut: only a marked end moves up to the row before it.
    let just_stops = |i: usize| i + 1 == n && !columns.done[i] && !columns.timed_out(i);
    let is_cut = |k: usize, i: usize| follows[i] && kept.get(k + 1) != Some(&(i + 1)) && !just_stops(i + 1);
    kept.iter().enumerate().filter(|&(k, &i)| is_cut(k, i)).map(|(_, &i)| i).collect()
}

/// Episodes as ranges over kept rows.
fn episodes(kept: &[usize], follows: &[bool]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    for (k, &i) in kept.iter().enumerate() {
        let goes_on = follows[i] && kept.get(k + 1) == Some(&(i + 1));
        if !goes_on {
            ranges.push(start..k + 1);
            start = k + 1;
        }
    }
    ranges
}

impl FileColumns {
    fn timed_out(&self, row: usize) -> bool {
        self.timeout.as_ref().is_some_and(|t| t[row])
    }

    /// Whether an episode's number comes back after another's, as in a log of parallel environments.
    fn is_interleaved(&self) -> bool {
        let mut runs = self.episode.clone().unwrap_or_default();
        runs.dedup();
        let count = runs.len();
        runs.into_iter().collect::<HashSet<i64>>().len() < count
    }

    /// Whether the file says that the following row belongs to another episode: it is the last row, a time limit
    /// ended it, or the episode's number changes or its step does not count up.
    fn ends_at(&self, row: usize) -> bool {
        row + 1 == self.rew.len()
            || self.timed_out(row)
            || self.episode.as_ref().is_some_and(|e| e[row] != e[row + 1])
            || self.step.as_ref().is_some_and(|s| s[row].checked_add(1) != Some(s[row + 1]))
    }
}

/// Root mean square of each column (finite entries only): what "small" means in its units.
fn column_scales(m: &Mat) -> Vec<f32> {
    // Row by row, as the numbers lie in memory.
    let mut sums = vec![(0.0, 0usize); m.ncols()];
    for row in m.rows() {
        for ((sum, count), v) in sums.iter_mut().zip(row).filter(|(_, v)| v.is_finite()) {
            *sum += f64::from(*v).powi(2);
            *count += 1;
        }
    }
    sums.into_iter().map(|(sum, count)| (sum / count.max(1) as f64).sqrt() as f32).collect()
}

/// What rounding by another program may do to a number, as a share of it or of its column's size.
const ROUNDING: f32 = 1e-4;
/// What rounding to a digit or two may do.
const COARSE: f32 = 0.1;

/// Equal up to this share, in the units of each column.
fn same_state(a: ArrayView1<'_, f32>, b: ArrayView1<'_, f32>, scales: &[f32], share: f32) -> bool {
    a.iter().zip(b).zip(scales).all(|((&a, &b), &scale)| {
        a == b || (a - b).abs() <= share * a.abs().max(scale) || (a.is_nan() && b.is_nan())
    })
}

/// The file's name without its extension.
pub(super) fn stem(path: &Path) -> String {
    path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}
