//! Rows for training: checks, hold-out split, standardisation.

use super::head::Bounds;
use crate::batch::{Batch, Mat};
use crate::error::{Error, Result, invalid, require};
use crate::nn::{Field, MlpEnsemble, PackedMatrix, Tensors};
use crate::rng::Rng;

/// Input standardisation: (x − mean) / std for each column.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaler {
    mean: Vec<f32>,
    inverse: Vec<f32>,
}

impl Scaler {
    /// Fits mean and deviation of (s, a) over the given rows, in f64. A constant column counts as having deviation 1, and
    /// its number is returned.
    pub fn fit(rows: &Batch, chosen: &[u32]) -> (Self, Vec<usize>) {
        Self::fit_columns(rows.obs_dim() + rows.act_dim(), chosen, |row, to| read_input(rows, row, to))
    }

    /// [`Scaler::fit`] of `width` columns that `read` fills for a row.
    pub(super) fn fit_columns(
        width: usize,
        chosen: &[u32],
        read: impl Fn(usize, &mut [f64]),
    ) -> (Self, Vec<usize>) {
        let moments = moments(width, chosen, read);
        let constant = (0..width).filter(|&col| moments[col].1.is_none()).collect();
        let mean = moments.iter().map(|(mean, _)| *mean as f32).collect();
        let inverse = moments.iter().map(|(_, std)| std.map_or(1.0, |std| (1.0 / std) as f32)).collect();
        (Self { mean, inverse }, constant)
    }

    /// Number of columns.
    pub(crate) fn width(&self) -> usize {
        self.mean.len()
    }

    /// By how much a standardised column changes when the column changes by 1.
    pub(super) fn slopes(&self) -> &[f32] {
        &self.inverse
    }

    /// Writes standardised (s, a) into row `to` of `x`.
    #[inline]
    pub(crate) fn load(&self, obs: &Mat, act: &Mat, row: usize, x: &mut PackedMatrix, to: usize) {
        let (obs, act) = (obs.row(row), act.row(row));
        match (obs.as_slice(), act.as_slice()) {
            (Some(obs), Some(act)) => self.load_slices(obs, act, x, to),
            _ => self.load_slices(&obs.to_vec(), &act.to_vec(), x, to),
        }
    }

    #[inline]
    fn load_slices(&self, obs: &[f32], act: &[f32], x: &mut PackedMatrix, to: usize) {
        for (col, &v) in obs.iter().chain(act).enumerate() {
            let at = x.at(to, col);
            x.data_mut()[at] = (v - self.mean[col]) * self.inverse[col];
        }
    }

    /// Writes standardised values into `x`.
    pub(super) fn apply<'a>(&self, values: impl Iterator<Item = &'a f32>, x: &mut [f32]) {
        let scale = self.mean.iter().zip(&self.inverse);
        x.iter_mut().zip(values).zip(scale).for_each(|((x, v), (mean, inverse))| *x = (v - mean) * inverse);
    }

    pub(super) fn save(&self, prefix: &str, out: &mut Tensors) {
        for (name, values) in [("mean", &self.mean), ("inverse", &self.inverse)] {
            out.put_f32(format!("{prefix}{name}"), &[values.len()], values.clone());
        }
    }

    pub(crate) fn from_tensors(prefix: &str, from: &Tensors, width: usize) -> Result<Self> {
        let read = |name: &str| from.f32(&format!("{prefix}{name}"), &[width]);
        Ok(Self { mean: read("mean")?, inverse: read("inverse")? })
    }
}

/// Standardisation of what a model learns, (s' − s, r).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TargetScale {
    mean: Vec<f32>,
    std: Vec<f32>,
}

impl TargetScale {
    /// Means and deviations over the given rows. A constant column counts as having deviation 1.
    pub(super) fn fit(rows: &Batch, chosen: &[u32]) -> Self {
        let moments = moments(rows.obs_dim() + 1, chosen, |row, to| read_target(rows, row, to));
        let mean = moments.iter().map(|(mean, _)| *mean as f32).collect();
        Self { mean, std: moments.iter().map(|(_, std)| std.map_or(1.0, |std| std as f32)).collect() }
    }

    /// Standardises a row of targets.
    pub(super) fn apply(&self, target: &mut [f32]) {
        let scale = self.mean.iter().zip(&self.std);
        target.iter_mut().zip(scale).for_each(|(x, (mean, std))| *x = (*x - mean) / std);
    }

    /// Makes networks that learnt standardised targets predict raw ones: last layers and bounds take the scale in.
    pub(super) fn fold(&self, stack: &mut MlpEnsemble, bounds: &mut Bounds) {
        let (last, width) = (stack.shape().layers() - 1, self.mean.len());
        for net in 0..stack.nets() {
            let (mut weight, mut bias) = stack.get(net, last, Field::Weight);
            let inputs = weight.len() / bias.len();
            for (j, (&mean, &std)) in self.mean.iter().zip(&self.std).enumerate() {
                weight[j * inputs..(j + 1) * inputs].iter_mut().for_each(|w| *w *= std);
                bias[j] = bias[j] * std + mean;
                // The log-variance and both of its bounds move by the same amount.
                bias[width + j] += 2.0 * std.ln();
            }
            stack.set(net, last, Field::Weight, &weight, &bias);
        }
        for bound in [&mut bounds.max, &mut bounds.min] {
            bound.iter_mut().zip(&self.std).for_each(|(b, std)| b.value += 2.0 * f64::from(*std).ln());
        }
    }
}

/// Reads (s' − s, r) of a row.
pub(super) fn read_target(rows: &Batch, row: usize, to: &mut [f64]) {
    let (last, change) = to.split_last_mut().expect("a target has the reward at least");
    let pairs = rows.next_obs.row(row).into_iter().zip(rows.obs.row(row));
    change.iter_mut().zip(pairs).for_each(|(to, (next, now))| *to = f64::from(*next) - f64::from(*now));
    *last = f64::from(rows.rew[row]);
}

/// Reads (s, a) of a row.
pub(super) fn read_input(rows: &Batch, row: usize, to: &mut [f64]) {
    let values = rows.obs.row(row).into_iter().chain(rows.act.row(row));
    to.iter_mut().zip(values).for_each(|(to, v)| *to = f64::from(*v));
}

/// Mean and standard deviation of each column over the given rows; no deviation for a constant column, one whose deviation
/// is below 1e-12 of its scale.
pub(super) fn moments(
    width: usize,
    chosen: &[u32],
    read: impl Fn(usize, &mut [f64]),
) -> Vec<(f64, Option<f64>)> {
    let (mut mean, mut square, mut x) = (vec![0.0; width], vec![0.0; width], vec![0.0; width]);
    for &row in chosen {
        read(row as usize, &mut x);
        mean.iter_mut().zip(&x).for_each(|(m, x)| *m += x);
    }
    let n = chosen.len().max(1) as f64;
    mean.iter_mut().for_each(|m| *m /= n);
    for &row in chosen {
        read(row as usize, &mut x);
        square.iter_mut().zip(&x).zip(&mean).for_each(|((s, x), mean)| *s += (x - mean).powi(2));
    }
    let deviation = |mean: f64, square: f64| {
        let std = (square / n).sqrt();
        (std >= 1e-12 * mean.abs().max(1.0)).then_some(std)
    };
    mean.iter().zip(&square).map(|(&mean, &square)| (mean, deviation(mean, square))).collect()
}

/// Refuses rows a model cannot learn from: shapes that disagree, values that are not finite.
pub fn check_rows(rows: &Batch) -> Result<()> {
    let n = rows.len();
    let lengths = [rows.obs.nrows(), rows.act.nrows(), rows.next_obs.nrows(), rows.done.len()];
    require!(
        lengths == [n; 4] && rows.next_obs.ncols() == rows.obs_dim(),
        "training rows: wanted columns of one length and s' as wide as s, found lengths {lengths:?} and {n}, \
         widths {} and {}",
        rows.obs_dim(),
        rows.next_obs.ncols()
    );
    require!(
        rows.obs_dim() > 0 && rows.act_dim() > 0,
        "training rows: wanted at least one observation and one action column"
    );
    for (name, mat) in [("obs", &rows.obs), ("act", &rows.act), ("next_obs", &rows.next_obs)] {
        if let Some(((row, col), value)) = mat.indexed_iter().find(|(_, v)| !v.is_finite()) {
            return Err(not_finite(name, row, col, *value));
        }
    }
    match rows.rew.iter().enumerate().find(|(_, v)| !v.is_finite()) {
        Some((row, value)) => Err(not_finite("rew", row, 0, *value)),
        None => Ok(()),
    }
}

fn not_finite(name: &str, row: usize, col: usize, value: f32) -> Error {
    invalid!(
        "training rows: wanted finite values, found {value} in `{name}` at row {row}, column {col}; \
         `offing data audit` lists such rows"
    )
}

/// Rows to train on and rows held out, in random order.
pub(super) fn split(rows: usize, share: f64, most: usize, seed: u64) -> (Vec<u32>, Vec<u32>) {
    let mut all: Vec<u32> = (0..rows as u32).collect();
    shuffle(&mut all, &mut Rng::stream(seed, "holdout", 0));
    let train = all.split_off(held_out(rows, share, most));
    (train, all)
}

/// How many of so many rows are held out.
pub(super) fn held_out(rows: usize, share: f64, most: usize) -> usize {
    ((rows as f64 * share) as usize).min(most)
}

/// Fisher–Yates.
pub(super) fn shuffle(items: &mut [u32], rng: &mut Rng) {
    for i in (1..items.len()).rev() {
        items.swap(i, rng.below(i + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array1;

    fn rows(n: usize) -> Batch {
        let mut rng = Rng::stream(0, "rows", 0);
        let obs = Mat::from_shape_fn((n, 3), |(_, j)| if j == 1 { 7.5 } else { (3.0 + rng.normal()) as f32 });
        let act = Mat::from_shape_fn((n, 2), |_| rng.normal() as f32);
        let done = Array1::from_elem(n, false);
        Batch { next_obs: obs.clone(), rew: Array1::zeros(n), obs, act, done }
    }

    #[test]
    fn constant_columns_are_reported_and_left_as_they_are() {
        let rows = rows(500);
        let (scaler, constant) = Scaler::fit(&rows, &(0..500).collect::<Vec<_>>());
        assert_eq!(constant, [1]);
        let mut x = PackedMatrix::new(1, 5);
        scaler.load_slices(&[3.0, 7.5, 3.0], &[0.0, 0.0], &mut x, 0);
        assert!(x.data()[1] == 0.0 && x.data()[..5].iter().all(|v| v.abs() < 0.2), "{:?}", &x.data()[..5]);
    }

    #[test]
    fn the_split_has_every_row_once_and_is_capped() {
        let (train, held) = split(10_000, 0.2, 1000, 3);
        assert_eq!((train.len(), held.len()), (9000, 1000));
        let mut all: Vec<u32> = train.iter().chain(&held).copied().collect();
        all.sort_unstable();
        assert!(all.iter().enumerate().all(|(i, &r)| i as u32 == r));
        assert_eq!(split(50, 0.2, 1000, 3).1.len(), 10);
    }

    #[test]
    fn values_that_are_not_finite_are_named() {
        let mut bad = rows(20);
        bad.next_obs[[7, 2]] = f32::NAN;
        let message = check_rows(&bad).unwrap_err().to_string();
        assert!(message.contains("`next_obs` at row 7, column 2"), "{message}");
        check_rows(&rows(20)).unwrap();
    }
}
