//! Datasets as Python gives them.

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use offing::data::{Dataset, LogColumns};
use offing::train::DataSource;
use pyo3::prelude::*;

use crate::errors::of_library;

/// A dataset as Python gives it: a name, or a name and its columns.
#[derive(FromPyObject)]
pub(crate) enum PyData<'py> {
    Named(String),
    Columns(PyColumns<'py>),
}

impl PyData<'_> {
    /// The rows as they are now; later edits of the arrays change nothing.
    pub(crate) fn source(&self) -> PyResult<DataSource> {
        Ok(match self {
            Self::Named(name) => name.clone().into(),
            Self::Columns(columns) => columns.dataset()?.into(),
        })
    }
}

/// A name and columns.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PyColumns<'py> {
    name: String,
    observations: PyReadonlyArray2<'py, f32>,
    actions: PyReadonlyArray2<'py, f32>,
    rewards: PyReadonlyArray1<'py, f32>,
    next_observations: Option<PyReadonlyArray2<'py, f32>>,
    terminals: PyReadonlyArray1<'py, bool>,
    timeouts: PyReadonlyArray1<'py, bool>,
}

impl PyColumns<'_> {
    /// The rows as they are now; later edits of the arrays change nothing.
    pub(crate) fn dataset(&self) -> PyResult<Dataset> {
        let columns = LogColumns {
            obs: self.observations.as_array().to_owned(),
            act: self.actions.as_array().to_owned(),
            rew: self.rewards.as_array().to_owned(),
            next_obs: self.next_observations.as_ref().map(|next| next.as_array().to_owned()),
            done: self.terminals.as_array().to_owned(),
            timeout: Some(self.timeouts.as_array().to_owned()),
        };
        Dataset::from_columns(&self.name, columns).map_err(of_library)
    }
}
