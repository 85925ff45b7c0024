//! Ridge-linear fits of changes on points over a handful of neighbours, and the errors they predict.

use ndarray::{Array1, ArrayView1};

use crate::batch::Mat;
use crate::nn::{Kernel, Simd, ThreadPool, dispatch};

/// Ridge, as a share of the mean of XᵀX's diagonal.
const RIDGE: f64 = 0.1;

/// Fits made together: number i of a lane belongs to fit i, so that a fit's own sums, roots and quotients stay scalar code in
/// the source and become vector instructions. Rust neither fuses nor reorders them: all vector widths give the same bits.
pub(super) const FITS: usize = 8;
type Lane = [f64; FITS];

/// Columns of X and of Y that are multiplied with each other at a time: 16 sums stay in registers.
const TILE: usize = 4;
/// Rows multiplied before the next tile: all columns of so many fit the first-level cache.
const ROWS: usize = 10;

/// Working memory and results of fits of `m` changes on `d` coordinates.
#[derive(Debug)]
pub(super) struct LocalFits {
    d: usize,
    m: usize,
    simd: Simd,
    /// Rows in each fit.
    rows: usize,
    /// x̄ and Δ̄.
    center: Vec<Lane>,
    mean: Vec<Lane>,
    /// The upper triangle U of A = UᵀU, row-major.
    factor: Vec<Lane>,
    /// XᵀY and the slopes: row i has coordinate i of all changes.
    right: Vec<Lane>,
    slopes: Vec<Lane>,
    /// Mean squared residuals.
    noise: Vec<Lane>,
    /// Rows to fit, or to predict.
    x: Vec<Lane>,
    y: Vec<Lane>,
}

impl LocalFits {
    pub(super) fn new(d: usize, m: usize) -> Self {
        let (wide, high) = (d.next_multiple_of(TILE), m.next_multiple_of(TILE));
        let zeros = |lanes: usize| vec![[0.0; FITS]; lanes];
        Self {
            d,
            m,
            simd: Simd::detect(),
            rows: 0,
            center: zeros(wide),
            mean: zeros(high),
            factor: zeros(wide * wide),
            right: zeros(wide * high),
            slopes: zeros(wide * high),
            noise: zeros(high),
            x: Vec::new(),
            y: Vec::new(),
        }
    }

    /// Fits the given rows, one list for each fit and of one length. Fits without a list repeat the last.
    pub(super) fn compute(&mut self, points: &Mat, delta: &Mat, lists: &[Vec<usize>]) {
        let last = lists.len() - 1;
        self.rows = lists[last].len();
        assert!(lists.len() <= FITS && lists.iter().all(|list| list.len() == self.rows));
        self.x.resize(self.rows * self.center.len(), [0.0; FITS]);
        self.y.resize(self.rows * self.mean.len(), [0.0; FITS]);
        for fit in 0..FITS {
            for (i, &row) in lists[fit.min(last)].iter().enumerate() {
                put(&mut self.x[i * self.center.len()..], fit, points.row(row));
                put(&mut self.y[i * self.mean.len()..], fit, delta.row(row));
            }
        }
        solve(self.simd, self);
    }

    /// Adds B·Bᵀ of a fit to the d×d matrix.
    pub(super) fn add_slopes(&self, fit: usize, gram: &mut [f64]) {
        let high = self.mean.len();
        for j in 0..self.m {
            let b = self.slopes.iter().skip(j).step_by(high).take(self.d).map(|lane| lane[fit]);
            for (row, bi) in gram.chunks_exact_mut(self.d).zip(b.clone()) {
                row.iter_mut().zip(b.clone()).for_each(|(g, bj)| *g += bi * bj);
            }
        }
    }

    /// e of each fit: the distance of its change from the prediction at its x, with the fit's own doubt. `row` gives x and
    /// the change of a fit, and is asked for the first `count`; the other numbers mean nothing.
    pub(super) fn errors<'r>(
        &mut self,
        count: usize,
        row: impl Fn(usize) -> (ArrayView1<'r, f32>, ArrayView1<'r, f32>),
    ) -> Lane {
        // The working memory of the fit is free now.
        self.x.resize(self.center.len().max(self.x.len()), [0.0; FITS]);
        self.y.resize(self.mean.len().max(self.y.len()), [0.0; FITS]);
        for fit in 0..count {
            let (x, change) = row(fit);
            put(&mut self.x, fit, x);
            put(&mut self.y, fit, change);
        }
        let mut errors = [0.0; FITS];
        predict(self.simd, self, &mut errors);
        errors
    }

    /// Calls `each` with every number of a fit that an error depends on: x̄, Δ̄, σ², B, and the triangle of the factor.
    fn each_number(&mut self, fit: usize, mut each: impl FnMut(&mut f64)) {
        let (d, m, wide, high) = (self.d, self.m, self.center.len(), self.mean.len());
        let mut all = |lanes: &mut [Lane]| lanes.iter_mut().for_each(|lane| each(&mut lane[fit]));
        all(&mut self.center[..d]);
        all(&mut self.mean[..m]);
        all(&mut self.noise[..m]);
        self.slopes.chunks_exact_mut(high).take(d).for_each(|row| all(&mut row[..m]));
        self.factor.chunks_exact_mut(wide).enumerate().take(d).for_each(|(i, row)| all(&mut row[i..d]));
    }

    /// A fit as one run of f32.
    pub(super) fn pack(&mut self, fit: usize, out: &mut [f32]) {
        let mut out = out.iter_mut();
        self.each_number(fit, |number| out.next().into_iter().for_each(|to| *to = *number as f32));
    }

    pub(super) fn unpack(&mut self, fit: usize, from: &[f32]) {
        let mut from = from.iter();
        self.each_number(fit, |number| from.next().into_iter().for_each(|&v| *number = f64::from(v)));
    }
}

/// Writes a row's numbers into one fit's places.
fn put(lanes: &mut [Lane], fit: usize, row: ArrayView1<f32>) {
    lanes.iter_mut().zip(row).for_each(|(lane, &v)| lane[fit] = f64::from(v));
}

dispatch!(
    /// Fits the rows gathered in `x` and `y`.
    solve,
    solve_wide,
    (fits: &mut LocalFits)
);

#[inline(always)]
fn solve_wide<K: Kernel>(fits: &mut LocalFits) {
    let LocalFits { d, rows, center, mean, factor, right, slopes, noise, x, y, .. } = fits;
    let (d, n, wide, high) = (*d, *rows as f64, center.len(), mean.len());
    centre(x, center, n);
    centre(y, mean, n);
    // Normal equations: A into `factor`, XᵀY into `right`, YᵀY into `noise`.
    factor.fill([0.0; FITS]);
    right.fill([0.0; FITS]);
    noise.fill([0.0; FITS]);
    for (x, y) in x.chunks(ROWS * wide).zip(y.chunks(ROWS * high)) {
        for i in (0..wide).step_by(TILE) {
            for j in (i..wide).step_by(TILE) {
                add_products((x, wide, i), (x, wide, j), &mut factor[i * wide + j..], wide);
            }
            for j in (0..high).step_by(TILE) {
                add_products((x, wide, i), (y, high, j), &mut right[i * high + j..], high);
            }
        }
        for y in y.chunks_exact(high) {
            for (noise, y) in noise.iter_mut().zip(y) {
                add_product(noise, y, y);
            }
        }
    }
    let mut ridge = [0.0; FITS];
    for k in 0..d {
        add(&mut ridge, &factor[k * wide + k]);
    }
    // Copies of one row have no spread at all: any positive ridge gives slopes of 0.
    for ridge in &mut ridge {
        *ridge = if *ridge > 0.0 { RIDGE * *ridge / d as f64 } else { 1.0 };
    }
    for k in 0..d {
        add(&mut factor[k * wide + k], &ridge);
    }
    slopes.copy_from_slice(right);
    // A = UᵀU, and UᵀZ = XᵀY on the way.
    for k in 0..d {
        let (above, below) = factor.split_at_mut((k + 1) * wide);
        let row = &mut above[k * wide..];
        let mut scale = [0.0; FITS];
        for c in 0..FITS {
            scale[c] = 1.0 / row[k][c].sqrt();
        }
        multiply(&mut row[k..d], &scale);
        let (done, left) = slopes.split_at_mut((k + 1) * high);
        let z = &mut done[k * high..];
        multiply(z, &scale);
        for (i, (to, left)) in (k + 1..d).zip(below.chunks_exact_mut(wide).zip(left.chunks_exact_mut(high))) {
            subtract(&mut to[i..d], &row[i], &row[i..d]);
            subtract(left, &row[i], z);
        }
    }
    // U·B = Z.
    for k in (0..d).rev() {
        let (z, below) = slopes.split_at_mut((k + 1) * high);
        let z = &mut z[k * high..];
        let row = &factor[k * wide..][..wide];
        for (i, b) in (k + 1..d).zip(below.chunks_exact(high)) {
            subtract(z, &row[i], b);
        }
        let mut scale = [0.0; FITS];
        for c in 0..FITS {
            scale[c] = 1.0 / row[k][c];
        }
        multiply(z, &scale);
    }
    // ‖y − Xb‖² = yᵀy − bᵀXᵀy − ridge·bᵀb, because (XᵀX + ridge)b = Xᵀy.
    for (b, right) in slopes.chunks_exact(high).zip(right.chunks_exact(high)).take(d) {
        for ((noise, b), right) in noise.iter_mut().zip(b).zip(right) {
            for c in 0..FITS {
                noise[c] -= b[c] * right[c] + ridge[c] * b[c] * b[c];
            }
        }
    }
    for value in noise.as_flattened_mut() {
        *value = (*value / n).max(0.0);
    }
}

dispatch!(
    /// The error of the first row in `x` and `y`, for each fit.
    predict,
    predict_wide,
    (fits: &mut LocalFits, errors: &mut Lane)
);

#[inline(always)]
fn predict_wide<K: Kernel>(fits: &mut LocalFits, errors: &mut Lane) {
    let LocalFits { d, m, center, mean, factor, slopes, noise, x, y, .. } = fits;
    let (d, m, wide, high) = (*d, *m, center.len(), mean.len());
    let (away, off) = (&mut x[..wide], &mut y[..high]);
    subtract(away, &[1.0; FITS], center);
    subtract(off, &[1.0; FITS], mean);
    for (away, b) in away.iter().zip(slopes.chunks_exact(high)).take(d) {
        subtract(off, away, b);
    }
    let mut leverage = [0.0; FITS];
    for (k, row) in factor.chunks_exact(wide).enumerate().take(d) {
        let mut w = [0.0; FITS];
        for c in 0..FITS {
            w[c] = away[k][c] / row[k][c];
        }
        add_product(&mut leverage, &w, &w);
        subtract(&mut away[k..d], &w, &row[k..d]);
    }
    let mut sums = [0.0; FITS];
    for (off, noise) in off.iter().zip(noise).take(m) {
        for c in 0..FITS {
            sums[c] += off[c] * off[c] + noise[c] * (1.0 + leverage[c]);
        }
    }
    for c in 0..FITS {
        errors[c] = sums[c].sqrt();
    }
}

/// Adds columns i to i + 3 of the first matrix times columns j to j + 3 of the second, summed over rows in their order; each
/// matrix comes with its lanes a row. `out` begins at the first product and has `stride` lanes a row.
#[inline(always)]
fn add_products(
    (x, wide, i): (&[Lane], usize, usize),
    (y, high, j): (&[Lane], usize, usize),
    out: &mut [Lane],
    stride: usize,
) {
    let mut sums: [Lane; TILE * TILE] = std::array::from_fn(|t| out[t / TILE * stride + t % TILE]);
    for (x, y) in x.chunks_exact(wide).zip(y.chunks_exact(high)) {
        // By value: lanes behind references would stay in memory.
        let x: [Lane; TILE] = *x[i..].first_chunk().expect("columns are padded to whole tiles");
        let y: [Lane; TILE] = *y[j..].first_chunk().expect("columns are padded to whole tiles");
        for t in 0..TILE * TILE {
            for c in 0..FITS {
                sums[t][c] += x[t / TILE][c] * y[t % TILE][c];
            }
        }
    }
    for (t, sum) in sums.iter().enumerate() {
        out[t / TILE * stride + t % TILE] = *sum;
    }
}

/// to += a·b
#[inline(always)]
fn add_product(to: &mut Lane, a: &Lane, b: &Lane) {
    for c in 0..FITS {
        to[c] += a[c] * b[c];
    }
}

/// to += a
#[inline(always)]
fn add(to: &mut Lane, a: &Lane) {
    for c in 0..FITS {
        to[c] += a[c];
    }
}

/// to −= factor·from
#[inline(always)]
fn subtract(to: &mut [Lane], factor: &Lane, from: &[Lane]) {
    for (to, from) in to.iter_mut().zip(from) {
        for c in 0..FITS {
            to[c] -= factor[c] * from[c];
        }
    }
}

#[inline(always)]
fn multiply(lanes: &mut [Lane], factor: &Lane) {
    for lane in lanes {
        for c in 0..FITS {
            lane[c] *= factor[c];
        }
    }
}

/// Subtracts the mean of each column; leaves it in `mean`.
#[inline(always)]
fn centre(rows: &mut [Lane], mean: &mut [Lane], n: f64) {
    mean.fill([0.0; FITS]);
    let wide = mean.len();
    for row in rows.chunks_exact(wide) {
        for (mean, x) in mean.iter_mut().zip(row) {
            add(mean, x);
        }
    }
    for mean in mean.as_flattened_mut() {
        *mean /= n;
    }
    for row in rows.chunks_exact_mut(wide) {
        subtract(row, &[1.0; FITS], mean);
    }
}

/// A number for each row, over threads: `each` gets the first row and the count of up to [`FITS`] rows.
pub(super) fn map_fits(
    pool: &ThreadPool,
    rows: usize,
    (d, m): (usize, usize),
    each: impl Fn(&mut LocalFits, usize, usize) -> Lane + Sync,
) -> Array1<f32> {
    /// Rows a thread takes at once.
    const CHUNK: usize = 8 * FITS;
    let mut out = vec![0.0f32; rows];
    let mut chunks: Vec<_> = out.chunks_mut(CHUNK).collect();
    pool.for_each_mut(&mut chunks, |chunk, out| {
        let mut fits = LocalFits::new(d, m);
        for (i, out) in out.chunks_mut(FITS).enumerate() {
            let errors = each(&mut fits, chunk * CHUNK + i * FITS, out.len());
            out.iter_mut().zip(errors).for_each(|(out, e)| *out = e as f32);
        }
    });
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const ROWS: usize = 30;

    fn noise(cols: usize, rng: &mut Rng) -> Mat {
        Mat::from_shape_fn((ROWS + 1, cols), |_| rng.normal() as f32)
    }

    /// e of the last row by the definition, with Gauss–Jordan elimination for (XᵀX + ridge)⁻¹.
    fn error_by_definition(points: &Mat, delta: &Mat) -> f64 {
        let (d, m, n) = (points.ncols(), delta.ncols(), ROWS as f64);
        let wide = |from: &Mat| from.mapv(f64::from);
        let (points, delta) = (wide(points), wide(delta));
        let mean = |of: &ndarray::Array2<f64>, j: usize| (0..ROWS).map(|i| of[[i, j]]).sum::<f64>() / n;
        let x = |i: usize, j: usize| points[[i, j]] - mean(&points, j);
        let y = |i: usize, j: usize| delta[[i, j]] - mean(&delta, j);
        let sum = |f: &dyn Fn(usize) -> f64| (0..ROWS).map(f).sum::<f64>();
        let mut a = ndarray::Array2::from_shape_fn((d, 2 * d), |(i, j)| match j < d {
            true => sum(&|row| x(row, i) * x(row, j)),
            false => f64::from(u8::from(j == i + d)),
        });
        let ridge = RIDGE * (0..d).map(|i| a[[i, i]]).sum::<f64>() / d as f64;
        (0..d).for_each(|i| a[[i, i]] += ridge);
        for k in 0..d {
            let pivot = a[[k, k]];
            a.row_mut(k).mapv_inplace(|v| v / pivot);
            let row = a.row(k).to_owned();
            for i in (0..d).filter(|&i| i != k) {
                let factor = a[[i, k]];
                a.row_mut(i).scaled_add(-factor, &row);
            }
        }
        let inverse = |i: usize, j: usize| a[[i, d + j]];
        let slope = |i: usize, j: usize| -> f64 {
            (0..d).map(|k| inverse(i, k) * sum(&|row| x(row, k) * y(row, j))).sum()
        };
        let slopes = ndarray::Array2::from_shape_fn((d, m), |(i, j)| slope(i, j));
        let residual =
            |row: usize, j: usize| y(row, j) - (0..d).map(|i| x(row, i) * slopes[[i, j]]).sum::<f64>();
        let leverage: f64 = (0..d)
            .flat_map(|i| (0..d).map(move |j| (i, j)))
            .map(|(i, j)| x(ROWS, i) * inverse(i, j) * x(ROWS, j))
            .sum();
        let square = |j: usize| {
            residual(ROWS, j).powi(2) + sum(&|row| residual(row, j).powi(2)) / n * (1.0 + leverage)
        };
        (0..m).map(square).sum::<f64>().sqrt()
    }

    #[test]
    fn the_error_is_that_of_the_definition_and_its_bits_those_of_any_vector_width() {
        // Less than a lane, whole lanes, and more.
        for (d, m) in [(1, 1), (5, 3), (8, 8), (11, 17)] {
            let rng = &mut Rng::stream(3, "fit", d as u64);
            let (points, delta) = (noise(d, rng), noise(m, rng));
            let errors: Vec<f64> = Simd::all()
                .into_iter()
                .map(|simd| {
                    let mut fits = LocalFits { simd, ..LocalFits::new(d, m) };
                    // The other lists hold the same rows backwards.
                    let backwards = || (0..ROWS).rev().collect();
                    let lists = [backwards(), (0..ROWS).collect::<Vec<_>>(), backwards()];
                    fits.compute(&points, &delta, &lists);
                    let errors = fits.errors(3, |_| (points.row(ROWS), delta.row(ROWS)));
                    assert!((errors[0] / errors[1] - 1.0).abs() < 1e-9 && errors[0] == errors[2]);
                    errors[1]
                })
                .collect();
            assert!(errors.iter().all(|e| e.to_bits() == errors[0].to_bits()), "{errors:?}");
            let wanted = error_by_definition(&points, &delta);
            assert!((errors[0] / wanted - 1.0).abs() < 1e-10, "{d}, {m}: {} against {wanted}", errors[0]);
        }
    }
}
