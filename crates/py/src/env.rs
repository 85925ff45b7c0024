//! `offing.gym`'s simulators.

use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyUntypedArrayMethods};
use offing::env::point_mass::PointMass;
use offing::env::{Env, SimState, Simulators, Spec};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::{of_command, of_library};

type Column<'py> = Bound<'py, PyArray1<f64>>;

#[pyclass(frozen, module = "offing._offing")]
pub(crate) struct Simulator {
    #[pyo3(get)]
    task: String,
    #[pyo3(get)]
    obs_dim: usize,
    #[pyo3(get)]
    act_dim: usize,
    #[pyo3(get)]
    horizon: usize,
    /// Python may share an object among threads; a simulator belongs to one at a time.
    env: Mutex<Box<dyn Env>>,
}

impl Simulator {
    fn env(&self) -> MutexGuard<'_, Box<dyn Env>> {
        self.env.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observed<'py>(&self, py: Python<'py>) -> Column<'py> {
        self.env().obs().to_vec().into_pyarray(py)
    }
}

#[pymethods]
impl Simulator {
    #[new]
    fn new(py: Python<'_>, task: &str, physics: &str) -> PyResult<Self> {
        let physics = physics.parse().map_err(of_library)?;
        let make = || -> anyhow::Result<Box<dyn Env>> {
            Ok(match task {
                "point-mass" => Box::new(PointMass::new()),
                _ => offing_cli::embedded_runtime(true, None)?.mujoco.make(task, physics)?,
            })
        };
        let env = py.detach(make).map_err(|e| of_command(&e))?;
        let Spec { task, obs_dim, act_dim, horizon } = env.spec().clone();
        Ok(Self { task, obs_dim, act_dim, horizon, env: Mutex::new(env) })
    }

    fn reset<'py>(&self, py: Python<'py>, seed: u64) -> Column<'py> {
        self.env().reset(seed);
        self.observed(py)
    }

    /// Observation, reward, terminated, truncated.
    fn step<'py>(
        &self,
        py: Python<'py>,
        act: PyReadonlyArray1<'py, f32>,
    ) -> PyResult<(Column<'py>, f64, bool, bool)> {
        let act = act.as_array().to_vec();
        if act.len() != self.act_dim || act.iter().any(|a| !a.is_finite()) {
            let words = format!("action: wanted {} finite numbers, found {act:?}", self.act_dim);
            return Err(PyValueError::new_err(words));
        }
        let moment = py.detach(|| self.env().step(&act));
        Ok((self.observed(py), moment.reward, moment.terminated, moment.truncated))
    }

    /// Generalised positions and velocities, and the goal.
    fn state<'py>(&self, py: Python<'py>) -> (Column<'py>, Column<'py>, Column<'py>) {
        let SimState { qpos, qvel, goal } = self.env().state();
        (qpos.into_pyarray(py), qvel.into_pyarray(py), goal.into_pyarray(py))
    }

    fn set_state<'py>(
        &self,
        py: Python<'py>,
        qpos: PyReadonlyArray1<'py, f64>,
        qvel: PyReadonlyArray1<'py, f64>,
        goal: PyReadonlyArray1<'py, f64>,
    ) -> PyResult<Column<'py>> {
        let list = |x: &PyReadonlyArray1<'_, f64>| x.as_array().to_vec();
        let state = SimState { qpos: list(&qpos), qvel: list(&qvel), goal: list(&goal) };
        self.env().set_state(&state).map_err(of_library)?;
        Ok(self.observed(py))
    }

    /// Puts the simulator where an observation was made; the entries whose true value it hides.
    fn resume_from(&self, obs: PyReadonlyArray1<'_, f64>) -> PyResult<Vec<usize>> {
        if obs.len() != self.obs_dim {
            let words = format!("observation: wanted {} numbers, found {}", self.obs_dim, obs.len());
            return Err(PyValueError::new_err(words));
        }
        let resumed = self.env().resume_from(&obs.as_array().to_vec()).map_err(of_library)?;
        Ok(resumed.clipped)
    }
}
