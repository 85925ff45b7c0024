//! A study as a page: tables, the cloud of u against error, reliability, error and u along a rollout.

use offing::calibration::Study;
use offing::stats;

use super::summary::Summary;
use crate::page::Page;
use crate::plot::{Axis, Plot, Series};

/// Points drawn in a cloud: enough to see its shape.
const POINTS: usize = 1500;

pub(super) fn page(summary: &Summary) -> Page {
    let mut page = Page::new(&format!("Calibration of uncertainty on {}", summary.dataset));
    page.text(
        "A policy trained in the learnt model without penalty rolls out in it. Every imagined step is replayed in the \
         simulator (or compared with held-out transitions), and each estimator's score u with the true error of the next \
         state. Headline: all rows, next states as sampled, not clipped.",
    );
    summary.rows().iter().for_each(|line| page.text(line));
    page.table(&Summary::HEADER, &summary.headline());
    page.heading("By choice of rows");
    page.table(&Summary::PARTS, &summary.by_part());
    page.heading("By imagined next state");
    page.table(&Summary::VARIANTS, &summary.by_variant());
    for (heading, (header, rows)) in
        [("By rollout step", summary.by_step()), ("Bootstrap over rollouts", summary.intervals())]
    {
        page.heading(heading);
        page.table(&header.iter().map(String::as_str).collect::<Vec<_>>(), &rows);
    }
    let Some((seed, study)) = summary.studies.first() else { return page };
    page.heading(&format!("Figures (seed {seed})"));
    page.figure(
        &reliability(study),
        "Rows sorted by each estimator's score, in twenty parts: a good estimator's error rises.",
    );
    page.figure(
        &along(study),
        "Along a rollout: the true error, and each estimator's mean rank (0 lowest, 1 highest).",
    );
    for (name, scores) in &study.scores {
        page.figure(&cloud(name, scores, study), &format!("{name}: score against true error."));
    }
    page
}

fn cloud(name: &str, scores: &[f64], study: &Study) -> Plot {
    let every = scores.len().div_ceil(POINTS).max(1);
    let points = (0..scores.len()).step_by(every).map(|i| (scores[i], study.error[i].1)).collect();
    Plot {
        title: name.to_string(),
        x: Axis::linear("u"),
        y: Axis::log("true error"),
        series: vec![Series::scatter(name, points)],
    }
}

fn reliability(study: &Study) -> Plot {
    let parts = 20;
    let series = study.scores.iter().map(|(name, scores)| {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        let point = |part: usize| {
            let rows = &order[part * order.len() / parts..(part + 1) * order.len() / parts];
            let errors: Vec<f64> = rows.iter().map(|&i| study.error[i].1).collect();
            ((part as f64 + 0.5) / parts as f64, stats::quantile(&errors, 0.5))
        };
        Series::line(name, (0..parts).map(point).collect())
    });
    Plot {
        title: "reliability".into(),
        x: Axis::linear("rank of u"),
        y: Axis::log("median true error"),
        series: series.collect(),
    }
}

fn along(study: &Study) -> Plot {
    let last = study.error.iter().map(|(age, _)| *age).max().unwrap_or(0);
    let mean_by_age = |values: &[f64]| -> Vec<(f64, f64)> {
        let mut sums = vec![(0.0, 0usize); last + 1];
        for ((age, _), value) in study.error.iter().zip(values) {
            sums[*age] = (sums[*age].0 + value, sums[*age].1 + 1);
        }
        let mean = |(age, (sum, n)): (usize, (f64, usize))| (age as f64, sum / n.max(1) as f64);
        sums.into_iter().enumerate().map(mean).collect()
    };
    let ranked = |values: &[f64]| -> Vec<f64> {
        stats::ranks(values).iter().map(|r| r / values.len() as f64).collect()
    };
    let errors: Vec<f64> = study.error.iter().map(|(_, e)| *e).collect();
    let mut series = vec![Series::dashed("true error", mean_by_age(&ranked(&errors)))];
    series.extend(study.scores.iter().map(|(name, u)| Series::line(name, mean_by_age(&ranked(u)))));
    Plot {
        title: "along a rollout".into(),
        x: Axis::linear("rollout step"),
        y: Axis::linear("mean rank"),
        series,
    }
}
