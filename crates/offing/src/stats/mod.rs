//! Statistics of studies, in f64: correlations, detection curves, bootstrap intervals; [`runs`] has those of
//! whole trainings. Ties share their mean rank.
//!
//! ```
//! use offing::stats::{auroc, spearman};
//! assert!((spearman(&[1.0, 2.0, 3.0], &[10.0, 20.0, 15.0]) - 0.5).abs() < 1e-12);
//! assert_eq!(auroc(&[0.1, 0.4, 0.35, 0.8], &[false, false, true, true]), 0.75);
//! ```

pub mod runs;

use crate::rng::Rng;

/// Ranks from 1; equal values share the mean of their places.
///
/// # Panics
/// When a value is NaN: a study must say beforehand what it does with such rows.
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut ranks = vec![0.0; values.len()];
    weighted_ranks(values, &ascending(values), &vec![1.0; values.len()], &mut ranks);
    ranks
}

/// Row numbers in the order of their values.
fn ascending(values: &[f64]) -> Vec<usize> {
    assert!(values.iter().all(|v| !v.is_nan()), "ranks of NaN are not defined");
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    order
}

/// Pearson's r. NaN when either side is constant or there are fewer than two rows.
pub fn pearson(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len(), "two columns of one length");
    weighted_pearson(x, y, &vec![1.0; x.len()])
}

/// Spearman's ρ: Pearson's r of the ranks.
pub fn spearman(x: &[f64], y: &[f64]) -> f64 {
    pearson(&ranks(x), &ranks(y))
}

/// Area under the ROC curve: the chance that a positive row scores above a negative one (ties count half). NaN when
/// one kind is missing.
pub fn auroc(scores: &[f64], positive: &[bool]) -> f64 {
    assert_eq!(scores.len(), positive.len(), "one label a score");
    let hits = positive.iter().filter(|&&p| p).count() as f64;
    let misses = positive.len() as f64 - hits;
    let sum: f64 = ranks(scores).iter().zip(positive).filter(|(_, p)| **p).map(|(r, _)| r).sum();
    (sum - hits * (hits + 1.0) / 2.0) / (hits * misses)
}

/// Area under the precision-recall curve as average precision, Σ (R_n − R_{n−1})·P_n over distinct thresholds. NaN
/// without positives.
pub fn auprc(scores: &[f64], positive: &[bool]) -> f64 {
    assert_eq!(scores.len(), positive.len(), "one label a score");
    let total = positive.iter().filter(|&&p| p).count() as f64;
    let mut order = ascending(scores);
    order.reverse();
    let (mut seen, mut hits, mut area) = (0.0, 0.0, 0.0);
    for tied in order.chunk_by(|&a, &b| scores[a] == scores[b]) {
        let new = tied.iter().filter(|&&i| positive[i]).count() as f64;
        seen += tied.len() as f64;
        hits += new;
        area += new / total * hits / seen;
    }
    area
}

/// Labels of the largest share of the values: the `ceil(share·n)` largest, ties by position.
pub fn largest(values: &[f64], share: f64) -> Vec<bool> {
    let count = ((values.len() as f64 * share).ceil() as usize).min(values.len());
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    let mut labels = vec![false; values.len()];
    order[..count].iter().for_each(|&i| labels[i] = true);
    labels
}

/// The q-quantile (0 ≤ q ≤ 1), linear between order statistics; NaN without values.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted: Vec<f64> = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    quantile_sorted(&sorted, q)
}

/// [`quantile`] of values that are in order already, for columns too long to sort for every question.
pub fn quantile_sorted(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    if low == high { low } else { low + (high - low) * at.fract() }
}

/// The two-sample Kolmogorov–Smirnov distance of values in order: the largest difference of their distribution functions. NaN
/// where one side has no values.
pub fn kolmogorov_smirnov(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return f64::NAN;
    }
    let (mut i, mut j, mut most) = (0, 0, 0.0f64);
    while i < a.len() && j < b.len() {
        let at = a[i].min(b[j]);
        while i < a.len() && a[i] <= at {
            i += 1;
        }
        while j < b.len() && b[j] <= at {
            j += 1;
        }
        most = most.max((i as f64 / a.len() as f64 - j as f64 / b.len() as f64).abs());
    }
    most
}

/// A statistic with its bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// On the rows as they are.
    #[serde(with = "nan_as_null")]
    pub value: f64,
    /// Lower end.
    #[serde(with = "nan_as_null")]
    pub low: f64,
    /// Upper end.
    #[serde(with = "nan_as_null")]
    pub high: f64,
}

impl Interval {
    /// The percentile interval of bootstrap draws. Draws that are NaN are left out.
    fn of_draws(value: f64, mut draws: Vec<f64>, level: f64) -> Self {
        draws.retain(|d| !d.is_nan());
        let tail = (1.0 - level) / 2.0;
        Self { value, low: quantile(&draws, tail), high: quantile(&draws, 1.0 - tail) }
    }
}

/// A number that may be NaN, in formats that have no NaN: null stands for it, both ways.
pub mod nan_as_null {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes null for NaN.
    pub fn serialize<S: Serializer>(x: &f64, to: S) -> Result<S::Ok, S::Error> {
        (!x.is_nan()).then_some(*x).serialize(to)
    }

    /// Reads NaN for null.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
    }
}

/// Spearman's ρ and Pearson's r of two columns with percentile bootstrap intervals. Whole groups are drawn with replacement:
/// rows of one rollout resemble each other, and drawing them one by one would make the interval too narrow. Rows are sorted
/// once, and a resample is a set of weights.
pub fn correlation_intervals(
    x: &[f64],
    y: &[f64],
    groups: &[Vec<usize>],
    repeats: usize,
    level: f64,
    rng: &mut Rng,
) -> (Interval, Interval) {
    assert_eq!(x.len(), y.len(), "two columns of one length");
    let (by_x, by_y) = (ascending(x), ascending(y));
    let (mut rank_x, mut rank_y) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    let mut both = |weight: &[f64]| {
        weighted_ranks(x, &by_x, weight, &mut rank_x);
        weighted_ranks(y, &by_y, weight, &mut rank_y);
        (weighted_pearson(&rank_x, &rank_y, weight), weighted_pearson(x, y, weight))
    };
    let value = both(&vec![1.0; x.len()]);
    let (mut rhos, mut rs) = (Vec::new(), Vec::new());
    let mut weight = vec![0.0; x.len()];
    for _ in 0..if groups.is_empty() { 0 } else { repeats } {
        weight.fill(0.0);
        for _ in 0..groups.len() {
            groups[rng.below(groups.len())].iter().for_each(|&row| weight[row] += 1.0);
        }
        let (rho, r) = both(&weight);
        rhos.push(rho);
        rs.push(r);
    }
    (Interval::of_draws(value.0, rhos, level), Interval::of_draws(value.1, rs, level))
}

/// Ranks in the sample that holds row i `weight[i]` times; rows of weight 0 get a rank that counts for nothing.
fn weighted_ranks(values: &[f64], order: &[usize], weight: &[f64], ranks: &mut [f64]) {
    let mut before = 0.0;
    // 0.0 and -0.0 are one value, though total_cmp orders them.
    for tied in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let size: f64 = tied.iter().map(|&i| weight[i]).sum();
        tied.iter().for_each(|&i| ranks[i] = before + (size + 1.0) / 2.0);
        before += size;
    }
}

fn weighted_pearson(x: &[f64], y: &[f64], weight: &[f64]) -> f64 {
    let total: f64 = weight.iter().sum();
    let mean = |v: &[f64]| v.iter().zip(weight).map(|(v, w)| v * w).sum::<f64>() / total;
    let (mx, my) = (mean(x), mean(y));
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for ((x, y), w) in x.iter().zip(y).zip(weight) {
        xy += w * (x - mx) * (y - my);
        xx += w * (x - mx).powi(2);
        yy += w * (y - my).powi(2);
    }
    if xx > 0.0 && yy > 0.0 { (xy / (xx.sqrt() * yy.sqrt())).clamp(-1.0, 1.0) } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: [f64; 10] = [0.3, 1.2, 1.2, -0.7, 2.5, 0.0, -1.1, 1.2, 3.3, 0.3];
    const Y: [f64; 10] = [0.1, 0.9, 1.4, -0.2, 2.0, 0.1, -1.0, 0.4, 9.0, 0.1];
    const LABEL: [bool; 10] = [false, true, false, false, true, false, false, true, true, false];

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} {b}");
    }

    /// The numbers of scipy 1.17 (spearmanr, pearsonr, rankdata) and scikit-learn 1.9 (roc_auc_score,
    /// average_precision_score) on the columns above: scripts/golden/stats.py prints them.
    #[test]
    fn correlations_and_curves_equal_scipy_and_scikit_learn() {
        assert_eq!(ranks(&X), [4.5, 7.0, 7.0, 2.0, 9.0, 3.0, 1.0, 7.0, 10.0, 4.5]);
        near(spearman(&X, &Y), SPEARMAN);
        near(pearson(&X, &Y), PEARSON);
        near(auroc(&X, &LABEL), AUROC);
        near(auprc(&X, &LABEL), AUPRC);
        near(quantile(&X, 0.3), QUANTILE);
    }
    const SPEARMAN: f64 = 0.9781978930729825;
    const PEARSON: f64 = 0.8274996165722276;
    const AUROC: f64 = 0.9583333333333334;
    const AUPRC: f64 = 0.9;
    const QUANTILE: f64 = 0.2099999999999999;

    #[test]
    fn what_has_no_answer_is_nan() {
        assert!(pearson(&[1.0, 1.0], &[1.0, 2.0]).is_nan() && spearman(&[], &[]).is_nan());
        assert!(auroc(&[1.0, 2.0], &[true, true]).is_nan() && auprc(&[1.0, 2.0], &[false, false]).is_nan());
        assert!(quantile(&[], 0.5).is_nan());
        assert_eq!(ranks(&[0.0, -0.0]), [1.5, 1.5]);
    }

    /// The plain bootstrap of a statistic of row numbers, which the quick one must equal.
    fn bootstrap(
        groups: &[Vec<usize>],
        repeats: usize,
        level: f64,
        statistic: impl Fn(&[usize]) -> f64,
        rng: &mut Rng,
    ) -> Interval {
        let mut rows: Vec<usize> = groups.iter().flatten().copied().collect();
        let value = statistic(&rows);
        let mut draws = Vec::with_capacity(repeats);
        for _ in 0..if groups.is_empty() { 0 } else { repeats } {
            rows.clear();
            (0..groups.len()).for_each(|_| rows.extend_from_slice(&groups[rng.below(groups.len())]));
            draws.push(statistic(&rows));
        }
        Interval::of_draws(value, draws, level)
    }

    #[test]
    fn the_interval_covers_the_truth_and_widens_for_grouped_rows() {
        let mut rng = Rng::stream(0, "bootstrap", 0);
        // 40 groups of 25 rows that share one value each: 40 independent numbers, not 1000.
        let values: Vec<f64> = (0..40).flat_map(|_| vec![rng.normal(); 25]).collect();
        let mean = |rows: &[usize]| rows.iter().map(|&r| values[r]).sum::<f64>() / rows.len() as f64;
        let singles: Vec<Vec<usize>> = (0..1000).map(|i| vec![i]).collect();
        let groups: Vec<Vec<usize>> = (0..40).map(|g| (g * 25..(g + 1) * 25).collect()).collect();
        let narrow = bootstrap(&singles, 400, 0.95, mean, &mut rng);
        let wide = bootstrap(&groups, 400, 0.95, mean, &mut rng);
        assert!(wide.low < 0.0 && wide.high > 0.0, "{wide:?}");
        let ratio = (wide.high - wide.low) / (narrow.high - narrow.low);
        assert!((3.5..7.0).contains(&ratio), "{ratio}: wanted about √25");
        assert_eq!(narrow.value, wide.value);
    }

    #[test]
    fn weights_are_copies_and_the_fast_interval_is_the_plain_one() {
        let groups: Vec<Vec<usize>> = vec![vec![0, 1, 2], vec![3, 4], vec![5, 6, 7, 8, 9]];
        let pick = |rows: &[usize], from: &[f64; 10]| rows.iter().map(|&r| from[r]).collect::<Vec<f64>>();
        let rho = |rows: &[usize]| spearman(&pick(rows, &X), &pick(rows, &Y));
        let r = |rows: &[usize]| pearson(&pick(rows, &X), &pick(rows, &Y));
        let rng = || Rng::stream(4, "same", 0);
        let (fast_rho, fast_r) = correlation_intervals(&X, &Y, &groups, 300, 0.9, &mut rng());
        for (fast, plain) in [
            (fast_rho, bootstrap(&groups, 300, 0.9, rho, &mut rng())),
            (fast_r, bootstrap(&groups, 300, 0.9, r, &mut rng())),
        ] {
            near(fast.value, plain.value);
            near(fast.low, plain.low);
            near(fast.high, plain.high);
        }
    }

    #[test]
    fn the_largest_tenth_is_a_tenth() {
        let values: Vec<f64> = (0..30).map(f64::from).collect();
        let labels = largest(&values, 0.1);
        assert_eq!(labels.iter().filter(|l| **l).count(), 3);
        assert!(labels[27] && labels[28] && labels[29]);
        assert_eq!(largest(&[1.0; 4], 0.5), [true, true, false, false]);
    }

    #[test]
    fn intervals_read_back_to_the_last_bit() {
        // A found study must print the same table as a fresh one; a quick parser errs by one unit in the last place.
        let mut rng = crate::rng::Rng::stream(0, "numbers", 0);
        for _ in 0..20_000 {
            let (value, low) = (rng.uniform(), rng.normal() * 1e-3);
            let text = serde_json::to_string(&Interval { value, low, high: f64::NAN }).unwrap();
            let back: Interval = serde_json::from_str(&text).unwrap();
            assert!(back.value == value && back.low == low && back.high.is_nan(), "{text}");
        }
    }
}
