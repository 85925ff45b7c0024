//! Named arrays, as HDF5 files and npz archives hold them: their shapes on the way in, their bytes on the way out.

use std::path::Path;

use ndarray::{Array1, Array2, ArrayView, ArrayViewD, Axis, Dimension, concatenate};

use super::super::messages::{damaged_key, escaped, flags, show_shape};
use super::row_number;
use crate::batch::Mat;
use crate::error::{Error, Result};

/// An array of a file, before anything is known about its shape.
pub(super) struct StoredArray<'a> {
    pub(super) path: &'a Path,
    pub(super) key: &'a str,
    pub(super) shape: Vec<usize>,
    pub(super) values: StoredValues,
}

/// The elements of an array, row by row.
pub(super) enum StoredValues {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl From<StoredValues> for Vec<f32> {
    fn from(values: StoredValues) -> Self {
        match values {
            StoredValues::F32(v) => v,
            StoredValues::F64(v) => v.into_iter().map(|x| x as f32).collect(),
        }
    }
}

impl From<StoredValues> for Vec<f64> {
    fn from(values: StoredValues) -> Self {
        match values {
            StoredValues::F32(v) => v.into_iter().map(f64::from).collect(),
            StoredValues::F64(v) => v,
        }
    }
}

impl StoredArray<'_> {
    /// A matrix: (N, d), or (N,) as one column.
    pub(super) fn matrix<T>(self) -> Result<Array2<T>>
    where
        Vec<T>: From<StoredValues>,
    {
        match *self.shape.as_slice() {
            [rows] => self.shaped(rows, 1),
            [rows, width] if width > 0 => self.shaped(rows, width),
            _ => Err(self.wrong_shape("(rows, width)")),
        }
    }

    /// A matrix from an array of any rank, flattened row by row.
    pub(super) fn flat_matrix(self) -> Result<Mat> {
        let Some((&rows, rest)) = self.shape.split_first() else {
            return Err(self.wrong_shape("(rows, …)"));
        };
        match rest.iter().try_fold(1usize, |width, &d| width.checked_mul(d)) {
            Some(width) if width > 0 => self.shaped(rows, width),
            _ => Err(self.wrong_shape("(rows, width)")),
        }
    }

    /// One number a row: (N,) or (N, 1).
    pub(super) fn column<T>(self) -> Result<Array1<T>>
    where
        Vec<T>: From<StoredValues>,
    {
        match *self.shape.as_slice() {
            [_] | [_, 1] => Ok(Vec::from(self.values).into()),
            _ => Err(self.wrong_shape("(rows,) or (rows, 1)")),
        }
    }

    /// One yes or no a row: (N,) or (N, 1), stored as bool, integer or float 0/1.
    pub(super) fn flags(self) -> Result<Array1<bool>> {
        let (path, key) = (self.path, self.key);
        flags(path, key, self.column()?, |row| row_number(path, row))
    }

    fn shaped<T>(self, rows: usize, width: usize) -> Result<Array2<T>>
    where
        Vec<T>: From<StoredValues>,
    {
        let values = Vec::from(self.values);
        let found = values.len();
        Array2::from_shape_vec((rows, width), values).map_err(|_| {
            let wanted = format!("{} numbers", rows.saturating_mul(width));
            damaged_key(self.path, self.key, &wanted, found)
        })
    }

    fn wrong_shape(&self, wanted: &str) -> Error {
        let (wanted, found) = (format!("shape {wanted}"), show_shape(&self.shape));
        let hint = "only flat vectors are supported: flatten it when writing the file";
        Error::key(self.path, escaped(self.key), wanted, found, hint)
    }
}

/// One matrix of several parts (episodes, files), which must be as wide in each.
pub(super) fn stacked<'a>(path: &Path, key: &str, parts: impl Iterator<Item = &'a Mat>) -> Result<Mat> {
    let parts: Vec<_> = parts.map(|part| part.view()).collect();
    let joined = concatenate(Axis(0), &parts).map_err(|_| {
        let hint = "episodes must all have the same spaces";
        Error::key(path, key, "one width in all episodes", "several", hint)
    })?;
    Ok(joined.as_standard_layout().into_owned())
}

/// An array of a dataset on its way into a file.
pub(super) enum OutArray<'a> {
    F32(ArrayViewD<'a, f32>),
    F64(ArrayViewD<'a, f64>),
    Bool(ArrayViewD<'a, bool>),
}

impl OutArray<'_> {
    pub(super) fn shape(&self) -> &[usize] {
        match self {
            Self::F32(values) => values.shape(),
            Self::F64(values) => values.shape(),
            Self::Bool(values) => values.shape(),
        }
    }

    /// The elements row by row, little-endian.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::F32(values) => bytes(values, f32::to_le_bytes),
            Self::F64(values) => bytes(values, f64::to_le_bytes),
            Self::Bool(values) => bytes(values, |b| [u8::from(b)]),
        }
    }
}

fn bytes<T: Copy, const N: usize>(values: &ArrayViewD<'_, T>, to_bytes: fn(T) -> [u8; N]) -> Vec<u8> {
    let values = values.as_standard_layout();
    values.as_slice().expect("standard layout").iter().flat_map(|&v| to_bytes(v)).collect()
}

/// Views of any rank as arrays to write.
macro_rules! out_array {
    ($($element:ty => $variant:ident),*) => {$(
        impl<'a, D: Dimension> From<ArrayView<'a, $element, D>> for OutArray<'a> {
            fn from(view: ArrayView<'a, $element, D>) -> Self {
                Self::$variant(view.into_dyn())
            }
        }
    )*};
}

out_array!(f32 => F32, f64 => F64, bool => Bool);
