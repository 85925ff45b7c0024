//! Layer normalisation between a linear layer and its activation: y = activation((z − mean z) / √(var z + ε)).
//!
//! Without a gain and a bias of its own: the linear layers on both sides have them, so nothing is lost, and a network with
//! normalisation has the same weights, checkpoints and optimiser as one without.

use super::buffer::{LANES, Line, read, write};
use super::layer::{Activation, activate, sum_lanes};
use super::matmul::{Kernel, dispatch};
use super::packed_matrix::PackedMatrix;

/// Added to the variance, as PyTorch does.
pub(crate) const EPSILON: f32 = 1e-5;

/// What the way back needs of a normalised layer.
#[derive(Clone, Debug)]
pub(super) struct Normalised {
    /// (z − mean z) / √(var z + ε).
    values: PackedMatrix,
    /// 1 / √(var z + ε) of each row.
    scale: Vec<f32>,
}

impl Normalised {
    pub(super) fn new(rows: usize, cols: usize) -> Self {
        Self { values: PackedMatrix::new(rows, cols), scale: vec![0.0; rows] }
    }
}

/// Normalises the first `rows` rows of `y`, which hold z, and applies the activation.
pub(super) struct Normalise<'a> {
    pub y: &'a mut PackedMatrix,
    pub rows: usize,
    pub activation: Activation,
    /// Filled for the way back, when there is one.
    pub keep: Option<&'a mut Normalised>,
    pub slope: Option<&'a mut PackedMatrix>,
}

dispatch!(
    /// Normalises the rows of a layer's output.
    pub(super) normalise, normalise_wide, (n: Normalise<'_>)
);

#[inline(always)]
fn normalise_wide<K: Kernel>(n: Normalise<'_>) {
    let Normalise { y, rows, activation, mut keep, mut slope } = n;
    let (cols, capacity) = (y.cols(), y.capacity());
    let panels = cols.div_ceil(LANES);
    for row in 0..rows {
        let at = |p: usize| (p * capacity + row) * LANES;
        let mut sum = [0.0; LANES];
        for p in 0..panels {
            let z = without_padding(read(y.data(), at(p)), p, cols);
            for j in 0..LANES {
                sum[j] += z[j];
            }
        }
        let mean = sum_lanes(sum) / cols as f32;
        let mut squares = [0.0; LANES];
        for p in 0..panels {
            let z = centred(read(y.data(), at(p)), mean, p, cols);
            for j in 0..LANES {
                squares[j] += z[j] * z[j];
            }
        }
        let scale = 1.0 / (sum_lanes(squares) / cols as f32 + EPSILON).sqrt();
        if let Some(keep) = &mut keep {
            keep.scale[row] = scale;
        }
        for p in 0..panels {
            let mut z = centred(read(y.data(), at(p)), mean, p, cols);
            for z in &mut z {
                *z *= scale;
            }
            if let Some(keep) = &mut keep {
                write(keep.values.data_mut(), at(p), z);
            }
            let slope = slope.as_mut().map(|slope| (slope.data_mut(), at(p)));
            write(y.data_mut(), at(p), activate::<K::Arithmetic>(z, Some(activation), slope));
        }
    }
    if !cols.is_multiple_of(LANES) {
        y.set_ones(rows);
    }
}

/// Turns the first `rows` rows of `dx`, gradients at normalised values, into gradients at z:
/// dz = scale · (dx − mean dx − x · mean (dx ∘ x)). Row i of `dx` belongs to row `map[i]` of the forward pass.
pub(super) struct Denormalise<'a> {
    pub kept: &'a Normalised,
    pub rows: usize,
    pub map: Option<&'a [u32]>,
    pub dx: &'a mut PackedMatrix,
}

dispatch!(
    /// Takes gradients back through the normalisation.
    pub(super) denormalise, denormalise_wide, (d: Denormalise<'_>)
);

#[inline(always)]
fn denormalise_wide<K: Kernel>(d: Denormalise<'_>) {
    let Denormalise { kept, rows, map, dx } = d;
    let (cols, capacity) = (dx.cols(), dx.capacity());
    let panels = cols.div_ceil(LANES);
    for row in 0..rows {
        let from = map.map_or(row, |map| map[row] as usize);
        let at = |p: usize| (p * capacity + row) * LANES;
        let x = |p: usize| read(kept.values.data(), (p * kept.values.capacity() + from) * LANES);
        // Padding is zero in both.
        let (mut sum, mut product) = ([0.0; LANES], [0.0; LANES]);
        for p in 0..panels {
            let (d, x) = (read(dx.data(), at(p)), x(p));
            for j in 0..LANES {
                sum[j] += d[j];
                product[j] += d[j] * x[j];
            }
        }
        let (mean, slope) = (sum_lanes(sum) / cols as f32, sum_lanes(product) / cols as f32);
        for p in 0..panels {
            let (mut d, x) = (read(dx.data(), at(p)), x(p));
            for j in 0..LANES {
                d[j] = kept.scale[from] * (d[j] - mean - x[j] * slope);
            }
            write(dx.data_mut(), at(p), without_padding(d, p, cols));
        }
    }
}

/// z − mean, and zero in the padding.
#[inline(always)]
fn centred(mut z: Line, mean: f32, panel: usize, cols: usize) -> Line {
    for z in &mut z {
        *z -= mean;
    }
    without_padding(z, panel, cols)
}

/// Zeros beyond the last column.
#[inline(always)]
fn without_padding(mut line: Line, panel: usize, cols: usize) -> Line {
    if cols < (panel + 1) * LANES {
        line[cols - panel * LANES..].fill(0.0);
    }
    line
}
