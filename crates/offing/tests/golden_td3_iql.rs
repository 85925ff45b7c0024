//! Updates of TD3+BC and IQL equal a reference in NumPy that differentiates by finite differences. The other side:
//! scripts/golden/td3bc.py and iql.py.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use ndarray::{Array1, Array2};
use offing::iql::{Iql, IqlConfig};
use offing::nn::{Noise, Tensors, ThreadPool};
use offing::td3::{Td3Bc, Td3Config};
use offing::{Batch, Mat, Rng};

const ROWS: usize = 16;

fn mat(from: &Tensors, name: &str, cols: usize) -> Mat {
    Array2::from_shape_vec((ROWS, cols), from.f32(name, &[ROWS, cols]).unwrap()).unwrap()
}

fn column(from: &Tensors, name: &str) -> Array1<f32> {
    from.f32(name, &[ROWS]).unwrap().into()
}

fn batch(from: &Tensors) -> Batch {
    Batch {
        obs: mat(from, "obs", 5),
        act: mat(from, "act", 2),
        rew: column(from, "rew"),
        next_obs: mat(from, "next_obs", 5),
        done: column(from, "done").mapv(|d| d > 0.5),
    }
}

/// Asserts that weights, moments and targets agree to 1e-5 and counters exactly.
fn assert_equal(ours: &Tensors, theirs: &Tensors, when: &str) {
    assert_eq!(ours.names().collect::<Vec<_>>(), theirs.names().collect::<Vec<_>>());
    for name in ours.names() {
        let shape = ours.shape(name).unwrap();
        let values = |from: &Tensors| match name {
            "steps" => from.u64(name, shape[0]).unwrap().into_iter().map(|x| x as f64).collect(),
            "log_std" => from.f64(name, shape[0]).unwrap(),
            _ => from.f32(name, shape).unwrap().into_iter().map(f64::from).collect::<Vec<_>>(),
        };
        for (a, b) in values(ours).iter().zip(&values(theirs)) {
            assert!((a - b).abs() <= 1e-5, "{name} {when}: {a}, wanted {b}");
        }
    }
}

fn assert_close(found: &[f64], wanted: &[f64]) {
    for (a, b) in found.iter().zip(wanted) {
        assert!((a - b).abs() < 1e-5 * (1.0 + b.abs()), "{found:?}, wanted {wanted:?}");
    }
}

#[test]
fn td3bc_updates_equal_the_reference() {
    let golden = Tensors::from_foreign_bytes(include_bytes!("golden/td3bc.safetensors")).unwrap();
    for threads in [1, 2] {
        let cfg = Td3Config { hidden: vec![12, 12], ..Td3Config::default() };
        let pool = ThreadPool::new(threads);
        let mut agent = Td3Bc::new(&cfg, 5, 2, &pool, &mut Rng::stream(0, "init", 0)).unwrap();
        agent.load(&golden.under("before")).unwrap();
        for update in 0..4 {
            let given = golden.under(&format!("batch.{update}"));
            let eps = mat(&given, "eps", 2);
            let losses = agent.update_with(&batch(&given), Noise::Given(eps.view())).unwrap();
            let found: Vec<f64> =
                [losses.critic].into_iter().chain(losses.actor.map(|actor| actor.total)).collect();
            assert_close(&found, &golden.f64(&format!("losses.{update}"), found.len()).unwrap());
            if [1, 3].contains(&update) {
                let wanted = golden.under(&format!("after.{update}"));
                assert_equal(&agent.save(), &wanted, &format!("after update {update}"));
            }
        }
    }
}

#[test]
fn iql_updates_equal_the_reference() {
    let golden = Tensors::from_foreign_bytes(include_bytes!("golden/iql.safetensors")).unwrap();
    for threads in [1, 2] {
        let cfg = IqlConfig { hidden: vec![12, 12], max_weight: 1.5, ..IqlConfig::default() }.over(10);
        let pool = ThreadPool::new(threads);
        let mut agent = Iql::new(&cfg, 5, 2, &pool, &mut Rng::stream(0, "init", 0)).unwrap();
        agent.load(&golden.under("before")).unwrap();
        for update in 0..3 {
            let losses = agent.update(&batch(&golden.under(&format!("batch.{update}")))).unwrap();
            let found = [losses.value, losses.actor, losses.critic, losses.v, losses.weight];
            assert_close(&found, &golden.f64(&format!("losses.{update}"), 5).unwrap());
            if [0, 2].contains(&update) {
                let wanted = golden.under(&format!("after.{update}"));
                assert_equal(&agent.save(), &wanted, &format!("after update {update}"));
            }
        }
    }
}
