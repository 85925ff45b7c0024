//! Ensemble standard deviation (OfflineRL-Kit): √ mean_d Var_i(μ_i,d), over the columns of s'.

use serde::{Deserialize, Serialize};

use super::members::{EnsembleScore, MemberPredictions};

/// No settings: `{ kind = "ensemble-std" }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnsembleStdConfig {}

impl EnsembleScore for EnsembleStdConfig {
    fn id(&self) -> &'static str {
        "ensemble-std"
    }

    fn score(&self, row: &MemberPredictions<'_>, _member: Option<usize>) -> f32 {
        let columns = row.width() - 1;
        let sum: f64 = (0..columns).map(|d| row.variance_of_means(d)).sum();
        (sum / columns as f64).sqrt() as f32
    }
}
