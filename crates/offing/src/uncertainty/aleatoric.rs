//! Max aleatoric (MOPO): the largest noise any member predicts, max_i ‖Σ_i(s, a)‖_F.
//!
//! The papers write the Frobenius norm of the covariance Σ_i = diag(σ_i²), so √Σ_d σ_d⁴; the public codes take the
//! length of the deviations, √Σ_d σ_d². Both are here; columns are (s', r), as in those codes.

use serde::{Deserialize, Serialize};

use super::members::{EnsembleScore, MemberPredictions};

/// Which size of a member's noise counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AleatoricConfig {
    /// Size of a member's noise.
    pub norm: Norm,
}

/// Size of a diagonal Gaussian's noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// ‖Σ‖_F = √Σσ⁴: the papers' formula.
    #[default]
    Frobenius,
    /// ‖σ‖₂ = √Σσ²: what MOPO's code and its descendants compute.
    L2Std,
}

impl EnsembleScore for AleatoricConfig {
    fn id(&self) -> &'static str {
        "aleatoric"
    }

    fn score(&self, row: &MemberPredictions<'_>, _member: Option<usize>) -> f32 {
        let size = |m: usize| {
            let square = |s: &f32| f64::from(*s).powi(2);
            match self.norm {
                Norm::Frobenius => row.std(m).iter().map(|s| square(s).powi(2)).sum::<f64>(),
                Norm::L2Std => row.std(m).iter().map(square).sum::<f64>(),
            }
        };
        (0..row.members()).map(size).fold(0.0, f64::max).sqrt() as f32
    }
}
