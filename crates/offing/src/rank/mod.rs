//! Offline policy selection: which policy is best, from data alone.
//!
//! Two methods that need no simulator. [`fitted_q`] learns what a policy is worth from logged transitions (fitted Q
//! evaluation: Le, Voloshin & Yue 2019; for selection: Paine et al. 2020). [`model_return`] lets it act in a learnt model
//! and penalises uncertain steps (Eq. 6). Neither is the true return: use the order of policies that they give.

mod clone;
mod fitted_q;
mod model_return;
#[cfg(test)]
mod tests;

pub use clone::clone_behaviour;
pub use fitted_q::{FittedQ, FittedQConfig, fitted_q};
pub use model_return::{ModelReturn, ModelReturnConfig, model_return};

use ndarray::Axis;

use crate::batch::Mat;
use crate::data::Dataset;
use crate::error::Result;
use crate::nn::Tensors;
use crate::sac::Actor;

/// A policy ends early where it lives less than this share of what a clone of the data does, in the same model.
const EARLY: f64 = 0.9;

/// Whether a policy ends episodes sooner than `clone`, a clone of the data, does. Where [`Dataset::ending_pays`] holds, such a
/// policy has learnt to fail, however much it promises.
pub fn ends_early(policy: &ModelReturn, clone: &ModelReturn) -> bool {
    policy.length < EARLY * clone.length
}

/// The first state of every episode: where a policy would have to start.
pub fn first_states(data: &Dataset) -> Mat {
    let rows: Vec<usize> = data.episodes.iter().filter(|e| !e.is_empty()).map(|e| e.start).collect();
    data.rows.obs.select(Axis(0), &rows)
}

/// The policy without its noise, as it is scored in a simulator: σ is clamped to where it changes no action.
pub fn without_noise(policy: &Actor) -> Result<Actor> {
    let mut tensors: Tensors = policy.to_policy();
    tensors.put_f32("log_std_range", &[2], vec![-20.0, -20.0]);
    Actor::from_policy(&tensors)
}
