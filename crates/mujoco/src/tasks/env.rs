//! The loop that all tasks share: an [`Env`] out of a simulation and the few functions that make a task.

use offing::env::{Env, Outline, Physics, Resumed, Shape, SimState, Spec, StepResult};
use offing::tasks::TaskSpec;
use offing::{Error, Result, Rng};

use super::Simulated;
use crate::Engine;
use crate::engine::Sim;
use crate::engine::layout::geom;

/// What distinguishes one task from another, besides the entries of the tables. Defaults are those of most tasks.
pub(crate) trait Task: Send {
    /// Engine steps an action lasts.
    fn frame_skip(&self) -> usize {
        5
    }
    /// Whether [`Sim::contact_forces`] must be up to date for `observe` and `reward_and_done`. It costs a tenth of a
    /// step and changes nothing else, so tasks that need none leave it out.
    fn needs_contact_forces(&self) -> bool {
        false
    }
    /// Draws the start of an episode into the model's initial state.
    fn start(&mut self, qpos: &mut [f64], qvel: &mut [f64], rng: &mut Rng) {
        start_shaken(qpos, qvel, rng);
    }
    /// What progress is measured by, read before and after a step.
    fn position(&self, sim: &Sim) -> f64 {
        sim.qpos()[0]
    }
    /// Writes the observation: positions that are not hidden, then velocities within their limit.
    fn observe(&self, sim: &Sim, obs: &mut [f64]) {
        let (hidden, limit) = (self.hidden_positions(), self.velocity_limit());
        let (positions, velocities) = obs.split_at_mut(sim.qpos().len() - hidden);
        positions.copy_from_slice(&sim.qpos()[hidden..]);
        for (o, v) in velocities.iter_mut().zip(sim.qvel()) {
            *o = v.clamp(-limit, limit);
        }
    }
    /// Reward of the step just made, at `speed` along [`Task::position`], and whether it ended the episode.
    fn reward_and_done(&self, sim: &Sim, act: &[f32], speed: f64) -> (f64, bool);
    /// The first entries of `qpos` that the observation leaves out.
    fn hidden_positions(&self) -> usize;
    /// The bound at which velocities are clipped in the observation.
    fn velocity_limit(&self) -> f64 {
        f64::INFINITY
    }
    /// The goal, for tasks that have one.
    fn goal(&self) -> &[f64] {
        &[]
    }
    /// Takes over a goal; false when the task has none or it has another width.
    fn set_goal(&mut self, goal: &[f64]) -> bool {
        goal.is_empty()
    }
}

/// A start as HalfCheetah and the ants have it: positions uniform within ±0.1, velocities normal with deviation 0.1.
pub(super) fn start_shaken(qpos: &mut [f64], qvel: &mut [f64], rng: &mut Rng) {
    qpos.iter_mut().for_each(|q| *q += rng.range(-0.1, 0.1));
    qvel.iter_mut().for_each(|v| *v += 0.1 * rng.normal());
}

/// A task running in a simulation.
pub(crate) struct MujocoEnv {
    task: Box<dyn Task>,
    sim: Sim,
    spec: Spec,
    obs: Vec<f64>,
    steps: usize,
    /// Control per unit of action.
    gain: Vec<f64>,
    /// Seconds an action lasts.
    dt: f64,
    start: (Vec<f64>, Vec<f64>),
}

impl MujocoEnv {
    /// The task of these entries of the tables, as `task` rewards it.
    pub(super) fn new(
        engine: &Engine,
        (simulated, known): (&Simulated, &TaskSpec),
        physics: Physics,
        task: Box<dyn Task>,
    ) -> Result<Self> {
        let model = engine.model_of(simulated, physics)?;
        let mut sim = Sim::new(&model)?;
        sim.reset();
        let start = (sim.qpos().to_vec(), sim.qvel().to_vec());
        let spec = Spec {
            task: known.name.to_string(),
            obs_dim: known.obs_dim(physics),
            act_dim: model.nu,
            horizon: known.horizon,
        };
        let dt = model.timestep * task.frame_skip() as f64;
        let gain = model.ctrl_limits();
        let mut env = Self { obs: vec![0.0; spec.obs_dim], task, sim, spec, steps: 0, gain, dt, start };
        env.reset(0);
        Ok(env)
    }

    /// Sets the controls and takes the engine's steps; no observation, no reward. `bench` compares [`Env::step`] with it.
    pub(crate) fn bare_step(&mut self, act: &[f32]) {
        for ((ctrl, a), gain) in self.sim.ctrl_mut().iter_mut().zip(act).zip(&self.gain) {
            *ctrl = f64::from(*a) * gain;
        }
        self.sim.advance(self.task.frame_skip());
    }

    /// Puts the engine into a state and observes it.
    fn enter(&mut self, qpos: &[f64], qvel: &[f64]) {
        self.sim.set_state(qpos, qvel);
        self.steps = 0;
        self.observe();
    }

    fn observe(&mut self) {
        if self.task.needs_contact_forces() {
            self.sim.contact_forces();
        }
        self.task.observe(&self.sim, &mut self.obs);
    }

    fn refused(&self, what: &str, wanted: &str, found: &str) -> Error {
        Error::Invalid(format!("{what} of {}: wanted {wanted}, found {found}", self.spec.task))
    }

    fn check_finite<'a>(&self, what: &str, mut values: impl Iterator<Item = &'a f64>) -> Result<()> {
        match values.position(|v| !v.is_finite()) {
            None => Ok(()),
            Some(i) => {
                let found = format!("none at index {i}; leave such rows out");
                Err(self.refused(what, "finite numbers", &found))
            }
        }
    }
}

impl Env for MujocoEnv {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self, seed: u64) {
        let mut rng = Rng::stream(seed, "reset", 0);
        let (mut qpos, mut qvel) = self.start.clone();
        self.task.start(&mut qpos, &mut qvel, &mut rng);
        self.enter(&qpos, &qvel);
    }

    fn obs(&self) -> &[f64] {
        &self.obs
    }

    fn step(&mut self, act: &[f32]) -> StepResult {
        assert_eq!(act.len(), self.spec.act_dim, "width of an action of {}", self.spec.task);
        let before = self.task.position(&self.sim);
        self.bare_step(act);
        let speed = (self.task.position(&self.sim) - before) / self.dt;
        self.observe();
        self.steps += 1;
        let (reward, terminated) = self.task.reward_and_done(&self.sim, act, speed);
        StepResult { reward, terminated, truncated: self.steps >= self.spec.horizon }
    }

    fn state(&self) -> SimState {
        SimState {
            qpos: self.sim.qpos().to_vec(),
            qvel: self.sim.qvel().to_vec(),
            goal: self.task.goal().to_vec(),
        }
    }

    fn set_state(&mut self, state: &SimState) -> Result<()> {
        let (nq, nv) = (self.sim.model.nq, self.sim.model.nv);
        let (positions, velocities) = (state.qpos.len(), state.qvel.len());
        if (positions, velocities) != (nq, nv) {
            let found = format!("{positions} and {velocities}");
            return Err(self.refused("state", &format!("{nq} positions and {nv} velocities"), &found));
        }
        self.check_finite("state", state.qpos.iter().chain(&state.qvel).chain(&state.goal))?;
        if !state.goal.is_empty() && !self.task.set_goal(&state.goal) {
            let wanted = format!("{} numbers", self.task.goal().len());
            return Err(self.refused("goal", &wanted, &state.goal.len().to_string()));
        }
        self.enter(&state.qpos, &state.qvel);
        Ok(())
    }

    fn resume_from(&mut self, obs: &[f64]) -> Result<Resumed> {
        if obs.len() != self.spec.obs_dim {
            let wanted = format!("{} numbers", self.spec.obs_dim);
            return Err(self.refused("observation", &wanted, &obs.len().to_string()));
        }
        self.check_finite("observation", obs.iter())?;
        let hidden = self.task.hidden_positions();
        let shown = self.sim.model.nq - hidden;
        let mut qpos = vec![0.0; self.sim.model.nq];
        qpos[hidden..].copy_from_slice(&obs[..shown]);
        let velocities = shown..shown + self.sim.model.nv;
        let limit = self.task.velocity_limit();
        let clipped = velocities.clone().filter(|&i| obs[i].abs() >= limit).collect();
        self.enter(&qpos, &obs[velocities]);
        Ok(Resumed { clipped })
    }

    fn shapes(&self) -> Vec<Shape> {
        let outline = |kind| match kind {
            geom::SPHERE => Some(Outline::Sphere),
            geom::CAPSULE => Some(Outline::Capsule),
            geom::BOX => Some(Outline::Box),
            _ => None,
        };
        let geoms = self.sim.model.geoms().enumerate();
        geoms
            .filter_map(|(i, (kind, size))| {
                let (centre, rotation) = self.sim.geom_pose(i);
                Some(Shape { outline: outline(kind)?, size, centre, rotation })
            })
            .collect()
    }

    fn control_interval(&self) -> Option<f64> {
        Some(self.dt)
    }

    fn unstable(&self) -> bool {
        self.sim.losses() > 0
    }
}
