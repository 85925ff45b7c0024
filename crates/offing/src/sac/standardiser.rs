//! Policies between units: what is learnt on standardised observations and actions from −1 to 1 leaves in the log's own.

use super::Actor;
use crate::nn::Field;
use crate::units::{Standardiser, Units};

impl Standardiser {
    /// The actor that does on raw observations what `actor` does on standardised ones: for evaluation, rollouts and the
    /// saved policy. Its first layer has W' = W / std and b' = b − W · mean / std. Not for training: Adam's moments
    /// are those of `actor`.
    #[must_use]
    pub fn fold(&self, actor: &Actor) -> Actor {
        assert_eq!(
            actor.obs_dim(),
            self.mean().len(),
            "an actor of the width this standardiser was made for"
        );
        let mut folded = actor.clone();
        let (mut weight, mut bias) = actor.net.get(0, 0, Field::Weight);
        for (row, bias) in weight.chunks_exact_mut(self.mean().len()).zip(&mut bias) {
            let mut shift = 0.0;
            for ((w, &mean), &std) in row.iter_mut().zip(self.mean()).zip(self.std()) {
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
        let shift = self.mean().iter().zip(self.std()).map(|(mean, std)| -mean / std).collect();
        Self { mean: shift, std: self.std().iter().map(|std| 1.0 / std).collect() }.fold(actor)
    }
}

impl Units {
    /// The policy that takes and gives logged units.
    #[must_use]
    pub fn policy_outward(&self, policy: &Actor) -> Actor {
        self.obs.fold(policy).with_action_range(self.act.clone())
    }

    /// What [`policy_outward`](Self::policy_outward) was made of, but for rounding.
    #[must_use]
    pub fn policy_inward(&self, policy: &Actor) -> Actor {
        self.obs.unfold(policy).with_action_range(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, Mat};
    use crate::nn::{Noise, Tensors, ThreadPool};
    use crate::policy::{MeanPolicy, TanhGaussian};
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
        let shapes = [(vec![], false), (vec![32], false), (vec![64, 64], false), (vec![64, 64], true)];
        for (hidden, layer_norm) in shapes {
            let actor = Actor::new(4, 3, &hidden, [-5.0, 2.0], &mut Rng::stream(1, "actor", 0))
                .with_layer_norm(layer_norm);
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

    /// Temperatures near 293, pressures near 1e5, a valve from 0 to 40, a switch that was never touched.
    fn tank() -> Batch {
        let mut rng = Rng::stream(0, "tank", 0);
        let obs =
            Mat::from_shape_fn((300, 2), |(_, j)| ([293.0, 1e5][j] + [2.0, 3e3][j] * rng.normal()) as f32);
        let act =
            Mat::from_shape_fn((300, 2), |(_, j)| if j == 0 { rng.range(0.0, 40.0) as f32 } else { 7.0 });
        let (rew, done) = (ndarray::Array1::zeros(300), ndarray::Array1::from_elem(300, false));
        Batch { next_obs: obs.clone(), obs, act, rew, done }
    }

    #[test]
    fn a_policy_outside_does_what_it_did_inside() {
        let logged = tank();
        let units = Units::of(&logged, None).unwrap();
        let (mut rows, pool) = (logged.clone(), ThreadPool::new(1));
        units.rows_inward(&mut rows);
        let inside = Actor::new(2, 2, &[16], [-5.0, 2.0], &mut Rng::stream(2, "init", 0));
        let outside = units.policy_outward(&inside);
        let wanted = units.act_outward(&inside.mean_batch(&pool, &rows.obs));
        let bytes = outside.to_policy().to_bytes().unwrap();
        let read = Actor::from_policy(&Tensors::from_bytes(&bytes).unwrap()).unwrap();
        let own = TanhGaussian::from_bytes(&bytes, std::path::Path::new("p")).unwrap();
        for i in 0..300 {
            let obs = logged.obs.row(i).to_vec();
            for policy in [&outside as &dyn MeanPolicy, &read, &own] {
                let mut act = [0.0; 2];
                policy.mean_act(&obs, &mut act);
                assert!((act[0] - wanted[[i, 0]]).abs() < 1e-2, "{act:?} against {}", wanted.row(i));
                assert_eq!(act[1], 7.0, "what never moved stays");
            }
        }
        let back = units.policy_inward(&read).mean_batch(&pool, &rows.obs);
        assert!((back - inside.mean_batch(&pool, &rows.obs)).iter().all(|d| d.abs() < 1e-3));
    }
}
