//! Our numbers over the cells of a grid, and the paper's beside them: what all tables are made of.

use anyhow::Result;

use super::Grid;
use super::cells::{Cell, CellResult, CellState};
use super::published::Published;
use crate::format::signed;
use crate::mean_std::MeanStd;
use crate::table::csv_number;

/// Cells with the published table beside them.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    pub(super) datasets: Vec<String>,
    pub(super) cells: Vec<(Cell, CellState)>,
    pub(super) published: Published,
}

/// One number of ours and the paper's.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComparedValue {
    /// Over the seeds that finished; `None` when none did.
    pub(super) ours: Option<MeanStd>,
    pub(super) paper: Option<f64>,
    /// The paper's standard deviation, where it gives one.
    pub(super) paper_std: Option<f64>,
}

impl ComparedValue {
    pub(super) fn our_mean(&self) -> Option<f64> {
        self.ours.map(|m| m.mean)
    }

    pub(super) fn published(&self) -> Option<f64> {
        self.paper
    }

    pub(super) fn difference(&self) -> Option<f64> {
        Some(self.ours?.mean - self.paper?).filter(|d| d.is_finite())
    }

    /// Fields of a CSV file: seeds, ours and its deviation, the paper's and its deviation, the difference.
    pub(super) fn csv_fields(&self) -> [String; 6] {
        let std = self.ours.filter(|m| m.seeds > 1).map(|m| m.std);
        let numbers = [self.our_mean(), std, self.paper, self.paper_std, self.difference()];
        let [ours, std, paper, paper_std, difference] = numbers.map(csv_number);
        [self.ours.map_or(0, |m| m.seeds).to_string(), ours, std, paper, paper_std, difference]
    }
}

impl Comparison {
    pub(super) fn of(grid: &Grid, cells: &[(Cell, CellState)]) -> Result<Self> {
        let published = Published::beside(&grid.experiment)?;
        Ok(Self { datasets: grid.datasets.clone(), cells: cells.to_vec(), published })
    }

    /// Every dataset with every column.
    pub(super) fn each<'a, C>(&'a self, columns: &'a [C]) -> impl Iterator<Item = (&'a String, &'a C)> {
        self.datasets.iter().flat_map(move |dataset| columns.iter().map(move |column| (dataset, column)))
    }

    /// Finished cells of a dataset, or of all of them.
    pub(super) fn results<'a>(
        &'a self,
        dataset: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Cell, &'a CellResult)> {
        let of = self.cells.iter().filter(move |(cell, _)| dataset.is_none_or(|d| d == cell.dataset));
        of.filter_map(|(cell, state)| Some((cell, state.result()?)))
    }

    /// The seeds' numbers of one column on a dataset, or on all of them.
    pub(super) fn values(&self, dataset: Option<&str>, column: &str, metric: &str) -> Vec<f64> {
        self.results(dataset).filter_map(|(_, found)| found.get(column, metric)).collect()
    }

    /// Their mean beside the paper's number.
    pub(super) fn get(&self, dataset: &str, column: &str, metric: &str) -> ComparedValue {
        ComparedValue {
            ours: MeanStd::of_some(&self.values(Some(dataset), column, metric)),
            paper: self.published.get(dataset, column, metric),
            paper_std: self.published.std(dataset, column, metric),
        }
    }
}

/// A difference with its sign, or a dash.
pub(super) fn signed_or_dash(difference: Option<f64>, digits: usize) -> String {
    difference.map_or("-".into(), |d| signed(d, digits))
}
