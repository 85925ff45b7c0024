//! The linear map from a row to the few numbers the tree prunes by.
//!
//! Euclidean (and cosine, after normalising): the leading principal axes, with the length of what they leave
//! out as one number more. Manhattan: signed sums of groups of columns, since Σ|aᵢ| ≥ |Σ±aᵢ|. Both are
//! contractions: images are never farther apart than the rows, so a far image proves a far row.

use super::groups::signed_groups;
use super::pca::leading_axes;
use crate::Metric;
use crate::metric::inverse_length;

/// Pairs of a row's images and its distance from the centre.
#[derive(Debug, Clone, Default)]
pub(crate) struct Image {
    /// Coordinates along the axes.
    pub(crate) axes: Vec<f64>,
    /// Length of the part outside the leaf axes, and outside the (fewer) node axes; 0 for Manhattan.
    pub(crate) rest: [f64; 2],
    /// Certified bound on the rounding error of all of the above, as a length.
    pub(crate) error: f64,
}

/// A contraction from `dim` columns to `axes` numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Projection {
    pub(crate) metric: Metric,
    pub(crate) dim: usize,
    /// Axes stored for each row.
    pub(crate) axes: usize,
    /// Leading axes stored for each box.
    pub(crate) node_axes: usize,
    /// What is subtracted first: exact f32 values, so that a constant column vanishes exactly.
    pub(crate) center: Vec<f64>,
    /// `dim` × `axes`, one input column after the other.
    pub(crate) matrix: Vec<f64>,
}

impl Projection {
    /// Chooses axes from a sample of rows. `most_axes` is what the memory budget allows.
    pub(crate) fn fit(metric: Metric, sample: &[&[f32]], most_axes: usize) -> Projection {
        let dim = sample[0].len();
        let columns: Vec<Vec<f64>> =
            (0..dim).map(|j| sample.iter().map(|row| unit(metric, row, j)).collect()).collect();
        let tamed: Vec<(f64, Vec<f64>)> = columns.into_iter().map(tame).collect();
        let center: Vec<f64> = tamed.iter().map(|(c, _)| *c).collect();
        let columns: Vec<Vec<f64>> = tamed.into_iter().map(|(_, v)| v).collect();
        let vectors = match metric {
            Metric::Manhattan => signed_groups(&columns, most_axes),
            Metric::Euclidean | Metric::Cosine => principal(&columns, most_axes),
        };
        let axes = vectors.len();
        let mut matrix = vec![0.0; dim * axes];
        for (a, v) in vectors.iter().enumerate() {
            for (j, x) in v.iter().enumerate() {
                matrix[j * axes + a] = *x;
            }
        }
        let mut p = Projection { metric, dim, axes, node_axes: 0, center, matrix };
        p.node_axes = p.most_node_axes();
        p
    }

    /// Node boxes have 16 lanes: 15 axes and what they leave out, or 16 axes when those are all.
    fn most_node_axes(&self) -> usize {
        let lanes = 2 * super::layout::MAX_NODE_PAIRS;
        if self.metric == Metric::Manhattan || self.dim <= lanes {
            self.axes.min(lanes)
        } else {
            self.axes.min(lanes - 1)
        }
    }

    /// Whether rows (`false`) or boxes (`true`) need the length outside their axes.
    pub(crate) fn has_rest(&self, node: bool) -> bool {
        self.metric != Metric::Manhattan && self.dim > if node { self.node_axes } else { self.axes }
    }

    /// Lanes of a row or a box.
    pub(crate) fn lanes(&self, node: bool) -> usize {
        let axes = if node { self.node_axes } else { self.axes };
        axes + usize::from(self.has_rest(node))
    }

    /// Image of a row; `inverse` is 1/|row| for cosine and 1 otherwise.
    #[inline(always)]
    pub(crate) fn apply(&self, row: &[f32], inverse: f64, out: &mut Image) {
        out.axes.clear();
        out.axes.resize(self.axes, 0.0);
        let axes = out.axes.as_mut_slice();
        let (mut square, mut sum) = (0.0, 0.0);
        for ((&x, &c), column) in row.iter().zip(&self.center).zip(self.matrix.chunks_exact(self.axes)) {
            let z = f64::from(x) * inverse - c;
            square += z * z;
            sum += z.abs();
            for (y, m) in axes.iter_mut().zip(column) {
                *y += z * m;
            }
        }
        let terms = (self.dim + self.axes + 8) as f64;
        if self.metric == Metric::Manhattan {
            out.rest = [0.0; 2];
            out.error = 4.0 * terms * f64::EPSILON * sum;
        } else {
            let inner: f64 = axes[..self.node_axes].iter().map(|y| y * y).sum();
            let outer: f64 = axes[self.node_axes..].iter().map(|y| y * y).sum();
            out.rest = [(square - inner - outer).max(0.0).sqrt(), (square - inner).max(0.0).sqrt()];
            // A difference of squares loses half the digits; without it only the sums round.
            let loss = if self.has_rest(true) { (4.0 * terms * f64::EPSILON).sqrt() } else { 0.0 };
            // A unit vector is itself rounded; the values of the other metrics are exact.
            let unit = if self.metric == Metric::Cosine { terms * f64::EPSILON } else { 0.0 };
            out.error = (loss + 8.0 * terms * f64::EPSILON) * square.sqrt() + unit;
        }
    }
}

/// Column `j` of a row as the metric sees it.
fn unit(metric: Metric, row: &[f32], j: usize) -> f64 {
    let x = f64::from(row[j]);
    if metric == Metric::Cosine { x * inverse_length(row) } else { x }
}

/// Centre of a column and its values around it, with outliers pulled in so that they do not choose the axes.
fn tame(values: Vec<f64>) -> (f64, Vec<f64>) {
    let mut sorted = values.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| sorted[((sorted.len() - 1) as f64 * q).round() as usize];
    let width = (at(0.99) - at(0.01)).max(at(0.75) - at(0.25));
    let (lo, hi) = (at(0.01) - 2.0 * width, at(0.99) + 2.0 * width);
    let inside: Vec<f64> = values.iter().map(|v| v.clamp(lo, hi)).collect();
    let mean = inside.iter().sum::<f64>() / inside.len() as f64;
    let center = f64::from(mean as f32);
    (center, inside.into_iter().map(|v| v - center).collect())
}

/// Leading principal axes: as many as explain nearly everything, within the budget.
fn principal(columns: &[Vec<f64>], most_axes: usize) -> Vec<Vec<f64>> {
    let d = columns.len();
    let n = columns[0].len() as f64;
    // Scaled by the largest value so that squares of extreme data stay finite.
    let big = columns.iter().flatten().fold(0f64, |m, v| m.max(v.abs())).max(f64::MIN_POSITIVE);
    let mut cov = vec![0.0; d * d];
    for i in 0..d {
        for j in 0..=i {
            let c = columns[i].iter().zip(&columns[j]).map(|(a, b)| (a / big) * (b / big)).sum::<f64>() / n;
            (cov[i * d + j], cov[j * d + i]) = (c, c);
        }
    }
    let total: f64 = (0..d).map(|i| cov[i * d + i]).sum();
    let most = if most_axes >= d { d } else { most_axes };
    let (mut vectors, values) = leading_axes(&cov, d, most);
    let base = most.min(2 * super::layout::MAX_NODE_PAIRS - usize::from(d > 16));
    let mut left = total - values[..base].iter().sum::<f64>();
    let mut keep = base;
    // More axes than a node holds pay only while they still carry weight.
    while keep < most && left > 0.004 * total {
        left -= values[keep];
        keep += 1;
    }
    vectors.truncate(keep);
    vectors
}
