//! The audit's checks, each a function from a dataset to one [`AuditFinding`].

mod degenerate;
mod ends;
mod extremes;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use ndarray::{ArrayView1, Axis};

use super::super::{Dataset, naming};
use super::{AuditFinding, Severity};
use crate::batch::Mat;
use crate::stats::quantile;
use crate::tasks::body_of;

/// AntMaze's ant covers at most about 0.6 units a step; no body crosses this many.
const ANTMAZE_STEP: f32 = 2.0;
/// A jump of this many times the 99th percentile of its own column is taken for a teleport. The bodies' hardest contacts
/// stay below 12 times.
const JUMP: f32 = 25.0;
/// Starts count as resets when they spread this little compared with all states (median over columns).
const START_SPREAD: f64 = 0.3;

/// The checks whose findings are poison, by what reports call them.
const NON_FINITE: &str = "non-finite values";
const RESET_LEAK: &str = "reset as next state";
const UNMARKED_RESET: &str = "unmarked reset";
const TELEPORT: &str = "teleports";
const TOO_LONG: &str = "episodes beyond the time limit";

pub(super) fn all(data: &Dataset, horizon: Option<usize>) -> Vec<AuditFinding> {
    let starts = StartRegion::of_episodes(data);
    vec![
        degenerate::single_row(data),
        degenerate::identical_rows(data),
        degenerate::shuffled_rows(data),
        degenerate::dropped_terminals(data),
        non_finite(data),
        extremes::extreme_values(data),
        reset_leaks(data, &starts),
        unmarked_resets(data, &starts),
        teleports(data),
        unmarked_ends(data),
        ends::unknown_ends(data),
        too_long(data, horizon),
        inner_terminals(data),
        duplicates(data),
        actions_out_of_range(data),
        constant_columns(data),
        degenerate::constant_reward(data),
    ]
}

/// Rows to drop, by the first check that finds any: those that the finding names, or of an episode beyond the time limit
/// all rows, as nobody knows where in it the reset is. One check at a time, because each compares rows with all others:
/// what an infinity hides is seen when it is gone.
pub(super) fn bad_rows(data: &Dataset, horizon: Option<usize>) -> Option<(&'static str, Vec<usize>)> {
    let starts = StartRegion::of_episodes(data);
    let checks: [(&'static str, &dyn Fn() -> Vec<usize>); 6] = [
        (NON_FINITE, &|| non_finite_rows(data)),
        (extremes::CHECK, &|| extremes::rare_extreme_rows(data)),
        (RESET_LEAK, &|| reset_leak_rows(data, &starts)),
        (UNMARKED_RESET, &|| unmarked_reset_rows(data, &starts)),
        (TELEPORT, &|| teleport_rows(data)),
        (TOO_LONG, &|| too_long_episodes(data, horizon).into_iter().flatten().collect()),
    ];
    checks.into_iter().map(|(check, rows)| (check, rows())).find(|(_, rows)| !rows.is_empty())
}

/// A finding about the given rows: `severity` when there are any, [`Severity::Ok`] when not.
fn about(check: &'static str, severity: Severity, rows: &[usize], detail: impl Into<String>) -> AuditFinding {
    let (severity, detail) =
        if rows.is_empty() { (Severity::Ok, String::new()) } else { (severity, detail.into()) };
    AuditFinding { check, severity, count: rows.len(), first_row: rows.first().copied(), detail }
}

/// Rows that end their episode and are followed by another episode.
fn inner_ends(data: &Dataset) -> impl Iterator<Item = usize> + '_ {
    data.episodes.iter().map(|e| e.end - 1).filter(|&i| i + 1 < data.rows.len())
}

/// What episode starts look like: whether they are resets to a narrow region, and its box.
struct StartRegion {
    low: Vec<f32>,
    high: Vec<f32>,
    narrow: bool,
}

impl StartRegion {
    fn of_episodes(data: &Dataset) -> Self {
        Self::of(data, &data.episodes.iter().map(|e| e.start).collect::<Vec<_>>())
    }

    fn of(data: &Dataset, rows: &[usize]) -> Self {
        let starts = data.rows.obs.select(Axis(0), rows);
        let ratios: Vec<f64> = (starts.columns().into_iter().zip(data.rows.obs.columns()))
            .map(|(start, all)| spread(start) / spread(all).max(1e-9))
            .filter(|r| r.is_finite())
            .collect();
        let narrow = rows.len() >= 5 && !ratios.is_empty() && quantile(&ratios, 0.5) < START_SPREAD;
        let fold = |f: fn(f32, f32) -> f32, from| {
            starts.map_axis(Axis(0), |c| c.iter().copied().fold(from, f)).to_vec()
        };
        let (low, high) = (fold(f32::min, f32::INFINITY), fold(f32::max, f32::NEG_INFINITY));
        Self { low, high, narrow }
    }

    fn contains(&self, obs: ArrayView1<f32>) -> bool {
        obs.iter().zip(&self.low).zip(&self.high).all(|((&o, &low), &high)| {
            let margin = 0.1 * (high - low) + 1e-6;
            o >= low - margin && o <= high + margin
        })
    }
}

fn spread(column: ArrayView1<f32>) -> f64 {
    let n = column.len() as f64;
    let mean = column.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
    (column.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n).sqrt()
}

fn non_finite(data: &Dataset) -> AuditFinding {
    let rows = non_finite_rows(data);
    about(NON_FINITE, Severity::Poison, &rows, "NaN or infinity in these rows; drop them")
}

fn non_finite_rows(data: &Dataset) -> Vec<usize> {
    let b = &data.rows;
    let bad = |row: ArrayView1<f32>| row.iter().any(|v| !v.is_finite());
    (0..b.len())
        .filter(|&i| {
            bad(b.obs.row(i)) || bad(b.act.row(i)) || bad(b.next_obs.row(i)) || !b.rew[i].is_finite()
        })
        .collect()
}

/// D4RL's own `qlearning_dataset` takes obs[i+1] for the next state even where row i ended an episode. A reader cannot
/// distinguish such a terminal from one after which the trajectory goes on (AntMaze). The states that follow can: resets
/// lie close together.
fn reset_leaks(data: &Dataset, starts: &StartRegion) -> AuditFinding {
    let detail = "the next state of an episode's last row is the first state of the following episode; use the file's \
         next_observations, or drop these rows";
    about(RESET_LEAK, Severity::Poison, &reset_leak_rows(data, starts), detail)
}

fn reset_leak_rows(data: &Dataset, starts: &StartRegion) -> Vec<usize> {
    let b = &data.rows;
    let followed = |i: &usize| b.next_obs.row(*i) == b.obs.row(i + 1);
    let ends: Vec<usize> = inner_ends(data).filter(followed).collect();
    let terminals: Vec<usize> = inner_terminals_of(data).filter(followed).collect();
    let after: Vec<usize> = terminals.iter().map(|i| i + 1).collect();
    let all_resets = StartRegion::of(data, &after).narrow;
    let mut rows = if starts.narrow { ends } else { Vec::new() };
    rows.extend(
        terminals.iter().filter(|&&i| all_resets || (starts.narrow && starts.contains(b.obs.row(i + 1)))),
    );
    rows.sort_unstable();
    rows
}

/// The state jumps into the region where episodes start, inside what is marked as one episode.
fn unmarked_resets(data: &Dataset, starts: &StartRegion) -> AuditFinding {
    let detail = "the next state is a start state although no episode end is marked; mark these rows as \
         timeouts and drop them";
    about(UNMARKED_RESET, Severity::Poison, &unmarked_reset_rows(data, starts), detail)
}

fn unmarked_reset_rows(data: &Dataset, starts: &StartRegion) -> Vec<usize> {
    let b = &data.rows;
    let mut rows = Vec::new();
    if starts.narrow {
        for episode in &data.episodes {
            rows.extend((episode.start..episode.end.saturating_sub(1)).filter(|&i| {
                // A row that moves into the box smoothly has come from just outside it; a reset comes from anywhere.
                starts.contains(b.next_obs.row(i))
                    && !starts.contains(b.obs.row(i))
                    && far(b.obs.row(i), starts)
            }));
        }
    }
    rows
}

/// Farther from the start box than ten times its width in at least half of the columns.
fn far(obs: ArrayView1<f32>, starts: &StartRegion) -> bool {
    let outside = (obs.iter().zip(&starts.low).zip(&starts.high)).filter(|((o, low), high)| {
        let width = 10.0 * (*high - *low) + 1e-6;
        **o < **low - width || **o > **high + width
    });
    2 * outside.count() >= obs.len()
}

fn teleports(data: &Dataset) -> AuditFinding {
    let rows = teleport_rows(data);
    let detail = "the state moves farther in one step than the rest of the data ever does; drop these rows";
    about(TELEPORT, Severity::Poison, &rows, detail)
}

/// Rows whose state moves farther in one step than a body can, or than the rest of the data does.
pub fn teleport_rows(data: &Dataset) -> Vec<usize> {
    let b = &data.rows;
    if naming::body_of(&data.name).is_some_and(|task| task.body() == "antmaze") && b.obs_dim() >= 2 {
        let step = |i: usize| (b.next_obs[[i, 0]] - b.obs[[i, 0]]).hypot(b.next_obs[[i, 1]] - b.obs[[i, 1]]);
        return (0..b.len()).filter(|&i| step(i) > ANTMAZE_STEP).collect();
    }
    let limits = jump_limits(&b.obs, &b.next_obs);
    let is_jump = |i: &usize| {
        let steps = b.next_obs.row(*i).to_owned() - b.obs.row(*i);
        steps.iter().all(|s| s.is_finite()) && steps.iter().zip(&limits).any(|(s, limit)| s.abs() > *limit)
    };
    (0..b.len()).filter(is_jump).collect()
}

/// Per column, the largest believable step: a multiple of the 99th percentile of its steps, never below a thousandth of
/// the column's range. A column that rests in half of the rows, such as a contact sensor, has no limit: any step is
/// large.
fn jump_limits(obs: &Mat, next_obs: &Mat) -> Vec<f32> {
    (0..obs.ncols())
        .map(|j| {
            let column = obs.column(j);
            let mut steps: Vec<f64> = (column.iter().zip(next_obs.column(j)))
                .map(|(o, n)| f64::from((n - o).abs()))
                .filter(|s| s.is_finite())
                .collect();
            if steps.is_empty() {
                return f32::INFINITY;
            }
            steps.sort_by(f64::total_cmp);
            let usual = quantile(&steps, 0.99) as f32;
            let finite = || column.iter().copied().filter(|v| v.is_finite());
            let range = finite().fold(f32::NEG_INFINITY, f32::max) - finite().fold(f32::INFINITY, f32::min);
            if quantile(&steps, 0.5) > 0.0 { (JUMP * usual).max(1e-3 * range) } else { f32::INFINITY }
        })
        .collect()
}

/// Episodes that stop without a mark: the reader found that the next row starts somewhere else.
fn unmarked_ends(data: &Dataset) -> AuditFinding {
    let unmarked = |&i: &usize| !data.rows.done[i] && !data.timeout[i];
    // Rows out of order have a finding of their own.
    let rows: Vec<usize> = match degenerate::is_shuffled(data) {
        true => Vec::new(),
        false => inner_ends(data).filter(unmarked).collect(),
    };
    let detail = "the next state of these rows is not the state of the row after them, and neither a terminal nor a timeout is marked; \
         they are read as timeouts";
    about("unmarked episode ends", Severity::Note, &rows, detail)
}

/// The reader splits episodes where the next state is not the following state. What is still longer than the time limit
/// goes on through a reset as if it were a step.
fn too_long(data: &Dataset, horizon: Option<usize>) -> AuditFinding {
    let limit = horizon.unwrap_or(usize::MAX);
    let rows: Vec<usize> = too_long_episodes(data, horizon).into_iter().map(|e| e.start).collect();
    let detail = format!(
        "longer than the task's {limit} steps, so a reset in between passes for a step; mark the timeouts, or \
         give next states"
    );
    about(TOO_LONG, Severity::Poison, &rows, detail)
}

fn too_long_episodes(data: &Dataset, horizon: Option<usize>) -> Vec<Range<usize>> {
    let limit = horizon.unwrap_or(usize::MAX);
    data.episodes.iter().filter(|e| e.len() > limit).cloned().collect()
}

/// Terminals after which the episode, as read, goes on.
fn inner_terminals_of(data: &Dataset) -> impl Iterator<Item = usize> + '_ {
    let inner = data.episodes.iter().flat_map(|e| e.start..e.end.saturating_sub(1));
    inner.filter(|&i| data.rows.done[i])
}

/// AntMaze marks every step near the goal as terminal while the trajectory goes on.
fn inner_terminals(data: &Dataset) -> AuditFinding {
    let rows: Vec<usize> = inner_terminals_of(data).collect();
    let detail = "the trajectory goes on after these terminals; the return still stops there";
    about("terminals inside an episode", Severity::Note, &rows, detail)
}

fn duplicates(data: &Dataset) -> AuditFinding {
    const CHECK: &str = "duplicate rows";
    if degenerate::all_identical(data) {
        return about(CHECK, Severity::Note, &[], "");
    }
    let b = &data.rows;
    let key = |i: usize| {
        let mut hash = DefaultHasher::new();
        for row in [b.obs.row(i), b.act.row(i), b.next_obs.row(i)] {
            row.iter().for_each(|v| v.to_bits().hash(&mut hash));
        }
        hash.finish()
    };
    let same = |i: usize, j: usize| {
        b.obs.row(i) == b.obs.row(j) && b.act.row(i) == b.act.row(j) && b.next_obs.row(i) == b.next_obs.row(j)
    };
    let mut first: HashMap<u64, usize> = HashMap::with_capacity(b.len());
    let rows: Vec<usize> = (0..b.len())
        .filter(|&i| {
            let earlier = *first.entry(key(i)).or_insert(i);
            earlier != i && same(earlier, i)
        })
        .collect();
    let detail = "the same state, action and next state as an earlier row; they weigh double in training, and a neighbour search \
         finds them at distance 0";
    about(CHECK, Severity::Note, &rows, detail)
}

fn actions_out_of_range(data: &Dataset) -> AuditFinding {
    let act = &data.rows.act;
    let rows: Vec<usize> =
        (0..act.nrows()).filter(|&i| act.row(i).iter().any(|a| a.abs() > 1.0 + 1e-6)).collect();
    let largest = rows.iter().flat_map(|&i| act.row(i)).fold(0.0f32, |m, a| m.max(a.abs()));
    let advice = match body_of(&data.name.to_ascii_lowercase()) {
        Some(_) => "rescale them, a squashed policy cannot repeat these actions",
        // `train.units = "auto"`.
        None => "a training scales them, and its policy gives them as logged",
    };
    let detail = format!("entries beyond [-1, 1], up to {largest}; {advice}");
    about("actions out of range", Severity::Note, &rows, detail)
}

fn constant_columns(data: &Dataset) -> AuditFinding {
    let columns = data.columns().take(data.rows.obs_dim() + data.rows.act_dim());
    let some = columns.filter(|(_, c)| is_constant(*c) && !degenerate::all_identical(data));
    let names: Vec<String> = some.map(|(name, _)| name).collect();
    let places: Vec<usize> = (0..names.len()).collect();
    let detail = format!("{} never change; standardisation leaves them as they are", first_few(&names, 6));
    AuditFinding { first_row: None, ..about("constant columns", Severity::Note, &places, detail) }
}

fn is_constant(column: ArrayView1<f32>) -> bool {
    column.len() > 1 && column.iter().all(|v| *v == column[0])
}

/// The first few names of a list, and an ellipsis for the others.
fn first_few(names: &[String], few: usize) -> String {
    let more = if names.len() > few { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(few)].join(", "))
}

#[cfg(test)]
mod tests;
