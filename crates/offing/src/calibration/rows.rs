//! The rows of a study: steps of the model, and the true next states.

use ndarray::{Array, Array3, ArrayView, Axis, RemoveAxis, concatenate};

use crate::batch::{Batch, Mat};
use crate::data::Dataset;
use crate::dynamics::{DynamicsModel, Ensemble, Members, ModelStep, Oracle, Prediction};
use crate::error::Result;
use crate::nn::ThreadPool;
use crate::rng::Rng;
use crate::rollout::LARGEST;
use crate::sac::Actor;

/// Steps of rollouts in the model, and where they come from.
#[derive(Clone, Debug)]
pub(super) struct RolloutRows {
    /// All rows, rollout step after rollout step.
    pub(super) step: ModelStep,
    /// Which start each row descends from.
    pub(super) trajectory: Vec<usize>,
    /// How many steps after the start it was made, from 0.
    pub(super) age: Vec<usize>,
    /// Whether the model's own termination function had ended the trajectory before this row.
    pub(super) after_end: Vec<bool>,
    /// Rows left out because their numbers left their range, with all that would have followed them.
    pub(super) exploded: usize,
}

/// What truly follows each row.
#[derive(Clone, Debug)]
pub(super) struct TrueSteps {
    /// True next states; NaN where the simulator could not say.
    pub(super) next_obs: Mat,
    /// The imagined next states as the simulator would show them (velocities clipped).
    pub(super) shown: Mat,
    /// The means of the imagined next states, shown likewise.
    pub(super) shown_mean: Mat,
    /// Rows whose velocities were hidden by clipping, so that they were replayed from the clipped ones.
    pub(super) clipped: Vec<bool>,
    /// Rows for which there is no truth: the simulator became unstable or refused the state.
    pub(super) lost: Vec<bool>,
}

impl RolloutRows {
    /// Rolls `policy` out in `model` from every start for `length` steps. The model's terminals are noted, not obeyed.
    pub(super) fn new(
        model: &Ensemble,
        policy: &Actor,
        pool: &ThreadPool,
        start: Mat,
        length: usize,
        rng: &mut Rng,
    ) -> Self {
        let mut obs = start;
        let mut alive: Vec<usize> = (0..obs.nrows()).collect();
        let mut ended = vec![false; obs.nrows()];
        let mut steps = Vec::new();
        let (mut trajectory, mut age, mut after_end) = (Vec::new(), Vec::new(), Vec::new());
        let (total, mut rows) = (obs.nrows() * length, 0);
        for t in 0..length {
            let act = policy.act_batch(pool, &obs, rng);
            let step = model.step(&obs, &act, Members::All, rng);
            let sound = |i: &usize| {
                let row = step.batch.next_obs.row(*i);
                step.batch.rew[*i].is_finite() && row.iter().all(|x| x.abs() < LARGEST)
            };
            let keep: Vec<usize> = (0..alive.len()).filter(sound).collect();
            let step = step.select(&keep);
            alive = keep.iter().map(|&i| alive[i]).collect();
            for (i, &origin) in alive.iter().enumerate() {
                trajectory.push(origin);
                age.push(t);
                after_end.push(ended[origin]);
                ended[origin] |= step.batch.done[i];
            }
            rows += alive.len();
            obs = step.batch.next_obs.clone();
            steps.push(step);
            if alive.is_empty() {
                break;
            }
        }
        Self { step: join(&steps), trajectory, age, after_end, exploded: total - rows }
    }
}

impl TrueSteps {
    /// Replays every (s, a) in the simulator.
    pub(super) fn replay(rows: &RolloutRows, oracle: &Oracle<'_>) -> Result<Self> {
        let batch = &rows.step.batch;
        let replay = oracle.replay(&batch.obs, &batch.act)?;
        let mut clipped = vec![false; batch.len()];
        let mut lost = vec![false; batch.len()];
        replay.lost.clipped.iter().for_each(|&i| clipped[i] = true);
        replay.lost.unstable.iter().chain(&replay.lost.unreadable).for_each(|&i| lost[i] = true);
        Ok(Self {
            shown: oracle.as_observed(&batch.next_obs)?,
            shown_mean: oracle.as_observed(&mean_next(&rows.step))?,
            next_obs: replay.batch.next_obs,
            clipped,
            lost,
        })
    }
}

/// Without a simulator: the model's steps from logged (s, a), against the logged next states. The rows must not be
/// those the model was trained on; the caller holds whole episodes back.
pub(super) fn held_out(
    data: &Dataset,
    model: &Ensemble,
    rows: usize,
    rng: &mut Rng,
) -> (RolloutRows, TrueSteps) {
    let n = data.rows.len();
    let picks: Vec<usize> =
        if rows >= n { (0..n).collect() } else { (0..rows).map(|_| rng.below(n)).collect() };
    let logged = data.rows.select(&picks);
    let step = model.step(&logged.obs, &logged.act, Members::All, rng);
    let episode = |row: usize| data.episodes.partition_point(|e| e.end <= row);
    let trajectory = picks.iter().map(|&row| episode(row)).collect();
    let age = picks.iter().map(|&row| row - data.episodes.get(episode(row)).map_or(0, |e| e.start)).collect();
    let truth = TrueSteps {
        shown: step.batch.next_obs.clone(),
        shown_mean: mean_next(&step),
        next_obs: logged.next_obs,
        clipped: vec![false; picks.len()],
        lost: vec![false; picks.len()],
    };
    let after_end = vec![false; picks.len()];
    (RolloutRows { step, trajectory, age, after_end, exploded: 0 }, truth)
}

/// The mean next states of the members that made the rows.
pub(super) fn mean_next(step: &ModelStep) -> Mat {
    let width = step.batch.obs_dim();
    step.mean.slice(ndarray::s![.., ..width]).to_owned()
}

fn join(steps: &[ModelStep]) -> ModelStep {
    let mats = |pick: fn(&ModelStep) -> &Mat| stacked(0, steps.iter().map(|s| pick(s).view()));
    let all: Vec<&Prediction> = steps.iter().filter_map(|s| s.prediction.as_ref()).collect();
    let members = |pick: fn(&Prediction) -> &Array3<f32>| stacked(1, all.iter().map(|p| pick(p).view()));
    ModelStep {
        batch: Batch {
            obs: mats(|s| &s.batch.obs),
            act: mats(|s| &s.batch.act),
            rew: stacked(0, steps.iter().map(|s| s.batch.rew.view())),
            next_obs: mats(|s| &s.batch.next_obs),
            done: stacked(0, steps.iter().map(|s| s.batch.done.view())),
        },
        member: stacked(0, steps.iter().map(|s| s.member.view())),
        mean: mats(|s| &s.mean),
        std: mats(|s| &s.std),
        prediction: Some(Prediction { mean: members(|p| &p.mean), std: members(|p| &p.std) }),
    }
}

/// Parts of equal shapes but for one axis, one after the other.
fn stacked<'a, T: Clone + 'a, D: RemoveAxis>(
    axis: usize,
    parts: impl Iterator<Item = ArrayView<'a, T, D>>,
) -> Array<T, D> {
    concatenate(Axis(axis), &parts.collect::<Vec<_>>()).expect("parts of one shape")
}
