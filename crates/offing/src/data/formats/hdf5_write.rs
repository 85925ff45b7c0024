//! Writing columns into an HDF5 file: gzip chunks compressed over threads, the same bytes for the same input.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use flate2::{Compression, write::ZlibEncoder};
use rayon::prelude::*;
use rust_hdf5::format::messages::datatype::EnumMember;
use rust_hdf5::{DatatypeMessage, FilterPipeline, H5File};

use super::super::messages::cannot_write;
use super::arrays::OutArray;
use crate::error::{Error, Result};

/// Uncompressed size of a chunk. Large enough to compress well, small enough for h5py's default chunk cache.
const CHUNK_BYTES: usize = 1 << 18;

/// Float mantissas hardly compress, so higher levels cost time and win nothing.
const LEVEL: u32 = 2;

/// An HDF5 file being written. A `/` in a key makes the groups it needs.
pub(super) struct Hdf5Writer<'a> {
    file: H5File,
    path: &'a Path,
    groups: RefCell<BTreeSet<String>>,
}

impl<'a> Hdf5Writer<'a> {
    /// Creates `temporary`; messages name `path`, the file it will become.
    pub(super) fn create(temporary: &Path, path: &'a Path) -> Result<Self> {
        let file = H5File::options().no_locking().create(temporary).map_err(|e| cannot_write(path, e))?;
        Ok(Self { file, path, groups: RefCell::default() })
    }

    /// Creates a group with whole numbers as attributes.
    pub(super) fn group(&self, name: &str, attributes: &[(&str, usize)]) -> Result<()> {
        let group = self.check(self.file.create_group(name))?;
        self.groups.borrow_mut().insert(name.into());
        attributes.iter().try_for_each(|(key, v)| self.check(group.set_attr_numeric(key, &(*v as i64))))
    }

    /// Writes an array of one or two dimensions at `key`.
    pub(super) fn put<'v>(&self, key: &str, array: impl Into<OutArray<'v>>) -> Result<()> {
        let array = array.into();
        self.create_groups(key)?;
        let (size, datatype) = match array {
            OutArray::F32(_) => (4, DatatypeMessage::f32_type()),
            OutArray::F64(_) => (8, DatatypeMessage::f64_type()),
            OutArray::Bool(_) => (1, bool_type()),
        };
        let (shape, bytes) = (array.shape(), array.to_bytes());
        let row = size * shape[1..].iter().product::<usize>();
        let mut chunk = shape.to_vec();
        chunk[0] = (CHUNK_BYTES / row).clamp(1, shape[0].max(1));
        let full = chunk[0] * row;
        let packed: Vec<Vec<u8>> = bytes
            .par_chunks(full)
            .map(|bytes| pack(bytes, full, size))
            .collect::<std::io::Result<_>>()
            .map_err(|e| Error::io(self.path, "compress", e))?;
        let pipeline = FilterPipeline::shuffle_deflate(size as u32, LEVEL);
        let builder = self.file.new_dataset::<u8>().shape(shape).chunk(&chunk).datatype(datatype);
        let set = self.check(builder.filter_pipeline(pipeline).create(key))?;
        packed.iter().enumerate().try_for_each(|(i, chunk)| self.check(set.write_chunk_raw(i, chunk, 0)))
    }

    /// Writes texts under `group`, as scalars that h5py reads as str.
    pub(super) fn texts(&self, group: &str, texts: &BTreeMap<String, String>) -> Result<()> {
        for (name, text) in texts {
            let key = format!("{group}/{name}");
            self.create_groups(&key)?;
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
        self.file.close_no_sync().map_err(|e| cannot_write(self.path, e))
    }

    fn create_groups(&self, key: &str) -> Result<()> {
        for (at, _) in key.match_indices('/') {
            if self.groups.borrow_mut().insert(key[..at].to_string()) {
                self.check(self.file.create_group(&key[..at]))?;
            }
        }
        Ok(())
    }

    fn check<T>(&self, result: rust_hdf5::Result<T>) -> Result<T> {
        result.map_err(|e| cannot_write(self.path, e))
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
