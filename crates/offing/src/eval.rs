//! Scoring a policy in a simulator: episodes over threads, raw and normalised return.

use rayon::prelude::*;
use serde::Serialize;

use crate::env::{Env, EnvPool};
use crate::error::{Result, invalid};
use crate::policy::Policy;
use crate::rng::Rng;
use crate::tasks::Reference;

/// Returns and lengths of the episodes of one evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Undiscounted return of each episode.
    pub returns: Vec<f64>,
    /// Steps of each episode.
    pub lengths: Vec<usize>,
}

/// Runs `episodes` episodes. Episode i is seeded by (`seed`, i) alone, so the result does not depend on threads.
pub fn evaluate(envs: &EnvPool, policy: &dyn Policy, episodes: usize, seed: u64) -> Result<Evaluation> {
    if episodes == 0 {
        return Err(invalid!("an evaluation needs at least one episode, found 0"));
    }
    let played: Vec<(f64, usize)> = (0..episodes as u64)
        .into_par_iter()
        .map(|episode| {
            let mut rng = Rng::stream(seed, "evaluate", episode);
            envs.with(|env| play(env, policy, &mut rng))
        })
        .collect::<Result<_>>()?;
    let (returns, lengths) = played.into_iter().unzip();
    Ok(Evaluation { returns, lengths })
}

fn play(env: &mut dyn Env, policy: &dyn Policy, rng: &mut Rng) -> (f64, usize) {
    env.reset(rng.bits());
    let mut obs: Vec<f32> = Vec::new();
    let mut act = vec![0.0; env.spec().act_dim];
    let (mut total, mut steps) = (0.0, 0);
    loop {
        obs.clear();
        obs.extend(env.obs().iter().map(|&o| o as f32));
        policy.act(&obs, rng, &mut act);
        let result = env.step(&act);
        if env.unstable() {
            // The engine lost this state and restarted; nothing after it belongs to the episode.
            return (total, steps);
        }
        total += result.reward;
        steps += 1;
        if result.terminated || result.truncated {
            return (total, steps);
        }
    }
}

impl Evaluation {
    /// Mean return.
    pub fn mean(&self) -> f64 {
        self.returns.iter().sum::<f64>() / self.returns.len() as f64
    }

    /// Standard deviation of the returns (n − 1); 0 for a single episode.
    pub fn std(&self) -> f64 {
        let n = self.returns.len() as f64;
        let mean = self.mean();
        let squares: f64 = self.returns.iter().map(|r| (r - mean).powi(2)).sum();
        if n > 1.0 { (squares / (n - 1.0)).sqrt() } else { 0.0 }
    }

    /// Standard error of the mean return; unknown for a single episode.
    pub fn standard_error(&self) -> Option<f64> {
        (self.returns.len() > 1).then(|| self.std() / (self.returns.len() as f64).sqrt())
    }

    /// Mean episode length.
    pub fn mean_length(&self) -> f64 {
        self.lengths.iter().sum::<usize>() as f64 / self.lengths.len() as f64
    }

    /// Normalised score of the mean return.
    pub fn score(&self, reference: &Reference) -> f64 {
        reference.normalise(self.mean())
    }
}
