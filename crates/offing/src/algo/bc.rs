//! Behaviour cloning: imitates the dataset, so it tells what the data alone are worth.

use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use super::config::TrainConfig;
use super::session::{Session, Status};
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::replay::gather;
use crate::run::ControlFlow;
use crate::sac::{Actor, Cloner, Objective};

/// Settings of behaviour cloning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BcConfig {
    /// The training loop.
    pub train: TrainConfig,
    /// Hidden widths of the policy.
    pub hidden: Vec<usize>,
    /// Learning rate.
    pub lr: f64,
    /// What is minimised.
    pub objective: Objective,
    /// Learn only from this share of the episodes, those with the largest returns.
    pub best_share: f64,
}

impl Default for BcConfig {
    fn default() -> Self {
        Self {
            train: TrainConfig { steps: 100_000, ..TrainConfig::default() },
            hidden: vec![256; 2],
            lr: 1e-3,
            objective: Objective::default(),
            best_share: 1.0,
        }
    }
}

impl BcConfig {
    /// Says what is wrong with the values, if anything.
    pub fn check(&self) -> Result<()> {
        self.train.check()?;
        if !(self.lr > 0.0 && self.lr.is_finite()) {
            return Err(Error::Invalid(format!("lr: wanted a positive number, found {}", self.lr)));
        }
        if self.hidden.iter().any(|&width| width < 2) {
            return Err(Error::Invalid(format!(
                "hidden: wanted widths of at least 2, found {:?}",
                self.hidden
            )));
        }
        if !(self.best_share > 0.0 && self.best_share <= 1.0) {
            return Err(Error::Invalid(format!(
                "best_share: wanted a share above 0 and up to 1, found {}; 0.1 is usual",
                self.best_share
            )));
        }
        Ok(())
    }
}

/// Trains to the end, or until the watcher stops it; `None` then.
pub fn train(cfg: &BcConfig, session: &mut Session<'_>) -> Result<Option<Actor>> {
    cfg.check()?;
    let data = &session.data.rows;
    let rows = best_rows(session, cfg.best_share);
    let (obs_dim, act_dim) = (data.obs_dim(), data.act_dim());
    let mut actor = Actor::new(obs_dim, act_dim, &cfg.hidden, [-5.0, 2.0], &mut session.rng("init", 0));
    let mut cloner = Cloner::new(cfg.objective, cfg.lr);
    let mut status = Status { steps: cfg.train.steps, ..Status::default() };
    if let Some((step, state)) = session.resume(cfg.train.steps)? {
        status.step = step;
        cloner.load(&mut actor, &state)?;
    }
    let mut batch = Batch::empty(obs_dim, act_dim);
    while status.step < cfg.train.steps {
        let mut rng = session.rng("batch", status.step);
        let picks: Vec<usize> = (0..cfg.train.batch).map(|_| rows[rng.below(rows.len())]).collect();
        gather(data, &picks, &mut batch);
        let pool = session.pool;
        let loss = session.timer.time("cloning", || cloner.step(&mut actor, pool, &batch))?;
        status.step += 1;
        status.losses.actor = loss;
        if status.step.is_multiple_of(cfg.train.evaluate_every) || status.step == cfg.train.steps {
            let values = Map::from_iter([("cloning_loss".to_string(), json!(loss))]);
            session.record(&cfg.train, &mut status, &actor, values)?;
        }
        let stop = status.step.is_multiple_of(100) && session.tell(&status) == ControlFlow::Break(());
        if stop || status.step.is_multiple_of(cfg.train.checkpoint_every) || status.step == cfg.train.steps {
            session.checkpoint(status.step, cloner.save(&actor))?;
        }
        if stop && status.step < cfg.train.steps {
            return Ok(None);
        }
    }
    let _ = session.tell(&status);
    session.finish(&actor)?;
    Ok(Some(actor))
}

/// Rows of the best episodes, or of all.
fn best_rows(session: &Session<'_>, share: f64) -> Vec<usize> {
    let data = session.data;
    if share == 1.0 {
        return (0..data.rows.len()).collect();
    }
    let total =
        |rows: &std::ops::Range<usize>| rows.clone().map(|i| f64::from(data.rows.rew[i])).sum::<f64>();
    let mut episodes: Vec<_> = data.episodes.iter().map(|e| (total(e), e.clone())).collect();
    episodes.sort_by(|a, b| b.0.total_cmp(&a.0));
    let kept = ((episodes.len() as f64 * share).ceil() as usize).max(1);
    let mut rows: Vec<usize> = episodes.into_iter().take(kept).flat_map(|(_, e)| e).collect();
    rows.sort_unstable();
    rows
}
