//! Cells as a table: ours over seeds, the paper's beside it, the difference.

use offing::stats::runs::signed_rank;
use offing::uncertainty::{SumoConfig, UncertaintyConfig};

use super::super::super::calibrate::Mean;
use super::super::cells::{Cell, Outcome, Value};
use super::super::experiment::Column;
use super::super::published::Published;
use crate::csv::{field, number};
use crate::term;

/// The column every study has beside the estimators: the rollout step itself, which costs nothing to know.
pub(crate) const BASELINE: &str = "step";

/// What is compared, with the sign tables show.
pub(crate) const METRICS: [(&str, &str); 2] = [("spearman", "ρ"), ("pearson", "r")];

/// A finished table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) datasets: Vec<String>,
    pub(crate) columns: Vec<Head>,
    entries: Vec<Entry>,
}

/// A column's name, and whether the paper has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) name: String,
    pub(crate) beyond: bool,
    /// SUMO with its default settings, the paper's choice.
    pub(crate) sumo: bool,
}

/// One number of ours and the paper's.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) dataset: String,
    pub(crate) column: String,
    pub(crate) metric: &'static str,
    /// Over the seeds that finished; `None` when none did.
    pub(crate) ours: Option<Mean>,
    pub(crate) paper: Option<f64>,
}

impl Entry {
    fn our_mean(&self) -> Option<f64> {
        self.ours.map(|m| m.mean)
    }

    fn published(&self) -> Option<f64> {
        self.paper
    }

    pub(crate) fn difference(&self) -> Option<f64> {
        Some(self.ours?.mean - self.paper?)
    }
}

impl Table {
    pub(crate) fn of(
        columns: &[&Column],
        published: &Published,
        datasets: &[String],
        cells: &[(Cell, Outcome)],
    ) -> Self {
        let sumo = UncertaintyConfig::Sumo(SumoConfig::default());
        let own = columns.iter().map(|c| Head {
            name: c.name.clone(),
            beyond: c.beyond,
            sumo: c.estimator == sumo,
        });
        let columns: Vec<Head> =
            own.chain([Head { name: BASELINE.into(), beyond: true, sumo: false }]).collect();
        let mut entries = Vec::new();
        for dataset in datasets {
            for head in &columns {
                for (metric, _) in METRICS {
                    let is = |v: &&Value| v.column == head.name && v.metric == metric;
                    let found: Vec<f64> = (cells.iter().filter(|(cell, _)| cell.dataset == *dataset))
                        .filter_map(|(_, outcome)| outcome.found()?.values.iter().find(is).map(|v| v.value))
                        .collect();
                    entries.push(Entry {
                        dataset: dataset.clone(),
                        column: head.name.clone(),
                        metric,
                        ours: (!found.is_empty()).then(|| Mean::of(&found)),
                        paper: published.get(dataset, &head.name, metric),
                    });
                }
            }
        }
        Self { datasets: datasets.to_vec(), columns, entries }
    }

    pub(crate) fn entry(&self, dataset: &str, column: &str, metric: &str) -> &Entry {
        let is = |e: &&Entry| e.dataset == dataset && e.column == column && e.metric == metric;
        self.entries.iter().find(is).expect("there is an entry for every dataset, column and metric")
    }

    /// The column with SUMO as the paper uses it.
    pub(crate) fn sumo(&self) -> Option<&Head> {
        self.columns.iter().find(|c| c.sumo)
    }

    /// Whether the paper has any of these numbers.
    pub(crate) fn has_published(&self) -> bool {
        self.entries.iter().any(|e| e.paper.is_some())
    }

    /// Header of [`Table::of_dataset`] and [`Table::means`]; `first` names the columns of the paper's table.
    pub(crate) fn header(first: &str) -> Vec<String> {
        let mut header = vec![first.to_string()];
        for (_, sign) in METRICS {
            header.extend([sign.to_string(), "paper".into(), "difference".into()]);
        }
        header
    }

    /// The paper's table turned: one row for each of its columns, on one dataset.
    pub(crate) fn of_dataset(&self, dataset: &str) -> Vec<Vec<String>> {
        let row = |head: &Head| {
            let mut cells = vec![head.label()];
            for (metric, _) in METRICS {
                let e = self.entry(dataset, &head.name, metric);
                let difference = e.difference().filter(|d| d.is_finite());
                cells.push(e.ours.map_or("-".into(), |m| m.text()));
                cells.push(e.paper.map_or("-".into(), |p| format!("{p:.2}")));
                cells.push(difference.map_or("-".into(), signed));
            }
            cells
        };
        self.columns.iter().map(row).collect()
    }

    /// What [`Table::means`] has behind the columns of [`Table::header`].
    pub(crate) const WINS: [&str; 4] =
        ["best ρ, ours", "best ρ, paper", "best ρ or r, ours", "best ρ or r, paper"];

    /// Means over the datasets that finished, and on how many of them each column is best among the paper's columns.
    /// The paper's mean is given where it has all of these datasets.
    pub(crate) fn means(&self) -> Vec<Vec<String>> {
        let finished = self.finished();
        let row = |head: &Head| {
            let mut cells = vec![head.label()];
            for (metric, _) in METRICS {
                let of = |d: &&String| self.entry(d, &head.name, metric);
                let ours: Option<Vec<f64>> = finished.iter().map(|d| of(d).ours.map(|m| m.mean)).collect();
                let paper: Option<Vec<f64>> = finished.iter().map(|d| of(d).paper).collect();
                let mean = |v: Option<Vec<f64>>| {
                    v.filter(|v| !v.is_empty()).map(|v| Mean::of(&v).mean).filter(|m| m.is_finite())
                };
                let (ours, paper) = (mean(ours), mean(paper));
                let text = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.2}"));
                cells.extend([text(ours), text(paper)]);
                cells.push(ours.zip(paper).map_or("-".into(), |(o, p)| signed(o - p)));
            }
            for metrics in [&METRICS[..1], &METRICS[..]] {
                for pick in [Entry::our_mean, Entry::published] {
                    cells.push(self.wins(head, &finished, metrics, pick));
                }
            }
            cells
        };
        if finished.is_empty() { Vec::new() } else { self.columns.iter().map(row).collect() }
    }

    pub(crate) fn finished(&self) -> Vec<&String> {
        let any = |d: &&String| self.entries.iter().any(|e| e.dataset == **d && e.ours.is_some());
        self.datasets.iter().filter(any).collect()
    }

    /// On how many datasets a column is the best of the paper's by one of the metrics, of those on which all of them have a
    /// number; equals are all best. Nothing for columns that the paper does not have.
    fn wins(
        &self,
        head: &Head,
        datasets: &[&String],
        metrics: &[(&str, &str)],
        pick: fn(&Entry) -> Option<f64>,
    ) -> String {
        let told = |d: &&&String| metrics.iter().any(|(metric, _)| self.best(d, metric, pick).is_some());
        let told: Vec<&&String> = datasets.iter().filter(told).collect();
        if head.beyond || told.is_empty() {
            return "-".into();
        }
        let leads = |dataset: &str, metric: &str| {
            let own = pick(self.entry(dataset, &head.name, metric));
            own.zip(self.best(dataset, metric, pick)).is_some_and(|(own, best)| own >= best - 1e-9)
        };
        let won = told.iter().filter(|d| metrics.iter().any(|(metric, _)| leads(d, metric))).count();
        format!("{won} of {}", told.len())
    }

    /// The highest number of the paper's columns on a dataset; `None` when one of them has none.
    fn best(&self, dataset: &str, metric: &str, pick: fn(&Entry) -> Option<f64>) -> Option<f64> {
        let own = self.columns.iter().filter(|c| !c.beyond);
        let values: Option<Vec<f64>> =
            own.map(|c| pick(self.entry(dataset, &c.name, metric)).filter(|v| v.is_finite())).collect();
        values?.into_iter().max_by(f64::total_cmp)
    }

    /// Ours as the paper prints it: datasets down, columns across.
    pub(crate) fn overview(&self, metric: &str) -> (Vec<String>, Vec<Vec<String>>) {
        let header = [String::new()].into_iter().chain(self.columns.iter().map(Head::label)).collect();
        let text = |m: Mean| if m.mean.is_finite() { format!("{:.2}", m.mean) } else { "-".into() };
        let row = |dataset: &&String| {
            let of = |c: &Head| self.entry(dataset, &c.name, metric).ours.map_or("-".into(), text);
            [(*dataset).clone()].into_iter().chain(self.columns.iter().map(of)).collect()
        };
        (header, self.finished().iter().map(row).collect())
    }

    /// Wilcoxon's test over the finished datasets of SUMO as the paper uses it against each of the other columns: name,
    /// datasets, rank sums for and against SUMO, p. Datasets on which one has no number are left out.
    pub(crate) fn against_sumo(&self) -> Vec<Vec<String>> {
        let Some(sumo) = self.sumo().cloned() else { return Vec::new() };
        let row = |head: &Head| {
            let pair = |d: &&String| {
                let of = |c: &Head| self.entry(d, &c.name, METRICS[0].0).our_mean().filter(|v| v.is_finite());
                of(&sumo).zip(of(head))
            };
            let (own, theirs): (Vec<f64>, Vec<f64>) = self.finished().iter().filter_map(pair).unzip();
            let found = signed_rank(&own, &theirs);
            let sums = format!("{} : {}", found.positive, found.negative);
            vec![head.label(), own.len().to_string(), sums, term::p_value(found.p)]
        };
        self.columns.iter().filter(|c| **c != sumo).map(row).collect()
    }

    /// The table, one number a line.
    pub(crate) fn csv(&self) -> String {
        let mut out = String::from("dataset,column,in_paper,metric,seeds,ours,ours_std,paper,difference\n");
        for e in &self.entries {
            let seeds = e.ours.map_or(0, |m| m.seeds);
            let std = e.ours.filter(|m| m.seeds > 1).map(|m| m.std);
            out.push_str(&format!(
                "{},{},{},{},{seeds},{},{},{},{}\n",
                field(&e.dataset),
                field(&e.column),
                e.paper.is_some(),
                e.metric,
                number(e.ours.map(|m| m.mean)),
                number(std),
                number(e.paper),
                number(e.difference()),
            ));
        }
        out
    }
}

impl Head {
    /// The name, with a star where the paper's table has no such column.
    pub(crate) fn label(&self) -> String {
        if self.beyond { format!("{}*", self.name) } else { self.name.clone() }
    }
}

/// A difference with its sign.
fn signed(x: f64) -> String {
    // What rounds to nothing has no sign.
    let text = format!("{:.2}", x.abs());
    match (text.as_str(), x > 0.0) {
        ("0.00", _) => text,
        (_, true) => format!("+{text}"),
        (_, false) => format!("−{text}"),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
