//! Summary statistics of a column.

use serde::Serialize;

use crate::stats::quantile;

/// Mean, spread and quantiles of finite values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Statistics {
    /// Values summarised.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// Standard deviation (n − 1).
    pub std: f64,
    /// Smallest value.
    pub min: f64,
    /// Lower quartile.
    pub p25: f64,
    /// Median.
    pub median: f64,
    /// Upper quartile.
    pub p75: f64,
    /// Largest value.
    pub max: f64,
}

impl Statistics {
    /// Summarises the finite values; `None` when there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|v| (v - mean).powi(2)).sum();
        let std = if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 };
        let at = |share: f64| quantile(&sorted, share);
        Some(Self { count: n, mean, std, min, p25: at(0.25), median: at(0.5), p75: at(0.75), max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_agree_with_numpy() {
        // numpy: v = [3, 1, 4, 1, 5, 9, 2, 6]; v.mean(), v.std(ddof=1), np.quantile(v, [.25, .5, .75])
        let s = Statistics::of(&[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, f64::NAN]).unwrap();
        assert_eq!((s.count, s.mean, s.min, s.max), (8, 3.875, 1.0, 9.0));
        assert!((s.std - 2.748_376_143_938_713_5).abs() < 1e-12);
        assert_eq!((s.p25, s.median, s.p75), (1.75, 3.5, 5.25));
        assert!(Statistics::of(&[f64::NAN]).is_none());
    }
}
