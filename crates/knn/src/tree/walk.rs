//! The walk of one query through the tree: nearest children first, whatever is provably too far left out.

use super::Parts;
use super::kernels::Kernel;
use super::layout::FAN;
use super::query::Prepared;
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

/// Scratch memory and running state, reused from query to query.
#[derive(Debug)]
pub(crate) struct Walker<'t> {
    parts: &'t Parts,
    k: usize,
    inverse_step: f64,
    stack: Vec<Entry>,
    /// Rows not yet measured: integer distance and place.
    pending: Vec<(i32, u32)>,
    /// The best rows measured.
    pub(crate) best: Best,
    /// The k smallest upper bounds on keys, sorted: measured rows and pending ones.
    uppers: Vec<f64>,
    /// No row with a larger key can matter.
    bound: f64,
    limit: [i32; 2],
    /// As `limit[0]` without the shrinking of an approximate search: what an upper bound rests on must be measured.
    pending_limit: i32,
    /// Set when the walk ended early by `stop_key`.
    pub(crate) stopped: bool,
    /// Smallest integer distances left out, of rows and of boxes (only tracked when approximating).
    pub(crate) left_out: [i32; 2],
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    distance: i32,
    level: u32,
    index: u32,
}

/// Pending rows are measured at the latest when there are this many.
const MOST_PENDING: usize = 64;

impl<'t> Walker<'t> {
    pub(crate) fn new(parts: &'t Parts, k: usize) -> Walker<'t> {
        Walker {
            parts,
            k,
            inverse_step: 1.0 / parts.grid.step,
            stack: Vec::with_capacity(64),
            pending: Vec::with_capacity(2 * MOST_PENDING),
            best: Best::new(k),
            uppers: Vec::with_capacity(k + 1),
            bound: f64::INFINITY,
            limit: [i32::MAX; 2],
            pending_limit: i32::MAX,
            stopped: false,
            left_out: [i32::MAX; 2],
        }
    }

    /// Finds the `k` best rows for `query`; they end up in `best`.
    ///
    /// # Safety
    /// The processor must have what `K` needs.
    #[inline(always)]
    pub(crate) unsafe fn run<K: Kernel, const L1: bool>(&mut self, query: &[f32], q: &Prepared, task: &Task) {
        self.stack.clear();
        self.pending.clear();
        self.best.clear();
        self.uppers.clear();
        self.stopped = false;
        self.left_out = [i32::MAX; 2];
        self.set_bound::<L1>(task.start_key, q, task);
        self.measure_strays::<L1>(query, q, task);
        let levels = self.parts.layout.levels.len() as u32;
        if levels > 0 {
            let (level, index) = task.root.unwrap_or((levels - 1, 0));
            self.stack.push(Entry { distance: 0, level, index });
        }
        while let Some(entry) = self.stack.pop() {
            if entry.distance > self.limit[1] {
                self.left_out[1] = self.left_out[1].min(entry.distance);
                continue;
            }
            // SAFETY: the caller vouches for the processor.
            unsafe { self.open::<K, L1>(entry, query, q, task) };
            if self.uppers.len() == self.k && self.uppers[self.k - 1] <= task.stop_key {
                self.stopped = true;
                return;
            }
        }
        self.measure_pending::<L1>(query, q, task);
        self.stopped = self.best.worst_key() <= task.stop_key;
    }

    /// Tests the eight children of a node and goes into, or keeps for later, those near enough.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn open<K: Kernel, const L1: bool>(
        &mut self,
        entry: Entry,
        query: &[f32],
        q: &Prepared,
        task: &Task,
    ) {
        let parts = self.parts;
        let layout = &parts.layout;
        let (level, index) = (entry.level as usize, entry.index as usize);
        let at = layout.node_line(level, index);
        let lines = &parts.nodes[at..at + 2 * layout.node_pairs];
        // SAFETY: the caller vouches for the processor; a node has two lines for each of its pairs.
        let distances = unsafe { K::boxes::<L1>(lines, &q.node[..layout.node_pairs]) };
        // SAFETY: as above.
        let mut near = unsafe { K::at_most(&distances, self.limit[1]) };
        let missing = (layout.count_below(level) - index * FAN).min(FAN);
        near &= ((1u32 << missing) - 1) & 0xff;
        if task.shrink < 1.0 {
            let far = (0..missing).filter(|c| near & (1 << c) == 0).map(|c| distances[c]).min();
            self.left_out[1] = self.left_out[1].min(far.unwrap_or(i32::MAX));
        }
        let (mut sorted, mut count) = ([Entry { distance: 0, level: 0, index: 0 }; FAN], 0);
        while near != 0 {
            let c = near.trailing_zeros();
            near &= near - 1;
            let e = Entry {
                distance: distances[c as usize],
                level: entry.level.wrapping_sub(1),
                index: entry.index * FAN as u32 + c,
            };
            let mut i = count;
            while i > 0 && sorted[i - 1].distance < e.distance {
                sorted[i] = sorted[i - 1];
                i -= 1;
            }
            sorted[i] = e;
            count += 1;
        }
        if level > 0 {
            for e in &sorted[..count] {
                let at = layout.node_line(level - 1, e.index as usize);
                K::prefetch(&parts.nodes[at..at + 2 * layout.node_pairs]);
            }
            self.stack.extend_from_slice(&sorted[..count]);
            return;
        }
        for e in &sorted[..count] {
            let at = e.index as usize * layout.leaf_pairs;
            K::prefetch(&parts.blocks[at..at + layout.leaf_pairs]);
        }
        for e in sorted[..count].iter().rev() {
            if e.distance > self.limit[1] {
                self.left_out[1] = self.left_out[1].min(e.distance);
                break;
            }
            // SAFETY: as above.
            unsafe { self.scan::<K, L1>(e.index as usize, q, task) };
        }
        if self.pending.len() >= MOST_PENDING || (q.rest4 == f64::INFINITY && self.pending.len() >= 4) {
            self.measure_pending::<L1>(query, q, task);
        }
    }

    /// Compares the eight rows of a leaf.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn scan<K: Kernel, const L1: bool>(&mut self, leaf: usize, q: &Prepared, task: &Task) {
        let parts = self.parts;
        let layout = &parts.layout;
        let block = &parts.blocks[leaf * layout.leaf_pairs..(leaf + 1) * layout.leaf_pairs];
        // SAFETY: the caller vouches for the processor; a block has one line for each pair.
        let distances = unsafe { K::rows::<L1>(block, &q.leaf[..layout.leaf_pairs]) };
        // SAFETY: as above.
        let mut near = unsafe { K::at_most(&distances, self.limit[0]) };
        if task.shrink < 1.0 {
            let far = (0..FAN).filter(|r| near & (1 << r) == 0).map(|r| distances[r]).min();
            self.left_out[0] = self.left_out[0].min(far.unwrap_or(i32::MAX));
        }
        while near != 0 {
            let r = near.trailing_zeros() as usize;
            near &= near - 1;
            let place = (leaf * FAN + r) as u32;
            let distance = distances[r];
            if place as usize >= layout.tame || place == task.skip {
                continue;
            }
            if distance > self.limit[0] {
                self.left_out[0] = self.left_out[0].min(distance);
                continue;
            }
            self.pending.push((distance, place));
            K::prefetch(&parts.rows[place as usize * layout.dim..(place as usize + 1) * layout.dim]);
            if q.rest4 < f64::INFINITY {
                let last = parts.projection.axes;
                let rest = if q.rest4 > 0.0 {
                    parts.grid.rest_of(&parts.projection, block[last / 2].0[2 * r + last % 2])
                } else {
                    0.0
                };
                let steps = (f64::from(distance).sqrt() + q.limits[0].error) * parts.grid.step;
                self.offer_upper::<L1>((steps * steps + q.rest4 * rest) * (1.0 + 1e-9), q, task);
            }
        }
    }

    /// Takes note that some row has a key of at most `upper`.
    #[inline(always)]
    fn offer_upper<const L1: bool>(&mut self, upper: f64, q: &Prepared, task: &Task) {
        if self.uppers.len() == self.k {
            if upper >= self.uppers[self.k - 1] {
                return;
            }
            self.uppers.pop();
        }
        let at = self.uppers.partition_point(|u| *u < upper);
        self.uppers.insert(at, upper);
        if self.uppers.len() == self.k && self.uppers[self.k - 1] < self.bound {
            self.set_bound::<L1>(self.uppers[self.k - 1], q, task);
        }
    }

    #[inline(always)]
    fn set_bound<const L1: bool>(&mut self, key: f64, q: &Prepared, task: &Task) {
        self.bound = key;
        let length = self.parts.metric.length(key);
        let limit = |i: usize, length: f64| q.limits[i].at::<L1>(length, self.inverse_step);
        self.limit = [limit(0, length * task.shrink), limit(1, length * task.shrink)];
        self.pending_limit = if task.shrink < 1.0 { limit(0, length) } else { self.limit[0] };
    }

    /// Rows outside the grid are few and always measured.
    #[inline(always)]
    fn measure_strays<const L1: bool>(&mut self, query: &[f32], q: &Prepared, task: &Task) {
        let layout = &self.parts.layout;
        if layout.tame == layout.rows {
            return;
        }
        for place in layout.tame..layout.rows {
            if place as u32 != task.skip {
                self.measure(place, query, q);
            }
        }
        self.settle::<L1>(q, task);
    }

    /// Measures the pending rows that still can matter, nearest first.
    #[inline(always)]
    fn measure_pending<const L1: bool>(&mut self, query: &[f32], q: &Prepared, task: &Task) {
        let mut pending = std::mem::take(&mut self.pending);
        if pending.len() > 1 {
            pending.sort_unstable();
        }
        for &(distance, place) in &pending {
            if distance > self.pending_limit {
                break;
            }
            self.measure(place as usize, query, q);
            if self.best.worst_key() < self.bound {
                self.set_bound::<L1>(self.best.worst_key(), q, task);
            }
        }
        pending.clear();
        self.pending = pending;
        self.settle::<L1>(q, task);
    }

    #[inline(always)]
    fn measure(&mut self, place: usize, query: &[f32], q: &Prepared) {
        let parts = self.parts;
        let row = &parts.rows[place * parts.layout.dim..(place + 1) * parts.layout.dim];
        let scales = match parts.metric {
            Metric::Cosine => Scales { query: q.inverse, row: parts.inverse[place] },
            Metric::Euclidean | Metric::Manhattan => Scales::ONE,
        };
        let key = parts.metric.key(query, row, scales);
        // A row beyond the bound may tie with nothing that counts.
        if key <= self.bound {
            self.best.offer(Candidate { key, id: parts.ids[place] });
        }
    }

    /// With nothing pending, the measured keys are the upper bounds.
    #[inline(always)]
    fn settle<const L1: bool>(&mut self, q: &Prepared, task: &Task) {
        self.uppers.clear();
        self.uppers.extend(self.best.list().iter().map(|c| c.key));
        if self.best.worst_key() < self.bound {
            self.set_bound::<L1>(self.best.worst_key(), q, task);
        }
    }
}
