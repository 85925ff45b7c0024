//! What every estimator must hold, as a check that a test of any estimator can call.
//!
//! ```
//! use offing::dynamics::ModelStep;
//! use offing::uncertainty::{BuildContext, UncertaintyConfig, conformance};
//! use offing::{Batch, Mat};
//! let mut rng = offing::Rng::stream(0, "rows", 0);
//! let mut rows = |n: usize| {
//!     let obs = Mat::from_shape_fn((n, 3), |_| rng.normal() as f32);
//!     let act = Mat::from_shape_fn((n, 1), |_| rng.normal() as f32);
//!     Batch { next_obs: &obs + 1.0, obs, act, rew: vec![0.0; n].into(), done: vec![false; n].into() }
//! };
//! let (data, queries) = (rows(500), rows(50));
//! let mine = UncertaintyConfig::from_id("sumo")?.build(&BuildContext::of_data(&data))?;
//! conformance::check(&*mine, &ModelStep::of_rows(queries)).unwrap();
//! # Ok::<(), offing::Error>(())
//! ```

use ndarray::{Array1, Axis};

use super::Uncertainty;
use crate::dynamics::{Members, ModelStep};

/// Checks that an estimator keeps the promises of [`Uncertainty`] on the rows of `step`: two rows at least, that differ. The
/// step carries every member's prediction when the estimator needs them.
///
/// # Errors
/// The first promise that does not hold, in one line.
pub fn check(estimator: &dyn Uncertainty, step: &ModelStep) -> Result<(), String> {
    let rows = step.batch.len();
    let scores = score(estimator, step)?;
    hold(rows >= 2, || format!("wanted at least 2 rows to check, found {rows}"))?;
    hold(scores.len() == rows, || format!("wanted {rows} scores, found {}", scores.len()))?;
    if let Some(row) = scores.iter().position(|u| !u.is_finite()) {
        return Err(format!("wanted finite scores, found {} at row {row}", scores[row]));
    }
    hold(scores.iter().any(|u| *u != scores[0]), || format!("every row has the score {}", scores[0]))?;
    let again: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..3).map(|_| scope.spawn(|| score(estimator, step))).collect();
        asked.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a panic".into()))).collect()
    });
    for scored in again {
        hold(scored? == scores, || "scores differ when asked again, from several threads at once".into())?;
    }
    check_rows_alone(estimator, step, &scores)?;
    let max = estimator.max_loo_score();
    hold(max.is_finite(), || format!("wanted a finite max_loo_score, found {max}"))?;
    hold(max == estimator.max_loo_score(), || "max_loo_score differs when asked again".into())?;
    let mut sorted = scores.to_vec();
    sorted.sort_by(f32::total_cmp);
    for threshold in [sorted[0], sorted[rows / 2], sorted[rows - 1], sorted[0] - 1.0, max, 0.5 * max] {
        let wanted: Vec<bool> = scores.iter().map(|&u| u > threshold).collect();
        let found = estimator.exceeds(step, threshold).map_err(|e| e.to_string())?;
        hold(found == wanted, || format!("exceeds({threshold}) differs from score > {threshold}"))?;
    }
    let alone = ModelStep { prediction: None, ..step.clone() };
    match estimator.needs() {
        Members::One => {
            let found = score(estimator, &alone)?;
            hold(found == scores, || "needs one member, but reads every member's prediction".into())
        }
        Members::All => hold(estimator.score(&alone).is_err(), || {
            "needs every member, but accepts a step without their predictions".into()
        }),
    }
}

/// Checks that two estimators score alike: the same one built twice, on another number of threads.
///
/// # Errors
/// What differs, in one line.
pub fn check_same(a: &dyn Uncertainty, b: &dyn Uncertainty, step: &ModelStep) -> Result<(), String> {
    hold(score(a, step)? == score(b, step)?, || "two builds give different scores".into())?;
    let (a, b) = (a.max_loo_score(), b.max_loo_score());
    hold(a == b, || format!("two builds give different largest scores: {a} and {b}"))
}

/// A row's score depends on that row alone.
fn check_rows_alone(
    estimator: &dyn Uncertainty,
    step: &ModelStep,
    scores: &Array1<f32>,
) -> Result<(), String> {
    let rows = scores.len();
    let backwards: Vec<usize> = (0..rows).rev().collect();
    let reversed = score(estimator, &step.select(&backwards))?;
    hold(reversed == scores.select(Axis(0), &backwards), || "scores depend on the order of rows".into())?;
    for row in [0, rows / 2, rows - 1] {
        let alone = score(estimator, &step.select(&[row]))?;
        hold(alone[0] == scores[row], || {
            format!("row {row} scores {} alone and {} among the others", alone[0], scores[row])
        })?;
    }
    let changed = rows / 2;
    let mut moved = step.clone();
    let batch = &mut moved.batch;
    for columns in [&mut batch.obs, &mut batch.act, &mut batch.next_obs, &mut moved.mean] {
        columns.row_mut(changed).mapv_inplace(|x| x + 5.0);
    }
    if let Some(prediction) = &mut moved.prediction {
        prediction.mean.index_axis_mut(Axis(1), changed).mapv_inplace(|x| x + 5.0);
    }
    let moved = score(estimator, &moved)?;
    hold((0..rows).all(|i| i == changed || moved[i] == scores[i]), || {
        format!("a change of row {changed} changes other rows' scores")
    })
}

fn score(estimator: &dyn Uncertainty, step: &ModelStep) -> Result<Array1<f32>, String> {
    estimator.score(step).map_err(|e| e.to_string())
}

fn hold(promise: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if promise { Ok(()) } else { Err(otherwise()) }
}
