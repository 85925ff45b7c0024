//! The entries of a table's columns, as readers collect them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use ndarray::Array2;

use super::super::messages::escaped;
use crate::error::{Error, Result};

/// The entries of one column.
pub(super) enum Cells {
    F32(Vec<f32>),
    F64(Vec<f64>),
    /// A list of the same length in every row, flattened.
    List {
        width: usize,
        values: Vec<f32>,
    },
    /// Of which only "equal or not" counts.
    Labels(Labels),
}

impl Cells {
    /// An empty column to fill.
    pub(super) fn new(precision: Precision) -> Self {
        match precision {
            Precision::Single => Self::F32(Vec::new()),
            Precision::Double | Precision::Flag => Self::F64(Vec::new()),
            Precision::Label => Self::Labels(Labels::default()),
        }
    }

    /// Adds a number.
    pub(super) fn push_float(&mut self, value: f64) {
        match self {
            Self::F32(values) | Self::List { values, .. } => values.push(value as f32),
            Self::F64(values) => values.push(value),
            Self::Labels(labels) => {
                if value.is_nan() {
                    labels.first_nan.get_or_insert(labels.ids.len());
                }
                labels.ids.push((value + 0.0).to_bits() as i64); // -0 is 0
            }
        }
    }

    /// Adds an integer.
    pub(super) fn push_integer(&mut self, value: i64) {
        match self {
            Self::Labels(labels) => labels.ids.push(value),
            _ => self.push_float(value as f64),
        }
    }

    /// Adds an integer that may be too large for [`Cells::push_integer`].
    pub(super) fn push_unsigned(&mut self, value: u64) {
        match self {
            Self::Labels(labels) => labels.ids.push(value as i64), // the same bits: still one number for each
            _ => self.push_float(value as f64),
        }
    }

    /// Adds a text; columns of numbers hold none.
    pub(super) fn push_text(&mut self, text: &[u8]) {
        if let Self::Labels(labels) = self {
            labels.push(text);
        }
    }

    pub(super) fn rows(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::List { width, values } => values.len().checked_div(*width).unwrap_or(0),
            Self::Labels(labels) => labels.ids.len(),
        }
    }
}

/// Texts, each distinct one under a number of its own; or numbers as they are.
#[derive(Default)]
pub(super) struct Labels {
    pub(super) ids: Vec<i64>,
    known: HashMap<Vec<u8>, i64>,
    /// The first row that is not a number.
    pub(super) first_nan: Option<usize>,
}

impl Labels {
    /// Adds a text.
    pub(super) fn push(&mut self, text: &[u8]) {
        let next = self.known.len() as i64;
        let id = match self.known.get(text) {
            Some(&id) => id,
            None => *self.known.entry(text.to_vec()).or_insert(next),
        };
        self.ids.push(id);
    }
}

/// How a column is to be loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    Single,
    Double,
    /// 0 or 1, or a word for it.
    Flag,
    /// Any number or text, to be compared only.
    Label,
}

/// Columns that were read, by name.
pub(super) struct LoadedColumns<'a> {
    /// Their file, for messages.
    pub(super) path: &'a Path,
    pub(super) cells: BTreeMap<String, Cells>,
}

impl LoadedColumns<'_> {
    /// Makes sure that all columns have as many rows as this one.
    pub(super) fn check_rows(&self, first: &str) -> Result<()> {
        let wanted = self.cells.get(first).map_or(0, Cells::rows);
        for (name, column) in &self.cells {
            if column.rows() != wanted {
                let hint = "the table is damaged or was put together wrongly: write it again";
                let wanted = format!("{wanted} rows, as in `{}`", escaped(first));
                return Err(Error::key(self.path, escaped(name), wanted, column.rows().to_string(), hint));
            }
        }
        Ok(())
    }

    /// A column of numbers in single precision.
    pub(super) fn singles(&self, name: &str) -> Result<Cow<'_, [f32]>> {
        match self.cells.get(name) {
            Some(Cells::F32(values)) => Ok(values.into()),
            _ => Ok(self.doubles(name)?.iter().map(|&v| v as f32).collect()),
        }
    }

    /// A column of numbers in double precision.
    pub(super) fn doubles(&self, name: &str) -> Result<Cow<'_, [f64]>> {
        match self.cells.get(name) {
            Some(Cells::F64(values)) => Ok(values.into()),
            Some(Cells::F32(values)) => Ok(values.iter().map(|&v| f64::from(v)).collect()),
            Some(Cells::List { .. } | Cells::Labels(_)) | None => {
                let hint = "give a column of plain numbers";
                Err(Error::key(self.path, escaped(name), "one number a row", "lists", hint))
            }
        }
    }

    pub(super) fn states(&self, names: &[String]) -> Result<Array2<f64>> {
        let columns = names.iter().map(|name| self.doubles(name)).collect::<Result<Vec<_>>>()?;
        Ok(side_by_side(&columns))
    }

    /// The named columns side by side; a list column counts as many.
    pub(super) fn matrix(&self, names: &[String]) -> Result<Array2<f32>> {
        if let [name] = names
            && let Some(cells @ Cells::List { width, values }) = self.cells.get(name)
        {
            return Array2::from_shape_vec((cells.rows(), *width), values.clone()).map_err(|_| {
                let (wanted, found) = ("lists of one length", "several lengths");
                Error::key(self.path, escaped(name), wanted, found, "pad or split them")
            });
        }
        let columns = names.iter().map(|name| self.singles(name)).collect::<Result<Vec<_>>>()?;
        Ok(side_by_side(&columns))
    }
}

fn side_by_side<T: Copy>(columns: &[Cow<'_, [T]>]) -> Array2<T> {
    let rows = columns.first().map_or(0, |column| column.len());
    Array2::from_shape_fn((rows, columns.len()), |(i, j)| columns[j][i])
}
