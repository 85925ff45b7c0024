//! One dense layer, backward to its input.

use super::buffer::{Buf, LANES, Line, read, write};
use super::layer::{Ahead, Panel, Weights};
use super::matmul::{Kernel, TILE, Tile, accumulate, dispatch, tiles};
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
    /// Room for one panel of Wᵀ.
    pub pack: &'a mut Buf,
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
    backward, backward_wide, backward_avx2, (b: Backward<'_>)
);

#[inline(always)]
fn backward_wide<K: Kernel>(b: Backward<'_>) {
    let Backward { dy, rows, layer, which, panels, slope, dx, pack } = b;
    let (inputs, outputs) = (dx.cols(), dy.cols());
    assert!(rows <= dx.capacity() && rows <= dy.capacity());
    for p in panels {
        if outputs == 1 {
            backward_column(dy, rows, layer[0].weights(which), p, slope, dx);
            continue;
        }
        pack_transposed::<K>(layer, which, inputs, p, pack);
        assert!(pack.len() >= layer.len() * LANES * LANES && layer.len() == outputs.div_ceil(LANES));
        // As in the forward pass; the next block of Wᵀ lies in sixteen lines of every panel.
        let more = if (p + 1) * LANES < inputs { layer.len() * LANES } else { 0 };
        let mut ahead = Ahead::new(more, rows);
        for (row, height) in tiles(rows) {
            ahead.take().for_each(|line| {
                let at = ((p + 1) * LANES + line % LANES) * LANES;
                K::prefetch_later(layer[line / LANES].weights(which).as_ptr().wrapping_add(at));
            });
            let first = (p * dx.capacity() + row) * LANES;
            for i in 0..height {
                K::prefetch(dx.data().as_ptr().wrapping_add(first + i * LANES));
                if let Slope::Stored(slope) = slope {
                    let at = (p * slope.capacity() + row + i) * LANES;
                    K::prefetch(slope.data().as_ptr().wrapping_add(at));
                }
            }
            let mut tile: Tile = [[0.0; LANES]; TILE];
            // SAFETY: row + height ≤ rows ≤ dy's capacity; dy has `outputs` columns and `pack` as many rows.
            unsafe {
                let a = dy.data().as_ptr().add(row * LANES);
                let jump = dy.capacity() * LANES;
                accumulate::<K, LANES, 1>(height, a, pack.as_ptr(), outputs, jump, &mut tile);
            }
            for (i, &line) in tile[..height].iter().enumerate() {
                write(dx.data_mut(), first + i * LANES, scale(line, slope, p, row + i));
            }
        }
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
/// Done anew for every use: it costs little beside the product it serves, and there is no stale copy to look after.
#[inline(always)]
fn pack_transposed<K: Kernel>(layer: &[Panel], which: Weights, inputs: usize, p: usize, pack: &mut Buf) {
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
