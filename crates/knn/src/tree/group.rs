//! Many queries through the tree together: a node is read once for all of them.
//!
//! One query touches a quarter of a megabyte, so walking queries one by one is limited by the memory. Queries
//! that fall into neighbouring leaves visit mostly the same nodes. Each first walks a little on its own, which
//! nearly settles its bound; then the group goes down the tree, every node handing on those it is near to.

use super::Parts;
use super::kernels::Kernel;
use super::layout::{FAN, MAX_LEAF_PAIRS, MAX_NODE_PAIRS};
use super::walk::{Job, Walker};

/// Walks that take turns in the first phase of a group.
const TEAM: usize = 8;
/// Walks that take turns when there is no second phase: nobody else brings their nodes into the caches.
const TEAM_ALONE: usize = 24;
/// A walk whose bound has not moved for this many steps goes on with the group.
const PATIENCE: u32 = 24;
/// Groups smaller than this are not worth the second phase.
const ALONE: usize = 200;

/// A group of queries and what they share.
#[derive(Debug)]
pub(crate) struct Group<'q> {
    parts: &'q Parts,
    k: usize,
    walkers: Vec<Walker<'q>>,
    /// What the inner loops read of each query, packed.
    node: Vec<[[u16; 2]; MAX_NODE_PAIRS]>,
    leaf: Vec<[[u16; 2]; MAX_LEAF_PAIRS]>,
    limits: Vec<[i32; 2]>,
    /// For each level, the queries handed to each of eight children.
    lists: Vec<[Vec<u16>; FAN]>,
    /// How many of each list count.
    lens: Vec<[u32; FAN]>,
}

impl<'q> Group<'q> {
    pub(crate) fn new(parts: &'q Parts, k: usize) -> Group<'q> {
        Group {
            parts,
            k,
            walkers: Vec::new(),
            node: Vec::new(),
            leaf: Vec::new(),
            limits: Vec::new(),
            lists: vec![Default::default(); parts.layout.levels.len()],
            lens: vec![[0; FAN]; parts.layout.levels.len()],
        }
    }

    /// Answers all jobs of `jobs`; each is shown to `done`.
    ///
    /// # Safety
    /// The processor must have what `K` needs.
    #[inline(always)]
    pub(crate) unsafe fn run<K: Kernel, const L1: bool>(
        &mut self,
        jobs: &mut dyn Iterator<Item = Job<'q>>,
        done: &mut dyn FnMut(&Walker<'q>),
    ) {
        let mut count = 0;
        for job in jobs {
            if count == self.walkers.len() {
                self.walkers.push(Walker::new(self.parts, self.k));
            }
            self.walkers[count].begin::<K, L1>(job);
            count += 1;
        }
        if count == 0 {
            return;
        }
        // SAFETY: the caller vouches for the processor.
        let open = unsafe { self.walk_alone::<K, L1>(count, done) };
        self.node.clear();
        self.leaf.clear();
        self.limits.clear();
        for w in &mut self.walkers[..count] {
            w.restart::<L1>();
            self.node.push(w.job.prepared.node);
            self.leaf.push(w.job.prepared.leaf);
            self.limits.push(w.limits());
        }
        if !self.parts.layout.levels.is_empty() && !open.is_empty() {
            // SAFETY: as above.
            unsafe { self.descend::<K, L1>(&open) };
        }
        for (n, &i) in open.iter().enumerate() {
            // The rows to be measured are asked for some queries ahead.
            if let Some(&later) = open.get(n + TEAM) {
                self.walkers[usize::from(later)].fetch_pending::<K>();
            }
            let w = &mut self.walkers[usize::from(i)];
            w.finish::<L1>();
            done(w);
        }
    }

    /// Lets each query walk a little by itself; returns those that have not finished.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn walk_alone<K: Kernel, const L1: bool>(
        &mut self,
        count: usize,
        done: &mut dyn FnMut(&Walker<'q>),
    ) -> Vec<u16> {
        // Few queries share too little, and a walk below some node is short.
        let task = &self.walkers[0].job.task;
        let alone = count < ALONE || task.root.is_some();
        let (patience, size) = if alone { (u32::MAX, TEAM_ALONE) } else { (PATIENCE, TEAM) };
        let mut open = Vec::with_capacity(count);
        for start in (0..count).step_by(size) {
            let team = &mut self.walkers[start..(start + size).min(count)];
            let mut live: [bool; TEAM_ALONE] = std::array::from_fn(|i| i < team.len());
            while live.contains(&true) {
                for (i, (w, live)) in team.iter_mut().zip(&mut live).enumerate().filter(|t| *t.1.1) {
                    // SAFETY: the caller vouches for the processor.
                    if !unsafe { w.step::<K, L1>() } {
                        *live = false;
                        done(w);
                    } else if w.idle > patience {
                        *live = false;
                        open.push((start + i) as u16);
                    }
                }
            }
        }
        open
    }

    /// Takes the queries of `open` down the tree, node by node.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn descend<K: Kernel, const L1: bool>(&mut self, open: &[u16]) {
        let top = self.parts.layout.levels.len() - 1;
        // Index of the node being worked on and its next child, for each level.
        let mut at = vec![(0usize, 0usize); top + 1];
        // SAFETY: the caller vouches for the processor, here and below.
        unsafe { self.sort_out::<K, L1>(top, 0, open) };
        let mut level = top;
        loop {
            let (index, c) = at[level];
            if c == FAN {
                if level == top {
                    return;
                }
                level += 1;
                continue;
            }
            at[level].1 += 1;
            let len = self.lens[level][c] as usize;
            if len == 0 {
                continue;
            }
            let list = std::mem::take(&mut self.lists[level][c]);
            let child = index * FAN + c;
            if level == 0 {
                // SAFETY: as above.
                unsafe { self.scan::<K, L1>(child, &list[..len]) };
                self.lists[level][c] = list;
            } else {
                // SAFETY: as above.
                unsafe { self.sort_out::<K, L1>(level - 1, child, &list[..len]) };
                self.lists[level][c] = list;
                level -= 1;
                at[level] = (child, 0);
            }
        }
    }

    /// Hands the queries in `active` on to the children of a node they are near to.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn sort_out<K: Kernel, const L1: bool>(&mut self, level: usize, index: usize, active: &[u16]) {
        let (parts, layout) = (self.parts, &self.parts.layout);
        let at = layout.node_line(level, index);
        let lines = &parts.nodes[at..at + 2 * layout.node_pairs];
        let exist = (layout.count_below(level) - index * FAN).min(FAN);
        // The children lie side by side; ask for them while the queries are tested.
        if level == 0 {
            let pairs = layout.leaf_pairs;
            K::prefetch(&parts.blocks[index * FAN * pairs..(index * FAN + exist) * pairs]);
        } else {
            let at = layout.node_line(level - 1, index * FAN);
            K::prefetch(&parts.nodes[at..at + exist * 2 * layout.node_pairs]);
        }
        let lists = &mut self.lists[level];
        for list in lists.iter_mut() {
            if list.len() < active.len() {
                list.resize(active.len(), 0);
            }
        }
        let to = lists.each_mut().map(|l| l.as_mut_ptr());
        let mut len = [0u32; FAN];
        for &i in active {
            let q = usize::from(i);
            // SAFETY: the caller vouches for the processor; a node has two lines for each of its pairs; every
            // list has room for all active queries and grows by at most one for each.
            unsafe {
                let distances = K::boxes::<L1>(lines, &self.node[q][..layout.node_pairs]);
                K::hand_out(&to, &mut len, &distances, self.limits[q][1], i);
            }
        }
        len[exist..].fill(0);
        self.lens[level] = len;
    }

    /// Compares the rows of a leaf with the queries near to it.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn scan<K: Kernel, const L1: bool>(&mut self, leaf: usize, active: &[u16]) {
        let pairs = self.parts.layout.leaf_pairs;
        let block = &self.parts.blocks[leaf * pairs..(leaf + 1) * pairs];
        for &i in active {
            let q = usize::from(i);
            // SAFETY: the caller vouches for the processor; a block has one line for each pair.
            let (distances, near) = unsafe {
                let distances = K::rows::<L1>(block, &self.leaf[q][..pairs]);
                (distances, K::at_most(&distances, self.limits[q][0]))
            };
            if near != 0 {
                self.limits[q] = self.walkers[q].consider_rows::<L1>(leaf, block, &distances, near);
            }
        }
    }
}
