//! Two samples of one number side by side: returns, lengths, the values of a column.

use serde::Serialize;

use crate::stats::{kolmogorov_smirnov, nan_as_null, quantile_sorted};

/// Which quantiles are compared.
pub const QUANTILES: [f64; 5] = [0.01, 0.25, 0.5, 0.75, 0.99];

/// Mean, spread and quantiles of finite values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// How many values.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// Standard deviation (n − 1).
    pub std: f64,
    /// Those of [`QUANTILES`].
    pub quantiles: [f64; 5],
}

impl Distribution {
    /// Of values in order; `None` without any.
    pub(super) fn of(sorted: &[f64]) -> Option<Self> {
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|v| (v - mean).powi(2)).sum();
        let std = if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 };
        let quantiles = QUANTILES.map(|q| quantile_sorted(sorted, q));
        (n > 0).then_some(Self { count: n, mean, std, quantiles })
    }
}

/// A number of each episode, in both sets.
#[derive(Clone, Debug, Serialize)]
pub struct EpisodeComparison {
    /// In the first set.
    pub a: Distribution,
    /// In the second.
    pub b: Distribution,
    /// Mean of the first less mean of the second.
    pub difference: f64,
    /// Of the difference, episodes taken as independent. Where a set has fewer than ten, both are taken to spread alike: a
    /// deviation of two episodes says little.
    pub standard_error: f64,
    /// Kolmogorov–Smirnov distance.
    pub ks: f64,
    /// All values in order, of the first set and of the second.
    #[serde(skip)]
    pub values: [Vec<f64>; 2],
}

impl EpisodeComparison {
    /// `None` where a set has no finished episode.
    pub(super) fn of(a: Vec<f64>, b: Vec<f64>) -> Option<Self> {
        let values = [a, b].map(sorted);
        let (a, b) = (Distribution::of(&values[0])?, Distribution::of(&values[1])?);
        Some(Self {
            difference: a.mean - b.mean,
            standard_error: standard_error(&a, &b),
            ks: kolmogorov_smirnov(&values[0], &values[1]),
            a,
            b,
            values,
        })
    }

    /// The difference of the means in standard errors; infinite where sets without spread differ.
    pub fn errors(&self) -> f64 {
        match self.difference == 0.0 {
            true => 0.0,
            false => self.difference.abs() / self.standard_error,
        }
    }

    /// Whether the distributions differ beyond chance, by the Kolmogorov–Smirnov test at 1 %.
    pub fn differs_in_shape(&self) -> bool {
        let (n, m) = (self.a.count as f64, self.b.count as f64);
        self.ks > 1.63 * ((n + m) / (n * m)).sqrt()
    }
}

/// From so many episodes on, a set's own deviation counts.
const ENOUGH: usize = 10;

fn standard_error(a: &Distribution, b: &Distribution) -> f64 {
    let (n, m) = (a.count as f64, b.count as f64);
    let (own_a, own_b) = (a.std.powi(2), b.std.powi(2));
    if a.count.min(b.count) >= ENOUGH {
        return (own_a / n + own_b / m).sqrt();
    }
    let pooled = ((n - 1.0) * own_a + (m - 1.0) * own_b) / (n + m - 2.0).max(1.0);
    (pooled * (1.0 / n + 1.0 / m)).sqrt()
}

/// One column in both sets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ColumnComparison {
    /// `obs[3] (p_tank)`, `act[0]`, `reward`.
    pub column: String,
    /// In the first set; absent without a finite value.
    pub a: Option<Distribution>,
    /// In the second.
    pub b: Option<Distribution>,
    /// The largest difference between the sets at any of [`QUANTILES`], in standard deviations of the second.
    #[serde(with = "nan_as_null")]
    pub shift: f64,
    /// Kolmogorov–Smirnov distance of the sets.
    #[serde(with = "nan_as_null")]
    pub ks: f64,
    /// The same between two random halves of one set, whole episodes apart; the larger of both sets.
    #[serde(with = "nan_as_null")]
    pub ks_halves: f64,
}

/// Below this distance nobody speaks of a difference.
const SMALL: f64 = 0.02;

impl ColumnComparison {
    /// From the values of both halves of each set.
    pub(super) fn of(column: String, a: [Vec<f64>; 2], b: [Vec<f64>; 2]) -> Self {
        let [a, b] = [a, b].map(|halves| halves.map(sorted));
        let within = [&a, &b].map(|halves| kolmogorov_smirnov(&halves[0], &halves[1]));
        let [a, b] = [a, b].map(|halves| sorted(halves.concat()));
        let (first, second) = (Distribution::of(&a), Distribution::of(&b));
        let shift = first.zip(second).map_or(f64::NAN, |(first, second)| largest_shift(&first, &second));
        let ks = kolmogorov_smirnov(&a, &b);
        // f64::max leaves NaN out.
        Self { column, a: first, b: second, shift, ks, ks_halves: within[0].max(within[1]) }
    }

    /// Whether the sets differ in this column by clearly more than a set from itself.
    pub fn differs(&self) -> bool {
        self.ks > SMALL && (self.ks_halves.is_nan() || self.ks > 2.0 * self.ks_halves)
    }
}

fn largest_shift(a: &Distribution, b: &Distribution) -> f64 {
    let shifts = a.quantiles.iter().zip(&b.quantiles).map(|(a, b)| a - b);
    let largest = shifts.max_by(|x, y| x.abs().total_cmp(&y.abs())).unwrap_or(0.0);
    // A column that never changed in the second set has no scale of its own.
    let scale = if b.std > 0.0 { b.std } else { a.std };
    if largest == 0.0 { 0.0 } else { largest / scale }
}

/// The finite values in order.
pub(super) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.retain(|v| v.is_finite());
    values.sort_unstable_by(f64::total_cmp);
    values
}
