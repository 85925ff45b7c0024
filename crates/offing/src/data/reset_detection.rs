//! Distinguishing a physical step from a reset, for files that do not mark where episodes end.

use ndarray::ArrayView1;

use super::step_model::StepModel;
use crate::batch::Mat;
use crate::stats::quantile;

/// A step beyond this many times the scale of an entry is a jump. Resets of the MuJoCo bodies lie far beyond it in at
/// least one entry; within an episode it is almost never reached.
const FACTOR: f32 = 3.0;

/// Share of ordinary steps that lie within the scale.
const QUANTILE: f64 = 0.999;

/// Rows looked at; enough for the quantile, cheap for millions of rows.
const SAMPLE: usize = 50_000;

/// With fewer ordinary steps than this there is no scale.
const FEWEST: usize = 200;

/// How far each entry of the observation moves in an ordinary step.
#[derive(Clone, Debug)]
pub struct StepScale {
    scale: Vec<f32>,
}

impl StepScale {
    /// Measures the steps from row i to row i + 1 for which `ordinary(i)` holds; `None` when they are too few.
    pub fn measure(obs: &Mat, ordinary: impl Fn(usize) -> bool) -> Option<Self> {
        let rows: Vec<usize> = (0..obs.nrows().saturating_sub(1)).filter(|&i| ordinary(i)).collect();
        if rows.len() < FEWEST {
            return None;
        }
        let stride = rows.len().div_ceil(SAMPLE);
        let scale = (0..obs.ncols())
            .map(|column| {
                let mut steps: Vec<f32> = rows
                    .iter()
                    .step_by(stride)
                    .map(|&i| (obs[[i + 1, column]] - obs[[i, column]]).abs())
                    .filter(|step| step.is_finite())
                    .collect();
                if steps.is_empty() {
                    return 0.0;
                }
                let at = ((steps.len() - 1) as f64 * QUANTILE).round() as usize;
                *steps.select_nth_unstable_by(at, f32::total_cmp).1
            })
            .collect();
        Some(Self { scale })
    }

    /// Whether some entry moves further than an ordinary step could. Entries that hardly ever move do not count.
    pub fn is_jump(&self, from: ArrayView1<'_, f32>, to: ArrayView1<'_, f32>) -> bool {
        from.iter()
            .zip(to)
            .zip(&self.scale)
            .any(|((a, b), &scale)| scale > 0.0 && (b - a).abs() > FACTOR * scale)
    }
}

/// After a reset a body may fall into place for a few steps that look like no others: these are no further resets.
const SETTLING: usize = 5;

/// States closer to a start than this share of the median distance are like it.
const NEAR: f64 = 0.4;

/// Ordinary steps hardly ever arrive at a start where resets do so this many times as often.
const RARE: usize = 10;

/// Starts that states are compared with; more do not change the picture.
const STARTS: usize = 8;

/// What each step from row i to row i + 1 looks like.
pub(super) struct Resets {
    /// It is taken for a reset.
    likely: Vec<bool>,
    /// It is not clearly an ordinary step. After a terminal that is enough: a reset is what usually follows one.
    doubtful: Vec<bool>,
}

impl Resets {
    /// Looks at all steps, knowing those for which `ordinary(i)` holds (but for a few unmarked resets among them), and
    /// rows that start an episode. `None` when there are too few steps, or too little moves in them.
    ///
    /// A step is a reset if it is far from what a linear model of the step predicts; if some entry moves much farther
    /// than it ever does; or if it is rather far from the prediction and arrives from elsewhere at a start. The last
    /// says something only where ordinary steps hardly ever arrive there.
    pub(super) fn find(
        obs: &Mat,
        act: &Mat,
        ordinary: impl Fn(usize) -> bool,
        mut starts: Vec<usize>,
    ) -> Option<Self> {
        let model = StepModel::fit(obs, act, &ordinary)?;
        let scale = StepScale::measure(obs, &ordinary)?;
        let misses = model.misses(obs, act);
        let rows = 0..misses.len();
        let far: Vec<bool> = (rows.clone())
            .map(|i| misses[i] > model.high || scale.is_jump(obs.row(i), obs.row(i + 1)))
            .collect();
        let mut likely = settled(far, &misses);
        starts.extend(rows.clone().filter(|&i| likely[i]).map(|i| i + 1));
        let arrives = model.places(obs).map_or_else(|| vec![false; misses.len()], |p| arrivals(&p, &starts));
        let odd: Vec<bool> =
            rows.clone().map(|i| arrives[i] && misses[i] > model.low && ordinary(i)).collect();
        let count = |is: &dyn Fn(usize) -> bool| rows.clone().filter(|&i| arrives[i] && is(i)).count();
        let plain = count(&|i| misses[i] <= model.low && ordinary(i));
        let (unexplained, resets) = (count(&|i| odd[i] && !likely[i]), count(&|i| odd[i] || likely[i]));
        if unexplained > plain || resets > RARE * plain {
            likely = settled(rows.clone().map(|i| likely[i] || odd[i]).collect(), &misses);
        }
        // A miss that is not a number is not clearly ordinary either.
        let clear = |i: usize| misses[i] <= model.low && !arrives[i] && !likely[i];
        let doubtful = rows.map(|i| !clear(i)).collect();
        Some(Self { likely, doubtful })
    }

    /// Whether row i + 1 is taken for the start of another episode.
    pub(super) fn is_likely(&self, row: usize) -> bool {
        self.likely.get(row).is_some_and(|&likely| likely)
    }

    /// Whether row i + 1 may be the start of another episode.
    pub(super) fn is_possible(&self, row: usize) -> bool {
        self.doubtful.get(row).is_none_or(|&doubtful| doubtful)
    }
}

/// The same without the steps that follow a start, or a larger miss, too closely.
fn settled(mut found: Vec<bool>, misses: &[f64]) -> Vec<bool> {
    let (mut start, mut size) = (0, f64::INFINITY);
    for i in 0..found.len() {
        if found[i] {
            found[i] = i >= start + SETTLING || misses[i] > size;
            if found[i] {
                (start, size) = (i + 1, misses[i]);
            }
        }
    }
    found
}

/// For each step: whether it arrives at one of the starts from elsewhere.
fn arrivals(places: &Mat, starts: &[usize]) -> Vec<bool> {
    let distance = |row: ArrayView1<'_, f32>, start: usize| {
        f64::from(row.iter().zip(places.row(start)).map(|(a, b)| (a - b).powi(2)).sum::<f32>()).sqrt()
    };
    let stride = places.nrows().div_ceil(SAMPLE);
    let all: Vec<f64> =
        places.rows().into_iter().step_by(stride).map(|row| distance(row, starts[0])).collect();
    let radius = NEAR * quantile(&all, 0.5);
    let some: Vec<usize> = starts.iter().copied().step_by(starts.len().div_ceil(STARTS)).collect();
    let near: Vec<bool> = places
        .rows()
        .into_iter()
        .map(|row| some.iter().any(|&start| distance(row, start) < radius))
        .collect();
    near.windows(2).map(|pair| pair[1] && !pair[0]).collect()
}

#[cfg(test)]
mod tests;
