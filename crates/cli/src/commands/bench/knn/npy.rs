//! Writes an f32 matrix as a NumPy file.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use offing::Mat;

pub(crate) fn write(path: &Path, matrix: &Mat) -> Result<()> {
    let (rows, columns) = matrix.dim();
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    // The data must start at a multiple of 64 bytes; the header ends in a newline.
    let padding = 63 - (10 + header.len()) % 64;
    header.push_str(&" ".repeat(padding));
    header.push('\n');
    offing::home::write_atomic(path, |f| {
        f.write_all(b"\x93NUMPY\x01\x00")?;
        f.write_all(&(header.len() as u16).to_le_bytes())?;
        f.write_all(header.as_bytes())?;
        for row in matrix.rows() {
            for value in row {
                f.write_all(&value.to_le_bytes())?;
            }
        }
        Ok(())
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_padded_to_64_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.npy");
        write(&path, &ndarray::array![[1.0f32, 2.0], [3.0, 4.0]]).unwrap();
        let bytes = std::fs::read(path).unwrap();
        let start = bytes.len() - 16;
        assert_eq!(start % 64, 0);
        assert_eq!(bytes[start - 1], b'\n');
        assert_eq!(bytes[start..start + 4], 1.0f32.to_le_bytes());
        assert_eq!(usize::from(bytes[8]) + 256 * usize::from(bytes[9]) + 10, start);
    }
}
