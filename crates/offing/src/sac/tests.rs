//! The agent's blocks against each other: fused against separate, threads, resume, and that it learns.

use super::*;
use ndarray::Array2;

fn batch(rows: usize, obs: usize, act: usize, seed: u64) -> Batch {
    let mut rng = Rng::stream(seed, "batch", 0);
    let mut mat =
        |cols: usize, scale: f64| Array2::from_shape_fn((rows, cols), |_| (scale * rng.normal()) as f32);
    let (obs, act, next_obs) = (mat(obs, 1.0), mat(act, 0.4).mapv(f32::tanh), mat(obs, 1.0));
    let rew = obs.column(0).to_owned() - act.column(0);
    let done = (0..rows).map(|i| i % 7 == 3).collect();
    Batch { obs, act, rew, next_obs, done }
}

fn agent(threads: usize, cfg: &SacConfig) -> Sac {
    Sac::new(cfg, 5, 2, &ThreadPool::new(threads), &mut Rng::stream(4, "init", 0)).unwrap()
}

fn small() -> SacConfig {
    SacConfig { hidden: vec![32, 20], critics: 3, ..SacConfig::default() }
}

#[test]
fn an_update_is_its_blocks_in_order() {
    for order in [Order::CriticFirst, Order::ActorFirst] {
        let cfg = SacConfig { order, ..small() };
        let (mut whole, mut blocks) = (agent(2, &cfg), agent(2, &cfg));
        for step in 0..5 {
            let batch = batch(33, 5, 2, step);
            let (next, current) = (Noise::Key(step), Noise::Key(step + 100));
            let losses = whole.update_with(&batch, next, current).unwrap();
            let critics = |agent: &mut Sac| {
                let y = agent.td_target(&batch, next);
                agent.critic_step(&batch, &y)
            };
            let actor = |agent: &mut Sac| {
                let losses = agent.actor_step(&batch, current);
                agent.temperature_step(-losses.entropy);
                losses
            };
            let (critic, actor) = match order {
                Order::CriticFirst => {
                    let critic = critics(&mut blocks);
                    (critic, actor(&mut blocks))
                }
                Order::ActorFirst => {
                    let actor = actor(&mut blocks);
                    (critics(&mut blocks), actor)
                }
            };
            blocks.sync_targets();
            assert_eq!((losses.critic, losses.actor), (critic, actor.actor));
            assert_eq!(whole.save(), blocks.save(), "after step {step}");
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let run = |threads: usize| {
        let mut agent = agent(threads, &small());
        let mut rng = Rng::stream(0, "sac", 0);
        for step in 0..6 {
            agent.update(&batch(50, 5, 2, step), &mut rng).unwrap();
        }
        agent.save().to_bytes().unwrap()
    };
    let one = run(1);
    assert!(one == run(2) && one == run(3) && one == run(7));
}

#[test]
fn a_resumed_agent_goes_on_bit_for_bit() {
    let cfg = SacConfig { actor_schedule: Schedule::Cosine { steps: Some(20), every: 2 }, ..small() };
    let (mut straight, mut rng) = (agent(2, &cfg), Rng::stream(0, "sac", 0));
    for step in 0..4 {
        straight.update(&batch(20, 5, 2, step), &mut rng).unwrap();
    }
    let kept = Tensors::from_bytes(&straight.save().to_bytes().unwrap()).unwrap();
    let mut resumed = Sac::new(&cfg, 5, 2, &ThreadPool::new(1), &mut Rng::stream(99, "other", 0)).unwrap();
    resumed.load(&kept).unwrap();
    let mut rng_too = rng.clone();
    for step in 4..8 {
        straight.update(&batch(20, 5, 2, step), &mut rng).unwrap();
        resumed.update(&batch(20, 5, 2, step), &mut rng_too).unwrap();
    }
    assert_eq!(straight.save(), resumed.save());
    let wrong = Sac::new(&SacConfig::default(), 5, 2, &ThreadPool::new(1), &mut Rng::stream(0, "i", 0))
        .unwrap()
        .load(&kept);
    assert!(wrong.unwrap_err().to_string().contains("another configuration"));
}

#[test]
fn a_general_critic_step_with_the_plain_loss_is_the_plain_step() {
    let (mut plain, mut general) = (agent(2, &small()), agent(3, &small()));
    let batch = batch(24, 5, 2, 0);
    let y = plain.td_target(&batch, Noise::Key(1));
    let a = plain.critic_step(&batch, &y);
    let b = general.critic_step_with(&batch.obs, &batch.act, |q, dq| {
        for (dq, q) in dq.rows_mut().into_iter().zip(q.rows()) {
            ndarray::Zip::from(dq).and(q).and(&y).for_each(|dq, q, y| *dq = 2.0 / 24.0 * (q - y));
        }
        let errors = q.rows().into_iter().flat_map(|q| (&q - &y).to_vec());
        errors.map(|e| f64::from(e).powi(2)).sum::<f64>() / (24 * 3) as f64
    });
    assert_eq!(plain.save(), general.save());
    assert!((a - b).abs() < 1e-12 * a);
    assert_eq!(
        plain.q_values(Weights::Current, batch.obs.view(), batch.act.view()),
        general.q_values(Weights::Current, batch.obs.view(), batch.act.view())
    );
}

#[test]
fn it_learns_the_best_action_of_a_bandit() {
    // Reward 1 − (a − 0.5·s)²: the best action is half the state.
    let cfg = SacConfig {
        hidden: vec![64, 64],
        alpha: Alpha::Fixed { value: 0.01 },
        actor_lr: 1e-3,
        critic_lr: 1e-3,
        ..SacConfig::default()
    };
    let mut agent = Sac::new(&cfg, 1, 1, &ThreadPool::new(2), &mut Rng::stream(0, "init", 0)).unwrap();
    let mut rng = Rng::stream(0, "bandit", 0);
    for _ in 0..1500 {
        let obs = Mat::from_shape_fn((64, 1), |_| rng.range(-1.0, 1.0) as f32);
        let act = Mat::from_shape_fn((64, 1), |_| rng.range(-1.0, 1.0) as f32);
        let rew = (0..64).map(|i| 1.0 - (act[[i, 0]] - 0.5 * obs[[i, 0]]).powi(2)).collect();
        let batch = Batch { next_obs: obs.clone(), done: Array1::from_elem(64, true), obs, act, rew };
        agent.update(&batch, &mut rng).unwrap();
    }
    let obs = Mat::from_shape_fn((9, 1), |(i, _)| i as f32 / 4.0 - 1.0);
    let act = agent.actor.mean_batch(&ThreadPool::new(1), &obs);
    for (s, a) in obs.iter().zip(&act) {
        assert!((a - 0.5 * s).abs() < 0.1, "state {s}: action {a}");
    }
}

#[test]
fn bad_batches_are_named_and_nothing_turns_into_nan_silently() {
    let mut agent = agent(2, &small());
    let mut rng = Rng::stream(0, "sac", 0);
    let wrong = agent.update(&batch(10, 4, 2, 0), &mut rng).unwrap_err().to_string();
    assert!(wrong.contains("wanted rows with 5 observations"), "{wrong}");
    let mut uneven = batch(10, 5, 2, 0);
    uneven.done = Array1::from_elem(9, false);
    let wrong = agent.update(&uneven, &mut rng).unwrap_err().to_string();
    assert!(wrong.contains("[10, 10, 10, 9]"), "{wrong}");
    type Poison = (fn(&mut Batch), &'static str);
    let poison: [Poison; 5] = [
        (|b| b.rew[3] = f32::NAN, "NaN in `rew` at row 3, column 0, before SAC update 2"),
        (|b| b.obs[[1, 2]] = f32::NAN, "NaN in `obs` at row 1, column 2"),
        (|b| b.next_obs[[9, 0]] = f32::INFINITY, "inf in `next_obs` at row 9, column 0"),
        (|b| b.act[[4, 1]] = f32::NEG_INFINITY, "-inf in `act` at row 4, column 1"),
        // Finite, but its square overflows f32.
        (|b| b.rew[0] = 1e30, "critics' loss became"),
    ];
    for (poison, words) in poison {
        let mut agent = self::agent(2, &small());
        agent.update(&batch(10, 5, 2, 1), &mut rng).unwrap();
        let mut poisoned = batch(10, 5, 2, 0);
        poison(&mut poisoned);
        let wrong = agent.update(&poisoned, &mut rng).unwrap_err().to_string();
        assert!(wrong.contains(words) && wrong.contains("SAC update 2"), "{wrong}");
    }
}

#[test]
fn a_weight_that_is_not_finite_does_not_hide_behind_an_activation() {
    for net in 0..3 {
        let mut agent = agent(1, &small());
        let (mut weight, bias) = agent.critics.get(net, 0, crate::nn::Field::Weight);
        weight[3] = f32::NAN;
        agent.critics.set(net, 0, crate::nn::Field::Weight, &weight, &bias);
        let wrong = agent.update(&batch(10, 5, 2, 0), &mut Rng::stream(0, "sac", 0)).unwrap_err().to_string();
        assert!(wrong.contains("critics' loss became NaN"), "{wrong}");
    }
}

#[test]
fn columns_that_never_change_do_no_harm() {
    let mut agent = agent(1, &small());
    let mut rng = Rng::stream(0, "sac", 0);
    for step in 0..20 {
        let mut batch = batch(16, 5, 2, step);
        batch.obs.column_mut(2).fill(7.0);
        batch.next_obs.column_mut(2).fill(7.0);
        batch.act.column_mut(1).fill(0.0);
        let losses = agent.update(&batch, &mut rng).unwrap();
        assert!(losses.critic < 100.0, "{losses:?}");
    }
}

use crate::nn::Tensors;
