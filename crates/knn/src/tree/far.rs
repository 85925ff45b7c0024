//! Queries far outside the range of the rows.
//!
//! The integer grid ends where the rows do. Moved to its edge, a far query keeps what it lies outside (`Limit::outside`), but
//! loses what tells rows apart: of (o + g)² = o² + 2·o·g + g², with o the way outside and g the gap inside, the middle term,
//! which is the larger the farther it lies. Nothing could be left out any more. So these queries walk in floating point,
//! where the grid has no edge: slower for a box, but the bounds hold as they do inside.

use super::layout::{FAN, Line};
use super::project::Image;
use super::query::Prepared;
use super::walk::Walker;

/// A query farther outside than so many steps walks here; the range is at most some 46,000 across.
const FAR: f64 = 400.0;

/// A query on the grid, wherever it lies.
#[derive(Debug, Default)]
struct Spot {
    /// Its lanes, as lengths from where the grid begins. Not in steps: rows that are all alike have a step so small that
    /// squares of steps overflow.
    lanes: Vec<f64>,
    /// By what length a distance to a stored row or box may be off.
    error: f64,
}

impl Prepared {
    /// Whether the query is to walk in floating point.
    #[inline(always)]
    pub(crate) fn is_far<const L1: bool>(&self, step: f64) -> bool {
        let far = FAR * step;
        self.limits[1].outside > if L1 { far } else { far * far }
    }
}

impl Walker<'_> {
    /// Answers the job that was begun.
    #[inline(always)]
    pub(crate) fn run_far<const L1: bool>(&mut self, image: &mut Image) {
        let parts = self.parts;
        parts.projection.apply(self.job.query, self.job.prepared.inverse, image);
        let [leaf, node] = [false, true].map(|node| self.spot(image, node));
        // Nearest on top.
        let mut stack: Vec<(f64, usize, usize)> = Vec::new();
        stack.extend(self.start().map(|(level, index)| (0.0, level, index)));
        while let Some((nearest, level, index)) = stack.pop() {
            if nearest > self.reach() {
                continue;
            }
            if level == 0 {
                let pairs = parts.layout.leaf_pairs;
                let block = &parts.blocks[index * pairs..(index + 1) * pairs];
                self.measure_near::<L1>(index, &rows_from::<L1>(block, &leaf, parts.grid.step));
                if self.best.worst_key() <= self.job.task.stop_key {
                    break;
                }
                continue;
            }
            let at = parts.layout.node_line(level - 1, index);
            let lines = &parts.nodes[at..at + 2 * parts.layout.node_pairs];
            let bounds = boxes_from::<L1>(lines, &node, parts.grid.step);
            let exist = (parts.layout.count_below(level - 1) - index * FAN).min(FAN);
            let (first, reach) = (stack.len(), self.reach());
            stack.extend(
                (0..exist).filter(|&c| bounds[c] <= reach).map(|c| (bounds[c], level - 1, index * FAN + c)),
            );
            stack[first..].sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        }
        self.stopped = self.best.worst_key() <= self.job.task.stop_key;
    }

    /// The query's lanes as a leaf (or a node) has them.
    fn spot(&self, image: &Image, node: bool) -> Spot {
        let (p, grid) = (&self.parts.projection, &self.parts.grid);
        let lanes: Vec<f64> = (0..p.lanes(node)).map(|i| grid.above_low(p, image, node, i)).collect();
        // Lanes, and steps times their number, are rounded to some 1e-16.
        let rounding = 1e-6 * grid.step + 1e-14 * lanes.iter().map(|l| l.abs()).sum::<f64>();
        let error = grid.row_error[usize::from(node)] * grid.step + image.error + rounding;
        Spot { lanes, error }
    }

    /// Rows that lie farther than this cannot matter.
    #[inline(always)]
    fn reach(&self) -> f64 {
        // The factor covers rounding here and in the axes, which are orthonormal to 1e-13 only.
        self.parts.metric.length(self.bound) * self.job.task.shrink * (1.0 + 1e-9)
    }

    /// Measures the rows of a leaf whose lower bounds are within reach.
    #[inline(always)]
    fn measure_near<const L1: bool>(&mut self, leaf: usize, bounds: &[f64; FAN]) {
        for (r, &bound) in bounds.iter().enumerate() {
            let place = leaf * FAN + r;
            let wanted = place < self.parts.layout.tame && place as u32 != self.job.task.skip;
            if wanted && bound <= self.reach() {
                self.measure(place);
                if self.best.worst_key() < self.bound {
                    self.set_bound::<L1>(self.best.worst_key());
                }
            }
        }
    }
}

/// Lower bounds on the distances of eight boxes.
#[inline(always)]
fn boxes_from<const L1: bool>(node: &[Line], spot: &Spot, step: f64) -> [f64; FAN] {
    let mut sums = [0f64; FAN];
    for (i, &at) in spot.lanes.iter().enumerate() {
        let (low, high) = (&node[i / 2 * 2].0, &node[i / 2 * 2 + 1].0);
        for (c, sum) in sums.iter_mut().enumerate() {
            let (l, h) = (f64::from(low[2 * c + i % 2]) * step, f64::from(high[2 * c + i % 2]) * step);
            add::<L1>(sum, (l - at).max(at - h).max(0.0));
        }
    }
    sums.map(|sum| length::<L1>(sum, spot.error))
}

/// Lower bounds on the distances of eight rows.
#[inline(always)]
fn rows_from<const L1: bool>(block: &[Line], spot: &Spot, step: f64) -> [f64; FAN] {
    let mut sums = [0f64; FAN];
    for (i, &at) in spot.lanes.iter().enumerate() {
        let line = &block[i / 2].0;
        for (r, sum) in sums.iter_mut().enumerate() {
            add::<L1>(sum, (f64::from(line[2 * r + i % 2]) * step - at).abs());
        }
    }
    sums.map(|sum| length::<L1>(sum, spot.error))
}

#[inline(always)]
fn add<const L1: bool>(sum: &mut f64, gap: f64) {
    *sum += if L1 { gap } else { gap * gap };
}

/// A length no row can be nearer than, from its sum of gaps.
#[inline(always)]
fn length<const L1: bool>(sum: f64, error: f64) -> f64 {
    let length = if L1 { sum } else { sum.sqrt() };
    // The sum itself is rounded, to less than 1e-13 of it.
    length * (1.0 - 1e-12) - error
}
