//! A matrix cut into panels of 16 columns: the one layout of everything that enters or leaves a matrix product.
//!
//! Panel p holds columns 16p..16p+16 of every row, rows one cache line apart. A tile of six rows is one run of six
//! lines, whether it is read as a left operand, read as a right operand or written as a result; row-major rows of 256
//! floats would lie on 256 different pages and fall on the same few cache sets.

use ndarray::ArrayView2;

use super::buffer::{Buf, LANES};

/// `capacity` rows of `cols` columns, followed by one column of ones (so that a bias is a weight like any other) and
/// zeros up to a whole panel.
#[derive(Clone, Debug)]
pub struct PackedMatrix {
    data: Buf,
    capacity: usize,
    cols: usize,
}

impl PackedMatrix {
    /// Zeros, with the column of ones set.
    pub fn new(capacity: usize, cols: usize) -> Self {
        let mut new =
            Self { data: Buf::zeros((cols + 1).div_ceil(LANES) * capacity * LANES), capacity, cols };
        new.set_ones(capacity);
        new
    }

    /// Number of columns, without the ones.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Rows there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The floats, panel after panel.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// The floats, panel after panel.
    pub fn data_mut(&mut self) -> &mut [f32] {
        &mut self.data
    }

    /// Where element (row, col) is in the data.
    #[inline(always)]
    pub fn at(&self, row: usize, col: usize) -> usize {
        (col / LANES * self.capacity + row) * LANES + col % LANES
    }

    /// Element (row, col).
    #[inline(always)]
    pub fn get(&self, row: usize, col: usize) -> f32 {
        self.data[self.at(row, col)]
    }

    /// Sets element (row, col).
    #[inline(always)]
    pub fn set(&mut self, row: usize, col: usize, value: f32) {
        let at = self.at(row, col);
        self.data[at] = value;
    }

    /// Writes 1 into the column after the last, which a product that fills whole panels has overwritten.
    pub fn set_ones(&mut self, rows: usize) {
        (0..rows).for_each(|row| self.set(row, self.cols, 1.0));
    }

    /// Copies rows `from..from + rows` of `source` into rows 0.. at columns `at..`.
    pub fn load(&mut self, source: ArrayView2<'_, f32>, from: usize, rows: usize, at: usize) {
        assert!(rows <= self.capacity && at + source.ncols() <= self.cols);
        for row in 0..rows {
            let source = source.row(from + row);
            match source.as_slice() {
                Some(values) => self.load_row(row, values, at),
                None => source.iter().enumerate().for_each(|(col, x)| self.load_row(row, &[*x], at + col)),
            }
        }
    }

    /// Copies `rows * width` floats, row after row, into columns `at..at + width`.
    pub fn load_flat(&mut self, source: &[f32], width: usize, at: usize) {
        for (row, values) in source.chunks_exact(width).enumerate() {
            self.load_row(row, values, at);
        }
    }

    /// Copies `values` into row `row` at columns `at..`.
    #[inline]
    pub fn load_row(&mut self, row: usize, mut values: &[f32], mut at: usize) {
        while !values.is_empty() {
            let n = (LANES - at % LANES).min(values.len());
            let to = self.at(row, at);
            self.data[to..to + n].copy_from_slice(&values[..n]);
            (values, at) = (&values[n..], at + n);
        }
    }

    /// Sets the first `rows` rows, each to what `fill(row, values)` leaves in its slice.
    pub fn fill_rows(&mut self, rows: usize, mut fill: impl FnMut(usize, &mut [f32])) {
        let mut values = vec![0.0; self.cols];
        for row in 0..rows {
            fill(row, &mut values);
            self.load_row(row, &values, 0);
        }
    }

    /// Copies columns `at..at + width` of the first rows out, row after row.
    pub fn store_flat(&self, out: &mut [f32], width: usize, at: usize) {
        out.chunks_exact_mut(width).enumerate().for_each(|(row, values)| self.store_row(row, values, at));
    }

    /// Copies row `row` from column `at` on out.
    #[inline]
    pub fn store_row(&self, row: usize, values: &mut [f32], at: usize) {
        values.iter_mut().enumerate().for_each(|(col, x)| *x = self.get(row, at + col));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array2;

    #[test]
    fn what_is_loaded_comes_back_and_is_followed_by_ones() {
        let source = Array2::from_shape_fn((9, 21), |(i, j)| (i * 100 + j) as f32);
        let mut panels = PackedMatrix::new(6, 21);
        panels.load(source.view(), 3, 6, 0);
        let mut flat = vec![0.0; 6 * 4];
        panels.store_flat(&mut flat, 4, 15);
        for row in 0..6 {
            assert_eq!(flat[row * 4..][..4], [15, 16, 17, 18].map(|j| ((row + 3) * 100 + j) as f32));
            assert_eq!(panels.get(row, 21), 1.0);
            assert_eq!(panels.get(row, 22), 0.0);
        }
    }
}
