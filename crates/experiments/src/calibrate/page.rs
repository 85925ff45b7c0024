//! A study as a page: tables, the cloud of u against error, reliability, error and u along a rollout.

use offing::calibration::Study;
use offing::stats;

use super::summary::StudySummary;
use crate::document::Card;
use crate::format::{count, counted};
use crate::plot::{Axis, Plot, Series};
use crate::svg::GREY;
use crate::{Document, Element};

/// Points drawn in a cloud: enough to see its shape.
const POINTS: usize = 1500;

/// Equal shares of the rows, sorted by score, in the plot of reliability.
const SHARES: usize = 20;

impl StudySummary {
    /// The page.
    pub fn document(&self) -> Document {
        let mut page = Document::new(format!("Calibration of uncertainty on {}", self.dataset));
        page.intro.push(Element::text(match self.simulated() {
            true => {
                "Which estimator knows where the learnt model is wrong? A policy trained in the model without penalty rolls out in \
                 it, and every imagined step is replayed in the simulator: the error of the next state is what u should follow."
            }
            false => {
                "Which estimator knows where the learnt model is wrong? No simulator knows this task, so the model is asked for \
                 episodes that it has not learnt from: the error of the next state is what u should follow."
            }
        }));
        page.intro.push(Element::text(
            "The tables show ρ (Spearman) and r (Pearson) between u and the error over all rows, with \
            next states as the model samples them.",
        ));
        page.intro.extend(self.row_counts().into_iter().map(Element::Text));
        let ratings = self.ratings();
        if let Some(best) = ratings.iter().find(|r| r.name != "step") {
            let rows: usize = self.studies.iter().map(|(_, s)| s.rows - s.lost).sum();
            let spearman = format!("{:.2}", best.rho).replace('-', "−");
            page.results.push(Element::Cards(vec![
                Card {
                    main: true,
                    ..Card::new(
                        "follows the error best",
                        best.name,
                        format!("of {} estimators", ratings.len()),
                    )
                },
                Card::new("its ρ", spearman, "1 would be perfect"),
                Card::new(
                    "its AUROC",
                    format!("{:.2}", best.auroc),
                    "finding the worst tenth; chance has 0.5",
                ),
                Card::new("imagined steps", count(rows), counted(self.studies.len(), "seed")),
            ]));
        }
        page.results.push(Element::text(self.recommendation()));
        let caption = "Spearman's ρ between u and the true error. Thin lines: 95 % interval over rollouts. “step” knows only how long a \
                       rollout has been going on.";
        page.results.push(Element::Bars(self.rating_bars(), caption.into()));
        for (i, (heading, table)) in self.tables().into_iter().enumerate() {
            let part = if i == 0 { &mut page.results } else { &mut page.details };
            part.extend(Element::section(heading, Element::Table(table)));
        }
        let Some((seed, study)) = self.studies.first() else { return page };
        page.results.push(Element::heading(format!("Figures (seed {seed})")));
        page.results.extend([
            Element::figure(
                reliability(study),
                "Rows sorted by each estimator's score, in twenty parts: a good estimator's error rises.",
            ),
            Element::figure(
                along(study),
                "Along a rollout: the true error, and each estimator's mean rank (0 lowest, 1 highest).",
            ),
        ]);
        page.details.push(Element::heading("Score against error, row by row"));
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
    let mut series = vec![Series::dashed("true error", mean_by_age(&ranked(&errors))).in_slot(GREY)];
    series.extend(study.scores.iter().map(|(name, u)| Series::line(name, mean_by_age(&ranked(u)))));
    Plot::new("along a rollout", Axis::linear("rollout step"), Axis::linear("mean rank"), series)
}
