//! The calibration study: does an estimator know where an imagined step is wrong? (Tables 2, 3, 5 and 9 of the paper.)
//!
//! A policy trained in the model without any penalty rolls out in it; every imagined (s, a) is replayed in the real
//! simulator, or, without one, held-out transitions stand for it; the true error of ŝ' is compared with each
//! estimator's score.

mod findings;
mod rows;
#[cfg(test)]
mod tests;

pub use findings::{Finding, Part, Study, Timing, Variant, judge};
pub use rows::{Imaginings, Truth, held_out, imagine};

use serde::{Deserialize, Serialize};

use crate::algorithms::model_based_sac::ModelBasedSacConfig;
use crate::algorithms::{self, ModelConfig, RolloutConfig, Session, TrainConfig};
use crate::data::Dataset;
use crate::dynamics::{Ensemble, Oracle};
use crate::error::{Error, Result};
use crate::pessimism::Pessimism;
use crate::sac::{Sac, SacConfig};
use crate::uncertainty::UncertaintyConfig;

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

    /// Says what is wrong with the values, if anything.
    pub fn check(&self) -> Result<()> {
        for (name, value) in [("starts", self.starts), ("length", self.length)] {
            if value == 0 {
                return Err(Error::Invalid(format!("{name}: wanted at least 1, found 0; the paper has 100")));
            }
        }
        algorithms::validate(&self.training())
    }

    /// Says what these data cannot serve, if anything, before a model is fitted to them.
    pub fn check_for(&self, data: &Dataset, estimators: &[(String, UncertaintyConfig)]) -> Result<()> {
        self.model.validate_for(data)?;
        estimators.iter().try_for_each(|(_, config)| config.validate(data.rows.len(), &self.model.ensemble))
    }
}

/// The model and the policy that a study looks at.
pub struct Subject {
    /// The dynamics model.
    pub model: Ensemble,
    /// The agent trained in it.
    pub agent: Sac,
}

/// Fits the model (or finds it) and trains the policy in the session's run directory, without any penalty. `None` when
/// the watcher stopped it; the next call goes on.
pub fn prepare(cfg: &StudyConfig, session: &mut Session<'_>) -> Result<Option<Subject>> {
    let training = cfg.training();
    algorithms::validate(&training)?;
    algorithms::validate_for(&training, session.data)?;
    let Some(agent) = training.learn(session)? else { return Ok(None) };
    Ok(Some(Subject { model: session.fit_model(&cfg.model)?, agent }))
}

/// Who knows what really follows a step.
#[derive(Clone, Copy)]
pub enum World<'a> {
    /// The simulator: every imagined step can be judged.
    Simulated(&'a Oracle<'a>),
    /// Logged transitions that the model has not seen: single steps from them can be judged.
    HeldOut(&'a Dataset),
}

/// Imagines, replays and judges: the whole study of one seed, once the subject is there.
pub fn study(
    cfg: &StudyConfig,
    estimators: &[(String, UncertaintyConfig)],
    subject: &Subject,
    world: World<'_>,
    session: &mut Session<'_>,
) -> Result<Study> {
    let (imaginings, truth) = match world {
        World::Simulated(oracle) => {
            let start = session.sample_starts(cfg.starts, &mut session.rng("calibrate/start", 0));
            let mut rng = session.rng("calibrate/rollout", 0);
            let imaginings =
                imagine(&subject.model, &subject.agent.actor, session.pool, start, cfg.length, &mut rng);
            let truth = Truth::of(&imaginings, oracle)?;
            (imaginings, truth)
        }
        World::HeldOut(logged) => {
            let mut rng = session.rng("calibrate/rows", 0);
            held_out(logged, &subject.model, cfg.starts * cfg.length, &mut rng)
        }
    };
    let mut found = judge(cfg, estimators, subject, &imaginings, &truth, session)?;
    found.simulated = matches!(world, World::Simulated(_));
    Ok(found)
}
