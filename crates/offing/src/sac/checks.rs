//! What an update refuses: batches that do not fit, values and losses that are not finite.

use super::{Losses, Sac};
use crate::batch::Batch;
use crate::error::{Result, invalid};

impl Sac {
    pub(super) fn check(&self, batch: &Batch) -> Result<()> {
        let (obs, act, rows) = (self.actor.obs_dim(), self.actor.act_dim(), batch.len());
        let lengths = [batch.obs.nrows(), batch.act.nrows(), batch.next_obs.nrows(), batch.done.len()];
        let widths = [batch.obs_dim(), batch.next_obs.ncols(), batch.act_dim()];
        if rows == 0 || widths != [obs, obs, act] || lengths.iter().any(|&l| l != rows) {
            return Err(invalid!(
                "a training batch: wanted rows with {obs} observations and {act} actions, found {rows} rewards, columns \
                 of {lengths:?} rows and s, s', a of widths {widths:?}"
            ));
        }
        let rew = batch.rew.view().insert_axis(ndarray::Axis(1));
        let columns = [
            ("obs", batch.obs.view()),
            ("act", batch.act.view()),
            ("next_obs", batch.next_obs.view()),
            ("rew", rew),
        ];
        for (name, values) in columns {
            // All exponent bits set: NaN or infinite. Without a branch on each value it is vector code.
            let bad = |x: &f32| u32::from(x.to_bits() & 0x7f80_0000 == 0x7f80_0000);
            if values.iter().fold(0, |found, x| found | bad(x)) != 0
                && let Some(((row, col), x)) = values.indexed_iter().find(|(_, x)| bad(x) != 0)
            {
                return Err(invalid!(
                    "a training batch: wanted finite values, found {x} in `{name}` at row {row}, column {col}, before SAC \
                     update {}; `offing data audit` lists such rows",
                    self.steps.critic + 1
                ));
            }
        }
        Ok(())
    }

    /// Refuses losses that are not finite, or so large that their gradients' squares would overflow in Adam. `update`
    /// calls it; loops built from the blocks should too.
    pub fn check_losses(&self, losses: &Losses) -> Result<()> {
        let quantities = [
            ("the critics' loss", losses.critic),
            ("the actor's loss", losses.actor),
            ("the policy's entropy", losses.entropy),
            ("the temperature", losses.alpha),
        ];
        let fits = |x: f64| x.abs() < f64::from(f32::MAX);
        match quantities.iter().find(|(_, x)| !fits(*x)) {
            None => Ok(()),
            Some((name, x)) => Err(invalid!(
                "{name} became {x:.4e} at SAC update {}; check the batch for huge values, or lower the \
                 learning rates",
                self.steps.critic
            )),
        }
    }
}
