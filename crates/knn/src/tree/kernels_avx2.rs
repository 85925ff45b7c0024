//! The inner loops with AVX2: eight children or eight rows in one register.

use super::kernels::{Kernel, Stack};
use super::layout::{FAN, Line};
use std::arch::x86_64::*;

/// Needs AVX2 at run time; the walk that uses it is compiled with that feature.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2;

impl Kernel for Avx2 {
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
        // SAFETY: the caller has checked for AVX2; the load covers the whole array.
        unsafe {
            let v = _mm256_loadu_si256(values.as_ptr().cast());
            let far = _mm256_cmpgt_epi32(v, _mm256_set1_epi32(limit));
            !_mm256_movemask_ps(_mm256_castsi256_ps(far)) as u32 & 0xff
        }
    }

    #[inline(always)]
    unsafe fn nearest(values: &[i32; FAN], mask: u32, limit: i32) -> u32 {
        // SAFETY: the caller has checked for AVX2; the loads cover whole arrays.
        unsafe {
            // Keep the leading 16 bits of what can occur, lift the lanes outside the mask, take the minimum.
            let shift = 16u32.saturating_sub(limit.leading_zeros());
            let v = _mm256_loadu_si256(values.as_ptr().cast());
            let v = _mm256_srl_epi32(v, _mm_cvtsi32_si128(shift as i32));
            let packed = _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
            let outside = _mm_loadu_si128(OUTSIDE[mask as usize & 0xff].as_ptr().cast());
            (_mm_extract_epi16(_mm_minpos_epu16(_mm_or_si128(packed, outside)), 1)) as u32
        }
    }

    #[inline(always)]
    unsafe fn push(stack: &mut Stack, values: &[i32; FAN], base: u32, mask: u32) {
        let at = stack.len;
        assert!(at + FAN <= Stack::ROOM, "the stack holds every level's siblings");
        // SAFETY: the caller has checked for AVX2; eight values fit behind `at`, as was just checked.
        unsafe {
            let which = _mm256_cvtepu8_epi32(_mm_loadl_epi64(SET_BITS[mask as usize & 0xff].as_ptr().cast()));
            let v = _mm256_permutevar8x32_epi32(_mm256_loadu_si256(values.as_ptr().cast()), which);
            _mm256_storeu_si256(stack.distances.as_mut_ptr().add(at).cast(), v);
            let numbers = _mm256_add_epi32(which, _mm256_set1_epi32(base as i32));
            _mm256_storeu_si256(stack.numbers.as_mut_ptr().add(at).cast(), numbers);
        }
        stack.len = at + mask.count_ones() as usize;
    }

    #[inline(always)]
    unsafe fn hand_out(
        lists: &[*mut u16; FAN],
        lens: &mut [u32; FAN],
        values: &[i32; FAN],
        limit: i32,
        item: u16,
    ) {
        // SAFETY: the caller has checked for AVX2 and vouches for room behind each list's length.
        unsafe {
            for (list, len) in lists.iter().zip(lens.iter()) {
                *list.add(*len as usize) = item;
            }
            let v = _mm256_loadu_si256(values.as_ptr().cast());
            let far = _mm256_cmpgt_epi32(v, _mm256_set1_epi32(limit));
            let old = _mm256_loadu_si256(lens.as_ptr().cast());
            let new = _mm256_add_epi32(old, _mm256_add_epi32(_mm256_set1_epi32(1), far));
            _mm256_storeu_si256(lens.as_mut_ptr().cast(), new);
        }
    }

    #[inline(always)]
    fn prefetch<T>(data: &[T]) {
        let start = data.as_ptr().cast::<i8>();
        for at in (0..std::mem::size_of_val(data)).step_by(64) {
            // SAFETY: prefetching never faults, and the address lies inside the slice.
            unsafe { _mm_prefetch(start.add(at), _MM_HINT_T0) };
        }
    }
}

/// # Safety
/// Needs AVX2, and two lines of `node` for each pair of `query`.
#[inline(always)]
unsafe fn box_gaps<const L1: bool>(node: &[Line], query: &[[u16; 2]]) -> [i32; FAN] {
    // SAFETY: every load stays inside `node` (two 32-byte aligned lines for each pair of the query) or `query`.
    unsafe {
        let mut acc = _mm256_setzero_si256();
        for (p, q) in query.iter().enumerate() {
            let q = _mm256_set1_epi32(pair(q));
            let lo = _mm256_load_si256(node.as_ptr().add(2 * p).cast());
            let hi = _mm256_load_si256(node.as_ptr().add(2 * p + 1).cast());
            // Unsigned saturation leaves the distance to the box on the one side where it is positive.
            let gap = _mm256_or_si256(_mm256_subs_epu16(lo, q), _mm256_subs_epu16(q, hi));
            acc = _mm256_add_epi32(acc, pair_sum::<L1>(gap));
        }
        to_array(acc)
    }
}

/// # Safety
/// Needs AVX2, and a line of `block` for each pair of `query`.
#[inline(always)]
unsafe fn row_gaps<const L1: bool>(block: &[Line], query: &[[u16; 2]]) -> [i32; FAN] {
    // SAFETY: as above, with one line for each pair.
    unsafe {
        let mut acc = _mm256_setzero_si256();
        for (p, q) in query.iter().enumerate() {
            let q = _mm256_set1_epi32(pair(q));
            let row = _mm256_load_si256(block.as_ptr().add(p).cast());
            let gap = _mm256_sub_epi16(row, q);
            let gap = if L1 { _mm256_abs_epi16(gap) } else { gap };
            acc = _mm256_add_epi32(acc, pair_sum::<L1>(gap));
        }
        to_array(acc)
    }
}

#[inline(always)]
fn pair(q: &[u16; 2]) -> i32 {
    (u32::from(q[0]) | (u32::from(q[1]) << 16)) as i32
}

/// Sum over the two lanes of each pair of the gaps or their squares.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
unsafe fn pair_sum<const L1: bool>(gap: __m256i) -> __m256i {
    // SAFETY: the caller has checked for AVX2.
    unsafe { if L1 { _mm256_madd_epi16(gap, _mm256_set1_epi16(1)) } else { _mm256_madd_epi16(gap, gap) } }
}

/// # Safety
/// Needs AVX2.
#[inline(always)]
pub(super) unsafe fn to_array(v: __m256i) -> [i32; FAN] {
    // SAFETY: both are 32 bytes without invalid values.
    unsafe { std::mem::transmute(v) }
}

/// The set bits of each mask, in order.
static SET_BITS: [[u8; FAN]; 256] = {
    let mut table = [[0; FAN]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut bit, mut n) = (0, 0);
        while bit < FAN {
            if mask >> bit & 1 == 1 {
                table[mask][n] = bit as u8;
                n += 1;
            }
            bit += 1;
        }
        mask += 1;
    }
    table
};

/// All ones in the lanes outside each mask.
static OUTSIDE: [[u16; FAN]; 256] = {
    let mut table = [[0; FAN]; 256];
    let mut mask = 0;
    while mask < 256 {
        let mut bit = 0;
        while bit < FAN {
            table[mask][bit] = if mask >> bit & 1 == 1 { 0 } else { u16::MAX };
            bit += 1;
        }
        mask += 1;
    }
    table
};
