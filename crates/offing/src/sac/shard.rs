//! A shard of a batch: everything in an update that concerns single rows.
//!
//! Sampling, targets and losses never look at another row, so threads take shards. Critics never look at each other but
//! for the smallest, so threads take (critic, shard) pairs. Actor and critics feed each other here, which a loss of single
//! rows of one network (`nn::Fitter`) cannot say.

use std::ops::Range;

use ndarray::{ArrayView1, ArrayView2};

use super::{ActorTerms, RowFactors, Sac};
use crate::batch::Batch;
use crate::nn::{Activations, MlpEnsemble, Net, Noise, PackedMatrix, Shard, TanhGaussianHead, Weights};

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
    /// Each row's smallest critic.
    smallest: Vec<u32>,
    /// Each critic's way back.
    back: Vec<InputGradient>,
    /// ∂loss/∂a, flat.
    dact: Vec<f32>,
}

/// A loss's gradient at one critic's input.
#[derive(Debug)]
struct InputGradient {
    /// The rows that have one.
    rows: Vec<u32>,
    /// ∂loss/∂(s, a) of these rows.
    dpair: PackedMatrix,
}

/// One critic at the rows of one shard. Threads take critics, not rows, through forward and backward passes where there
/// are enough of them: a critic's weights, moments and activations then stay with one core.
pub(super) struct CriticPass<'a> {
    /// Which rows of the batch.
    pub(super) rows: Range<usize>,
    /// Q of each row.
    pub(super) q: &'a mut [f32],
    y: &'a [f32],
    smallest: &'a [u32],
    x: &'a PackedMatrix,
    net: &'a mut Activations,
    back: &'a mut InputGradient,
}

/// What all shards of one update share.
pub(super) struct UpdateContext<'a> {
    pub(super) actor: &'a MlpEnsemble,
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
        let back = || InputGradient {
            rows: Vec::with_capacity(n),
            dpair: PackedMatrix::new(n, sac.actor.obs_dim() + act),
        };
        Self {
            actor: Shard::new(sac.actor.net.shape(), rows.clone(), 1),
            critics: Shard::new(sac.critics.shape(), rows, critics),
            head: TanhGaussianHead::new(n, act, sac.actor.log_std()),
            q: vec![0.0; n * critics],
            y: vec![0.0; n],
            smallest: vec![0; n],
            back: (0..critics).map(|_| back()).collect(),
            dact: vec![0.0; n * act],
        }
    }

    /// All critics at these rows, each by itself.
    pub(super) fn passes(&mut self) -> impl Iterator<Item = CriticPass<'_>> {
        let Self { critics: Shard { rows, x, nets }, q, y, smallest, back, .. } = self;
        let (n, rows, x, y, smallest) = (y.len(), &*rows, &*x, &**y, &**smallest);
        let each = q.chunks_exact_mut(n.max(1)).zip(nets).zip(back);
        each.map(move |((q, net), back)| CriticPass { rows: rows.clone(), q, y, smallest, x, net, back })
    }

    /// Which rows of the batch.
    pub(super) fn rows(&self) -> Range<usize> {
        self.actor.rows.clone()
    }

    /// y = r + γ (1 − d) (min_j Q̄_j(s', a') − α log π(a'|s')), where the critics' last values are the Q̄_j(s', a').
    pub(super) fn td_target(&mut self, c: &UpdateContext<'_>) {
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

    /// Notes each row's smallest critic; of equals, the first.
    pub(super) fn find_smallest(&mut self) {
        let n = self.y.len();
        for (i, smallest) in self.smallest.iter_mut().enumerate() {
            let q = |j: usize| self.q[j * n + i];
            *smallest = (0..self.back.len()).fold(0, |best, j| if q(j) < q(best) { j } else { best }) as u32;
        }
    }

    /// The gradient of mean (α log π(ã|s) − min_j Q_j(s, ã)) on its way back through the actor, after the critics' way
    /// back from −Q.
    pub(super) fn actor_pass(&mut self, c: &UpdateContext<'_>) {
        self.dact.fill(0.0);
        self.add_action_gradient();
        let scale = 1.0 / c.batch.len() as f32;
        let dout = &mut self.actor.nets[0].dout;
        self.head.gradient(self.y.len(), scale, |_| c.alpha, &self.dact, dout);
        self.actor.backward(c.actor, 0);
    }

    /// Takes the gradients of any loss at what [`UpdateShard::sample`] and the critics gave back through the actor, after
    /// the critics' way back.
    pub(super) fn actor_backward(&mut self, actor: &MlpEnsemble, gradients: &ActorTerms) {
        let (rows, act_dim) = (self.rows(), gradients.act.ncols());
        for (to, from) in self.dact.iter_mut().zip(gradients.act.slice(ndarray::s![rows.clone(), ..])) {
            *to = *from;
        }
        self.add_action_gradient();
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

    /// Makes given rows the critics' input.
    pub(super) fn load_pairs(&mut self, obs: ArrayView2<'_, f32>, act: ArrayView2<'_, f32>) {
        let (n, first) = (self.y.len(), self.rows().start);
        self.critics.x.load(obs, first, n, 0);
        self.critics.x.load(act, first, n, obs.ncols());
    }

    /// Adds the gradient at the actions to `dact`.
    fn add_action_gradient(&mut self) {
        let (obs, width) = (self.actor.x.cols(), self.critics.x.cols() - self.actor.x.cols());
        for InputGradient { rows, dpair } in &self.back {
            for (i, &row) in rows.iter().enumerate() {
                let dact = &mut self.dact[row as usize * width..][..width];
                dact.iter_mut().enumerate().for_each(|(j, to)| *to += dpair.get(i, obs + j));
            }
        }
    }

    /// min_j Q_j of row i of this shard; NaN only if all are.
    pub(super) fn smallest_q(&self, i: usize) -> f32 {
        self.q[i..].iter().step_by(self.y.len()).copied().fold(f32::NAN, f32::min)
    }
}

impl CriticPass<'_> {
    /// Runs the critic at its input.
    pub(super) fn forward(&mut self, critic: Net<'_>, which: Weights) {
        self.net.forward(critic, which, self.x, self.rows.len());
        self.net.out.store_flat(self.q, 1, 0);
    }

    /// Runs the critic at its input, and takes the gradient of mean f·(Q − y)² back; f is the row's factor, the mean over
    /// `size` rows.
    pub(super) fn squared_error(&mut self, critic: Net<'_>, size: usize, rows: &RowFactors) {
        self.forward(critic, Weights::Current);
        let (n, scale) = (self.rows.len(), 2.0 / size as f32);
        let first = rows.first.saturating_sub(self.rows.start).min(n);
        for (part, scale) in [(0..first, scale * rows.factors[0]), (first..n, scale * rows.factors[1])] {
            for i in part {
                self.net.dout.set(i, 0, scale * (self.q[i] - self.y[i]));
            }
        }
        self.net.backward(critic, n, None);
    }

    /// Takes ∂loss/∂Q, one number for each row of the batch, back through the critic.
    pub(super) fn backward(&mut self, critic: Net<'_>, dq: ArrayView1<'_, f32>) {
        self.rows.clone().enumerate().for_each(|(i, row)| self.net.dout.set(i, 0, dq[row]));
        self.net.backward(critic, self.rows.len(), None);
    }

    /// Takes −Q back to the action, for the rows where this critic, number `j`, is the smallest: a row's gradient flows
    /// through that one only, so all critics together take as long as one.
    pub(super) fn backward_from_smallest(&mut self, critic: Net<'_>, j: usize, actions: Range<usize>) {
        let smallest = self.smallest;
        let dq = |i: usize| if smallest[i] as usize == j { -1.0 } else { 0.0 };
        self.backward_to_input(critic, actions, dq);
    }

    /// Takes the critic back to columns `cols` of its input, for the rows alone where `dq(i)`, ∂loss/∂Q of row i, is not 0.
    pub(super) fn backward_to_input(
        &mut self,
        critic: Net<'_>,
        cols: Range<usize>,
        dq: impl Fn(usize) -> f32,
    ) {
        let InputGradient { rows: chosen, dpair } = &mut *self.back;
        chosen.clear();
        for i in 0..self.rows.len() {
            let dq = dq(i);
            if dq != 0.0 {
                self.net.dout.set(chosen.len(), 0, dq);
                chosen.push(i as u32);
            }
        }
        if !chosen.is_empty() {
            self.net.backward(critic, chosen.len(), Some(chosen));
            self.net.input_gradient(critic, chosen.len(), cols, dpair);
        }
    }
}
