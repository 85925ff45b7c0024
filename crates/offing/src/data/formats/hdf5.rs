//! Reading columns out of an HDF5 file with sizes checked before anything is allocated.
//!
//! A thin layer over the pure-Rust `rust-hdf5`: it turns every stored number type into the few offing works with and
//! every failure into one line that names file and key.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rust_hdf5::{DatatypeMessage, H5Dataset, H5File, H5Type};

use super::super::memory::{check_fits, zeroed};
use super::super::messages::{damaged, damaged_key, float16, show_shape};
use super::super::options::ReadOptions;
use super::arrays::{StoredArray, StoredValues};
use super::hdf5_elsewhere::{check_inside, check_no_virtual};
use super::hdf5_tiles::read_tiles;
use crate::error::{Error, Result, bad_file};

/// The first bytes of every HDF5 file.
pub(super) const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

/// Deflate cannot shrink data more than this, so a larger claim is a damaged header.
pub(super) const MAX_DEFLATE_RATIO: u64 = 1032;

/// Longest text or number array of a `metadata` entry worth keeping.
const MAX_META_BYTES: usize = 4096;

/// An open HDF5 file.
pub(super) struct Hdf5<'a> {
    file: H5File,
    path: &'a Path,
    bytes: u64,
    names: Vec<String>,
    /// The same, to look up: a name that is not listed may lead into another file.
    known: HashSet<String>,
}

impl<'a> Hdf5<'a> {
    /// Opens `path`, which the caller has found to start like an HDF5 file.
    pub(super) fn open(path: &'a Path) -> Result<Self> {
        let bytes = std::fs::metadata(path).map_err(|e| Error::io(path, "read", e))?.len();
        check_whole(path, bytes)?;
        check_no_virtual(path)?;
        Self::reopen(path)
    }

    /// Opens `path` once more, which [`Hdf5::open`] has looked at.
    pub(super) fn reopen(path: &'a Path) -> Result<Self> {
        let bytes = std::fs::metadata(path).map_err(|e| Error::io(path, "read", e))?.len();
        let file = H5File::options().no_locking().open(path).map_err(|e| damaged(path, "HDF5 file", e))?;
        let names = file.dataset_names();
        let known = names.iter().cloned().collect();
        Ok(Self { file, path, bytes, names, known })
    }

    /// Paths of all datasets in the file, in the file's order.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The dataset at `key`.
    pub(super) fn array<'k>(&self, key: &'k str) -> Result<StoredArray<'k>>
    where
        'a: 'k,
    {
        let set = self.dataset(key)?;
        Ok(StoredArray { path: self.path, key, shape: set.shape(), values: self.values(key, &set)? })
    }

    /// The rows of the dataset at `key`, by its header.
    pub(super) fn rows(&self, key: &str) -> Result<u64> {
        Ok(self.dataset(key)?.shape().first().copied().unwrap_or(0) as u64)
    }

    /// Makes sure that the datasets fit into memory. What a file of this length cannot hold is found when it is read.
    pub(super) fn check_size(&self, keys: &[&str], options: &ReadOptions) -> Result<()> {
        let most = self.bytes.saturating_mul(MAX_DEFLATE_RATIO);
        let mut needed = 0u64;
        for key in keys {
            let shape = self.dataset(key)?.shape();
            // Eight bytes a number: what double precision takes on the way, or single precision and a copy.
            let bytes = shape.iter().try_fold(8u64, |total, &d| total.checked_mul(d as u64));
            needed = needed.saturating_add(bytes.unwrap_or(u64::MAX).min(most));
        }
        check_fits(self.path, needed, options)
    }

    /// Whether the dataset at `key` has one or two dimensions of floating-point numbers: no image, no text.
    pub(super) fn is_flat_float(&self, key: &str) -> Result<bool> {
        let set = self.dataset(key)?;
        let datatype = set.datatype().map_err(|e| self.unreadable(key, &e))?;
        let is_float = matches!(datatype, DatatypeMessage::FloatingPoint { .. });
        Ok(is_float && (1..=2).contains(&set.shape().len()))
    }

    /// A short text or number as text; `None` when it is neither or too long to be a remark.
    pub(super) fn remark(&self, key: &str) -> Option<String> {
        let set = self.dataset(key).ok()?;
        let bytes = set.total_elements().checked_mul(set.element_size())?;
        if bytes > MAX_META_BYTES {
            return None;
        }
        match set.datatype().ok()? {
            DatatypeMessage::FixedString { .. } | DatatypeMessage::VarLenString { .. } => {
                let texts = set.read_strings_lossy().ok()?;
                let text = texts.first().filter(|_| texts.len() == 1)?;
                Some(text.trim_end_matches('\0').to_string())
            }
            _ if set.total_elements() == 1 => {
                Vec::<f64>::from(self.values(key, &set).ok()?).first().map(f64::to_string)
            }
            _ => None,
        }
    }

    /// Whether the dataset at `key` holds integers.
    pub(super) fn holds_integers(&self, key: &str) -> bool {
        let datatype = self.dataset(key).and_then(|set| set.datatype().map_err(|e| self.unreadable(key, &e)));
        matches!(datatype, Ok(DatatypeMessage::FixedPoint { .. }))
    }

    fn dataset(&self, key: &str) -> Result<H5Dataset> {
        if !self.known.contains(key) {
            let wanted = "a dataset of this name inside this file";
            return Err(damaged_key(self.path, key, wanted, "none, or a link to another file"));
        }
        let set = self.file.dataset(key).map_err(|e| self.unreadable(key, &e))?;
        check_inside(self.path, key, &set)?;
        Ok(set)
    }

    /// The elements, after making sure that the claimed size can be in a file of this length.
    fn values(&self, key: &str, set: &H5Dataset) -> Result<StoredValues> {
        let size = set.element_size();
        let filters = set.filters().map_err(|e| self.unreadable(key, &e))?;
        let ratio = if filters.is_empty() { 1 } else { MAX_DEFLATE_RATIO };
        let limit = self.bytes.saturating_mul(ratio);
        let claimed = set.shape().iter().try_fold(size as u64, |total, &d| total.checked_mul(d as u64));
        if claimed.is_none_or(|bytes| bytes > limit) {
            let wanted = format!("at most {limit} bytes, what a file of {} bytes can hold", self.bytes);
            let found = format!("a shape of {}", show_shape(&set.shape()));
            return Err(damaged_key(self.path, key, &wanted, found));
        }
        // A chunk is decoded whole, whatever part of it the data reach.
        let chunk = set.chunk_dims().unwrap_or_default();
        let chunk_bytes = chunk.iter().try_fold(size as u64, |total, &d| total.checked_mul(d as u64));
        if claimed != Some(0) && chunk_bytes.is_none_or(|bytes| bytes > limit) {
            let wanted =
                format!("chunks of at most {limit} bytes, what a file of {} bytes can hold", self.bytes);
            return Err(damaged_key(self.path, key, &wanted, format!("chunks of {}", show_shape(&chunk))));
        }
        let values = match set.datatype().map_err(|e| self.unreadable(key, &e))? {
            t if t == DatatypeMessage::f32_type() => {
                self.floats(key, set, f32::from_le_bytes).map(StoredValues::F32)
            }
            t if t == DatatypeMessage::f64_type() => {
                self.floats(key, set, f64::from_le_bytes).map(StoredValues::F64)
            }
            DatatypeMessage::FloatingPoint { size: 4, .. } => set.read_raw().map(StoredValues::F32),
            DatatypeMessage::FloatingPoint { size: 8, .. } => set.read_numeric_as().map(StoredValues::F64),
            DatatypeMessage::FloatingPoint { size: 2, .. } => return Err(float16(self.path, key)),
            DatatypeMessage::FixedPoint { .. } => set
                .read_numeric_as::<i64>()
                .map(|v| StoredValues::F64(v.into_iter().map(|x| x as f64).collect())),
            // h5py's bool is an enumeration over one byte.
            DatatypeMessage::Enum { .. } | DatatypeMessage::BitField { .. } if size == 1 => {
                set.read_raw::<u8>().map(|v| StoredValues::F32(v.into_iter().map(f32::from).collect()))
            }
            other => return Err(damaged_key(self.path, key, "numbers or booleans", kind_name(&other))),
        };
        values.map_err(|e| self.unreadable(key, &e))
    }

    /// The elements, which are little-endian floats of `N` bytes.
    fn floats<T: H5Type + Default, const N: usize>(
        &self,
        key: &str,
        set: &H5Dataset,
        decode: fn([u8; N]) -> T,
    ) -> rust_hdf5::Result<Vec<T>> {
        // What cannot be read in a quicker way is read whole, which also says what is wrong with it.
        let quick = read_tiles(self.path, key, set, decode).or_else(|| read_by_stretches(set));
        quick.map_or_else(|| set.read_raw(), Ok)
    }

    fn unreadable(&self, key: &str, error: &rust_hdf5::Hdf5Error) -> Error {
        damaged_key(self.path, key, "readable data", error)
    }
}

/// Stretches in which a chunked array is read. Each costs a look at the whole list of chunks.
const STRETCHES: usize = 64;

/// The elements of a compressed matrix. Read as a whole, all its chunks would be unpacked before any is put in place; those
/// of a stretch stay in the cache, and their memory serves the next.
fn read_by_stretches<T: H5Type + Default>(set: &H5Dataset) -> Option<Vec<T>> {
    let mut counts = set.shape();
    let (rows, size) = (*counts.first()?, set.total_elements());
    let stretch = rows.div_ceil(STRETCHES).checked_next_multiple_of(*set.chunk_dims()?.first()?)?;
    if counts.len() == 1 || size == 0 || stretch >= rows || set.filters().ok()?.is_empty() {
        return None;
    }
    let (mut values, width) = (zeroed::<T>(size)?, size / rows);
    let mut starts = vec![0; counts.len()];
    for part in values.chunks_mut(stretch * width) {
        counts[0] = part.len() / width;
        set.read_slice_into(part, &starts, &counts).ok()?;
        starts[0] += counts[0];
    }
    Some(values)
}

/// The header says where the file ends; a shorter one was cut. (`rust-hdf5` would only notice when it gets there.)
fn check_whole(path: &Path, bytes: u64) -> Result<()> {
    let mut head = Vec::new();
    let file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
    file.take(52).read_to_end(&mut head).map_err(|e| Error::io(path, "read", e))?;
    // Version, size of offsets, place of the end-of-file address: superblock versions 0 and 1, then 2 and 3.
    // Every writer has addresses and lengths of eight bytes.
    let place = match head.get(8..15) {
        Some(&[0, .., 8, 8]) => 40,
        Some(&[1, .., 8, 8]) => 44,
        Some(&[2 | 3, 8, 8, ..]) => 28,
        _ => return Err(damaged(path, "HDF5 file", "a header that no writer makes")),
    };
    let end = head.get(place..place + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    match end {
        Some(end) if end != u64::MAX && end > bytes => Err(bad_file!(
            path,
            "wanted {end} bytes, as its header says, found a file truncated to {bytes}; get it again"
        )),
        _ => Ok(()),
    }
}

fn kind_name(datatype: &DatatypeMessage) -> String {
    let text = format!("{datatype:?}");
    let name = text.split([' ', '{', '(']).next().unwrap_or("an unknown type");
    format!("elements of type {name}")
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::super::hdf5_write::Hdf5Writer;
    use super::*;

    #[test]
    fn a_matrix_of_many_chunks_is_read_by_stretches() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.hdf5");
        let (singles, doubles) = ([100_001, 2], [40_000, 2]);
        let singles = Array2::from_shape_fn(singles, |(i, j)| (2 * i + j) as f32);
        let doubles = Array2::from_shape_fn(doubles, |(i, j)| (3 * i + j) as f64);
        let file = Hdf5Writer::create(&path, &path).unwrap();
        file.put("singles", singles.view()).unwrap();
        file.put("doubles", doubles.view()).unwrap();
        file.close().unwrap();
        let file = Hdf5::open(&path).unwrap();
        assert!(read_by_stretches::<f32>(&file.dataset("singles").unwrap()).is_some());
        assert_eq!(file.array("singles").unwrap().matrix::<f32>().unwrap(), singles);
        assert_eq!(file.array("doubles").unwrap().matrix::<f64>().unwrap(), doubles);
    }
}
