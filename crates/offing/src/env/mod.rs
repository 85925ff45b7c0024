//! What a simulator must offer.
//!
//! Simulators compute in f64, and their observations are f64; rows are cast to f32 once, where they are stored.

mod physics;
pub mod point_mass;
mod pool;
mod shape;
mod simulators;

pub use physics::Physics;
pub use pool::EnvPool;
pub use shape::{Outline, Shape};
pub use simulators::{GenerateOptions, Generated, Simulators};

use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Shapes and limits of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Task name, such as `hopper` or `antmaze-umaze`.
    pub task: String,
    /// Width of an observation.
    pub obs_dim: usize,
    /// Width of an action; every entry lies in [-1, 1].
    pub act_dim: usize,
    /// Steps after which an episode is cut off (a timeout, not a terminal).
    pub horizon: usize,
}

/// What one step brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// Reward r.
    pub reward: f64,
    /// The task itself ended: no return after this.
    pub terminated: bool,
    /// The time limit cut the episode: the return would go on.
    pub truncated: bool,
}

/// A simulator's own state: generalised positions and velocities, and the goal where the task has one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimState {
    /// Generalised positions.
    pub qpos: Vec<f64>,
    /// Generalised velocities.
    pub qvel: Vec<f64>,
    /// Goal position (AntMaze); empty elsewhere.
    pub goal: Vec<f64>,
}

/// How faithfully [`Env::resume_from`] could rebuild the state behind an observation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    /// Observation entries whose true value is hidden (Hopper and Walker2d clip velocities at ±10). Empty: exact,
    /// up to what the observation leaves out by design (the root's x).
    pub clipped: Vec<usize>,
}

/// A simulated task. One instance serves one thread; `Send` lets workers own one each.
pub trait Env: Send {
    /// Shapes and limits.
    fn spec(&self) -> &Spec;
    /// Starts an episode; everything random in it follows from `seed`.
    fn reset(&mut self, seed: u64);
    /// The current observation.
    fn obs(&self) -> &[f64];
    /// Applies one action for one control interval. Entries beyond ±1 reach the engine, whose actuators clamp them, and
    /// enter the control cost as they are, as in Gymnasium.
    fn step(&mut self, act: &[f32]) -> StepResult;
    /// The state the engine is in.
    fn state(&self) -> SimState;
    /// Puts the engine into exactly this state; the step count starts again at 0.
    fn set_state(&mut self, state: &SimState) -> Result<()>;
    /// Puts the engine into the state behind an observation, as far as the observation shows it.
    fn resume_from(&mut self, obs: &[f64]) -> Result<Resumed>;
    /// The solid parts of body and scene, always in the same order, as of the last reset, resume or [`Env::set_state`]; steps
    /// may leave them behind. Empty where there is nothing to draw.
    fn shapes(&self) -> Vec<Shape> {
        Vec::new()
    }
    /// Seconds that one action lasts, where the simulator has a clock.
    fn control_interval(&self) -> Option<f64> {
        None
    }
    /// Whether the engine lost a state to numbers too large to compute with since the last reset, resume or
    /// [`Env::set_state`]. MuJoCo then silently restarts from its initial state, so later observations say nothing
    /// about the state asked for.
    fn unstable(&self) -> bool {
        false
    }
}
