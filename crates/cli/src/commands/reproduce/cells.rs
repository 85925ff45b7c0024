//! Cells, the unit of work: one dataset and one seed in one run directory. A finished cell is found, never run twice; an
//! interrupted one goes on; a failed one is told and does not stop the others.
//!
//! Which cells share work follows from their run directories alone: the model and the policy of a dataset and seed are
//! trained once and serve every calibration table, and `offing calibrate` with the same settings as well.

use std::path::PathBuf;

use anyhow::Result;
use offing::calibration::{Finding, Part, Study, StudyConfig, Variant};
use offing_mujoco::Physics;

use super::super::calibrate::{Plan, Summary, run_one};
use super::experiment::{Experiment, Grid};
use crate::context::Context;
use crate::signals;

/// What all cells of a grid have in common.
pub(super) struct Work<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) study: StudyConfig,
    /// About how many rows of a dataset are used; all when not given.
    pub(super) rows: Option<usize>,
    pub(super) physics: Physics,
    /// Where run directories are.
    pub(super) dir: PathBuf,
}

/// One unit of work.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) dataset: String,
    pub(super) seed: u64,
}

/// What became of a cell.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// Its numbers, and a line on how they came about.
    Done { values: Vec<Value>, note: String },
    /// Why there are none.
    Failed(String),
}

/// One number of a cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Value {
    pub(super) column: String,
    pub(super) metric: &'static str,
    pub(super) value: f64,
    /// Bootstrap interval of 95 %, over rollouts.
    pub(super) low: f64,
    pub(super) high: f64,
    /// Over how many imagined steps.
    pub(super) rows: usize,
}

/// All cells, seed after seed, so that a first look at every dataset comes early.
pub(super) fn cells(datasets: &[String], seeds: u64) -> Vec<Cell> {
    let of = |seed: u64| datasets.iter().map(move |dataset| Cell { dataset: dataset.clone(), seed });
    (0..seeds).flat_map(of).collect()
}

/// Runs all cells here, one after the other; each uses every thread. `None` when the user stopped it.
pub(super) fn run_all(context: &Context, work: &Work<'_>, cells: Vec<Cell>) -> Option<Vec<(Cell, Outcome)>> {
    let total = cells.len();
    let mut done = Vec::new();
    for (at, cell) in cells.into_iter().enumerate() {
        if signals::asked_to_stop() {
            return None;
        }
        context.say(&format!("cell {} of {total}: {}, seed {}", at + 1, cell.dataset, cell.seed));
        let outcome = match run(context, work, &cell) {
            Ok(Some(outcome)) => outcome,
            Ok(None) => return None,
            Err(error) => {
                context.say(&format!("failed: {error:#}"));
                Outcome::Failed(format!("{error:#}"))
            }
        };
        done.push((cell, outcome));
    }
    Some(done)
}

/// One cell: found finished, gone on with, or begun. `None` when it was stopped on the way.
fn run(context: &Context, work: &Work<'_>, cell: &Cell) -> Result<Option<Outcome>> {
    let Grid::Calibration { columns } = &work.experiment.grid;
    let plan = Plan {
        dataset: cell.dataset.clone(),
        rows: work.rows,
        seed: cell.seed,
        physics: work.physics,
        config: work.study.clone(),
        estimators: columns.iter().map(|c| (c.name.clone(), c.estimator.clone())).collect(),
        dir: work.dir.clone(),
    };
    let Some(study) = run_one(context, &plan)? else { return Ok(None) };
    let values = values(&study);
    let mut summary = Summary::new(&cell.dataset);
    summary.add(cell.seed, study);
    Ok(Some(Outcome::Done { values, note: summary.rows().join(" ") }))
}

/// The study's headline: all rows, next states as sampled, not clipped.
fn values(study: &Study) -> Vec<Value> {
    let headline = |f: &&Finding| f.variant == Variant::Sampled && f.part == Part::All;
    let both = |f: &Finding| {
        [("spearman", f.rho), ("pearson", f.r)].map(|(metric, found)| Value {
            column: f.estimator.clone(),
            metric,
            value: found.value,
            low: found.low,
            high: found.high,
            rows: f.rows,
        })
    };
    study.findings.iter().filter(headline).flat_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dataset_gets_its_first_seed_before_any_gets_its_second() {
        let found = cells(&["a".into(), "b".into()], 2);
        let found: Vec<(&str, u64)> = found.iter().map(|c| (c.dataset.as_str(), c.seed)).collect();
        assert_eq!(found, [("a", 0), ("b", 0), ("a", 1), ("b", 1)]);
    }
}
