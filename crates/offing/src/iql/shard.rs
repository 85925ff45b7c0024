//! One thread's shard of a batch: everything in an update that concerns single rows.

use std::ops::Range;

use super::{CRITICS, Deviation, Iql, IqlConfig};
use crate::batch::Batch;
use crate::nn::{MlpEnsemble, Noise, Shard, TanhGaussianHead, Weights};

/// One thread's rows of a batch, with room for all that is computed from them.
#[derive(Debug)]
pub(super) struct IqlShard {
    /// The actor at s.
    pub(super) actor: Shard,
    /// The critics at (s, a).
    pub(super) critics: Shard,
    /// The value network at s or s'.
    pub(super) value: Shard,
    head: TanhGaussianHead,
    /// min_j Q̄_j(s, a).
    q: Vec<f32>,
    /// The critics' target y.
    pub(super) y: Vec<f32>,
    /// V(s), after its step.
    pub(super) v: Vec<f32>,
    pub(super) value_loss: Vec<f32>,
    /// The actor's weight of each row.
    pub(super) weight: Vec<f32>,
    /// (a − tanh μ)² / σ² of each entry of each row.
    pub(super) squares: Vec<f32>,
}

impl IqlShard {
    pub(super) fn new(agent: &Iql, rows: Range<usize>) -> Self {
        let (n, act) = (rows.len(), agent.actor.act_dim());
        let column = || vec![0.0; n];
        Self {
            actor: Shard::new(agent.actor.net.shape(), rows.clone(), 1),
            critics: Shard::new(agent.critics.shape(), rows.clone(), CRITICS),
            value: Shard::new(agent.value.shape(), rows, 1),
            head: TanhGaussianHead::new(n, act, agent.cfg.log_std),
            q: column(),
            y: column(),
            v: column(),
            value_loss: column(),
            weight: column(),
            squares: vec![0.0; n * act],
        }
    }

    /// The gradient of mean |τ − 1(u < 0)| u², u = min_j Q̄_j(s, a) − V(s), on its way back through V.
    pub(super) fn value_pass(
        &mut self,
        cfg: &IqlConfig,
        critics: &MlpEnsemble,
        value: &MlpEnsemble,
        batch: &Batch,
    ) {
        let (n, first) = (self.y.len(), self.critics.rows.start);
        self.critics.x.load(batch.obs.view(), first, n, 0);
        self.critics.x.load(batch.act.view(), first, n, batch.obs_dim());
        self.critics.forward(critics, 0, Weights::Target);
        self.value.x.load(batch.obs.view(), first, n, 0);
        self.value.forward(value, 0, Weights::Current);
        let (scale, expectile) = (2.0 / batch.len() as f32, cfg.expectile as f32);
        let net = &mut self.value.nets[0];
        for i in 0..n {
            self.q[i] = self.critics.nets.iter().map(|net| net.out.get(i, 0)).fold(f32::NAN, f32::min);
            let u = self.q[i] - net.out.get(i, 0);
            let slope = if u > 0.0 { expectile } else { 1.0 - expectile };
            self.value_loss[i] = slope * u * u;
            net.dout.set(i, 0, -scale * slope * u);
        }
        self.value.backward(value, 0);
    }

    /// The gradient of −mean w log π(a|s), w = exp(β (min_j Q̄_j(s, a) − V(s))) up to a largest, on its way back through μ. π is a
    /// Gaussian around tanh μ(s).
    pub(super) fn actor_pass(
        &mut self,
        cfg: &IqlConfig,
        (actor, deviations): (&MlpEnsemble, &[Deviation]),
        value: &MlpEnsemble,
        batch: &Batch,
    ) {
        let (rows, n, act) = (self.actor.rows.clone(), self.y.len(), deviations.len());
        self.value.forward(value, 0, Weights::Current);
        self.value.nets[0].out.store_flat(&mut self.v, 1, 0);
        self.actor.x.load(batch.obs.view(), rows.start, n, 0);
        self.actor.forward(actor, 0, Weights::Current);
        let net = &mut self.actor.nets[0];
        self.head.sample(actor.simd(), &net.out, n, Noise::Zero, rows.start);
        let scale = 1.0 / batch.len() as f32;
        for (i, row) in rows.enumerate() {
            let weight = (cfg.beta as f32 * (self.q[i] - self.v[i])).exp();
            // Not `min`, which would turn NaN into the largest weight.
            self.weight[i] = if weight > cfg.max_weight { cfg.max_weight } else { weight };
            for (j, &Deviation { precision, .. }) in deviations.iter().enumerate() {
                let mean = self.head.act[i * act + j];
                let off = mean - batch.act[[row, j]];
                self.squares[i * act + j] = off * off * precision;
                net.dout.set(i, j, scale * self.weight[i] * off * precision * (1.0 - mean * mean));
                net.dout.set(i, act + j, 0.0);
            }
        }
        self.actor.backward(actor, 0);
    }

    /// The gradient of mean (Q_j(s, a) − y)², y = r + γ (1 − d) V(s'), on its way back. The critics' input is that of
    /// [`IqlShard::value_pass`].
    pub(super) fn critic_pass(
        &mut self,
        cfg: &IqlConfig,
        critics: &MlpEnsemble,
        value: &MlpEnsemble,
        batch: &Batch,
    ) {
        let rows = self.critics.rows.clone();
        self.value.x.load(batch.next_obs.view(), rows.start, rows.len(), 0);
        self.value.forward(value, 0, Weights::Current);
        self.critics.forward(critics, 0, Weights::Current);
        let scale = 2.0 / batch.len() as f32;
        for (i, row) in rows.enumerate() {
            let going_on = if batch.done[row] { 0.0 } else { cfg.gamma as f32 };
            self.y[i] = batch.rew[row] + going_on * self.value.nets[0].out.get(i, 0);
            for net in &mut self.critics.nets {
                net.dout.set(i, 0, scale * (net.out.get(i, 0) - self.y[i]));
            }
        }
        self.critics.backward(critics, 0);
    }
}
