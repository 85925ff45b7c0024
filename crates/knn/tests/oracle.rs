//! Both indexes against a ten-line linear scan, on data chosen to be nasty.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as loudly as tests")]

use ndarray::{Array2, ArrayView1, ArrayView2};
use offing_knn::{Flat, FlatConfig, Loops, Metric, NeighborIndex, Neighbors, Threads, Tree, TreeConfig};
use proptest::prelude::*;

const METRICS: [Metric; 3] = [Metric::Euclidean, Metric::Manhattan, Metric::Cosine];

fn distance(metric: Metric, x: ArrayView1<f32>, y: ArrayView1<f32>) -> f64 {
    let pairs = || x.iter().zip(y).map(|(a, b)| (f64::from(*a), f64::from(*b)));
    let dot = |f: fn((f64, f64)) -> f64| pairs().map(f).sum::<f64>();
    match metric {
        Metric::Euclidean => dot(|(a, b)| (a - b) * (a - b)).sqrt(),
        Metric::Manhattan => dot(|(a, b)| (a - b).abs()),
        Metric::Cosine => {
            1.0 - dot(|(a, b)| a * b) / (dot(|(a, _)| a * a).sqrt() * dot(|(_, b)| b * b).sqrt())
        }
    }
}

/// The ten-line linear scan.
fn scan(
    metric: Metric,
    rows: ArrayView2<f32>,
    query: ArrayView1<f32>,
    skip: Option<usize>,
) -> Vec<(f64, u32)> {
    let mut all: Vec<(f64, u32)> = (0..rows.nrows())
        .filter(|i| Some(*i) != skip)
        .map(|i| (distance(metric, rows.row(i), query), i as u32))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all
}

fn close(found: f32, wanted: f64, metric: Metric) -> bool {
    // The scan's own 1 − cos is wrong by about 1e-16.
    let slack = if metric == Metric::Cosine { 1e-14 } else { 1e-45 };
    let wanted32 = wanted as f32;
    found == wanted32 || (f64::from(found) - wanted).abs() <= 1e-6 * wanted + slack
}

fn check_line(
    metric: Metric,
    rows: ArrayView2<f32>,
    query: ArrayView1<f32>,
    skip: Option<usize>,
    found: (&[u32], &[f32]),
    exact_ids: bool,
) {
    let wanted = scan(metric, rows, query, skip);
    for (rank, (&id, &d)) in found.0.iter().zip(found.1).enumerate() {
        assert!(close(d, wanted[rank].0, metric), "{metric:?} rank {rank}: {d} for {}", wanted[rank].0);
        assert!(
            close(d, distance(metric, rows.row(id as usize), query), metric),
            "{metric:?}: id {id} is not at {d}"
        );
        assert!(Some(id as usize) != skip, "returned itself");
        assert!(!found.0[..rank].contains(&id), "id {id} twice");
        if exact_ids {
            assert_eq!(id, wanted[rank].1, "{metric:?} rank {rank}");
        }
    }
}

fn lines(n: &Neighbors) -> impl Iterator<Item = (&[u32], &[f32])> {
    n.ids
        .outer_iter()
        .zip(n.distances.outer_iter())
        .map(|(i, d)| (i.to_slice().unwrap(), d.to_slice().unwrap()))
}

fn tree(metric: Metric, rows: ArrayView2<f32>, loops: Loops, threads: usize) -> Tree {
    Tree::new(&TreeConfig { metric, threads: Threads::Exactly(threads), loops }, rows).unwrap()
}

/// Everything an index promises, on one set of rows and queries.
fn check_index(rows: &Array2<f32>, queries: &Array2<f32>, k: usize, exact_ids: bool) {
    for metric in METRICS {
        let zero = |m: &Array2<f32>| m.outer_iter().any(|r| r.iter().all(|v| *v == 0.0));
        if metric == Metric::Cosine && (zero(rows) || zero(queries)) {
            continue;
        }
        // The scan's cosines carry rounding noise, so equal directions need not tie there.
        let exact_ids = exact_ids && metric != Metric::Cosine;
        let k = k.min(rows.nrows());
        let flat = Flat::new(&FlatConfig { metric, ..Default::default() }, rows.view()).unwrap();
        let fast = tree(metric, rows.view(), Loops::Auto, 1);
        let found = fast.search(queries.view(), k).unwrap();
        for (line, query) in lines(&found).zip(queries.outer_iter()) {
            check_line(metric, rows.view(), query, None, line, exact_ids);
        }
        assert_eq!(found, flat.search(queries.view(), k).unwrap(), "{metric:?}: flat and tree differ");
        for loops in [Loops::Avx2, Loops::Portable] {
            assert_eq!(found, tree(metric, rows.view(), loops, 2).search(queries.view(), k).unwrap());
        }
        check_within(&fast, &flat, queries, &found, k);
        check_approx(&fast, queries, &found, k);
        if rows.nrows() > 1 {
            check_self(&fast, &flat, rows, k.min(rows.nrows() - 1), exact_ids);
        }
    }
}

fn check_within(fast: &Tree, flat: &Flat, queries: &Array2<f32>, found: &Neighbors, k: usize) {
    let kth = found.kth();
    let mut radii = kth.clone();
    radii.extend(kth.iter().flat_map(|r| [r * 0.9, r * 1.1, r.next_up(), r.next_down().max(0.0)]));
    radii.extend([0.0, f32::INFINITY]);
    for radius in radii.into_iter().take(40) {
        let wanted: Vec<bool> = kth.iter().map(|d| *d <= radius).collect();
        assert_eq!(
            fast.within(queries.view(), radius, k).unwrap(),
            wanted,
            "{:?} radius {radius}",
            fast.metric()
        );
        assert_eq!(flat.within(queries.view(), radius, k).unwrap(), wanted);
    }
}

fn check_approx(fast: &Tree, queries: &Array2<f32>, exact: &Neighbors, k: usize) {
    for epsilon in [0.0, 0.1, 1.0] {
        let got = fast.search_approx(queries.view(), k, epsilon).unwrap();
        let factor = if fast.metric() == Metric::Cosine { (1.0 + epsilon).powi(2) } else { 1.0 + epsilon };
        for ((d, lower), e) in got.neighbors.distances.iter().zip(&got.lower).zip(&exact.distances) {
            assert!(*lower <= *e && *e <= *d, "{:?} ε {epsilon}: {lower} ≤ {e} ≤ {d}", fast.metric());
            assert!(f64::from(*d) <= f64::from(*e) * f64::from(factor) * (1.0 + 1e-6) + 1e-44);
        }
        if epsilon == 0.0 {
            assert_eq!(&got.neighbors, exact);
        }
    }
}

fn check_self(fast: &Tree, flat: &Flat, rows: &Array2<f32>, k: usize, exact_ids: bool) {
    let found = fast.search_self(k).unwrap();
    for (i, line) in lines(&found).enumerate() {
        check_line(fast.metric(), rows.view(), rows.row(i), Some(i), line, exact_ids);
    }
    assert_eq!(found, flat.search_self(k).unwrap());
    let most = found.kth().into_iter().fold(0.0, f32::max);
    assert_eq!(fast.max_self(k).unwrap(), most, "{:?}", fast.metric());
    assert_eq!(flat.max_self(k).unwrap(), most);
}

/// How nasty the values are.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Small integers: many ties and duplicates, all sums exact.
    Lattice,
    /// Smooth values, columns of very different width.
    Smooth,
    /// Smooth, with a few values of 1e6 to 1e38.
    Outliers,
    /// Values around the smallest f32.
    Denormal,
    /// Most columns constant and huge.
    Constant,
}

fn matrix(kind: Kind, n: usize, d: usize, seed: u64) -> Array2<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    Array2::from_shape_fn((n, d), |(_, j)| {
        let u = next();
        match kind {
            Kind::Lattice => (u * 4.0).floor() - 1.0,
            Kind::Smooth => (u + next() + next() - 1.5) * (0.7f32).powi(j as i32 % 30),
            Kind::Outliers if u < 0.02 => (next() - 0.5) * 10f32.powi(6 + (next() * 32.0) as i32),
            Kind::Outliers => u - 0.5,
            Kind::Denormal => f32::from_bits((u * 64.0) as u32),
            Kind::Constant if j % 3 > 0 => 1e30,
            Kind::Constant => u,
        }
    })
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Lattice, Kind::Smooth, Kind::Outliers, Kind::Denormal, Kind::Constant])
}

#[test]
fn queries_far_outside_the_data_get_the_answers_of_a_scan() {
    for kind in [Kind::Lattice, Kind::Smooth] {
        let rows = matrix(kind, 900, 24, 5);
        let aims = matrix(Kind::Smooth, 48, 24, 6);
        // Just outside to absurdly far, in all directions, in one column, and in a column the data hardly use.
        let queries = Array2::from_shape_fn((48, 24), |(i, j)| {
            let far = 10f32.powi(i as i32 % 8);
            match i % 3 {
                0 => aims[(i, j)] * far,
                1 => aims[(i, j)] + if j == 0 { far } else { 0.0 },
                _ => aims[(i, j)] + if j == 23 { -far } else { 0.0 },
            }
        });
        for k in [1, 7] {
            // Ids are those of `Flat`; the scan's own sums round differently where all rows are nearly as far.
            check_index(&rows, &queries, k, false);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..Default::default() })]
    #[test]
    fn equals_the_linear_scan(
        kind in kinds(), other in kinds(),
        n in prop_oneof![1usize..20, 1usize..600],
        d in prop::sample::select(vec![1usize, 2, 3, 5, 15, 16, 17, 25, 33, 40, 66]),
        k in prop_oneof![1usize..3, 1usize..130, Just(usize::MAX)],
        seed in any::<u64>(),
    ) {
        let rows = matrix(kind, n, d, seed);
        let mut queries = matrix(other, 6, d, seed ^ 0xabcdef);
        queries.row_mut(0).assign(&rows.row(n / 2));
        let near = &rows.row(n - 1) * 1.01;
        queries.row_mut(1).assign(&near.mapv(|v| v.clamp(-f32::MAX, f32::MAX)));
        let exact = matches!((kind, other), (Kind::Lattice, Kind::Lattice));
        check_index(&rows, &queries.slice(ndarray::s![..if exact { 1 } else { 6 }, ..]).to_owned(), k, exact);
    }
}

/// More with OFFING_KNN_CASES.
fn cases() -> u32 {
    std::env::var("OFFING_KNN_CASES").ok().and_then(|v| v.parse().ok()).unwrap_or(80)
}

#[test]
fn three_hundred_columns() {
    for kind in [Kind::Smooth, Kind::Lattice] {
        check_index(&matrix(kind, 300, 300, 1), &matrix(kind, 4, 300, 2), 5, matches!(kind, Kind::Lattice));
    }
}

#[test]
fn one_row() {
    check_index(&matrix(Kind::Smooth, 1, 7, 1), &matrix(Kind::Smooth, 5, 7, 2), 1, true);
}

#[test]
fn all_rows_equal() {
    let rows = Array2::from_elem((100, 12), 3.25f32);
    check_index(&rows, &matrix(Kind::Smooth, 3, 12, 5), 100, false);
    check_index(&rows, &rows.slice(ndarray::s![..2, ..]).to_owned(), 7, false);
}

#[test]
fn many_rows_of_many_sizes() {
    for (n, d) in [(5000, 40), (4097, 25), (20_000, 3), (513, 20)] {
        check_index_large(&matrix(Kind::Smooth, n, d, n as u64), &matrix(Kind::Smooth, 40, d, 9));
    }
}

/// As `check_index` without the parts that are quadratic in the rows.
fn check_index_large(rows: &Array2<f32>, queries: &Array2<f32>) {
    for metric in METRICS {
        let index = tree(metric, rows.view(), Loops::Auto, 2);
        for k in [1, 10] {
            let found = index.search(queries.view(), k).unwrap();
            for (line, query) in lines(&found).zip(queries.outer_iter()) {
                check_line(metric, rows.view(), query, None, line, false);
            }
            let avx2 = tree(metric, rows.view(), Loops::Avx2, 1);
            assert_eq!(found, avx2.search(queries.view(), k).unwrap());
            let portable = tree(metric, rows.view(), Loops::Portable, 1);
            assert_eq!(found, portable.search(queries.view(), k).unwrap());
            let own = index.search_self(k).unwrap();
            assert_eq!(own, portable.search_self(k).unwrap());
            let most = own.kth().into_iter().fold(0.0, f32::max);
            assert_eq!(index.max_self(k).unwrap(), most);
            assert_eq!(portable.max_self(k).unwrap(), most);
        }
    }
}

#[test]
fn a_row_is_the_one_given_in_a_built_and_in_an_opened_tree() {
    let rows = Array2::from_shape_fn((500, 7), |(i, j)| ((i * 37 + j * 11) % 113) as f32 + 0.25);
    let built = Tree::new(&TreeConfig::default(), rows.view()).unwrap();
    let file = tempfile::tempdir().unwrap();
    let file = file.path().join("rows.index");
    built.save(&file).unwrap();
    let opened = Tree::open(&file, Threads::Exactly(1)).unwrap();
    for tree in [&built, &opened] {
        assert!((0..500).all(|id| tree.row(id) == rows.row(id).to_slice().unwrap()));
    }
}
