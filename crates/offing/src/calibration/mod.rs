//! The calibration study: does an estimator know where the model is wrong? (Tables 2, 3, 5 and 9 of the paper.)
//!
//! A policy trained in the model without any penalty rolls out in it; every (s, a) of its rollouts is replayed in the real
//! simulator. Without a simulator, held-out transitions take its place. The study compares the true error of ŝ' with each
//! estimator's score.

mod rows;
mod study;
#[cfg(test)]
mod tests;

pub use study::{EstimatorResult, NextObsKind, RowSubset, Study, Timing};

use serde::{Deserialize, Serialize};

use crate::algorithms::model_based_sac::ModelBasedSacConfig;
use crate::algorithms::{self, ModelConfig, RolloutConfig, Session, TrainConfig};
use crate::data::Dataset;
use crate::dynamics::{Ensemble, Oracle};
use crate::error::{Result, require};
use crate::pessimism::Pessimism;
use crate::sac::{Sac, SacConfig};
use crate::uncertainty::{CustomEstimator, UncertaintyConfig};
use rows::{RolloutRows, TrueSteps};

/// What to study. Defaults are the paper's protocol (spec of Table 2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StudyConfig {
    /// States of the dataset that rollouts start from.
    pub starts: usize,
    /// Steps of a rollout; none is cut short.
    pub length: usize,
    /// Draws of the bootstrap behind the intervals.
    pub bootstrap: usize,
    /// The dynamics model.
    pub model: ModelConfig,
    /// Training of the policy, in the model and without penalty.
    pub train: TrainConfig,
    /// Its rollouts.
    pub rollout: RolloutConfig,
    /// Its learner.
    pub sac: SacConfig,
}

impl Default for StudyConfig {
    fn default() -> Self {
        Self {
            starts: 100,
            length: 100,
            bootstrap: 200,
            model: ModelConfig::default(),
            train: TrainConfig::default(),
            rollout: RolloutConfig::default(),
            sac: SacConfig::default(),
        }
    }
}

impl StudyConfig {
    /// How the policy is trained: in the model, without any penalty.
    fn training(&self) -> ModelBasedSacConfig {
        ModelBasedSacConfig {
            train: self.train.clone(),
            rollout: self.rollout.clone(),
            model: self.model.clone(),
            uncertainty: UncertaintyConfig::default(),
            pessimism: Pessimism::Ignore {},
            sac: self.sac.clone(),
        }
    }

    /// Finds values that cannot work.
    pub fn validate(&self) -> Result<()> {
        for (name, value) in [("starts", self.starts), ("length", self.length)] {
            require!(value > 0, "{name}: wanted at least 1, found 0; the paper has 100");
        }
        algorithms::validate(&self.training())
    }

    /// Finds what cannot work with these data and estimators, before a model is fitted.
    pub fn validate_for(
        &self,
        data: &Dataset,
        estimators: &[(String, UncertaintyConfig)],
        custom: &[CustomEstimator<'_>],
    ) -> Result<()> {
        self.model.validate_for(data)?;
        estimators.iter().try_for_each(|(_, config)| {
            config.validate_registered(custom)?;
            config.validate(data.rows.len(), &self.model.ensemble)
        })
    }
}

/// The model and the policy that a study looks at.
pub struct Subject {
    /// The dynamics model.
    pub model: Ensemble,
    /// The agent trained in it.
    pub agent: Sac,
}

/// Fits the model, or finds it in the cache, and trains the policy in the session's run directory, without any penalty.
/// `None` when the event handler stopped it; the next call resumes it.
pub fn prepare(cfg: &StudyConfig, session: &mut Session<'_>) -> Result<Option<Subject>> {
    let training = cfg.training();
    algorithms::validate(&training)?;
    algorithms::validate_for(&training, session.data)?;
    let Some(agent) = training.learn(session)? else { return Ok(None) };
    Ok(Some(Subject { model: session.fit_model(&cfg.model)?, agent }))
}

/// Where the true next states come from.
#[derive(Clone, Copy)]
pub enum TruthSource<'a> {
    /// The simulator replays every step of the rollouts.
    Simulator(&'a Oracle<'a>),
    /// Logged transitions that the model has not seen: only single steps from them can be compared.
    HeldOut(&'a Dataset),
}

/// The whole study of one seed: rolls the subject's policy out, finds the true next states and compares the estimators,
/// each under a name. Those of [`UncertaintyConfig::Custom`] are found in the session.
pub fn study(
    cfg: &StudyConfig,
    estimators: &[(String, UncertaintyConfig)],
    subject: &Subject,
    source: TruthSource<'_>,
    session: &mut Session<'_>,
) -> Result<Study> {
    let (rows, truth) = match source {
        TruthSource::Simulator(oracle) => {
            let start = session.sample_starts(cfg.starts, &mut session.rng("calibrate/start", 0));
            let mut rng = session.rng("calibrate/rollout", 0);
            let actor = &subject.agent.actor;
            let rows = RolloutRows::new(&subject.model, actor, session.pool, start, cfg.length, &mut rng);
            let truth = TrueSteps::replay(&rows, oracle)?;
            (rows, truth)
        }
        TruthSource::HeldOut(logged) => {
            let mut rng = session.rng("calibrate/rows", 0);
            rows::held_out(logged, &subject.model, cfg.starts * cfg.length, &mut rng)
        }
    };
    let found = study::compare_estimators(cfg, estimators, subject, (&rows, &truth), session)?;
    Ok(Study { simulated: matches!(source, TruthSource::Simulator(_)), ..found })
}
