//! Aligned blocks of f32: rows and weight panels start on cache lines, so that vector loads never straddle two.

use std::ops::{Deref, DerefMut};

/// Floats in a cache line, and columns in a weight panel.
pub const LANES: usize = 16;

/// Sixteen floats by value. Loops over whole lines that were read before and are written after become vector code;
/// loops over two slices at once often do not, because the slices might overlap.
pub(super) type Line = [f32; LANES];

/// The line at `at`.
#[inline(always)]
pub(super) fn read(data: &[f32], at: usize) -> Line {
    *data[at..at + LANES].first_chunk().expect("sixteen floats were asked for")
}

/// Sets the line at `at`.
#[inline(always)]
pub(super) fn write(data: &mut [f32], at: usize, line: Line) {
    *data[at..at + LANES].first_chunk_mut().expect("sixteen floats were asked for") = line;
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Aligned(Line);

/// A slice of f32 that starts on a cache line and whose length is a multiple of [`LANES`]. New ones are zero.
#[derive(Clone, Debug, Default)]
pub struct Buf(Vec<Aligned>);

impl Buf {
    /// At least `len` zeros, rounded up to whole lines.
    pub fn zeros(len: usize) -> Self {
        Self(vec![Aligned([0.0; LANES]); len.div_ceil(LANES)])
    }
}

impl Deref for Buf {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: `Aligned` is `repr(C)` over `[f32; 16]` and 64 bytes long, so the lines are one run of f32.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * LANES) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`; the exclusive borrow of `self` covers every line.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * LANES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_starts_on_a_cache_line_and_fills_whole_lines() {
        let buf = Buf::zeros(33);
        assert_eq!((buf.as_ptr() as usize % 64, buf.len()), (0, 48));
        assert!(buf.iter().all(|&x| x == 0.0));
    }
}
