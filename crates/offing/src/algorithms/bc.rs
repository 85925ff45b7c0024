//! Behaviour cloning: imitates the dataset, so it tells what the data alone are worth.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Algorithm;
use super::config::{Blocks, TrainConfig};
use super::record::Metrics;
use super::session::Session;
use super::train_loop::{Checkpoint, TrainLoop};
use crate::batch::Batch;
use crate::data::Dataset;
use crate::error::{Result, invalid};
use crate::nn::Tensors;
use crate::replay::gather;
use crate::sac::{Actor, Cloner, Losses, Objective};

/// Behaviour cloning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BcConfig {
    /// The training loop.
    pub train: TrainConfig,
    /// Hidden widths of the policy.
    pub hidden: Vec<usize>,
    /// Normalise the policy's hidden layers (linear, layer normalisation, ReLU).
    // Not written down at its default: runs keep the names they had before there was a choice.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub layer_norm: bool,
    /// Learning rate.
    pub lr: f64,
    /// What is minimised.
    pub objective: Objective,
    /// Learn from this share of the episodes only, those with the largest returns.
    pub best_share: f64,
}

impl Default for BcConfig {
    fn default() -> Self {
        Self {
            train: TrainConfig { steps: 100_000, ..TrainConfig::default() },
            hidden: vec![256; 2],
            layer_norm: false,
            lr: 1e-3,
            objective: Objective::default(),
            best_share: 1.0,
        }
    }
}

impl Algorithm for BcConfig {
    fn blocks(&self) -> Blocks<'_> {
        Blocks::new(&self.train)
    }

    fn validate(&self) -> Result<()> {
        if !(self.lr > 0.0 && self.lr.is_finite()) {
            return Err(invalid!("lr: wanted a positive number, found {}", self.lr));
        }
        if self.hidden.iter().any(|&width| width < 2) {
            return Err(invalid!("hidden: wanted widths of at least 2, found {:?}", self.hidden));
        }
        if !(self.best_share > 0.0 && self.best_share <= 1.0) {
            return Err(invalid!(
                "best_share: wanted a share above 0 and up to 1, found {}; 0.1 is usual",
                self.best_share
            ));
        }
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Option<Actor>> {
        let data = &session.data.rows;
        let rows = best_rows(session.data, self.best_share);
        let (obs_dim, act_dim) = (data.obs_dim(), data.act_dim());
        let actor = Actor::new(obs_dim, act_dim, &self.hidden, [-5.0, 2.0], &mut session.rng("init", 0))
            .with_layer_norm(self.layer_norm)
            .centred_on(&data.act);
        let mut state = State { actor, cloner: Cloner::new(self.objective, self.lr) };
        let mut batch = Batch::empty(obs_dim, act_dim);
        let mut train = TrainLoop::start(session, &self.train, 1, &mut state)?;
        while let Some(step) = train.next(&state)? {
            let (session, State { actor, cloner }) = (&mut *train.session, &mut state);
            let mut rng = session.rng("batch", step.index);
            let picks: Vec<usize> = (0..self.train.batch).map(|_| rows[rng.below(rows.len())]).collect();
            gather(data, &picks, &mut batch);
            let pool = session.pool;
            let loss = session.timer.time("cloning", || cloner.step(actor, pool, &batch))?;
            if train.finish_step(Losses { actor: loss, ..Losses::default() }) {
                let mut metrics = Metrics::default();
                metrics.put("cloning_loss", json!(loss));
                train.evaluate(actor, metrics)?;
            }
            train.show_policy(|| Ok(actor.clone()))?;
        }
        Ok(train.finish(&state.actor)?.then_some(state.actor))
    }
}

/// What a checkpoint keeps.
struct State {
    actor: Actor,
    cloner: Cloner,
}

impl Checkpoint for State {
    fn save(&self, out: &mut Tensors) {
        *out = self.cloner.save(&self.actor);
    }

    fn load(&mut self, from: &Tensors) -> Result<()> {
        self.cloner.load(&mut self.actor, from)
    }
}

/// Rows of the best episodes, or of all.
fn best_rows(data: &Dataset, share: f64) -> Vec<usize> {
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
