//! Datasets: reading, writing, auditing and scoring logged transitions.
//!
//! [`read`] takes any file offing understands and tells in [`Reading`] what it made of it.

pub mod audit;
pub mod catalogue;
pub mod make;
pub mod policy_set;
pub mod scores;

mod checks;
mod d4rl;
mod dataset;
mod hdf5;
mod hdf5_write;
mod jumps;
mod options;
mod read;
mod transitions;

pub use d4rl::write_d4rl;
pub use dataset::{Dataset, Format, Reading, SimColumns};
pub use jumps::StepScale;
pub use options::{ColumnMap, ReadOptions, TerminalNext};
pub use read::read;
