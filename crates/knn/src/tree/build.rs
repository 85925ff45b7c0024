//! Building: fit the projection, quantise, order the rows into leaves, draw the boxes.

use super::layout::{FAN, Layout, Line, MAX_LEAF_PAIRS};
use super::order::order_rows;
use super::project::{Image, Projection};
use super::quantize::Grid;
use super::store::Store;
use super::{Parts, TreeConfig};
use crate::flat::inverse_lengths;
use crate::input::{check_rows, flat};
use crate::threads::Pool;
use crate::{Metric, Result};
use ndarray::ArrayView2;
use std::sync::{Mutex, PoisonError};

/// Most rows that may stay outside the grid; each is compared with every query.
const MOST_STRAYS: usize = 64;
/// Rows handled by one task.
const PIECE: usize = 8192;

/// Builds every part of a tree. The result depends on the rows and the metric alone.
pub(crate) fn build(cfg: &TreeConfig, rows: ArrayView2<f32>, pool: &Pool) -> Result<Parts> {
    let rows = check_rows(rows, cfg.metric)?;
    let (n, dim) = rows.dim();
    let source = Source { rows: flat(&rows), dim, inverse: &inverse_lengths(flat(&rows), dim, cfg.metric) };
    let sample = source.sample();
    let picked: Vec<&[f32]> = sample.iter().map(|&i| source.row(i)).collect();
    let projection = Projection::fit(cfg.metric, &picked, most_axes(dim, cfg.metric));
    let grid = fit_grid(&source, &projection, &sample, pool);
    let (lanes, tame, strays, grid) = quantise_rows(&source, &projection, grid, pool);

    let pairs = |node: bool| projection.lanes(node).div_ceil(2);
    let layout = Layout::new(tame.len(), n, dim, pairs(false), pairs(true));
    let mut order = tame;
    pool.enter(|| order_rows(&mut order, &lanes, projection.node_axes, pool.width() > 1));
    let blocks = fill_blocks(&layout, &order, &lanes, pool);
    let nodes = fill_nodes(&layout, &projection, &order, &lanes, pool);
    order.extend(&strays);
    let ordered = Store::filled(n * dim, 0.0, |to| {
        pool.chunks(to, PIECE * dim, |piece, to| {
            let from = order[piece * PIECE..].iter().map(|&i| source.row(i as usize));
            to.chunks_exact_mut(dim).zip(from).for_each(|(to, row)| to.copy_from_slice(row));
        });
    });
    let inverse = order.iter().filter_map(|&i| source.inverse.get(i as usize)).copied().collect();
    Ok(Parts {
        metric: cfg.metric,
        layout,
        projection,
        grid,
        rows: ordered,
        ids: Store::new(order),
        inverse: Store::new(inverse),
        blocks,
        nodes: Store::new(nodes),
    })
}

/// The rows as given.
struct Source<'a> {
    rows: &'a [f32],
    dim: usize,
    inverse: &'a [f64],
}

impl Source<'_> {
    fn len(&self) -> usize {
        self.rows.len() / self.dim
    }

    fn row(&self, i: usize) -> &[f32] {
        &self.rows[i * self.dim..(i + 1) * self.dim]
    }

    /// Evenly spread row numbers, at most 8192 (axes need no more, and this part runs on one thread).
    fn sample(&self) -> Vec<usize> {
        let wanted = (1_000_000 / self.dim).clamp(1024, 8192).min(self.len());
        (0..wanted).map(|i| (i as u128 * self.len() as u128 / wanted as u128) as usize).collect()
    }

    fn image(&self, p: &Projection, i: usize, out: &mut Image) {
        let inverse = self.inverse.get(i).copied().unwrap_or(1.0);
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: AVX2 was just detected.
            return unsafe { apply_avx2(p, self.row(i), inverse, out) };
        }
        p.apply(self.row(i), inverse, out);
    }
}

/// The same sums (Rust does not fuse them) in wider registers.
///
/// # Safety
/// Needs AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn apply_avx2(p: &Projection, row: &[f32], inverse: f64, out: &mut Image) {
    p.apply(row, inverse, out);
}

/// Axes a row may keep so that the whole index stays below 1.35 times the rows (1.65 for narrow ones).
fn most_axes(dim: usize, metric: Metric) -> usize {
    let budget = if dim >= 40 { 0.34 } else { 0.64 } * 4.0 * dim as f64;
    let fixed = 4.0 + 9.2 + if metric == Metric::Cosine { 8.0 } else { 0.0 };
    let lanes = (((budget - fixed) / 4.0).floor() * 2.0).clamp(16.0, 2.0 * MAX_LEAF_PAIRS as f64) as usize;
    if metric == Metric::Manhattan || dim <= lanes { dim.min(lanes) } else { lanes - 1 }
}

/// A range for every lane that all but a few rows lie in.
fn fit_grid(source: &Source, p: &Projection, sample: &[usize], pool: &Pool) -> Grid {
    let count = Grid::lanes(p);
    let mut columns = vec![Vec::with_capacity(sample.len()); count];
    let mut image = Image::default();
    for &i in sample {
        source.image(p, i, &mut image);
        image.axes.iter().chain(&image.rest).zip(&mut columns).for_each(|(v, c)| c.push(*v));
    }
    let middle: Vec<(f64, f64)> = columns
        .into_iter()
        .map(|mut c| {
            c.sort_unstable_by(f64::total_cmp);
            let at = |q: f64| c[((c.len() - 1) as f64 * q).round() as usize];
            (0.5 * (at(0.002) + at(0.998)), 0.5 * (at(0.998) - at(0.002)))
        })
        .collect();
    // Lanes share one step, so a lane may be as wide as a good part of the widest at no cost.
    let widest = middle.iter().fold(0f64, |w, m| w.max(m.1));
    let half: Vec<f64> = middle.iter().map(|m| 3.0 * m.1.max(0.1 * widest)).collect();
    let extents = pool.pieces(source.len(), PIECE, |range| {
        let mut e = Extent::new(count);
        let mut image = Image::default();
        for i in range {
            source.image(p, i, &mut image);
            e.add(&image, &middle, &half);
        }
        e
    });
    let all = extents.into_iter().reduce(Extent::merge).unwrap_or_else(|| Extent::new(count));
    all.grid(&middle, &half)
}

/// How many rows need the range doubled how often, and the true range of those that need none.
struct Extent {
    doublings: [usize; 1100],
    low: Vec<f64>,
    high: Vec<f64>,
}

impl Extent {
    fn new(lanes: usize) -> Extent {
        Extent { doublings: [0; 1100], low: vec![f64::INFINITY; lanes], high: vec![f64::NEG_INFINITY; lanes] }
    }

    fn add(&mut self, image: &Image, middle: &[(f64, f64)], half: &[f64]) {
        let values = || image.axes.iter().chain(&image.rest);
        let ratio = values()
            .zip(middle)
            .zip(half)
            .map(|((v, m), h)| if v == &m.0 { 0.0 } else { (v - m.0).abs() / h })
            .fold(0.0, f64::max);
        let need = if ratio <= 1.0 { 0.0 } else { ratio.log2().ceil().clamp(1.0, 1099.0) };
        self.doublings[need as usize] += 1;
        if need == 0.0 {
            for ((v, l), h) in values().zip(&mut self.low).zip(&mut self.high) {
                *l = l.min(*v);
                *h = h.max(*v);
            }
        }
    }

    fn merge(mut self, other: Extent) -> Extent {
        self.doublings.iter_mut().zip(&other.doublings).for_each(|(a, b)| *a += b);
        self.low.iter_mut().zip(&other.low).for_each(|(a, b)| *a = a.min(*b));
        self.high.iter_mut().zip(&other.high).for_each(|(a, b)| *a = a.max(*b));
        self
    }

    fn grid(self, middle: &[(f64, f64)], half: &[f64]) -> Grid {
        let mut outside: usize = self.doublings[1..].iter().sum();
        let mut need = 0;
        while outside > MOST_STRAYS {
            need += 1;
            outside -= self.doublings[need];
        }
        if need == 0 && self.doublings[0] > 0 {
            return Grid::new(self.low, self.high);
        }
        let wide =
            |sign: f64| middle.iter().zip(half).map(|(m, h)| m.0 + sign * h * (need as f64).exp2()).collect();
        Grid::new(wide(-1.0), wide(1.0))
    }
}

/// Integer lanes of all rows, one record a row: its leaf lanes, then the node's rest lane.
#[derive(Debug)]
pub(crate) struct Lanes {
    pub(crate) values: Vec<u16>,
    pub(crate) stride: usize,
}

impl Lanes {
    #[inline]
    pub(crate) fn row(&self, i: u32) -> &[u16] {
        &self.values[i as usize * self.stride..(i as usize + 1) * self.stride]
    }
}

/// Quantises every row; returns the lanes, the rows inside the grid, those outside, and the grid with its errors.
fn quantise_rows(
    source: &Source,
    p: &Projection,
    mut grid: Grid,
    pool: &Pool,
) -> (Lanes, Vec<u32>, Vec<u32>, Grid) {
    let leaf_lanes = p.lanes(false);
    let stride = leaf_lanes + 1;
    let mut lanes = Lanes { values: vec![0u16; source.len() * stride], stride };
    let notes = Mutex::new((Vec::new(), [0f64; 2]));
    pool.chunks(&mut lanes.values, PIECE * stride, |piece, values| {
        let (mut strays, mut error, mut image) = (Vec::new(), [0f64; 2], Image::default());
        let mut node = vec![0u16; p.lanes(true)];
        for (i, record) in (piece * PIECE..).zip(values.chunks_exact_mut(stride)) {
            source.image(p, i, &mut image);
            if !grid.holds(&image) {
                strays.push(i as u32);
                continue;
            }
            let leaf = grid.quantise(p, &image, false, &mut record[..leaf_lanes]);
            let boxed = grid.quantise(p, &image, true, &mut node);
            record[leaf_lanes] = node[node.len() - 1];
            error = [error[0].max(leaf.error), error[1].max(boxed.error)];
        }
        let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.0.extend(strays);
        notes.1 = [notes.1[0].max(error[0]), notes.1[1].max(error[1])];
    });
    let (mut strays, error) = notes.into_inner().unwrap_or_else(PoisonError::into_inner);
    strays.sort_unstable();
    grid.row_error = error;
    let mut next = strays.iter().peekable();
    let tame = (0..source.len() as u32).filter(|i| next.next_if(|s| *s == i).is_none()).collect();
    (lanes, tame, strays, grid)
}

/// Leaf blocks: the lanes of eight rows, interleaved in pairs.
fn fill_blocks(layout: &Layout, order: &[u32], lanes: &Lanes, pool: &Pool) -> Store<Line> {
    let (piece, pairs) = (PIECE / FAN, layout.leaf_pairs);
    Store::filled(layout.block_lines(), Line([0; 2 * FAN]), |to| {
        pool.chunks(to, piece * pairs, |number, to| {
            for (leaf, block) in (number * piece..).zip(to.chunks_exact_mut(pairs)) {
                let rows = &order[leaf * FAN..(leaf * FAN + FAN).min(order.len())];
                for (r, &id) in rows.iter().enumerate() {
                    for (l, &v) in lanes.row(id)[..lanes.stride - 1].iter().enumerate() {
                        block[l / 2].0[2 * r + l % 2] = v;
                    }
                }
            }
        });
    })
}

/// Boxes of all levels, from the leaves up.
fn fill_nodes(layout: &Layout, p: &Projection, order: &[u32], lanes: &Lanes, pool: &Pool) -> Vec<Line> {
    let count = p.lanes(true);
    // Lane of a record that lane l of a box is drawn from.
    let from = |l: usize| if l < p.node_axes { l } else { lanes.stride - 1 };
    let boxes = pool.pieces(layout.leaves(), PIECE / FAN, |range| {
        let mut out = Vec::with_capacity(range.len());
        for leaf in range {
            let mut b = Bounds::EMPTY;
            for &id in &order[leaf * FAN..(leaf * FAN + FAN).min(order.len())] {
                let record = lanes.row(id);
                (0..count).for_each(|l| b.add(l, record[from(l)], record[from(l)]));
            }
            out.push(b);
        }
        out
    });
    let mut below: Vec<Bounds> = boxes.concat();
    let mut out = Vec::with_capacity(layout.node_lines());
    for _ in &layout.levels {
        let mut level = Vec::with_capacity(below.len().div_ceil(FAN));
        for children in below.chunks(FAN) {
            let mut all = Bounds::EMPTY;
            for pair in 0..layout.node_pairs {
                let (mut lo, mut hi) = (Line([0; 2 * FAN]), Line([u16::MAX >> 1; 2 * FAN]));
                for (c, b) in children.iter().enumerate() {
                    for lane in (2 * pair..2 * pair + 2).filter(|&l| l < count) {
                        (lo.0[2 * c + lane % 2], hi.0[2 * c + lane % 2]) = (b.low[lane], b.high[lane]);
                        all.add(lane, b.low[lane], b.high[lane]);
                    }
                }
                out.push(lo);
                out.push(hi);
            }
            level.push(all);
        }
        below = level;
    }
    out
}

/// A box in integer lanes.
#[derive(Clone, Copy)]
struct Bounds {
    low: [u16; 16],
    high: [u16; 16],
}

impl Bounds {
    const EMPTY: Bounds = Bounds { low: [u16::MAX >> 1; 16], high: [0; 16] };

    fn add(&mut self, lane: usize, low: u16, high: u16) {
        self.low[lane] = self.low[lane].min(low);
        self.high[lane] = self.high[lane].max(high);
    }
}
