//! Two datasets side by side: returns, columns, distances, copies.
//!
//! Which questions it answers: is this log what that one was, only recorded again? Which sensor has moved? Does one set
//! reach where the other has never been? Is one a copy of the other?
//!
//! ```no_run
//! use offing::data::compare::{CompareConfig, compare};
//! use offing::data::{ReadOptions, read};
//! let set = |path: &str| read(path.as_ref(), &ReadOptions::default());
//! let found = compare(&set("monday.parquet")?, &set("friday.parquet")?, &CompareConfig::default())?;
//! println!("{}", found.verdict());
//! # Ok::<(), offing::Error>(())
//! ```

mod halves;
mod neighbours;
mod samples;
mod verdict;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use rayon::prelude::*;
use serde::Serialize;

use super::Dataset;
use super::audit::returns_and_lengths;
use crate::error::{Result, require};
use crate::tasks::horizon;
use halves::halves;
pub use neighbours::{DistanceQuantiles, NeighbourComparison, NeighbourDistances};
pub use samples::{ColumnComparison, Distribution, EpisodeComparison, QUANTILES};

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompareConfig {
    /// Rows of each set whose neighbours are looked for.
    pub sample: usize,
    /// Most rows of each set among which they are looked for.
    pub searched_rows: usize,
    /// Seed of every draw.
    pub seed: u64,
}

impl Default for CompareConfig {
    fn default() -> Self {
        Self { sample: 5000, searched_rows: 200_000, seed: 0 }
    }
}

/// What a set is, in a few numbers.
#[derive(Clone, Debug, Serialize)]
pub struct SetSummary {
    /// Its name, which differs from the other's.
    pub name: String,
    /// Transitions.
    pub rows: usize,
    /// Episodes, finished or not.
    pub episodes: usize,
    /// Rows with a true terminal.
    pub terminals: usize,
    /// Rows at which a time limit struck.
    pub timeouts: usize,
    /// Share of its rows (s, a, r, s') that the other set holds bit for bit.
    pub in_other: f64,
    /// The same whatever the rewards are.
    pub steps_in_other: f64,
}

/// Two sets side by side. The second is the reference: its columns give the units of distances and shifts.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The first set.
    pub a: SetSummary,
    /// The second.
    pub b: SetSummary,
    /// Returns of finished episodes; absent where a set has none.
    pub returns: Option<EpisodeComparison>,
    /// Their lengths.
    pub lengths: Option<EpisodeComparison>,
    /// Every column: observations, actions, the reward.
    pub columns: Vec<ColumnComparison>,
    /// Distances between rows; absent for sets too small to be halved.
    pub neighbours: Option<NeighbourComparison>,
    /// What else to know, one sentence each.
    pub notes: Vec<String>,
}

/// Compares two sets of one task. The same sets and seed give the same numbers, whatever the number of threads.
///
/// # Errors
/// Sets of different widths.
pub fn compare(a: &Dataset, b: &Dataset, cfg: &CompareConfig) -> Result<Comparison> {
    let widths = |data: &Dataset| (data.rows.obs_dim(), data.rows.act_dim());
    let ((obs_a, act_a), (obs_b, act_b)) = (widths(a), widths(b));
    require!(
        widths(a) == widths(b),
        "{} and {}: wanted two sets of one shape, found observations {obs_a} and {obs_b} wide and actions {act_a} and {act_b} \
         wide; compare logs of one task",
        a.name,
        b.name
    );
    let halves = [halves(a, cfg.seed), halves(b, cfg.seed)];
    let episodes = [a, b].map(|data| returns_and_lengths(data, horizon(&data.name)));
    let [(returns_a, lengths_a), (returns_b, lengths_b)] = episodes;
    let (shares_a, shares_b) = (shares_in(a, b), shares_in(b, a));
    Ok(Comparison {
        a: summary(a, (a.name == b.name).then_some("first"), shares_a),
        b: summary(b, (a.name == b.name).then_some("second"), shares_b),
        returns: EpisodeComparison::of(returns_a, returns_b),
        lengths: EpisodeComparison::of(lengths_a, lengths_b),
        columns: columns(a, b, &halves),
        neighbours: NeighbourComparison::of([a, b], &halves, cfg)?,
        notes: other_names(a, b).into_iter().collect(),
    })
}

fn summary(data: &Dataset, place: Option<&str>, (rows, steps): (f64, f64)) -> SetSummary {
    SetSummary {
        name: place.map_or_else(|| data.name.clone(), |place| format!("{} ({place})", data.name)),
        rows: data.rows.len(),
        episodes: data.episodes.len(),
        terminals: data.rows.done.iter().filter(|d| **d).count(),
        timeouts: data.timeout.iter().filter(|t| **t).count(),
        in_other: rows,
        steps_in_other: steps,
    }
}

fn columns(a: &Dataset, b: &Dataset, halves: &[[Vec<usize>; 2]; 2]) -> Vec<ColumnComparison> {
    let pairs: Vec<_> = a.columns().zip(b.columns()).collect();
    let of = |((label, a), (_, b)): (_, (_, ndarray::ArrayView1<'_, f32>))| {
        let pick = |column: ndarray::ArrayView1<'_, f32>, halves: &[Vec<usize>; 2]| {
            [0, 1].map(|i| halves[i].iter().map(|&row| f64::from(column[row])).collect())
        };
        let (label, a): (String, ndarray::ArrayView1<'_, f32>) = (label, a);
        ColumnComparison::of(label, pick(a, &halves[0]), pick(b, &halves[1]))
    };
    pairs.into_par_iter().map(of).collect()
}

/// Columns that go by different names may not be the same ones.
fn other_names(a: &Dataset, b: &Dataset) -> Option<String> {
    let named = [(&a.names.obs, &b.names.obs, "obs"), (&a.names.act, &b.names.act, "act")];
    named.into_iter().find_map(|(first, second, group)| {
        let place = first.iter().zip(second).position(|(a, b)| a != b)?;
        Some(format!(
            "columns have other names: {group}[{place}] is `{}` in {} and `{}` in {}; columns are compared by their places",
            first[place], a.name, second[place], b.name
        ))
    })
}

/// Shares of the rows of `data` that `other` holds bit for bit: with their rewards, and whatever those are.
fn shares_in(data: &Dataset, other: &Dataset) -> (f64, f64) {
    let mut known: HashMap<u64, usize> = HashMap::with_capacity(other.rows.len());
    for row in 0..other.rows.len() {
        known.entry(key(other, row)).or_insert(row);
    }
    let (mut rows, mut steps) = (0, 0);
    for row in 0..data.rows.len() {
        let Some(&twin) = known.get(&key(data, row)) else { continue };
        let (a, b) = (&data.rows, &other.rows);
        let same = a.obs.row(row) == b.obs.row(twin)
            && a.act.row(row) == b.act.row(twin)
            && a.next_obs.row(row) == b.next_obs.row(twin);
        steps += usize::from(same);
        rows += usize::from(same && a.rew[row] == b.rew[twin]);
    }
    let share = |count: usize| count as f64 / data.rows.len().max(1) as f64;
    (share(rows), share(steps))
}

fn key(data: &Dataset, row: usize) -> u64 {
    let mut hash = DefaultHasher::new();
    for part in [data.rows.obs.row(row), data.rows.act.row(row), data.rows.next_obs.row(row)] {
        // -0 is 0.
        part.iter().for_each(|v| (v + 0.0).to_bits().hash(&mut hash));
    }
    hash.finish()
}

#[cfg(test)]
mod tests;
