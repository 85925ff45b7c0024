//! MOBILE (Sun et al. 2023): the critics' target of an imagined row is lowered by how much the next value depends on
//! which member imagines it. With any other estimator u is constant for a row, and y = (r − λû) + γ min Q̄ is MOPO's
//! target, so it runs as [`model_based_sac`](super::model_based_sac) with MOBILE's own settings (no entropy in the target, floor 0).

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Algorithm;
use super::config::Blocks;
use super::model_based_sac::ModelBasedSacConfig;
use super::sac_learner::{MixedBatch, SacLearner};
use super::session::Session;
use super::train_loop::{Step, TrainLoop};
use crate::dynamics::Ensemble;
use crate::error::{Result, invalid};
use crate::pessimism::{Normaliser, Pessimism};
use crate::rollout::ModelRollout;
use crate::sac::{Actor, Sac};
use crate::uncertainty::{BellmanStd, BellmanStdConfig, EstimatorConfig, UncertaintyConfig};

/// Settings of MOBILE: those of the other model-based algorithms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MobileConfig(pub ModelBasedSacConfig);

impl Algorithm for MobileConfig {
    fn blocks(&self) -> Blocks<'_> {
        let blocks = self.0.blocks();
        // Its own score is built from the critics, so nothing can be said about it beforehand but in `validate`.
        Blocks { uncertainty: blocks.uncertainty.filter(|_| self.bellman_std().is_none()), ..blocks }
    }

    fn validate(&self) -> Result<()> {
        let (Some(own), cfg) = (self.bellman_std(), &self.0) else { return Ok(()) };
        own.validate(usize::MAX, &cfg.model.ensemble)?;
        lambda(cfg).map(drop)
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Option<Actor>> {
        let cfg = &self.0;
        let Some(estimator) = self.bellman_std() else { return cfg.run(session) };
        let lambda = lambda(cfg)?;
        let model = session.fit_model(&cfg.model)?;
        // The forecasts that it sees are the elites'.
        let estimator = BellmanStd::new(estimator, &(0..model.elites().len()).collect::<Vec<_>>())?;
        let mut rollout = ModelRollout::without_rule(&model, session.pool);
        let mut learner =
            SacLearner::new(session, &cfg.sac, &cfg.rollout, (cfg.train.steps, cfg.train.batch))?;
        let mut train = TrainLoop::start(session, &cfg.train, cfg.rollout.every, &mut learner)?;
        while let Some(step) = train.next(&learner)? {
            if step.starts_block {
                learner.rollout(&mut train, &mut rollout, step)?;
            }
            learner.sample(train.session, step);
            let SacLearner { agent, batch, .. } = &mut learner;
            let u = penalise(batch, &model, &estimator, agent, lambda, train.session, step);
            let losses = learner.update(train.session, step)?;
            if train.finish_step(losses) {
                let mut metrics = learner.metrics(&losses);
                metrics.put(
                    "u_mean",
                    json!(u.iter().map(|&u| f64::from(u)).sum::<f64>() / u.len().max(1) as f64),
                );
                metrics.put("u_max", json!(u.iter().fold(0.0f32, |a, b| a.max(*b))));
                train.session.follow(rollout.model, &learner.agent.actor, &mut metrics)?;
                train.evaluate(&learner.agent.actor, metrics)?;
            }
            train.show_policy(|| Ok(learner.agent.actor.clone()))?;
        }
        let actor = learner.agent.actor;
        Ok(train.finish(&actor)?.then_some(actor))
    }
}

impl MobileConfig {
    /// MOBILE's own score, if it is the one in use.
    fn bellman_std(&self) -> Option<&BellmanStdConfig> {
        match &self.0.uncertainty {
            UncertaintyConfig::BellmanStd(own) => Some(own),
            _ => None,
        }
    }
}

/// r ← r − λ·u on the imagined rows, u the spread over members of γ min Q̄(s', a'); returns u.
fn penalise(
    batch: &mut MixedBatch,
    model: &Ensemble,
    estimator: &BellmanStd,
    agent: &Sac,
    lambda: f32,
    session: &mut Session<'_>,
    step: Step,
) -> Vec<f32> {
    if batch.real == batch.rows.len() {
        return Vec::new();
    }
    let rows = batch.rows.select(&(batch.real..batch.rows.len()).collect::<Vec<_>>());
    let prediction =
        session.timer.time("forecast", || model.predict_by(model.elites(), &rows.obs, &rows.act));
    let (mut rng, pool) = (session.rng("bellman", step.index), session.pool);
    let u = session.timer.time("score", || estimator.score(&prediction, agent, pool, &mut rng)).to_vec();
    let rewards = batch.imagined().rewards;
    rewards.iter_mut().zip(&u).for_each(|(r, u)| *r -= lambda * u);
    u
}

/// λ, from a rule that is a plain penalty.
fn lambda(cfg: &ModelBasedSacConfig) -> Result<f32> {
    match cfg.pessimism {
        Pessimism::Penalize { lambda, normaliser: Normaliser::None, reward_range: None }
            if lambda >= 0.0 && lambda.is_finite() =>
        {
            Ok(lambda)
        }
        other => {
            let found = serde_json::to_string(&other).unwrap_or_default();
            Err(invalid!(
                "pessimism: mobile with bellman-std wanted kind `penalize` with a lambda from 0 and normaliser `none`, \
                 for the score changes with the critics and has no largest value; found {found}"
            ))
        }
    }
}
