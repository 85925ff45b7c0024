//! Calibration tables: a cell is the study of one dataset and seed, which gives every column at once.
//!
//! Which cells share work follows from their run directories alone: the model and the policy of a dataset and seed are
//! trained once and serve every calibration table, and `offing calibrate` with the same settings as well.

mod report;
mod table;

use anyhow::Result;
use offing::calibration::{EstimatorResult, NextObsKind, RowSubset, Study, StudyConfig};

use self::table::CalibrationTable;
use super::cells::{Cell, CellResult, CellState, CellValue};
use super::collect::Collected;
use super::comparison::Comparison;
use super::experiment::CalibrationGrid;
use super::{Grid, GridKind};
use crate::Runtime;
use crate::calibrate::{FinishedStudy, OwnStudy, StudyRequest, StudySummary, run_study, study_settings};

pub(super) use table::BASELINE;

fn study_config(grid: &Grid) -> Result<StudyConfig> {
    Ok(study_settings(grid.settings_profile(), &grid.set)?.0)
}

impl GridKind for CalibrationGrid {
    fn accept(&self, grid: &Grid) -> Result<Option<usize>> {
        Ok(study_settings(grid.settings_profile(), &grid.set)?.1)
    }

    fn cells_of(&self, grid: &Grid, _dataset: &str) -> Result<Vec<(Option<&str>, String)>> {
        let estimators: Vec<_> = self.columns.iter().map(|c| (&c.name, &c.estimator)).collect();
        Ok(vec![(None, serde_json::to_string(&(study_config(grid)?, estimators))?)])
    }

    fn run(&self, runtime: &Runtime, grid: &Grid, cell: &Cell) -> Result<Option<CellResult>> {
        let request = StudyRequest {
            dataset: cell.dataset.clone(),
            rows: grid.rows,
            generated_rows: grid.generated_rows(&cell.dataset),
            seed: cell.seed,
            physics: grid.request.physics,
            config: study_config(grid)?,
            estimators: self.columns.iter().map(|c| (c.name.clone(), c.estimator.clone())).collect(),
            dir: grid.dir.clone(),
        };
        let Some(FinishedStudy { study, data, provenance }) =
            run_study(runtime, &request, &OwnStudy::default())?
        else {
            return Ok(None);
        };
        let values = values(&study);
        let summary = StudySummary { dataset: cell.dataset.clone(), studies: vec![(cell.seed, study)] };
        let note = summary.row_counts().join(" ");
        Ok(Some(CellResult { values, note, data, provenance, ..CellResult::default() }))
    }

    fn collect(&self, grid: &Grid, cells: &[(Cell, CellState)]) -> Result<Collected> {
        let table = CalibrationTable::of(&self.columns, Comparison::of(grid, cells)?);
        let study = study_config(grid)?;
        let (results, details) = report::elements(&table, toml::to_string(&study)?);
        let caveats = report::caveats(&study, grid.rows, &grid.request.profile);
        Ok(Collected { files: vec![("csv", table.csv())], results, details, caveats })
    }

    fn interval(&self) -> &'static str {
        "bootstrap 95 %"
    }
}

/// The study's headline: all rows, next states as sampled, not clipped.
fn values(study: &Study) -> Vec<CellValue> {
    let headline = |f: &&EstimatorResult| f.variant == NextObsKind::Sampled && f.part == RowSubset::All;
    let both = |f: &EstimatorResult| {
        [("spearman", f.rho), ("pearson", f.r)].map(|(metric, found)| {
            CellValue::new(&f.estimator, metric, found.value, f.rows).within(found.low, found.high)
        })
    };
    study.findings.iter().filter(headline).flat_map(both).collect()
}
