//! What every file must satisfy before its columns become transitions.

use std::path::Path;

use ndarray::Array1;

use super::csv::place;
use super::dataset::Format;
use super::transitions::Columns;
use crate::error::{Error, Result};

/// Every column has one entry a row, and there is at least one row.
pub(super) fn check_lengths(columns: &Columns, path: &Path) -> Result<()> {
    let keys = &columns.keys;
    let n = columns.obs.nrows();
    let wrong = |key: &str, found: usize| {
        let hint = "all columns must have one entry a transition: the file is incomplete or was put together wrongly";
        Err(Error::key(path, key, format!("{n} rows, as in `{}`", keys.obs[0]), format!("{found}"), hint))
    };
    if n == 0 {
        let hint = "the log is empty: record some transitions first";
        return Err(Error::key(path, &keys.obs[0], "at least one row", "none", hint));
    }
    let mut counts = vec![(&keys.act[0], columns.act.nrows()), (&keys.rew, columns.rew.len())];
    if let Some(next) = &columns.next_obs {
        counts.push((&keys.next_obs[0], next.nrows()));
        if next.ncols() != columns.obs.ncols() {
            let (wanted, found) = (columns.obs.ncols(), next.ncols());
            let hint = "next observations must be as wide as observations";
            return Err(Error::key(
                path,
                &keys.next_obs[0],
                format!("width {wanted}"),
                found.to_string(),
                hint,
            ));
        }
    }
    for (key, found) in counts {
        if found != n {
            return wrong(key, found);
        }
    }
    let others = [
        ("terminals", Some(columns.done.len())),
        ("timeouts", columns.timeout.as_ref().map(Array1::len)),
        ("episode", columns.episode.as_ref().map(Vec::len)),
        ("step", columns.step.as_ref().map(Vec::len)),
    ];
    for (key, found) in others {
        if let Some(found) = found.filter(|&f| f != n) {
            return wrong(key, found);
        }
    }
    if let Some(sim) = &columns.sim {
        let goal = sim.goal.as_ref().map_or(n, |g| g.nrows());
        for (key, found) in
            [("infos/qpos", sim.qpos.nrows()), ("infos/qvel", sim.qvel.nrows()), ("infos/goal", goal)]
        {
            if found != n {
                return wrong(key, found);
            }
        }
    }
    Ok(())
}

/// No NaN, no infinity; the message names the first.
pub(super) fn check_finite(columns: &Columns, path: &Path, format: Format) -> Result<()> {
    let keys = &columns.keys;
    let mut matrices = vec![(&keys.obs, &columns.obs), (&keys.act, &columns.act)];
    if let Some(next) = &columns.next_obs {
        matrices.push((&keys.next_obs, next));
    }
    let hint = "repair or remove such rows; `offing data audit` counts them";
    for (names, matrix) in matrices {
        let width = matrix.ncols();
        let flat = matrix.as_slice().expect("columns are read in row-major order");
        if let Some(at) = first_non_finite(flat) {
            let (row, column) = (at / width, at % width);
            let key = if names.len() == width { &names[column] } else { &names[0] };
            let found = format!("{} in {}, column {column}", flat[at], place(path, format, row));
            return Err(Error::key(path, key, "finite numbers", found, hint));
        }
    }
    let rew = columns.rew.as_slice().expect("columns are read in row-major order");
    match first_non_finite(rew) {
        Some(row) => {
            let found = format!("{} in {}", rew[row], place(path, format, row));
            Err(Error::key(path, &keys.rew, "finite numbers", found, hint))
        }
        None => Ok(()),
    }
}

/// A fold without early exit per block, which the compiler vectorises; files have tens of millions of entries.
fn first_non_finite(values: &[f32]) -> Option<usize> {
    const BLOCK: usize = 4096;
    let bad = |chunk: &[f32]| chunk.iter().fold(false, |bad, v| bad | !v.is_finite());
    let block = values.chunks(BLOCK).position(bad)?;
    let start = block * BLOCK;
    values[start..].iter().position(|v| !v.is_finite()).map(|at| start + at)
}
