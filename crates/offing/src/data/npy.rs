//! NumPy arrays (`np.save`), alone or as the entries of an archive.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use ndarray::{Array1, Array2};

use super::hdf5::{check_flags, escaped, float16, one_line, show_shape};
use crate::batch::Mat;
use crate::error::{Error, Result};
use crate::home::write_atomic;

const MAGIC: &[u8] = b"\x93NUMPY";

/// One array, whatever its element type.
pub(super) struct Npy {
    shape: Vec<usize>,
    values: Vec<f64>,
}

/// Reads a matrix saved by `np.save`; a vector is a matrix of one column.
pub fn read_npy(path: &Path) -> Result<Mat> {
    let file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
    Ok(Npy::read(BufReader::new(file), path, "array")?.matrix(path, "array")?.mapv(|v| v as f32))
}

/// Writes a matrix as `np.save` would, in float32.
pub fn write_npy(values: &Mat, path: &Path) -> Result<()> {
    write_atomic(path, |file| {
        file.write_all(&header("<f4", values.shape()))?;
        values.iter().try_for_each(|v| file.write_all(&v.to_le_bytes()))
    })
}

impl Npy {
    /// Reads one array; `key` names it in messages.
    pub(super) fn read(mut source: impl Read, path: &Path, key: &str) -> Result<Self> {
        let unreadable =
            |e: std::io::Error| bad(path, key, "a complete .npy array", one_line(&e.to_string()));
        let mut lead = [0u8; 8];
        source.read_exact(&mut lead).map_err(unreadable)?;
        if !lead.starts_with(MAGIC) {
            return Err(bad(path, key, "a .npy array", format!("an array that begins with {:02x?}", &lead)));
        }
        let mut length = [0u8; 4];
        let wide = lead[6] >= 2;
        source.read_exact(&mut length[..if wide { 4 } else { 2 }]).map_err(unreadable)?;
        let length = u32::from_le_bytes(length);
        if length > 1 << 16 {
            return Err(bad(path, key, "a header of at most 64 KiB", format!("{length} bytes")));
        }
        let mut text = vec![0u8; length as usize];
        source.read_exact(&mut text).map_err(unreadable)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let header = parse_header(&text).ok_or_else(|| bad(path, key, "a .npy header", one_line(&text)))?;
        let Header { descr, fortran, shape } = header;
        if descr.ends_with("f2") {
            return Err(float16(path, key));
        }
        let descr = Descr::parse(&descr).ok_or_else(|| {
            let hint = "save it as float32 in this byte order";
            let found = format!("type `{}`", one_line(&descr));
            Error::key(path, escaped(key), "little-endian numbers or booleans", found, hint)
        })?;
        let size = descr.size();
        let total = shape.iter().try_fold(size, |t, &d| t.checked_mul(d));
        let total = total.ok_or_else(|| bad(path, key, "a shape that fits in memory", show_shape(&shape)))?;
        // Grows with what is really there, so a lying header cannot make it allocate; one byte more shows a surplus.
        let mut bytes = Vec::new();
        source.by_ref().take(total as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() != total {
            return Err(bad(
                path,
                key,
                &format!("{total} bytes for shape {}", show_shape(&shape)),
                format!("{} or more", bytes.len()),
            ));
        }
        let mut values: Vec<f64> = bytes.chunks_exact(size).map(|b| descr.decode(b)).collect();
        if let (true, &[rows, width]) = (fortran, shape.as_slice()) {
            values =
                (0..rows).flat_map(|i| (0..width).map(move |j| j * rows + i)).map(|at| values[at]).collect();
        }
        Ok(Npy { values, shape })
    }

    pub(super) fn matrix(self, path: &Path, key: &str) -> Result<Array2<f64>> {
        let shape = match *self.shape.as_slice() {
            [rows] => (rows, 1),
            [rows, width] if width > 0 => (rows, width),
            _ => return Err(wrong_shape(path, key, "(rows, width)", &self.shape)),
        };
        Array2::from_shape_vec(shape, self.values)
            .map_err(|_| wrong_shape(path, key, "(rows, width)", &self.shape))
    }

    pub(super) fn column(self, path: &Path, key: &str) -> Result<Array1<f64>> {
        match *self.shape.as_slice() {
            [_] | [_, 1] => Ok(Array1::from(self.values)),
            _ => Err(wrong_shape(path, key, "(rows,) or (rows, 1)", &self.shape)),
        }
    }

    pub(super) fn flags(self, path: &Path, key: &str) -> Result<Array1<bool>> {
        let column = self.column(path, key)?;
        check_flags(path, key, column.iter().copied())?;
        Ok(column.mapv(|v| v != 0.0))
    }
}

fn wrong_shape(path: &Path, key: &str, wanted: &str, found: &[usize]) -> Error {
    Error::key(path, key, format!("shape {wanted}"), show_shape(found), "flatten it before saving")
}

pub(super) fn bad(path: &Path, key: &str, wanted: &str, found: String) -> Error {
    let hint = "the file is damaged or of another kind: save it again";
    Error::key(path, escaped(key), wanted, found, hint)
}

/// The .npy header, padded as NumPy does.
pub(super) fn header(descr: &str, shape: &[usize]) -> Vec<u8> {
    let shape = show_shape(shape);
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let unpadded = MAGIC.len() + 4 + text.len() + 1;
    text.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
    text.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// Element types of NumPy that stand for numbers.
#[derive(Clone, Copy)]
enum Descr {
    Float(usize),
    Signed(usize),
    Unsigned(usize),
}

impl Descr {
    fn parse(text: &str) -> Option<Self> {
        let (order, rest) = text.split_at_checked(1)?;
        let (kind, size) = rest.split_at_checked(1)?;
        let size: usize = size.parse().ok()?;
        let ordered = order == "<" || order == "|" || (order == "=" && cfg!(target_endian = "little"));
        match (ordered, kind, size) {
            (true, "f", 4 | 8) => Some(Self::Float(size)),
            (true, "i", 1 | 2 | 4 | 8) => Some(Self::Signed(size)),
            (true, "u", 1 | 2 | 4 | 8) | (true, "b", 1) => Some(Self::Unsigned(size)),
            _ => None,
        }
    }

    fn size(self) -> usize {
        match self {
            Self::Float(size) | Self::Signed(size) | Self::Unsigned(size) => size,
        }
    }

    fn decode(self, bytes: &[u8]) -> f64 {
        let mut word = [0u8; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let unsigned = u64::from_le_bytes(word);
        match self {
            Self::Float(4) => f64::from(f32::from_bits(unsigned as u32)),
            Self::Float(_) => f64::from_bits(unsigned),
            Self::Unsigned(_) => unsigned as f64,
            Self::Signed(size) => {
                let unused = 64 - 8 * size as u32;
                ((unsigned << unused) as i64 >> unused) as f64
            }
        }
    }
}

/// What stands before the numbers.
struct Header {
    descr: String,
    /// Column by column.
    fortran: bool,
    shape: Vec<usize>,
}

/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`; `None` for anything else.
fn parse_header(text: &str) -> Option<Header> {
    let after = |key: &str| text.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    let descr = after("descr")?.strip_prefix('\'')?.split_once('\'')?.0;
    let shape = after("shape")?.strip_prefix('(')?.split_once(')')?.0;
    let shape: Vec<usize> = shape
        .split(',')
        .map(str::trim)
        .filter(|d| !d.is_empty())
        .map(|d| d.parse().ok())
        .collect::<Option<_>>()?;
    let order = after("fortran_order")?;
    let fortran = order.starts_with("True");
    (fortran || order.starts_with("False")).then_some(())?;
    Some(Header { descr: descr.into(), fortran, shape })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        let values = Mat::from_shape_fn((7, 3), |(i, j)| i as f32 - 0.25 * j as f32);
        write_npy(&values, &path).unwrap();
        assert_eq!(read_npy(&path).unwrap(), values);
        std::fs::write(&path, b"<html>").unwrap();
        let error = read_npy(&path).unwrap_err().to_string();
        assert!(error.contains("a.npy") && !error.contains('\n'), "{error}");
    }
}
