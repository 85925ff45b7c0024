//! `offing.Sumo`.

use ndarray::Array1;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use offing::Batch;
use offing::dynamics::ModelStep;
use offing::pessimism::{CalibratedRule, Normaliser, Pessimism};
use offing::uncertainty::{SumoConfig, Uncertainty};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrays::rows;
use crate::errors::of_library;
use crate::index::{Found, found};

type Matrix<'py> = PyReadonlyArray2<'py, f32>;
type Column<'py> = PyReadonlyArray1<'py, f32>;
type Slopes<'py> = Bound<'py, PyArray2<f32>>;
type Gradient<'py> = (Bound<'py, PyArray1<f32>>, Slopes<'py>, Slopes<'py>, Slopes<'py>);

#[pyclass(frozen, module = "offing._offing")]
pub(crate) struct Sumo {
    inner: offing::uncertainty::Sumo,
    /// The dataset's rewards, for r_max of Eq. 6.
    rewards: Option<Array1<f32>>,
}

/// Transitions as Python hands them over: observations, actions, next observations, and rewards where there are any.
#[derive(FromPyObject)]
struct Steps<'py>(Matrix<'py>, Matrix<'py>, Matrix<'py>, Option<Column<'py>>);

impl Steps<'_> {
    fn batch(&self) -> PyResult<Batch> {
        let Self(obs, act, next_obs, rew) = self;
        let (obs, act, next_obs) = (rows("obs", obs)?, rows("act", act)?, rows("next_obs", next_obs)?);
        let rew = rew.as_ref().map_or_else(|| Array1::zeros(obs.nrows()), |r| r.as_array().to_owned());
        let lengths = [obs.nrows(), act.nrows(), next_obs.nrows(), rew.len()];
        if lengths.iter().any(|&n| n != lengths[0]) || obs.ncols() != next_obs.ncols() {
            let shapes = [obs.dim(), act.dim(), next_obs.dim()];
            return Err(PyValueError::new_err(format!(
                "wanted obs, act, next_obs and rewards of the same number of rows, and obs as wide as next_obs; found \
                 {shapes:?} and {} rewards",
                rew.len()
            )));
        }
        let done = Array1::from_elem(obs.nrows(), false);
        Ok(Batch { obs: obs.to_owned(), act: act.to_owned(), rew, next_obs: next_obs.to_owned(), done })
    }
}

#[pymethods]
impl Sumo {
    /// `settings` is JSON: the table `[uncertainty]` of a configuration.
    #[new]
    fn new(py: Python<'_>, steps: Steps<'_>, settings: &str, threads: usize) -> PyResult<Self> {
        let config: SumoConfig =
            serde_json::from_str(settings).map_err(|e| PyValueError::new_err(format!("Sumo: {e}")))?;
        let data = steps.batch()?;
        let inner =
            py.detach(|| offing::uncertainty::Sumo::new(&config, &data, threads)).map_err(of_library)?;
        Ok(Self { inner, rewards: steps.3.map(|_| data.rew) })
    }

    fn score<'py>(&self, py: Python<'py>, steps: Steps<'py>) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let rows = steps.batch()?;
        let u = py.detach(|| self.inner.score_rows(&rows)).map_err(of_library)?;
        Ok(u.into_pyarray(py))
    }

    /// Scores, and the `count` nearest dataset rows behind each.
    fn support<'py>(
        &self,
        py: Python<'py>,
        steps: Steps<'py>,
        count: usize,
    ) -> PyResult<(Bound<'py, PyArray1<f32>>, Found<'py>)> {
        let rows = steps.batch()?;
        let (u, neighbors) = py.detach(|| self.inner.score_with_support(&rows, count)).map_err(of_library)?;
        Ok((u.into_pyarray(py), found(py, neighbors)))
    }

    /// Which rows lie beyond ε = α · the data's largest leave-one-out score.
    fn truncate<'py>(
        &self,
        py: Python<'py>,
        steps: Steps<'py>,
        alpha: f32,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let rows = steps.batch()?;
        let beyond = py.detach(|| self.inner.exceeds_rows(&rows, self.inner.threshold(alpha).score));
        Ok(beyond.map_err(of_library)?.into_pyarray(py))
    }

    /// Whether each row's score is above `threshold`.
    fn exceeds<'py>(
        &self,
        py: Python<'py>,
        steps: Steps<'py>,
        threshold: f32,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let rows = steps.batch()?;
        let beyond = py.detach(|| self.inner.exceeds_rows(&rows, threshold));
        Ok(beyond.map_err(of_library)?.into_pyarray(py))
    }

    /// The leave-one-out score that this share of the data's rows stay below.
    fn quantile(&self, py: Python<'_>, share: f64) -> PyResult<f32> {
        py.detach(|| self.inner.loo_quantile(share)).map_err(of_library)
    }

    /// Scores, and their gradients by states, actions and next states.
    fn gradient<'py>(&self, py: Python<'py>, steps: Steps<'py>) -> PyResult<Gradient<'py>> {
        let step = ModelStep::of_rows(steps.batch()?);
        let found = py.detach(|| self.inner.score_gradient(&step)).map_err(of_library)?;
        let [obs, act, next_obs] = [found.obs, found.act, found.next_obs].map(|part| part.into_pyarray(py));
        Ok((found.score.into_pyarray(py), obs, act, next_obs))
    }

    /// ε of Eq. 7, as a score and as a distance.
    fn epsilon(&self, py: Python<'_>, alpha: f32) -> (f32, f32) {
        let found = py.detach(|| self.inner.threshold(alpha));
        (found.score, found.distance)
    }

    /// r − λ·û of Eq. 6.
    fn penalise<'py>(
        &self,
        py: Python<'py>,
        rewards: Column<'py>,
        u: Column<'py>,
        lam: f32,
        reward_range: Option<f32>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let (mut penalised, u) = (rewards.as_array().to_vec(), u.as_array().to_vec());
        if penalised.len() != u.len() {
            let found = format!("{} and {}", u.len(), penalised.len());
            return Err(PyValueError::new_err(format!(
                "penalty: wanted a score for each reward, found {found}"
            )));
        }
        let known = match (&self.rewards, reward_range) {
            (None, None) => {
                return Err(PyValueError::new_err(
                    "penalty: r_max is not known; give Sumo the dataset's rewards, or penalty a reward_range",
                ));
            }
            (known, _) => known.clone().unwrap_or_else(|| Array1::zeros(1)),
        };
        let rule = Pessimism::Penalize { lambda: lam, normaliser: Normaliser::Dataset, reward_range };
        let largest = py.detach(|| self.inner.max_loo_score());
        let rule: CalibratedRule = rule.calibrate(largest, &known).map_err(of_library)?;
        rule.penalise(&mut penalised, &u);
        Ok(penalised.into_pyarray(py))
    }

    fn __len__(&self) -> usize {
        self.inner.rows()
    }
}
