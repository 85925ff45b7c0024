//! The agent's parts: threads, resume, its policy, and that it learns. Its numbers: tests/golden_td3_iql.rs.

use super::*;
use crate::batch::Mat;
use crate::nn::Noise;
use ndarray::{Array1, Array2};

fn batch(rows: usize, seed: u64) -> Batch {
    let mut rng = Rng::stream(seed, "batch", 0);
    let mut mat =
        |cols: usize, scale: f64| Array2::from_shape_fn((rows, cols), |_| (scale * rng.normal()) as f32);
    let (obs, act, next_obs) = (mat(5, 1.0), mat(2, 0.4).mapv(f32::tanh), mat(5, 1.0));
    let rew = obs.column(0).to_owned() - act.column(0);
    let done = (0..rows).map(|i| i % 7 == 3).collect();
    Batch { obs, act, rew, next_obs, done }
}

fn agent(threads: usize) -> Iql {
    let cfg = IqlConfig { hidden: vec![32, 20], ..IqlConfig::default() }.over(20);
    Iql::new(&cfg, 5, 2, &ThreadPool::new(threads), &mut Rng::stream(4, "init", 0)).unwrap()
}

#[test]
fn threads_do_not_change_a_bit() {
    let run = |threads: usize| {
        let mut agent = agent(threads);
        let losses: Vec<_> = (0..6).map(|i| agent.update(&batch(50, i)).unwrap()).collect();
        (losses, agent.save().to_bytes().unwrap())
    };
    let one = run(1);
    assert!(one == run(2) && one == run(3) && one == run(7));
}

#[test]
fn a_resumed_agent_goes_on_bit_for_bit() {
    let mut straight = agent(2);
    for step in 0..3 {
        straight.update(&batch(20, step)).unwrap();
    }
    let kept = Tensors::from_bytes(&straight.save().to_bytes().unwrap()).unwrap();
    let mut resumed = agent(1);
    resumed.load(&kept).unwrap();
    for step in 3..8 {
        assert_eq!(straight.update(&batch(20, step)).unwrap(), resumed.update(&batch(20, step)).unwrap());
    }
    assert_eq!(straight.save(), resumed.save());
    let cfg = IqlConfig::default().over(20);
    let mut other = Iql::new(&cfg, 5, 2, &ThreadPool::new(1), &mut Rng::stream(0, "i", 0)).unwrap();
    assert!(other.load(&kept).unwrap_err().to_string().contains("another configuration"));
}

#[test]
fn the_value_is_the_expectile_of_its_samples() {
    // One state, no next state, rewards 0 and 1 in equal shares for two actions: Q learns them, V their expectile.
    // The τ-expectile of a fair coin is τ.
    for expectile in [0.5, 0.7, 0.9] {
        let cfg = IqlConfig { hidden: vec![32], expectile, tau: 0.1, ..IqlConfig::default() };
        let cfg = IqlConfig { critic_lr: 3e-3, value_lr: 3e-3, ..cfg }.over(2000);
        let mut agent = Iql::new(&cfg, 1, 1, &ThreadPool::new(1), &mut Rng::stream(0, "init", 0)).unwrap();
        let act = Mat::from_shape_fn((32, 1), |(i, _)| if i % 2 == 0 { -0.8 } else { 0.8 });
        let rew = act.column(0).mapv(|a| if a > 0.0 { 1.0 } else { 0.0 });
        let obs = Mat::ones((32, 1));
        let batch = Batch { next_obs: obs.clone(), done: Array1::from_elem(32, true), obs, act, rew };
        let v = (0..2000).map(|_| agent.update(&batch).unwrap().v).last().unwrap();
        assert!((v - expectile).abs() < 0.02, "expectile {expectile}: {v}");
    }
}

#[test]
fn it_prefers_the_better_of_two_logged_actions_and_learns_how_sure_it_is() {
    // Actions ±0.8 around noise; the better one has the state's sign.
    let cfg = IqlConfig { hidden: vec![64, 64], actor_lr: 1e-3, critic_lr: 1e-3, ..IqlConfig::default() };
    let cfg = IqlConfig { value_lr: 1e-3, beta: 5.0, actor_schedule: Schedule::Constant {}, ..cfg };
    let (pool, mut rng) = (ThreadPool::new(2), Rng::stream(0, "bandit", 0));
    let mut agent = Iql::new(&cfg, 1, 1, &pool, &mut Rng::stream(0, "init", 0)).unwrap();
    for _ in 0..2500 {
        let side = |rng: &mut Rng| if rng.uniform() < 0.5 { -1.0 } else { 1.0 };
        let obs = Mat::from_shape_fn((64, 1), |_| (side(&mut rng) * rng.range(0.3, 1.0)) as f32);
        let act = Mat::from_shape_fn((64, 1), |_| (0.8 * side(&mut rng) + 0.05 * rng.normal()) as f32);
        let rew = (0..64).map(|i| if obs[[i, 0]] * act[[i, 0]] > 0.0 { 1.0 } else { 0.0 }).collect();
        let batch = Batch { next_obs: obs.clone(), done: Array1::from_elem(64, true), obs, act, rew };
        agent.update(&batch).unwrap();
    }
    let (policy, obs) = (agent.policy(), Mat::from_shape_vec((4, 1), vec![-0.9, -0.5, 0.5, 0.9]).unwrap());
    for (s, a) in obs.iter().zip(&policy.mean_batch(&pool, &obs)) {
        assert!((a - 0.8 * s.signum()).abs() < 0.15, "state {s}: action {a}");
    }
    let log_std = agent.log_std[0].value;
    assert!(log_std < -0.8 && log_std > -3.5, "{log_std}");
}

#[test]
fn the_policy_has_the_same_noise_in_every_state() {
    let mut agent = agent(1);
    for step in 0..10 {
        agent.update(&batch(64, step)).unwrap();
    }
    agent.log_std[1].value = -1.0;
    let policy = agent.policy();
    let (pool, obs) = (ThreadPool::new(1), batch(100, 0).obs);
    assert_eq!(policy.mean_batch(&pool, &obs), agent.actor.mean_batch(&pool, &obs), "the actor's means");
    let eps = Mat::from_elem((100, 2), 0.5);
    let (acts, _) = policy.sample(&pool, obs.view(), Noise::Given(eps.view()));
    let means = policy.mean_batch(&pool, &obs);
    for (a, mean) in acts.column(1).iter().zip(means.column(1)) {
        assert!((a.atanh() - mean.atanh() - 0.5 * (-1f32).exp()).abs() < 1e-4, "{a} {mean}");
    }
}

#[test]
fn bad_batches_losses_and_settings_are_named() {
    let mut agent = agent(1);
    let mut wide = batch(10, 0);
    wide.act = Mat::zeros((10, 3));
    let error = agent.update(&wide).unwrap_err().to_string();
    assert!(error.contains("wanted 5 observation and 2 action columns"), "{error}");
    let mut poisoned = batch(10, 0);
    poisoned.rew[3] = f32::NAN;
    let error = agent.update(&poisoned).unwrap_err().to_string();
    assert!(error.contains("critics' loss became NaN at IQL update 1"), "{error}");
    let endless = Iql::new(&IqlConfig::default(), 5, 2, &ThreadPool::new(1), &mut Rng::stream(0, "i", 0));
    assert!(endless.unwrap_err().to_string().contains("IqlConfig::over"));
    IqlConfig::default().validate().unwrap();
    for (cfg, word) in [
        (IqlConfig { hidden: vec![1], ..IqlConfig::default() }, "iql.hidden"),
        (IqlConfig { expectile: 1.0, ..IqlConfig::default() }, "iql.expectile"),
        (IqlConfig { beta: f64::NAN, ..IqlConfig::default() }, "iql.beta"),
        (IqlConfig { max_weight: 0.0, ..IqlConfig::default() }, "iql.max_weight"),
        (IqlConfig { log_std: [2.0, -5.0], ..IqlConfig::default() }, "iql.log_std"),
        (IqlConfig { value_lr: -1.0, ..IqlConfig::default() }, "iql.value_lr"),
    ] {
        let error = cfg.validate().unwrap_err().to_string();
        assert!(error.starts_with(word), "{error}");
    }
}
