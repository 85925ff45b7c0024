//! One thread's share of a batch: everything in an update that concerns single rows.
//!
//! Sampling, targets, losses and the way back through whole networks never look at another row, so a part runs them
//! from end to end without waiting for other threads.

use std::ops::Range;

use super::Sac;
use crate::batch::Batch;
use crate::nn::{Activations, LANES, MlpEnsemble, Noise, PackedMatrix, TanhGaussianHead, Weights};

/// Rows `rows` of the batch, with room for all that is computed from them.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) rows: Range<usize>,
    /// Input of the actor.
    pub(super) obs: PackedMatrix,
    /// Input of the critics: (s, a).
    pub(super) pair: PackedMatrix,
    pub(super) actor: Activations,
    pub(super) critics: Vec<Activations>,
    pub(super) head: TanhGaussianHead,
    /// Q_j of each row, critic after critic.
    pub(super) q: Vec<f32>,
    /// The critics' target y.
    pub(super) y: Vec<f32>,
    /// ∂ min Q/∂(s, a), in the order of the rows of the critic at work.
    dpair: PackedMatrix,
    /// ∂ min Q/∂a, flat.
    dact: Vec<f32>,
    /// The rows whose smallest critic is the one at work.
    smallest: Vec<u32>,
}

/// What all parts of one update share.
pub(super) struct Share<'a> {
    pub(super) actor: &'a MlpEnsemble,
    pub(super) critics: &'a MlpEnsemble,
    pub(super) batch: &'a Batch,
    pub(super) alpha: f32,
    pub(super) gamma: f32,
    pub(super) entropy_in_target: bool,
    /// Lower clamp of the target.
    pub(super) target_floor: f32,
}

impl Part {
    pub(super) fn new(sac: &Sac, rows: Range<usize>) -> Self {
        let (n, obs, act) = (rows.len(), sac.actor.obs_dim(), sac.actor.act_dim());
        let critics = sac.critics.nets();
        Self {
            rows,
            obs: PackedMatrix::new(n, obs),
            pair: PackedMatrix::new(n, obs + act),
            actor: Activations::new(sac.actor.stack.shape(), n),
            critics: (0..critics).map(|_| Activations::new(sac.critics.shape(), n)).collect(),
            head: TanhGaussianHead::new(n, act, sac.actor.log_std()),
            q: vec![0.0; n * critics],
            y: vec![0.0; n],
            dpair: PackedMatrix::new(n, obs + act),
            dact: vec![0.0; n * act],
            smallest: Vec::with_capacity(n),
        }
    }

    /// y = r + γ (1 − d) (min_j Q̄_j(s', a') − α log π(a'|s')), a' ~ π.
    pub(super) fn td_target(&mut self, s: &Share<'_>, noise: Noise<'_>) {
        let n = self.rows.len();
        self.sample(s, Which::Next, noise);
        self.evaluate(s.critics, Weights::Target);
        for i in 0..n {
            let row = self.rows.start + i;
            let smallest = (1..s.critics.nets()).fold(self.q[i], |q, j| q.min(self.q[j * n + i]));
            let bonus = if s.entropy_in_target { s.alpha * self.head.log_prob[i] } else { 0.0 };
            let going_on = if s.batch.done[row] { 0.0 } else { s.gamma };
            let y = s.batch.rew[row] + going_on * (smallest - bonus);
            // Not `max`, which would turn NaN into the floor.
            self.y[i] = if y < s.target_floor { s.target_floor } else { y };
        }
    }

    /// The critics at the batch's own actions, and the gradient of mean (Q_j − y)² on its way back.
    pub(super) fn critic_pass(&mut self, s: &Share<'_>) {
        let (n, first) = (self.rows.len(), self.rows.start);
        self.pair.load(s.batch.obs.view(), first, n, 0);
        self.pair.load(s.batch.act.view(), first, n, s.batch.obs_dim());
        self.evaluate(s.critics, Weights::Current);
        let scale = 2.0 / s.batch.len() as f32;
        for (j, trace) in self.critics.iter_mut().enumerate() {
            for i in 0..n {
                trace.dout.data_mut()[i * LANES] = scale * (self.q[j * n + i] - self.y[i]);
            }
            trace.backward(s.critics.net(j), n, None);
        }
    }

    /// The gradient of mean (α log π(ã|s) − min_j Q_j(s, ã)), ã ~ π, on its way back through the actor.
    ///
    /// A row's gradient flows through its smallest critic only, so each critic is taken back for its own rows alone.
    pub(super) fn actor_pass(&mut self, s: &Share<'_>, noise: Noise<'_>) {
        let (n, obs_dim, act_dim) = (self.rows.len(), s.batch.obs_dim(), s.batch.act_dim());
        self.sample(s, Which::Current, noise);
        self.evaluate(s.critics, Weights::Current);
        for j in 0..s.critics.nets() {
            self.find_smallest(j);
            let (trace, rows) = (&mut self.critics[j], self.smallest.len());
            if rows == 0 {
                continue;
            }
            for i in 0..rows {
                trace.dout.data_mut()[i * LANES] = 1.0;
            }
            trace.backward(s.critics.net(j), rows, Some(&self.smallest));
            trace.input_gradient(s.critics.net(j), rows, obs_dim..obs_dim + act_dim, &mut self.dpair);
            for (i, &row) in self.smallest.iter().enumerate() {
                for k in 0..act_dim {
                    self.dact[row as usize * act_dim + k] = self.dpair.data()[self.dpair.at(i, obs_dim + k)];
                }
            }
        }
        let scale = 1.0 / s.batch.len() as f32;
        self.head.gradient(n, s.alpha, scale, &self.dact, &mut self.actor.dout);
        self.actor.backward(s.actor.net(0), n, None);
    }

    /// Samples actions at s or s' and puts both into `pair`.
    fn sample(&mut self, s: &Share<'_>, which: Which, noise: Noise<'_>) {
        let (n, first) = (self.rows.len(), self.rows.start);
        let obs = match which {
            Which::Current => s.batch.obs.view(),
            Which::Next => s.batch.next_obs.view(),
        };
        self.obs.load(obs, first, n, 0);
        self.actor.forward(s.actor.net(0), Weights::Current, &self.obs, n);
        self.head.sample(s.actor.simd(), &self.actor.out, n, noise, first);
        self.pair.load(obs, first, n, 0);
        self.pair.load_flat(&self.head.act, s.batch.act_dim(), s.batch.obs_dim());
    }

    /// Runs all critics at `pair`.
    fn evaluate(&mut self, critics: &MlpEnsemble, which: Weights) {
        let n = self.rows.len();
        for (j, trace) in self.critics.iter_mut().enumerate() {
            trace.forward(critics.net(j), which, &self.pair, n);
            trace.out.store_flat(&mut self.q[j * n..][..n], 1, 0);
        }
    }

    /// The rows where critic `j` is the smallest; the first of equals counts.
    fn find_smallest(&mut self, j: usize) {
        let (n, q) = (self.rows.len(), &self.q);
        let is_smallest = |i: usize| {
            let mine = q[j * n + i];
            let nets = q.len() / n;
            (0..nets).all(|k| if k < j { mine < q[k * n + i] } else { mine <= q[k * n + i] })
        };
        self.smallest.clear();
        self.smallest.extend((0..n).filter(|&i| is_smallest(i)).map(|i| i as u32));
    }

    /// min_j Q_j of row i of this part.
    pub(super) fn smallest_q(&self, i: usize) -> f32 {
        self.q.chunks_exact(self.rows.len()).map(|q| q[i]).fold(f32::INFINITY, f32::min)
    }
}

#[derive(Clone, Copy)]
enum Which {
    Current,
    Next,
}
