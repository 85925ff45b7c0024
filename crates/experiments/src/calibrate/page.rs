//! A study as a page: tables, the cloud of u against error, reliability, error and u along a rollout.

use offing::calibration::Study;
use offing::stats;

use super::summary::StudySummary;
use crate::plot::{Axis, Plot, Series};
use crate::{Document, Element};

/// Points drawn in a cloud: enough to see its shape.
const POINTS: usize = 1500;

/// Equal shares of the rows, sorted by score, in the plot of reliability.
const SHARES: usize = 20;

impl StudySummary {
    /// The page.
    pub fn document(&self) -> Document {
        let mut page = Document::new(format!("Calibration of uncertainty on {}", self.dataset));
        page.intro.push(Element::text(
            "A policy trained in the learnt model without penalty rolls out in it. Every imagined step is replayed in the \
             simulator (or compared with held-out transitions), and each estimator's score u with the true error of the next \
             state. Headline: all rows, next states as sampled, not clipped.",
        ));
        page.intro.extend(self.row_counts().into_iter().map(Element::Text));
        for (heading, table) in self.tables() {
            page.results.extend((!heading.is_empty()).then(|| Element::heading(heading)));
            page.results.push(Element::Table(table));
        }
        let Some((seed, study)) = self.studies.first() else { return page };
        page.details = vec![
            Element::heading(format!("Figures (seed {seed})")),
            Element::figure(
                reliability(study),
                "Rows sorted by each estimator's score, in twenty parts: a good estimator's error rises.",
            ),
            Element::figure(
                along(study),
                "Along a rollout: the true error, and each estimator's mean rank (0 lowest, 1 highest).",
            ),
        ];
        for (name, scores) in &study.scores {
            let caption = format!("{name}: score against true error.");
            page.details.push(Element::figure(cloud(name, scores, study), caption));
        }
        page
    }
}
fn cloud(name: &str, scores: &[f64], study: &Study) -> Plot {
    let every = scores.len().div_ceil(POINTS).max(1);
    let points = (0..scores.len()).step_by(every).map(|i| (scores[i], study.error[i].1)).collect();
    Plot::new(name, Axis::linear("u"), Axis::log("true error"), vec![Series::scatter(name, points)])
}

fn reliability(study: &Study) -> Plot {
    let series = study.scores.iter().map(|(name, scores)| {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        let point = |share: usize| {
            let rows = &order[share * order.len() / SHARES..(share + 1) * order.len() / SHARES];
            let errors: Vec<f64> = rows.iter().map(|&i| study.error[i].1).collect();
            ((share as f64 + 0.5) / SHARES as f64, stats::quantile(&errors, 0.5))
        };
        Series::line(name, (0..SHARES).map(point).collect())
    });
    Plot::new("reliability", Axis::linear("rank of u"), Axis::log("median true error"), series.collect())
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
    Plot::new("along a rollout", Axis::linear("rollout step"), Axis::linear("mean rank"), series)
}
