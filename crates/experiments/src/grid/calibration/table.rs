//! Cells as a table: ours over seeds, the paper's beside it, the difference.

use offing::stats::runs::signed_rank;
use offing::uncertainty::{SumoConfig, UncertaintyConfig};

use super::super::comparison::{ComparedValue, Comparison, signed_or_dash};
use super::super::experiment::{EstimatorColumn, starred};
use crate::format::{or_dash, p_value};
use crate::mean_std::MeanStd;
use crate::table::{Table, row};

/// The column every study has beside the estimators: the rollout step itself, which costs nothing to know.
pub(in super::super) const BASELINE: &str = "step";

/// What is compared, with the sign tables show.
pub(super) const METRICS: [(&str, &str); 2] = [("spearman", "ρ"), ("pearson", "r")];

/// A finished table.
pub(super) struct CalibrationTable {
    pub(super) numbers: Comparison,
    pub(super) columns: Vec<CalibrationColumn>,
}

/// A column's name, and whether the paper has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CalibrationColumn {
    pub(super) name: String,
    pub(super) beyond: bool,
    /// SUMO with its default settings, the paper's choice.
    pub(super) sumo: bool,
}

impl CalibrationTable {
    pub(super) fn of(columns: &[EstimatorColumn], numbers: Comparison) -> Self {
        let sumo = UncertaintyConfig::Sumo(SumoConfig::default());
        let mut columns: Vec<CalibrationColumn> = (columns.iter())
            .map(|c| CalibrationColumn { name: c.name.clone(), beyond: c.beyond, sumo: c.estimator == sumo })
            .collect();
        columns.push(CalibrationColumn { name: BASELINE.into(), beyond: true, sumo: false });
        Self { numbers, columns }
    }

    /// The column with SUMO as the paper uses it.
    pub(super) fn sumo(&self) -> Option<&CalibrationColumn> {
        self.columns.iter().find(|c| c.sumo)
    }

    /// Whether the paper has any of these numbers.
    pub(super) fn has_published(&self) -> bool {
        let published = &self.numbers.published;
        let known = |d, c| METRICS.iter().any(|(metric, _)| published.get(d, c, metric).is_some());
        self.numbers.each(&self.columns).any(|(dataset, column)| known(dataset, &column.name))
    }

    fn header() -> Vec<String> {
        row("", METRICS.iter().flat_map(|(_, sign)| [*sign, "paper", "difference"].map(String::from)))
    }

    /// The paper's table turned: one row for each of its columns, on one dataset.
    pub(super) fn of_dataset(&self, dataset: &str) -> Table {
        let cells = |head: &CalibrationColumn| {
            let of = |(metric, _): &(&str, &str)| {
                let e = self.numbers.get(dataset, &head.name, metric);
                let paper = or_dash(e.paper, |p| format!("{p:.2}"));
                [or_dash(e.ours, |m| m.text()), paper, signed_or_dash(e.difference(), 2)]
            };
            row(head.label(), METRICS.iter().flat_map(of))
        };
        Table::new(Self::header(), self.columns.iter().map(cells))
    }

    /// Means over the datasets that finished, and on how many of them each column is best among the paper's columns.
    /// The paper's mean is given where it has all of these datasets.
    pub(super) fn means(&self) -> Table {
        let finished = self.finished();
        let mean =
            |values: Option<Vec<f64>>| MeanStd::of_some(&values?).map(|m| m.mean).filter(|m| m.is_finite());
        let cells = |head: &CalibrationColumn| {
            let mut cells = vec![head.label()];
            for (metric, _) in METRICS {
                let of = |pick: fn(&ComparedValue) -> Option<f64>| {
                    mean(finished.iter().map(|d| pick(&self.numbers.get(d, &head.name, metric))).collect())
                };
                let (ours, paper) = (of(ComparedValue::our_mean), of(ComparedValue::published));
                cells.extend([ours, paper].map(|x| or_dash(x, |x| format!("{x:.2}"))));
                cells.push(signed_or_dash(ours.zip(paper).map(|(o, p)| o - p), 2));
            }
            for metrics in [&METRICS[..1], &METRICS[..]] {
                for pick in [ComparedValue::our_mean, ComparedValue::published] {
                    cells.push(self.wins(head, &finished, metrics, pick));
                }
            }
            cells
        };
        let best = ["best ρ, ours", "best ρ, paper", "best ρ or r, ours", "best ρ or r, paper"];
        let header = [Self::header(), best.map(String::from).to_vec()].concat();
        Table::new(header, self.columns.iter().filter(|_| !finished.is_empty()).map(cells))
    }

    pub(super) fn finished(&self) -> Vec<&String> {
        self.numbers.datasets.iter().filter(|d| self.numbers.results(Some(d)).next().is_some()).collect()
    }

    /// On how many datasets a column is the best of the paper's by one of the metrics, of those on which all of them have a
    /// number; equals are all best. Nothing for columns that the paper does not have.
    fn wins(
        &self,
        head: &CalibrationColumn,
        datasets: &[&String],
        metrics: &[(&str, &str)],
        pick: fn(&ComparedValue) -> Option<f64>,
    ) -> String {
        let complete = |d: &&&String| metrics.iter().any(|(metric, _)| self.best(d, metric, pick).is_some());
        let complete: Vec<&&String> = datasets.iter().filter(complete).collect();
        if head.beyond || complete.is_empty() {
            return "-".into();
        }
        let leads = |dataset: &str, metric: &str| {
            let own = pick(&self.numbers.get(dataset, &head.name, metric));
            own.zip(self.best(dataset, metric, pick)).is_some_and(|(own, best)| own >= best - 1e-9)
        };
        let won = complete.iter().filter(|d| metrics.iter().any(|(metric, _)| leads(d, metric))).count();
        format!("{won} of {}", complete.len())
    }

    /// The highest number of the paper's columns on a dataset; `None` when one of them has none.
    fn best(&self, dataset: &str, metric: &str, pick: fn(&ComparedValue) -> Option<f64>) -> Option<f64> {
        let own = self.columns.iter().filter(|c| !c.beyond);
        let value = |c: &CalibrationColumn| pick(&self.numbers.get(dataset, &c.name, metric));
        let values: Option<Vec<f64>> = own.map(|c| value(c).filter(|v| v.is_finite())).collect();
        values?.into_iter().max_by(f64::total_cmp)
    }

    /// Ours as the paper prints it: datasets down, columns across.
    pub(super) fn overview(&self, metric: &str) -> Table {
        let text = |m: MeanStd| if m.mean.is_finite() { format!("{:.2}", m.mean) } else { "-".into() };
        let cells = |dataset: &&String| {
            let ours = |c: &CalibrationColumn| self.numbers.get(dataset, &c.name, metric).ours;
            row(*dataset, self.columns.iter().map(|c| or_dash(ours(c), text)))
        };
        let header = row("", self.columns.iter().map(CalibrationColumn::label));
        Table::new(header, self.finished().iter().map(cells))
    }

    /// Wilcoxon's test over the finished datasets of SUMO as the paper uses it against each of the other columns: name,
    /// datasets, rank sums for and against SUMO, p. Datasets on which one has no number are left out.
    pub(super) fn against_sumo(&self) -> Vec<Vec<String>> {
        let Some(sumo) = self.sumo() else { return Vec::new() };
        let cells = |head: &CalibrationColumn| {
            let pair = |d: &&String| {
                let of =
                    |name: &str| self.numbers.get(d, name, METRICS[0].0).our_mean().filter(|v| v.is_finite());
                of(&sumo.name).zip(of(&head.name))
            };
            let (own, theirs): (Vec<f64>, Vec<f64>) = self.finished().iter().filter_map(pair).unzip();
            let found = signed_rank(&own, &theirs);
            let sums = format!("{} : {}", found.positive, found.negative);
            vec![head.label(), own.len().to_string(), sums, p_value(found.p)]
        };
        self.columns.iter().filter(|c| *c != sumo).map(cells).collect()
    }

    /// The table, one number a line.
    pub(super) fn csv(&self) -> String {
        let header = "dataset,column,in_paper,metric,seeds,ours,ours_std,paper,difference";
        let mut rows = Vec::new();
        for (dataset, head) in self.numbers.each(&self.columns) {
            for (metric, _) in METRICS {
                let e = self.numbers.get(dataset, &head.name, metric);
                let [seeds, ours, std, paper, _, difference] = e.csv_fields();
                let start = [dataset, &head.name, &e.paper.is_some().to_string(), metric].map(String::from);
                rows.push([&start[..], &[seeds, ours, std, paper, difference]].concat());
            }
        }
        Table::new(header.split(','), rows).csv()
    }
}

impl CalibrationColumn {
    /// Its name in tables.
    pub(super) fn label(&self) -> String {
        starred(&self.name, self.beyond)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
