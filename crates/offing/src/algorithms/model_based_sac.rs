//! MOPO, AMOReL and MOReL-on-SAC, with any estimator: one loop, three rules of pessimism. Paper: Algorithms 1 and 2.
//! Deviations: docs/deviations.md.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Algorithm;
use super::config::{Blocks, ModelConfig, RolloutConfig, TrainConfig};
use super::sac_learner::SacLearner;
use super::session::Session;
use super::train_loop::{Checkpoint, TrainLoop};
use crate::error::Result;
use crate::nn::Tensors;
use crate::pessimism::{Normaliser, Pessimism};
use crate::rollout::ModelRollout;
use crate::sac::{Actor, Sac, SacConfig};
use crate::uncertainty::UncertaintyConfig;

/// Settings: what scores a step, what is done about it, and how the policy learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelBasedSacConfig {
    /// The training loop.
    pub train: TrainConfig,
    /// Rollouts in the model.
    pub rollout: RolloutConfig,
    /// The dynamics model.
    pub model: ModelConfig,
    /// What scores a step. `+ID` in the algorithm's name chooses a kind with its defaults: `mopo+fathom`. What each kind
    /// computes: docs/estimators.md. A program can register one of its own: `{ kind = "custom", name = "mine" }`.
    pub uncertainty: UncertaintyConfig,
    /// What is done about it.
    pub pessimism: Pessimism,
    /// The learner.
    pub sac: SacConfig,
}

impl Default for ModelBasedSacConfig {
    fn default() -> Self {
        Self {
            train: TrainConfig::default(),
            rollout: RolloutConfig::default(),
            model: ModelConfig::default(),
            uncertainty: UncertaintyConfig::default(),
            pessimism: Pessimism::Penalize {
                lambda: 1.0,
                normaliser: Normaliser::default(),
                reward_range: None,
            },
            sac: SacConfig::default(),
        }
    }
}

impl Algorithm for ModelBasedSacConfig {
    fn blocks(&self) -> Blocks<'_> {
        Blocks {
            train: &self.train,
            rollout: Some(&self.rollout),
            model: Some(&self.model),
            uncertainty: Some(&self.uncertainty),
            pessimism: Some(&self.pessimism),
            sac: Some(&self.sac),
        }
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Option<Actor>> {
        Ok(self.learn(session)?.map(|agent| agent.actor))
    }
}

impl ModelBasedSacConfig {
    /// The whole loop, apart from `run` because calibration needs the critics: returns the agent with its critics, or `None` when an event handler asked to stop.
    ///
    /// # Errors
    /// As [`Algorithm::run`].
    pub(crate) fn learn(&self, session: &mut Session<'_>) -> Result<Option<Sac>> {
        let model = session.fit_model(&self.model)?; // Alg. 1 line 3
        let estimator = session.build_estimator(&self.uncertainty, &self.pessimism, &model)?;
        let rule = session.calibrate(self.pessimism, estimator.as_deref())?; // Alg. 2 line 4: ε
        let rollout = ModelRollout {
            model: &model,
            estimator: estimator.as_deref(),
            rule,
            pool: session.pool,
            one_member: self.rollout.one_member,
        };
        let learner =
            SacLearner::new(session, &self.sac, &self.rollout, (self.train.steps, self.train.batch))?; // lines 1, 2
        let mut state = State { learner, rollout };
        let mut train = TrainLoop::start(session, &self.train, self.rollout.every, &mut state)?;
        while let Some(step) = train.next(&state)? {
            let State { learner, rollout } = &mut state;
            if step.starts_block {
                learner.rollout(&mut train, rollout, step)?; // lines 6–11; Alg. 2 lines 7–15
            }
            let batch = learner.sample(train.session, step); // line 12
            let imagined = batch.imagined();
            rollout.rule.penalise(imagined.rewards, imagined.u); // Eq. 6
            let losses = learner.update(train.session, step)?; // line 13
            if train.finish_step(losses) {
                let mut metrics = learner.metrics(&losses);
                if let Some(epsilon) = rollout.rule.epsilon() {
                    metrics.put("epsilon", json!(epsilon));
                }
                if self.pessimism.needs_scores() {
                    metrics.put("reward_range", json!(rollout.rule.reward_range()));
                }
                train.session.follow(rollout.model, &learner.agent.actor, &mut metrics)?;
                train.evaluate(&learner.agent.actor, metrics)?;
            }
            train.show_policy(|| Ok(learner.agent.actor.clone()))?;
        }
        let agent = state.learner.agent;
        Ok(train.finish(&agent.actor)?.then_some(agent))
    }
}

/// What a checkpoint keeps.
struct State<'a> {
    learner: SacLearner,
    rollout: ModelRollout<'a>,
}

impl Checkpoint for State<'_> {
    fn save(&self, out: &mut Tensors) {
        self.learner.save(out);
        out.put_f32("running_max", &[1], vec![self.rollout.rule.running_max()]);
    }

    fn load(&mut self, from: &Tensors) -> Result<()> {
        self.learner.load(from)?;
        self.rollout.rule.restore(from.f32("running_max", &[1])?[0]);
        Ok(())
    }
}
