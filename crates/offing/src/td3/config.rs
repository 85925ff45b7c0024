//! The settings of TD3+BC.

use serde::{Deserialize, Serialize};

use crate::error::{Result, ensure};

/// TD3+BC. Defaults are its authors'.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Td3Config {
    /// Hidden widths of actor and critics.
    pub hidden: Vec<usize>,
    /// Weight of the critic beside the distance to the logged actions (α); 0 is behaviour cloning.
    pub alpha: f64,
    /// Discount (γ).
    pub gamma: f64,
    /// Share of the new weights in the target networks whenever they move (τ).
    pub tau: f32,
    /// Learning rate of the actor.
    pub actor_lr: f64,
    /// Learning rate of the critics.
    pub critic_lr: f64,
    /// Updates of the critics for each update of the actor and of the target networks.
    pub policy_delay: u64,
    /// Deviation of the noise on target actions.
    pub target_noise: f32,
    /// Largest size of that noise.
    pub noise_clip: f32,
    /// Give the networks observations with mean 0 and deviation 1 over the dataset. The saved policy takes raw ones.
    pub standardise: bool,
}

impl Default for Td3Config {
    fn default() -> Self {
        Self {
            hidden: vec![256; 2],
            alpha: 2.5,
            gamma: 0.99,
            tau: 0.005,
            actor_lr: 3e-4,
            critic_lr: 3e-4,
            policy_delay: 2,
            target_noise: 0.2,
            noise_clip: 0.5,
            standardise: true,
        }
    }
}

impl Td3Config {
    /// Reports the first value that is not valid.
    ///
    /// # Errors
    /// One line: the key, what was wanted, what was found.
    pub fn validate(&self) -> Result<()> {
        // A single unit would be taken for an output, which has no activation.
        let wide = self.hidden.iter().all(|&width| width > 1);
        ensure(wide, "td3.hidden", "widths of at least 2", format!("{:?}", self.hidden))?;
        for (key, lr) in [("td3.actor_lr", self.actor_lr), ("td3.critic_lr", self.critic_lr)] {
            ensure(lr > 0.0 && lr.is_finite(), key, "a positive number", lr)?;
        }
        for (key, share) in [("td3.gamma", self.gamma), ("td3.tau", f64::from(self.tau))] {
            ensure((0.0..=1.0).contains(&share), key, "a number from 0 to 1", share)?;
        }
        ensure(self.policy_delay > 0, "td3.policy_delay", "at least 1 (the paper has 2)", self.policy_delay)?;
        let sizes = [
            ("td3.alpha", self.alpha),
            ("td3.target_noise", f64::from(self.target_noise)),
            ("td3.noise_clip", f64::from(self.noise_clip)),
        ];
        sizes
            .into_iter()
            .try_for_each(|(key, x)| ensure(x >= 0.0 && x.is_finite(), key, "a number from 0", x))
    }
}
