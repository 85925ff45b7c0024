//! Reading columns out of an HDF5 file with sizes checked before anything is allocated.
//!
//! A thin layer over the pure-Rust `rust-hdf5`: it turns every stored number type into the few offing works with and
//! every failure into one line that names file and key.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ndarray::{Array1, Array2};
use rust_hdf5::{DatatypeMessage, H5Dataset, H5File};

use crate::batch::Mat;
use crate::error::{Error, Result};

/// Deflate cannot shrink data more than this, so a larger claim is a damaged header.
const MAX_DEFLATE_RATIO: u64 = 1032;

/// Longest text or number array of a `metadata` entry worth keeping.
const MAX_META_BYTES: usize = 4096;

/// An open HDF5 file.
pub(super) struct Hdf5 {
    file: H5File,
    path: PathBuf,
    bytes: u64,
    names: Vec<String>,
    known: HashSet<String>,
}

/// How the elements of a dataset are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Element {
    F32,
    F64,
    Integer,
    /// h5py's bool: an enumeration over one byte.
    Byte,
}

impl Hdf5 {
    /// Opens `path`, which the caller has found to start like an HDF5 file.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let bytes = std::fs::metadata(path).map_err(|e| Error::io(path, "read", e))?.len();
        check_whole(path, bytes)?;
        let file = H5File::options().no_locking().open(path).map_err(|e| damaged(path, &e))?;
        let names = file.dataset_names();
        let known = names.iter().cloned().collect();
        Ok(Self { file, path: path.to_path_buf(), bytes, names, known })
    }

    /// Paths of all datasets in the file, in the file's order.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether there is a dataset at `key`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.known.contains(key)
    }

    /// Shape of the dataset at `key`.
    pub(super) fn shape(&self, key: &str) -> Result<Vec<usize>> {
        Ok(self.dataset(key)?.shape())
    }

    /// A matrix of f32: (N, d), or (N,) as one column.
    pub(super) fn matrix(&self, key: &str) -> Result<Mat> {
        let (set, shape) = self.table(key)?;
        self.shaped(key, shape, self.values_f32(key, &set)?)
    }

    /// A matrix of f32 from an array of any rank, flattened row by row.
    pub(super) fn flat_matrix(&self, key: &str) -> Result<Mat> {
        let set = self.dataset(key)?;
        let shape = set.shape();
        let Some((&rows, rest)) = shape.split_first() else {
            return Err(self.wrong_shape(key, "(rows, …)", &shape));
        };
        let values = self.values_f32(key, &set)?;
        let width = rest.iter().try_fold(1usize, |w, &d| w.checked_mul(d)).filter(|&w| w > 0);
        let width = width.ok_or_else(|| self.wrong_shape(key, "(rows, width)", &shape))?;
        self.shaped(key, (rows, width), values)
    }

    /// A matrix of f64: (N, d), or (N,) as one column.
    pub(super) fn wide_matrix(&self, key: &str) -> Result<Array2<f64>> {
        let (set, shape) = self.table(key)?;
        self.shaped(key, shape, self.values_f64(key, &set)?)
    }

    /// One number a row: (N,) or (N, 1).
    pub(super) fn column(&self, key: &str) -> Result<Array1<f32>> {
        let set = self.single(key)?;
        self.values_f32(key, &set).map(Array1::from)
    }

    /// One yes or no a row: (N,) or (N, 1), stored as bool, integer or float 0/1.
    pub(super) fn flags(&self, key: &str) -> Result<Array1<bool>> {
        let set = self.single(key)?;
        let flags = match self.element(key, &set)? {
            Element::Byte => {
                let raw = set.read_raw::<u8>().map_err(|e| self.unreadable(key, &e))?;
                check_flags(&self.path, key, raw.iter().map(|&v| f64::from(v)))?;
                raw.into_iter().map(|v| v != 0).collect()
            }
            _ => {
                let raw = self.values_f64(key, &set)?;
                check_flags(&self.path, key, raw.iter().copied())?;
                raw.into_iter().map(|v| v != 0.0).collect()
            }
        };
        Ok(flags)
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
                let value = self.values_f64(key, &set).ok()?;
                value.first().map(f64::to_string)
            }
            _ => None,
        }
    }

    fn dataset(&self, key: &str) -> Result<H5Dataset> {
        self.file.dataset(key).map_err(|e| self.unreadable(key, &e))
    }

    /// The dataset and its (rows, columns).
    fn table(&self, key: &str) -> Result<(H5Dataset, (usize, usize))> {
        let set = self.dataset(key)?;
        match *set.shape().as_slice() {
            [rows] => Ok((set, (rows, 1))),
            [rows, columns] if columns > 0 => Ok((set, (rows, columns))),
            ref other => Err(self.wrong_shape(key, "(rows, width)", other)),
        }
    }

    /// The dataset, which must have one element a row.
    fn single(&self, key: &str) -> Result<H5Dataset> {
        let set = self.dataset(key)?;
        match *set.shape().as_slice() {
            [_] | [_, 1] => Ok(set),
            ref other => Err(self.wrong_shape(key, "(rows,) or (rows, 1)", other)),
        }
    }

    fn values_f32(&self, key: &str, set: &H5Dataset) -> Result<Vec<f32>> {
        match self.element(key, set)? {
            Element::F32 => set.read_raw::<f32>().map_err(|e| self.unreadable(key, &e)),
            _ => Ok(self.values_f64(key, set)?.into_iter().map(|v| v as f32).collect()),
        }
    }

    fn values_f64(&self, key: &str, set: &H5Dataset) -> Result<Vec<f64>> {
        match self.element(key, set)? {
            Element::F32 | Element::F64 => set.read_numeric_as::<f64>().map_err(|e| self.unreadable(key, &e)),
            Element::Integer => {
                let raw = set.read_numeric_as::<i64>().map_err(|e| self.unreadable(key, &e))?;
                Ok(raw.into_iter().map(|v| v as f64).collect())
            }
            Element::Byte => {
                let raw = set.read_raw::<u8>().map_err(|e| self.unreadable(key, &e))?;
                Ok(raw.into_iter().map(f64::from).collect())
            }
        }
    }

    /// The element type, after making sure that the claimed size can be in a file of this length.
    fn element(&self, key: &str, set: &H5Dataset) -> Result<Element> {
        let datatype = set.datatype().map_err(|e| self.unreadable(key, &e))?;
        let size = set.element_size();
        let element = match &datatype {
            DatatypeMessage::FloatingPoint { size: 4, .. } => Element::F32,
            DatatypeMessage::FloatingPoint { size: 8, .. } => Element::F64,
            DatatypeMessage::FloatingPoint { size: 2, .. } => return Err(float16(&self.path, key)),
            DatatypeMessage::FixedPoint { .. } => Element::Integer,
            DatatypeMessage::Enum { .. } | DatatypeMessage::BitField { .. } if size == 1 => Element::Byte,
            other => {
                return Err(self.key(key, "numbers or booleans", &kind_name(other)));
            }
        };
        let filters = set.filters().map_err(|e| self.unreadable(key, &e))?;
        let ratio = if filters.is_empty() { 1 } else { MAX_DEFLATE_RATIO };
        let limit = self.bytes.saturating_mul(ratio);
        let claimed = set.shape().iter().try_fold(size as u64, |total, &d| total.checked_mul(d as u64));
        match claimed {
            Some(bytes) if bytes <= limit => Ok(element),
            _ => Err(self.key(
                key,
                &format!("at most {limit} bytes, what a file of {} bytes can hold", self.bytes),
                &format!("a shape of {}", show_shape(&set.shape())),
            )),
        }
    }

    fn shaped<T>(&self, key: &str, shape: (usize, usize), values: Vec<T>) -> Result<Array2<T>> {
        let found = values.len();
        Array2::from_shape_vec(shape, values).map_err(|_| {
            self.key(key, &format!("{} numbers", shape.0.saturating_mul(shape.1)), &found.to_string())
        })
    }

    fn key(&self, key: &str, wanted: &str, found: &str) -> Error {
        Error::key(
            &self.path,
            escaped(key),
            wanted,
            found,
            "the file is damaged or of another kind: get it again",
        )
    }

    fn wrong_shape(&self, key: &str, wanted: &str, found: &[usize]) -> Error {
        let hint = "only flat vectors are supported: flatten it when writing the file";
        Error::key(&self.path, escaped(key), format!("shape {wanted}"), show_shape(found), hint)
    }

    fn unreadable(&self, key: &str, error: &rust_hdf5::Hdf5Error) -> Error {
        self.key(key, "readable data", &one_line(&error.to_string()))
    }
}

/// Half precision is a whole file, but too coarse for states and not read.
pub(super) fn float16(path: &Path, key: &str) -> Error {
    let hint = "float16 is not supported; rewrite as float32";
    Error::key(path, escaped(key), "float32 or float64", "float16", hint)
}

/// (1000, 17) as Python would print it.
pub(super) fn show_shape(shape: &[usize]) -> String {
    let parts: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("({}{})", parts.join(", "), if shape.len() == 1 { "," } else { "" })
}

/// Checks that flags are 0 or 1 and names the first that is not.
pub(super) fn check_flags(path: &Path, key: &str, values: impl Iterator<Item = f64>) -> Result<()> {
    for (row, value) in values.enumerate() {
        if value != 0.0 && value != 1.0 {
            return Err(bad_flag(path, key, value, &format!("row {row}")));
        }
    }
    Ok(())
}

/// A flag that is neither yes nor no.
pub(super) fn bad_flag(path: &Path, key: &str, value: f64, place: &str) -> Error {
    let hint = "store flags as booleans or as 0 and 1";
    Error::key(path, escaped(key), "0 or 1", format!("{value} in {place}"), hint)
}

/// A third party's message, without line breaks and not longer than a terminal line or two.
pub(super) fn one_line(message: &str) -> String {
    let flat = escaped(&message.split_whitespace().collect::<Vec<_>>().join(" "));
    match flat.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &flat[..end]),
        None => flat,
    }
}

/// A name or cell of a file as a message may show it: a terminal must not obey what a file says.
pub(super) fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c.is_control() {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

/// The first few of the names found, for messages; a damaged file may hold anything as a name.
pub(super) fn some_names(names: &[String]) -> String {
    const FEW: usize = 12;
    let mut some: Vec<String> =
        names.iter().take(FEW).map(|n| escaped(n).chars().take(40).collect()).collect();
    match names.len() {
        0 => return "nothing".into(),
        n if n > FEW => some.push("…".into()),
        _ => (),
    }
    format!("only {}", some.join(", "))
}

/// The header says where the file ends; a shorter one was cut. (`rust-hdf5` would only notice when it gets there.)
fn check_whole(path: &Path, bytes: u64) -> Result<()> {
    let mut head = Vec::new();
    let file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
    file.take(52).read_to_end(&mut head).map_err(|e| Error::io(path, "read", e))?;
    // Version, size of offsets, place of the end-of-file address: superblock versions 0 and 1, then 2 and 3.
    let place = match head.get(8..14) {
        Some(&[0, .., 8]) => 40,
        Some(&[1, .., 8]) => 44,
        Some(&[2 | 3, 8, ..]) => 28,
        _ => return Ok(()),
    };
    let end = head.get(place..place + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    match end {
        Some(end) if end != u64::MAX && end > bytes => Err(Error::file(
            path,
            format!(
                "wanted {end} bytes, as its header says, found a file truncated to {bytes}; get it again"
            ),
        )),
        _ => Ok(()),
    }
}

fn damaged(path: &Path, error: &rust_hdf5::Hdf5Error) -> Error {
    let why = one_line(&error.to_string());
    Error::file(
        path,
        format!("wanted a complete HDF5 file, found a damaged or truncated one ({why}); get it again"),
    )
}

fn kind_name(datatype: &DatatypeMessage) -> String {
    let text = format!("{datatype:?}");
    let name = text.split([' ', '{', '(']).next().unwrap_or("an unknown type");
    format!("elements of type {name}")
}
