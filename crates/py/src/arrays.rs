//! Matrices from Python. The package's Python side makes every argument a C-contiguous float32 array first, without a copy
//! where it is one already; here it is borrowed as it lies.

use ndarray::ArrayView2;
use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The array as rows.
pub(crate) fn rows<'a>(name: &str, array: &'a PyReadonlyArray2<'_, f32>) -> PyResult<ArrayView2<'a, f32>> {
    if !array.is_c_contiguous() {
        return Err(PyValueError::new_err(format!(
            "{name}: wanted a C-contiguous float32 matrix, found another layout; use numpy.ascontiguousarray"
        )));
    }
    Ok(array.as_array())
}

/// Where the native code reads an array: equal to `array.ctypes.data` when nothing was copied.
#[pyfunction]
pub(crate) fn address(array: PyReadonlyArray2<'_, f32>) -> usize {
    array.as_array().as_ptr() as usize
}
