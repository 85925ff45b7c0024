//! Parts of a model that a program brings itself: when episodes end, what a step is worth, what is known of the next state.

use std::fmt;
use std::sync::Arc;

use ndarray::{Array1, s};

use crate::batch::Mat;
use crate::error::{Result, invalid};
use crate::units::Units;

/// What is called with (s, a, s').
type Call<T> = dyn Fn(&Mat, &Mat, &Mat) -> T + Send + Sync;

/// A function of steps (s, a, s'), a row each, in the log's units, and the name by which a run's config.toml asks for it.
pub struct StepFn<T> {
    name: String,
    call: Arc<Call<T>>,
}

impl<T> StepFn<T> {
    /// Names `call`. Its answer has a row for each step.
    pub fn new(
        name: impl Into<String>,
        call: impl Fn(&Mat, &Mat, &Mat) -> T + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), call: Arc::new(call) }
    }

    /// The name by which configurations ask for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The answer for these steps.
    pub fn call(&self, obs: &Mat, act: &Mat, next_obs: &Mat) -> T {
        (self.call)(obs, act, next_obs)
    }
}

impl<T> Clone for StepFn<T> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), call: self.call.clone() }
    }
}

impl<T> fmt::Debug for StepFn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StepFn").field(&self.name).finish()
    }
}

/// What a program brings. Settings name those that a run uses: `model.termination = { kind = "custom", name = "…" }`,
/// `model.reward`, `model.dynamics`.
#[derive(Clone, Debug, Default)]
pub struct ModelParts {
    /// Whether each step ends its episode.
    pub termination: Option<StepFn<Array1<bool>>>,
    /// Rewards of imagined steps, in place of the model's.
    pub reward: Option<StepFn<Array1<f32>>>,
    /// Next states of imagined steps; it sees those that the model sampled.
    pub dynamics: Option<StepFn<Mat>>,
}

impl ModelParts {
    /// The parts that go by these names.
    ///
    /// # Errors
    /// A name that the program did not bring.
    pub fn select(
        &self,
        termination: Option<&str>,
        reward: Option<&str>,
        dynamics: Option<&str>,
    ) -> Result<Self> {
        Ok(Self {
            termination: find("model.termination", termination, self.termination.as_ref())?,
            reward: find("model.reward", reward, self.reward.as_ref())?,
            dynamics: find("model.dynamics", dynamics, self.dynamics.as_ref())?,
        })
    }
}

fn find<T>(key: &str, wanted: Option<&str>, brought: Option<&StepFn<T>>) -> Result<Option<StepFn<T>>> {
    let Some(wanted) = wanted else { return Ok(None) };
    match brought {
        Some(function) if function.name == wanted => Ok(Some(function.clone())),
        found => Err(invalid!(
            "{key}: wanted the function `{wanted}` from the program that trains, found {}; run the program that brings it",
            found.map_or("none", StepFn::name)
        )),
    }
}

/// What a program changes in sampled steps, for rows in an algorithm's units.
#[derive(Clone, Debug, Default)]
pub struct Correction {
    reward: Option<StepFn<Array1<f32>>>,
    dynamics: Option<StepFn<Mat>>,
    units: Option<Box<Units>>,
    reward_shift: f32,
}

impl Correction {
    /// The corrections among `parts`, for rows in these units with rewards shifted so far.
    pub fn new(parts: ModelParts, units: Option<&Units>, reward_shift: f32) -> Self {
        let ModelParts { reward, dynamics, .. } = parts;
        Self { reward, dynamics, units: units.cloned().map(Box::new), reward_shift }
    }

    /// Changes sampled (s', r).
    pub(super) fn apply(&self, obs: &Mat, act: &Mat, sampled: &mut Mat) {
        if self.reward.is_none() && self.dynamics.is_none() {
            return;
        }
        let outward = |x: &Mat| self.units.as_ref().map_or_else(|| x.clone(), |units| units.obs_outward(x));
        let width = obs.ncols();
        let logged_act = self.units.as_ref().map_or_else(|| act.clone(), |units| units.act_outward(act));
        let (logged, mut next) = (outward(obs), outward(&sampled.slice(s![.., ..width]).to_owned()));
        if let Some(dynamics) = &self.dynamics {
            next = dynamics.call(&logged, &logged_act, &next);
            let mut inward = next.clone();
            if let Some(units) = &self.units {
                units.obs.apply(&mut inward);
            }
            sampled.slice_mut(s![.., ..width]).assign(&inward);
        }
        if let Some(reward) = &self.reward {
            let found = reward.call(&logged, &logged_act, &next);
            sampled.column_mut(width).assign(&(found + self.reward_shift));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use ndarray::array;

    #[test]
    fn functions_see_logged_units_and_their_answers_come_back_in_the_algorithms() {
        let rows = Batch {
            obs: array![[100.0], [300.0]],
            next_obs: array![[100.0], [300.0]],
            act: array![[0.0], [40.0]],
            rew: array![0.0, 0.0],
            done: array![false, false],
        };
        let units = Units::of(&rows, None).unwrap();
        let parts = ModelParts {
            dynamics: Some(StepFn::new("half-way", |obs: &Mat, act: &Mat, next: &Mat| {
                assert_eq!((obs, act), (&array![[100.0], [300.0]], &array![[0.0], [40.0]]));
                (obs + next) / 2.0
            })),
            reward: Some(StepFn::new("pressure", |_: &Mat, _: &Mat, next: &Mat| next.column(0).to_owned())),
            termination: None,
        };
        let mut inward = rows.clone();
        units.rows_inward(&mut inward);
        // The model goes to 300 and 100.
        let mut sampled = array![[inward.obs[[1, 0]], 7.0], [inward.obs[[0, 0]], 7.0]];
        Correction::new(parts, Some(&units), 1.0).apply(&inward.obs, &inward.act, &mut sampled);
        assert!(sampled.column(0).iter().all(|x| x.abs() < 1e-6), "half-way is the mean: {sampled}");
        assert_eq!(sampled.column(1), array![201.0, 201.0], "200 and the shift");
    }

    #[test]
    fn a_part_that_the_program_does_not_bring_is_missed() {
        let brought = ModelParts {
            reward: Some(StepFn::new("mine", |_: &Mat, _: &Mat, next: &Mat| next.column(0).to_owned())),
            ..ModelParts::default()
        };
        assert!(brought.select(None, Some("mine"), None).unwrap().reward.is_some());
        assert!(brought.select(None, None, None).unwrap().reward.is_none(), "not asked for");
        let error = brought.select(None, Some("other"), None).unwrap_err().to_string();
        assert!(error.contains("wanted the function `other`") && error.contains("found mine"), "{error}");
    }
}
