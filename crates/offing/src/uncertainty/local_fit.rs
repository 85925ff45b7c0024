//! A ridge-linear fit of changes on points over a handful of neighbours, and the error it predicts.

use ndarray::{Array1, ArrayView1};
use offing_knn::{NeighborIndex, Neighbors, Tree};

use super::map_rows;
use crate::batch::Mat;
use crate::error::Result;
use crate::nn::{Kernel, Simd, ThreadPool, dispatch};

/// Ridge, as a share of the mean of XᵀX's diagonal.
const RIDGE: f64 = 0.1;
/// Rows a thread takes at once.
const CHUNK: usize = 64;

/// Numbers are kept in lanes of eight, the last one filled up with zeros, so that every inner loop has a fixed length and
/// becomes vector instructions. Rust neither fuses nor reorders sums, so all vector widths give the same bits.
const WIDTH: usize = 8;
type Lane = [f64; WIDTH];

/// Working memory and result of one fit of `m` changes on `d` coordinates.
#[derive(Debug)]
pub(super) struct LocalFit {
    d: usize,
    m: usize,
    simd: Simd,
    /// Rows fitted.
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
    x: Vec<Lane>,
    y: Vec<Lane>,
}

impl LocalFit {
    pub(super) fn new(d: usize, m: usize) -> Self {
        let (wide, high) = (d.div_ceil(WIDTH), m.div_ceil(WIDTH));
        let zeros = |lanes: usize| vec![[0.0; WIDTH]; lanes];
        Self {
            d,
            m,
            simd: Simd::detect(),
            rows: 0,
            center: zeros(wide),
            mean: zeros(high),
            factor: zeros(wide * WIDTH * wide),
            right: zeros(wide * WIDTH * high),
            slopes: zeros(wide * WIDTH * high),
            noise: zeros(high),
            x: Vec::new(),
            y: Vec::new(),
        }
    }

    /// Fits the given rows.
    pub(super) fn compute(&mut self, points: &Mat, delta: &Mat, rows: impl Iterator<Item = usize>) {
        self.x.clear();
        self.y.clear();
        self.rows = 0;
        for row in rows {
            push(&mut self.x, points.row(row), self.center.len());
            push(&mut self.y, delta.row(row), self.mean.len());
            self.rows += 1;
        }
        solve(self.simd, self);
    }

    /// Adds B·Bᵀ to the d×d matrix.
    pub(super) fn add_slopes(&self, gram: &mut [f64]) {
        let wide = self.mean.len() * WIDTH;
        for j in 0..self.m {
            let b = self.slopes.as_flattened().iter().skip(j).step_by(wide).take(self.d);
            for (row, &bi) in gram.chunks_exact_mut(self.d).zip(b.clone()) {
                row.iter_mut().zip(b.clone()).for_each(|(g, bj)| *g += bi * bj);
            }
        }
    }

    /// e: the distance of `change` from the prediction at `x`, with the fit's own doubt.
    pub(super) fn error(&mut self, x: ArrayView1<f32>, change: ArrayView1<f32>) -> f64 {
        let (wide, high) = (self.center.len(), self.mean.len());
        // The working memory of the fit is free now.
        self.x.clear();
        self.y.clear();
        push(&mut self.x, x, wide);
        push(&mut self.y, change, high);
        let (away, off) = (&mut self.x[..], &mut self.y[..]);
        subtract(away, 1.0, &self.center);
        subtract(off, 1.0, &self.mean);
        for (&a, b) in away.as_flattened().iter().zip(self.slopes.chunks_exact(high)).take(self.d) {
            subtract(off, a, b);
        }
        let mut leverage = 0.0;
        for (k, row) in self.factor.chunks_exact(wide).enumerate().take(self.d) {
            let w = away[k / WIDTH][k % WIDTH] / row[k / WIDTH][k % WIDTH];
            leverage += w * w;
            subtract(&mut away[k / WIDTH..], w, &row[k / WIDTH..]);
        }
        let term = |(off, noise): (&f64, &f64)| off * off + noise * (1.0 + leverage);
        let terms = off.as_flattened().iter().zip(self.noise.as_flattened());
        terms.take(self.m).map(term).sum::<f64>().sqrt()
    }

    /// Calls `each` with every number of the fit that an error depends on: x̄, Δ̄, σ², B, and the triangle of the factor.
    fn each_number(&mut self, mut each: impl FnMut(&mut f64)) {
        let (d, m) = (self.d, self.m);
        self.center.as_flattened_mut()[..d].iter_mut().for_each(&mut each);
        self.mean.as_flattened_mut()[..m].iter_mut().for_each(&mut each);
        self.noise.as_flattened_mut()[..m].iter_mut().for_each(&mut each);
        let (wide, high) = (self.center.len() * WIDTH, self.mean.len() * WIDTH);
        for row in self.slopes.as_flattened_mut().chunks_exact_mut(high).take(d) {
            row[..m].iter_mut().for_each(&mut each);
        }
        for (i, row) in self.factor.as_flattened_mut().chunks_exact_mut(wide).enumerate().take(d) {
            row[i..d].iter_mut().for_each(&mut each);
        }
    }

    /// The fit as one run of f32.
    fn pack(&mut self, out: &mut [f32]) {
        let mut out = out.iter_mut();
        self.each_number(|number| out.next().into_iter().for_each(|to| *to = *number as f32));
    }

    fn unpack(&mut self, from: &[f32]) {
        let mut from = from.iter();
        self.each_number(|number| from.next().into_iter().for_each(|&v| *number = f64::from(v)));
    }
}

/// Appends a row in so many lanes.
#[inline(always)]
fn push(to: &mut Vec<Lane>, row: ArrayView1<f32>, lanes: usize) {
    let start = to.len();
    to.resize(start + lanes, [0.0; WIDTH]);
    to[start..].as_flattened_mut().iter_mut().zip(row).for_each(|(to, &v)| *to = f64::from(v));
}

dispatch!(
    /// Fits the rows gathered in `x` and `y`.
    solve,
    solve_wide,
    (fit: &mut LocalFit)
);

#[inline(always)]
fn solve_wide<K: Kernel>(fit: &mut LocalFit) {
    let (d, n, wide, high) = (fit.d, fit.rows as f64, fit.center.len(), fit.mean.len());
    center(&mut fit.x, &mut fit.center, n);
    center(&mut fit.y, &mut fit.mean, n);
    // Normal equations: A into `factor`, XᵀY into `right`, YᵀY into `noise`.
    for i in (0..wide * WIDTH).step_by(TILE) {
        for j in i / WIDTH..wide {
            let tile = products((&fit.x, wide, i), (&fit.x, wide, j));
            (0..TILE).for_each(|r| fit.factor[(i + r) * wide + j] = tile[r]);
        }
        for j in 0..high {
            let tile = products((&fit.x, wide, i), (&fit.y, high, j));
            (0..TILE).for_each(|r| fit.right[(i + r) * high + j] = tile[r]);
        }
    }
    fit.noise.fill([0.0; WIDTH]);
    for y in fit.y.chunks_exact(high) {
        for (noise, y) in fit.noise.iter_mut().zip(y) {
            (0..WIDTH).for_each(|c| noise[c] += y[c] * y[c]);
        }
    }
    let diagonal = |i: usize| (i * wide + i / WIDTH, i % WIDTH);
    let trace: f64 = (0..d).map(diagonal).map(|(lane, c)| fit.factor[lane][c]).sum();
    // Copies of one row have no spread at all: any positive ridge gives slopes of 0.
    let ridge = if trace > 0.0 { RIDGE * trace / d as f64 } else { 1.0 };
    (0..d).map(diagonal).for_each(|(lane, c)| fit.factor[lane][c] += ridge);
    fit.slopes.copy_from_slice(&fit.right);
    // A = UᵀU, and UᵀZ = XᵀY on the way.
    for k in 0..d {
        let (above, below) = fit.factor.split_at_mut((k + 1) * wide);
        let row = &mut above[k * wide..];
        let pivot = row[k / WIDTH][k % WIDTH];
        debug_assert!(pivot > 0.0, "a ridge of a tenth of the mean diagonal is positive definite");
        scale(&mut row[k / WIDTH..], 1.0 / pivot.sqrt());
        let (done, left) = fit.slopes.split_at_mut((k + 1) * high);
        let z = &mut done[k * high..];
        scale(z, 1.0 / pivot.sqrt());
        for (i, (to, left)) in (k + 1..d).zip(below.chunks_exact_mut(wide).zip(left.chunks_exact_mut(high))) {
            let u = row[i / WIDTH][i % WIDTH];
            subtract(&mut to[i / WIDTH..], u, &row[i / WIDTH..]);
            subtract(left, u, z);
        }
    }
    // U·B = Z.
    for k in (0..d).rev() {
        let (z, below) = fit.slopes.split_at_mut((k + 1) * high);
        let z = &mut z[k * high..];
        let row = &fit.factor[k * wide..][..wide];
        for (i, b) in (k + 1..d).zip(below.chunks_exact(high)) {
            subtract(z, row[i / WIDTH][i % WIDTH], b);
        }
        scale(z, 1.0 / row[k / WIDTH][k % WIDTH]);
    }
    // ‖y − Xb‖² = yᵀy − bᵀXᵀy − ridge·bᵀb, because (XᵀX + ridge)b = Xᵀy.
    for (b, right) in fit.slopes.chunks_exact(high).zip(fit.right.chunks_exact(high)).take(d) {
        for ((noise, b), right) in fit.noise.iter_mut().zip(b).zip(right) {
            (0..WIDTH).for_each(|c| noise[c] -= b[c] * right[c] + ridge * b[c] * b[c]);
        }
    }
    fit.noise.as_flattened_mut().iter_mut().for_each(|v| *v = (*v / n).max(0.0));
}

/// Columns of X that are multiplied with a lane at a time.
const TILE: usize = 4;

/// Columns i to i + 3 of the first matrix times lane j of the second, summed over rows in their order; each matrix comes with
/// its lanes a row.
#[inline(always)]
fn products((x, wide, i): (&[Lane], usize, usize), (y, high, j): (&[Lane], usize, usize)) -> [Lane; TILE] {
    let mut sums = [[0.0; WIDTH]; TILE];
    for (x, y) in x.chunks_exact(wide).zip(y.chunks_exact(high)) {
        let (x, y) = (&x[i / WIDTH][i % WIDTH..][..TILE], &y[j]);
        for (sums, x) in sums.iter_mut().zip(x) {
            (0..WIDTH).for_each(|c| sums[c] += x * y[c]);
        }
    }
    sums
}

/// to −= factor·from
#[inline(always)]
fn subtract(to: &mut [Lane], factor: f64, from: &[Lane]) {
    for (to, from) in to.iter_mut().zip(from) {
        (0..WIDTH).for_each(|c| to[c] -= factor * from[c]);
    }
}

#[inline(always)]
fn scale(lanes: &mut [Lane], factor: f64) {
    lanes.as_flattened_mut().iter_mut().for_each(|v| *v *= factor);
}

/// Subtracts the mean of each column; leaves it in `mean`.
#[inline(always)]
fn center(rows: &mut [Lane], mean: &mut [Lane], n: f64) {
    mean.fill([0.0; WIDTH]);
    let wide = mean.len();
    for row in rows.chunks_exact(wide) {
        for (mean, x) in mean.iter_mut().zip(row) {
            (0..WIDTH).for_each(|c| mean[c] += x[c]);
        }
    }
    mean.as_flattened_mut().iter_mut().for_each(|m| *m /= n);
    rows.chunks_exact_mut(wide).for_each(|row| subtract(row, 1.0, mean));
}

/// Fits made once, each at a row of the data; a query uses the nearest one's.
#[derive(Debug)]
pub(super) struct StoredFits {
    index: Tree,
    d: usize,
    m: usize,
    packed: Vec<f32>,
    each: usize,
}

impl StoredFits {
    /// Fits at every row of `index`, whose neighbours in the data are `near`.
    pub(super) fn new(
        index: Tree,
        d: usize,
        m: usize,
        near: &Neighbors,
        data: (&Mat, &Mat),
        pool: &ThreadPool,
    ) -> Result<Self> {
        let each = d + 2 * m + d * m + d * (d + 1) / 2;
        let mut packed = vec![0.0; each * index.len()];
        let mut chunks: Vec<_> = packed.chunks_mut(each * CHUNK).collect();
        pool.for_each_mut(&mut chunks, |chunk, out| {
            let mut fit = LocalFit::new(d, m);
            for (i, out) in out.chunks_exact_mut(each).enumerate() {
                let ids = near.ids.row(chunk * CHUNK + i);
                fit.compute(data.0, data.1, ids.iter().map(|&id| id as usize));
                fit.pack(out);
            }
        });
        Ok(Self { index, d, m, packed, each })
    }

    /// e of each row by the nearest stored fit.
    pub(super) fn errors(&self, points: &Mat, change: &Mat, pool: &ThreadPool) -> Result<Array1<f32>> {
        let near = self.index.search(points.view(), 1)?;
        Ok(map_rows(
            pool,
            points.nrows(),
            || LocalFit::new(self.d, self.m),
            |fit, row| {
                fit.unpack(&self.packed[near.ids[[row, 0]] as usize * self.each..][..self.each]);
                fit.error(points.row(row), change.row(row)) as f32
            },
        ))
    }
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
                    let mut fit = LocalFit { simd, ..LocalFit::new(d, m) };
                    fit.compute(&points, &delta, 0..ROWS);
                    fit.error(points.row(ROWS), delta.row(ROWS))
                })
                .collect();
            assert!(errors.iter().all(|e| e.to_bits() == errors[0].to_bits()), "{errors:?}");
            let wanted = error_by_definition(&points, &delta);
            assert!((errors[0] / wanted - 1.0).abs() < 1e-10, "{d}, {m}: {} against {wanted}", errors[0]);
        }
    }
}
