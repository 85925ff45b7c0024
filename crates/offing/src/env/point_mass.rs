//! A point mass on a plane that must reach the origin: small, exact and quick, for tests and first experiments.
//!
//! Observation (x, y, vx, vy), action = acceleration in [-1, 1]². Reward 1 − distance to the origin; leaving the disc of radius 3
//! is a terminal, 60 steps are a timeout.
//!
//! ```
//! use offing::env::{Env, point_mass::PointMass};
//! let mut env = PointMass::new();
//! env.reset(0);
//! assert_eq!(env.obs().len(), 4);
//! assert!(env.step(&[0.0, 0.0]).reward < 1.0);
//! ```

use super::{Env, Physics, Resumed, SimState, Simulators, Spec, StepResult};
use crate::error::{Error, Result, invalid};
use crate::rng::Rng;

const DT: f64 = 0.1;
const DRAG: f64 = 0.3;
/// Name of the task.
const TASK: &str = "point-mass";
const ARENA: f64 = 3.0;

/// The task's state.
#[derive(Clone, Debug)]
pub struct PointMass {
    spec: Spec,
    obs: [f64; 4],
    steps: usize,
}

impl PointMass {
    /// A point mass at rest in the origin; call [`Env::reset`] for a random start.
    pub fn new() -> Self {
        let spec = Spec { task: TASK.into(), obs_dim: 4, act_dim: 2, horizon: 60 };
        Self { spec, obs: [0.0; 4], steps: 0 }
    }
}

impl Default for PointMass {
    fn default() -> Self {
        Self::new()
    }
}

impl Env for PointMass {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) {
        let mut rng = Rng::stream(seed, "point-mass", 0);
        let (angle, radius) = (rng.range(0.0, std::f64::consts::TAU), rng.range(1.5, 2.5));
        self.obs = [radius * angle.cos(), radius * angle.sin(), 0.1 * rng.normal(), 0.1 * rng.normal()];
        self.steps = 0;
    }

    fn obs(&self) -> &[f64] {
        &self.obs
    }

    fn step(&mut self, act: &[f32]) -> StepResult {
        assert_eq!(act.len(), 2, "a point-mass action has two entries");
        let (position, velocity) = self.obs.split_at_mut(2);
        for ((x, v), a) in position.iter_mut().zip(velocity).zip(act) {
            *v += DT * 2.0 * (f64::from(a.clamp(-1.0, 1.0)) - DRAG * *v);
            *x += DT * *v;
        }
        self.steps += 1;
        let distance = self.obs[0].hypot(self.obs[1]);
        StepResult {
            reward: 1.0 - distance,
            terminated: distance > ARENA,
            truncated: self.steps >= self.spec.horizon,
        }
    }

    fn state(&self) -> SimState {
        SimState { qpos: self.obs[..2].to_vec(), qvel: self.obs[2..].to_vec(), goal: Vec::new() }
    }

    fn set_state(&mut self, state: &SimState) -> Result<()> {
        self.resume_from(&[&state.qpos[..], &state.qvel[..]].concat()).map(|_| ())
    }

    fn resume_from(&mut self, obs: &[f64]) -> Result<Resumed> {
        let found = obs.len();
        self.obs = obs
            .try_into()
            .map_err(|_| invalid!("a point-mass state has 4 entries, found {found}; give x, y, vx, vy"))?;
        self.steps = 0;
        Ok(Resumed::default())
    }
}

/// [`Simulators`] of the point mass alone, for tests and examples that must run without MuJoCo. Every dataset whose name
/// starts with `point-mass` is one of its task.
#[derive(Clone, Copy, Debug, Default)]
pub struct PointMassSimulators;

impl Simulators for PointMassSimulators {
    fn task_of(&self, name: &str) -> Option<String> {
        let rest = name.strip_prefix(TASK)?;
        (rest.is_empty() || rest.starts_with('-')).then(|| TASK.to_string())
    }

    fn make(&self, task: &str, _physics: Physics) -> Result<Box<dyn Env>> {
        match task {
            TASK => Ok(Box::new(PointMass::new())),
            _ => Err(Error::Unknown { kind: "task", name: task.into(), hint: format!("known: {TASK}") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::EnvPool;

    #[test]
    fn the_point_mass_is_found_by_the_names_of_its_data() {
        for (name, known) in [("point-mass", true), ("point-mass-random", true), ("point-masses", false)] {
            assert_eq!(PointMassSimulators.task_of(name).is_some(), known, "{name}");
        }
        let envs = EnvPool::of_task(&PointMassSimulators, TASK, Physics::default());
        assert_eq!(envs.with(|env| env.spec().task.clone()).unwrap(), TASK);
        let error = PointMassSimulators.make("hopper", Physics::default()).err().unwrap().to_string();
        assert!(error.contains("point-mass"), "{error}");
    }
}
