//! Local fits made once, each at a row of the data; a query uses the nearest one's.

use ndarray::Array1;
use offing_knn::{NeighborIndex, Neighbors, Tree};

use super::local_fit::{FITS, LocalFits, map_fits};
use crate::batch::Mat;
use crate::error::Result;
use crate::nn::ThreadPool;

/// The fits, packed, and an index of where they were made.
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
        let mut chunks: Vec<_> = packed.chunks_mut(each * FITS).collect();
        pool.for_each_mut(&mut chunks, |chunk, out| {
            let count = out.len() / each;
            let mut fits = LocalFits::new(d, m);
            let list = |i: usize| near.ids.row(chunk * FITS + i).iter().map(|&id| id as usize).collect();
            fits.compute(data.0, data.1, &(0..count).map(list).collect::<Vec<_>>());
            out.chunks_exact_mut(each).enumerate().for_each(|(fit, out)| fits.pack(fit, out));
        });
        Ok(Self { index, d, m, packed, each })
    }

    /// e of each row by the nearest stored fit.
    pub(super) fn errors(&self, points: &Mat, change: &Mat, pool: &ThreadPool) -> Result<Array1<f32>> {
        let near = self.index.search(points.view(), 1)?;
        Ok(map_fits(pool, points.nrows(), (self.d, self.m), |fits, first, count| {
            for fit in 0..count {
                let nearest = near.ids[[first + fit, 0]] as usize;
                fits.unpack(fit, &self.packed[nearest * self.each..][..self.each]);
            }
            fits.errors(count, |fit| (points.row(first + fit), change.row(first + fit)))
        }))
    }
}
