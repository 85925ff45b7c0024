//! Statistics of a few runs on several tasks (Agarwal et al. 2021): interquartile mean, stratified bootstrap, probability of
//! improvement, performance profiles; and Wilcoxon's signed-rank test over tasks.
//!
//! Scores come as one list a task, one number a run in it; tasks need not have equally many runs.
//!
//! ```
//! use offing::stats::runs::{interquartile_mean, probability_of_improvement};
//! assert_eq!(interquartile_mean(&[9.0, 1.0, 3.0, 2.0]), 2.5);
//! let (new, old) = (vec![vec![3.0, 4.0]], vec![vec![1.0, 3.0]]);
//! assert_eq!(probability_of_improvement(&new, &old), 0.875);
//! ```

use super::{Interval, ranks};
use crate::rng::Rng;

/// Mean of the middle half: a quarter of the numbers, rounded down, is left out at each end. NaN without numbers.
pub fn interquartile_mean(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let cut = sorted.len() / 4;
    let middle = &sorted[cut..sorted.len() - cut];
    middle.iter().sum::<f64>() / middle.len() as f64
}

/// The percentile bootstrap interval of `statistic` where runs are drawn with replacement within each task, never across:
/// tasks are chosen, runs are chance.
pub fn stratified_bootstrap(
    tasks: &[Vec<f64>],
    repeats: usize,
    level: f64,
    statistic: impl Fn(&[Vec<f64>]) -> f64,
    rng: &mut Rng,
) -> Interval {
    let draws = (0..repeats).map(|_| statistic(&resampled(tasks, rng))).collect();
    Interval::of_draws(statistic(tasks), draws, level)
}

fn resampled(tasks: &[Vec<f64>], rng: &mut Rng) -> Vec<Vec<f64>> {
    let draw = |runs: &Vec<f64>| (0..runs.len()).map(|_| runs[rng.below(runs.len())]).collect();
    tasks.iter().map(draw).collect()
}

/// The chance that a run of `new` scores above a run of `old` on the same task (ties count half), averaged over tasks.
///
/// # Panics
/// When the two do not have the same number of tasks.
pub fn probability_of_improvement(new: &[Vec<f64>], old: &[Vec<f64>]) -> f64 {
    assert_eq!(new.len(), old.len(), "the same tasks");
    let on = |(new, old): (&Vec<f64>, &Vec<f64>)| {
        let beats = |n: f64, o: f64| if n > o { 1.0 } else { f64::from(u8::from(n == o)) / 2.0 };
        let sum: f64 = new.iter().map(|&n| old.iter().map(|&o| beats(n, o)).sum::<f64>()).sum();
        sum / (new.len() * old.len()) as f64
    };
    new.iter().zip(old).map(on).sum::<f64>() / new.len() as f64
}

/// [`probability_of_improvement`] with its stratified bootstrap interval: both sides are drawn anew each time.
pub fn improvement_interval(
    new: &[Vec<f64>],
    old: &[Vec<f64>],
    repeats: usize,
    level: f64,
    rng: &mut Rng,
) -> Interval {
    let mut draws = Vec::with_capacity(repeats);
    for _ in 0..repeats {
        let (new, old) = (resampled(new, rng), resampled(old, rng));
        draws.push(probability_of_improvement(&new, &old));
    }
    Interval::of_draws(probability_of_improvement(new, old), draws, level)
}

/// Share of runs that score above `threshold`, averaged over tasks: one point of a performance profile.
pub fn share_above(tasks: &[Vec<f64>], threshold: f64) -> f64 {
    let of = |runs: &Vec<f64>| runs.iter().filter(|r| **r > threshold).count() as f64 / runs.len() as f64;
    tasks.iter().map(of).sum::<f64>() / tasks.len() as f64
}

/// What the signed-rank test found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignedRank {
    /// Sum of the ranks of positive differences (W⁺).
    pub positive: f64,
    /// Sum of the ranks of negative differences (W⁻).
    pub negative: f64,
    /// Pairs that differ; the others say nothing.
    pub pairs: usize,
    /// Two-sided: how often signs thrown by chance would lie as far from even.
    pub p: f64,
}

/// Up to so many pairs the distribution is computed exactly.
const EXACT: usize = 50;

/// Wilcoxon's signed-rank test of pairs. Pairs without a difference are left out; equal differences share their mean rank, and
/// the exact distribution takes that into account. Beyond 50 pairs: the normal approximation with its correction for ties.
///
/// # Panics
/// When the columns have different lengths or hold NaN.
pub fn signed_rank(x: &[f64], y: &[f64]) -> SignedRank {
    assert_eq!(x.len(), y.len(), "two columns of one length");
    // Differences of decimal numbers that are the same on paper differ in their last bits; they are ties all the same.
    let largest = x.iter().chain(y).fold(0.0f64, |m, v| m.max(v.abs()));
    let grain = if largest > 0.0 { largest * 1e-9 } else { 1.0 };
    let differences: Vec<f64> =
        x.iter().zip(y).map(|(x, y)| ((x - y) / grain).round()).filter(|d| *d != 0.0).collect();
    let ranked = ranks(&differences.iter().map(|d| d.abs()).collect::<Vec<f64>>());
    // From 0: the sum of nothing would be −0.
    let sum = |positive: bool| -> f64 {
        let of_sign = ranked.iter().zip(&differences).filter(|(_, d)| (**d > 0.0) == positive);
        of_sign.fold(0.0, |sum, (rank, _)| sum + rank)
    };
    let (positive, negative) = (sum(true), sum(false));
    let p = match ranked.len() {
        0 => 1.0,
        n if n <= EXACT => exact(&ranked, positive.min(negative)),
        _ => normal(&ranked, positive.min(negative)),
    };
    SignedRank { positive, negative, pairs: ranked.len(), p }
}

/// Twice the share of all 2ⁿ choices of signs whose sum is at most the smaller one. Mean ranks are halves, so doubled ranks
/// are whole and sums can be counted one rank at a time.
fn exact(ranks: &[f64], smaller: f64) -> f64 {
    let doubled: Vec<usize> = ranks.iter().map(|r| (2.0 * r).round() as usize).collect();
    let mut share = vec![0.0; doubled.iter().sum::<usize>() + 1];
    share[0] = 1.0;
    for rank in doubled {
        for sum in (0..share.len()).rev() {
            let with = if sum >= rank { share[sum - rank] } else { 0.0 };
            share[sum] = 0.5 * (share[sum] + with);
        }
    }
    let at = (2.0 * smaller).round() as usize;
    (2.0 * share[..=at].iter().sum::<f64>()).min(1.0)
}

fn normal(ranks: &[f64], smaller: f64) -> f64 {
    let n = ranks.len() as f64;
    // Σr²/4 is n(n+1)(2n+1)/24 less the correction for ties.
    let variance = ranks.iter().map(|r| r * r).sum::<f64>() / 4.0;
    let z = (smaller - n * (n + 1.0) / 4.0) / variance.sqrt();
    erfc(-z / std::f64::consts::SQRT_2).min(1.0)
}

/// The complementary error function for x ≥ 0: its series where that is quick, the continued fraction beyond.
fn erfc(x: f64) -> f64 {
    let scale = (-x * x).exp() / std::f64::consts::PI.sqrt();
    if x < 2.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..100 {
            term *= 2.0 * x * x / (2 * n + 1) as f64;
            sum += term;
        }
        return 1.0 - 2.0 * scale * sum;
    }
    let fraction = (1..=60).rev().fold(x, |below, n| x + f64::from(n) / 2.0 / below);
    scale / fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{a} {b}");
    }

    /// Nine numbers: two are cut at each end, as `scipy.stats.trim_mean(x, 0.25)` does.
    #[test]
    fn the_interquartile_mean_is_scipys_trimmed_mean() {
        let x = [3.0, -1.0, 8.5, 2.0, 100.0, 4.0, 0.5, 7.0, 6.0];
        near(interquartile_mean(&x), TRIM_MEAN);
        near(interquartile_mean(&[5.0]), 5.0);
        assert!(interquartile_mean(&[]).is_nan());
    }
    const TRIM_MEAN: f64 = 4.4;

    // import numpy as np; from scipy import stats
    // new, old = [[3., 5, 4], [10, 12, 11]], [[4., 2, 3], [11, 13, 9]]
    // np.mean([stats.mannwhitneyu(n, o).statistic / 9 for n, o in zip(new, old)])
    #[test]
    fn the_probability_of_improvement_is_the_mean_mann_whitney_statistic() {
        let new = [vec![3.0, 5.0, 4.0], vec![10.0, 12.0, 11.0]];
        let old = [vec![4.0, 2.0, 3.0], vec![11.0, 13.0, 9.0]];
        near(probability_of_improvement(&new, &old), IMPROVEMENT);
        near(probability_of_improvement(&old, &new), 1.0 - IMPROVEMENT);
    }
    const IMPROVEMENT: f64 = 0.638_888_888_888_888_8;

    // d = stats.wilcoxon(x, y); without ties method="exact", with ties method=stats.PermutationMethod(n_resamples=np.inf)
    #[test]
    fn small_signed_rank_tests_are_exact_with_and_without_ties() {
        // The paper's MOPO+SUMO against MOPO (Table 1).
        let sumo =
            [37.2, 24.5, 11.4, 73.1, 65.4, 70.3, 68.9, 74.6, 57.3, 84.1, 88.1, 81.9, 87.1, 101.2, 114.4];
        let mopo = [34.9, 19.4, 13.1, 65.0, 38.8, 74.8, 73.1, 45.6, 42.3, 76.6, 69.1, 75.4, 88.7, 83.9, 95.3];
        let found = signed_rank(&sumo, &mopo);
        assert_eq!((found.negative, found.pairs), (WILCOXON_PAPER.0, 15));
        near(found.p, WILCOXON_PAPER.1);
        let (x, y) = ([1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 9.0], [0.0, 3.0, 3.0, 2.0, 3.0, 4.0, 5.0]);
        let tied = signed_rank(&x, &y);
        assert_eq!((tied.positive, tied.negative, tied.pairs), (19.5, 1.5, 6), "one pair is equal");
        near(tied.p, WILCOXON_TIED);
        assert_eq!(signed_rank(&[1.0], &[1.0]).p, 1.0);
        // 2.6 both times, though not to the last bit: ranks 1.5 and 1.5.
        let (up, down) = ([116.3, 106.6], [113.7, 109.2]);
        assert!(up[0] - down[0] != down[1] - up[1], "or this says nothing");
        let decimal = signed_rank(&up, &down);
        assert_eq!((decimal.positive, decimal.negative), (1.5, 1.5));
        assert_eq!(signed_rank(&[0.1 + 0.2], &[0.3]).pairs, 0, "no difference");
        assert!(signed_rank(&[1.0], &[0.0]).negative.is_sign_positive(), "0 is printed without a sign");
        assert_eq!(signed_rank(&[1.0, 2.0], &[0.0, 3.0]).p, 1.0, "even");
    }
    const WILCOXON_PAPER: (f64, f64) = (12.0, 0.0042724609375);
    const WILCOXON_TIED: f64 = 0.09375;

    // i = np.arange(80.); x, y = np.sin(i), np.round(3 * np.cos(i)) / 10 - 0.15
    // stats.wilcoxon(x, y, method="asymptotic"); stats.wilcoxon(i % 7 - 2, np.zeros(80), method="asymptotic")
    // scipy.special.erfc([0.5, 1.9, 2.1, 5.0])
    #[test]
    fn many_pairs_take_the_normal_approximation() {
        let x: Vec<f64> = (0..80).map(|i| f64::from(i).sin()).collect();
        let y: Vec<f64> = (0..80).map(|i| (3.0 * f64::from(i).cos()).round() / 10.0 - 0.15).collect();
        let found = signed_rank(&x, &y);
        near(found.negative, WILCOXON_MANY.0);
        assert!((found.p - WILCOXON_MANY.1).abs() < 1e-9, "{}", found.p);
        let up: Vec<f64> = (0..80).map(|i| f64::from(i % 7) - 2.0).collect();
        let found = signed_rank(&up, &[0.0; 80]);
        assert_eq!((found.positive, found.negative), WILCOXON_MANY_TIED.0);
        assert!((found.p / WILCOXON_MANY_TIED.1 - 1.0).abs() < 1e-9, "{}", found.p);
        for (x, wanted) in [(0.0, 1.0), (0.5, ERFC[0]), (1.9, ERFC[1]), (2.1, ERFC[2]), (5.0, ERFC[3])] {
            assert!((erfc(x) / wanted - 1.0).abs() < 1e-10, "{x}: {}", erfc(x));
        }
    }
    const WILCOXON_MANY: (f64, f64) = (1160.0, 0.027363553580050562);
    const WILCOXON_MANY_TIED: ((f64, f64), f64) = ((1782.0, 564.0), 0.0001693707680544304);
    const ERFC: [f64; 4] =
        [0.4795001221869535, 0.007209570764742531, 0.0029794666563329845, 1.5374597944280347e-12];

    #[test]
    fn the_bootstrap_draws_within_tasks_only() {
        let mut rng = Rng::stream(0, "runs", 0);
        // Tasks far apart, runs equal: whatever is drawn, the mean is the same.
        let apart = [vec![0.0, 0.0, 0.0], vec![100.0, 100.0]];
        let mean = |tasks: &[Vec<f64>]| {
            let means = tasks.iter().map(|t| t.iter().sum::<f64>() / t.len() as f64);
            means.sum::<f64>() / tasks.len() as f64
        };
        let fixed = stratified_bootstrap(&apart, 200, 0.95, mean, &mut rng);
        assert_eq!((fixed.value, fixed.low, fixed.high), (50.0, 50.0, 50.0));
        // One task of 40 runs: the interval of a mean is about ±1.96 deviations of the mean.
        let runs: Vec<f64> = (0..40).map(|_| rng.normal()).collect();
        let wide = stratified_bootstrap(&[runs], 4000, 0.95, mean, &mut rng);
        let width = (wide.high - wide.low) / (2.0 * 1.96 / 40f64.sqrt());
        assert!((0.7..1.3).contains(&width), "{width}");
        let sure = improvement_interval(&[vec![2.0, 3.0]], &[vec![0.0, 1.0]], 100, 0.95, &mut rng);
        assert_eq!((sure.value, sure.low, sure.high), (1.0, 1.0, 1.0));
        let open = improvement_interval(&[vec![0.0, 3.0]], &[vec![1.0, 2.0]], 500, 0.95, &mut rng);
        assert_eq!((open.value, open.low, open.high), (0.5, 0.0, 1.0));
    }

    #[test]
    fn a_profile_falls_from_one_to_nothing_and_tasks_weigh_the_same() {
        let tasks = [vec![1.0, 2.0], vec![3.0]];
        let at = [0.0, 1.0, 1.5, 2.0, 3.0].map(|t| share_above(&tasks, t));
        assert_eq!(at, [1.0, 0.75, 0.75, 0.5, 0.0]);
    }
}
