//! One dense layer: forward, gradient by input, gradient by weights fused with the optimiser.
//!
//! A layer with `out` outputs is ⌈out/16⌉ panels of weights, each (inputs + 1) × 16, the last row being the bias. A
//! layer with a single output is one column (a critic's head would waste 15 of 16 lanes).

use super::adam::AdamStep;
use super::buffer::{Buf, LANES};
use super::math::sigmoid;
use super::matmul::{Kernel, Portable, Simd, Tile, accumulate, tiles};
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
    for (p, panel) in layer.iter().enumerate() {
        let w = panel.weights(which);
        assert!(w.len() >= (inputs + 1) * LANES);
        for (row, height) in tiles(rows) {
            let mut tile: Tile = [[0.0; LANES]; 6];
            // SAFETY: row + height ≤ rows ≤ x's capacity and inputs + 1 columns are inside x's panels; w was checked.
            unsafe {
                let a = x.data().as_ptr().add(row * LANES);
                accumulate::<K, LANES, 1>(height, a, w.as_ptr(), inputs + 1, x.capacity() * LANES, &mut tile);
            }
            let at = (p * y.capacity() + row) * LANES;
            match activation {
                None => {}
                Some(Activation::Relu) => {
                    for line in &mut tile {
                        for z in line {
                            *z = z.max(0.0);
                        }
                    }
                }
                Some(Activation::Silu) => {
                    for (i, line) in tile[..height].iter_mut().enumerate() {
                        let mut slopes = [0.0; LANES];
                        for j in 0..LANES {
                            let (z, s) = (line[j], sigmoid(line[j]));
                            line[j] = z * s;
                            slopes[j] = s + z * s * (1.0 - s);
                        }
                        if let Some(slope) = &mut slope {
                            slope.data_mut()[at + i * LANES..][..LANES].copy_from_slice(&slopes);
                        }
                    }
                }
            }
            let out = &mut y.data_mut()[at..at + height * LANES];
            for (out, line) in out.chunks_exact_mut(LANES).zip(&tile) {
                out.copy_from_slice(line);
            }
        }
    }
    if y.cols() % LANES != 0 {
        y.set_ones(rows);
    }
}

/// A layer with one output: a dot product per row.
#[inline(always)]
fn forward_column(x: &Panels, rows: usize, w: &[f32], y: &mut Panels) {
    let blocks = (x.cols() + 1).div_ceil(LANES);
    for row in 0..rows {
        let mut sums = [0.0f32; LANES];
        for block in 0..blocks {
            let x = &x.data()[(block * x.capacity() + row) * LANES..][..LANES];
            let w = &w[block * LANES..][..LANES];
            for j in 0..LANES {
                sums[j] += x[j] * w[j];
            }
        }
        y.data_mut()[row * LANES] = sum_lanes(sums);
    }
}

/// Halves until one is left: a fixed order that vectorises.
#[inline(always)]
fn sum_lanes(mut s: [f32; LANES]) -> f32 {
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
        pack_transposed(layer, inputs, p, pack);
        assert!(pack.len() >= layer.len() * LANES * LANES && layer.len() == outputs.div_ceil(LANES));
        for (row, height) in tiles(rows) {
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
            for (i, line) in tile[..height].iter_mut().enumerate() {
                scale(line, slope, p, row + i);
                let at = (p * dx.capacity() + row + i) * LANES;
                dx.data_mut()[at..at + LANES].copy_from_slice(line);
            }
        }
    }
}

/// Multiplies a line of gradients by the activation's slope.
#[inline(always)]
fn scale(line: &mut [f32; LANES], slope: Slope<'_>, panel: usize, row: usize) {
    match slope {
        Slope::One => {}
        Slope::Step(y, map) => {
            let row = map.map_or(row, |map| map[row] as usize);
            let y = &y.data()[(panel * y.capacity() + row) * LANES..][..LANES];
            for j in 0..LANES {
                line[j] = if y[j] > 0.0 { line[j] } else { 0.0 };
            }
        }
        Slope::Stored(s) => {
            let s = &s.data()[(panel * s.capacity() + row) * LANES..][..LANES];
            for j in 0..LANES {
                line[j] *= s[j];
            }
        }
    }
}

/// Input panel `p` of a layer with one output: dx = dy · w.
#[inline(always)]
fn backward_column(dy: &Panels, rows: usize, w: &[f32], p: usize, slope: Slope<'_>, dx: &mut Panels) {
    let mut weights = [0.0; LANES];
    let used = (dx.cols() - p * LANES).min(LANES);
    weights[..used].copy_from_slice(&w[p * LANES..][..used]);
    for row in 0..rows {
        let d = dy.data()[row * LANES];
        let mut line = weights.map(|w| w * d);
        scale(&mut line, slope, p, row);
        let at = (p * dx.capacity() + row) * LANES;
        dx.data_mut()[at..at + LANES].copy_from_slice(&line);
    }
}

/// Copies columns 16p..16p+16 of Wᵀ into one run; the bias row is left out, and columns beyond the inputs are zero.
/// Done anew for every use: it is 1/32 of the product it serves, and there is no stale copy to look after.
#[inline(always)]
fn pack_transposed(layer: &[Panel], inputs: usize, p: usize, pack: &mut Buf) {
    let used = (inputs - p * LANES).min(LANES);
    for (panel, block) in layer.iter().zip(pack.chunks_exact_mut(LANES * LANES)) {
        let source = &panel.w[p * LANES * LANES..][..used * LANES];
        if used < LANES {
            block.fill(0.0);
        }
        transpose(source, block);
    }
}

/// `to[j][i] = from[i][j]` for blocks 16 wide.
#[inline(always)]
fn transpose(from: &[f32], to: &mut [f32]) {
    for (i, line) in from.chunks_exact(LANES).enumerate() {
        for (j, &x) in line.iter().enumerate() {
            to[j * LANES + i] = x;
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
            let decays = (0..LANES).map(|j| if block * LANES + j < inputs { update.decay } else { 0.0 });
            let mut decay = [0.0; LANES];
            decay.iter_mut().zip(decays).for_each(|(to, from)| *to = from);
            step_line(block, &grad, &decay, (w, m, v, target), update);
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
            for (i, grad) in tile[..height].iter().enumerate() {
                let decay = [if k + i < inputs { update.decay } else { 0.0 }; LANES];
                step_line(k + i, grad, &decay, (w, m, v, target), update);
            }
        }
    }
}

/// Applies Adam and Polyak averaging to line `i` of a panel.
#[inline(always)]
fn step_line(
    i: usize,
    grad: &[f32; LANES],
    decay: &[f32; LANES],
    (w, m, v, target): (&mut Buf, &mut Buf, &mut Buf, &mut Buf),
    update: Update,
) {
    let w = line(w, i);
    let mut total = *grad;
    for j in 0..LANES {
        total[j] += decay[j] * w[j];
    }
    update.adam.apply_line(w, line(m, i), line(v, i), &total);
    if let Some(tau) = update.tau {
        polyak(line(target, i), w, tau);
    }
}

#[inline(always)]
fn line(buf: &mut Buf, i: usize) -> &mut [f32; LANES] {
    (&mut buf[i * LANES..(i + 1) * LANES]).try_into().expect("sixteen floats were asked for")
}

/// target ← (1 − τ)·target + τ·w
#[inline(always)]
pub(super) fn polyak(target: &mut [f32; LANES], w: &[f32; LANES], tau: f32) {
    for j in 0..LANES {
        target[j] += tau * (w[j] - target[j]);
    }
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
            grad[strip * LANES..][..LANES].copy_from_slice(&gradient_column(sources, strip));
            continue;
        }
        let width = (inputs + 1 - strip * LANES).min(LANES);
        for (first, height) in tiles(width) {
            let tile = gradient_tile::<K>(sources, strip, first, height, index);
            for (i, line) in tile[..height].iter().enumerate() {
                grad[(strip * LANES + first + i) * LANES..][..LANES].copy_from_slice(line);
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
fn gradient_column(sources: &dyn Sources, strip: usize) -> [f32; LANES] {
    let mut sum = [0.0; LANES];
    for part in 0..sources.count() {
        let (x, dy, rows) = sources.part(part);
        let x = &x.data()[strip * x.capacity() * LANES..][..rows * LANES];
        for (x, dy) in x.chunks_exact(LANES).zip(dy.data().chunks_exact(LANES)) {
            for j in 0..LANES {
                sum[j] += x[j] * dy[0];
            }
        }
    }
    sum
}
