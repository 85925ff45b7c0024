//! Leave-one-out KL (M2AC): how surprised the other members are by one, KL(P_i ‖ P_{−i}).
//!
//! P_{−i} is the Gaussian with the first two moments of the mixture of the others: mean of their means, mean of their
//! variances plus the variance of their means. Columns are (s', r). M2AC and Lu et al. take the member i that made the
//! step; `mean` averages over all members instead.

use serde::{Deserialize, Serialize};

use super::members::{EnsembleScore, MemberPredictions};

/// Which member is compared with the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LooKlConfig {
    /// Which member is compared with the others.
    pub member: KlMember,
}

/// The member held against the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KlMember {
    /// The one that made the step. Rows of the data were made by none: their largest divergence counts.
    #[default]
    Chosen,
    /// Each in turn, averaged.
    Mean,
}

impl EnsembleScore for LooKlConfig {
    fn id(&self) -> &'static str {
        "loo-kl"
    }

    fn score(&self, row: &MemberPredictions<'_>, member: Option<usize>) -> f32 {
        let all = (0..row.members()).map(|m| divergence(row, m));
        let score = match (self.member, member) {
            (KlMember::Chosen, Some(m)) => divergence(row, m),
            (KlMember::Chosen, None) => all.fold(0.0, f64::max),
            (KlMember::Mean, _) => all.sum::<f64>() / row.members() as f64,
        };
        score as f32
    }

    fn min_members(&self) -> usize {
        2
    }
}

/// ½ Σ_d [ln(v₋ᵢ/vᵢ) + (vᵢ + (μᵢ − μ₋ᵢ)²)/v₋ᵢ − 1].
fn divergence(row: &MemberPredictions<'_>, held: usize) -> f64 {
    let others = || (0..row.members()).filter(|&m| m != held);
    let n = (row.members() - 1) as f64;
    let mut sum = 0.0;
    for d in 0..row.width() {
        let mean = others().map(|m| f64::from(row.mean(m)[d])).sum::<f64>() / n;
        // Spread about the mean, not Σμ² − mean²: positions of 10 with deviations of 1e-3 would cancel.
        let spread = |m: usize| f64::from(row.std(m)[d]).powi(2) + (f64::from(row.mean(m)[d]) - mean).powi(2);
        let var = others().map(spread).sum::<f64>() / n;
        let own = f64::from(row.std(held)[d]).powi(2);
        let shift = f64::from(row.mean(held)[d]) - mean;
        sum += (var / own).ln() + (own + shift * shift) / var - 1.0;
    }
    0.5 * sum
}
