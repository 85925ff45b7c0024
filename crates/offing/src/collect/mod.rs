//! Behaviour policies to generate datasets with: soft actor-critic trained online in a simulator, with snapshots.
//!
//! The settings are D4RL's: two hidden layers of 256, one update a step, batches of 256, learnt temperature. The run
//! directory gets a snapshot at every evaluation; [`publish`] picks those that a dataset needs.
//!
//! Random streams are numbered by step and episode, and checkpoints fall between episodes, where a simulator has no
//! hidden state: a resumed run equals an uninterrupted one bit for bit.

mod publish;
#[cfg(test)]
mod tests;

pub use publish::{Chosen, publish};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::batch::Batch;
use crate::env::{Env, EnvPool};
use crate::error::{Result, require};
use crate::eval::{Evaluation, evaluate};
use crate::nn::{Tensors, ThreadPool};
use crate::policy::{Policy, UniformPolicy};
use crate::replay::ReplayBuffer;
use crate::rng::Rng;
use crate::run::{ControlFlow, RunDir};
use crate::sac::{Deterministic, Losses, Sac, SacConfig};
use crate::tasks::Reference;

/// How to train a behaviour policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CollectConfig {
    /// Environment steps, and updates. Nothing before the last step depends on it, so a run can be extended.
    pub steps: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Steps with uniform actions before learning starts.
    pub uniform_steps: u64,
    /// Rows in a training batch.
    pub batch: usize,
    /// Transitions in the replay buffer.
    pub capacity: usize,
    /// Steps between evaluations, each with a snapshot.
    pub evaluate_every: u64,
    /// Episodes of an evaluation: this many with the mean action, and as many with sampled ones.
    pub episodes: usize,
    /// Steps between checkpoints, which wait for the end of an episode.
    pub checkpoint_every: u64,
    /// The learner.
    pub sac: SacConfig,
}

impl Default for CollectConfig {
    fn default() -> Self {
        Self {
            steps: 300_000,
            seed: 0,
            uniform_steps: 5_000,
            batch: 256,
            capacity: 1_000_000,
            evaluate_every: 5_000,
            episodes: 10,
            checkpoint_every: 10_000,
            sac: SacConfig { hidden: vec![256; 2], log_std: [-20.0, 2.0], ..SacConfig::default() },
        }
    }
}

/// How a training stands.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Environment steps taken.
    pub step: u64,
    /// What the last update found.
    pub losses: Losses,
    /// Mean return of the last evaluation.
    pub last_return: Option<f64>,
    /// Its normalised score, where the task has one.
    pub last_score: Option<f64>,
}

/// Trains in `run`, from its newest checkpoint if there is one; true when all steps are done. It calls `on_progress` every
/// hundred steps, and stops at the end of the episode when the answer is [`ControlFlow::Break`].
pub fn collect(
    cfg: &CollectConfig,
    envs: &EnvPool,
    reference: Option<Reference>,
    run: &mut RunDir,
    pool: &ThreadPool,
    on_progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<bool> {
    cfg.validate()?;
    let (obs_dim, act_dim) = envs.with(|env| (env.spec().obs_dim, env.spec().act_dim))?;
    let mut rng = Rng::stream(cfg.seed, "collect/init", 0);
    let mut training = Training {
        cfg,
        envs,
        reference,
        run,
        agent: Sac::new(&cfg.sac.over(cfg.steps), obs_dim, act_dim, pool, &mut rng)?,
        replay: ReplayBuffer::new(cfg.capacity, obs_dim, act_dim),
        episodes: 0,
        progress: Progress::default(),
    };
    match training.run.resume()? {
        Some((step, state)) => training.load(step, &state)?,
        None => training.evaluate()?,
    }
    envs.with(|env| training.train(env, on_progress))?
}

impl CollectConfig {
    fn validate(&self) -> Result<()> {
        for (name, value) in [
            ("batch", self.batch as u64),
            ("capacity", self.capacity as u64),
            ("evaluate_every", self.evaluate_every),
            ("episodes", self.episodes as u64),
            ("checkpoint_every", self.checkpoint_every),
            ("uniform_steps", self.uniform_steps),
        ] {
            require!(value > 0, "{name}: wanted a positive number, found 0");
        }
        self.sac.validate()
    }
}

struct Training<'a, 'e> {
    cfg: &'a CollectConfig,
    envs: &'a EnvPool<'e>,
    reference: Option<Reference>,
    run: &'a mut RunDir,
    agent: Sac,
    replay: ReplayBuffer,
    /// Episodes begun.
    episodes: u64,
    progress: Progress,
}

impl Training<'_, '_> {
    fn is_done(&self) -> bool {
        self.progress.step >= self.cfg.steps
    }

    /// Plays episodes until all steps are done (true) or `on_progress` says to stop.
    fn train(
        &mut self,
        env: &mut dyn Env,
        on_progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<bool> {
        let mut saved = self.progress.step;
        let mut flow = ControlFlow::Continue(());
        while !self.is_done() && flow == ControlFlow::Continue(()) {
            flow = self.episode(env, on_progress)?;
            let (step, every) = (self.progress.step, self.cfg.checkpoint_every);
            if step / every > saved / every || flow == ControlFlow::Break(()) || self.is_done() {
                self.run.checkpoint(step, &self.save())?;
                saved = step;
            }
        }
        Ok(self.is_done())
    }

    /// One episode, with an update for every step.
    fn episode(
        &mut self,
        env: &mut dyn Env,
        on_progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let seed = self.cfg.seed;
        env.reset(Rng::stream(seed, "collect/episode", self.episodes).bits());
        self.episodes += 1;
        let mut flow = ControlFlow::Continue(());
        let mut obs: Vec<f32> = env.obs().iter().map(|&o| o as f32).collect();
        let mut next = Vec::new();
        let mut act = vec![0.0; env.spec().act_dim];
        let mut batch = Batch::empty(obs.len(), act.len());
        while !self.is_done() {
            let mut rng = Rng::stream(seed, "collect/act", self.progress.step);
            let uniform = self.progress.step < self.cfg.uniform_steps;
            let policy: &dyn Policy = if uniform { &UniformPolicy } else { &self.agent.actor };
            policy.act(&obs, &mut rng, &mut act);
            let result = env.step(&act);
            self.progress.step += 1;
            let step = self.progress.step;
            let lost = env.unstable();
            if !lost {
                next.clear();
                next.extend(env.obs().iter().map(|&o| o as f32));
                self.replay.push_row(&obs, &act, result.reward as f32, &next, result.terminated);
                std::mem::swap(&mut obs, &mut next);
            }
            if step > self.cfg.uniform_steps && !self.replay.is_empty() {
                let mut rng = Rng::stream(seed, "collect/update", step);
                let slots: Vec<usize> = (0..self.cfg.batch).map(|_| rng.below(self.replay.len())).collect();
                self.replay.take(&slots, &mut batch);
                self.progress.losses = self.agent.update(&batch, &mut rng)?;
            }
            if step.is_multiple_of(self.cfg.evaluate_every) {
                self.evaluate()?;
            }
            if step.is_multiple_of(100) && on_progress(&self.progress) == ControlFlow::Break(()) {
                flow = ControlFlow::Break(());
            }
            if lost || result.terminated || result.truncated {
                break;
            }
        }
        Ok(flow)
    }

    /// Scores the policy, writes a snapshot of it and records the scores.
    fn evaluate(&mut self) -> Result<()> {
        let (step, episodes) = (self.progress.step, self.cfg.episodes);
        let seed = Rng::stream(self.cfg.seed, "collect/evaluate", step).bits();
        let mean = evaluate(self.envs, &Deterministic(&self.agent.actor), episodes, seed)?;
        let sampled = evaluate(self.envs, &self.agent.actor, episodes, seed)?;
        let score = |e: &Evaluation| self.reference.map(|r| e.score(&r));
        let losses = self.progress.losses;
        self.run.write(&snapshot(step), &self.agent.actor.to_policy().to_bytes()?)?;
        self.run.record(json!({
            "step": step,
            "return": mean.mean(), "return_std": mean.std(), "length": mean.mean_length(), "score": score(&mean),
            "sampled_return": sampled.mean(), "sampled_return_std": sampled.std(), "sampled_score": score(&sampled),
            "critic_loss": losses.critic, "actor_loss": losses.actor, "q": losses.q, "entropy": losses.entropy,
            "alpha": losses.alpha,
        }))?;
        (self.progress.last_return, self.progress.last_score) = (Some(mean.mean()), score(&mean));
        Ok(())
    }

    fn save(&self) -> Tensors {
        let mut out = Tensors::default();
        out.put_all("agent", self.agent.save());
        out.put_all("ring", self.replay.save());
        out.put_u64("counters", &[self.progress.step, self.episodes]);
        let l = self.progress.losses;
        out.put_f64("losses", &[l.critic, l.actor, l.q, l.entropy, l.alpha]);
        out
    }

    fn load(&mut self, step: u64, from: &Tensors) -> Result<()> {
        self.agent.load(&from.under("agent"))?;
        self.replay.load(&from.under("ring"))?;
        let counters = from.u64("counters", 2)?;
        require!(
            counters[0] == step,
            "a checkpoint named after step {step} holds step {}; use another copy of the run",
            counters[0]
        );
        let l = from.f64("losses", 5)?;
        self.progress.losses = Losses { critic: l[0], actor: l[1], q: l[2], entropy: l[3], alpha: l[4] };
        (self.progress.step, self.episodes) = (counters[0], counters[1]);
        Ok(())
    }
}

/// The file of the snapshot taken after `step` steps, inside a run directory.
fn snapshot(step: u64) -> String {
    format!("snapshots/{step:09}.safetensors")
}
