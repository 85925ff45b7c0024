//! SUMO: u(s, a, s') = log(1 + distance to the k-th nearest transition of the dataset), Eq. 4 of the paper.
//!
//! The score is a particle estimate of the cross-entropy between the model's and the dataset's dynamics (Eq. 2), with
//! the constants dropped and 1 added so that it cannot be negative. The search is exact, so on the data's own rows the
//! score is exactly 0 at k = 1. [`Sumo::nearest`] names the rows behind a score.

use std::sync::OnceLock;

use ndarray::Array1;
use offing_knn::{NeighborIndex, Neighbors, Tree};
use serde::{Deserialize, Serialize};

use super::embedding::EmbeddingConfig;
use super::space::{ColumnScale, Distance, SearchVector, Space, tree_config};
use super::{BuildContext, EstimatorConfig, ScoreGradient, Uncertainty, finite, quantile};
use crate::batch::{Batch, Mat};
use crate::dynamics::{EnsembleConfig, ModelStep};
use crate::error::{Result, invalid, require};

/// How the score is searched and written. Defaults are the paper's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SumoConfig {
    /// Which neighbour's distance counts (k).
    pub k: usize,
    /// The search vector: which parts of a transition are compared (s⊕a⊕s').
    pub vector: SearchVector,
    /// The distance between two search vectors (‖·‖).
    pub metric: Distance,
    /// The scale of the columns.
    pub columns: ColumnScale,
    /// How a distance d becomes a score.
    pub form: ScoreForm,
    /// Search in an embedding instead of the space itself: cheaper, and approximate. offing measures on 1000 rows what it
    /// does to distances and nearest neighbours, and reports it.
    pub embedding: Option<EmbeddingConfig>,
}

impl Default for SumoConfig {
    fn default() -> Self {
        Self {
            k: 1,
            vector: SearchVector::default(),
            metric: Distance::default(),
            columns: ColumnScale::default(),
            form: ScoreForm::default(),
            embedding: None,
        }
    }
}

/// How a distance d becomes a score. Each grows with d, so all rank rows alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScoreForm {
    /// log(1 + d), never negative (Eq. 4).
    #[default]
    Log1p,
    /// log d (Eq. 3). A distance of 0 counts as the smallest positive f32 (−87.3), as its logarithm has no value.
    Log,
    /// The cross-entropy in nats (Eq. 2): dim·log d + log m + (dim/2)·log π − log k − log Γ(dim/2 + 1) for m rows of
    /// `dim` columns. A distance of 0 counts as under `log`. Euclidean only: the ball's volume is that metric's.
    CrossEntropy,
}

/// ε of Eq. 7 in both units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Threshold {
    /// Multiple of the data's largest leave-one-out score (α).
    pub alpha: f32,
    /// The threshold as a score.
    pub score: f32,
    /// The same as a distance; infinite when it is beyond every f32.
    pub distance: f32,
}

/// The search-based estimator.
#[derive(Debug)]
pub struct Sumo {
    pub(super) config: SumoConfig,
    pub(super) space: Space,
    pub(super) index: Tree,
    /// Largest leave-one-out distance: computed on first use.
    pub(super) max_distance: OnceLock<f32>,
    /// Why the cache does not hold it, where it was meant to.
    pub(super) unsaved: Option<String>,
}

impl Sumo {
    /// Indexes the rows of `data`.
    ///
    /// # Errors
    /// `k` not below the number of rows, values that are not finite, (cosine) rows that are zero.
    pub fn new(config: &SumoConfig, data: &Batch, threads: usize) -> Result<Self> {
        config.validate_for(data.len())?;
        let (space, points) = Space::fit(config.vector, config.columns, config.embedding.as_ref(), data)?;
        let index = Tree::new(&tree_config(config.metric, threads), points.view())?;
        Ok(Self { config: config.clone(), space, index, max_distance: OnceLock::new(), unsaved: None })
    }

    /// The settings in use.
    pub fn config(&self) -> &SumoConfig {
        &self.config
    }

    /// Rows in the index.
    pub fn rows(&self) -> usize {
        self.index.len()
    }

    /// Bytes of the index, its rows included.
    pub fn bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Width of a state and of an action.
    pub fn widths(&self) -> (usize, usize) {
        (self.space.obs_dim, self.space.act_dim)
    }

    /// Columns of the search vector that never change in the data, when columns are standardised: their scale stays.
    pub fn constant_columns(&self) -> Vec<String> {
        let name = |&c: &usize| self.config.vector.column_name(c, self.space.obs_dim, self.space.act_dim);
        self.space.constant.iter().map(name).collect()
    }

    /// ε = α · max over the data of the leave-one-out score (Eq. 7).
    pub fn threshold(&self, alpha: f32) -> Threshold {
        let score = alpha * self.max_loo_score();
        Threshold { alpha, score, distance: self.distance(score) }
    }

    /// Scores transitions that no model made: logged ones, or what a deployed policy just saw.
    pub fn score_rows(&self, rows: &Batch) -> Result<Array1<f32>> {
        let found = self.index.search(self.space.place(rows)?.view(), self.config.k)?;
        finite("sumo", found.kth().into_iter().map(|d| self.score_of(d)).collect())
    }

    /// The `k` dataset rows nearest to each row, with their distances.
    pub fn nearest(&self, rows: &Batch, k: usize) -> Result<Neighbors> {
        Ok(self.index.search(self.space.place(rows)?.view(), k)?)
    }

    /// Scores with the `support` nearest dataset rows behind each, by one search.
    pub fn score_with_support(&self, rows: &Batch, support: usize) -> Result<(Array1<f32>, Neighbors)> {
        let found = self.nearest(rows, self.config.k.max(support))?;
        let scores = found.distances.column(self.config.k - 1).mapv(|d| self.score_of(d));
        Ok((finite("sumo", scores)?, found))
    }

    /// Scores and their gradients: the nearest logged row pulls, with the slope of Eq. 4, u' = 1 / (1 + d), along the line
    /// to it.
    fn gradient_rows(&self, rows: &Batch) -> Result<ScoreGradient> {
        let (points, k) = (self.space.place(rows)?, self.config.k);
        let found = self.index.search(points.view(), k)?;
        let width = self.space.dim();
        let mut slopes = Mat::zeros((rows.len(), width));
        for (i, mut slope) in slopes.rows_mut().into_iter().enumerate() {
            let (distance, id) = (found.distances[[i, k - 1]], found.ids[[i, k - 1]]);
            if distance > 0.0 {
                let scale = self.slope_of(distance) / distance;
                let pairs = points.row(i).into_iter().zip(self.index.row(id as usize));
                slope.iter_mut().zip(pairs).for_each(|(slope, (x, near))| *slope = scale * (x - near));
            }
        }
        let score = finite("sumo", found.kth().into_iter().map(|d| self.score_of(d)).collect())?;
        Ok(self.space.split_gradient(score, slopes))
    }

    /// Derivative of [`Sumo::score_of`].
    fn slope_of(&self, distance: f32) -> f32 {
        match self.config.form {
            ScoreForm::Log1p => 1.0 / (1.0 + distance),
            ScoreForm::Log => 1.0 / distance,
            ScoreForm::CrossEntropy => self.space.dim() as f32 / distance,
        }
    }

    /// Whether each row's score lies above `threshold`: a yes/no search, cheaper than the score.
    pub fn exceeds_rows(&self, rows: &Batch, threshold: f32) -> Result<Vec<bool>> {
        require!(!threshold.is_nan(), "sumo: wanted a number as threshold, found NaN");
        let points = self.space.place(rows)?;
        let Some(radius) = self.radius(threshold) else { return Ok(vec![true; rows.len()]) };
        let within = self.index.within(points.view(), radius, self.config.k)?;
        Ok(within.into_iter().map(|inside| !inside).collect())
    }

    /// The score of a distance.
    pub(super) fn score_of(&self, distance: f32) -> f32 {
        let d = f64::from(distance.max(f32::MIN_POSITIVE));
        match self.config.form {
            // Eq. 4.
            ScoreForm::Log1p => f64::from(distance).ln_1p() as f32,
            // Eq. 3.
            ScoreForm::Log => d.ln() as f32,
            // Eq. 2.
            ScoreForm::CrossEntropy => (self.space.dim() as f64 * d.ln() + self.nats()) as f32,
        }
    }

    /// Inverse of [`Sumo::score_of`].
    fn distance(&self, score: f32) -> f32 {
        let score = f64::from(score);
        let distance = match self.config.form {
            ScoreForm::Log1p => score.exp_m1(),
            ScoreForm::Log => score.exp(),
            ScoreForm::CrossEntropy => ((score - self.nats()) / self.space.dim() as f64).exp(),
        };
        distance.max(0.0) as f32
    }

    /// What Eq. 2 adds to dim·log d.
    fn nats(&self) -> f64 {
        let dim = self.space.dim();
        let (rows, k) = (self.index.len() as f64, self.config.k as f64);
        rows.ln() + 0.5 * dim as f64 * std::f64::consts::PI.ln() - k.ln() - ln_gamma_half(dim + 2)
    }

    /// The largest distance whose score is not above `threshold`, so that the yes/no search answers exactly as a
    /// comparison of scores would; `None` when even a distance of 0 is above it.
    fn radius(&self, threshold: f32) -> Option<f32> {
        if self.score_of(0.0) > threshold {
            return None;
        }
        // Bits of non-negative floats are ordered like the floats.
        let (mut inside, mut outside) = (0u32, f32::INFINITY.to_bits());
        while outside - inside > 1 {
            let middle = inside + (outside - inside) / 2;
            if self.score_of(f32::from_bits(middle)) > threshold {
                outside = middle;
            } else {
                inside = middle;
            }
        }
        Some(f32::from_bits(inside))
    }
}

impl Uncertainty for Sumo {
    fn score(&self, step: &ModelStep) -> Result<Array1<f32>> {
        self.score_rows(&step.batch)
    }

    fn score_gradient(&self, step: &ModelStep) -> Result<ScoreGradient> {
        // Other distances do not pull along the line to a neighbour, and an embedding is not taken back.
        match self.config.metric == Distance::Euclidean && self.config.embedding.is_none() {
            true => self.gradient_rows(&step.batch),
            false => Err(invalid!(
                "sumo: wanted metric = \"euclidean\" without an embedding for the score's gradient, found another; Landfall \
                 needs the gradient"
            )),
        }
    }

    fn warning(&self) -> Option<String> {
        let Some(d) = self.space.distortion.filter(|_| self.unsaved.is_none()) else {
            return self.unsaved.clone();
        };
        Some(format!(
            "sumo searches an embedding: distances become {:.2} ± {:.2} of what they are ({:.2} to {:.2}), {:.0} % of rows \
             keep their nearest neighbour",
            d.mean,
            d.std,
            d.min,
            d.max,
            100.0 * d.same_neighbor
        ))
    }

    fn max_loo_score(&self) -> f32 {
        let largest =
            || self.index.max_self(self.config.k).expect("k was checked against the number of rows");
        self.score_of(*self.max_distance.get_or_init(largest))
    }

    fn loo_quantile(&self, share: f64) -> Result<f32> {
        let others = self.index.search_self(self.config.k)?.kth();
        Ok(self.score_of(quantile(others.to_vec(), share)))
    }

    fn exceeds(&self, step: &ModelStep, threshold: f32) -> Result<Vec<bool>> {
        self.exceeds_rows(&step.batch, threshold)
    }

    fn distance_of(&self, score: f32) -> Option<f32> {
        Some(self.distance(score))
    }
}

impl SumoConfig {
    /// Finds settings that cannot work for a dataset of `rows` rows.
    pub fn validate_for(&self, rows: usize) -> Result<()> {
        let (k, most) = (self.k, rows.saturating_sub(1));
        require!(
            (1..=most).contains(&k),
            "sumo: wanted k from 1 to {most} (one less than the data's {rows} rows), found {k}; the paper has 1"
        );
        require!(
            self.form != ScoreForm::CrossEntropy || self.metric == Distance::Euclidean,
            "sumo: form = \"cross-entropy\" is defined for metric = \"euclidean\" only; use \"log1p\" or \"log\""
        );
        self.embedding.as_ref().map_or(Ok(()), EmbeddingConfig::validate)
    }
}

impl EstimatorConfig for SumoConfig {
    fn validate(&self, rows: usize, _model: &EnsembleConfig) -> Result<()> {
        self.validate_for(rows)
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Uncertainty>> {
        let threads = context.pool.threads();
        Ok(Box::new(match context.home {
            Some(home) => Sumo::open(home, self, context.data, threads)?,
            None => Sumo::new(self, context.data, threads)?,
        }))
    }
}

/// log Γ(n/2): the sums of logarithms that halves and integers have.
fn ln_gamma_half(n: usize) -> f64 {
    let (mut x, mut sum) =
        if n.is_multiple_of(2) { (1.0, 0.0) } else { (0.5, 0.5 * std::f64::consts::PI.ln()) };
    while x < n as f64 / 2.0 {
        sum += f64::ln(x);
        x += 1.0;
    }
    sum
}

#[cfg(test)]
mod tests;
