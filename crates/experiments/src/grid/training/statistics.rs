//! What the runs say beyond their means: interquartile means, how likely one column improves on another, how surely, and
//! the whole distribution of scores. With a few seeds a mean alone says little (Agarwal et al. 2021).

use offing::Rng;
use offing::stats::Interval;
use offing::stats::runs::{
    SignedRank, improvement_interval, interquartile_mean, share_above, signed_rank, stratified_bootstrap,
};

use super::super::experiment::AlgorithmColumn;
use super::scores::{Scores, Which};
use crate::Element;
use crate::format::{counted, or_dash, p_value};
use crate::plot::{Axis, Plot, Series};
use crate::table::{Table, csv_number};

/// Bootstrap resamples, and what share of them an interval holds.
const REPEATS: usize = 2000;
const LEVEL: f64 = 0.95;
/// Thresholds of a performance profile.
const THRESHOLDS: usize = 120;

/// One column over the datasets that all columns have.
#[derive(Clone, Debug)]
pub(super) struct Overall {
    pub(super) column: String,
    /// Of all runs on all datasets.
    pub(super) iqm: Interval,
    /// Mean of the datasets' means.
    pub(super) mean: Interval,
    /// The paper's mean over the same datasets.
    pub(super) paper: Option<f64>,
    pub(super) runs: usize,
}

/// A column against the one it is to beat, over the datasets both have.
#[derive(Clone, Debug)]
pub(super) struct Improvement {
    pub(super) column: String,
    pub(super) against: String,
    pub(super) datasets: usize,
    pub(super) probability: Interval,
    pub(super) test: SignedRank,
    /// The same test on the paper's means of the same datasets.
    pub(super) paper: Option<SignedRank>,
}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Statistics {
    pub(super) datasets: usize,
    pub(super) overall: Vec<Overall>,
    pub(super) improvements: Vec<Improvement>,
}

impl Statistics {
    pub(super) fn of(scores: &Scores) -> Self {
        let names = scores.names();
        let common = scores.common(&names);
        let overall = |(i, name): (usize, &&str)| overall(scores, &common, name, i as u64);
        let improvements = scores.columns.iter().enumerate();
        Self {
            datasets: common.len(),
            overall: if common.is_empty() { vec![] } else { names.iter().enumerate().map(overall).collect() },
            improvements: improvements.filter_map(|(i, c)| improvement(scores, c, i as u64)).collect(),
        }
    }

    /// Tables for every format.
    pub(super) fn elements(&self) -> Vec<Element> {
        let mut elements = Vec::new();
        let interval = |i: &Interval, digits: usize| match i.low.is_finite() {
            true => format!("{:.digits$} – {:.digits$}", i.low, i.high),
            false => "-".into(),
        };
        if self.datasets > 0 {
            let row = |o: &Overall| {
                let paper = or_dash(o.paper, |p| format!("{p:.1}"));
                let (iqm, mean) = (format!("{:.1}", o.iqm.value), format!("{:.1}", o.mean.value));
                vec![o.column.clone(), iqm, interval(&o.iqm, 1), mean, interval(&o.mean, 1), paper]
            };
            let datasets =
                if self.datasets == 1 { "one dataset".into() } else { format!("{} datasets", self.datasets) };
            let header = ["", "interquartile mean", "95 %", "mean", "95 %", "paper's mean"];
            let table = Table::with_paper(&header, self.overall.iter().map(row));
            elements.extend(Element::section(format!("All runs on {datasets}"), Element::Table(table)));
            let iqm = "The interquartile mean is that of the middle half of all runs: one lucky or broken run moves it little.";
            let intervals = match self.overall.iter().any(|o| o.mean.low.is_finite()) {
                true => {
                    "Intervals: stratified bootstrap, runs drawn anew within each dataset; with two or three seeds they are \
                     narrower than they should be, as the bootstrap cannot draw what no run has shown."
                }
                false => "There are no intervals: with one seed there is nothing to draw from.",
            };
            elements.push(Element::text(format!("{iqm} {intervals}")));
        }
        if !self.improvements.is_empty() {
            let row = |i: &Improvement| {
                let paper = or_dash(i.paper, |t| p_value(t.p));
                let (one, range) = (format!("{:.2}", i.probability.value), interval(&i.probability, 2));
                let sums = format!("{} : {}", i.test.positive, i.test.negative);
                vec![format!("{} over {}", i.column, i.against), one, range, sums, p_value(i.test.p), paper]
            };
            let header = ["", "P(better)", "95 %", "rank sums + : −", "Wilcoxon p", "paper's p"];
            let table = Table::with_paper(&header, self.improvements.iter().map(row));
            elements.extend(Element::section("Improvement", Element::Table(table)));
            let most = self.improvements.iter().map(|i| i.datasets).max().unwrap_or(0);
            let least = p_value(0.5f64.powi(most as i32 - 1).min(1.0));
            elements.push(Element::text(format!(
                "P(better): how likely a run of the first scores above one of the second on the same dataset, the mean over \
                 datasets; 0.5 is no difference. Wilcoxon: two-sided signed-rank test of the datasets' means; with {} its p cannot be \
                 below {least}.",
                counted(most, "dataset")
            )));
        }
        elements
    }

    /// One number a line.
    pub(super) fn csv(&self) -> String {
        let mut rows = Vec::new();
        let mut line =
            |what: &str, (column, against): (&str, &str), n: usize, i: Interval, paper: Option<f64>| {
                let numbers = [Some(i.value), Some(i.low), Some(i.high), paper].map(csv_number);
                let start = [what, column, against, &n.to_string()].map(String::from);
                rows.push([start, numbers].concat());
            };
        let alone = |value: f64| Interval { value, low: f64::NAN, high: f64::NAN };
        for o in &self.overall {
            line("interquartile mean", (&o.column, ""), self.datasets, o.iqm, None);
            line("mean", (&o.column, ""), self.datasets, o.mean, o.paper);
            line("runs", (&o.column, ""), self.datasets, alone(o.runs as f64), None);
        }
        for i in &self.improvements {
            let (pair, n) = ((i.column.as_str(), i.against.as_str()), i.datasets);
            line("probability of improvement", pair, n, i.probability, None);
            line("Wilcoxon W+", pair, n, alone(i.test.positive), i.paper.map(|t| t.positive));
            line("Wilcoxon W-", pair, n, alone(i.test.negative), i.paper.map(|t| t.negative));
            line("Wilcoxon p", pair, n, alone(i.test.p), i.paper.map(|t| t.p));
        }
        let header = ["statistic", "column", "against", "datasets", "value", "low", "high", "paper"];
        Table::new(header, rows).csv()
    }
}

fn tasks(scores: &Scores, datasets: &[&str], column: &str) -> Vec<Vec<f64>> {
    datasets.iter().map(|d| scores.values(d, column, Which::Last)).collect()
}

/// Whether some task has several runs.
fn several(tasks: &[Vec<f64>]) -> bool {
    tasks.iter().any(|runs| runs.len() > 1)
}

/// An interval, or only its value where no task has several runs: there is nothing to draw from then.
fn drawn(found: Interval, several: bool) -> Interval {
    if several { found } else { Interval { low: f64::NAN, high: f64::NAN, ..found } }
}

fn mean_of_means(tasks: &[Vec<f64>]) -> f64 {
    let means = tasks.iter().map(|runs| runs.iter().sum::<f64>() / runs.len() as f64);
    means.sum::<f64>() / tasks.len() as f64
}

fn overall(scores: &Scores, datasets: &[&str], column: &str, place: u64) -> Overall {
    let tasks = tasks(scores, datasets, column);
    let draws = |statistic: fn(&[Vec<f64>]) -> f64| {
        let rng = &mut Rng::stream(0, "reproduce overall", place);
        drawn(stratified_bootstrap(&tasks, REPEATS, LEVEL, statistic, rng), several(&tasks))
    };
    let paper = scores.over_paper(datasets, column).map(|p| p.iter().sum::<f64>() / p.len() as f64);
    Overall {
        column: column.into(),
        iqm: draws(|tasks| interquartile_mean(&tasks.concat())),
        mean: draws(mean_of_means),
        paper,
        runs: tasks.iter().map(Vec::len).sum(),
    }
}

fn improvement(scores: &Scores, column: &AlgorithmColumn, place: u64) -> Option<Improvement> {
    let against = column.against.as_deref()?;
    let common = scores.common(&[&column.name, against]);
    if common.is_empty() {
        return None;
    }
    let (new, old) = (tasks(scores, &common, &column.name), tasks(scores, &common, against));
    let rng = &mut Rng::stream(0, "reproduce improvement", place);
    let paper = scores.over_paper(&common, &column.name).zip(scores.over_paper(&common, against));
    Some(Improvement {
        column: column.name.clone(),
        against: against.into(),
        datasets: common.len(),
        probability: drawn(
            improvement_interval(&new, &old, REPEATS, LEVEL, rng),
            several(&new) || several(&old),
        ),
        test: signed_rank(&scores.over(&common, &column.name), &scores.over(&common, against)),
        paper: paper.map(|(new, old)| signed_rank(&new, &old)),
    })
}

/// The share of runs above each score, column by column, over the datasets all have.
pub(super) fn profile(scores: &Scores) -> Option<Element> {
    let names = scores.names();
    let common = scores.common(&names);
    let all: Vec<Vec<Vec<f64>>> = names.iter().map(|name| tasks(scores, &common, name)).collect();
    let values = || all.iter().flatten().flatten().copied();
    // A profile of a handful of runs on one dataset is the table again.
    if common.len() < 2 || names.len() < 2 || values().any(|v| !v.is_finite()) {
        return None;
    }
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let room = 0.02 * (high - low).max(1.0);
    let (low, high) = (low - room, high + room);
    let at: Vec<f64> = (0..=THRESHOLDS).map(|i| low + (high - low) * i as f64 / THRESHOLDS as f64).collect();
    let line = |(slot, (name, tasks)): (usize, (&&str, &Vec<Vec<f64>>))| {
        let points: Vec<(f64, f64)> = at.iter().map(|&t| (t, share_above(tasks, t))).collect();
        let band = at.iter().map(|&t| {
            let rng = &mut Rng::stream(0, "reproduce profile", slot as u64);
            let found = stratified_bootstrap(tasks, REPEATS / 10, LEVEL, |drawn| share_above(drawn, t), rng);
            (found.low, found.high)
        });
        let line = Series::line(name, points).in_slot(slot);
        if several(tasks) { line.with_band(band.collect()) } else { line }
    };
    let series = names.iter().zip(&all).enumerate().map(line).collect();
    let unit = if scores.unit == "score" { "normalised score τ" } else { "return τ" };
    let title = format!("Performance profiles over {} datasets", common.len());
    let plot = Plot::new(title, Axis::linear(unit), Axis::linear("share of runs above τ"), series);
    let caption = "Higher is better; a line that lies above another everywhere is better at every level. The shade is a \
                   stratified bootstrap interval of 95 %.";
    Some(Element::figure(plot, caption))
}

#[cfg(test)]
mod tests {
    use super::super::scores::tests::scores;
    use super::*;

    #[test]
    fn improvement_is_over_the_datasets_both_have() {
        let found = Statistics::of(&scores());
        // hopper: 50, 54 over 40, 44: always better. walker2d: 30, 32 over 35, 37: never.
        let mopo = &found.improvements[0];
        assert_eq!((mopo.column.as_str(), mopo.datasets, mopo.probability.value), ("mopo+sumo", 2, 0.5));
        assert_eq!((mopo.probability.low, mopo.probability.high), (0.5, 0.5));
        // Means differ by +10 and −5: ranks 2 and 1.
        assert_eq!((mopo.test.positive, mopo.test.negative, mopo.test.p), (2.0, 1.0, 1.0));
        // The paper's on these: 74.6 over 45.6, 57.3 over 42.3.
        assert_eq!(mopo.paper.map(|t| (t.positive, t.p)), Some((3.0, 0.5)));
        let amorel = &found.improvements[1];
        assert_eq!((amorel.datasets, amorel.probability.value, amorel.test.pairs), (3, 0.5, 0));
        assert_eq!(amorel.test.p, 1.0, "ties say nothing");
    }

    #[test]
    fn overall_numbers_are_over_the_datasets_all_have() {
        let found = Statistics::of(&scores());
        assert_eq!(found.datasets, 2, "halfcheetah failed for one column");
        let sumo = &found.overall[0];
        // 30, 32, 50, 54: the middle half is 32 and 50. Runs are drawn within datasets: means between (50 + 30) / 2 and
        // (54 + 32) / 2.
        assert_eq!((sumo.iqm.value, sumo.mean.value, sumo.runs), (41.0, 41.5, 4));
        assert_eq!((sumo.mean.low, sumo.mean.high), (40.0, 43.0));
        assert!(found.overall[2].mean.low.is_nan(), "amorel has one seed: nothing to draw from");
        assert!(sumo.paper.is_some_and(|p| (p - 65.95).abs() < 1e-9));
        let csv = found.csv();
        assert_eq!(csv.lines().count(), 1 + 4 * 3 + 2 * 4, "{csv}");
        assert!(csv.contains("\ninterquartile mean,mopo+sumo,,2,41,"), "{csv}");
        assert!(csv.contains("\nWilcoxon p,mopo+sumo,mopo,2,1,,,0.5\n"), "{csv}");
    }

    #[test]
    fn a_profile_falls_from_all_runs_to_none() {
        let Some(Element::Figure(plot, _)) = profile(&scores()) else {
            panic!("two datasets have all columns")
        };
        for series in &plot.series {
            assert_eq!((series.points[0].1, series.points[THRESHOLDS].1), (1.0, 0.0), "{}", series.name);
            assert!(series.points.windows(2).all(|w| w[1].1 <= w[0].1), "{}", series.name);
        }
        assert!(plot.series[0].band.is_some() && plot.series[2].band.is_none(), "amorel has one seed");
    }
}
