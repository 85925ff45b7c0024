//! Ant: run forward on four legs without tipping over.

use offing::Rng;

use super::{Task, control_cost};
use crate::Physics;
use crate::sim::Sim;

#[derive(Debug)]
pub(crate) struct Ant {
    physics: Physics,
}

impl Ant {
    pub(crate) fn new(physics: Physics) -> Self {
        Self { physics }
    }

    /// Contact forces in the observation; v5 leaves the world's own six out.
    fn shown_forces<'a>(&self, sim: &'a Sim) -> &'a [f64] {
        match self.physics {
            Physics::D4rlV2 => sim.cfrc_ext(),
            Physics::GymnasiumV4 => &[],
            Physics::GymnasiumV5 => &sim.cfrc_ext()[6..],
        }
    }
}

/// The body whose position is rewarded.
const TORSO: usize = 1;

impl Task for Ant {
    fn name(&self) -> &str {
        "ant"
    }

    fn obs_dim(&self) -> usize {
        match self.physics {
            Physics::D4rlV2 => 111,
            Physics::GymnasiumV4 => 27,
            Physics::GymnasiumV5 => 105,
        }
    }

    fn frame_skip(&self) -> usize {
        5
    }

    fn needs_contact_forces(&self) -> bool {
        // D4RL's are those of the middle of the step, which the engine computes on its own (see `mjcf`).
        self.physics == Physics::GymnasiumV5
    }

    fn start(&mut self, qpos: &mut [f64], qvel: &mut [f64], rng: &mut Rng) {
        qpos.iter_mut().for_each(|q| *q += rng.range(-0.1, 0.1));
        qvel.iter_mut().for_each(|v| *v += 0.1 * rng.normal());
    }

    /// The frame's position rather than `qpos`: it lags one engine step behind, and the reward is defined by it.
    fn position(&self, sim: &Sim) -> f64 {
        sim.xpos(TORSO)[0]
    }

    fn observe(&self, sim: &Sim, obs: &mut [f64]) {
        obs[..13].copy_from_slice(&sim.qpos()[2..]);
        obs[13..27].copy_from_slice(sim.qvel());
        for (o, force) in obs[27..].iter_mut().zip(self.shown_forces(sim)) {
            *o = force.clamp(-1.0, 1.0);
        }
    }

    fn judge(&self, sim: &Sim, act: &[f32], speed: f64) -> (f64, bool) {
        let finite = sim.qpos().iter().chain(sim.qvel()).all(|v| v.is_finite());
        let healthy = finite && (0.2..=1.0).contains(&sim.qpos()[2]);
        let bonus = if healthy || self.physics != Physics::GymnasiumV5 { 1.0 } else { 0.0 };
        let contact = match self.physics {
            Physics::GymnasiumV4 => 0.0,
            _ => 5e-4 * sim.cfrc_ext().iter().map(|f| f.clamp(-1.0, 1.0).powi(2)).sum::<f64>(),
        };
        (speed + bonus - (control_cost(0.5, act) + contact), !healthy)
    }

    fn hidden_positions(&self) -> usize {
        2
    }
}
