//! An agent's state as named tensors, so that training resumes bit for bit.

use super::{Sac, Steps};
use crate::error::{Result, invalid};
use crate::nn::{Scalar, Tensors};

impl Sac {
    /// Weights, targets, moments, temperature and step counts.
    pub fn save(&self) -> Tensors {
        let mut out = Tensors::default();
        self.actor.net.save("actor", &mut out);
        self.critics.save("critic", &mut out);
        out.put_f64("log_alpha", &[self.log_alpha.value, self.log_alpha.m, self.log_alpha.v]);
        out.put_u64("steps", &[self.steps.actor, self.steps.critic, self.steps.alpha]);
        out
    }

    /// Restores what [`Sac::save`] returned; the agent must have the same configuration.
    pub fn load(&mut self, from: &Tensors) -> Result<()> {
        let (mut actor, mut critics) = (self.actor.net.clone(), self.critics.clone());
        actor.load("actor", from)?;
        critics.load("critic", from)?;
        for (name, nets) in [("actor", &actor), ("critic", &critics)] {
            if let Some((net, l)) = nets.not_finite() {
                return Err(invalid!(
                    "tensor `{name}.{net}.{l}`: wanted finite weights, found NaN or infinite ones; use an earlier checkpoint"
                ));
            }
        }
        let alpha = from.f64("log_alpha", 3)?;
        let steps = from.u64("steps", 3)?;
        self.actor.net = actor;
        self.critics = critics;
        self.log_alpha = Scalar { value: alpha[0], m: alpha[1], v: alpha[2] };
        self.steps = Steps { actor: steps[0], critic: steps[1], alpha: steps[2] };
        Ok(())
    }
}
