//! Arguments that several commands share.

use std::path::PathBuf;

use anyhow::Result;
use offing::home::write_json;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use offing_experiments::arguments::positive;

/// A value by its name in configuration files, for clap.
pub(crate) fn named<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(Value::String(text.into())).map_err(|e| e.to_string())
}

/// Results for other programs.
#[derive(clap::Args)]
pub(crate) struct JsonFile {
    /// Also write the results as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl JsonFile {
    /// Writes the results, where that was asked for.
    pub(crate) fn write(&self, results: impl FnOnce() -> Value) -> Result<()> {
        self.json.as_ref().map_or(Ok(()), |path| Ok(write_json(path, &results())?))
    }
}
