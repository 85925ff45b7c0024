//! Text tables: separated by commas, semicolons or tabs, names in the first line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use super::dataset::{Dataset, Format};
use super::hdf5::{escaped, one_line};
use super::options::ReadOptions;
use super::table::{Cells, Labels, Layout, Out, Precision, columns_of};
use crate::error::{Error, Result};
use crate::home::write_atomic;

/// Reads the table at `path`; a comma as `delimiter` gives way to semicolons when the first line has only these.
pub(super) fn read(path: &Path, delimiter: u8, options: &ReadOptions) -> Result<Dataset> {
    let delimiter = if delimiter == b',' { comma_or_semicolon(path)? } else { delimiter };
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .trim(csv::Trim::All)
        .from_path(path)
        .map_err(|e| unreadable(path, &e))?;
    let names: Vec<String> = reader
        .byte_headers()
        .map_err(|e| unreadable(path, &e))?
        .iter()
        .map(|name| String::from_utf8_lossy(name).trim_start_matches('\u{feff}').to_string())
        .collect();
    let layout = Layout::resolve(path, &names, options.columns.as_ref())?;
    let mut targets: Vec<(usize, String, Cells)> = layout
        .wanted()
        .into_iter()
        .filter_map(|(name, precision)| {
            let at = names.iter().position(|n| *n == name)?;
            let cells = match precision {
                Precision::Single => Cells::F32(Vec::new()),
                Precision::Double => Cells::F64(Vec::new()),
                Precision::Label => Cells::Labels(Labels::default()),
            };
            Some((at, name, cells))
        })
        .collect();
    let mut record = csv::ByteRecord::new();
    let mut row = 0usize;
    while reader.read_byte_record(&mut record).map_err(|e| unreadable(path, &e))? {
        for (at, name, cells) in &mut targets {
            let cell = record.get(*at).unwrap_or_default();
            let stored = match cells {
                Cells::F32(values) => number::<f32>(cell, f32::NAN, options).map(|v| values.push(v)),
                Cells::F64(values) => number::<f64>(cell, f64::NAN, options).map(|v| values.push(v)),
                Cells::Labels(labels) => (!cell.is_empty()).then(|| labels.push(cell)),
                Cells::List { .. } => None,
            };
            if stored.is_none() {
                let found = match cell {
                    b"" => format!("an empty cell in row {row}"),
                    _ => format!("`{}` in row {row}", one_line(&String::from_utf8_lossy(cell))),
                };
                let wanted = if matches!(cells, Cells::Labels(_)) { "a number or text" } else { "a number" };
                return Err(Error::key(path, escaped(name), wanted, found, "repair or remove that row"));
            }
        }
        row += 1;
    }
    let cells = targets.into_iter().map(|(_, name, cells)| (name, cells)).collect();
    layout.build(path, Format::Csv, &names, cells, BTreeMap::new(), options)
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
pub fn write_csv(data: &Dataset, path: &Path) -> Result<()> {
    let columns = columns_of(data);
    write_atomic(path, |out| {
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(out, "{}", names.join(","))?;
        for i in 0..data.rows.len() {
            for (j, (_, column)) in columns.iter().enumerate() {
                if j > 0 {
                    out.write_all(b",")?;
                }
                match column {
                    Out::F32(values) => write!(out, "{}", values[i])?,
                    Out::F64(values) => write!(out, "{}", values[i])?,
                    Out::Bool(values) => write!(out, "{}", u8::from(values[i]))?,
                    Out::I64(values) => write!(out, "{}", values[i])?,
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
    let why = one_line(&error.to_string());
    Error::file(
        path,
        format!(
            "wanted a table with names in the first line, found one that breaks off or has uneven rows ({why}); repair it"
        ),
    )
}
