//! The MuJoCo tasks of D4RL and Gymnasium as offing environments.
//!
//! The engine is the real MuJoCo 3.17.0, loaded at run time: `cargo build` never needs it, and it is fetched once
//! with the user's own pip where it is not installed. Bodies come from the pinned wheels of gymnasium and d4rl and
//! are patched in code for the [`Physics`] asked for.
//!
//! ```no_run
//! use offing::home::Home;
//! use offing_mujoco::{Engine, Physics, make};
//!
//! let engine = Engine::load(&Home::locate(None)?, None, &mut |line| eprintln!("{line}"))?;
//! let mut env = make(&engine, "hopper", Physics::default())?;
//! env.reset(0);
//! let moment = env.step(&[0.1, -0.2, 0.3]);
//! println!("{:?} {moment:?}", env.obs());
//! # Ok::<(), offing::Error>(())
//! ```
//!
//! Reading order: [`Engine`] · the tasks ([`make`]) · [`Maze`] · [`VecEnv`] · [`mod@bench`].

mod api;
pub mod bench;
mod built_in;
mod engine;
mod fetch;
mod layout;
mod locate;
pub mod generate;
mod maze;
mod mjcf;
mod mujoco;
mod navigator;
mod sim;
mod task;
#[cfg(test)]
mod testing;
mod vec_env;

pub use built_in::built_in;
pub use engine::Engine;
pub use generate::{horizon, task_of};
pub use layout::VERSION_NAME as MUJOCO;
pub use maze::Maze;
pub use mujoco::Mujoco;
pub use offing::env::Physics;
pub use task::{AntMaze, AntMazeOptions, Goals, TASKS, antmaze, make};
pub use vec_env::VecEnv;
