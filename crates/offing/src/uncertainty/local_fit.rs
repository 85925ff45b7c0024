//! A ridge-linear fit of changes on points over a handful of neighbours, and the error it predicts.

use ndarray::{Array1, ArrayView1};
use offing_knn::{NeighborIndex, Neighbors, Tree};

use super::map_rows;
use crate::batch::Mat;
use crate::error::Result;
use crate::linalg::{cholesky, solve_lower, solve_upper};
use crate::nn::ThreadPool;

/// Ridge, as a share of the mean of XᵀX's diagonal.
const RIDGE: f64 = 0.1;
/// Rows a thread takes at once.
const CHUNK: usize = 64;

/// Working memory and result of one fit of `m` changes on `d` coordinates.
#[derive(Debug)]
pub(super) struct LocalFit {
    d: usize,
    m: usize,
    /// x̄ and Δ̄.
    center: Vec<f64>,
    mean: Vec<f64>,
    /// Cholesky factor of A, row-major.
    factor: Vec<f64>,
    /// Slopes, change-major: B[·, j] is contiguous.
    slopes: Vec<f64>,
    /// Mean squared residuals.
    noise: Vec<f64>,
    x: Vec<f64>,
    y: Vec<f64>,
}

impl LocalFit {
    pub(super) fn new(d: usize, m: usize) -> Self {
        Self {
            d,
            m,
            center: vec![0.0; d],
            mean: vec![0.0; m],
            factor: vec![0.0; d * d],
            slopes: vec![0.0; d * m],
            noise: vec![0.0; m],
            x: Vec::new(),
            y: Vec::new(),
        }
    }

    /// Fits the given rows.
    pub(super) fn compute(&mut self, points: &Mat, delta: &Mat, rows: impl Iterator<Item = usize>) {
        let (d, m) = (self.d, self.m);
        self.x.clear();
        self.y.clear();
        for row in rows {
            self.x.extend(points.row(row).iter().map(|&v| f64::from(v)));
            self.y.extend(delta.row(row).iter().map(|&v| f64::from(v)));
        }
        let n = (self.x.len() / d) as f64;
        center(&mut self.x, &mut self.center, n);
        center(&mut self.y, &mut self.mean, n);
        // Normal equations: A into `factor`, XᵀY into `slopes`, YᵀY into `noise`.
        self.factor.fill(0.0);
        self.slopes.fill(0.0);
        self.noise.fill(0.0);
        for (x, y) in self.x.chunks_exact(d).zip(self.y.chunks_exact(m)) {
            for (i, &xi) in x.iter().enumerate() {
                self.factor[i * d..][..=i].iter_mut().zip(x).for_each(|(a, xj)| *a += xi * xj);
            }
            for (j, &yj) in y.iter().enumerate() {
                self.slopes[j * d..][..d].iter_mut().zip(x).for_each(|(c, xi)| *c += xi * yj);
                self.noise[j] += yj * yj;
            }
        }
        let trace: f64 = (0..d).map(|i| self.factor[i * d + i]).sum();
        // Copies of one row have no spread at all: any positive ridge gives slopes of 0.
        let ridge = if trace > 0.0 { RIDGE * trace / d as f64 } else { 1.0 };
        (0..d).for_each(|i| self.factor[i * d + i] += ridge);
        let solved = cholesky(&mut self.factor, d);
        debug_assert!(solved, "a ridge of a tenth of the mean diagonal is positive definite");
        let mut right = vec![0.0; d];
        for j in 0..m {
            let b = &mut self.slopes[j * d..][..d];
            right.copy_from_slice(b);
            solve_lower(&self.factor, d, b);
            solve_upper(&self.factor, d, b);
            // ‖y − Xb‖² = yᵀy − bᵀXᵀy − ridge·bᵀb, because (XᵀX + ridge)b = Xᵀy.
            let explained: f64 = b.iter().zip(&right).map(|(b, c)| b * c + ridge * b * b).sum();
            self.noise[j] = ((self.noise[j] - explained) / n).max(0.0);
        }
    }

    /// Adds B·Bᵀ to the d×d matrix.
    pub(super) fn add_slopes(&self, gram: &mut [f64]) {
        for b in self.slopes.chunks_exact(self.d) {
            for (row, &bi) in gram.chunks_exact_mut(self.d).zip(b) {
                row.iter_mut().zip(b).for_each(|(g, bj)| *g += bi * bj);
            }
        }
    }

    /// e: the distance of `change` from the prediction at `x`, with the fit's own doubt.
    pub(super) fn error(&mut self, x: ArrayView1<f32>, change: ArrayView1<f32>) -> f64 {
        let d = self.d;
        let away: Vec<f64> = x.iter().zip(&self.center).map(|(&x, c)| f64::from(x) - c).collect();
        let mut whitened = away.clone();
        solve_lower(&self.factor, d, &mut whitened);
        let leverage: f64 = whitened.iter().map(|w| w * w).sum();
        let term = |(j, &change): (usize, &f32)| {
            let slope: f64 = self.slopes[j * d..][..d].iter().zip(&away).map(|(b, x)| b * x).sum();
            (f64::from(change) - self.mean[j] - slope).powi(2) + self.noise[j] * (1.0 + leverage)
        };
        change.iter().enumerate().map(term).sum::<f64>().sqrt()
    }

    /// All of the fit as one run of f32: x̄, Δ̄, σ², B, and the lower triangle of the factor.
    fn pack(&self, out: &mut [f32]) {
        let d = self.d;
        let triangle = (0..d).flat_map(|i| &self.factor[i * d..][..=i]);
        let all = self.center.iter().chain(&self.mean).chain(&self.noise).chain(&self.slopes).chain(triangle);
        out.iter_mut().zip(all).for_each(|(to, from)| *to = *from as f32);
    }

    fn unpack(&mut self, from: &[f32]) {
        let (d, m) = (self.d, self.m);
        let mut from = from.iter().map(|&v| f64::from(v));
        let mut take = |to: &mut [f64]| to.iter_mut().zip(&mut from).for_each(|(to, v)| *to = v);
        take(&mut self.center[..d]);
        take(&mut self.mean[..m]);
        take(&mut self.noise[..m]);
        take(&mut self.slopes[..d * m]);
        (0..d).for_each(|i| take(&mut self.factor[i * d..][..=i]));
    }
}

/// Subtracts the mean of each column; leaves it in `mean`.
fn center(rows: &mut [f64], mean: &mut [f64], n: f64) {
    mean.fill(0.0);
    let width = mean.len();
    for row in rows.chunks_exact(width) {
        mean.iter_mut().zip(row).for_each(|(m, x)| *m += x);
    }
    mean.iter_mut().for_each(|m| *m /= n);
    for row in rows.chunks_exact_mut(width) {
        row.iter_mut().zip(&*mean).for_each(|(x, m)| *x -= m);
    }
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
