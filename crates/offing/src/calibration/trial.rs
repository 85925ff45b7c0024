//! Imagined rows and the truth about them.

use ndarray::{Array1, Array3, Axis, concatenate};
use serde::Serialize;

use crate::batch::{Batch, Mat};
use crate::dynamics::{DynamicsModel, Ensemble, Forecast, Members, Oracle, Step};
use crate::error::{Error, Result};
use crate::nn::Team;
use crate::rng::Rng;
use crate::sac::Actor;

/// An imagined number beyond this has left everything a simulator or a network was made for.
const EXPLODED: f32 = 1e6;

/// Imagined rows, in the order of their steps, with every member's forecast.
#[derive(Clone, Debug)]
pub struct Imagined {
    /// The rows.
    pub step: Step,
    /// Which rollout each belongs to.
    pub rollout: Vec<u32>,
    /// Its step in it, from 0.
    pub time: Vec<u32>,
    /// Whether the model's own termination function had not ended the rollout before this row.
    pub alive: Vec<bool>,
    /// Rows that exploded. They are left out, and their rollouts end there.
    pub exploded: usize,
    /// Rows that were never imagined because their rollout had exploded.
    pub cut: usize,
}

/// Imagined rows whose true next states are known.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The rows, without those that could not be replayed.
    pub rows: Imagined,
    /// True next states.
    pub truth: Mat,
    /// Rows replayed from clipped velocities: the state was not quite the one asked for.
    pub clipped: Vec<bool>,
    /// What became of all rows.
    pub counts: Counts,
}

/// Where rows went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Rows asked for.
    pub asked: usize,
    /// Rows compared.
    pub compared: usize,
    /// Rows left out because their numbers exploded.
    pub exploded: usize,
    /// Rows never imagined because their rollout had exploded.
    pub cut: usize,
    /// Rows the simulator gave up on or refused.
    pub lost: usize,
    /// Rows compared although their velocities were clipped.
    pub clipped: usize,
}

/// Rolls a policy out in the model for `length` steps, past the model's own terminations (the paper's 100 × 100 rows imply
/// that nothing stops early).
///
/// # Errors
/// No start states, or states of another width than the policy's.
pub fn imagine(
    model: &Ensemble,
    policy: &Actor,
    start: Mat,
    length: usize,
    team: &Team,
    rng: &mut Rng,
) -> Result<Imagined> {
    if start.nrows() == 0 || length == 0 || start.ncols() != policy.obs_dim() {
        return Err(Error::Invalid(format!(
            "calibration: wanted start states of {} numbers and at least one step, found {} of {} and {length} steps",
            policy.obs_dim(),
            start.nrows(),
            start.ncols()
        )));
    }
    let rollouts = start.nrows();
    let mut going: Vec<u32> = (0..rollouts as u32).collect();
    let mut ended = vec![false; rollouts];
    let (mut steps, mut obs) = (Vec::new(), start);
    let (mut rollout, mut time, mut alive) = (Vec::new(), Vec::new(), Vec::new());
    let (mut exploded, mut cut) = (0, 0);
    for t in 0..length {
        if going.is_empty() {
            break;
        }
        let act = policy.act_batch(team, &obs, rng);
        let step = model.step(&obs, &act, Members::All, rng);
        let sound = |i: &usize| {
            let row = step.batch.next_obs.row(*i);
            step.batch.rew[*i].is_finite() && row.iter().all(|x| x.abs() < EXPLODED)
        };
        let keep: Vec<usize> = (0..going.len()).filter(sound).collect();
        exploded += going.len() - keep.len();
        cut += (going.len() - keep.len()) * (length - 1 - t);
        let step = select(&step, &keep);
        going = keep.iter().map(|&i| going[i]).collect();
        for (i, &r) in going.iter().enumerate() {
            rollout.push(r);
            time.push(t as u32);
            alive.push(!ended[r as usize]);
            ended[r as usize] |= step.batch.done[i];
        }
        obs = step.batch.next_obs.clone();
        steps.push(step);
    }
    Ok(Imagined { step: join(&steps, model), rollout, time, alive, exploded, cut })
}

/// Logged rows as a trial, for data without a simulator: the model steps from each logged (s, a) and the logged s' is the
/// truth. The rows must be held out from the model and from the estimators. Every episode counts as a rollout.
///
/// # Errors
/// No rows, or rows of another width than the model's.
pub fn held_out(
    model: &Ensemble,
    rows: &Batch,
    episodes: &[std::ops::Range<usize>],
    rng: &mut Rng,
) -> Result<Trial> {
    if rows.is_empty() || (rows.obs_dim(), rows.act_dim()) != (model.obs_dim(), model.act_dim()) {
        return Err(Error::Invalid(format!(
            "calibration: wanted held-out rows of {} observations and {} actions, found {} rows of {} and {}",
            model.obs_dim(),
            model.act_dim(),
            rows.len(),
            rows.obs_dim(),
            rows.act_dim()
        )));
    }
    let step = model.step(&rows.obs, &rows.act, Members::All, rng);
    let place = |row: usize| crate::uncertainty::locate(episodes, row).unwrap_or((episodes.len(), row));
    let (rollout, time) = (0..rows.len()).map(place).map(|(e, t)| (e as u32, t as u32)).unzip();
    let alive = vec![true; rows.len()];
    let imagined = Imagined { step, rollout, time, alive, exploded: 0, cut: 0 };
    Ok(imagined.compare(rows.next_obs.clone(), vec![false; rows.len()]))
}

impl Imagined {
    /// Steps every (s, a) in the simulator.
    ///
    /// # Errors
    /// Rows of another task than the simulator's.
    pub fn replay(self, oracle: &Oracle<'_>) -> Result<Trial> {
        let replay = oracle.replay(&self.step.batch.obs, &self.step.batch.act)?;
        let mut clipped = vec![false; self.rollout.len()];
        replay.lost.clipped.iter().for_each(|&row| clipped[row] = true);
        Ok(self.compare(replay.batch.next_obs, clipped))
    }

    /// Puts the truth beside the rows; rows without a finite truth are left out and counted.
    fn compare(self, truth: Mat, clipped: Vec<bool>) -> Trial {
        let all = self.rollout.len();
        let known = |row: &usize| truth.row(*row).iter().all(|x| x.is_finite());
        let keep: Vec<usize> = (0..all).filter(known).collect();
        let clipped: Vec<bool> = keep.iter().map(|&i| clipped[i]).collect();
        let counts = Counts {
            asked: all + self.exploded + self.cut,
            compared: keep.len(),
            exploded: self.exploded,
            cut: self.cut,
            lost: all - keep.len(),
            clipped: clipped.iter().filter(|c| **c).count(),
        };
        let rows = Imagined {
            step: select(&self.step, &keep),
            rollout: keep.iter().map(|&i| self.rollout[i]).collect(),
            time: keep.iter().map(|&i| self.time[i]).collect(),
            alive: keep.iter().map(|&i| self.alive[i]).collect(),
            ..self
        };
        Trial { rows, truth: truth.select(Axis(0), &keep), clipped, counts }
    }
}

/// The given rows of a step.
pub(super) fn select(step: &Step, rows: &[usize]) -> Step {
    Step {
        batch: step.batch.select(rows),
        member: step.member.select(Axis(0), rows),
        mean: step.mean.select(Axis(0), rows),
        std: step.std.select(Axis(0), rows),
        forecast: step
            .forecast
            .as_ref()
            .map(|f| Forecast { mean: f.mean.select(Axis(1), rows), std: f.std.select(Axis(1), rows) }),
    }
}

/// Steps one after the other.
fn join(steps: &[Step], model: &Ensemble) -> Step {
    let (s, a, width) = (model.obs_dim(), model.act_dim(), model.obs_dim() + 1);
    let mats = |pick: fn(&Step) -> &Mat, cols: usize| {
        let views: Vec<_> = steps.iter().map(|step| pick(step).view()).collect();
        concatenate(Axis(0), &views).unwrap_or_else(|_| Mat::zeros((0, cols)))
    };
    let cubes = |pick: fn(&Forecast) -> &Array3<f32>| {
        let views: Vec<_> =
            steps.iter().filter_map(|s| s.forecast.as_ref()).map(|f| pick(f).view()).collect();
        concatenate(Axis(1), &views).unwrap_or_else(|_| Array3::zeros((model.members(), 0, width)))
    };
    Step {
        batch: Batch {
            obs: mats(|s| &s.batch.obs, s),
            act: mats(|s| &s.batch.act, a),
            rew: steps.iter().flat_map(|s| s.batch.rew.iter().copied()).collect::<Array1<f32>>(),
            next_obs: mats(|s| &s.batch.next_obs, s),
            done: steps.iter().flat_map(|s| s.batch.done.iter().copied()).collect::<Array1<bool>>(),
        },
        member: steps.iter().flat_map(|s| s.member.iter().copied()).collect(),
        mean: mats(|s| &s.mean, width),
        std: mats(|s| &s.std, width),
        forecast: Some(Forecast { mean: cubes(|f| &f.mean), std: cubes(|f| &f.std) }),
    }
}
