//! `offing.Policy`.

use std::path::{Path, PathBuf};

use ndarray::Array2;
use numpy::{IntoPyArray, PyArray2, PyReadonlyArray2};
use offing::policy::{Deterministic, Policy as _, TanhGaussian};
use offing::{Error, Rng};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrays::rows;
use crate::errors::of_library;

#[pyclass(frozen, module = "offing._offing")]
pub(crate) struct Policy {
    inner: TanhGaussian,
    /// Its file, for pickling.
    bytes: Vec<u8>,
}

impl Policy {
    /// The policy of a file's content; `path` is only named in errors.
    pub(crate) fn read(bytes: Vec<u8>, path: &Path) -> offing::Result<Self> {
        Ok(Self { inner: TanhGaussian::from_bytes(&bytes, path)?, bytes })
    }
}

#[pymethods]
impl Policy {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let bytes = std::fs::read(&path).map_err(|e| of_library(Error::io(&path, "read", e)))?;
        Self::read(bytes, &path).map_err(of_library)
    }

    #[staticmethod]
    fn from_bytes(bytes: Vec<u8>) -> PyResult<Self> {
        Self::read(bytes, "policy".as_ref()).map_err(of_library)
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    /// Actions for rows of observations: the mean, or sampled when a seed is given.
    fn act<'py>(
        &self,
        py: Python<'py>,
        obs: PyReadonlyArray2<'py, f32>,
        seed: Option<u64>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let obs = rows("obs", &obs)?;
        if obs.ncols() != self.inner.obs_dim() {
            let words = format!("obs: wanted {} columns, found {}", self.inner.obs_dim(), obs.ncols());
            return Err(PyValueError::new_err(words));
        }
        let mut act = Array2::zeros((obs.nrows(), self.inner.act_dim()));
        py.detach(|| {
            let mut rng = Rng::stream(seed.unwrap_or(0), "act", 0);
            for (obs, mut act) in obs.rows().into_iter().zip(act.rows_mut()) {
                let (obs, act) =
                    (obs.to_slice().expect("contiguous"), act.as_slice_mut().expect("contiguous"));
                match seed {
                    None => Deterministic(&self.inner).act(obs, &mut rng, act),
                    Some(_) => self.inner.act(obs, &mut rng, act),
                }
            }
        });
        Ok(act.into_pyarray(py))
    }

    #[getter]
    fn obs_dim(&self) -> usize {
        self.inner.obs_dim()
    }

    #[getter]
    fn act_dim(&self) -> usize {
        self.inner.act_dim()
    }
}
