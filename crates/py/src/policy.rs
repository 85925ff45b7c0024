//! `offing.Policy`.

use std::path::PathBuf;

use ndarray::Array2;
use numpy::{IntoPyArray, PyArray2, PyReadonlyArray2};
use offing::Rng;
use offing::policy::{Deterministic, Policy as _, TanhGaussian};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrays::rows;
use crate::errors::of_library;

#[pyclass(frozen, module = "offing._offing")]
pub(crate) struct Policy {
    inner: TanhGaussian,
}

#[pymethods]
impl Policy {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        Ok(Self { inner: TanhGaussian::load(&path).map_err(of_library)? })
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
