//! The machine's peak speed, to compare every speed figure of this module with.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use super::matmul::{CHAINS, Simd, multiply_adds};
use super::thread_pool::ThreadPool;

/// Rounds of one measurement: some 4 ms on a core of 3 GHz.
const ROUNDS: usize = 400_000;

/// Multiply-adds from registers alone on every thread of the pool: floating-point operations a second.
///
/// The figure holds for *now*: measure it in turns with whatever is compared with it.
pub fn peak(pool: &ThreadPool) -> f64 {
    let simd = Simd::detect();
    let start = Instant::now();
    let lanes = AtomicUsize::new(0);
    pool.for_each(pool.threads(), |_| lanes.store(multiply_adds(simd, ROUNDS), Relaxed));
    (pool.threads() * ROUNDS * CHAINS * lanes.into_inner() * 2) as f64 / start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_at_least_a_billion_operations_a_second() {
        let peak = peak(&ThreadPool::new(1));
        assert!(peak > 1e9 && peak.is_finite(), "{peak}");
    }
}
