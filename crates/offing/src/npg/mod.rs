//! Natural policy gradient (Kakade 2001; Rajeswaran et al. 2017), the planner of MOReL: a Gaussian policy, a value baseline
//! and one step of steepest ascent in the metric of the policy's own distribution.
//!
//! ```
//! use offing::nn::ThreadPool;
//! use offing::npg::{GaussianPolicy, NpgConfig, Standardizer, npg_step};
//! use offing::{Mat, Rng};
//! let (cfg, pool) = (NpgConfig::default(), ThreadPool::new(2));
//! let mut policy = GaussianPolicy::new(&cfg, Standardizer::none(3), 1, &mut Rng::stream(0, "init", 0));
//! let obs = Mat::from_shape_fn((300, 3), |(i, j)| (i as f32 * 0.1 + j as f32).sin());
//! let act = policy.sample(&pool, obs.view(), offing::nn::Noise::Key(0));
//! // Larger actions are better: their advantage is the action itself.
//! let step = npg_step(&cfg, &mut policy, &pool, &obs, &act, act.as_slice().unwrap()).unwrap();
//! assert!(step.surrogate > 0.0 && (step.kl - 0.01).abs() < 0.005);
//! ```

mod baseline;
mod cloning;
mod config;
mod conjugate_gradient;
mod policy;
mod regression;
mod step;
mod surrogate;
#[cfg(test)]
mod tests;
mod trajectories;

pub use baseline::Baseline;
pub use cloning::clone_behaviour;
pub use config::{BaselineConfig, NpgConfig};
pub use policy::{GaussianPolicy, Standardizer};
pub use step::{NpgStats, npg_step};
pub use surrogate::Surrogate;
pub use trajectories::{Bootstrap, Trajectory, advantages, returns, trajectories, whiten};
