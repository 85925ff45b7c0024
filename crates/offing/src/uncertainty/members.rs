//! What the scores over an ensemble's members share: they read a forecast and need the data's largest score.

use ndarray::Array1;

use super::{Uncertainty, finite};
use crate::batch::Batch;
use crate::dynamics::{DynamicsModel, Members, ModelStep, Prediction};
use crate::error::{Error, Result};

/// Rows of the data that are forecast at once: some tens of megabytes.
const CHUNK: usize = 8192;

/// Rows that tell whether a rule works.
const GLANCE: usize = 64;

/// A score of one row's forecasts.
pub(super) trait EnsembleScore: std::fmt::Debug + Send + Sync {
    /// The estimator's id, for messages.
    fn id(&self) -> &'static str;

    /// Score of a row. `member` made the step; it is `None` for rows of the data, which no member made.
    fn score(&self, row: &MemberPredictions<'_>, member: Option<usize>) -> f32;

    /// What an ensemble of so many members lacks, if anything.
    fn check(&self, members: usize) -> std::result::Result<(), String> {
        let _ = members;
        Ok(())
    }
}

/// Says what an ensemble of so many members lacks for a rule, if anything.
pub(super) fn fits(rule: &dyn EnsembleScore, members: usize) -> Result<()> {
    rule.check(members).map_err(|wanted| {
        let id = rule.id();
        Error::Invalid(format!("{id}: wanted {wanted}, found {members}; raise model.ensemble.members"))
    })
}

/// Every member's Gaussian over (s', r) for one row.
pub(super) struct MemberPredictions<'a> {
    mean: &'a [f32],
    std: &'a [f32],
    width: usize,
    /// Distance between members in the arrays.
    stride: usize,
    /// Members of the ensemble.
    pub(super) members: usize,
}

impl MemberPredictions<'_> {
    /// Mean of (s', r) by a member.
    pub(super) fn mean(&self, member: usize) -> &[f32] {
        &self.mean[member * self.stride..][..self.width]
    }

    /// Mean of s' alone.
    pub(super) fn mean_obs(&self, member: usize) -> &[f32] {
        &self.mean(member)[..self.width - 1]
    }

    /// Standard deviations of (s', r) by a member.
    pub(super) fn std(&self, member: usize) -> &[f32] {
        &self.std[member * self.stride..][..self.width]
    }

    /// Columns of (s', r).
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Variance over members of the means of one column, in f64.
    pub(super) fn variance_of_means(&self, col: usize) -> f64 {
        let center = self.center(col);
        let square = |m: usize| (f64::from(self.mean(m)[col]) - center).powi(2);
        (0..self.members).map(square).sum::<f64>() / self.members as f64
    }

    /// Mean over members of one column, in f64.
    pub(super) fn center(&self, col: usize) -> f64 {
        (0..self.members).map(|m| f64::from(self.mean(m)[col])).sum::<f64>() / self.members as f64
    }
}

/// An estimator over the members' forecasts.
#[derive(Debug)]
pub(super) struct EnsembleEstimator {
    rule: Box<dyn EnsembleScore>,
    max: f32,
}

impl EnsembleEstimator {
    /// Finds the data's largest score for each rule, in one pass of forecasts over the data; with `baseline` false it looks
    /// at a few rows only, to see whether the rules work at all, and has no largest score (NaN).
    pub(super) fn calibrate(
        rules: Vec<Box<dyn EnsembleScore>>,
        model: &dyn DynamicsModel,
        data: &Batch,
        baseline: bool,
    ) -> Result<Vec<Self>> {
        let mut all: Vec<Self> =
            rules.into_iter().map(|rule| Self { rule, max: f32::NEG_INFINITY }).collect();
        let looked_at = if baseline { data.len() } else { data.len().min(GLANCE) };
        for first in (0..looked_at).step_by(CHUNK) {
            let rows = first..(first + CHUNK).min(looked_at);
            let cut = |m: &crate::Mat| m.slice(ndarray::s![rows.clone(), ..]).to_owned();
            let forecast = model.forecast(&cut(&data.obs), &cut(&data.act));
            let members = forecast.mean.dim().0;
            for estimator in &mut all {
                fits(&*estimator.rule, members)?;
                let scores = finite(estimator.rule.id(), apply(&*estimator.rule, &forecast, None))?;
                estimator.max = scores.iter().fold(estimator.max, |a, &b| a.max(b));
            }
        }
        if !baseline {
            all.iter_mut().for_each(|estimator| estimator.max = f32::NAN);
        }
        Ok(all)
    }
}

impl Uncertainty for EnsembleEstimator {
    fn score(&self, step: &ModelStep) -> Result<Array1<f32>> {
        let forecast = step.forecast.as_ref().ok_or_else(|| {
            Error::Invalid(format!(
                "{}: wanted every member's forecast, found a step by one member",
                self.rule.id()
            ))
        })?;
        finite(self.rule.id(), apply(&*self.rule, forecast, Some(&step.member)))
    }

    fn needs(&self) -> Members {
        Members::All
    }

    fn max_loo_score(&self) -> f32 {
        self.max
    }
}

/// The rule on every row.
pub(super) fn apply(
    rule: &dyn EnsembleScore,
    forecast: &Prediction,
    member: Option<&Array1<u32>>,
) -> Array1<f32> {
    let (members, rows, width) = forecast.mean.dim();
    let (mean, std) = (forecast.mean.as_standard_layout(), forecast.std.as_standard_layout());
    let flat = "a standard layout is one slice";
    let (mean, std) = (mean.as_slice().expect(flat), std.as_slice().expect(flat));
    let score = |row: usize| {
        let at = row * width;
        let opinions =
            MemberPredictions { mean: &mean[at..], std: &std[at..], width, stride: rows * width, members };
        rule.score(&opinions, member.map(|m| m[row] as usize))
    };
    (0..rows).map(score).collect()
}
