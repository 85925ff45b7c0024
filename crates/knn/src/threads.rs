//! Which threads a search runs on. The choice never changes a result.

use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;

/// How many threads an index uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Threads {
    /// The rayon pool of the caller (all cores unless the caller chose otherwise).
    #[default]
    Ambient,
    /// A pool of exactly this many threads, owned by the index; 1 means the calling thread. 0 counts as 1.
    Exactly(usize),
}

/// The running form of [`Threads`].
#[derive(Debug)]
pub(crate) enum Pool {
    Ambient,
    Inline,
    Own(rayon::ThreadPool),
}

impl Pool {
    pub(crate) fn new(threads: Threads) -> Result<Pool> {
        match threads {
            Threads::Ambient => Ok(Pool::Ambient),
            Threads::Exactly(0 | 1) => Ok(Pool::Inline),
            Threads::Exactly(n) => rayon::ThreadPoolBuilder::new()
                .num_threads(n)
                .thread_name(|i| format!("knn-{i}"))
                .build()
                .map(Pool::Own)
                .map_err(|e| Error::Threads { threads: n, why: e.to_string() }),
        }
    }

    pub(crate) fn width(&self) -> usize {
        match self {
            Pool::Ambient => rayon::current_num_threads(),
            Pool::Inline => 1,
            Pool::Own(pool) => pool.current_num_threads(),
        }
    }

    /// Runs `job` over 0..n in pieces of at most `piece`, returning the results in order.
    pub(crate) fn pieces<T: Send>(
        &self,
        n: usize,
        piece: usize,
        job: impl Fn(Range<usize>) -> T + Sync,
    ) -> Vec<T> {
        let piece = piece.max(1);
        let count = n.div_ceil(piece);
        let range = |i: usize| i * piece..((i + 1) * piece).min(n);
        if count <= 1 || self.width() == 1 {
            // No hand-over to another thread: it would cost more than a small batch does.
            return (0..count).map(|i| job(range(i))).collect();
        }
        let run = || (0..count).into_par_iter().with_max_len(1).map(|i| job(range(i))).collect();
        match self {
            Pool::Own(pool) => pool.install(run),
            Pool::Ambient | Pool::Inline => run(),
        }
    }

    /// Runs `job` over `data` in chunks of `size`, each with its number.
    pub(crate) fn chunks<T: Send>(
        &self,
        data: &mut [T],
        size: usize,
        job: impl Fn(usize, &mut [T]) + Sync + Send,
    ) {
        if self.width() == 1 {
            data.chunks_mut(size).enumerate().for_each(|(i, chunk)| job(i, chunk));
        } else {
            self.enter(|| data.par_chunks_mut(size).enumerate().for_each(|(i, chunk)| job(i, chunk)));
        }
    }

    /// Runs `job` where nested rayon calls use this pool.
    pub(crate) fn enter<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        match self {
            Pool::Own(pool) => pool.install(job),
            Pool::Ambient | Pool::Inline => job(),
        }
    }
}
