//! The agent's blocks against each other: fused against separate, threads, resume, and that it learns.

use super::*;
use crate::nn::{Field, Tensors};
use ndarray::Array2;

pub(super) fn batch(rows: usize, obs: usize, act: usize, seed: u64) -> Batch {
    let mut rng = Rng::stream(seed, "batch", 0);
    let mut mat =
        |cols: usize, scale: f64| Array2::from_shape_fn((rows, cols), |_| (scale * rng.normal()) as f32);
    let (obs, act, next_obs) = (mat(obs, 1.0), mat(act, 0.4).mapv(f32::tanh), mat(obs, 1.0));
    let rew = obs.column(0).to_owned() - act.column(0);
    let done = (0..rows).map(|i| i % 7 == 3).collect();
    Batch { obs, act, rew, next_obs, done }
}

pub(super) fn agent(threads: usize, cfg: &SacConfig) -> Sac {
    Sac::new(cfg, 5, 2, &ThreadPool::new(threads), &mut Rng::stream(4, "init", 0)).unwrap()
}

pub(super) fn small() -> SacConfig {
    SacConfig { hidden: vec![32, 20], critics: 3, ..SacConfig::default() }
}

fn normalised() -> SacConfig {
    SacConfig { actor_layer_norm: true, critic_layer_norm: true, ..small() }
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
    let run = |threads: usize, cfg: &SacConfig| {
        let mut agent = agent(threads, cfg);
        let mut rng = Rng::stream(0, "sac", 0);
        for step in 0..6 {
            agent.update(&batch(50, 5, 2, step), &mut rng).unwrap();
        }
        agent.save().to_bytes().unwrap()
    };
    for cfg in [small(), normalised()] {
        let one = run(1, &cfg);
        assert!([2, 3, 7].into_iter().all(|threads| one == run(threads, &cfg)));
    }
}

#[test]
fn a_resumed_agent_goes_on_bit_for_bit() {
    let actor_schedule = Schedule::Cosine { steps: Some(20), every: 2 };
    [small(), normalised()].into_iter().for_each(|cfg| resumes(&SacConfig { actor_schedule, ..cfg }));
}

fn resumes(cfg: &SacConfig) {
    let (mut straight, mut rng) = (agent(2, cfg), Rng::stream(0, "sac", 0));
    for step in 0..4 {
        straight.update(&batch(20, 5, 2, step), &mut rng).unwrap();
    }
    let kept = Tensors::from_bytes(&straight.save().to_bytes().unwrap()).unwrap();
    let mut resumed = Sac::new(cfg, 5, 2, &ThreadPool::new(1), &mut Rng::stream(99, "other", 0)).unwrap();
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

/// Groups of different sizes, more rows than one part holds.
#[test]
fn a_critic_step_by_group_is_the_general_step_whatever_the_threads() {
    let size = |group: usize| [1, 31, 4][group % 3];
    let (groups, first) = (130, |group: usize| (0..group).map(size).sum::<usize>());
    let rows = batch(first(groups), 5, 2, 0);
    let slope = |q: f32, row: usize| (q - rows.rew[row]) / rows.len() as f32;
    let mut all = agent(2, &small());
    all.critic_step_with(&rows.obs, &rows.act, |q, dq| {
        dq.indexed_iter_mut().for_each(|((j, row), dq)| *dq = slope(q[[j, row]], row));
        0.0
    });
    let mut by_group = [1, 2, 3].map(|threads| agent(threads, &small()));
    let found = by_group.each_mut().map(|agent| {
        agent.critic_step_by_group(
            groups,
            size,
            |group, i, pair| {
                let row = first(group) + i;
                let values = rows.obs.row(row).into_iter().chain(rows.act.row(row));
                pair.iter_mut().zip(values).for_each(|(to, x)| *to = *x);
            },
            |_, group, q, dq| {
                dq.iter_mut().enumerate().for_each(|(i, dq)| *dq = slope(q[i], first(group) + i));
                q.iter().map(|&q| f64::from(q)).sum::<f64>()
            },
        )
    });
    assert!(found[1..].iter().all(|other| *other == found[0]), "the same bits");
    assert!(by_group[1..].iter().all(|other| other.save() == by_group[0].save()), "the same bits");
    for (net, found) in found[0].iter().enumerate() {
        let before = agent(1, &small()).q_values(Weights::Current, rows.obs.view(), rows.act.view());
        for (group, found) in found.iter().enumerate() {
            let values = (first(group)..first(group + 1)).map(|row| f64::from(before[[net, row]]));
            assert!((values.sum::<f64>() - found).abs() < 1e-9);
        }
        for layer in 0..3 {
            // Adam's first moment is a tenth of the gradient.
            let [ours, theirs] = [&by_group[0], &all].map(|of| of.critics.get(net, layer, Field::First));
            let (ours, theirs) = (ours.0.iter().chain(&ours.1), theirs.0.iter().chain(&theirs.1));
            assert!(ours.zip(theirs).all(|(a, b)| (a - b).abs() < 1e-6 * (1e-2 + b.abs())));
        }
    }
}

/// mean (α log π − min_j Q_j), as a loss of terms.
fn soft_value(alpha: f64) -> impl Fn(&ActorTerms, &mut ActorTerms) -> f64 {
    move |out, gradient| {
        let rows = out.log_prob.len();
        gradient.log_prob.fill(alpha as f32 / rows as f32);
        let mut total = 0.0;
        for (row, q) in out.q.columns().into_iter().enumerate() {
            let smallest = (0..q.len()).min_by(|&a, &b| q[a].total_cmp(&q[b])).unwrap();
            gradient.q[[smallest, row]] = -1.0 / rows as f32;
            total += alpha * f64::from(out.log_prob[row]) - f64::from(q[smallest]);
        }
        total / rows as f64
    }
}

#[test]
fn a_general_actor_step_with_the_plain_loss_is_the_plain_step() {
    for (rows, cfg) in [(64, small()), (33, small()), (64, normalised())] {
        let (mut plain, mut general) = (agent(2, &cfg), agent(3, &cfg));
        for step in 0..3 {
            let batch = batch(rows, 5, 2, step);
            let wanted = plain.actor_step(&batch, Noise::Key(step)).actor;
            let alpha = general.alpha();
            let found = general.actor_step_with(&batch.obs, Noise::Key(step), soft_value(alpha));
            assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
        }
        if rows == 64 {
            assert_eq!(plain.save(), general.save(), "a power of two divides without rounding");
        }
        let (plain, general) = (plain.actor.net.flat(0), general.actor.net.flat(0));
        assert!(plain.iter().zip(&general).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}

/// Weight and bias of each layer, in f64.
pub(super) fn layers(nets: &MlpEnsemble, net: usize, field: Field) -> Vec<(Vec<f64>, Vec<f64>)> {
    let wide = |v: Vec<f32>| v.into_iter().map(f64::from).collect::<Vec<f64>>();
    let layer = |l: usize| nets.get(net, l, field);
    (0..nets.shape().layers()).map(|l| (wide(layer(l).0), wide(layer(l).1))).collect()
}

/// A ReLU network in f64, by the textbook.
pub(super) fn network(layers: &[(Vec<f64>, Vec<f64>)], layer_norm: bool, x: &[f64]) -> Vec<f64> {
    let mut x = x.to_vec();
    for (l, (weight, bias)) in layers.iter().enumerate() {
        let rows = weight.chunks_exact(x.len()).zip(bias);
        let mut z: Vec<f64> =
            rows.map(|(w, b)| b + w.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>()).collect();
        if l + 1 < layers.len() {
            if layer_norm {
                let mean = z.iter().sum::<f64>() / z.len() as f64;
                let variance = z.iter().map(|z| (z - mean).powi(2)).sum::<f64>() / z.len() as f64;
                z.iter_mut().for_each(|z| *z = (*z - mean) / (variance + 1e-5).sqrt());
            }
            z.iter_mut().for_each(|z| *z = z.max(0.0));
        }
        x = z;
    }
    x
}

#[test]
fn the_gradient_of_a_custom_actor_loss_equals_finite_differences() {
    [false, true].into_iter().for_each(check_actor_gradient);
}

fn check_actor_gradient(actor_layer_norm: bool) {
    let mut agent = agent(2, &SacConfig { hidden: vec![9, 7], actor_layer_norm, ..small() });
    let batch = batch(21, 5, 2, 3);
    let wide = |v: Vec<f32>| v.into_iter().map(f64::from).collect::<Vec<f64>>();
    let mut actor = layers(&agent.actor.net, 0, Field::Weight);
    let critics: Vec<_> = (0..3).map(|j| layers(&agent.critics, j, Field::Weight)).collect();
    let mut eps = vec![0.0; 42];
    Noise::Key(8).fill(0, 2, &mut eps);
    // −mean of all critics, 0.3 log π, and both actions' distance from the data's, with weights of their own.
    let plain = |actor: &[(Vec<f64>, Vec<f64>)]| {
        let row = |i: usize| {
            let obs = wide(batch.obs.row(i).to_vec());
            let out = network(actor, actor_layer_norm, &obs);
            let (mut pair, mut total) = (obs, 0.0);
            for j in 0..2 {
                let (mean, log_std, eps) = (out[j], out[2 + j].clamp(-5.0, 2.0), f64::from(eps[2 * i + j]));
                let z = mean + log_std.exp() * eps;
                let density = -0.5 * eps * eps - log_std - 0.5 * std::f64::consts::TAU.ln();
                let target = f64::from(batch.act[[i, j]]);
                total += 0.3 * (density - (1.0 - z.tanh().powi(2)).ln());
                total += 0.7 * (mean.tanh() - target).powi(2) + 0.4 * (z.tanh() - target).powi(2);
                pair.push(z.tanh());
            }
            total - critics.iter().map(|c| network(c, false, &pair)[0]).sum::<f64>() / 3.0
        };
        (0..21).map(row).sum::<f64>() / 21.0
    };
    let found = agent.actor_step_with(&batch.obs, Noise::Key(8), |out, gradient| {
        let square = |x: &Mat| x.mapv(|x| x * x).sum();
        gradient.q.fill(-1.0 / 63.0);
        gradient.log_prob.fill(0.3 / 21.0);
        let (sampled, mean) = (&out.act - &batch.act, &out.mean_act - &batch.act);
        (gradient.act, gradient.mean_act) = (0.8 / 21.0 * &sampled, 1.4 / 21.0 * &mean);
        let sum = 0.3 * out.log_prob.sum() + 0.7 * square(&mean) + 0.4 * square(&sampled);
        f64::from(sum / 21.0 - out.q.sum() / 63.0)
    });
    assert!((found - plain(&actor)).abs() < 1e-5, "{found} {}", plain(&actor));
    // After Adam's first step its first moment is a tenth of the gradient.
    let moments = layers(&agent.actor.net, 0, Field::First);
    for (l, (dw, db)) in moments.iter().enumerate() {
        for (i, d) in dw.iter().chain(db).enumerate() {
            let mut at = |step: f64| {
                let (w, b) = &mut actor[l];
                let kept = if i < dw.len() { &mut w[i] } else { &mut b[i - dw.len()] };
                *kept += step;
                plain(&actor)
            };
            let numeric = (at(1e-6) - at(-2e-6)) / 2e-6;
            at(1e-6);
            assert!((10.0 * d - numeric).abs() < 2e-5 * (1.0 + numeric.abs()), "{l} {i}: {d} {numeric}");
        }
    }
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
        let (mut weight, bias) = agent.critics.get(net, 0, Field::Weight);
        weight[3] = f32::NAN;
        agent.critics.set(net, 0, Field::Weight, &weight, &bias);
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

#[test]
fn a_random_pair_of_targets_is_the_smaller_of_two_and_changes_with_the_update() {
    let agent = |target_critics| {
        let cfg = SacConfig {
            hidden: vec![16, 16],
            critics: 5,
            target_critics,
            deterministic_backup: true,
            ..SacConfig::default()
        };
        Sac::new(&cfg, 3, 2, &ThreadPool::new(1), &mut Rng::stream(0, "init", 0)).unwrap()
    };
    let mut rng = Rng::stream(1, "batch", 0);
    let batch = Batch {
        obs: Mat::from_shape_fn((40, 3), |_| rng.normal() as f32),
        act: Mat::from_shape_fn((40, 2), |_| rng.range(-1.0, 1.0) as f32),
        rew: Array1::zeros(40),
        next_obs: Mat::from_shape_fn((40, 3), |_| rng.normal() as f32),
        done: Array1::from_elem(40, false),
    };
    let mut pair = agent(TargetCritics::RandomPair);
    let next = pair.actor.mean_batch(&ThreadPool::new(1), &batch.next_obs);
    let q = pair.q_values(Weights::Target, batch.next_obs.view(), next.view());
    let of_two =
        |a: usize, b: usize| -> Vec<f32> { (0..40).map(|i| 0.99 * q[[a, i]].min(q[[b, i]])).collect() };
    let mut seen = Vec::new();
    for update in 0..8 {
        pair.steps.critic = update;
        let y = pair.td_target(&batch, Noise::Zero).to_vec();
        let close = |other: &[f32]| y.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-5);
        let found = (0..5).flat_map(|a| (0..a).map(move |b| (a, b))).find(|&(a, b)| close(&of_two(a, b)));
        seen.push(found.expect("the target of some pair"));
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 2, "{seen:?}");
    let least = agent(TargetCritics::Min).td_target(&batch, Noise::Zero);
    assert!(least.iter().zip(pair.td_target(&batch, Noise::Zero)).all(|(least, y)| *least <= y));
}

#[test]
fn a_scaled_last_layer_scales_the_values_and_their_targets() {
    let values = |critic_output_scale| {
        let cfg = SacConfig { hidden: vec![16, 16], critic_output_scale, ..SacConfig::default() };
        let agent = Sac::new(&cfg, 3, 2, &ThreadPool::new(1), &mut Rng::stream(0, "init", 0)).unwrap();
        let (obs, act) = (Mat::ones((4, 3)), Mat::from_elem((4, 2), 0.3));
        [Weights::Current, Weights::Target].map(|which| agent.q_values(which, obs.view(), act.view()))
    };
    for (small, usual) in values(Some(0.01)).iter().zip(&values(None)) {
        assert!(small.iter().zip(usual).all(|(s, u)| (s - 0.01 * u).abs() < 1e-7 && *u != 0.0));
    }
}
