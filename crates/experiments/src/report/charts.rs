//! Learning curves and other metrics over the steps of runs.

use std::collections::{BTreeMap, BTreeSet};

use super::labels::{LabelledRun, colour_key, distinct, short};
use crate::Element;
use crate::configure::{configure, plans};
use crate::mean_std::mean_line;
use crate::plot::{Axis, Plot, Series, level_line};
use crate::run_record::{RunKind, RunRecord};
use crate::svg::GREY;

/// A metric, its label and a caption.
type Metric = (&'static str, &'static str, &'static str);

/// What the estimator said of imagined steps, and what was done about it.
const UNCERTAINTY: [Metric; 5] = [
    ("u_mean", "mean u", "Where u sat: the score of imagined steps, mean of the scored ones."),
    ("u_max", "largest u", "The largest score among the scored imagined steps."),
    (
        CUT_SHARE,
        "share beyond the threshold",
        "Share of imagined steps that were cut, halted or not believed.",
    ),
    (ROLLOUT_LENGTH, "steps of a rollout", "Mean length of the rollouts that the policy learns from."),
    (
        "model_length",
        "steps in the model",
        "How long the policy lives when it is followed through the model from first states.",
    ),
];

/// What the learner said of itself.
const LEARNER: [Metric; 6] = [
    (
        "q",
        "Q",
        "The critics' value of the policy's own actions. Far above the returns of episodes it is overestimation.",
    ),
    ("model_return", "return in the model", "Of the policy followed through the model from first states."),
    ("penalty", "penalty", "Mean penalty of an imagined step."),
    ("critic_loss", "critic loss", "The critics' squared error."),
    ("actor_loss", "actor loss", "The actor's objective, last update."),
    ("cloning_loss", "cloning loss", "How far the policy's actions are from the logged ones."),
];

/// Quotients of two numbers that runs record.
const CUT_SHARE: &str = "share beyond";
const ROLLOUT_LENGTH: &str = "rollout length";

/// Runs that one plot can show: of one dataset, and with the same kind of steps.
struct Chart<'a> {
    /// How it differs from the other charts; empty when there is one.
    name: String,
    /// What its steps are.
    steps: &'static str,
    /// Groups of runs, with the name and the colour of each here.
    groups: Vec<(String, usize, Vec<&'a RunRecord>)>,
}

/// What an algorithm's steps are.
pub(crate) fn steps_of(algorithm: &str) -> &'static str {
    let configured = configure(algorithm, "", (None, None), &[]);
    let planned = configured.is_ok_and(|(configured, _)| plans(configured.algorithm.as_ref()));
    if planned { "iterations of planning" } else { "steps" }
}

/// Which colour each group has, on the whole page; the same algorithm on another dataset has the same.
pub(super) fn colours(runs: &[LabelledRun]) -> BTreeMap<String, usize> {
    let keys: BTreeSet<String> = runs.iter().map(|run| colour_key(&run.group)).collect();
    keys.into_iter().zip((0..).filter(|slot| slot % 8 != GREY)).collect()
}

/// Learning curves: normalised scores, or returns where no run has a score; nothing where no run was evaluated.
pub(super) fn learning_curves(runs: &[LabelledRun]) -> Vec<Element> {
    let (metric, label) =
        if has(runs, "score") { ("score", "normalised score") } else { ("return", "return") };
    curves(&charts(runs), metric, label, "Each point is the mean of the evaluation episodes at that step.")
}

/// Every figure of a kind that some run has.
pub(super) fn uncertainty(runs: &[LabelledRun]) -> Vec<Element> {
    all_curves(runs, &UNCERTAINTY)
}

/// See [`uncertainty`].
pub(super) fn learner(runs: &[LabelledRun]) -> Vec<Element> {
    all_curves(runs, &LEARNER)
}

fn all_curves(runs: &[LabelledRun], metrics: &[Metric]) -> Vec<Element> {
    let charts = charts(runs);
    let known = metrics.iter().filter(|(metric, ..)| has(runs, metric));
    known.flat_map(|(metric, label, caption)| curves(&charts, metric, label, caption)).collect()
}

fn has(runs: &[LabelledRun], metric: &str) -> bool {
    runs.iter().any(|run| !series(&run.record, metric).is_empty())
}

/// A metric over the steps.
fn series(run: &RunRecord, metric: &str) -> Vec<(f64, f64)> {
    let share = |part: Vec<(f64, f64)>, of: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
        part.iter().enumerate().map(|(i, (step, n))| (*step, n / of(i).max(1.0))).collect()
    };
    match metric {
        CUT_SHARE => {
            // Runs of older versions have it under another name.
            let cut = [run.series("truncated"), run.series("guarded")].concat();
            let imagined = run.series("imagined");
            match cut.iter().any(|c| c.1 > 0.0) {
                true => share(cut, &|i| imagined.get(i).map_or(1.0, |n| n.1)),
                false => run.series("unbelieved"),
            }
        }
        ROLLOUT_LENGTH => {
            let starts =
                run.config.get("settings").and_then(|s| s.get("rollout")?.get("starts")?.as_integer());
            starts.map_or(Vec::new(), |starts| share(run.series("imagined"), &|_| starts as f64))
        }
        _ => run.series(metric),
    }
}

/// Puts groups of runs into charts.
fn charts(runs: &[LabelledRun]) -> Vec<Chart<'_>> {
    let colours = colours(runs);
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
        let slot = |group: &str| colours.get(&colour_key(group)).copied().unwrap_or(0);
        let named =
            distinct(&names).into_iter().zip(groups).map(|(name, (group, runs))| (name, slot(group), runs));
        Chart { name: if several { dataset } else { String::new() }, steps, groups: named.collect() }
    };
    sorted.into_iter().map(chart).collect()
}

fn curves(charts: &[Chart<'_>], metric: &str, label: &str, caption: &str) -> Vec<Element> {
    let mut figures = Vec::new();
    for chart in charts {
        let mut lines = Vec::new();
        for (name, slot, runs) in &chart.groups {
            let curves: Vec<_> = runs.iter().map(|run| series(run, metric)).collect();
            lines.extend(mean_line(name, &curves).map(|line| line.in_slot(*slot)));
        }
        if !lines.is_empty() {
            lines.extend(level(chart, metric, &lines));
            // A line beside a reference needs a name of its own.
            if let [only, _] = &mut lines[..]
                && only.name.is_empty()
            {
                only.name = label.into();
            }
            let title =
                if chart.name.is_empty() { label.to_string() } else { format!("{label}: {}", chart.name) };
            let plot = Plot::new(title, Axis::linear(chart.steps), Axis::linear(label), lines).over_steps();
            figures.push(Element::figure(plot, caption));
        }
    }
    figures
}

/// What a curve is to be held against: what the data reached, where its runs recorded that; the threshold of u.
fn level(chart: &Chart<'_>, metric: &str, beside: &[Series]) -> Option<Series> {
    let runs = || chart.groups.iter().flat_map(|(.., runs)| runs);
    let of_data = |pick: fn(&crate::run_record::DataCard) -> Option<f64>| {
        runs().find_map(|run| pick(run.data.as_ref()?)).map(|level| level_line(level, beside))
    };
    match metric {
        "score" => of_data(|data| data.score),
        "return" | "model_return" => of_data(|data| data.mean_return),
        "q" => {
            let level = runs().find_map(|run| run.last("data_return"))?;
            Some(Series { name: "the data's discounted return".into(), ..level_line(level, beside) })
        }
        // Estimators differ in their scales: a threshold is that of one group.
        "u_mean" | "u_max" if chart.groups.len() == 1 => {
            let epsilon = runs().find_map(|run| run.last("epsilon"))?;
            Some(Series { name: "ε, beyond which steps are cut".into(), ..level_line(epsilon, beside) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::labels::label_runs;
    use super::super::labels::tests::record;
    use super::*;
    use crate::run_record::DataCard;

    fn run(algorithm: &str, dataset: &str) -> RunRecord {
        record(RunKind::Training { algorithm: algorithm.into(), dataset: dataset.into() }, "")
    }

    fn with_metrics(run: RunRecord, metrics: &[serde_json::Value]) -> RunRecord {
        RunRecord { metrics: metrics.iter().map(|m| m.as_object().unwrap().clone()).collect(), ..run }
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
        assert_eq!(charts(&runs[4..])[0].name, "", "a single chart needs no name");
        // A single group needs no name.
        let is_mopo = |name: &str| name.is_empty() || name.contains("mopo");
        let mopo = |chart: &Chart<'_>| {
            chart.groups.iter().find(|(name, ..)| is_mopo(name)).map(|(_, slot, _)| *slot)
        };
        assert!(mopo(&charts(&runs)[0]).is_some());
        assert_eq!(mopo(&charts(&runs)[0]), mopo(&charts(&runs)[2]), "an algorithm has one colour on a page");
    }

    #[test]
    fn what_the_data_reached_is_a_level_line() {
        let data = DataCard { mean_return: Some(80.0), score: Some(7.3), ..DataCard::default() };
        let runs = label_runs(vec![RunRecord { data: Some(data), ..run("mopo", "hopper") }]);
        let drawn = [Series::line("mopo", vec![(5.0, 1.0), (50.0, 9.0)])];
        let level = |metric: &str| level(&charts(&runs)[0], metric, &drawn).map(|l| l.points);
        assert_eq!(level("score"), Some(vec![(0.0, 7.3), (50.0, 7.3)]));
        assert_eq!(level("return"), Some(vec![(0.0, 80.0), (50.0, 80.0)]));
        assert_eq!(level("critic_loss"), None, "the data have no critic");
    }

    #[test]
    fn shares_and_lengths_come_from_what_rollouts_counted() {
        let line = serde_json::json!({ "step": 10, "imagined": 500, "truncated": 50, "epsilon": 2.0, "u_mean": 1.0 });
        let mut record = with_metrics(run("amorel+sumo", "hopper"), &[line]);
        record.config = toml::from_str("[settings.rollout]\nstarts = 100").unwrap();
        assert_eq!(series(&record, CUT_SHARE), [(10.0, 0.1)]);
        assert_eq!(series(&record, ROLLOUT_LENGTH), [(10.0, 5.0)]);
        let runs = label_runs(vec![record]);
        let Element::Figure(plot, _) = &uncertainty(&runs)[0] else { panic!("a figure") };
        assert_eq!(
            plot.series.iter().map(|s| s.points.len()).collect::<Vec<_>>(),
            [1, 2],
            "one evaluation, and ε"
        );
        let landfall =
            with_metrics(run("landfall", "hopper"), &[serde_json::json!({ "step": 1, "unbelieved": 0.25 })]);
        assert_eq!(series(&landfall, CUT_SHARE), [(1.0, 0.25)]);
    }
}
