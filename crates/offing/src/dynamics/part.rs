//! One thread's share of a member's batch: everything in a gradient step of the model that concerns single rows.

use std::ops::Range;

use super::data::Scaler;
use super::head::{Bounds, Head};
use crate::batch::Batch;
use crate::nn::{Activations, Net, PackedMatrix, Shape, ThreadPool, Weights};

/// Rows `rows` of a batch, with room for all that is computed from them.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) rows: Range<usize>,
    x: PackedMatrix,
    trace: Activations,
    head: Head,
}

/// Makes `parts` cover batches of `rows` rows; nothing when they do already.
pub(super) fn cut(parts: &mut Vec<Part>, shape: &Shape, rows: usize, pool: &ThreadPool) {
    let count = pool.parts(rows);
    if parts.len() != count || parts.last().is_none_or(|p| p.rows.end != rows) {
        let part = |i: usize| Part::new(shape, i * rows / count..(i + 1) * rows / count);
        *parts = (0..count).map(part).collect();
    }
}

impl Part {
    fn new(shape: &Shape, rows: Range<usize>) -> Self {
        let (n, width) = (rows.len(), shape.outputs(shape.layers() - 1) / 2);
        let (x, trace) = (PackedMatrix::new(n, shape.inputs(0)), Activations::new(shape, n));
        Self { rows, x, trace, head: Head::new(n, width) }
    }

    /// Takes over the current bounds; needed once after they changed.
    pub(super) fn set_bounds(&mut self, bounds: &Bounds) {
        self.head.set_bounds(bounds);
    }

    /// Reads inputs and targets: row i of this part is row `row_of(i)` of `data`.
    pub(super) fn load(&mut self, scaler: &Scaler, data: &Batch, row_of: impl Fn(usize) -> usize) {
        let width = self.head.width();
        for i in 0..self.rows.len() {
            if i + Batch::AHEAD < self.rows.len() {
                data.fetch_early(row_of(i + Batch::AHEAD));
            }
            let row = row_of(i);
            let (obs, act, next) = (data.obs.row(row), data.act.row(row), data.next_obs.row(row));
            match (obs.as_slice(), act.as_slice()) {
                (Some(obs), Some(act)) => scaler.load(obs, act, &mut self.x, i),
                _ => scaler.load(&obs.to_vec(), &act.to_vec(), &mut self.x, i),
            }
            let target = &mut self.head.target[i * width..][..width];
            target.iter_mut().zip(next).zip(obs).for_each(|((t, next), obs)| *t = next - obs);
            target[width - 1] = data.rew[row];
        }
    }

    /// Runs the loaded rows through a member.
    pub(super) fn forward(&mut self, net: Net<'_>) {
        self.trace.forward(net, Weights::Current, &self.x, self.rows.len());
    }

    /// After [`Part::forward`]: each row's Σ_d ((μ − y)² e^−lv + lv), which is −2 ln p − D ln 2π.
    pub(super) fn losses(&mut self, net: Net<'_>, out: &mut [f64]) {
        let (n, width) = (self.rows.len(), self.head.width());
        self.head.losses(net.simd(), &self.trace.out, n);
        for (out, terms) in out.iter_mut().zip(self.head.loss[..n * width].chunks_exact(width)) {
            *out = terms.iter().map(|&l| f64::from(l)).sum();
        }
    }

    /// After [`Part::forward`]: takes back the gradient of Σ_i `scale(i)` · Σ_d ((μ − y)² e^−lv + lv).
    pub(super) fn backward(&mut self, net: Net<'_>, scale: impl Fn(usize) -> f32) {
        let n = self.rows.len();
        self.head.gradient(net.simd(), &self.trace.out, n, scale, &mut self.trace.dout);
        self.trace.backward(net, n, None);
    }

    /// What a layer's weight gradient needs.
    pub(super) fn source(&self, l: usize) -> (&PackedMatrix, &PackedMatrix, usize) {
        let (x, dy) = self.trace.source(l, &self.x);
        (x, dy, self.rows.len())
    }

    /// After [`Part::backward`]: `sum` and all entries' losses, row after row, so that parts do not change a bit.
    pub(super) fn add_loss(&self, sum: f64) -> f64 {
        self.head.loss[..self.rows.len() * self.head.width()].iter().fold(sum, |sum, &l| sum + f64::from(l))
    }

    /// After [`Part::backward`]: adds the rows' contributions to the gradients of the bounds.
    pub(super) fn add_bound_gradients(&self, dmax: &mut [f64], dmin: &mut [f64]) {
        let (n, width) = (self.rows.len() * self.head.width(), self.head.width());
        for (sum, terms) in [(dmax, &self.head.dmax), (dmin, &self.head.dmin)] {
            for row in terms[..n].chunks_exact(width) {
                sum.iter_mut().zip(row).for_each(|(sum, &d)| *sum += f64::from(d));
            }
        }
    }
}
