//! One dense layer, forward; the ways back are in [`super::backward`] and [`super::weight_gradient`].
//!
//! A layer with `out` outputs is ⌈out/16⌉ panels of weights, each (inputs + 1) × 16, the last row being the bias. A
//! layer with a single output is one column (a critic's head would waste 15 of 16 lanes).

use super::buffer::{Buf, LANES, Line, read, write};
use super::math::{self, Arithmetic, sigmoid};
use super::matmul::{Kernel, dispatch, tiles};
use super::packed_matrix::PackedMatrix;

/// What follows a hidden layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// x · sigmoid(x), also called swish.
    Silu,
    /// tanh x.
    Tanh,
}

/// Weights of sixteen (or one) outputs, their Adam moments and, for critics, their slowly following copy.
#[derive(Clone, Debug, Default)]
pub struct Panel {
    /// Weights, one row of outputs per input, bias last.
    pub w: Buf,
    /// First moments; empty when the network is not trained.
    pub m: Buf,
    /// Second moments; empty when the network is not trained.
    pub v: Buf,
    /// Polyak average of `w`; empty when there is no target network.
    pub target: Buf,
}

/// Which copy of the weights to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The trained ones.
    Current,
    /// Their Polyak average.
    Target,
}

impl Panel {
    #[inline(always)]
    pub(super) fn weights(&self, which: Weights) -> &[f32] {
        match which {
            Weights::Current => &self.w,
            Weights::Target => &self.target,
        }
    }
}

/// `y = activation(x·W + b)` for the first `rows` rows; also the activation's slope where `slope` is given.
pub(super) struct Forward<'a> {
    pub x: &'a PackedMatrix,
    pub rows: usize,
    pub layer: &'a [Panel],
    pub which: Weights,
    pub y: &'a mut PackedMatrix,
    pub activation: Option<Activation>,
    pub slope: Option<&'a mut PackedMatrix>,
}

dispatch!(
    /// Runs a layer forward.
    pub(super) forward, forward_wide, (f: Forward<'_>)
);

#[inline(always)]
fn forward_wide<K: Kernel>(f: Forward<'_>) {
    let Forward { x, rows, layer, which, y, activation, slope } = f;
    assert!(rows <= x.capacity() && rows <= y.capacity());
    if y.cols() == 1 {
        return forward_column(x, rows, layer[0].weights(which), y);
    }
    assert!(layer.len() == y.cols().div_ceil(LANES));
    if let Some(slope) = &slope {
        assert!(slope.capacity() == y.capacity() && slope.cols() == y.cols());
    }
    if rows == 1 && slope.is_none() {
        return forward_one::<K>(x, layer, which, y, activation);
    }
    let panels = layer.len();
    let mut f = Forward { x, rows, layer, which, y, activation, slope };
    let mut p = 0;
    while p < panels {
        if const { K::ROWS[1] > 0 } && p + 1 < panels {
            forward_panels::<K, 2>(&mut f, p);
            p += 2;
        } else {
            forward_panels::<K, 1>(&mut f, p);
            p += 1;
        }
    }
    if !f.y.cols().is_multiple_of(LANES) {
        f.y.set_ones(rows);
    }
}

/// Panels `p..p + P` of the output.
#[inline(always)]
fn forward_panels<K: Kernel, const P: usize>(f: &mut Forward<'_>, p: usize) {
    let Forward { x, rows, layer, which, y, activation, slope } = f;
    let (inputs, rows, which) = (x.cols(), *rows, *which);
    let w: [&[f32]; P] = std::array::from_fn(|q| layer[p + q].weights(which));
    assert!(w.iter().all(|w| w.len() >= (inputs + 1) * LANES));
    let start: [*const f32; P] = std::array::from_fn(|q| w[q].as_ptr());
    // Weights come from far: ask for the next panels' while these are in use, some lines a tile.
    let next = |q: usize| layer.get(p + P + q).map_or(&[][..], |panel| panel.weights(which));
    let next: [&[f32]; P] = std::array::from_fn(next);
    let most = K::ROWS[P - 1];
    let mut ahead = Ahead::new(next[0].len() / LANES, rows.div_ceil(most));
    let mut sums = [K::ZEROS; P];
    for (row, height) in tiles(rows, most) {
        for line in ahead.take() {
            next.iter().for_each(|next| K::prefetch_later(next.as_ptr().wrapping_add(line * LANES)));
        }
        let first = |q: usize| ((p + q) * y.capacity() + row) * LANES;
        // And for the lines to be written, so that the stores need not wait for them.
        for at in (0..P).flat_map(|q| (0..height).map(move |i| first(q) + i * LANES)) {
            K::prefetch_to_write(y.data().as_ptr().wrapping_add(at));
            if let Some(slope) = &slope {
                K::prefetch_to_write(slope.data().as_ptr().wrapping_add(at));
            }
        }
        // SAFETY: row + height ≤ rows ≤ x's capacity and inputs + 1 columns are inside x's panels; w was checked.
        unsafe {
            let a = x.data().as_ptr().add(row * LANES);
            K::accumulate::<P, LANES, 1>(height, a, start, inputs + 1, x.capacity() * LANES, true, &mut sums);
        }
        for (q, sums) in sums.iter().enumerate() {
            let first = ((p + q) * y.capacity() + row) * LANES;
            for (i, &z) in sums.as_ref()[..height].iter().enumerate() {
                let at = first + i * LANES;
                let slope = slope.as_mut().map(|slope| (slope.data_mut(), at));
                write(y.data_mut(), at, activate::<K::Arithmetic>(z, *activation, slope));
            }
        }
    }
}

/// Hands out lines to fetch early, evenly over some tiles.
pub(super) struct Ahead {
    lines: usize,
    share: usize,
    taken: usize,
}

impl Ahead {
    #[inline(always)]
    pub(super) fn new(lines: usize, tiles: usize) -> Self {
        Self { lines, share: lines.div_ceil(tiles.max(1)), taken: 0 }
    }

    #[inline(always)]
    pub(super) fn take(&mut self) -> std::ops::Range<usize> {
        let first = self.taken.min(self.lines);
        self.taken += self.share;
        first..self.taken.min(self.lines)
    }
}

/// One row: a tile of one row would wait on its own latency, so four panels go together. The same bits as a tile.
#[inline(always)]
fn forward_one<K: Kernel>(
    x: &PackedMatrix,
    layer: &[Panel],
    which: Weights,
    y: &mut PackedMatrix,
    activation: Option<Activation>,
) {
    let inputs = x.cols();
    for first in (0..layer.len()).step_by(4) {
        let count = (layer.len() - first).min(4);
        // The last group may be short: it computes its last panel again.
        let w: [&[f32]; 4] = std::array::from_fn(|q| layer[first + q.min(count - 1)].weights(which));
        let mut sums = [[0.0; LANES]; 4];
        for k in 0..=inputs {
            let x = x.get(0, k);
            for q in 0..4 {
                let w = read(w[q], k * LANES);
                for j in 0..LANES {
                    sums[q][j] = K::Arithmetic::mul_add(x, w[j], sums[q][j]);
                }
            }
        }
        for (q, &z) in sums[..count].iter().enumerate() {
            let at = (first + q) * y.capacity() * LANES;
            write(y.data_mut(), at, activate::<K::Arithmetic>(z, activation, None));
        }
    }
    if !y.cols().is_multiple_of(LANES) {
        y.set_ones(1);
    }
}

/// The activation. SiLU's slope, which the backward pass cannot tell from the output, goes to the given place.
#[inline(always)]
pub(super) fn activate<A: Arithmetic>(
    mut z: Line,
    activation: Option<Activation>,
    slope: Option<(&mut [f32], usize)>,
) -> Line {
    match activation {
        None => {}
        Some(Activation::Relu) => {
            for z in &mut z {
                // Not `f32::max`: it would hide NaN, and a broken network would go on as a dead one.
                *z = if 0.0 > *z { 0.0 } else { *z };
            }
        }
        Some(Activation::Tanh) => {
            for z in &mut z {
                *z = math::tanh::<A>(*z);
            }
        }
        Some(Activation::Silu) => {
            let mut slopes = z;
            for j in 0..LANES {
                let s = sigmoid::<A>(z[j]);
                z[j] *= s;
                slopes[j] = s + z[j] * (1.0 - s);
            }
            if let Some((to, at)) = slope {
                write(to, at, slopes);
            }
        }
    }
    z
}

/// A layer with one output: a dot product per row.
#[inline(always)]
fn forward_column(x: &PackedMatrix, rows: usize, w: &[f32], y: &mut PackedMatrix) {
    let blocks = (x.cols() + 1).div_ceil(LANES);
    for row in 0..rows {
        let mut sums = [0.0; LANES];
        for block in 0..blocks {
            let x = read(x.data(), (block * x.capacity() + row) * LANES);
            let w = read(w, block * LANES);
            for j in 0..LANES {
                sums[j] += x[j] * w[j];
            }
        }
        y.set(row, 0, sum_lanes(sums));
    }
}

/// Halves until one is left: a fixed order that vectorises.
#[inline(always)]
pub(super) fn sum_lanes(mut s: Line) -> f32 {
    for j in 0..8 {
        s[j] += s[j + 8];
    }
    for j in 0..4 {
        s[j] += s[j + 4];
    }
    (s[0] + s[2]) + (s[1] + s[3])
}
