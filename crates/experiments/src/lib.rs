//! Experiments with offing: grids of trainings, calibration studies, rankings, benches, and the reports they give.
//!
//! Nothing here knows a terminal or reads environment variables. Whoever calls makes a [`runtime::Runtime`], which says where
//! things are, who listens and when to stop, and shows the tables and documents that come back. Requests derive `clap::Args`,
//! so that what a user can choose is written once.
//!
//! Modules are listed in reading order, which is also import order: a module uses only modules above it.

pub mod arguments;
pub mod format;
pub mod files;
pub mod table;
mod svg;
pub mod plot;
pub mod bars;
mod mean_std;
mod page;
pub mod document;
pub mod audit_page;
pub mod compare_sets;
pub mod provenance;
pub mod runtime;
pub mod run_record;
pub mod configure;
pub mod replay;
pub mod report;
pub mod dynamics;
pub mod calibrate;
pub mod rank;
pub mod estimate;
pub mod bench;
pub mod grid;

pub use document::{Document, Element};
pub use runtime::Runtime;
pub use table::Table;
