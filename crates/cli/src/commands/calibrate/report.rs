//! The study as a table and as one HTML page.

use offing::calibration::{Outcome, Study, Subset, View};
use offing::stats;

use crate::page::Page;
use crate::plot::{Axis, Plot, Series};
use crate::term;

/// Points of a scatter: enough to see the shape, few enough for a page.
const POINTS: usize = 1500;

const HEADER: [&str; 7] =
    ["estimator", "ρ (95 %)", "r (95 %)", "ρ within a step", "AUROC", "AUPRC", "ms / 10,000"];

const SUBSETS: [(Subset, &str); 4] = [
    (Subset::All, "all rows"),
    (Subset::Alive, "rows before the model's own termination"),
    (Subset::Small, "rows with |obs| < 100"),
    (Subset::Exact, "rows whose velocities are not clipped"),
];

fn views(studies: &[Study]) -> Vec<(View, String)> {
    let mut all = Vec::new();
    for outcome in studies.iter().flat_map(|s| &s.outcomes) {
        if !all.iter().any(|(view, _)| *view == outcome.view) {
            let kind = if outcome.view.sampled { "sampled ŝ'" } else { "mean ŝ'" };
            let clip = if outcome.view.clipped { ", clipped as the simulator clips" } else { "" };
            all.push((outcome.view, format!("{kind}{clip}")));
        }
    }
    all
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let finite: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    finite.iter().sum::<f64>() / finite.len() as f64
}

/// Rows of a table for one view and subset: means over the seeds, of the ends of the intervals too.
fn rows(studies: &[Study], view: View, subset: Subset) -> Vec<Vec<String>> {
    let Some(first) = studies.first() else { return Vec::new() };
    let here = |o: &&Outcome| o.view == view && o.subset == subset;
    let names: Vec<String> = first.outcomes.iter().filter(here).map(|o| o.estimator.clone()).collect();
    let row = |name: &String| {
        let all: Vec<&Outcome> = studies
            .iter()
            .flat_map(|s| s.outcomes.iter().filter(here))
            .filter(|o| o.estimator == *name)
            .collect();
        let of = |pick: fn(&Outcome) -> f64| mean(all.iter().map(|o| pick(o)));
        let interval = |value: f64, low: f64, high: f64| format!("{value:.2} ({low:.2}–{high:.2})");
        let seconds =
            studies.iter().flat_map(|s| &s.cost).filter(|c| c.estimator == *name).map(|c| c.seconds_per_10k);
        let ms = 1e3 * mean(seconds);
        vec![
            name.clone(),
            interval(of(|o| o.spearman.value), of(|o| o.spearman.low), of(|o| o.spearman.high)),
            interval(of(|o| o.pearson.value), of(|o| o.pearson.low), of(|o| o.pearson.high)),
            format!("{:.2}", of(|o| o.spearman_within_step)),
            format!("{:.2}", of(|o| o.auroc)),
            format!("{:.2}", of(|o| o.auprc)),
            if ms.is_nan() { "-".into() } else { format!("{ms:.1}") },
        ]
    };
    names.iter().map(row).collect()
}

/// Where rows went, over all seeds.
fn fate(studies: &[Study]) -> String {
    let sum = |pick: fn(&Study) -> usize| term::count(studies.iter().map(pick).sum());
    format!(
        "{} rows asked for: {} compared ({} of them from clipped velocities), {} exploded, {} not imagined after an \
         explosion, {} the simulator could not replay",
        sum(|s| s.counts.asked),
        sum(|s| s.counts.compared),
        sum(|s| s.counts.clipped),
        sum(|s| s.counts.exploded),
        sum(|s| s.counts.cut),
        sum(|s| s.counts.lost)
    )
}

fn beyond(studies: &[Study]) -> Vec<Vec<String>> {
    let Some(first) = studies.first() else { return Vec::new() };
    let row = |i: usize| {
        let costs: Vec<_> = studies.iter().filter_map(|s| s.cost.get(i)).collect();
        let share = |j: usize| mean(costs.iter().map(|c| c.beyond[j].1));
        let mut cells = vec![first.cost[i].estimator.clone()];
        cells.push(format!("{:.4}", mean(costs.iter().map(|c| f64::from(c.max_baseline)))));
        cells.extend((0..first.cost[i].beyond.len()).map(|j| format!("{:.1} %", 100.0 * share(j))));
        cells
    };
    (0..first.cost.len()).map(row).collect()
}

const BEYOND: [&str; 5] = ["estimator", "max u of the data", "beyond α = 1", "α = 5", "α = 10"];

/// The headline in the terminal; the other subsets and views shorter.
pub(crate) fn print(studies: &[Study]) {
    out!("{}", fate(studies));
    for (view, name) in views(studies) {
        let subsets = if view == View::HEADLINE { &SUBSETS[..] } else { &SUBSETS[..1] };
        for (subset, which) in subsets {
            out!("\n{which}, {name}");
            out!("{}", term::table(&HEADER, rows(studies, view, *subset)));
        }
    }
    out!("\n{}", term::table(&BEYOND, beyond(studies)));
}

/// Everything on one page.
pub(crate) fn page(dataset: &str, studies: &[Study]) -> Page {
    let mut page = Page::new(&format!("Calibration on {dataset}"));
    page.text(&format!("{} seeds. {}.", studies.len(), fate(studies)));
    page.text(
        "ρ and r: Spearman's and Pearson's correlation of a score with the true error ‖s' − ŝ'‖. Intervals: bootstrap over \
         whole rollouts. AUROC and AUPRC: finding the worst 10 % of steps. “step index” knows nothing but the step's number.",
    );
    for (view, name) in views(studies) {
        for (subset, which) in SUBSETS {
            page.heading(&format!("{which}, {name}"));
            page.table(&HEADER, &rows(studies, view, subset));
        }
    }
    page.heading("Thresholds");
    page.table(&BEYOND, &beyond(studies));
    if let Some(study) = studies.first() {
        page.heading("Error and scores by rollout step (first seed)");
        page.figure(&by_step(study), "Medians, each divided by its largest value.");
        page.figure(&reliability(study), "Rows in ten groups of rising score: the mean error of each group.");
        page.heading("Score against error (first seed)");
        for (name, scores) in study.scores.iter().take(study.scores.len().saturating_sub(1)) {
            page.figure(&scatter(name, scores, &study.error), "A sample of the rows.");
        }
    }
    page
}

fn by_step(study: &Study) -> Plot {
    let scaled = |points: Vec<(f64, f64)>| {
        let largest = points.iter().map(|p| p.1).fold(f64::MIN_POSITIVE, f64::max);
        points.into_iter().map(|(x, y)| (x, y / largest)).collect::<Vec<_>>()
    };
    let mut series = Vec::new();
    if let Some(first) = study.by_step.first() {
        let error = first.steps.iter().map(|s| (f64::from(s.step), s.error)).collect();
        series.push(Series::dashed("error", scaled(error)));
    }
    for steps in study.by_step.iter().take(study.by_step.len().saturating_sub(1)) {
        let points = steps.steps.iter().map(|s| (f64::from(s.step), s.score)).collect();
        series.push(Series::line(&steps.estimator, scaled(points)));
    }
    Plot {
        title: "Error and scores by step".into(),
        x: Axis::linear("rollout step"),
        y: Axis::linear("share of its largest"),
        series,
    }
}

fn reliability(study: &Study) -> Plot {
    let line = |scores: &[f64]| {
        let ranks = stats::ranks(scores);
        let mut groups = vec![Vec::new(); 10];
        for (rank, error) in ranks.iter().zip(&study.error) {
            let group = ((rank - 1.0) / ranks.len() as f64 * 10.0) as usize;
            groups[group.min(9)].push(*error);
        }
        let point = |(i, g): (usize, &Vec<f64>)| (i as f64 + 1.0, g.iter().sum::<f64>() / g.len() as f64);
        groups.iter().enumerate().filter(|(_, g)| !g.is_empty()).map(point).collect::<Vec<_>>()
    };
    let series = study.scores.iter().map(|(name, scores)| Series::line(name, line(scores))).collect();
    Plot {
        title: "Reliability".into(),
        x: Axis::linear("tenth of the rows, by score"),
        y: Axis::log("mean error"),
        series,
    }
}

fn scatter(name: &str, scores: &[f64], error: &[f64]) -> Plot {
    let every = scores.len().div_ceil(POINTS).max(1);
    let points = scores.iter().zip(error).step_by(every).map(|(u, e)| (*u, *e)).collect();
    Plot {
        title: name.into(),
        x: Axis::linear("score"),
        y: Axis::log("error"),
        series: vec![Series::scatter("", points)],
    }
}
