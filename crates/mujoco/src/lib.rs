//! The MuJoCo tasks of D4RL and Gymnasium as offing environments.
//!
//! The engine is the real MuJoCo 3.17.0, loaded at run time: `cargo build` never needs it, and this crate
//! fetches it once with the user's own pip where it is not installed. Bodies come from the pinned wheels of gymnasium and
//! d4rl; code patches them for the chosen [`Physics`].
//!
//! ```no_run
//! use offing::home::Home;
//! use offing_mujoco::{Engine, Physics, make};
//!
//! let engine = Engine::load(&Home::locate(None)?, None, &mut |line| eprintln!("{line}"))?;
//! let mut env = make(&engine, "hopper", Physics::default())?;
//! env.reset(0);
//! let result = env.step(&[0.1, -0.2, 0.3]);
//! println!("{:?} {result:?}", env.obs());
//! # Ok::<(), offing::Error>(())
//! ```
//!
//! Reading order: [`Engine`] · the tasks ([`make`]) · [`Maze`] · [`Mujoco`] · [`mod@generate`] · [`mod@bench`].

mod engine;
mod tasks;
mod built_in_policies;
mod antmaze_policy;
pub mod generate;
mod mujoco;
pub mod bench;
// Unit tests take the engine as the tests outside do.
#[cfg(test)]
extern crate self as offing_mujoco;
#[cfg(test)]
#[path = "../tests/engine/mod.rs"]
mod testing;

pub use built_in_policies::built_in_policies;
pub use engine::Engine;
pub use engine::fetch::python;
pub use engine::layout::VERSION_NAME as MUJOCO;
pub use mujoco::Mujoco;
pub use offing::env::Physics;
pub use tasks::{Maze, TASKS, make, make_starting_anywhere};
