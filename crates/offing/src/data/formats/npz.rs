//! NumPy archives (`np.savez`, `np.savez_compressed`) with D4RL's keys.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

use super::super::dataset::Dataset;
use super::super::memory::check_fits;
use super::super::messages::{damaged, damaged_key};
use super::super::options::ReadOptions;
use super::super::transitions::assemble;
use super::arrays::{OutArray, StoredArray};
use super::d4rl::{keyed_arrays, read_keyed};
use super::hdf5::MAX_DEFLATE_RATIO;
use super::{Candidate, Format, npy, row_number};
use crate::error::{Error, Result};
use crate::home::replace_atomic;

impl Format {
    /// A NumPy archive with D4RL's keys.
    pub const NPZ: Self = Self {
        name: "npz",
        title: "npz",
        extensions: &["npz"],
        is_table: false,
        recognises: is_archive,
        read: |candidate, options| read(candidate.path, options),
        write: Some(write),
        row_place: row_number,
    };
}

fn is_archive(candidate: &Candidate) -> bool {
    candidate.starts_with(b"PK\x03\x04") || candidate.starts_with(b"PK\x05\x06")
}

/// Whether the candidate is an archive whose keys satisfy `fits`. A damaged one satisfies nothing: the reader of plain
/// archives says what is wrong with it.
pub(super) fn has_keys(candidate: &Candidate, fits: impl Fn(&[String]) -> bool) -> bool {
    is_archive(candidate) && names(candidate.path).is_ok_and(|names| fits(&names))
}

fn read(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let fits = |keys: &[&str]| check_size(path, keys, options);
    assemble(read_keyed(path, &names(path)?, fits, |key| load(path, key))?, path, Format::NPZ, options)
}

/// Makes sure that the arrays fit into memory.
pub(super) fn check_size(path: &Path, keys: &[&str], options: &ReadOptions) -> Result<()> {
    let mut archive = open(path)?;
    let mut needed = 0u64;
    for key in keys {
        // An entry that cannot be opened is reported when it is read.
        if let Ok(entry) = archive.by_name(&format!("{key}.npy")) {
            // The bytes and the numbers made of them; deflate cannot shrink data more than this.
            let most = entry.compressed_size().saturating_mul(MAX_DEFLATE_RATIO);
            needed = needed.saturating_add(entry.size().min(most).saturating_mul(2));
        }
    }
    check_fits(path, needed, options)
}

/// The keys of an archive, sorted.
pub(super) fn names(path: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for name in open(path)?.file_names() {
        let name = name.map_err(|e| damaged(path, ".npz archive", e))?;
        names.push(name.strip_suffix(".npy").unwrap_or(&name).to_string());
    }
    names.sort();
    Ok(names)
}

fn open(path: &Path) -> Result<ZipArchive<BufReader<File>>> {
    let file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
    ZipArchive::new(BufReader::new(file)).map_err(|e| damaged(path, ".npz archive", e))
}

/// Reads one array.
pub(super) fn load<'a>(path: &'a Path, key: &'a str) -> Result<StoredArray<'a>> {
    let mut archive = open(path)?;
    let with_ending = format!("{key}.npy");
    let name = if archive.index_for_name(&with_ending).is_some() { &with_ending } else { key };
    let entry = archive.by_name(name).map_err(|e| damaged_key(path, key, "a readable entry", e))?;
    // No further than the archive says, which is what was held against the memory; the entry may unpack to more.
    let size = entry.size();
    npy::read_array(entry.take(size), path, key)
}

/// Writes `data` as `np.savez_compressed` would, with D4RL's keys and types. It cannot hold [`Dataset::meta`].
fn write(data: &Dataset, path: &Path) -> Result<()> {
    write_archive(path, &keyed_arrays(data))
}

/// Writes named arrays as an archive; the same arrays give the same bytes.
pub(super) fn write_archive(path: &Path, arrays: &[(&str, OutArray<'_>)]) -> Result<()> {
    replace_atomic(path, |temporary| {
        let failed = |e: std::io::Error| Error::io(path, "write", e);
        let mut zip = ZipWriter::new(BufWriter::new(File::create(temporary).map_err(failed)?));
        for (key, array) in arrays {
            let bytes = array.to_bytes();
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Deflated)
                .compression_level(Some(2))
                .large_file(bytes.len() > u32::MAX as usize / 2);
            zip.start_file(format!("{key}.npy"), options).map_err(|e| failed(e.into()))?;
            zip.write_all(&npy::header(array)).and_then(|()| zip.write_all(&bytes)).map_err(failed)?;
        }
        let mut out = zip.finish().map_err(|e| failed(e.into()))?;
        out.flush().map_err(failed)
    })
}

/// Writes arrays as a test has them.
#[cfg(test)]
pub(super) fn write_plain(path: &Path, arrays: &[(&str, ndarray::ArrayD<f32>)]) {
    let arrays: Vec<(&str, OutArray)> =
        arrays.iter().map(|(key, values)| (*key, values.view().into())).collect();
    write_archive(path, &arrays).unwrap();
}
