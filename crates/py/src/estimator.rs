//! Estimators, rules and models written in Python. `offing._own` wraps what a user gives, so that every answer that arrives here
//! has the right shape and type; rows cross in the log's units.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use ndarray::{Array1, Array2, Array3, ArrayView1, Axis, s};
use numpy::{IntoPyArray, PyReadonlyArray1, PyReadonlyArray2};
use offing::dynamics::{DynamicsModel, Members, ModelParts, ModelStep, Prediction, StepFn};
use offing::uncertainty::{
    BuildContext, CustomConfig, CustomEstimator, ScoreGradient, Uncertainty, UncertaintyConfig, conformance,
};
use offing::units::Units;
use offing::{Batch, Error, Mat, Result};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::bridge::{Bridge, beside};
use crate::columns::PyColumns;

/// Rows of the data that are scored at once.
const CHUNK: usize = 8192;

/// Units of the rows that a training works with: known once its data are.
pub(crate) type SharedUnits = Arc<OnceLock<Option<Units>>>;

/// An estimator written in Python.
struct PyEstimator {
    bridge: Bridge,
    object: Arc<Py<PyAny>>,
    units: SharedUnits,
    members: Members,
    own_exceeds: bool,
    own_quantile: bool,
    own_gradient: bool,
    max: f32,
    /// Scores of the data's rows, where the estimator itself does not know their quantiles.
    scores: Vec<f32>,
}

impl std::fmt::Debug for PyEstimator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PyEstimator").finish_non_exhaustive()
    }
}

/// An exception is on its way to the caller; the library only has to stop.
fn raised() -> Error {
    Error::Invalid("the estimator raised an exception".into())
}

/// A function of Python with the attributes that say what it can do.
fn flag(py: Python<'_>, object: &Py<PyAny>, name: &str) -> PyResult<bool> {
    object.bind(py).getattr(name)?.extract()
}

/// Registers the estimator that `object` (an `offing._own.Estimator`) wraps, under its name.
pub(crate) fn custom_estimator<'a>(
    bridge: &Bridge,
    object: &Arc<Py<PyAny>>,
    name: &str,
    units: &SharedUnits,
) -> CustomEstimator<'a> {
    let (bridge, units, object) = (bridge.clone(), units.clone(), object.clone());
    CustomEstimator::new(name, move |context| {
        let built = PyEstimator::build(&bridge, &object, &units, context)?;
        Ok(Box::new(built))
    })
}

impl PyEstimator {
    fn build(
        bridge: &Bridge,
        object: &Arc<Py<PyAny>>,
        units: &SharedUnits,
        context: &BuildContext<'_>,
    ) -> Result<Self> {
        let seen = object.clone();
        let flags = move |py: Python<'_>| {
            let of = |name: &str| flag(py, &seen, name);
            let own_max = match of("own_max_loo")? {
                true => Some(seen.bind(py).call_method0("max_loo")?.extract::<f32>()?),
                false => None,
            };
            Ok((of("members")?, of("own_exceeds")?, of("own_quantile")?, of("own_gradient")?, own_max))
        };
        let (all, own_exceeds, own_quantile, own_gradient, own_max) =
            bridge.call(flags).ok_or_else(raised)?;
        let mut built = Self {
            bridge: bridge.clone(),
            object: object.clone(),
            units: units.clone(),
            members: if all { Members::All } else { Members::One },
            own_exceeds,
            own_quantile,
            own_gradient,
            max: own_max.unwrap_or(f32::NAN),
            scores: Vec::new(),
        };
        if own_max.is_none() && context.needs_max_loo_score {
            for first in (0..context.data.len()).step_by(CHUNK) {
                let rows: Vec<usize> = (first..context.data.len().min(first + CHUNK)).collect();
                let mut step = ModelStep::of_rows(context.data.select(&rows));
                if built.members == Members::All {
                    let model = context.model_for("an estimator that compares members")?;
                    step.prediction = Some(model.predict(&step.batch.obs, &step.batch.act));
                }
                built.scores.extend(built.score_owned(step)?);
            }
            built.max = built.scores.iter().copied().fold(f32::MIN, f32::max);
        }
        Ok(built)
    }

    /// States, actions and next states in the log's units, for Python to keep: those of a step that nobody else needs are
    /// handed over as they lie.
    fn outward(&self, step: Cow<'_, ModelStep>) -> (Mat, Mat, Mat) {
        match (self.units.get().and_then(Option::as_ref), step) {
            (Some(units), step) => {
                let Batch { obs, act, next_obs, .. } = &step.batch;
                (units.obs_outward(obs), units.act_outward(act), units.obs_outward(next_obs))
            }
            (None, Cow::Owned(ModelStep { batch, .. })) => (batch.obs, batch.act, batch.next_obs),
            (None, Cow::Borrowed(ModelStep { batch, .. })) => {
                (batch.obs.clone(), batch.act.clone(), batch.next_obs.clone())
            }
        }
    }

    /// Every member's Gaussian over (s', r) in the log's units.
    fn members_outward(&self, prediction: &Prediction) -> (Array3<f32>, Array3<f32>) {
        let (mut mean, mut std) = (prediction.mean.clone(), prediction.std.clone());
        if let Some(units) = self.units.get().and_then(Option::as_ref) {
            let width = units.obs.std().len();
            let (shift, scale) = (ArrayView1::from(units.obs.mean()), ArrayView1::from(units.obs.std()));
            let mut states = mean.slice_mut(s![.., .., ..width]);
            states *= &scale;
            states += &shift;
            std.slice_mut(s![.., .., ..width]).zip_mut_with(&scale, |s, scale| *s *= scale);
        }
        (mean, std)
    }

    /// Calls a method with the step's rows and, for estimators that compare them, every member's prediction.
    fn ask<T: Send + 'static>(
        &self,
        method: &'static str,
        step: Cow<'_, ModelStep>,
        last: Option<f32>,
        read: impl Fn(&Bound<'_, PyAny>) -> PyResult<T> + Send + 'static,
    ) -> Result<T> {
        let members = match (self.members, &step.prediction) {
            (Members::One, _) => None,
            (Members::All, Some(prediction)) => Some(self.members_outward(prediction)),
            (Members::All, None) => {
                return Err(Error::Invalid(
                    "the estimator wants every member's prediction, found a step without them".into(),
                ));
            }
        };
        let (obs, act, next_obs) = self.outward(step);
        let (object, bridge) = (self.object.clone(), self.bridge.clone());
        let work = move |py: Python<'_>| {
            let members = match members {
                Some((mean, std)) => {
                    (mean.into_pyarray(py), std.into_pyarray(py)).into_pyobject(py)?.into_any()
                }
                None => py.None().into_bound(py),
            };
            let rows = (obs.into_pyarray(py), act.into_pyarray(py), next_obs.into_pyarray(py));
            let mut args = vec![rows.0.into_any(), rows.1.into_any(), rows.2.into_any(), members];
            args.extend(last.map(|x| x.into_pyobject(py).map(Bound::into_any)).transpose()?);
            let args = PyTuple::new(py, args)?;
            let object = object.bind(py);
            bridge.pure(py, || object.call_method1(method, &args)).and_then(|answer| read(&answer))
        };
        self.bridge.call(work).ok_or_else(raised)
    }
}

/// Values of an array of Python.
fn numbers(answer: &Bound<'_, PyAny>) -> PyResult<Array1<f32>> {
    let array: PyReadonlyArray1<'_, f32> = answer.extract()?;
    Ok(array.as_array().to_owned())
}

fn matrix(answer: &Bound<'_, PyAny>) -> PyResult<Array2<f32>> {
    let array: PyReadonlyArray2<'_, f32> = answer.extract()?;
    Ok(array.as_array().to_owned())
}

fn flags(answer: &Bound<'_, PyAny>) -> PyResult<Array1<bool>> {
    let array: PyReadonlyArray1<'_, bool> = answer.extract()?;
    Ok(array.as_array().to_owned())
}

impl Uncertainty for PyEstimator {
    fn score(&self, step: &ModelStep) -> Result<Array1<f32>> {
        self.ask("score", Cow::Borrowed(step), None, numbers)
    }

    fn score_owned(&self, step: ModelStep) -> Result<Array1<f32>> {
        self.ask("score", Cow::Owned(step), None, numbers)
    }

    fn needs(&self) -> Members {
        self.members
    }

    fn max_loo_score(&self) -> f32 {
        self.max
    }

    fn loo_quantile(&self, share: f64) -> Result<f32> {
        if self.own_quantile {
            let object = self.object.clone();
            let ask = move |py: Python<'_>| object.bind(py).call_method1("quantile", (share,))?.extract();
            return self.bridge.call(ask).ok_or_else(raised);
        }
        if self.scores.is_empty() {
            return Err(Error::Invalid(
                "estimator: pessimism.kind = \"penalize-excess\" wants the quantiles of the data's scores; give the estimator \
                 a method `quantile(share)`, or choose another kind"
                    .into(),
            ));
        }
        let mut sorted = self.scores.clone();
        let at = ((sorted.len() as f64 * share) as usize).min(sorted.len() - 1);
        Ok(*sorted.select_nth_unstable_by(at, f32::total_cmp).1)
    }

    fn exceeds(&self, step: &ModelStep, threshold: f32) -> Result<Vec<bool>> {
        match self.own_exceeds {
            true => {
                let read = |answer: &Bound<'_, PyAny>| flags(answer).map(|flags| flags.to_vec());
                self.ask("exceeds", Cow::Borrowed(step), Some(threshold), read)
            }
            false => Ok(self.score(step)?.iter().map(|&u| u > threshold).collect()),
        }
    }

    fn score_gradient(&self, step: &ModelStep) -> Result<ScoreGradient> {
        if !self.own_gradient {
            let zeros = |like: &Mat| Mat::zeros(like.dim());
            let Batch { obs, act, next_obs, .. } = &step.batch;
            let [obs, act, next_obs] = [obs, act, next_obs].map(zeros);
            return Ok(ScoreGradient { score: self.score(step)?, obs, act, next_obs });
        }
        let read = |answer: &Bound<'_, PyAny>| {
            let parts: Bound<'_, PyTuple> = answer.extract()?;
            let of = |i: usize| matrix(&parts.get_item(i)?);
            Ok((numbers(&parts.get_item(0)?)?, of(1)?, of(2)?, of(3)?))
        };
        let (score, mut obs, mut act, mut next_obs) =
            self.ask("gradient", Cow::Borrowed(step), None, read)?;
        if let Some(units) = self.units.get().and_then(Option::as_ref) {
            let scale = ArrayView1::from(units.obs.std()).insert_axis(Axis(0));
            obs *= &scale;
            next_obs *= &scale;
            if let Some(range) = &units.act {
                let half = |(low, high): (&f32, &f32)| 0.5 * (high - low);
                let half: Array1<f32> = range.low.iter().zip(&range.high).map(half).collect();
                act *= &half.insert_axis(Axis(0));
            }
        }
        Ok(ScoreGradient { score, obs, act, next_obs })
    }
}

/// A function of Python over steps (s, a, s').
fn step_fn<T: Send + 'static>(
    bridge: &Bridge,
    (name, object): (String, Py<PyAny>),
    read: fn(&Bound<'_, PyAny>) -> PyResult<T>,
) -> StepFn<T> {
    let (bridge, object) = (bridge.clone(), Arc::new(object));
    StepFn::new(name, move |obs: &Mat, act: &Mat, next_obs: &Mat| {
        let (obs, act, next_obs) = (obs.clone(), act.clone(), next_obs.clone());
        let (object, inner) = (object.clone(), bridge.clone());
        bridge.call_or_unwind(move |py| {
            let args = (obs.into_pyarray(py), act.into_pyarray(py), next_obs.into_pyarray(py));
            let args = args.into_pyobject(py)?;
            inner.pure(py, || object.bind(py).call1(&args)).and_then(|answer| read(&answer))
        })
    })
}

/// What a user's functions say about imagined steps: each a name and an `offing._own.StepFunction`.
#[derive(Default, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PyParts {
    termination: Option<(String, Py<PyAny>)>,
    reward: Option<(String, Py<PyAny>)>,
    dynamics: Option<(String, Py<PyAny>)>,
}

impl PyParts {
    pub(crate) fn is_empty(&self) -> bool {
        self.termination.is_none() && self.reward.is_none() && self.dynamics.is_none()
    }

    pub(crate) fn connect(self, bridge: &Bridge) -> ModelParts {
        ModelParts {
            termination: self.termination.map(|named| step_fn(bridge, named, flags)),
            reward: self.reward.map(|named| step_fn(bridge, named, numbers)),
            dynamics: self.dynamics.map(|named| step_fn(bridge, named, matrix)),
        }
    }
}

/// Checks that an estimator keeps the promises of the library's own, on up to 64 steps near `columns`; what it does not keep.
#[pyfunction]
pub(crate) fn check_estimator(
    py: Python<'_>,
    estimator: Py<PyAny>,
    columns: PyColumns<'_>,
) -> PyResult<Option<String>> {
    let data = columns.dataset()?;
    beside(py, None, move |_, bridge| {
        let units = SharedUnits::default();
        let mine = [custom_estimator(bridge, &Arc::new(estimator), "mine", &units)];
        let context = BuildContext { custom: &mine, ..BuildContext::of_data(&data.rows) };
        let config = UncertaintyConfig::Custom(CustomConfig { name: "mine".into() });
        let built = config.build(&context)?;
        let every = data.rows.len().div_ceil(64);
        let picks: Vec<usize> = (0..data.rows.len()).step_by(every).collect();
        let mut rows = data.rows.select(&picks);
        // Not rows of the data themselves, which are all alike to a search.
        let spread = rows.next_obs.std_axis(Axis(0), 0.0);
        rows.next_obs.scaled_add(0.1, &spread.insert_axis(Axis(0)));
        Ok(Some(conformance::check(&*built, &ModelStep::of_rows(rows)).err()))
    })
}
