//! Max pairwise difference (MOReL): the widest disagreement on the next state, max_{i,j} ‖μ_i(s, a) − μ_j(s, a)‖₂.
//!
//! OfflineRL-Kit's mode of this name takes the largest distance to the members' mean instead, which is between half the
//! pairwise maximum and that maximum; `to-mean` gives it.

use serde::{Deserialize, Serialize};

use super::members::{EnsembleScore, MemberPredictions};

/// How disagreement is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PairwiseConfig {
    /// How disagreement is measured.
    pub spread: Spread,
}

/// Size of a cloud of predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// Largest distance between two members' means of s'.
    #[default]
    Pairs,
    /// Largest distance of a member's mean of s' from the mean of all.
    ToMean,
}

impl EnsembleScore for PairwiseConfig {
    fn id(&self) -> &'static str {
        "pairwise"
    }

    fn score(&self, row: &MemberPredictions<'_>, _member: Option<usize>) -> f32 {
        let mut largest = 0.0f64;
        match self.spread {
            Spread::Pairs => {
                for i in 0..row.members() {
                    for j in 0..i {
                        let pair = row.mean_obs(i).iter().zip(row.mean_obs(j));
                        largest =
                            largest.max(pair.map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum());
                    }
                }
            }
            Spread::ToMean => {
                let center: Vec<f64> = (0..row.width() - 1).map(|c| row.center(c)).collect();
                for i in 0..row.members() {
                    let pair = row.mean_obs(i).iter().zip(&center);
                    largest = largest.max(pair.map(|(a, c)| (f64::from(*a) - c).powi(2)).sum());
                }
            }
        }
        largest.sqrt() as f32
    }
}
