//! The columns of a Parquet file as named arrays, for layouts whose columns are known by their keys.

use std::fs::File;
use std::path::Path;

use parquet::basic::Type as Physical;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::super::memory::check_fits;
use super::super::messages::{damaged, damaged_key};
use super::super::options::ReadOptions;
use super::arrays::{StoredArray, StoredValues};
use super::cells::{Cells, Precision};
use super::parquet::{ParquetColumn, bytes_of};
use super::parquet_footer::check_depth;
use crate::error::{Error, Result};

/// An open Parquet file.
pub(super) struct ParquetArrays<'a> {
    path: &'a Path,
    options: &'a ReadOptions,
    reader: SerializedFileReader<File>,
    bytes: u64,
    /// The key of every leaf: the names on its way joined by `/`, without those that only make a list.
    keys: Vec<String>,
}

impl<'a> ParquetArrays<'a> {
    /// Opens the file and reads its footer.
    pub(super) fn open(path: &'a Path, options: &'a ReadOptions) -> Result<Self> {
        let mut file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
        let bytes = file.metadata().map_err(|e| Error::io(path, "read", e))?.len();
        check_depth(path, &mut file)?;
        let reader = SerializedFileReader::new(file).map_err(|e| damaged(path, "Parquet file", e))?;
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let keys = schema.columns().iter().map(|column| key_of(column)).collect();
        Ok(Self { path, options, reader, bytes, keys })
    }

    /// The keys of all columns, in the file's order.
    pub(super) fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Makes sure that the columns fit into what memory there is by now.
    pub(super) fn check_size(&self, keys: &[&str]) -> Result<()> {
        let wanted = || (0..self.keys.len()).filter(|&index| keys.contains(&self.keys[index].as_str()));
        let needed = bytes_of(self.path, &self.reader, 0..self.reader.num_row_groups(), wanted)?;
        check_fits(self.path, needed, self.options)
    }

    /// The keys of columns that hold a number or a list of numbers in each row.
    pub(super) fn number_keys(&self) -> impl Iterator<Item = &str> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let is_number = move |column: &ColumnDescriptor| {
            let bytes = [Physical::BYTE_ARRAY, Physical::FIXED_LEN_BYTE_ARRAY, Physical::INT96];
            column.max_rep_level() < 2 && !bytes.contains(&column.physical_type())
        };
        let keys = self.keys.iter().zip(schema.columns());
        keys.filter(move |(_, column)| is_number(column)).map(|(key, _)| key.as_str())
    }

    /// The column at `key`: (rows,) of numbers, (rows, width) of lists.
    pub(super) fn array<'k>(&self, key: &'k str) -> Result<StoredArray<'k>>
    where
        'a: 'k,
    {
        let Some(index) = self.keys.iter().position(|k| k == key) else {
            return Err(damaged_key(self.path, key, "this column in every file", "none"));
        };
        let descriptor = self.reader.metadata().file_metadata().schema_descr().column(index);
        let (path, options, bytes, reader) = (self.path, self.options, self.bytes, &self.reader);
        let groups = 0..reader.num_row_groups();
        let column = ParquetColumn { path, name: key, reader, index, groups, descriptor, options, bytes };
        let (cells, width) = column.load_with_width(Precision::Double)?;
        let Cells::F64(values) = cells else {
            return Err(damaged_key(path, key, "numbers", "texts"));
        };
        let shape = match width {
            Some(width) => vec![values.len() / width.max(1), width],
            None => vec![values.len()],
        };
        Ok(StoredArray { path, key, shape, values: StoredValues::F64(values) })
    }
}

/// `a.b.list.element` is `a/b`.
fn key_of(column: &ColumnDescriptor) -> String {
    let mut parts: Vec<&str> = column.path().parts().iter().map(String::as_str).collect();
    if column.max_rep_level() > 0 {
        for words in [&["element", "item", "array", "array_element"][..], &["list", "bag"]] {
            if parts.len() > 1 && parts.last().is_some_and(|last| words.contains(last)) {
                parts.pop();
            }
        }
    }
    parts.join("/")
}

/// Writes columns of single precision as pyarrow would: a name, the length of its lists or none, its entries. A `/` in a
/// name makes a structure.
#[cfg(test)]
pub(super) fn write_plain(path: &Path, columns: &[(&str, Option<usize>, Vec<f32>)]) {
    use std::sync::Arc;

    use parquet::basic::{ConvertedType, Repetition};
    use parquet::data_type::FloatType;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::types::{Type, TypePtr};

    let number = |name: &str| -> TypePtr {
        let builder = Type::primitive_type_builder(name, Physical::FLOAT);
        Arc::new(builder.with_repetition(Repetition::OPTIONAL).build().unwrap())
    };
    let group = |name: &str, repetition, converted, fields| -> TypePtr {
        let builder = Type::group_type_builder(name).with_repetition(repetition);
        Arc::new(builder.with_converted_type(converted).with_fields(fields).build().unwrap())
    };
    let mut fields: Vec<TypePtr> = Vec::new();
    for (name, width, _) in columns {
        let (above, name) = name.split_once('/').map_or((None, *name), |(above, name)| (Some(above), name));
        let field = match width {
            None => number(name),
            Some(_) => {
                let list = group("list", Repetition::REPEATED, ConvertedType::NONE, vec![number("element")]);
                group(name, Repetition::OPTIONAL, ConvertedType::LIST, vec![list])
            }
        };
        // Columns of one structure come one after the other.
        match (above, fields.last_mut()) {
            (Some(above), Some(last)) if last.name() == above => {
                let inside = last.get_fields().iter().cloned().chain([field]).collect();
                *last = group(above, Repetition::OPTIONAL, ConvertedType::NONE, inside);
            }
            (Some(above), _) => {
                fields.push(group(above, Repetition::OPTIONAL, ConvertedType::NONE, vec![field]));
            }
            (None, _) => fields.push(field),
        }
    }
    let schema = Arc::new(Type::group_type_builder("schema").with_fields(fields).build().unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    let mut rows = writer.next_row_group().unwrap();
    for (name, width, values) in columns {
        let mut column = rows.next_column().unwrap().unwrap();
        let depth = i16::from(name.contains('/')) + if width.is_some() { 3 } else { 1 };
        let def = vec![depth; values.len()];
        let rep: Option<Vec<i16>> =
            width.map(|width| (0..values.len()).map(|i| i16::from(i % width > 0)).collect());
        column.typed::<FloatType>().write_batch(values, Some(&def), rep.as_deref()).unwrap();
        column.close().unwrap();
    }
    rows.close().unwrap();
    writer.close().unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_paths_without_the_words_of_lists() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        let columns = [
            ("o/b", Some(2), vec![1.0, 2.0, 3.0, 4.0]),
            ("o/list", None, vec![5.0, 6.0]),
            ("next.r", None, vec![0.0; 2]),
        ];
        write_plain(&path, &columns);
        let options = ReadOptions::default();
        let file = ParquetArrays::open(&path, &options).unwrap();
        assert_eq!(file.keys(), ["o/b", "o/list", "next.r"]);
        assert_eq!(
            file.array("o/b").unwrap().flat_matrix().unwrap(),
            ndarray::array![[1.0, 2.0], [3.0, 4.0]]
        );
        assert_eq!(file.array("o/list").unwrap().shape, [2]);
        assert!(file.array("o").is_err_and(|e| e.to_string().contains("`o`: wanted this column")));
    }
}
