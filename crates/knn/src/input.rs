//! Checks on what callers hand in: done once here, so that inner loops need none.

use crate::metric::inverse_length;
use crate::{Error, Metric, Result};
use ndarray::{ArrayView2, CowArray, Ix2};

/// Rows to be indexed, in standard layout, finite, and with a direction if the metric needs one.
pub(crate) fn check_rows<'a>(rows: ArrayView2<'a, f32>, metric: Metric) -> Result<CowArray<'a, f32, Ix2>> {
    let (n, d) = rows.dim();
    if n == 0 || d == 0 {
        return Err(Error::Empty { rows: n, cols: d });
    }
    if n > crate::MAX_ROWS {
        return Err(Error::TooManyRows { rows: n });
    }
    let rows = standard(rows);
    if let Some((row, col, value)) = first_bad(flat(&rows), d) {
        return Err(Error::BadRow { row, col, value });
    }
    if metric == Metric::Cosine
        && let Some(row) = first_zero(flat(&rows), d)
    {
        return Err(Error::ZeroRow { row });
    }
    Ok(rows)
}

/// Queries for an index of `wanted` columns.
pub(crate) fn check_queries<'a>(
    queries: ArrayView2<'a, f32>,
    wanted: usize,
    metric: Metric,
) -> Result<CowArray<'a, f32, Ix2>> {
    if queries.ncols() != wanted {
        return Err(Error::Dimension { wanted, found: queries.ncols() });
    }
    let queries = standard(queries);
    if let Some((row, col, value)) = first_bad(flat(&queries), wanted) {
        return Err(Error::BadQuery { row, col, value });
    }
    if metric == Metric::Cosine
        && let Some(row) = first_zero(flat(&queries), wanted)
    {
        return Err(Error::ZeroQuery { row });
    }
    Ok(queries)
}

/// `k` must lie in 1..=max, where max is the number of rows that may be returned.
pub(crate) fn check_k(k: usize, max: usize, rows: usize) -> Result<()> {
    if k == 0 || k > max { Err(Error::BadK { k, max, rows }) } else { Ok(()) }
}

/// A radius must be a number and not negative; infinity is allowed (everything is inside).
pub(crate) fn check_radius(radius: f32) -> Result<()> {
    if radius >= 0.0 { Ok(()) } else { Err(Error::BadRadius { radius }) }
}

/// The values of a matrix made by [`standard`].
pub(crate) fn flat<'a>(rows: &'a CowArray<'_, f32, Ix2>) -> &'a [f32] {
    rows.as_slice().expect("standard layout was made above")
}

fn standard<'a>(rows: ArrayView2<'a, f32>) -> CowArray<'a, f32, Ix2> {
    if rows.is_standard_layout() { rows.into() } else { rows.as_standard_layout().into_owned().into() }
}

fn first_bad(values: &[f32], d: usize) -> Option<(usize, usize, f32)> {
    // Whole chunks first: an exponent of all ones marks NaN and infinity, and the test vectorises.
    let bad = |v: &f32| v.to_bits() & 0x7f80_0000 == 0x7f80_0000;
    let chunk = values.chunks(1024).position(|c| c.iter().fold(false, |any, v| any | bad(v)))?;
    let at = chunk * 1024 + values[chunk * 1024..].iter().position(bad)?;
    Some((at / d, at % d, values[at]))
}

fn first_zero(values: &[f32], d: usize) -> Option<usize> {
    values.chunks_exact(d).position(|row| !inverse_length(row).is_finite())
}
