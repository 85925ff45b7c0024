//! Small networks as functions with derivatives: values and tangents along given directions, and a radial-basis network
//! for a deviation that grows away from the data.

use crate::batch::Mat;
use crate::nn::{Field, MlpEnsemble, math};
use crate::rng::Rng;

/// The first network of a stack with SiLU layers, in plain loops.
#[derive(Debug)]
pub(super) struct Smooth {
    /// Input-major weights and biases.
    layers: Vec<(Vec<f32>, Vec<f32>)>,
}

/// A value and its derivatives along some directions.
pub(super) struct Tangents {
    pub(super) value: Vec<f32>,
    pub(super) tangent: Vec<Vec<f32>>,
}

impl Smooth {
    pub(super) fn of(stack: &MlpEnsemble) -> Self {
        let shape = stack.shape();
        let layer = |l: usize| {
            let (weight, bias) = stack.get(0, l, Field::Weight);
            let (inputs, outputs) = (shape.inputs(l), shape.outputs(l));
            let turned =
                (0..inputs * outputs).map(|at| weight[at % outputs * inputs + at / outputs]).collect();
            (turned, bias)
        };
        Self { layers: (0..shape.layers()).map(layer).collect() }
    }

    /// The value at `x` and the derivatives along `directions`.
    pub(super) fn along(&self, x: &[f32], directions: &[Vec<f32>]) -> Tangents {
        let (mut value, mut tangent) = (x.to_vec(), directions.to_vec());
        for (l, (weight, bias)) in self.layers.iter().enumerate() {
            let product = |x: &[f32], start: Vec<f32>| {
                let mut y = start;
                for (x, row) in x.iter().zip(weight.chunks_exact(bias.len())) {
                    y.iter_mut().zip(row).for_each(|(y, w)| *y += x * w);
                }
                y
            };
            value = product(&value, bias.clone());
            tangent.iter_mut().for_each(|t| *t = product(t, vec![0.0; bias.len()]));
            if l + 1 < self.layers.len() {
                for (i, z) in value.iter_mut().enumerate() {
                    let s = math::sigmoid::<math::Plain>(*z);
                    let slope = s + *z * s * (1.0 - s);
                    tangent.iter_mut().for_each(|t| t[i] *= slope);
                    *z *= s;
                }
            }
        }
        Tangents { value, tangent }
    }
}

/// σ_j(z) = (Σ_k w_kj·exp(−λ_k‖z − c_k‖²) + ζ)^−½: about the residual's deviation near the data, 1/√ζ far from it.
#[derive(Debug)]
pub(super) struct Radial {
    centers: Mat,
    /// λ of each centre.
    width: Vec<f64>,
    /// Precisions, one row a centre.
    weight: Vec<Vec<f64>>,
}

/// Precision far from all data, in standardised units: a deviation of 10.
const FAR: f64 = 0.01;

impl Radial {
    /// Centres by k-means on `codes`, precisions from the squared `residuals` of the rows nearest to each.
    pub(super) fn fit(codes: &Mat, residuals: &Mat, centers: usize, rng: &mut Rng) -> Self {
        let (n, outputs) = (codes.nrows(), residuals.ncols());
        let count = centers.min(n);
        let mut chosen: Vec<usize> = (0..n).collect();
        (0..count).for_each(|i| chosen.swap(i, i + rng.below(n - i)));
        let mut centers = codes.select(ndarray::Axis(0), &chosen[..count]);
        let mut nearest = vec![0usize; n];
        for _ in 0..10 {
            for (row, to) in codes.rows().into_iter().zip(&mut nearest) {
                let distance = |k: usize| square(row.iter().zip(centers.row(k)));
                *to = (0..count).min_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap_or(0);
            }
            let (mut sum, mut size) = (Mat::zeros(centers.dim()), vec![0.0f32; count]);
            for (row, &k) in codes.rows().into_iter().zip(&nearest) {
                let mut to = sum.row_mut(k);
                to += &row;
                size[k] += 1.0;
            }
            for (k, &size) in size.iter().enumerate().filter(|(_, size)| **size > 0.0) {
                centers.row_mut(k).assign(&(&sum.row(k) / size));
            }
        }
        let (mut reach, mut size) = (vec![0.0f64; count], vec![0.0f64; count]);
        let mut noise = vec![vec![0.0f64; outputs]; count];
        for (i, &k) in nearest.iter().enumerate() {
            reach[k] += square(codes.row(i).iter().zip(centers.row(k))).sqrt();
            size[k] += 1.0;
            noise[k].iter_mut().zip(residuals.row(i)).for_each(|(n, r)| *n += f64::from(*r).powi(2));
        }
        // A bell as wide as twice its rows' mean distance: neighbouring bells overlap.
        let spread = reach.iter().sum::<f64>() / n as f64;
        let radius = |k: usize| 2.0 * if reach[k] > 0.0 { reach[k] / size[k] } else { spread.max(1e-6) };
        let width = (0..count).map(|k| 0.5 / radius(k).powi(2)).collect();
        let weight = noise
            .iter()
            .zip(&size)
            .map(|(noise, size)| noise.iter().map(|v| 1.0 / (v / size.max(1.0) + 1e-4)).collect())
            .collect();
        let mut it = Self { centers, width, weight };
        // Overlapping bells add up; one data row should see about one bell.
        let total: f64 = codes.rows().into_iter().map(|z| it.bells(&z.to_vec()).iter().sum::<f64>()).sum();
        let scale = n as f64 / total.max(1e-12);
        it.weight.iter_mut().flatten().for_each(|w| *w *= scale);
        it
    }

    fn bells(&self, z: &[f32]) -> Vec<f64> {
        let bell = |(k, &width): (usize, &f64)| (-width * square(z.iter().zip(self.centers.row(k)))).exp();
        self.width.iter().enumerate().map(bell).collect()
    }

    fn precision(&self, bells: &[f64]) -> Vec<f64> {
        let mut precision = vec![FAR; self.weight[0].len()];
        for (bell, weight) in bells.iter().zip(&self.weight) {
            precision.iter_mut().zip(weight).for_each(|(p, w)| *p += w * bell);
        }
        precision
    }

    /// σ(z).
    #[cfg(test)]
    pub(super) fn deviations(&self, z: &[f32]) -> Vec<f64> {
        self.precision(&self.bells(z)).into_iter().map(|p| 1.0 / p.sqrt()).collect()
    }

    /// ∂σ/∂z_i, one column each.
    pub(super) fn jacobian(&self, z: &[f32]) -> Vec<Vec<f32>> {
        let bells = self.bells(z);
        let precision = self.precision(&bells);
        let column = |i: usize| {
            let mut slope = vec![0.0f64; precision.len()];
            for (k, (bell, weight)) in bells.iter().zip(&self.weight).enumerate() {
                let pull = -2.0 * self.width[k] * bell * f64::from(z[i] - self.centers[[k, i]]);
                slope.iter_mut().zip(weight).for_each(|(s, w)| *s += w * pull);
            }
            slope.iter().zip(&precision).map(|(s, p)| (-0.5 * s * p.powf(-1.5)) as f32).collect()
        };
        (0..z.len()).map(column).collect()
    }
}

fn square<'a>(pairs: impl Iterator<Item = (&'a f32, &'a f32)>) -> f64 {
    pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum()
}
