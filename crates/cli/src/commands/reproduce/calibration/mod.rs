//! Calibration tables: a cell is the study of one dataset and seed, which gives every column at once.
//!
//! Which cells share work follows from their run directories alone: the model and the policy of a dataset and seed are
//! trained once and serve every calibration table, and `offing calibrate` with the same settings as well.

mod report;
mod table;

use anyhow::Result;
use offing::calibration::{EstimatorResult, NextObsKind, RowSubset, Study, StudyConfig};

use super::super::calibrate::{Plan, Studied, Summary, run_one};
use super::cells::{Cell, Found, Value};
use super::experiment::Column;
use super::work::Work;
use crate::context::Context;

pub(super) use report::{circumstances, parts};
pub(super) use table::{BASELINE, Table};

/// One cell; `None` when it was stopped on the way.
pub(super) fn run(
    context: &Context,
    work: &Work<'_>,
    (columns, study): (&[&Column], &StudyConfig),
    cell: &Cell,
) -> Result<Option<Found>> {
    let plan = Plan {
        dataset: cell.dataset.clone(),
        rows: work.rows,
        made_rows: work.made_rows(&cell.dataset),
        seed: cell.seed,
        physics: work.physics,
        config: study.clone(),
        estimators: columns.iter().map(|c| (c.name.clone(), c.estimator.clone())).collect(),
        dir: work.dir.clone(),
    };
    let Some(Studied { study, data, by }) = run_one(context, &plan)? else { return Ok(None) };
    let values = values(&study);
    let mut summary = Summary::new(&cell.dataset);
    summary.add(cell.seed, study);
    Ok(Some(Found { values, note: summary.rows().join(" "), data, by, ..Found::default() }))
}

/// The study's headline: all rows, next states as sampled, not clipped.
fn values(study: &Study) -> Vec<Value> {
    let headline = |f: &&EstimatorResult| f.variant == NextObsKind::Sampled && f.part == RowSubset::All;
    let both = |f: &EstimatorResult| {
        [("spearman", f.rho), ("pearson", f.r)].map(|(metric, found)| Value {
            column: f.estimator.clone(),
            metric: metric.into(),
            value: found.value,
            low: found.low,
            high: found.high,
            rows: f.rows,
        })
    };
    study.findings.iter().filter(headline).flat_map(both).collect()
}
