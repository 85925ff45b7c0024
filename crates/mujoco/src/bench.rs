//! How fast the environments step, beside the engine alone.

use std::time::Instant;

use offing::env::Env as _;
use offing::{Result, Rng};

use crate::tasks::{MujocoEnv, build};
use crate::{Engine, Physics};

/// Steps a second on one thread, one entry a round.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// [`Env::step`](offing::env::Env::step): observation, reward and end of episode included.
    pub env: Vec<f64>,
    /// The engine's steps of the same trajectories and nothing else.
    pub bare: Vec<f64>,
}

/// Steps `task` under uniform random actions, `steps` times a round, and the same trajectories with the engine alone.
/// The two alternate, and swap places every other round, so that what disturbs the machine disturbs both alike.
pub fn rates(engine: &Engine, task: &str, physics: Physics, rounds: usize, steps: usize) -> Result<Rates> {
    let mut env = build(engine, task, physics)?;
    let act_dim = env.spec().act_dim;
    let mut rng = Rng::stream(0, "bench", 0);
    let acts: Vec<f32> = (0..steps * act_dim).map(|_| rng.range(-1.0, 1.0) as f32).collect();
    let acts: Vec<&[f32]> = acts.chunks_exact(act_dim).collect();
    // Not timed: it brings caches and clock up to speed and finds where episodes end.
    let mut ends = vec![false; steps];
    drive(&mut env, &acts, |env, act, i| {
        let result = env.step(act);
        ends[i] = result.terminated || result.truncated;
        ends[i]
    });
    let mut rates = Rates::default();
    for round in 0..rounds {
        for turn in 0..2 {
            if (round + turn) % 2 == 0 {
                rates.env.push(drive(&mut env, &acts, |env, act, _| {
                    let result = env.step(act);
                    result.terminated || result.truncated
                }));
            } else {
                rates.bare.push(drive(&mut env, &acts, |env, act, i| {
                    env.bare_step(act);
                    ends[i]
                }));
            }
        }
    }
    Ok(rates)
}

/// Steps through `acts` from the same start, starting over where `step` says so; returns steps a second.
fn drive(
    env: &mut MujocoEnv,
    acts: &[&[f32]],
    mut step: impl FnMut(&mut MujocoEnv, &[f32], usize) -> bool,
) -> f64 {
    env.reset(0);
    let clock = Instant::now();
    for (i, act) in acts.iter().enumerate() {
        if step(env, act, i) {
            env.reset(1 + i as u64);
        }
    }
    acts.len() as f64 / clock.elapsed().as_secs_f64()
}
