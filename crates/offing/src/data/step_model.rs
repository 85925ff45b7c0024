//! A linear model of one step, s' − s from s and a, and how far each step lies from what it says.
//!
//! A reset may be no longer than a stride of the body: halfcheetah's are shorter than its median stride. But it has
//! nothing to do with where the body was and what it did, so it misses a prediction that ordinary steps follow.

use ndarray::{Array2, ArrayView1, Axis};
use rayon::prelude::*;

use crate::batch::Mat;
use crate::linalg::{cholesky, solve_lower, solve_upper};
use crate::rng::Rng;
use crate::stats::quantile;

/// Steps that the model is fitted to; the others are only compared with it.
const SAMPLE: usize = 20_000;
/// With fewer ordinary steps than this there is no model.
const FEWEST: usize = 200;
/// Steps per input that a fit needs. With fewer, the mean step is the prediction.
const STEPS_PER_INPUT: usize = 4;
/// Fits; before each but the first, the worst misses are left out, so that resets do not bend the model.
const ROUNDS: usize = 3;
/// Share of the steps that the fit and the usual miss are taken from.
const USUAL: f64 = 0.95;
/// Misses are counted in units no smaller than this share of an entry's ordinary step. Otherwise a body with exact
/// linear dynamics would reset at every wall.
const FLOOR: f64 = 0.25;
/// A miss of this many times the usual one is a reset, wherever it lands. Walker2d's hardest contacts stay below 8.
const HIGH: f64 = 10.0;
/// So is one beyond a gap of this factor in the sorted misses, if at least [`BEYOND_GAP`] lie there.
const GAP: f64 = 2.0;
const BEYOND_GAP: usize = 3;
/// Shares of the misses between which a gap may be: resets are rarer than one step in five.
const GAP_FROM: f64 = 0.8;
/// Below this no miss is a reset by its size alone.
const HIGH_FLOOR: f64 = 5.0;
/// A miss above this many times the 99th percentile is not clearly ordinary. It is a reset if it lands on a start.
const LOW: f64 = 1.2;
/// Rows scored at a time.
const CHUNK: usize = 4096;

/// What ordinary steps have in common.
pub(super) struct StepModel {
    /// Mean and inverse spread of each entry of s and a; 0 for an entry that never changes.
    inputs: Vec<(f64, f64)>,
    /// Entries of s that move in most steps. The others (a contact sensor, a switch) are no evidence.
    moving: Vec<usize>,
    /// One row for each input after the intercept's, one column for each moving entry.
    weights: Array2<f64>,
    /// What the misses of a moving entry are counted in.
    unit: Vec<f64>,
    /// Up to here a miss is ordinary.
    pub(super) low: f64,
    /// From here on it is a reset.
    pub(super) high: f64,
}

impl StepModel {
    /// Fits the steps from row i to row i + 1 for which `ordinary(i)` holds. `None` when they are too few, or when
    /// nothing moves in most of them.
    pub(super) fn fit(obs: &Mat, act: &Mat, ordinary: impl Fn(usize) -> bool) -> Option<Self> {
        let finite = |i: usize| {
            let mut all = obs.row(i).into_iter().chain(obs.row(i + 1)).chain(act.row(i));
            all.all(|v| v.is_finite())
        };
        let rows: Vec<usize> =
            (0..obs.nrows().saturating_sub(1)).filter(|&i| ordinary(i) && finite(i)).collect();
        let rows = spread_out(rows);
        if rows.len() < FEWEST {
            return None;
        }
        let step = |i: usize, j: usize| f64::from(obs[[i + 1, j]]) - f64::from(obs[[i, j]]);
        let moves = |&j: &usize| {
            let resting = rows.iter().filter(|&&i| step(i, j) == 0.0).count();
            2 * resting < rows.len()
        };
        let moving: Vec<usize> = (0..obs.ncols()).filter(moves).collect();
        if moving.is_empty() {
            return None;
        }
        let mut inputs: Vec<(f64, f64)> = obs
            .columns()
            .into_iter()
            .chain(act.columns())
            .map(|column| mean_and_inverse(column, &rows))
            .collect();
        if rows.len() < STEPS_PER_INPUT * (inputs.len() + 1) {
            inputs.clear();
        }
        let weights = Array2::zeros((inputs.len() + 1, moving.len()));
        let unit = vec![1.0; moving.len()];
        let mut model = Self { inputs, moving, weights, unit, low: 0.0, high: 0.0 };
        let x = model.design(obs, act, &rows);
        let y =
            Array2::from_shape_fn((rows.len(), model.moving.len()), |(k, j)| step(rows[k], model.moving[j]));
        let mut kept: Vec<usize> = (0..rows.len()).collect();
        let mut misses = Vec::new();
        for _ in 0..ROUNDS {
            let (xs, ys) = (x.select(Axis(0), &kept), y.select(Axis(0), &kept));
            model.weights = least_squares(&xs, &ys)?;
            let off = &y - &x.dot(&model.weights);
            model.unit = (off.select(Axis(0), &kept).columns().into_iter().zip(ys.columns()))
                .map(|(off, step)| {
                    root_mean_square(off).max(FLOOR * root_mean_square(step)).max(f64::MIN_POSITIVE)
                })
                .collect();
            misses = off.rows().into_iter().map(|off| model.joint(off)).collect();
            let limit = quantile(&misses, USUAL);
            kept = (0..rows.len()).filter(|&k| misses[k] <= limit).collect();
        }
        (model.low, model.high) = limits(misses);
        Some(model)
    }

    /// How far each step from row i to row i + 1 is from the model's, jointly over all entries. NaN where a value is
    /// not finite.
    pub(super) fn misses(&self, obs: &Mat, act: &Mat) -> Vec<f64> {
        let steps = obs.nrows().saturating_sub(1);
        let chunk = |start: usize| {
            let rows: Vec<usize> = (start..(start + CHUNK).min(steps)).collect();
            let mut off = self.design(obs, act, &rows).dot(&self.weights);
            for (mut off, &i) in off.rows_mut().into_iter().zip(&rows) {
                for (off, &j) in off.iter_mut().zip(&self.moving) {
                    *off -= f64::from(obs[[i + 1, j]]) - f64::from(obs[[i, j]]);
                }
            }
            off.rows().into_iter().map(|off| self.joint(off)).collect::<Vec<f64>>()
        };
        let starts: Vec<usize> = (0..steps).step_by(CHUNK).collect();
        starts.into_par_iter().flat_map_iter(chunk).collect()
    }

    /// Where each row lies in units of the entries' spread, for distances between states; `None` without inputs.
    pub(super) fn places(&self, obs: &Mat) -> Option<Mat> {
        if self.inputs.is_empty() {
            return None;
        }
        let place = |(i, j): (usize, usize)| {
            let (mean, inverse) = self.inputs[j];
            ((f64::from(obs[[i, j]]) - mean) * inverse) as f32
        };
        Some(Mat::from_shape_fn(obs.dim(), place))
    }

    /// An intercept, then the standardised inputs of these rows.
    fn design(&self, obs: &Mat, act: &Mat, rows: &[usize]) -> Array2<f64> {
        let width = obs.ncols();
        Array2::from_shape_fn((rows.len(), self.inputs.len() + 1), |(k, j)| match j.checked_sub(1) {
            None => 1.0,
            Some(j) => {
                let value = if j < width { obs[[rows[k], j]] } else { act[[rows[k], j - width]] };
                (f64::from(value) - self.inputs[j].0) * self.inputs[j].1
            }
        })
    }

    /// Root mean square over the entries, each in its unit.
    fn joint(&self, off: ArrayView1<'_, f64>) -> f64 {
        let sum: f64 = off.iter().zip(&self.unit).map(|(off, unit)| (off / unit).powi(2)).sum();
        (sum / self.unit.len() as f64).sqrt()
    }
}

/// At most [`SAMPLE`] of the rows, one from each of as many equal stretches. Which one is random: a fixed distance may
/// be in step with the length of episodes.
fn spread_out(rows: Vec<usize>) -> Vec<usize> {
    if rows.len() <= SAMPLE {
        return rows;
    }
    let mut rng = Rng::stream(0, "steps", 0);
    let stretch = |k: usize| k * rows.len() / SAMPLE;
    (0..SAMPLE).map(|k| rows[stretch(k) + rng.below(stretch(k + 1) - stretch(k))]).collect()
}

fn mean_and_inverse(column: ArrayView1<'_, f32>, rows: &[usize]) -> (f64, f64) {
    let n = rows.len() as f64;
    let mean = rows.iter().map(|&i| f64::from(column[i])).sum::<f64>() / n;
    let spread = (rows.iter().map(|&i| (f64::from(column[i]) - mean).powi(2)).sum::<f64>() / n).sqrt();
    (mean, if spread > 1e-9 * mean.abs() { 1.0 / spread } else { 0.0 })
}

fn root_mean_square(values: ArrayView1<'_, f64>) -> f64 {
    (values.iter().map(|v| v * v).sum::<f64>() / values.len().max(1) as f64).sqrt()
}

/// Weights with the least squared error; a trace of ridge keeps entries that depend on each other solvable.
fn least_squares(x: &Array2<f64>, y: &Array2<f64>) -> Option<Array2<f64>> {
    let width = x.ncols();
    let mut gram = x.t().dot(x);
    gram.diag_mut().iter_mut().for_each(|v| *v += 1e-6 * x.nrows() as f64);
    let mut factor: Vec<f64> = gram.iter().copied().collect();
    if !cholesky(&mut factor, width) {
        return None;
    }
    let mut weights = x.t().dot(y);
    for mut column in weights.columns_mut() {
        let mut solved = column.to_vec();
        solve_lower(&factor, width, &mut solved);
        solve_upper(&factor, width, &mut solved);
        column.iter_mut().zip(solved).for_each(|(to, from)| *to = from);
    }
    Some(weights)
}

/// Up to where misses are ordinary, and from where on they are resets.
fn limits(mut misses: Vec<f64>) -> (f64, f64) {
    misses.sort_unstable_by(f64::total_cmp);
    let mut high = f64::INFINITY;
    // Resets among the misses raise the limit: without those found, it is taken anew.
    loop {
        let limit = (HIGH * quantile(&misses, USUAL)).max(HIGH_FLOOR).min(gap(&misses));
        if limit >= high {
            break;
        }
        high = limit;
        misses.truncate(misses.partition_point(|&miss| miss <= high));
    }
    ((LOW * quantile(&misses, 0.99)).max(1.0), high)
}

/// The middle of the widest gap in the upper part of the sorted misses; infinity when there is none.
fn gap(misses: &[f64]) -> f64 {
    let from = (GAP_FROM * misses.len() as f64) as usize;
    let until = misses.len().saturating_sub(BEYOND_GAP);
    let ratio = |k: usize| misses[k + 1] / misses[k].max(HIGH_FLOOR / GAP);
    let widest = (from..until).max_by(|&a, &b| ratio(a).total_cmp(&ratio(b)));
    match widest {
        Some(k) if ratio(k) > GAP => misses[k + 1] / ratio(k).sqrt(),
        _ => f64::INFINITY,
    }
}
