//! How far a step of the model can be trusted: the paper's search-based score and everything it is measured against.
//!
//! One trait, one file an estimator. An estimator never learns how its score is used.
//!
//! ```
//! use offing::uncertainty::{BuildContext, UncertaintyConfig};
//! use offing::{Batch, Mat};
//! let mut rng = offing::Rng::stream(0, "rows", 0);
//! let obs = Mat::from_shape_fn((500, 3), |_| rng.normal() as f32);
//! let act = Mat::from_shape_fn((500, 1), |_| rng.normal() as f32);
//! let data = Batch { next_obs: &obs + 1.0, obs, act, rew: vec![0.0; 500].into(), done: vec![false; 500].into() };
//! let sumo = UncertaintyConfig::from_id("sumo")?.build(&BuildContext::of_data(&data))?;
//! assert!(sumo.max_loo_score() > 0.0);
//! assert!(UncertaintyConfig::from_id("summo").unwrap_err().to_string().contains("`sumo`"));
//! # Ok::<(), offing::Error>(())
//! ```

mod aleatoric;
mod bellman_std;
mod coder;
pub mod conformance;
mod context;
mod count;
mod embedding;
mod ensemble_std;
mod fathom;
mod latent;
mod local_fit;
mod loo_kl;
mod members;
mod mixture_std;
mod pairwise;
mod pullback;
mod registry;
mod smooth;
mod space;
mod stored_fits;
mod store;
mod sumo;

pub use aleatoric::{AleatoricConfig, Norm};
pub use bellman_std::{BellmanStd, BellmanStdConfig};
pub use context::{BuildContext, CustomConfig, CustomEstimator};
pub use count::{Count, CountAggregate, CountConfig};
pub use embedding::{Distortion, Embedding, EmbeddingConfig};
pub use ensemble_std::EnsembleStdConfig;
pub use fathom::{Fathom, FathomConfig, FathomVariant};
pub use loo_kl::{KlMember, LooKlConfig};
pub use members::{EnsembleEstimator, EnsembleScore, MemberPredictions};
pub use mixture_std::MixtureStdConfig;
pub use pairwise::{PairwiseConfig, Spread};
pub use pullback::{Pullback, PullbackConfig};
pub use registry::{UncertaintyConfig, build_all};
pub use space::{ColumnScale, Distance, SearchVector};
pub use sumo::{ScoreForm, Sumo, SumoConfig, Threshold};

use ndarray::Array1;
pub use offing_knn::Neighbors;

use crate::batch::Mat;
use crate::dynamics::{EnsembleConfig, Members, ModelStep};
use crate::error::{Error, Result, invalid};
use crate::nn::ThreadPool;

/// Scores steps of a model; larger means less trustworthy.
///
/// A row's score depends on that row alone: not on its neighbours in the batch, not on the number of threads.
/// `score` and `max_loo_score` are required, and `needs` for a score that compares members. `loo_quantile` makes
/// `pessimism.kind = "penalize-excess"` work, `exceeds` saves time in rollouts that are cut, `distance_of` and `warning` are
/// for messages.
/// [`conformance::check`] tests that and the other promises. An estimator of your own is registered as a
/// [`CustomEstimator`]:
///
/// ```
/// use ndarray::Array1;
/// use offing::dynamics::{Members, ModelStep};
/// use offing::uncertainty::{BuildContext, CustomConfig, CustomEstimator, Uncertainty, UncertaintyConfig};
/// use offing::{Batch, Mat};
///
/// /// The length of the action: far actions are rare in the data.
/// #[derive(Debug)]
/// struct ActionLength {
///     max: f32,
/// }
///
/// fn lengths(act: &Mat) -> Array1<f32> {
///     act.rows().into_iter().map(|a| a.dot(&a).sqrt()).collect()
/// }
///
/// impl Uncertainty for ActionLength {
///     fn score(&self, step: &ModelStep) -> offing::Result<Array1<f32>> {
///         Ok(lengths(&step.batch.act))
///     }
///     fn needs(&self) -> Members {
///         Members::One
///     }
///     fn max_loo_score(&self) -> f32 {
///         self.max
///     }
/// }
///
/// let mine = [CustomEstimator::new("action-length", |context| {
///     let max = lengths(&context.data.act).fold(0.0f32, |a, &b| a.max(b));
///     Ok(Box::new(ActionLength { max }))
/// })];
/// # let data = Batch { act: Mat::ones((9, 4)), rew: vec![0.0; 9].into(), done: vec![false; 9].into(), ..Batch::empty(1, 4) };
/// let config = UncertaintyConfig::Custom(CustomConfig { name: "action-length".into() });
/// let built = config.build(&BuildContext { custom: &mine, ..BuildContext::of_data(&data) })?;
/// assert_eq!(built.max_loo_score(), 2.0);
/// # Ok::<(), offing::Error>(())
/// ```
pub trait Uncertainty: std::fmt::Debug + Send + Sync {
    /// One score a row.
    ///
    /// # Errors
    /// Rows of other widths than the data's, values that are not finite, or a step without the predictions that
    /// [`needs`](Self::needs) asks for.
    fn score(&self, step: &ModelStep) -> Result<Array1<f32>>;

    /// [`score`](Self::score) of a step that nobody else needs: an estimator that hands rows on may keep them.
    ///
    /// # Errors
    /// As [`score`](Self::score).
    fn score_owned(&self, step: ModelStep) -> Result<Array1<f32>> {
        self.score(&step)
    }

    /// Scores, and how they change with the step: the gradient of each row's score by (s, a, s'). What a policy that is
    /// trained through the model follows back to the data. Without an answer of its own, an estimator's gradient is 0.
    ///
    /// # Errors
    /// As [`score`](Self::score).
    fn score_gradient(&self, step: &ModelStep) -> Result<ScoreGradient> {
        let (obs, act) = (&step.batch.obs, &step.batch.act);
        let [dobs, dact, dnext] = [obs, act, obs].map(|like| Mat::zeros(like.dim()));
        Ok(ScoreGradient { score: self.score(step)?, obs: dobs, act: dact, next_obs: dnext })
    }

    /// Whether a step must carry every member's prediction: not unless the estimator says so.
    fn needs(&self) -> Members {
        Members::One
    }

    /// The largest score the dataset's own rows get, each without help from itself (Eq. 7 with α = 1).
    fn max_loo_score(&self) -> f32;

    /// The score that this share of the dataset's own rows stay below, each without help from itself: what the data make
    /// usual. Only `pessimism.kind = "penalize-excess"` asks for it.
    ///
    /// # Errors
    /// An estimator that keeps no distribution of its scores.
    fn loo_quantile(&self, share: f64) -> Result<f32> {
        let _ = share;
        Err(invalid!(
            "pessimism: `penalize-excess` wants the quantiles of the data's scores, which this estimator does not have; \
             choose another estimator, such as sumo, or another kind"
        ))
    }

    /// Whether each row's score lies above `threshold`. The same answer as comparing [`score`](Self::score), often
    /// cheaper.
    ///
    /// # Errors
    /// As [`score`](Self::score).
    fn exceeds(&self, step: &ModelStep, threshold: f32) -> Result<Vec<bool>> {
        Ok(self.score(step)?.iter().map(|&u| u > threshold).collect())
    }

    /// What a user should know about these scores, in one line: how far an approximation is from the exact score.
    fn warning(&self) -> Option<String> {
        None
    }

    /// The distance that belongs to a score, where a score is a function of a distance.
    fn distance_of(&self, score: f32) -> Option<f32> {
        let _ = score;
        None
    }
}

/// Scores of a step's rows and their gradients.
#[derive(Clone, Debug)]
pub struct ScoreGradient {
    /// One score a row.
    pub score: Array1<f32>,
    /// By the states.
    pub obs: Mat,
    /// By the actions.
    pub act: Mat,
    /// By the next states.
    pub next_obs: Mat,
}

/// An estimator's settings: what the list in `registry.rs` needs to know of it.
///
/// The settings of a score over the members' predictions are an [`EnsembleScore`], which makes them this too.
pub(crate) trait EstimatorConfig {
    /// Finds settings that cannot work for so many rows and such a model, before the model is fitted.
    fn validate(&self, rows: usize, model: &EnsembleConfig) -> Result<()>;

    /// Builds the estimator.
    fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Uncertainty>>;

    /// Whether only an algorithm can compute it, from its critics.
    fn needs_critics(&self) -> bool {
        false
    }

    /// The score over members, for estimators that are one: they are built together, in one pass over the data.
    fn ensemble_score(&self) -> Option<Box<dyn EnsembleScore>> {
        None
    }
}

/// Where a row of the data lies: number of its episode and step in it. `None` beyond the last episode.
pub fn locate(episodes: &[std::ops::Range<usize>], row: usize) -> Option<(usize, usize)> {
    let episode = episodes.partition_point(|e| e.end <= row);
    let range = episodes.get(episode)?;
    Some((episode, row.checked_sub(range.start)?))
}

/// The answer to callers that have no critics.
fn no_critics(id: &str) -> Error {
    invalid!(
        "{id}: wanted the critics, which exist only while an algorithm trains; train `mobile` with it, or choose \
         another estimator"
    )
}

/// A score for each row, over threads. `state` makes what a thread works with.
fn map_rows<S>(
    pool: &ThreadPool,
    rows: usize,
    state: impl Fn() -> S + Sync,
    score: impl Fn(&mut S, usize) -> f32 + Sync,
) -> Array1<f32> {
    /// Rows a thread takes at once.
    const CHUNK: usize = 64;
    let mut out = vec![0.0f32; rows];
    let mut chunks: Vec<_> = out.chunks_mut(CHUNK).collect();
    pool.for_each_mut(&mut chunks, |chunk, out| {
        let mut state = state();
        out.iter_mut().enumerate().for_each(|(i, out)| *out = score(&mut state, chunk * CHUNK + i));
    });
    out.into()
}

/// The value that a share of `scores` stay below.
fn quantile(mut scores: Vec<f32>, share: f64) -> f32 {
    let at = ((scores.len() as f64 * share) as usize).min(scores.len().saturating_sub(1));
    if scores.is_empty() { 0.0 } else { *scores.select_nth_unstable_by(at, f32::total_cmp).1 }
}

/// Refuses scores that are not finite: a row so far out that its distance overflows.
fn finite(name: &str, scores: Array1<f32>) -> Result<Array1<f32>> {
    match scores.iter().position(|u| !u.is_finite()) {
        None => Ok(scores),
        Some(row) => Err(invalid!(
            "{name}: the score of row {row} is {}: the model's state has left the range of numbers; end rollouts at \
             exploding states",
            scores[row]
        )),
    }
}

#[cfg(test)]
mod tests;
