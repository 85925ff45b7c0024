//! The list of estimators, by name, and how each is built.

use serde::{Deserialize, Serialize};

use super::Uncertainty;
use super::aleatoric::{AleatoricConfig, MaxAleatoric};
use super::members::{ByMembers, Rule};
use super::pairwise::{MaxPairwise, PairwiseConfig};
use super::sumo::{Sumo, SumoConfig};
use crate::batch::Batch;
use crate::dynamics::Ensemble;
use crate::error::{Error, Result};
use crate::home::Home;
use crate::nn::Team;

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
}

impl Default for UncertaintyConfig {
    fn default() -> Self {
        Self::Sumo(SumoConfig::default())
    }
}

/// What estimators are built from.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// The dataset's rows.
    pub data: &'a Batch,
    /// The trained ensemble, for estimators that read it.
    pub model: Option<&'a Ensemble>,
    /// Threads for building and scoring.
    pub team: Team,
    /// Seed of what is drawn or trained while building.
    pub seed: u64,
    /// Where indexes are kept between runs; `None` keeps nothing.
    pub home: Option<&'a Home>,
}

impl<'a> Source<'a> {
    /// The data alone: enough for estimators that need no model.
    pub fn of_data(data: &'a Batch) -> Self {
        Self { data, model: None, team: Team::new(1), seed: 0, home: None }
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
        let near =
            ids.iter().max_by(|a, b| strsim::jaro_winkler(a, id).total_cmp(&strsim::jaro_winkler(b, id)));
        let near = near.map(|n| format!("did you mean `{n}`? ")).unwrap_or_default();
        let hint = format!("{near}known: {}", ids.join(" "));
        Err(Error::Unknown { kind: "estimator", name: id.into(), hint })
    }

    /// The id used on the command line, in files and in tables.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Sumo(_) => "sumo",
            Self::Aleatoric(_) => "aleatoric",
            Self::Pairwise(_) => "pairwise",
        }
    }

    /// Builds the estimator.
    ///
    /// # Errors
    /// Data or model the estimator needs and the source lacks; settings the data cannot serve.
    pub fn build(&self, source: &Source<'_>) -> Result<Box<dyn Uncertainty>> {
        let mut built = build_all(std::slice::from_ref(self), source)?;
        Ok(built.pop().expect("one config builds one estimator"))
    }

    /// The rule over members, for estimators that are one.
    fn rule(&self) -> Option<Box<dyn Rule>> {
        match self {
            Self::Aleatoric(c) => Some(Box::new(MaxAleatoric(c.clone()))),
            Self::Pairwise(c) => Some(Box::new(MaxPairwise(c.clone()))),
            Self::Sumo(_) => None,
        }
    }

    fn build_alone(&self, source: &Source<'_>) -> Result<Box<dyn Uncertainty>> {
        match self {
            Self::Sumo(c) => Ok(Box::new(Sumo::new(c, source.data, source.team.threads())?)),
            Self::Aleatoric(_) | Self::Pairwise(_) => unreachable!("rules over members are built together"),
        }
    }
}

/// Builds several estimators. Those that read the ensemble share one pass of forecasts over the data.
///
/// # Errors
/// As [`UncertaintyConfig::build`].
pub fn build_all(configs: &[UncertaintyConfig], source: &Source<'_>) -> Result<Vec<Box<dyn Uncertainty>>> {
    let mut rules = Vec::new();
    for config in configs {
        if let Some(rule) = config.rule() {
            source.model_for(config.id())?;
            rules.push(rule);
        }
    }
    let mut by_members = match source.model {
        Some(model) if !rules.is_empty() => ByMembers::calibrate(rules, model, source.data)?,
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
