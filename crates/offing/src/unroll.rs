//! A policy unrolled in the model: its actions, with noise if wanted, mean next states, and the gradient of any loss of
//! them at the policy's weights. Where [`rollout`](crate::rollout) samples rows to learn values from, this follows how each action changes
//! what comes after it.

use ndarray::{Array1, Array2, ArrayView2, Axis, Zip, concatenate, s};

use crate::batch::{Batch, Mat};
use crate::dynamics::{DynamicsModel, Ensemble, MeanStep, ModelStep};
use crate::nn::ThreadPool;
use crate::rollout::LARGEST;
use crate::sac::{Actor, ActorPass, Sac, Standardiser};

#[cfg(test)]
mod tests;

/// Room for trajectories of equal length, forward and back.
#[derive(Debug)]
pub struct Unroll {
    /// The actor at each state, the last included. First of all the rows of [`anchor`](Self::anchor).
    passes: Vec<ActorPass>,
    steps: Vec<MeanStep>,
    /// Actions at the anchored states.
    anchored: Mat,
    /// s_0 to s_H as the model sees them; s_t in rows t·rows.. .
    obs: Mat,
    /// a_0 to a_H as they were taken.
    act: Mat,
    /// The same without noise.
    mean: Mat,
    /// r_0 to r_{H−1}, H × rows.
    rew: Array2<f32>,
    /// Steps whose numbers left the finite range; their next state is the state before them.
    lost: Array2<bool>,
}

/// The gradient of a loss at everything an [`Unroll`] made.
#[derive(Clone, Debug)]
pub struct UnrollGradient {
    /// At s_0 to s_H, as the model sees them.
    pub obs: Mat,
    /// At a_0 to a_H.
    pub act: Mat,
    /// At r_0 to r_{H−1}, H × rows.
    pub rew: Array2<f32>,
}

impl Unroll {
    /// Room for `rows` trajectories of `length` steps and `anchors` anchored states.
    pub fn new(
        actor: &Actor,
        model: &Ensemble,
        (rows, length): (usize, usize),
        anchors: usize,
        pool: &ThreadPool,
    ) -> Self {
        let all = (length + 1) * rows;
        let trajectory = std::iter::repeat_n(rows, length + 1);
        Self {
            passes: std::iter::once(anchors)
                .chain(trajectory)
                .map(|n| ActorPass::new(actor, n, pool))
                .collect(),
            steps: (0..length).map(|_| MeanStep::new(model, rows)).collect(),
            anchored: Mat::zeros((anchors, actor.act_dim())),
            obs: Mat::zeros((all, actor.obs_dim())),
            act: Mat::zeros((all, actor.act_dim())),
            mean: Mat::zeros((all, actor.act_dim())),
            rew: Array2::zeros((length, rows)),
            lost: Array2::from_elem((length, rows), false),
        }
    }

    /// Steps of a trajectory (H).
    pub fn length(&self) -> usize {
        self.steps.len()
    }

    /// Number of trajectories.
    pub fn rows(&self) -> usize {
        self.rew.ncols()
    }

    /// The states, H + 1 times as many rows as trajectories, step after step.
    pub fn obs(&self) -> &Mat {
        &self.obs
    }

    /// The actions that were taken, likewise.
    pub fn act(&self) -> &Mat {
        &self.act
    }

    /// The rewards, H × rows.
    pub fn rew(&self) -> &Array2<f32> {
        &self.rew
    }

    /// Steps whose numbers left the finite range, H × rows: nothing may be believed from them on.
    pub fn lost(&self) -> &Array2<bool> {
        &self.lost
    }

    /// Rolls out from `start`. The actor sees states through `standardiser`, and `noise` gives what is added to each number
    /// of an action, in order. Which member makes which rows changes with `turn`.
    pub fn forward(
        &mut self,
        actor: &Actor,
        (model, turn): (&Ensemble, usize),
        standardiser: &Standardiser,
        pool: &ThreadPool,
        start: &Mat,
        mut noise: impl FnMut() -> f32,
    ) {
        self.steps.iter_mut().for_each(|step| step.turn(model, turn));
        let (rows, mut obs) = (self.rows(), start.clone());
        for t in 0..=self.length() {
            let mut seen = obs.clone();
            standardiser.apply(&mut seen);
            let mean = self.passes[t + 1].forward(actor, pool, &seen);
            let act = mean.mapv(|a| (a + noise()).clamp(-1.0, 1.0));
            let at = t * rows..(t + 1) * rows;
            self.obs.slice_mut(s![at.clone(), ..]).assign(&obs);
            self.mean.slice_mut(s![at.clone(), ..]).assign(&mean);
            self.act.slice_mut(s![at, ..]).assign(&act);
            if t == self.length() {
                return;
            }
            let (mut next, rew) = self.steps[t].forward(model, &obs, &act);
            for i in 0..rows {
                let sound = rew[i].abs() < LARGEST && next.row(i).iter().all(|x| x.abs() < LARGEST);
                self.lost[[t, i]] = !sound;
                self.rew[[t, i]] = if sound { rew[i] } else { 0.0 };
                if !sound {
                    next.row_mut(i).assign(&obs.row(i));
                }
            }
            obs = next;
        }
    }

    /// All steps as one, for estimators and termination rules: H × rows rows.
    pub fn steps(&self, model: &Ensemble) -> ModelStep {
        let before = self.length() * self.rows();
        let obs = self.obs.slice(s![..before, ..]).to_owned();
        let next_obs = self.obs.slice(s![self.rows().., ..]).to_owned();
        let act = self.act.slice(s![..before, ..]).to_owned();
        let rew: Array1<f32> = self.rew.iter().copied().collect();
        let done = model.done(&obs, &act, &next_obs);
        let batch = Batch { obs, act, rew, next_obs, done };
        let member: Vec<u32> = self.steps.iter().flat_map(|step| step.members().to_vec()).collect();
        ModelStep { member: member.into(), ..ModelStep::of_rows(batch) }
    }

    /// Actions at states of the data, standardised.
    pub fn anchor(&mut self, actor: &Actor, pool: &ThreadPool, obs: &Mat) -> &Mat {
        self.anchored = self.passes[0].forward(actor, pool, obs);
        &self.anchored
    }

    /// After [`forward`](Self::forward) and [`anchor`](Self::anchor): one step of the agent's actor on a loss, given by its
    /// gradient at the trajectories and at the anchored actions.
    pub fn train_actor(
        &mut self,
        agent: &mut Sac,
        model: &Ensemble,
        standardiser: &Standardiser,
        pool: &ThreadPool,
        (gradient, danchored): (&UnrollGradient, &Mat),
    ) {
        let (rows, actor) = (self.rows(), &agent.actor);
        self.passes[0].backward(actor, pool, &self.anchored, danchored);
        let mut dnext = Mat::zeros((rows, self.obs.ncols()));
        for t in (0..=self.length()).rev() {
            let at = t * rows..(t + 1) * rows;
            let mut dobs = gradient.obs.slice(s![at.clone(), ..]).to_owned();
            let mut dact = gradient.act.slice(s![at.clone(), ..]).to_owned();
            if t < self.length() {
                let back = self.steps[t].backward(model, &dnext, &gradient.rew.row(t).to_owned());
                dobs += &back.obs;
                dact += &back.act;
            }
            // Where noise carried an action to its bound, the mean does not move it.
            let (act, mean) = (self.act.slice(s![at.clone(), ..]), self.mean.slice(s![at, ..]).to_owned());
            Zip::from(&mut dact).and(&act).and(&mean).for_each(|d, &a, &m| {
                if a.abs() == 1.0 && a != m {
                    *d = 0.0;
                }
            });
            let mut seen = self.passes[t + 1].backward(actor, pool, &mean, &dact);
            for mut row in seen.rows_mut() {
                row.iter_mut().zip(standardiser.std()).for_each(|(d, std)| *d /= std);
            }
            dnext = dobs + seen;
        }
        agent.train_actor_on(&self.passes);
    }
}

/// Rows of both, one after another.
pub(crate) fn stack(above: ArrayView2<'_, f32>, below: ArrayView2<'_, f32>) -> Mat {
    concatenate(Axis(0), &[above, below]).expect("matrices of one width")
}
