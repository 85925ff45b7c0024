//! The real simulator behind the interface of a model: what an ensemble is measured against.
//!
//! ```
//! use offing::dynamics::Oracle;
//! use offing::env::{Env, EnvPool, point_mass::PointMass};
//! use offing::Mat;
//! let make = || Ok(Box::new(PointMass::new()) as Box<dyn Env>);
//! let oracle = Oracle::new(EnvPool::new(make)).unwrap();
//! let replay = oracle.replay(&Mat::ones((5, 4)), &Mat::zeros((5, 2))).unwrap();
//! assert!(replay.lost == Default::default() && replay.batch.next_obs[[0, 0]] > 1.0);
//! ```

use std::sync::{Mutex, PoisonError};

use ndarray::{Array1, Array3, ArrayView1, ArrayView2, Axis};
use rayon::prelude::*;

use super::{DynamicsModel, Members, ModelStep, Prediction};
use crate::batch::{Batch, Mat};
use crate::env::{Env, EnvPool, Spec, StepResult};
use crate::error::{Result, require};
use crate::rng::Rng;

/// Rows a thread takes at once with one simulator.
const CHUNK: usize = 32;

/// A simulator that can be put into any state.
pub struct Oracle<'a> {
    envs: EnvPool<'a>,
    spec: Spec,
    counts: Mutex<LostCounts>,
}

/// What became of a batch of (s, a).
#[derive(Clone, Debug, PartialEq)]
pub struct OracleStep {
    /// (s, a, r, s', done) by the simulator. Rows of `lost.unstable` and `lost.unreadable` have NaN for s'
    /// and r, and `done`.
    pub batch: Batch,
    /// Rows that do not say what happens after exactly (s, a).
    pub lost: LostRows,
}

/// States over time: what became of starts under given actions.
#[derive(Clone, Debug, PartialEq)]
pub struct Trajectories {
    /// States after 1, 2, … steps: (row, step, obs_dim); NaN from where a row was lost.
    pub obs: Array3<f32>,
    /// Rows whose start was not exact or whose simulation was lost on the way.
    pub lost: LostRows,
}

/// Rows whose state could not be recovered, by cause; each list ascends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostRows {
    /// The observation hides velocities beyond its clipping: the step was made from the clipped ones.
    pub clipped: Vec<usize>,
    /// The simulator gave the state up.
    pub unstable: Vec<usize>,
    /// The state or the action is not finite, or the simulator refused it.
    pub unreadable: Vec<usize>,
}

/// How many rows an oracle has seen and could not recover, over all its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LostCounts {
    /// Rows simulated.
    pub rows: usize,
    /// See [`LostRows::clipped`].
    pub clipped: usize,
    /// See [`LostRows::unstable`].
    pub unstable: usize,
    /// See [`LostRows::unreadable`].
    pub unreadable: usize,
}

/// What one row's simulation came to.
#[derive(Clone, Copy, PartialEq)]
enum RowOutcome {
    Exact,
    Clipped,
    Unstable,
    Unreadable,
}

impl LostRows {
    fn of(fates: impl Iterator<Item = RowOutcome>) -> Self {
        let mut lost = Self::default();
        for (row, fate) in fates.enumerate() {
            match fate {
                RowOutcome::Exact => (),
                RowOutcome::Clipped => lost.clipped.push(row),
                RowOutcome::Unstable => lost.unstable.push(row),
                RowOutcome::Unreadable => lost.unreadable.push(row),
            }
        }
        lost
    }
}

impl<'a> Oracle<'a> {
    /// An oracle that borrows its simulators from `pool`; one is built now, to learn its shapes.
    pub fn new(envs: EnvPool<'a>) -> Result<Self> {
        let spec = envs.with(|env| env.spec().clone())?;
        Ok(Self { envs, spec, counts: Mutex::default() })
    }

    /// Shapes and limits of the simulated task.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Rows lost so far.
    pub fn counts(&self) -> LostCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One step from every (s, a), whatever came before it.
    pub fn replay(&self, obs: &Mat, act: &Mat) -> Result<OracleStep> {
        let (states, last, lost) = self.simulate(obs, &act.view().insert_axis(Axis(1)).to_owned())?;
        let mut batch = lost_rows(obs, act);
        batch.next_obs = states.index_axis_move(Axis(1), 0);
        for (row, step) in last.iter().enumerate() {
            if let Some(step) = step {
                (batch.rew[row], batch.done[row]) = (step.reward as f32, step.terminated);
            }
        }
        Ok(OracleStep { batch, lost })
    }

    /// Each state as the simulator would show it: velocities clipped where its observation clips them. Rows it cannot be
    /// put into stay as they are.
    pub fn as_observed(&self, obs: &Mat) -> Result<Mat> {
        let mut shown = obs.clone();
        shown.axis_chunks_iter_mut(Axis(0), CHUNK).into_par_iter().try_for_each(|mut rows| {
            self.envs.with(|env| {
                for mut row in rows.rows_mut() {
                    let state: Vec<f64> = row.iter().map(|&v| f64::from(v)).collect();
                    if state.iter().all(|v| v.is_finite()) && env.resume_from(&state).is_ok() {
                        row.iter_mut().zip(env.obs()).for_each(|(to, v)| *to = *v as f32);
                    }
                }
            })
        })?;
        Ok(shown)
    }

    /// The states that follow each start under its row of `acts`, (row, step, act_dim). Terminals do not stop
    /// it.
    pub fn follow(&self, obs: &Mat, acts: &Array3<f32>) -> Result<Trajectories> {
        let (obs, _, lost) = self.simulate(obs, acts)?;
        Ok(Trajectories { obs, lost })
    }

    /// States after each step, each row's last step (none where the simulator gave up), and the rows lost.
    fn simulate(
        &self,
        obs: &Mat,
        acts: &Array3<f32>,
    ) -> Result<(Array3<f32>, Vec<Option<StepResult>>, LostRows)> {
        let (rows, steps, width) = (obs.nrows(), acts.dim().1, self.spec.obs_dim);
        let (found, act_rows, act_width) = (obs.ncols(), acts.dim().0, acts.dim().2);
        require!(
            (found, act_rows, act_width) == (width, rows, self.spec.act_dim),
            "steps of {}: wanted {width} observations and {} actions a row, found {found} and {act_width} (rows {rows} and \
             {act_rows}); the rows are of another task",
            self.spec.task,
            self.spec.act_dim
        );
        let mut flat = vec![f32::NAN; rows * steps * width];
        let mut outcomes = vec![(RowOutcome::Unreadable, None); rows];
        let size = (steps * width).max(1);
        flat.par_chunks_mut(CHUNK * size).zip(outcomes.par_chunks_mut(CHUNK)).enumerate().try_for_each(
            |(chunk, (states, outcomes))| {
                self.envs.with(|env| {
                    for (i, (states, outcome)) in states.chunks_mut(size).zip(outcomes).enumerate() {
                        let row = chunk * CHUNK + i;
                        *outcome = follow_one(env, obs.row(row), acts.index_axis(Axis(0), row), states);
                    }
                })
            },
        )?;
        let (outcomes, last): (Vec<RowOutcome>, _) = outcomes.into_iter().unzip();
        let lost = LostRows::of(outcomes.into_iter());
        self.count(rows, &lost);
        let states = Array3::from_shape_vec((rows, steps, width), flat).expect("every row has every step");
        Ok((states, last, lost))
    }

    fn count(&self, rows: usize, lost: &LostRows) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.rows += rows;
        counts.clipped += lost.clipped.len();
        counts.unstable += lost.unstable.len();
        counts.unreadable += lost.unreadable.len();
    }

    /// For the infallible interface: a batch the simulators could not be built for is a batch of unreadable
    /// rows.
    fn replay_or_nan(&self, obs: &Mat, act: &Mat) -> OracleStep {
        self.replay(obs, act).unwrap_or_else(|_| {
            let lost = LostRows { unreadable: (0..obs.nrows()).collect(), ..LostRows::default() };
            self.count(obs.nrows(), &lost);
            OracleStep { batch: lost_rows(obs, act), lost }
        })
    }
}

/// Rows of which nothing is known but (s, a): what follows is NaN, and the episode ends.
fn lost_rows(obs: &Mat, act: &Mat) -> Batch {
    Batch {
        obs: obs.clone(),
        act: act.clone(),
        rew: Array1::from_elem(obs.nrows(), f32::NAN),
        next_obs: Mat::from_elem(obs.raw_dim(), f32::NAN),
        done: Array1::from_elem(obs.nrows(), true),
    }
}

/// Simulates one row into `states`, step after step; returns the last step as well, unless the simulator gave up.
fn follow_one(
    env: &mut dyn Env,
    start: ArrayView1<'_, f32>,
    acts: ArrayView2<'_, f32>,
    states: &mut [f32],
) -> (RowOutcome, Option<StepResult>) {
    if start.iter().chain(acts.iter()).any(|v| !v.is_finite()) {
        return (RowOutcome::Unreadable, None);
    }
    let start: Vec<f64> = start.iter().map(|&v| f64::from(v)).collect();
    let Ok(resumed) = env.resume_from(&start) else { return (RowOutcome::Unreadable, None) };
    let mut last = None;
    for (act, state) in acts.rows().into_iter().zip(states.chunks_exact_mut(start.len())) {
        last = Some(env.step(&act.to_vec()));
        // A simulator that gave up resumes elsewhere: its reward means as little as its state.
        if env.unstable() {
            return (RowOutcome::Unstable, None);
        }
        state.iter_mut().zip(env.obs()).for_each(|(to, v)| *to = *v as f32);
    }
    (if resumed.clipped.is_empty() { RowOutcome::Exact } else { RowOutcome::Clipped }, last)
}

impl DynamicsModel for Oracle<'_> {
    fn members(&self) -> usize {
        1
    }

    fn predict(&self, obs: &Mat, act: &Mat) -> Prediction {
        sure(&ModelStep::of_rows(self.replay_or_nan(obs, act).batch))
    }

    /// The simulator's own verdict on (s, a); `next_obs` is not looked at.
    fn done(&self, obs: &Mat, act: &Mat, _next_obs: &Mat) -> Array1<bool> {
        self.replay_or_nan(obs, act).batch.done
    }

    fn step_by(
        &self,
        _member: Array1<u32>,
        obs: &Mat,
        act: &Mat,
        members: Members,
        _rng: &mut Rng,
    ) -> ModelStep {
        let step = ModelStep::of_rows(self.replay_or_nan(obs, act).batch);
        ModelStep { prediction: (members == Members::All).then(|| sure(&step)), ..step }
    }
}

/// The prediction of one member that is sure of what happened.
fn sure(step: &ModelStep) -> Prediction {
    let mean = step.mean.clone().insert_axis(Axis(0));
    Prediction { std: Array3::zeros(mean.raw_dim()), mean }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::point_mass::PointMass;
    use ndarray::s;

    fn rows(n: usize) -> (Mat, Mat) {
        let mut rng = Rng::stream(0, "rows", 0);
        let obs = Mat::from_shape_fn((n, 4), |_| rng.normal() as f32);
        (obs, Mat::from_shape_fn((n, 2), |_| rng.range(-1.0, 1.0) as f32))
    }

    fn make() -> Result<Box<dyn Env>> {
        Ok(Box::new(PointMass::new()))
    }

    #[test]
    fn a_step_is_the_simulators_own() {
        let oracle = Oracle::new(EnvPool::new(make)).unwrap();
        let (mut obs, act) = rows(200);
        obs.row_mut(3).assign(&ndarray::array![2.95, 0.0, 5.0, 0.0]);
        let step = oracle.step(&obs, &act, Members::All, &mut Rng::stream(0, "x", 0));
        let mut env = PointMass::new();
        for i in 0..200 {
            env.resume_from(&obs.row(i).mapv(f64::from).to_vec()).unwrap();
            let moment = env.step(&act.row(i).to_vec());
            let next: Vec<f32> = env.obs().iter().map(|&v| v as f32).collect();
            assert_eq!(step.batch.next_obs.row(i).to_vec(), next);
            assert_eq!(step.batch.rew[i], moment.reward as f32);
            assert_eq!(step.batch.done[i], moment.terminated);
            assert_eq!(step.mean.row(i).to_vec()[..4], next);
        }
        assert!(step.batch.done[3] && step.std.iter().all(|&v| v == 0.0));
        assert_eq!(step.prediction.unwrap().mean.dim(), (1, 200, 5));
        assert_eq!(oracle.counts(), LostCounts { rows: 200, ..Default::default() });
        assert_eq!(oracle.done(&obs, &act, &obs), step.batch.done);
    }

    #[test]
    fn following_is_stepping_again_and_again() {
        let oracle = Oracle::new(EnvPool::new(make)).unwrap();
        let (obs, _) = rows(70);
        let mut rng = Rng::stream(1, "acts", 0);
        let acts = Array3::from_shape_fn((70, 6, 2), |_| rng.range(-1.0, 1.0) as f32);
        let followed = oracle.follow(&obs, &acts).unwrap();
        let mut env = PointMass::new();
        for i in [0, 31, 32, 69] {
            env.resume_from(&obs.row(i).mapv(f64::from).to_vec()).unwrap();
            for t in 0..6 {
                env.step(&acts.slice(s![i, t, ..]).to_vec());
                let now: Vec<f32> = env.obs().iter().map(|&v| v as f32).collect();
                assert_eq!(followed.obs.slice(s![i, t, ..]).to_vec(), now);
            }
        }
    }

    #[test]
    fn rows_that_cannot_be_simulated_are_marked_and_counted() {
        let oracle = Oracle::new(EnvPool::new(make)).unwrap();
        let (mut obs, mut act) = rows(100);
        obs[[40, 1]] = f32::NAN;
        act[[7, 0]] = f32::INFINITY;
        let replay = oracle.replay(&obs, &act).unwrap();
        assert_eq!(replay.lost, LostRows { unreadable: vec![7, 40], ..Default::default() });
        assert!(replay.batch.next_obs.row(7).iter().all(|v| v.is_nan()) && replay.batch.rew[40].is_nan());
        assert!(replay.batch.done[7] && replay.batch.next_obs.row(8).iter().all(|v| v.is_finite()));
        assert_eq!(oracle.counts().unreadable, 2);
        let wrong = oracle.replay(&Mat::zeros((3, 5)), &Mat::zeros((3, 2))).unwrap_err().to_string();
        assert!(wrong.contains("wanted 4 observations and 2 actions a row, found 5 and 2"), "{wrong}");
    }
}
