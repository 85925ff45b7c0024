//! The multiply kernels for x86: AVX2 with FMA, and AVX-512.

use super::buffer::{LANES, Line};
use super::math::Fused;
use super::matmul::{Block, CHAINS, Kernel, NARROW};

/// Calls `$name::<H, P, ROW, COL>` for the height H that `$height` has.
macro_rules! by_height {
    ($height:expr, $name:ident, $args:tt, $($h:literal)*) => {
        match $height {
            $($h => $name::<$h, P, ROW, COL> $args,)*
            height => unreachable!("a tile of {height} rows"),
        }
    };
}

/// AVX2 and FMA.
pub(crate) struct Avx2;

impl Kernel for Avx2 {
    type Arithmetic = Fused;
    type Tile = [Line; NARROW];
    const ZEROS: Self::Tile = [[0.0; LANES]; NARROW];
    const ROWS: [usize; 2] = [NARROW, 0];

    #[inline(always)]
    unsafe fn accumulate<const P: usize, const ROW: usize, const COL: usize>(
        height: usize,
        a: *const f32,
        b: [*const f32; P],
        len: usize,
        jump: usize,
        fresh: bool,
        out: &mut [Self::Tile; P],
    ) {
        // SAFETY: passed on; panels are taken one by one.
        unsafe { by_height!(height, accumulate_avx2, (a, b, len, jump, fresh, out), 6 5 4 3 2 1) }
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
    fn prefetch_to_write(p: *const f32) {
        // The intrinsic becomes this instruction only under a target feature that Rust does not name. Machines without it
        // (none has AVX2 but Haswell) do nothing.
        // SAFETY: as above.
        unsafe { core::arch::asm!("prefetchw [{}]", in(reg) p, options(nostack, preserves_flags, readonly)) };
    }

    #[inline(always)]
    fn prefetch_later(p: *const f32) {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) };
    }
}

/// AVX-512.
pub(crate) struct Avx512;

/// Rows of a tile of two panels where a vector holds a line: 12 × 2 sums fill 24 of 32 registers, and each number of `a` is
/// read once for two products.
pub(super) const WIDE: usize = 12;

impl Kernel for Avx512 {
    type Arithmetic = Fused;
    type Tile = [Line; LANES];
    const ZEROS: Self::Tile = [[0.0; LANES]; LANES];
    const ROWS: [usize; 2] = [LANES, WIDE];

    #[inline(always)]
    unsafe fn accumulate<const P: usize, const ROW: usize, const COL: usize>(
        height: usize,
        a: *const f32,
        b: [*const f32; P],
        len: usize,
        jump: usize,
        fresh: bool,
        out: &mut [Self::Tile; P],
    ) {
        // SAFETY: passed on. Inline constants keep the compiler from making tiles that no register file could hold.
        unsafe {
            if const { P == 1 } {
                by_height!(height, accumulate_avx512, (a, b, len, jump, fresh, out), 16 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1)
            } else {
                by_height!(height, accumulate_avx512, (a, b, len, jump, fresh, out), 12 11 10 9 8 7 6 5 4 3 2 1)
            }
        }
    }

    #[inline(always)]
    fn transpose(from: &Block, to: &mut Block) {
        Avx2::transpose(from, to);
    }

    #[inline(always)]
    fn prefetch(p: *const f32) {
        Avx2::prefetch(p);
    }

    #[inline(always)]
    fn prefetch_to_write(p: *const f32) {
        Avx2::prefetch_to_write(p);
    }

    #[inline(always)]
    fn prefetch_later(p: *const f32) {
        Avx2::prefetch_later(p);
    }
}

/// Transposes a square of eight rows, which lie 16 floats apart on both sides.
///
/// # Safety
/// Eight rows of eight floats can be read at `from` and written at `to`.
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
/// As for [`Kernel::accumulate`], with a height of `H`.
#[target_feature(enable = "avx2,fma")]
#[expect(clippy::needless_range_loop, reason = "see the first loop")]
unsafe fn accumulate_avx2<const H: usize, const P: usize, const ROW: usize, const COL: usize>(
    mut a: *const f32,
    b: [*const f32; P],
    len: usize,
    jump: usize,
    fresh: bool,
    out: &mut [[Line; NARROW]; P],
) {
    use core::arch::x86_64::*;
    const { assert!(H <= NARROW) };
    let (mut b, out) = (b[0], &mut out[0]);
    // SAFETY: `out` has six rows of 16 floats; `a` and `b` are vouched for by the caller up to `len`. Pointers past
    // the last element are formed by wrapping arithmetic and never read.
    unsafe {
        let mut acc = [[_mm256_setzero_ps(); 2]; H];
        // Plain indices: iterator adaptors over vector types are not always inlined here.
        if !fresh {
            for i in 0..H {
                let row = out[i].as_ptr();
                acc[i] = [_mm256_loadu_ps(row), _mm256_loadu_ps(row.add(8))];
            }
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

/// # Safety
/// As for [`Kernel::accumulate`], with a height of `H`.
#[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
#[expect(clippy::needless_range_loop, reason = "see the first loop")]
unsafe fn accumulate_avx512<const H: usize, const P: usize, const ROW: usize, const COL: usize>(
    mut a: *const f32,
    mut b: [*const f32; P],
    len: usize,
    jump: usize,
    fresh: bool,
    out: &mut [[Line; LANES]; P],
) {
    use core::arch::x86_64::*;
    const { assert!(H <= LANES) };
    // SAFETY: `out` has sixteen rows of 16 floats; `a` and `b` are vouched for by the caller up to `len`. Pointers past
    // the last element are formed by wrapping arithmetic and never read.
    unsafe {
        let mut acc = [[_mm512_setzero_ps(); P]; H];
        // Plain indices: iterator adaptors over vector types are not always inlined here.
        if !fresh {
            for i in 0..H {
                for p in 0..P {
                    acc[i][p] = _mm512_loadu_ps(out[p][i].as_ptr());
                }
            }
        }
        for _ in 0..len / LANES {
            for k in (0..LANES).step_by(4) {
                for k in k..k + 4 {
                    let mut w = [_mm512_setzero_ps(); P];
                    for p in 0..P {
                        w[p] = _mm512_loadu_ps(b[p].add(k * LANES));
                    }
                    for i in 0..H {
                        let x = _mm512_set1_ps(*a.add(i * ROW + k * COL));
                        for p in 0..P {
                            acc[i][p] = _mm512_fmadd_ps(x, w[p], acc[i][p]);
                        }
                    }
                }
            }
            a = a.wrapping_add(jump);
            for p in 0..P {
                b[p] = b[p].wrapping_add(LANES * LANES);
            }
        }
        for _ in 0..len % LANES {
            for i in 0..H {
                let x = _mm512_set1_ps(*a.add(i * ROW));
                for p in 0..P {
                    acc[i][p] = _mm512_fmadd_ps(x, _mm512_loadu_ps(b[p]), acc[i][p]);
                }
            }
            a = a.wrapping_add(COL);
            for p in 0..P {
                b[p] = b[p].wrapping_add(LANES);
            }
        }
        for i in 0..H {
            for p in 0..P {
                _mm512_storeu_ps(out[p][i].as_mut_ptr(), acc[i][p]);
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn multiply_adds_avx2(rounds: usize) {
    use core::arch::x86_64::*;
    let (x, y) = std::hint::black_box((_mm256_set1_ps(0.999), _mm256_set1_ps(1e-3)));
    let mut acc = std::hint::black_box([_mm256_set1_ps(1.0); CHAINS]);
    for _ in 0..rounds {
        for a in &mut acc {
            *a = _mm256_fmadd_ps(*a, x, y);
        }
    }
    std::hint::black_box(&acc);
}

#[target_feature(enable = "avx512f")]
pub(super) fn multiply_adds_avx512(rounds: usize) {
    use core::arch::x86_64::*;
    let (x, y) = std::hint::black_box((_mm512_set1_ps(0.999), _mm512_set1_ps(1e-3)));
    let mut acc = std::hint::black_box([_mm512_set1_ps(1.0); CHAINS]);
    for _ in 0..rounds {
        for a in &mut acc {
            *a = _mm512_fmadd_ps(*a, x, y);
        }
    }
    std::hint::black_box(&acc);
}
