//! `offing.Index`.

use std::path::PathBuf;

use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray2};
use offing_knn::{Metric, NeighborIndex, Neighbors, Threads, Tree, TreeConfig};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrays::rows;
use crate::errors::of_search;

/// Distances and row numbers, one line a query.
pub(crate) type Found<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<u32>>);

#[pyclass(frozen, module = "offing")]
pub(crate) struct Index {
    tree: Tree,
}

/// A number of threads the caller chose.
pub(crate) fn width(count: Option<usize>) -> PyResult<Option<usize>> {
    match count {
        Some(0) => Err(PyValueError::new_err("threads: wanted at least 1, found 0")),
        other => Ok(other),
    }
}

/// Threads of the index's own, because they survive a fork of the process (rayon's shared ones do not).
fn threads(count: Option<usize>) -> PyResult<Threads> {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Threads::Exactly(width(count)?.unwrap_or_else(all)))
}

fn metric(name: &str) -> PyResult<Metric> {
    match name {
        "euclidean" => Ok(Metric::Euclidean),
        "manhattan" => Ok(Metric::Manhattan),
        "cosine" => Ok(Metric::Cosine),
        other => Err(PyValueError::new_err(format!(
            "metric: wanted euclidean, manhattan or cosine, found `{other}`"
        ))),
    }
}

pub(crate) fn found<'py>(py: Python<'py>, neighbors: Neighbors) -> Found<'py> {
    (neighbors.distances.into_pyarray(py), neighbors.ids.into_pyarray(py))
}

#[pymethods]
impl Index {
    #[new]
    #[pyo3(signature = (x, metric = "euclidean", threads = None))]
    fn new(
        py: Python<'_>,
        x: PyReadonlyArray2<'_, f32>,
        metric: &str,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let cfg = TreeConfig {
            metric: self::metric(metric)?,
            threads: self::threads(threads)?,
            ..TreeConfig::default()
        };
        let x = rows("x", &x)?;
        let tree = py.detach(|| Tree::new(&cfg, x)).map_err(of_search)?;
        Ok(Self { tree })
    }

    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: PyReadonlyArray2<'py, f32>,
        k: usize,
    ) -> PyResult<Found<'py>> {
        let queries = rows("queries", &queries)?;
        let neighbors = py.detach(|| self.tree.search(queries, k)).map_err(of_search)?;
        Ok(found(py, neighbors))
    }

    fn search_self<'py>(&self, py: Python<'py>, k: usize) -> PyResult<Found<'py>> {
        let neighbors = py.detach(|| self.tree.search_self(k)).map_err(of_search)?;
        Ok(found(py, neighbors))
    }

    fn max_self(&self, py: Python<'_>, k: usize) -> PyResult<f32> {
        py.detach(|| self.tree.max_self(k)).map_err(of_search)
    }

    fn within<'py>(
        &self,
        py: Python<'py>,
        queries: PyReadonlyArray2<'py, f32>,
        radius: f32,
        k: usize,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let queries = rows("queries", &queries)?;
        let inside = py.detach(|| self.tree.within(queries, radius, k)).map_err(of_search)?;
        Ok(inside.into_pyarray(py))
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.tree.save(&path)).map_err(of_search)
    }

    #[staticmethod]
    #[pyo3(signature = (path, threads = None))]
    fn load(py: Python<'_>, path: PathBuf, threads: Option<usize>) -> PyResult<Self> {
        let threads = self::threads(threads)?;
        let tree = py.detach(|| Tree::open(&path, threads)).map_err(of_search)?;
        Ok(Self { tree })
    }

    fn __len__(&self) -> usize {
        self.tree.len()
    }

    #[getter]
    fn dim(&self) -> usize {
        self.tree.dim()
    }

    #[getter]
    fn metric(&self) -> &'static str {
        match self.tree.metric() {
            Metric::Euclidean => "euclidean",
            Metric::Manhattan => "manhattan",
            Metric::Cosine => "cosine",
        }
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.tree.bytes()
    }
}
