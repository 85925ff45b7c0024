//! Learning curves and other metrics over the steps of runs.

use std::collections::{BTreeMap, BTreeSet};

use super::labels::{LabelledRun, distinct, short};
use crate::Element;
use crate::configure::{configure, plans};
use crate::mean_std::mean_line;
use crate::plot::{Axis, Plot, level_line};
use crate::run_record::{RunKind, RunRecord};

/// Metrics drawn below the learning curves, with a label and a caption each.
const METRICS: [(&str, &str, &str); 5] = [
    ("u_mean", "mean u", "Uncertainty of imagined steps, mean of the scored ones."),
    (TRUNCATED_SHARE, "share cut", "Share of imagined steps beyond the threshold."),
    ("q", "Q", "The critics' value of the policy's own actions."),
    ("critic_loss", "critic loss", "The critics' squared error."),
    ("cloning_loss", "cloning loss", "The cloning loss."),
];

/// A quotient of two metrics.
const TRUNCATED_SHARE: &str = "truncated_share";

/// Runs that one plot can show: of one dataset, and with the same kind of steps.
struct Chart<'a> {
    /// How it differs from the other charts; empty when there is one.
    name: String,
    /// What its steps are.
    steps: &'static str,
    /// Groups of runs, with the name to call each here.
    groups: Vec<(String, Vec<&'a RunRecord>)>,
}

/// What an algorithm's steps are.
pub(crate) fn steps_of(algorithm: &str) -> &'static str {
    let configured = configure(algorithm, "", (None, None), &[]);
    let planned = configured.is_ok_and(|(configured, _)| plans(configured.algorithm.as_ref()));
    if planned { "iterations of planning" } else { "steps" }
}

/// Every metric that some run has.
pub(super) fn figures(runs: &[LabelledRun]) -> Vec<Element> {
    let has = |metric: &str| runs.iter().any(|run| !series(&run.record, metric).is_empty());
    let (metric, label) = if has("score") { ("score", "normalised score") } else { ("return", "return") };
    let caption = "Learning curves; the shade is one standard deviation over seeds.";
    let charts = charts(runs);
    let others = METRICS.into_iter().filter(|(metric, ..)| has(metric));
    let all = [(metric, label, caption)].into_iter().chain(others);
    all.flat_map(|(metric, label, caption)| curves(&charts, metric, label, caption)).collect()
}

/// A metric over the steps.
fn series(run: &RunRecord, metric: &str) -> Vec<(f64, f64)> {
    if metric != TRUNCATED_SHARE {
        return run.series(metric);
    }
    // Runs of older versions have it under another name.
    let truncated = [run.series("truncated"), run.series("guarded")].concat();
    let imagined = run.series("imagined");
    let share = truncated.iter().zip(&imagined).map(|(t, i)| (t.0, t.1 / i.1.max(1.0)));
    if truncated.iter().any(|t| t.1 > 0.0) { share.collect() } else { Vec::new() }
}

/// Puts groups of runs into charts.
fn charts(runs: &[LabelledRun]) -> Vec<Chart<'_>> {
    let mut sorted: BTreeMap<(String, &'static str), BTreeMap<&str, Vec<&RunRecord>>> = BTreeMap::new();
    for run in runs {
        let (algorithm, dataset) = match &run.record.kind {
            RunKind::Training { algorithm, dataset } => (algorithm.as_str(), short(dataset)),
            _ => Default::default(),
        };
        let groups = sorted.entry((dataset, steps_of(algorithm))).or_default();
        groups.entry(&run.group).or_default().push(&run.record);
    }
    let several = sorted.len() > 1;
    let chart = |((dataset, steps), groups): ((String, &'static str), BTreeMap<&str, Vec<_>>)| {
        let names: Vec<&str> = groups.keys().copied().collect();
        Chart {
            name: if several { dataset } else { String::new() },
            steps,
            groups: distinct(&names).into_iter().zip(groups.into_values()).collect(),
        }
    };
    sorted.into_iter().map(chart).collect()
}

fn curves(charts: &[Chart<'_>], metric: &str, label: &str, caption: &str) -> Vec<Element> {
    // A name has one colour in all charts.
    let names: BTreeSet<&str> =
        charts.iter().flat_map(|c| c.groups.iter().map(|(name, _)| name.as_str())).collect();
    let slot = |name: &str| names.iter().position(|known| *known == name).unwrap_or(0);
    let mut figures = Vec::new();
    for chart in charts {
        let mut lines = Vec::new();
        for (name, runs) in &chart.groups {
            let curves: Vec<_> = runs.iter().map(|run| series(run, metric)).collect();
            lines.extend(mean_line(name, &curves).map(|line| line.in_slot(slot(name))));
        }
        if !lines.is_empty() {
            lines.extend(data_level(chart, metric).map(|level| level_line(level, &lines)));
            let title =
                if chart.name.is_empty() { label.to_string() } else { format!("{label}: {}", chart.name) };
            let plot = Plot::new(title, Axis::linear(chart.steps), Axis::linear(label), lines);
            figures.push(Element::figure(plot, caption));
        }
    }
    figures
}

/// What the episodes of the data reached, where its runs recorded that: what a policy has to beat.
fn data_level(chart: &Chart<'_>, metric: &str) -> Option<f64> {
    let mut cards = chart.groups.iter().flat_map(|(_, runs)| runs).filter_map(|run| run.data.as_ref());
    cards.find_map(|card| match metric {
        "score" => card.score,
        "return" => card.mean_return,
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::labels::label_runs;
    use super::super::labels::tests::record;
    use super::*;
    use crate::plot::Series;
    use crate::run_record::DataCard;

    fn run(algorithm: &str, dataset: &str) -> RunRecord {
        record(RunKind::Training { algorithm: algorithm.into(), dataset: dataset.into() }, "")
    }

    #[test]
    fn a_chart_has_one_dataset_and_one_kind_of_steps() {
        let all = [
            ("mopo", "hopper"),
            ("landfall", "hopper"),
            ("morel-sac", "hopper"),
            ("morel+sumo", "hopper"),
            ("mopo", "ant"),
        ];
        let runs = label_runs(all.iter().map(|(algorithm, dataset)| run(algorithm, dataset)).collect());
        let found: Vec<(String, &str, usize)> =
            charts(&runs).into_iter().map(|c| (c.name, c.steps, c.groups.len())).collect();
        let wanted = [("ant", "steps", 1), ("hopper", "iterations of planning", 1), ("hopper", "steps", 3)];
        assert_eq!(found, wanted.map(|(name, steps, groups)| (name.to_string(), steps, groups)));
        assert!(charts(&runs).iter().all(|c| data_level(c, "score").is_none()), "nothing was recorded");
        assert_eq!(charts(&runs[4..])[0].name, "", "a single chart needs no name");
    }

    #[test]
    fn what_the_data_reached_is_a_level_line() {
        let data = DataCard { mean_return: Some(80.0), score: Some(7.3), ..DataCard::default() };
        let runs = label_runs(vec![RunRecord { data: Some(data), ..run("mopo", "hopper") }]);
        let drawn = [Series::line("mopo", vec![(5.0, 1.0), (50.0, 9.0)])];
        let level =
            |metric: &str| data_level(&charts(&runs)[0], metric).map(|l| level_line(l, &drawn).points);
        assert_eq!(level("score"), Some(vec![(5.0, 7.3), (50.0, 7.3)]));
        assert_eq!(level("return"), Some(vec![(5.0, 80.0), (50.0, 80.0)]));
        assert_eq!(level("q"), None, "the data have no critic");
    }
}
