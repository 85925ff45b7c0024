//! A termination function learned from the data's own terminals, for tasks whose rule is not known.
//!
//! A small network tells from (s, a, s') whether the episode ended. Batches hold ended and other rows in equal shares,
//! and the logit is shifted back by the data's log-odds, so that its probability is right for the data as they are.

use ndarray::Array1;
use serde::{Deserialize, Serialize};

use super::data::{Scaler, check_rows, split};
use crate::batch::{Batch, Mat};
use crate::error::{Error, Result, invalid, require};
use crate::nn::{Activation, Fitter, Init, Keep, MlpEnsemble, Shape, ThreadPool, Weights, math};
use crate::rng::Rng;

/// How the classifier is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearnedConfig {
    /// Hidden widths.
    pub hidden: Vec<usize>,
    /// Gradient steps.
    pub updates: u64,
    /// Rows of a step, half of them terminal.
    pub batch_size: usize,
    /// Learning rate.
    pub lr: f64,
    /// Probability from which a step counts as the end.
    pub threshold: f32,
}

impl Default for LearnedConfig {
    fn default() -> Self {
        Self { hidden: vec![64, 64], updates: 3000, batch_size: 256, lr: 1e-3, threshold: 0.5 }
    }
}

impl LearnedConfig {
    /// Finds settings that cannot work, and rows without both terminals and others.
    pub(super) fn validate_for(&self, rows: &Batch) -> Result<()> {
        const KEY: &str = "model.termination.classifier";
        let Self { hidden, batch_size, lr, threshold, .. } = self;
        require!(!hidden.contains(&0), "{KEY}.hidden: wanted widths of at least 1, found {hidden:?}");
        require!(*batch_size >= 2, "{KEY}.batch_size: wanted at least 2, found {batch_size}");
        require!(*lr > 0.0 && lr.is_finite(), "{KEY}.lr: wanted a positive number, found {lr}");
        require!(
            (0.0..1.0).contains(threshold),
            "{KEY}.threshold: wanted a number from 0 to below 1, found {threshold}"
        );
        let ended = rows.done.iter().filter(|done| **done).count();
        if ended == 0 || ended == rows.len() {
            return Err(one_sided(ended, rows.len() - ended));
        }
        Ok(())
    }
}

/// There is nothing to tell apart.
fn one_sided(ended: usize, others: usize) -> Error {
    invalid!(
        "a learned termination: wanted terminal and other rows, found {ended} and {others}; use model.termination.kind = \
         \"never\", or give an expression"
    )
}

/// A trained classifier of ended episodes.
#[derive(Clone, Debug)]
pub struct LearnedTermination {
    stack: MlpEnsemble,
    scaler: Scaler,
    /// Logit from which a step counts as the end.
    cut: f32,
}

impl LearnedTermination {
    /// Trains on the terminals of `rows`.
    pub fn fit(cfg: &LearnedConfig, rows: &Batch, seed: u64) -> Result<Self> {
        check_rows(rows)?;
        cfg.validate_for(rows)?;
        let (train, _) = split(rows.len(), 0.1, 10_000, seed);
        let (ended, others): (Vec<u32>, Vec<u32>) = train.iter().partition(|&&r| rows.done[r as usize]);
        if ended.is_empty() || others.is_empty() {
            return Err(one_sided(ended.len(), others.len()));
        }
        let width = 2 * rows.obs_dim() + rows.act_dim();
        let (scaler, _) = Scaler::fit_columns(width, &train, |row, to| {
            let values = columns(&rows.obs, &rows.act, &rows.next_obs, row);
            to.iter_mut().zip(values).for_each(|(to, v)| *to = f64::from(*v));
        });
        let mut rng = Rng::stream(seed, "termination", 0);
        let shape = Shape::new(width, &cfg.hidden, 1, Activation::Relu);
        let mut stack = MlpEnsemble::new(shape, 1, Init::Uniform, Keep::Moments, &mut rng);
        let (alone, mut fitter) = (ThreadPool::new(1), Fitter::new(cfg.lr, 0.0));
        for _ in 0..cfg.updates {
            // Terminal rows at even places, others at odd ones.
            let mut draw = |i: usize| {
                let from = if i.is_multiple_of(2) { &ended } else { &others };
                from[rng.below(from.len())] as usize
            };
            let picks: Vec<usize> = (0..cfg.batch_size).map(&mut draw).collect();
            let inputs = |i: usize, x: &mut [f32]| {
                scaler.apply(columns(&rows.obs, &rows.act, &rows.next_obs, picks[i]), x)
            };
            fitter.step(&mut stack, &alone, cfg.batch_size, inputs, |i, logit, gradient| {
                let label = if i.is_multiple_of(2) { 1.0 } else { 0.0 };
                let probability = math::sigmoid::<math::Plain>(logit[0]);
                gradient[0] = (probability - label) / cfg.batch_size as f32;
                0.0
            });
        }
        let finite = stack.not_finite().is_none();
        require!(finite, "the termination classifier became non-finite; lower its lr ({})", cfg.lr);
        // Trained at even odds: p/(1−p) of the data is the network's odds times ended/others.
        let odds = (ended.len() as f32 / others.len() as f32).ln();
        let cut = (cfg.threshold / (1.0 - cfg.threshold)).ln() - odds;
        Ok(Self { stack, scaler, cut })
    }

    /// Whether each step ended its episode.
    pub fn done(&self, obs: &Mat, act: &Mat, next_obs: &Mat) -> Array1<bool> {
        let mut logits = vec![0.0; obs.nrows()];
        let load = |row: usize, x: &mut [f32]| self.scaler.apply(columns(obs, act, next_obs, row), x);
        self.stack.predict(&ThreadPool::new(1), (0, Weights::Current), (&mut logits, 1), load);
        logits.iter().map(|logit| *logit > self.cut || !logit.is_finite()).collect()
    }
}

/// (s, a, s') of a row.
fn columns<'a>(obs: &'a Mat, act: &'a Mat, next_obs: &'a Mat, row: usize) -> impl Iterator<Item = &'a f32> {
    obs.row(row).into_iter().chain(act.row(row)).chain(next_obs.row(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(n: usize) -> Batch {
        let mut rng = Rng::stream(5, "world", 0);
        let obs = Mat::from_shape_fn((n, 3), |_| rng.normal() as f32);
        let act = Mat::from_shape_fn((n, 1), |_| rng.normal() as f32);
        let next_obs = &obs + &Mat::from_shape_fn((n, 3), |_| 0.3 * rng.normal() as f32);
        // Ends when the first entry of the new state is beyond 1.5 (about 7 % of the rows).
        let done = next_obs.column(0).mapv(|x| x > 1.5);
        Batch { obs, act, rew: Array1::zeros(n), next_obs, done }
    }

    #[test]
    fn it_finds_the_rule_behind_the_terminals() {
        let (rows, cfg) = (world(8000), LearnedConfig { updates: 1500, ..Default::default() });
        let learnt = LearnedTermination::fit(&cfg, &rows, 0).unwrap();
        let held: Vec<usize> = split(8000, 0.1, 10_000, 0).1.iter().map(|&row| row as usize).collect();
        let held = rows.select(&held);
        let called = learnt.done(&held.obs, &held.act, &held.next_obs);
        let both = called.iter().zip(&held.done).filter(|(a, b)| **a && **b).count() as f64;
        let count = |flags: &Array1<bool>| flags.iter().filter(|flag| **flag).count() as f64;
        let (recall, precision) = (both / count(&held.done), both / count(&called));
        assert!(recall > 0.9 && precision > 0.9, "{recall} {precision}");
    }

    #[test]
    fn data_without_terminals_are_refused() {
        let mut rows = world(500);
        rows.done.fill(false);
        let message = LearnedTermination::fit(&LearnedConfig::default(), &rows, 0).unwrap_err().to_string();
        assert!(message.contains("never"), "{message}");
    }
}
