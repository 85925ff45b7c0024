//! The settings of soft actor-critic.

use serde::{Deserialize, Serialize};

use crate::error::{Result, ensure};

/// Soft actor-critic (Haarnoja et al. 2018). Defaults are the SUMO paper's (Table 6); where peers differ, both are
/// options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SacConfig {
    /// Hidden widths of actor and critics.
    pub hidden: Vec<usize>,
    /// Number of critics Q_j; the smallest value counts.
    pub critics: usize,
    /// Discount (γ).
    pub gamma: f64,
    /// Share of the new weights in the target networks at every update (τ).
    pub tau: f32,
    /// Learning rate of the actor.
    pub actor_lr: f64,
    /// Learning rate of the critics.
    pub critic_lr: f64,
    /// How the actor's learning rate changes.
    pub actor_schedule: Schedule,
    /// Temperature of the entropy term: SAC's α, not the α of `pessimism`.
    pub alpha: Alpha,
    /// Clamp of log σ. [-5, 2] in most model-based code, [-20, 2] in the original. Two equal numbers fix σ.
    pub log_std: [f32; 2],
    /// Leave the entropy term out of the critics' target.
    pub deterministic_backup: bool,
    /// Lower clamp of the critics' target. MOBILE's code has 0, which assumes that no reward is negative. Without it, no
    /// clamp.
    pub target_floor: Option<f32>,
    /// Which network learns first in an update. In `combo` the actor always does.
    pub order: Order,
    // Settings from here on are not written down at their defaults: runs keep the names they had before there was a choice.
    /// Normalise the critics' hidden layers (linear, layer normalisation, ReLU): values stay finite far from the data.
    #[serde(skip_serializing_if = "is_default")]
    pub critic_layer_norm: bool,
    /// Normalise the actor's hidden layers (linear, layer normalisation, ReLU): μ and log σ stay bounded far from the data.
    /// Saved policies and their ONNX include it.
    #[serde(skip_serializing_if = "is_default")]
    pub actor_layer_norm: bool,
    /// Which target critics make the target.
    #[serde(skip_serializing_if = "is_default")]
    pub target_critics: TargetCritics,
    /// Factor on the fresh weights of the critics' last layer: a small one makes first values small. Without it, 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub critic_output_scale: Option<f32>,
    /// Evaluate and save an average of the actor's weights: this share of the new ones at every step. Without it, the
    /// weights themselves, or what `unroll.average` makes it. Landfall only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor_average: Option<f32>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for SacConfig {
    fn default() -> Self {
        Self {
            hidden: vec![256; 3],
            critics: 2,
            gamma: 0.99,
            tau: 0.005,
            actor_lr: 3e-4,
            critic_lr: 3e-4,
            actor_schedule: Schedule::default(),
            alpha: Alpha::default(),
            log_std: [-5.0, 2.0],
            deterministic_backup: false,
            target_floor: None,
            order: Order::default(),
            critic_layer_norm: false,
            actor_layer_norm: false,
            target_critics: TargetCritics::default(),
            critic_output_scale: None,
            actor_average: None,
        }
    }
}

/// The temperature of the entropy term: learnt or fixed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Alpha {
    /// Learned, so that the policy's entropy meets a target.
    Auto {
        /// Learning rate of log α.
        #[serde(default = "Alpha::default_lr")]
        lr: f64,
        /// First value of log α.
        #[serde(default)]
        log_alpha: f64,
        /// Target entropy. Without it, minus the number of actions.
        #[serde(default)]
        target_entropy: Option<f64>,
        /// Upper clamp of α where it is used; OfflineRL-Kit has 1. Without it, no clamp.
        #[serde(default)]
        max: Option<f64>,
    },
    /// A constant.
    Fixed {
        /// The temperature.
        value: f64,
    },
}

impl Alpha {
    fn default_lr() -> f64 {
        3e-4
    }
}

impl Default for Alpha {
    fn default() -> Self {
        Self::Auto { lr: Self::default_lr(), log_alpha: 0.0, target_entropy: None, max: None }
    }
}

/// How the actor's learning rate changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Schedule {
    /// It stays.
    // Braces, because serde lets unknown keys pass beside a bare tag.
    Constant {},
    /// It falls to 0 along half a cosine.
    Cosine {
        /// Updates until it is 0. Without it, as many as the run takes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<u64>,
        /// Updates between changes; an epoch of peers has 1000.
        #[serde(default = "Schedule::default_every")]
        every: u64,
    },
}

impl Default for Schedule {
    fn default() -> Self {
        Self::Constant {}
    }
}

impl Schedule {
    fn default_every() -> u64 {
        1000
    }

    /// The schedule of a run of `updates` updates.
    pub fn over(self, updates: u64) -> Self {
        match self {
            Self::Cosine { steps: None, every } => Self::Cosine { steps: Some(updates.max(1)), every },
            other => other,
        }
    }

    /// The factor on the learning rate at update number `step` (from 0).
    pub fn factor(&self, step: u64) -> f64 {
        match *self {
            Self::Constant {} | Self::Cosine { steps: None, .. } => 1.0,
            Self::Cosine { steps: Some(steps), every } => {
                let done = (step / every * every).min(steps) as f64 / steps as f64;
                0.5 * (1.0 + (std::f64::consts::PI * done).cos())
            }
        }
    }
}

/// Which target critics make the critics' target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetCritics {
    /// The smallest value of all.
    #[default]
    Min,
    /// The smaller value of two, drawn anew for every update (REDQ, Chen et al. 2021): many critics without their bias.
    RandomPair,
}

/// Which network learns first in an update. Targets follow last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Critics, actor, temperature (SAC, MOPO, MOBILE).
    #[default]
    CriticFirst,
    /// Actor, temperature, critics (CQL, COMBO).
    ActorFirst,
}

impl SacConfig {
    /// The settings of a run of `updates` updates: a schedule without a length gets the run's.
    pub fn over(&self, updates: u64) -> Self {
        Self { actor_schedule: self.actor_schedule.over(updates), ..self.clone() }
    }

    /// Reports the first value that is not valid.
    pub fn validate(&self) -> Result<()> {
        // A single unit would be taken for an output, which has no activation.
        let wide = self.hidden.iter().all(|&width| width > 1);
        ensure(wide, "sac.hidden", "widths of at least 2", format!("{:?}", self.hidden))?;
        ensure(self.critics > 0, "sac.critics", "at least 1 (the paper has 2)", self.critics)?;
        for (key, lr) in [("sac.actor_lr", self.actor_lr), ("sac.critic_lr", self.critic_lr)] {
            ensure(lr > 0.0 && lr.is_finite(), key, "a positive number", lr)?;
        }
        let average = f64::from(self.actor_average.unwrap_or(0.0));
        for (key, share) in
            [("sac.gamma", self.gamma), ("sac.tau", f64::from(self.tau)), ("sac.actor_average", average)]
        {
            ensure((0.0..=1.0).contains(&share), key, "a number from 0 to 1", share)?;
        }
        let [low, high] = self.log_std;
        let found = format!("[{low}, {high}]");
        ensure(-40.0 <= low && low <= high && high <= 40.0, "sac.log_std", "[low, high] within ±40", found)?;
        let scale = f64::from(self.critic_output_scale.unwrap_or(1.0));
        ensure(scale > 0.0 && scale.is_finite(), "sac.critic_output_scale", "a positive number", scale)?;
        let floor = self.target_floor.unwrap_or(0.0);
        ensure(floor.is_finite(), "sac.target_floor", "a number", floor)?;
        if let Schedule::Cosine { steps, every } = self.actor_schedule {
            let positive = steps != Some(0) && every > 0;
            ensure(positive, "sac.actor_schedule", "positive `steps` and `every`", 0)?;
        }
        match self.alpha {
            Alpha::Fixed { value } => {
                ensure(value >= 0.0 && value.is_finite(), "sac.alpha.value", "a number from 0", value)
            }
            Alpha::Auto { lr, .. } => {
                ensure(lr > 0.0 && lr.is_finite(), "sac.alpha.lr", "a positive number", lr)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cosine_falls_in_steps_from_one_to_zero() {
        let open = Schedule::Cosine { steps: None, every: 1000 };
        let schedule = open.over(10_000);
        assert_eq!(schedule.over(5), schedule, "a length that is given stays");
        assert_eq!(schedule.factor(0), 1.0);
        assert_eq!(schedule.factor(999), 1.0);
        assert!((schedule.factor(5000) - 0.5).abs() < 1e-12);
        assert!(schedule.factor(10_000).abs() < 1e-12 && schedule.factor(99_999).abs() < 1e-12);
    }

    #[test]
    fn bad_values_are_named() {
        SacConfig::default().validate().unwrap();
        for (cfg, word) in [
            (SacConfig { critics: 0, ..Default::default() }, "critics"),
            (SacConfig { gamma: 1.5, ..Default::default() }, "gamma"),
            (SacConfig { actor_lr: f64::NAN, ..Default::default() }, "actor_lr"),
            (SacConfig { log_std: [2.0, -5.0], ..Default::default() }, "log_std"),
            (SacConfig { hidden: vec![256, 0], ..Default::default() }, "hidden"),
            (SacConfig { hidden: vec![1, 256], ..Default::default() }, "hidden"),
            (SacConfig { alpha: Alpha::Fixed { value: -1.0 }, ..Default::default() }, "alpha"),
        ] {
            assert!(cfg.validate().unwrap_err().to_string().contains(word));
        }
    }

    #[test]
    fn unknown_keys_are_refused_and_kinds_are_read() {
        let cfg: SacConfig =
            serde_json::from_str(r#"{"alpha": {"kind": "fixed", "value": 0.2}, "critics": 10}"#).unwrap();
        assert_eq!((cfg.alpha, cfg.critics), (Alpha::Fixed { value: 0.2 }, 10));
        assert!(serde_json::from_str::<SacConfig>(r#"{"critic": 10}"#).is_err());
        assert!(serde_json::from_str::<SacConfig>(r#"{"alpha": {"kind": "fixed", "values": 0.2}}"#).is_err());
    }
}
