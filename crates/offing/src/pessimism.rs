//! What is done about an uncertain step: nothing, a penalty (MOPO, Eq. 6), truncation (AMOReL, Eq. 7) or a halt (MOReL).
//!
//! ```
//! use offing::pessimism::{Normaliser, Pessimism};
//! let rule = Pessimism::Penalize { lambda: 1.0, normaliser: Normaliser::Dataset, reward_range: Some(4.0) };
//! let calibrated = rule.calibrate(2.0, &ndarray::arr1(&[0.0, 1.0])).unwrap();
//! let mut rewards = [1.0, 1.0];
//! calibrated.penalise(&mut rewards, &[0.5, 2.0]); // û = u / 2 · 4
//! assert_eq!(rewards, [0.0, -3.0]);
//! ```

use ndarray::Array1;
use serde::{Deserialize, Serialize};

use crate::error::{Result, invalid};

/// What is done about an uncertain step. `--set 'pessimism={kind="ignore"}'` chooses another kind. `mobile` with its own
/// score takes `penalize` with `normaliser = "none"` only; `morel` takes any kind but `penalize`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Pessimism {
    /// Trust every step, without an estimator.
    Ignore {},
    /// r − λ·û on imagined rows.
    Penalize {
        /// Weight of the penalty (λ of Eq. 6).
        #[serde(default = "one")]
        lambda: f32,
        /// What u is divided by before it is stretched to the range of rewards (max u of Eq. 6).
        #[serde(default)]
        normaliser: Normaliser,
        /// What u is stretched to (r_max of Eq. 6). Without it, the range of the dataset's rewards, max r − min r.
        #[serde(default)]
        reward_range: Option<f32>,
    },
    /// r − λ·û on imagined rows, where û counts only what exceeds the data's own level: the data themselves cost nothing.
    PenalizeExcess {
        /// Weight of the penalty. With 1, a step at the dataset's largest score costs the range of the dataset's rewards.
        #[serde(default = "one")]
        lambda: f32,
        /// The level: this quantile of the dataset's leave-one-out scores.
        #[serde(default = "nine_tenths")]
        quantile: f64,
    },
    /// Drop a step with u > ε and end its trajectory there, without a terminal.
    Truncate {
        /// ε = α · the dataset's largest leave-one-out score (Eq. 7).
        #[serde(default = "one")]
        alpha: f32,
    },
    /// Keep a step with u > ε, but as a terminal with a reward below all others.
    Halt {
        /// ε = α · the dataset's largest leave-one-out score.
        #[serde(default = "one")]
        alpha: f32,
        /// How far the reward of a halt lies below the dataset's smallest (κ).
        #[serde(default = "halt_penalty")]
        penalty: f32,
    },
}

fn one() -> f32 {
    1.0
}

fn nine_tenths() -> f64 {
    0.9
}

fn halt_penalty() -> f32 {
    50.0
}

/// What Eq. 6 divides u by. The paper does not say over what its maximum is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Normaliser {
    /// The dataset's largest leave-one-out score: known before the first step, and does not depend on the order of
    /// scoring.
    #[default]
    Dataset,
    /// The largest score seen so far. With late scoring only rows that were drawn count.
    Running,
    /// The largest score among the imagined rows of a training batch.
    Batch,
    /// Nothing: û = u, as in MOPO's own code.
    None,
}

/// A rule with its constants fixed.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibratedRule {
    rule: Pessimism,
    /// The dataset's largest leave-one-out score.
    max_score: f32,
    /// The score from which on a step costs something.
    level: f32,
    reward_min: f32,
    reward_range: f32,
    running_max: f32,
}

impl Pessimism {
    /// Finds values that cannot work.
    pub fn validate(&self) -> Result<()> {
        let values: [(&str, Option<f32>); 2] = match *self {
            Self::Ignore {} => [("", None), ("", None)],
            Self::Penalize { lambda, reward_range, .. } => {
                [("lambda", Some(lambda)), ("reward_range", reward_range)]
            }
            Self::PenalizeExcess { lambda, .. } => [("lambda", Some(lambda)), ("", None)],
            Self::Truncate { alpha } => [("alpha", Some(alpha)), ("", None)],
            Self::Halt { alpha, penalty } => [("alpha", Some(alpha)), ("penalty", Some(penalty))],
        };
        for (name, value) in values {
            if let Some(x) = value.filter(|x| !(*x >= 0.0 && x.is_finite())) {
                return Err(invalid!("pessimism.{name}: wanted a number from 0, found {x}"));
            }
        }
        match self {
            Self::PenalizeExcess { quantile, .. } if !(0.0..1.0).contains(quantile) => {
                Err(invalid!("pessimism.quantile: wanted a number from 0 and below 1, found {quantile}"))
            }
            _ => Ok(()),
        }
    }

    /// Fixes ε and r_max from the dataset: `max_score` is the estimator's largest leave-one-out score there.
    pub fn calibrate(self, max_score: f32, rewards: &Array1<f32>) -> Result<CalibratedRule> {
        self.validate()?;
        let low = rewards.iter().copied().fold(f32::INFINITY, f32::min);
        let high = rewards.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let reward_range = match self {
            Self::Penalize { reward_range: Some(given), .. } => given,
            _ => high - low,
        };
        let level = 0.0;
        Ok(CalibratedRule { rule: self, max_score, level, reward_min: low, reward_range, running_max: 0.0 })
    }

    /// Whether [`calibrate`](Self::calibrate) looks at the dataset's largest score. To find it takes an ensemble's estimator
    /// a pass over the whole dataset.
    pub fn needs_max_loo_score(&self) -> bool {
        match self {
            Self::Ignore {} => false,
            Self::Penalize { normaliser, .. } => *normaliser == Normaliser::Dataset,
            Self::PenalizeExcess { .. } | Self::Truncate { .. } | Self::Halt { .. } => true,
        }
    }

    /// The quantile of the dataset's scores that [`CalibratedRule::from_level`] wants, if any.
    pub fn level_quantile(&self) -> Option<f64> {
        match *self {
            Self::PenalizeExcess { quantile, .. } => Some(quantile),
            _ => None,
        }
    }

    /// Whether it lowers rewards, so that rows must be scored before they are learnt from.
    pub fn penalises(&self) -> bool {
        matches!(self, Self::Penalize { .. } | Self::PenalizeExcess { .. })
    }

    /// Whether scores are needed at all.
    pub fn needs_scores(&self) -> bool {
        !matches!(self, Self::Ignore {})
    }
}

/// What becomes of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Keep it and continue from it.
    Keep,
    /// Drop it and end its trajectory.
    Drop,
    /// Keep it as a terminal with the halting reward.
    Halt,
}

impl CalibratedRule {
    /// Lets everything pass.
    pub fn none() -> Self {
        let rule = Pessimism::Ignore {};
        Self { rule, max_score: 0.0, level: 0.0, reward_min: 0.0, reward_range: 0.0, running_max: 0.0 }
    }

    /// The same rule with the level from which on a step costs something.
    #[must_use]
    pub fn from_level(self, level: f32) -> Self {
        Self { level, ..self }
    }

    /// The rule.
    pub fn rule(&self) -> Pessimism {
        self.rule
    }

    /// ε (Eq. 7), where the rule has one.
    pub fn epsilon(&self) -> Option<f32> {
        match self.rule {
            Pessimism::Truncate { alpha } | Pessimism::Halt { alpha, .. } => Some(alpha * self.max_score),
            _ => None,
        }
    }

    /// The dataset's largest leave-one-out score, where the rule looked at it.
    pub fn max_score(&self) -> f32 {
        self.max_score
    }

    /// The score from which on a step costs something.
    pub fn level(&self) -> f32 {
        self.level
    }

    /// r_max of Eq. 6.
    pub fn reward_range(&self) -> f32 {
        self.reward_range
    }

    /// What to do with a row whose score lies above ε.
    pub fn verdict(&self, exceeds: bool) -> Verdict {
        match self.rule {
            Pessimism::Truncate { .. } if exceeds => Verdict::Drop,
            Pessimism::Halt { .. } if exceeds => Verdict::Halt,
            _ => Verdict::Keep,
        }
    }

    /// The reward of a halt.
    pub fn halting_reward(&self) -> f32 {
        match self.rule {
            Pessimism::Halt { penalty, .. } => self.reward_min - penalty,
            _ => self.reward_min,
        }
    }

    /// Takes new scores into account (for the running maximum). Call it once for every score, in order.
    pub fn observe(&mut self, scores: &[f32]) {
        self.running_max = scores.iter().copied().fold(self.running_max, f32::max);
    }

    /// r ← r − λ·û (Eq. 6) for the imagined rows of one training batch. While the maximum is 0, û is 0.
    pub fn penalise(&self, rewards: &mut [f32], scores: &[f32]) {
        rewards.iter_mut().zip(self.penalties(scores)).for_each(|(r, penalty)| *r -= penalty);
    }

    /// λ·û of each row of one training batch; 0 where the rule takes no penalty.
    pub fn penalties(&self, scores: &[f32]) -> impl Iterator<Item = f32> {
        let weight = self.weight(scores);
        debug_assert!(
            !self.rule.penalises() || scores.iter().all(|u| u.is_finite()),
            "every drawn row has been scored"
        );
        scores.iter().map(move |&u| match self.rule {
            Pessimism::Penalize { .. } => weight * u,
            Pessimism::PenalizeExcess { .. } => weight * (u - self.level).max(0.0),
            _ => 0.0,
        })
    }

    /// By how much the penalty of each row grows with its score.
    pub fn penalty_slopes(&self, scores: &[f32]) -> impl Iterator<Item = f32> {
        let weight = self.weight(scores);
        scores.iter().map(move |&u| match self.rule {
            Pessimism::PenalizeExcess { .. } if u <= self.level => 0.0,
            _ => weight,
        })
    }

    /// What a score is multiplied by; 0 where the rule takes no penalty.
    fn weight(&self, scores: &[f32]) -> f32 {
        match self.rule {
            Pessimism::Penalize { lambda, normaliser, .. } => {
                lambda
                    * match normaliser {
                        Normaliser::None => 1.0,
                        Normaliser::Dataset => self.scale_to_rewards(self.max_score),
                        Normaliser::Running => self.scale_to_rewards(self.running_max),
                        Normaliser::Batch => {
                            self.scale_to_rewards(scores.iter().copied().fold(0.0, f32::max))
                        }
                    }
            }
            Pessimism::PenalizeExcess { lambda, .. } => {
                lambda * self.scale_to_rewards(self.max_score - self.level)
            }
            _ => 0.0,
        }
    }

    /// r_max / max u, and 0 where the maximum is 0: the first batches may lie on the data, and 0/0 is no penalty.
    fn scale_to_rewards(&self, largest: f32) -> f32 {
        if largest > 0.0 { self.reward_range / largest } else { 0.0 }
    }

    /// The running maximum, for checkpoints.
    pub fn running_max(&self) -> f32 {
        self.running_max
    }

    /// Restores what [`CalibratedRule::running_max`] gave.
    pub fn restore(&mut self, running_max: f32) {
        self.running_max = running_max;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibrated(normaliser: Normaliser, max_score: f32) -> CalibratedRule {
        let rule = Pessimism::Penalize { lambda: 2.0, normaliser, reward_range: None };
        rule.calibrate(max_score, &ndarray::arr1(&[-1.0, 3.0])).unwrap()
    }

    fn penalty(rule: &CalibratedRule, scores: &[f32]) -> Vec<f32> {
        let mut rewards = vec![0.0; scores.len()];
        rule.penalise(&mut rewards, scores);
        rewards.iter().map(|r| -r).collect()
    }

    #[test]
    fn equation_6_by_each_normaliser() {
        // λ = 2, r_max = 3 − (−1) = 4.
        assert_eq!(penalty(&calibrated(Normaliser::Dataset, 8.0), &[4.0, 8.0]), [4.0, 8.0]);
        assert_eq!(penalty(&calibrated(Normaliser::Batch, 8.0), &[4.0, 2.0]), [8.0, 4.0]);
        assert_eq!(penalty(&calibrated(Normaliser::None, 8.0), &[4.0, 2.0]), [8.0, 4.0]);
        let mut running = calibrated(Normaliser::Running, 8.0);
        running.observe(&[1.0, 16.0, 2.0]);
        running.observe(&[3.0]);
        assert_eq!(penalty(&running, &[4.0]), [2.0]);
    }

    #[test]
    fn rules_without_a_penalty_take_none_and_scores_below_zero_count() {
        assert_eq!(penalty(&CalibratedRule::none(), &[f32::NAN, 3.0]), [0.0, 0.0]);
        assert_eq!(
            penalty(&calibrated(Normaliser::None, 8.0), &[-4.0]),
            [-8.0],
            "the logarithm of a distance below 1"
        );
    }

    #[test]
    fn a_penalty_on_the_excess_leaves_the_data_alone() {
        let rule = Pessimism::PenalizeExcess { lambda: 0.5, quantile: 0.9 };
        // r_max = 4; from level 2 to the largest score 10.
        let rule = rule.calibrate(10.0, &ndarray::arr1(&[-1.0, 3.0])).unwrap().from_level(2.0);
        assert_eq!(penalty(&rule, &[0.0, 2.0, 6.0, 10.0, 18.0]), [0.0, 0.0, 1.0, 2.0, 4.0]);
        assert_eq!((rule.rule().level_quantile(), rule.rule().penalises()), (Some(0.9), true));
    }

    #[test]
    fn the_start_of_equation_6_is_no_penalty_and_not_nan() {
        for normaliser in [Normaliser::Dataset, Normaliser::Running, Normaliser::Batch] {
            assert_eq!(penalty(&calibrated(normaliser, 0.0), &[0.0, 0.0]), [0.0, 0.0], "{normaliser:?}");
        }
    }

    #[test]
    fn thresholds_scale_with_alpha_and_verdicts_follow_the_rule() {
        let rewards = ndarray::arr1(&[2.0, 5.0]);
        let cut = Pessimism::Truncate { alpha: 5.0 }.calibrate(0.5, &rewards).unwrap();
        assert_eq!(
            (cut.epsilon(), cut.verdict(true), cut.verdict(false)),
            (Some(2.5), Verdict::Drop, Verdict::Keep)
        );
        let halt = Pessimism::Halt { alpha: 1.0, penalty: 50.0 }.calibrate(0.5, &rewards).unwrap();
        assert_eq!((halt.verdict(true), halt.halting_reward()), (Verdict::Halt, -48.0));
    }

    #[test]
    fn senseless_constants_are_named() {
        let error =
            Pessimism::Truncate { alpha: f32::NAN }.calibrate(1.0, &ndarray::arr1(&[0.0])).unwrap_err();
        assert!(error.to_string().contains("pessimism.alpha"), "{error}");
        let penalty = |lambda, reward_range| Pessimism::Penalize {
            lambda,
            normaliser: Normaliser::Dataset,
            reward_range,
        };
        for (rule, word) in [
            (penalty(-1.0, None), "pessimism.lambda"),
            (penalty(1.0, Some(-1.0)), "pessimism.reward_range"),
            (Pessimism::Halt { alpha: 1.0, penalty: f32::INFINITY }, "pessimism.penalty"),
            (Pessimism::PenalizeExcess { lambda: 1.0, quantile: 1.0 }, "pessimism.quantile"),
        ] {
            assert!(rule.validate().unwrap_err().to_string().contains(word), "{rule:?}");
        }
        assert!(Pessimism::Ignore {}.validate().is_ok() && penalty(0.0, Some(0.0)).validate().is_ok());
    }
}
