//! Model-based offline reinforcement learning with search-based uncertainty.
//!
//! Modules are listed in reading order, which is also import order: a module uses only modules above it
//! (`tests/tidy.rs` holds this).

pub mod error;
pub mod home;
pub mod rng;
pub mod stats;
mod linalg;
mod prefetch;
pub mod batch;
pub mod checksum;
mod proto;
pub mod config;
pub mod env;
pub mod tasks;
pub mod units;
mod reach;
pub mod policy;
pub mod data;
pub mod eval;
pub mod nn;
pub mod dynamics;
pub mod sac;
pub mod td3;
pub mod iql;
pub mod npg;
pub mod uncertainty;
pub mod pessimism;
pub mod replay;
pub mod rollout;
pub mod unroll;
pub mod export;
pub mod run;
pub mod collect;
pub mod algorithms;
pub mod train;
pub mod calibration;
pub mod rank;

pub use batch::{Batch, Mat};
pub use error::{Error, Result};
pub use rng::Rng;
pub use train::{Hooks, RunConfig, Trained, train, train_with};
