//! AntMaze as D4RL has it: an ant walks through a maze to a goal it does not see.
//!
//! The observation is all of `qpos` and `qvel`. The reward is 1 within half a metre of the goal, else 0.

use offing::env::{Env, Physics};
use offing::{Error, Result, Rng};

use super::{Maze, MujocoEnv, Task, find, start_shaken};
use crate::Engine;
use crate::engine::Sim;

/// When a new goal is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goals {
    /// At every reset, as in D4RL's v2 environments.
    #[default]
    PerReset,
    /// At the first reset only, as in v0 and v1.
    PerEnv,
}

/// What D4RL varies between evaluation and the generation of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AntMazeOptions {
    /// When a new goal is drawn.
    pub goals: Goals,
    /// Start anywhere in the maze (the `diverse` and `play` data) rather than in the start cell (evaluation).
    pub start_anywhere: bool,
    /// End the episode at the goal (evaluation) or go on (data).
    pub end_at_goal: bool,
}

impl Default for AntMazeOptions {
    fn default() -> Self {
        Self { goals: Goals::default(), start_anywhere: false, end_at_goal: true }
    }
}

/// An ant in a maze.
pub type AntMaze = MujocoEnv<MazeWalk>;

/// The task of an [`AntMaze`]: where the goal is and when it changes.
#[derive(Debug)]
pub struct MazeWalk {
    maze: Maze,
    options: AntMazeOptions,
    goal: [f64; 2],
    drawn: bool,
}

/// An AntMaze with options; [`crate::make`] makes the one D4RL evaluates with.
pub fn antmaze(engine: &Engine, task: &str, physics: Physics, options: AntMazeOptions) -> Result<AntMaze> {
    let (simulated, spec) = find(task)?;
    let maze = simulated.maze.ok_or_else(|| Error::Unknown {
        kind: "maze",
        name: task.into(),
        hint: "known: antmaze-umaze, antmaze-medium, antmaze-large".into(),
    })?();
    let goal = maze.centre(maze.goal_cell());
    let mut env = MujocoEnv::new(engine, spec, physics, MazeWalk { maze, options, goal, drawn: false })?;
    // The model's own reset must not use up the one draw of `Goals::PerEnv`.
    env.task.drawn = false;
    Ok(env)
}

impl AntMaze {
    /// The maze.
    pub fn maze(&self) -> &Maze {
        &self.task.maze
    }

    /// Where the ant is.
    pub fn xy(&self) -> [f64; 2] {
        [self.obs()[0], self.obs()[1]]
    }

    /// The goal of this episode.
    pub fn goal(&self) -> [f64; 2] {
        self.task.goal
    }

    /// Sets the goal of this episode and of all further ones under [`Goals::PerEnv`].
    pub fn aim_at(&mut self, goal: [f64; 2]) {
        self.task.goal = goal;
        self.task.drawn = true;
    }
}

/// How near the goal counts as reached.
const REACH: f64 = 0.5;

impl Task for MazeWalk {
    fn frame_skip(&self) -> usize {
        5
    }

    fn start(&mut self, qpos: &mut [f64], qvel: &mut [f64], rng: &mut Rng) {
        if self.options.goals == Goals::PerReset || !self.drawn {
            self.goal = self.maze.goal_in(self.maze.goal_cell(), rng);
            self.drawn = true;
        }
        start_shaken(qpos, qvel, rng);
        if self.options.start_anywhere {
            qpos[..2].copy_from_slice(&self.maze.start_anywhere(rng));
        }
    }

    fn reward_and_done(&self, sim: &Sim, _: &[f32], _: f64) -> (f64, bool) {
        let reached = (sim.qpos()[0] - self.goal[0]).hypot(sim.qpos()[1] - self.goal[1]) <= REACH;
        (f64::from(u8::from(reached)), reached && self.options.end_at_goal)
    }

    fn hidden_positions(&self) -> usize {
        0
    }

    fn goal(&self) -> &[f64] {
        &self.goal
    }

    fn set_goal(&mut self, goal: &[f64]) -> bool {
        goal.try_into().map(|goal| self.goal = goal).is_ok()
    }
}
