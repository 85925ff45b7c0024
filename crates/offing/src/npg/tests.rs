//! Natural policy gradient against a plain f64 version of the policy and finite differences of it.

use super::conjugate_gradient::dot;
use super::*;
use crate::batch::{Batch, Mat};
use crate::nn::{Noise, ThreadPool};
use crate::policy::{Deterministic, Policy, TanhGaussian};
use crate::rng::Rng;

const HIDDEN: [usize; 2] = [18, 7];

fn cfg() -> NpgConfig {
    NpgConfig { hidden: HIDDEN.to_vec(), ..NpgConfig::default() }
}

struct Case {
    policy: GaussianPolicy,
    obs: Mat,
    act: Mat,
    advantage: Vec<f32>,
}

/// A policy in general position, with some of its own actions.
fn case(rows: usize, act_dim: usize) -> Case {
    let mut rng = Rng::stream(1, "case", act_dim as u64);
    let obs = Mat::from_shape_fn((rows, 4), |(_, j)| (j as f64 + rng.normal() * (j + 1) as f64) as f32);
    let mut policy = GaussianPolicy::new(&cfg(), Standardizer::of(&obs), act_dim, &mut rng);
    let params: Vec<f32> = policy.params().iter().map(|p| p + 0.3 * rng.normal() as f32).collect();
    policy.set_params(&params);
    let act = policy.sample(&ThreadPool::new(1), obs.view(), Noise::Key(3));
    let advantage = (0..rows).map(|_| rng.normal() as f32).collect();
    Case { policy, obs, act, advantage }
}

/// The mean of a state by the textbook, in f64.
fn mean(case: &Case, params: &[f64], row: usize) -> Vec<f64> {
    let mut obs = [0.0; 4];
    case.policy.standardizer.apply(case.obs.row(row), &mut obs);
    let mut x = wide(&obs);
    let sizes = [4, HIDDEN[0], HIDDEN[1], case.policy.act_dim()];
    let mut at = 0;
    for (l, pair) in sizes.windows(2).enumerate() {
        let (weight, bias) = params[at..at + (pair[0] + 1) * pair[1]].split_at(pair[0] * pair[1]);
        at += (pair[0] + 1) * pair[1];
        let z = (0..pair[1]).map(|j| bias[j] + dot(&weight[j * pair[0]..][..pair[0]], &x));
        x = z.map(|z| if l == 2 { z } else { z.tanh() }).collect();
    }
    x
}

/// mean exp(log π − log π_old)·A and mean KL(old ‖ new).
fn plain(case: &Case, old: &[f64], new: &[f64]) -> (f64, f64) {
    let (rows, width) = case.act.dim();
    let (mut surrogate, mut kl) = (0.0, 0.0);
    let (was_log, is_log) = (&old[old.len() - width..], &new[new.len() - width..]);
    for row in 0..rows {
        let (was, is) = (mean(case, old, row), mean(case, new, row));
        let mut log_ratio = 0.0;
        for j in 0..width {
            let a = f64::from(case.act[[row, j]]);
            let (so, sn) = (was_log[j].exp(), is_log[j].exp());
            let density = |m: f64, s: f64| -0.5 * ((a - m) / s).powi(2) - s.ln();
            log_ratio += density(is[j], sn) - density(was[j], so);
            // As MOReL's own code writes it, without its 1e-8.
            kl += ((was[j] - is[j]).powi(2) + so * so - sn * sn) / (2.0 * sn * sn) + sn.ln() - so.ln();
        }
        surrogate += log_ratio.exp() * f64::from(case.advantage[row]);
    }
    (surrogate / rows as f64, kl / rows as f64)
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

fn along(theta: &[f64], v: &[f64], step: f64) -> Vec<f64> {
    theta.iter().zip(v).map(|(t, v)| t + step * v).collect()
}

fn unit(n: usize, i: usize) -> Vec<f64> {
    (0..n).map(|k| f64::from(u8::from(k == i))).collect()
}

#[test]
fn the_gradient_equals_finite_differences_of_the_surrogate() {
    for act_dim in [3, 1] {
        let case = case(300, act_dim);
        let theta = wide(&case.policy.params());
        let pool = ThreadPool::new(2);
        let found = Surrogate::new(&case.policy, &pool, &case.obs, &case.act, &case.advantage).gradient();
        assert_eq!(found.len(), theta.len());
        for (i, found) in found.iter().enumerate() {
            let at = |step: f64| plain(&case, &theta, &along(&theta, &unit(theta.len(), i), step)).0;
            let numeric = (at(1e-5) - at(-1e-5)) / 2e-5;
            assert!((found - numeric).abs() < 2e-5 * (1.0 + numeric.abs()), "{i}: {found} against {numeric}");
        }
    }
}

#[test]
fn the_fisher_product_equals_the_kl_divergences_curvature() {
    for act_dim in [3, 1] {
        let case = case(300, act_dim);
        let theta = wide(&case.policy.params());
        let (pool, mut rng) = (ThreadPool::new(2), Rng::stream(0, "v", 0));
        let mut surrogate = Surrogate::new(&case.policy, &pool, &case.obs, &case.act, &case.advantage);
        let random: Vec<f64> = (0..theta.len()).map(|_| rng.normal()).collect();
        let product = surrogate.fisher(&random);
        for i in (0..theta.len()).step_by(7).chain(theta.len() - act_dim..theta.len()) {
            // ∂²KL along (e_i, v), by the four corners of a small square.
            let (e, h) = (unit(theta.len(), i), 1e-3);
            let at = |a: f64, b: f64| plain(&case, &theta, &along(&along(&theta, &e, a), &random, b)).1;
            let numeric = (at(h, h) - at(h, -h) - at(-h, h) + at(-h, -h)) / (4.0 * h * h);
            assert!(
                (product[i] - numeric).abs() < 2e-3 * (1.0 + numeric.abs()),
                "{i}: {} {numeric}",
                product[i]
            );
        }
        let other: Vec<f64> = (0..theta.len()).map(|_| rng.normal()).collect();
        let (a, b) = (dot(&product, &other), dot(&surrogate.fisher(&other), &random));
        assert!((a - b).abs() < 1e-4 * (1.0 + a.abs()), "symmetric: {a} {b}");
    }
}

#[test]
fn an_update_is_the_dense_natural_gradient_and_its_figures_are_those_of_the_formulas() {
    let (case, pool) = (case(500, 2), ThreadPool::new(2));
    let cfg = NpgConfig { cg_iterations: 400, damping: 1e-2, log_std_range: [-3.0, 3.0], ..cfg() };
    let mut old = case.policy.clone();
    old.set_params(&case.policy.params());
    let theta = wide(&old.params());
    let n = theta.len();
    let mut surrogate = Surrogate::new(&old, &pool, &case.obs, &case.act, &case.advantage);
    let gradient = surrogate.gradient();
    let columns: Vec<Vec<f64>> = (0..n).map(|i| surrogate.fisher(&unit(n, i))).collect();
    let mut new = old.clone();
    let found = npg_step(&cfg, &mut new, &pool, &case.obs, &case.act, &case.advantage).unwrap();
    // (F + damping)·(θ' − θ) / step = g, with F column by column.
    let moved: Vec<f64> = wide(&new.params()).iter().zip(&theta).map(|(a, b)| (a - b) / found.step).collect();
    let size = dot(&gradient, &gradient).sqrt();
    assert!((found.gradient - size).abs() < 1e-9);
    for i in 0..n {
        let image: f64 = (0..n).map(|k| columns[k][i] * moved[k]).sum::<f64>() + cfg.damping * moved[i];
        assert!((image - gradient[i]).abs() < 1e-3 * size, "{i}: {image} against {}", gradient[i]);
    }
    let (surrogate, kl) = plain(&case, &theta, &wide(&new.params()));
    let before = case.advantage.iter().map(|&a| f64::from(a)).sum::<f64>() / 500.0;
    assert!((found.surrogate - (surrogate - before)).abs() < 1e-5, "{found:?} {surrogate} {before}");
    assert!((found.kl - kl).abs() < 1e-6 && kl > 0.003 && kl < 0.02, "{found:?} {kl}");
    assert!(found.surrogate > 0.0);
}

#[test]
fn threads_do_not_change_a_bit() {
    let case = case(1000, 3);
    let run = |threads: usize| {
        let (pool, mut policy) = (ThreadPool::new(threads), case.policy.clone());
        let found = npg_step(&cfg(), &mut policy, &pool, &case.obs, &case.act, &case.advantage).unwrap();
        let mut baseline = Baseline::new(
            &BaselineConfig::default(),
            Standardizer::of(&case.obs),
            &mut Rng::stream(0, "b", 0),
        );
        let time: Vec<u32> = (0..1000).map(|i| i % 40).collect();
        let mut rng = Rng::stream(0, "fit", 0);
        let error = baseline.fit(&pool, &case.obs, &time, &case.advantage, 96, &mut rng).unwrap();
        (found, policy.params(), error.to_bits(), baseline.save())
    };
    assert_eq!(run(1), run(2));
    assert_eq!(run(1), run(5));
}

#[test]
fn a_baseline_learns_returns_of_any_size_and_resumes_bit_for_bit() {
    let (rows, pool) = (2000, ThreadPool::new(2));
    let mut rng = Rng::stream(4, "rows", 0);
    let obs = Mat::from_shape_fn((rows, 3), |_| 5.0 + 2.0 * rng.normal() as f32);
    let time: Vec<u32> = (0..rows as u32).map(|i| i % 500).collect();
    let returns: Vec<f32> =
        (0..rows).map(|i| 3000.0 * (obs[[i, 0]] - 5.0) - 10.0 * time[i] as f32 + 4000.0).collect();
    let cfg = BaselineConfig::default();
    let mut baseline = Baseline::new(&cfg, Standardizer::of(&obs), &mut rng);
    assert!(baseline.values(&pool, &obs, &time).iter().all(|&v| v == 0.0), "nothing is known yet");
    let first = baseline.fit(&pool, &obs, &time, &returns, 256, &mut rng).unwrap();
    let mut last = first;
    for _ in 0..60 {
        last = baseline.fit(&pool, &obs, &time, &returns, 256, &mut rng).unwrap();
    }
    assert!(last < 0.01 && last < 0.1 * first, "{first} {last}");
    let values = baseline.values(&pool, &obs, &time);
    let off: f32 = values.iter().zip(&returns).map(|(v, r)| (v - r).abs()).sum::<f32>() / rows as f32;
    assert!(off < 700.0, "{off}");
    let mut again = Baseline::new(&cfg, Standardizer::of(&obs), &mut Rng::stream(9, "other", 0));
    again.load(&baseline.save()).unwrap();
    for b in [&mut baseline, &mut again] {
        b.fit(&pool, &obs, &time, &returns, 256, &mut Rng::stream(5, "go on", 0)).unwrap();
    }
    assert_eq!(baseline.save(), again.save());
}

#[test]
fn cloning_learns_the_data_and_the_written_policy_acts_like_the_trained_one() {
    let (rows, pool) = (3000, ThreadPool::new(2));
    let mut rng = Rng::stream(3, "rows", 0);
    let obs =
        Mat::from_shape_fn((rows, 3), |(_, j)| (10.0 * j as f64 + rng.normal() * (j + 1) as f64) as f32);
    let act = Mat::from_shape_fn((rows, 2), |(i, j)| (0.5 * (obs[[i, j]] - 10.0 * j as f32)).tanh());
    let data = Batch {
        next_obs: obs.clone(),
        obs,
        act,
        rew: ndarray::Array1::zeros(rows),
        done: ndarray::Array1::from_elem(rows, false),
    };
    let cfg = NpgConfig { clone_epochs: 60, ..NpgConfig::default() };
    let mut policy = GaussianPolicy::new(&cfg, Standardizer::of(&data.obs), 2, &mut rng);
    let kept = policy.log_std.clone();
    let mut ticks = 0;
    let mut tick = || {
        ticks += 1;
        Ok(())
    };
    let loss = clone_behaviour(&cfg, &mut policy, &pool, &data, 256, &mut rng, &mut tick).unwrap();
    assert!(loss < 2e-3 && ticks == 60 * 12, "{loss} {ticks}");
    assert_eq!(policy.log_std, kept, "cloning leaves the noise alone");

    let bytes = policy.to_actor().unwrap().to_policy().to_bytes().unwrap();
    let plain = TanhGaussian::from_bytes(&bytes, std::path::Path::new("p")).unwrap();
    let actor = policy.to_actor().unwrap();
    let means = policy.sample(&pool, data.obs.view(), Noise::Zero);
    let (mut a, mut b) = ([0.0; 2], [0.0; 2]);
    for row in (0..rows).step_by(100) {
        let obs = data.obs.row(row).to_vec();
        Deterministic(&plain).act(&obs, &mut rng, &mut a);
        Deterministic(&actor).act(&obs, &mut rng, &mut b);
        for j in 0..2 {
            let want = means[[row, j]].clamp(-1.0, 1.0);
            assert!((a[j] - want).abs() < 1e-5 && (b[j] - want).abs() < 1e-5, "{a:?} {b:?} {want}");
        }
    }
    let mut other = GaussianPolicy::new(&cfg, Standardizer::of(&data.obs), 2, &mut rng);
    other.load(&policy.save()).unwrap();
    assert_eq!(other.params(), policy.params());
    let mut broken = data.clone();
    broken.act[[7, 0]] = f32::NAN;
    let error = clone_behaviour(&cfg, &mut other, &pool, &broken, 256, &mut rng, &mut || Ok(())).unwrap_err();
    assert!(error.to_string().contains("cloning loss became NaN"), "{error}");
}
