//! One and three whole SAC updates equal PyTorch's, also with normalised networks and a critics' loss of two means. The other side: scripts/golden/sac.py.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use ndarray::{Array1, Array2};
use offing::nn::{Noise, Tensors, ThreadPool};
use offing::sac::{Sac, SacConfig, TwoMeans};
use offing::{Batch, Mat, Rng};

const BATCH: usize = 16;

fn mat(from: &Tensors, name: &str, cols: usize) -> Mat {
    Array2::from_shape_vec((BATCH, cols), from.f32(name, &[BATCH, cols]).unwrap()).unwrap()
}

fn column(from: &Tensors, name: &str) -> Array1<f32> {
    from.f32(name, &[BATCH]).unwrap().into()
}

/// Largest difference over all tensors, with its name.
fn difference(ours: &Tensors, theirs: &Tensors) -> (f64, String) {
    let mut worst = (0.0, String::new());
    assert_eq!(ours.names().collect::<Vec<_>>(), theirs.names().collect::<Vec<_>>());
    for name in ours.names() {
        let shape = ours.shape(name).unwrap();
        let (a, b): (Vec<f64>, Vec<f64>) = match name {
            "steps" => {
                assert_eq!(ours.u64(name, 3).unwrap(), theirs.u64(name, 3).unwrap());
                continue;
            }
            "log_alpha" => (ours.f64(name, 3).unwrap(), theirs.f64(name, 3).unwrap()),
            _ => {
                let wide = |t: &Tensors| t.f32(name, shape).unwrap().into_iter().map(f64::from).collect();
                (wide(ours), wide(theirs))
            }
        };
        for (a, b) in a.iter().zip(&b) {
            if (a - b).abs() > worst.0 {
                worst = ((a - b).abs(), name.to_string());
            }
        }
    }
    worst
}

#[test]
fn sac_updates_equal_pytorch() {
    let cfg = SacConfig { hidden: vec![32, 32], ..SacConfig::default() };
    check(include_bytes!("golden/sac.safetensors"), &cfg, None);
}

#[test]
fn updates_of_normalised_networks_on_two_means_equal_pytorch() {
    let cfg = SacConfig {
        hidden: vec![24, 18],
        actor_layer_norm: true,
        critic_layer_norm: true,
        ..SacConfig::default()
    };
    let means = TwoMeans { first: 5, weight: 0.7 };
    check(include_bytes!("golden/sac_normalised.safetensors"), &cfg, Some(means));
}

fn check(golden: &[u8], cfg: &SacConfig, means: Option<TwoMeans>) {
    let golden = Tensors::from_foreign_bytes(golden).unwrap();
    for threads in [1, 2] {
        let mut agent =
            Sac::new(cfg, 7, 3, &ThreadPool::new(threads), &mut Rng::stream(0, "init", 0)).unwrap();
        agent.load(&golden.under("before")).unwrap();
        for update in 0..3 {
            let given = golden.under(&format!("batch.{update}"));
            let batch = Batch {
                obs: mat(&given, "obs", 7),
                act: mat(&given, "act", 3),
                rew: column(&given, "rew"),
                next_obs: mat(&given, "next_obs", 7),
                done: column(&given, "done").mapv(|d| d > 0.5),
            };
            let (next, current) = (mat(&given, "eps_next", 3), mat(&given, "eps", 3));
            let (next, current) = (Noise::Given(next.view()), Noise::Given(current.view()));
            let losses = agent.update_two_means_with(&batch, means, next, current).unwrap();
            let wanted = golden.f32(&format!("losses.{update}"), &[2]).unwrap();
            assert!((losses.critic - f64::from(wanted[0])).abs() < 1e-5 * f64::from(wanted[0]).abs());
            assert!((losses.actor - f64::from(wanted[1])).abs() < 1e-5);
            if update != 1 {
                let (worst, name) =
                    difference(&agent.save(), &golden.under(&format!("after.{}", update + 1)));
                assert!(worst <= 1e-5, "{name} differs by {worst} after update {}", update + 1);
            }
        }
    }
}
