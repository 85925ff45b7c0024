//! Small helpers for files.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use offing::home::write_atomic;
use serde::de::DeserializeOwned;

/// Reads a JSON file; nothing where there is none, or one of another shape.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Writes a text file, whole or not at all.
///
/// # Errors
/// A file that cannot be written.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    Ok(write_atomic(path, |f| f.write_all(text.as_bytes()))?)
}
