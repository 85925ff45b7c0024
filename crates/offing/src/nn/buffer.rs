//! Aligned blocks of f32: rows and weight panels start on cache lines, so that vector loads never straddle two.

use std::ops::{Deref, DerefMut};

/// Floats in a cache line, and columns in a weight panel.
pub const LANES: usize = 16;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([f32; LANES]);

/// A slice of f32 that starts on a cache line and whose length is a multiple of [`LANES`]. New ones are zero.
#[derive(Clone, Debug, Default)]
pub struct Buf(Vec<Line>);

impl Buf {
    /// At least `len` zeros, rounded up to whole lines.
    pub fn zeros(len: usize) -> Self {
        Self(vec![Line([0.0; LANES]); len.div_ceil(LANES)])
    }
}

impl Deref for Buf {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: `Line` is `repr(C)` over `[f32; 16]` and 64 bytes long, so the lines are one run of f32.
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
