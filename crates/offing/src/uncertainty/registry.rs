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
    /// log(1 + distance to the k-th nearest transition).
    ///
    /// Looks at s, a, s'. Needs data. Source: the paper, Eq. 4.
    "sumo" => Sumo(SumoConfig),
    /// Largest noise that a member predicts.
    ///
    /// Looks at s, a. Needs all members. Source: MOPO.
    "aleatoric" => Aleatoric(AleatoricConfig),
    /// Widest disagreement of two members on s'.
    ///
    /// Looks at s, a. Needs all members. Source: MOReL.
    "pairwise" => Pairwise(PairwiseConfig),
    /// Divergence of one member from the rest.
    ///
    /// Looks at s, a. Needs all members. Source: M2AC.
    "loo-kl" => LooKl(LooKlConfig),
    /// Spread of the members' means.
    ///
    /// Looks at s, a. Needs all members. Source: OfflineRL-Kit.
    "ensemble-std" => EnsembleStd(EnsembleStdConfig),
    /// Spread of the mixture: means and noise.
    ///
    /// Looks at s, a. Needs all members. Source: law of total variance.
    "mixture-std" => MixtureStd(MixtureStdConfig),
    /// 1/√(how often the data holds the hash of (s, a)).
    ///
    /// Looks at s, a. Needs data, ensemble. Source: Kim & Oh 2023.
    "count" => Count(CountConfig),
    /// Length of latent paths to the nearest rows.
    ///
    /// Looks at s, a. Needs data. Source: Tennenholtz & Mannor 2022.
    "pullback" => Pullback(PullbackConfig),
    /// Spread of the next value over members (`mobile` only).
    ///
    /// Looks at s, a. Needs critics. Source: Sun et al. 2023.
    "bellman-std" => BellmanStd(BellmanStdConfig),
    /// Distance of s' from what the nearest rows predict, with SUMO's score.
    ///
    /// Looks at s, a, s'. Needs data. Source: ours.
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
