//! Least squares by Adam: how the baseline learns returns and how a policy's mean learns the dataset's actions.

use crate::error::Result;
use crate::nn::{Fitter, Keep, MlpEnsemble, Tensors, ThreadPool};
use crate::rng::Rng;

/// A network under training.
#[derive(Debug)]
pub(super) struct Regression {
    pub(super) net: MlpEnsemble,
    pub(super) fitter: Fitter,
}

impl Regression {
    /// Trains a copy of the first network of `net`, with fresh moments and this decay in every layer.
    pub(super) fn new(net: &MlpEnsemble, lr: f64, decay: f32) -> Self {
        let mut trained = MlpEnsemble::zeros(net.shape().clone(), 1, Keep::Moments);
        trained.copy_weights(0, net, 0);
        Self { net: trained, fitter: Fitter::new(lr, decay) }
    }

    /// One pass over `rows` rows in random order, in batches of `batch`; returns the mean squared error on the way.
    ///
    /// `load(row, x)` fills a row's inputs; `target(row, j)` is its j-th wanted output. `tick` is called after every batch;
    /// an error it returns ends the pass.
    pub(super) fn pass(
        &mut self,
        pool: &ThreadPool,
        (rows, batch): (usize, usize),
        load: impl Fn(usize, &mut [f32]) + Sync,
        target: impl Fn(usize, usize) -> f32 + Sync,
        rng: &mut Rng,
        tick: &mut dyn FnMut() -> Result<()>,
    ) -> Result<f64> {
        let mut order: Vec<usize> = (0..rows).collect();
        (1..rows).rev().for_each(|i| order.swap(i, rng.below(i + 1)));
        let mut total = 0.0;
        for picks in order.chunks(batch) {
            let load = |i: usize, x: &mut [f32]| load(picks[i], x);
            self.fitter.step(&mut self.net, pool, picks.len(), load, |i, out, gradient| {
                let (mut loss, width) = (0.0, out.len());
                for (j, (out, gradient)) in out.iter().zip(gradient).enumerate() {
                    let miss = out - target(picks[i], j);
                    *gradient = 2.0 * miss / (picks.len() * width) as f32;
                    loss += f64::from(miss).powi(2) / width as f64;
                }
                loss
            });
            // Row by row over all batches: the order of the sum is part of the reported loss.
            total = self.fitter.losses().fold(total, |total, loss| total + loss);
            tick()?;
        }
        Ok(total / rows.max(1) as f64)
    }

    /// Weights, moments and steps, for a checkpoint.
    pub(super) fn save(&self) -> Tensors {
        let mut out = Tensors::default();
        self.net.save("net", &mut out);
        out.put_u64("steps", &[self.fitter.steps]);
        out
    }

    /// Restores what [`Regression::save`] returned.
    pub(super) fn load(&mut self, from: &Tensors) -> Result<()> {
        let steps = from.u64("steps", 1)?[0];
        self.net.load("net", from)?;
        self.fitter.steps = steps;
        Ok(())
    }
}
