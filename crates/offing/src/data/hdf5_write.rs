//! Writing columns into an HDF5 file: gzip chunks compressed over threads, the same bytes for the same input.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use flate2::{Compression, write::ZlibEncoder};
use rayon::prelude::*;
use rust_hdf5::format::messages::datatype::EnumMember;
use rust_hdf5::{DatatypeMessage, FilterPipeline, H5File, Hdf5Error};

use crate::error::{Error, Result};

/// Uncompressed size of a chunk. Large enough to compress well, small enough for h5py's default chunk cache.
const CHUNK_BYTES: usize = 1 << 18;

/// Float mantissas hardly compress, so higher levels cost time and win nothing.
const LEVEL: u32 = 2;

/// Columns of one row-major table, by element type.
pub(super) enum Values<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Double precision.
    F64(&'a [f64]),
    /// h5py's bool.
    Bool(&'a [bool]),
}

/// An HDF5 file being written.
pub(super) struct Writer<'a> {
    file: H5File,
    path: &'a Path,
}

impl<'a> Writer<'a> {
    /// Creates `temporary`; messages name `path`, the file it will become.
    pub(super) fn create(temporary: &Path, path: &'a Path) -> Result<Self> {
        let file = H5File::options().no_locking().create(temporary).map_err(|e| failed(path, &e))?;
        Ok(Self { file, path })
    }

    /// The file itself, for groups and attributes.
    pub(super) fn file(&self) -> &H5File {
        &self.file
    }

    /// Turns the library's error into ours.
    pub(super) fn check<T>(&self, result: rust_hdf5::Result<T>) -> Result<T> {
        result.map_err(|e| failed(self.path, &e))
    }

    /// Writes `values` at `key`, whose groups must exist. `width` is `None` for a vector of one element a row.
    pub(super) fn put(&self, key: &str, width: Option<usize>, values: Values<'_>) -> Result<()> {
        let (bytes, size, datatype) = match values {
            Values::F32(v) => (to_bytes(v, |x| x.to_le_bytes()), 4, DatatypeMessage::f32_type()),
            Values::F64(v) => (to_bytes(v, |x| x.to_le_bytes()), 8, DatatypeMessage::f64_type()),
            Values::Bool(v) => (v.iter().map(|&b| u8::from(b)).collect(), 1, bool_type()),
        };
        let row = size * width.unwrap_or(1);
        let rows = bytes.len() / row;
        let chunk_rows = (CHUNK_BYTES / row).clamp(1, rows.max(1));
        let (shape, chunk) = match width {
            Some(width) => (vec![rows, width], vec![chunk_rows, width]),
            None => (vec![rows], vec![chunk_rows]),
        };
        let pipeline = FilterPipeline::shuffle_deflate(size as u32, LEVEL);
        let packed: Vec<Vec<u8>> = bytes
            .par_chunks(chunk_rows * row)
            .map(|chunk| pack(chunk, chunk_rows * row, size))
            .collect::<std::io::Result<_>>()
            .map_err(|e| Error::io(self.path, "compress", e))?;
        let set = match size {
            1 => self.create_set::<u8>(key, &shape, &chunk, pipeline, datatype),
            4 => self.create_set::<f32>(key, &shape, &chunk, pipeline, datatype),
            _ => self.create_set::<f64>(key, &shape, &chunk, pipeline, datatype),
        }?;
        for (index, chunk) in packed.iter().enumerate() {
            self.check(set.write_chunk_raw(index, chunk, 0))?;
        }
        Ok(())
    }

    /// Writes texts under `group`, as scalars h5py reads as str. A `/` in a name makes a sub-group.
    pub(super) fn texts(&self, group: &str, texts: &BTreeMap<String, String>) -> Result<()> {
        let mut groups = BTreeSet::new();
        for (name, text) in texts {
            let key = format!("{group}/{name}");
            for (at, _) in key.match_indices('/') {
                if groups.insert(key[..at].to_string()) {
                    self.check(self.file.create_group(&key[..at]))?;
                }
            }
            // A fixed-length string of at least one byte: HDF5 has no empty ones.
            let size = text.len().max(1);
            let datatype = DatatypeMessage::FixedString { size: size as u32, padding: 1, charset: 1 };
            let mut bytes = text.clone().into_bytes();
            bytes.resize(size, 0);
            let set = self.check(self.file.new_dataset::<u8>().scalar().datatype(datatype).create(&key))?;
            self.check(set.write_raw_bytes(&bytes))?;
        }
        Ok(())
    }

    /// Finishes the file.
    pub(super) fn close(self) -> Result<()> {
        let path = self.path;
        self.file.close_no_sync().map_err(|e| failed(path, &e))
    }

    fn create_set<T: rust_hdf5::H5Type>(
        &self,
        key: &str,
        shape: &[usize],
        chunk: &[usize],
        pipeline: FilterPipeline,
        datatype: DatatypeMessage,
    ) -> Result<rust_hdf5::H5Dataset> {
        let builder = self.file.new_dataset::<T>().shape(shape).chunk(chunk).datatype(datatype);
        self.check(builder.filter_pipeline(pipeline).create(key))
    }
}

/// The enumeration h5py stores NumPy booleans as.
fn bool_type() -> DatatypeMessage {
    let member = |name: &str, value| EnumMember { name: name.into(), value: vec![value] };
    DatatypeMessage::Enum {
        base: Box::new(DatatypeMessage::i8_type()),
        members: vec![member("FALSE", 0), member("TRUE", 1)],
    }
}

/// One chunk as HDF5 stores it: padded to full size, bytes of equal significance together, then zlib.
fn pack(chunk: &[u8], full: usize, size: usize) -> std::io::Result<Vec<u8>> {
    let mut shuffled = vec![0u8; full];
    let elements = full / size;
    for (i, element) in chunk.chunks_exact(size).enumerate() {
        for (b, &byte) in element.iter().enumerate() {
            shuffled[b * elements + i] = byte;
        }
    }
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(full), Compression::new(LEVEL));
    encoder.write_all(&shuffled)?;
    encoder.finish()
}

fn to_bytes<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&v| bytes(v)).collect()
}

fn failed(path: &Path, error: &Hdf5Error) -> Error {
    Error::file(path, format!("cannot write it: {}", super::hdf5::one_line(&error.to_string())))
}
