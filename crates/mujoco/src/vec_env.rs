//! Many environments of one task, stepped together over threads.

use offing::env::{Env, StepResult};
use offing::{Error, Result, Rng};
use rayon::prelude::*;

use crate::{Engine, Physics, make};

/// A fixed number of environments that reset themselves when an episode ends.
///
/// Each draws its seeds from its own stream and shares nothing that changes with the others, so results depend on the
/// seed and the number of environments, never on the number of threads.
pub struct VecEnv {
    slots: Vec<Slot>,
    obs_dim: usize,
    act_dim: usize,
    obs: Vec<f64>,
    next_obs: Vec<f64>,
    results: Vec<StepResult>,
}

struct Slot {
    env: Box<dyn Env>,
    seeds: Rng,
}

impl VecEnv {
    /// `count` environments, each at the start of its first episode.
    pub fn new(engine: &Engine, task: &str, physics: Physics, count: usize, seed: u64) -> Result<Self> {
        let envs = (0..count).map(|_| make(engine, task, physics)).collect::<Result<Vec<_>>>()?;
        Self::of(envs, seed)
    }

    /// Environments made elsewhere; all must be of the same task.
    pub fn of(envs: Vec<Box<dyn Env>>, seed: u64) -> Result<Self> {
        let Some(spec) = envs.first().map(|env| env.spec().clone()) else {
            return Err(Error::Invalid(
                "a vectorised environment needs at least one environment, found none".into(),
            ));
        };
        if let Some(other) = envs.iter().find(|env| *env.spec() != spec) {
            let (wanted, found) = (spec.task, &other.spec().task);
            return Err(Error::Invalid(format!(
                "wanted environments of one task, found {wanted} and {found}"
            )));
        }
        let count = envs.len();
        let slot = |(i, env)| Slot { env, seeds: Rng::stream(seed, "env", i as u64) };
        let still = StepResult { reward: 0.0, terminated: false, truncated: false };
        let mut all = Self {
            slots: envs.into_iter().enumerate().map(slot).collect(),
            obs: vec![0.0; count * spec.obs_dim],
            next_obs: vec![0.0; count * spec.obs_dim],
            results: vec![still; count],
            obs_dim: spec.obs_dim,
            act_dim: spec.act_dim,
        };
        let rows = all.obs.par_chunks_exact_mut(all.obs_dim);
        all.slots.par_iter_mut().zip(rows).for_each(|(slot, obs)| slot.start(obs));
        Ok(all)
    }

    /// How many environments.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Current observations, one row an environment; where an episode has just ended, the first of the next.
    pub fn obs(&self) -> &[f64] {
        &self.obs
    }

    /// Observations the last step led to, one row an environment, before any reset.
    pub fn next_obs(&self) -> &[f64] {
        &self.next_obs
    }

    /// What the last step brought, one an environment.
    pub fn results(&self) -> &[StepResult] {
        &self.results
    }

    /// One of the environments, such as to read its state.
    pub fn env(&self, index: usize) -> &dyn Env {
        &*self.slots[index].env
    }

    /// Steps every environment with its row of `acts`; see [`VecEnv::results`], [`VecEnv::next_obs`] and
    /// [`VecEnv::obs`] for what it brought.
    pub fn step(&mut self, acts: &[f32]) {
        assert_eq!(acts.len(), self.count() * self.act_dim, "one action an environment");
        let rows = self.obs.par_chunks_exact_mut(self.obs_dim);
        let next_rows = self.next_obs.par_chunks_exact_mut(self.obs_dim);
        let acts = acts.par_chunks_exact(self.act_dim);
        self.slots.par_iter_mut().zip(acts).zip(rows.zip(next_rows)).zip(&mut self.results).for_each(
            |(((slot, act), (obs, next)), result)| {
                *result = slot.env.step(act);
                next.copy_from_slice(slot.env.obs());
                if result.terminated || result.truncated {
                    slot.start(obs);
                } else {
                    obs.copy_from_slice(next);
                }
            },
        );
    }
}

impl Slot {
    fn start(&mut self, obs: &mut [f64]) {
        self.env.reset(self.seeds.bits());
        obs.copy_from_slice(self.env.obs());
    }
}
