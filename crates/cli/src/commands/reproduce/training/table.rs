//! Scores as a table: ours over seeds, the paper's beside it, the difference, and who beats whom.

use super::super::super::calibrate::Mean;
use super::super::cells::{Cell, Outcome};
use super::super::experiment::Trained;
use super::super::published::Published;
use crate::csv::{field, number};

/// Which policy of a run is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The one at the end, as the paper reports it.
    Last,
    /// The best on the way, which takes the simulator to choose.
    Best,
}

/// A finished table.
#[derive(Clone, Debug)]
pub(crate) struct Scores {
    pub(crate) datasets: Vec<String>,
    pub(crate) columns: Vec<Head>,
    /// `score`, or `return` where no dataset has a reference to normalise by.
    pub(crate) unit: &'static str,
    pub(crate) runs: Vec<Run>,
    /// Datasets with finished runs that have no number in this unit: nothing to normalise by, or no simulator.
    pub(crate) silent: Vec<String>,
    /// Seeds that were asked for.
    pub(crate) seeds: usize,
    published: Published,
}

/// A column's name, the column it is to beat, and whether the paper lacks it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) name: String,
    pub(crate) against: Option<String>,
    pub(crate) beyond: bool,
}

/// One finished run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) dataset: String,
    pub(crate) column: String,
    last: f64,
    best: f64,
    /// What the data's own episodes reached.
    data: Option<f64>,
    pub(crate) curve: Vec<(u64, f64)>,
}

impl Scores {
    pub(crate) fn of(
        columns: &[&Trained],
        published: &Published,
        datasets: &[String],
        cells: &[(Cell, Outcome)],
    ) -> Self {
        let head = |c: &&Trained| {
            // A column that is not part of this grid cannot be beaten.
            let against = c.against.clone().filter(|a| columns.iter().any(|c| c.name == *a));
            Head { name: c.name.clone(), against, beyond: c.beyond }
        };
        let values = || cells.iter().filter_map(|(_, o)| o.found()).flat_map(|f| &f.values);
        let scored = values().any(|v| v.metric == "score") || values().next().is_none();
        let (unit, best, data) = match scored {
            true => ("score", "best score", "data's score"),
            false => ("return", "best return", "data's return"),
        };
        let run = |(cell, outcome): &(Cell, Outcome)| {
            let found = outcome.found()?;
            let get = |metric: &str| found.values.iter().find(|v| v.metric == metric).map(|v| v.value);
            Some(Run {
                dataset: cell.dataset.clone(),
                column: cell.column.clone()?,
                last: get(unit)?,
                best: get(best)?,
                data: get(data),
                curve: found.curve.clone(),
            })
        };
        let mute = |d: &&String| {
            let done = |(cell, outcome): &(Cell, Outcome)| cell.dataset == **d && outcome.found().is_some();
            cells.iter().any(|c| done(c) && run(c).is_none())
        };
        let mut seeds: Vec<u64> = cells.iter().map(|(cell, _)| cell.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        Self {
            datasets: datasets.to_vec(),
            columns: columns.iter().map(head).collect(),
            unit,
            runs: cells.iter().filter_map(run).collect(),
            silent: datasets.iter().filter(mute).cloned().collect(),
            seeds: seeds.len(),
            published: published.clone(),
        }
    }

    /// The seeds' numbers of one column on one dataset.
    pub(crate) fn values(&self, dataset: &str, column: &str, which: Which) -> Vec<f64> {
        let of = self.runs.iter().filter(|r| r.dataset == dataset && r.column == column);
        of.map(|r| if which == Which::Last { r.last } else { r.best }).collect()
    }

    /// Their mean; `None` when no seed finished.
    pub(crate) fn mean(&self, dataset: &str, column: &str, which: Which) -> Option<Mean> {
        let values = self.values(dataset, column, which);
        (!values.is_empty()).then(|| Mean::of(&values))
    }

    /// What the paper prints, where it has the number. Returns that are not normalised stand beside nothing.
    pub(crate) fn paper(&self, dataset: &str, column: &str) -> Option<f64> {
        self.published.get(dataset, column, "score").filter(|_| self.unit == "score")
    }

    /// Datasets on which all of these columns have a number.
    pub(crate) fn common(&self, columns: &[&str]) -> Vec<&str> {
        let all = |d: &&String| columns.iter().all(|c| self.mean(d, c, Which::Last).is_some());
        self.datasets.iter().filter(all).map(String::as_str).collect()
    }

    /// Means of one column, a number each dataset.
    pub(crate) fn over(&self, datasets: &[&str], column: &str) -> Vec<f64> {
        datasets.iter().filter_map(|d| self.mean(d, column, Which::Last)).map(|m| m.mean).collect()
    }

    /// The paper's means, where it has all of these datasets.
    pub(crate) fn over_paper(&self, datasets: &[&str], column: &str) -> Option<Vec<f64>> {
        datasets.iter().map(|d| self.paper(d, column)).collect()
    }

    /// Dataset by dataset, every column's mean and deviation.
    pub(crate) fn rows(&self, which: Which) -> Vec<Vec<String>> {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for dataset in &self.datasets {
            let cells = self.columns.iter().map(|c| self.text(self.mean(dataset, &c.name, which)));
            rows.push([dataset.clone()].into_iter().chain(cells).collect());
        }
        let names: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
        let common = self.common(&names);
        if common.len() > 1 {
            let mean = |c: &Head| {
                let means = common.iter().filter_map(|d| self.mean(d, &c.name, which)).map(|m| m.mean);
                one(Mean::of(&means.collect::<Vec<f64>>()).mean)
            };
            let first = format!("mean of {}", common.len());
            rows.push([first].into_iter().chain(self.columns.iter().map(mean)).collect());
        }
        rows
    }

    /// What a dataset's own episodes reached, where a run tells it.
    pub(crate) fn data(&self, dataset: &str) -> Option<f64> {
        self.runs.iter().filter(|r| r.dataset == dataset).find_map(|r| r.data)
    }

    /// [`Scores::rows`] of the last policies with what the data reached in front, and their header; without that column where
    /// nothing is known of it.
    pub(crate) fn last_beside_data(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let names = self.columns.iter().map(Head::label);
        let mut header: Vec<String> = [String::new()].into_iter().chain(names).collect();
        let mut rows = self.rows(Which::Last);
        if self.datasets.iter().any(|d| self.data(d).is_some()) {
            header.insert(1, "the data".into());
            let names: Vec<&str> = self.columns.iter().map(|c| c.name.as_str()).collect();
            let common: Option<Vec<f64>> = self.common(&names).iter().map(|d| self.data(d)).collect();
            let mean = common.map(|values| Mean::of(&values).mean);
            let reached = self.datasets.iter().map(|d| self.data(d)).chain([mean]);
            rows.iter_mut().zip(reached).for_each(|(row, x)| row.insert(1, x.map_or("-".into(), one)));
        }
        (header, rows)
    }

    /// Header of [`Scores::beside`].
    pub(crate) fn beside_header(columns: &[&Head]) -> Vec<String> {
        let mut header = vec![String::new()];
        for column in columns {
            header.extend([column.label(), "paper".into(), "difference".into()]);
        }
        header
    }

    /// Ours, the paper's and the difference of some columns, dataset by dataset.
    pub(crate) fn beside(&self, columns: &[&Head]) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for dataset in &self.datasets {
            let mut row = vec![dataset.clone()];
            for column in columns {
                let (ours, paper) =
                    (self.mean(dataset, &column.name, Which::Last), self.paper(dataset, &column.name));
                let spread = self.published.std(dataset, &column.name, "score");
                let spread = spread.map_or(String::new(), |s| format!(" ± {s:.1}"));
                row.push(self.text(ours));
                row.push(paper.map_or("-".into(), |p| format!("{p:.1}{spread}")));
                row.push(ours.zip(paper).map_or("-".into(), |(o, p)| signed(o.mean - p)));
            }
            rows.push(row);
        }
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        let common = self.common(&names);
        if common.len() > 1 {
            let mut row = vec![format!("mean of {}", common.len())];
            for name in names {
                let ours = Mean::of(&self.over(&common, name)).mean;
                let paper = self.over_paper(&common, name).map(|p| Mean::of(&p).mean);
                row.extend([one(ours), paper.map_or("-".into(), one)]);
                row.push(paper.map_or("-".into(), |p| signed(ours - p)));
            }
            rows.push(row);
        }
        rows
    }

    /// On how many datasets a column's mean is above that of the one it is to beat, as the paper counts; and on how many
    /// both have a number.
    pub(crate) fn wins(&self, column: &Head) -> Option<(usize, usize)> {
        let against = column.against.as_deref()?;
        let common = self.common(&[&column.name, against]);
        let (ours, base) = (self.over(&common, &column.name), self.over(&common, against));
        Some((ours.iter().zip(&base).filter(|(o, b)| o > b).count(), common.len()))
    }

    /// The same of the paper's numbers, on the same datasets.
    pub(crate) fn paper_wins(&self, column: &Head) -> Option<(usize, usize)> {
        let against = column.against.as_deref()?;
        let common = self.common(&[&column.name, against]);
        let (ours, base) = (self.over_paper(&common, &column.name)?, self.over_paper(&common, against)?);
        Some((ours.iter().zip(&base).filter(|(o, b)| o > b).count(), common.len()))
    }

    /// A score as the paper prints it; where not all seeds have finished, with their number.
    fn text(&self, mean: Option<Mean>) -> String {
        let Some(m) = mean.filter(|m| m.mean.is_finite()) else { return "-".into() };
        let spread = if m.seeds > 1 { format!(" ± {:.1}", m.std) } else { String::new() };
        let few = if m.seeds < self.seeds { format!(" (n = {})", m.seeds) } else { String::new() };
        format!("{}{spread}{few}", one(m.mean))
    }

    /// The table, one number a line.
    pub(crate) fn csv(&self) -> String {
        let mut out =
            String::from("dataset,column,in_paper,metric,seeds,ours,ours_std,paper,paper_std,difference\n");
        for dataset in &self.datasets {
            for column in &self.columns {
                for which in [Which::Last, Which::Best] {
                    let ours = self.mean(dataset, &column.name, which);
                    let paper = self.paper(dataset, &column.name).filter(|_| which == Which::Last);
                    let spread = paper.and(self.published.std(dataset, &column.name, "score"));
                    let metric = if which == Which::Last { "" } else { "best " };
                    out.push_str(&format!(
                        "{},{},{},{metric}{},{},{},{},{},{},{}\n",
                        field(dataset),
                        field(&column.name),
                        self.paper(dataset, &column.name).is_some(),
                        self.unit,
                        ours.map_or(0, |m| m.seeds),
                        number(ours.map(|m| m.mean)),
                        number(ours.filter(|m| m.seeds > 1).map(|m| m.std)),
                        number(paper),
                        number(spread),
                        number(ours.zip(paper).map(|(o, p)| o.mean - p)),
                    ));
                }
            }
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

fn one(x: f64) -> String {
    // A minus, not the dash that stands for nothing.
    if x.is_finite() { format!("{x:.1}").replace('-', "−") } else { "-".into() }
}

/// A difference with its sign.
fn signed(x: f64) -> String {
    // What rounds to nothing has no sign.
    let text = format!("{:.1}", x.abs());
    match (text.as_str(), x > 0.0) {
        ("0.0", _) => text,
        (_, true) => format!("+{text}"),
        (_, false) => format!("−{text}"),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
pub(super) mod tests;
