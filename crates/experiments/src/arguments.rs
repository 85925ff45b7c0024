//! How what a user asks for is read from a command line: requests are their own arguments.

use std::path::PathBuf;

use offing::data::ColumnMap;

/// Which columns of a table a training reads.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ColumnsFile {
    /// A TOML file that maps the columns of a table (keys obs, act, rew, next_obs, done, timeout, episode, step). The run keeps
    /// it as train.columns.
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
}

impl ColumnsFile {
    /// The map as the setting `train.columns=…`.
    ///
    /// # Errors
    /// A file that cannot be read or holds something else.
    pub fn setting(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.columns else { return Ok(None) };
        let map = toml::Value::try_from(ColumnMap::from_file(path)?)?;
        Ok(Some(format!("train.columns={map}")))
    }
}

/// A count of at least 1, for clap.
///
/// # Errors
/// A text that is none.
pub fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "wanted a whole number of at least 1".into())
}
