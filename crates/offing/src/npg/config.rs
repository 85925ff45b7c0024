//! The settings of natural policy gradient.

use serde::{Deserialize, Serialize};

use crate::error::{Result, ensure};

/// Natural policy gradient. Defaults are those of MOReL's authors (`mjrl`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NpgConfig {
    /// Hidden widths of the policy (tanh units).
    pub hidden: Vec<usize>,
    /// log σ at the start; it does not depend on the state.
    pub log_std: f32,
    /// Clamp of log σ.
    pub log_std_range: [f32; 2],
    /// Discount (γ).
    pub gamma: f64,
    /// Decay of generalised advantage estimation (its λ).
    pub lambda: f64,
    /// Length of a step (δ): twice the KL divergence between the old policy and the new, to second order.
    pub step_size: f64,
    /// Added to the diagonal of the Fisher matrix.
    pub damping: f64,
    /// Iterations of conjugate gradient.
    pub cg_iterations: usize,
    /// Passes over the dataset that clone its behaviour before planning; 0 for a policy from scratch.
    pub clone_epochs: usize,
    /// Learning rate of cloning.
    pub clone_lr: f64,
    /// The value baseline.
    pub baseline: BaselineConfig,
}

/// The value baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BaselineConfig {
    /// Hidden widths of the value baseline (ReLU units).
    pub hidden: Vec<usize>,
    /// Learning rate of the baseline.
    pub lr: f64,
    /// Weight decay of the baseline.
    pub decay: f32,
    /// Passes of the baseline over an iteration's samples.
    pub epochs: usize,
}

impl Default for NpgConfig {
    fn default() -> Self {
        Self {
            hidden: vec![64; 2],
            log_std: -0.25,
            log_std_range: [-1.0, 1.0],
            gamma: 0.999,
            lambda: 0.97,
            step_size: 0.02,
            damping: 1e-3,
            cg_iterations: 20,
            clone_epochs: 5,
            clone_lr: 1e-3,
            baseline: BaselineConfig::default(),
        }
    }
}

impl Default for BaselineConfig {
    fn default() -> Self {
        Self { hidden: vec![128; 2], lr: 1e-3, decay: 1e-3, epochs: 1 }
    }
}

impl NpgConfig {
    /// Reports the first value that is not valid.
    pub fn validate(&self) -> Result<()> {
        for (key, hidden) in [("npg.hidden", &self.hidden), ("npg.baseline.hidden", &self.baseline.hidden)] {
            // A layer of one unit is kept as a column and has no activation.
            let wide = hidden.iter().all(|&width| width > 1);
            ensure(wide, key, "widths of at least 2", format!("{hidden:?}"))?;
        }
        let [low, high] = self.log_std_range;
        let ordered = low <= high && low.is_finite() && high.is_finite();
        ensure(ordered, "npg.log_std_range", "a lower and an upper bound", format!("[{low}, {high}]"))?;
        let inside = (low..=high).contains(&self.log_std);
        ensure(inside, "npg.log_std", &format!("a number from {low} to {high}"), self.log_std)?;
        for (key, share) in [("npg.gamma", self.gamma), ("npg.lambda", self.lambda)] {
            ensure((0.0..=1.0).contains(&share), key, "a number from 0 to 1", share)?;
        }
        for (key, value) in [
            ("npg.step_size", self.step_size),
            ("npg.clone_lr", self.clone_lr),
            ("npg.baseline.lr", self.baseline.lr),
            ("npg.damping", self.damping),
        ] {
            ensure(value > 0.0 && value.is_finite(), key, "a positive number", value)?;
        }
        let decay = self.baseline.decay;
        ensure(decay >= 0.0 && decay.is_finite(), "npg.baseline.decay", "a number from 0", decay)?;
        for (key, count) in
            [("npg.cg_iterations", self.cg_iterations), ("npg.baseline.epochs", self.baseline.epochs)]
        {
            ensure(count > 0, key, "at least 1", count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_values_are_named() {
        NpgConfig::default().validate().unwrap();
        let base = NpgConfig::default;
        for (cfg, word) in [
            (NpgConfig { hidden: vec![64, 1], ..base() }, "npg.hidden"),
            (NpgConfig { log_std_range: [1.0, -1.0], ..base() }, "npg.log_std_range"),
            (NpgConfig { log_std: 2.0, ..base() }, "npg.log_std:"),
            (NpgConfig { gamma: 1.5, ..base() }, "npg.gamma"),
            (NpgConfig { step_size: 0.0, ..base() }, "npg.step_size"),
            (NpgConfig { damping: f64::NAN, ..base() }, "npg.damping"),
            (NpgConfig { cg_iterations: 0, ..base() }, "npg.cg_iterations"),
            (
                NpgConfig { baseline: BaselineConfig { decay: -1.0, ..Default::default() }, ..base() },
                "npg.baseline.decay",
            ),
        ] {
            let error = cfg.validate().unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains('\n'), "{error}");
        }
    }
}
