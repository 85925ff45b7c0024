//! The inner loops in plain Rust: for processors without AVX2, and the reference for those with it. Sums wrap
//! (as they do in AVX2) only when an index file was forged.

use super::kernels::{Kernel, Stack};
use super::layout::{FAN, Line};

/// Plain Rust, compiled for whatever the target has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

impl Kernel for Portable {
    #[inline(always)]
    unsafe fn boxes<const L1: bool>(node: &[Line], query: &[[u16; 2]]) -> [i32; FAN] {
        let mut acc = [0i32; FAN];
        for (lines, q) in node.chunks_exact(2).zip(query) {
            let (lo, hi) = (&lines[0].0, &lines[1].0);
            for c in 0..FAN {
                for lane in 0..2 {
                    let (l, h) = (lo[2 * c + lane], hi[2 * c + lane]);
                    let gap = i32::from(l.saturating_sub(q[lane]) | q[lane].saturating_sub(h));
                    acc[c] = acc[c].wrapping_add(if L1 { gap } else { gap.wrapping_mul(gap) });
                }
            }
        }
        acc
    }

    #[inline(always)]
    unsafe fn rows<const L1: bool>(block: &[Line], query: &[[u16; 2]]) -> [i32; FAN] {
        let mut acc = [0i32; FAN];
        for (line, q) in block.iter().zip(query) {
            for (sum, pair) in acc.iter_mut().zip(line.0.chunks_exact(2)) {
                for (row, query) in pair.iter().zip(q) {
                    let gap = i32::from(*row) - i32::from(*query);
                    *sum = sum.wrapping_add(if L1 { gap.abs() } else { gap.wrapping_mul(gap) });
                }
            }
        }
        acc
    }

    #[inline(always)]
    unsafe fn at_most(values: &[i32; FAN], limit: i32) -> u32 {
        (0..FAN).fold(0, |mask, i| mask | (u32::from(values[i] <= limit) << i))
    }

    #[inline(always)]
    unsafe fn nearest(values: &[i32; FAN], mask: u32, _limit: i32) -> u32 {
        (0..FAN as u32).filter(|i| mask & (1 << i) != 0).min_by_key(|&i| values[i as usize]).unwrap_or(0)
    }

    #[inline(always)]
    unsafe fn push(stack: &mut Stack, values: &[i32; FAN], base: u32, mask: u32) {
        for i in (0..FAN).filter(|i| mask & (1 << i) != 0) {
            stack.distances[stack.len] = values[i];
            stack.numbers[stack.len] = base + i as u32;
            stack.len += 1;
        }
    }

    #[inline(always)]
    unsafe fn hand_out(
        lists: &[*mut u16; FAN],
        lens: &mut [u32; FAN],
        values: &[i32; FAN],
        limit: i32,
        item: u16,
    ) {
        for ((list, len), value) in lists.iter().zip(lens).zip(values) {
            // SAFETY: the caller vouches for room behind the list's length.
            unsafe { *list.add(*len as usize) = item };
            *len += u32::from(*value <= limit);
        }
    }

    #[inline(always)]
    fn prefetch<T>(_data: &[T]) {}
}
