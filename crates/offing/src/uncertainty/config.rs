//! The list of estimators, by name, and how each is built.

use serde::{Deserialize, Serialize};

use super::Uncertainty;
use super::aleatoric::{AleatoricConfig, MaxAleatoric};
use super::bellman_std::BellmanStdConfig;
use super::coder::linear;
use super::count::{Count, CountConfig};
use super::ensemble_std::{EnsembleStd, EnsembleStdConfig};
use super::fathom::{Fathom, FathomConfig};
use super::loo_kl::{LooKl, LooKlConfig};
use super::members::{EnsembleEstimator, EnsembleScore, fits};
use super::mixture_std::{MixtureStd, MixtureStdConfig};
use super::pairwise::{MaxPairwise, PairwiseConfig};
use super::pullback::{Pullback, PullbackConfig};
use super::sumo::{Sumo, SumoConfig};
use crate::batch::Batch;
use crate::dynamics::{DynamicsModel, Ensemble, EnsembleConfig};
use crate::error::{Error, Result};
use crate::home::Home;
use crate::nn::ThreadPool;

/// Which estimator, with its settings: `{ kind = "sumo", k = 1 }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum UncertaintyConfig {
    /// Search-based: log(1 + distance to the k-th nearest transition), the paper's own.
    Sumo(SumoConfig),
    /// The largest noise a member predicts (MOPO).
    Aleatoric(AleatoricConfig),
    /// The widest disagreement on the next state (MOReL).
    Pairwise(PairwiseConfig),
    /// How one member differs from the rest (M2AC).
    LooKl(LooKlConfig),
    /// Spread of the members' means.
    EnsembleStd(EnsembleStdConfig),
    /// Spread of the whole mixture: means and noise.
    MixtureStd(MixtureStdConfig),
    /// How rarely the data holds what (s, a) hashes to (Kim & Oh).
    Count(CountConfig),
    /// Distance to the data along the model's own geometry (Tennenholtz & Mannor).
    Pullback(PullbackConfig),
    /// Spread of the next value over members (MOBILE); needs the critics, so only an algorithm can compute it.
    BellmanStd(BellmanStdConfig),
    /// Search-based: distance from what the data's nearest rows predict; our own.
    Fathom(FathomConfig),
}

impl Default for UncertaintyConfig {
    fn default() -> Self {
        Self::Sumo(SumoConfig::default())
    }
}

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
    /// Where indexes are kept between runs; `None` keeps nothing.
    pub home: Option<&'a Home>,
    /// Whether the largest score of the data will be asked for: to find it takes an ensemble's scores a pass over all rows.
    pub baseline: bool,
}

impl<'a> BuildContext<'a> {
    /// The data alone: enough for estimators that need no model.
    pub fn of_data(data: &'a Batch) -> Self {
        Self { data, model: None, pool: ThreadPool::new(1), seed: 0, home: None, baseline: true }
    }

    /// The ensemble, or an error that says who wants it.
    pub(super) fn model_for(&self, id: &str) -> Result<&'a Ensemble> {
        self.model.ok_or_else(|| {
            Error::Invalid(format!(
                "{id}: wanted a trained ensemble, found none; train one, or use an estimator that needs the data alone \
                 (sumo)"
            ))
        })
    }
}

impl UncertaintyConfig {
    /// Every estimator with its defaults, in the order of tables.
    pub fn all() -> Vec<Self> {
        vec![
            Self::Sumo(SumoConfig::default()),
            Self::Aleatoric(AleatoricConfig::default()),
            Self::Pairwise(PairwiseConfig::default()),
            Self::LooKl(LooKlConfig::default()),
            Self::EnsembleStd(EnsembleStdConfig::default()),
            Self::MixtureStd(MixtureStdConfig::default()),
            Self::Count(CountConfig::default()),
            Self::Pullback(PullbackConfig::default()),
            Self::BellmanStd(BellmanStdConfig::default()),
            Self::Fathom(FathomConfig::default()),
        ]
    }

    /// The estimator of that id with its defaults.
    ///
    /// # Errors
    /// An unknown id; the message names the nearest known one.
    pub fn from_id(id: &str) -> Result<Self> {
        let all = Self::all();
        if let Some(found) = all.iter().find(|c| c.id() == id) {
            return Ok(found.clone());
        }
        let ids: Vec<&str> = all.iter().map(Self::id).collect();
        Err(Error::unknown("estimator", id, &ids))
    }

    /// The id used on the command line, in files and in tables.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Sumo(_) => "sumo",
            Self::Aleatoric(_) => "aleatoric",
            Self::Pairwise(_) => "pairwise",
            Self::LooKl(_) => "loo-kl",
            Self::EnsembleStd(_) => "ensemble-std",
            Self::MixtureStd(_) => "mixture-std",
            Self::Count(_) => "count",
            Self::Pullback(_) => "pullback",
            Self::BellmanStd(_) => "bellman-std",
            Self::Fathom(_) => "fathom",
        }
    }

    /// Whether [`build`](Self::build) can serve it: all but `bellman-std`, which [`BellmanStd`](super::BellmanStd)
    /// computes from the critics.
    pub fn is_built_once(&self) -> bool {
        !matches!(self, Self::BellmanStd(_))
    }

    /// Says what is wrong with the settings for so many rows of data and a model like this, if anything:
    /// what would be said when the estimator is built, before the model is fitted.
    ///
    /// # Errors
    /// As [`build`](Self::build), as far as it can be known beforehand.
    pub fn check(&self, rows: usize, model: &EnsembleConfig) -> Result<()> {
        match self {
            Self::Sumo(c) => c.check(rows),
            Self::Count(_) if model.hidden.is_empty() => Err(linear()),
            Self::Count(c) => c.check(rows, model.members),
            Self::Pullback(c) => c.check(rows),
            Self::Fathom(c) => c.check(rows),
            Self::BellmanStd(c) => c.check(model.elites),
            Self::Aleatoric(_)
            | Self::Pairwise(_)
            | Self::LooKl(_)
            | Self::EnsembleStd(_)
            | Self::MixtureStd(_) => self.rule().map_or(Ok(()), |rule| fits(&*rule, model.members)),
        }
    }

    /// Refuses the estimator that needs critics, for whoever has none.
    ///
    /// # Errors
    /// See [`is_built_once`](Self::is_built_once).
    pub fn check_without_critics(&self) -> Result<()> {
        if self.is_built_once() { Ok(()) } else { Err(no_critics()) }
    }

    /// Builds the estimator.
    ///
    /// # Errors
    /// Data or model the estimator needs and the source lacks; settings the data cannot serve.
    pub fn build(&self, source: &BuildContext<'_>) -> Result<Box<dyn Uncertainty>> {
        let mut built = build_all(std::slice::from_ref(self), source)?;
        Ok(built.pop().expect("one config builds one estimator"))
    }

    /// The rule over members, for estimators that are one.
    fn rule(&self) -> Option<Box<dyn EnsembleScore>> {
        match self {
            Self::Aleatoric(c) => Some(Box::new(MaxAleatoric(c.clone()))),
            Self::Pairwise(c) => Some(Box::new(MaxPairwise(c.clone()))),
            Self::LooKl(c) => Some(Box::new(LooKl(c.clone()))),
            Self::EnsembleStd(_) => Some(Box::new(EnsembleStd)),
            Self::MixtureStd(_) => Some(Box::new(MixtureStd)),
            Self::Sumo(_) | Self::Count(_) | Self::Pullback(_) | Self::BellmanStd(_) | Self::Fathom(_) => {
                None
            }
        }
    }

    fn build_alone(&self, source: &BuildContext<'_>) -> Result<Box<dyn Uncertainty>> {
        match self {
            Self::Sumo(c) => {
                let threads = source.pool.threads();
                Ok(Box::new(match source.home {
                    Some(home) => Sumo::open(home, c, source.data, threads)?,
                    None => Sumo::new(c, source.data, threads)?,
                }))
            }
            Self::Count(c) => {
                let model = source.model_for("count")?;
                Ok(Box::new(Count::new(c, source.data, model, &source.pool, source.seed)?))
            }
            Self::Pullback(c) => Ok(Box::new(Pullback::new(c, source.data, &source.pool, source.seed)?)),
            Self::Fathom(c) => {
                let model = source.model.map(|m| m as &dyn DynamicsModel);
                Ok(Box::new(Fathom::new(c, source.data, model, &source.pool, source.seed)?))
            }
            Self::BellmanStd(_) => Err(no_critics()),
            Self::Aleatoric(_)
            | Self::Pairwise(_)
            | Self::LooKl(_)
            | Self::EnsembleStd(_)
            | Self::MixtureStd(_) => unreachable!("rules over members are built together"),
        }
    }
}

fn no_critics() -> Error {
    Error::Invalid(
        "bellman-std: wanted the critics, which exist only while an algorithm trains; train `mobile` with it, \
         or choose another estimator"
            .into(),
    )
}

/// Builds several estimators. Those that read the ensemble share one pass of forecasts over the data.
///
/// # Errors
/// As [`UncertaintyConfig::build`].
pub fn build_all(
    configs: &[UncertaintyConfig],
    source: &BuildContext<'_>,
) -> Result<Vec<Box<dyn Uncertainty>>> {
    let mut rules = Vec::new();
    for config in configs {
        if let Some(rule) = config.rule() {
            source.model_for(config.id())?;
            rules.push(rule);
        }
    }
    let mut by_members = match source.model {
        Some(model) if !rules.is_empty() => {
            EnsembleEstimator::calibrate(rules, model, source.data, source.baseline)?
        }
        _ => Vec::new(),
    }
    .into_iter();
    configs
        .iter()
        .map(|config| match config.rule().and_then(|_| by_members.next()) {
            Some(built) => Ok(Box::new(built) as Box<dyn Uncertainty>),
            None => config.build_alone(source),
        })
        .collect()
}
