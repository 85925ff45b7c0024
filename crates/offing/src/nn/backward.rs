//! One dense layer, backward to its input.

use super::buffer::{Buf, LANES, Line, read, write};
use super::layer::{Ahead, Panel, Weights};
use super::matmul::{Kernel, dispatch, tiles};
use super::mlp_ensemble::Net;
use super::packed_matrix::PackedMatrix;

/// `dx = (dy·Wᵀ) ∘ slope` for the first `rows` rows and the panels `panels` of dx.
pub(super) struct Backward<'a> {
    pub dy: &'a PackedMatrix,
    pub rows: usize,
    pub layer: &'a [Panel],
    /// Which copy of the layer's weights.
    pub which: Weights,
    pub panels: std::ops::Range<usize>,
    pub slope: Slope<'a>,
    pub dx: &'a mut PackedMatrix,
    /// Room for two panels of Wᵀ.
    pub pack: &'a mut Buf,
    /// The layer's Wᵀ, where it is kept.
    pub transposed: Option<&'a Buf>,
}

/// The activation's derivative at the layer's input.
#[derive(Clone, Copy)]
pub(super) enum Slope<'a> {
    /// No activation.
    One,
    /// 1 where the activation's output is positive; row i of dx belongs to row `map[i]` of the output.
    Step(&'a PackedMatrix, Option<&'a [u32]>),
    /// As stored by the forward pass.
    Stored(&'a PackedMatrix),
    /// 1 − y², where y is the activation's output.
    Tanh(&'a PackedMatrix),
}

dispatch!(
    /// Runs a layer backward to its input.
    pub(super) backward, backward_wide, (b: Backward<'_>)
);

#[inline(always)]
fn backward_wide<K: Kernel>(mut b: Backward<'_>) {
    assert!(b.rows <= b.dx.capacity() && b.rows <= b.dy.capacity());
    let mut p = b.panels.start;
    while p < b.panels.end {
        if b.dy.cols() == 1 {
            backward_column(b.dy, b.rows, b.layer[0].weights(b.which), p, b.slope, b.dx);
            p += 1;
        } else if const { K::ROWS[1] > 0 } && p + 1 < b.panels.end {
            backward_panels::<K, 2>(&mut b, p);
            p += 2;
        } else {
            backward_panels::<K, 1>(&mut b, p);
            p += 1;
        }
    }
}

/// Panels `p..p + P` of dx.
#[inline(always)]
fn backward_panels<K: Kernel, const P: usize>(b: &mut Backward<'_>, p: usize) {
    let Backward { dy, rows, layer, which, slope, dx, pack, transposed, .. } = b;
    let (inputs, outputs, rows, which, slope) = (dx.cols(), dy.cols(), *rows, *which, *slope);
    let room = layer.len() * LANES * LANES;
    assert!(layer.len() == outputs.div_ceil(LANES));
    let source: &[f32] = match transposed {
        Some(all) => &all[p * room..(p + P) * room],
        None => {
            for q in 0..P {
                pack_transposed::<K>(layer, which, inputs, p + q, &mut pack[q * room..(q + 1) * room]);
            }
            &pack[..P * room]
        }
    };
    // As in the forward pass; the next block of Wᵀ lies in sixteen lines of every panel.
    let more = if (p + P) * LANES < inputs { layer.len() * LANES } else { 0 };
    let most = K::ROWS[P - 1];
    let mut ahead = Ahead::new(more, rows.div_ceil(most));
    let start: [*const f32; P] = std::array::from_fn(|q| source[q * room..].as_ptr());
    let mut sums = [K::ZEROS; P];
    for (row, height) in tiles(rows, most) {
        for line in ahead.take() {
            for q in 0..P {
                K::prefetch_later(match transposed {
                    Some(all) => all.as_ptr().wrapping_add((p + P + q) * room + line * LANES),
                    None => {
                        let weights = layer[line / LANES].weights(which).as_ptr();
                        weights.wrapping_add(((p + P + q) * LANES + line % LANES) * LANES)
                    }
                });
            }
        }
        for (q, i) in (0..P).flat_map(|q| (0..height).map(move |i| (q, i))) {
            let at = |capacity: usize| ((p + q) * capacity + row + i) * LANES;
            K::prefetch_to_write(dx.data().as_ptr().wrapping_add(at(dx.capacity())));
            if let Slope::Stored(slope) = slope {
                K::prefetch(slope.data().as_ptr().wrapping_add(at(slope.capacity())));
            }
        }
        // SAFETY: row + height ≤ rows ≤ dy's capacity; dy has `outputs` columns and each part of `source` as many rows.
        unsafe {
            let a = dy.data().as_ptr().add(row * LANES);
            K::accumulate::<P, LANES, 1>(height, a, start, outputs, dy.capacity() * LANES, true, &mut sums);
        }
        for (q, sums) in sums.iter().enumerate() {
            let first = ((p + q) * dx.capacity() + row) * LANES;
            for (i, &line) in sums.as_ref()[..height].iter().enumerate() {
                write(dx.data_mut(), first + i * LANES, scale(line, slope, p + q, row + i));
            }
        }
    }
}

dispatch!(
    /// Fills `out` with Wᵀ of a layer, panel after panel as [`Backward`] wants them.
    transpose_layer, transpose_layer_wide, (layer: &[Panel], which: Weights, inputs: usize, out: &mut Buf)
);

#[inline(always)]
fn transpose_layer_wide<K: Kernel>(layer: &[Panel], which: Weights, inputs: usize, out: &mut Buf) {
    for (p, panel) in out.chunks_exact_mut(layer.len() * LANES * LANES).enumerate() {
        pack_transposed::<K>(layer, which, inputs, p, panel);
    }
}

/// Wᵀ of every layer of a network whose weights stay as they are, so that passes of few rows need not transpose them each time.
#[derive(Clone, Debug)]
pub struct Transposed(Vec<Buf>);

impl Transposed {
    /// A copy of the network's weights.
    pub fn of(net: Net<'_>, which: Weights) -> Self {
        let of_layer = |l: usize| {
            let (inputs, layer) = (net.shape.inputs(l), net.layer(l));
            // A layer with one output is a column: there is nothing to transpose.
            let panels = if net.shape.outputs(l) == 1 { 0 } else { inputs.div_ceil(LANES) };
            let mut out = Buf::zeros(panels * layer.len() * LANES * LANES);
            if panels > 0 {
                transpose_layer(net.simd(), layer, which, inputs, &mut out);
            }
            out
        };
        Self((0..net.shape.layers()).map(of_layer).collect())
    }

    pub(super) fn layer(&self, l: usize) -> &Buf {
        &self.0[l]
    }
}

/// Multiplies a line of gradients by the activation's slope.
#[inline(always)]
pub(super) fn scale(mut line: Line, slope: Slope<'_>, panel: usize, row: usize) -> Line {
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
        Slope::Tanh(y) => {
            let y = read(y.data(), (panel * y.capacity() + row) * LANES);
            for j in 0..LANES {
                line[j] *= 1.0 - y[j] * y[j];
            }
        }
    }
    line
}

/// Input panel `p` of a layer with one output: dx = dy · w.
#[inline(always)]
fn backward_column(
    dy: &PackedMatrix,
    rows: usize,
    w: &[f32],
    p: usize,
    slope: Slope<'_>,
    dx: &mut PackedMatrix,
) {
    let mut weights = [0.0; LANES];
    let used = (dx.cols() - p * LANES).min(LANES);
    weights[..used].copy_from_slice(&w[p * LANES..][..used]);
    for row in 0..rows {
        let (d, mut line) = (dy.get(row, 0), weights);
        for w in &mut line {
            *w *= d;
        }
        let at = (p * dx.capacity() + row) * LANES;
        write(dx.data_mut(), at, scale(line, slope, p, row));
    }
}

/// Copies columns 16p..16p+16 of Wᵀ into one run; the bias row is left out, and columns beyond the inputs are zero.
/// Done anew for every use of weights that change: it costs little beside the product of many rows, and there is no stale copy to
/// look after.
#[inline(always)]
fn pack_transposed<K: Kernel>(layer: &[Panel], which: Weights, inputs: usize, p: usize, pack: &mut [f32]) {
    let used = (inputs - p * LANES).min(LANES);
    for (panel, block) in layer.iter().zip(pack.chunks_exact_mut(LANES * LANES)) {
        let source = &panel.weights(which)[p * LANES * LANES..];
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
