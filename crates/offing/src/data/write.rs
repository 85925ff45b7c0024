//! Writing a dataset in the format its target's name asks for.

use std::path::Path;

use super::dataset::{Dataset, Format};
use super::{write_csv, write_d4rl, write_minari, write_npz, write_parquet};
use crate::error::{Error, Result};

impl Format {
    /// The format a target's name asks for: `.hdf5` and `.h5` D4RL, `.parquet`, `.csv`, `.npz`; a name without an
    /// ending, or ending in a version as Minari's do (`medium-v0`), a Minari directory.
    pub fn of_target(path: &Path) -> Result<Self> {
        let ending = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        match ending.as_deref() {
            Some("hdf5" | "h5") => Ok(Self::D4rl),
            Some("parquet") => Ok(Self::Parquet),
            Some("csv") => Ok(Self::Csv),
            Some("npz") => Ok(Self::Npz),
            None if path.file_name().is_some() => Ok(Self::Minari),
            _ => Err(Error::file(
                path,
                "wanted a name ending in .hdf5, .parquet, .csv or .npz, or without an ending for a Minari directory, \
                 found another; rename the target",
            )),
        }
    }
}

/// Writes `data` to `path` in the given format.
pub fn write(data: &Dataset, path: &Path, format: Format) -> Result<()> {
    match format {
        Format::D4rl => write_d4rl(data, path),
        Format::Minari => write_minari(data, path),
        Format::Parquet => write_parquet(data, path),
        Format::Csv => write_csv(data, path),
        Format::Npz => write_npz(data, path),
    }
}
