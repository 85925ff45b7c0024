//! Parquet tables as offing writes them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Repetition, Type as Physical};
use parquet::data_type::{BoolType, DataType, DoubleType, FloatType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use super::super::dataset::Dataset;
use super::super::messages::cannot_write;
use super::table::{OutColumn, columns_of};
use crate::batch::Mat;
use crate::error::{Error, Result};
use crate::home::replace_atomic;

/// Rows of a row group.
const GROUP_ROWS: usize = 1 << 17;

/// Before the keys of [`Dataset::meta`] in a file's key-value metadata, apart from what other programs keep there.
pub(super) const META_PREFIX: &str = "offing.";

/// Writes `data` as a Parquet table of plain columns (`obs_0 … act_0 … reward next_obs_0 … terminal timeout episode
/// step`, simulator states as `qpos_0 …`), snappy-compressed; [`Dataset::meta`] and the names of the
/// columns go into the file's key-value metadata.
pub(super) fn write(data: &Dataset, path: &Path) -> Result<()> {
    replace_atomic(path, |temporary| {
        let file = File::create(temporary).map_err(|e| Error::io(path, "write", e))?;
        write_table(data, file).map_err(|e| cannot_write(path, e))
    })
}

fn write_table(data: &Dataset, file: File) -> std::result::Result<(), ParquetError> {
    let columns = columns_of(data);
    let fields = columns.iter().map(|(name, column)| {
        let physical = match column {
            OutColumn::F32(_) => Physical::FLOAT,
            OutColumn::F64(_) => Physical::DOUBLE,
            OutColumn::Bool(_) => Physical::BOOLEAN,
            OutColumn::I64(_) => Physical::INT64,
        };
        (name.as_str(), physical)
    });
    let meta = data.names.added_to(&data.meta);
    let meta = meta.into_iter().map(|(k, v)| KeyValue::new(format!("{META_PREFIX}{k}"), v)).collect();
    let mut writer = open(file, "transitions", fields, Some(meta))?;
    let n = data.rows.len();
    for start in (0..n).step_by(GROUP_ROWS) {
        let rows = start..(start + GROUP_ROWS).min(n);
        let mut group = writer.next_row_group()?;
        for (_, column) in &columns {
            let Some(mut target) = group.next_column()? else { break };
            let range = ndarray::s![rows.clone()];
            match column {
                OutColumn::F32(values) => put::<FloatType>(&mut target, &values.slice(range).to_vec())?,
                OutColumn::F64(values) => put::<DoubleType>(&mut target, &values.slice(range).to_vec())?,
                OutColumn::Bool(values) => put::<BoolType>(&mut target, &values.slice(range).to_vec())?,
                OutColumn::I64(values) => put::<Int64Type>(&mut target, &values[rows.clone()])?,
            }
            target.close()?;
        }
        group.close()?;
    }
    writer.close().map(drop)
}

/// A file for required columns of these names and types.
fn open<'a>(
    file: File,
    name: &str,
    columns: impl Iterator<Item = (&'a str, Physical)>,
    meta: Option<Vec<KeyValue>>,
) -> std::result::Result<SerializedFileWriter<File>, ParquetError> {
    let field = |(name, physical)| {
        let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED);
        field.build().map(Arc::new)
    };
    let fields = columns.map(field).collect::<std::result::Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder(name).with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(meta)
        .set_created_by("offing".into())
        .build();
    SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))
}

fn put<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &[T::T],
) -> std::result::Result<(), ParquetError> {
    column.typed::<T>().write_batch(values, None, None).map(drop)
}

/// A table of numbers that grows by a stretch of rows at a time.
pub(super) struct ParquetWriter {
    writer: SerializedFileWriter<File>,
}

impl ParquetWriter {
    pub(super) fn create(file: File, names: &[String]) -> std::result::Result<Self, ParquetError> {
        let columns = names.iter().map(|name| (name.as_str(), Physical::FLOAT));
        Ok(Self { writer: open(file, "actions", columns, None)? })
    }

    /// Adds rows, as wide as there are names.
    pub(super) fn push(&mut self, rows: &Mat) -> std::result::Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for column in rows.columns() {
            let Some(mut target) = group.next_column()? else { break };
            put::<FloatType>(&mut target, &column.to_vec())?;
            target.close()?;
        }
        group.close().map(drop)
    }

    pub(super) fn finish(self) -> std::result::Result<(), ParquetError> {
        self.writer.close().map(drop)
    }
}
