//! HalfCheetah, Hopper and Walker2d: bodies that move in a vertical plane and are rewarded for speed.

use offing::Rng;
use offing::env::Physics;

use super::env::start_shaken;
use super::{Task, control_cost, earns_bonus};
use crate::engine::Sim;

/// What distinguishes one planar body from another. `qpos` holds x (hidden from the observation), height, angle, then joints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planar {
    physics: Physics,
    frame_skip: usize,
    /// Weight of the squared actions in the reward.
    control_weight: f32,
    /// Reward of a step for being alive.
    alive_bonus: f64,
    /// Bound at which velocities are clipped in the observation.
    velocity_limit: f64,
    start: fn(&mut [f64], &mut [f64], &mut Rng),
    /// Whether the body is still up.
    healthy: fn(&Sim) -> bool,
}

/// Run forward; an episode never ends early.
pub(super) const HALFCHEETAH: Planar = Planar {
    physics: Physics::D4rlV2,
    frame_skip: 5,
    control_weight: 0.1,
    alive_bonus: 0.0,
    velocity_limit: f64::INFINITY,
    start: start_shaken,
    healthy: |_| true,
};

/// Hop forward without falling.
pub(super) const HOPPER: Planar = Planar {
    physics: Physics::D4rlV2,
    frame_skip: 4,
    control_weight: 1e-3,
    alive_bonus: 1.0,
    velocity_limit: 10.0,
    start: start_still,
    healthy: |sim| {
        let (z, angle) = (sim.qpos()[1], sim.qpos()[2]);
        let calm = sim.qpos()[2..].iter().chain(sim.qvel()).all(|v| v.abs() < 100.0);
        calm && z > 0.7 && z.is_finite() && angle.abs() < 0.2
    },
};

/// Walk forward without falling.
pub(super) const WALKER2D: Planar = Planar {
    healthy: |sim| {
        let (z, angle) = (sim.qpos()[1], sim.qpos()[2]);
        z > 0.8 && z < 2.0 && angle.abs() < 1.0
    },
    ..HOPPER
};

/// A start near the model's own.
fn start_still(qpos: &mut [f64], qvel: &mut [f64], rng: &mut Rng) {
    qpos.iter_mut().chain(qvel).for_each(|v| *v += rng.range(-0.005, 0.005));
}

impl Planar {
    /// The same body under another physics.
    pub(super) fn under(self, physics: Physics) -> Self {
        Self { physics, ..self }
    }
}

impl Task for Planar {
    fn frame_skip(&self) -> usize {
        self.frame_skip
    }

    fn start(&mut self, qpos: &mut [f64], qvel: &mut [f64], rng: &mut Rng) {
        (self.start)(qpos, qvel, rng);
    }

    fn reward_and_done(&self, sim: &Sim, act: &[f32], speed: f64) -> (f64, bool) {
        let healthy = (self.healthy)(sim);
        let bonus = if earns_bonus(healthy, self.physics) { self.alive_bonus } else { 0.0 };
        (speed + bonus - control_cost(self.control_weight, act), !healthy)
    }

    fn hidden_positions(&self) -> usize {
        1
    }

    fn velocity_limit(&self) -> f64 {
        self.velocity_limit
    }
}
