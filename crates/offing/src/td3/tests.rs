//! The agent's parts: delay, threads, resume, and that it learns. Its numbers: tests/golden_td3_iql.rs.

use super::*;
use crate::batch::Mat;
use crate::nn::Field;
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

fn agent(threads: usize) -> Td3Bc {
    let cfg = Td3Config { hidden: vec![32, 20], ..Td3Config::default() };
    Td3Bc::new(&cfg, 5, 2, &ThreadPool::new(threads), &mut Rng::stream(4, "init", 0)).unwrap()
}

#[test]
fn the_actor_and_all_targets_move_in_every_second_update_only() {
    let (mut agent, mut rng) = (agent(1), Rng::stream(0, "td3", 0));
    let fields = |agent: &Td3Bc| {
        let of = |nets: &MlpEnsemble, field| nets.get(0, 1, field).0;
        (
            of(&agent.actor.net, Field::Weight),
            of(&agent.actor.net, Field::Target),
            of(&agent.critics, Field::Target),
            of(&agent.critics, Field::Weight),
        )
    };
    for update in 0..6 {
        let before = fields(&agent);
        let losses = agent.update(&batch(33, update), &mut rng).unwrap();
        let after = fields(&agent);
        let moves = update % 2 == 1;
        assert_eq!(losses.actor.is_some(), moves);
        assert_eq!(
            (before.0 != after.0, before.1 != after.1, before.2 != after.2, before.3 != after.3),
            (moves, moves, moves, true)
        );
    }
}

#[test]
fn the_policy_is_deterministic_but_for_a_small_constant_noise() {
    let (mut agent, mut rng) = (agent(1), Rng::stream(0, "td3", 0));
    for step in 0..10 {
        agent.update(&batch(64, step), &mut rng).unwrap();
    }
    let (pool, obs) = (ThreadPool::new(1), batch(500, 0).obs);
    let mean = agent.actor.mean_batch(&pool, &obs);
    let (sampled, _) = agent.actor.sample(&pool, obs.view(), Noise::Key(1));
    let off = (&sampled - &mean).mapv(|x| x * x).mean().unwrap().sqrt();
    assert!(off > 0.002 && off < 0.008, "{off}");
    let bytes = agent.actor.to_policy().to_bytes().unwrap();
    crate::policy::TanhGaussian::from_bytes(&bytes, std::path::Path::new("p")).unwrap();
}

#[test]
fn threads_do_not_change_a_bit() {
    let run = |threads: usize| {
        let (mut agent, mut rng) = (agent(threads), Rng::stream(0, "td3", 0));
        let losses: Vec<_> = (0..6).map(|i| agent.update(&batch(50, i), &mut rng).unwrap()).collect();
        (losses, agent.save().to_bytes().unwrap())
    };
    let one = run(1);
    assert!(one == run(2) && one == run(3) && one == run(7));
}

#[test]
fn a_resumed_agent_goes_on_bit_for_bit() {
    let (mut straight, mut rng) = (agent(2), Rng::stream(0, "td3", 0));
    for step in 0..3 {
        straight.update(&batch(20, step), &mut rng).unwrap();
    }
    let kept = Tensors::from_bytes(&straight.save().to_bytes().unwrap()).unwrap();
    let mut resumed = agent(1);
    resumed.load(&kept).unwrap();
    let mut rng_too = rng.clone();
    for step in 3..8 {
        let losses = straight.update(&batch(20, step), &mut rng).unwrap();
        assert_eq!(resumed.update(&batch(20, step), &mut rng_too).unwrap(), losses);
    }
    assert_eq!(straight.save(), resumed.save());
    let pool = ThreadPool::new(1);
    let mut other = Td3Bc::new(&Td3Config::default(), 5, 2, &pool, &mut Rng::stream(0, "i", 0)).unwrap();
    assert!(other.load(&kept).unwrap_err().to_string().contains("another configuration"));
}

#[test]
fn it_learns_the_best_action_of_a_bandit_and_without_q_the_logged_one() {
    // Reward 1 − (a − 0.5·s)²: the best action is half the state. Logged actions are 0 on average.
    for (alpha, slope, slack) in [(1000.0, 0.5, 0.1), (0.0, 0.0, 0.15)] {
        let cfg = Td3Config {
            hidden: vec![64, 64],
            alpha,
            actor_lr: 1e-3,
            critic_lr: 1e-3,
            ..Td3Config::default()
        };
        let (pool, mut rng) = (ThreadPool::new(2), Rng::stream(0, "bandit", 0));
        let mut agent = Td3Bc::new(&cfg, 1, 1, &pool, &mut Rng::stream(0, "init", 0)).unwrap();
        for _ in 0..2000 {
            let obs = Mat::from_shape_fn((64, 1), |_| rng.range(-1.0, 1.0) as f32);
            let act = Mat::from_shape_fn((64, 1), |_| rng.range(-1.0, 1.0) as f32);
            let rew = (0..64).map(|i| 1.0 - (act[[i, 0]] - 0.5 * obs[[i, 0]]).powi(2)).collect();
            let batch = Batch { next_obs: obs.clone(), done: Array1::from_elem(64, true), obs, act, rew };
            agent.update(&batch, &mut rng).unwrap();
        }
        let obs = Mat::from_shape_fn((9, 1), |(i, _)| i as f32 / 4.0 - 1.0);
        for (s, a) in obs.iter().zip(&agent.actor.mean_batch(&pool, &obs)) {
            assert!((a - slope * s).abs() < slack, "α {alpha}, state {s}: action {a}");
        }
    }
}

#[test]
fn bad_batches_losses_and_settings_are_named() {
    let (mut agent, mut rng) = (agent(1), Rng::stream(0, "td3", 0));
    let mut wide = batch(10, 0);
    wide.act = Mat::zeros((10, 3));
    let error = agent.update(&wide, &mut rng).unwrap_err().to_string();
    assert!(error.contains("wanted 5 observation and 2 action columns"), "{error}");
    let mut poisoned = batch(10, 0);
    poisoned.rew[3] = f32::NAN;
    let error = agent.update(&poisoned, &mut rng).unwrap_err().to_string();
    assert!(error.contains("critics' loss became NaN at TD3+BC update 1"), "{error}");
    Td3Config::default().validate().unwrap();
    for (cfg, word) in [
        (Td3Config { hidden: vec![1], ..Td3Config::default() }, "td3.hidden"),
        (Td3Config { alpha: -1.0, ..Td3Config::default() }, "td3.alpha"),
        (Td3Config { policy_delay: 0, ..Td3Config::default() }, "td3.policy_delay"),
        (Td3Config { noise_clip: f32::NAN, ..Td3Config::default() }, "td3.noise_clip"),
        (Td3Config { gamma: 1.5, ..Td3Config::default() }, "td3.gamma"),
        (Td3Config { critic_lr: 0.0, ..Td3Config::default() }, "td3.critic_lr"),
    ] {
        let error = cfg.validate().unwrap_err().to_string();
        assert!(error.starts_with(word), "{error}");
    }
}
