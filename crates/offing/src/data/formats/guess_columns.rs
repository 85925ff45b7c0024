//! Which columns of a table hold what, guessed from their names or checked against a column map.
//!
//! Guessed names, case-insensitive: numbered columns `obs_0 obs_1 …` (also `observation`, `state`), `act_0 …` (`action`),
//! `next_obs_0 …`, or one list column of these names in Parquet; `reward`; `terminal` (`terminated`, `done`);
//! `timeout` (`truncated`); `episode`; `step`; and simulator states `qpos_0 …`, `qvel_0 …`, `goal_0 …`. `time`,
//! `timestamp` and `date` are known as times, which nothing reads.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::super::messages::{escaped, some_names};
use super::super::options::ColumnMap;
use super::super::unknown_columns::{self, Absent, split_number};
use crate::error::{Error, Result};

const OBS: &[&str] = &["obs", "observation", "observations", "state", "states"];
const ACT: &[&str] = &["act", "action", "actions"];
const NEXT: &[&str] = &["next_obs", "next_observation", "next_observations", "next_state", "next_states"];
const REW: &[&str] = &["reward", "rewards", "rew"];
const DONE: &[&str] =
    &["terminal", "terminals", "terminated", "termination", "terminations", "done", "dones"];
const TIMEOUT: &[&str] = &["timeout", "timeouts", "truncated", "truncation", "truncations"];
const EPISODE: &[&str] = &["episode", "episode_id", "episodes", "trajectory"];
const STEP: &[&str] = &["step", "timestep"];
/// When a row was logged.
const TIME: &[&str] = &["time", "times", "timestamp", "timestamps", "date", "datetime", "date_time"];

/// Whether a column's name says that it holds times.
pub(super) fn is_time(name: &str) -> bool {
    TIME.iter().any(|time| name.eq_ignore_ascii_case(time))
}

/// Makes sure that a column map names columns that are there, each once.
pub(super) fn check_map(path: &Path, names: &[String], map: &ColumnMap) -> Result<()> {
    for (what, list) in [("obs", &map.obs), ("act", &map.act)] {
        if list.is_empty() {
            let hint = "list the columns in the column map";
            return Err(Error::key(path, what, "at least one column in the column map", "none", hint));
        }
    }
    let optional = [&map.done, &map.timeout, &map.episode, &map.step].into_iter().flatten();
    let rew = Some(&map.rew).filter(|name| !name.is_empty());
    let all = map.obs.iter().chain(&map.act).chain(map.next_obs.iter().flatten()).chain(rew).chain(optional);
    let known: HashSet<&String> = names.iter().collect();
    for name in all {
        if !known.contains(name) {
            return Err(no_column(path, name, "this column, as the column map says", names));
        }
    }
    let next_obs = map.next_obs.as_deref().unwrap_or_default();
    for (what, list) in [("obs", &map.obs[..]), ("act", &map.act), ("next_obs", next_obs)] {
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
    Ok(())
}

/// Makes sure that every column to read is there, and once.
pub(super) fn check_columns(path: &Path, names: &[String], wanted: &[String]) -> Result<()> {
    let mut counts = HashMap::new();
    names.iter().for_each(|name| *counts.entry(name).or_insert(0usize) += 1);
    for name in wanted {
        let count = counts.get(name).copied().unwrap_or(0);
        if count == 0 {
            return Err(no_column(path, name, "this column, as the column map says", names));
        }
        if count > 1 {
            let (wanted, hint) = ("one column of this name", "rename or remove the others");
            return Err(Error::key(path, escaped(name), wanted, count.to_string(), hint));
        }
    }
    Ok(())
}

/// The columns of the observation, in a table that need not hold anything else.
pub(super) fn guess_obs(path: &Path, names: &[String]) -> Result<Vec<String>> {
    let (obs, act) = (many(path, names, OBS)?, many(path, names, ACT)?);
    if obs.is_empty() {
        let hint = "name them so, or say which columns they are in a column map (obs)";
        let wanted = "columns of observations: this name and on";
        return Err(Error::key(path, "obs_0", wanted, some_names(names), hint));
    }
    // Beside actions from 0, observations from 1 have lost their first; alone, the policy's width tells.
    if !act.is_empty() {
        check_starts(path, &obs, &act, &[])?;
    }
    Ok(obs)
}

/// The first column of one of these names.
fn one(names: &[String], candidates: &[&str]) -> Option<String> {
    candidates.iter().find_map(|c| names.iter().find(|n| n.eq_ignore_ascii_case(c)).cloned())
}

/// A numbered series of columns, or else a single one, of one of these names.
fn many(path: &Path, names: &[String], candidates: &[&str]) -> Result<Vec<String>> {
    for candidate in candidates {
        let series = numbered(path, names, candidate)?;
        if !series.is_empty() {
            return Ok(series);
        }
    }
    Ok(one(names, candidates).into_iter().collect())
}

/// The map that the names of the columns suggest.
pub(super) fn guess(path: &Path, names: &[String]) -> Result<ColumnMap> {
    let one = |candidates: &[&str]| one(names, candidates);
    let many = |candidates: &[&str]| many(path, names, candidates);
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

/// What a file with these columns lacks. A column that nothing reads may be a misspelling of it.
pub(super) fn absent(map: &ColumnMap) -> Vec<Absent> {
    let roles = [
        (map.next_obs.is_none(), "next_obs_0", NEXT, unknown_columns::NEXT_ALSO, &[][..]),
        (map.done.is_none(), "done", DONE, unknown_columns::DONE_ALSO, &["done", "terminal", "terminated"]),
        (
            map.timeout.is_none(),
            "timeout",
            TIMEOUT,
            unknown_columns::TIMEOUT_ALSO,
            &["timeout", "truncated", "truncation"],
        ),
        (map.episode.is_none(), "episode", EPISODE, unknown_columns::EPISODE_ALSO, &[]),
    ];
    let absent = roles.into_iter().filter(|(is_absent, ..)| *is_absent);
    absent.map(|(_, name, known, also, parts)| Absent { name, known, also, parts }).collect()
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
pub(super) fn numbered(path: &Path, names: &[String], prefix: &str) -> Result<Vec<String>> {
    let number = |name| match split_number(name) {
        (base, Some(number)) if base.eq_ignore_ascii_case(prefix) => Some(number),
        _ => None,
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
