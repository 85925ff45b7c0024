//! How well the data's own episodes went: what a policy has to beat.

use serde_json::json;

use crate::data::Dataset;
use crate::env::Physics;
use crate::error::Result;
use crate::run::RunDir;
use crate::tasks::{Reference, reference_under};

/// The file of a run that says what it learnt from.
pub const DATA_CARD: &str = "data.json";

pub(super) fn write_data_card(
    run: &RunDir,
    data: &Dataset,
    (mean, score): (Option<f64>, Option<f64>),
) -> Result<()> {
    let mut card = json!({
        "dataset": data.name, "transitions": data.rows.len(), "episodes": data.episodes.len(), "return": mean, "score": score,
    });
    if let Some(units) = &data.units {
        card["units"] =
            json!({ "obs_mean": units.obs.mean(), "obs_std": units.obs.std(), "actions": units.act });
    }
    run.write(DATA_CARD, format!("{card:#}\n").as_bytes()).map(drop)
}

/// Reference returns, where they apply.
pub fn reference_of(data: &Dataset, physics: Physics) -> Option<Reference> {
    reference_under(&data.name, physics)
}

/// What the data's own episodes reached: mean return, and its normalised score.
pub fn behaviour_score(data: &Dataset, physics: Physics) -> (Option<f64>, Option<f64>) {
    let mean = mean_return(data);
    (mean, mean.zip(reference_of(data, physics)).map(|(mean, reference)| reference.normalise(mean)))
}

/// Mean return of the dataset's episodes that ended by themselves or by the time limit, without what was added to every
/// reward.
pub fn mean_return(data: &Dataset) -> Option<f64> {
    let ended = |e: &&std::ops::Range<usize>| {
        e.end > e.start && (data.rows.done[e.end - 1] || data.timeout[e.end - 1])
    };
    let total = |e: &std::ops::Range<usize>| {
        e.clone().map(|i| f64::from(data.rows.rew[i] - data.reward_shift)).sum::<f64>()
    };
    let returns: Vec<f64> = data.episodes.iter().filter(ended).map(total).collect();
    (!returns.is_empty()).then(|| returns.iter().sum::<f64>() / returns.len() as f64)
}
