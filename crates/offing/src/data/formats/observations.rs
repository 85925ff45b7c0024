//! Observations alone, for a policy to act on: a matrix, or a table of any size a stretch of rows at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parquet::file::reader::FileReader;

use super::super::contain::contain;
use super::super::messages::escaped;
use super::super::options::ReadOptions;
use super::super::unknown_columns;
use super::cells::{LoadedColumns, Precision};
use super::csv::TextTable;
use super::guess_columns::{check_columns, guess_obs};
use super::npy::{is_npy, read_npy};
use super::parquet::ParquetTable;
use super::{Candidate, Format};
use crate::batch::Mat;
use crate::error::{Error, Result, bad_file};

/// Rows of a text table that are read at a time.
const STRETCH: usize = 1 << 16;

/// A file of observations, one a row: a `.npy` matrix, CSV or Parquet. Only the columns of the observation are read.
pub struct Observations {
    path: PathBuf,
    /// The columns that make up an observation, in order; empty for a matrix without names.
    columns: Vec<String>,
    notes: Vec<String>,
    source: Source,
    /// Rows read so far.
    rows: usize,
}

enum Source {
    Matrix(Option<Mat>),
    Text(TextTable),
    Parquet { table: ParquetTable, group: usize },
}

impl Observations {
    /// Opens a file. The columns of a table are found by the rules of training data (`obs_0`, `obs_1` and on), unless
    /// `columns` names them.
    ///
    /// # Errors
    /// Another format, or columns that are not there.
    pub fn open(path: &Path, columns: Option<&[String]>) -> Result<Self> {
        let candidate = Candidate::open(path)?;
        let (source, all) = if is_npy(&candidate.head) {
            (Source::Matrix(Some(read_npy(path)?)), Vec::new())
        } else if (Format::PARQUET.recognises)(&candidate) {
            let table = ParquetTable::open(path)?;
            let all = table.names.clone();
            (Source::Parquet { table, group: 0 }, all)
        } else if (Format::CSV.recognises)(&candidate) {
            let table = TextTable::open(path, &ReadOptions::default())?;
            let all = table.names.clone();
            (Source::Text(table), all)
        } else {
            let hint = "give a .npy matrix, a .csv or .tsv table, or a Parquet table";
            return Err(bad_file!(
                path,
                "wanted observations, one a row, found another kind of file; {hint}"
            ));
        };
        let chosen = match (&source, columns) {
            (Source::Matrix(_), None) => Vec::new(),
            (Source::Matrix(_), Some(_)) => {
                let hint = "leave the column map out";
                return Err(bad_file!(path, "wanted a table for a column map, found a matrix; {hint}"));
            }
            (_, None) => guess_obs(path, &all)?,
            (_, Some(columns)) => columns.to_vec(),
        };
        check_columns(path, &all, &chosen)?;
        let unused: Vec<String> = all.into_iter().filter(|name| !chosen.contains(name)).collect();
        let notes = unknown_columns::note(&unused, &[]).into_iter().collect();
        Ok(Self { path: path.into(), columns: chosen, notes, source, rows: 0 })
    }

    /// The columns that are read, in order, or one list column; none for a matrix.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// What a user should know about how the file is read; complete after the last row.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The next rows; `None` after the last.
    ///
    /// # Errors
    /// An entry that is no finite number.
    pub fn next_rows(&mut self) -> Result<Option<Mat>> {
        let rows = match &mut self.source {
            Source::Matrix(matrix) => matrix.take(),
            Source::Text(table) => {
                let wanted = self.columns.iter().map(|name| (name.clone(), Precision::Single));
                let mut targets = table.targets(wanted.collect());
                let end = table.rows + STRETCH;
                while table.rows < end && table.read_row(&mut targets)? {}
                if table.rows == self.rows {
                    self.notes.extend(table.finish()?);
                    None
                } else {
                    let cells = targets.into_iter().map(|target| (target.name, target.cells)).collect();
                    Some(LoadedColumns { path: &self.path, cells }.matrix(&self.columns)?)
                }
            }
            Source::Parquet { table, group } => {
                let now = *group..*group + 1;
                *group += 1;
                match now.start < table.reader.num_row_groups() {
                    true => {
                        Some(contain(&self.path, || parquet_rows(table, &self.path, &self.columns, now))?)
                    }
                    false => None,
                }
            }
        };
        if let Some(rows) = &rows {
            self.check_finite(rows)?;
            self.rows += rows.nrows();
        }
        Ok(rows)
    }

    fn check_finite(&self, rows: &Mat) -> Result<()> {
        let Some(((row, column), value)) = rows.indexed_iter().find(|(_, v)| !v.is_finite()) else {
            return Ok(());
        };
        let format = match self.source {
            Source::Text(_) => Format::CSV,
            Source::Matrix(_) | Source::Parquet { .. } => Format::PARQUET,
        };
        let place = format.row_place(&self.path, self.rows + row);
        let (wanted, hint) = ("finite numbers", "leave the row out");
        Err(match self.columns.as_slice() {
            [] => bad_file!(&self.path, "wanted {wanted}, found {value} in {place}, column {column}; {hint}"),
            [list] if rows.ncols() > 1 => {
                let found = format!("{value} in {place}, entry {column}");
                Error::key(&self.path, escaped(list), wanted, found, hint)
            }
            names => {
                Error::key(&self.path, escaped(&names[column]), wanted, format!("{value} in {place}"), hint)
            }
        })
    }
}

/// The observations of one row group.
fn parquet_rows(
    table: &ParquetTable,
    path: &Path,
    columns: &[String],
    group: std::ops::Range<usize>,
) -> Result<Mat> {
    let mut cells = BTreeMap::new();
    for name in columns {
        let loaded = table.load(name, Precision::Single, group.clone(), &ReadOptions::default())?;
        cells.insert(name.clone(), loaded);
    }
    let loaded = LoadedColumns { path, cells };
    columns.first().map_or(Ok(()), |first| loaded.check_rows(first))?;
    loaded.matrix(columns)
}
