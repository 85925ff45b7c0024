//! One dense layer: forward, gradient by input, gradient by weights fused with the optimiser.
//!
//! A layer with `out` outputs is ⌈out/16⌉ panels of weights, each (inputs + 1) × 16, the last row being the bias. A
//! layer with a single output is one column (a critic's head would waste 15 of 16 lanes).

use super::adam::AdamStep;
use super::buffer::{Buf, LANES, Line, read, write};
use super::math::{Arithmetic, sigmoid};
use super::matmul::{Kernel, Portable, Simd, TILE, Tile, accumulate, tiles};
use super::matrix::Panels;

/// What follows a hidden layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// max(x, 0)
    Relu,
    /// x · sigmoid(x), also called swish
    Silu,
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
    fn weights(&self, which: Weights) -> &[f32] {
        match which {
            Weights::Current => &self.w,
            Weights::Target => &self.target,
        }
    }
}

/// `y = activation(x·W + b)` for the first `rows` rows; also the activation's slope where `slope` is given.
pub(super) struct Forward<'a> {
    pub x: &'a Panels,
    pub rows: usize,
    pub layer: &'a [Panel],
    pub which: Weights,
    pub y: &'a mut Panels,
    pub activation: Option<Activation>,
    pub slope: Option<&'a mut Panels>,
}

/// `dx = (dy·Wᵀ) ∘ slope` for the first `rows` rows and the panels `panels` of dx.
pub(super) struct Backward<'a> {
    pub dy: &'a Panels,
    pub rows: usize,
    pub layer: &'a [Panel],
    pub panels: std::ops::Range<usize>,
    pub slope: Slope<'a>,
    pub dx: &'a mut Panels,
    /// Room for one panel of Wᵀ.
    pub pack: &'a mut Buf,
}

/// The activation's derivative at the layer's input.
#[derive(Clone, Copy)]
pub(super) enum Slope<'a> {
    /// No activation.
    One,
    /// 1 where the activation's output is positive; row i of dx belongs to row `map[i]` of the output.
    Step(&'a Panels, Option<&'a [u32]>),
    /// As stored by the forward pass.
    Stored(&'a Panels),
}

/// A weight gradient is a sum over batch rows, which lie in several parts; rows count in the order of the parts.
pub(super) trait Sources: Sync {
    /// Number of parts.
    fn count(&self) -> usize;
    /// The part's layer input, output gradient and number of rows.
    fn part(&self, i: usize) -> (&Panels, &Panels, usize);
}

/// What to do with a weight's gradient.
#[derive(Clone, Copy)]
pub(super) struct Update {
    pub adam: AdamStep,
    /// Added to the gradient: decay · weight. Biases do not decay.
    pub decay: f32,
    /// Move the target copy this far towards the new weights.
    pub tau: Option<f32>,
}

macro_rules! dispatch {
    ($(#[$doc:meta])* $name:ident, $wide:ident, $avx2:ident, ($($arg:ident: $type:ty),*)) => {
        $(#[$doc])*
        pub(super) fn $name(simd: Simd, $($arg: $type),*) {
            match simd {
                Simd::Portable => $wide::<Portable>($($arg),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a `Simd::Avx2` exists only where AVX2 and FMA were detected.
                Simd::Avx2(_) => unsafe { $avx2($($arg),*) },
            }
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn $avx2($($arg: $type),*) {
            $wide::<super::matmul::Avx2>($($arg),*);
        }
    };
}

dispatch!(
    /// Runs a layer forward.
    forward, forward_wide, forward_avx2, (f: Forward<'_>)
);
dispatch!(
    /// Runs a layer backward to its input.
    backward, backward_wide, backward_avx2, (b: Backward<'_>)
);
dispatch!(
    /// Sums the gradient of panel number `index` and lets Adam apply it.
    train_panel, train_panel_wide, train_panel_avx2,
    (sources: &dyn Sources, inputs: usize, index: usize, outputs: usize, panel: &mut Panel, update: Update)
);
dispatch!(
    /// Sums the gradient of panel number `index` into `grad`, which has the panel's layout.
    gradient_panel, gradient_panel_wide, gradient_panel_avx2,
    (sources: &dyn Sources, inputs: usize, index: usize, outputs: usize, grad: &mut [f32])
);

#[inline(always)]
fn forward_wide<K: Kernel>(f: Forward<'_>) {
    let Forward { x, rows, layer, which, y, activation, mut slope } = f;
    let inputs = x.cols();
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
    for (p, panel) in layer.iter().enumerate() {
        let w = panel.weights(which);
        assert!(w.len() >= (inputs + 1) * LANES);
        // Weights come from far: ask for the next panel's while this one's are in use, some lines a tile.
        let next = layer.get(p + 1).map_or(&[][..], |panel| panel.weights(which));
        let share = (inputs + 1).div_ceil(rows.div_ceil(TILE).max(1));
        let mut ahead = 0;
        for (row, height) in tiles(rows) {
            for line in ahead..(ahead + share).min(next.len() / LANES) {
                K::prefetch_later(&next[line * LANES]);
            }
            ahead += share;
            // And for the lines to be written, so that the stores need not wait for them.
            for i in row..row + height {
                let at = (p * y.capacity() + i) * LANES;
                K::prefetch(&y.data()[at]);
                if let Some(slope) = &slope {
                    K::prefetch(&slope.data()[at]);
                }
            }
            let mut tile: Tile = [[0.0; LANES]; 6];
            // SAFETY: row + height ≤ rows ≤ x's capacity and inputs + 1 columns are inside x's panels; w was checked.
            unsafe {
                let a = x.data().as_ptr().add(row * LANES);
                accumulate::<K, LANES, 1>(height, a, w.as_ptr(), inputs + 1, x.capacity() * LANES, &mut tile);
            }
            let at = (p * y.capacity() + row) * LANES;
            for (i, &z) in tile[..height].iter().enumerate() {
                let at = at + i * LANES;
                let line = match activation {
                    None => z,
                    Some(Activation::Relu) => relu(z),
                    Some(Activation::Silu) => {
                        let (line, slopes) = silu::<K::Arithmetic>(z);
                        if let Some(slope) = &mut slope {
                            write(slope.data_mut(), at, slopes);
                        }
                        line
                    }
                };
                write(y.data_mut(), at, line);
            }
        }
    }
    if !y.cols().is_multiple_of(LANES) {
        y.set_ones(rows);
    }
}

/// One row: a tile of one row would wait on its own latency, so four panels go together. The same bits as a tile.
#[inline(always)]
fn forward_one<K: Kernel>(
    x: &Panels,
    layer: &[Panel],
    which: Weights,
    y: &mut Panels,
    activation: Option<Activation>,
) {
    let inputs = x.cols();
    for first in (0..layer.len()).step_by(4) {
        let count = (layer.len() - first).min(4);
        // The last group may be short: it computes its last panel again.
        let w: [&[f32]; 4] = std::array::from_fn(|q| layer[first + q.min(count - 1)].weights(which));
        let mut sums = [[0.0; LANES]; 4];
        for k in 0..=inputs {
            let x = x.data()[x.at(0, k)];
            for q in 0..4 {
                let w = read(w[q], k * LANES);
                for j in 0..LANES {
                    sums[q][j] = K::Arithmetic::mul_add(x, w[j], sums[q][j]);
                }
            }
        }
        for (q, &z) in sums[..count].iter().enumerate() {
            let line = match activation {
                None => z,
                Some(Activation::Relu) => relu(z),
                Some(Activation::Silu) => silu::<K::Arithmetic>(z).0,
            };
            let at = (first + q) * y.capacity() * LANES;
            write(y.data_mut(), at, line);
        }
    }
    if !y.cols().is_multiple_of(LANES) {
        y.set_ones(1);
    }
}

#[inline(always)]
fn relu(mut z: Line) -> Line {
    for z in &mut z {
        *z = z.max(0.0);
    }
    z
}

/// The activation and its slope.
#[inline(always)]
fn silu<A: Arithmetic>(z: Line) -> (Line, Line) {
    let (mut y, mut slope) = (z, z);
    for j in 0..LANES {
        let s = sigmoid::<A>(z[j]);
        y[j] = z[j] * s;
        slope[j] = s + y[j] * (1.0 - s);
    }
    (y, slope)
}

/// A layer with one output: a dot product per row.
#[inline(always)]
fn forward_column(x: &Panels, rows: usize, w: &[f32], y: &mut Panels) {
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
        y.data_mut()[row * LANES] = sum_lanes(sums);
    }
}

/// Halves until one is left: a fixed order that vectorises.
#[inline(always)]
fn sum_lanes(mut s: Line) -> f32 {
    for j in 0..8 {
        s[j] += s[j + 8];
    }
    for j in 0..4 {
        s[j] += s[j + 4];
    }
    (s[0] + s[2]) + (s[1] + s[3])
}

#[inline(always)]
fn backward_wide<K: Kernel>(b: Backward<'_>) {
    let Backward { dy, rows, layer, panels, slope, dx, pack } = b;
    let (inputs, outputs) = (dx.cols(), dy.cols());
    assert!(rows <= dx.capacity() && rows <= dy.capacity());
    for p in panels {
        if outputs == 1 {
            backward_column(dy, rows, &layer[0].w, p, slope, dx);
            continue;
        }
        pack_transposed::<K>(layer, inputs, p, pack);
        // As in the forward pass; the next block of Wᵀ lies in sixteen lines of every panel.
        let share = (layer.len() * LANES).div_ceil(rows.div_ceil(TILE).max(1));
        let mut ahead = 0;
        assert!(pack.len() >= layer.len() * LANES * LANES && layer.len() == outputs.div_ceil(LANES));
        for (row, height) in tiles(rows) {
            for line in ahead..(ahead + share).min(layer.len() * LANES) {
                let at = ((p + 1) * LANES + line % LANES) * LANES;
                if let Some(w) = layer[line / LANES].w.get(at) {
                    K::prefetch_later(w);
                }
            }
            ahead += share;
            for i in row..row + height {
                K::prefetch(&dx.data()[(p * dx.capacity() + i) * LANES]);
                if let Slope::Stored(slope) = slope {
                    K::prefetch(&slope.data()[(p * slope.capacity() + i) * LANES]);
                }
            }
            let mut tile: Tile = [[0.0; LANES]; 6];
            // SAFETY: row + height ≤ rows ≤ dy's capacity; dy has `outputs` columns and `pack` as many rows.
            unsafe {
                let a = dy.data().as_ptr().add(row * LANES);
                accumulate::<K, LANES, 1>(
                    height,
                    a,
                    pack.as_ptr(),
                    outputs,
                    dy.capacity() * LANES,
                    &mut tile,
                );
            }
            for (i, &line) in tile[..height].iter().enumerate() {
                let at = (p * dx.capacity() + row + i) * LANES;
                write(dx.data_mut(), at, scale(line, slope, p, row + i));
            }
        }
    }
}

/// Multiplies a line of gradients by the activation's slope.
#[inline(always)]
fn scale(mut line: Line, slope: Slope<'_>, panel: usize, row: usize) -> Line {
    match slope {
        Slope::One => {}
        Slope::Step(y, map) => {
            let row = map.map_or(row, |map| map[row] as usize);
            let y = read(y.data(), (panel * y.capacity() + row) * LANES);
            for j in 0..LANES {
                // A mask, because a branch on each lane would keep the compiler from vector code.
                let keep = 0u32.wrapping_sub(u32::from(y[j] > 0.0));
                line[j] = f32::from_bits(line[j].to_bits() & keep);
            }
        }
        Slope::Stored(s) => {
            let s = read(s.data(), (panel * s.capacity() + row) * LANES);
            for j in 0..LANES {
                line[j] *= s[j];
            }
        }
    }
    line
}

/// Input panel `p` of a layer with one output: dx = dy · w.
#[inline(always)]
fn backward_column(dy: &Panels, rows: usize, w: &[f32], p: usize, slope: Slope<'_>, dx: &mut Panels) {
    let mut weights = [0.0; LANES];
    let used = (dx.cols() - p * LANES).min(LANES);
    weights[..used].copy_from_slice(&w[p * LANES..][..used]);
    for row in 0..rows {
        let (d, mut line) = (dy.data()[row * LANES], weights);
        for w in &mut line {
            *w *= d;
        }
        let at = (p * dx.capacity() + row) * LANES;
        write(dx.data_mut(), at, scale(line, slope, p, row));
    }
}

/// Copies columns 16p..16p+16 of Wᵀ into one run; the bias row is left out, and columns beyond the inputs are zero.
/// Done anew for every use: it costs little beside the product it serves, and there is no stale copy to look after.
#[inline(always)]
fn pack_transposed<K: Kernel>(layer: &[Panel], inputs: usize, p: usize, pack: &mut Buf) {
    let used = (inputs - p * LANES).min(LANES);
    for (panel, block) in layer.iter().zip(pack.chunks_exact_mut(LANES * LANES)) {
        let source = &panel.w[p * LANES * LANES..];
        match source[..used * LANES].try_into() {
            Ok(whole) => K::transpose(whole, block.try_into().expect("a chunk is one block")),
            Err(_) => {
                block.fill(0.0);
                for (i, line) in source.chunks_exact(LANES).take(used).enumerate() {
                    for (j, &x) in line.iter().enumerate() {
                        block[j * LANES + i] = x;
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn train_panel_wide<K: Kernel>(
    sources: &dyn Sources,
    inputs: usize,
    index: usize,
    outputs: usize,
    panel: &mut Panel,
    update: Update,
) {
    let Panel { w, m, v, target } = panel;
    let with_target = update.tau.is_some();
    if outputs == 1 {
        for block in 0..(inputs + 1).div_ceil(LANES) {
            let grad = gradient_column(sources, block);
            let mut decay = [0.0; LANES];
            decay[..(inputs - block * LANES).min(LANES)].fill(update.decay);
            step_line(block, grad, decay, (w, m, v, target), update);
        }
        return;
    }
    assert!(w.len() >= (inputs + 1) * LANES && w.len() == m.len() && w.len() == v.len());
    assert!(!with_target || target.len() == w.len());
    for strip in 0..(inputs + 1).div_ceil(LANES) {
        let width = (inputs + 1 - strip * LANES).min(LANES);
        for (first, height) in tiles(width) {
            let k = strip * LANES + first;
            // Weights and moments of an ensemble do not fit the cache: ask for them while the sum is being made.
            for i in k..k + height {
                K::prefetch(&w[i * LANES]);
                K::prefetch(&m[i * LANES]);
                K::prefetch(&v[i * LANES]);
                if with_target {
                    K::prefetch(&target[i * LANES]);
                }
            }
            let tile = gradient_tile::<K>(sources, strip, first, height, index);
            for (i, &grad) in tile[..height].iter().enumerate() {
                let decay = [if k + i < inputs { update.decay } else { 0.0 }; LANES];
                step_line(k + i, grad, decay, (w, m, v, target), update);
            }
        }
    }
}

/// Applies Adam and Polyak averaging to line `i` of a panel.
#[inline(always)]
fn step_line(
    i: usize,
    mut grad: Line,
    decay: Line,
    (w, m, v, target): (&mut [f32], &mut [f32], &mut [f32], &mut [f32]),
    update: Update,
) {
    let at = i * LANES;
    let old = read(w, at);
    for j in 0..LANES {
        grad[j] += decay[j] * old[j];
    }
    let (new, first, second) = update.adam.apply_line(old, read(m, at), read(v, at), grad);
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

#[inline(always)]
fn gradient_panel_wide<K: Kernel>(
    sources: &dyn Sources,
    inputs: usize,
    index: usize,
    outputs: usize,
    grad: &mut [f32],
) {
    for strip in 0..(inputs + 1).div_ceil(LANES) {
        if outputs == 1 {
            write(grad, strip * LANES, gradient_column(sources, strip));
            continue;
        }
        let width = (inputs + 1 - strip * LANES).min(LANES);
        for (first, height) in tiles(width) {
            let tile = gradient_tile::<K>(sources, strip, first, height, index);
            for (i, &line) in tile[..height].iter().enumerate() {
                write(grad, (strip * LANES + first + i) * LANES, line);
            }
        }
    }
}

/// Σ_rows x[row][k] · dy[row][j] for `height` inputs k from `strip`·16 + `first` and the outputs j of a panel.
#[inline(always)]
fn gradient_tile<K: Kernel>(
    sources: &dyn Sources,
    strip: usize,
    first: usize,
    height: usize,
    panel: usize,
) -> Tile {
    let mut tile: Tile = [[0.0; LANES]; 6];
    for part in 0..sources.count() {
        let (x, dy, rows) = sources.part(part);
        let x = &x.data()[strip * x.capacity() * LANES..][..rows * LANES];
        let dy = &dy.data()[panel * dy.capacity() * LANES..][..rows * LANES];
        if rows > 0 {
            // SAFETY: both slices hold `rows` lines of 16, and first + height ≤ 16.
            unsafe {
                let a = x.as_ptr().add(first);
                accumulate::<K, 1, LANES>(height, a, dy.as_ptr(), rows, LANES * LANES, &mut tile);
            }
        }
    }
    tile
}

/// The same for a layer with one output: sixteen inputs from 16·`strip`.
#[inline(always)]
fn gradient_column(sources: &dyn Sources, strip: usize) -> Line {
    let mut sum = [0.0; LANES];
    for part in 0..sources.count() {
        let (x, dy, rows) = sources.part(part);
        let first = strip * x.capacity() * LANES;
        for row in 0..rows {
            let (x, d) = (read(x.data(), first + row * LANES), dy.data()[row * LANES]);
            for j in 0..LANES {
                sum[j] += x[j] * d;
            }
        }
    }
    sum
}
