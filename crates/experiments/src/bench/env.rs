//! Simulator steps a second on one core, beside the bare engine on the same trajectories.

use anyhow::Result;
use offing::env::{Physics, Simulators};
use offing_mujoco::{TASKS, bench};

use super::Measurements;
use crate::Runtime;

/// Steps these tasks, or all.
///
/// # Errors
/// An unknown task, or no simulator.
pub fn bench_env(
    runtime: &Runtime,
    tasks: &[String],
    physics: Physics,
    steps: usize,
    samples: usize,
) -> Result<Measurements> {
    let mut measured = Measurements::new("env", 1);
    let all: Vec<String> = TASKS.iter().map(|t| (*t).to_string()).collect();
    for task in if tasks.is_empty() { &all } else { tasks } {
        runtime.mujoco.prepare(task, &mut |line| runtime.say(line))?;
        let rates = bench::rates(runtime.mujoco.engine(&mut |_| ())?, task, physics, samples, steps)?;
        for (env, bare) in rates.env.iter().zip(&rates.bare) {
            measured.add(task, "steps/s", *env);
            measured.add(&format!("{task}, bare mj_step"), "steps/s", *bare);
            measured.add(&format!("{task}, share of bare"), "ratio", env / bare);
        }
    }
    Ok(measured)
}
