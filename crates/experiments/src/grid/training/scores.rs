//! Scores as a table: ours over seeds, the paper's beside it, the difference, and who beats whom.

use super::super::comparison::{Comparison, signed_or_dash};
use super::super::experiment::AlgorithmColumn;
use crate::format::{decimal, or_dash};
use crate::mean_std::MeanStd;
use crate::table::{Table, row};

/// Which policy of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// The one at the end, as the paper reports it.
    Last,
    /// The best on the way, which takes the simulator to choose.
    Best,
}

/// A finished table.
pub(super) struct Scores {
    pub(super) numbers: Comparison,
    pub(super) columns: Vec<AlgorithmColumn>,
    /// `score`, or `return` where no dataset has a reference to normalise by.
    pub(super) unit: &'static str,
    /// Datasets with finished runs that have no number in this unit: nothing to normalise by, or no simulator.
    pub(super) silent: Vec<String>,
    /// Seeds that were asked for.
    pub(super) seeds: usize,
}

impl Scores {
    pub(super) fn of(columns: &[AlgorithmColumn], numbers: Comparison) -> Self {
        let values: Vec<_> = numbers.results(None).flat_map(|(_, found)| &found.values).collect();
        let scored = values.is_empty() || values.iter().any(|v| v.metric == "score");
        let unit = if scored { "score" } else { "return" };
        let silent = |d: &&String| {
            let mut found = numbers.results(Some(d));
            found.any(|(_, found)| found.values.iter().all(|v| v.metric != unit))
        };
        let mut seeds: Vec<u64> = numbers.cells.iter().map(|(cell, _)| cell.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        let silent = numbers.datasets.iter().filter(silent).cloned().collect();
        Self { columns: columns.to_vec(), unit, silent, seeds: seeds.len(), numbers }
    }

    /// The name of a number of ours.
    fn metric(&self, which: Which) -> String {
        format!("{}{}", if which == Which::Best { "best " } else { "" }, self.unit)
    }

    /// The seeds' numbers of one column on one dataset.
    pub(super) fn values(&self, dataset: &str, column: &str, which: Which) -> Vec<f64> {
        self.numbers.values(Some(dataset), column, &self.metric(which))
    }

    /// Their mean; `None` when no seed finished.
    pub(super) fn mean(&self, dataset: &str, column: &str, which: Which) -> Option<MeanStd> {
        MeanStd::of_some(&self.values(dataset, column, which))
    }

    /// What the paper prints, where it has the number. Returns that are not normalised stand beside nothing.
    pub(super) fn paper(&self, dataset: &str, column: &str) -> Option<f64> {
        self.numbers.published.get(dataset, column, self.unit)
    }

    /// Datasets on which all of these columns have a number.
    pub(super) fn common(&self, columns: &[&str]) -> Vec<&str> {
        let all = |d: &&String| columns.iter().all(|c| self.mean(d, c, Which::Last).is_some());
        self.numbers.datasets.iter().filter(all).map(String::as_str).collect()
    }

    /// Names of all columns.
    pub(super) fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|c| c.name.as_str()).collect()
    }

    /// Means of one column, a number each dataset.
    pub(super) fn over(&self, datasets: &[&str], column: &str) -> Vec<f64> {
        datasets.iter().filter_map(|d| self.mean(d, column, Which::Last)).map(|m| m.mean).collect()
    }

    /// The paper's means, where it has all of these datasets.
    pub(super) fn over_paper(&self, datasets: &[&str], column: &str) -> Option<Vec<f64>> {
        datasets.iter().map(|d| self.paper(d, column)).collect()
    }

    /// Dataset by dataset, every column's mean and deviation.
    pub(super) fn table(&self, which: Which) -> Table {
        let of = |dataset: &String| {
            row(dataset, self.columns.iter().map(|c| self.text(self.mean(dataset, &c.name, which))))
        };
        let mut rows: Vec<Vec<String>> = self.numbers.datasets.iter().map(of).collect();
        let common = self.common(&self.names());
        if common.len() > 1 {
            let mean = |c: &AlgorithmColumn| {
                let means = common.iter().filter_map(|d| self.mean(d, &c.name, which)).map(|m| m.mean);
                decimal(MeanStd::of(&means.collect::<Vec<f64>>()).mean, 1)
            };
            rows.push(row(format!("mean of {}", common.len()), self.columns.iter().map(mean)));
        }
        Table::new(row("", self.columns.iter().map(AlgorithmColumn::label)), rows)
    }

    /// What a dataset's own episodes reached, where a run recorded it.
    pub(super) fn data(&self, dataset: &str) -> Option<f64> {
        let metric = format!("data's {}", self.unit);
        let mut found = self.numbers.results(Some(dataset));
        found.find_map(|(cell, found)| found.get(cell.column.as_deref()?, &metric))
    }

    /// [`Scores::table`] of the last policies with what the data reached in front; without that column where nothing is known
    /// of it.
    pub(super) fn last_beside_data(&self) -> Table {
        let mut table = self.table(Which::Last);
        if self.numbers.datasets.iter().any(|d| self.data(d).is_some()) {
            let common: Option<Vec<f64>> = self.common(&self.names()).iter().map(|d| self.data(d)).collect();
            let mean = common.map(|values| MeanStd::of(&values).mean);
            let reached = self.numbers.datasets.iter().map(|d| self.data(d)).chain([mean]);
            table.header.insert(1, "the data".into());
            let cell = |x: Option<f64>| or_dash(x, |x| decimal(x, 1));
            table.rows.iter_mut().zip(reached).for_each(|(row, x)| row.insert(1, cell(x)));
        }
        table
    }

    /// Ours, the paper's and the difference of some columns, dataset by dataset.
    pub(super) fn beside_paper(&self, columns: &[&AlgorithmColumn]) -> Table {
        let of = |dataset: &str, column: &AlgorithmColumn| {
            let e = self.numbers.get(dataset, &column.name, self.unit);
            let spread = e.paper_std.map_or(String::new(), |s| format!(" ± {s:.1}"));
            let paper = or_dash(e.paper, |p| format!("{p:.1}{spread}"));
            [self.text(e.ours), paper, signed_or_dash(e.difference(), 1)]
        };
        let all = |dataset: &String| row(dataset, columns.iter().flat_map(|column| of(dataset, column)));
        let mut rows: Vec<Vec<String>> = self.numbers.datasets.iter().map(all).collect();
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        let common = self.common(&names);
        if common.len() > 1 {
            let mean = |name: &str| {
                let ours = MeanStd::of(&self.over(&common, name)).mean;
                let paper = self.over_paper(&common, name).map(|p| MeanStd::of(&p).mean);
                let difference = signed_or_dash(paper.map(|p| ours - p), 1);
                [decimal(ours, 1), or_dash(paper, |p| decimal(p, 1)), difference]
            };
            rows.push(row(format!("mean of {}", common.len()), names.into_iter().flat_map(mean)));
        }
        let header = columns.iter().flat_map(|c| [c.label(), "paper".into(), "difference".into()]);
        Table::new(row("", header), rows)
    }

    /// On how many datasets a column's mean is above that of the one it is to beat, as the paper counts; and on how many
    /// both have a number.
    pub(super) fn wins(&self, column: &AlgorithmColumn) -> Option<(usize, usize)> {
        self.count_wins(column, |datasets, name| Some(self.over(datasets, name)))
    }

    /// The same of the paper's numbers, on the same datasets.
    pub(super) fn paper_wins(&self, column: &AlgorithmColumn) -> Option<(usize, usize)> {
        self.count_wins(column, |datasets, name| self.over_paper(datasets, name))
    }

    fn count_wins(
        &self,
        column: &AlgorithmColumn,
        means: impl Fn(&[&str], &str) -> Option<Vec<f64>>,
    ) -> Option<(usize, usize)> {
        let against = column.against.as_deref()?;
        let common = self.common(&[&column.name, against]);
        let (own, base) = (means(&common, &column.name)?, means(&common, against)?);
        Some((own.iter().zip(&base).filter(|(o, b)| o > b).count(), common.len()))
    }

    /// A score as the paper prints it; where not all seeds have finished, with their number.
    fn text(&self, mean: Option<MeanStd>) -> String {
        let Some(m) = mean.filter(|m| m.mean.is_finite()) else { return "-".into() };
        let spread = if m.seeds > 1 { format!(" ± {:.1}", m.std) } else { String::new() };
        let few = if m.seeds < self.seeds { format!(" (n = {})", m.seeds) } else { String::new() };
        format!("{}{spread}{few}", decimal(m.mean, 1))
    }

    /// The table, one number a line.
    pub(super) fn csv(&self) -> String {
        let header = "dataset,column,in_paper,metric,seeds,ours,ours_std,paper,paper_std,difference";
        let mut rows = Vec::new();
        for (dataset, column) in self.numbers.each(&self.columns) {
            let in_paper = self.paper(dataset, &column.name).is_some().to_string();
            for metric in [Which::Last, Which::Best].map(|which| self.metric(which)) {
                let start = [dataset, &column.name, &in_paper, &metric].map(String::clone);
                let found = self.numbers.get(dataset, &column.name, &metric);
                rows.push([&start[..], &found.csv_fields()].concat());
            }
        }
        Table::new(header.split(','), rows).csv()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
pub(super) mod tests;
