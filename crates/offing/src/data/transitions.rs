//! From the columns of a file to transitions: which row follows which, and what the file cannot tell.
//!
//! The rules, in one place for every flat format:
//! - Next observations are used when the file has them. Otherwise the next state of a row is the following row, but
//!   only inside an episode: never across a time limit, never across a reset.
//! - Time limits bootstrap, terminals do not. A time-limit row without a next observation is dropped and counted.
//! - An episode ends where the file says so, and also where the next observation is not the following observation.
//! - A terminal does not by itself end an episode: AntMaze marks every step near the goal while the ant walks on.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use ndarray::{Array1, ArrayView1};

use super::checks::{check_finite, check_lengths};
use super::dataset::{Dataset, Ends, Format, ReadReport, SimColumns};
use super::hdf5::escaped;
use super::naming;
use super::options::{ReadOptions, TerminalNext};
use super::reset_detection::StepScale;
use crate::batch::{Batch, Mat};
use crate::error::{Error, Result};

/// What a flat file holds, one entry a row.
pub(super) struct Columns {
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
    pub(super) keys: Keys,
    pub(super) ignored: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) meta: BTreeMap<String, String>,
}

/// What the columns are called in the file, for messages: one name for a whole matrix, or one a column.
pub(super) struct Keys {
    pub(super) obs: Vec<String>,
    pub(super) act: Vec<String>,
    pub(super) rew: String,
    pub(super) next_obs: Vec<String>,
}

/// Turns columns into a dataset.
pub(super) fn assemble(
    mut columns: Columns,
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
    let links = link(&columns, options, &mut notes);
    let Links { kept, dropped, repeat, next_obs: how, follows, cut } = links;

    let done = std::mem::take(&mut columns.done);
    let mut timeout = columns.timeout.take().unwrap_or_else(|| Array1::from_elem(rows_in_file, false));
    for &row in &cut {
        timeout[row] |= !done[row];
    }
    let rows = Batch {
        obs: columns.obs,
        act: columns.act,
        rew: columns.rew,
        next_obs: match columns.next_obs {
            Some(next) => next,
            None => Mat::zeros((0, 0)),
        },
        done,
    };
    let rows = pick(rows, &kept, &repeat);
    if rows.is_empty() {
        let reasons: Vec<String> = dropped.iter().map(|(why, n)| format!("{n} {why}")).collect();
        return Err(Error::file(
            path,
            format!(
                "wanted at least one transition, found none ({rows_in_file} rows in the file; {}); \
                 add next observations to the file",
                reasons.join(", ")
            ),
        ));
    }
    let whole = kept.len() == rows_in_file;
    let reading = ReadReport {
        rows_in_file,
        rows_kept: kept.len(),
        next_obs: how,
        dropped,
        ignored_keys: columns.ignored.iter().map(|key| escaped(key)).collect(),
        ends,
        notes,
    };
    Ok(Dataset {
        name,
        format,
        reward_shift: 0.0,
        timeout: if whole { timeout } else { kept.iter().map(|&i| timeout[i]).collect() },
        episodes: episodes(&kept, &follows),
        sim: columns.sim.map(|sim| if whole { sim } else { sim.select(&kept) }),
        rows,
        reading,
        meta: columns.meta,
    })
}

/// What the file itself says about where episodes end. Flags that are never set mark nothing.
fn ends(columns: &Columns) -> Ends {
    let limits = columns.timeout.as_ref().is_some_and(|t| t.iter().any(|&t| t));
    if columns.next_obs.is_some() || columns.episode.is_some() || columns.step.is_some() || limits {
        Ends::Told
    } else if columns.done.iter().any(|&d| d) {
        Ends::TerminalsOnly
    } else {
        Ends::Unknown
    }
}

/// Which rows are kept and how they hang together.
struct Links {
    /// Kept rows, by their number in the file.
    kept: Vec<usize>,
    dropped: Vec<(String, usize)>,
    /// Kept rows whose next observation is their own observation.
    repeat: Vec<usize>,
    /// How next observations were obtained.
    next_obs: String,
    /// Per row of the file: the following row goes on with the same episode.
    follows: Vec<bool>,
    /// Kept rows after which the rest of the episode had to be dropped: the log is cut there.
    cut: Vec<usize>,
}

fn link(columns: &Columns, options: &ReadOptions, notes: &mut Vec<String>) -> Links {
    match &columns.next_obs {
        Some(next) => link_with_next(columns, next, options, notes),
        None => link_by_order(columns, options, notes),
    }
}

/// The file has next observations: every row is a transition.
fn link_with_next(columns: &Columns, next: &Mat, options: &ReadOptions, notes: &mut Vec<String>) -> Links {
    let n = columns.rew.len();
    let scales = column_scales(&columns.obs);
    let mut unmarked = 0;
    let follows: Vec<bool> = (0..n)
        .map(|i| {
            if i + 1 == n || timed_out(columns, i) || !same_episode(columns, i) {
                return false;
            }
            let goes_on = same_state(next.row(i), columns.obs.row(i + 1), &scales);
            unmarked += usize::from(!goes_on && !columns.done[i]);
            goes_on
        })
        .collect();
    if columns.timeout.is_none() {
        notes
            .push("no timeouts in the file: episode ends are where next_obs is not the following obs".into());
    }
    if unmarked > 0 {
        notes.push(format!(
            "{unmarked} episode ends are marked neither terminal nor timeout: found where next_obs is not the following obs"
        ));
    }
    let mut dropped = Vec::new();
    let kept: Vec<usize> = if options.keep_timeouts {
        (0..n).collect()
    } else {
        let kept: Vec<usize> = (0..n).filter(|&i| columns.done[i] || !timed_out(columns, i)).collect();
        if kept.len() < n {
            dropped.push(("at a time limit (keep_timeouts is off)".into(), n - kept.len()));
        }
        kept
    };
    let cut = cut_after(columns, &kept, &follows);
    let next_obs = "next observations of the file".into();
    Links { kept, dropped, repeat: Vec::new(), next_obs, follows, cut }
}

/// The file has no next observations: the following row, where it can only be the successor.
fn link_by_order(columns: &Columns, options: &ReadOptions, notes: &mut Vec<String>) -> Links {
    let n = columns.rew.len();
    let ordinary =
        |i: usize| i + 1 < n && !columns.done[i] && !timed_out(columns, i) && same_episode(columns, i);
    let marked = columns.timeout.is_some() || columns.episode.is_some();
    let needs_scale =
        !marked || (options.terminal_next == TerminalNext::Auto && columns.done.iter().any(|&d| d));
    let scale = if needs_scale { StepScale::measure(&columns.obs, ordinary) } else { None };
    let plausible =
        |i: usize| scale.as_ref().is_some_and(|s| !s.is_jump(columns.obs.row(i), columns.obs.row(i + 1)));
    let mut jumps = 0;
    let follows: Vec<bool> = (0..n)
        .map(|i| {
            if i + 1 == n || timed_out(columns, i) || !same_episode(columns, i) {
                false
            } else if columns.done[i] {
                match options.terminal_next {
                    TerminalNext::Auto => plausible(i),
                    TerminalNext::Follow => true,
                    TerminalNext::Drop | TerminalNext::Repeat => false,
                }
            } else if marked || scale.is_none() {
                true
            } else {
                jumps += usize::from(!plausible(i));
                plausible(i)
            }
        })
        .collect();

    let (mut kept, mut repeat) = (Vec::with_capacity(n), Vec::new());
    let (mut at_limit, mut at_reset, mut rewarded, mut at_gap) = (0, 0, 0, 0);
    let best = columns.rew.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for (i, &goes_on) in follows.iter().enumerate() {
        if goes_on {
            kept.push(i);
        } else if columns.done[i] && options.terminal_next == TerminalNext::Repeat {
            kept.push(i);
            repeat.push(i);
        } else if columns.done[i] {
            at_reset += 1;
            rewarded += usize::from(columns.rew[i] == best);
        } else if timed_out(columns, i) {
            at_limit += 1;
        } else {
            at_gap += 1;
        }
    }
    let mut dropped = Vec::new();
    let mut drop = |why: String, count: usize| {
        if count > 0 {
            dropped.push((why, count));
        }
    };
    drop("at a time limit: the next observation is not in the file".into(), at_limit);
    drop(
        format!(
            "terminal before a reset: the next observation is not in the file ({rewarded} of them carry the largest reward)"
        ),
        at_reset,
    );
    drop("last of the file or before a gap: the next observation is not in the file".into(), at_gap);
    if !marked {
        notes.push(match &scale {
            Some(_) => {
                format!("no timeouts in the file: {jumps} episode ends inferred from implausible steps")
            }
            None => "no timeouts in the file and too few rows to infer episode ends: taken as one log".into(),
        });
    }
    let next_obs = by_order_text(options.terminal_next).into();
    let cut = cut_after(columns, &kept, &follows);
    Links { kept, dropped, repeat, next_obs, follows, cut }
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

/// Kept rows whose successor in the same episode was dropped.
fn cut_after(columns: &Columns, kept: &[usize], follows: &[bool]) -> Vec<usize> {
    let n = follows.len();
    let mut is_kept = vec![false; n];
    kept.iter().for_each(|&i| is_kept[i] = true);
    // Where the file just stops, nothing was cut: only a marked end moves up to the row before it.
    let just_stops = |i: usize| i + 1 == n && !columns.done[i] && !timed_out(columns, i);
    kept.iter().copied().filter(|&i| follows[i] && !is_kept[i + 1] && !just_stops(i + 1)).collect()
}

/// Episodes as ranges over kept rows.
fn episodes(kept: &[usize], follows: &[bool]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    for k in 0..kept.len() {
        let i = kept[k];
        let goes_on = follows[i] && kept.get(k + 1) == Some(&(i + 1));
        if !goes_on {
            ranges.push(start..k + 1);
            start = k + 1;
        }
    }
    ranges
}

/// The kept rows with their next observations; the whole batch is moved, not copied, when nothing is dropped.
fn pick(rows: Batch, kept: &[usize], repeat: &[usize]) -> Batch {
    let has_next = rows.next_obs.nrows() == rows.obs.nrows() && rows.obs.nrows() > 0;
    if has_next {
        return if kept.len() == rows.len() { rows } else { rows.select(kept) };
    }
    let mut successor: Vec<usize> = kept.iter().map(|&i| i + 1).collect();
    for &i in repeat {
        if let Ok(k) = kept.binary_search(&i) {
            successor[k] = i;
        }
    }
    let next_obs = rows.obs.select(ndarray::Axis(0), &successor);
    let without = Batch { next_obs: rows.obs.clone(), ..rows };
    Batch { next_obs, ..without.select(kept) }
}

fn timed_out(columns: &Columns, row: usize) -> bool {
    columns.timeout.as_ref().is_some_and(|t| t[row])
}

/// Rows `row` and `row + 1` bear the same episode number and consecutive step numbers, as far as the file has them.
fn same_episode(columns: &Columns, row: usize) -> bool {
    columns.episode.as_ref().is_none_or(|e| e[row] == e[row + 1])
        && columns.step.as_ref().is_none_or(|s| s[row].checked_add(1) == Some(s[row + 1]))
}

/// Root mean square of each column (finite entries only): what "small" means in its units.
fn column_scales(m: &Mat) -> Vec<f32> {
    let scale = |column: ArrayView1<'_, f32>| {
        let finite = column.iter().filter(|v| v.is_finite());
        let (sum, count) = finite.fold((0.0, 0usize), |(s, n), &v| (s + f64::from(v).powi(2), n + 1));
        (sum / count.max(1) as f64).sqrt() as f32
    };
    m.columns().into_iter().map(scale).collect()
}

/// Equal up to what rounding by another program may do, in the units of each column.
fn same_state(a: ArrayView1<'_, f32>, b: ArrayView1<'_, f32>, scales: &[f32]) -> bool {
    a.iter().zip(b).zip(scales).all(|((&a, &b), &scale)| {
        a == b || (a - b).abs() <= 1e-4 * a.abs().max(scale) || (a.is_nan() && b.is_nan())
    })
}

/// The file's name without its extension.
pub(super) fn stem(path: &Path) -> String {
    path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}
