//! Rows and queries like those a model-based run searches for: imagined transitions at a known distance from the data.
//!
//! A rollout starts from a dataset state and takes five simulator steps. A model's error is imitated by noise on every next
//! state, fed back into the next step, in units of the standard deviation of s' − s. One query a step, so the five horizons
//! are in equal shares.

use anyhow::{Result, bail};
use ndarray::{Array1, Array2, Axis, concatenate};
use offing::data::Dataset;
use offing::env::{Env, EnvPool, SimState};
use offing::policy::{Policy, TanhGaussian};
use offing::{Mat, Rng};
use rayon::prelude::*;

/// Steps of a rollout.
const STEPS: usize = 5;

/// How far a query strays from the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryDistance {
    /// Near the data: the data's own action, then an agent's, little noise.
    In,
    /// A trained agent with noise, and a model that errs.
    Mild,
    /// Random actions, and a model that errs much.
    Far,
}

impl QueryDistance {
    pub(super) const ALL: [Self; 3] = [Self::In, Self::Mild, Self::Far];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Mild => "mild",
            Self::Far => "far",
        }
    }

    /// Noise on the next state at every step and a bias that stays for a rollout, in units of sd(s' − s); noise on actions.
    fn errors(self) -> (f64, f64, f64) {
        match self {
            Self::In => (0.02, 0.0, 0.1),
            Self::Mild => (0.1, 0.05, 0.3),
            Self::Far => (0.3, 0.2, 0.0),
        }
    }
}

/// s ⊕ a ⊕ s' of every row.
pub(super) fn search_rows(data: &Dataset) -> Mat {
    let b = &data.rows;
    let joined = concatenate(Axis(1), &[b.obs.view(), b.act.view(), b.next_obs.view()]);
    joined.expect("columns of one batch have equally many rows").as_standard_layout().into_owned()
}

/// `count` queries at the given distance; query i depends on `seed` and i alone. Without an agent the data's own action
/// is taken at every step.
pub(super) fn queries(
    data: &Dataset,
    envs: &EnvPool,
    agent: Option<&TanhGaussian>,
    distance: QueryDistance,
    count: usize,
    seed: u64,
) -> Result<Mat> {
    let Some(sim) = &data.sim else {
        bail!(
            "{}: wanted infos/qpos and infos/qvel to start rollouts from, found none; use a generated set",
            data.name
        );
    };
    let steps = &data.rows.next_obs - &data.rows.obs;
    let sd: Array1<f64> = steps.map_axis(Axis(0), |c| c.mapv(f64::from).std(0.0));
    let width = 2 * data.rows.obs_dim() + data.rows.act_dim();
    let rollouts: Vec<Vec<f32>> = (0..count.div_ceil(STEPS) as u64)
        .into_par_iter()
        .map(|rollout| {
            let mut rng = Rng::stream(seed, distance.name(), rollout);
            let row = rng.below(data.rows.len());
            let state = SimState {
                qpos: sim.qpos.row(row).to_vec(),
                qvel: sim.qvel.row(row).to_vec(),
                goal: sim.goal.as_ref().map_or(Vec::new(), |g| g.row(row).to_vec()),
            };
            let action = data.rows.act.row(row).to_vec();
            envs.with(|env| roll_out(env, &state, &action, agent, distance, &sd, &mut rng))?
        })
        .collect::<offing::Result<_>>()?;
    let flat: Vec<f32> = rollouts.into_iter().flatten().take(count * width).collect();
    Ok(Array2::from_shape_vec((count, width), flat)?)
}

fn roll_out(
    env: &mut dyn Env,
    start: &SimState,
    data_action: &[f32],
    agent: Option<&TanhGaussian>,
    distance: QueryDistance,
    sd: &Array1<f64>,
    rng: &mut Rng,
) -> offing::Result<Vec<f32>> {
    env.set_state(start)?;
    let (noise, bias, spread) = distance.errors();
    let bias: Vec<f64> = sd.iter().map(|sd| bias * sd * rng.normal()).collect();
    let mut flat = Vec::new();
    let mut obs: Vec<f64> = env.obs().to_vec();
    let mut act = data_action.to_vec();
    for step in 0..STEPS {
        let obs32: Vec<f32> = obs.iter().map(|&o| o as f32).collect();
        match distance {
            QueryDistance::Far => act.iter_mut().for_each(|a| *a = rng.range(-1.0, 1.0) as f32),
            QueryDistance::In if step == 0 => (),
            _ => agent.iter().for_each(|agent| agent.act(&obs32, rng, &mut act)),
        }
        act.iter_mut().for_each(|a| *a = (f64::from(*a) + spread * rng.normal()).clamp(-1.0, 1.0) as f32);
        env.step(&act);
        let true_next = env.obs().iter().zip(sd).zip(&bias);
        let next: Vec<f64> = true_next.map(|((o, sd), b)| o + noise * sd * rng.normal() + b).collect();
        flat.extend(obs32);
        flat.extend(&act);
        flat.extend(next.iter().map(|&o| o as f32));
        env.resume_from(&next)?;
        obs = next;
    }
    Ok(flat)
}
