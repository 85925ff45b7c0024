//! The tasks: which body moves, what it observes, and what is rewarded.
//!
//! Shapes, time limits and names are in the library's table ([`offing::tasks`]). [`SIMULATED`] adds what only the
//! simulator needs. A new task is one entry in each and a [`Task`], which is its reward function.

mod ant;
mod antmaze;
mod env;
mod maze;
mod mjcf;
mod planar;

use std::path::PathBuf;
use std::sync::Arc;

use offing::env::{Env, Physics};
use offing::home::Home;
use offing::tasks::{TaskSpec, task_of};
use offing::{Error, Result};

use antmaze::MazeWalk;
pub(crate) use env::{MujocoEnv, Task};
pub use maze::Maze;

use crate::Engine;
use crate::engine::Model;
use crate::engine::fetch::{self, Wheel};

/// What the simulator needs to know of a task, besides its [`TaskSpec`] of the same name.
#[derive(Debug)]
pub(crate) struct Simulated {
    pub(crate) name: &'static str,
    /// The wheel that holds the body's description.
    wheel: &'static Wheel,
    /// The description's file under each physics, in the order of [`Physics::ALL`].
    bodies: [&'static str; Physics::ALL.len()],
    /// The maze around the body.
    maze: Option<fn() -> Maze>,
    /// Whether MuJoCo 1.50's physics needs contact forces from the middle of a step; see `mjcf`.
    early_contact_forces: bool,
    task: fn(Physics) -> Box<dyn Task>,
}

/// A body of Gymnasium's, the same under each physics.
const fn gymnasium(name: &'static str, body: &'static str, task: fn(Physics) -> Box<dyn Task>) -> Simulated {
    let (wheel, bodies) = (&fetch::GYMNASIUM, [body; Physics::ALL.len()]);
    Simulated { name, wheel, bodies, maze: None, early_contact_forces: false, task }
}

/// D4RL's ant in a maze.
const fn in_maze(name: &'static str, maze: fn() -> Maze, task: fn(Physics) -> Box<dyn Task>) -> Simulated {
    Simulated { wheel: &fetch::D4RL, maze: Some(maze), ..gymnasium(name, "ant.xml", task) }
}

/// Every simulated task.
const SIMULATED: &[Simulated] = &[
    gymnasium("halfcheetah", "half_cheetah.xml", |physics| Box::new(planar::HALFCHEETAH.under(physics))),
    gymnasium("hopper", "hopper.xml", |physics| Box::new(planar::HOPPER.under(physics))),
    Simulated {
        // v5 gave both feet the same friction; v4 kept the .9 and 1.9 of the body D4RL used.
        bodies: ["walker2d.xml", "walker2d.xml", "walker2d_v5.xml", "walker2d.xml"],
        ..gymnasium("walker2d", "walker2d.xml", |physics| Box::new(planar::WALKER2D.under(physics)))
    },
    Simulated {
        early_contact_forces: true,
        ..gymnasium("ant", "ant.xml", |physics| Box::new(ant::Ant { physics }))
    },
    in_maze("antmaze-umaze", Maze::umaze, |_| MazeWalk::boxed(Maze::umaze(), false)),
    in_maze("antmaze-medium", Maze::medium, |_| MazeWalk::boxed(Maze::medium(), false)),
    in_maze("antmaze-large", Maze::large, |_| MazeWalk::boxed(Maze::large(), false)),
];

/// The name of every task that [`make`] knows.
pub const TASKS: &[&str] = &{
    let mut names = [""; SIMULATED.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = SIMULATED[i].name;
        i += 1;
    }
    names
};

/// A task by name. Envs of the same task and physics share one compiled model.
pub fn make(engine: &Engine, task: &str, physics: Physics) -> Result<Box<dyn Env>> {
    Ok(Box::new(build(engine, task, physics)?))
}

/// [`make`], with the engine's bare step in reach.
pub(crate) fn build(engine: &Engine, task: &str, physics: Physics) -> Result<MujocoEnv> {
    let entries = find(task)?;
    MujocoEnv::new(engine, entries, physics, (entries.0.task)(physics))
}

/// An AntMaze as its data have it: episodes start anywhere. [`make`] makes the one D4RL evaluates with.
pub fn make_starting_anywhere(engine: &Engine, task: &str, physics: Physics) -> Result<Box<dyn Env>> {
    let entries = find(task)?;
    let maze = entries.0.maze.ok_or_else(|| Error::Unknown {
        kind: "maze",
        name: task.into(),
        hint: "known: antmaze-umaze, antmaze-medium, antmaze-large".into(),
    })?;
    Ok(Box::new(MujocoEnv::new(engine, entries, physics, MazeWalk::boxed(maze(), true))?))
}

/// What both tables hold of a task.
pub(crate) fn find(task: &str) -> Result<(&'static Simulated, &'static TaskSpec)> {
    let simulated = SIMULATED.iter().find(|simulated| simulated.name == task);
    simulated.zip(task_of(task)).ok_or_else(|| Error::Unknown {
        kind: "task",
        name: task.into(),
        hint: format!("known: {}", TASKS.join(", ")),
    })
}

impl Engine {
    /// Fetches what `task` needs besides the engine (its body's description) unless it is cached already.
    /// [`make`] does the same silently; call this first to show progress.
    pub fn prepare(&self, task: &str, progress: &mut dyn FnMut(&str)) -> Result<()> {
        find(task)?.0.fetch_bodies(self.home(), progress).map(drop)
    }

    /// The compiled model of a task.
    pub(crate) fn model_of(&self, task: &Simulated, physics: Physics) -> Result<Arc<Model>> {
        self.model(task.name, physics, || mjcf::body(self.home(), task, physics))
    }
}

impl Simulated {
    /// The directory of the bodies in this task's wheel, fetched first if need be.
    fn fetch_bodies(&self, home: &Home, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
        fetch::fetch(home, self.wheel, progress)
    }
}

/// `weight` · Σ a², computed in f32 and in NumPy's order of summation, because Gymnasium does: its actions are f32.
fn control_cost(weight: f32, act: &[f32]) -> f64 {
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

/// Whether a step earns the bonus for being alive. v5 pays it only while alive; before, the last step got it too.
fn earns_bonus(healthy: bool, physics: Physics) -> bool {
    healthy || physics != Physics::GymnasiumV5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_hold_the_same_tasks() {
        let specs: Vec<&str> = offing::tasks::TASKS.iter().map(|task| task.name).collect();
        assert_eq!(TASKS, specs);
    }
}
