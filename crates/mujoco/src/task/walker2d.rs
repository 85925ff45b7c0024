//! Walker2d: walk forward without falling.

use offing::Rng;

use super::{Task, control_cost, observe};
use crate::Physics;
use crate::sim::Sim;

#[derive(Debug)]
pub(crate) struct Walker2d {
    /// v5 pays the bonus for being alive only while alive; before, the last step got it too.
    bonus_when_fallen: bool,
}

impl Walker2d {
    pub(crate) fn new(physics: Physics) -> Self {
        Self { bonus_when_fallen: physics != Physics::GymnasiumV5 }
    }
}

/// Velocities are clipped here in the observation.
const LIMIT: f64 = 10.0;

impl Task for Walker2d {
    fn name(&self) -> &str {
        "walker2d"
    }

    fn obs_dim(&self) -> usize {
        17
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
        let healthy = z > 0.8 && z < 2.0 && angle.abs() < 1.0;
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
