//! The thread pool of training. Gradient steps and networks use this pool, data and evaluation use rayon's, and
//! `offing-knn` has one of its own for searches.
//!
//! A gradient step is a handful of jobs of a millisecond, so handing one over must cost microseconds: workers spin for
//! a moment before they sleep, and a job whose tasks are all taken ends without waiting for sleepers to wake.
//!
//! ```
//! use offing::nn::ThreadPool;
//! let pool = ThreadPool::new(2);
//! let mut squares = vec![0usize; 100];
//! pool.for_each_mut(&mut squares, |i, square| *square = i * i);
//! assert_eq!(squares[99], 9801);
//! ```

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::{self, JoinHandle};

/// Set in [`Shared::gate`] while a job takes helpers.
const OPEN: u64 = 1 << 32;
/// One job more, in [`Shared::gate`].
const NEXT: u64 = 1 << 33;
/// How many helpers are inside, in [`Shared::gate`].
const INSIDE: u64 = OPEN - 1;
/// Turns of waiting before a worker sleeps: some 200 µs, longer than the gaps inside a gradient step.
const PATIENCE: u32 = 10_000;

/// Items of an iterator that are handed out at a time.
const BATCH: usize = 64;

/// A fixed number of threads, the caller among them. Clones share the threads.
#[derive(Clone, Debug)]
pub struct ThreadPool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held for the length of a job. Whoever finds it taken does the job alone.
    busy: Mutex<()>,
}

#[derive(Debug)]
struct Shared {
    /// Helpers inside, whether the job is open, and the job's number, in one word, so that a late worker cannot enter
    /// a job that has ended.
    gate: AtomicU64,
    /// How many of each thread's own tasks have been taken.
    taken: Vec<Taken>,
    job: UnsafeCell<Option<Job>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    asleep: Vec<AtomicBool>,
    quit: AtomicBool,
}

/// A counter on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Taken(AtomicUsize);

#[derive(Clone, Copy)]
struct Job {
    task: *const (dyn Fn(usize) + Sync),
    count: usize,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({} tasks)", self.count)
    }
}

// SAFETY: `job` is written only by the holder of `busy` while no helper is inside (the gate's count is 0 and it is
// closed), and read only by helpers that entered through the gate; entering acquires what opening released.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` refers to a `Sync` closure, which may be called from any thread.
unsafe impl Send for Shared {}

impl ThreadPool {
    /// A pool of `threads` threads (at least 1), the caller included.
    pub fn new(threads: usize) -> Self {
        let helpers = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            taken: (0..=helpers).map(|_| Taken::default()).collect(),
            job: UnsafeCell::new(None),
            panic: Mutex::new(None),
            asleep: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
            quit: AtomicBool::new(false),
        });
        let workers = (0..helpers)
            .filter_map(|id| {
                let shared = shared.clone();
                // A thread that cannot be started leaves a smaller pool: the same results, later.
                thread::Builder::new().name(format!("offing-{id}")).spawn(move || shared.work(id)).ok()
            })
            .collect();
        Self(Arc::new(Inner { shared, workers, busy: Mutex::new(()) }))
    }

    /// A pool as large as the machine.
    pub fn of_machine() -> Self {
        Self::new(thread::available_parallelism().map_or(1, usize::from))
    }

    /// Number of threads, the caller included.
    pub fn threads(&self) -> usize {
        self.0.workers.len() + 1
    }

    /// Jobs that were shared among the threads so far: so often they waited for each other.
    pub fn jobs(&self) -> u64 {
        self.0.shared.gate.load(Ordering::Relaxed) / NEXT
    }

    /// Cuts `rows` rows into shards: as many for each thread, of at most 128 rows, whose activations (of 400 units) just
    /// fit a core's own cache.
    pub fn shards(&self, rows: usize) -> impl Iterator<Item = Range<usize>> + Clone + use<> {
        Self::shards_of(self.threads(), rows)
    }

    /// [`ThreadPool::shards`] of a pool of so many threads.
    pub fn shards_of(threads: usize, rows: usize) -> impl Iterator<Item = Range<usize>> + Clone + use<> {
        let count = (threads * rows.div_ceil(threads * 128)).clamp(1, rows.max(1));
        (0..count).map(move |i| i * rows / count..(i + 1) * rows / count)
    }

    /// Calls `task(0)` … `task(count - 1)`, each once, in any order, and returns when all are done.
    pub fn for_each(&self, count: usize, task: impl Fn(usize) + Sync) {
        // A second caller, or a task that itself asks for help, works alone: the result is the same.
        let alone = count < 2 || self.0.workers.is_empty();
        let held = match self.0.busy.try_lock() {
            _ if alone => None,
            Ok(held) => Some(held),
            // A job that panicked has left the gate closed and empty: the next one is shared like any other.
            Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        match held {
            None => (0..count).for_each(task),
            Some(_held) => self.0.share(count, &task),
        }
    }

    /// Calls `task(i, &mut items[i])` for every item, each once, in any order.
    pub fn for_each_mut<T: Send>(&self, items: &mut [T], task: impl Fn(usize, &mut T) + Sync) {
        let base = Base(items.as_mut_ptr());
        let base = &base;
        self.for_each(items.len(), move |i| {
            // SAFETY: i < items.len(), and `for_each` calls with each i once, so this is the only reference to the
            // item; `items` stays borrowed until all calls have returned.
            task(i, unsafe { &mut *base.0.add(i) });
        });
    }

    /// Calls `task(i, &mut item)` for every item of an iterator, each once. They are handed out so many at a time, so that no list
    /// of them is allocated.
    pub(crate) fn for_each_item<T: Send>(
        &self,
        mut items: impl Iterator<Item = T>,
        task: impl Fn(usize, &mut T) + Sync,
    ) {
        let mut batch = [const { None::<T> }; BATCH];
        for first in (0..).step_by(BATCH) {
            let slots = batch.iter_mut().zip(&mut items);
            let count = slots.map(|(slot, item)| *slot = Some(item)).count();
            self.for_each_mut(&mut batch[..count], |i, item| {
                item.iter_mut().for_each(|item| task(first + i, item));
            });
            if count < BATCH {
                return;
            }
        }
    }

    /// Cuts items into blocks of as many as the last of `ends`, and each block into parts that end there. Calls `task` with the
    /// place of a part's first item and the part, for each part once, in any order. Two items at a time cost no list.
    pub(super) fn for_each_part_mut<T: Send>(
        &self,
        items: &mut [T],
        ends: &[usize],
        task: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let block = ends.last().copied().unwrap_or(0);
        let fits = ends.is_sorted() && block > 0 && items.len().is_multiple_of(block);
        assert!(fits, "ends in order, and whole blocks: {} items, {ends:?}", items.len());
        let blocks = items.len() / block;
        let base = Base(items.as_mut_ptr());
        let base = &base;
        // Block after block in turn: with as many threads as blocks, each thread always has the same ones.
        self.for_each(blocks * ends.len(), move |i| {
            let place = i / blocks;
            let start = if place == 0 { 0 } else { ends[place - 1] };
            let first = i % blocks * block + start;
            // SAFETY: parts lie inside `items`, whose length is a multiple of `block`, and do not overlap, as `ends` are in
            // order; `for_each` calls with each i once, and `items` stays borrowed until all calls have returned.
            task(first, unsafe { std::slice::from_raw_parts_mut(base.0.add(first), ends[place] - start) });
        });
    }
}

/// Where items of a slice begin.
struct Base<T>(*mut T);
// SAFETY: used only to reach distinct items, which are `Send`.
unsafe impl<T: Send> Sync for Base<T> {}

impl Inner {
    fn share(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        // SAFETY: erases the lifetime. Helpers call `task` only between entering and leaving the gate, and this
        // function does not return (or unwind) before the gate is closed and empty.
        let task: *const (dyn Fn(usize) + Sync) =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(task) };
        // SAFETY: `busy` is held and the gate is closed and empty: nobody else looks at the job.
        unsafe { *shared.job.get() = Some(Job { task, count }) };
        shared.taken.iter().for_each(|taken| taken.0.store(0, Ordering::Relaxed));
        let closed = shared.gate.load(Ordering::Relaxed);
        shared.gate.store(closed.wrapping_add(NEXT) | OPEN, Ordering::SeqCst);
        for (worker, asleep) in self.workers.iter().zip(&shared.asleep) {
            if asleep.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        let mine = catch_unwind(AssertUnwindSafe(|| shared.take_tasks(0, Job { task, count })));
        shared.gate.fetch_and(!OPEN, Ordering::AcqRel);
        let mut turns = 0u32;
        while shared.gate.load(Ordering::Acquire) & INSIDE != 0 {
            pause(&mut turns);
        }
        // Taken in any case: what stayed would be taken for a panic of the next job.
        let theirs = shared.panic.lock().ok().and_then(|mut slot| slot.take());
        if let Some(payload) = mine.err().or(theirs) {
            resume_unwind(payload);
        }
    }
}

impl Shared {
    /// Does the thread's own tasks, which are every so manieth, and then what others have left. Weights, moments and buffers
    /// so stay with one core from job to job; to fetch them from another's cache takes several times as long.
    fn take_tasks(&self, thread: usize, job: Job) {
        let threads = self.taken.len();
        for owner in (thread..threads).chain(0..thread) {
            loop {
                let i = owner + threads * self.taken[owner].0.fetch_add(1, Ordering::Relaxed);
                if i >= job.count {
                    break;
                }
                // SAFETY: the caller is inside the gate (or opened it), so the closure is still borrowed.
                unsafe { (*job.task)(i) };
            }
        }
    }

    /// What a worker does until the pool is dropped.
    fn work(&self, id: usize) {
        let mut served = 0;
        loop {
            let Some(number) = self.enter(id, served) else { return };
            served = number;
            // SAFETY: inside the gate: the job was written before the gate opened and stays until we leave.
            let job = unsafe { *self.job.get() };
            if let Some(job) = job
                && let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.take_tasks(id + 1, job)))
            {
                // Nobody is to take tasks of a failed job.
                self.taken.iter().for_each(|taken| taken.0.store(job.count, Ordering::Relaxed));
                if let Ok(mut slot) = self.panic.lock() {
                    slot.get_or_insert(payload);
                }
            }
            self.gate.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Waits for a job other than `served` and enters it; `None` when the pool is dropped.
    fn enter(&self, id: usize, served: u64) -> Option<u64> {
        let mut turns = 0u32;
        loop {
            if self.quit.load(Ordering::Acquire) {
                return None;
            }
            let gate = self.gate.load(Ordering::Acquire);
            if gate & OPEN != 0 && gate / NEXT != served {
                let entered = self.gate.compare_exchange(gate, gate + 1, Ordering::AcqRel, Ordering::Relaxed);
                if entered.is_ok() {
                    return Some(gate / NEXT);
                }
            } else if turns < PATIENCE {
                turns += 1;
                std::hint::spin_loop();
            } else {
                self.asleep[id].store(true, Ordering::SeqCst);
                // Look once more: a job opened before the flag was seen would not wake us.
                let gate = self.gate.load(Ordering::SeqCst);
                if (gate & OPEN == 0 || gate / NEXT == served) && !self.quit.load(Ordering::SeqCst) {
                    thread::park();
                }
                self.asleep[id].store(false, Ordering::SeqCst);
                turns = 0;
            }
        }
    }
}

/// Spins, then lets others run: on a machine with more work than cores the awaited thread needs our core.
fn pause(turns: &mut u32) {
    *turns += 1;
    if *turns < 2_000 {
        std::hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker that panicked outside a task has nothing left to report.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_every_item_once() {
        for threads in [1, 3] {
            let mut items = vec![(0usize, 0usize); 14];
            ThreadPool::new(threads).for_each_part_mut(&mut items, &[2, 4, 5, 7], |first, part| {
                let length = part.len();
                part.iter_mut().for_each(|item| *item = (item.0 + 1, 100 * first + length));
            });
            let parts = [(0, 2), (2, 2), (4, 1), (5, 2), (7, 2), (9, 2), (11, 1), (12, 2)];
            let wanted: Vec<_> =
                parts.iter().flat_map(|&(first, n)| std::iter::repeat_n((1, 100 * first + n), n)).collect();
            assert_eq!(items, wanted);
        }
    }

    #[test]
    fn every_item_of_an_iterator_is_taken_once_with_its_number() {
        for (threads, count) in [(1, 0), (2, 3), (3, BATCH), (2, BATCH + 1), (2, 3 * BATCH)] {
            let mut hits = vec![0; count];
            let items = hits.iter_mut().enumerate();
            ThreadPool::new(threads)
                .for_each_item(items, |i, (number, hit)| **hit += usize::from(i == *number));
            assert!(hits.iter().all(|&h| h == 1), "{threads} threads, {count} items");
        }
    }

    #[test]
    fn every_task_runs_once_for_any_number_of_threads() {
        for threads in [1, 2, 3, 8] {
            let pool = ThreadPool::new(threads);
            for round in 0..2_000usize {
                let mut hits = vec![0u8; round % 37];
                pool.for_each_mut(&mut hits, |_, h| *h += 1);
                assert!(hits.iter().all(|&h| h == 1));
            }
        }
    }

    #[test]
    fn a_job_inside_a_job_and_two_callers_at_once_are_served() {
        let pool = ThreadPool::new(2);
        let sum = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    pool.for_each(10, |_| {
                        pool.for_each(10, |i| {
                            sum.fetch_add(i, Ordering::Relaxed);
                        });
                    });
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * 10 * 45);
    }

    #[test]
    fn a_panic_in_two_threads_of_a_job_does_not_reach_the_next_job() {
        let pool = ThreadPool::new(2);
        for _ in 0..20 {
            // Each thread has a task before either panics.
            let both = std::sync::Barrier::new(2);
            let failed = catch_unwind(AssertUnwindSafe(|| {
                pool.for_each(2, |_| {
                    both.wait();
                    panic!("of this job");
                });
            }));
            assert!(failed.is_err());
            pool.for_each(2, |_| {});
        }
    }

    #[test]
    fn sleeping_workers_wake_and_a_panic_reaches_the_caller() {
        let pool = ThreadPool::new(2);
        thread::sleep(std::time::Duration::from_millis(20));
        for task in 0..50 {
            let failed = catch_unwind(AssertUnwindSafe(|| {
                pool.for_each(50, |i| assert!(i != task, "task {i}"));
            }));
            assert!(failed.is_err());
            pool.for_each(10, |_| {});
        }
    }
}
