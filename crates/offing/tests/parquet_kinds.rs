//! Parquet tables of other programs: texts as episode ids, unsigned integers and decimals, and what is not supported
//! says so.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fixture;

use std::path::Path;
use std::sync::Arc;

use fixture::dataset;
use offing::data::{Format, Observations, ReadOptions, read, write};
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type,
    Int96, Int96Type,
};
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

/// A table of four rows whose action has this type, beside plain floats; `put_act` fills it.
fn with_action(
    path: &Path,
    act: &str,
    put_act: impl FnOnce(&mut SerializedRowGroupWriter<'_, std::fs::File>),
) -> offing::Result<Vec<f32>> {
    table(path, &format!("required float obs_0; required {act}; required float reward;"), |group| {
        put::<FloatType>(group, &[0.0, 1.0, 2.0, 3.0]);
        put_act(group);
        put::<FloatType>(group, &[0.0; 4]);
    });
    read(path, &ReadOptions::default()).map(|data| data.rows.act.into_raw_vec_and_offset().0)
}

#[test]
fn unsigned_integers_stay_positive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    for name in ["UINT_32", "INTEGER(32,false)"] {
        let act = with_action(&path, &format!("int32 act_0 ({name})"), |group| {
            put::<Int32Type>(group, &[1, i32::MIN, -1, 0]);
        });
        assert_eq!(act.unwrap(), [1.0, 2_147_483_648.0, 4_294_967_295.0], "{name}");
    }
    for name in ["UINT_64", "INTEGER(64,false)"] {
        let act = with_action(&path, &format!("int64 act_0 ({name})"), |group| {
            put::<Int64Type>(group, &[1, i64::MIN, -1, 0]);
        });
        assert_eq!(act.unwrap(), [1.0, 9_223_372_036_854_775_808.0, 18_446_744_073_709_551_615.0], "{name}");
    }
    let signed = with_action(&path, "int32 act_0 (INT_32)", |group| put::<Int32Type>(group, &[1, -2, -1, 0]));
    assert_eq!(signed.unwrap(), [1.0, -2.0, -1.0]);
}

#[test]
fn decimals_are_scaled_however_they_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let wanted = [0.5, -1.5, 100.0];
    let act = with_action(&path, "int32 act_0 (DECIMAL(4,1))", |g| put::<Int32Type>(g, &[5, -15, 1000, 0]));
    assert_eq!(act.unwrap(), wanted);
    let act = with_action(&path, "int64 act_0 (DECIMAL(18,3))", |g| {
        put::<Int64Type>(g, &[500, -1500, 100_000, 0]);
    });
    assert_eq!(act.unwrap(), wanted);
    let bytes = |v: i128, n: usize| v.to_be_bytes()[16 - n..].to_vec();
    let digits = [50i128, -150, 10_000, 0];
    for n in [4, 16] {
        let schema = format!("fixed_len_byte_array({n}) act_0 (DECIMAL(9,2))");
        let act = with_action(&path, &schema, |g| {
            put::<FixedLenByteArrayType>(g, &digits.map(|v| bytes(v, n).into()));
        });
        assert_eq!(act.unwrap(), wanted, "{n} bytes");
    }
    let act = with_action(&path, "binary act_0 (DECIMAL(9,2))", |g| {
        put::<ByteArrayType>(g, &digits.map(|v| bytes(v, 5).into()));
    });
    assert_eq!(act.unwrap(), wanted);
    let long = with_action(&path, "binary act_0 (DECIMAL(9,2))", |g| {
        put::<ByteArrayType>(g, &digits.map(|v| [vec![0; 4], bytes(v, 16)].concat().into()));
    });
    let error = long.unwrap_err().to_string();
    assert!(error.contains("found decimals of 20 bytes; rewrite the column as double"), "{error}");
}

#[test]
fn times_are_no_numbers_but_do_not_spoil_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let days = |g: &mut SerializedRowGroupWriter<'_, std::fs::File>| put::<Int32Type>(g, &[1, 2, 3, 4]);
    let ticks = |g: &mut SerializedRowGroupWriter<'_, std::fs::File>| put::<Int64Type>(g, &[1, 2, 3, 4]);
    let refused = |act: offing::Result<Vec<f32>>, word: &str| {
        let error = act.unwrap_err().to_string();
        let wanted = format!("`act_0`: wanted numbers or booleans, found {word}; store it as a number");
        assert!(error.contains(&wanted) && !error.contains('\n'), "{error}");
    };
    refused(with_action(&path, "int32 act_0 (DATE)", days), "dates");
    refused(with_action(&path, "int32 act_0 (TIME_MILLIS)", days), "times of day");
    refused(with_action(&path, "int64 act_0 (TIMESTAMP_MICROS)", ticks), "timestamps");
    refused(with_action(&path, "int64 act_0 (TIMESTAMP(NANOS,true))", ticks), "timestamps");
    let spark = |g: &mut SerializedRowGroupWriter<'_, std::fs::File>| {
        put::<Int96Type>(g, &[1, 2, 3, 4].map(|day| Int96::from(vec![0, 0, day])));
    };
    refused(with_action(&path, "int96 act_0", spark), "timestamps");
    // Unused, or only compared: nothing is wrong with them.
    let floats = "required float obs_0; required float act_0; required float reward;";
    table(
        &path,
        &format!("{floats} required int64 time (TIMESTAMP_MICROS); required int32 episode (DATE);"),
        |group| {
            (0..3).for_each(|_| put::<FloatType>(group, &[0.0, 1.0, 2.0, 3.0]));
            put::<Int64Type>(group, &[7, 8, 9, 10]);
            put::<Int32Type>(group, &[19_000, 19_000, 19_001, 19_001]);
        },
    );
    let data = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!(data.episodes, [0..1, 1..2]);
    let note = "not used: time (a time, not an observation); rows are taken in the file's order";
    assert!(data.reading.notes.iter().any(|n| n == note), "{:?}", data.reading.notes);
}

#[test]
fn a_column_of_times_is_known_by_its_type() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let floats = "required float obs_0; required float act_0; required float reward;";
    table(&path, &format!("{floats} required int64 logged (TIMESTAMP_MICROS);"), |group| {
        (0..3).for_each(|_| put::<FloatType>(group, &[0.0, 1.0, 2.0, 3.0]));
        put::<Int64Type>(group, &[7, 8, 9, 10]);
    });
    let data = read(&path, &ReadOptions::default()).unwrap();
    assert!(
        data.reading.notes.iter().any(|n| n.starts_with("not used: logged (a time")),
        "{:?}",
        data.reading.notes
    );
}

#[test]
fn flags_may_be_texts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let floats =
        "required float obs_0; required float act_0; required float reward; required float next_obs_0;";
    let flags = |words: [&str; 4]| {
        table(&path, &format!("{floats} required binary done (UTF8);"), |group| {
            (0..4).for_each(|_| put::<FloatType>(group, &[0.0, 1.0, 2.0, 3.0]));
            put::<ByteArrayType>(group, &words.map(ByteArray::from));
        });
        read(&path, &ReadOptions::default()).map(|data| data.rows.done.to_vec())
    };
    assert_eq!(flags(["no", "Yes", "false", "T"]).unwrap(), [false, true, false, true]);
    assert_eq!(flags(["0", "1", "0.0", "y"]).unwrap(), [false, true, false, true]);
    let error = flags(["no", "no", "maybe", "no"]).unwrap_err().to_string();
    assert!(error.contains("`done`: wanted flags") && error.contains("found `maybe` in row 2"), "{error}");
}

#[test]
fn observations_are_read_group_by_group() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let schema = "message t { required float obs_0; required double obs_1; required binary episode (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    for values in [[0.0, 1.0], [2.0, f32::NAN]] {
        let mut group = writer.next_row_group().unwrap();
        put::<FloatType>(&mut group, &values);
        put::<DoubleType>(&mut group, &[0.5, 0.25]);
        put::<ByteArrayType>(&mut group, &["a", "b"].map(ByteArray::from));
        group.close().unwrap();
    }
    writer.close().unwrap();
    let mut observations = Observations::open(&path, None).unwrap();
    assert_eq!(observations.notes(), ["not used: episode"]);
    let first = observations.next_rows().unwrap().unwrap();
    assert_eq!(first.iter().copied().collect::<Vec<f32>>(), [0.0, 0.5, 1.0, 0.25]);
    let error = observations.next_rows().unwrap_err().to_string();
    assert!(error.contains("`obs_0`: wanted finite numbers, found NaN in row 3"), "{error}");
}
