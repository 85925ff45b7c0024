//! From images to 15-bit integers on one grid, with every rounding accounted for.
//!
//! All lanes share one step, so integer gaps add up to a distance. The step is chosen so that the squared gaps
//! of a whole row stay below 2³¹ and every gap below 2¹⁵: no kernel can overflow. Rows outside the range are
//! kept out of the tree; queries outside are moved to its edge, which never makes a row look farther (those far outside
//! walk elsewhere, see `far`).

use super::project::{Image, Projection};

/// The grid: where each lane starts and ends, and the common step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grid {
    /// Lowest value of each lane: the axes, then the rest outside leaf axes, then outside node axes.
    pub(crate) low: Vec<f64>,
    /// Highest value of each lane.
    pub(crate) high: Vec<f64>,
    /// Width of one integer step.
    pub(crate) step: f64,
    /// Largest error of any stored row in steps: lanes of a leaf, lanes of a node.
    pub(crate) row_error: [f64; 2],
}

/// A query on the grid, as a leaf (or a node) sees it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gridded {
    /// Its quantisation error and that of any row, in steps.
    pub(crate) error: f64,
    /// How far it lies outside the range (a length; squares summed for Euclidean).
    pub(crate) outside: f64,
}

impl Grid {
    /// A grid over the given range of every lane.
    pub(crate) fn new(low: Vec<f64>, high: Vec<f64>) -> Grid {
        let spans = || low.iter().zip(&high).map(|(l, h)| h - l);
        let widest = spans().fold(0.0, f64::max);
        let diagonal =
            spans().map(|s| (s / widest.max(f64::MIN_POSITIVE)).powi(2)).sum::<f64>().sqrt() * widest;
        // 46340² < 2³¹; one step per lane is left for rounding up.
        let step = (diagonal / 46_200.0).max(widest / 32_700.0);
        let step = if step.is_normal() { step } else { f64::MIN_POSITIVE * 1e30 };
        Grid { low, high, step, row_error: [0.0; 2] }
    }

    /// Value of lane `lane` of an image.
    #[inline(always)]
    fn value(image: &Image, lane: usize) -> f64 {
        if lane < image.axes.len() { image.axes[lane] } else { image.rest[lane - image.axes.len()] }
    }

    /// Number of lanes the grid describes.
    pub(crate) fn lanes(p: &Projection) -> usize {
        p.axes + 2
    }

    /// Whether an image lies inside the range in every lane.
    pub(crate) fn holds(&self, image: &Image) -> bool {
        (0..self.low.len()).all(|l| (self.low[l]..=self.high[l]).contains(&Self::value(image, l)))
    }

    /// The lane of the grid that lane `i` of a row (or a box) is.
    #[inline(always)]
    fn lane_of(p: &Projection, node: bool, i: usize) -> usize {
        let axes = if node { p.node_axes } else { p.axes };
        if i < axes { i } else { p.axes + usize::from(node) }
    }

    /// Writes the lanes of a row (or, `node`, those its boxes use) as integers; the rest of `out` becomes 0.
    #[inline(always)]
    pub(crate) fn quantise(&self, p: &Projection, image: &Image, node: bool, out: &mut [u16]) -> Gridded {
        let l1 = p.metric == crate::Metric::Manhattan;
        let (mut error, mut outside) = (0.0, 0.0);
        let inverse = 1.0 / self.step;
        out.fill(0);
        for (i, o) in out.iter_mut().enumerate().take(p.lanes(node)) {
            let lane = Self::lane_of(p, node, i);
            let value = Self::value(image, lane);
            let inside = value.clamp(self.low[lane], self.high[lane]);
            let exact = (inside - self.low[lane]) * inverse;
            // The range is at most 2¹⁵ steps wide, so adding a half and cutting is rounding.
            *o = (exact + 0.5) as u16;
            let (e, far) = ((exact - f64::from(*o)).abs(), (value - inside).abs());
            if l1 {
                error += e;
                outside += far;
            } else {
                error += e * e;
                outside += far * far;
            }
        }
        let error = if l1 { error } else { error.sqrt() };
        Gridded { error: error * (1.0 + 1e-9) + 1e-6 + image.error * inverse, outside }
    }

    /// How far lane `i` of an image lies above where the grid begins, inside or not.
    pub(crate) fn above_low(&self, p: &Projection, image: &Image, node: bool, i: usize) -> f64 {
        let lane = Self::lane_of(p, node, i);
        Self::value(image, lane) - self.low[lane]
    }

    /// Upper bound on the rest length of a stored row whose last lane is `stored`.
    #[inline(always)]
    pub(crate) fn rest_of(&self, p: &Projection, stored: u16) -> f64 {
        self.low[p.axes] + (f64::from(stored) + self.row_error[0]) * self.step
    }
}
