//! The warm start: the policy's mean learns the dataset's actions before planning begins.

use super::config::NpgConfig;
use super::policy::GaussianPolicy;
use super::regression::Regression;
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::nn::ThreadPool;
use crate::rng::Rng;

/// Minimises mean (μ(s) − a)² over the data, in `cfg.clone_epochs` passes; the noise stays as it is. Returns the mean loss
/// of the last pass. `tick` is called after every batch; an error it returns ends cloning.
pub fn clone_behaviour(
    cfg: &NpgConfig,
    policy: &mut GaussianPolicy,
    pool: &ThreadPool,
    data: &Batch,
    batch: usize,
    rng: &mut Rng,
    tick: &mut dyn FnMut() -> Result<()>,
) -> Result<f64> {
    let mut regression = Regression::of(&policy.stack, cfg.clone_lr, 0.0);
    let standard = &policy.standard;
    let load = |row: usize, x: &mut crate::nn::PackedMatrix, to: usize| {
        for (col, &value) in data.obs.row(row).iter().enumerate() {
            let at = x.at(to, col);
            x.data_mut()[at] = standard.apply(col, value);
        }
    };
    let mut loss = 0.0;
    for _ in 0..cfg.clone_epochs {
        loss = regression.pass(pool, (data.len(), batch), load, |row, j| data.act[[row, j]], rng, tick)?;
    }
    if !loss.is_finite() {
        return Err(Error::Invalid(format!(
            "the cloning loss became {loss}; check the data for non-finite values, or lower npg.clone_lr"
        )));
    }
    policy.stack.copy_weights(0, &regression.stack, 0);
    Ok(loss)
}
