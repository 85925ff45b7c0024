//! What estimators are built from, and how one from outside this crate is registered.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{EstimatorConfig, Uncertainty};
use crate::batch::Batch;
use crate::dynamics::{Ensemble, EnsembleConfig};
use crate::error::{Result, invalid};
use crate::home::Home;
use crate::nn::ThreadPool;

/// What estimators are built from.
#[derive(Clone, Debug)]
pub struct BuildContext<'a> {
    /// The dataset's rows.
    pub data: &'a Batch,
    /// The trained ensemble, for estimators that read it.
    pub model: Option<&'a Ensemble>,
    /// Threads for building and scoring.
    pub pool: ThreadPool,
    /// Seed of what is drawn or trained while building.
    pub seed: u64,
    /// Where indexes are cached between runs; `None` caches nothing.
    pub home: Option<&'a Home>,
    /// Whether the caller will ask for [`max_loo_score`](Uncertainty::max_loo_score). An ensemble's score needs a pass over
    /// all rows to find it; without that pass it is NaN.
    pub needs_max_loo_score: bool,
    /// Estimators from outside this crate, for [`UncertaintyConfig::Custom`](super::UncertaintyConfig::Custom).
    pub custom: &'a [CustomEstimator<'a>],
}

impl<'a> BuildContext<'a> {
    /// The data alone: enough for estimators that need no model.
    pub fn of_data(data: &'a Batch) -> Self {
        let pool = ThreadPool::new(1);
        Self { data, model: None, pool, seed: 0, home: None, needs_max_loo_score: true, custom: &[] }
    }

    /// The ensemble, or an error that names the estimator that needs it.
    pub fn model_for(&self, id: &str) -> Result<&'a Ensemble> {
        self.model.ok_or_else(|| {
            invalid!(
                "{id}: wanted a trained ensemble, found none; train one, or use an estimator that needs the data alone \
                 (sumo)"
            )
        })
    }
}

/// How an estimator from outside this crate is built.
type Build<'a> = dyn Fn(&BuildContext<'_>) -> Result<Box<dyn Uncertainty>> + Send + Sync + 'a;

/// An estimator from outside this crate: the name by which configurations ask for it, and how it is built.
pub struct CustomEstimator<'a> {
    name: String,
    build: Box<Build<'a>>,
}

impl<'a> CustomEstimator<'a> {
    /// Registers `build` under `name`, for `{ kind = "custom", name = "…" }`.
    pub fn new(
        name: impl Into<String>,
        build: impl Fn(&BuildContext<'_>) -> Result<Box<dyn Uncertainty>> + Send + Sync + 'a,
    ) -> Self {
        Self { name: name.into(), build: Box::new(build) }
    }

    /// The name by which configurations ask for it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for CustomEstimator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomEstimator").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Asks for an estimator that the program registered. A configuration file keeps the name only: a program that
/// resumes such a run has to register the estimator again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomConfig {
    /// The name it was registered under.
    pub name: String,
}

impl CustomConfig {
    /// The registered estimator of this name.
    ///
    /// # Errors
    /// Nothing was registered under this name.
    pub fn find<'c, 'a>(&self, custom: &'c [CustomEstimator<'a>]) -> Result<&'c CustomEstimator<'a>> {
        custom.iter().find(|c| c.name == self.name).ok_or_else(|| {
            let known: Vec<&str> = custom.iter().map(CustomEstimator::name).collect();
            let found = if known.is_empty() { "none".to_string() } else { known.join(", ") };
            invalid!(
                "custom: wanted the estimator `{}` from the program that trains, found {found}; run the program that \
                 registers it",
                self.name
            )
        })
    }
}

impl EstimatorConfig for CustomConfig {
    fn validate(&self, _rows: usize, _model: &EnsembleConfig) -> Result<()> {
        Ok(())
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Uncertainty>> {
        (self.find(context.custom)?.build)(context)
    }
}
