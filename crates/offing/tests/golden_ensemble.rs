//! One and three whole ensemble steps equal PyTorch's. The other side: scripts/golden/ensemble.py.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use ndarray::{Array1, Array2};
use offing::Batch;
use offing::dynamics::{EnsembleConfig, Trainer};
use offing::nn::{Tensors, ThreadPool};

const ROWS: usize = 60;

#[test]
fn ensemble_steps_equal_pytorch() {
    let golden = Tensors::from_foreign_bytes(include_bytes!("golden/ensemble.safetensors")).unwrap();
    let given = golden.under("rows");
    let mat = |name: &str, cols: usize| {
        Array2::from_shape_vec((ROWS, cols), given.f32(name, &[ROWS, cols]).unwrap()).unwrap()
    };
    let rows = Batch {
        obs: mat("obs", 5),
        act: mat("act", 2),
        rew: given.f32("rew", &[ROWS]).unwrap().into(),
        next_obs: mat("next_obs", 5),
        done: Array1::from_elem(ROWS, false),
    };
    let cfg = EnsembleConfig {
        members: 3,
        elites: 2,
        hidden: vec![20; 4],
        batch_size: 16,
        ..EnsembleConfig::default()
    };
    for threads in [1, 2] {
        let mut trainer = Trainer::new(&cfg, &rows, 0, &ThreadPool::new(threads)).unwrap();
        trainer.load(&golden.under("before")).unwrap();
        for update in 0..3 {
            let drawn = golden.u64(&format!("batch.{update}"), 48).unwrap();
            let drawn: Vec<u32> = drawn.into_iter().map(|r| r as u32).collect();
            let loss = trainer.step_on(|member| &drawn[member * 16..][..16]).unwrap();
            let wanted = golden.f64(&format!("loss.{update}"), 1).unwrap()[0];
            assert!((loss - wanted).abs() < 1e-5 * (1.0 + wanted.abs()), "loss {loss}, wanted {wanted}");
            if update != 1 {
                compare(&trainer.save(), &golden.under(&format!("after.{}", update + 1)), update + 1);
            }
        }
    }
}

fn compare(ours: &Tensors, theirs: &Tensors, after: u64) {
    assert_eq!(ours.names().collect::<Vec<_>>(), theirs.names().collect::<Vec<_>>());
    assert_eq!(ours.u64("state", 5).unwrap()[0], after);
    for name in ours.names() {
        let shape = ours.shape(name).unwrap();
        let (a, b): (Vec<f64>, Vec<f64>) = match name {
            "state" | "best_error" | "last_error" | "loss_sum" => continue,
            "max_log_var" | "min_log_var" => {
                (ours.f64(name, shape[0]).unwrap(), theirs.f64(name, shape[0]).unwrap())
            }
            _ => {
                let wide = |t: &Tensors| t.f32(name, shape).unwrap().into_iter().map(f64::from).collect();
                (wide(ours), wide(theirs))
            }
        };
        let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst <= 1e-5, "{name} differs by {worst} after step {after}");
    }
}
