//! Auditing a dataset before anything is learnt from it.
//!
//! A dynamics model and a neighbour index believe every row they are given. The checks look for rows that public datasets
//! are known to get wrong: next states that are really the reset of the following episode, jumps that no body could make,
//! unmarked episode ends, values that are not numbers.

mod checks;
mod columns;
mod drop_bad;
mod statistics;

use std::ops::Range;

use serde::Serialize;

use super::{Dataset, ReadReport};
use crate::tasks::reference;
pub use checks::teleport_rows;
pub use columns::ColumnStatistics;
pub use drop_bad::{Dropped, drop_bad};
pub use statistics::Statistics;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing found.
    Ok,
    /// Worth knowing; learning goes on.
    Note,
    /// Would poison a dynamics model or a neighbour index.
    Poison,
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditFinding {
    /// Name of the check.
    pub check: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// Rows (or columns, for checks on columns) concerned.
    pub count: usize,
    /// The first row concerned.
    pub first_row: Option<usize>,
    /// What was found and what to do, in one line.
    pub detail: String,
}

/// Everything an audit reports about a dataset.
#[derive(Clone, Debug, Serialize)]
pub struct Audit {
    /// The dataset's name.
    pub name: String,
    /// Transitions.
    pub rows: usize,
    /// Width of an observation.
    pub obs_dim: usize,
    /// Width of an action.
    pub act_dim: usize,
    /// How the transitions were read from the file.
    pub reading: ReadReport,
    /// Rows with a true terminal.
    pub terminals: usize,
    /// Rows cut by a time limit.
    pub timeouts: usize,
    /// Rewards of single rows.
    pub reward: Statistics,
    /// Undiscounted returns of finished episodes, each up to its first terminal; absent when no episode is finished.
    pub episode_return: Option<Statistics>,
    /// Lengths of finished episodes.
    pub episode_length: Option<Statistics>,
    /// Normalised score of the behaviour policy (of its mean return), where D4RL has reference returns.
    pub behaviour_score: Option<f64>,
    /// Every check with its outcome.
    pub findings: Vec<AuditFinding>,
}

impl Audit {
    /// The worst severity found.
    pub fn verdict(&self) -> Severity {
        self.findings.iter().map(|f| f.severity).max().unwrap_or(Severity::Ok)
    }
}

/// Audits a dataset. `horizon` is the task's time limit where it is known.
pub fn audit(data: &Dataset, horizon: Option<usize>) -> Audit {
    let (returns, lengths) = returns_and_lengths(data, horizon);
    let episode_return = Statistics::of(&returns);
    let rewards: Vec<f64> = data.rows.rew.iter().map(|&r| f64::from(r)).collect();
    Audit {
        name: data.name.clone(),
        rows: data.rows.len(),
        obs_dim: data.rows.obs_dim(),
        act_dim: data.rows.act_dim(),
        reading: data.reading.clone(),
        terminals: data.rows.done.iter().filter(|d| **d).count(),
        timeouts: data.timeout.iter().filter(|t| **t).count(),
        reward: Statistics::of(&rewards).unwrap_or_default(),
        behaviour_score: episode_return.zip(reference(&data.name)).map(|(r, known)| known.normalise(r.mean)),
        episode_return,
        episode_length: Statistics::of(&lengths),
        findings: checks::all(data, horizon),
    }
}

/// Returns and lengths of the finished episodes.
pub(super) fn returns_and_lengths(data: &Dataset, horizon: Option<usize>) -> (Vec<f64>, Vec<f64>) {
    let finished: Vec<_> = data.episodes.iter().filter_map(|e| played(data, e, horizon)).collect();
    let rewards = |e: &Range<usize>| data.rows.rew.slice(ndarray::s![e.start..e.end]).to_vec();
    let returns = finished.iter().map(|e| rewards(e).iter().map(|&r| f64::from(r)).sum());
    (returns.collect(), finished.iter().map(|e| e.len() as f64).collect())
}

/// The rows of an episode that its return counts: up to the first terminal, or all of them when a time limit ended it.
/// `None` for an episode that somebody cut short: its return says nothing about the policy.
fn played(data: &Dataset, episode: &Range<usize>, horizon: Option<usize>) -> Option<Range<usize>> {
    if let Some(end) = episode.clone().find(|&i| data.rows.done[i]) {
        return Some(episode.start..end + 1);
    }
    let last_of_all = episode.end == data.rows.len();
    let whole = match horizon {
        Some(limit) => episode.len() >= limit,
        None => !episode.is_empty() && (data.timeout[episode.end - 1] || !last_of_all),
    };
    whole.then(|| episode.clone())
}
