//! Landfall's losses beside PyTorch's, and its parts alone. The other side: scripts/golden/landfall.py.

use ndarray::{Array1, Array2};

use super::config::RolloutConfig;
use super::dataset_constraint::{AdaptiveWeight, Constraint, NearestActions};
use super::landfall::*;
use super::model_based_sac::ModelBasedSacConfig;
use super::returns::Returns;
use super::tests::{behaviour_return, in_session, outcome, penalise, point_mass_data, small, train_by};
use crate::batch::{Batch, Mat};
use crate::nn::{Noise, Tensors, ThreadPool};
use crate::rng::Rng;
use crate::sac::{Alpha, Sac, SacConfig, Standardiser, TargetCritics};

const BATCH: usize = 16;

fn mat(from: &Tensors, name: &str, cols: usize) -> Mat {
    Array2::from_shape_vec((BATCH, cols), from.f32(name, &[BATCH, cols]).unwrap()).unwrap()
}

fn column(from: &Tensors, name: &str) -> Array1<f32> {
    from.f32(name, &[BATCH]).unwrap().into()
}

#[test]
fn a_step_of_critics_and_actor_equals_pytorch() {
    let golden = Tensors::from_bytes(include_bytes!("../../tests/golden/landfall.safetensors")).unwrap();
    let sac = SacConfig {
        hidden: vec![32, 20],
        critics: 3,
        critic_layer_norm: true,
        deterministic_backup: true,
        alpha: Alpha::Fixed { value: 0.0 },
        log_std: [-1.6, -1.6],
        ..SacConfig::default()
    };
    let cfg = LandfallConfig {
        actor_critics: ActorCritics::Mean,
        critic_loss: CriticLoss::Huber,
        ..LandfallConfig::default()
    };
    let given = golden.under("batch");
    let batch = Batch {
        obs: mat(&given, "obs", 7),
        act: mat(&given, "act", 3),
        rew: column(&given, "rew"),
        next_obs: mat(&given, "next_obs", 7),
        done: column(&given, "done").mapv(|d| d > 0.5),
    };
    let (eps, nearest) = (mat(&given, "eps", 3), mat(&given, "nearest", 3));
    for threads in [1, 2] {
        let mut agent =
            Sac::new(&sac, 7, 3, &ThreadPool::new(threads), &mut Rng::stream(0, "init", 0)).unwrap();
        agent.load(&golden.under("before")).unwrap();
        let y = agent.td_target(&batch, Noise::Given(eps.view()));
        let critic = cfg.critic_step(&mut agent, &batch, &y);
        agent.sync_targets();
        let actor = agent.actor_step_with(&batch.obs, Noise::Zero, |out, gradient| {
            cfg.actor_loss(out, &nearest, 2.5, gradient).loss
        });
        let wanted = golden.f32("losses", &[2]).unwrap();
        assert!((critic - f64::from(wanted[0])).abs() < 1e-5, "{critic} against {}", wanted[0]);
        assert!((actor - f64::from(wanted[1])).abs() < 1e-5, "{actor} against {}", wanted[1]);
        let (ours, theirs) = (agent.save(), golden.under("after"));
        for name in ours.names().filter(|name| !["steps", "log_alpha"].contains(name)) {
            let shape = ours.shape(name).unwrap();
            let values = |from: &Tensors| from.f32(name, shape).unwrap();
            let worst =
                values(&ours).iter().zip(values(&theirs)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst <= 1e-5, "{name} differs by {worst}");
        }
    }
}

#[test]
fn the_nearest_action_is_that_of_a_linear_scan() {
    let data = point_mass_data();
    let standardiser = Standardiser::of(&data.rows.obs);
    let nearest = NearestActions::new(&data.rows, &standardiser, 2.0, 2).unwrap();
    let mut all = data.rows.obs.clone();
    standardiser.apply(&mut all);
    let mut rng = Rng::stream(0, "queries", 0);
    let obs = Mat::from_shape_fn((20, 4), |_| rng.normal() as f32);
    let act = Mat::from_shape_fn((20, 2), |_| rng.range(-1.0, 1.0) as f32);
    let found = nearest.find(&obs, &act).unwrap();
    for i in 0..20 {
        let distance = |row: usize| {
            let state: f32 = (0..4).map(|j| (2.0 * (all[[row, j]] - obs[[i, j]])).powi(2)).sum();
            state + (0..2).map(|j| (data.rows.act[[row, j]] - act[[i, j]]).powi(2)).sum::<f32>()
        };
        let best = (0..all.nrows()).min_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap();
        assert_eq!(found.row(i), data.rows.act.row(best));
    }
}

#[test]
fn returns_are_discounted_sums_and_a_cut_episode_goes_on_at_its_mean_reward() {
    let mut data = point_mass_data();
    data.rows = data.rows.select(&(0..5).collect::<Vec<_>>());
    data.rows.rew = ndarray::arr1(&[1.0, 2.0, 3.0, 1.0, 3.0]);
    data.rows.done = ndarray::arr1(&[false, false, true, false, false]);
    data.episodes = vec![0..3, 3..5];
    let found = Returns::of(&data, 0.5);
    // The second episode was cut off: from then on 2 a step, which is worth 4.
    let wanted = [1.0 + 1.0 + 0.75, 3.5, 3.0, 1.0 + 0.5 * 5.0, 3.0 + 2.0];
    for (got, want) in found.values.iter().zip(wanted) {
        assert!((got / found.scale - want).abs() < 1e-5, "{got} against {want}");
    }
    let square = found.values.iter().map(|v| v * v).sum::<f32>() / 5.0;
    assert!((square.sqrt() - 100.0).abs() < 1e-3);
    assert!(
        (found.most / found.scale - 6.0).abs() < 1e-5 && found.least == 0.0,
        "3 a step for ever, or nothing"
    );
}

#[test]
fn the_weight_rises_within_the_spread_and_falls_beyond_it() {
    let cfg = Constraint { weight: 2.0, spread: Some(2.0), ..Constraint::default() };
    let mut weight = AdaptiveWeight::new(&cfg);
    (0..10).for_each(|_| weight.clone_took(0.1));
    assert!((weight.of_clone - 0.1).abs() < 1e-12);
    weight.adapt(0.1);
    assert!(weight.value() > 2.0);
    (0..3).for_each(|_| weight.adapt(0.3));
    assert!(weight.value() < 2.0);
    let mut fixed = AdaptiveWeight::new(&Constraint { spread: None, ..cfg });
    fixed.clone_took(0.1);
    fixed.adapt(0.3);
    assert_eq!(fixed.value(), 2.0);
}

fn landfall_config(steps: u64) -> LandfallConfig {
    let ModelBasedSacConfig { train, rollout, model, sac, .. } = small(penalise(), "sumo", steps);
    let rollout = RolloutConfig {
        starts: 20,
        length: 50,
        first_states: 0.5,
        one_member: true,
        buffer: Some(4000),
        ..rollout
    };
    let sac = SacConfig {
        critics: 3,
        critic_layer_norm: true,
        target_critics: TargetCritics::RandomPair,
        deterministic_backup: true,
        alpha: Alpha::Fixed { value: 0.0 },
        log_std: [-1.6, -1.6],
        actor_average: Some(0.01),
        ..sac
    };
    let warm_start = WarmStart { steps: steps / 4, ..WarmStart::default() };
    LandfallConfig { train, rollout, model, sac, warm_start, ..LandfallConfig::default() }
}

#[test]
fn landfall_beats_the_behaviour_policy_with_a_model_and_without() {
    let data = point_mass_data();
    let behaviour = behaviour_return(&data);
    let with = landfall_config(4000);
    let mut without = LandfallConfig { actor_critics: ActorCritics::Mean, ..with.clone() };
    without.rollout.real_ratio = 1.0;
    for (name, cfg) in [("with", with), ("without", without)] {
        let dir = tempfile::tempdir().unwrap();
        let returns = train_by(&cfg, &data, dir.path(), 2, u64::MAX);
        assert!(returns[3] > behaviour + 5.0, "{name} a model: {returns:?} against {behaviour}");
    }
}

#[test]
fn landfall_resumes_bit_for_bit_on_any_number_of_threads() {
    let (data, cfg) = (point_mass_data(), landfall_config(400));
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train_by(&cfg, &data, whole.path(), 1, u64::MAX);
    // In the warm start, in the middle of a block, and at the end of one.
    for stop_at in [40, 150, 200, u64::MAX] {
        train_by(&cfg, &data, parts.path(), 2, stop_at);
    }
    assert!(outcome(whole.path()) == outcome(parts.path()));
}

#[test]
fn the_asked_for_share_of_starts_are_first_states() {
    let (data, dir) = (point_mass_data(), tempfile::tempdir().unwrap());
    let starts = in_session(&data, (dir.path(), dir.path()), 1, u64::MAX, |session| {
        Ok(session.sample_starts_with_first(40, 0.25, &mut Rng::stream(0, "start", 0)))
    });
    let starts = starts.unwrap();
    let is_first = |row: usize| data.episodes.iter().any(|e| data.rows.obs.row(e.start) == starts.row(row));
    assert!((0..10).all(is_first) && !(10..40).all(is_first));
}
