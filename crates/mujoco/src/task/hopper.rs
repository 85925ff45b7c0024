//! Hopper: hop forward without falling.

use offing::Rng;

use super::{Task, control_cost, observe};
use crate::Physics;
use crate::sim::Sim;

#[derive(Debug)]
pub(crate) struct Hopper {
    /// v5 pays the bonus for being alive only while alive; before, the last step got it too.
    bonus_when_fallen: bool,
}

impl Hopper {
    pub(crate) fn new(physics: Physics) -> Self {
        Self { bonus_when_fallen: physics != Physics::GymnasiumV5 }
    }
}

/// Velocities are clipped here in the observation.
const LIMIT: f64 = 10.0;

impl Task for Hopper {
    fn name(&self) -> &str {
        "hopper"
    }

    fn obs_dim(&self) -> usize {
        11
    }

    fn frame_skip(&self) -> usize {
        4
    }

    fn start(&mut self, qpos: &mut [f64], qvel: &mut [f64], rng: &mut Rng) {
        qpos.iter_mut().chain(qvel).for_each(|v| *v += rng.range(-0.005, 0.005));
    }

    fn position(&self, sim: &Sim) -> f64 {
        sim.qpos()[0]
    }

    fn observe(&self, sim: &Sim, obs: &mut [f64]) {
        observe(sim, 1, LIMIT, obs);
    }

    fn judge(&self, sim: &Sim, act: &[f32], speed: f64) -> (f64, bool) {
        let (z, angle) = (sim.qpos()[1], sim.qpos()[2]);
        let calm = sim.qpos()[2..].iter().chain(sim.qvel()).all(|v| v.abs() < 100.0);
        let healthy = calm && z > 0.7 && z.is_finite() && angle.abs() < 0.2;
        let bonus = if healthy || self.bonus_when_fallen { 1.0 } else { 0.0 };
        (speed + bonus - control_cost(1e-3, act), !healthy)
    }

    fn hidden_positions(&self) -> usize {
        1
    }

    fn velocity_limit(&self) -> f64 {
        LIMIT
    }
}
