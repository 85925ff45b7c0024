//! Which threads a search runs on. The choice never changes a result.

use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::OnceLock;

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
    Own(Own),
}

/// A pool that outlives a fork of its process: threads do not cross a fork, so a child (Python's multiprocessing makes
/// such) that finds its parent's pool makes one of its own.
#[derive(Debug)]
pub(crate) struct Own {
    process: u32,
    pool: rayon::ThreadPool,
    threads: usize,
    /// The pool of a forked child; it lives in the child's memory alone. No lock is taken to read it, because a lock
    /// held at the moment of the fork would stay held in the child for ever.
    child: OnceLock<Box<Own>>,
}

impl Own {
    fn new(threads: usize) -> Result<Own> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("knn-{i}"))
            .build()
            .map_err(|e| Error::Threads { threads, why: e.to_string() })?;
        Ok(Own { process: std::process::id(), pool, threads, child: OnceLock::new() })
    }

    /// Runs `job` on this process's threads.
    fn install<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        if self.process == std::process::id() {
            return self.pool.install(job);
        }
        if let Some(child) = self.child.get() {
            return child.install(job);
        }
        // A machine that started them in the parent starts them here, too, unless it is out of threads; nothing sensible
        // is left to do then.
        let own = Own::new(self.threads).expect("a forked process can start threads as its parent could");
        self.child.get_or_init(|| Box::new(own)).install(job)
    }
}

impl Pool {
    pub(crate) fn new(threads: Threads) -> Result<Pool> {
        match threads {
            Threads::Ambient => Ok(Pool::Ambient),
            Threads::Exactly(0 | 1) => Ok(Pool::Inline),
            Threads::Exactly(n) => Own::new(n).map(Pool::Own),
        }
    }

    pub(crate) fn width(&self) -> usize {
        match self {
            Pool::Ambient => rayon::current_num_threads(),
            Pool::Inline => 1,
            Pool::Own(own) => own.threads,
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
        self.enter(|| (0..count).into_par_iter().with_max_len(1).map(|i| job(range(i))).collect())
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
            Pool::Own(own) => own.install(job),
            Pool::Ambient | Pool::Inline => job(),
        }
    }
}
