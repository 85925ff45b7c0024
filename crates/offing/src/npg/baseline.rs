//! The value baseline b(s, t): a ReLU network on the state and the time, fitted to discounted returns.

use super::config::BaselineConfig;
use super::policy::Standardizer;
use super::regression::Regression;
use crate::batch::Mat;
use crate::error::{Result, require};
use crate::nn::{Activation, Init, Keep, MlpEnsemble, Shape, Tensors, ThreadPool, Weights};
use crate::rng::Rng;

/// Steps in a unit of time, and the powers of time that are features.
const TIME: f32 = 1000.0;
const POWERS: usize = 4;

/// Standardised states are clipped here, so that far states get sane values.
const FAR: f32 = 10.0;

/// A value function with its optimiser.
#[derive(Debug)]
pub struct Baseline {
    epochs: usize,
    regression: Regression,
    standardizer: Standardizer,
    /// What the network's output is multiplied by: the size of the first returns. 0 until these are known.
    scale: f64,
}

impl Baseline {
    /// A fresh baseline, which is 0 everywhere until it is fitted.
    pub fn new(cfg: &BaselineConfig, standardizer: Standardizer, rng: &mut Rng) -> Self {
        let shape = Shape::new(standardizer.width() + POWERS, &cfg.hidden, 1, Activation::Relu);
        let net = MlpEnsemble::new(shape, 1, Init::Uniform, Keep::Weights, rng);
        let regression = Regression::new(&net, cfg.lr, cfg.decay);
        Self { epochs: cfg.epochs, regression, standardizer, scale: 0.0 }
    }

    /// Values of states at times (steps since the start).
    pub fn values(&self, pool: &ThreadPool, obs: &Mat, time: &[u32]) -> Vec<f32> {
        let mut out = vec![0.0; time.len()];
        let load = |row: usize, x: &mut [f32]| features(&self.standardizer, obs, time, row, x);
        self.regression.net.predict(pool, (0, Weights::Current), (&mut out, 1), load);
        out.iter_mut().for_each(|v| *v = (f64::from(*v) * self.scale) as f32);
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
        let (standardizer, scale, mut loss) = (&self.standardizer, self.scale, 0.0);
        for _ in 0..self.epochs {
            let load = |row: usize, x: &mut [f32]| features(standardizer, obs, time, row, x);
            let target = |row: usize, _: usize| (f64::from(returns[row]) / scale) as f32;
            loss = self.regression.pass(pool, (returns.len(), batch), load, target, rng, &mut || Ok(()))?;
        }
        require!(
            loss.is_finite(),
            "the baseline's loss became {loss} after {} steps; lower npg.baseline.lr",
            self.regression.fitter.steps
        );
        Ok(loss * scale.powi(2) / square.max(1e-12))
    }

    /// Weights, moments and scale, for a checkpoint.
    pub fn save(&self) -> Tensors {
        let mut out = self.regression.save();
        out.put_f64("scale", &[self.scale]);
        out
    }

    /// Restores what [`Baseline::save`] returned.
    pub fn load(&mut self, from: &Tensors) -> Result<()> {
        let scale = from.f64("scale", 1)?[0];
        self.regression.load(from)?;
        self.scale = scale;
        Ok(())
    }
}

/// Features of a state at its time: the state, standardised and clipped, and four powers of the time.
fn features(standardizer: &Standardizer, obs: &Mat, time: &[u32], row: usize, x: &mut [f32]) {
    let (state, powers) = x.split_at_mut(standardizer.width());
    standardizer.apply(obs.row(row), state);
    state.iter_mut().for_each(|x| *x = x.clamp(-FAR, FAR));
    let time = time[row] as f32 / TIME;
    powers.iter_mut().zip(1..).for_each(|(x, power)| *x = time.powi(power));
}
