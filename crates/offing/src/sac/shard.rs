//! One thread's shard of a batch: everything in an update that concerns single rows.
//!
//! Sampling, targets, losses and the way back through whole networks never look at another row, so a shard runs them
//! from end to end without waiting for other threads. Actor and critics feed each other here, which a loss of single
//! rows of one network (`nn::Fitter`) cannot say.

use std::ops::Range;

use ndarray::ArrayView2;

use super::{ActorTerms, RowFactors, Sac};
use crate::batch::{Batch, Mat};
use crate::nn::{MlpEnsemble, Noise, PackedMatrix, Shard, TanhGaussianHead, Weights};

/// Rows of the batch, with room for all that is computed from them.
#[derive(Debug)]
pub(super) struct UpdateShard {
    /// The actor at s or s'.
    pub(super) actor: Shard,
    /// The critics at (s, a).
    pub(super) critics: Shard,
    pub(super) head: TanhGaussianHead,
    /// Q_j of each row, critic after critic.
    pub(super) q: Vec<f32>,
    /// The critics' target y.
    pub(super) y: Vec<f32>,
    /// ∂loss/∂(s, a), in the order of the rows of the critic at work.
    dpair: PackedMatrix,
    /// ∂loss/∂a, flat.
    dact: Vec<f32>,
    /// ∂loss/∂(s, a), flat.
    pub(super) dinput: Vec<f32>,
    /// The rows whose gradient flows through the critic at work.
    chosen: Vec<u32>,
}

/// What all shards of one update share.
pub(super) struct UpdateContext<'a> {
    pub(super) actor: &'a MlpEnsemble,
    pub(super) critics: &'a MlpEnsemble,
    pub(super) batch: &'a Batch,
    pub(super) alpha: f32,
    pub(super) gamma: f32,
    pub(super) entropy_in_target: bool,
    /// Lower clamp of the target.
    pub(super) target_floor: f32,
    /// The critics whose targets count; all without it.
    pub(super) pair: Option<[usize; 2]>,
}

impl UpdateShard {
    pub(super) fn new(sac: &Sac, rows: Range<usize>) -> Self {
        let (n, act, critics) = (rows.len(), sac.actor.act_dim(), sac.critics.nets());
        Self {
            actor: Shard::new(sac.actor.net.shape(), rows.clone(), 1),
            critics: Shard::new(sac.critics.shape(), rows, critics),
            head: TanhGaussianHead::new(n, act, sac.actor.log_std()),
            q: vec![0.0; n * critics],
            y: vec![0.0; n],
            dpair: PackedMatrix::new(n, sac.actor.obs_dim() + act),
            dact: vec![0.0; n * act],
            dinput: Vec::new(),
            chosen: Vec::with_capacity(n),
        }
    }

    /// Which rows of the batch.
    pub(super) fn rows(&self) -> Range<usize> {
        self.actor.rows.clone()
    }

    /// y = r + γ (1 − d) (min_j Q̄_j(s', a') − α log π(a'|s')), a' ~ π.
    pub(super) fn td_target(&mut self, c: &UpdateContext<'_>, noise: Noise<'_>) {
        self.sample(c.actor, c.batch.next_obs.view(), noise);
        self.evaluate(c.critics, Weights::Target);
        for (i, row) in self.rows().enumerate() {
            let bonus = if c.entropy_in_target { c.alpha * self.head.log_prob[i] } else { 0.0 };
            let going_on = if c.batch.done[row] { 0.0 } else { c.gamma };
            let q = match c.pair {
                None => self.smallest_q(i),
                Some(pair) => pair.map(|j| self.q[j * self.y.len() + i]).into_iter().fold(f32::NAN, f32::min),
            };
            let y = c.batch.rew[row] + going_on * (q - bonus);
            // Not `max`, which would turn NaN into the floor.
            self.y[i] = if y < c.target_floor { c.target_floor } else { y };
        }
    }

    /// The critics at the batch's own actions, and the gradient of mean f·(Q_j − y)² on its way back; f is the row's factor.
    pub(super) fn critic_pass(&mut self, c: &UpdateContext<'_>, rows: &RowFactors) {
        self.evaluate_at(c.critics, Weights::Current, c.batch.obs.view(), c.batch.act.view());
        let (n, scale) = (self.y.len(), 2.0 / c.batch.len() as f32);
        let first = rows.first.saturating_sub(self.rows().start).min(n);
        let parts = [(0..first, scale * rows.factors[0]), (first..n, scale * rows.factors[1])];
        for (j, net) in self.critics.nets.iter_mut().enumerate() {
            for (part, scale) in parts.clone() {
                let pairs = self.q[j * n..][part.clone()].iter().zip(&self.y[part.clone()]);
                for (i, (q, y)) in part.zip(pairs) {
                    net.dout.set(i, 0, scale * (q - y));
                }
            }
        }
        self.critics.backward(c.critics, 0);
    }

    /// The gradient of mean (α log π(ã|s) − min_j Q_j(s, ã)), ã ~ π, on its way back through the actor.
    pub(super) fn actor_pass(&mut self, c: &UpdateContext<'_>, noise: Noise<'_>) {
        self.sample(c.actor, c.batch.obs.view(), noise);
        self.evaluate(c.critics, Weights::Current);
        self.dact.fill(0.0);
        let (n, scale) = (self.y.len(), 1.0 / c.batch.len() as f32);
        // A row's gradient flows through its smallest critic only; the first of equals counts.
        let is_smallest = |q: &[f32], j: usize, i: usize| {
            let mine = q[j * n + i];
            q[i..].iter().step_by(n).enumerate().all(|(k, &q)| if k < j { mine < q } else { mine <= q })
        };
        self.add_action_gradient(c.critics, |q, j, i| if is_smallest(q, j, i) { -1.0 } else { 0.0 });
        self.head.gradient(n, scale, |_| c.alpha, &self.dact, &mut self.actor.nets[0].dout);
        self.actor.backward(c.actor, 0);
    }

    /// Takes the gradients of any loss at what [`UpdateShard::sample`] and [`UpdateShard::evaluate`] gave back through the
    /// actor.
    pub(super) fn actor_backward(
        &mut self,
        actor: &MlpEnsemble,
        critics: &MlpEnsemble,
        gradients: &ActorTerms,
    ) {
        let (rows, act_dim) = (self.rows(), gradients.act.ncols());
        for (to, from) in self.dact.iter_mut().zip(gradients.act.slice(ndarray::s![rows.clone(), ..])) {
            *to = *from;
        }
        self.add_action_gradient(critics, |_, j, i| gradients.q[[j, rows.start + i]]);
        let dout = &mut self.actor.nets[0].dout;
        self.head.gradient(rows.len(), 1.0, |i| gradients.log_prob[rows.start + i], &self.dact, dout);
        for (i, row) in rows.enumerate() {
            for j in 0..act_dim {
                let mean = self.head.mean_act(i, j);
                dout.set(i, j, dout.get(i, j) + gradients.mean_act[[row, j]] * (1.0 - mean * mean));
            }
        }
        self.actor.backward(actor, 0);
    }

    /// Samples actions at `obs` and makes both the critics' input.
    pub(super) fn sample(&mut self, actor: &MlpEnsemble, obs: ArrayView2<'_, f32>, noise: Noise<'_>) {
        let (n, first) = (self.y.len(), self.rows().start);
        self.actor.x.load(obs, first, n, 0);
        self.actor.forward(actor, 0, Weights::Current);
        self.head.sample(actor.simd(), &self.actor.nets[0].out, n, noise, first);
        self.critics.x.load(obs, first, n, 0);
        self.critics.x.load_flat(&self.head.act, self.critics.x.cols() - obs.ncols(), obs.ncols());
    }

    /// Runs all critics at given rows.
    pub(super) fn evaluate_at(
        &mut self,
        critics: &MlpEnsemble,
        which: Weights,
        obs: ArrayView2<'_, f32>,
        act: ArrayView2<'_, f32>,
    ) {
        let (n, first) = (self.y.len(), self.rows().start);
        self.critics.x.load(obs, first, n, 0);
        self.critics.x.load(act, first, n, obs.ncols());
        self.evaluate(critics, which);
    }

    /// Runs all critics at their input.
    pub(super) fn evaluate(&mut self, critics: &MlpEnsemble, which: Weights) {
        self.critics.forward(critics, 0, which);
        let n = self.y.len();
        for (j, net) in self.critics.nets.iter().enumerate() {
            net.out.store_flat(&mut self.q[j * n..][..n], 1, 0);
        }
    }

    /// Fills `dinput` with the gradient at (s, a), where `dq` is ∂loss/∂Q of all rows of the batch, critics × rows.
    pub(super) fn input_gradient(&mut self, critics: &MlpEnsemble, which: Weights, dq: &Mat) {
        let (rows, width) = (self.rows(), self.critics.x.cols());
        self.dinput.clear();
        self.dinput.resize(rows.len() * width, 0.0);
        for j in 0..self.critics.nets.len() {
            self.go_back(critics, which, j, 0..width, |_, i| dq[[j, rows.start + i]]);
            for (i, &row) in self.chosen.iter().enumerate() {
                let to = &mut self.dinput[row as usize * width..][..width];
                to.iter_mut().enumerate().for_each(|(col, to)| *to += self.dpair.get(i, col));
            }
        }
    }

    /// Takes critic `j` back to columns `cols` of its input, for the rows alone where `dq(q, i)`, ∂loss/∂Q_j of row i, is not
    /// 0: they are `chosen`, and `dpair` has a row for each.
    fn go_back(
        &mut self,
        critics: &MlpEnsemble,
        which: Weights,
        j: usize,
        cols: Range<usize>,
        dq: impl Fn(&[f32], usize) -> f32,
    ) {
        let net = &mut self.critics.nets[j];
        self.chosen.clear();
        for i in 0..self.y.len() {
            let dq = dq(&self.q, i);
            if dq != 0.0 {
                net.dout.set(self.chosen.len(), 0, dq);
                self.chosen.push(i as u32);
            }
        }
        if !self.chosen.is_empty() {
            let (of, rows) = (critics.net(j), self.chosen.len());
            net.backward_by(of, which, rows, Some(&self.chosen));
            net.input_gradient_by(of, which, rows, cols, &mut self.dpair);
        }
    }

    /// Adds the gradient at the actions to `dact`, where `dq(q, j, i)` is ∂loss/∂Q_j of row i. Each critic is taken back for
    /// the rows with a gradient alone: with the smallest critic's, that is once for each row, whatever the number of critics.
    fn add_action_gradient(&mut self, critics: &MlpEnsemble, dq: impl Fn(&[f32], usize, usize) -> f32) {
        let actions = self.actor.x.cols()..self.critics.x.cols();
        for j in 0..self.critics.nets.len() {
            self.go_back(critics, Weights::Current, j, actions.clone(), |q, i| dq(q, j, i));
            for (i, &row) in self.chosen.iter().enumerate() {
                let dact = &mut self.dact[row as usize * actions.len()..][..actions.len()];
                dact.iter_mut().zip(actions.clone()).for_each(|(to, col)| *to += self.dpair.get(i, col));
            }
        }
    }

    /// min_j Q_j of row i of this shard; NaN only if all are.
    pub(super) fn smallest_q(&self, i: usize) -> f32 {
        self.q[i..].iter().step_by(self.y.len()).copied().fold(f32::NAN, f32::min)
    }
}
