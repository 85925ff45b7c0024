//! AntMaze as D4RL has it: an ant walks through a maze to a goal it does not see.
//!
//! The observation is all of `qpos` and `qvel`. The reward is 1 within half a metre of the goal, else 0; there the episode ends.
//! A goal is drawn at every reset, as in D4RL's v2 environments.

use offing::Rng;

use super::env::start_shaken;
use super::{Maze, Task};
use crate::engine::Sim;

/// The way to a goal.
pub(crate) struct MazeWalk {
    maze: Maze,
    /// Start anywhere in the maze (the `diverse` and `play` data) rather than in the start cell (evaluation).
    start_anywhere: bool,
    goal: [f64; 2],
}

impl MazeWalk {
    pub(super) fn boxed(maze: Maze, start_anywhere: bool) -> Box<dyn Task> {
        let goal = maze.centre(maze.goal_cell());
        Box::new(Self { maze, start_anywhere, goal })
    }
}

/// How near the goal counts as reached.
const REACH: f64 = 0.5;

impl Task for MazeWalk {
    fn start(&mut self, qpos: &mut [f64], qvel: &mut [f64], rng: &mut Rng) {
        self.goal = self.maze.goal_in(self.maze.goal_cell(), rng);
        start_shaken(qpos, qvel, rng);
        if self.start_anywhere {
            qpos[..2].copy_from_slice(&self.maze.start_anywhere(rng));
        }
    }

    fn reward_and_done(&self, sim: &Sim, _: &[f32], _: f64) -> (f64, bool) {
        let reached = (sim.qpos()[0] - self.goal[0]).hypot(sim.qpos()[1] - self.goal[1]) <= REACH;
        (f64::from(u8::from(reached)), reached)
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
