//! Text tables: separated by commas, semicolons or tabs, names in the first line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use super::super::dataset::Dataset;
use super::super::memory::check_fits;
use super::super::messages::{escaped, one_line};
use super::super::options::ReadOptions;
use super::table::{Cells, LoadedTable, OutColumn, TableLayout, columns_of};
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
        read,
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
    let mut reader = open(path)?;
    let all: Vec<String> = reader
        .byte_headers()
        .map_err(|e| unreadable(path, &e))?
        .iter()
        .map(|name| String::from_utf8_lossy(name).trim_start_matches('\u{feff}').to_string())
        .collect();
    let layout = TableLayout::resolve(path, &all, options)?;
    let mut targets: Vec<(usize, String, Cells)> = layout
        .wanted()
        .into_iter()
        .filter_map(|(name, precision)| {
            Some((all.iter().position(|n| *n == name)?, name, Cells::new(precision)))
        })
        .collect();
    let mut record = csv::ByteRecord::new();
    let mut row = 0usize;
    while reader.read_byte_record(&mut record).map_err(|e| unreadable(path, &e))? {
        if row == 0 {
            // As many rows as lines of this length fit into the file; eight bytes a number, or four and a copy.
            let line = record.as_slice().len() + record.len();
            let bytes = std::fs::metadata(path).map_err(|e| Error::io(path, "read", e))?.len();
            check_fits(path, bytes / line.max(1) as u64 * 8 * targets.len() as u64, options)?;
        }
        for (at, name, cells) in &mut targets {
            let cell = record.get(*at).unwrap_or_default();
            let stored = match cells {
                Cells::F32(values) => number::<f32>(cell, f32::NAN, options).map(|v| values.push(v)),
                Cells::F64(values) => number::<f64>(cell, f64::NAN, options).map(|v| values.push(v)),
                Cells::Labels(labels) => (!cell.is_empty()).then(|| labels.push(cell)),
                Cells::List { .. } => None,
            };
            if stored.is_none() {
                let at = row_place(path, row);
                let found = match cell {
                    b"" => format!("an empty cell in {at}"),
                    _ => format!("`{}` in {at}", one_line(String::from_utf8_lossy(cell))),
                };
                let wanted = if matches!(cells, Cells::Labels(_)) { "a number or text" } else { "a number" };
                return Err(Error::key(path, escaped(name), wanted, found, "repair or remove that line"));
            }
        }
        row += 1;
    }
    let cells = targets.into_iter().map(|(_, name, cells)| (name, cells)).collect();
    let meta = BTreeMap::new();
    LoadedTable { path, format: Format::CSV, layout, all, cells, meta }.into_dataset(options)
}

/// Opens a table: tabs separate in a `.tsv` file, else commas, or semicolons when the first line has only these.
fn open(path: &Path) -> Result<csv::Reader<File>> {
    let delimiter = if is_tabbed(path) { b'\t' } else { comma_or_semicolon(path)? };
    csv::ReaderBuilder::new()
        .delimiter(delimiter)
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
    let record = open(path).ok()?.into_byte_records().nth(row)?.ok()?;
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

/// The separator of a `.csv` file: where the comma is the decimal sign, programs write semicolons.
fn comma_or_semicolon(path: &Path) -> Result<u8> {
    const LONGEST: u64 = 1 << 20;
    let file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
    let mut line = Vec::new();
    BufReader::new(file.take(LONGEST))
        .read_until(b'\n', &mut line)
        .map_err(|e| Error::io(path, "read", e))?;
    Ok(if line.contains(&b';') && !line.contains(&b',') { b';' } else { b',' })
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

/// A number, or a word for true or false. An empty cell is NaN where NaN is allowed.
fn number<T: std::str::FromStr + From<u8>>(cell: &[u8], nan: T, options: &ReadOptions) -> Option<T> {
    match cell {
        b"" => options.allow_non_finite.then_some(nan),
        b"true" | b"True" | b"TRUE" => Some(T::from(1)),
        b"false" | b"False" | b"FALSE" => Some(T::from(0)),
        _ => std::str::from_utf8(cell).ok()?.parse().ok(),
    }
}

fn unreadable(path: &Path, error: &csv::Error) -> Error {
    let why = one_line(error);
    bad_file!(
        path,
        "wanted a table with names in the first line, found one that breaks off or has uneven rows ({why}); repair it"
    )
}
