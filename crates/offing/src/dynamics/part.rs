//! One thread's shard of a member's batch: everything in a gradient step of the model that concerns single rows.

use super::data::{Scaler, TargetScale};
use super::head::{Bounds, Head};
use crate::batch::Batch;
use crate::nn::{MlpEnsemble, Shape, Shard, ThreadPool, Weights};

/// Some rows of a batch, with room for all that is computed from them.
///
/// The loss is a kernel over all rows of a shard at once, which a loss of single rows (`nn::Fitter`) would slow down.
#[derive(Debug)]
pub(super) struct ModelShard {
    pub(super) shard: Shard,
    head: Head,
}

/// Makes `shards` cover batches of `rows` rows; nothing when they do already.
pub(super) fn cut(shards: &mut Vec<ModelShard>, shape: &Shape, rows: usize, pool: &ThreadPool, beta: f32) {
    if !shards.iter().map(|s| s.shard.rows.clone()).eq(pool.shards(rows)) {
        let width = shape.outputs(shape.layers() - 1) / 2;
        let make = |rows: std::ops::Range<usize>| {
            let head = Head::new(rows.len(), width).with_beta(beta);
            ModelShard { shard: Shard::new(shape, rows, 1), head }
        };
        *shards = pool.shards(rows).map(make).collect();
    }
}

impl ModelShard {
    /// Takes over the current bounds; needed once after they changed.
    pub(super) fn set_bounds(&mut self, bounds: &Bounds) {
        self.head.set_bounds(bounds);
    }

    /// Reads inputs and targets: row i of this shard is row `row_of(i)` of `data`.
    pub(super) fn load(
        &mut self,
        (scaler, targets): (&Scaler, Option<&TargetScale>),
        data: &Batch,
        row_of: impl Fn(usize) -> usize,
    ) {
        let width = self.head.width();
        for i in 0..self.shard.rows.len() {
            if i + Batch::AHEAD < self.shard.rows.len() {
                data.fetch_early(row_of(i + Batch::AHEAD));
            }
            let row = row_of(i);
            scaler.load(&data.obs, &data.act, row, &mut self.shard.x, i);
            let target = &mut self.head.target[i * width..][..width];
            let (obs, next) = (data.obs.row(row), data.next_obs.row(row));
            target.iter_mut().zip(next).zip(obs).for_each(|((t, next), obs)| *t = next - obs);
            target[width - 1] = data.rew[row];
            targets.into_iter().for_each(|scale| scale.apply(target));
        }
    }

    /// Runs the loaded rows through a member.
    pub(super) fn forward(&mut self, nets: &MlpEnsemble, member: usize) {
        self.shard.forward(nets, member, Weights::Current);
    }

    /// After [`ModelShard::forward`]: each row's Σ_d ((μ − y)² e^−lv + lv), which is −2 ln p − D ln 2π.
    pub(super) fn losses(&mut self, nets: &MlpEnsemble, out: &mut [f64]) {
        let (n, width) = (self.shard.rows.len(), self.head.width());
        self.head.losses(nets.simd(), &self.shard.nets[0].out, n);
        for (out, terms) in out.iter_mut().zip(self.head.loss[..n * width].chunks_exact(width)) {
            *out = terms.iter().map(|&l| f64::from(l)).sum();
        }
    }

    /// After [`ModelShard::forward`]: backpropagates the gradient of Σ_i `scale(i)` · Σ_d ((μ − y)² e^−lv + lv).
    pub(super) fn backward(&mut self, nets: &MlpEnsemble, member: usize, scale: impl Fn(usize) -> f32) {
        let (n, net) = (self.shard.rows.len(), &mut self.shard.nets[0]);
        self.head.gradient(nets.simd(), &net.out, n, scale, &mut net.dout);
        self.shard.backward(nets, member);
    }

    /// After [`ModelShard::backward`]: `sum` and all entries' losses, row after row, so that shards do not change a bit.
    pub(super) fn add_loss(&self, sum: f64) -> f64 {
        self.head.loss[..self.shard.rows.len() * self.head.width()]
            .iter()
            .fold(sum, |sum, &l| sum + f64::from(l))
    }

    /// After [`ModelShard::backward`]: adds the rows' contributions to the gradients of the bounds.
    pub(super) fn add_bound_gradients(&self, dmax: &mut [f64], dmin: &mut [f64]) {
        let (n, width) = (self.shard.rows.len() * self.head.width(), self.head.width());
        for (sum, terms) in [(dmax, &self.head.dmax), (dmin, &self.head.dmin)] {
            for row in terms[..n].chunks_exact(width) {
                sum.iter_mut().zip(row).for_each(|(sum, &d)| *sum += f64::from(d));
            }
        }
    }
}
