//! One file for each command.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod collect;
pub(crate) mod completions;
pub(crate) mod data;
pub(crate) mod doctor;
pub(crate) mod dynamics;
pub(crate) mod eval;
pub(crate) mod export;
pub(crate) mod fetch;
pub(crate) mod quickstart;
pub(crate) mod rank;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod reproduce;
pub(crate) mod score;
pub(crate) mod settings;
pub(crate) mod train;
pub(crate) mod welcome;
