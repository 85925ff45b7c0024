//! The adversary against finite differences of its loss, written out independently, and that it resumes.

use super::*;
use crate::nn::{Tensors, ThreadPool};

fn rows(n: usize, seed: u64) -> Batch {
    let mut rng = Rng::stream(seed, "rows", 0);
    let mut mat = |cols: usize| Mat::from_shape_fn((n, cols), |_| rng.normal() as f32);
    let (obs, act) = (mat(3), mat(2));
    let next_obs = &obs + &(mat(3) * 0.5);
    Batch { rew: act.column(0).to_owned() * 0.7, obs, act, next_obs, done: Array1::from_elem(n, false) }
}

fn model(threads: usize) -> Ensemble {
    let cfg = EnsembleConfig {
        members: 3,
        elites: 2,
        hidden: vec![20, 17],
        decay: vec![0.02, 0.03, 0.04],
        batch_size: 64,
        max_epochs: Some(2),
        ..EnsembleConfig::default()
    };
    Ensemble::fit(&cfg, &rows(400, 1), 3, &ThreadPool::new(threads), |_, _| Ok(())).unwrap()
}

fn config() -> AdversaryConfig {
    AdversaryConfig { lr: 1e-3, decay: vec![0.02, 0.03, 0.04], bound_weight: 0.05 }
}

const LAMBDA: f64 = 0.8;

/// Σ_m mean ((μ − y)²/σ² + ln σ²) + decay + bounds + λ mean (A ln (1/E) Σ_e N_e), from predictions alone.
fn loss(saved: &Tensors, imagined: &Batch, advantage: &[f32], real: &Batch) -> f64 {
    let model = Ensemble::load(saved, &ThreadPool::new(1)).unwrap();
    // Per member and row: Σ_d of error²/σ² + ln σ².
    let terms = |batch: &Batch| {
        let prediction = model.predict(&batch.obs, &batch.act);
        ndarray::Array2::from_shape_fn((3, batch.len()), |(m, i)| {
            (0..4)
                .map(|d| {
                    let y = if d < 3 { batch.next_obs[[i, d]] } else { batch.rew[i] };
                    let (mean, std) =
                        (f64::from(prediction.mean[[m, i, d]]), f64::from(prediction.std[[m, i, d]]));
                    ((mean - f64::from(y)) / std).powi(2) + 2.0 * std.ln()
                })
                .sum::<f64>()
        })
    };
    let mut total = terms(real).sum() / (real.len() * 4) as f64;
    for member in 0..3 {
        for (l, &c) in config().decay.iter().enumerate() {
            let name = format!("model.{member}.{l}.weight");
            let weight = saved.f32(&name, saved.shape(&name).unwrap()).unwrap();
            total += f64::from(c) * 0.5 * weight.iter().map(|&w| f64::from(w).powi(2)).sum::<f64>();
        }
    }
    let bounds = |name: &str| saved.f64(name, 4).unwrap().iter().sum::<f64>();
    total += 0.05 * (bounds("max_log_var") - bounds("min_log_var"));
    let density = terms(imagined).mapv(|t| (-0.5 * t - 2.0 * std::f64::consts::TAU.ln()).exp());
    let mixture = |i: usize| model.elites().iter().map(|&e| density[[e, i]]).sum::<f64>() / 2.0;
    let gain: f64 = (0..imagined.len()).map(|i| f64::from(advantage[i]) * mixture(i).ln()).sum();
    total + LAMBDA * gain / imagined.len() as f64
}

#[test]
fn gradients_equal_finite_differences_of_the_loss() {
    let mut model = model(2);
    let (imagined, real) = (rows(23, 5), rows(31, 6));
    let advantage: Vec<f32> = (0..23).map(|i| (i as f32 * 0.9).sin() * 2.0).collect();
    let before = model.save();
    let mut adversary = model.adversary(&config()).unwrap();
    let losses = adversary.step(&mut model, &imagined, &advantage, LAMBDA, &real).unwrap();
    assert!(losses.nll.is_finite() && losses.adversarial.is_finite());
    // After one step the first moment is a tenth of the gradient.
    let moments = adversary.save();
    let mut checked = 0;
    for member in 0..3 {
        for l in 0..3 {
            for what in ["weight", "bias"] {
                let name = format!("model.{member}.{l}.{what}");
                let shape = before.shape(&name).unwrap().to_vec();
                let grad = moments.f32(&format!("adversary.{member}.{l}.{what}.m"), &shape).unwrap();
                let grad: Vec<f64> = grad.iter().map(|&m| f64::from(m) / 0.1).collect();
                let norm = grad.iter().map(|g| g * g).sum::<f64>().sqrt();
                let values = before.f32(&name, &shape).unwrap();
                // Along the gradient the loss must rise by its norm.
                let at = |step: f64| {
                    let moved =
                        values.iter().zip(&grad).map(|(w, g)| (f64::from(*w) + step * g / norm) as f32);
                    let mut saved = before.clone();
                    saved.put_f32(&name, &shape, moved.collect());
                    loss(&saved, &imagined, &advantage, &real)
                };
                let step = 2e-3;
                let slope = (at(step) - at(-step)) / (2.0 * step);
                assert!((slope - norm).abs() < 2e-3 * (norm + 0.1), "{name}: slope {slope}, gradient {norm}");
                checked += usize::from(norm > 1e-2);
            }
        }
    }
    assert!(checked >= 16, "{checked} gradients were large enough to tell");
    for name in ["max_log_var", "min_log_var"] {
        let grad = moments.f64(&format!("adversary.{name}"), 8).unwrap();
        for i in 0..4 {
            let at = |step: f64| {
                let (mut saved, mut values) = (before.clone(), before.f64(name, 4).unwrap());
                values[i] += step;
                saved.put_f64(name, &values);
                loss(&saved, &imagined, &advantage, &real)
            };
            let slope = (at(1e-2) - at(-1e-2)) / 2e-2;
            let got = grad[2 * i] / 0.1;
            assert!(
                (slope - got).abs() < 2e-3 * (got.abs() + 0.1),
                "{name} {i}: slope {slope}, gradient {got}"
            );
        }
    }
}

#[test]
fn steps_do_what_the_sign_of_the_advantage_asks_for_and_resume_bit_for_bit_on_any_threads() {
    let (imagined, real) = (rows(40, 7), rows(64, 8));
    let likelihood = |advantage: f32| {
        let mut model = model(1);
        let mut adversary = model.adversary(&config()).unwrap();
        let step = |adversary: &mut Adversary, model: &mut Ensemble| {
            adversary.step(model, &imagined, &[advantage; 40], 1.0, &real).unwrap().adversarial
                / f64::from(advantage)
        };
        let first = step(&mut adversary, &mut model);
        (0..30).for_each(|_| _ = step(&mut adversary, &mut model));
        step(&mut adversary, &mut model) - first
    };
    assert!(likelihood(1.0) < 0.0 && likelihood(-1.0) > 0.0);

    let run = |threads: usize, stop: Option<usize>| {
        let mut model = model(threads);
        let mut adversary = model.adversary(&config()).unwrap();
        for step in 0..5 {
            adversary.step(&mut model, &imagined, &[0.3; 40], 0.5, &real).unwrap();
            if stop == Some(step) {
                let (kept, moments) =
                    (model.save().to_bytes().unwrap(), adversary.save().to_bytes().unwrap());
                model = Ensemble::load(&Tensors::from_bytes(&kept).unwrap(), &ThreadPool::new(2)).unwrap();
                adversary = model.adversary(&config()).unwrap();
                adversary.load(&Tensors::from_bytes(&moments).unwrap()).unwrap();
            }
        }
        (model.save(), adversary.save())
    };
    let one = run(1, None);
    assert!(one == run(2, None) && one == run(3, None) && one == run(1, Some(2)));
}

#[test]
fn what_is_wrong_is_named_with_the_step() {
    let mut model = model(1);
    let mut adversary = model.adversary(&config()).unwrap();
    let (imagined, real) = (rows(5, 7), rows(6, 8));
    let mut fail = |imagined: &Batch, advantage: &[f32], lambda: f64, real: &Batch| {
        adversary.step(&mut model, imagined, advantage, lambda, real).unwrap_err().to_string()
    };
    assert!(fail(&imagined, &[1.0; 4], 1.0, &real).contains("4 advantages for 5"));
    let message = fail(&imagined, &[1.0, 2.0, f32::NAN, 0.0, 0.0], 1.0, &real);
    assert!(message.contains("adversary step 1") && message.contains("NaN at row 2"), "{message}");
    assert!(fail(&imagined, &[1.0; 5], f64::NAN, &real).contains("lambda"));
    let mut poisoned = imagined.clone();
    poisoned.next_obs[[3, 1]] = f32::INFINITY;
    let message = fail(&poisoned, &[1.0; 5], 1.0, &real);
    assert!(message.contains("imagined rows") && message.contains("row 3, column 1"), "{message}");
    let mut far = real.clone();
    far.rew[0] = 1e30;
    let message = fail(&imagined, &[1.0; 5], 1.0, &far);
    assert!(message.contains("real rows became inf at adversary step 1"), "{message}");
    assert!(model.adversary(&AdversaryConfig { decay: vec![0.1], ..config() }).is_err());
}
