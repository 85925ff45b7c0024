//! Scores against true errors: correlations with intervals, detection of the worst steps, thresholds, cost.

use std::time::Instant;

use serde::Serialize;

use super::trial::{Counts, Trial, select};
use crate::batch::Mat;
use crate::dynamics;
use crate::error::{Error, Result};
use crate::rng::Rng;
use crate::stats::{self, Interval};
use crate::uncertainty::Uncertainty;

/// Observations beyond this count as exploding for [`Subset::Small`].
const LARGE: f32 = 100.0;
/// Share of steps that detection has to find.
const WORST: f64 = 0.1;
/// Multiples of the data's largest score whose excess is reported.
const ALPHAS: [f32; 3] = [1.0, 5.0, 10.0];

/// How the comparison is made.
#[derive(Clone, Debug)]
pub struct StudyConfig {
    /// Resamples of rollouts behind each interval.
    pub repeats: usize,
    /// Coverage of the intervals.
    pub level: f64,
    /// Columns the simulator clips when it observes, and at what: Hopper and Walker2d clip velocities at ±10.
    pub clip: Option<(std::ops::Range<usize>, f32)>,
}

impl Default for StudyConfig {
    fn default() -> Self {
        Self { repeats: 500, level: 0.95, clip: None }
    }
}

/// Which ŝ' is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct View {
    /// The member's sample, as rollouts use it, or its mean.
    pub sampled: bool,
    /// ŝ' clipped as the simulator clips.
    pub clipped: bool,
}

/// Which rows are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subset {
    /// All that could be replayed.
    All,
    /// Rows before the model's own termination, the ending step included.
    Alive,
    /// Rows with every |s| and |ŝ'| below 100.
    Small,
    /// Rows replayed from exact velocities.
    Exact,
}

/// How one estimator did on one view and subset.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The estimator's name; `step index` is the baseline that knows nothing but t.
    pub estimator: String,
    /// Which ŝ'.
    pub view: View,
    /// Which rows.
    pub subset: Subset,
    /// How many.
    pub rows: usize,
    /// Rank correlation of score and error.
    pub spearman: Interval,
    /// Linear correlation of score and error.
    pub pearson: Interval,
    /// Area under the ROC curve for finding the worst 10 % of steps.
    pub auroc: f64,
    /// Area under the precision-recall curve for the same.
    pub auprc: f64,
    /// Mean over rollout steps of the rank correlation within a step: what remains when the step index is known.
    pub spearman_within_step: f64,
}

/// Error and scores by rollout step.
#[derive(Clone, Debug, Serialize)]
pub struct Steps {
    /// The estimator.
    pub estimator: String,
    /// One entry a step.
    pub steps: Vec<Step>,
}

/// One rollout step.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Step {
    /// Its number, from 0.
    pub step: u32,
    /// Rows.
    pub rows: usize,
    /// Median error.
    pub error: f64,
    /// Median score.
    pub score: f64,
    /// Rank correlation within the step; NaN below three rows.
    pub spearman: f64,
}

/// What scoring takes and where thresholds lie.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// The estimator.
    pub estimator: String,
    /// Seconds for 10,000 scores.
    pub seconds_per_10k: f64,
    /// The data's largest leave-one-out score.
    pub max_baseline: f32,
    /// α and the share of rows beyond α times that.
    pub beyond: Vec<(f32, f64)>,
}

/// Everything found.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// Where rows went.
    pub counts: Counts,
    /// One for each estimator, view and subset.
    pub outcomes: Vec<Outcome>,
    /// Headline view, by step.
    pub by_step: Vec<Steps>,
    /// Headline view.
    pub cost: Vec<Cost>,
    /// True errors of the headline view, for plots.
    #[serde(skip)]
    pub error: Vec<f64>,
    /// Scores of the headline view, for plots.
    #[serde(skip)]
    pub scores: Vec<(String, Vec<f64>)>,
}

impl View {
    /// All rows, sampled ŝ', not clipped: the paper's.
    pub const HEADLINE: Self = Self { sampled: true, clipped: false };
}

impl Study {
    /// An estimator's outcome on the headline view and all rows.
    pub fn headline(&self, estimator: &str) -> Option<&Outcome> {
        let is =
            |o: &&Outcome| o.estimator == estimator && o.view == View::HEADLINE && o.subset == Subset::All;
        self.outcomes.iter().find(is)
    }
}

/// Compares every estimator with the truth.
///
/// # Errors
/// Nothing to compare, or an estimator that cannot score the rows.
pub fn study(
    trial: &Trial,
    estimators: &[(String, &dyn Uncertainty)],
    cfg: &StudyConfig,
    rng: &mut Rng,
) -> Result<Study> {
    if trial.counts.compared < 3 {
        return Err(Error::Invalid(format!(
            "calibration: wanted at least three rows to compare, found {} of {} ({} exploded, {} lost); roll out from \
             other states or for fewer steps",
            trial.counts.compared, trial.counts.asked, trial.counts.exploded, trial.counts.lost
        )));
    }
    let mut out = Study {
        counts: trial.counts,
        outcomes: Vec::new(),
        by_step: Vec::new(),
        cost: Vec::new(),
        error: Vec::new(),
        scores: Vec::new(),
    };
    let clips: &[bool] = if cfg.clip.is_some() { &[false, true] } else { &[false] };
    for sampled in [true, false] {
        for &clipped in clips {
            let view = View { sampled, clipped };
            let step = trial.view(view, cfg);
            let error = trial.error(&step.batch.next_obs);
            let mut scores = Vec::new();
            for (name, estimator) in estimators {
                let started = Instant::now();
                let u: Vec<f64> = estimator.score(&step)?.iter().map(|&u| f64::from(u)).collect();
                if view == View::HEADLINE {
                    let seconds = started.elapsed().as_secs_f64();
                    out.cost.push(cost(name, *estimator, &u, seconds));
                }
                scores.push((name.clone(), u));
            }
            scores.push(("step index".into(), trial.rows.time.iter().map(|&t| f64::from(t)).collect()));
            for subset in [Subset::All, Subset::Alive, Subset::Small, Subset::Exact] {
                let rows = trial.subset(subset, &step);
                for (name, u) in &scores {
                    out.outcomes.push(outcome(trial, (name, u), &error, &rows, (view, subset), cfg, rng));
                }
            }
            if view == View::HEADLINE {
                out.by_step = scores.iter().map(|(name, u)| by_step(trial, name, u, &error)).collect();
                (out.error, out.scores) = (error, scores);
            }
        }
    }
    Ok(out)
}

impl Trial {
    /// The rows with the ŝ' of a view.
    fn view(&self, view: View, cfg: &StudyConfig) -> dynamics::Step {
        let all: Vec<usize> = (0..self.rows.rollout.len()).collect();
        let mut step = select(&self.rows.step, &all);
        let width = step.batch.obs_dim();
        if !view.sampled {
            step.batch.next_obs = step.mean.slice(ndarray::s![.., ..width]).to_owned();
            step.batch.rew = step.mean.column(width).to_owned();
        }
        if let (true, Some((columns, limit))) = (view.clipped, &cfg.clip) {
            let mut part = step.batch.next_obs.slice_mut(ndarray::s![.., columns.clone()]);
            part.mapv_inplace(|x| x.clamp(-limit, *limit));
        }
        step
    }

    /// ‖s' − ŝ'‖₂ of each row.
    fn error(&self, next: &Mat) -> Vec<f64> {
        let row = |i: usize| -> f64 {
            let pairs = self.truth.row(i).into_iter().zip(next.row(i));
            pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
        };
        (0..next.nrows()).map(row).collect()
    }

    fn subset(&self, subset: Subset, step: &dynamics::Step) -> Vec<usize> {
        let small = |m: &Mat, i: usize| m.row(i).iter().all(|x| x.abs() < LARGE);
        let belongs = |i: &usize| match subset {
            Subset::All => true,
            Subset::Alive => self.rows.alive[*i],
            Subset::Small => small(&step.batch.obs, *i) && small(&step.batch.next_obs, *i),
            Subset::Exact => !self.clipped[*i],
        };
        (0..self.rows.rollout.len()).filter(belongs).collect()
    }

    /// Positions in `rows`, by rollout.
    fn rollouts(&self, rows: &[usize]) -> Vec<Vec<usize>> {
        let mut groups: std::collections::BTreeMap<u32, Vec<usize>> = Default::default();
        for (at, &row) in rows.iter().enumerate() {
            groups.entry(self.rows.rollout[row]).or_default().push(at);
        }
        groups.into_values().collect()
    }
}

fn outcome(
    trial: &Trial,
    (name, u): (&str, &[f64]),
    error: &[f64],
    rows: &[usize],
    (view, subset): (View, Subset),
    cfg: &StudyConfig,
    rng: &mut Rng,
) -> Outcome {
    let pick = |from: &[f64]| rows.iter().map(|&i| from[i]).collect::<Vec<f64>>();
    let (u, e) = (pick(u), pick(error));
    let (spearman, pearson) =
        stats::correlation_intervals(&u, &e, &trial.rollouts(rows), cfg.repeats, cfg.level, rng);
    let worst = stats::largest(&e, WORST);
    let times: Vec<u32> = rows.iter().map(|&i| trial.rows.time[i]).collect();
    let within: Vec<f64> =
        per_step(&times, &u, &e).iter().map(|s| s.spearman).filter(|r| r.is_finite()).collect();
    Outcome {
        estimator: name.into(),
        view,
        subset,
        rows: rows.len(),
        spearman,
        pearson,
        auroc: stats::auroc(&u, &worst),
        auprc: stats::auprc(&u, &worst),
        spearman_within_step: within.iter().sum::<f64>() / within.len() as f64,
    }
}

fn by_step(trial: &Trial, name: &str, u: &[f64], error: &[f64]) -> Steps {
    Steps { estimator: name.into(), steps: per_step(&trial.rows.time, u, error) }
}

fn per_step(times: &[u32], u: &[f64], error: &[f64]) -> Vec<Step> {
    let mut groups: std::collections::BTreeMap<u32, (Vec<f64>, Vec<f64>)> = Default::default();
    for ((&t, &u), &e) in times.iter().zip(u).zip(error) {
        let group = groups.entry(t).or_default();
        group.0.push(u);
        group.1.push(e);
    }
    let one = |(step, (u, e)): (u32, (Vec<f64>, Vec<f64>))| Step {
        step,
        rows: u.len(),
        error: stats::quantile(&e, 0.5),
        score: stats::quantile(&u, 0.5),
        spearman: if u.len() < 3 { f64::NAN } else { stats::spearman(&u, &e) },
    };
    groups.into_iter().map(one).collect()
}

fn cost(name: &str, estimator: &dyn Uncertainty, u: &[f64], seconds: f64) -> Cost {
    let max_baseline = estimator.max_baseline();
    let share = |alpha: f32| {
        let beyond = u.iter().filter(|u| **u > f64::from(alpha * max_baseline)).count();
        (alpha, beyond as f64 / u.len() as f64)
    };
    Cost {
        estimator: name.into(),
        seconds_per_10k: seconds * 1e4 / u.len() as f64,
        max_baseline,
        beyond: ALPHAS.map(share).to_vec(),
    }
}
