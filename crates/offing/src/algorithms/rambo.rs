//! RAMBO (Rigter et al. 2022): no estimator; the model itself turns against the policy, within what the data allow.
//!
//! The actor starts as a clone of the data. After the gradient steps between two rollouts the model takes as many of its
//! own: rows that the policy imagines become likelier where it does worse than its critics expect, and real rows stay
//! likely ([`Adversary`]).

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Algorithm;
use super::config::{Blocks, ModelConfig, RolloutConfig, TrainConfig};
use super::sac_learner::SacLearner;
use super::session::{Session, Status};
use super::train_loop::{Checkpoint, TrainLoop};
use crate::batch::{Batch, Mat};
use crate::dynamics::{Adversary, AdversaryConfig, AdversaryLosses, Ensemble};
use crate::error::{Error, Result, invalid};
use crate::nn::{Tensors, ThreadPool, Weights};
use crate::rollout::ModelRollout;
use crate::sac::{Actor, Cloner, Objective, Sac, SacConfig};

/// Settings of RAMBO.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RamboConfig {
    /// The training loop.
    pub train: TrainConfig,
    /// Imagined rollouts; their length is also that of the adversary's.
    pub rollout: RolloutConfig,
    /// The dynamics model.
    pub model: ModelConfig,
    /// The model's steps against the policy.
    pub adversary: Opponent,
    /// The cloning that the actor starts with.
    pub cloning: Cloning,
    /// The learner.
    pub sac: SacConfig,
}

/// The model's steps against the policy (RAMBO).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Opponent {
    /// Weight of the adversarial loss (λ). 0 leaves the model alone, as in the authors' code.
    pub lambda: f64,
    /// Model steps for every gradient step of the learner.
    pub ratio: f64,
    /// Imagined rows, and real rows, of a model step.
    pub batch: usize,
    /// The optimiser.
    pub step: AdversaryConfig,
}

impl Default for Opponent {
    fn default() -> Self {
        Self { lambda: 3e-4, ratio: 1.0, batch: 256, step: AdversaryConfig::default() }
    }
}

/// The cloning that RAMBO's actor starts with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cloning {
    /// Gradient steps before the first rollout; 0 for none.
    pub steps: u64,
    /// Rows in a batch.
    pub batch: usize,
    /// Learning rate.
    pub lr: f64,
    /// What is minimised.
    pub objective: Objective,
}

impl Default for Cloning {
    fn default() -> Self {
        Self { steps: 50_000, batch: 256, lr: 1e-4, objective: Objective::Nll }
    }
}

impl Algorithm for RamboConfig {
    fn blocks(&self) -> Blocks<'_> {
        Blocks {
            rollout: Some(&self.rollout),
            model: Some(&self.model),
            sac: Some(&self.sac),
            ..Blocks::new(&self.train)
        }
    }

    fn validate(&self) -> Result<()> {
        let (opponent, cloning) = (&self.adversary, &self.cloning);
        for (name, value, least) in [
            ("adversary.lambda", opponent.lambda, 0.0),
            ("adversary.ratio", opponent.ratio, 0.0),
            ("adversary.batch", opponent.batch as f64, 1.0),
            ("cloning.batch", cloning.batch as f64, 1.0),
        ] {
            if !(value >= least && value.is_finite()) {
                return Err(invalid!("{name}: wanted a number from {least}, found {value}"));
            }
        }
        if !(cloning.lr > 0.0 && cloning.lr.is_finite()) {
            return Err(invalid!("cloning.lr: wanted a positive number, found {}", cloning.lr));
        }
        self.clone().resolved().adversary.step.validate_for(self.model.ensemble.hidden.len() + 1)
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Option<Actor>> {
        let cfg = &self.clone().resolved();
        let model = session.fit_model(&cfg.model)?;
        let adversary = model.adversary(&cfg.adversary.step)?;
        let learner = SacLearner::new(session, &cfg.sac, &cfg.rollout, (cfg.train.steps, cfg.train.batch))?;
        let mut state = State { learner, model, adversary, found: AdversaryLosses::default() };
        let mut train = TrainLoop::start(session, &cfg.train, cfg.rollout.every, &mut state)?;
        if !train.is_resumed() {
            clone_data(&cfg.cloning, train.session, &mut state.learner.agent)?; // π ← imitation of the data
        }
        while let Some(step) = train.next(&state)? {
            if step.starts_block {
                let mut rollout = ModelRollout::without_rule(&state.model, train.session.pool);
                state.learner.rollout(&mut train, &mut rollout, step)?;
            }
            state.learner.sample(train.session, step);
            let losses = state.learner.update(train.session, step)?;
            if train.finish_step(losses) {
                let mut metrics = state.learner.metrics(&losses);
                metrics.put("model_nll", json!(state.found.nll));
                metrics.put("model_adversarial", json!(state.found.adversarial));
                train.evaluate(&state.learner.agent.actor, metrics)?;
            }
            train.show_policy(|| Ok(state.learner.agent.actor.clone()))?;
            if step.ends_block() {
                state.turn_model(cfg, train.session, step.block_start..step.block_end)?; // the adversary's turn
            }
        }
        let actor = state.learner.agent.actor;
        Ok(train.finish(&actor)?.then_some(actor))
    }

    /// The adversary's weight decay is the ensemble's where none is given.
    fn resolved(mut self) -> Self {
        if self.adversary.step.decay.is_empty() {
            self.adversary.step.decay.clone_from(&self.model.ensemble.decay);
        }
        self
    }
}

/// Clones the data into the actor, which starts with fresh moments.
fn clone_data(cfg: &Cloning, session: &mut Session<'_>, agent: &mut Sac) -> Result<()> {
    let Cloning { steps, batch, lr, objective } = *cfg;
    if steps == 0 {
        return Ok(());
    }
    session.note(format!("cloning the dataset for {steps} steps"));
    let mut clone: Actor = agent.actor.clone();
    let mut cloner = Cloner::new(objective, lr);
    let mut status = Status::default();
    for step in 0..steps {
        let rows = session.sample_batch(batch, &mut session.rng("clone", step));
        let pool = session.pool;
        status.losses.actor = session.timer.time("cloning", || cloner.step(&mut clone, pool, &rows))?;
        if step.is_multiple_of(100) && session.report_progress(&status).is_break() {
            return Err(Error::Stopped);
        }
    }
    agent.actor = Actor::from_policy(&clone.to_policy())?;
    Ok(())
}

/// What a checkpoint keeps.
struct State {
    learner: SacLearner,
    model: Ensemble,
    adversary: Adversary,
    /// What the last model step found.
    found: AdversaryLosses,
}

impl State {
    /// The model's steps against the policy after the gradient steps `steps`: short rollouts of the policy, a step of the
    /// model at each of theirs.
    fn turn_model(&mut self, cfg: &RamboConfig, session: &mut Session<'_>, steps: Range<u64>) -> Result<()> {
        let (opponent, agent) = (&cfg.adversary, &self.learner.agent);
        if opponent.lambda == 0.0 {
            return Ok(());
        }
        let count = |step: u64| (step as f64 * opponent.ratio) as u64;
        let mut obs = Mat::zeros((0, agent.actor.obs_dim()));
        let first = count(steps.start);
        for turn in first..count(steps.end) {
            let mut rng = session.rng("adversary", turn);
            if (turn - first).is_multiple_of(cfg.rollout.length as u64) || obs.nrows() == 0 {
                obs = session.sample_starts(opponent.batch, &mut rng);
            }
            let real = session.sample_batch(opponent.batch, &mut rng);
            let (pool, gamma) = (session.pool, cfg.sac.gamma as f32);
            let (model, adversary) = (&mut self.model, &mut self.adversary);
            let start = std::mem::take(&mut obs);
            (self.found, obs) = session.timer.time("adversary", || {
                let rollout =
                    ModelRollout::without_rule(model, pool).run(&agent.actor, start, 1, &mut rng)?;
                let advantage = advantage(agent, pool, &rollout.rows, gamma);
                let found = adversary.step(model, &rollout.rows, &advantage, opponent.lambda, &real)?;
                Ok::<_, Error>((found, rollout.rows.next_obs)) // rows that ended go on, as in the authors' code
            })?;
        }
        Ok(())
    }
}

impl Checkpoint for State {
    fn save(&self, out: &mut Tensors) {
        self.learner.save(out);
        out.put_all("model", self.model.save());
        out.put_all("opponent", self.adversary.save());
        out.put_f64("found", &[self.found.nll, self.found.adversarial]);
    }

    fn load(&mut self, from: &Tensors) -> Result<()> {
        self.learner.load(from)?;
        self.model.restore(&from.under("model"))?;
        self.adversary.load(&from.under("opponent"))?;
        let found = from.f64("found", 2)?;
        self.found = AdversaryLosses { nll: found[0], adversarial: found[1] };
        Ok(())
    }
}

/// A = r + γ (1 − d) min_j Q_j(s', π(s')) − min_j Q_j(s, a), with the current critics and π without noise, standardised
/// over the rows.
fn advantage(agent: &Sac, pool: &ThreadPool, rows: &Batch, gamma: f32) -> Vec<f32> {
    let next_act = agent.actor.mean_batch(pool, &rows.next_obs);
    let next = agent.min_q(Weights::Current, rows.next_obs.view(), next_act.view());
    let now = agent.min_q(Weights::Current, rows.obs.view(), rows.act.view());
    let raw: Vec<f64> = (0..rows.len())
        .map(|i| {
            let going_on = if rows.done[i] { 0.0 } else { gamma };
            f64::from(rows.rew[i] + going_on * next[i] - now[i])
        })
        .collect();
    let n = raw.len().max(1) as f64;
    let mean = raw.iter().sum::<f64>() / n;
    let std = (raw.iter().map(|a| (a - mean).powi(2)).sum::<f64>() / n).sqrt();
    raw.iter().map(|a| ((a - mean) / (std + 1e-6)) as f32).collect()
}
