//! The multiply kernels: the only file that knows the machine.
//!
//! Every product in this library is `Σ_k a[i][k] * b[k][j]` for 16 columns j (a *panel*), or two panels, and a few rows i
//! at a time (a *tile*). Each element is one chain of fused multiply-adds in the order of k, whatever tile it falls into.
//! So results depend neither on how rows and panels are shared among threads nor on how wide the machine's vectors are.
//!
//! Why not a library: a general product packs both operands at every call; here weights and activations stay in the
//! packed form of [`super::packed_matrix`] between calls. On one Zen 3 core with a peak of 104 GFLOP/s, the best of 400 runs
//! was 100 here and 88 with the `gemm` crate 0.19 for 128 × 257 × 256, and 96 and 94 for 128 × 401 × 400.

use super::buffer::{LANES, Line};
use super::math::{Arithmetic, Emulated, Fused};

/// A square of 16 rows and columns.
pub(crate) type Block = [f32; LANES * LANES];

/// Which instructions a network uses. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simd {
    /// Plain Rust, vectorised by the compiler as far as the target allows.
    Portable,
    /// AVX2 and FMA. Made by [`Simd::all`] only on machines that have them.
    #[cfg(target_arch = "x86_64")]
    Avx2(Detected),
    /// AVX-512 (F, VL, BW and DQ). Made by [`Simd::all`] only on machines that have it.
    #[cfg(target_arch = "x86_64")]
    Avx512(Detected),
}

/// Proof that the instructions were found: only this file can make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detected(());

impl Simd {
    /// The best this machine can do.
    pub fn detect() -> Self {
        Self::all()[0]
    }

    /// All that this machine can do, best first.
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            all.insert(0, Self::Avx2(Detected(())));
            let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
            if wide && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512dq") {
                all.insert(0, Self::Avx512(Detected(())));
            }
        }
        all
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "plain Rust",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "AVX-512",
        }
    }
}

/// How a machine multiplies.
pub(crate) trait Kernel {
    /// How elementwise functions multiply and add.
    type Arithmetic: Arithmetic;
    /// The sums of one panel's share of a tile.
    type Tile: AsRef<[Line]> + AsMut<[Line]> + Copy;
    /// A tile before anything is added.
    const ZEROS: Self::Tile;
    /// Most rows of a tile of one panel and of two; no rows: panels are taken one by one.
    const ROWS: [usize; 2];
    /// `out[p][i] += Σ_k a[i][k] * b[p][k]` for `height` rows and `P` panels, k ascending. Element a[i][k] is at
    /// `i*ROW + k%16*COL + k/16*jump`, row b[p][k] at `16*k`.
    ///
    /// # Safety
    /// All of those lie inside their allocations, `height` is in 1..=ROWS[P - 1], and the machine has the instructions
    /// the kernel is named for.
    unsafe fn accumulate<const P: usize, const ROW: usize, const COL: usize>(
        height: usize,
        a: *const f32,
        b: [*const f32; P],
        len: usize,
        jump: usize,
        out: &mut [Self::Tile; P],
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
    ($(#[$doc:meta])* $vis:vis $name:ident, $wide:ident, ($($arg:ident: $type:ty),*)) => {
        $(#[$doc])*
        $vis fn $name(simd: $crate::nn::Simd, $($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $type),*) {
                $wide::<$crate::nn::matmul::Avx2>($($arg),*);
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
            fn avx512($($arg: $type),*) {
                $wide::<$crate::nn::matmul::Avx512>($($arg),*);
            }
            match simd {
                $crate::nn::Simd::Portable => $wide::<$crate::nn::matmul::Portable>($($arg),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a `Simd::Avx2` exists only where AVX2 and FMA were detected.
                $crate::nn::Simd::Avx2(_) => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a `Simd::Avx512` exists only where all of these were detected.
                $crate::nn::Simd::Avx512(_) => unsafe { avx512($($arg),*) },
            }
        }
    };
}
pub(crate) use dispatch;

/// Calls `$name::<H, P, ROW, COL>` for the height H that `$height` has.
macro_rules! by_height {
    ($height:expr, $name:ident, $args:tt, $($h:literal)*) => {
        match $height {
            $($h => $name::<$h, P, ROW, COL> $args,)*
            height => unreachable!("a tile of {height} rows"),
        }
    };
}

/// Splits `rows` into the fewest tiles of at most `most`, as even as possible: full tiles keep the multipliers busy, a
/// left-over tile of one or two rows would wait on its own latency. Yields (first row, height).
#[inline(always)]
pub(super) fn tiles(rows: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = rows.div_ceil(most);
    let (base, extra) = (rows / count.max(1), rows % count.max(1));
    (0..count).map(move |i| (i * base + i.min(extra), base + usize::from(i < extra)))
}

/// Plain Rust.
pub(crate) struct Portable;

/// Rows of a tile where vectors hold eight floats: 6 × 16 sums fill twelve of sixteen registers.
const NARROW: usize = 6;

impl Kernel for Portable {
    type Arithmetic = Emulated;
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
        out: &mut [Self::Tile; P],
    ) {
        for k in 0..len {
            for (b, out) in b.iter().zip(&mut *out) {
                // SAFETY: the caller vouches for both operands up to `len`.
                unsafe {
                    let row = &*b.add(k * LANES).cast::<Line>();
                    for (i, sums) in out[..height].iter_mut().enumerate() {
                        let x = *a.add(i * ROW + k % LANES * COL + k / LANES * jump);
                        for (sum, w) in sums.iter_mut().zip(row) {
                            *sum = Emulated::mul_add(x, *w, *sum);
                        }
                    }
                }
            }
        }
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
pub(crate) struct Avx2;

#[cfg(target_arch = "x86_64")]
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
        out: &mut [Self::Tile; P],
    ) {
        // SAFETY: passed on; panels are taken one by one.
        unsafe { by_height!(height, accumulate_avx2, (a, b, len, jump, out), 6 5 4 3 2 1) }
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

/// AVX-512.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Avx512;

/// Rows of a tile of two panels where a vector holds a line: 12 × 2 sums fill 24 of 32 registers, and each number of `a` is
/// read once for two products.
const WIDE: usize = 12;

#[cfg(target_arch = "x86_64")]
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
        out: &mut [Self::Tile; P],
    ) {
        // SAFETY: passed on. Inline constants keep the compiler from making tiles that no register file could hold.
        unsafe {
            if const { P == 1 } {
                by_height!(height, accumulate_avx512, (a, b, len, jump, out), 16 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1)
            } else {
                by_height!(height, accumulate_avx512, (a, b, len, jump, out), 12 11 10 9 8 7 6 5 4 3 2 1)
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
    fn prefetch_later(p: *const f32) {
        Avx2::prefetch_later(p);
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
/// As for [`Kernel::accumulate`], with a height of `H`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[expect(clippy::needless_range_loop, reason = "see the first loop")]
unsafe fn accumulate_avx2<const H: usize, const P: usize, const ROW: usize, const COL: usize>(
    mut a: *const f32,
    b: [*const f32; P],
    len: usize,
    jump: usize,
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

/// # Safety
/// As for [`Kernel::accumulate`], with a height of `H`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
#[expect(clippy::needless_range_loop, reason = "see the first loop")]
unsafe fn accumulate_avx512<const H: usize, const P: usize, const ROW: usize, const COL: usize>(
    mut a: *const f32,
    mut b: [*const f32; P],
    len: usize,
    jump: usize,
    out: &mut [[Line; LANES]; P],
) {
    use core::arch::x86_64::*;
    const { assert!(H <= LANES) };
    // SAFETY: `out` has sixteen rows of 16 floats; `a` and `b` are vouched for by the caller up to `len`. Pointers past
    // the last element are formed by wrapping arithmetic and never read.
    unsafe {
        let mut acc = [[_mm512_setzero_ps(); P]; H];
        // Plain indices: iterator adaptors over vector types are not always inlined here.
        for i in 0..H {
            for p in 0..P {
                acc[i][p] = _mm512_loadu_ps(out[p][i].as_ptr());
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

/// Chains of [`multiply_adds`].
pub(super) const CHAINS: usize = 10;

/// `rounds` times ten independent chains of multiply-adds: enough to hide the latency of two units. Nothing is kept; it
/// only keeps the multipliers busy. Returns how many floats a chain has.
pub(super) fn multiply_adds(simd: Simd, rounds: usize) -> usize {
    match simd {
        Simd::Portable => {
            let (x, y) = std::hint::black_box((0.999f32, 1e-3f32));
            let mut acc = std::hint::black_box([1.0f32; CHAINS * 8]);
            for _ in 0..rounds {
                acc.iter_mut().for_each(|a| *a = *a * x + y);
            }
            std::hint::black_box(&acc);
            8
        }
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2(_) => {
            // SAFETY: a `Simd::Avx2` exists only where AVX2 and FMA were detected.
            unsafe { multiply_adds_avx2(rounds) };
            8
        }
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512(_) => {
            // SAFETY: a `Simd::Avx512` exists only where it was detected.
            unsafe { multiply_adds_avx512(rounds) };
            16
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_adds_avx2(rounds: usize) {
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

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn multiply_adds_avx512(rounds: usize) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_row_once_and_are_even() {
        for (rows, most) in (0..200).flat_map(|rows| [(rows, NARROW), (rows, WIDE), (rows, LANES)]) {
            let all: Vec<_> = tiles(rows, most).collect();
            assert_eq!(all.iter().map(|t| t.1).sum::<usize>(), rows);
            assert!(all.windows(2).all(|w| w[0].0 + w[0].1 == w[1].0));
            assert_eq!(all.len(), rows.div_ceil(most), "the fewest");
            let heights = || all.iter().map(|t| t.1);
            assert!(heights().all(|h| h <= most));
            assert!(heights().max().unwrap_or(0) <= heights().min().unwrap_or(0) + 1, "as even as possible");
        }
    }
}
