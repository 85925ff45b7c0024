//! Algorithms: each a file that reads like its pseudocode, built from the blocks above.
//!
//! | name | file | paper |
//! |---|---|---|
//! | `mopo`, `amorel`, `morel-sac`, each with any estimator | [`recipe`] | Algorithms 1 and 2; Yu et al. 2020 |
//! | `mobile`, with any estimator | [`mobile`] | Sun et al. 2023 |
//! | `combo` | [`combo`] | Yu et al. 2021 |
//! | `rambo` | [`rambo`] | Rigter et al. 2022 |
//! | `morel`, with any estimator | [`morel`] | Kidambi et al. 2020 |
//! | `bc` | [`bc`] | behaviour cloning |

pub mod bc;
pub mod config;
pub mod combo;
pub mod mobile;
mod practice;
pub mod rambo;
pub mod morel;
pub mod recipe;
pub mod session;
#[cfg(test)]
mod morel_tests;
#[cfg(test)]
mod tests;

pub use config::{Acting, ModelConfig, RewardShift, RolloutConfig, TrainConfig};
pub use session::{Evaluator, Event, Session, Status};
