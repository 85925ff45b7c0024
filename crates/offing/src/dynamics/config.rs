//! Settings of the ensemble.

use serde::{Deserialize, Serialize};

use super::data::held_out;
use crate::error::{Result, require};
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
    /// Normalise the hidden layers (linear, layer normalisation, activation): long rollouts stay bounded.
    // Not written down while it is off: models keep the names they had before there was a choice.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub layer_norm: bool,
    /// Learn (s' − s, r) in units of its columns' deviations, so that small changes are learnt as well as large ones. The
    /// finished model predicts raw units all the same; its hold-out errors are in deviations.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub standardise_targets: bool,
    /// How means are fitted: 0 by likelihood, 1 by squared error; deviations are fitted by likelihood in any case (β-NLL,
    /// Seitzer et al. 2022). By likelihood a network cares less for steps that it finds hard.
    #[serde(skip_serializing_if = "is_zero")]
    pub beta: f32,
    /// Learning rate.
    pub lr: f64,
    /// Learning rate at the last of `max_updates` gradient steps, reached along half a cosine. Without it, the rate stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lr_end: Option<f64>,
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

fn is_zero(x: &f32) -> bool {
    *x == 0.0
}

impl Default for EnsembleConfig {
    fn default() -> Self {
        Self {
            members: 7,
            elites: 5,
            hidden: vec![400; 4],
            activation: Activation::Silu,
            layer_norm: false,
            standardise_targets: false,
            beta: 0.0,
            lr: 1e-3,
            lr_end: None,
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
    /// Finds values that cannot work. Messages name keys as `offing train` has them.
    pub fn validate(&self) -> Result<()> {
        const KEY: &str = "model.ensemble";
        let Self { members, elites, hidden, decay, lr, holdout, holdout_max, .. } = self;
        require!(*members > 0, "{KEY}.members: wanted at least 1, found 0; the paper has 7");
        require!(
            (1..=*members).contains(elites),
            "{KEY}.elites: wanted from 1 to {members} (members), found {elites}; the paper has 5 of 7"
        );
        // A stored model has room for relu and silu only.
        require!(self.activation != Activation::Tanh, "{KEY}.activation: wanted relu or silu, found tanh");
        // A single unit would be taken for an output, which has no activation.
        let wide = hidden.iter().all(|&width| width >= 2);
        require!(wide, "{KEY}.hidden: wanted widths of at least 2, found {hidden:?}");
        let (layers, found) = (hidden.len() + 1, decay.len());
        require!(
            found == layers,
            "{KEY}.decay: wanted {layers} numbers, one for each hidden layer and one for the output, found {found}"
        );
        for (name, value) in [("batch_size", self.batch_size), ("patience", self.patience)] {
            require!(value > 0, "{KEY}.{name}: wanted at least 1, found 0");
        }
        // A model without training predicts noise.
        let epochs = self.max_epochs.map(|n| n as u64);
        for (name, most) in [("max_epochs", epochs), ("max_updates", self.max_updates)] {
            require!(most != Some(0), "{KEY}.{name}: wanted at least 1, found 0; leave it out for no limit");
        }
        require!(*lr > 0.0 && lr.is_finite(), "{KEY}.lr: wanted a positive number, found {lr}");
        let beta = self.beta;
        require!((0.0..=1.0).contains(&beta), "{KEY}.beta: wanted a number from 0 to 1, found {beta}");
        if let Some(end) = self.lr_end {
            let (falls, bounded) = (end >= 0.0 && end <= *lr, self.max_updates.is_some());
            require!(falls, "{KEY}.lr_end: wanted a number from 0 to lr ({lr}), found {end}");
            require!(bounded, "{KEY}.lr_end: wanted max_updates beside it, found none; a fall needs an end");
        }
        require!(
            *holdout > 0.0 && *holdout < 1.0 && *holdout_max > 0,
            "{KEY}.holdout: wanted a share between 0 and 1 and holdout_max of at least 1, found {holdout} and \
             {holdout_max}"
        );
        let (low, high) = (self.min_log_var, self.max_log_var);
        require!(low < high, "{KEY}.min_log_var: wanted less than max_log_var ({high}), found {low}");
        Ok(())
    }

    /// The learning rate of gradient step number `update`, from 1.
    pub(super) fn lr_at(&self, update: u64) -> f64 {
        match (self.lr_end, self.max_updates) {
            (Some(end), Some(last)) => {
                let done = (update - 1) as f64 / last as f64;
                end + 0.5 * (self.lr - end) * (1.0 + (std::f64::consts::PI * done).cos())
            }
            _ => self.lr,
        }
    }

    /// Refuses too few rows to train on and to hold some out.
    pub fn validate_for(&self, rows: usize) -> Result<()> {
        let held = held_out(rows, self.holdout, self.holdout_max);
        let (left, least) = (rows.saturating_sub(held), self.batch_size);
        require!(
            left >= least && held > 0,
            "too few rows for a model: wanted at least {least} to train on and 1 to hold out, found {left} and {held}; use \
             more data or a smaller model.ensemble.batch_size"
        );
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
