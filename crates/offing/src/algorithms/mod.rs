//! Algorithms: one page each. A page holds the settings and then the whole loop, beside its paper's pseudocode.
//!
//! | name | page | paper |
//! |---|---|---|
//! | `landfall`, the default | [`landfall`] | ours |
//! | `mopo`, `amorel`, `morel-sac`, each with any estimator | [`model_based_sac`] | Algorithms 1 and 2; Yu et al. 2020 |
//! | `mobile`, with any estimator | [`mobile`] | Sun et al. 2023 |
//! | `combo` | [`combo`] | Yu et al. 2021 |
//! | `rambo` | [`rambo`] | Rigter et al. 2022 |
//! | `morel`, with any estimator | [`morel`] | Kidambi et al. 2020 |
//! | `td3bc` | [`td3bc`] | Fujimoto & Gu 2021 |
//! | `iql` | [`iql`] | Kostrikov et al. 2021 |
//! | `bc` | [`bc`] | behaviour cloning |
//!
//! An algorithm is its settings: a struct that implements [`Algorithm`]. The loop calls blocks: [`Session`] fits models and
//! builds estimators, [`TrainLoop`] resumes, saves, records and stops, [`SacLearner`] rolls out, scores and mixes batches.
//! `examples/my_algorithm.rs` writes one from outside the crate.

pub mod config;
mod session;
mod record;
mod train_loop;
mod follow;
mod log_checks;
mod sac_learner;
mod returns;
mod lambda_return;
pub mod model_based_sac;
pub mod mobile;
pub mod combo;
pub mod rambo;
pub mod morel;
pub mod td3bc;
pub mod iql;
pub mod bc;
pub mod landfall;
pub mod registry;
#[cfg(test)]
mod morel_tests;
#[cfg(test)]
mod registry_tests;
#[cfg(test)]
pub(crate) mod tests;

pub use config::{Blocks, ModelConfig, RewardShift, RolloutActions, RolloutConfig, TrainConfig, UnitsChoice};
pub use record::{Metrics, PICKED_POLICY, SNAPSHOTS};
pub use registry::{AlgorithmName, AlgorithmSpec, Configured, EstimatorUse, Registry};
pub use sac_learner::{ImaginedRows, MixedBatch, SacLearner};
pub use session::{Evaluator, Event, OwnEvaluation, Scores, Session, Status};
pub use train_loop::{Checkpoint, Step, TrainLoop};

use crate::data::Dataset;
use crate::error::{Result, invalid};
use crate::sac::Actor;

/// An algorithm with its settings.
pub trait Algorithm: std::fmt::Debug + Send + Sync {
    /// Those of its settings that other algorithms have, too. They are validated before anything runs.
    fn blocks(&self) -> Blocks<'_>;

    /// Says what is wrong with its own settings, if anything.
    ///
    /// # Errors
    /// One line: the key, what was wanted, what was found.
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// Trains to the end and returns the policy, or `None` when an event handler asked to stop. [`train`] calls it, after
    /// it has validated everything.
    ///
    /// # Errors
    /// Losses that are not finite, files that cannot be written, and [`Error::Stopped`](crate::Error::Stopped) when asked
    /// to stop before there is anything to save.
    fn run(&self, session: &mut Session<'_>) -> Result<Option<Actor>>;

    /// The same settings with everything filled in that follows from other values.
    #[must_use]
    fn resolved(self) -> Self
    where
        Self: Sized,
    {
        self
    }
}

/// Validates an algorithm for the session's data, then runs it.
///
/// # Errors
/// See [`Algorithm`].
pub fn train(algorithm: &dyn Algorithm, session: &mut Session<'_>) -> Result<Option<Actor>> {
    validate(algorithm)?;
    validate_for(algorithm, session.data)?;
    session.warn_if_ending_pays();
    algorithm.run(session)
}

/// Says what is wrong with the settings, if anything.
///
/// # Errors
/// One line: the key, what was wanted, what was found.
pub fn validate(algorithm: &dyn Algorithm) -> Result<()> {
    algorithm.blocks().validate()?;
    algorithm.validate()
}

/// Says what these data cannot serve, if anything, before hours are spent on them.
///
/// # Errors
/// As [`validate`].
pub fn validate_for(algorithm: &dyn Algorithm, data: &Dataset) -> Result<()> {
    let (name, blocks) = (&data.name, algorithm.blocks());
    if data.rows.is_empty() {
        return Err(invalid!("{name}: wanted rows to learn from, found none; ask for more with --rows"));
    }
    // No policy here can repeat such actions.
    let beyond =
        data.rows.act.rows().into_iter().filter(|act| act.iter().any(|a| a.abs() > 1.0 + 1e-6)).count();
    if 2 * beyond > data.rows.len() {
        return Err(invalid!(
            "{name}: wanted actions from -1 to 1, found {beyond} of {} rows outside; use train.units = \"standard\", which \
             scales them",
            data.rows.len()
        ));
    }
    // Rows that did not pass `Hooks::adapt`.
    match blocks.train.reward_shift {
        RewardShift::By(shift) if shift != data.reward_shift => Err(invalid!(
            "train.reward_shift: wanted rewards of {name} shifted by {shift}, found {}; use offing::train, or shift them",
            data.reward_shift
        )),
        _ => blocks.validate_for(data),
    }
}
