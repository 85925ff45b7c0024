//! One dense layer's weight gradient, handed to the optimiser while it is in registers.

use super::adam::AdamStep;
use super::buffer::{LANES, Line, read, write};
use super::layer::Panel;
use super::matmul::{Kernel, dispatch, tiles};
use super::packed_matrix::PackedMatrix;
use super::shard::Shard;

/// The gradient of one panel of weights: a sum over the rows of all shards, in order.
pub(super) struct Gradient<'a, 's> {
    /// Number of shards.
    pub count: usize,
    pub shard: &'a (dyn Fn(usize) -> &'s Shard + Sync),
    /// Which of the shards' networks, which of its layers and which of its panels.
    pub net: usize,
    pub layer: usize,
    pub panel: usize,
}

impl Gradient<'_, '_> {
    /// The layer's input, its output gradient and the number of rows in shard `i`.
    fn terms(&self, i: usize) -> (&PackedMatrix, &PackedMatrix, usize) {
        let shard = (self.shard)(i);
        let (x, dy) = shard.nets[self.net].source(self.layer, &shard.x);
        (x, dy, shard.rows.len())
    }
}

/// What to do with a weight's gradient.
#[derive(Clone, Copy)]
pub(super) struct Update {
    /// Without a step, the gradient takes the weight's place.
    pub adam: Option<AdamStep>,
    /// Added to the gradient: decay · weight. Biases do not decay.
    pub decay: f32,
    /// Move the target copy this far towards the new weights.
    pub tau: Option<f32>,
}

dispatch!(
    /// Sums the gradient of a panel of a layer with so many inputs and outputs, and applies it.
    pub(super) train_panel, train_panel_wide,
    (gradient: &Gradient<'_, '_>, size: (usize, usize), panel: &mut Panel, update: Update)
);

#[inline(always)]
fn train_panel_wide<K: Kernel>(
    gradient: &Gradient<'_, '_>,
    (inputs, outputs): (usize, usize),
    panel: &mut Panel,
    update: Update,
) {
    let Panel { w, m, v, target } = panel;
    let with_target = update.tau.is_some();
    if outputs == 1 {
        for block in 0..(inputs + 1).div_ceil(LANES) {
            let grad = gradient_column(gradient, block);
            let mut decay = [0.0; LANES];
            decay[..(inputs - block * LANES).min(LANES)].fill(update.decay);
            step_line(block, grad, decay, (w, m, v, target), update);
        }
        return;
    }
    assert!(w.len() >= (inputs + 1) * LANES);
    assert!(update.adam.is_none() || w.len() == m.len() && w.len() == v.len());
    assert!(!with_target || target.len() == w.len());
    for strip in 0..(inputs + 1).div_ceil(LANES) {
        let width = (inputs + 1 - strip * LANES).min(LANES);
        let lines = strip * LANES..strip * LANES + width;
        // Weights and moments of an ensemble do not fit the cache: ask for them while the sum is being made.
        let fetch = |rows: std::ops::Range<usize>| {
            for i in rows.map(|i| (lines.start + i) * LANES) {
                K::prefetch(w.as_ptr().wrapping_add(i));
                K::prefetch(m.as_ptr().wrapping_add(i));
                K::prefetch(v.as_ptr().wrapping_add(i));
                if with_target {
                    K::prefetch(target.as_ptr().wrapping_add(i));
                }
            }
        };
        let block = gradient_block::<K>(gradient, strip, width, fetch);
        for (i, &grad) in lines.clone().zip(&block) {
            let decay = [if i < inputs { update.decay } else { 0.0 }; LANES];
            step_line(i, grad, decay, (w, m, v, target), update);
        }
    }
}

/// Applies the gradient of line `i` of a panel.
#[inline(always)]
fn step_line(
    i: usize,
    mut grad: Line,
    decay: Line,
    (w, m, v, target): (&mut [f32], &mut [f32], &mut [f32], &mut [f32]),
    update: Update,
) {
    let at = i * LANES;
    let Some(adam) = update.adam else { return write(w, at, grad) };
    let old = read(w, at);
    for j in 0..LANES {
        grad[j] += decay[j] * old[j];
    }
    let (new, first, second) = adam.apply_line(old, read(m, at), read(v, at), grad);
    write(w, at, new);
    write(m, at, first);
    write(v, at, second);
    if let Some(tau) = update.tau {
        write(target, at, polyak(read(target, at), new, tau));
    }
}

/// (1 − τ)·target + τ·w
#[inline(always)]
pub(super) fn polyak(mut target: Line, w: Line, tau: f32) -> Line {
    for j in 0..LANES {
        target[j] += tau * (w[j] - target[j]);
    }
    target
}

/// Σ_rows x[row][k] · dy[row][j] for `width` inputs k from `strip`·16 and the outputs j of a panel. `fetch` gets
/// the inputs that are summed next, for the last time.
///
/// Shard by shard, so that what is multiplied at a time is 16 KiB for shards of 128 rows. Each sum keeps its order.
#[inline(always)]
fn gradient_block<K: Kernel>(
    gradient: &Gradient<'_, '_>,
    strip: usize,
    width: usize,
    fetch: impl Fn(std::ops::Range<usize>),
) -> [Line; LANES] {
    let mut block = [[0.0; LANES]; LANES];
    for shard in 0..gradient.count {
        let (x, dy, rows) = gradient.terms(shard);
        let x = &x.data()[strip * x.capacity() * LANES..][..rows * LANES];
        let dy = &dy.data()[gradient.panel * dy.capacity() * LANES..][..rows * LANES];
        for (first, height) in tiles(width, K::ROWS[0]) {
            if shard + 1 == gradient.count {
                fetch(first..first + height);
            }
            let mut sums = [K::ZEROS];
            sums[0].as_mut()[..height].copy_from_slice(&block[first..first + height]);
            // SAFETY: both slices hold `rows` lines of 16, and first + height ≤ 16.
            unsafe {
                let a = x.as_ptr().add(first);
                K::accumulate::<1, 1, LANES>(height, a, [dy.as_ptr()], rows, LANES * LANES, &mut sums);
            }
            block[first..first + height].copy_from_slice(&sums[0].as_ref()[..height]);
        }
    }
    block
}

/// The same for a layer with one output: sixteen inputs from 16·`strip`.
#[inline(always)]
fn gradient_column(gradient: &Gradient<'_, '_>, strip: usize) -> Line {
    let mut sum = [0.0; LANES];
    for shard in 0..gradient.count {
        let (x, dy, rows) = gradient.terms(shard);
        let first = strip * x.capacity() * LANES;
        for row in 0..rows {
            let (x, d) = (read(x.data(), first + row * LANES), dy.get(row, 0));
            for j in 0..LANES {
                sum[j] += x[j] * d;
            }
        }
    }
    sum
}
