//! The inner loops with AVX-512: two lines in one register. What is not a sum over lanes is as with AVX2.

use super::kernels::{Kernel, Stack};
use super::kernels_avx2::{Avx2, to_array};
use super::layout::{FAN, Line};
use std::arch::x86_64::*;

/// Needs AVX-512 (F, BW, VL, VNNI) at run time; the walk that uses it is compiled with those features.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512;

impl Kernel for Avx512 {
    #[inline(always)]
    unsafe fn boxes<const L1: bool>(node: &[Line], query: &[[u16; 2]]) -> [i32; FAN] {
        debug_assert!(node.len() >= 2 * query.len());
        // Full nodes are the rule for wide rows; a fixed count unrolls without tests in between.
        // SAFETY: as the caller promises.
        unsafe {
            match <&[[u16; 2]; 8]>::try_from(query) {
                Ok(query) => box_gaps::<L1>(node, query),
                Err(_) => box_gaps::<L1>(node, query),
            }
        }
    }

    #[inline(always)]
    unsafe fn rows<const L1: bool>(block: &[Line], query: &[[u16; 2]]) -> [i32; FAN] {
        debug_assert!(block.len() >= query.len());
        // SAFETY: as the caller promises.
        unsafe {
            if let Ok(query) = <&[[u16; 2]; 8]>::try_from(query) {
                row_gaps::<L1>(block, query)
            } else if let Ok(query) = <&[[u16; 2]; 10]>::try_from(query) {
                row_gaps::<L1>(block, query)
            } else {
                row_gaps::<L1>(block, query)
            }
        }
    }

    #[inline(always)]
    unsafe fn at_most(values: &[i32; FAN], limit: i32) -> u32 {
        // SAFETY: the caller has checked for AVX-512; the load covers the whole array.
        unsafe {
            let v = _mm256_loadu_si256(values.as_ptr().cast());
            u32::from(_mm256_cmple_epi32_mask(v, _mm256_set1_epi32(limit)))
        }
    }

    #[inline(always)]
    unsafe fn nearest(values: &[i32; FAN], mask: u32, limit: i32) -> u32 {
        // SAFETY: whoever has AVX-512 has AVX2.
        unsafe { Avx2::nearest(values, mask, limit) }
    }

    #[inline(always)]
    unsafe fn push(stack: &mut Stack, values: &[i32; FAN], base: u32, mask: u32) {
        // SAFETY: whoever has AVX-512 has AVX2.
        unsafe { Avx2::push(stack, values, base, mask) }
    }

    #[inline(always)]
    unsafe fn hand_out(
        lists: &[*mut u16; FAN],
        lens: &mut [u32; FAN],
        values: &[i32; FAN],
        limit: i32,
        item: u16,
    ) {
        // SAFETY: whoever has AVX-512 has AVX2; the caller vouches for room behind each list's length.
        unsafe { Avx2::hand_out(lists, lens, values, limit, item) }
    }

    #[inline(always)]
    fn prefetch<T>(data: &[T]) {
        Avx2::prefetch(data);
    }
}

/// # Safety
/// Needs AVX-512, and two lines of `node` for each of the at most eight pairs of `query`.
#[inline(always)]
unsafe fn box_gaps<const L1: bool>(node: &[Line], query: &[[u16; 2]]) -> [i32; FAN] {
    // SAFETY: every load stays inside `node` (two lines for each pair of the query) or `query`.
    unsafe {
        let q = _mm512_maskz_loadu_epi32(first(query.len()), query.as_ptr().cast());
        let mut which = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi32(1), 1);
        let mut acc = _mm512_setzero_si512();
        for p in (0..query.len() / 2).map(|p| 2 * p) {
            // Low and high ends of one pair lie side by side; bring the low ends of two together, and the high ends.
            let one = _mm512_loadu_si512(node.as_ptr().add(2 * p).cast());
            let two = _mm512_loadu_si512(node.as_ptr().add(2 * p + 2).cast());
            let (lo, hi) = (_mm512_shuffle_i64x2(one, two, 0x44), _mm512_shuffle_i64x2(one, two, 0xee));
            acc = add_boxes::<L1>(acc, lo, hi, _mm512_permutexvar_epi32(which, q));
            which = _mm512_add_epi32(which, _mm512_set1_epi32(2));
        }
        if query.len() % 2 == 1 {
            // The upper halves are zero, the query's too.
            let at = node.as_ptr().add(2 * query.len() - 2);
            let lo = _mm512_zextsi256_si512(_mm256_load_si256(at.cast()));
            let hi = _mm512_zextsi256_si512(_mm256_load_si256(at.add(1).cast()));
            acc = add_boxes::<L1>(acc, lo, hi, _mm512_maskz_permutexvar_epi32(0xff, which, q));
        }
        to_array(_mm256_add_epi32(_mm512_castsi512_si256(acc), _mm512_extracti64x4_epi64(acc, 1)))
    }
}

/// # Safety
/// Needs AVX-512, and a line of `block` for each of the at most sixteen pairs of `query`.
#[inline(always)]
unsafe fn row_gaps<const L1: bool>(block: &[Line], query: &[[u16; 2]]) -> [i32; FAN] {
    // SAFETY: as above, with one line for each pair.
    unsafe {
        let q = _mm512_maskz_loadu_epi32(first(query.len()), query.as_ptr().cast());
        let mut which = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi32(1), 1);
        let mut acc = _mm512_setzero_si512();
        for p in (0..query.len() / 2).map(|p| 2 * p) {
            let two = _mm512_loadu_si512(block.as_ptr().add(p).cast());
            acc = add_rows::<L1>(acc, two, _mm512_permutexvar_epi32(which, q));
            which = _mm512_add_epi32(which, _mm512_set1_epi32(2));
        }
        if query.len() % 2 == 1 {
            // The upper half of the last line is that of zeros, and so is the query's.
            let p = query.len() - 1;
            let one = _mm512_zextsi256_si512(_mm256_load_si256(block.as_ptr().add(p).cast()));
            acc = add_rows::<L1>(acc, one, _mm512_maskz_permutexvar_epi32(0xff, which, q));
        }
        to_array(_mm256_add_epi32(_mm512_castsi512_si256(acc), _mm512_extracti64x4_epi64(acc, 1)))
    }
}

/// A mask of the first `count` lanes, at most sixteen.
#[inline(always)]
fn first(count: usize) -> u16 {
    ((1u32 << count) - 1) as u16
}

/// # Safety
/// Needs AVX-512.
#[inline(always)]
unsafe fn add_boxes<const L1: bool>(acc: __m512i, lo: __m512i, hi: __m512i, query: __m512i) -> __m512i {
    // SAFETY: the caller has checked for AVX-512.
    unsafe {
        // Unsigned saturation leaves the distance to the box on the one side where it is positive.
        let gap = _mm512_or_si512(_mm512_subs_epu16(lo, query), _mm512_subs_epu16(query, hi));
        add_pairs::<L1>(acc, gap)
    }
}

/// # Safety
/// Needs AVX-512.
#[inline(always)]
unsafe fn add_rows<const L1: bool>(acc: __m512i, rows: __m512i, query: __m512i) -> __m512i {
    // SAFETY: the caller has checked for AVX-512.
    unsafe {
        let gap = _mm512_sub_epi16(rows, query);
        add_pairs::<L1>(acc, if L1 { _mm512_abs_epi16(gap) } else { gap })
    }
}

/// Adds the gaps of the two lanes of each pair, or their squares.
///
/// # Safety
/// Needs AVX-512.
#[inline(always)]
unsafe fn add_pairs<const L1: bool>(acc: __m512i, gap: __m512i) -> __m512i {
    // SAFETY: the caller has checked for AVX-512.
    unsafe { _mm512_dpwssd_epi32(acc, gap, if L1 { _mm512_set1_epi16(1) } else { gap }) }
}
