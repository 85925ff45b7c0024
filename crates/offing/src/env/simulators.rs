//! Where simulators come from: the trait that a simulator package implements.

use std::path::PathBuf;

use super::{Env, Physics};
use crate::error::{Error, Result};

/// Makes simulators of tasks by name. `offing_mujoco::Mujoco` is one;
/// [`PointMassSimulators`](super::point_mass::PointMassSimulators) is another, which needs nothing installed.
///
/// Training needs it only to evaluate policies, so a training without simulators passes none.
///
/// ```
/// use offing::Result;
/// use offing::env::point_mass::PointMass;
/// use offing::env::{Env, EnvPool, Physics, Simulators};
///
/// /// Simulators of one robot of our own.
/// struct Ours;
///
/// impl Simulators for Ours {
///     fn task_of(&self, name: &str) -> Option<String> {
///         name.starts_with("robot-").then(|| "robot".to_string())
///     }
///
///     fn make(&self, _task: &str, _physics: Physics) -> Result<Box<dyn Env>> {
///         Ok(Box::new(PointMass::new()))
///     }
/// }
///
/// let task = Ours.task_of("robot-monday.csv").expect("a log of our robot");
/// let envs = EnvPool::of_task(&Ours, &task, Physics::default());
/// assert_eq!(envs.with(|env| env.spec().act_dim)?, 2);
/// # Ok::<(), offing::Error>(())
/// ```
pub trait Simulators: Sync {
    /// The task behind a task's or dataset's name (`hopper` for `hopper` and `hopper-medium-v2`); `None` where there is
    /// nothing to simulate, as for data of one's own.
    fn task_of(&self, name: &str) -> Option<String>;

    /// Fetches or checks what `task` needs. `notify` gets a line before each slow step.
    ///
    /// [`Simulators::make`] does the same silently, so callers may leave it out.
    fn prepare(&self, task: &str, notify: &mut dyn FnMut(&str)) -> Result<()> {
        let _ = (task, notify);
        Ok(())
    }

    /// A simulator of `task`.
    fn make(&self, task: &str, physics: Physics) -> Result<Box<dyn Env>>;

    /// Generates the dataset of that name (`hopper-medium-replay`), or finds it generated before. `progress` gets the
    /// number of rows so far.
    fn generate(
        &self,
        name: &str,
        options: &GenerateOptions,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Generated> {
        let _ = (options, progress);
        let hint = "this simulator generates no datasets; give the path of a file".into();
        Err(Error::Unknown { kind: "dataset", name: name.into(), hint })
    }
}

/// Everything that a generated dataset depends on besides its name, and where it goes.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// Transitions to record.
    pub rows: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Which physics to simulate.
    pub physics: Physics,
    /// Directory of behaviour policies, in place of the built-in ones.
    pub policies: Option<PathBuf>,
    /// A D4RL file whose own behaviour policy acts.
    pub policy_from: Option<PathBuf>,
    /// Number of the snapshot to use for `medium`, in place of the first one good enough.
    pub medium: Option<usize>,
    /// Number of the snapshot to use for `expert`, in place of the best.
    pub expert: Option<usize>,
    /// File to write, in place of one in the cache.
    pub out: Option<PathBuf>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            rows: 1_000_000,
            seed: 0,
            physics: Physics::default(),
            policies: None,
            policy_from: None,
            medium: None,
            expert: None,
            out: None,
        }
    }
}

/// A generated dataset on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The file.
    pub path: PathBuf,
    /// Whether this call wrote it; false when it was there before.
    pub fresh: bool,
    /// The policies that acted, in the order of the rows.
    pub behaviour: Vec<String>,
}
