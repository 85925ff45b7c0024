//! NumPy arrays (`np.save`), alone or as the entries of an archive.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use super::super::messages::{damaged_key, escaped, float16, one_line, show_shape};
use super::arrays::{OutArray, StoredArray, StoredValues};
use crate::batch::Mat;
use crate::error::{Error, Result};
use crate::home::write_atomic;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Whether a file that begins like this is an array.
pub(super) fn is_npy(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Reads a matrix saved by `np.save`; a vector is a matrix of one column.
pub fn read_npy(path: &Path) -> Result<Mat> {
    let file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
    read_array(BufReader::new(file), path, "array")?.matrix()
}

/// Writes a matrix as `np.save` would, in float32.
pub fn write_npy(values: &Mat, path: &Path) -> Result<()> {
    let array = OutArray::from(values.view());
    write_atomic(path, |file| {
        file.write_all(&header(&array)).and_then(|()| file.write_all(&array.to_bytes()))
    })
}

/// Reads one array; `key` names it in messages.
pub(super) fn read_array<'a>(mut source: impl Read, path: &'a Path, key: &'a str) -> Result<StoredArray<'a>> {
    let bad = |wanted: &str, found: String| damaged_key(path, key, wanted, found);
    let unreadable = |e: std::io::Error| bad("a complete .npy array", e.to_string());
    let mut lead = [0u8; 8];
    source.read_exact(&mut lead).map_err(unreadable)?;
    if !lead.starts_with(MAGIC) {
        return Err(bad("a .npy array", format!("an array that begins with {lead:02x?}")));
    }
    let mut length = [0u8; 4];
    let wide = lead[6] >= 2;
    source.read_exact(&mut length[..if wide { 4 } else { 2 }]).map_err(unreadable)?;
    let length = u32::from_le_bytes(length);
    if length > 1 << 16 {
        return Err(bad("a header of at most 64 KiB", format!("{length} bytes")));
    }
    let mut text = vec![0u8; length as usize];
    source.read_exact(&mut text).map_err(unreadable)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let Header { descr, fortran, shape } = parse_header(&text).ok_or_else(|| bad("a .npy header", text))?;
    if descr.ends_with("f2") {
        return Err(float16(path, key));
    }
    let descr = Descr::parse(&descr).ok_or_else(|| {
        let hint = "save it as float32 in this byte order";
        let found = format!("type `{}`", one_line(&descr));
        Error::key(path, escaped(key), "little-endian numbers or booleans", found, hint)
    })?;
    let size = descr.size;
    let total = shape.iter().try_fold(size, |t, &d| t.checked_mul(d));
    let total = total.ok_or_else(|| bad("a shape that fits in memory", show_shape(&shape)))?;
    // Grows with what is really there, so a lying header cannot make it allocate; one byte more shows a surplus.
    let mut bytes = Vec::new();
    source.by_ref().take(total as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() != total {
        let wanted = format!("{total} bytes for shape {}", show_shape(&shape));
        return Err(bad(&wanted, format!("{} or more", bytes.len())));
    }
    let entries = bytes.chunks_exact(size);
    let values = match (descr.kind, size) {
        ('f', 4) => {
            let single = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            StoredValues::F32(by_row(entries.map(single).collect(), fortran, &shape))
        }
        _ => StoredValues::F64(by_row(entries.map(|b| descr.decode(b)).collect(), fortran, &shape)),
    };
    Ok(StoredArray { path, key, shape, values })
}

/// The entries row by row, where a matrix may have been stored column by column.
fn by_row<T: Copy>(values: Vec<T>, fortran: bool, shape: &[usize]) -> Vec<T> {
    match (fortran, shape) {
        // Without entries there is nothing to turn, however many rows a header claims.
        (true, &[rows, width]) if !values.is_empty() => {
            (0..rows).flat_map(|i| (0..width).map(move |j| j * rows + i)).map(|at| values[at]).collect()
        }
        _ => values,
    }
}

/// The .npy header, padded as NumPy does.
pub(super) fn header(array: &OutArray) -> Vec<u8> {
    let descr = match array {
        OutArray::F32(_) => "<f4",
        OutArray::F64(_) => "<f8",
        OutArray::Bool(_) => "|b1",
    };
    let shape = show_shape(array.shape());
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

/// An element type of NumPy that stands for numbers.
struct Descr {
    /// `f`, `i`, `u` or `b`.
    kind: char,
    size: usize,
}

impl Descr {
    fn parse(text: &str) -> Option<Self> {
        let (order, rest) = text.split_at_checked(1)?;
        let (kind, size) = rest.split_at_checked(1)?;
        let (kind, size) = (kind.chars().next()?, size.parse().ok()?);
        let ordered = order == "<" || order == "|" || (order == "=" && cfg!(target_endian = "little"));
        let known = matches!((kind, size), ('f', 4 | 8) | ('i' | 'u', 1 | 2 | 4 | 8) | ('b', 1));
        (ordered && known).then_some(Self { kind, size })
    }

    fn decode(&self, bytes: &[u8]) -> f64 {
        let mut word = [0u8; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let unsigned = u64::from_le_bytes(word);
        match (self.kind, self.size) {
            ('f', _) => f64::from_bits(unsigned),
            ('i', size) => {
                let unused = 64 - 8 * size as u32;
                ((unsigned << unused) as i64 >> unused) as f64
            }
            _ => unsigned as f64,
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
        // NumPy maps files into memory: the numbers start at a multiple of 64 bytes, after a newline.
        let bytes = std::fs::read(&path).unwrap();
        let start = bytes.len() - 4 * values.len();
        assert_eq!((start % 64, bytes[start - 1]), (0, b'\n'));
        assert_eq!(usize::from(u16::from_le_bytes([bytes[8], bytes[9]])) + 10, start);
        std::fs::write(&path, b"<html>").unwrap();
        let error = read_npy(&path).unwrap_err().to_string();
        assert!(error.contains("a.npy") && !error.contains('\n'), "{error}");
    }
}
