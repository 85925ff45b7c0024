//! What the pages of a Parquet column hold once they are unpacked, read from their headers before the library unpacks them.
//!
//! The footer's counts are one claim and the pages' another, and only the latter are what the library makes room for: a page of
//! ten bytes may stand for two billion values, or unpack to gigabytes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use parquet::basic::Compression;
use parquet::file::metadata::ColumnChunkMetaData;

use super::super::messages::damaged_key;
use super::hdf5::MAX_DEFLATE_RATIO;
use super::parquet_footer::{PageHeader, Thrift};
use crate::error::{Error, Result};

/// Bytes in which most headers fit; statistics may make them longer.
const SHORT_HEADER: u64 = 4 << 10;
const LONGEST_HEADER: u64 = 16 << 20;
/// A gzip page is unpacked by way of trial where it could grow to this much more than it says.
const GZIP_SURPRISE: u64 = 256 << 20;

/// Bytes that reading a column takes: the largest page, its values and a copy of them.
pub(super) fn bytes_of(path: &Path, file: &mut File, key: &str, chunk: &ColumnChunkMetaData) -> Result<u64> {
    let bad = |found: &str| damaged_key(path, key, "pages of a column", found);
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let (mut at, mut left) = match (u64::try_from(start), u64::try_from(chunk.compressed_size())) {
        (Ok(at), Ok(left)) => (at, left),
        _ => return Err(bad("a negative place")),
    };
    let (mut largest, mut values) = (0u64, 0u64);
    while left > 0 {
        let (length, header) = header_at(path, file, at, left)?.ok_or_else(|| bad("a damaged header"))?;
        let data = header.compressed.max(0) as u64;
        let unpacked = header.uncompressed.max(0) as u64;
        (at, left) = match left.checked_sub(length).and_then(|left| left.checked_sub(data)) {
            Some(rest) => (at + length, rest),
            None => return Err(bad("a page longer than its column")),
        };
        let could_be = data.saturating_mul(MAX_DEFLATE_RATIO);
        if matches!(chunk.compression(), Compression::GZIP(_)) && could_be > unpacked + GZIP_SURPRISE {
            check_gzip(path, file, at, data, unpacked).map_err(|found| bad(&found))?;
        }
        at += data;
        largest = largest.max(unpacked);
        values = values.saturating_add(header.values.max(0) as u64);
    }
    Ok(values.saturating_mul(8).saturating_add(largest))
}

/// The header at a place with its length; none where there is no whole one.
fn header_at(path: &Path, file: &mut File, at: u64, left: u64) -> Result<Option<(u64, PageHeader)>> {
    let io = |e| Error::io(path, "read", e);
    for most in [SHORT_HEADER, LONGEST_HEADER] {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(at)).map_err(io)?;
        Read::by_ref(file).take(most.min(left)).read_to_end(&mut bytes).map_err(io)?;
        let mut thrift = Thrift { bytes: &bytes };
        if let Some(header) = thrift.page_header() {
            return Ok(Some(((bytes.len() - thrift.bytes.len()) as u64, header)));
        }
        if (bytes.len() as u64) < most {
            break;
        }
    }
    Ok(None)
}

/// The library unpacks gzip to its end, whatever the header says.
fn check_gzip(
    path: &Path,
    file: &mut File,
    at: u64,
    data: u64,
    unpacked: u64,
) -> std::result::Result<(), String> {
    file.seek(SeekFrom::Start(at)).map_err(|e| Error::io(path, "read", e).to_string())?;
    let mut source = MultiGzDecoder::new(file.take(data)).take(unpacked + 1);
    // What cannot be unpacked is for the library to report.
    match std::io::copy(&mut source, &mut std::io::sink()) {
        Ok(found) if found > unpacked => {
            Err(format!("a page that unpacks to more than its {unpacked} bytes"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use flate2::write::GzEncoder;
    use parquet::basic::Type as Physical;
    use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type};

    use super::*;

    /// A number as Thrift writes it.
    fn zigzag(number: u64) -> Vec<u8> {
        let (mut left, mut bytes) = (number << 1, Vec::new());
        while left > 127 {
            bytes.push((left & 127) as u8 | 128);
            left >>= 7;
        }
        bytes.push(left as u8);
        bytes
    }

    /// A page of data whose header says this.
    fn page(uncompressed: u64, values: u64, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x15, 0, 0x15];
        bytes.extend(zigzag(uncompressed));
        bytes.push(0x15);
        bytes.extend(zigzag(data.len() as u64));
        bytes.extend([0x2c, 0x15]);
        bytes.extend(zigzag(values));
        bytes.extend([0x15, 0, 0x15, 6, 0x15, 6, 0, 0]);
        bytes.extend(data);
        bytes
    }

    fn needed(pages: &[u8], compression: Compression) -> Result<u64> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(pages).unwrap();
        let leaf = Type::primitive_type_builder("x", Physical::FLOAT).build().unwrap();
        let column = ColumnDescriptor::new(Arc::new(leaf), 0, 0, ColumnPath::from("x"));
        // One value, says the footer.
        let chunk = ColumnChunkMetaData::builder(Arc::new(column)).set_compression(compression);
        let chunk = chunk.set_num_values(1).set_total_compressed_size(pages.len() as i64).build().unwrap();
        bytes_of(Path::new("a.parquet"), &mut file, "x", &chunk)
    }

    #[test]
    fn values_and_sizes_are_those_of_the_pages_not_of_the_footer() {
        let many = i32::MAX as u64;
        let pages = [page(100, 20, &[0; 30]), page(2_000_000_000, many, &[0; 10])].concat();
        assert_eq!(needed(&pages, Compression::SNAPPY).unwrap(), 8 * (20 + many) + 2_000_000_000);
        for cut in [1, 5, 9, 20, pages.len() - 1] {
            let error = needed(&pages[..cut], Compression::SNAPPY).unwrap_err().to_string();
            assert!(error.contains("`x`") && error.contains("pages of a column"), "{cut}: {error}");
        }
    }

    #[test]
    fn a_gzip_page_that_unpacks_to_more_than_it_says_is_refused() {
        let zeros = vec![0u8; 300_000_000];
        let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        packed.write_all(&zeros).unwrap();
        let packed = packed.finish().unwrap();
        let gzip = Compression::GZIP(parquet::basic::GzipLevel::default());
        let error = needed(&page(1000, 250, &packed), gzip).unwrap_err().to_string();
        assert!(error.contains("unpacks to more than its 1000 bytes"), "{error}");
        assert_eq!(needed(&page(300_000_000, 0, &packed), gzip).unwrap(), 300_000_000);
    }
}
