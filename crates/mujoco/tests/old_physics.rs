//! D4RL's physics stays what it was when `examples/record.rs` wrote `recordings/d4rl-v2.json` (a run of our own; at that
//! time real gym-v2 transitions were met to 5e-7, the rounding of their f32).

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

fn recording() -> BTreeMap<String, Vec<Row>> {
    serde_json::from_str(include_str!("recordings/d4rl-v2.json")).unwrap()
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
    assert_eq!(recording.len(), 5);
    for (task, rows) in &recording {
        assert_eq!(rows.len(), 24, "{task}");
        let worst = worst(task, rows, Physics::D4rlV2);
        assert!(worst <= 1e-9, "{task}: {worst}");
    }
}

#[test]
fn todays_physics_is_another() {
    for (task, rows) in &recording() {
        let worst = worst(task, rows, Physics::GymnasiumV4);
        assert!(worst >= 1e-3, "{task}: the recording does not tell the two apart ({worst})");
    }
}
