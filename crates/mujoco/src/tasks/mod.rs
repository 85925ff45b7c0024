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
use offing::{Error, Result, Rng};

pub use antmaze::{AntMaze, AntMazeOptions, Goals, MazeWalk, antmaze};
pub use env::MujocoEnv;
pub(crate) use env::{BareStep, Task};
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
    /// Whether D4RL's physics needs contact forces from the middle of a step; see `mjcf`.
    early_contact_forces: bool,
    build: fn(&Engine, &'static TaskSpec, Physics) -> Result<Box<dyn BareStep>>,
}

/// A body of Gymnasium's, the same under each physics.
const fn gymnasium(
    name: &'static str,
    body: &'static str,
    build: fn(&Engine, &'static TaskSpec, Physics) -> Result<Box<dyn BareStep>>,
) -> Simulated {
    Simulated {
        name,
        wheel: &fetch::GYMNASIUM,
        bodies: [body; 3],
        maze: None,
        early_contact_forces: false,
        build,
    }
}

/// D4RL's ant in a maze.
const fn in_maze(name: &'static str, maze: fn() -> Maze) -> Simulated {
    Simulated {
        name,
        wheel: &fetch::D4RL,
        bodies: ["ant.xml"; 3],
        maze: Some(maze),
        early_contact_forces: false,
        build: |engine, spec, physics| {
            Ok(Box::new(antmaze(engine, spec.name, physics, AntMazeOptions::default())?))
        },
    }
}

/// Every simulated task.
const SIMULATED: &[Simulated] = &[
    gymnasium("halfcheetah", "half_cheetah.xml", |engine, spec, physics| {
        boxed(engine, spec, physics, planar::HALFCHEETAH.under(physics))
    }),
    gymnasium("hopper", "hopper.xml", |engine, spec, physics| {
        boxed(engine, spec, physics, planar::HOPPER.under(physics))
    }),
    Simulated {
        // v5 gave both feet the same friction; v4 kept the .9 and 1.9 of the body D4RL used.
        bodies: ["walker2d.xml", "walker2d.xml", "walker2d_v5.xml"],
        ..gymnasium("walker2d", "walker2d.xml", |engine, spec, physics| {
            boxed(engine, spec, physics, planar::WALKER2D.under(physics))
        })
    },
    Simulated {
        early_contact_forces: true,
        ..gymnasium("ant", "ant.xml", |engine, spec, physics| {
            boxed(engine, spec, physics, ant::Ant { physics })
        })
    },
    in_maze("antmaze-umaze", Maze::umaze),
    in_maze("antmaze-medium", Maze::medium),
    in_maze("antmaze-large", Maze::large),
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

fn boxed<T: Task + 'static>(
    engine: &Engine,
    spec: &TaskSpec,
    physics: Physics,
    task: T,
) -> Result<Box<dyn BareStep>> {
    Ok(Box::new(MujocoEnv::new(engine, spec, physics, task)?))
}

/// A task by name. Envs of the same task and physics share one compiled model.
pub fn make(engine: &Engine, task: &str, physics: Physics) -> Result<Box<dyn Env>> {
    Ok(build(engine, task, physics)?)
}

/// [`make`], with the engine's bare step in reach.
pub(crate) fn build(engine: &Engine, task: &str, physics: Physics) -> Result<Box<dyn BareStep>> {
    let (simulated, spec) = find(task)?;
    (simulated.build)(engine, spec, physics)
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
        let same_wheel = SIMULATED.iter().filter(|other| other.wheel.package == self.wheel.package);
        let mut files: Vec<&str> = same_wheel.flat_map(|other| other.bodies).collect();
        files.sort_unstable();
        files.dedup();
        fetch::fetch(home, self.wheel, &files, progress)
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

/// A start as HalfCheetah and the ants have it: positions uniform within ±0.1, velocities normal with deviation 0.1.
fn start_shaken(qpos: &mut [f64], qvel: &mut [f64], rng: &mut Rng) {
    qpos.iter_mut().for_each(|q| *q += rng.range(-0.1, 0.1));
    qvel.iter_mut().for_each(|v| *v += 0.1 * rng.normal());
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
