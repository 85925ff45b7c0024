//! Tables of scores: a cell is one `offing train`, in the directory that command itself would take. So a run trained by
//! hand with the same settings is found, tables share their runs, and a run can be gone on with by hand.

mod report;
mod statistics;
mod table;

use std::path::{Path, PathBuf};

use anyhow::Result;
use offing::data::Dataset;
use offing::run::{CONFIG, METRICS, Record, read_metrics};

use super::super::train::{self, is_whole, open_when_free, plan_run, reached, run_dir, train_in};
use super::cells::{Cell, Found, Value};
use super::experiment::Trained;
use super::local::quoted;
use super::work::{Kind, Work};
use crate::algorithms::{Algorithm, Plan};
use crate::context::Context;
use crate::provenance::By;
use offing_mujoco::Physics;

pub(super) use report::{circumstances, parts};
pub(super) use statistics::Statistics;
pub(super) use table::Scores;

/// One cell; `None` when it was stopped on the way.
pub(super) fn run(
    context: &Context,
    work: &Work<'_>,
    column: &Trained,
    cell: &Cell,
    begun: &dyn Fn(PathBuf) -> Result<()>,
) -> Result<Option<Found>> {
    let args = asked(work, column, &cell.dataset, cell.seed);
    let (written, plan, _, dataset) = plan_run(context, &args, None)?;
    let dir = run_dir(&work.dir, &written)?;
    begun(dir.clone())?;
    let of_data = reached_by_data(&dataset, work.physics, &column.name);
    let text = toml::to_string(&written)?;
    let whole = || {
        let same = std::fs::read_to_string(dir.join(CONFIG)).is_ok_and(|found| found == text);
        same && is_whole(&dir, plan.train().steps)
    };
    let data = written.data.clone();
    let finished = whole() || {
        // A run by hand, another table's cell, or one of a grid that was killed and is still saving, may be at it.
        let Some(run) = open_when_free(context, &dir, &text)? else { return Ok(None) };
        whole() || train_in(context, run, (written, plan, dir.clone(), dataset), false)?.done
    };
    if !finished {
        return Ok(None);
    }
    let mut found = found(&dir, &column.name)?;
    found.values.extend(of_data);
    Ok(Some(Found { data, by: By::of_run(&dir), ..found }))
}

/// What a policy has to beat, as numbers of a cell.
fn reached_by_data(data: &Dataset, physics: Physics, column: &str) -> Vec<Value> {
    let (mean, score) = reached(data, physics);
    let values = [("data's return", mean), ("data's score", score)];
    values.into_iter().filter_map(|(metric, x)| Some(value(column, metric, x?))).collect()
}

fn value(column: &str, metric: &str, value: f64) -> Value {
    Value { column: column.into(), metric: metric.into(), value, low: f64::NAN, high: f64::NAN, rows: 0 }
}

/// The settings of a column on a dataset and the rows it learns from; says what is wrong with them, if anything is.
pub(super) fn plan(work: &Work<'_>, column: &Trained, dataset: &str) -> Result<(Plan, Option<usize>)> {
    let args = asked(work, column, dataset, 0);
    let algorithm = Algorithm::parse(column.algorithm())?;
    let mut prepared = algorithm.layers(dataset, args.preset.as_deref(), args.profile.as_deref())?;
    args.set.iter().try_for_each(|set| prepared.layers.set(set))?;
    Ok((algorithm.plan(&prepared.layers)?, args.rows.or(prepared.rows)))
}

/// What one would ask of `offing train`.
fn asked(work: &Work<'_>, column: &Trained, dataset: &str, seed: u64) -> train::Args {
    let Kind::Training { profile, .. } = &work.kind else { return train::Args::default() };
    // A profile says how many rows; the paper takes all, and what a name stands for must not depend on what was made before.
    let all = if profile.is_none() { work.made_rows(dataset) } else { None };
    train::Args {
        algorithm: Some(column.algorithm().into()),
        dataset: Some(dataset.into()),
        seed: Some(seed),
        preset: work.profile.presets.get(&column.name).cloned(),
        profile: profile.map(str::to_string),
        set: work.sets(column),
        rows: work.rows.or(all),
        physics: Some(work.physics),
        ..train::Args::default()
    }
}

/// The same as a command, for readers.
pub(super) fn command(work: &Work<'_>, column: &Trained) -> String {
    let mut rows: Vec<Option<usize>> = work.datasets.iter().map(|d| asked(work, column, d, 0).rows).collect();
    rows.sort_unstable();
    rows.dedup();
    let args = asked(work, column, "", 0);
    let mut words = vec![format!("offing train {} DATASET --seed SEED", column.algorithm())];
    words.extend(args.profile.map(|p| format!("--profile {p}")));
    words.extend(args.preset.map(|p| format!("--preset {p}")));
    match rows[..] {
        [rows] => words.extend(rows.map(|rows| format!("--rows {rows}"))),
        // Published files are taken whole.
        _ => words.extend(rows.iter().flatten().map(|rows| format!("[made sets: --rows {rows}]"))),
    }
    words.extend(args.set.iter().map(|set| format!("--set {}", quoted(set))));
    words.extend(args.physics.filter(|p| *p != Physics::default()).map(|p| format!("--physics {p}")));
    words.join(" ")
}

/// A finished run's returns and scores: of the last policy, and of the best on the way.
fn found(dir: &Path, column: &str) -> Result<Found> {
    let records = read_metrics(&dir.join(METRICS))?;
    let curve = |key: &str| -> Vec<(u64, f64)> {
        let of = |r: &Record| Some((r.get("step")?.as_u64()?, r.get(key)?.as_f64()?));
        records.iter().filter_map(of).collect()
    };
    let mut values = Vec::new();
    for (key, last, best) in [("score", "score", "best score"), ("return", "return", "best return")] {
        let curve = curve(key);
        let highest = curve.iter().map(|(_, y)| *y).max_by(f64::total_cmp);
        for (metric, value) in [(last, curve.last().map(|(_, y)| *y)), (best, highest)] {
            values.extend(value.map(|x| self::value(column, metric, x)));
        }
    }
    let scores = curve("score");
    let curve = if scores.is_empty() { curve("return") } else { scores };
    Ok(Found { values, curve, ..Found::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runs_last_and_best_scores_are_read_from_its_metrics() {
        let dir = tempfile::tempdir().unwrap();
        let lines = "{\"step\":5,\"return\":10.0,\"score\":1.0}\n{\"step\":10,\"return\":30.0,\"score\":3.0}\n\
                     {\"step\":12,\"q\":1.0}\n{\"step\":15,\"return\":20.0,\"score\":2.0}\n{\"step\":";
        std::fs::write(dir.path().join(METRICS), lines).unwrap();
        let found = found(dir.path(), "mopo").unwrap();
        let values: Vec<(&str, f64)> = found.values.iter().map(|v| (v.metric.as_str(), v.value)).collect();
        assert_eq!(values, [("score", 2.0), ("best score", 3.0), ("return", 20.0), ("best return", 30.0)]);
        assert_eq!(found.curve, [(5, 1.0), (10, 3.0), (15, 2.0)]);
        // Data without a reference have returns alone, data without a simulator nothing.
        std::fs::write(dir.path().join(METRICS), "{\"step\":5,\"return\":7.0,\"score\":null}\n").unwrap();
        let plain = super::found(dir.path(), "mopo").unwrap();
        assert_eq!((plain.values.len(), &plain.curve[..]), (2, &[(5, 7.0)][..]));
        std::fs::write(dir.path().join(METRICS), "{\"step\":5}\n").unwrap();
        assert!(super::found(dir.path(), "mopo").unwrap().values.is_empty());
    }
}
