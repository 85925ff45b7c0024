//! The order of rows in the tree: halve along the widest lane until eight rows are left.

use super::build::Lanes;
use super::layout::FAN;

/// Rows looked at to choose the lane of a split.
const LOOK: usize = 1024;
/// Parts smaller than this are ordered by one thread, from a copy of their lanes that fits its cache.
const LOCAL: usize = 1 << 14;

/// Permutes `rows` so that every run of eight is a leaf and every 8ᵗʰ power of leaves a node.
pub(crate) fn order_rows(rows: &mut [u32], lanes: &Lanes, axes: usize, parallel: bool) {
    if rows.len() <= LOCAL {
        return order_local(rows, lanes, axes);
    }
    let cut = split(rows, lanes, axes);
    let (left, right) = rows.split_at_mut(cut);
    if parallel {
        rayon::join(|| order_rows(left, lanes, axes, true), || order_rows(right, lanes, axes, true));
    } else {
        order_rows(left, lanes, axes, false);
        order_rows(right, lanes, axes, false);
    }
}

fn order_local(rows: &mut [u32], lanes: &Lanes, axes: usize) {
    let mut copy = Lanes { values: Vec::with_capacity(rows.len() * axes), stride: axes };
    rows.iter().for_each(|&r| copy.values.extend_from_slice(&lanes.row(r)[..axes]));
    let mut places: Vec<u32> = (0..rows.len() as u32).collect();
    let mut parts: Vec<&mut [u32]> = vec![&mut places];
    while let Some(part) = parts.pop() {
        if part.len() > FAN {
            let cut = split(part, &copy, axes);
            let (left, right) = part.split_at_mut(cut);
            parts.push(left);
            parts.push(right);
        }
    }
    let ordered: Vec<u32> = places.iter().map(|&p| rows[p as usize]).collect();
    rows.copy_from_slice(&ordered);
}

/// Rearranges `rows` around a cut that lies on a child boundary as near to the middle as there is.
fn split(rows: &mut [u32], lanes: &Lanes, axes: usize) -> usize {
    let mut child = FAN;
    while child * FAN < rows.len() {
        child *= FAN;
    }
    let cut = rows.len().div_ceil(child).div_ceil(2) * child;
    let lane = widest(rows, lanes, axes);
    // Value and row in one number: equal values fall to the row number, so the order is unique.
    let mut keys: Vec<u64> =
        rows.iter().map(|&r| (u64::from(lanes.row(r)[lane]) << 32) | u64::from(r)).collect();
    keys.select_nth_unstable(cut);
    rows.iter_mut().zip(&keys).for_each(|(r, k)| *r = *k as u32);
    cut
}

/// The lane with the largest mean absolute deviation: halving it shrinks the part most. (The range, the
/// usual choice, visits a fifth more leaves; the variance a twentieth.)
fn widest(rows: &[u32], lanes: &Lanes, axes: usize) -> usize {
    let step = rows.len().div_ceil(LOOK);
    let looked = || rows.iter().step_by(step).map(|&r| &lanes.row(r)[..axes]);
    let mut sum = [0u64; 32];
    for row in looked() {
        row.iter().zip(&mut sum).for_each(|(v, s)| *s += u64::from(*v));
    }
    let count = rows.len().div_ceil(step) as u64;
    let mut spread = [0u64; 32];
    for row in looked() {
        for ((v, s), m) in row.iter().zip(&mut spread).zip(&sum) {
            *s += (u64::from(*v) * count).abs_diff(*m);
        }
    }
    (0..axes).max_by_key(|&l| (spread[l], std::cmp::Reverse(l))).unwrap_or(0)
}
