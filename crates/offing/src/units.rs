//! The units of a log, and those that algorithms work in: observations with mean 0 and deviation 1, actions from −1 to 1.
//!
//! A log of one's own comes in kelvin and pascal. Networks, distances and tanh want numbers near 1. So the rows of such a
//! log are brought [inward](Units::rows_inward) once, before anything is learnt, and every policy that leaves is brought
//! outward (`Units::policy_outward`): users give and get their own units.

use ndarray::{ArrayViewMut2, Axis};
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Mat};
use crate::error::{Result, invalid};

/// The smallest and largest action, column by column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionRange {
    /// What −1 stands for.
    pub low: Vec<f32>,
    /// What 1 stands for.
    pub high: Vec<f32>,
}

impl ActionRange {
    /// The range that these actions fill.
    pub fn of(act: &Mat) -> Self {
        let fold = |pick: fn(f32, f32) -> f32, from: f32| {
            act.fold_axis(Axis(0), from, |&best, &a| pick(best, a)).to_vec()
        };
        Self { low: fold(f32::min, f32::INFINITY), high: fold(f32::max, f32::NEG_INFINITY) }
    }

    /// Reports a range that does not fit actions of `width` columns.
    ///
    /// # Errors
    /// Another width, numbers that are not finite, or a `low` above its `high`.
    pub fn validate_for(&self, width: usize) -> Result<()> {
        let (low, high) = (self.low.len(), self.high.len());
        if low != width || high != width {
            return Err(invalid!(
                "train.action_range: wanted {width} numbers in low and in high, found {low} and {high}"
            ));
        }
        match self.low.iter().zip(&self.high).position(|(l, h)| !(l <= h && l.is_finite() && h.is_finite())) {
            None => Ok(()),
            Some(i) => Err(invalid!(
                "train.action_range: wanted low ≤ high, found {} and {} in column {i}",
                self.low[i],
                self.high[i]
            )),
        }
    }

    /// Middle and half width of each column. A column of one value has half width 0 and stays that value.
    fn middles(&self) -> impl Iterator<Item = (f32, f32)> {
        self.low.iter().zip(&self.high).map(|(low, high)| (0.5 * (low + high), 0.5 * (high - low)))
    }

    /// From logged actions to [−1, 1].
    fn inward(&self, act: &mut Mat) {
        for (mut column, (middle, half)) in act.columns_mut().into_iter().zip(self.middles()) {
            column.mapv_inplace(|a| if half > 0.0 { ((a - middle) / half).clamp(-1.0, 1.0) } else { 0.0 });
        }
    }

    /// From [−1, 1] to logged actions.
    pub fn outward(&self, mut act: ArrayViewMut2<'_, f32>) {
        for (mut column, (middle, half)) in act.columns_mut().into_iter().zip(self.middles()) {
            column.mapv_inplace(|a| middle + half * a);
        }
    }

    /// The same for one action.
    pub fn outward_one(&self, act: &mut [f32]) {
        act.iter_mut().zip(self.middles()).for_each(|(a, (middle, half))| *a = middle + half * *a);
    }
}

/// Added to every deviation, as in TD3+BC.
const EXTRA: f64 = 1e-3;
/// A column whose deviation is below this share of its mean is constant but for rounding to f32.
const ROUNDING: f64 = 1e-7;

/// Mean and scale of each column of the observations.
#[derive(Clone, Debug, PartialEq)]
pub struct Standardiser {
    pub(crate) mean: Vec<f32>,
    pub(crate) std: Vec<f32>,
}

impl Standardiser {
    /// Means and deviations (plus 1e-3) of the columns. A constant column has scale 1: divided by its deviation, the
    /// first other value would be a thousand times too large.
    pub fn of(obs: &Mat) -> Self {
        let rows = obs.nrows().max(1) as f64;
        let mut mean = vec![0.0; obs.ncols()];
        for row in obs.rows() {
            mean.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
        }
        mean.iter_mut().for_each(|sum| *sum /= rows);
        let mut std = vec![0.0; obs.ncols()];
        for row in obs.rows() {
            for ((sum, mean), &x) in std.iter_mut().zip(&mean).zip(row) {
                *sum += (f64::from(x) - mean).powi(2);
            }
        }
        for (sum, mean) in std.iter_mut().zip(&mean) {
            let std = (*sum / rows).sqrt();
            *sum = if std <= ROUNDING * mean.abs() { 1.0 } else { std + EXTRA };
        }
        let narrow = |values: Vec<f64>| values.into_iter().map(|x| x as f32).collect();
        Self { mean: narrow(mean), std: narrow(std) }
    }

    /// Leaves observations of `width` columns as they are.
    pub fn identity(width: usize) -> Self {
        Self { mean: vec![0.0; width], std: vec![1.0; width] }
    }

    /// Subtracted from each column.
    pub fn mean(&self) -> &[f32] {
        &self.mean
    }

    /// What each column is divided by.
    pub fn std(&self) -> &[f32] {
        &self.std
    }

    /// (x − mean) / std in place.
    pub fn apply(&self, obs: &mut Mat) {
        assert_eq!(obs.ncols(), self.mean.len(), "observations of the width this standardiser was made for");
        for mut row in obs.rows_mut() {
            for ((x, mean), std) in row.iter_mut().zip(&self.mean).zip(&self.std) {
                *x = (*x - mean) / std;
            }
        }
    }
}

/// Between a log's units and those that algorithms work in.
#[derive(Clone, Debug, PartialEq)]
pub struct Units {
    /// Of observations.
    pub obs: Standardiser,
    /// Of actions; `None` where they were within [−1, 1] already.
    pub act: Option<ActionRange>,
}

impl Units {
    /// Those of these rows. `given` states what actions are possible; without it the log's own extremes count, where any
    /// action lies outside [−1, 1].
    ///
    /// # Errors
    /// A stated range of another width, or one that logged actions leave.
    pub fn of(rows: &Batch, given: Option<&ActionRange>) -> Result<Self> {
        let logged = ActionRange::of(&rows.act);
        let act = match given {
            Some(range) => {
                range.validate_for(rows.act_dim())?;
                let beyond = (0..rows.act_dim())
                    .find(|&i| logged.low[i] < range.low[i] || logged.high[i] > range.high[i]);
                if let Some(i) = beyond {
                    return Err(invalid!(
                        "train.action_range: wanted all logged actions within it, found {} to {} in column {i}, where it is \
                         {} to {}; widen it",
                        logged.low[i],
                        logged.high[i],
                        range.low[i],
                        range.high[i]
                    ));
                }
                Some(range.clone())
            }
            None => rows.act.iter().any(|a| a.abs() > 1.0).then_some(logged),
        };
        Ok(Self { obs: Standardiser::of(&rows.obs), act })
    }

    /// Brings logged rows inward.
    pub fn rows_inward(&self, rows: &mut Batch) {
        self.obs.apply(&mut rows.obs);
        self.obs.apply(&mut rows.next_obs);
        if let Some(range) = &self.act {
            range.inward(&mut rows.act);
        }
    }

    /// Observations as they would have been logged.
    pub fn obs_outward(&self, obs: &Mat) -> Mat {
        let mut out = obs.clone();
        for mut row in out.rows_mut() {
            let scales = self.obs.mean().iter().zip(self.obs.std());
            row.iter_mut().zip(scales).for_each(|(x, (mean, std))| *x = mean + std * *x);
        }
        out
    }

    /// Actions as they would have been logged.
    pub fn act_outward(&self, act: &Mat) -> Mat {
        let mut out = act.clone();
        if let Some(range) = &self.act {
            range.outward(out.view_mut());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use ndarray::{Array1, arr1};

    /// Temperatures near 293, pressures near 1e5, a valve from 0 to 40, a switch that was never touched.
    fn rows() -> Batch {
        let mut rng = Rng::stream(0, "tank", 0);
        let mut obs =
            || Mat::from_shape_fn((300, 2), |(_, j)| ([293.0, 1e5][j] + [2.0, 3e3][j] * rng.normal()) as f32);
        let (obs, next_obs) = (obs(), obs());
        let mut rng = Rng::stream(1, "tank", 0);
        let act =
            Mat::from_shape_fn((300, 2), |(_, j)| if j == 0 { rng.range(0.0, 40.0) as f32 } else { 7.0 });
        Batch { obs, act, rew: Array1::zeros(300), next_obs, done: Array1::from_elem(300, false) }
    }

    #[test]
    fn rows_come_in_small_and_go_out_as_they_were() {
        let logged = rows();
        let units = Units::of(&logged, None).unwrap();
        let mut rows = logged.clone();
        units.rows_inward(&mut rows);
        assert!(rows.obs.iter().chain(&rows.next_obs).all(|x| x.abs() < 6.0));
        assert!(rows.act.iter().all(|a| a.abs() <= 1.0) && rows.act.column(1).iter().all(|&a| a == 0.0));
        let near = |a: &Mat, b: &Mat| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1.0));
        assert!(near(&units.obs_outward(&rows.obs), &logged.obs));
        assert!(near(&units.act_outward(&rows.act), &logged.act));
    }

    #[test]
    fn actions_within_one_stay_and_stated_ranges_are_checked() {
        let mut rows = rows();
        let range = |low: [f32; 2], high: [f32; 2]| ActionRange { low: low.into(), high: high.into() };
        let error = |range: &ActionRange| Units::of(&rows, Some(range)).unwrap_err().to_string();
        assert!(
            error(&range([0.0, 0.0], [20.0, 10.0])).contains("in column 0, where it is 0 to 20; widen it")
        );
        assert!(error(&range([0.0, 9.0], [50.0, 8.0])).contains("wanted low ≤ high"));
        assert!(error(&ActionRange { low: vec![0.0], high: vec![1.0] }).contains("wanted 2 numbers"));
        let given = range([0.0, 0.0], [80.0, 14.0]);
        let units = Units::of(&rows, Some(&given)).unwrap();
        assert_eq!(units.act, Some(given));
        rows.act.column_mut(0).assign(&arr1(&[0.5; 300]));
        rows.act.column_mut(1).fill(-1.0);
        assert_eq!(Units::of(&rows, None).unwrap().act, None);
    }
}
