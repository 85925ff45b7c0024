//! The multiply kernels: the only file that knows the machine.
//!
//! Every product in this library is `Σ_k a[i][k] * b[k][j]` for 16 columns j (a *panel*) and up to six rows i at a
//! time (a *tile*). Each element is one chain of multiply-adds in the order of k, whatever tile it falls into, so
//! results do not depend on how rows and panels are shared among threads.
//!
//! Why not a library: a general product packs both operands at every call; here weights and activations stay in the
//! packed form of [`super::packed_matrix`] between calls. On one Zen 3 core with a peak of 104 GFLOP/s, the best of 400 runs
//! was 100 here and 88 with the `gemm` crate 0.19 for 128 × 257 × 256, and 96 and 94 for 128 × 401 × 400.

use super::buffer::LANES;
use super::math::{Arithmetic, Fused, Plain};

/// Rows of a tile: 6 × 16 sums fill twelve of AVX2's sixteen registers.
pub(super) const TILE: usize = 6;

/// One tile of results: up to six rows of one panel.
pub(super) type Tile = [[f32; LANES]; TILE];

/// A square of 16 rows and columns.
pub(super) type Block = [f32; LANES * LANES];

/// Which instructions this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simd {
    /// Plain Rust, vectorised by the compiler as far as the target allows.
    Portable,
    /// AVX2 and FMA. Made by [`Simd::detect`] only on machines that have them.
    #[cfg(target_arch = "x86_64")]
    Avx2(Detected),
}

/// Proof that the instructions were found: only this file can make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detected(());

impl Simd {
    /// The best this machine can do.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return Self::Avx2(Detected(()));
        }
        Self::Portable
    }
}

/// How a machine multiplies.
pub(super) trait Kernel {
    /// How elementwise functions multiply and add.
    type Arithmetic: Arithmetic;
    /// `out[i] += Σ_k a[i][k] * b[k]` for `H` rows, k ascending. Element a[i][k] is at
    /// `i*ROW + k%16*COL + k/16*jump`, row b[k] at `16*k`.
    ///
    /// # Safety
    /// All of those lie inside their allocations, and the machine has the instructions the kernel is named for.
    unsafe fn accumulate<const H: usize, const ROW: usize, const COL: usize>(
        a: *const f32,
        b: *const f32,
        len: usize,
        jump: usize,
        out: &mut Tile,
    );
    /// `to[j][i] = from[i][j]` for a block of 16 × 16.
    fn transpose(from: &Block, to: &mut Block);
    /// Asks for the cache line at `p`, to be used soon.
    fn prefetch(p: *const f32);
    /// Asks for the cache line at `p`, to be used next but one: into the second-level cache.
    fn prefetch_later(p: *const f32);
}

/// Makes `$name`, which runs `$wide` compiled for the instructions the machine has.
macro_rules! dispatch {
    ($(#[$doc:meta])* $name:ident, $wide:ident, $avx2:ident, ($($arg:ident: $type:ty),*)) => {
        $(#[$doc])*
        pub(super) fn $name(simd: $crate::nn::matmul::Simd, $($arg: $type),*) {
            match simd {
                $crate::nn::matmul::Simd::Portable => $wide::<$crate::nn::matmul::Portable>($($arg),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a `Simd::Avx2` exists only where AVX2 and FMA were detected.
                $crate::nn::matmul::Simd::Avx2(_) => unsafe { $avx2($($arg),*) },
            }
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn $avx2($($arg: $type),*) {
            $wide::<$crate::nn::matmul::Avx2>($($arg),*);
        }
    };
}
pub(super) use dispatch;

/// `accumulate` for a height known only at run time.
///
/// # Safety
/// As for [`Kernel::accumulate`], with `height` in 1..=6.
#[inline(always)]
pub(super) unsafe fn accumulate<K: Kernel, const ROW: usize, const COL: usize>(
    height: usize,
    a: *const f32,
    b: *const f32,
    len: usize,
    jump: usize,
    out: &mut Tile,
) {
    // SAFETY: passed on.
    unsafe {
        match height {
            6 => K::accumulate::<6, ROW, COL>(a, b, len, jump, out),
            5 => K::accumulate::<5, ROW, COL>(a, b, len, jump, out),
            4 => K::accumulate::<4, ROW, COL>(a, b, len, jump, out),
            3 => K::accumulate::<3, ROW, COL>(a, b, len, jump, out),
            2 => K::accumulate::<2, ROW, COL>(a, b, len, jump, out),
            _ => K::accumulate::<1, ROW, COL>(a, b, len, jump, out),
        }
    }
}

/// Splits `rows` into the fewest tiles, as even as possible: tiles of five or six rows keep the multipliers busy, a
/// left-over tile of one or two would wait on its own latency. Yields (first row, height).
#[inline(always)]
pub(super) fn tiles(rows: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = rows.div_ceil(TILE);
    let (base, extra) = (rows / count.max(1), rows % count.max(1));
    (0..count).map(move |i| (i * base + i.min(extra), base + usize::from(i < extra)))
}

/// Plain Rust.
pub(super) struct Portable;

impl Kernel for Portable {
    type Arithmetic = Plain;

    #[inline(always)]
    unsafe fn accumulate<const H: usize, const ROW: usize, const COL: usize>(
        a: *const f32,
        b: *const f32,
        len: usize,
        jump: usize,
        out: &mut Tile,
    ) {
        let mut acc = [[0.0f32; LANES]; H];
        acc.copy_from_slice(&out[..H]);
        for k in 0..len {
            // SAFETY: the caller vouches for both operands up to `len`.
            unsafe {
                let row = &*b.add(k * LANES).cast::<[f32; LANES]>();
                for (i, acc) in acc.iter_mut().enumerate() {
                    let x = *a.add(i * ROW + k % LANES * COL + k / LANES * jump);
                    for (acc, w) in acc.iter_mut().zip(row) {
                        *acc += x * w;
                    }
                }
            }
        }
        out[..H].copy_from_slice(&acc);
    }

    #[inline(always)]
    fn transpose(from: &Block, to: &mut Block) {
        for i in 0..LANES {
            for j in 0..LANES {
                to[j * LANES + i] = from[i * LANES + j];
            }
        }
    }

    #[inline(always)]
    fn prefetch(_: *const f32) {}

    #[inline(always)]
    fn prefetch_later(_: *const f32) {}
}

/// AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
pub(super) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Kernel for Avx2 {
    type Arithmetic = Fused;

    #[inline(always)]
    unsafe fn accumulate<const H: usize, const ROW: usize, const COL: usize>(
        a: *const f32,
        b: *const f32,
        len: usize,
        jump: usize,
        out: &mut Tile,
    ) {
        // SAFETY: passed on.
        unsafe { accumulate_avx2::<H, ROW, COL>(a, b, len, jump, out) }
    }

    #[inline(always)]
    fn transpose(from: &Block, to: &mut Block) {
        for (i, j) in [(0, 0), (0, 8), (8, 0), (8, 8)] {
            // SAFETY: this kernel is used only where AVX2 was detected; an 8 × 8 square at (i, j) with rows 16 apart
            // lies inside a block for i and j of 0 or 8.
            unsafe {
                transpose_8x8(from.as_ptr().add(i * LANES + j), to.as_mut_ptr().add(j * LANES + i));
            }
        }
    }

    #[inline(always)]
    fn prefetch(p: *const f32) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it may name any address and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) };
    }

    #[inline(always)]
    fn prefetch_later(p: *const f32) {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) };
    }
}

/// Transposes a square of eight rows, which lie 16 floats apart on both sides.
///
/// # Safety
/// Eight rows of eight floats can be read at `from` and written at `to`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn transpose_8x8(from: *const f32, to: *mut f32) {
    use core::arch::x86_64::*;
    // SAFETY: vouched for by the caller.
    unsafe {
        let row = |i: usize| _mm256_loadu_ps(from.add(i * LANES));
        // Rows i and i + 4 of each half side by side, then pairs, then quadruples.
        let half = |i: usize, high: bool| {
            let (a, b) = (row(i), row(i + 4));
            if high { _mm256_permute2f128_ps::<0x31>(a, b) } else { _mm256_permute2f128_ps::<0x20>(a, b) }
        };
        for high in [false, true] {
            let (a, b, c, d) = (half(0, high), half(1, high), half(2, high), half(3, high));
            let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
            let (ab2, cd2) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
            let to = to.add(if high { 4 * LANES } else { 0 });
            _mm256_storeu_ps(to, _mm256_shuffle_ps::<0x44>(ab, cd));
            _mm256_storeu_ps(to.add(LANES), _mm256_shuffle_ps::<0xee>(ab, cd));
            _mm256_storeu_ps(to.add(2 * LANES), _mm256_shuffle_ps::<0x44>(ab2, cd2));
            _mm256_storeu_ps(to.add(3 * LANES), _mm256_shuffle_ps::<0xee>(ab2, cd2));
        }
    }
}

/// # Safety
/// As for [`Kernel::accumulate`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[expect(clippy::needless_range_loop, reason = "see the first loop")]
unsafe fn accumulate_avx2<const H: usize, const ROW: usize, const COL: usize>(
    mut a: *const f32,
    mut b: *const f32,
    len: usize,
    jump: usize,
    out: &mut Tile,
) {
    use core::arch::x86_64::*;
    // SAFETY: `out` has six rows of 16 floats; `a` and `b` are vouched for by the caller up to `len`. Pointers past
    // the last element are formed by wrapping arithmetic and never read.
    unsafe {
        let mut acc = [[_mm256_setzero_ps(); 2]; H];
        // Plain indices: iterator adaptors over vector types are not always inlined here.
        for i in 0..H {
            let row = out[i].as_ptr();
            acc[i] = [_mm256_loadu_ps(row), _mm256_loadu_ps(row.add(8))];
        }
        for _ in 0..len / LANES {
            // Four steps a turn: the loop's own instructions cost two percent otherwise.
            for k in (0..LANES).step_by(4) {
                for k in k..k + 4 {
                    let (low, high) =
                        (_mm256_loadu_ps(b.add(k * LANES)), _mm256_loadu_ps(b.add(k * LANES + 8)));
                    for i in 0..H {
                        let x = _mm256_broadcast_ss(&*a.add(i * ROW + k * COL));
                        acc[i] = [_mm256_fmadd_ps(x, low, acc[i][0]), _mm256_fmadd_ps(x, high, acc[i][1])];
                    }
                }
            }
            a = a.wrapping_add(jump);
            b = b.wrapping_add(LANES * LANES);
        }
        for _ in 0..len % LANES {
            let (low, high) = (_mm256_loadu_ps(b), _mm256_loadu_ps(b.add(8)));
            for i in 0..H {
                let x = _mm256_broadcast_ss(&*a.add(i * ROW));
                acc[i] = [_mm256_fmadd_ps(x, low, acc[i][0]), _mm256_fmadd_ps(x, high, acc[i][1])];
            }
            a = a.wrapping_add(COL);
            b = b.wrapping_add(LANES);
        }
        for i in 0..H {
            let row = out[i].as_mut_ptr();
            _mm256_storeu_ps(row, acc[i][0]);
            _mm256_storeu_ps(row.add(8), acc[i][1]);
        }
    }
}

/// `rounds` times ten independent chains of eight lanes: enough to hide the latency of two units. Nothing is kept; it
/// only keeps the multipliers busy.
pub(super) fn multiply_adds(simd: Simd, rounds: usize) {
    match simd {
        Simd::Portable => {
            let (x, y) = std::hint::black_box((0.999f32, 1e-3f32));
            let mut acc = std::hint::black_box([1.0f32; 80]);
            for _ in 0..rounds {
                acc.iter_mut().for_each(|a| *a = *a * x + y);
            }
            std::hint::black_box(&acc);
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Simd::Avx2` exists only where AVX2 and FMA were detected.
        Simd::Avx2(_) => unsafe { multiply_adds_avx2(rounds) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_adds_avx2(rounds: usize) {
    use core::arch::x86_64::*;
    let (x, y) = std::hint::black_box((_mm256_set1_ps(0.999), _mm256_set1_ps(1e-3)));
    let mut acc = std::hint::black_box([_mm256_set1_ps(1.0); 10]);
    for _ in 0..rounds {
        for a in &mut acc {
            *a = _mm256_fmadd_ps(*a, x, y);
        }
    }
    std::hint::black_box(&acc);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_row_once_and_are_even() {
        for rows in 0..200 {
            let all: Vec<_> = tiles(rows).collect();
            assert_eq!(all.iter().map(|t| t.1).sum::<usize>(), rows);
            assert!(all.windows(2).all(|w| w[0].0 + w[0].1 == w[1].0));
            assert!(all.iter().all(|t| t.1 <= TILE && (rows < 20 || t.1 >= 5)));
        }
    }
}
