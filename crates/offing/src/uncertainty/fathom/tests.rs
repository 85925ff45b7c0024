//! Fathom's error against formulas written out, and on worlds whose answer is known.

use super::*;

/// A bent world without noise.
fn world(n: usize, seed: u64) -> Batch {
    let mut rng = Rng::stream(seed, "world", 0);
    let obs = Mat::from_shape_fn((n, 3), |_| rng.normal() as f32);
    let act = Mat::from_shape_fn((n, 2), |_| rng.range(-1.0, 1.0) as f32);
    let mut next_obs = obs.clone();
    for i in 0..n {
        next_obs[[i, 0]] += 0.5 * obs[[i, 1]].sin();
        next_obs[[i, 1]] += 0.3 * act[[i, 0]] * obs[[i, 2]];
        next_obs[[i, 2]] += 0.2 * act[[i, 1]];
    }
    Batch { obs, act, rew: Array1::zeros(n), next_obs, done: Array1::from_elem(n, false) }
}

fn fathom(config: &FathomConfig, data: &Batch, threads: usize) -> Fathom {
    Fathom::new(config, data, None, &ThreadPool::new(threads), 0).unwrap()
}

#[test]
fn it_knows_where_the_model_is_wrong_better_than_distance_does() {
    let data = world(5000, 0);
    let mut queries = world(1000, 1);
    let mut rng = Rng::stream(2, "wrong", 0);
    let mut error = Vec::new();
    for i in 0..1000 {
        // A model that errs by a different amount at every row, always near the data.
        let size = 0.3 * rng.uniform();
        let wrong: Vec<f64> = (0..3).map(|_| size * rng.normal()).collect();
        error.push(wrong.iter().map(|w| w * w).sum::<f64>().sqrt());
        (0..3).for_each(|j| queries.next_obs[[i, j]] += wrong[j] as f32);
    }
    let rank =
        |u: Array1<f32>| crate::stats::spearman(&u.iter().map(|&u| f64::from(u)).collect::<Vec<_>>(), &error);
    let fit = fathom(&FathomConfig { variant: FathomVariant::Fit, ..Default::default() }, &data, 2);
    let stored = FathomConfig { variant: FathomVariant::Fit, stored: Some(5000), ..Default::default() };
    let (exact, stored) = (
        rank(fit.error_rows(&queries).unwrap()),
        rank(fathom(&stored, &data, 2).error_rows(&queries).unwrap()),
    );
    let sumo = rank(Sumo::new(&SumoConfig::default(), &data, 2).unwrap().score_rows(&queries).unwrap());
    assert!(exact > 0.9 && stored > 0.8 && exact > sumo + 0.2, "{exact} {stored} {sumo}");
}

#[test]
fn the_fit_is_the_formula() {
    // One coordinate, one change: everything by hand.
    let points = ndarray::array![[0.0f32], [1.0], [2.0], [5.0]];
    let delta = ndarray::array![[1.0f32], [2.0], [4.0], [7.0]];
    let mut fits = LocalFits::new(1, 1);
    fits.compute(&points, &delta, &[vec![0, 1, 2, 3]]);
    let (xm, ym) = (2.0, 3.5);
    let x: Vec<f64> = [0.0, 1.0, 2.0, 5.0].iter().map(|v| v - xm).collect();
    let y: Vec<f64> = [1.0, 2.0, 4.0, 7.0].iter().map(|v| v - ym).collect();
    let xx: f64 = x.iter().map(|v| v * v).sum();
    let xy: f64 = x.iter().zip(&y).map(|(a, b)| a * b).sum();
    let a = xx + 0.1 * xx;
    let b = xy / a;
    let noise = x.iter().zip(&y).map(|(x, y)| (y - b * x).powi(2)).sum::<f64>() / 4.0;
    let (at, change) = (3.0, 9.0);
    let h = (at - xm) * (at - xm) / a;
    let want = ((change - ym - (at - xm) * b).powi(2) + noise * (1.0 + h)).sqrt();
    let (x, y) = (ndarray::array![3.0f32], ndarray::array![9.0f32]);
    let got = fits.errors(1, |_| (x.view(), y.view()))[0];
    assert!((got - want).abs() < 1e-12, "{got} {want}");
}

#[test]
fn the_baseline_is_the_largest_leave_one_out_score() {
    let data = world(300, 3);
    let it = fathom(&FathomConfig::default(), &data, 2);
    let mut largest = 0.0f32;
    for row in 0..300 {
        let near = it.index.search(it.points.select(ndarray::Axis(0), &[row]).view(), 51).unwrap();
        let ids: Vec<usize> = near.ids.iter().map(|&i| i as usize).filter(|&i| i != row).collect();
        let mut fits = LocalFits::new(5, 3);
        fits.compute(&it.points, &it.delta, &[ids]);
        let e = fits.errors(1, |_| (it.points.row(row), it.delta.row(row)))[0];
        let rest: Vec<usize> = (0..300).filter(|&r| r != row).collect();
        let sumo = Sumo::new(&SumoConfig::default(), &data.select(&rest), 1).unwrap();
        let u = sumo.score_rows(&data.select(&[row])).unwrap()[0];
        largest = largest.max((e * f64::from(u)).sqrt() as f32);
    }
    assert!((it.max_loo_score() - largest).abs() < 1e-6 * largest, "{} {largest}", it.max_loo_score());
}

#[test]
fn threads_change_nothing_and_bad_input_is_named() {
    let (data, queries) = (world(400, 4), world(200, 5));
    for stored in [None, Some(100)] {
        let cfg = FathomConfig { stored, ..Default::default() };
        let one = fathom(&cfg, &data, 1);
        let many = fathom(&cfg, &data, 3);
        assert_eq!(one.error_rows(&queries).unwrap(), many.error_rows(&queries).unwrap());
        assert_eq!(one.max_loo_score(), many.max_loo_score());
    }
    let fail = |config: FathomConfig, data: &Batch| {
        Fathom::new(&config, data, None, &ThreadPool::new(1), 0).unwrap_err().to_string()
    };
    assert!(fail(FathomConfig::default(), &world(51, 0)).contains("at least 52 rows"));
    let with_model = FathomConfig { variant: FathomVariant::Ensemble, ..Default::default() };
    assert!(fail(with_model, &data).contains("trained ensemble"));
    let mut still = data.clone();
    still.next_obs = still.obs.clone();
    assert!(fail(FathomConfig::default(), &still).contains("never does"));
    // A constant column and copies of one row are no trouble.
    let mut flat = world(200, 6);
    flat.act.column_mut(1).fill(0.5);
    (1..120).for_each(|i| {
        let row = flat.obs.row(0).to_owned();
        flat.obs.row_mut(i).assign(&row);
    });
    assert!(fathom(&FathomConfig::default(), &flat, 1).max_loo_score().is_finite());
}

#[test]
fn a_baseline_over_some_rows_is_never_above_the_one_over_all() {
    let mut data = world(400, 7);
    // Row 11 lies apart from all others and moves unlike them: the largest score is its.
    data.obs.row_mut(11).fill(9.0);
    data.next_obs.row_mut(11).fill(30.0);
    for variant in [FathomVariant::Search, FathomVariant::Fit] {
        let of = |rows| {
            let config = FathomConfig { variant, baseline_rows: rows, ..Default::default() };
            fathom(&config, &data, 2).max_loo_score()
        };
        let all = of(None);
        assert_eq!((of(Some(400)), of(Some(1_000_000))), (all, all), "as many as there are, or more");
        assert!(of(Some(20)) > 0.0 && of(Some(20)) <= all);
        if variant == FathomVariant::Search {
            assert_eq!(of(Some(5)), all, "the loneliest rows hold the largest score here");
        }
    }
    let none = FathomConfig { baseline_rows: Some(0), ..Default::default() };
    let refused = Fathom::new(&none, &data, None, &ThreadPool::new(1), 0).unwrap_err().to_string();
    assert!(refused.contains("baseline_rows of at least 1, found 0"), "{refused}");
    let text = serde_json::to_string(&FathomConfig::default()).unwrap();
    assert!(!text.contains("baseline_rows"), "files named by the settings of before are still found: {text}");
}
