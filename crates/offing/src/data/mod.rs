//! Datasets: reading, writing, generating, auditing and scoring logged transitions.
//!
//! [`read`] takes any file offing understands; [`Dataset::reading`] reports how it was read.

pub mod audit;
pub mod catalogue;
pub mod compare;
pub mod fetch;
pub mod generate;
pub mod neorl2;
pub mod policy_set;
pub mod published;
pub mod resolve;

mod checks;
mod column_names;
mod contain;
mod dataset;
mod formats;
mod from_columns;
mod memory;
mod messages;
mod naming;
mod options;
mod reset_detection;
mod step_model;
mod transitions;
mod unknown_columns;

pub use column_names::ColumnNames;
pub use dataset::{Dataset, Ends, ReadReport, SimColumns};
pub use formats::{ActionFile, Format, Observations, read, read_npy, recorded_policy, write, write_npy};
pub use from_columns::LogColumns;
pub use options::{ColumnMap, ReadOptions, TerminalNext};
pub use reset_detection::StepScale;
