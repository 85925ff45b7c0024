//! One thread's shard of a batch: everything in an update that concerns single rows.

use std::ops::Range;

use ndarray::ArrayView2;

use super::{CRITICS, LOG_STD, Td3Config};
use crate::batch::Batch;
use crate::nn::{MlpEnsemble, Noise, PackedMatrix, Shard, TanhGaussianHead, Weights};
use crate::sac::Actor;

/// One thread's rows of a batch, with room for all that is computed from them.
#[derive(Debug)]
pub(super) struct Td3Shard {
    /// The actor at s or s'.
    pub(super) actor: Shard,
    /// The critics at (s, a).
    pub(super) critics: Shard,
    pub(super) head: TanhGaussianHead,
    /// Noise on target actions.
    eps: Vec<f32>,
    /// Q_j of each row, critic after critic.
    pub(super) q: Vec<f32>,
    /// The critics' target y.
    pub(super) y: Vec<f32>,
    /// ∂loss/∂(s, a).
    dpair: PackedMatrix,
}

impl Td3Shard {
    pub(super) fn new(actor: &Actor, critics: &MlpEnsemble, rows: Range<usize>) -> Self {
        let (n, act) = (rows.len(), actor.act_dim());
        Self {
            actor: Shard::new(actor.net.shape(), rows.clone(), 1),
            critics: Shard::new(critics.shape(), rows, CRITICS),
            head: TanhGaussianHead::new(n, act, LOG_STD),
            eps: vec![0.0; n * act],
            q: vec![0.0; n * CRITICS],
            y: vec![0.0; n],
            dpair: PackedMatrix::new(n, actor.obs_dim() + act),
        }
    }

    /// y = r + γ (1 − d) min_j Q̄_j(s', a'), where a' = π̄(s') + σε, the noise and the sum clipped.
    pub(super) fn td_target(
        &mut self,
        cfg: &Td3Config,
        actor: &MlpEnsemble,
        critics: &MlpEnsemble,
        batch: &Batch,
        noise: Noise<'_>,
    ) {
        let (rows, n) = (self.critics.rows.clone(), self.y.len());
        self.act(actor, Weights::Target, batch.next_obs.view());
        noise.fill(rows.start, batch.act_dim(), &mut self.eps);
        for (a, eps) in self.head.act.iter_mut().zip(&self.eps) {
            let noise = (cfg.target_noise * eps).clamp(-cfg.noise_clip, cfg.noise_clip);
            *a = (*a + noise).clamp(-1.0, 1.0);
        }
        self.critics.x.load(batch.next_obs.view(), rows.start, n, 0);
        self.critics.x.load_flat(&self.head.act, batch.act_dim(), batch.obs_dim());
        self.critics.forward(critics, 0, Weights::Target);
        for (i, row) in rows.enumerate() {
            let smallest = self.critics.nets.iter().map(|net| net.out.get(i, 0)).fold(f32::NAN, f32::min);
            let going_on = if batch.done[row] { 0.0 } else { cfg.gamma as f32 };
            self.y[i] = batch.rew[row] + going_on * smallest;
        }
    }

    /// The critics at the batch's own actions, and the gradient of mean (Q_j − y)² on its way back.
    pub(super) fn critic_pass(&mut self, critics: &MlpEnsemble, batch: &Batch) {
        let (n, first) = (self.y.len(), self.critics.rows.start);
        self.critics.x.load(batch.obs.view(), first, n, 0);
        self.critics.x.load(batch.act.view(), first, n, batch.obs_dim());
        self.critics.forward(critics, 0, Weights::Current);
        let scale = 2.0 / batch.len() as f32;
        for (net, q) in self.critics.nets.iter_mut().zip(self.q.chunks_exact_mut(n)) {
            net.out.store_flat(q, 1, 0);
            for (i, (q, y)) in q.iter().zip(&self.y).enumerate() {
                net.dout.set(i, 0, scale * (q - y));
            }
        }
        self.critics.backward(critics, 0);
    }

    /// Q_1(s, π(s)), into the first part of `q`.
    pub(super) fn evaluate_policy(&mut self, actor: &MlpEnsemble, critics: &MlpEnsemble, batch: &Batch) {
        let (n, first) = (self.y.len(), self.critics.rows.start);
        self.act(actor, Weights::Current, batch.obs.view());
        let Shard { x, nets, .. } = &mut self.critics;
        x.load(batch.obs.view(), first, n, 0);
        x.load_flat(&self.head.act, batch.act_dim(), batch.obs_dim());
        nets[0].forward(critics.net(0), Weights::Current, x, n);
        nets[0].out.store_flat(&mut self.q[..n], 1, 0);
    }

    /// After [`Td3Shard::evaluate_policy`]: the gradient of the actor's loss on its way back, with `dq` at every Q_1.
    pub(super) fn actor_pass(&mut self, actor: &MlpEnsemble, critics: &MlpEnsemble, batch: &Batch, dq: f32) {
        let (n, obs, act) = (self.y.len(), batch.obs_dim(), batch.act_dim());
        let critic = &mut self.critics.nets[0];
        (0..n).for_each(|i| critic.dout.set(i, 0, dq));
        critic.backward(critics.net(0), n, None);
        critic.input_gradient(critics.net(0), n, obs..obs + act, &mut self.dpair);
        let scale = 2.0 / batch.act.len() as f32;
        let dout = &mut self.actor.nets[0].dout;
        for (i, row) in self.critics.rows.clone().enumerate() {
            for j in 0..act {
                let a = self.head.act[i * act + j];
                let dact = self.dpair.get(i, obs + j) + scale * (a - batch.act[[row, j]]);
                dout.set(i, j, dact * (1.0 - a * a));
                dout.set(i, act + j, 0.0);
            }
        }
        self.actor.backward(actor, 0);
    }

    /// π(s) = tanh μ(s), into the head.
    fn act(&mut self, actor: &MlpEnsemble, which: Weights, obs: ArrayView2<'_, f32>) {
        let (n, first) = (self.y.len(), self.actor.rows.start);
        self.actor.x.load(obs, first, n, 0);
        self.actor.forward(actor, 0, which);
        self.head.sample(actor.simd(), &self.actor.nets[0].out, n, Noise::Zero, first);
    }
}
