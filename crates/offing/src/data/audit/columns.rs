//! What each column of a dataset holds: its range, its quantiles, what is missing.

use rayon::prelude::*;
use serde::Serialize;

use super::super::Dataset;
use crate::stats::{nan_as_null, quantile_sorted};

/// Up to so many distinct values are counted: a switch, a mode, a sensor of a few levels.
const FEW: usize = 12;

/// One column in numbers. Values that are not finite are counted and left out of everything else; without any other value
/// the numbers are NaN.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ColumnStatistics {
    /// `obs[3] (p_tank)`, `act[0]`, `reward`.
    pub column: String,
    /// Share of values that are NaN or infinite.
    pub non_finite: f64,
    /// Smallest value.
    #[serde(with = "nan_as_null")]
    pub min: f64,
    /// 1 % quantile.
    #[serde(with = "nan_as_null")]
    pub p1: f64,
    /// Median.
    #[serde(with = "nan_as_null")]
    pub median: f64,
    /// Mean.
    #[serde(with = "nan_as_null")]
    pub mean: f64,
    /// Standard deviation (n − 1).
    #[serde(with = "nan_as_null")]
    pub std: f64,
    /// 99 % quantile.
    #[serde(with = "nan_as_null")]
    pub p99: f64,
    /// Largest value.
    #[serde(with = "nan_as_null")]
    pub max: f64,
    /// How many distinct values there are, where they are at most twelve.
    pub distinct: Option<usize>,
}

impl ColumnStatistics {
    /// Of every column: observations, actions, the reward.
    pub fn of(data: &Dataset) -> Vec<Self> {
        let columns: Vec<_> = data.columns().collect();
        columns.into_par_iter().map(|(column, values)| Self::of_column(column, values.iter())).collect()
    }

    /// Whether it has one value only.
    pub fn is_constant(&self) -> bool {
        self.distinct == Some(1)
    }

    fn of_column<'a>(column: String, values: impl ExactSizeIterator<Item = &'a f32>) -> Self {
        let all = values.len();
        let mut sorted: Vec<f64> = values.map(|&v| f64::from(v)).filter(|v| v.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|v| (v - mean).powi(2)).sum();
        let distinct = sorted.chunk_by(|a, b| a == b).take(FEW + 1).count();
        Self {
            column,
            non_finite: (all - n) as f64 / all.max(1) as f64,
            min: quantile_sorted(&sorted, 0.0),
            p1: quantile_sorted(&sorted, 0.01),
            median: quantile_sorted(&sorted, 0.5),
            mean,
            std: if n == 1 { 0.0 } else { (squares / (n as f64 - 1.0)).sqrt() },
            p99: quantile_sorted(&sorted, 0.99),
            max: quantile_sorted(&sorted, 1.0),
            distinct: (1..=FEW).contains(&distinct).then_some(distinct),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_in_numbers() {
        let mut values: Vec<f32> = (0..=100).map(|i| i as f32).collect();
        values.extend([f32::NAN; 4]);
        let s = ColumnStatistics::of_column("obs[0]".into(), values.iter());
        assert_eq!((s.min, s.p1, s.median, s.mean, s.p99, s.max), (0.0, 1.0, 50.0, 50.0, 99.0, 100.0));
        // numpy: np.arange(101).std(ddof=1)
        assert!((s.std - 29.300_170_647_967_224).abs() < 1e-12 && s.distinct.is_none());
        assert_eq!(s.non_finite, 4.0 / 105.0);
        let still = ColumnStatistics::of_column("act[0]".into(), [0.0f32, -0.0, 0.0].iter());
        assert!(still.is_constant() && still.std == 0.0);
        let nothing = ColumnStatistics::of_column("act[0]".into(), [f32::NAN; 2].iter());
        assert!(nothing.mean.is_nan() && nothing.max.is_nan() && nothing.distinct.is_none());
        assert!(serde_json::to_string(&nothing).unwrap().contains("\"max\":null"));
    }
}
