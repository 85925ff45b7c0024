//! MOBILE (Sun et al. 2023): the critics' target of an imagined row is lowered by how much the next value depends on
//! which member imagines it. With any other estimator u is constant for a row, and y = (r − λû) + γ min Q̄ is MOPO's
//! target, so it runs as a [`recipe`] with MOBILE's own settings (no entropy in the target, floor 0).

use serde_json::{Value, json};

use super::practice::{Course, Lesson, Method, Mixed, practise};
use super::recipe::{self, RecipeConfig};
use super::session::Session;
use crate::data::Dataset;
use crate::dynamics::{DynamicsModel, Ensemble};
use crate::error::{Error, Result};
use crate::pessimism::{Normaliser, Pessimism};
use crate::rollout::ModelRollout;
use crate::sac::{Losses, Sac};
use crate::uncertainty::{BellmanStd, UncertaintyConfig};

/// Trains to the end, or until the watcher stops it; `None` then.
pub fn train(cfg: &RecipeConfig, session: &mut Session<'_>) -> Result<Option<Sac>> {
    let UncertaintyConfig::BellmanStd(estimator) = &cfg.uncertainty else {
        return recipe::train(cfg, session);
    };
    check(cfg)?;
    check_for(cfg, session.data)?;
    let lambda = lambda(cfg)?;
    let model = session.model(&cfg.model)?;
    let estimator = BellmanStd::new(estimator, model.elites())?;
    let mut mobile = Mobile { model: &model, estimator, lambda, u: (0.0, 0.0) };
    let course = Course { train: &cfg.train, rollout: &cfg.rollout, sac: &cfg.sac };
    practise(&mut mobile, course, session)
}

/// Says what is wrong with the values, if anything.
pub fn check(cfg: &RecipeConfig) -> Result<()> {
    cfg.check()?;
    match &cfg.uncertainty {
        UncertaintyConfig::BellmanStd(_) => lambda(cfg).map(drop),
        _ => Ok(()),
    }
}

/// Says what these data cannot serve, if anything, before a model is fitted to them.
pub fn check_for(cfg: &RecipeConfig, data: &Dataset) -> Result<()> {
    match &cfg.uncertainty {
        UncertaintyConfig::BellmanStd(own) => {
            cfg.model.check_for(data)?;
            own.validate_for(cfg.model.ensemble.elites)
        }
        _ => cfg.check_for(data),
    }
}

/// λ, from a rule that is a plain penalty.
fn lambda(cfg: &RecipeConfig) -> Result<f32> {
    match cfg.pessimism {
        Pessimism::Penalize { lambda, normaliser: Normaliser::None, reward_range: None }
            if lambda >= 0.0 && lambda.is_finite() =>
        {
            Ok(lambda)
        }
        other => {
            let found = serde_json::to_string(&other).unwrap_or_default();
            Err(Error::Invalid(format!(
                "pessimism: mobile with bellman-std wanted kind `penalize` with a lambda from 0 and normaliser `none`, \
                 for the score changes with the critics and has no largest value; found {found}"
            )))
        }
    }
}

struct Mobile<'a> {
    model: &'a Ensemble,
    estimator: BellmanStd,
    lambda: f32,
    /// Mean and largest score of the last batch.
    u: (f64, f32),
}

impl Method for Mobile<'_> {
    fn imagine(&mut self, session: &mut Session<'_>, agent: &Sac, lesson: &mut Lesson<'_>) -> Result<()> {
        let mut dream = ModelRollout::without_rule(self.model, session.pool);
        lesson.status.tally = Some(lesson.rollout(&mut dream, session, agent)?);
        Ok(())
    }

    fn update(&mut self, session: &mut Session<'_>, agent: &mut Sac, mixed: &mut Mixed) -> Result<Losses> {
        let imagined: Vec<usize> = (mixed.real..mixed.batch.len()).collect();
        if !imagined.is_empty() {
            let rows = mixed.batch.select(&imagined);
            let (model, pool) = (self.model, session.pool);
            let prediction = session.timer.time("prediction", || model.predict(&rows.obs, &rows.act));
            let mut rng = session.rng("bellman", mixed.step);
            let (estimator, reader) = (&self.estimator, &*agent);
            let u = session.timer.time("score", || estimator.score(&prediction, reader, pool, &mut rng));
            let (rewards, _) = mixed.imagined_rewards();
            rewards.iter_mut().zip(&u).for_each(|(r, u)| *r -= self.lambda * u);
            self.u = (
                u.iter().map(|&u| f64::from(u)).sum::<f64>() / u.len() as f64,
                u.fold(0.0, |a, b| a.max(*b)),
            );
        }
        let mut rng = session.rng("sac", mixed.step);
        session.timer.time("sac", || agent.update(&mixed.batch, &mut rng))
    }

    fn findings(&self, put: &mut dyn FnMut(&str, Value)) {
        put("u_mean", json!(self.u.0));
        put("u_max", json!(self.u.1));
    }
}
