//! Rollouts in a learnt model: a policy acts, a rule says how far it may go. The rollout loop of every algorithm.

use ndarray::{Array1, Axis, s};

use crate::batch::{Batch, Mat};
use crate::dynamics::{DynamicsModel, Members, ModelStep};
use crate::error::Result;
use crate::nn::{Noise, Tensors, ThreadPool};
use crate::npg::GaussianPolicy;
use crate::pessimism::{CalibratedRule, Verdict};
use crate::replay::ReplayBuffer;
use crate::rng::Rng;
use crate::sac::Actor;
use crate::uncertainty::Uncertainty;

/// A predicted number beyond this has left everything a simulator or a network was made for; the row is dropped and its
/// trajectory ends. Far above every threshold of a termination function (100), so it never stands in for one.
pub(crate) const LARGEST: f32 = 1e6;

/// Rows of a step scored for statistics where the rule itself only asks yes or no.
const SAMPLE: usize = 256;

/// Steps of a rollout at which such a sample is taken, evenly spread: a long rollout of few rows would otherwise score
/// them all.
const SCORE_SAMPLES: usize = 8;

/// Acts in rollouts of a learnt model, on a matrix of states at once. In a simulator
/// [`Policy`](crate::policy::Policy) acts.
pub trait BatchPolicy {
    /// Width of an observation.
    fn obs_dim(&self) -> usize;
    /// Width of an action.
    fn act_dim(&self) -> usize;
    /// A choice for each state, with noise.
    fn sample_actions(&self, pool: &ThreadPool, obs: &Mat, rng: &mut Rng) -> Mat;
    /// What the world makes of the choices; `None` where it takes them as they are. Model and estimator see this, the rows
    /// of the rollout keep the choices.
    fn clipped(&self, choices: &Mat) -> Option<Mat> {
        let _ = choices;
        None
    }
}

impl BatchPolicy for Actor {
    fn obs_dim(&self) -> usize {
        Actor::obs_dim(self)
    }

    fn act_dim(&self) -> usize {
        Actor::act_dim(self)
    }

    fn sample_actions(&self, pool: &ThreadPool, obs: &Mat, rng: &mut Rng) -> Mat {
        self.act_batch(pool, obs, rng)
    }
}

impl BatchPolicy for GaussianPolicy {
    fn obs_dim(&self) -> usize {
        GaussianPolicy::obs_dim(self)
    }

    fn act_dim(&self) -> usize {
        GaussianPolicy::act_dim(self)
    }

    fn sample_actions(&self, pool: &ThreadPool, obs: &Mat, rng: &mut Rng) -> Mat {
        self.sample(pool, obs.view(), Noise::draw(rng))
    }

    fn clipped(&self, choices: &Mat) -> Option<Mat> {
        Some(choices.mapv(|a| a.clamp(-1.0, 1.0)))
    }
}

/// Actions drawn uniformly from [−1, 1].
#[derive(Clone, Copy, Debug)]
pub struct UniformActions {
    /// Width of an observation.
    pub obs_dim: usize,
    /// Width of an action.
    pub act_dim: usize,
}

impl BatchPolicy for UniformActions {
    fn obs_dim(&self) -> usize {
        self.obs_dim
    }

    fn act_dim(&self) -> usize {
        self.act_dim
    }

    fn sample_actions(&self, _pool: &ThreadPool, obs: &Mat, rng: &mut Rng) -> Mat {
        Mat::from_shape_simple_fn((obs.nrows(), self.act_dim), || rng.range(-1.0, 1.0) as f32)
    }
}

/// A model, an estimator and a rule: all that a rollout needs besides a policy.
pub struct ModelRollout<'a> {
    /// The learnt dynamics.
    pub model: &'a dyn DynamicsModel,
    /// What scores steps; `None` when the rule needs no scores.
    pub estimator: Option<&'a dyn Uncertainty>,
    /// What is done about scores.
    pub rule: CalibratedRule,
    /// The threads to work with.
    pub pool: &'a ThreadPool,
    /// One member makes all steps of a trajectory, instead of one drawn for each step: its errors do not average out, so a
    /// trajectory is one possible world.
    pub one_member: bool,
}

/// What one call of [`ModelRollout::run`] brought.
#[derive(Clone, Debug)]
pub struct Rollout {
    /// The kept rows, step after step. Actions are as chosen, before the world made of them what it does.
    pub rows: Batch,
    /// Which of the starts each row goes back to.
    pub start: Vec<u32>,
    /// Steps since that start, from 0.
    pub depth: Vec<u32>,
    /// Their scores; NaN where a row has not been scored yet.
    pub u: Vec<f32>,
    /// Numbers about it.
    pub stats: RolloutStats,
}

/// What happened in rollouts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RolloutStats {
    /// Steps imagined.
    pub imagined: u64,
    /// Steps that the rule dropped or turned into a halt.
    pub truncated: u64,
    /// Steps that ended by the model's own termination function.
    pub terminated: u64,
    /// Steps whose numbers left the finite range; they were dropped.
    pub non_finite: u64,
    /// Sum and number of the scores looked at.
    pub score_sum: f64,
    /// See above.
    pub scored: u64,
    /// Largest score looked at.
    pub score_max: f32,
}

impl RolloutStats {
    /// Mean of the scores looked at; `None` when there were none.
    pub fn mean_score(&self) -> Option<f64> {
        (self.scored > 0).then(|| self.score_sum / self.scored as f64)
    }

    /// Adds what happened in other rollouts.
    pub fn add(&mut self, other: &RolloutStats) {
        self.imagined += other.imagined;
        self.truncated += other.truncated;
        self.terminated += other.terminated;
        self.non_finite += other.non_finite;
        self.score_sum += other.score_sum;
        self.scored += other.scored;
        self.score_max = self.score_max.max(other.score_max);
    }

    /// How many numbers a checkpoint keeps of it.
    pub(crate) const NUMBERS: usize = 7;

    /// As numbers, for a checkpoint.
    pub(crate) fn to_numbers(&self) -> [f64; Self::NUMBERS] {
        let counts =
            [self.imagined, self.truncated, self.terminated, self.non_finite, self.scored].map(|n| n as f64);
        let [imagined, truncated, terminated, non_finite, scored] = counts;
        [imagined, truncated, terminated, non_finite, scored, self.score_sum, f64::from(self.score_max)]
    }

    /// Takes back what [`RolloutStats::to_numbers`] gave; there must be as many.
    pub(crate) fn from_numbers(numbers: &[f64]) -> Self {
        let count = |i: usize| numbers[i] as u64;
        Self {
            imagined: count(0),
            truncated: count(1),
            terminated: count(2),
            non_finite: count(3),
            scored: count(4),
            score_sum: numbers[5],
            score_max: numbers[6] as f32,
        }
    }

    /// Takes scores into the statistics.
    pub fn add_scores(&mut self, scores: &[f32]) {
        for &u in scores {
            self.score_sum += f64::from(u);
            self.score_max = self.score_max.max(u);
        }
        self.scored += scores.len() as u64;
    }
}

impl<'a> ModelRollout<'a> {
    /// Rollouts that trust every step: for algorithms that meet uncertainty elsewhere.
    pub fn without_rule(model: &'a dyn DynamicsModel, pool: &'a ThreadPool) -> Self {
        Self { model, estimator: None, rule: CalibratedRule::none(), pool, one_member: false }
    }
}

impl ModelRollout<'_> {
    /// Rolls the policy out from `start` for `length` steps (Alg. 1 lines 6–11, Alg. 2 lines 7–15).
    ///
    /// An estimator that looks at rows alone scores penalties later, when rows are drawn; see [`ModelBuffer::score`].
    pub fn run(
        &mut self,
        policy: &dyn BatchPolicy,
        start: Mat,
        length: usize,
        rng: &mut Rng,
    ) -> Result<Rollout> {
        let members = self.estimator.map_or(Members::One, |e| e.needs());
        let (obs_dim, act_dim) = (policy.obs_dim(), policy.act_dim());
        let (mut u, mut origin, mut stats) = (Vec::new(), Vec::new(), RolloutStats::default());
        let (mut kept, mut depth) = (Vec::new(), Vec::new());
        let mut who: Vec<u32> = (0..start.nrows() as u32).collect();
        let chosen = self.one_member.then(|| self.model.draw_members(start.nrows(), rng));
        let mut obs = start;
        for t in 0..length {
            if obs.nrows() == 0 {
                break;
            }
            let choices = policy.sample_actions(self.pool, &obs, rng);
            let clipped = policy.clipped(&choices);
            let member = match &chosen {
                Some(chosen) => who.iter().map(|&i| chosen[i as usize]).collect(),
                None => self.model.draw_members(obs.nrows(), rng),
            };
            let act = clipped.as_ref().unwrap_or(&choices);
            let step = self.model.step_by(member, &obs, act, members, rng);
            stats.imagined += obs.nrows() as u64;
            let (step, sound) = finite_rows(step, &mut stats);
            let sample_scores = t.is_multiple_of(length.div_ceil(SCORE_SAMPLES));
            let (mut rows, scores, stay) = self.apply_rule(step, sample_scores, &mut stats)?;
            let stay: Vec<usize> = stay.into_iter().map(|i| sound[i]).collect();
            if clipped.is_some() {
                rows.act = choices.select(Axis(0), &stay);
            }
            who = stay.iter().map(|&i| who[i]).collect();
            origin.extend(&who);
            depth.extend(std::iter::repeat_n(t as u32, who.len()));
            u.extend(scores);
            let going_on: Vec<usize> = (0..rows.len()).filter(|&i| !rows.done[i]).collect();
            obs = rows.next_obs.select(Axis(0), &going_on);
            who = going_on.iter().map(|&i| who[i]).collect();
            kept.push(rows);
        }
        Ok(Rollout { rows: join(kept, obs_dim, act_dim), start: origin, depth, u, stats })
    }

    /// The rows to keep, their scores, and which of the step's rows they are.
    fn apply_rule(
        &mut self,
        step: ModelStep,
        sample_scores: bool,
        stats: &mut RolloutStats,
    ) -> Result<(Batch, Vec<f32>, Vec<usize>)> {
        let rows = step.batch.len();
        let (verdicts, u) = match (self.estimator, self.rule.epsilon()) {
            (None, _) => (vec![Verdict::Keep; rows], vec![0.0; rows]),
            (Some(estimator), Some(epsilon)) => {
                let exceeds = estimator.exceeds(&step, epsilon)?;
                if sample_scores {
                    let sample = step.select(&(0..rows.min(SAMPLE)).collect::<Vec<_>>());
                    stats.add_scores(estimator.score(&sample)?.as_slice().unwrap_or_default());
                }
                (exceeds.into_iter().map(|e| self.rule.verdict(e)).collect(), vec![0.0; rows])
            }
            (Some(estimator), None) if estimator.needs() == Members::All => {
                let u = estimator.score(&step)?.to_vec();
                self.rule.observe(&u);
                stats.add_scores(&u);
                (vec![Verdict::Keep; rows], u)
            }
            (Some(_), None) => (vec![Verdict::Keep; rows], vec![f32::NAN; rows]),
        };
        let mut batch = step.batch;
        let halting = self.rule.halting_reward();
        for (i, verdict) in verdicts.iter().enumerate() {
            stats.truncated += u64::from(*verdict != Verdict::Keep);
            stats.terminated += u64::from(batch.done[i]);
            if *verdict == Verdict::Halt {
                (batch.rew[i], batch.done[i]) = (halting, true);
            }
        }
        let keep: Vec<usize> = (0..rows).filter(|&i| verdicts[i] != Verdict::Drop).collect();
        let u = keep.iter().map(|&i| u[i]).collect();
        let batch = if keep.len() == rows { batch } else { batch.select(&keep) };
        Ok((batch, u, keep))
    }
}

/// Leaves out rows whose numbers left the finite range; also says which are left.
fn finite_rows(step: ModelStep, stats: &mut RolloutStats) -> (ModelStep, Vec<usize>) {
    let sound = |i: usize| {
        step.batch.rew[i].is_finite() && step.batch.next_obs.row(i).iter().all(|x| x.abs() < LARGEST)
    };
    let keep: Vec<usize> = (0..step.batch.len()).filter(|&i| sound(i)).collect();
    stats.non_finite += (step.batch.len() - keep.len()) as u64;
    let step = if keep.len() == step.batch.len() { step } else { step.select(&keep) };
    (step, keep)
}

/// The rows of all parts, one after another.
pub(crate) fn join(parts: Vec<Batch>, obs_dim: usize, act_dim: usize) -> Batch {
    let rows: usize = parts.iter().map(Batch::len).sum();
    let mut out = Batch {
        obs: Mat::zeros((rows, obs_dim)),
        act: Mat::zeros((rows, act_dim)),
        rew: Array1::zeros(rows),
        next_obs: Mat::zeros((rows, obs_dim)),
        done: Array1::from_elem(rows, false),
    };
    let mut at = 0;
    for part in parts {
        let end = at + part.len();
        out.obs.slice_mut(s![at..end, ..]).assign(&part.obs);
        out.act.slice_mut(s![at..end, ..]).assign(&part.act);
        out.rew.slice_mut(s![at..end]).assign(&part.rew);
        out.next_obs.slice_mut(s![at..end, ..]).assign(&part.next_obs);
        out.done.slice_mut(s![at..end]).assign(&part.done);
        at = end;
    }
    out
}

/// The buffer of imagined rows (D_model) with their raw scores and their places in the rollouts.
#[derive(Clone, Debug)]
pub struct ModelBuffer {
    /// The rows.
    pub ring: ReplayBuffer,
    u: Vec<f32>,
    /// Steps from the start of the rollout to each row.
    depth: Vec<u32>,
}

impl ModelBuffer {
    /// An empty buffer for `capacity` rows.
    pub fn new(capacity: usize, obs_dim: usize, act_dim: usize) -> Self {
        let ring = ReplayBuffer::new(capacity, obs_dim, act_dim);
        Self { ring, u: vec![0.0; capacity], depth: vec![0; capacity] }
    }

    /// Adds what a rollout brought.
    pub fn push(&mut self, rollout: &Rollout) {
        let first = self.ring.push(&rollout.rows);
        let capacity = self.u.len();
        for (i, (&u, &depth)) in rollout.u.iter().zip(&rollout.depth).enumerate() {
            let slot = (first + i) % capacity;
            (self.u[slot], self.depth[slot]) = (u, depth);
        }
    }

    /// The raw score in a slot.
    pub fn score_at(&self, slot: usize) -> f32 {
        self.u[slot]
    }

    /// Steps from the start of its rollout to the row in a slot: 0 for the first.
    pub fn depth_at(&self, slot: usize) -> u32 {
        self.depth[slot]
    }

    /// Scores the rows in `slots` that have not been scored, in one search. Rows that no batch draws are never scored:
    /// with a real share of 0.9 that is nine tenths of the work. Each row's score depends on it alone, so the result
    /// is that of scoring early, but for a running maximum, which then counts drawn rows only.
    pub fn score(
        &mut self,
        slots: impl Iterator<Item = usize>,
        estimator: &dyn Uncertainty,
        rule: &mut CalibratedRule,
        stats: &mut RolloutStats,
    ) -> Result<()> {
        let mut open: Vec<usize> = slots.filter(|&slot| self.u[slot].is_nan()).collect();
        open.sort_unstable();
        open.dedup();
        if open.is_empty() {
            return Ok(());
        }
        let scores = estimator.score_owned(ModelStep::of_rows(self.ring.columns().select(&open)))?.to_vec();
        rule.observe(&scores);
        stats.add_scores(&scores);
        open.iter().zip(&scores).for_each(|(&slot, &u)| self.u[slot] = u);
        Ok(())
    }

    /// Rows, scores and depths, for a checkpoint.
    pub fn save(&self) -> Tensors {
        let (mut out, n) = (self.ring.save(), self.ring.len());
        out.put_f32("u", &[n], self.u[..n].to_vec());
        out.put_f32("depth", &[n], self.depth[..n].iter().map(|&depth| depth as f32).collect());
        out
    }

    /// Takes back what [`ModelBuffer::save`] gave.
    pub fn load(&mut self, from: &Tensors) -> Result<()> {
        self.ring.load(from)?;
        let n = self.ring.len();
        self.u[..n].copy_from_slice(&from.f32("u", &[n])?);
        // Checkpoints of older versions have no depths; their algorithms do not look at them.
        if from.shape("depth").is_some() {
            let depths = from.f32("depth", &[n])?;
            self.depth.iter_mut().zip(depths).for_each(|(to, depth)| *to = depth as u32);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
