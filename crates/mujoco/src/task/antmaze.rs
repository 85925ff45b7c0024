//! AntMaze as D4RL has it: an ant walks through a maze to a goal it does not see.
//!
//! The observation is all of `qpos` and `qvel`. The reward is 1 within half a metre of the goal, else 0.

use offing::env::{Env, Resumed, SimState, Spec, StepResult};
use offing::{Error, Result, Rng};

use super::{Bare, MujocoEnv, Task, known};
use crate::sim::Sim;
use crate::{Engine, Maze, Physics};

/// When a new goal is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goals {
    /// At every reset, as in D4RL's v2 environments.
    #[default]
    PerReset,
    /// At the first reset only, as in v0 and v1.
    PerEnv,
}

/// What D4RL varies between evaluation and the making of data.
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
#[derive(Debug)]
pub struct AntMaze {
    runner: MujocoEnv<Walk>,
}

/// An AntMaze with options; [`crate::make`] makes the one D4RL evaluates with.
pub fn antmaze(engine: &Engine, task: &str, physics: Physics, options: AntMazeOptions) -> Result<AntMaze> {
    known(task)?;
    let maze = Maze::of_task(task).ok_or_else(|| Error::Unknown {
        kind: "maze",
        name: task.into(),
        hint: "known: antmaze-umaze, antmaze-medium, antmaze-large".into(),
    })?;
    let mut walk = Walk { name: task.into(), maze, options, goal: [0.0; 2], drawn: false };
    // The model's own reset below must not use up the one draw of `Goals::PerEnv`.
    walk.goal = walk.maze.centre(walk.maze.goal_cell());
    let mut runner = MujocoEnv::new(engine, walk, physics)?;
    runner.task.drawn = false;
    Ok(AntMaze { runner })
}

impl AntMaze {
    /// The maze.
    pub fn maze(&self) -> &Maze {
        &self.runner.task.maze
    }

    /// Where the ant is.
    pub fn xy(&self) -> [f64; 2] {
        let obs = self.runner.obs();
        [obs[0], obs[1]]
    }

    /// The goal of this episode.
    pub fn goal(&self) -> [f64; 2] {
        self.runner.task.goal
    }

    /// Sets the goal of this episode and of all further ones under [`Goals::PerEnv`].
    pub fn aim_at(&mut self, goal: [f64; 2]) {
        self.runner.task.goal = goal;
        self.runner.task.drawn = true;
    }
}

impl Env for AntMaze {
    fn spec(&self) -> &Spec {
        self.runner.spec()
    }
    fn reset(&mut self, seed: u64) {
        self.runner.reset(seed);
    }
    fn obs(&self) -> &[f64] {
        self.runner.obs()
    }
    fn step(&mut self, act: &[f32]) -> StepResult {
        self.runner.step(act)
    }
    fn state(&self) -> SimState {
        self.runner.state()
    }
    fn set_state(&mut self, state: &SimState) -> Result<()> {
        self.runner.set_state(state)
    }
    fn resume_from(&mut self, obs: &[f64]) -> Result<Resumed> {
        self.runner.resume_from(obs)
    }
    fn unstable(&self) -> bool {
        self.runner.unstable()
    }
}

impl Bare for AntMaze {
    fn bare_step(&mut self, act: &[f32]) {
        self.runner.bare_step(act);
    }
}

#[derive(Debug)]
struct Walk {
    name: String,
    maze: Maze,
    options: AntMazeOptions,
    goal: [f64; 2],
    drawn: bool,
}

/// How near counts as there.
const REACH: f64 = 0.5;

impl Task for Walk {
    fn name(&self) -> &str {
        &self.name
    }

    fn obs_dim(&self) -> usize {
        29
    }

    fn frame_skip(&self) -> usize {
        5
    }

    fn horizon(&self) -> usize {
        if self.name == "antmaze-umaze" { 700 } else { 1000 }
    }

    fn start(&mut self, qpos: &mut [f64], qvel: &mut [f64], rng: &mut Rng) {
        if self.options.goals == Goals::PerReset || !self.drawn {
            self.goal = self.maze.goal_in(self.maze.goal_cell(), rng);
            self.drawn = true;
        }
        qpos.iter_mut().for_each(|q| *q += rng.range(-0.1, 0.1));
        qvel.iter_mut().for_each(|v| *v += 0.1 * rng.normal());
        if self.options.start_anywhere {
            qpos[..2].copy_from_slice(&self.maze.start_anywhere(rng));
        }
    }

    fn position(&self, _: &Sim) -> f64 {
        0.0
    }

    fn observe(&self, sim: &Sim, obs: &mut [f64]) {
        super::observe(sim, 0, f64::INFINITY, obs);
    }

    fn judge(&self, sim: &Sim, _: &[f32], _: f64) -> (f64, bool) {
        let there = (sim.qpos()[0] - self.goal[0]).hypot(sim.qpos()[1] - self.goal[1]) <= REACH;
        (f64::from(u8::from(there)), there && self.options.end_at_goal)
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
