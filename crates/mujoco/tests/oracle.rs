//! The simulator as a dynamics model: equal to stepping it, and honest about states it cannot rebuild.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod engine;

use offing::dynamics::{DynamicsModel, Members, Oracle};
use offing::env::{Env, EnvPool};
use offing::{Mat, Rng};
use offing_mujoco::{Physics, make};

fn hopper() -> offing::Result<Box<dyn Env>> {
    make(engine::shared(), "hopper", Physics::default())
}

/// What happened, in f32.
struct Row {
    obs: Vec<f32>,
    act: Vec<f32>,
    next: Vec<f32>,
    rew: f32,
    done: bool,
}

#[test]
fn a_step_of_the_oracle_is_a_step_of_the_environment() {
    let mut env = hopper().unwrap();
    let (width, mut rng) = (env.spec().obs_dim, Rng::stream(0, "acts", 0));
    let mut rows: Vec<Row> = Vec::new();
    for episode in 0.. {
        env.reset(episode);
        loop {
            let obs: Vec<f32> = env.obs().iter().map(|&v| v as f32).collect();
            let act: Vec<f32> = (0..3).map(|_| rng.range(-1.0, 1.0) as f32).collect();
            // Rows are stored in f32, so that is the state both must start from.
            let state = env.state();
            env.resume_from(&obs.iter().map(|&v| f64::from(v)).collect::<Vec<_>>()).unwrap();
            let result = env.step(&act);
            let next = env.obs().iter().map(|&v| v as f32).collect();
            let (rew, done) = (result.reward as f32, result.terminated);
            rows.push(Row { obs, act: act.clone(), next, rew, done });
            env.set_state(&state).unwrap();
            if env.step(&act).terminated || rows.len() == 300 {
                break;
            }
        }
        if rows.len() == 300 {
            break;
        }
    }
    let flat = |pick: &dyn Fn(usize) -> Vec<f32>| (0..300).flat_map(pick).collect::<Vec<f32>>();
    let obs = Mat::from_shape_vec((300, width), flat(&|i| rows[i].obs.clone())).unwrap();
    let act = Mat::from_shape_vec((300, 3), flat(&|i| rows[i].act.clone())).unwrap();

    let oracle = Oracle::new(EnvPool::new(hopper)).unwrap();
    let replay = oracle.replay(&obs, &act).unwrap();
    let clipped: Vec<usize> =
        (0..300).filter(|&i| rows[i].obs[5..].iter().any(|v| v.abs() >= 10.0)).collect();
    assert_eq!(replay.lost.clipped, clipped);
    assert!(clipped.len() < 150 && replay.lost.unstable.is_empty() && replay.lost.unreadable.is_empty());
    let mut ends = 0;
    for (i, row) in rows.iter().enumerate() {
        // The engine's solver starts from the last forces, so equal states agree to its tolerance, not to the bit.
        let found = replay.batch.next_obs.row(i).to_vec();
        let far = found.iter().zip(&row.next).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 1e-5, "row {i}: {far}");
        assert!((replay.batch.rew[i] - row.rew).abs() < 1e-5, "row {i}");
        assert_eq!(replay.batch.done[i], row.done, "row {i}");
        ends += usize::from(row.done);
    }
    assert!(ends > 3, "episodes of random actions end soon");
    assert_eq!(oracle.counts().clipped, clipped.len());
}

#[test]
fn hidden_velocities_and_lost_states_are_marked() {
    let oracle = Oracle::new(EnvPool::new(hopper)).unwrap();
    let mut env = hopper().unwrap();
    env.reset(0);
    let still: Vec<f32> = env.obs().iter().map(|&v| v as f32).collect();
    let mut obs = Mat::from_shape_fn((4, 11), |(_, j)| still[j]);
    obs[[1, 8]] = 10.0;
    obs[[2, 0]] = f32::NAN;
    obs[[3, 3]] = 1e30;
    let act = Mat::zeros((4, 3));
    let replay = oracle.replay(&obs, &act).unwrap();
    assert_eq!(replay.lost.clipped, [1]);
    assert_eq!(replay.lost.unreadable, [2]);
    assert_eq!(replay.lost.unstable, [3]);
    for row in [2, 3] {
        assert!(replay.batch.next_obs.row(row).iter().all(|v| v.is_nan()) && replay.batch.rew[row].is_nan());
    }
    let step = oracle.step(&obs, &act, Members::One, &mut Rng::stream(0, "x", 0));
    assert!(step.batch.next_obs.row(0).iter().all(|v| v.is_finite()) && step.prediction.is_none());
    assert_eq!(oracle.counts().rows, 8);
}
