//! Mean and standard deviation over seeds.

use std::collections::BTreeMap;

use crate::plot::Series;

/// A mean over seeds, with the standard deviation where there are several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeanStd {
    pub(crate) mean: f64,
    /// With n − 1; zero for a single value.
    pub(crate) std: f64,
    pub(crate) seeds: usize,
}

impl MeanStd {
    pub(crate) fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let square: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        Self { mean, std: if n > 1.0 { (square / (n - 1.0)).sqrt() } else { 0.0 }, seeds: values.len() }
    }

    /// The mean over seeds; `None` when no seed has a value.
    pub(crate) fn of_some(values: &[f64]) -> Option<Self> {
        (!values.is_empty()).then(|| Self::of(values))
    }

    /// With two decimals; a dash where there is no number.
    pub(crate) fn text(&self) -> String {
        match (self.mean.is_finite(), self.seeds) {
            (false, _) => "-".into(),
            (true, 2..) => format!("{:.2} ± {:.2}", self.mean, self.std),
            (true, _) => format!("{:.2}", self.mean),
        }
    }

    /// One standard deviation around the mean.
    pub(crate) fn band(&self) -> (f64, f64) {
        (self.mean - self.std, self.mean + self.std)
    }
}

/// The mean of several curves at each step, shaded by one standard deviation where there are several; `None` without a point.
pub(crate) fn mean_line(name: &str, curves: &[Vec<(f64, f64)>]) -> Option<Series> {
    let mut at: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    curves.iter().flatten().for_each(|(step, y)| at.entry(*step as u64).or_default().push(*y));
    let means: Vec<(f64, MeanStd)> = at.iter().map(|(x, values)| (*x as f64, MeanStd::of(values))).collect();
    let mut line = Series::line(name, means.iter().map(|(x, m)| (*x, m.mean)).collect());
    line.seeds = curves.iter().filter(|curve| !curve.is_empty()).cloned().collect();
    let band = means.iter().map(|(_, m)| m.band()).collect();
    (!means.is_empty()).then(|| if curves.len() > 1 { line.with_band(band) } else { line })
}
