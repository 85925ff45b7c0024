//! The value baseline b(s, t): a ReLU network on the state and the time, fitted to discounted returns.

use super::config::BaselineConfig;
use super::policy::Standard;
use super::regression::Regression;
use crate::batch::Mat;
use crate::error::{Error, Result};
use crate::nn::{
    Activation, Activations, Init, Keep, MlpEnsemble, PackedMatrix, Shape, Tensors, ThreadPool, Weights,
};
use crate::rng::Rng;

/// Rows a thread takes at once when values are only read.
const CHUNK: usize = 128;

/// Steps in a unit of time, and the powers of time that are features.
const TIME: f32 = 1000.0;
const POWERS: usize = 4;

/// Standardised states are cut here: far states should not have absurd values.
const FAR: f32 = 10.0;

/// A value function with its optimiser.
#[derive(Debug)]
pub struct Baseline {
    epochs: usize,
    regression: Regression,
    standard: Standard,
    /// What the network's output is multiplied by: the size of the first returns. 0 until these are known.
    scale: f64,
}

impl Baseline {
    /// A fresh baseline, which is 0 everywhere until it was fitted.
    pub fn new(cfg: &BaselineConfig, standard: Standard, rng: &mut Rng) -> Self {
        let shape = Shape::new(standard.width() + POWERS, &cfg.hidden, 1, Activation::Relu);
        let stack = MlpEnsemble::new(shape, 1, Init::Uniform, Keep::Weights, rng);
        let regression = Regression::of(&stack, cfg.lr, cfg.decay);
        Self { epochs: cfg.epochs, regression, standard, scale: 0.0 }
    }

    /// Values of states at times (steps since the start).
    pub fn values(&self, pool: &ThreadPool, obs: &Mat, time: &[u32]) -> Vec<f32> {
        let (mut out, stack) = (vec![0.0; time.len()], &self.regression.stack);
        let mut chunks: Vec<_> = out.chunks_mut(CHUNK).collect();
        pool.for_each_mut(&mut chunks, |i, values| {
            let (first, n) = (i * CHUNK, values.len());
            let mut x = PackedMatrix::new(n, stack.shape().inputs(0));
            let mut trace = Activations::forward_only(stack.shape(), n);
            (0..n).for_each(|k| features(&self.standard, obs, time, first + k, &mut x, k));
            trace.forward(stack.net(0), Weights::Current, &x, n);
            trace.out.store_flat(values, 1, 0);
            values.iter_mut().for_each(|v| *v = (f64::from(*v) * self.scale) as f32);
        });
        out
    }

    /// Fits the values to `returns`, in batches of `batch` in random order. Returns the mean squared error on the way, as a
    /// share of the returns' mean square.
    ///
    /// # Errors
    /// A loss that is not finite.
    pub fn fit(
        &mut self,
        pool: &ThreadPool,
        obs: &Mat,
        time: &[u32],
        returns: &[f32],
        batch: usize,
        rng: &mut Rng,
    ) -> Result<f64> {
        let square = returns.iter().map(|&r| f64::from(r).powi(2)).sum::<f64>() / returns.len().max(1) as f64;
        if self.scale == 0.0 {
            self.scale = square.sqrt().max(1e-6);
        }
        let (standard, scale, mut loss) = (&self.standard, self.scale, 0.0);
        for _ in 0..self.epochs {
            let load =
                |row: usize, x: &mut PackedMatrix, to: usize| features(standard, obs, time, row, x, to);
            let target = |row: usize, _: usize| (f64::from(returns[row]) / scale) as f32;
            loss = self.regression.pass(pool, (returns.len(), batch), load, target, rng, &mut || Ok(()))?;
        }
        if !loss.is_finite() {
            return Err(Error::Invalid(format!(
                "the baseline's loss became {loss} after {} steps; lower npg.baseline.lr",
                self.regression.steps
            )));
        }
        Ok(loss * scale.powi(2) / square.max(1e-12))
    }

    /// Weights, moments and scale, for a checkpoint.
    pub fn save(&self) -> Tensors {
        let mut out = self.regression.save();
        out.put_f64("scale", &[self.scale]);
        out
    }

    /// Takes back what [`Baseline::save`] gave.
    pub fn load(&mut self, from: &Tensors) -> Result<()> {
        let scale = from.f64("scale", 1)?[0];
        self.regression.load(from)?;
        self.scale = scale;
        Ok(())
    }
}

/// Features of a state at its time: the state, standardised and cut, and four powers of the time.
fn features(standard: &Standard, obs: &Mat, time: &[u32], row: usize, x: &mut PackedMatrix, to: usize) {
    for (col, &value) in obs.row(row).iter().enumerate() {
        let at = x.at(to, col);
        x.data_mut()[at] = standard.apply(col, value).clamp(-FAR, FAR);
    }
    let time = time[row] as f32 / TIME;
    for power in 0..POWERS {
        let at = x.at(to, standard.width() + power);
        x.data_mut()[at] = time.powi(power as i32 + 1);
    }
}
