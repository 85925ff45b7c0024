//! Parquet tables, read and written column by column without Arrow.
//!
//! Plain columns of numbers or booleans, and lists of them with one length in all rows. Compression: snappy, zstd,
//! gzip, lz4 or none, which is what pandas, pyarrow, polars, DuckDB and Spark write by default.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, DataType, DoubleType, FloatType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnDescriptor, Type};

use super::dataset::{Dataset, Format};
use super::hdf5::{escaped, float16, one_line};
use super::options::ReadOptions;
use super::table::{Cells, Labels, Layout, Out, Precision, columns_of};
use crate::error::{Error, Result};
use crate::home::replace_atomic;

/// Rows of a row group when writing.
const GROUP_ROWS: usize = 1 << 17;

/// Rows asked for at a time, so that what is allocated follows what was really in the file.
const BATCH_ROWS: usize = 1 << 14;

/// Reads the table at `path`.
pub(super) fn read(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
    let bytes = file.metadata().map_err(|e| Error::io(path, "read", e))?.len();
    let reader = SerializedFileReader::new(file).map_err(|e| damaged(path, &e))?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let names: Vec<String> = schema.columns().iter().map(|c| c.path().parts()[0].clone()).collect();
    // A structure has several leaves of one name, but is one field.
    let fields: Vec<String> =
        schema.root_schema().get_fields().iter().map(|f| f.name().to_string()).collect();
    let layout = Layout::resolve(path, &fields, options.columns.as_ref())?;
    let mut cells = BTreeMap::new();
    for (name, precision) in layout.wanted() {
        let index = names.iter().position(|n| *n == name);
        let index = index.ok_or_else(|| {
            Error::key(
                path,
                escaped(&name),
                "numbers",
                "an empty structure",
                "give a column of plain numbers",
            )
        })?;
        if names.iter().filter(|n| **n == name).count() > 1 {
            let hint = "give a column of plain numbers or a list of numbers";
            return Err(Error::key(path, escaped(&name), "numbers", "a nested structure", hint));
        }
        let column = Source {
            path,
            name: &name,
            reader: &reader,
            index,
            descriptor: schema.column(index),
            options,
            bytes,
        };
        let loaded = column.load(precision)?;
        cells.insert(name, loaded);
    }
    let meta = reader.metadata().file_metadata().key_value_metadata().into_iter().flatten();
    let meta = meta
        .filter_map(|pair| Some((pair.key.strip_prefix(META_PREFIX)?.to_string(), pair.value.clone()?)))
        .collect();
    layout.build(path, Format::Parquet, &fields, cells, meta, options)
}

/// Before the keys of [`Dataset::meta`] in a file's key-value metadata, apart from what other programs keep there.
const META_PREFIX: &str = "offing.";

/// One column of the file.
struct Source<'a> {
    path: &'a Path,
    name: &'a str,
    reader: &'a SerializedFileReader<File>,
    index: usize,
    descriptor: Arc<ColumnDescriptor>,
    options: &'a ReadOptions,
    /// Length of the file.
    bytes: u64,
}

impl Source<'_> {
    fn load(&self, precision: Precision) -> Result<Cells> {
        self.check_places()?;
        if precision == Precision::Label {
            return self.load_labels();
        }
        let mut values: Vec<f64> = Vec::new();
        let mut singles: Vec<f32> = Vec::new();
        let mut rows = Rows::default();
        let list = match self.descriptor.max_rep_level() {
            0 => false,
            1 => true,
            _ => return Err(self.wrong("numbers or lists of numbers", "lists of lists")),
        };
        for group in 0..self.reader.num_row_groups() {
            let group = self.reader.get_row_group(group).map_err(|e| self.unreadable(&e))?;
            let column = group.get_column_reader(self.index).map_err(|e| self.unreadable(&e))?;
            let physical = self.descriptor.physical_type();
            match column {
                ColumnReader::FloatColumnReader(mut c) if precision == Precision::Single => {
                    self.drain(&mut c, &mut rows, f32::NAN, |v| singles.push(v))?;
                }
                ColumnReader::FloatColumnReader(mut c) => {
                    self.drain(&mut c, &mut rows, f32::NAN, |v| values.push(f64::from(v)))?;
                }
                ColumnReader::DoubleColumnReader(mut c) if precision == Precision::Single => {
                    self.drain(&mut c, &mut rows, f64::NAN, |v| singles.push(v as f32))?;
                }
                ColumnReader::DoubleColumnReader(mut c) => {
                    self.drain(&mut c, &mut rows, f64::NAN, |v| values.push(v))?;
                }
                ColumnReader::Int32ColumnReader(mut c) => {
                    self.drain_whole(&mut c, &mut rows, |v| values.push(f64::from(v)))?;
                }
                ColumnReader::Int64ColumnReader(mut c) => {
                    self.drain_whole(&mut c, &mut rows, |v| values.push(v as f64))?;
                }
                ColumnReader::BoolColumnReader(mut c) => {
                    self.drain_whole(&mut c, &mut rows, |v| values.push(f64::from(u8::from(v))))?;
                }
                _ if self.descriptor.logical_type_ref() == Some(&LogicalType::Float16) => {
                    return Err(float16(self.path, self.name));
                }
                _ => return Err(self.wrong("numbers or booleans", &format!("values of type {physical}"))),
            }
        }
        if precision == Precision::Single {
            singles.extend(values.drain(..).map(|v| v as f32));
        }
        if list {
            let width = rows.width.unwrap_or(0);
            if precision == Precision::Double {
                singles.extend(values.into_iter().map(|v| v as f32));
            }
            return Ok(Cells::List { width, values: singles });
        }
        Ok(match precision {
            Precision::Single => Cells::F32(singles),
            Precision::Double | Precision::Label => Cells::F64(values),
        })
    }

    /// Numbers, booleans or texts of which only "equal or not" counts.
    fn load_labels(&self) -> Result<Cells> {
        let mut labels = Labels::default();
        let mut rows = Rows::default();
        if self.descriptor.max_rep_level() > 0 {
            return Err(self.wrong("one number or text a row", "lists"));
        }
        let mut nan = None;
        for group in 0..self.reader.num_row_groups() {
            let group = self.reader.get_row_group(group).map_err(|e| self.unreadable(&e))?;
            let column = group.get_column_reader(self.index).map_err(|e| self.unreadable(&e))?;
            let mut float = |labels: &mut Labels, v: f64| {
                if v.is_nan() {
                    nan.get_or_insert(labels.ids.len());
                }
                labels.ids.push((v + 0.0).to_bits() as i64); // -0 is 0
            };
            match column {
                ColumnReader::FloatColumnReader(mut c) => {
                    self.drain_whole(&mut c, &mut rows, |v| float(&mut labels, f64::from(v)))?;
                }
                ColumnReader::DoubleColumnReader(mut c) => {
                    self.drain_whole(&mut c, &mut rows, |v| float(&mut labels, v))?;
                }
                ColumnReader::Int32ColumnReader(mut c) => {
                    self.drain_whole(&mut c, &mut rows, |v| labels.ids.push(i64::from(v)))?;
                }
                ColumnReader::Int64ColumnReader(mut c) => {
                    self.drain_whole(&mut c, &mut rows, |v| labels.ids.push(v))?;
                }
                ColumnReader::BoolColumnReader(mut c) => {
                    self.drain_whole(&mut c, &mut rows, |v| labels.ids.push(i64::from(v)))?;
                }
                ColumnReader::ByteArrayColumnReader(mut c) => {
                    self.drain_whole(&mut c, &mut rows, |v| labels.push(v.data()))?;
                }
                ColumnReader::FixedLenByteArrayColumnReader(mut c) => {
                    self.drain_whole(&mut c, &mut rows, |v| labels.push(v.data()))?;
                }
                ColumnReader::Int96ColumnReader(_) => {
                    return Err(self.wrong("numbers or texts", "values of type INT96"));
                }
            }
        }
        match nan {
            Some(row) => Err(self.wrong("a number or text in every row", &format!("NaN in row {row}"))),
            None => Ok(Cells::Labels(labels)),
        }
    }

    /// Makes sure that the column lies inside the file: the library asserts it instead of returning an error.
    fn check_places(&self) -> Result<()> {
        for group in self.reader.metadata().row_groups() {
            let chunk = group.column(self.index);
            use Compression::{GZIP, LZ4, LZ4_RAW, SNAPPY, UNCOMPRESSED, ZSTD};
            let codec = chunk.compression();
            if !matches!(codec, UNCOMPRESSED | SNAPPY | GZIP(_) | ZSTD(_) | LZ4 | LZ4_RAW) {
                let codec = codec.to_string().to_lowercase();
                let codec = codec.split('(').next().unwrap_or_default();
                let wanted = "a supported compression";
                let hint = "rewrite with snappy, zstd or gzip";
                return Err(Error::key(self.path, escaped(self.name), wanted, codec, hint));
            }
            let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
            let places =
                [start, chunk.data_page_offset(), chunk.compressed_size(), chunk.uncompressed_size()];
            let end = start.checked_add(chunk.compressed_size());
            let inside = end.is_some_and(|end| end as u64 <= self.bytes);
            if places.iter().any(|&p| p < 0) || chunk.num_values() < 0 || !inside {
                let why = format!("{} bytes at offset {start}", chunk.compressed_size());
                let hint = "the file is damaged: write or get it again";
                let wanted = format!("data inside the file of {} bytes", self.bytes);
                return Err(Error::key(self.path, escaped(self.name), wanted, why, hint));
            }
        }
        Ok(())
    }

    /// Integers and booleans have no value for "missing".
    fn drain_whole<T: DataType>(
        &self,
        column: &mut ColumnReaderImpl<T>,
        rows: &mut Rows,
        push: impl FnMut(T::T),
    ) -> Result<()>
    where
        T::T: Clone,
    {
        self.drain_with(column, rows, None, push)
    }

    fn drain<T: DataType>(
        &self,
        column: &mut ColumnReaderImpl<T>,
        rows: &mut Rows,
        nan: T::T,
        push: impl FnMut(T::T),
    ) -> Result<()>
    where
        T::T: Clone,
    {
        self.drain_with(column, rows, self.options.allow_non_finite.then_some(nan), push)
    }

    fn drain_with<T: DataType>(
        &self,
        column: &mut ColumnReaderImpl<T>,
        rows: &mut Rows,
        null: Option<T::T>,
        mut push: impl FnMut(T::T),
    ) -> Result<()>
    where
        T::T: Clone,
    {
        let (max_def, max_rep) = (self.descriptor.max_def_level(), self.descriptor.max_rep_level());
        let (mut def, mut rep, mut values) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            def.clear();
            rep.clear();
            values.clear();
            let (records, _, levels) = column
                .read_records(
                    BATCH_ROWS,
                    (max_def > 0).then_some(&mut def),
                    (max_rep > 0).then_some(&mut rep),
                    &mut values,
                )
                .map_err(|e| self.unreadable(&e))?;
            if records == 0 && levels == 0 && values.is_empty() {
                break;
            }
            let mut present = values.iter();
            let entries = if max_def > 0 { def.len() } else { values.len() };
            for at in 0..entries {
                let here = def.get(at).is_none_or(|&level| level >= max_def);
                let starts_row = max_rep == 0 || rep.get(at) == Some(&0);
                if starts_row && !rows.next() {
                    return Err(
                        self.wrong("lists of one length", &format!("another length in row {}", rows.count))
                    );
                }
                rows.current += 1;
                let value = if here { present.next().cloned() } else { null.clone() };
                let row = rows.count;
                push(value.ok_or_else(|| self.wrong("a value in every row", &format!("none in row {row}")))?);
            }
        }
        // A row never spans two row groups.
        if !rows.finish() {
            return Err(self.wrong("lists of one length", &format!("another length in row {}", rows.count)));
        }
        Ok(())
    }

    fn wrong(&self, wanted: &str, found: &str) -> Error {
        Error::key(
            self.path,
            escaped(self.name),
            wanted,
            found,
            "repair the column or leave it out of the column map",
        )
    }

    fn unreadable(&self, error: &ParquetError) -> Error {
        let why = one_line(&error.to_string());
        Error::key(
            self.path,
            escaped(self.name),
            "readable data",
            why,
            "the file is damaged: write or get it again",
        )
    }
}

/// Counts entries of list rows, which must all have one length.
#[derive(Default)]
struct Rows {
    /// Rows finished.
    count: usize,
    /// Entries of the row under way.
    current: usize,
    width: Option<usize>,
}

impl Rows {
    /// Begins a row; false when the one before had another length than the rest.
    fn next(&mut self) -> bool {
        self.current == 0 || self.finish()
    }

    fn finish(&mut self) -> bool {
        if self.current == 0 {
            return true;
        }
        let current = std::mem::take(&mut self.current);
        let same = *self.width.get_or_insert(current) == current;
        self.count += usize::from(same);
        same
    }
}

/// Writes `data` as a Parquet table of plain columns (`obs_0 … act_0 … reward next_obs_0 … terminal timeout episode
/// step`, simulator states as `qpos_0 …`), snappy-compressed; [`Dataset::meta`] goes into the file's key-value
/// metadata.
pub fn write_parquet(data: &Dataset, path: &Path) -> Result<()> {
    replace_atomic(path, |temporary| {
        let file = File::create(temporary).map_err(|e| Error::io(path, "write", e))?;
        write(data, file)
            .map_err(|e| Error::file(path, format!("cannot write it: {}", one_line(&e.to_string()))))
    })
}

fn write(data: &Dataset, file: File) -> std::result::Result<(), ParquetError> {
    let columns = columns_of(data);
    let fields = columns
        .iter()
        .map(|(name, column)| {
            let physical = match column {
                Out::F32(_) => Physical::FLOAT,
                Out::F64(_) => Physical::DOUBLE,
                Out::Bool(_) => Physical::BOOLEAN,
                Out::I64(_) => Physical::INT64,
            };
            let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED);
            field.build().map(Arc::new)
        })
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("transitions").with_fields(fields).build()?;
    let meta = data.meta.iter().map(|(k, v)| KeyValue::new(format!("{META_PREFIX}{k}"), v.clone())).collect();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(meta))
        .set_created_by("offing".into())
        .build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let n = data.rows.len();
    for start in (0..n).step_by(GROUP_ROWS) {
        let rows = start..(start + GROUP_ROWS).min(n);
        let mut group = writer.next_row_group()?;
        for (_, column) in &columns {
            let Some(mut target) = group.next_column()? else { break };
            let range = ndarray::s![rows.clone()];
            match column {
                Out::F32(values) => put::<FloatType>(&mut target, &values.slice(range).to_vec())?,
                Out::F64(values) => put::<DoubleType>(&mut target, &values.slice(range).to_vec())?,
                Out::Bool(values) => put::<BoolType>(&mut target, &values.slice(range).to_vec())?,
                Out::I64(values) => put::<Int64Type>(&mut target, &values[rows.clone()])?,
            }
            target.close()?;
        }
        group.close()?;
    }
    writer.close().map(drop)
}

fn put<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &[T::T],
) -> std::result::Result<(), ParquetError> {
    column.typed::<T>().write_batch(values, None, None).map(drop)
}

fn damaged(path: &Path, error: &ParquetError) -> Error {
    let why = one_line(&error.to_string());
    Error::file(
        path,
        format!("wanted a complete Parquet file, found a damaged or truncated one ({why}); get it again"),
    )
}
