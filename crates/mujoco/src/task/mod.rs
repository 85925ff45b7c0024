//! The tasks: what is observed, rewarded and ended, one body a file.

mod ant;
mod antmaze;
mod halfcheetah;
mod hopper;
mod runner;
mod walker2d;

use offing::env::Env;
use offing::{Error, Result};

pub use antmaze::{AntMaze, AntMazeOptions, Goals, antmaze};
pub(crate) use runner::{Bare, MujocoEnv, Task};

use crate::fetch::{self, Wheel};
use crate::{Engine, Physics};

/// Every task [`make`] knows.
pub const TASKS: &[&str] =
    &["halfcheetah", "hopper", "walker2d", "ant", "antmaze-umaze", "antmaze-medium", "antmaze-large"];

/// A task by name. Envs of the same task and physics share one compiled model.
pub fn make(engine: &Engine, task: &str, physics: Physics) -> Result<Box<dyn Env>> {
    Ok(build(engine, task, physics)?)
}

/// [`make`], with the engine's bare step in reach.
pub(crate) fn build(engine: &Engine, task: &str, physics: Physics) -> Result<Box<dyn Bare>> {
    known(task)?;
    Ok(match task {
        "halfcheetah" => Box::new(MujocoEnv::new(engine, halfcheetah::HalfCheetah, physics)?),
        "hopper" => Box::new(MujocoEnv::new(engine, hopper::Hopper::new(physics), physics)?),
        "walker2d" => Box::new(MujocoEnv::new(engine, walker2d::Walker2d::new(physics), physics)?),
        "ant" => Box::new(MujocoEnv::new(engine, ant::Ant::new(physics), physics)?),
        maze => Box::new(antmaze(engine, maze, physics, AntMazeOptions::default())?),
    })
}

/// Refuses a name that is no task.
pub(crate) fn known(task: &str) -> Result<()> {
    if TASKS.contains(&task) {
        return Ok(());
    }
    Err(Error::Unknown { kind: "task", name: task.into(), hint: format!("known: {}", TASKS.join(", ")) })
}

/// The wheels a task's body comes from.
pub(crate) fn wheels(task: &str) -> &'static [Wheel] {
    if task.starts_with("antmaze") { &[fetch::D4RL] } else { &[fetch::GYMNASIUM] }
}

/// `weight` · Σ a², computed in f32 and in NumPy's order of summation, because Gymnasium does: its actions are f32.
pub(crate) fn control_cost(weight: f32, act: &[f32]) -> f64 {
    let mut squares = act.iter().map(|a| a * a);
    let sum = if act.len() == 8 {
        // NumPy adds eight numbers pairwise, fewer one after another.
        let s: [f32; 8] = std::array::from_fn(|_| squares.next().unwrap_or(0.0));
        ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
    } else {
        squares.fold(0.0, |sum, square| sum + square)
    };
    f64::from(weight * sum)
}

/// Positions without the first `skip`, then velocities within ±`limit`.
pub(crate) fn observe(sim: &crate::sim::Sim, skip: usize, limit: f64, obs: &mut [f64]) {
    let (positions, velocities) = obs.split_at_mut(sim.qpos().len() - skip);
    positions.copy_from_slice(&sim.qpos()[skip..]);
    for (o, v) in velocities.iter_mut().zip(sim.qvel()) {
        *o = v.clamp(-limit, limit);
    }
}
