//! Behaviour policies for making datasets: soft actor-critic trained online in a simulator, with snapshots on the way.
//!
//! D4RL's recipe: two hidden layers of 256, one update a step, batches of 256, learnt temperature. The run directory
//! holds a snapshot for every evaluation; [`publish`] picks those a dataset needs.
//!
//! Randomness is drawn by step and episode number, and checkpoints are written between episodes, where a simulator has
//! no hidden state: a resumed run equals an uninterrupted one bit for bit.

mod publish;
#[cfg(test)]
mod tests;

pub use publish::{Chosen, publish};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::batch::Batch;
use crate::env::{Env, EnvPool};
use crate::error::{Error, Result};
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
    /// Environment steps, and updates. Nothing before the last step depends on it: a run can be made longer.
    pub steps: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Steps with uniform actions before learning starts.
    pub uniform_steps: u64,
    /// Rows in a training batch.
    pub batch: usize,
    /// Transitions kept for training.
    pub capacity: usize,
    /// Steps between evaluations, each with a snapshot.
    pub evaluate_every: u64,
    /// Episodes of an evaluation: so many with the mean action and so many with sampled ones.
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
#[derive(Clone, Debug)]
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

/// Trains in `run`, from its newest checkpoint if there is one; true when all steps are done. `watch` is called every
/// hundred steps.
pub fn collect(
    cfg: &CollectConfig,
    envs: &EnvPool,
    reference: Option<Reference>,
    run: &mut RunDir,
    pool: &ThreadPool,
    watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<bool> {
    cfg.check()?;
    let spec = envs.with(|env| env.spec().clone())?;
    let mut training = Training::new(cfg, spec.obs_dim, spec.act_dim, pool)?;
    if let Some((step, state)) = run.resume()? {
        training.load(step, &state)?;
    } else {
        training.evaluate(envs, reference, run)?;
    }
    envs.with(|env| training.run(env, envs, reference, run, watch))?
}

impl CollectConfig {
    fn check(&self) -> Result<()> {
        for (name, value) in [
            ("batch", self.batch as u64),
            ("capacity", self.capacity as u64),
            ("evaluate_every", self.evaluate_every),
            ("episodes", self.episodes as u64),
            ("checkpoint_every", self.checkpoint_every),
            ("uniform_steps", self.uniform_steps),
        ] {
            if value == 0 {
                return Err(Error::Invalid(format!("{name}: wanted a positive number, found 0")));
            }
        }
        self.sac.validate()
    }
}

struct Training<'a> {
    cfg: &'a CollectConfig,
    agent: Sac,
    ring: ReplayBuffer,
    step: u64,
    episode: u64,
    progress: Progress,
}

impl<'a> Training<'a> {
    fn new(cfg: &'a CollectConfig, obs_dim: usize, act_dim: usize, pool: &ThreadPool) -> Result<Self> {
        let sac = cfg.sac.over(cfg.steps);
        let agent = Sac::new(&sac, obs_dim, act_dim, pool, &mut Rng::stream(cfg.seed, "collect/init", 0))?;
        let progress = Progress { step: 0, losses: Losses::default(), last_return: None, last_score: None };
        Ok(Self {
            cfg,
            agent,
            ring: ReplayBuffer::new(cfg.capacity, obs_dim, act_dim),
            step: 0,
            episode: 0,
            progress,
        })
    }

    fn run(
        &mut self,
        env: &mut dyn Env,
        envs: &EnvPool,
        reference: Option<Reference>,
        run: &mut RunDir,
        watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<bool> {
        let mut flow = ControlFlow::Continue(());
        let mut kept = self.step;
        while self.step < self.cfg.steps {
            self.episode(env, envs, reference, run, &mut |progress| {
                if watch(progress) == ControlFlow::Break(()) {
                    flow = ControlFlow::Break(());
                }
            })?;
            let due = self.step / self.cfg.checkpoint_every > kept / self.cfg.checkpoint_every;
            if due || flow == ControlFlow::Break(()) || self.step >= self.cfg.steps {
                run.checkpoint(self.step, &self.save())?;
                kept = self.step;
            }
            if flow == ControlFlow::Break(()) {
                return Ok(self.step >= self.cfg.steps);
            }
        }
        Ok(true)
    }

    /// One episode, with an update for every step.
    fn episode(
        &mut self,
        env: &mut dyn Env,
        envs: &EnvPool,
        reference: Option<Reference>,
        run: &mut RunDir,
        watch: &mut dyn FnMut(&Progress),
    ) -> Result<()> {
        let seed = self.cfg.seed;
        env.reset(Rng::stream(seed, "collect/episode", self.episode).bits());
        self.episode += 1;
        let (mut obs, mut next) = (floats(env.obs()), Vec::new());
        let mut act = vec![0.0; env.spec().act_dim];
        let mut batch = Batch::empty(obs.len(), act.len());
        while self.step < self.cfg.steps {
            let mut rng = Rng::stream(seed, "collect/act", self.step);
            let policy: &dyn Policy =
                if self.step < self.cfg.uniform_steps { &UniformPolicy } else { &self.agent.actor };
            policy.act(&obs, &mut rng, &mut act);
            let moment = env.step(&act);
            self.step += 1;
            let lost = env.unstable();
            if !lost {
                next.clear();
                next.extend(env.obs().iter().map(|&o| o as f32));
                self.ring.push_row(&obs, &act, moment.reward as f32, &next, moment.terminated);
                std::mem::swap(&mut obs, &mut next);
            }
            if self.step > self.cfg.uniform_steps && !self.ring.is_empty() {
                let mut rng = Rng::stream(seed, "collect/update", self.step);
                let slots: Vec<usize> = (0..self.cfg.batch).map(|_| rng.below(self.ring.len())).collect();
                self.ring.take(&slots, &mut batch);
                self.progress.losses = self.agent.update(&batch, &mut rng)?;
            }
            self.progress.step = self.step;
            if self.step.is_multiple_of(self.cfg.evaluate_every) {
                self.evaluate(envs, reference, run)?;
            }
            if self.step.is_multiple_of(100) {
                watch(&self.progress);
            }
            if lost || moment.terminated || moment.truncated {
                break;
            }
        }
        Ok(())
    }

    /// Scores the policy, keeps a snapshot of it and records both.
    fn evaluate(&mut self, envs: &EnvPool, reference: Option<Reference>, run: &mut RunDir) -> Result<()> {
        let seed = Rng::stream(self.cfg.seed, "collect/evaluate", self.step).bits();
        let mean = evaluate(envs, &Deterministic(&self.agent.actor), self.cfg.episodes, seed)?;
        let sampled = evaluate(envs, &self.agent.actor, self.cfg.episodes, seed)?;
        let score = |e: &Evaluation| reference.map(|r| e.score(&r));
        let losses = self.progress.losses;
        run.write(&snapshot(self.step), &self.agent.actor.to_policy().to_bytes()?)?;
        run.record(json!({
            "step": self.step,
            "return": mean.mean(), "return_std": mean.std(), "length": mean.mean_length(), "score": score(&mean),
            "sampled_return": sampled.mean(), "sampled_return_std": sampled.std(), "sampled_score": score(&sampled),
            "critic_loss": losses.critic, "actor_loss": losses.actor, "q": losses.q, "entropy": losses.entropy,
            "alpha": losses.alpha,
        }))?;
        self.progress.last_return = Some(mean.mean());
        self.progress.last_score = score(&mean);
        Ok(())
    }

    fn save(&self) -> Tensors {
        let mut out = Tensors::default();
        out.put_all("agent", self.agent.save());
        out.put_all("ring", self.ring.save());
        out.put_u64("counters", &[self.step, self.episode]);
        let l = self.progress.losses;
        out.put_f64("losses", &[l.critic, l.actor, l.q, l.entropy, l.alpha]);
        out
    }

    fn load(&mut self, step: u64, from: &Tensors) -> Result<()> {
        self.agent.load(&from.under("agent"))?;
        self.ring.load(&from.under("ring"))?;
        let counters = from.u64("counters", 2)?;
        if counters[0] != step {
            return Err(Error::Invalid(format!(
                "a checkpoint named after step {step} holds step {}; use another copy of the run",
                counters[0]
            )));
        }
        let l = from.f64("losses", 5)?;
        self.progress.losses = Losses { critic: l[0], actor: l[1], q: l[2], entropy: l[3], alpha: l[4] };
        (self.step, self.episode, self.progress.step) = (counters[0], counters[1], counters[0]);
        Ok(())
    }
}

/// The file of the snapshot taken after `step` steps, inside a run directory.
fn snapshot(step: u64) -> String {
    format!("snapshots/{step:09}.safetensors")
}

fn floats(obs: &[f64]) -> Vec<f32> {
    obs.iter().map(|&o| o as f32).collect()
}
