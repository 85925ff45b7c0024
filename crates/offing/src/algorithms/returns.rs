//! What the data's episodes return, for critics to start with.

use crate::data::Dataset;

/// Root mean square of the discounted returns that critics learn: rewards are scaled to it.
const RETURN_SCALE: f64 = 10.0;

/// The data's discounted returns.
pub(super) struct Returns {
    /// The return from each row on, scaled.
    pub(super) values: Vec<f32>,
    /// Factor on rewards that gives returns their usual size.
    pub(super) scale: f32,
    /// Bounds of what any policy can return, scaled.
    pub(super) least: f32,
    pub(super) most: f32,
    /// Mean discounted return, as logged.
    pub(super) mean: f64,
}

impl Returns {
    /// An episode that the log cuts off counts as if it went on with its mean reward.
    pub(super) fn of(data: &Dataset, gamma: f64) -> Self {
        let rew = |row: usize| f64::from(data.rows.rew[row]);
        let mut values = vec![0.0; data.rows.len()];
        let horizon = 1.0 / (1.0 - gamma).max(1e-6);
        for episode in &data.episodes {
            let Some(last) = episode.clone().last() else { continue };
            let mean = episode.clone().map(rew).sum::<f64>() / episode.len() as f64;
            let mut value = if data.rows.done[last] { 0.0 } else { mean * horizon };
            for row in episode.clone().rev() {
                value = rew(row) + gamma * value;
                values[row] = value;
            }
        }
        let rows = values.len().max(1) as f64;
        let square = values.iter().map(|v| v * v).sum::<f64>() / rows;
        let scale = if square > 0.0 { RETURN_SCALE / square.sqrt() } else { 1.0 };
        let bound = |pick: fn(f64, f64) -> f64| (0..values.len()).map(rew).fold(0.0, pick) * horizon * scale;
        Self {
            least: bound(f64::min) as f32,
            most: bound(f64::max) as f32,
            mean: values.iter().sum::<f64>() / rows,
            values: values.into_iter().map(|v| (v * scale) as f32).collect(),
            scale: scale as f32,
        }
    }
}
