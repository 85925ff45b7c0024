//! The knobs of the ensemble.

use serde::{Deserialize, Serialize};

use super::data::held_out;
use crate::error::{Result, invalid};
use crate::nn::Activation;

/// A probabilistic ensemble (Chua et al. 2018, as in MBPO and MOPO). Defaults are the SUMO paper's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnsembleConfig {
    /// Networks trained (N).
    pub members: usize,
    /// Networks used for steps: those with the lowest hold-out error.
    pub elites: usize,
    /// Hidden widths. Most peers have 4 × 200, the paper 4 × 400.
    pub hidden: Vec<usize>,
    /// Activation of the hidden layers.
    pub activation: Activation,
    /// Learning rate.
    pub lr: f64,
    /// Rows of one gradient step, per member.
    pub batch_size: usize,
    /// Weight decay c_l of each hidden layer and of the output, one number more than `hidden` has: the loss has
    /// Σ c_l · ½‖W_l‖².
    pub decay: Vec<f32>,
    /// First value of the learnt upper bounds of the log-variance.
    pub max_log_var: f32,
    /// First value of the learnt lower bounds of the log-variance.
    pub min_log_var: f32,
    /// Weight of the bounds' spread in the loss.
    pub bound_weight: f32,
    /// Share of the rows held out to choose weights and elites.
    pub holdout: f64,
    /// Most rows to hold out.
    pub holdout_max: usize,
    /// Give each member its own draw of the rows, with replacement.
    pub bootstrap: bool,
    /// Relative improvement of a member's hold-out error that counts.
    pub improvement: f64,
    /// Epochs without improvement of any member after which training ends.
    pub patience: usize,
    /// Most epochs, at least 1. Without it, no limit.
    pub max_epochs: Option<usize>,
    /// Most gradient steps, at least 1. Without it, no limit.
    pub max_updates: Option<u64>,
}

impl Default for EnsembleConfig {
    fn default() -> Self {
        Self {
            members: 7,
            elites: 5,
            hidden: vec![400; 4],
            activation: Activation::Silu,
            lr: 1e-3,
            batch_size: 256,
            decay: vec![2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4],
            max_log_var: 0.5,
            min_log_var: -10.0,
            bound_weight: 0.01,
            holdout: 0.2,
            holdout_max: 1000,
            bootstrap: true,
            improvement: 0.01,
            patience: 5,
            max_epochs: None,
            max_updates: None,
        }
    }
}

impl EnsembleConfig {
    /// Says what is wrong with the values, if anything. Keys are named as `offing train` has them.
    pub fn validate(&self) -> Result<()> {
        let fail = |what: String| Err(invalid!("model.ensemble.{what}"));
        if self.members == 0 {
            return fail("members: wanted at least 1, found 0; the paper has 7".into());
        }
        if self.elites == 0 || self.elites > self.members {
            return fail(format!(
                "elites: wanted from 1 to {} (members), found {}; the paper has 5 of 7",
                self.members, self.elites
            ));
        }
        if self.activation == Activation::Tanh {
            // A stored model says relu or silu only.
            return fail("activation: wanted relu or silu, found tanh".into());
        }
        // A single unit would be taken for an output, which has no activation.
        if self.hidden.iter().any(|&width| width < 2) {
            return fail(format!("hidden: wanted widths of at least 2, found {:?}", self.hidden));
        }
        if self.decay.len() != self.hidden.len() + 1 {
            return fail(format!(
                "decay: wanted {} numbers, one for each hidden layer and one for the output, found {}",
                self.hidden.len() + 1,
                self.decay.len()
            ));
        }
        for (name, value) in [("batch_size", self.batch_size), ("patience", self.patience)] {
            if value == 0 {
                return fail(format!("{name}: wanted at least 1, found 0"));
            }
        }
        // A model that was not trained imagines noise.
        for (name, most) in
            [("max_epochs", self.max_epochs.map(|n| n as u64)), ("max_updates", self.max_updates)]
        {
            if most == Some(0) {
                return fail(format!("{name}: wanted at least 1, found 0; leave it out for no limit"));
            }
        }
        if !(self.lr > 0.0 && self.lr.is_finite()) {
            return fail(format!("lr: wanted a positive number, found {}", self.lr));
        }
        if !(self.holdout > 0.0 && self.holdout < 1.0) || self.holdout_max == 0 {
            return fail(format!(
                "holdout: wanted a share between 0 and 1 and holdout_max of at least 1, found {} and {}",
                self.holdout, self.holdout_max
            ));
        }
        if self.min_log_var >= self.max_log_var {
            return fail(format!(
                "min_log_var: wanted less than max_log_var ({}), found {}",
                self.max_log_var, self.min_log_var
            ));
        }
        Ok(())
    }

    /// Says whether so many rows are too few to train on and to hold some out.
    pub fn validate_for(&self, rows: usize) -> Result<()> {
        let held = held_out(rows, self.holdout, self.holdout_max);
        let left = rows.saturating_sub(held);
        if left < self.batch_size || held == 0 {
            return Err(invalid!(
                "too few rows for a model: wanted at least {} to train on and 1 to hold out, found {left} and \
                 {held}; use more data or a smaller model.ensemble.batch_size",
                self.batch_size
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_values_are_named() {
        EnsembleConfig::default().validate().unwrap();
        for (cfg, word) in [
            (EnsembleConfig { elites: 8, ..Default::default() }, "model.ensemble.elites: wanted from 1 to 7"),
            (
                EnsembleConfig { members: 0, ..Default::default() },
                "model.ensemble.members: wanted at least 1",
            ),
            (EnsembleConfig { max_epochs: Some(0), ..Default::default() }, "max_epochs"),
            (EnsembleConfig { max_updates: Some(0), ..Default::default() }, "max_updates"),
            (EnsembleConfig { patience: 0, ..Default::default() }, "model.ensemble.patience"),
            (EnsembleConfig { decay: vec![0.1], ..Default::default() }, "decay"),
            (EnsembleConfig { holdout: 1.0, ..Default::default() }, "holdout"),
            (EnsembleConfig { min_log_var: 1.0, ..Default::default() }, "min_log_var"),
            (EnsembleConfig { activation: Activation::Tanh, ..Default::default() }, "activation"),
            (EnsembleConfig { lr: 0.0, ..Default::default() }, "lr"),
        ] {
            assert!(cfg.validate().unwrap_err().to_string().contains(word));
        }
        let few = EnsembleConfig::default().validate_for(200).unwrap_err().to_string();
        assert!(few.contains("smaller model.ensemble.batch_size"), "{few}");
        EnsembleConfig::default().validate_for(1000).unwrap();
        assert!(serde_json::from_str::<EnsembleConfig>(r#"{"member": 3}"#).is_err());
    }
}
