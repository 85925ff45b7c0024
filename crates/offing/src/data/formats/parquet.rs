//! Parquet tables, read and written column by column without Arrow.
//!
//! Plain columns of numbers (decimals as well) or booleans, and lists of them with one length in all rows. Compression: snappy, zstd,
//! gzip, lz4 or none, which is what pandas, pyarrow, polars, DuckDB and Spark write by default.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::super::dataset::Dataset;
use super::super::memory::check_fits;
use super::super::messages::{damaged, damaged_key, escaped, float16, one_line};
use super::super::options::ReadOptions;
use super::cells::{Cells, Labels, LoadedColumns, Precision};
use super::parquet_footer::check_depth;
use super::parquet_kinds::{Kind, big_endian, scaled};
use super::parquet_pages;
use super::parquet_write::{META_PREFIX, write};
use super::table::{LoadedTable, TableLayout};
use super::text_numbers::flag;
use super::{Format, row_number};
use crate::error::{Error, Result};

impl Format {
    /// A Parquet table of one transition a row.
    pub const PARQUET: Self = Self {
        name: "parquet",
        title: "Parquet",
        extensions: &["parquet"],
        is_table: true,
        recognises: |candidate| candidate.starts_with(b"PAR1"),
        read: |candidate, options| read(candidate.path, options),
        write: Some(write),
        row_place: row_number,
    };
}

/// Rows asked for at a time, so that what is allocated follows what was really in the file.
const BATCH_ROWS: usize = 1 << 14;

fn read(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let table = ParquetTable::open(path)?;
    let layout = TableLayout::resolve(path, &table.names, options)?;
    let wanted = layout.wanted();
    let names: HashSet<&String> = wanted.iter().map(|(name, _)| name).collect();
    let is_wanted = |index: &usize| names.contains(&table.leaves[*index]);
    let leaves = || (0..table.leaves.len()).filter(is_wanted);
    let needed = bytes_of(path, &table.reader, 0..table.reader.num_row_groups(), leaves)?;
    check_fits(path, needed, options)?;
    let groups = 0..table.reader.num_row_groups();
    let load = |(name, precision): (String, Precision)| {
        let cells = table.load(&name, precision, groups.clone(), options)?;
        Ok((name, cells))
    };
    let cells = wanted.into_iter().map(load).collect::<Result<_>>()?;
    let meta = table.reader.metadata().file_metadata().key_value_metadata().into_iter().flatten();
    let meta = meta
        .filter_map(|pair| Some((pair.key.strip_prefix(META_PREFIX)?.to_string(), pair.value.clone()?)))
        .collect();
    let (times, all, notes) = (table.times(), table.names.clone(), Vec::new());
    let columns = LoadedColumns { path, cells };
    LoadedTable { format: Format::PARQUET, layout, all, times, columns, meta, notes }.into_dataset(options)
}

/// An open table.
pub(super) struct ParquetTable {
    path: PathBuf,
    pub(super) reader: SerializedFileReader<File>,
    /// Length of the file.
    bytes: u64,
    /// Every column.
    pub(super) names: Vec<String>,
    /// The column that each leaf belongs to: a structure has several leaves of one name, but is one column.
    leaves: Vec<String>,
}

impl ParquetTable {
    /// Opens the file and reads its footer.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
        let bytes = file.metadata().map_err(|e| Error::io(path, "read", e))?.len();
        check_depth(path, &mut file)?;
        let reader = SerializedFileReader::new(file).map_err(|e| damaged(path, "Parquet file", e))?;
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let leaves = schema.columns().iter().map(|c| c.path().parts()[0].clone()).collect();
        let names = schema.root_schema().get_fields().iter().map(|f| f.name().to_string()).collect();
        Ok(Self { path: path.into(), reader, bytes, names, leaves })
    }

    /// The columns that hold times by their type.
    fn times(&self) -> Vec<String> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let leaves = self.leaves.iter().zip(schema.columns());
        leaves.filter(|(_, c)| matches!(Kind::of(c), Kind::Time(_))).map(|(name, _)| name.clone()).collect()
    }

    /// A column of these row groups.
    pub(super) fn load(
        &self,
        name: &str,
        precision: Precision,
        groups: Range<usize>,
        options: &ReadOptions,
    ) -> Result<Cells> {
        let (path, bytes, reader) = (&self.path, self.bytes, &self.reader);
        let same_name: Vec<usize> = (0..self.leaves.len()).filter(|&i| self.leaves[i] == name).collect();
        let &[index] = same_name.as_slice() else {
            let found = if same_name.is_empty() { "an empty structure" } else { "a nested structure" };
            let hint = "give a column of plain numbers or a list of numbers";
            return Err(Error::key(path, escaped(name), "numbers", found, hint));
        };
        let descriptor = reader.metadata().file_metadata().schema_descr().column(index);
        ParquetColumn { path, name, reader, index, groups, descriptor, options, bytes }.load(precision)
    }
}

/// What reading these columns of these row groups takes: what their footer says or what their pages say, whichever is more.
pub(super) fn bytes_of<I: Iterator<Item = usize>>(
    path: &Path,
    reader: &SerializedFileReader<File>,
    groups: Range<usize>,
    columns: impl Fn() -> I,
) -> Result<u64> {
    let mut file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
    let mut total = 0u64;
    for group in &reader.metadata().row_groups()[groups] {
        for index in columns() {
            let chunk = group.column(index);
            let claimed = 8u64.saturating_mul(chunk.num_values().max(0) as u64);
            let name = chunk.column_path().string();
            total =
                total.saturating_add(claimed.max(parquet_pages::bytes_of(path, &mut file, &name, chunk)?));
        }
    }
    Ok(total)
}

/// One column of the file.
pub(super) struct ParquetColumn<'a> {
    pub(super) path: &'a Path,
    pub(super) name: &'a str,
    pub(super) reader: &'a SerializedFileReader<File>,
    pub(super) index: usize,
    /// The row groups to read.
    pub(super) groups: Range<usize>,
    pub(super) descriptor: Arc<ColumnDescriptor>,
    pub(super) options: &'a ReadOptions,
    /// Length of the file.
    pub(super) bytes: u64,
}

impl ParquetColumn<'_> {
    fn load(&self, precision: Precision) -> Result<Cells> {
        let is_list = self.descriptor.max_rep_level() > 0 && precision != Precision::Label;
        // Lists hold observations and actions: single precision is enough.
        let precision = if is_list { Precision::Single } else { precision };
        Ok(match self.load_with_width(precision)? {
            (Cells::F32(values), Some(width)) => Cells::List { width, values },
            (cells, _) => cells,
        })
    }

    /// The entries of all rows, and how many each row has when they are lists.
    pub(super) fn load_with_width(&self, precision: Precision) -> Result<(Cells, Option<usize>)> {
        self.check_places()?;
        let needed = bytes_of(self.path, self.reader, self.groups.clone(), || [self.index].into_iter())?;
        check_fits(self.path, needed, self.options)?;
        let is_label = precision == Precision::Label;
        let is_list = match (self.descriptor.max_rep_level(), is_label) {
            (0, _) => false,
            (_, true) => return Err(self.wrong("one number or text a row", "lists")),
            (1, _) => true,
            _ => return Err(self.wrong("numbers or lists of numbers", "lists of lists")),
        };
        let mut cells = Cells::new(precision);
        let mut rows = ListRows { count: self.rows_before(), ..ListRows::default() };
        // Only floats have a value for "missing", and labels have none.
        let null = self.options.allow_non_finite && !is_label;
        let kind = self.kind(is_label)?;
        let (mut too_long, mut no_flag) = (None, None);
        for group in self.groups.clone() {
            let group = self.reader.get_row_group(group).map_err(|e| self.unreadable(&e))?;
            let column = group.get_column_reader(self.index).map_err(|e| self.unreadable(&e))?;
            let physical = self.descriptor.physical_type();
            let rows = &mut rows;
            let mut decimal = |cells: &mut Cells, bytes: &[u8], scale| {
                let digits = big_endian(bytes);
                too_long = too_long.or(digits.is_none().then_some(bytes.len()));
                cells.push_float(scaled(digits.unwrap_or(0), scale));
            };
            let drained = match (column, kind) {
                (ColumnReader::FloatColumnReader(mut c), _) => {
                    self.drain(&mut c, rows, null.then_some(f32::NAN), |v| cells.push_float(v.into()))
                }
                (ColumnReader::DoubleColumnReader(mut c), _) => {
                    self.drain(&mut c, rows, null.then_some(f64::NAN), |v| cells.push_float(v))
                }
                (ColumnReader::Int32ColumnReader(mut c), Kind::Unsigned) => {
                    self.drain(&mut c, rows, None, |v| cells.push_integer((v as u32).into()))
                }
                (ColumnReader::Int64ColumnReader(mut c), Kind::Unsigned) => {
                    self.drain(&mut c, rows, None, |v| cells.push_unsigned(v as u64))
                }
                (ColumnReader::Int32ColumnReader(mut c), Kind::Decimal(scale)) => {
                    self.drain(&mut c, rows, None, |v| cells.push_float(scaled(v.into(), scale)))
                }
                (ColumnReader::Int64ColumnReader(mut c), Kind::Decimal(scale)) => {
                    self.drain(&mut c, rows, None, |v| cells.push_float(scaled(v.into(), scale)))
                }
                (ColumnReader::FixedLenByteArrayColumnReader(mut c), Kind::Decimal(scale)) => {
                    self.drain(&mut c, rows, None, |v| decimal(&mut cells, v.data(), scale))
                }
                (ColumnReader::ByteArrayColumnReader(mut c), Kind::Decimal(scale)) => {
                    self.drain(&mut c, rows, None, |v| decimal(&mut cells, v.data(), scale))
                }
                (ColumnReader::Int32ColumnReader(mut c), _) => {
                    self.drain(&mut c, rows, None, |v| cells.push_integer(v.into()))
                }
                (ColumnReader::Int64ColumnReader(mut c), _) => {
                    self.drain(&mut c, rows, None, |v| cells.push_integer(v))
                }
                (ColumnReader::BoolColumnReader(mut c), _) => {
                    self.drain(&mut c, rows, None, |v| cells.push_integer(v.into()))
                }
                (ColumnReader::ByteArrayColumnReader(mut c), _) if precision == Precision::Flag => self
                    .drain(&mut c, rows, None, |v| {
                        let flag = flag(v.data());
                        if flag.is_none() {
                            no_flag.get_or_insert_with(|| (cells.rows(), v.data().to_vec()));
                        }
                        cells.push_float(flag.unwrap_or(0.0));
                    }),
                (ColumnReader::ByteArrayColumnReader(mut c), _) if is_label => {
                    self.drain(&mut c, rows, None, |v| cells.push_text(v.data()))
                }
                (ColumnReader::FixedLenByteArrayColumnReader(mut c), _) if is_label => {
                    self.drain(&mut c, rows, None, |v| cells.push_text(v.data()))
                }
                _ if self.descriptor.logical_type_ref() == Some(&LogicalType::Float16) => {
                    Err(float16(self.path, self.name))
                }
                _ => Err(self.wrong("numbers or booleans", &format!("values of type {physical}"))),
            };
            drained?;
        }
        if let Some(bytes) = too_long {
            return Err(self.long_decimal(&format!("decimals of {bytes} bytes")));
        }
        if let Some((row, text)) = no_flag {
            let found =
                format!("`{}` in row {}", one_line(String::from_utf8_lossy(&text)), self.rows_before() + row);
            return Err(self.wrong("flags (0 or 1, true or false, yes or no)", &found));
        }
        match cells {
            Cells::Labels(Labels { first_nan: Some(row), .. }) => {
                Err(self.wrong("a number or text in every row", &format!("NaN in row {row}")))
            }
            cells => Ok((cells, is_list.then(|| rows.width.unwrap_or(0)))),
        }
    }

    /// Rows of the groups before those to read, for row numbers in messages.
    fn rows_before(&self) -> usize {
        let before = self.reader.metadata().row_groups().iter().take(self.groups.start);
        before.map(|group| group.num_rows().max(0) as usize).sum()
    }

    /// What the values mean. As an episode's label anything that can be compared will do, also a date.
    fn kind(&self, is_label: bool) -> Result<Kind> {
        match Kind::of(&self.descriptor) {
            Kind::Decimal(_) | Kind::Time(_) | Kind::LongDecimal if is_label => Ok(Kind::Plain),
            Kind::Time(word) => {
                let hint = "store it as a number, such as seconds since the start, or leave it out with a column map";
                Err(Error::key(self.path, escaped(self.name), "numbers or booleans", word, hint))
            }
            Kind::LongDecimal => Err(self.long_decimal("decimals of more digits")),
            kind => Ok(kind),
        }
    }

    fn long_decimal(&self, found: &str) -> Error {
        let (wanted, hint) = ("numbers of at most 38 digits", "rewrite the column as double");
        Error::key(self.path, escaped(self.name), wanted, found, hint)
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
                let wanted = format!("data inside the file of {} bytes", self.bytes);
                let found = format!("{} bytes at offset {start}", chunk.compressed_size());
                return Err(damaged_key(self.path, self.name, &wanted, found));
            }
        }
        Ok(())
    }

    /// Passes every value to `push`; `null` stands for a missing one, where there is such a value.
    fn drain<T: DataType>(
        &self,
        column: &mut ColumnReaderImpl<T>,
        rows: &mut ListRows,
        null: Option<T::T>,
        mut push: impl FnMut(T::T),
    ) -> Result<()> {
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
                    return Err(self.uneven(rows));
                }
                rows.current += 1;
                let value = if here { present.next().cloned() } else { null.clone() };
                let row = rows.count;
                push(value.ok_or_else(|| self.wrong("a value in every row", &format!("none in row {row}")))?);
            }
        }
        // A row never spans two row groups.
        if rows.finish() { Ok(()) } else { Err(self.uneven(rows)) }
    }

    fn uneven(&self, rows: &ListRows) -> Error {
        self.wrong("lists of one length", &format!("another length in row {}", rows.count))
    }

    fn wrong(&self, wanted: &str, found: &str) -> Error {
        let hint = "repair the column or leave it out of the column map";
        Error::key(self.path, escaped(self.name), wanted, found, hint)
    }

    fn unreadable(&self, error: &ParquetError) -> Error {
        damaged_key(self.path, self.name, "readable data", error)
    }
}

/// Counts entries of list rows, which must all have one length.
#[derive(Default)]
struct ListRows {
    /// Rows finished.
    count: usize,
    /// Entries of the row under way.
    current: usize,
    width: Option<usize>,
}

impl ListRows {
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
