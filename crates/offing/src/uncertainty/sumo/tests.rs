//! SUMO against a linear scan, in every form and unit.

use super::*;
use crate::batch::Mat;
use crate::rng::Rng;
use proptest::prelude::*;

fn rows(n: usize, seed: u64) -> Batch {
    let mut rng = Rng::stream(seed, "rows", 0);
    let obs = Mat::from_shape_fn((n, 4), |_| 3.0 * rng.normal() as f32);
    let act = Mat::from_shape_fn((n, 2), |_| rng.normal() as f32);
    let next_obs = &obs + &Mat::from_shape_fn((n, 4), |_| rng.normal() as f32);
    let rew = (0..n).map(|_| rng.normal() as f32).collect();
    Batch { obs, act, rew, next_obs, done: Array1::from_elem(n, false) }
}

fn sumo(config: SumoConfig, data: &Batch) -> Sumo {
    Sumo::new(&config, data, 2).unwrap()
}

/// Distances to every row, ascending, by the plainest loop.
fn scan(vector: SearchVector, metric: Distance, data: &Batch, query: &Batch, row: usize) -> Vec<f64> {
    let (data, query) = (vector.rows(data), vector.rows(query));
    let distance = |x: ndarray::ArrayView1<f32>, y: ndarray::ArrayView1<f32>| {
        let pair = || x.iter().zip(y).map(|(a, b)| (f64::from(*a), f64::from(*b)));
        match metric {
            Distance::Euclidean => pair().map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt(),
            Distance::Manhattan => pair().map(|(a, b)| (a - b).abs()).sum(),
            Distance::Cosine => {
                let dot: f64 = pair().map(|(a, b)| a * b).sum();
                let length =
                    |v: ndarray::ArrayView1<f32>| v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
                1.0 - dot / length(x) / length(y)
            }
        }
    };
    let mut all: Vec<f64> = data.rows().into_iter().map(|y| distance(query.row(row), y)).collect();
    all.sort_by(f64::total_cmp);
    all
}

#[test]
fn every_vector_metric_and_k_equals_a_linear_scan() {
    let (data, queries) = (rows(300, 0), rows(40, 1));
    use SearchVector::*;
    for vector in [ObsActNext, ObsAct, ObsNext, ObsActRewNext] {
        for metric in [Distance::Euclidean, Distance::Manhattan, Distance::Cosine] {
            for k in [1, 5] {
                let it = sumo(SumoConfig { k, vector, metric, ..Default::default() }, &data);
                let scores = it.score_rows(&queries).unwrap();
                let near = it.nearest(&queries, k).unwrap();
                for i in 0..queries.len() {
                    let d = scan(vector, metric, &data, &queries, i)[k - 1];
                    let want = d.ln_1p();
                    assert!(
                        (f64::from(scores[i]) - want).abs() < 1e-6,
                        "{vector:?} {metric:?} {k}: {} {want}",
                        scores[i]
                    );
                    assert!((f64::from(near.distances[[i, k - 1]]) - d).abs() < 1e-5);
                }
            }
        }
    }
}

#[test]
fn it_is_exactly_zero_on_the_data_and_only_there() {
    let data = rows(500, 2);
    for columns in [ColumnScale::Raw, ColumnScale::Standardised] {
        let embedding = Some(EmbeddingConfig::Network { dim: 6, hidden: 32, seed: 0 });
        for embedding in [None, embedding] {
            let it = sumo(SumoConfig { columns, embedding, ..Default::default() }, &data);
            let warning = it.warning();
            assert_eq!(
                warning.is_some(),
                it.config().embedding.is_some(),
                "an approximation tells its error"
            );
            assert!(warning.is_none_or(|r| r.contains("keep their nearest neighbour")));
            assert!(it.score_rows(&data).unwrap().iter().all(|&u| u == 0.0));
            assert!(it.score_rows(&rows(50, 3)).unwrap().iter().all(|&u| u > 0.0));
        }
    }
}

#[test]
fn the_threshold_is_the_largest_leave_one_out_score() {
    let data = rows(400, 4);
    for k in [1, 3] {
        let it = sumo(SumoConfig { k, ..Default::default() }, &data);
        let loo =
            (0..data.len()).map(|i| scan(SearchVector::ObsActNext, Distance::Euclidean, &data, &data, i)[k]);
        let largest = loo.fold(0.0, f64::max);
        let found = it.threshold(1.0);
        assert!((f64::from(found.distance) - largest).abs() < 1e-4 * largest, "{found:?} {largest}");
        assert!((f64::from(found.score) - largest.ln_1p()).abs() < 1e-6);
        assert_eq!(found.score, it.max_loo_score());
        // α multiplies a logarithm: five times the score is the fifth power of 1 + d.
        let wide = it.threshold(5.0);
        let want = (1.0 + largest).powi(5) - 1.0;
        assert!((f64::from(wide.distance) - want).abs() < 1e-4 * want, "{wide:?} {want}");
    }
}

#[test]
fn forms_are_the_equations() {
    let (data, queries) = (rows(300, 5), rows(20, 6));
    let of =
        |form| sumo(SumoConfig { form, k: 2, ..Default::default() }, &data).score_rows(&queries).unwrap();
    let (log1p, log, nats) = (of(ScoreForm::Log1p), of(ScoreForm::Log), of(ScoreForm::CrossEntropy));
    for i in 0..20 {
        let d = f64::from(log[i]).exp();
        assert!((d.ln_1p() - f64::from(log1p[i])).abs() < 1e-6);
        // Eq. 2: −log(kΓ(d/2+1)/(mπ^{d/2}R^d)) with dim = 10, k = 2, m = 300, Γ(6) = 120.
        let density = 2.0 * 120.0 / (300.0 * std::f64::consts::PI.powi(5) * d.powi(10));
        assert!((f64::from(nats[i]) + density.ln()).abs() < 1e-4, "{} {}", nats[i], -density.ln());
    }
    let on_data =
        sumo(SumoConfig { form: ScoreForm::Log, ..Default::default() }, &data).score_rows(&data).unwrap();
    assert!(on_data.iter().all(|&u| u == f32::MIN_POSITIVE.ln()));
    assert!((ln_gamma_half(13) - 287.885_277_815_044_4f64.ln()).abs() < 1e-12, "Γ(6.5)");
}

#[test]
fn nats_are_right_for_a_known_density() {
    // Uniform on the unit cube: the cross-entropy of its own density is log 1 = 0.
    let mut rng = Rng::stream(0, "cube", 0);
    let n = 20_000;
    let mut batch = rows(n, 0);
    batch.obs = Mat::from_shape_fn((n, 1), |_| rng.uniform() as f32);
    batch.act = Mat::from_shape_fn((n, 1), |_| rng.uniform() as f32);
    batch.next_obs = Mat::from_shape_fn((n, 1), |_| rng.uniform() as f32);
    let k = 20;
    let it = sumo(SumoConfig { k, form: ScoreForm::CrossEntropy, ..Default::default() }, &batch);
    let inner: Vec<usize> = (0..n)
        .filter(|&i| {
            [&batch.obs, &batch.act, &batch.next_obs].iter().all(|m| (0.15..0.85).contains(&m[[i, 0]]))
        })
        .collect();
    let scores = it.score_rows(&batch.select(&inner)).unwrap();
    let mean = scores.iter().map(|&u| f64::from(u)).sum::<f64>() / inner.len() as f64;
    // A row finds itself, so its k-th is its (k−1)-th other: digamma(19) against ln 20.
    assert!((mean + 20.0f64.ln() - 2.917_967_67).abs() < 0.02, "{mean}");
}

#[test]
fn support_names_the_nearest_rows() {
    let data = rows(200, 7);
    let it = sumo(SumoConfig::default(), &data);
    let near = it.nearest(&data.select(&[17, 130]), 3).unwrap();
    assert_eq!((near.ids[[0, 0]], near.ids[[1, 0]]), (17, 130));
    assert!(near.distances[[0, 1]] > 0.0 && near.distances[[0, 1]] <= near.distances[[0, 2]]);
}

#[test]
fn bad_input_is_named() {
    let data = rows(30, 8);
    let fail = |config: SumoConfig, data: &Batch| Sumo::new(&config, data, 1).unwrap_err().to_string();
    assert!(fail(SumoConfig { k: 30, ..Default::default() }, &data).contains("from 1 to 29"));
    assert!(fail(SumoConfig { k: 0, ..Default::default() }, &data).contains("found 0"));
    let cosine = SumoConfig { metric: Distance::Cosine, form: ScoreForm::CrossEntropy, ..Default::default() };
    assert!(fail(cosine, &data).contains("euclidean"));
    let mut no_rewards = data.clone();
    no_rewards.rew[3] = f32::NAN;
    let with_reward = SumoConfig { vector: SearchVector::ObsActRewNext, ..Default::default() };
    let message = fail(with_reward, &no_rewards);
    assert!(message.contains("`rew` of row 3") && message.contains("search vector"), "{message}");
    Sumo::new(&SumoConfig::default(), &no_rewards, 1).unwrap();
    let it = sumo(SumoConfig::default(), &data);
    let mut query = rows(2, 9);
    query.next_obs[[1, 2]] = f32::INFINITY;
    assert!(it.score_rows(&query).unwrap_err().to_string().contains("`next_obs[2]` of row 1"));
    let narrow = Batch::empty(3, 2);
    assert!(it.score_rows(&narrow).unwrap_err().to_string().contains("wanted 4 observation"));
    let mut huge = rows(1, 9);
    huge.obs.fill(3e38);
    assert!(it.score_rows(&huge).unwrap_err().to_string().contains("row 0 is inf"));
    assert!(it.exceeds_rows(&rows(1, 1), f32::NAN).is_err());
    assert!(it.nearest(&rows(1, 1), 31).unwrap_err().to_string().contains("k = 31"));
    let zero = Batch {
        obs: Mat::zeros((5, 4)),
        act: Mat::zeros((5, 2)),
        next_obs: Mat::zeros((5, 4)),
        ..rows(5, 1)
    };
    assert!(
        fail(SumoConfig { metric: Distance::Cosine, ..Default::default() }, &zero).contains("zero vector")
    );
}

#[test]
fn constant_columns_keep_their_scale_when_standardised() {
    let mut data = rows(100, 10);
    data.obs.column_mut(2).fill(5.0);
    let it = sumo(SumoConfig { columns: ColumnScale::Standardised, ..Default::default() }, &data);
    assert_eq!(it.constant_columns(), ["obs[2]"]);
    let mut query = data.select(&[0]);
    query.obs[[0, 2]] = 6.0;
    let u = it.score_rows(&query).unwrap()[0];
    assert!((u - 2.0f32.ln()).abs() < 1e-6, "a departure of 1 from the one value seen counts 1: {u}");
}

proptest! {
    /// Proof of Theorem 1 (A.1): dropping columns cannot enlarge a distance, so d_k(s⊕a) ≤ d_k(s⊕a⊕s').
    #[test]
    fn fewer_columns_are_never_farther(seed in 0u64..1000, k in 1usize..6, metric in 0usize..2) {
        let metric = [Distance::Euclidean, Distance::Manhattan][metric];
        let (data, queries) = (rows(60, seed), rows(10, seed + 5000));
        let of = |vector| sumo(SumoConfig { k, vector, metric, ..Default::default() }, &data).score_rows(&queries).unwrap();
        let (short, full, longer) = (of(SearchVector::ObsAct), of(SearchVector::ObsActNext), of(SearchVector::ObsActRewNext));
        for i in 0..10 {
            prop_assert!(short[i] <= full[i] && full[i] <= longer[i]);
        }
    }

    /// The yes/no search answers exactly as the comparison of scores, also at the scores themselves.
    #[test]
    fn exceeding_is_scoring_above(seed in 0u64..1000, form in 0usize..3, nudge in -1i32..2) {
        let form = [ScoreForm::Log1p, ScoreForm::Log, ScoreForm::CrossEntropy][form];
        let (data, queries) = (rows(80, seed), rows(12, seed + 5000));
        let it = sumo(SumoConfig { form, k: 2, ..Default::default() }, &data);
        let scores = it.score_rows(&queries).unwrap();
        for &u in &scores {
            let threshold = match nudge { -1 => u.next_down(), 0 => u, _ => u.next_up() };
            let want: Vec<bool> = scores.iter().map(|&v| v > threshold).collect();
            prop_assert_eq!(it.exceeds_rows(&queries, threshold).unwrap(), want);
        }
        prop_assert!(it.exceeds_rows(&queries, f32::NEG_INFINITY).unwrap().iter().all(|e| *e));
        prop_assert!(it.exceeds_rows(&queries, f32::INFINITY).unwrap().iter().all(|e| !*e));
    }
}

#[test]
fn gradients_equal_finite_differences() {
    let (data, queries) = (rows(200, 0), rows(12, 1));
    for vector in [SearchVector::ObsActNext, SearchVector::ObsAct, SearchVector::ObsNext] {
        for (columns, form) in
            [(ColumnScale::Raw, ScoreForm::Log1p), (ColumnScale::Standardised, ScoreForm::Log)]
        {
            let it = sumo(SumoConfig { vector, columns, form, ..Default::default() }, &data);
            let step = |batch: &Batch| ModelStep::of_rows(batch.clone());
            let found = it.score_gradient(&step(&queries)).unwrap();
            assert_eq!(found.score, it.score_rows(&queries).unwrap());
            let slope = |change: &dyn Fn(&mut Batch, f32)| {
                let at = |e: f32| {
                    let mut moved = queries.clone();
                    change(&mut moved, e);
                    it.score_rows(&moved).unwrap()
                };
                (at(2e-3) - at(-2e-3)) / 4e-3
            };
            for j in 0..4 {
                let obs = slope(&|batch, e| batch.obs.column_mut(j).map_inplace(|x| *x += e));
                let next = slope(&|batch, e| batch.next_obs.column_mut(j).map_inplace(|x| *x += e));
                let act = slope(&|batch, e| batch.act.column_mut(j % 2).map_inplace(|x| *x += e));
                for i in 0..queries.len() {
                    for (want, got) in [
                        (obs[i], found.obs[[i, j]]),
                        (next[i], found.next_obs[[i, j]]),
                        (act[i], found.act[[i, j % 2]]),
                    ] {
                        assert!((want - got).abs() < 2e-3, "{vector:?} {form:?} {i} {j}: {want} {got}");
                    }
                }
            }
        }
    }
    let cosine = sumo(SumoConfig { metric: Distance::Cosine, ..Default::default() }, &data);
    assert!(cosine.score_gradient(&ModelStep::of_rows(queries)).is_err());
}
