//! Datasets: reading, writing, auditing and scoring logged transitions.
//!
//! [`read`] takes any file offing understands and tells in [`Reading`] what it made of it.

pub mod audit;
pub mod catalogue;
pub mod make;
pub mod policy_set;
pub mod resolve;

mod checks;
mod csv;
mod d4rl;
mod dataset;
mod hdf5;
mod hdf5_write;
mod reset_detection;
mod minari;
mod minari_write;
mod naming;
mod npy;
mod npz;
mod options;
mod parquet;
mod read;
mod table;
mod transitions;
mod unknown_columns;
mod write;

pub use csv::write_csv;
pub use d4rl::write_d4rl;
pub use dataset::{Dataset, Ends, Format, ReadReport, SimColumns};
pub use minari_write::write_minari;
pub use npy::{read_npy, write_npy};
pub use npz::write_npz;
pub use options::{ColumnMap, ReadOptions, TerminalNext};
pub use parquet::write_parquet;
pub use read::read;
pub use reset_detection::StepScale;
pub use write::write;
