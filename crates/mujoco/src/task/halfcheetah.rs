//! HalfCheetah: run forward. Never ends early.

use offing::Rng;

use super::{Task, control_cost, observe};
use crate::sim::Sim;

#[derive(Debug)]
pub(crate) struct HalfCheetah;

impl Task for HalfCheetah {
    fn name(&self) -> &str {
        "halfcheetah"
    }

    fn obs_dim(&self) -> usize {
        17
    }

    fn frame_skip(&self) -> usize {
        5
    }

    fn start(&mut self, qpos: &mut [f64], qvel: &mut [f64], rng: &mut Rng) {
        qpos.iter_mut().for_each(|q| *q += rng.range(-0.1, 0.1));
        qvel.iter_mut().for_each(|v| *v += 0.1 * rng.normal());
    }

    fn position(&self, sim: &Sim) -> f64 {
        sim.qpos()[0]
    }

    fn observe(&self, sim: &Sim, obs: &mut [f64]) {
        observe(sim, 1, f64::INFINITY, obs);
    }

    fn judge(&self, _: &Sim, act: &[f32], speed: f64) -> (f64, bool) {
        (speed - control_cost(0.1, act), false)
    }

    fn hidden_positions(&self) -> usize {
        1
    }
}
