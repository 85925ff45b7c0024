//! Ant: run forward on four legs without tipping over.

use offing::env::Physics;

use super::{Task, control_cost, earns_bonus};
use crate::engine::Sim;

#[derive(Debug)]
pub(crate) struct Ant {
    pub(crate) physics: Physics,
}

/// The body whose position is rewarded.
const TORSO: usize = 1;

impl Task for Ant {
    fn needs_contact_forces(&self) -> bool {
        // MuJoCo 1.50's are those of the middle of the step, which the engine computes on its own (see `mjcf`).
        self.physics == Physics::GymnasiumV5
    }

    /// The frame's position rather than `qpos`: it lags one engine step behind, and the reward is defined by it.
    fn position(&self, sim: &Sim) -> f64 {
        sim.xpos(TORSO)[0]
    }

    fn observe(&self, sim: &Sim, obs: &mut [f64]) {
        obs[..13].copy_from_slice(&sim.qpos()[2..]);
        obs[13..27].copy_from_slice(sim.qvel());
        // v4 shows no contact forces; v5 leaves the world's own six out; D4RL's files have zeros.
        let skipped = match self.physics {
            Physics::GymnasiumV5 => 6,
            Physics::D4rlV2 => return obs[27..].fill(0.0),
            _ => 0,
        };
        for (o, force) in obs[27..].iter_mut().zip(&sim.cfrc_ext()[skipped..]) {
            *o = force.clamp(-1.0, 1.0);
        }
    }

    fn reward_and_done(&self, sim: &Sim, act: &[f32], speed: f64) -> (f64, bool) {
        let finite = sim.qpos().iter().chain(sim.qvel()).all(|v| v.is_finite());
        let healthy = finite && (0.2..=1.0).contains(&sim.qpos()[2]);
        let bonus = if earns_bonus(healthy, self.physics) { 1.0 } else { 0.0 };
        let contact = match self.physics {
            Physics::D4rlV2 | Physics::GymnasiumV4 => 0.0,
            _ => 5e-4 * sim.cfrc_ext().iter().map(|f| f.clamp(-1.0, 1.0).powi(2)).sum::<f64>(),
        };
        (speed + bonus - (control_cost(0.5, act) + contact), !healthy)
    }

    fn hidden_positions(&self) -> usize {
        2
    }
}
