//! One step of natural policy gradient: θ ← θ + √(δ / gᵀF⁻¹g) · F⁻¹g.

use super::config::NpgConfig;
use super::conjugate_gradient::{conjugate_gradient, dot};
use super::policy::GaussianPolicy;
use super::surrogate::Surrogate;
use crate::batch::Mat;
use crate::error::{Result, invalid};
use crate::nn::ThreadPool;

/// What [`npg_step`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NpgStats {
    /// Growth of the surrogate mean ratio·A.
    pub surrogate: f64,
    /// Mean KL(old ‖ new).
    pub kl: f64,
    /// Length of the plain gradient.
    pub gradient: f64,
    /// Factor on F⁻¹g.
    pub step: f64,
}

/// Moves the policy, which took the actions `act` (before clipping) in the states `obs` and did better than expected by
/// `advantage`.
///
/// # Errors
/// A step that is not finite; it leaves the policy unchanged.
pub fn npg_step(
    cfg: &NpgConfig,
    policy: &mut GaussianPolicy,
    pool: &ThreadPool,
    obs: &Mat,
    act: &Mat,
    advantage: &[f32],
) -> Result<NpgStats> {
    let old = policy.clone();
    let mut surrogate = Surrogate::new(&old, pool, obs, act, advantage);
    let gradient = surrogate.gradient();
    let damped = |v: &[f64]| -> Vec<f64> {
        surrogate.fisher(v).iter().zip(v).map(|(fv, v)| fv + cfg.damping * v).collect()
    };
    let natural = conjugate_gradient(damped, &gradient, cfg.cg_iterations);
    let step = (cfg.step_size / (dot(&gradient, &natural) + 1e-10)).abs().sqrt();
    let moved: Vec<f32> =
        (old.params().iter().zip(&natural)).map(|(&theta, x)| (f64::from(theta) + step * x) as f32).collect();
    if let Some(bad) = moved.iter().find(|x| !x.is_finite()) {
        return Err(invalid!(
            "the natural gradient gave a weight of {bad}; raise npg.damping, or lower npg.step_size"
        ));
    }
    policy.set_params(&moved);
    let before = advantage.iter().map(|&a| f64::from(a)).sum::<f64>() / advantage.len().max(1) as f64;
    let (after, kl) = surrogate.compare(policy);
    Ok(NpgStats { surrogate: after - before, kl, gradient: dot(&gradient, &gradient).sqrt(), step })
}
