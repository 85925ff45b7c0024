//! Finding out what a file is by its content, and reading it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::dataset::Dataset;
use super::hdf5::Hdf5;
use super::options::ReadOptions;
use super::{csv, d4rl, minari, npz, parquet};
use crate::error::{Error, Result};

const HDF5_SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";
const PARQUET_SIGNATURE: &[u8] = b"PAR1";
const ZIP_SIGNATURES: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

/// Reads the dataset at `path`: a D4RL HDF5 file, a Minari dataset (its directory, its `data` directory or its
/// `main_data.hdf5`), a Parquet or CSV table, or an `.npz` archive. What a file is, its content decides; only CSV,
/// which has no signature, needs its ending (`.csv`, `.tsv`).
///
/// [`Dataset::reading`] tells how next observations were obtained and what was left out. Damaged, foreign and
/// incomplete files are errors that name file, key, what was wanted and what was found.
///
/// ```no_run
/// let data = offing::data::read("hopper_medium-v2.hdf5".as_ref(), &Default::default())?;
/// println!("{} transitions; {}", data.rows.len(), data.reading.next_obs);
/// # Ok::<(), offing::Error>(())
/// ```
pub fn read(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    if path.is_dir() {
        refuse_map(path, options, "a directory")?;
        let dir = minari::find(path).ok_or_else(|| {
            let wanted = "wanted a Minari dataset (main_data.hdf5 and metadata.json, there or in data/)";
            Error::file(
                path,
                format!("{wanted}, found a directory without them; give the file or directory itself"),
            )
        })?;
        return minari::read_dir(&dir, options);
    }
    let head = head(path)?;
    let ending = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    if head.starts_with(HDF5_SIGNATURE) {
        refuse_map(path, options, "HDF5")?;
        let file = Hdf5::open(path)?;
        if minari::is_layout(file.names()) {
            minari::read_file(&file, path, options)
        } else {
            d4rl::read(&file, path, options)
        }
    } else if head.starts_with(PARQUET_SIGNATURE) {
        parquet::read(path, options)
    } else if ZIP_SIGNATURES.iter().any(|s| head.starts_with(s)) {
        refuse_map(path, options, "an npz archive")?;
        npz::read(path, options)
    } else if (ending == "csv" || ending == "tsv") && !head.is_empty() && !looks_like_html(&head) {
        csv::read(path, options)
    } else {
        Err(not_a_dataset(path, &head))
    }
}

/// Makes sure that the file is there and begins like HDF5.
pub(super) fn expect_hdf5(path: &Path) -> Result<()> {
    let head = head(path)?;
    if head.starts_with(HDF5_SIGNATURE) { Ok(()) } else { Err(not_a_dataset(path, &head)) }
}

/// A column map says nothing about a file whose arrays are found by their keys: it must not look as if it did.
fn refuse_map(path: &Path, options: &ReadOptions, found: &str) -> Result<()> {
    if options.columns.is_none() {
        return Ok(());
    }
    Err(Error::file(
        path,
        format!(
            "wanted CSV or Parquet for a column map, found {found}, whose arrays are known by D4RL's keys (observations, \
             actions, rewards, terminals, next_observations, timeouts); leave the map out and rename the keys"
        ),
    ))
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
    } else if let Some(ending) = like_a_table(head) {
        format!("text that looks like CSV; name it {ending}")
    } else {
        format!(
            "something else (it begins with {:02x?}); give one of these formats",
            &head[..head.len().min(8)]
        )
    };
    Error::file(path, format!("wanted a dataset (D4RL or Minari HDF5, Parquet, CSV, npz), found {found}"))
}

/// The ending that a text table should have: its first line is printable and has a separator in it.
fn like_a_table(head: &[u8]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(head);
    let line = text.trim_start_matches('\u{feff}').lines().next()?;
    let printable = line.chars().all(|c| c == '\t' || !c.is_control()) && !line.starts_with(['{', '[', '(']);
    // What a reader of bytes cuts in the middle of a letter is at the end of a long line.
    let text = !line.trim_end_matches('\u{fffd}').contains('\u{fffd}');
    match (printable && text, line.contains([',', ';']), line.contains('\t')) {
        (true, true, _) => Some(".csv"),
        (true, false, true) => Some(".tsv"),
        _ => None,
    }
}

fn looks_like_html(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let text = text.trim_start_matches(['\u{feff}', ' ', '\n', '\r', '\t']);
    ["<!doctype", "<html", "<head", "<?xml", "<error"].iter().any(|tag| text.starts_with(tag))
}
