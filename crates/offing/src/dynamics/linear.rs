//! The least-squares line through the data: what a model must beat to have learnt anything.

use ndarray::{Array2, ArrayView1};

use super::config::EnsembleConfig;
use super::data::{moments, read_input, read_target, split};
use super::ensemble::Ensemble;
use super::{DynamicsModel, Prediction};
use crate::batch::{Batch, Mat};

/// (s' − s, r) as a linear function of (1, s, a).
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// One row for each input, the intercept last.
    weights: Array2<f64>,
    /// Mean and reciprocal deviation of each input.
    scale: Vec<(f64, f64)>,
}

/// Hold-out errors on standardised targets: mean over rows and columns of ((prediction − target) / std of the
/// target)². A model that always answers the mean has about 1.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct HoldoutComparison {
    /// Rows held out.
    pub rows: usize,
    /// Each member's error.
    pub members: Vec<f64>,
    /// Error of the mean over the elites' predictions.
    pub elite_mean: f64,
    /// Error of the linear model, fitted to the same training rows.
    pub linear: f64,
    /// Error of the answer that the state stays and the reward is the mean one.
    pub unchanged: f64,
    /// The linear model's error by target column, the reward last.
    pub linear_by_column: Vec<f64>,
    /// The elites' mean prediction's error by target column, the reward last.
    pub elite_mean_by_column: Vec<f64>,
}

impl Linear {
    /// Solves the normal equations in f64, without regularisation. Inputs that are constant or follow exactly
    /// from others get weight 0.
    pub fn fit(rows: &Batch, chosen: &[u32]) -> Self {
        let (inputs, outputs) = (rows.obs_dim() + rows.act_dim(), rows.obs_dim() + 1);
        let scale = scales(inputs, chosen, |row, to| read_input(rows, row, to));
        let size = inputs + 1;
        let mut gram = vec![0.0; size * size];
        let mut weights = Array2::<f64>::zeros((size, outputs));
        let (mut x, mut y) = (vec![0.0; size], vec![0.0; outputs]);
        for &row in chosen {
            let row = row as usize;
            read_input(rows, row, &mut x[..inputs]);
            standardise(&scale, &mut x);
            read_target(rows, row, &mut y);
            for (i, &xi) in x.iter().enumerate() {
                gram[i * size..][..=i].iter_mut().zip(&x).for_each(|(g, xj)| *g += xi * xj);
                weights.row_mut(i).iter_mut().zip(&y).for_each(|(w, y)| *w += xi * y);
            }
        }
        solve(&mut gram, size, &mut weights, 1e-9 * chosen.len() as f64);
        Self { weights, scale }
    }

    /// Predicted (s', r), one a row.
    pub fn predict(&self, obs: &Mat, act: &Mat) -> Mat {
        let inputs = self.scale.len();
        let mut x = vec![0.0; inputs + 1];
        let mut out = Mat::zeros((obs.nrows(), obs.ncols() + 1));
        for ((obs, act), mut out) in obs.rows().into_iter().zip(act.rows()).zip(out.rows_mut()) {
            x.iter_mut().zip(obs.iter().chain(act)).for_each(|(x, v)| *x = f64::from(*v));
            standardise(&self.scale, &mut x);
            let y = ArrayView1::from(&x).dot(&self.weights);
            let base = obs.iter().map(|v| f64::from(*v)).chain([0.0]);
            out.iter_mut().zip(y.iter().zip(base)).for_each(|(out, (y, base))| *out = (y + base) as f32);
        }
        out
    }
}

/// The ensemble and the linear model on the rows the ensemble held out.
pub fn compare(
    model: &Ensemble,
    rows: &Batch,
    config: &EnsembleConfig,
    seed: u64,
) -> (HoldoutComparison, Linear) {
    let (train, held) = split(rows.len(), config.holdout, config.holdout_max, seed);
    let linear = Linear::fit(rows, &train);
    let width = rows.obs_dim() + 1;
    let spread = scales(width, &train, |row, to| read_target(rows, row, to));
    let chosen: Vec<usize> = held.iter().map(|&row| row as usize).collect();
    let held = rows.select(&chosen);
    let Prediction { mean, .. } = model.predict(&held.obs, &held.act);
    let by_column = |predicted: &dyn Fn(usize, usize) -> f32| -> Vec<f64> {
        let truth = |i: usize, j: usize| if j + 1 == width { held.rew[i] } else { held.next_obs[[i, j]] };
        let error = |i: usize, j: usize| (f64::from(predicted(i, j) - truth(i, j)) * spread[j].1).powi(2);
        let column = |j: usize| (0..held.len()).map(|i| error(i, j)).sum::<f64>() / held.len() as f64;
        (0..width).map(column).collect()
    };
    let average = |columns: &[f64]| columns.iter().sum::<f64>() / width as f64;
    let elites = model.elites();
    let elite_mean =
        |i: usize, j: usize| elites.iter().map(|&m| mean[[m, i, j]]).sum::<f32>() / elites.len() as f32;
    let (by_line, by_elites) = (linear.predict(&held.obs, &held.act), by_column(&elite_mean));
    let linear_by_column = by_column(&|i, j| by_line[[i, j]]);
    let mean_reward = spread[width - 1].0 as f32;
    let unchanged = |i: usize, j: usize| if j + 1 == width { mean_reward } else { held.obs[[i, j]] };
    let comparison = HoldoutComparison {
        rows: held.len(),
        members: (0..model.members()).map(|m| average(&by_column(&|i, j| mean[[m, i, j]]))).collect(),
        elite_mean: average(&by_elites),
        linear: average(&linear_by_column),
        unchanged: average(&by_column(&unchanged)),
        linear_by_column,
        elite_mean_by_column: by_elites,
    };
    (comparison, linear)
}

/// Mean and reciprocal standard deviation of each column; a constant column counts as having deviation 1.
fn scales(width: usize, chosen: &[u32], read: impl Fn(usize, &mut [f64])) -> Vec<(f64, f64)> {
    moments(width, chosen, read).into_iter().map(|(mean, std)| (mean, 1.0 / std.unwrap_or(1.0))).collect()
}

/// Standardises the inputs and sets the intercept, which is last.
fn standardise(scale: &[(f64, f64)], x: &mut [f64]) {
    x.iter_mut().zip(scale).for_each(|(x, (mean, inverse))| *x = (*x - mean) * inverse);
    x[scale.len()] = 1.0;
}

/// Solves G W = B in place by Cholesky (G's lower half is given); unknowns whose pivot is below `least`
/// become 0.
fn solve(gram: &mut [f64], size: usize, weights: &mut Array2<f64>, least: f64) {
    for j in 0..size {
        let pivot = gram[j * size + j] - (0..j).map(|k| gram[j * size + k].powi(2)).sum::<f64>();
        let used = pivot > least;
        let root = if used { pivot.sqrt() } else { 1.0 };
        gram[j * size + j] = root;
        for i in j + 1..size {
            let product: f64 = (0..j).map(|k| gram[i * size + k] * gram[j * size + k]).sum();
            gram[i * size + j] = if used { (gram[i * size + j] - product) / root } else { 0.0 };
        }
        if !used {
            gram[j * size..][..j].fill(0.0);
            weights.row_mut(j).fill(0.0);
        }
    }
    for column in 0..weights.ncols() {
        for i in 0..size {
            let known: f64 = (0..i).map(|k| gram[i * size + k] * weights[[k, column]]).sum();
            weights[[i, column]] = (weights[[i, column]] - known) / gram[i * size + i];
        }
        for i in (0..size).rev() {
            let known: f64 = (i + 1..size).map(|k| gram[k * size + i] * weights[[k, column]]).sum();
            weights[[i, column]] = (weights[[i, column]] - known) / gram[i * size + i];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::ThreadPool;
    use crate::rng::Rng;
    use ndarray::Array1;

    /// A linear world, with a constant input and one that is the sum of two others.
    fn world(rows: usize) -> Batch {
        let mut rng = Rng::stream(0, "world", 0);
        let mut obs = Mat::from_shape_fn((rows, 4), |_| 3.0 + rng.normal() as f32);
        let act = Mat::from_shape_fn((rows, 1), |_| rng.normal() as f32);
        for mut row in obs.rows_mut() {
            row[2] = 7.0;
            row[3] = row[0] + row[1];
        }
        let mut next_obs = obs.clone();
        let mut rew = Array1::zeros(rows);
        for i in 0..rows {
            next_obs[[i, 0]] += 0.5 * act[[i, 0]] - 0.25 * obs[[i, 1]];
            next_obs[[i, 1]] = 2.0;
            rew[i] = 1.0 + obs[[i, 0]] - 3.0 * act[[i, 0]];
        }
        Batch { obs, act, next_obs, rew, done: Array1::from_elem(rows, false) }
    }

    #[test]
    fn a_linear_world_is_found_exactly_even_with_dependent_inputs() {
        let rows = world(400);
        let line = Linear::fit(&rows, &(0..200).collect::<Vec<u32>>());
        let predicted = line.predict(&rows.obs, &rows.act);
        for i in 0..400 {
            for j in 0..4 {
                assert!((predicted[[i, j]] - rows.next_obs[[i, j]]).abs() < 1e-4, "row {i}, column {j}");
            }
            assert!((predicted[[i, 4]] - rows.rew[i]).abs() < 1e-4);
        }
    }

    #[test]
    fn the_line_beats_an_ensemble_of_one_epoch_on_a_linear_world() {
        let rows = world(2000);
        let config = EnsembleConfig {
            members: 2,
            elites: 1,
            hidden: vec![8],
            decay: vec![0.0; 2],
            max_epochs: Some(1),
            ..Default::default()
        };
        let model = Ensemble::fit(&config, &rows, 1, &ThreadPool::new(1), |_, _| Ok(())).unwrap();
        let (found, _) = compare(&model, &rows, &config, 1);
        assert_eq!((found.rows, found.members.len()), (400, 2));
        assert!(found.linear < 1e-8 && found.members.iter().all(|&e| e > 100.0 * found.linear), "{found:?}");
        // The columns' mean is the whole; the constant column's target counts with deviation 1.
        let mean = found.linear_by_column.iter().sum::<f64>() / 5.0;
        assert!((mean - found.linear).abs() < 1e-15);
    }
}
