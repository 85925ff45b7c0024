//! Parquet tables of other programs: texts as episode ids, and what is not supported says so.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fixture;

use std::path::Path;
use std::sync::Arc;

use fixture::dataset;
use offing::data::{Format, ReadOptions, read, write};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, FixedLenByteArrayType, FloatType};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

fn table(path: &Path, schema: &str, fill: impl FnOnce(&mut SerializedRowGroupWriter<'_, std::fs::File>)) {
    let schema = Arc::new(parse_message_type(&format!("message t {{ {schema} }}")).unwrap());
    let file = std::fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    fill(&mut group);
    group.close().unwrap();
    writer.close().unwrap();
}

fn put<T: DataType>(group: &mut SerializedRowGroupWriter<'_, std::fs::File>, values: &[T::T]) {
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, None, None).unwrap();
    column.close().unwrap();
}

#[test]
fn episodes_may_have_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let floats = "required float obs_0; required float act_0; required float reward;";
    table(&path, &format!("{floats} required binary episode (UTF8);"), |group| {
        for _ in 0..3 {
            put::<FloatType>(group, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        }
        put::<ByteArrayType>(group, &["a", "a", "a", "b", "b", "b"].map(ByteArray::from));
    });
    assert_eq!(read(&path, &ReadOptions::default()).unwrap().episodes, [0..2, 2..4]);
}

#[test]
fn two_columns_of_one_name_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let schema = "required float obs_0; required float act_0; required float reward; required float reward;";
    table(&path, schema, |group| (0..4).for_each(|_| put::<FloatType>(group, &[0.0, 1.0])));
    let error = read(&path, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("`reward`: wanted one column of this name, found 2"), "{error}");
}

#[test]
fn half_precision_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let half = "required fixed_len_byte_array(2) obs_0 (FLOAT16);";
    table(&path, &format!("{half} required float act_0; required float reward;"), |group| {
        put::<FixedLenByteArrayType>(group, &[vec![0, 60].into(), vec![0, 64].into()]);
        (0..2).for_each(|_| put::<FloatType>(group, &[0.0, 1.0]));
    });
    let error = read(&path, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.ends_with("float16 is not supported; rewrite as float32"), "{error}");
}

#[test]
fn an_unsupported_compression_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    write(&dataset(40, 3, false), &path, Format::PARQUET).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // In the footer the codec follows the column's name: a field of an i32, 1 (zigzag 2) for snappy, 4 (8) for brotli.
    let snappy = b"\x05obs_0\x15\x02";
    let at = bytes.windows(snappy.len()).rposition(|w| w == snappy).unwrap();
    bytes[at + snappy.len() - 1] = 8;
    std::fs::write(&path, bytes).unwrap();
    let error = read(&path, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("`obs_0`") && error.contains("found brotli; rewrite with snappy"), "{error}");
}
