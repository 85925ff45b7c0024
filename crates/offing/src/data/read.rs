//! Finding out what a file is by its content, and reading it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::d4rl;
use super::dataset::Dataset;
use super::hdf5::Hdf5;
use super::options::ReadOptions;
use crate::error::{Error, Result};

const HDF5_SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

/// Reads the dataset at `path`.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let head = head(path)?;
    if head.starts_with(HDF5_SIGNATURE) {
        let file = Hdf5::open(path)?;
        return d4rl::read(&file, path, options);
    }
    Err(not_a_dataset(path, &head))
}

/// The first bytes of a file.
fn head(path: &Path) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    let file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
    file.take(512).read_to_end(&mut head).map_err(|e| Error::io(path, "read", e))?;
    Ok(head)
}

fn not_a_dataset(path: &Path, head: &[u8]) -> Error {
    let found = if head.is_empty() {
        "an empty file; get it again".into()
    } else if looks_like_html(head) {
        "an HTML page, as servers send in place of a file they no longer have; get it from another place"
            .into()
    } else {
        format!(
            "something else (it begins with {:02x?}); give one of these formats",
            &head[..head.len().min(8)]
        )
    };
    Error::file(path, format!("wanted a dataset (D4RL or Minari HDF5, Parquet, CSV, npz), found {found}"))
}

fn looks_like_html(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let text = text.trim_start_matches(['\u{feff}', ' ', '\n', '\r', '\t']);
    ["<!doctype", "<html", "<head", "<?xml", "<error"].iter().any(|tag| text.starts_with(tag))
}
