//! What every file must satisfy before its columns become transitions.

use std::path::Path;

use ndarray::{Array1, Array2, Axis};

use super::formats::Format;
use super::transitions::FileColumns;
use crate::error::{Error, Result};

/// Every column has one entry a row, and there is at least one row.
pub(super) fn check_lengths(columns: &FileColumns, path: &Path) -> Result<()> {
    let names = &columns.keys;
    let (first, n) = (&names.obs[0], columns.obs.nrows());
    if n == 0 {
        let hint = "the log is empty: record some transitions first";
        return Err(Error::key(path, first, "at least one row", "none", hint));
    }
    let next_obs = columns.next_obs.as_ref();
    if let Some(next) = next_obs.filter(|next| next.ncols() != columns.obs.ncols()) {
        let (wanted, found) = (format!("width {}", columns.obs.ncols()), next.ncols().to_string());
        let hint = "next observations must be as wide as observations";
        return Err(Error::key(path, &names.next_obs[0], wanted, found, hint));
    }
    let lengths = [
        (names.act[0].as_str(), Some(columns.act.nrows())),
        (&names.rew, Some(columns.rew.len())),
        (&names.next_obs[0], next_obs.map(Array2::nrows)),
        ("terminals", Some(columns.done.len())),
        ("timeouts", columns.timeout.as_ref().map(Array1::len)),
        ("episode", columns.episode.as_ref().map(Vec::len)),
        ("step", columns.step.as_ref().map(Vec::len)),
    ];
    let states = columns.sim.iter().flat_map(|sim| sim.columns()).map(|(name, m)| (name, Some(m.nrows())));
    match lengths.into_iter().chain(states).find(|(_, found)| found.is_some_and(|found| found != n)) {
        Some((key, found)) => {
            let hint = "all columns must have one entry a transition: the file is incomplete or was put together wrongly";
            let (wanted, found) = (format!("{n} rows, as in `{first}`"), found.unwrap_or(0).to_string());
            Err(Error::key(path, key, wanted, found, hint))
        }
        None => Ok(()),
    }
}

/// No NaN, no infinity; the message names the first.
pub(super) fn check_finite(columns: &FileColumns, path: &Path, format: Format) -> Result<()> {
    let names = &columns.keys;
    let rew = columns.rew.view().insert_axis(Axis(1));
    let matrices = [
        (&names.obs[..], Some(columns.obs.view())),
        (&names.act, Some(columns.act.view())),
        (&names.next_obs, columns.next_obs.as_ref().map(|next| next.view())),
        (std::slice::from_ref(&names.rew), Some(rew)),
    ];
    for (names, matrix) in matrices.iter().filter_map(|(names, matrix)| Some((names, matrix.as_ref()?))) {
        let width = matrix.ncols();
        let flat = matrix.as_slice().expect("columns are read in row-major order");
        if let Some(at) = first_non_finite(flat) {
            let (place, column) = (format.row_place(path, at / width), at % width);
            let key = if names.len() == width { &names[column] } else { &names[0] };
            let column = if width > 1 { format!(", column {column}") } else { String::new() };
            let hint = "repair such rows, or leave them out with `offing data convert --drop-bad`; `offing data audit` counts them";
            let found = format!("{} in {place}{column}", flat[at]);
            return Err(Error::key(path, key, "finite numbers", found, hint));
        }
    }
    Ok(())
}

/// A fold without early exit per block, which the compiler vectorises; files have tens of millions of entries.
fn first_non_finite(values: &[f32]) -> Option<usize> {
    const BLOCK: usize = 4096;
    let bad = |chunk: &[f32]| chunk.iter().fold(false, |bad, v| bad | !v.is_finite());
    let block = values.chunks(BLOCK).position(bad)?;
    let start = block * BLOCK;
    values[start..].iter().position(|v| !v.is_finite()).map(|at| start + at)
}
