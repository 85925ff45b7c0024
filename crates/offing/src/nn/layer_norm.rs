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

/// Rows that go together: the sums of one row would wait for each other.
const TILE: usize = 4;

#[inline(always)]
fn normalise_wide<K: Kernel>(mut n: Normalise<'_>) {
    let rows = n.rows;
    let tiled = rows - rows % TILE;
    // No closures here and below: they may be compiled for no machine in particular.
    for row in (0..tiled).step_by(TILE) {
        normalise_rows::<K, TILE>(&mut n, row);
    }
    for row in tiled..rows {
        normalise_rows::<K, 1>(&mut n, row);
    }
    if !n.y.cols().is_multiple_of(LANES) {
        n.y.set_ones(rows);
    }
}

/// Rows `row..row + R`.
#[inline(always)]
fn normalise_rows<K: Kernel, const R: usize>(n: &mut Normalise<'_>, row: usize) {
    let Normalise { y, activation, keep, slope, .. } = n;
    let (cols, capacity) = (y.cols(), y.capacity());
    let panels = cols.div_ceil(LANES);
    let mut sums = [[0.0; LANES]; R];
    for p in 0..panels {
        for (r, sum) in sums.iter_mut().enumerate() {
            let z = without_padding(read(y.data(), (p * capacity + row + r) * LANES), p, cols);
            for j in 0..LANES {
                sum[j] += z[j];
            }
        }
    }
    let mut mean = [0.0; R];
    for r in 0..R {
        mean[r] = sum_lanes(sums[r]) / cols as f32;
    }
    let mut squares = [[0.0; LANES]; R];
    for p in 0..panels {
        for r in 0..R {
            let z = centred(read(y.data(), (p * capacity + row + r) * LANES), mean[r], p, cols);
            for j in 0..LANES {
                squares[r][j] += z[j] * z[j];
            }
        }
    }
    let mut scale = [0.0; R];
    for r in 0..R {
        scale[r] = 1.0 / (sum_lanes(squares[r]) / cols as f32 + EPSILON).sqrt();
    }
    if let Some(keep) = keep {
        keep.scale[row..row + R].copy_from_slice(&scale);
    }
    for p in 0..panels {
        for r in 0..R {
            let at = (p * capacity + row + r) * LANES;
            let mut z = centred(read(y.data(), at), mean[r], p, cols);
            for z in &mut z {
                *z *= scale[r];
            }
            if let Some(keep) = keep {
                write(keep.values.data_mut(), at, z);
            }
            let slope = slope.as_mut().map(|slope| (slope.data_mut(), at));
            write(y.data_mut(), at, activate::<K::Arithmetic>(z, Some(*activation), slope));
        }
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
fn denormalise_wide<K: Kernel>(mut d: Denormalise<'_>) {
    let rows = d.rows;
    let tiled = rows - rows % TILE;
    for row in (0..tiled).step_by(TILE) {
        denormalise_rows::<TILE>(&mut d, row);
    }
    for row in tiled..rows {
        denormalise_rows::<1>(&mut d, row);
    }
}

/// Rows `row..row + R`.
#[inline(always)]
fn denormalise_rows<const R: usize>(d: &mut Denormalise<'_>, row: usize) {
    let Denormalise { kept, map, dx, .. } = d;
    let (cols, capacity, kept_capacity) = (dx.cols(), dx.capacity(), kept.values.capacity());
    let panels = cols.div_ceil(LANES);
    let mut from = [0; R];
    for r in 0..R {
        from[r] = map.map_or(row + r, |map| map[row + r] as usize);
    }
    // Padding is zero in both.
    let (mut sum, mut product) = ([[0.0; LANES]; R], [[0.0; LANES]; R]);
    for p in 0..panels {
        for r in 0..R {
            let d = read(dx.data(), (p * capacity + row + r) * LANES);
            let x = read(kept.values.data(), (p * kept_capacity + from[r]) * LANES);
            for j in 0..LANES {
                sum[r][j] += d[j];
                product[r][j] += d[j] * x[j];
            }
        }
    }
    let (mut mean, mut slope) = ([0.0; R], [0.0; R]);
    for r in 0..R {
        mean[r] = sum_lanes(sum[r]) / cols as f32;
        slope[r] = sum_lanes(product[r]) / cols as f32;
    }
    for p in 0..panels {
        for r in 0..R {
            let at = (p * capacity + row + r) * LANES;
            let mut d = read(dx.data(), at);
            let x = read(kept.values.data(), (p * kept_capacity + from[r]) * LANES);
            for j in 0..LANES {
                d[j] = kept.scale[from[r]] * (d[j] - mean[r] - x[j] * slope[r]);
            }
            write(dx.data_mut(), at, without_padding(d, p, cols));
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
    // Chosen lane by lane: a fill of some lanes would take the line out of its registers.
    for (j, x) in line.iter_mut().enumerate() {
        *x = if panel * LANES + j < cols { *x } else { 0.0 };
    }
    line
}
