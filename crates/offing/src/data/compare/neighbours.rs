//! How far rows of one set lie from the other, beside how far they lie from their own.

use ndarray::{ArrayView1, Axis, concatenate};
use offing_knn::{NeighborIndex, Tree, TreeConfig};
use serde::Serialize;

use super::super::Dataset;
use super::CompareConfig;
use super::halves::draw;
use super::samples::sorted;
use crate::batch::Mat;
use crate::error::{Error, Result};
use crate::rng::Rng;
use crate::stats::quantile_sorted;

/// Beyond so many standard deviations all is equally far: squares of larger numbers would leave the range of f32.
const FARTHEST: f32 = 1e9;

/// Nearest-neighbour distances both ways, between points (s, a, s') standardised by the second set.
#[derive(Clone, Debug, Serialize)]
pub struct NeighbourComparison {
    /// Rows of each set among which neighbours are looked for: as many in both, or the larger set would seem nearer.
    pub searched_rows: usize,
    /// Rows of the first set.
    pub a: NeighbourDistances,
    /// Rows of the second set.
    pub b: NeighbourDistances,
}

/// Distances of a sample of one set's rows.
#[derive(Clone, Debug, Serialize)]
pub struct NeighbourDistances {
    /// Rows in the sample.
    pub rows: usize,
    /// To the nearest row of their own set, among other episodes.
    pub own: DistanceQuantiles,
    /// To the nearest row of the other set.
    pub other: DistanceQuantiles,
    /// Share of the rows that lie farther from the other set than 99 % of that set's own rows do. About 0.01 for sets of one
    /// distribution.
    pub beyond: f64,
    /// All distances in order: to their own set, and to the other.
    #[serde(skip)]
    pub values: [Vec<f64>; 2],
}

/// Quantiles of distances.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DistanceQuantiles {
    /// 50 %.
    pub median: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
}

impl DistanceQuantiles {
    fn of(sorted: &[f64]) -> Self {
        let [median, p90, p99] = [0.5, 0.9, 0.99].map(|q| quantile_sorted(sorted, q));
        Self { median, p90, p99 }
    }
}

impl NeighbourComparison {
    /// Rows of each set's second half look for neighbours in the first halves, so that no row finds its own episode. `None`
    /// where a half is empty.
    pub(super) fn of(
        sets: [&Dataset; 2],
        halves: &[[Vec<usize>; 2]; 2],
        cfg: &CompareConfig,
    ) -> Result<Option<Self>> {
        let scale = ColumnScales::of(sets[1]);
        let finite = |set: usize, half: usize| -> Vec<usize> {
            halves[set][half].iter().copied().filter(|&row| is_finite(sets[set], row)).collect()
        };
        let (searched, asking) = ([finite(0, 0), finite(1, 0)], [finite(0, 1), finite(1, 1)]);
        let fewest = searched.iter().map(Vec::len).min().unwrap_or(0).min(cfg.searched_rows);
        if fewest == 0 || asking.iter().any(Vec::is_empty) {
            return Ok(None);
        }
        let wrong = |e: offing_knn::Error| Error::Invalid(format!("neighbours of the two sets: {e}"));
        let mut indexes = Vec::with_capacity(2);
        for (set, rows) in searched.into_iter().enumerate() {
            let rows = draw(rows, fewest, &mut Rng::stream(cfg.seed, "searched", set as u64));
            let points = scale.points(sets[set], &rows);
            indexes.push(Tree::new(&TreeConfig::default(), points.view()).map_err(wrong)?);
        }
        let mut distances = Vec::with_capacity(2);
        for (set, rows) in asking.into_iter().enumerate() {
            let rows = draw(rows, cfg.sample, &mut Rng::stream(cfg.seed, "asking", set as u64));
            let points = scale.points(sets[set], &rows);
            let to = |index: &Tree| -> Result<Vec<f64>> {
                let found = index.search(points.view(), 1).map_err(wrong)?;
                Ok(sorted(found.kth().iter().map(|&d| f64::from(d)).collect()))
            };
            distances.push([to(&indexes[set])?, to(&indexes[1 - set])?]);
        }
        let own = [0, 1].map(|set| DistanceQuantiles::of(&distances[set][0]));
        let mut of = distances.into_iter().enumerate().map(|(set, values)| {
            let limit = own[1 - set].p99;
            let near = values[1].partition_point(|&d| d <= limit);
            NeighbourDistances {
                rows: values[1].len(),
                own: own[set],
                other: DistanceQuantiles::of(&values[1]),
                beyond: 1.0 - near as f64 / values[1].len() as f64,
                values,
            }
        });
        Ok(of.next().zip(of.next()).map(|(a, b)| Self { searched_rows: fewest, a, b }))
    }
}

fn is_finite(data: &Dataset, row: usize) -> bool {
    let finite = |row: ArrayView1<'_, f32>| row.iter().all(|v| v.is_finite());
    let rows = &data.rows;
    finite(rows.obs.row(row)) && finite(rows.act.row(row)) && finite(rows.next_obs.row(row))
}

/// Mean and deviation of each column of (s, a, s').
struct ColumnScales(Vec<(f64, f64)>);

impl ColumnScales {
    fn of(data: &Dataset) -> Self {
        let rows = &data.rows;
        let parts = [&rows.obs, &rows.act, &rows.next_obs];
        Self(
            parts.iter().flat_map(|part| part.columns().into_iter().map(scale).collect::<Vec<_>>()).collect(),
        )
    }

    /// Standardised points of these rows.
    fn points(&self, data: &Dataset, rows: &[usize]) -> Mat {
        let parts = [&data.rows.obs, &data.rows.act, &data.rows.next_obs].map(|p| p.select(Axis(0), rows));
        let views = [parts[0].view(), parts[1].view(), parts[2].view()];
        let mut points = concatenate(Axis(1), &views).expect("as many rows in each part");
        for (mut column, (mean, scale)) in points.columns_mut().into_iter().zip(&self.0) {
            let inward = |x: f32| (((f64::from(x) - mean) / scale) as f32).clamp(-FARTHEST, FARTHEST);
            column.mapv_inplace(inward);
        }
        points
    }
}

/// A column that never changes has scale 1.
fn scale(column: ArrayView1<'_, f32>) -> (f64, f64) {
    let finite = || column.iter().filter(|v| v.is_finite()).map(|&v| f64::from(v));
    let n = finite().count().max(1) as f64;
    let mean = finite().sum::<f64>() / n;
    let std = (finite().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
    (mean, if std > 1e-7 * mean.abs() { std } else { 1.0 })
}
