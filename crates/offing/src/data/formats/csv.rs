//! Text tables: separated by commas, semicolons or tabs, names in the first line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use super::super::dataset::Dataset;
use super::super::memory::check_fits;
use super::super::messages::{escaped, one_line};
use super::super::options::ReadOptions;
use super::cells::{Cells, LoadedColumns, Precision};
use super::separator::separator;
use super::table::{LoadedTable, OutColumn, TableLayout, columns_of};
use super::text_numbers::{NotANumber, Numbers, Place, Seen};
use super::{Candidate, Format, has_extension};
use crate::error::{Error, Result, bad_file};
use crate::home::write_atomic;

impl Format {
    /// A text table of one transition a row.
    pub const CSV: Self = Self {
        name: "csv",
        title: "CSV",
        extensions: &["csv", "tsv"],
        is_table: true,
        recognises,
        read: |candidate, options| read(candidate.path, options),
        write: Some(write),
        row_place,
    };
}

/// Text has no signature: the ending decides, unless a server sent a page of its own instead of the file.
fn recognises(candidate: &Candidate) -> bool {
    let is_named = has_extension(candidate.path, Format::CSV.extensions);
    is_named && !candidate.head.is_empty() && !candidate.is_html()
}

fn read(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let mut table = TextTable::open(path, options)?;
    let all = table.names.clone();
    let layout = TableLayout::resolve(path, &all, options)?;
    let mut targets = table.targets(layout.wanted());
    while table.read_row(&mut targets)? {
        if table.rows == 1 {
            // As many rows as lines of this length fit into the file; eight bytes a number, or four and a copy.
            let line = table.record.as_slice().len() + table.record.len();
            let bytes = std::fs::metadata(path).map_err(|e| Error::io(path, "read", e))?.len();
            check_fits(path, bytes / line.max(1) as u64 * 8 * targets.len() as u64, options)?;
        }
    }
    let notes = table.finish()?.into_iter().collect();
    let cells = targets.into_iter().map(|target| (target.name, target.cells)).collect();
    let (columns, meta, times) = (LoadedColumns { path, cells }, BTreeMap::new(), Vec::new());
    LoadedTable { format: Format::CSV, layout, all, times, columns, meta, notes }.into_dataset(options)
}

/// A text table that is being read row by row.
pub(super) struct TextTable {
    path: PathBuf,
    reader: csv::Reader<File>,
    /// Every column.
    pub(super) names: Vec<String>,
    numbers: Numbers,
    record: csv::ByteRecord,
    /// Rows read so far.
    pub(super) rows: usize,
}

/// A column to read.
pub(super) struct Target {
    at: usize,
    pub(super) name: String,
    precision: Precision,
    pub(super) cells: Cells,
}

impl TextTable {
    /// Opens a table and reads its names.
    pub(super) fn open(path: &Path, options: &ReadOptions) -> Result<Self> {
        let separator = separator(path)?;
        let mut reader = open(path, separator)?;
        let names = reader.byte_headers().map_err(|e| unreadable(path, &e))?.iter();
        let names = names
            .map(|name| String::from_utf8_lossy(name).trim_start_matches('\u{feff}').to_string())
            .collect();
        let numbers = Numbers::new(separator, options.allow_non_finite);
        Ok(Self { path: path.into(), reader, names, numbers, record: csv::ByteRecord::new(), rows: 0 })
    }

    /// Columns of these names, empty; names that the table does not have are left out.
    pub(super) fn targets(&self, wanted: Vec<(String, Precision)>) -> Vec<Target> {
        let target = |(name, precision): (String, Precision)| {
            let at = self.names.iter().position(|n| *n == name)?;
            Some(Target { at, name, precision, cells: Cells::new(precision) })
        };
        wanted.into_iter().filter_map(target).collect()
    }

    /// Adds the next row to the columns; false at the end of the table.
    pub(super) fn read_row(&mut self, targets: &mut [Target]) -> Result<bool> {
        let more = self.reader.read_byte_record(&mut self.record);
        if !more.map_err(|e| unreadable(&self.path, &e))? {
            return Ok(false);
        }
        let row = self.rows;
        for Target { at, name, precision, cells } in targets {
            let cell = self.record.get(*at).unwrap_or_default();
            let (numbers, place) = (&mut self.numbers, Place { column: *at, row });
            let stored = match (cells, *precision) {
                (Cells::F64(values), Precision::Flag) => numbers.flag(cell, place).map(|v| values.push(v)),
                (Cells::F32(values), _) => numbers.number(cell, f32::NAN, place).map(|v| values.push(v)),
                (Cells::F64(values), _) => numbers.number(cell, f64::NAN, place).map(|v| values.push(v)),
                (Cells::Labels(labels), _) if !cell.is_empty() => {
                    labels.push(cell);
                    Ok(())
                }
                (Cells::Labels(_) | Cells::List { .. }, _) => Err(NotANumber::Text),
            };
            if let Err(why) = stored {
                return Err(bad_cell(&self.path, name, *precision, cell, row, why));
            }
        }
        self.rows += 1;
        Ok(true)
    }

    /// To be called after the last row: refuses numbers that have two readings, or says how they were read.
    pub(super) fn finish(&self) -> Result<Option<String>> {
        if let Some(Seen { text, column, row }) = self.numbers.doubtful_comma() {
            let thousands = text.replace(',', "");
            let found = format!(
                "`{text}` in {}, which is {thousands} or {}",
                row_place(&self.path, *row),
                text.replace(',', ".")
            );
            let (name, hint) =
                (escaped(&self.names[*column]), "write numbers without separators of thousands");
            return Err(Error::key(&self.path, name, "numbers with one reading", found, hint));
        }
        let note = |seen: &Seen| {
            format!("numbers such as {} are read with a decimal point, not as thousands", seen.text)
        };
        Ok(self.numbers.doubtful_point().map(note))
    }
}

/// What is wrong with a cell, and what to do.
fn bad_cell(
    path: &Path,
    name: &str,
    precision: Precision,
    cell: &[u8],
    row: usize,
    why: NotANumber,
) -> Error {
    let text = one_line(String::from_utf8_lossy(cell));
    let at = row_place(path, row);
    let (wanted, found, hint) = match why {
        NotANumber::Grouped => (
            "a number without separators of thousands",
            format!("`{text}` in {at}"),
            "write it without them, such as 1234.5",
        ),
        NotANumber::Mixed(seen) => (
            "one decimal sign in all numbers",
            format!("`{text}` in {at} and `{}` in {}", seen.text, row_place(path, seen.row)),
            "write all with a point, without separators of thousands",
        ),
        NotANumber::Time => (
            "a number",
            format!("the time `{text}` in {at}"),
            "store it as a number, such as seconds since the start, or leave it out with a column map",
        ),
        NotANumber::Text => {
            let wanted = match precision {
                Precision::Label => "a number or text",
                Precision::Flag => "a flag (0 or 1, true or false, yes or no)",
                Precision::Single | Precision::Double => "a number",
            };
            let found =
                if cell.is_empty() { format!("an empty cell in {at}") } else { format!("`{text}` in {at}") };
            (wanted, found, "repair or remove that line")
        }
    };
    Error::key(path, escaped(name), wanted, found, hint)
}

fn open(path: &Path, separator: u8) -> Result<csv::Reader<File>> {
    csv::ReaderBuilder::new()
        .delimiter(separator)
        .trim(csv::Trim::All)
        .from_path(path)
        .map_err(|e| unreadable(path, &e))
}

fn is_tabbed(path: &Path) -> bool {
    has_extension(path, &["tsv"])
}

/// The line of a row, as an editor counts it.
fn row_place(path: &Path, row: usize) -> String {
    line_of(path, row).map_or_else(|| format!("row {row}"), |line| format!("line {line}"))
}

/// The line on which a row begins, counted from 1. The file is read once more, which only a message costs: blank
/// lines and line breaks in quotes make it more than the row's number and the header.
fn line_of(path: &Path, row: usize) -> Option<usize> {
    let record = open(path, separator(path).ok()?).ok()?.into_byte_records().nth(row)?.ok()?;
    let start = record.position()?.byte();
    let (mut line, mut before) = (1, 0);
    for (at, byte) in (0u64..).zip(BufReader::new(File::open(path).ok()?).bytes()) {
        let byte = byte.ok()?;
        // The reader counts what is left of the line before, and blank lines, to the record.
        if at >= start && byte != b'\n' && byte != b'\r' {
            break;
        }
        line += usize::from(byte == b'\r' || (byte == b'\n' && before != b'\r'));
        before = byte;
    }
    Some(line)
}

/// Writes `data` as a text table; numbers in the shortest form that reads back as the same bits. It cannot hold
/// [`Dataset::meta`].
fn write(data: &Dataset, path: &Path) -> Result<()> {
    let columns = columns_of(data);
    let separator = if is_tabbed(path) { "\t" } else { "," };
    write_atomic(path, |out| {
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(out, "{}", names.join(separator))?;
        for i in 0..data.rows.len() {
            for (j, (_, column)) in columns.iter().enumerate() {
                if j > 0 {
                    out.write_all(separator.as_bytes())?;
                }
                match column {
                    OutColumn::F32(values) => write!(out, "{}", values[i])?,
                    OutColumn::F64(values) => write!(out, "{}", values[i])?,
                    OutColumn::Bool(values) => write!(out, "{}", u8::from(values[i]))?,
                    OutColumn::I64(values) => write!(out, "{}", values[i])?,
                }
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    })
}

fn unreadable(path: &Path, error: &csv::Error) -> Error {
    let why = one_line(error);
    bad_file!(
        path,
        "wanted a table with names in the first line, found one that breaks off or has uneven rows ({why}); repair it"
    )
}
