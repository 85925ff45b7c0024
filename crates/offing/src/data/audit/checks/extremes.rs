//! Values that are numbers, but so large that a loss overflows or one row drowns all others.

use ndarray::ArrayView1;

use super::super::super::Dataset;
use super::{AuditFinding, Severity, about, first_few};

/// Below this nothing is extreme.
const FLOOR: f32 = 1e6;
/// This many times the median magnitude of its column is extreme.
const FAR: f32 = 1e6;
/// Beyond this everything is extreme, even if the whole column is: squares of a few such numbers leave the range of f32.
const HUGE: f32 = 1e12;
/// Most columns that a message names.
const FEW: usize = 3;

pub(super) const CHECK: &str = "extreme values";

/// Finite entries of an extreme magnitude, each column with its largest.
pub(super) fn extreme_values(data: &Dataset) -> AuditFinding {
    let mut rows: Vec<usize> = Vec::new();
    let mut worst: Vec<String> = Vec::new();
    for (name, column) in columns(data) {
        let found = extremes(column);
        let largest = found.iter().copied().max_by(|&i, &j| column[i].abs().total_cmp(&column[j].abs()));
        worst.extend(largest.map(|row| format!("{name} is {:.1e} in row {row}", column[row])));
        rows.extend(found);
    }
    rows.sort_unstable();
    rows.dedup();
    let detail = format!(
        "{}: losses overflow or follow these rows alone; fix the unit, rescale or drop them",
        first_few(&worst, FEW)
    );
    about(CHECK, Severity::Note, &rows, detail)
}

/// Extreme rows, column by column, where they are less than half of all. A column that is extreme in most rows has another
/// unit: dropping its rows would not mend it.
pub(super) fn rare_extreme_rows(data: &Dataset) -> Vec<usize> {
    let found = columns(data).map(|(_, column)| extremes(column));
    let mut rows: Vec<usize> = found.filter(|rows| 2 * rows.len() < data.rows.len()).flatten().collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// Every column of numbers, with its name.
fn columns(data: &Dataset) -> impl Iterator<Item = (String, ArrayView1<'_, f32>)> {
    let next = data.rows.next_obs.columns().into_iter().enumerate();
    data.columns().chain(next.map(|(j, column)| (data.names.next_obs_label(j), column)))
}

/// The entries of a column beyond any that a learner copes with.
fn extremes(column: ArrayView1<f32>) -> Vec<usize> {
    let mut sizes: Vec<f32> = column.iter().map(|v| v.abs()).filter(|v| v.is_finite()).collect();
    if sizes.iter().all(|&v| v <= FLOOR) {
        return Vec::new();
    }
    let middle = sizes.len() / 2;
    let median = *sizes.select_nth_unstable_by(middle, f32::total_cmp).1;
    let limit = (FAR * median).clamp(FLOOR, HUGE);
    (0..column.len()).filter(|&i| column[i].is_finite() && column[i].abs() > limit).collect()
}
