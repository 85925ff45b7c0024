//! The list of estimators: a new one is its own file, its `mod` line and one entry here.

use serde::{Deserialize, Serialize};

use super::aleatoric::AleatoricConfig;
use super::bellman_std::BellmanStdConfig;
use super::context::{BuildContext, CustomConfig, CustomEstimator};
use super::count::CountConfig;
use super::ensemble_std::EnsembleStdConfig;
use super::fathom::FathomConfig;
use super::loo_kl::LooKlConfig;
use super::members::{EnsembleEstimator, EnsembleScore};
use super::mixture_std::MixtureStdConfig;
use super::pairwise::PairwiseConfig;
use super::pullback::PullbackConfig;
use super::sumo::SumoConfig;
use super::{EstimatorConfig, Uncertainty, no_critics};
use crate::dynamics::EnsembleConfig;
use crate::error::{Error, Result};

/// Makes the enum of all estimators from one list of `"id" => Variant(Settings)`: its serde form, the list of ids, and
/// `as_config`, through which everything else reaches the settings.
macro_rules! estimators {
    ($($(#[$doc:meta])+ $id:literal => $variant:ident($config:ty),)+) => {
        /// Which estimator, with its settings: `{ kind = "sumo", k = 1 }`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum UncertaintyConfig {
            $($(#[$doc])+ #[serde(rename = $id)] $variant($config),)+
            /// An estimator from outside this crate: `{ kind = "custom", name = "mine" }`, found by its name among
            /// [`BuildContext::custom`].
            #[serde(rename = "custom")]
            Custom(CustomConfig),
        }

        impl UncertaintyConfig {
            /// Every estimator of this crate with its defaults, in the order of tables.
            pub fn all() -> Vec<Self> {
                vec![$(Self::$variant(<$config>::default())),+]
            }

            /// The id used on the command line, in files and in tables; `custom` for one from outside.
            pub fn id(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $id,)+
                    Self::Custom(_) => "custom",
                }
            }

            fn as_config(&self) -> &dyn EstimatorConfig {
                match self {
                    $(Self::$variant(config) => config,)+
                    Self::Custom(config) => config,
                }
            }
        }
    };
}

estimators! {
    /// Search-based: log(1 + distance to the k-th nearest transition), the paper's own.
    "sumo" => Sumo(SumoConfig),
    /// The largest noise a member predicts (MOPO).
    "aleatoric" => Aleatoric(AleatoricConfig),
    /// The widest disagreement on the next state (MOReL).
    "pairwise" => Pairwise(PairwiseConfig),
    /// How one member differs from the rest (M2AC).
    "loo-kl" => LooKl(LooKlConfig),
    /// Spread of the members' means.
    "ensemble-std" => EnsembleStd(EnsembleStdConfig),
    /// Spread of the whole mixture: means and noise.
    "mixture-std" => MixtureStd(MixtureStdConfig),
    /// How rarely the data holds what (s, a) hashes to (Kim & Oh).
    "count" => Count(CountConfig),
    /// Distance to the data along the model's own geometry (Tennenholtz & Mannor).
    "pullback" => Pullback(PullbackConfig),
    /// Spread of the next value over members (MOBILE); needs the critics, so only an algorithm can compute it.
    "bellman-std" => BellmanStd(BellmanStdConfig),
    /// Search-based: distance from what the data's nearest rows predict; our own.
    "fathom" => Fathom(FathomConfig),
}

impl Default for UncertaintyConfig {
    fn default() -> Self {
        Self::Sumo(SumoConfig::default())
    }
}

impl UncertaintyConfig {
    /// The estimator of that id with its defaults.
    ///
    /// # Errors
    /// An unknown id; the message names the nearest known one.
    pub fn from_id(id: &str) -> Result<Self> {
        let mut all = Self::all();
        match all.iter().position(|c| c.id() == id) {
            Some(found) => Ok(all.swap_remove(found)),
            None => Err(Error::unknown("estimator", id, &all.iter().map(Self::id).collect::<Vec<_>>())),
        }
    }

    /// Whether it reads the critics, which exist only while an algorithm trains: `bellman-std` alone, which
    /// [`BellmanStd`](super::BellmanStd) computes. [`build`](Self::build) refuses it.
    pub fn needs_critics(&self) -> bool {
        self.as_config().needs_critics()
    }

    /// Finds settings that cannot work for so many rows and such a model, before the model is fitted.
    ///
    /// # Errors
    /// As [`build`](Self::build), as far as it can be known beforehand.
    pub fn validate(&self, rows: usize, model: &EnsembleConfig) -> Result<()> {
        self.as_config().validate(rows, model)
    }

    /// Refuses the estimator that needs critics, for callers that have none.
    ///
    /// # Errors
    /// See [`needs_critics`](Self::needs_critics).
    pub fn validate_without_critics(&self) -> Result<()> {
        if self.needs_critics() { Err(no_critics(self.id())) } else { Ok(()) }
    }

    /// Refuses an estimator from outside that nobody registered, before a model is fitted.
    ///
    /// # Errors
    /// See [`CustomConfig::find`].
    pub fn validate_registered(&self, custom: &[CustomEstimator<'_>]) -> Result<()> {
        match self {
            Self::Custom(config) => config.find(custom).map(drop),
            _ => Ok(()),
        }
    }

    /// Builds the estimator.
    ///
    /// # Errors
    /// The estimator needs data or a model that the context lacks, or its settings do not fit the data.
    pub fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Uncertainty>> {
        self.as_config().build(context)
    }
}

/// Builds several estimators. Those that score the ensemble's predictions share one pass over the data.
///
/// # Errors
/// As [`UncertaintyConfig::build`].
pub fn build_all(
    configs: &[UncertaintyConfig],
    context: &BuildContext<'_>,
) -> Result<Vec<Box<dyn Uncertainty>>> {
    let score = |config: &UncertaintyConfig| config.as_config().ensemble_score();
    let scores: Vec<Box<dyn EnsembleScore>> = configs.iter().filter_map(score).collect();
    let mut by_members = EnsembleEstimator::new_all(scores, context)?.into_iter();
    let mut build = |config: &UncertaintyConfig| match score(config).and_then(|_| by_members.next()) {
        Some(built) => Ok(Box::new(built) as Box<dyn Uncertainty>),
        None => config.build(context),
    };
    configs.iter().map(&mut build).collect()
}
