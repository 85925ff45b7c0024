//! The behaviour policy of AntMaze data: a goal-reaching ant that follows way-points through the maze.
//!
//! Its network takes (qpos[2..15], qvel[0..14], 10 · the unit vector to the next way-point). A breadth-first search on the
//! maze gives the way-points. `play` sets aim at the few cells that D4RL picked by hand and at the goal, `diverse` sets at
//! any cell, plain umaze at the goal. On reaching a target the ant heads for another, until the episode ends.

use offing::data::generate::{Behaviour, EpisodeBehaviour};
use offing::data::policy_set::LoadedPolicy;
use offing::env::Env;
use offing::policy::{Policy, TanhGaussian};
use offing::{Result, Rng};

use crate::Maze;

/// Way-points and targets count as reached at this distance.
const REACHED: f64 = 1.2;
/// Steps after which the ant plans its way anew: a push may have left it in another corridor.
const REPLAN: usize = 100;
/// Standard deviation of the noise D4RL adds to every action of its `noisy` sets.
const NOISE: f64 = 0.2;

/// The goal-reaching ant in one maze.
pub(crate) struct WaypointFollower<'a> {
    policy: &'a TanhGaussian,
    maze: Maze,
    targets: Targets,
}

enum Targets {
    Goal,
    Cells(Vec<(usize, usize)>),
}

impl<'a> WaypointFollower<'a> {
    pub(crate) fn new(policy: &'a LoadedPolicy, maze: Maze, flavour: &str) -> Result<Self> {
        policy.check_widths("a goal-reaching ant", (29, 8), "another file")?;
        let targets = match flavour {
            "" => Targets::Goal,
            "play" => {
                let goal = Some(maze.goal_cell()).filter(|goal| !maze.data_goal_cells().contains(goal));
                Targets::Cells(maze.data_goal_cells().iter().copied().chain(goal).collect())
            }
            _ => Targets::Cells(maze.open_cells()),
        };
        Ok(Self { policy: &policy.policy, maze, targets })
    }

    fn draw_target(&self, goal: [f64; 2], rng: &mut Rng) -> [f64; 2] {
        match &self.targets {
            Targets::Goal => goal,
            Targets::Cells(cells) => {
                let cell = cells[rng.below(cells.len())];
                if cell == self.maze.goal_cell() { goal } else { self.maze.goal_in(cell, rng) }
            }
        }
    }
}

impl Behaviour for WaypointFollower<'_> {
    fn begin<'a>(&'a self, env: &mut dyn Env, rng: &mut Rng) -> Result<Box<dyn EpisodeBehaviour + 'a>> {
        let state = env.state();
        let goal = [state.goal[0], state.goal[1]];
        let target = self.draw_target(goal, rng);
        Ok(Box::new(Walk { follower: self, goal, target, way: Vec::new(), since_plan: REPLAN }))
    }
}

/// One episode on the way to one target after the other.
struct Walk<'a> {
    follower: &'a WaypointFollower<'a>,
    goal: [f64; 2],
    target: [f64; 2],
    /// Way-points still ahead, the next one last.
    way: Vec<[f64; 2]>,
    since_plan: usize,
}

impl EpisodeBehaviour for Walk<'_> {
    fn act(&mut self, env: &dyn Env, rng: &mut Rng, act: &mut [f32]) {
        let obs = env.obs();
        let here = [obs[0], obs[1]];
        if distance(here, self.target) < REACHED && self.target != self.goal {
            self.target = self.follower.draw_target(self.goal, rng);
            self.since_plan = REPLAN;
        }
        if self.since_plan >= REPLAN {
            self.way = self.follower.maze.path(here, self.target);
            self.way.reverse();
            self.since_plan = 0;
        }
        self.since_plan += 1;
        while self.way.len() > 1 && self.way.last().is_some_and(|next| distance(here, *next) < REACHED) {
            self.way.pop();
        }
        let next = self.way.last().copied().unwrap_or(self.target);
        let length = distance(here, next).max(1e-6);
        let mut input: Vec<f32> = obs[2..].iter().map(|&o| o as f32).collect();
        input.extend([0, 1].map(|axis| (10.0 * (next[axis] - here[axis]) / length) as f32));
        self.follower.policy.act(&input, rng, act);
        for a in act {
            *a = (f64::from(*a) + NOISE * rng.normal()).clamp(-1.0, 1.0) as f32;
        }
    }
}

fn distance(a: [f64; 2], b: [f64; 2]) -> f64 {
    (a[0] - b[0]).hypot(a[1] - b[1])
}
