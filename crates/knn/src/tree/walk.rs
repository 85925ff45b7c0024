//! The walk of a query through the tree: nearest children first, whatever is provably too far left out.
//!
//! A walk is a sequence of small steps, each of which opens one node or compares one leaf and asks the memory
//! for what the next step will read. Several walks take turns, so that the memory has answered by then.

use super::Parts;
use super::kernels::{Kernel, Stack};
use super::layout::{FAN, Line};
use super::query::Prepared;
use super::smallest::Smallest;
use crate::Metric;
use crate::metric::Scales;
use crate::neighbors::{Best, Candidate};

/// What a walk is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    /// Rows with a larger key are of no interest.
    pub(crate) start_key: f64,
    /// The walk may end as soon as the k-th neighbour provably has at most this key.
    pub(crate) stop_key: f64,
    /// 1 / (1 + ε).
    pub(crate) shrink: f64,
    /// A row (by its place in leaf order) that may not be returned.
    pub(crate) skip: u32,
    /// Level and index of the node to stay below; all rows when absent.
    pub(crate) root: Option<(u32, u32)>,
}

impl Task {
    pub(crate) const SEARCH: Task = Task {
        start_key: f64::INFINITY,
        stop_key: f64::NEG_INFINITY,
        shrink: 1.0,
        skip: u32::MAX,
        root: None,
    };
}

/// One query's worth of work.
#[derive(Debug, Clone)]
pub(crate) struct Job<'q> {
    /// The caller's number for it.
    pub(crate) number: u32,
    pub(crate) query: &'q [f32],
    pub(crate) prepared: Prepared,
    pub(crate) task: Task,
}

/// A place in the tree in one number: level (0 for leaves, l + 1 for nodes of level l) and index.
const INDEX_BITS: u32 = 28;

/// Pending rows are measured at the latest when there are this many (or this many for each neighbour wanted: their upper
/// bounds tighten the search without being measured).
const MOST_PENDING: usize = 64;
const MOST_PENDING_EACH: usize = 6;
/// … and when there are this many, if only measuring can tighten the bound.
const MOST_UNBOUNDED: usize = 4;

/// State of one walk, its memory reused from query to query.
#[derive(Debug)]
pub(crate) struct Walker<'q> {
    pub(super) parts: &'q Parts,
    pub(crate) job: Job<'q>,
    inverse_step: f64,
    stack: Stack,
    current: Option<u32>,
    /// Rows not yet measured: integer distance and place.
    pending: Vec<(i32, u32)>,
    most_pending: usize,
    /// The best rows measured.
    pub(crate) best: Best,
    /// Upper bounds on keys of measured rows and pending ones: the k smallest, and some that came since.
    uppers: Smallest,
    /// No row with a larger key can matter.
    pub(super) bound: f64,
    /// The bound on the grid: for rows, for boxes.
    limit: [i32; 2],
    /// As `limit[0]` without the shrinking of an approximate search: what an upper bound rests on must be measured.
    pending_limit: i32,
    /// Leaves compared.
    pub(crate) scanned: usize,
    /// Steps since the bound last moved.
    pub(crate) idle: u32,
    /// Set when the k-th neighbour is known to be within `stop_key`.
    pub(crate) stopped: bool,
}

impl<'q> Walker<'q> {
    pub(crate) fn new(parts: &'q Parts, k: usize) -> Walker<'q> {
        Walker {
            parts,
            job: Job { number: 0, query: &[], prepared: Prepared::default(), task: Task::SEARCH },
            inverse_step: 1.0 / parts.grid.step,
            stack: Stack::new(),
            current: None,
            pending: Vec::new(),
            most_pending: MOST_PENDING.max(MOST_PENDING_EACH.saturating_mul(k)),
            best: Best::new(k),
            uppers: Smallest::new(k),
            bound: f64::INFINITY,
            limit: [i32::MAX; 2],
            pending_limit: i32::MAX,
            scanned: 0,
            idle: 0,
            stopped: false,
        }
    }

    /// Takes on a job, from the root.
    #[inline(always)]
    pub(crate) fn begin<K: Kernel, const L1: bool>(&mut self, job: Job<'q>) {
        self.job = job;
        self.stack.len = 0;
        self.pending.clear();
        self.best.clear();
        self.uppers.clear();
        self.stopped = false;
        self.scanned = 0;
        self.set_bound::<L1>(self.job.task.start_key);
        self.measure_strays::<L1>();
        let levels = self.parts.layout.levels.len() as u32;
        self.current = (levels > 0).then(|| {
            let (level, index) = self.job.task.root.unwrap_or((levels - 1, 0));
            ((level + 1) << INDEX_BITS) | index
        });
    }

    /// Where a walk that was begun starts: level (0 for leaves) and index; nowhere in an empty tree.
    pub(super) fn start(&self) -> Option<(usize, usize)> {
        let place = |current: u32| (current >> INDEX_BITS, current & ((1 << INDEX_BITS) - 1));
        self.current.map(place).map(|(level, index)| (level as usize, index as usize))
    }

    /// Starts over with nothing but the bound, for a walk that will meet the same rows again. An approximate walk
    /// might leave out the very rows its bound rests on, so it keeps them and will not take them in twice.
    #[inline(always)]
    pub(crate) fn restart<const L1: bool>(&mut self) {
        if self.job.task.shrink < 1.0 {
            return self.measure_pending::<L1>();
        }
        self.pending.clear();
        self.best.clear();
        self.uppers.clear();
        self.measure_strays::<L1>();
    }

    /// The bound on the grid: for rows, for boxes.
    #[inline(always)]
    pub(crate) fn limits(&self) -> [i32; 2] {
        self.limit
    }

    /// Measures what is left and settles the answer.
    #[inline(always)]
    pub(crate) fn finish<const L1: bool>(&mut self) {
        if self.near_enough() {
            self.stopped = true;
            return;
        }
        self.measure_pending::<L1>();
        self.stopped = self.best.worst_key() <= self.job.task.stop_key;
    }

    /// Does the next bit of work; false when the answer is complete.
    ///
    /// # Safety
    /// The processor must have what `K` needs.
    #[inline(always)]
    pub(crate) unsafe fn step<K: Kernel, const L1: bool>(&mut self) -> bool {
        let Some(current) = self.current else {
            self.finish::<L1>();
            return false;
        };
        self.idle += 1;
        let (level, index) = (current >> INDEX_BITS, (current & ((1 << INDEX_BITS) - 1)) as usize);
        // SAFETY: the caller vouches for the processor.
        self.current = unsafe {
            if level == 0 {
                self.scan::<K, L1>(index);
                None
            } else {
                self.open::<K, L1>(level as usize - 1, index)
            }
        };
        if self.near_enough() {
            self.stopped = true;
            return false;
        }
        if self.current.is_none() {
            self.current = self.pop();
        }
        self.fetch::<K>();
        true
    }

    /// Opens a node: the nearest child that is near enough is next, the others are kept for later.
    ///
    /// # Safety
    /// As for `step`.
    #[inline(always)]
    unsafe fn open<K: Kernel, const L1: bool>(&mut self, level: usize, index: usize) -> Option<u32> {
        let layout = &self.parts.layout;
        let at = layout.node_line(level, index);
        let lines = &self.parts.nodes[at..at + 2 * layout.node_pairs];
        // SAFETY: the caller vouches for the processor; a node has two lines for each of its pairs.
        let distances = unsafe { K::boxes::<L1>(lines, &self.job.prepared.node[..layout.node_pairs]) };
        // SAFETY: as above.
        let mut near = unsafe { K::at_most(&distances, self.limit[1]) };
        let exist = layout.count_below(level) - index * FAN;
        if exist < FAN {
            near &= (1 << exist) - 1;
        }
        if near == 0 {
            return None;
        }
        let base = ((level as u32) << INDEX_BITS) | (index * FAN) as u32;
        // SAFETY: as above, and `near` has a bit set.
        unsafe {
            let first = K::nearest(&distances, near, self.limit[1]);
            K::push(&mut self.stack, &distances, base, near & !(1 << first));
            Some(base + first)
        }
    }

    /// The latest place kept for later that still is near enough.
    #[inline(always)]
    fn pop(&mut self) -> Option<u32> {
        while self.stack.len > 0 {
            self.stack.len -= 1;
            let distance = self.stack.distances[self.stack.len];
            if distance <= self.limit[1] {
                return Some(self.stack.numbers[self.stack.len]);
            }
        }
        None
    }

    /// Asks for what the next step will read.
    #[inline(always)]
    fn fetch<K: Kernel>(&mut self) {
        let (parts, layout) = (self.parts, &self.parts.layout);
        match self.current {
            Some(current) => {
                let (level, index) = (current >> INDEX_BITS, (current & ((1 << INDEX_BITS) - 1)) as usize);
                if level == 0 {
                    K::prefetch(&parts.blocks[index * layout.leaf_pairs..(index + 1) * layout.leaf_pairs]);
                } else {
                    let at = layout.node_line(level as usize - 1, index);
                    K::prefetch(&parts.nodes[at..at + 2 * layout.node_pairs]);
                }
            }
            None => self.fetch_pending::<K>(),
        }
    }

    /// Asks for the rows that will be measured.
    #[inline(always)]
    pub(crate) fn fetch_pending<K: Kernel>(&self) {
        for &(distance, place) in &self.pending {
            if distance <= self.pending_limit {
                K::prefetch(row(self.parts, place as usize));
            }
        }
    }

    /// Compares the eight rows of a leaf.
    ///
    /// # Safety
    /// As for `step`.
    #[inline(always)]
    unsafe fn scan<K: Kernel, const L1: bool>(&mut self, leaf: usize) {
        self.scanned += 1;
        let parts = self.parts;
        let pairs = parts.layout.leaf_pairs;
        let block = &parts.blocks[leaf * pairs..(leaf + 1) * pairs];
        // SAFETY: the caller vouches for the processor; a block has one line for each pair.
        let distances = unsafe { K::rows::<L1>(block, &self.job.prepared.leaf[..pairs]) };
        // SAFETY: as above.
        let near = unsafe { K::at_most(&distances, self.limit[0]) };
        if near != 0 {
            self.consider_rows::<L1>(leaf, block, &distances, near);
        }
    }

    /// Considers the rows of a leaf that are in `near`; returns the limits after that.
    #[inline(always)]
    pub(crate) fn consider_rows<const L1: bool>(
        &mut self,
        leaf: usize,
        block: &[Line],
        distances: &[i32; FAN],
        mut near: u32,
    ) -> [i32; 2] {
        while near != 0 {
            let r = near.trailing_zeros() as usize;
            near &= near - 1;
            let place = leaf * FAN + r;
            if place < self.parts.layout.tame && place as u32 != self.job.task.skip {
                let lane = self.parts.projection.axes;
                let rest = block.get(lane / 2).map_or(0, |line| line.0[2 * r + lane % 2]);
                self.consider::<L1>(distances[r], place as u32, rest);
            }
        }
        let most = if self.job.prepared.rest4 == f64::INFINITY { MOST_UNBOUNDED } else { self.most_pending };
        if self.pending.len() >= most {
            self.measure_pending::<L1>();
        }
        if self.near_enough() {
            // Nothing passes any more.
            self.limit = [-1; 2];
        }
        self.limit
    }

    /// Whether the k-th neighbour is known to be as near as was asked.
    #[inline(always)]
    fn near_enough(&self) -> bool {
        self.uppers.kth <= self.job.task.stop_key
    }

    /// Keeps a row for measuring, and lets its upper bound tighten the search. `rest` is the row's last lane.
    #[inline(always)]
    fn consider<const L1: bool>(&mut self, distance: i32, place: u32, rest: u16) {
        let again = self.job.task.shrink < 1.0 && self.best.has(self.parts.ids[place as usize]);
        if distance > self.limit[0] || again {
            return;
        }
        self.pending.push((distance, place));
        let (q, parts) = (&self.job.prepared, self.parts);
        if q.rest4 < f64::INFINITY {
            // |x−y|² is the part along the axes plus at most (rest of x + rest of y)²; the grid distance holds
            // (rest of x − rest of y)², and the two squares differ by four times the product.
            let steps = (f64::from(distance).sqrt() + q.limits[0].error) * parts.grid.step;
            let rests =
                if q.rest4 > 0.0 { q.rest4 * parts.grid.rest_of(&parts.projection, rest) } else { 0.0 };
            self.offer_upper::<L1>((steps * steps + rests) * (1.0 + 1e-9));
        }
    }

    /// Takes note that some row has a key of at most `upper`.
    #[inline(always)]
    fn offer_upper<const L1: bool>(&mut self, upper: f64) {
        if self.uppers.offer(upper) {
            self.tighten::<L1>();
        }
    }

    /// Lets the k-th smallest upper bound limit the search.
    #[inline(always)]
    fn tighten<const L1: bool>(&mut self) {
        if self.uppers.kth < self.bound {
            self.set_bound::<L1>(self.uppers.kth);
        }
    }

    #[inline(always)]
    pub(super) fn set_bound<const L1: bool>(&mut self, key: f64) {
        self.bound = key;
        self.idle = 0;
        let length = self.parts.metric.length(key);
        let (limits, shrink) = (&self.job.prepared.limits, self.job.task.shrink);
        let limit = |i: usize, length: f64| limits[i].at::<L1>(length, self.inverse_step);
        self.limit = [limit(0, length * shrink), limit(1, length * shrink)];
        self.pending_limit = if shrink < 1.0 { limit(0, length) } else { self.limit[0] };
    }

    /// Rows outside the grid are few and always measured.
    #[inline(always)]
    fn measure_strays<const L1: bool>(&mut self) {
        let layout = &self.parts.layout;
        if layout.tame == layout.rows {
            return;
        }
        for place in layout.tame..layout.rows {
            if place as u32 != self.job.task.skip {
                self.measure(place);
            }
        }
        self.settle::<L1>();
    }

    /// Measures the pending rows that still can matter, nearest first.
    #[inline(always)]
    fn measure_pending<const L1: bool>(&mut self) {
        self.uppers.select();
        self.tighten::<L1>();
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain(|p| p.0 <= self.pending_limit);
        pending.sort_unstable();
        for &(distance, place) in &pending {
            if distance > self.pending_limit {
                break;
            }
            self.measure(place as usize);
            if self.best.worst_key() < self.bound {
                self.set_bound::<L1>(self.best.worst_key());
            }
        }
        pending.clear();
        self.pending = pending;
        self.settle::<L1>();
    }

    #[inline(always)]
    pub(super) fn measure(&mut self, place: usize) {
        let parts = self.parts;
        let scales = match parts.metric {
            Metric::Cosine => Scales { query: self.job.prepared.inverse, row: parts.inverse[place] },
            Metric::Euclidean | Metric::Manhattan => Scales::ONE,
        };
        let key = parts.metric.key(self.job.query, row(parts, place), scales);
        if key <= self.bound {
            self.best.offer(Candidate { key, id: parts.ids[place] });
        }
    }

    /// With nothing pending, the measured keys are the upper bounds.
    #[inline(always)]
    fn settle<const L1: bool>(&mut self) {
        self.uppers.restart(self.best.list().iter().map(|c| c.key), self.best.worst_key());
        if self.best.worst_key() < self.bound {
            self.set_bound::<L1>(self.best.worst_key());
        }
    }
}

#[inline(always)]
fn row(parts: &Parts, place: usize) -> &[f32] {
    let dim = parts.layout.dim;
    &parts.rows[place * dim..(place + 1) * dim]
}
