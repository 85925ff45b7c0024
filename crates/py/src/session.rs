//! Training, studies and datasets from Python: the library's front door with arrays on the Python side.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::IntoPyArray;
use offing::data::audit::audit as find_faults;
use offing::data::{Dataset, Format, ReadOptions, write};
use offing::env::{GenerateOptions, Physics};
use offing::rank::{FittedQConfig, ModelReturnConfig};
use offing::tasks::horizon;
use offing::train::{DataSource, RunManifest};
use offing_experiments::arguments::ColumnsFile;
use offing_experiments::calibrate::{CalibrationRequest, OwnStudy};
use offing_experiments::grid::{CellEnd, Grid, GridRequest};
use offing_experiments::rank::{RankConfig, rank_on};
use offing_experiments::report::write_run_page;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;

use crate::bridge::beside;
use crate::columns::{PyColumns, PyData};
use crate::errors::{of_command, of_library};
use crate::estimator::{SharedUnits, custom_estimator};

/// Runs the command line `offing ARGS…` as the program would and returns its exit code.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, args: Vec<String>) -> u8 {
    py.detach(|| offing_cli::run(std::iter::once("offing".to_string()).chain(args)).0)
}

/// Studies estimators; what `offing calibrate --json` writes. `custom` are estimators of Python: names and wrapped objects.
#[pyfunction]
#[pyo3(signature = (data, *, estimators, custom, seeds, profile, rows, dir, settings, threads))]
#[expect(clippy::too_many_arguments, reason = "Python calls it by name")]
pub(crate) fn calibrate(
    py: Python<'_>,
    data: PyData<'_>,
    estimators: Vec<String>,
    custom: Vec<(String, Py<PyAny>)>,
    seeds: usize,
    profile: Option<String>,
    rows: Option<usize>,
    dir: PathBuf,
    settings: Vec<String>,
    threads: Option<usize>,
) -> PyResult<String> {
    let data = data.source()?;
    let mut request = CalibrationRequest {
        dataset: match &data {
            DataSource::Named(name) => name.clone(),
            DataSource::Rows(rows) => rows.name.clone(),
        },
        estimators,
        seeds,
        profile,
        rows,
        set: settings,
        physics: Physics::default(),
        dir,
        columns: ColumnsFile::default(),
    };
    beside(py, threads, move |runtime, bridge| {
        let units = SharedUnits::default();
        let custom: Vec<_> = custom.into_iter().map(|(name, object)| (name, Arc::new(object))).collect();
        let settings = |name: &str| json!({ "kind": "custom", "name": name }).to_string();
        request.estimators.extend(custom.iter().map(|(name, _)| settings(name)));
        let make = || {
            let one = |(name, object): &(String, _)| custom_estimator(bridge, object, name, &units);
            custom.iter().map(one).collect()
        };
        // The same for every seed: the data are the same.
        let on_data = |found: &Dataset| units.set(found.units.clone()).unwrap_or_default();
        let rows = match &data {
            DataSource::Rows(rows) => Some(&**rows),
            DataSource::Named(_) => None,
        };
        let own = OwnStudy { data: rows, estimators: &make, on_data: &on_data };
        let summary = request.run_with(runtime, &own)?;
        Ok(summary.map(|summary| summary.json()).transpose()?.map(|json| json.to_string()))
    })
}

/// Ranks the policies of runs; what `offing rank --json` writes.
#[pyfunction]
#[pyo3(signature = (runs, *, data, online, seed, steps, length, gamma, threads))]
#[expect(clippy::too_many_arguments, reason = "Python calls it by name")]
pub(crate) fn rank(
    py: Python<'_>,
    runs: Vec<PathBuf>,
    data: Option<PyData<'_>>,
    online: usize,
    seed: u64,
    steps: Option<u64>,
    length: Option<usize>,
    gamma: Option<f64>,
    threads: Option<usize>,
) -> PyResult<String> {
    let config = RankConfig {
        runs,
        online,
        seed,
        steps: steps.unwrap_or(FittedQConfig::default().steps),
        length: length.unwrap_or(ModelReturnConfig::default().length),
        gamma: gamma.unwrap_or(FittedQConfig::default().gamma),
    };
    let data = data.map(|data| data.source()).transpose()?;
    beside(py, threads, move |runtime, _| {
        let rows = match data {
            Some(DataSource::Rows(rows)) => Some(*rows),
            Some(DataSource::Named(name)) => Some(runtime.read_data(&name, ReadOptions::default())?.0),
            None => None,
        };
        Ok(rank_on(runtime, &config, rows.as_ref())?.map(|ranking| ranking.json().to_string()))
    })
}

/// Looks for what would ruin a training; what `offing data audit --json` writes under `audit`, and its verdict.
#[pyfunction]
pub(crate) fn audit(py: Python<'_>, data: PyData<'_>) -> PyResult<(String, String)> {
    let data = data.source()?;
    beside(py, None, move |runtime, _| {
        let data = match data {
            DataSource::Rows(data) => *data,
            DataSource::Named(name) => {
                let options = ReadOptions { allow_non_finite: true, ..ReadOptions::default() };
                runtime.read_data(&name, options)?.0
            }
        };
        let found = find_faults(&data, horizon(&data.name));
        Ok(Some((serde_json::to_string(&found)?, serde_json::to_string(&found.verdict())?)))
    })
}

/// Runs an experiment's cells that are not finished, one after another in this process. Its cells as JSON, and its page.
#[pyfunction]
#[pyo3(signature = (name, *, profile, seeds, only, columns, rows, settings, dir, out, threads))]
#[expect(clippy::too_many_arguments, reason = "Python calls it by name")]
pub(crate) fn reproduce(
    py: Python<'_>,
    name: String,
    profile: String,
    seeds: Option<usize>,
    only: Vec<String>,
    columns: Vec<String>,
    rows: Option<usize>,
    settings: Vec<String>,
    dir: Option<PathBuf>,
    out: Option<PathBuf>,
    threads: Option<usize>,
) -> PyResult<(String, PathBuf)> {
    let physics = Physics::default();
    let request = GridRequest { name, profile, seeds, only, columns, rows, set: settings, physics, dir, out };
    beside(py, threads, move |runtime, _| {
        let grid = Grid::new(request)?;
        let cells = grid.cells()?;
        let left: Vec<_> = cells.iter().filter(|c| grid.state(c).result().is_none()).cloned().collect();
        grid.find_files(runtime, &left)?;
        for cell in &left {
            if grid.run_cell(runtime, cell)? == CellEnd::Stopped {
                return Ok(None);
            }
        }
        let page = grid.report(runtime, &cells)?.write()?;
        let found = cells.iter().map(|cell| Ok(json!({ "cell": cell, "state": grid.state(cell) })));
        Ok(Some((serde_json::to_string(&found.collect::<anyhow::Result<Vec<_>>>()?)?, page)))
    })
}

/// A run's configuration as JSON.
#[pyfunction]
pub(crate) fn read_config(run: PathBuf) -> PyResult<String> {
    let manifest = RunManifest::read(&run).map_err(of_library)?;
    serde_json::to_string(&manifest).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// Writes a run's page; its path.
#[pyfunction]
pub(crate) fn write_report(py: Python<'_>, run: PathBuf) -> PyResult<PathBuf> {
    py.detach(|| write_run_page(&run)).map_err(|e| of_command(&e))?;
    Ok(run.join("report.html"))
}

fn as_columns<'py>(py: Python<'py>, data: Dataset) -> PyResult<Bound<'py, PyDict>> {
    let starts: Vec<u64> = data.episodes.iter().map(|e| e.start as u64).collect();
    let out = PyDict::new(py);
    out.set_item("name", data.name)?;
    out.set_item("observations", data.rows.obs.into_pyarray(py))?;
    out.set_item("actions", data.rows.act.into_pyarray(py))?;
    out.set_item("rewards", data.rows.rew.into_pyarray(py))?;
    out.set_item("next_observations", data.rows.next_obs.into_pyarray(py))?;
    out.set_item("terminals", data.rows.done.into_pyarray(py))?;
    out.set_item("timeouts", data.timeout.into_pyarray(py))?;
    out.set_item("episode_starts", starts.into_pyarray(py))?;
    Ok(out)
}

/// A dataset's columns as arrays; `name` is a path, a D4RL or Minari id, or the name of a generated dataset. `columns` is JSON:
/// which columns of a table hold what. Also what the reader had to say.
#[pyfunction]
pub(crate) fn load_dataset<'py>(
    py: Python<'py>,
    name: String,
    columns: Option<String>,
) -> PyResult<(Bound<'py, PyDict>, Vec<String>)> {
    let wrong = |e: serde_json::Error| PyValueError::new_err(format!("columns: {e}"));
    let columns = columns.map(|text| serde_json::from_str(&text)).transpose().map_err(wrong)?;
    let options = ReadOptions { columns, ..ReadOptions::default() };
    let wanted = name.clone();
    let data = beside(py, None, move |runtime, _| Ok(Some(runtime.read_data(&wanted, options)?.0)))?;
    let mut notes = data.reading.notes.clone();
    let lost = data.reading.dropped_terminals;
    if lost > 0 && !data.rows.done.iter().any(|&done| done) {
        notes.push(format!(
            "{name}: the {lost} rows that end have no next state and are left out, so nothing can be learnt of ends; give the log \
             next states, or a training a rule of its own (termination=…)"
        ));
    }
    Ok((as_columns(py, data)?, notes))
}

/// Columns as transitions: with next observations, without rows that have none.
#[pyfunction]
pub(crate) fn assemble<'py>(py: Python<'py>, columns: PyColumns<'py>) -> PyResult<Bound<'py, PyDict>> {
    as_columns(py, columns.dataset()?)
}

/// Writes columns as a dataset of the named format.
#[pyfunction]
pub(crate) fn write_dataset(columns: PyColumns<'_>, path: PathBuf, format: &str) -> PyResult<()> {
    write(&columns.dataset()?, &path, Format::named(format).map_err(of_library)?).map_err(of_library)
}

/// Generates a dataset in the simulator, or finds it; its path.
#[pyfunction]
pub(crate) fn make_dataset(
    py: Python<'_>,
    name: String,
    rows: usize,
    seed: u64,
    physics: &str,
    threads: Option<usize>,
) -> PyResult<PathBuf> {
    let physics = physics.parse().map_err(of_library)?;
    let options = GenerateOptions { rows, seed, physics, ..GenerateOptions::default() };
    beside(py, threads, move |runtime, _| {
        Ok(Some(runtime.hooks().resolver(|resolver| resolver.generate(&name, &options))?))
    })
}
