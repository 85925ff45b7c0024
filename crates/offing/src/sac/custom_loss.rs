//! Steps of the critics and of the actor on any loss: how another algorithm's loss is written without touching a network.

use ndarray::Array1;

use super::Sac;
use crate::batch::Mat;
use crate::nn::{Noise, Weights};

/// What an actor's loss is made of, or the loss's derivatives with respect to each.
#[derive(Clone, Debug, PartialEq)]
pub struct ActorTerms {
    /// Sampled actions ã = tanh(μ + σε).
    pub act: Mat,
    /// Actions without noise, tanh(μ).
    pub mean_act: Mat,
    /// log π(ã|s).
    pub log_prob: Array1<f32>,
    /// Q_j(s, ã) of every critic: critics × rows.
    pub q: Mat,
}

impl ActorTerms {
    fn zeros(rows: usize, act_dim: usize, critics: usize) -> Self {
        let act = Mat::zeros((rows, act_dim));
        Self { mean_act: act.clone(), act, log_prob: Array1::zeros(rows), q: Mat::zeros((critics, rows)) }
    }
}

impl Sac {
    /// One step of all critics on any loss of their values at any rows: `loss` gets Q (critics × rows), fills ∂loss/∂Q, which
    /// starts as zeros, and returns the loss. For losses with extra terms, pass the batch's rows followed
    /// by the rows of the extra term.
    pub fn critic_step_with(
        &mut self,
        obs: &Mat,
        act: &Mat,
        loss: impl FnOnce(&Mat, &mut Mat) -> f64,
    ) -> f64 {
        self.prepare(obs.nrows());
        self.pool.for_each_mut(&mut self.shards, |_, shard| shard.load_pairs(obs.view(), act.view()));
        self.evaluate(Weights::Current);
        let mut q = Mat::zeros((self.critics.nets(), obs.nrows()));
        let mut dq = q.clone();
        self.gather_q(&mut q);
        let loss = loss(&q, &mut dq);
        self.for_critics(|j, critic, pass| pass.backward(critic, dq.row(j)));
        self.train_critics(None);
        loss
    }

    /// One step of the actor on any loss of its actions at the states `obs`. `loss` gets the [`ActorTerms`], fills the
    /// loss's derivative with respect to each, which start as zeros, and returns the loss. The gradients flow back through
    /// the critics, which stay as they are, and through the tanh-Gaussian to the actor.
    ///
    /// The actor's loss of TD3+BC (Fujimoto & Gu 2021), −λ·Q(s, π(s)) + (π(s) − a)² with λ = 2.5 / mean |Q|:
    ///
    /// ```
    /// # use offing::{Batch, Mat, Rng, nn::{Noise, ThreadPool}, sac::{Sac, SacConfig}};
    /// # let cfg = SacConfig { hidden: vec![32, 32], ..SacConfig::default() };
    /// # let mut agent = Sac::new(&cfg, 3, 1, &ThreadPool::new(2), &mut Rng::stream(0, "init", 0)).unwrap();
    /// # let mut batch = Batch::empty(3, 1);
    /// # (batch.obs, batch.act) = (Mat::ones((16, 3)), Mat::from_elem((16, 1), 0.5));
    /// let rows = batch.obs.nrows() as f32;
    /// let mut step = || agent.actor_step_with(&batch.obs, Noise::Zero, |out, gradient| {
    ///     let q = out.q.row(0);
    ///     let lambda = 2.5 * rows / q.mapv(f32::abs).sum();
    ///     let error = &out.act - &batch.act;
    ///     gradient.q.row_mut(0).fill(-lambda / rows);
    ///     gradient.act = 2.0 / rows * &error;
    ///     f64::from((error.mapv(|e| e * e).sum() - lambda * q.sum()) / rows)
    /// });
    /// let first = step();
    /// assert!((0..100).map(|_| step()).last().unwrap() < first);
    /// ```
    pub fn actor_step_with(
        &mut self,
        obs: &Mat,
        noise: Noise<'_>,
        loss: impl FnOnce(&ActorTerms, &mut ActorTerms) -> f64,
    ) -> f64 {
        self.prepare(obs.nrows());
        let actor = &self.actor.net;
        self.pool.for_each_mut(&mut self.shards, |_, shard| shard.sample(actor, obs.view(), noise));
        self.evaluate(Weights::Current);
        let act_dim = self.actor.act_dim();
        let mut terms = ActorTerms::zeros(obs.nrows(), act_dim, self.critics.nets());
        let mut gradients = terms.clone();
        self.gather_q(&mut terms.q);
        for shard in &self.shards {
            for (i, row) in shard.rows().enumerate() {
                terms.log_prob[row] = shard.head.log_prob[i];
                for j in 0..act_dim {
                    terms.act[[row, j]] = shard.head.act[i * act_dim + j];
                    terms.mean_act[[row, j]] = shard.head.mean_act(i, j);
                }
            }
        }
        let loss = loss(&terms, &mut gradients);
        let actions = self.action_columns();
        self.for_critics(|j, critic, pass| {
            let first = pass.rows.start;
            pass.backward_to_input(critic, actions.clone(), |i| gradients.q[[j, first + i]]);
        });
        let actor = &self.actor.net;
        self.pool.for_each_mut(&mut self.shards, |_, shard| shard.actor_backward(actor, &gradients));
        self.train_actor();
        loss
    }

    /// Puts the critics' last values into `q`, critics × rows.
    pub(super) fn gather_q(&self, q: &mut Mat) {
        for shard in &self.shards {
            for (i, row) in shard.rows().enumerate() {
                let values = shard.q[i..].iter().step_by(shard.y.len());
                q.column_mut(row).iter_mut().zip(values).for_each(|(to, q)| *to = *q);
            }
        }
    }
}
