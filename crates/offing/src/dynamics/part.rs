//! One thread's shard of a member's batch: everything in a gradient step of the model that concerns single rows.

use std::ops::Range;

use super::data::{Scaler, TargetScale};
use super::head::{Bounds, Head};
use crate::batch::Batch;
use crate::nn::{Net, Shape, Shard, Weights};

/// Some rows of a batch, with room for all that is computed from them.
///
/// The loss is a kernel over all rows of a shard at once, which a loss of single rows (`nn::Fitter`) would slow down.
#[derive(Debug)]
pub(super) struct ModelShard {
    pub(super) shard: Shard,
    head: Head,
}

/// Makes `shards` those with the given rows; nothing when they are already.
pub(super) fn cut(
    shards: &mut Vec<ModelShard>,
    shape: &Shape,
    rows: impl Iterator<Item = Range<usize>> + Clone,
    beta: f32,
) {
    if !shards.iter().map(|s| s.shard.rows.clone()).eq(rows.clone()) {
        let width = shape.outputs(shape.layers() - 1) / 2;
        let make = |rows: Range<usize>| {
            let head = Head::new(rows.len(), width).with_beta(beta);
            ModelShard { shard: Shard::new(shape, rows, 1), head }
        };
        *shards = rows.map(make).collect();
    }
}

/// What a batch of one member left to be summed in the order of the members, whichever threads took them.
#[derive(Clone, Debug, Default)]
pub(super) struct BatchTerms {
    /// The sum of all entries' losses, row after row, so that shards do not change a bit.
    pub(super) loss: f64,
    /// Each row's part of the gradients of the bounds, upper and lower.
    dmax: Vec<f32>,
    dmin: Vec<f32>,
}

impl BatchTerms {
    /// What is in `shards` after [`ModelShard::backward`].
    pub(super) fn take(&mut self, shards: &[ModelShard]) {
        self.loss = 0.0;
        self.dmax.clear();
        self.dmin.clear();
        for ModelShard { shard, head } in shards {
            let n = shard.rows.len() * head.width();
            self.loss = head.loss[..n].iter().fold(self.loss, |sum, &l| sum + f64::from(l));
            self.dmax.extend_from_slice(&head.dmax[..n]);
            self.dmin.extend_from_slice(&head.dmin[..n]);
        }
    }

    /// Adds the rows' parts, in their order, to the gradients of the bounds.
    pub(super) fn add_bound_gradients(&self, dmax: &mut [f64], dmin: &mut [f64]) {
        for (sum, terms) in [(dmax, &self.dmax), (dmin, &self.dmin)] {
            for row in terms.chunks_exact(sum.len()) {
                sum.iter_mut().zip(row).for_each(|(sum, &d)| *sum += f64::from(d));
            }
        }
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
    pub(super) fn forward(&mut self, member: Net<'_>) {
        let Shard { rows, x, nets } = &mut self.shard;
        nets[0].forward(member, Weights::Current, x, rows.len());
    }

    /// After [`ModelShard::forward`]: each row's Σ_d ((μ − y)² e^−lv + lv), which is −2 ln p − D ln 2π.
    pub(super) fn losses(&mut self, member: Net<'_>, out: &mut [f64]) {
        let (n, width) = (self.shard.rows.len(), self.head.width());
        self.head.losses(member.simd(), &self.shard.nets[0].out, n);
        for (out, terms) in out.iter_mut().zip(self.head.loss[..n * width].chunks_exact(width)) {
            *out = terms.iter().map(|&l| f64::from(l)).sum();
        }
    }

    /// After [`ModelShard::forward`]: backpropagates the gradient of Σ_i `scale(i)` · Σ_d ((μ − y)² e^−lv + lv).
    pub(super) fn backward(&mut self, member: Net<'_>, scale: impl Fn(usize) -> f32) {
        let (n, net) = (self.shard.rows.len(), &mut self.shard.nets[0]);
        self.head.gradient(member.simd(), &net.out, n, scale, &mut net.dout);
        net.backward(member, n, None);
    }
}
