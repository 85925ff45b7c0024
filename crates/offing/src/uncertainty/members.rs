//! Scores over the predictions of an ensemble's members: the trait of such a score, and the estimator made from it.

use ndarray::Array1;

use super::{BuildContext, EstimatorConfig, Uncertainty, finite, quantile};
use crate::batch::Batch;
use crate::dynamics::{DynamicsModel, EnsembleConfig, Members, ModelStep, Prediction};
use crate::error::{Result, invalid, require};

/// Rows of the data predicted at once: some tens of megabytes.
const CHUNK: usize = 8192;

/// Rows that show whether a score works at all.
const GLANCE: usize = 64;

/// A score of what an ensemble's members predict for one row. [`EnsembleEstimator`] makes an estimator of it.
///
/// ```
/// use offing::uncertainty::{EnsembleScore, MemberPredictions};
/// /// How far apart the members' predicted rewards are.
/// #[derive(Debug)]
/// struct RewardRange;
///
/// impl EnsembleScore for RewardRange {
///     fn id(&self) -> &'static str {
///         "reward-range"
///     }
///     fn score(&self, row: &MemberPredictions<'_>, _member: Option<usize>) -> f32 {
///         let rewards = (0..row.members()).map(|m| row.mean(m)[row.width() - 1]);
///         rewards.clone().fold(f32::MIN, f32::max) - rewards.fold(f32::MAX, f32::min)
///     }
/// }
/// ```
pub trait EnsembleScore: std::fmt::Debug + Send + Sync {
    /// The estimator's id, for messages.
    fn id(&self) -> &'static str;

    /// Score of a row. `member` made the step; it is `None` for rows of the data, which no member made.
    fn score(&self, row: &MemberPredictions<'_>, member: Option<usize>) -> f32;

    /// The fewest members it can compare.
    fn min_members(&self) -> usize {
        1
    }
}

/// Settings that are a score over members are an estimator's settings.
impl<S: EnsembleScore + Clone + 'static> EstimatorConfig for S {
    fn validate(&self, _rows: usize, model: &EnsembleConfig) -> Result<()> {
        check_members(self, model.members)
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Uncertainty>> {
        Ok(Box::new(EnsembleEstimator::new(self.clone(), context)?))
    }

    fn ensemble_score(&self) -> Option<Box<dyn EnsembleScore>> {
        Some(Box::new(self.clone()))
    }
}

fn check_members(score: &dyn EnsembleScore, found: usize) -> Result<()> {
    let (id, wanted) = (score.id(), score.min_members());
    require!(
        found >= wanted,
        "{id}: wanted at least {wanted} members to compare, found {found}; raise model.ensemble.members"
    );
    Ok(())
}

/// Every member's Gaussian over (s', r) for one row.
#[derive(Clone, Copy, Debug)]
pub struct MemberPredictions<'a> {
    mean: &'a [f32],
    std: &'a [f32],
    width: usize,
    /// Distance between members in the arrays.
    stride: usize,
    members: usize,
}

impl MemberPredictions<'_> {
    /// Members of the ensemble.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Columns of (s', r): the reward is the last one.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Mean of (s', r) by a member.
    pub fn mean(&self, member: usize) -> &[f32] {
        &self.mean[member * self.stride..][..self.width]
    }

    /// Mean of s' alone.
    pub fn mean_obs(&self, member: usize) -> &[f32] {
        &self.mean(member)[..self.width - 1]
    }

    /// Standard deviations of (s', r) by a member.
    pub fn std(&self, member: usize) -> &[f32] {
        &self.std[member * self.stride..][..self.width]
    }

    /// Mean over members of the means of one column, in f64.
    pub fn center(&self, col: usize) -> f64 {
        (0..self.members).map(|m| f64::from(self.mean(m)[col])).sum::<f64>() / self.members as f64
    }

    /// Variance over members of the means of one column, in f64.
    pub fn variance_of_means(&self, col: usize) -> f64 {
        let center = self.center(col);
        let square = |m: usize| (f64::from(self.mean(m)[col]) - center).powi(2);
        (0..self.members).map(square).sum::<f64>() / self.members as f64
    }
}

/// An estimator that scores the members' predictions.
#[derive(Debug)]
pub struct EnsembleEstimator {
    score: Box<dyn EnsembleScore>,
    max: f32,
    /// The data's scores, as far as they were computed.
    of_data: Vec<f32>,
}

impl EnsembleEstimator {
    /// An estimator by one score.
    ///
    /// # Errors
    /// No ensemble in the context, too few members for the score, or scores of the data that are not finite.
    pub fn new(score: impl EnsembleScore + 'static, context: &BuildContext<'_>) -> Result<Self> {
        let mut all = Self::new_all(vec![Box::new(score)], context)?;
        Ok(all.remove(0))
    }

    /// An estimator by each score, with the data's largest score found in one pass over the data. Without
    /// `needs_max_loo_score` it looks at a few rows only, to see whether the scores work at all, and the largest is NaN.
    pub(super) fn new_all(
        scores: Vec<Box<dyn EnsembleScore>>,
        context: &BuildContext<'_>,
    ) -> Result<Vec<Self>> {
        let Some(first) = scores.first() else { return Ok(Vec::new()) };
        let (model, data, find_max) =
            (context.model_for(first.id())?, context.data, context.needs_max_loo_score);
        let fresh = |score| Self { score, max: f32::NEG_INFINITY, of_data: Vec::new() };
        let mut all: Vec<Self> = scores.into_iter().map(fresh).collect();
        let rows = if find_max { data.len() } else { data.len().min(GLANCE) };
        predict_in_chunks(model, data, rows, |prediction| {
            for it in &mut all {
                check_members(&*it.score, prediction.mean.dim().0)?;
                let scores = finite(it.score.id(), apply(&*it.score, prediction, None))?;
                it.max = scores.iter().fold(it.max, |a, &b| a.max(b));
                it.of_data.extend(scores);
            }
            Ok(())
        })?;
        if !find_max {
            all.iter_mut().for_each(|it| it.max = f32::NAN);
        }
        Ok(all)
    }
}

impl Uncertainty for EnsembleEstimator {
    fn score(&self, step: &ModelStep) -> Result<Array1<f32>> {
        let prediction = every_prediction(self.score.id(), step)?;
        finite(self.score.id(), apply(&*self.score, prediction, Some(&step.member)))
    }

    fn needs(&self) -> Members {
        Members::All
    }

    fn max_loo_score(&self) -> f32 {
        self.max
    }

    fn loo_quantile(&self, share: f64) -> Result<f32> {
        Ok(quantile(self.of_data.clone(), share))
    }
}

/// Every member's prediction of a step, or an error that names the estimator that needs it.
pub(super) fn every_prediction<'a>(id: &str, step: &'a ModelStep) -> Result<&'a Prediction> {
    step.prediction
        .as_ref()
        .ok_or_else(|| invalid!("{id}: wanted every member's prediction, found a step by one member"))
}

/// Calls `each` with the predictions for the first `rows` rows of the data, chunk after chunk.
pub(super) fn predict_in_chunks(
    model: &dyn DynamicsModel,
    data: &Batch,
    rows: usize,
    mut each: impl FnMut(&Prediction) -> Result<()>,
) -> Result<()> {
    for first in (0..rows).step_by(CHUNK) {
        let chunk = ndarray::s![first..(first + CHUNK).min(rows), ..];
        each(&model.predict(&data.obs.slice(chunk).to_owned(), &data.act.slice(chunk).to_owned()))?;
    }
    Ok(())
}

/// The score of every row.
pub(super) fn apply(
    score: &dyn EnsembleScore,
    prediction: &Prediction,
    member: Option<&Array1<u32>>,
) -> Array1<f32> {
    let (members, rows, width) = prediction.mean.dim();
    let (mean, std) = (prediction.mean.as_standard_layout(), prediction.std.as_standard_layout());
    let flat = "a standard layout is one slice";
    let (mean, std) = (mean.as_slice().expect(flat), std.as_slice().expect(flat));
    let row_score = |row: usize| {
        let (mean, std) = (&mean[row * width..], &std[row * width..]);
        let predictions = MemberPredictions { mean, std, width, stride: rows * width, members };
        score.score(&predictions, member.map(|m| m[row] as usize))
    };
    (0..rows).map(row_score).collect()
}
