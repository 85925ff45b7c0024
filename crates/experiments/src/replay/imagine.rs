//! The same start and the same actions in the learnt model: where it loses touch with the simulator, and what SUMO says of it.

use anyhow::Result;
use ndarray::{Array1, ArrayView1, Axis, s};
use offing::algorithms::{ModelConfig, Registry};
use offing::dynamics::DynamicsModel;
use offing::env::EnvPool;
use offing::run::RunDir;
use offing::train::PreparedRun;
use offing::uncertainty::{Sumo, SumoConfig, Uncertainty, UncertaintyConfig, locate};
use offing::{Batch, Mat};
use serde::Serialize;

use super::scene::{Frame, View, frame, states_behind};
use super::{Episode, packed};
use crate::Runtime;

/// Logged transitions that are named for each imagined one.
const NEIGHBOURS: usize = 3;

/// What the model imagines along an episode, started again from the real state after every horizon.
#[derive(Debug, Serialize)]
pub(super) struct Imagined {
    #[serde(serialize_with = "packed::frames")]
    frames: Vec<Frame>,
    /// SUMO's score of the step that led to each frame; 0 where the model was started.
    u: Vec<f32>,
    /// The dataset's largest leave-one-out score: ε of Eq. 7 with α = 1.
    epsilon: f32,
    /// The median of these scores: what is usual among the data.
    usual: f32,
    /// Root mean square difference from the simulator's observation, each column in units of its deviation in the data.
    error: Vec<f32>,
    rewards: Vec<f32>,
    /// Episode and step of the nearest logged transitions, and how far they are.
    nearest: Vec<Vec<(usize, usize, f32)>>,
    horizon: usize,
}

/// Follows the actions of an episode in the run's model. The imagined observations come first, one for each real one.
pub(super) fn along(
    runtime: &Runtime,
    run: &PreparedRun,
    episode: &Episode,
    horizon: usize,
) -> Result<Option<(Vec<Vec<f64>>, Imagined)>> {
    let data = &run.data;
    let configured = run.manifest.configure(&Registry::default())?;
    let blocks = configured.algorithm.blocks();
    let Some(model) = blocks.model.filter(|_| data.units.is_none() && !episode.rewards.is_empty()) else {
        runtime.say("this run has no model of the task: nothing is imagined");
        return Ok(None);
    };
    let model = ModelConfig { seed: Some(model.seed.unwrap_or(run.manifest.seed)), ..model.clone() };
    let columns = match blocks.uncertainty {
        Some(UncertaintyConfig::Sumo(config)) => config.clone(),
        _ => SumoConfig::default(),
    };
    let temporary = tempfile::tempdir()?;
    let mut nowhere = RunDir::open_or_create(temporary.path(), "")?;
    (runtime.before_training)();
    let (physics, seed) = (run.physics()?, run.manifest.seed);
    let steps = episode.rewards.len();
    let wide = |row: &Vec<f64>| row.iter().map(|&o| o as f32).collect::<Vec<f32>>();
    let real: Vec<Vec<f32>> = episode.obs.iter().map(wide).collect();
    let (rows, reach) = runtime.hooks().in_session(data, physics, seed, &mut nowhere, |session| {
        let model = session.fit_model(&model)?;
        let (obs_dim, act_dim) = (data.rows.obs_dim(), data.rows.act_dim());
        let mut rows = Batch {
            obs: Mat::zeros((steps, obs_dim)),
            act: Mat::zeros((steps, act_dim)),
            rew: Array1::zeros(steps),
            next_obs: Mat::zeros((steps, obs_dim)),
            done: vec![false; steps].into(),
        };
        let mut obs = Mat::zeros((1, obs_dim));
        for (step, real) in real.iter().enumerate().take(steps) {
            if step % horizon == 0 {
                obs.row_mut(0).assign(&ArrayView1::from(real));
            }
            let act = ArrayView1::from(&episode.act[step]).insert_axis(Axis(0)).to_owned();
            // The mean of all members' means: what the ensemble as a whole expects.
            let expected = model.predict(&obs, &act).mean.mean_axis(Axis(0)).expect("a member");
            rows.obs.row_mut(step).assign(&obs.row(0));
            rows.act.row_mut(step).assign(&act.row(0));
            rows.rew[step] = expected[[0, obs_dim]];
            obs.assign(&expected.slice(s![.., ..obs_dim]));
            rows.next_obs.row_mut(step).assign(&obs.row(0));
        }
        let sumo = Sumo::open(session.home, &columns, &data.rows, session.pool.threads())?;
        let (u, near) = sumo.score_with_support(&rows, NEIGHBOURS.min(data.rows.len()))?;
        Ok((rows, (u, near, (sumo.max_loo_score(), sumo.loo_quantile(0.5)?))))
    })?;
    let (scores, near, (epsilon, usual)) = reach;
    let deviation = data.rows.obs.std_axis(Axis(0), 0.0);
    let mut imagined = Imagined {
        frames: Vec::new(),
        u: vec![0.0],
        epsilon,
        usual,
        error: vec![0.0],
        rewards: rows.rew.to_vec(),
        nearest: vec![Vec::new()],
        horizon,
    };
    let mut observed = vec![episode.obs[0].clone()];
    for step in 0..steps {
        let next = rows.next_obs.row(step);
        let squares = next.iter().zip(&real[step + 1]).zip(&deviation).filter(|(_, d)| **d > 0.0);
        let mean = squares.map(|((a, b), d)| ((a - b) / d).powi(2)).sum::<f32>() / next.len() as f32;
        imagined.error.push(mean.sqrt());
        imagined.u.push(scores[step]);
        let found = near.ids.row(step).into_iter().zip(near.distances.row(step));
        let named = |(&row, &distance): (&_, &f32)| {
            let (at, within) = locate(&data.episodes, row as usize)?;
            Some((at, within, distance))
        };
        imagined.nearest.push(found.filter_map(named).collect());
        observed.push(next.iter().map(|&o| f64::from(o)).collect());
    }
    Ok(Some((observed, imagined)))
}

impl Imagined {
    /// The body at a frame, and u as a share of the way from what is usual among the data to their largest score.
    pub(super) fn at(&self, frame: usize) -> Option<(&Frame, f32)> {
        let share = (self.u[frame] - self.usual) / (self.epsilon - self.usual).max(1e-9);
        Some((self.frames.get(frame)?, share))
    }

    /// Whether the model was started again from the real state at that frame.
    pub(super) fn starts_at(&self, frame: usize) -> bool {
        frame.is_multiple_of(self.horizon)
    }

    /// Draws the imagined bodies: the root moves on as the simulator would move it, from where the real one was at the start.
    pub(super) fn draw(
        &mut self,
        envs: &EnvPool<'_>,
        episode: &Episode,
        observed: &[Vec<f64>],
        (view, hidden): (View, usize),
        horizon: usize,
    ) -> Result<()> {
        let still = vec![0.0f32; episode.act.first().map_or(0, Vec::len)];
        let act = |step: usize| episode.act.get(step).unwrap_or(&still).as_slice();
        for start in (0..observed.len() - 1).step_by(horizon) {
            let end = (start + horizon).min(observed.len() - 1);
            let root = &episode.states[start].qpos;
            // The first observation of a window is the real one; its picture belongs to the window before.
            let obs = |step: usize| if step == start { &episode.obs[start] } else { &observed[step] };
            let steps = (start..=end).map(|step| (obs(step).clone(), act(step)));
            let frames = envs.with(|env| {
                let states = states_behind(env, hidden, root, steps);
                states.iter().map(|s| frame(env, view, s)).collect::<offing::Result<Vec<Frame>>>()
            })??;
            let first = usize::from(start > 0);
            let last = frames.last().cloned();
            self.frames.extend(frames.into_iter().skip(first));
            // What cannot be simulated stays where it was.
            while let (Some(last), true) = (&last, self.frames.len() <= end) {
                self.frames.push(last.clone());
            }
        }
        Ok(())
    }
}
