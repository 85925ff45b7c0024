//! The old physics stay what they were when `examples/record.rs` wrote `recordings/old-physics.json` (a run of our own; at
//! that time `d4rl-v2` met genuine D4RL rows and `mujoco-1.50` real gym-v2 ones to 6e-7 in the median, the rounding of f32).

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod engine;

use std::collections::BTreeMap;

use offing_mujoco::{Physics, make};
use serde::Deserialize;

#[derive(Deserialize)]
struct Row {
    obs: Vec<f32>,
    act: Vec<f32>,
    next: Vec<f64>,
    reward: f64,
}

/// Rows under a physics and of a task.
fn recording() -> Vec<(Physics, String, Vec<Row>)> {
    let read: BTreeMap<String, Vec<Row>> =
        serde_json::from_str(include_str!("recordings/old-physics.json")).unwrap();
    read.into_iter()
        .map(|(name, rows)| {
            let (physics, task) = name.split_once(' ').unwrap();
            (physics.parse().unwrap(), task.to_string(), rows)
        })
        .collect()
}

/// Largest difference to the recorded next observations and rewards.
fn worst(task: &str, rows: &[Row], physics: Physics) -> f64 {
    let mut env = make(engine::shared(), task, physics).unwrap();
    let width = env.spec().obs_dim;
    let mut worst = 0.0f64;
    for row in rows {
        let obs: Vec<f64> = row.obs[..width].iter().map(|v| f64::from(*v)).collect();
        assert!(env.resume_from(&obs).unwrap().clipped.is_empty());
        let result = env.step(&row.act);
        let apart = env.obs().iter().zip(&row.next).map(|(a, b)| (a - b).abs());
        worst = apart.fold(worst, f64::max).max((result.reward - row.reward).abs());
    }
    worst
}

#[test]
fn replayed_rows_are_met() {
    let recording = recording();
    assert_eq!(recording.len(), 7);
    for (physics, task, rows) in &recording {
        assert_eq!(rows.len(), 24, "{task}");
        let worst = worst(task, rows, *physics);
        assert!(worst <= 1e-9, "{physics} {task}: {worst}");
    }
}

#[test]
fn todays_physics_is_another() {
    for (physics, task, rows) in &recording() {
        let worst = worst(task, rows, Physics::GymnasiumV4);
        assert!(worst >= 1e-3, "{physics} {task}: the recording does not tell the two apart ({worst})");
    }
}

#[test]
fn the_two_old_ones_differ_where_they_should() {
    for (physics, task, rows) in recording().iter().filter(|(physics, ..)| *physics == Physics::Mujoco150) {
        let worst = worst(task, rows, Physics::D4rlV2);
        assert!(worst >= 1e-5, "{physics} {task}: the recording does not tell the two apart ({worst})");
    }
    let ants =
        recording().into_iter().find(|(physics, task, _)| *physics == Physics::D4rlV2 && task == "ant");
    let (_, _, rows) = ants.unwrap();
    assert!(rows.iter().all(|row| row.next[27..].iter().all(|force| *force == 0.0)), "as in D4RL's files");
}
