//! Mixture standard deviation: √ Σ_d [Var_i(μ_i,d) + mean_i(σ_i,d²)], the whole spread of the ensemble read as one
//! mixture (law of total variance), over the columns of s'.
//!
//! What members disagree about plus what each calls noise; the strongest ensemble score of our calibration trials.

use serde::{Deserialize, Serialize};

use super::members::{EnsembleScore, MemberPredictions};

/// No settings: `{ kind = "mixture-std" }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MixtureStdConfig {}

impl EnsembleScore for MixtureStdConfig {
    fn id(&self) -> &'static str {
        "mixture-std"
    }

    fn score(&self, row: &MemberPredictions<'_>, _member: Option<usize>) -> f32 {
        let noise = |d: usize| {
            (0..row.members()).map(|m| f64::from(row.std(m)[d]).powi(2)).sum::<f64>() / row.members() as f64
        };
        (0..row.width() - 1).map(|d| row.variance_of_means(d) + noise(d)).sum::<f64>().sqrt() as f32
    }
}
