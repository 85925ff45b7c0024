//! One dense layer's weight gradient, handed to the optimiser while it is in registers.

use super::adam::AdamStep;
use super::buffer::{LANES, Line, read, write};
use super::layer::Panel;
use super::matmul::{Kernel, NARROW, dispatch, tiles};
use super::mlp_ensemble::MlpEnsemble;
use super::packed_matrix::PackedMatrix;
use super::shard::Shard;

/// The gradient of panels of weights: a sum over the rows of all shards, in order.
pub(super) struct Gradient<'a, 's> {
    /// Number of shards.
    pub count: usize,
    pub shard: &'a (dyn Fn(usize) -> &'s Shard + Sync),
    /// Which of the shards' networks, which of its layers and the first of its panels.
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
#[derive(Clone, Copy, Default)]
pub(super) struct Update {
    /// Without a step, the gradient takes the weight's place.
    pub adam: Option<AdamStep>,
    /// Added to the gradient: decay · weight. Biases do not decay.
    pub decay: f32,
    /// Move the target copy this far towards the new weights.
    pub tau: Option<f32>,
    /// The sum goes on from what is in the weight's place.
    pub add: bool,
}

dispatch!(
    /// Sums the gradient of one or two panels of a layer with so many inputs and outputs, and applies it. The first is
    /// number `gradient.panel`.
    pub(super) train_panels, train_panels_wide,
    (gradient: &Gradient<'_, '_>, size: (usize, usize), panels: &mut [Panel], update: Update)
);

#[inline(always)]
fn train_panels_wide<K: Kernel>(
    gradient: &Gradient<'_, '_>,
    size: (usize, usize),
    panels: &mut [Panel],
    update: Update,
) {
    if size.1 == 1 {
        return train_column(gradient, size.0, &mut panels[0], update);
    }
    match panels {
        [first, second] if const { K::ROWS[1] > 0 } => {
            train_block::<K, 2>(gradient, 0, size.0, &mut [first, second], update);
        }
        panels => {
            for (p, panel) in panels.iter_mut().enumerate() {
                train_block::<K, 1>(gradient, p, size.0, &mut [panel], update);
            }
        }
    }
}

/// A layer with one output.
#[inline(always)]
fn train_column(gradient: &Gradient<'_, '_>, inputs: usize, panel: &mut Panel, update: Update) {
    for block in 0..(inputs + 1).div_ceil(LANES) {
        let start = if update.add { read(&panel.w, block * LANES) } else { [0.0; LANES] };
        let grad = gradient_column(gradient, block, start);
        step_line(block, grad, column_decay(block, inputs, update), panel, update);
    }
}

/// Weight decay of the inputs from 16·`block` of a layer with one output.
#[inline(always)]
fn column_decay(block: usize, inputs: usize, update: Update) -> Line {
    let mut decay = [0.0; LANES];
    decay[..(inputs - block * LANES).min(LANES)].fill(update.decay);
    decay
}

/// Panels from number `skip` of those of `gradient`.
///
/// Sixteen inputs at a time: Σ_rows x[row][k] · dy[row][j], shard by shard, so that what is multiplied at a time is 24 KiB for
/// shards of 128 rows. Each sum keeps the order of the rows.
#[inline(always)]
fn train_block<K: Kernel, const P: usize>(
    gradient: &Gradient<'_, '_>,
    skip: usize,
    inputs: usize,
    panels: &mut [&mut Panel; P],
    update: Update,
) {
    let with_target = update.tau.is_some();
    for panel in panels.iter() {
        let len = panel.w.len();
        assert!(len >= (inputs + 1) * LANES);
        assert!(update.adam.is_none() || len == panel.m.len() && len == panel.v.len());
        assert!(!with_target || len == panel.target.len());
    }
    // Room for as many tiles as sixteen inputs make.
    let mut sums = [[K::ZEROS; P]; LANES.div_ceil(NARROW)];
    for strip in 0..(inputs + 1).div_ceil(LANES) {
        let width = (inputs + 1 - strip * LANES).min(LANES);
        if update.add {
            for (tile, (first, height)) in tiles(width, K::ROWS[P - 1]).enumerate() {
                for (p, i) in (0..P).flat_map(|p| (0..height).map(move |i| (p, i))) {
                    let at = (strip * LANES + first + i) * LANES;
                    sums[tile][p].as_mut()[i] = read(&panels[p].w, at);
                }
            }
        }
        for shard in 0..gradient.count {
            let (x, dy, rows) = gradient.terms(shard);
            let x = &x.data()[strip * x.capacity() * LANES..][..rows * LANES];
            let mut b = [x.as_ptr(); P];
            for (p, b) in b.iter_mut().enumerate() {
                let panel = gradient.panel + skip + p;
                *b = dy.data()[panel * dy.capacity() * LANES..][..rows * LANES].as_ptr();
            }
            for (tile, (first, height)) in tiles(width, K::ROWS[P - 1]).enumerate() {
                // Weights and moments of an ensemble do not fit the cache: ask for them while the sum is being made.
                if shard + 1 == gradient.count {
                    for i in (first..first + height).map(|i| (strip * LANES + i) * LANES) {
                        for panel in panels.iter() {
                            K::prefetch_to_write(panel.w.as_ptr().wrapping_add(i));
                            K::prefetch_to_write(panel.m.as_ptr().wrapping_add(i));
                            K::prefetch_to_write(panel.v.as_ptr().wrapping_add(i));
                            if with_target {
                                K::prefetch_to_write(panel.target.as_ptr().wrapping_add(i));
                            }
                        }
                    }
                }
                // SAFETY: all slices hold `rows` lines of 16, and first + height ≤ 16.
                unsafe {
                    let a = x.as_ptr().add(first);
                    let fresh = shard == 0 && !update.add;
                    K::accumulate::<P, 1, LANES>(height, a, b, rows, LANES * LANES, fresh, &mut sums[tile]);
                }
            }
        }
        for (tile, (first, height)) in tiles(width, K::ROWS[P - 1]).enumerate() {
            for p in 0..P {
                let (panel, sums) = (&mut *panels[p], sums[tile][p].as_ref());
                for (i, &grad) in sums[..height].iter().enumerate() {
                    let line = strip * LANES + first + i;
                    let decay = [if line < inputs { update.decay } else { 0.0 }; LANES];
                    step_line(line, grad, decay, panel, update);
                }
            }
        }
    }
}

dispatch!(
    /// Applies a gradient that was summed in parts, each in the place of a network's weights.
    pub(super) train_on_sum, train_on_sum_wide,
    (parts: &[MlpEnsemble], number: usize, size: (usize, usize), panel: &mut Panel, update: Update)
);

#[inline(always)]
fn train_on_sum_wide<K: Kernel>(
    parts: &[MlpEnsemble],
    number: usize,
    (inputs, outputs): (usize, usize),
    panel: &mut Panel,
    update: Update,
) {
    for line in 0..panel.w.len() / LANES {
        let mut grad = [0.0; LANES];
        for part in parts {
            let term = read(&part.panels[number].w, line * LANES);
            for j in 0..LANES {
                grad[j] += term[j];
            }
        }
        let decay = match outputs {
            1 => column_decay(line, inputs, update),
            _ => [if line < inputs { update.decay } else { 0.0 }; LANES],
        };
        step_line(line, grad, decay, panel, update);
    }
}

/// Applies the gradient of line `i` of a panel.
#[inline(always)]
fn step_line(i: usize, mut grad: Line, decay: Line, panel: &mut Panel, update: Update) {
    let Panel { w, m, v, target } = panel;
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
        let moved = polyak(read(target, at), new, tau);
        write(target, at, moved);
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

/// `start` + Σ_rows x[row][k] · dy[row] for sixteen inputs k from 16·`strip`.
#[inline(always)]
fn gradient_column(gradient: &Gradient<'_, '_>, strip: usize, start: Line) -> Line {
    let mut sum = start;
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
