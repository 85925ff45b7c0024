//! Batches: queries are prepared, sorted by the leaf they fall into so that neighbours share caches, walked by
//! as many threads as there are, and put back in their order.

use super::group::Group;
use super::kernels::{Kernel, Width};
use super::kernels_portable::Portable;
use super::layout::FAN;
use super::project::Image;
use super::query::Prepared;
use super::walk::{Job, Task, Walker};
use super::{Parts, Tree};
use crate::Metric;
use crate::neighbors::Best;

/// Most queries that walk together: their lanes fit the second-level cache.
pub(crate) const GROUP: usize = 1024;

/// What a walk found.
pub(crate) struct Outcome<'a> {
    pub(crate) best: &'a Best,
    /// The walk ended early because the k-th neighbour is near enough.
    pub(crate) stopped: bool,
}

impl Tree {
    /// Walks every query and collects what `take` writes for each, in the order of the queries. Every query
    /// must yield the same number of items.
    pub(crate) fn walk_all<T: Copy + Send + Sync>(
        &self,
        queries: &[f32],
        k: usize,
        task: &Task,
        take: impl Fn(Outcome, &mut Vec<T>) + Sync,
    ) -> Vec<T> {
        let dim = self.parts.layout.dim;
        let count = queries.len() / dim;
        let query = |i: usize| &queries[i * dim..(i + 1) * dim];
        let piece = self.piece(count);
        let mut order: Vec<u64> = self
            .pool
            .pieces(count, piece, |range| {
                let mut image = Image::default();
                range
                    .map(|i| (u64::from(self.leaf_of(query(i), &mut image)) << 32) | i as u64)
                    .collect::<Vec<_>>()
            })
            .concat();
        order.sort_unstable();
        let lists = self.pool.pieces(count, piece, |range| {
            // Preparing a query twice is cheaper than keeping it in between.
            let mut image = Image::default();
            let mut jobs = order[range].iter().map(|&key| {
                let number = key as u32;
                let query = query(number as usize);
                Job { number, query, prepared: self.prepare(query, &mut image), task: *task }
            });
            let (mut out, mut numbers) = (Vec::new(), Vec::new());
            self.walk(k, &mut jobs, &mut |walker| {
                numbers.push(walker.job.number);
                take(Outcome { best: &walker.best, stopped: walker.stopped }, &mut out);
            });
            (numbers, out)
        });
        in_order(lists)
    }

    /// Queries one task takes: enough tasks to balance threads, enough queries to share caches.
    fn piece(&self, count: usize) -> usize {
        let tasks = if self.pool.width() == 1 { 1 } else { 4 * self.pool.width() };
        count.div_ceil(tasks).clamp(4, GROUP)
    }

    /// A query made ready.
    pub(crate) fn prepare(&self, query: &[f32], image: &mut Image) -> Prepared {
        #[cfg(target_arch = "x86_64")]
        if self.width >= Width::Avx2 {
            // SAFETY: the processor has what `width` says.
            return unsafe { prepare_avx2(&self.parts, query, image) };
        }
        Prepared::new(&self.parts, query, image)
    }

    /// The leaf a query falls into when it always takes the nearest child.
    fn leaf_of(&self, query: &[f32], image: &mut Image) -> u32 {
        if self.parts.layout.levels.is_empty() {
            return 0;
        }
        let q = self.prepare(query, image);
        // SAFETY: the processor has what `width` says; the portable loops run anywhere.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if self.width >= Width::Avx2 {
                return leaf_avx2(&self.parts, &q);
            }
            nearest_leaf::<Portable>(&self.parts, &q)
        }
    }

    /// Walks all `jobs` (at most 65536) and shows each finished walker to `done`, in no particular order.
    pub(crate) fn walk<'q>(
        &'q self,
        k: usize,
        jobs: &mut dyn Iterator<Item = Job<'q>>,
        done: &mut dyn FnMut(&Walker<'q>),
    ) {
        let l1 = self.parts.metric == Metric::Manhattan;
        // SAFETY: the processor has what `width` says; the portable loops run anywhere.
        unsafe {
            match (self.width, l1) {
                #[cfg(target_arch = "x86_64")]
                (Width::Avx512, false) => walk_avx512(&self.parts, k, jobs, done),
                #[cfg(target_arch = "x86_64")]
                (Width::Avx2, false) => walk_avx2::<false>(&self.parts, k, jobs, done),
                // Manhattan searches measure more rows than they skip, and are no faster with AVX-512.
                #[cfg(target_arch = "x86_64")]
                (Width::Avx2 | Width::Avx512, true) => walk_avx2::<true>(&self.parts, k, jobs, done),
                (_, false) => walk::<Portable, false>(&self.parts, k, jobs, done),
                (_, true) => walk::<Portable, true>(&self.parts, k, jobs, done),
            }
        }
    }
}

/// Lists of answers, equally many a query, put in the order of the queries' numbers beside them.
pub(crate) fn in_order<T: Copy>(lists: Vec<(Vec<u32>, Vec<T>)>) -> Vec<T> {
    let total = lists.iter().map(|l| l.1.len()).sum();
    let Some(&first) = lists.first().and_then(|l| l.1.first()) else { return Vec::new() };
    let mut out = vec![first; total];
    for (numbers, list) in lists {
        let each = list.len() / numbers.len();
        for (items, number) in list.chunks_exact(each).zip(numbers) {
            out[number as usize * each..(number as usize + 1) * each].copy_from_slice(items);
        }
    }
    out
}

/// # Safety
/// Needs AVX2, BMI and POPCNT.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
unsafe fn walk_avx2<'q, const L1: bool>(
    parts: &'q Parts,
    k: usize,
    jobs: &mut dyn Iterator<Item = Job<'q>>,
    done: &mut dyn FnMut(&Walker<'q>),
) {
    // SAFETY: the caller has checked for AVX2.
    unsafe { walk::<super::kernels_avx2::Avx2, L1>(parts, k, jobs, done) }
}

/// # Safety
/// As for `walk_avx2`, and AVX-512 (F, BW, VL, VNNI).
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn walk_avx512<'q>(
    parts: &'q Parts,
    k: usize,
    jobs: &mut dyn Iterator<Item = Job<'q>>,
    done: &mut dyn FnMut(&Walker<'q>),
) {
    // SAFETY: the caller has checked for AVX-512.
    unsafe { walk::<super::kernels_avx512::Avx512, false>(parts, k, jobs, done) }
}

/// # Safety
/// The processor must have what `K` needs.
#[inline(always)]
unsafe fn walk<'q, K: Kernel, const L1: bool>(
    parts: &'q Parts,
    k: usize,
    jobs: &mut dyn Iterator<Item = Job<'q>>,
    done: &mut dyn FnMut(&Walker<'q>),
) {
    let mut far = Vec::new();
    let mut near = std::iter::from_fn(|| {
        loop {
            let job = jobs.next()?;
            if !job.prepared.is_far::<L1>(parts.grid.step) {
                return Some(job);
            }
            far.push(job);
        }
    });
    // SAFETY: the caller vouches for the processor.
    unsafe { Group::new(parts, k).run::<K, L1>(&mut near, done) }
    if far.is_empty() {
        return;
    }
    let (mut walker, mut image) = (Walker::new(parts, k), Image::default());
    for job in far {
        walker.begin::<K, L1>(job);
        walker.run_far::<L1>(&mut image);
        done(&walker);
    }
}

/// # Safety
/// Needs AVX2, BMI and POPCNT.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
unsafe fn prepare_avx2(parts: &Parts, query: &[f32], image: &mut Image) -> Prepared {
    Prepared::new(parts, query, image)
}

/// # Safety
/// Needs AVX2, BMI and POPCNT.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
unsafe fn leaf_avx2(parts: &Parts, q: &Prepared) -> u32 {
    // SAFETY: the caller has checked for AVX2.
    unsafe { nearest_leaf::<super::kernels_avx2::Avx2>(parts, q) }
}

/// # Safety
/// The processor must have what `K` needs.
#[inline(always)]
unsafe fn nearest_leaf<K: Kernel>(parts: &Parts, q: &Prepared) -> u32 {
    let layout = &parts.layout;
    let query = &q.node[..layout.node_pairs];
    let mut index = 0;
    for level in (0..layout.levels.len()).rev() {
        let at = layout.node_line(level, index);
        let lines = &parts.nodes[at..at + 2 * layout.node_pairs];
        // SAFETY: the caller vouches for the processor; a node has two lines for each of its pairs.
        let distances = unsafe {
            if parts.metric == Metric::Manhattan {
                K::boxes::<true>(lines, query)
            } else {
                K::boxes::<false>(lines, query)
            }
        };
        let exist = (layout.count_below(level) - index * FAN).min(FAN);
        index = index * FAN + (0..exist).min_by_key(|&c| distances[c]).unwrap_or(0);
    }
    index as u32
}
