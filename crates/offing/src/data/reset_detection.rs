//! Distinguishing a physical step from a teleport, for files that do not mark where episodes end.

use ndarray::ArrayView1;

use crate::batch::Mat;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_a_jump_and_a_step_is_not() {
        let obs =
            Mat::from_shape_fn((1000, 2), |(i, j)| if j == 0 { ((i % 250) as f32 * 0.1).sin() } else { 7.0 });
        let scale = StepScale::measure(&obs, |i| i % 250 != 249).unwrap();
        assert!(!scale.is_jump(obs.row(10), obs.row(11)));
        let far = Mat::from_elem((1, 2), 5.0);
        assert!(scale.is_jump(obs.row(10), far.row(0)));
        let constant_moved = ndarray::arr1(&[obs[[11, 0]], 8.0]);
        assert!(
            !scale.is_jump(obs.row(10), constant_moved.view()),
            "an entry that never moves is no evidence"
        );
    }

    #[test]
    fn few_rows_give_no_scale() {
        assert!(StepScale::measure(&Mat::zeros((100, 2)), |_| true).is_none());
    }
}
