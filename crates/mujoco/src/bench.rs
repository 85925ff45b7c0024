//! How fast the environments step, beside the engine alone.

use std::time::Instant;

use offing::{Result, Rng};

use crate::task::build;
use crate::{Engine, Physics};

/// Steps a second on one thread, one entry a round.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// [`Env::step`]: observation, reward and end of episode included.
    pub env: Vec<f64>,
    /// The engine's steps of the same trajectories and nothing else.
    pub bare: Vec<f64>,
}

/// Steps `task` under uniform random actions, `steps` times a round, and then the same trajectories with the engine
/// alone. Rounds of the two alternate, so that a busy machine disturbs both alike.
pub fn rates(engine: &Engine, task: &str, physics: Physics, rounds: usize, steps: usize) -> Result<Rates> {
    let mut env = build(engine, task, physics)?;
    let act_dim = env.spec().act_dim;
    let mut rng = Rng::stream(0, "bench", 0);
    let acts: Vec<f32> = (0..steps * act_dim).map(|_| rng.range(-1.0, 1.0) as f32).collect();
    let mut rates = Rates::default();
    for round in 0..rounds as u64 {
        let mut resets = vec![false; steps];
        env.reset(round);
        let clock = Instant::now();
        for (i, act) in acts.chunks_exact(act_dim).enumerate() {
            let moment = env.step(act);
            if moment.terminated || moment.truncated {
                resets[i] = true;
                env.reset(round + i as u64);
            }
        }
        rates.env.push(steps as f64 / clock.elapsed().as_secs_f64());

        env.reset(round);
        let clock = Instant::now();
        for (i, act) in acts.chunks_exact(act_dim).enumerate() {
            env.bare_step(act);
            if resets[i] {
                env.reset(round + i as u64);
            }
        }
        rates.bare.push(steps as f64 / clock.elapsed().as_secs_f64());
    }
    Ok(rates)
}
