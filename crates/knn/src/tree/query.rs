//! A query made ready for the walk: projected, quantised, its errors known.

use super::Parts;
use super::layout::{MAX_LEAF_PAIRS, MAX_NODE_PAIRS};
use super::project::Image;
use super::quantize::Gridded;
use crate::Metric;
use crate::metric::inverse_length;

/// What the walk needs to know of a query besides its own values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prepared {
    /// Lanes as a leaf block has them.
    pub(crate) leaf: [[u16; 2]; MAX_LEAF_PAIRS],
    /// Lanes as a node has them.
    pub(crate) node: [[u16; 2]; MAX_NODE_PAIRS],
    /// Turns a length into an integer limit for leaves, and for nodes.
    pub(crate) limits: [Limit; 2],
    /// Four times the query's rest length (with its error), for upper bounds; infinite when there are none.
    pub(crate) rest4: f64,
    /// 1/|query| for cosine, else 1.
    pub(crate) inverse: f64,
}

/// How a search radius reads on the grid.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limit {
    /// Error of query and rows together, in steps.
    pub(crate) error: f64,
    /// How far outside the range the query lies: a length for Manhattan, else its square.
    pub(crate) outside: f64,
    /// Length by which the images of query and row may be off; it blurs the part outside.
    pub(crate) blur: f64,
}

impl Limit {
    /// The largest integer distance a row at most `length` away can have.
    #[inline(always)]
    pub(crate) fn at<const L1: bool>(&self, length: f64, inverse_step: f64) -> i32 {
        // The factor covers rounding here and in the axes, which are orthonormal to 1e-13 only.
        let mut inner = length * (1.0 + 1e-9);
        if self.outside > 0.0 {
            // Rows lie inside, so what the query lies outside is part of every distance.
            let outside = self.outside * (1.0 - 1e-9);
            inner = if L1 { inner + self.blur - outside } else { (inner + self.blur).powi(2) - outside };
            if inner < 0.0 {
                return -1;
            }
            inner = if L1 { inner } else { inner.sqrt() };
        }
        let steps = inner * inverse_step + self.error;
        if L1 { (steps + 1.0) as i32 } else { (steps * steps + 1.0) as i32 }
    }
}

impl Prepared {
    /// Projects and quantises `query`, with `image` as scratch.
    #[inline(always)]
    pub(crate) fn new(parts: &Parts, query: &[f32], image: &mut Image) -> Prepared {
        let (p, grid) = (&parts.projection, &parts.grid);
        let inverse = if parts.metric == Metric::Cosine { inverse_length(query) } else { 1.0 };
        p.apply(query, inverse, image);
        let mut out = Prepared { inverse, ..Default::default() };
        let leaf = grid.quantise(p, image, false, out.leaf.as_flattened_mut());
        let node = grid.quantise(p, image, true, out.node.as_flattened_mut());
        let limit = |g: Gridded, row_error: f64| Limit {
            error: g.error + row_error,
            outside: g.outside,
            blur: image.error + row_error * grid.step,
        };
        out.limits = [limit(leaf, grid.row_error[0]), limit(node, grid.row_error[1])];
        out.rest4 = if parts.metric == Metric::Manhattan || leaf.outside > 0.0 {
            f64::INFINITY
        } else if p.has_rest(false) {
            4.0 * (image.rest[0] + image.error)
        } else {
            0.0
        };
        out
    }
}
