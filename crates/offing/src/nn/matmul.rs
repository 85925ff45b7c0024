//! The multiply kernels. This file and [`super::matmul_x86`] are the only ones that know the machine.
//!
//! Every product in this library is `Σ_k a[i][k] * b[k][j]` for 16 columns j (a *panel*), or two panels, and a few rows i
//! at a time (a *tile*). Each element is one chain of fused multiply-adds in the order of k, whatever tile it falls into.
//! So results depend neither on how rows and panels are shared among threads nor on how wide the machine's vectors are.
//!
//! Why not a library: a general product packs both operands at every call; here weights and activations stay in the
//! packed form of [`super::packed_matrix`] between calls. On one Zen 3 core with a peak of 104 GFLOP/s, the best of 400 runs
//! was 100 here and 88 with the `gemm` crate 0.19 for 128 × 257 × 256, and 96 and 94 for 128 × 401 × 400.

use super::buffer::{LANES, Line};
use super::math::{Arithmetic, Emulated};
#[cfg(target_arch = "x86_64")]
use super::matmul_x86::{multiply_adds_avx2, multiply_adds_avx512};

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
    /// Room for a tile.
    const ZEROS: Self::Tile;
    /// Most rows of a tile of one panel and of two; no rows: panels are taken one by one.
    const ROWS: [usize; 2];
    /// `out[p][i] += Σ_k a[i][k] * b[p][k]` for `height` rows and `P` panels, k ascending; `fresh`: `=` in place of `+=`.
    /// Element a[i][k] is at `i*ROW + k%16*COL + k/16*jump`, row b[p][k] at `16*k`.
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
        fresh: bool,
        out: &mut [Self::Tile; P],
    );
    /// `to[j][i] = from[i][j]` for a block of 16 × 16.
    fn transpose(from: &Block, to: &mut Block);
    /// Asks for the cache line at `p`, to be read soon.
    fn prefetch(p: *const f32);
    /// Asks for the cache line at `p`, to be written soon: takes it from other cores, too.
    fn prefetch_to_write(p: *const f32);
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
                $wide::<$crate::nn::matmul_x86::Avx2>($($arg),*);
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
            fn avx512($($arg: $type),*) {
                $wide::<$crate::nn::matmul_x86::Avx512>($($arg),*);
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
pub(super) const NARROW: usize = 6;

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
        fresh: bool,
        out: &mut [Self::Tile; P],
    ) {
        if fresh {
            *out = [Self::ZEROS; P];
        }
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
    fn prefetch_to_write(_: *const f32) {}

    #[inline(always)]
    fn prefetch_later(_: *const f32) {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_row_once_and_are_even() {
        for (rows, most) in (0..200).flat_map(|rows| [(rows, NARROW), (rows, 12), (rows, LANES)]) {
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
