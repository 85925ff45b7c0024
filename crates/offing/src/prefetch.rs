//! Asking for memory before it is needed: for rows picked at random from a table that is too large for the caches.

/// Asks for the cache lines of `row`, to be read soon.
#[inline(always)]
pub(crate) fn fetch_early<T>(row: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = row.as_ptr().cast::<i8>();
        for at in (0..size_of_val(row)).step_by(LINE_BYTES) {
            // SAFETY: a prefetch is a hint: it may name any address and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(at)) };
        }
        // A row seldom starts at a line's start, so its end may lie in one more.
        let last = first.wrapping_add(size_of_val(row).saturating_sub(1));
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(last) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;
