//! Records transitions under the old physics for `tests/old_physics.rs`: `record > tests/recordings/old-physics.json`.
//!
//! Rows are drawn from episodes of smooth random actions; each next observation is what one step from the f32
//! observation leads to, as when a dataset is replayed.

use std::path::PathBuf;

use offing::Rng;
use offing::home::Home;
use offing_mujoco::{Engine, Physics, make};
use serde::Serialize;

const ROWS: usize = 24;

#[derive(Serialize)]
struct Row {
    obs: Vec<f32>,
    act: Vec<f32>,
    next: Vec<f64>,
    reward: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = Home::locate(std::env::var_os("OFFING_HOME").map(PathBuf::from))?;
    let engine = Engine::load(&home, None, &mut |line| eprintln!("{line}"))?;
    println!("{{");
    let bodies =
        ["halfcheetah", "hopper", "walker2d", "ant", "antmaze-umaze"].map(|task| (Physics::D4rlV2, task));
    let older = ["halfcheetah", "ant"].map(|task| (Physics::Mujoco150, task));
    let all = [&bodies[..], &older].concat();
    for (i, &(physics, task)) in all.iter().enumerate() {
        let rows = record(&engine, task, physics)?;
        let rows = rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        let comma = if i + 1 < all.len() { "," } else { "" };
        println!("\"{physics} {task}\": [\n{}\n]{comma}", rows.join(",\n"));
    }
    println!("}}");
    Ok(())
}

fn record(engine: &Engine, task: &str, physics: Physics) -> offing::Result<Vec<Row>> {
    let mut env = make(engine, task, physics)?;
    let mut probe = make(engine, task, physics)?;
    let mut rng = Rng::stream(0, task, 0);
    let mut act = vec![0.0f32; env.spec().act_dim];
    let mut rows = Vec::new();
    env.reset(0);
    let mut time = 0;
    while rows.len() < ROWS {
        for a in &mut act {
            *a = (0.8 * f64::from(*a) + 0.5 * rng.normal()).clamp(-1.0, 1.0) as f32;
        }
        if time % 5 == 3 {
            let obs: Vec<f32> = env.obs().iter().map(|v| *v as f32).collect();
            let resumed = probe.resume_from(&obs.iter().map(|v| f64::from(*v)).collect::<Vec<_>>())?;
            if resumed.clipped.is_empty() {
                let result = probe.step(&act);
                let (act, next) = (act.clone(), rounded(probe.obs()));
                rows.push(Row { obs, act, next, reward: result.reward });
            }
        }
        let result = env.step(&act);
        time += 1;
        if result.terminated || result.truncated {
            env.reset(time);
        }
    }
    Ok(rows)
}

/// Twelve decimals: a thousandth of what the test tolerates.
fn rounded(values: &[f64]) -> Vec<f64> {
    values.iter().map(|v| (v * 1e12).round() / 1e12).collect()
}
