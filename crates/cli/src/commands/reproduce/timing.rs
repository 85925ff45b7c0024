//! Tables of time: what SUMO costs, or saves. A cell trains all columns on one dataset in turns, a thousand gradient steps
//! each, in one process: whatever else the machine does meets them alike. Times are the only numbers here that differ from run
//! to run; a finished cell keeps those it found.

use anyhow::Result;
use offing::algo::TrainConfig;

use super::super::bench::{Timed, median, plan_timed, train_in_turns};
use super::super::calibrate::Mean;
use super::cells::{Cell, Found, Outcome, Value};
use super::collect::Made;
use super::experiment::Trained;
use super::parts::Part;
use super::published::Published;
use super::work::{Kind, Work};
use crate::algorithms::Plan;
use crate::context::Context;
use crate::csv::{field, number};
use crate::datasets::find_data;
use crate::provenance::By;
use crate::term;

/// Gradient steps of the run whose minutes are told, as in the paper.
const STEPS: f64 = 1e6;

/// What is told of each column.
const SECONDS: &str = "seconds";
const MINUTES: &str = "minutes";

/// One cell.
pub(super) fn run(context: &Context, work: &Work<'_>, cell: &Cell) -> Result<Option<Found>> {
    let Kind::Timing { columns, blocks, .. } = &work.kind else { return Ok(None) };
    let (plans, rows) = plans(work, &cell.dataset)?;
    let data = find_data(context, &cell.dataset, rows, &TrainConfig::default())?;
    context.say(&format!("{}: training in turns", cell.label()));
    let Some(seen) = train_in_turns(&plans, &data, *blocks, cell.seed)? else { return Ok(None) };
    let values = columns.iter().zip(&seen).flat_map(|(column, seen)| values(&column.name, seen)).collect();
    let note = format!("{} rows", term::count(data.rows.len()));
    Ok(Some(Found { values, note, data: data.digest(), by: vec![By::here()], ..Found::default() }))
}

/// Every column's settings, and the rows they learn from; says what is wrong with them, if anything is.
pub(super) fn plans(work: &Work<'_>, dataset: &str) -> Result<(Vec<Plan>, Option<usize>)> {
    let (mut plans, mut rows) = (Vec::new(), work.rows.or(work.made_rows(dataset)));
    if let Kind::Timing { columns, updates, profile, set, .. } = &work.kind {
        for column in columns {
            let preset = work.profile.presets.get(&column.name).map(String::as_str);
            let sets: Vec<String> = column.set.iter().chain(set).cloned().collect();
            let (plan, wanted) =
                plan_timed(column.algorithm(), dataset, (preset, *profile), *updates, &sets)?;
            plans.push(plan);
            rows = rows.or(wanted);
        }
    }
    Ok((plans, rows))
}

/// A column's numbers: seconds of 1000 steps (the middle block, the fastest and the slowest), minutes of a million with the
/// index, and where the seconds go.
fn values(column: &str, seen: &Timed) -> Vec<Value> {
    let middle = median(&seen.blocks);
    let value = |metric: &str, value: f64, (low, high): (f64, f64)| Value {
        column: column.into(),
        metric: metric.into(),
        value,
        low,
        high,
        rows: seen.blocks.len(),
    };
    let none = (f64::NAN, f64::NAN);
    let ends = seen.blocks.iter().fold((f64::INFINITY, 0.0f64), |(l, h), b| (l.min(*b), h.max(*b)));
    let phases = seen.timer.phases();
    let of = |name: &str| phases.iter().find(|(phase, _)| *phase == name).map_or(0.0, |(_, s)| *s);
    let minutes = (middle * STEPS / 1000.0 + of("index")) / 60.0;
    let mut values = vec![value(SECONDS, middle, ends), value(MINUTES, minutes, none)];
    for (phase, total) in phases.iter().filter(|(p, _)| !["model", "index", "checkpoint"].contains(p)) {
        values.push(value(&format!("seconds of {phase}"), total / seen.blocks.len() as f64, none));
    }
    values.push(value("seconds of index, once", of("index"), none));
    values
}

/// Tables of all cells.
pub(super) fn made(
    columns: &[&Trained],
    published: &Published,
    datasets: &[String],
    cells: &[(Cell, Outcome)],
) -> Made {
    let times = Times { columns, published, datasets, cells };
    let mut tables = vec![Part::heading("Seconds of 1000 gradient steps")];
    tables.push(Part::Table(times.header(), times.rows(SECONDS, 2)));
    let ratios = times.ratios();
    if !ratios.is_empty() {
        tables.push(Part::heading("With SUMO, as a share of the time without"));
        let header: Vec<String> = std::iter::once("".to_string())
            .chain(times.pairs().iter().map(|(c, base)| format!("{} of {base}", c.name)))
            .collect();
        tables.push(Part::Table(header, ratios));
        tables.push(Part::text(
            "Below 1 it is faster with SUMO. The medians of blocks that took turns are divided.",
        ));
    }
    tables.push(Part::heading("Minutes of a million steps, beside the paper"));
    tables.push(Part::table(
        &["", "ours", "share of base", "paper", "share of base"],
        columns.iter().map(|c| times.minutes(c)).collect(),
    ));
    tables.push(Part::text(
        "Ours: the middle block times a thousand, and the index or threshold that is made once, a mean over datasets; fitting the dynamics model and \
         evaluating come on top, alike for all. The paper's are of one RTX 3090, so only the shares can be compared.",
    ));
    let more = vec![
        Part::heading("Where the seconds of 1000 steps go"),
        Part::Table(times.phase_header(), times.phases()),
        Part::text("An index that an earlier column has made of the same rows is found, not made again."),
    ];
    let circumstances = vec![
        "All columns of a dataset are trained in one process that gives each a thousand gradient steps in turn, so that a \
         busy machine meets them alike; numbers are the median of the blocks."
            .into(),
    ];
    Made { files: vec![("csv", times.csv())], tables, more, circumstances }
}

struct Times<'a> {
    columns: &'a [&'a Trained],
    published: &'a Published,
    datasets: &'a [String],
    cells: &'a [(Cell, Outcome)],
}

impl Times<'_> {
    /// Mean over the cells of a dataset (or all of them) that have the number.
    fn get(&self, dataset: Option<&str>, column: &str, metric: &str) -> Option<f64> {
        let of = |(cell, outcome): &(Cell, Outcome)| {
            let found = outcome.found().filter(|_| dataset.is_none_or(|d| d == cell.dataset))?;
            found.values.iter().find(|v| v.column == column && v.metric == metric).map(|v| v.value)
        };
        let values: Vec<f64> = self.cells.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| Mean::of(&values).mean)
    }

    fn header(&self) -> Vec<String> {
        [String::new()].into_iter().chain(self.columns.iter().map(|c| c.name.clone())).collect()
    }

    fn rows(&self, metric: &str, digits: usize) -> Vec<Vec<String>> {
        let text = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.digits$}"));
        let row = |name: String, dataset: Option<&str>| {
            let cells = self.columns.iter().map(|c| text(self.get(dataset, &c.name, metric)));
            [name].into_iter().chain(cells).collect::<Vec<String>>()
        };
        let mut rows: Vec<Vec<String>> = self.datasets.iter().map(|d| row(d.clone(), Some(d))).collect();
        if self.datasets.len() > 1 {
            rows.push(row("mean".into(), None));
        }
        rows
    }

    /// Columns with the one they are to beat.
    fn pairs(&self) -> Vec<(&Trained, &str)> {
        let base = |c: &&Trained| {
            let against = self.columns.iter().find(|o| Some(&o.name) == c.against.as_ref())?;
            Some(against.name.as_str())
        };
        self.columns.iter().filter_map(|c| Some((*c, base(c)?))).collect()
    }

    fn share(&self, dataset: Option<&str>, column: &Trained) -> Option<f64> {
        let base = column.against.as_deref()?;
        Some(self.get(dataset, &column.name, SECONDS)? / self.get(dataset, base, SECONDS)?)
    }

    fn ratios(&self) -> Vec<Vec<String>> {
        let pairs = self.pairs();
        let text = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.2}"));
        let row = |d: &String| {
            let cells = pairs.iter().map(|(c, _)| text(self.share(Some(d), c)));
            [d.clone()].into_iter().chain(cells).collect()
        };
        if pairs.is_empty() { Vec::new() } else { self.datasets.iter().map(row).collect() }
    }

    fn minutes(&self, column: &Trained) -> Vec<String> {
        let paper = |name: &str| self.published.get("average", name, MINUTES);
        let share = |get: &dyn Fn(&str) -> Option<f64>| {
            let base = get(column.against.as_deref()?)?;
            Some(format!("{:.2}", get(&column.name)? / base))
        };
        let text = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.0}"));
        let ours = |name: &str| self.get(None, name, MINUTES);
        vec![
            column.name.clone(),
            text(ours(&column.name)),
            share(&ours).unwrap_or("-".into()),
            text(paper(&column.name)),
            share(&paper).unwrap_or("-".into()),
        ]
    }

    fn metrics(&self) -> Vec<String> {
        let mut metrics: Vec<String> = Vec::new();
        for value in self.cells.iter().filter_map(|(_, o)| o.found()).flat_map(|f| &f.values) {
            if value.metric.starts_with("seconds of ") && !metrics.contains(&value.metric) {
                metrics.push(value.metric.clone());
            }
        }
        metrics
    }

    fn phase_header(&self) -> Vec<String> {
        let names = self.metrics();
        [String::new()].into_iter().chain(names.iter().map(|m| m.replace("seconds of ", ""))).collect()
    }

    fn phases(&self) -> Vec<Vec<String>> {
        let metrics = self.metrics();
        let row = |c: &&Trained| {
            let text = |m: &String| self.get(None, &c.name, m).map_or("-".into(), |x| format!("{x:.3}"));
            [c.name.clone()].into_iter().chain(metrics.iter().map(text)).collect()
        };
        self.columns.iter().map(row).collect()
    }

    fn csv(&self) -> String {
        let mut out = String::from("dataset,column,metric,ours,paper,share_of_base\n");
        for dataset in self.datasets {
            for column in self.columns {
                for metric in [SECONDS, MINUTES] {
                    let share = self.share(Some(dataset), column).filter(|_| metric == SECONDS);
                    let paper = self.published.get(dataset, &column.name, metric);
                    let ours = number(self.get(Some(dataset), &column.name, metric));
                    let (dataset, column) = (field(dataset), field(&column.name));
                    let (paper, share) = (number(paper), number(share));
                    out.push_str(&format!("{dataset},{column},{metric},{ours},{paper},{share}\n"));
                }
            }
        }
        for column in self.columns {
            let ours = number(self.get(None, &column.name, MINUTES));
            let paper = number(self.published.get("average", &column.name, MINUTES));
            out.push_str(&format!("average,{},{MINUTES},{ours},{paper},\n", field(&column.name)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::experiment::{Experiment, Grid};
    use super::*;

    fn cell(dataset: &str, seconds: &[(&str, f64)]) -> (Cell, Outcome) {
        let value = |column: &str, metric: &str, value: f64| Value {
            column: column.into(),
            metric: metric.into(),
            value,
            low: f64::NAN,
            high: f64::NAN,
            rows: 3,
        };
        let of = |(c, s): &(&str, f64)| {
            [value(c, SECONDS, *s), value(c, MINUTES, 1000.0 * s / 60.0), value(c, "seconds of sac", s / 2.0)]
        };
        let found = Found { values: seconds.iter().flat_map(of).collect(), ..Found::default() };
        let cell = Cell { id: dataset.into(), column: None, dataset: dataset.into(), seed: 0 };
        (cell, Outcome::Done(found))
    }

    #[test]
    fn shares_and_minutes_stand_beside_the_papers() {
        let experiment = Experiment::named("table7").unwrap();
        let Grid::Timing { columns, .. } = &experiment.grid else { panic!("a table of times") };
        let columns: Vec<&Trained> = columns.iter().collect();
        let published = Published::of("table7").unwrap();
        let datasets = ["a".to_string(), "b".into()];
        let cells = [
            cell("a", &[("mopo+sumo", 9.0), ("mopo", 10.0), ("amorel+sumo", 6.0), ("amorel", 4.0)]),
            cell("b", &[("mopo+sumo", 12.0), ("mopo", 20.0)]),
        ];
        let times = Times { columns: &columns, published: &published, datasets: &datasets, cells: &cells };
        assert_eq!(times.ratios(), [["a", "0.90", "1.50"], ["b", "0.60", "-"]]);
        // (9 + 12) / 2 s of 1000 steps: 175 min of a million; base 250. The paper: 401 of 443.
        assert_eq!(times.minutes(columns[0]), ["mopo+sumo", "175", "0.70", "401", "0.91"]);
        assert_eq!(times.minutes(columns[1]), ["mopo", "250", "-", "443", "-"]);
        assert_eq!(times.rows(SECONDS, 1)[2], ["mean", "10.5", "15.0", "6.0", "4.0"]);
        assert!(times.csv().contains("\na,mopo+sumo,seconds,9,,0.9\n"), "{}", times.csv());
        assert!(times.csv().contains("\naverage,mopo,minutes,250,443,\n"), "{}", times.csv());
        let made = made(&columns, &published, &datasets, &cells);
        assert!(matches!(&made.more[1], Part::Table(header, _) if header[1] == "sac"));
    }
}
