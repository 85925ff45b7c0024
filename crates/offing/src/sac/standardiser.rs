//! Observations with mean 0 and deviation 1, as TD3+BC feeds its networks; the policy that leaves takes raw ones.

use super::Actor;
use crate::batch::Mat;
use crate::nn::Field;

/// Added to every deviation, as in TD3+BC.
const EXTRA: f64 = 1e-3;
/// A column whose deviation is below this share of its mean is constant but for rounding to f32.
const ROUNDING: f64 = 1e-7;

/// Mean and scale of each column of the observations.
#[derive(Clone, Debug, PartialEq)]
pub struct Standardiser {
    mean: Vec<f32>,
    std: Vec<f32>,
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

    /// The actor that does on raw observations what `actor` does on standardised ones: for evaluation, rollouts and the
    /// saved policy. Its first layer has W' = W / std and b' = b − W · mean / std. Not for training: Adam's moments
    /// are those of `actor`.
    #[must_use]
    pub fn fold(&self, actor: &Actor) -> Actor {
        assert_eq!(actor.obs_dim(), self.mean.len(), "an actor of the width this standardiser was made for");
        let mut folded = actor.clone();
        let (mut weight, mut bias) = actor.net.get(0, 0, Field::Weight);
        for (row, bias) in weight.chunks_exact_mut(self.mean.len()).zip(&mut bias) {
            let mut shift = 0.0;
            for ((w, &mean), &std) in row.iter_mut().zip(&self.mean).zip(&self.std) {
                let scaled = f64::from(*w) / f64::from(std);
                shift += scaled * f64::from(mean);
                *w = scaled as f32;
            }
            *bias = (f64::from(*bias) - shift) as f32;
        }
        folded.net.set(0, 0, Field::Weight, &weight, &bias);
        folded
    }

    /// What [`fold`](Self::fold) was given, but for rounding: an actor on standardised observations.
    #[must_use]
    pub fn unfold(&self, actor: &Actor) -> Actor {
        let shift = self.mean.iter().zip(&self.std).map(|(mean, std)| -mean / std).collect();
        Self { mean: shift, std: self.std.iter().map(|std| 1.0 / std).collect() }.fold(actor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{Noise, ThreadPool};
    use crate::rng::Rng;

    /// Columns of very different scales; column 2 is constant.
    fn rows() -> Mat {
        let mut rng = Rng::stream(5, "rows", 0);
        let (mean, scale) = ([3.0, -20.0, 0.7, 0.0], [0.5, 4.0, 0.0, 0.02]);
        Mat::from_shape_fn((400, 4), |(_, j)| (mean[j] + scale[j] * rng.normal()) as f32)
    }

    #[test]
    fn columns_get_mean_zero_and_deviation_one_and_constant_ones_stay_small() {
        let (mut obs, standardiser) = (rows(), Standardiser::of(&rows()));
        standardiser.apply(&mut obs);
        for (j, column) in obs.columns().into_iter().enumerate() {
            let mean = column.iter().map(|&x| f64::from(x)).sum::<f64>() / 400.0;
            let square = column.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 400.0;
            assert!(mean.abs() < 1e-5, "{j}: {mean}");
            let wanted = [0.998, 0.9997, 0.0, 0.952][j];
            assert!((square.sqrt() - wanted).abs() < 5e-3, "{j}: {}", square.sqrt());
        }
        assert_eq!(standardiser.std()[2], 1.0);
        let mut far = Mat::from_elem((1, 4), 1.7);
        standardiser.apply(&mut far);
        assert!((far[[0, 2]] - 1.0).abs() < 1e-6, "one away from a constant is one, not a thousand");
    }

    #[test]
    fn the_identity_and_no_rows_change_nothing() {
        let mut obs = rows();
        Standardiser::identity(4).apply(&mut obs);
        assert_eq!(obs, rows());
        assert_eq!(Standardiser::of(&Mat::zeros((0, 3))), Standardiser::identity(3));
    }

    #[test]
    fn a_folded_actor_does_on_raw_rows_what_the_actor_does_on_standardised_ones() {
        let (pool, raw, standardiser) = (ThreadPool::new(1), rows(), Standardiser::of(&rows()));
        let mut obs = raw.clone();
        standardiser.apply(&mut obs);
        for hidden in [vec![], vec![32], vec![64, 64]] {
            let actor = Actor::new(4, 3, &hidden, [-5.0, 2.0], &mut Rng::stream(1, "actor", 0));
            let folded = standardiser.fold(&actor);
            for noise in [Noise::Zero, Noise::Key(3)] {
                let (wanted, wanted_density) = actor.sample(&pool, obs.view(), noise);
                let (found, density) = folded.sample(&pool, raw.view(), noise);
                let off = |a: f32, b: f32| (a - b).abs() > 1e-5 * (1.0 + b.abs());
                assert!(!found.iter().zip(&wanted).any(|(a, b)| off(*a, *b)), "{hidden:?}");
                assert!(!density.iter().zip(&wanted_density).any(|(a, b)| off(*a, *b)), "{hidden:?}");
            }
            let alike = Standardiser::identity(4).fold(&actor);
            assert_eq!(alike.to_policy(), actor.to_policy());
        }
    }
}
