//! Tables of time: what SUMO costs, or saves. A cell trains all columns on one dataset in turns, a thousand gradient steps
//! each, in one process: whatever else the machine does meets them alike. Times are the only numbers here that differ from run
//! to run; a finished cell keeps those it found.

use anyhow::Result;
use offing::algorithms::{Configured, TrainConfig};

use super::cells::{Cell, CellResult, CellState, CellValue};
use super::collect::Collected;
use super::comparison::Comparison;
use super::experiment::{AlgorithmColumn, TimingGrid};
use super::{Grid, GridKind};
use crate::bench::{TimedTraining, configure_timed, median, train_in_turns};
use crate::format::{count, or_dash};
use crate::mean_std::MeanStd;
use crate::provenance::this_process;
use crate::table::{Table, csv_number, row};
use crate::{Element, Runtime};

/// Gradient steps of the run whose minutes are shown, as in the paper.
const STEPS: f64 = 1e6;

/// What is measured of each column.
const SECONDS: &str = "seconds";
const MINUTES: &str = "minutes";

impl TimingGrid {
    /// Every column's settings, and the rows they learn from.
    fn settings(&self, grid: &Grid, dataset: &str) -> Result<(Vec<Configured>, Option<usize>)> {
        let (mut all, mut rows) = (Vec::new(), grid.rows.or(grid.generated_rows(dataset)));
        for column in &self.columns {
            let preset = grid.profile.presets.get(&column.name).map(String::as_str);
            let set: Vec<String> = column.set.iter().chain(&grid.set).cloned().collect();
            let presets = (preset, grid.settings_profile());
            let (configured, wanted) =
                configure_timed(column.algorithm(), dataset, presets, self.updates, &set)?;
            all.push(configured);
            rows = rows.or(wanted);
        }
        Ok((all, rows))
    }
}

impl GridKind for TimingGrid {
    fn cells_of(&self, grid: &Grid, dataset: &str) -> Result<Vec<(Option<&str>, String)>> {
        let (all, rows) = self.settings(grid, dataset)?;
        let tables: Vec<_> = all.iter().map(|configured| &configured.settings).collect();
        Ok(vec![(None, format!("time {tables:?} {rows:?} {}", self.blocks))])
    }

    fn run(&self, runtime: &Runtime, grid: &Grid, cell: &Cell) -> Result<Option<CellResult>> {
        let (all, rows) = self.settings(grid, &cell.dataset)?;
        let data = runtime.load_data(&cell.dataset, rows, &TrainConfig::default())?;
        runtime.say(&format!("{}: training in turns", cell.label()));
        let Some(timed) = train_in_turns(runtime, &all, &data, self.blocks, cell.seed)? else {
            return Ok(None);
        };
        let values = self.columns.iter().zip(&timed).flat_map(|(c, timed)| values(&c.name, timed)).collect();
        let note = format!("{} rows", count(data.rows.len()));
        let provenance = vec![this_process()];
        Ok(Some(CellResult { values, note, data: data.digest(), provenance, ..CellResult::default() }))
    }

    fn collect(&self, grid: &Grid, cells: &[(Cell, CellState)]) -> Result<Collected> {
        Ok(TimingTables { columns: &self.columns, numbers: Comparison::of(grid, cells)? }.collect())
    }

    fn interval(&self) -> &'static str {
        "fastest to slowest block"
    }

    fn runs_alone(&self) -> bool {
        true
    }
}

/// A column's numbers: seconds of 1000 steps (the middle block, the fastest and the slowest), minutes of a million with the
/// index, and where the seconds go.
fn values(column: &str, timed: &TimedTraining) -> Vec<CellValue> {
    let (middle, blocks) = (median(&timed.blocks), timed.blocks.len());
    let value = |metric: &str, value: f64| CellValue::new(column, metric, value, blocks);
    let (low, high) = timed.blocks.iter().fold((f64::INFINITY, 0.0f64), |(l, h), b| (l.min(*b), h.max(*b)));
    let phases = timed.timer.phases();
    let index = phases.iter().find(|(phase, _)| *phase == "index").map_or(0.0, |(_, s)| *s);
    let minutes = (middle * STEPS / 1000.0 + index) / 60.0;
    let mut values = vec![value(SECONDS, middle).within(low, high), value(MINUTES, minutes)];
    for (phase, total) in phases.iter().filter(|(p, _)| !["model", "index", "checkpoint"].contains(p)) {
        values.push(value(&format!("seconds of {phase}"), total / blocks as f64));
    }
    values.push(value("seconds of index, once", index));
    values
}

/// Tables of all cells.
struct TimingTables<'a> {
    columns: &'a [AlgorithmColumn],
    numbers: Comparison,
}

impl TimingTables<'_> {
    fn collect(&self) -> Collected {
        let seconds = Element::Table(self.seconds());
        let mut results = Element::section("Seconds of 1000 gradient steps", seconds).to_vec();
        if let Some(ratios) = self.ratios() {
            let heading = "With SUMO, as a share of the time without";
            results.extend(Element::section(heading, Element::Table(ratios)));
            let below = "Below 1 it is faster with SUMO. The medians of blocks that took turns are divided.";
            results.push(Element::text(below));
        }
        let header = ["", "ours", "share of base", "paper", "share of base"];
        let minutes = Element::table(&header, self.columns.iter().map(|c| self.minutes(c)).collect());
        results.extend(Element::section("Minutes of a million steps, beside the paper", minutes));
        results.push(Element::text(
            "Ours: the middle block times a thousand, and the index or threshold that is made once, a mean over datasets; fitting the dynamics model and \
             evaluating come on top, alike for all. The paper's are of one RTX 3090, so only the shares can be compared.",
        ));
        let details = vec![
            Element::heading("Where the seconds of 1000 steps go"),
            Element::Table(self.phases()),
            Element::text(
                "An index that an earlier column has made of the same rows is found, not made again.",
            ),
        ];
        let caveats = vec![
            "All columns of a dataset are trained in one process that gives each a thousand gradient steps in turn, so that a \
             busy machine meets them alike; numbers are the median of the blocks."
                .into(),
        ];
        Collected { files: vec![("csv", self.csv())], results, details, caveats }
    }

    /// Mean over the cells of a dataset (or all of them) that have the number.
    fn get(&self, dataset: Option<&str>, column: &str, metric: &str) -> Option<f64> {
        MeanStd::of_some(&self.numbers.values(dataset, column, metric)).map(|m| m.mean)
    }

    fn seconds(&self) -> Table {
        let cells = |name: &str, dataset: Option<&str>| {
            let of =
                |c: &AlgorithmColumn| or_dash(self.get(dataset, &c.name, SECONDS), |x| format!("{x:.2}"));
            row(name, self.columns.iter().map(of))
        };
        let mut rows: Vec<Vec<String>> = self.numbers.datasets.iter().map(|d| cells(d, Some(d))).collect();
        if self.numbers.datasets.len() > 1 {
            rows.push(cells("mean", None));
        }
        Table::new(row("", self.columns.iter().map(|c| c.name.clone())), rows)
    }

    fn share(&self, dataset: Option<&str>, column: &AlgorithmColumn) -> Option<f64> {
        let base = column.against.as_deref()?;
        Some(self.get(dataset, &column.name, SECONDS)? / self.get(dataset, base, SECONDS)?)
    }

    /// Times of the columns that are to beat another, as shares of its time; `None` without such columns.
    fn ratios(&self) -> Option<Table> {
        let pairs: Vec<(&AlgorithmColumn, &str)> =
            self.columns.iter().filter_map(|c| Some((c, c.against.as_deref()?))).collect();
        let cells = |d: &String| {
            row(d, pairs.iter().map(|(c, _)| or_dash(self.share(Some(d), c), |x| format!("{x:.2}"))))
        };
        let header = row("", pairs.iter().map(|(c, base)| format!("{} of {base}", c.name)));
        (!pairs.is_empty()).then(|| Table::new(header, self.numbers.datasets.iter().map(cells)))
    }

    fn minutes(&self, column: &AlgorithmColumn) -> Vec<String> {
        let pair = |get: &dyn Fn(&str) -> Option<f64>| {
            let own = get(&column.name);
            let share = column.against.as_deref().and_then(get).zip(own).map(|(base, own)| own / base);
            [or_dash(own, |x| format!("{x:.0}")), or_dash(share, |x| format!("{x:.2}"))]
        };
        let ours = pair(&|name| self.get(None, name, MINUTES));
        let paper = pair(&|name| self.numbers.published.get("average", name, MINUTES));
        row(&column.name, ours.into_iter().chain(paper))
    }

    fn phases(&self) -> Table {
        let mut metrics: Vec<&str> = Vec::new();
        for value in self.numbers.results(None).flat_map(|(_, found)| &found.values) {
            if value.metric.starts_with("seconds of ") && !metrics.contains(&value.metric.as_str()) {
                metrics.push(&value.metric);
            }
        }
        let cells = |c: &AlgorithmColumn| {
            row(&c.name, metrics.iter().map(|m| or_dash(self.get(None, &c.name, m), |x| format!("{x:.3}"))))
        };
        let header = row("", metrics.iter().map(|m| m.replace("seconds of ", "")));
        Table::new(header, self.columns.iter().map(cells))
    }

    fn csv(&self) -> String {
        let mut rows = Vec::new();
        let mut line = |dataset: &str, column: &str, metric: &str, numbers: [Option<f64>; 3]| {
            rows.push([[dataset, column, metric].map(String::from), numbers.map(csv_number)].concat());
        };
        for (dataset, column) in self.numbers.each(self.columns) {
            for metric in [SECONDS, MINUTES] {
                let share = self.share(Some(dataset), column).filter(|_| metric == SECONDS);
                let paper = self.numbers.published.get(dataset, &column.name, metric);
                let ours = self.get(Some(dataset), &column.name, metric);
                line(dataset, &column.name, metric, [ours, paper, share]);
            }
        }
        for AlgorithmColumn { name, .. } in self.columns {
            let paper = self.numbers.published.get("average", name, MINUTES);
            line("average", name, MINUTES, [self.get(None, name, MINUTES), paper, None]);
        }
        Table::new(["dataset", "column", "metric", "ours", "paper", "share_of_base"], rows).csv()
    }
}

#[cfg(test)]
mod tests {
    use super::super::experiment::{Experiment, GridSpec};
    use super::super::published::Published;
    use super::*;

    fn cell(dataset: &str, seconds: &[(&str, f64)]) -> (Cell, CellState) {
        let of = |(c, s): &(&str, f64)| {
            [(SECONDS, *s), (MINUTES, 1000.0 * s / 60.0), ("seconds of sac", s / 2.0)]
                .map(|(metric, value)| CellValue::new(c, metric, value, 3))
        };
        let found = CellResult { values: seconds.iter().flat_map(of).collect(), ..CellResult::default() };
        let cell = Cell { id: dataset.into(), column: None, dataset: dataset.into(), seed: 0 };
        (cell, CellState::Done(found))
    }

    #[test]
    fn shares_and_minutes_stand_beside_the_papers() {
        let experiment = Experiment::named("table7").unwrap();
        let GridSpec::Timing(TimingGrid { columns, .. }) = &experiment.grid else {
            panic!("a table of times")
        };
        let published = Published::of("table7").unwrap();
        let datasets = ["a".to_string(), "b".into()];
        let cells = [
            cell("a", &[("mopo+sumo", 9.0), ("mopo", 10.0), ("amorel+sumo", 6.0), ("amorel", 4.0)]),
            cell("b", &[("mopo+sumo", 12.0), ("mopo", 20.0)]),
        ];
        let numbers = Comparison { datasets: datasets.to_vec(), cells: cells.to_vec(), published };
        let times = TimingTables { columns, numbers };
        assert_eq!(times.ratios().unwrap().rows, [["a", "0.90", "1.50"], ["b", "0.60", "-"]]);
        // (9 + 12) / 2 s of 1000 steps: 175 min of a million; base 250. The paper: 401 of 443.
        assert_eq!(times.minutes(&columns[0]), ["mopo+sumo", "175", "0.70", "401", "0.91"]);
        assert_eq!(times.minutes(&columns[1]), ["mopo", "250", "-", "443", "-"]);
        assert_eq!(times.seconds().rows[2], ["mean", "10.50", "15.00", "6.00", "4.00"]);
        assert!(times.csv().contains("\na,mopo+sumo,seconds,9,,0.9\n"), "{}", times.csv());
        assert!(times.csv().contains("\naverage,mopo,minutes,250,443,\n"), "{}", times.csv());
        assert_eq!(times.phases().header[1], "sac");
    }
}
