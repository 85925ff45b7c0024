//! The settings of implicit Q-learning.

use serde::{Deserialize, Serialize};

use crate::error::{Result, ensure};
use crate::sac::Schedule;

/// Implicit Q-learning. Defaults are its authors', for locomotion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IqlConfig {
    /// Hidden widths of actor, critics and value network.
    pub hidden: Vec<usize>,
    /// Which expectile of Q over the logged actions V is (τ): 0.5 is their mean, towards 1 the best of them.
    pub expectile: f64,
    /// Inverse temperature of the actor's weights exp(β (Q − V)): 0 clones all actions alike, more prefers better ones.
    pub beta: f64,
    /// Largest weight.
    pub max_weight: f32,
    /// Discount (γ).
    pub gamma: f64,
    /// Share of the new weights in the target critics at every update.
    pub tau: f32,
    /// Learning rate of the actor.
    pub actor_lr: f64,
    /// Learning rate of the critics.
    pub critic_lr: f64,
    /// Learning rate of the value network.
    pub value_lr: f64,
    /// How the actor's learning rate changes.
    pub actor_schedule: Schedule,
    /// Clamp of log σ, which does not depend on the state.
    pub log_std: [f32; 2],
    /// Multiply rewards by 1000 / (largest − smallest return of the dataset's episodes), as the authors do for locomotion.
    pub scale_rewards: bool,
    /// Give the networks observations with mean 0 and deviation 1 over the dataset. The saved policy takes raw ones.
    pub standardise: bool,
}

impl Default for IqlConfig {
    fn default() -> Self {
        Self {
            hidden: vec![256; 2],
            expectile: 0.7,
            beta: 3.0,
            max_weight: 100.0,
            gamma: 0.99,
            tau: 0.005,
            actor_lr: 3e-4,
            critic_lr: 3e-4,
            value_lr: 3e-4,
            actor_schedule: Schedule::Cosine { steps: None, every: 1 },
            log_std: [-5.0, 2.0],
            scale_rewards: true,
            standardise: false,
        }
    }
}

impl IqlConfig {
    /// The settings of a run of `updates` updates: a schedule without a length gets the run's.
    #[must_use]
    pub fn over(&self, updates: u64) -> Self {
        Self { actor_schedule: self.actor_schedule.over(updates), ..self.clone() }
    }

    /// Reports the first value that is not valid.
    ///
    /// # Errors
    /// One line: the key, what was wanted, what was found.
    pub fn validate(&self) -> Result<()> {
        // A single unit would be taken for an output, which has no activation.
        let wide = self.hidden.iter().all(|&width| width > 1);
        ensure(wide, "iql.hidden", "widths of at least 2", format!("{:?}", self.hidden))?;
        for (key, x) in [
            ("iql.actor_lr", self.actor_lr),
            ("iql.critic_lr", self.critic_lr),
            ("iql.value_lr", self.value_lr),
            ("iql.max_weight", f64::from(self.max_weight)),
        ] {
            ensure(x > 0.0 && x.is_finite(), key, "a positive number", x)?;
        }
        for (key, share) in [("iql.gamma", self.gamma), ("iql.tau", f64::from(self.tau))] {
            ensure((0.0..=1.0).contains(&share), key, "a number from 0 to 1", share)?;
        }
        let between = self.expectile > 0.0 && self.expectile < 1.0;
        ensure(
            between,
            "iql.expectile",
            "a number between 0 and 1 (the paper has 0.7 and 0.9)",
            self.expectile,
        )?;
        ensure(self.beta >= 0.0 && self.beta.is_finite(), "iql.beta", "a number from 0", self.beta)?;
        let [low, high] = self.log_std;
        let found = format!("[{low}, {high}]");
        ensure(-40.0 <= low && low < high && high <= 40.0, "iql.log_std", "[low, high] within ±40", found)?;
        if let Schedule::Cosine { steps, every } = self.actor_schedule {
            let positive = steps != Some(0) && every > 0;
            ensure(positive, "iql.actor_schedule", "positive `steps` and `every`", 0)?;
        }
        Ok(())
    }
}
