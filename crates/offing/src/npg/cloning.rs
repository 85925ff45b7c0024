//! The warm start: the policy's mean learns the dataset's actions before planning begins.

use super::config::NpgConfig;
use super::policy::GaussianPolicy;
use super::regression::Regression;
use crate::batch::Batch;
use crate::error::{Result, require};
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
    let mut regression = Regression::new(&policy.net, cfg.clone_lr, 0.0);
    let load = |row: usize, x: &mut [f32]| policy.standardizer.apply(data.obs.row(row), x);
    let mut loss = 0.0;
    for _ in 0..cfg.clone_epochs {
        loss = regression.pass(pool, (data.len(), batch), load, |row, j| data.act[[row, j]], rng, tick)?;
    }
    require!(
        loss.is_finite(),
        "the cloning loss became {loss}; check the data for non-finite values, or lower npg.clone_lr"
    );
    policy.net.copy_weights(0, &regression.net, 0);
    Ok(loss)
}
