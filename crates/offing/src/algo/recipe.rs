//! MOPO, AMOReL and MOReL-on-SAC, with any estimator: one loop, three rules of pessimism. Paper: Algorithms 1 and 2.
//! Deviations: docs/deviations.md.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::config::{ModelConfig, RolloutConfig, TrainConfig, check_estimator};
use super::practice::{Course, Lesson, Method, Mixed, practise};
use super::session::Session;
use crate::data::Dataset;
use crate::error::Result;
use crate::nn::Tensors;
use crate::pessimism::Pessimism;
use crate::rollout::ModelRollout;
use crate::sac::{Losses, Sac, SacConfig};
use crate::uncertainty::UncertaintyConfig;

/// A recipe: what scores a step, what is done about it, and how the policy learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecipeConfig {
    /// The training loop.
    pub train: TrainConfig,
    /// ModelBuffer rollouts.
    pub rollout: RolloutConfig,
    /// The dynamics model.
    pub model: ModelConfig,
    /// What scores a step.
    pub uncertainty: UncertaintyConfig,
    /// What is done about it.
    pub pessimism: Pessimism,
    /// The learner.
    pub sac: SacConfig,
}

impl Default for RecipeConfig {
    fn default() -> Self {
        Self {
            train: TrainConfig::default(),
            rollout: RolloutConfig::default(),
            model: ModelConfig::default(),
            uncertainty: UncertaintyConfig::default(),
            pessimism: Pessimism::Penalize {
                lambda: 1.0,
                normaliser: crate::pessimism::Normaliser::default(),
                reward_range: None,
            },
            sac: SacConfig::default(),
        }
    }
}

impl RecipeConfig {
    /// Says what is wrong with the values, if anything.
    pub fn check(&self) -> Result<()> {
        self.train.check()?;
        self.rollout.check()?;
        self.model.ensemble.check()?;
        self.sac.check()?;
        self.pessimism.check()
    }

    /// Says what these data cannot serve, if anything, before a model is fitted to them.
    pub fn check_for(&self, data: &Dataset) -> Result<()> {
        self.model.check_for(data)?;
        check_estimator(&self.uncertainty, &self.pessimism, &self.model, data.rows.len())
    }
}

/// Trains to the end, or until the watcher stops it; `None` then.
pub fn train(cfg: &RecipeConfig, session: &mut Session<'_>) -> Result<Option<Sac>> {
    cfg.check()?;
    cfg.check_for(session.data)?;
    let model = session.model(&cfg.model)?; // Alg. 1 line 3
    let (estimator, guard) = session.judge(&cfg.uncertainty, cfg.pessimism, &model)?; // Alg. 2 line 4: ε
    if let (Some(epsilon), Some(estimator)) = (guard.epsilon(), estimator.as_deref()) {
        let distance =
            estimator.distance_of(epsilon).map_or(String::new(), |d| format!(", a distance of {d:.3}"));
        session.note(format!("steps with u > {epsilon:.4}{distance} are cut (Eq. 7)"));
    }
    let dream = ModelRollout { model: &model, estimator: estimator.as_deref(), guard, pool: session.pool };
    let course = Course { train: &cfg.train, rollout: &cfg.rollout, sac: &cfg.sac };
    practise(&mut Recipe { pessimism: cfg.pessimism, dream }, course, session)
}

struct Recipe<'a> {
    pessimism: Pessimism,
    dream: ModelRollout<'a>,
}

impl Method for Recipe<'_> {
    /// Rolls out, and scores ahead what the batches until the next rollout will use.
    fn imagine(&mut self, session: &mut Session<'_>, agent: &Sac, lesson: &mut Lesson<'_>) -> Result<()> {
        let mut tally = lesson.rollout(&mut self.dream, session, agent)?;
        if let (Pessimism::Penalize { .. }, Some(estimator)) = (self.pessimism, self.dream.estimator) {
            let draws = lesson.draws(session);
            let (guard, imagined) = (&mut self.dream.guard, &mut *lesson.imagined);
            session
                .timer
                .time("search", || imagined.score(draws.into_iter(), estimator, guard, &mut tally))?;
        }
        lesson.status.tally = Some(tally);
        Ok(())
    }

    fn update(&mut self, session: &mut Session<'_>, agent: &mut Sac, mixed: &mut Mixed) -> Result<Losses> {
        let (rewards, scores) = mixed.imagined_rewards();
        self.dream.guard.penalise(rewards, scores); // Eq. 6
        let mut rng = session.rng("sac", mixed.step);
        session.timer.time("sac", || agent.update(&mixed.batch, &mut rng))
    }

    fn findings(&self, put: &mut dyn FnMut(&str, Value)) {
        if let Some(epsilon) = self.dream.guard.epsilon() {
            put("epsilon", json!(epsilon));
        }
        if self.pessimism.needs_scores() {
            put("reward_range", json!(self.dream.guard.reward_range()));
        }
    }

    fn save(&self, out: &mut Tensors) {
        out.put_f32("running_max", &[1], vec![self.dream.guard.running_max()]);
    }

    fn load(&mut self, from: &Tensors) -> Result<()> {
        self.dream.guard.restore(from.f32("running_max", &[1])?[0]);
        Ok(())
    }
}
