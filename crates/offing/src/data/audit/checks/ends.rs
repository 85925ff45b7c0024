//! Whether a file marks where episodes end, and which steps look like resets where it does not.

use super::super::super::{Dataset, Ends};
use super::{AuditFinding, Severity, about};
use crate::stats::quantile;

const CHECK: &str = "unknown episode ends";
/// Steps up to this share are ordinary, as long as episodes have more than twenty steps.
const USUAL: f64 = 0.95;
/// A step beyond this many times the ordinary ones may be a reset. A hard contact may be one as well: this is a note.
const FACTOR: f64 = 3.0;
/// With fewer rows no step counts as unusual.
const FEWEST: usize = 200;

/// Without next states and marks, the reader finds a reset only where it looks like no other step. Many resets are
/// ordinary by that measure. So the audit never calls such a file clean, and counts likely resets by another measure.
pub(super) fn unknown_ends(data: &Dataset) -> AuditFinding {
    let advice = "add a timeout or episode column, or next_obs";
    let rows = match data.reading.ends {
        Ends::Marked => Vec::new(),
        Ends::TerminalsOnly | Ends::Unknown => long_steps(data),
    };
    if data.reading.ends != Ends::Unknown {
        let detail = format!(
            "the file has neither next states nor time limits, and these steps are far longer than the others: perhaps \
             unmarked resets; {advice}"
        );
        return about(CHECK, Severity::Note, &rows, detail);
    }
    let found = match rows.len() {
        0 => String::new(),
        1 => " (one step is far longer than the others)".into(),
        count => format!(" ({count} steps are far longer than the others)"),
    };
    let detail = format!(
        "ends of episodes unknown: the file has no next states and marks no end, so a reset may pass for a \
         step{found}; {advice}"
    );
    AuditFinding { severity: Severity::Note, detail, ..about(CHECK, Severity::Note, &rows, "") }
}

/// Rows whose step is far longer than most. Each entry counts in units of its own ordinary steps; entries that mostly
/// rest do not count.
fn long_steps(data: &Dataset) -> Vec<usize> {
    let (obs, next_obs) = (&data.rows.obs, &data.rows.next_obs);
    if data.rows.len() < FEWEST {
        return Vec::new();
    }
    let mut lengths = vec![0.0f64; data.rows.len()];
    let mut entries = 0usize;
    for (column, next) in obs.columns().into_iter().zip(next_obs.columns()) {
        let steps: Vec<f64> = column.iter().zip(next).map(|(o, n)| f64::from(n - o).abs()).collect();
        let unit = usual(&steps);
        if unit > 0.0 {
            entries += 1;
            lengths.iter_mut().zip(&steps).for_each(|(length, step)| *length += (step / unit).powi(2));
        }
    }
    if entries == 0 {
        return Vec::new();
    }
    lengths.iter_mut().for_each(|length| *length = length.sqrt());
    let limit = FACTOR * usual(&lengths);
    (0..lengths.len()).filter(|&i| lengths[i].is_finite() && lengths[i] > limit).collect()
}

/// What ordinary values do not exceed; values that are not finite do not count.
fn usual(values: &[f64]) -> f64 {
    let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    if finite.is_empty() { 0.0 } else { quantile(&finite, USUAL) }
}
