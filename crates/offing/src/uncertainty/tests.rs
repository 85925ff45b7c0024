//! What every estimator must be, and the numbers of NumPy and FAISS. The other side: scripts/golden/uncertainty.py.

use ndarray::{Array1, Array3};

use super::members::apply;
use super::*;
use crate::batch::{Batch, Mat};
use crate::dynamics::{DynamicsModel, Ensemble, EnsembleConfig, Prediction};
use crate::nn::{Tensors, ThreadPool};
use crate::rng::Rng;

#[test]
fn a_row_is_located_in_its_episode() {
    let episodes = [0..3, 3..4, 4..9];
    let found: Vec<_> = [0, 2, 3, 4, 8].iter().map(|&r| locate(&episodes, r)).collect();
    assert_eq!(found, [(0, 0), (0, 2), (1, 0), (2, 0), (2, 4)].map(Some));
    assert_eq!(locate(&episodes, 9), None);
}

fn world(n: usize, seed: u64) -> Batch {
    let mut rng = Rng::stream(seed, "world", 0);
    let obs = Mat::from_shape_fn((n, 3), |_| rng.normal() as f32);
    let act = Mat::from_shape_fn((n, 2), |_| rng.range(-1.0, 1.0) as f32);
    let mut next_obs = obs.clone();
    for i in 0..n {
        next_obs[[i, 0]] += 0.5 * obs[[i, 1]].sin() + 0.02 * rng.normal() as f32;
        next_obs[[i, 1]] += 0.3 * act[[i, 0]] * obs[[i, 2]] + 0.02 * rng.normal() as f32;
        next_obs[[i, 2]] += 0.2 * act[[i, 1]] + 0.02 * rng.normal() as f32;
    }
    let rew = obs.column(0).mapv(f32::cos);
    Batch { obs, act, rew, next_obs, done: Array1::from_elem(n, false) }
}

fn model(data: &Batch) -> Ensemble {
    let cfg = EnsembleConfig {
        members: 3,
        elites: 2,
        hidden: vec![32; 4],
        batch_size: 64,
        max_epochs: Some(4),
        ..Default::default()
    };
    Ensemble::fit(&cfg, data, 0, &ThreadPool::new(2), |_, _| Ok(())).unwrap()
}

/// Every estimator as listed, every variant that another code path serves, small enough for a test.
fn configs() -> Vec<UncertaintyConfig> {
    let mut all: Vec<UncertaintyConfig> =
        UncertaintyConfig::all().into_iter().filter(|c| !c.needs_critics()).collect();
    for config in &mut all {
        match config {
            UncertaintyConfig::Count(c) => {
                *c = CountConfig { bits: 12, elites: 2, updates: 60, batch_size: 32, ..Default::default() }
            }
            UncertaintyConfig::Pullback(c) => {
                *c = PullbackConfig {
                    latent: 3,
                    hidden: vec![24],
                    centers: 12,
                    updates: 200,
                    batch_size: 32,
                    ..Default::default()
                }
            }
            _ => {}
        }
    }
    let sumo = SumoConfig {
        k: 5,
        vector: SearchVector::ObsActRewNext,
        columns: ColumnScale::Standardised,
        metric: Distance::Manhattan,
        ..Default::default()
    };
    let embedded = Some(EmbeddingConfig::Network { dim: 4, hidden: 32, seed: 0 });
    all.extend([
        UncertaintyConfig::Sumo(sumo),
        UncertaintyConfig::Sumo(SumoConfig { embedding: embedded, ..Default::default() }),
        UncertaintyConfig::Aleatoric(AleatoricConfig { norm: Norm::L2Std }),
        UncertaintyConfig::Pairwise(PairwiseConfig { spread: Spread::ToMean }),
        UncertaintyConfig::LooKl(LooKlConfig { member: KlMember::Mean }),
        UncertaintyConfig::Fathom(FathomConfig {
            variant: FathomVariant::Fit,
            stored: None,
            ..Default::default()
        }),
        UncertaintyConfig::Fathom(FathomConfig {
            variant: FathomVariant::Ensemble,
            stored: None,
            ..Default::default()
        }),
        UncertaintyConfig::Fathom(FathomConfig {
            variant: FathomVariant::Search,
            stored: Some(200),
            ..Default::default()
        }),
    ]);
    all
}

fn source<'a>(data: &'a Batch, model: &'a Ensemble, threads: usize) -> BuildContext<'a> {
    let pool = ThreadPool::new(threads);
    BuildContext { model: Some(model), pool, seed: 3, ..BuildContext::of_data(data) }
}

#[test]
fn every_estimator_conforms() {
    let data = world(600, 0);
    let model = model(&data);
    let queries = world(150, 1);
    let step = model.step(&queries.obs, &queries.act, Members::All, &mut Rng::stream(0, "step", 0));
    let configs = configs();
    let all = build_all(&configs, &source(&data, &model, 2)).unwrap();
    let again = build_all(&configs, &source(&data, &model, 3)).unwrap();
    for ((config, it), again) in configs.iter().zip(&all).zip(&again) {
        let name = format!("{config:?}");
        conformance::check(&**it, &step).unwrap_or_else(|broken| panic!("{name}: {broken}"));
        conformance::check_same(&**it, &**again, &step).unwrap_or_else(|broken| panic!("{name}: {broken}"));
        assert!(it.score(&step).unwrap().iter().all(|u| *u >= 0.0), "{name}");
        assert!(it.max_loo_score() > 0.0, "{name}: {}", it.max_loo_score());
        if it.needs() == Members::All {
            let alone = ModelStep { prediction: None, ..step.clone() };
            let message = it.score(&alone).unwrap_err().to_string();
            assert!(message.contains("every member's prediction"), "{name}: {message}");
        }
    }
}

/// Breaks one promise of the trait at a time.
#[derive(Debug)]
struct Broken(&'static str);

impl Uncertainty for Broken {
    fn score(&self, step: &ModelStep) -> Result<Array1<f32>> {
        let column = step.batch.obs.column(0).to_owned();
        Ok(match self.0 {
            "order" => column.iter().enumerate().map(|(i, x)| x + i as f32).collect(),
            "alone" => &column - column.fold(f32::MIN, |a, b| a.max(*b)),
            "finite" => column.mapv(|x| if x > 0.0 { f32::NAN } else { x }),
            "count" => column.slice(ndarray::s![1..]).to_owned(),
            "members" if step.prediction.is_some() => column + 1.0,
            _ => column,
        })
    }

    fn needs(&self) -> Members {
        if self.0 == "refuse" { Members::All } else { Members::One }
    }

    fn max_loo_score(&self) -> f32 {
        if self.0 == "max" { f32::NAN } else { 1.0 }
    }

    fn exceeds(&self, step: &ModelStep, threshold: f32) -> Result<Vec<bool>> {
        let at_least = |u: &f32| if self.0 == "exceeds" { *u >= threshold } else { *u > threshold };
        Ok(self.score(step)?.iter().map(at_least).collect())
    }
}

#[test]
fn conformance_finds_each_broken_promise() {
    let data = world(600, 0);
    let queries = world(20, 1);
    let step = model(&data).step(&queries.obs, &queries.act, Members::All, &mut Rng::stream(0, "step", 0));
    conformance::check(&Broken("nothing"), &step).unwrap();
    for (what, word) in [
        ("order", "order of rows"),
        ("alone", "alone"),
        ("finite", "finite scores"),
        ("count", "wanted 20 scores"),
        ("members", "reads every member"),
        ("refuse", "without their predictions"),
        ("max", "max_loo_score"),
        ("exceeds", "exceeds("),
    ] {
        let broken = conformance::check(&Broken(what), &step).unwrap_err();
        assert!(broken.contains(word), "{what}: {broken}");
    }
}

#[test]
fn an_estimator_from_outside_is_built_by_its_name_or_refused() {
    let data = world(100, 0);
    let config: UncertaintyConfig = serde_json::from_str(r#"{"kind":"custom","name":"mine"}"#).unwrap();
    assert_eq!(serde_json::to_string(&config).unwrap(), r#"{"kind":"custom","name":"mine"}"#);
    config.validate(100, &EnsembleConfig::default()).unwrap();
    let mine = [CustomEstimator::new("mine", |context| {
        assert_eq!(context.data.len(), 100);
        Ok(Box::new(Broken("nothing")))
    })];
    let context = BuildContext { custom: &mine, ..BuildContext::of_data(&data) };
    assert_eq!(config.build(&context).unwrap().max_loo_score(), 1.0);
    config.validate_registered(&mine).unwrap();
    let resumed = config.build(&BuildContext::of_data(&data)).unwrap_err().to_string();
    assert!(resumed.contains("`mine`") && resumed.contains("registers it"), "{resumed}");
    assert_eq!(config.validate_registered(&[]).unwrap_err().to_string(), resumed);
}

#[test]
fn search_based_scores_grow_as_a_query_leaves_all_data() {
    let data = world(600, 0);
    let model = model(&data);
    let queries = world(50, 1);
    let step = model.step(&queries.obs, &queries.act, Members::All, &mut Rng::stream(0, "step", 0));
    // An estimator that searches for neighbours is named here.
    let searching = configs().into_iter().filter(|c| matches!(c.id(), "sumo" | "fathom"));
    for config in searching {
        let it = config.build(&source(&data, &model, 2)).unwrap();
        let mut last = it.score(&step).unwrap();
        for away in [20.0, 60.0, 200.0] {
            // Every column of the transition leaves the data by `away`, the change of state included.
            let mut moved = step.clone();
            moved.batch.obs += away;
            moved.batch.act += away;
            moved.batch.next_obs += 2.0 * away;
            let now = it.score(&moved).unwrap();
            assert!((0..50).all(|i| now[i] > last[i]), "{config:?} at {away}: {now} after {last}");
            last = now;
        }
    }
}

#[test]
fn the_baseline_of_member_scores_is_their_largest_over_the_data() {
    let data = world(300, 0);
    let model = model(&data);
    let step = model.step(&data.obs, &data.act, Members::All, &mut Rng::stream(0, "step", 0));
    for config in configs()
        .iter()
        .filter(|c| matches!(c.id(), "aleatoric" | "pairwise" | "ensemble-std" | "mixture-std"))
    {
        let it = config.build(&source(&data, &model, 1)).unwrap();
        let largest = it.score(&step).unwrap().iter().fold(0.0, |a: f32, b| a.max(*b));
        assert_eq!(it.max_loo_score(), largest, "{config:?}");
    }
}

#[test]
fn configs_are_tagged_round_trip_and_refuse_what_they_do_not_know() {
    for config in UncertaintyConfig::all() {
        let text = serde_json::to_string(&config).unwrap();
        assert!(text.contains(&format!(r#""kind":"{}""#, config.id())), "{text}");
        assert_eq!(serde_json::from_str::<UncertaintyConfig>(&text).unwrap(), config);
        let bare = format!(r#"{{"kind":"{}"}}"#, config.id());
        assert_eq!(serde_json::from_str::<UncertaintyConfig>(&bare).unwrap(), config);
        let typo = format!(r#"{{"kind":"{}","kk":3}}"#, config.id());
        let message = serde_json::from_str::<UncertaintyConfig>(&typo).unwrap_err().to_string();
        assert!(message.contains("unknown field `kk`"), "{message}");
        assert_eq!(UncertaintyConfig::from_id(config.id()).unwrap(), config);
    }
    let sumo: UncertaintyConfig =
        serde_json::from_str(r#"{"kind":"sumo","k":5,"vector":"s+a+r+s'","metric":"manhattan"}"#).unwrap();
    let UncertaintyConfig::Sumo(sumo) = sumo else { panic!("{sumo:?}") };
    assert_eq!((sumo.k, sumo.vector, sumo.metric), (5, SearchVector::ObsActRewNext, Distance::Manhattan));
    let message = UncertaintyConfig::from_id("alleatoric").unwrap_err().to_string();
    assert!(message.contains("did you mean `aleatoric`?") && message.contains("fathom"), "{message}");
}

#[test]
fn what_the_source_lacks_is_named() {
    let data = world(100, 0);
    for id in ["aleatoric", "pairwise", "loo-kl", "ensemble-std", "mixture-std", "count"] {
        let message = UncertaintyConfig::from_id(id)
            .unwrap()
            .build(&BuildContext::of_data(&data))
            .unwrap_err()
            .to_string();
        assert!(message.starts_with(id) && message.contains("trained ensemble"), "{message}");
    }
    let message = UncertaintyConfig::from_id("bellman-std")
        .unwrap()
        .build(&BuildContext::of_data(&data))
        .unwrap_err()
        .to_string();
    assert!(message.contains("critics") && message.contains("mobile"), "{message}");
}

#[test]
fn settings_that_cannot_work_are_named_before_there_is_a_model() {
    let usual = EnsembleConfig::default();
    for config in UncertaintyConfig::all() {
        config.validate(1000, &usual).unwrap();
    }
    let read = |text: &str| serde_json::from_str::<UncertaintyConfig>(text).unwrap();
    let alone = EnsembleConfig { members: 1, elites: 1, ..usual.clone() };
    let linear = EnsembleConfig { hidden: Vec::new(), ..usual.clone() };
    for (text, model, word) in [
        (r#"{"kind":"sumo","k":0}"#, &usual, "k from 1 to 999"),
        (r#"{"kind":"sumo","k":1000}"#, &usual, "found 1000"),
        (r#"{"kind":"sumo","embedding":{"kind":"projection","dim":0}}"#, &usual, "dim"),
        (r#"{"kind":"loo-kl"}"#, &alone, "raise model.ensemble.members"),
        (r#"{"kind":"count"}"#, &linear, "hidden layers"),
        (r#"{"kind":"count","bits":65}"#, &usual, "64 bits"),
        (r#"{"kind":"pullback","segments":0}"#, &usual, "segments"),
        (r#"{"kind":"fathom","stored":0}"#, &usual, "stored"),
        (r#"{"kind":"bellman-std"}"#, &alone, "two elites"),
    ] {
        let error = read(text).validate(1000, model).unwrap_err().to_string();
        assert!(error.contains(word) && !error.contains('\n'), "{text}: {error}");
    }
    assert!(UncertaintyConfig::default().validate_without_critics().is_ok());
    assert!(read(r#"{"kind":"bellman-std"}"#).validate_without_critics().is_err());
}

fn golden() -> Tensors {
    Tensors::from_foreign_bytes(include_bytes!("../../tests/golden/uncertainty.safetensors")).unwrap()
}

#[test]
fn ensemble_scores_equal_numpy() {
    let golden = golden();
    let array =
        |name: &str| Array3::from_shape_vec((7, 60, 6), golden.f32(name, &[7, 60, 6]).unwrap()).unwrap();
    let prediction = Prediction { mean: array("mean"), std: array("std") };
    let member: Array1<u32> = golden.u64("member", 60).unwrap().into_iter().map(|m| m as u32).collect();
    let rules: [(&str, Box<dyn EnsembleScore>); 8] = [
        ("aleatoric.frobenius", Box::new(AleatoricConfig { norm: Norm::Frobenius })),
        ("aleatoric.l2-std", Box::new(AleatoricConfig { norm: Norm::L2Std })),
        ("pairwise.pairs", Box::new(PairwiseConfig { spread: Spread::Pairs })),
        ("pairwise.to-mean", Box::new(PairwiseConfig { spread: Spread::ToMean })),
        ("ensemble-std", Box::new(EnsembleStdConfig {})),
        ("mixture-std", Box::new(MixtureStdConfig {})),
        ("loo-kl.chosen", Box::new(LooKlConfig { member: KlMember::Chosen })),
        ("loo-kl.mean", Box::new(LooKlConfig { member: KlMember::Mean })),
    ];
    for (name, rule) in rules {
        let got = apply(&*rule, &prediction, Some(&member));
        let want = golden.f64(&format!("want.{name}"), 60).unwrap();
        for (got, want) in got.iter().zip(want) {
            assert!((f64::from(*got) - want).abs() <= 1e-6 * want.abs(), "{name}: {got} {want}");
        }
    }
}

#[test]
fn sumo_equals_faiss_flat() {
    let golden = golden();
    let rows = |part: &str, n: usize| {
        let mat = |name: &str, cols: usize| {
            let flat = golden.f32(&format!("{part}.{name}"), &[n, cols]).unwrap();
            Mat::from_shape_vec((n, cols), flat).unwrap()
        };
        let (rew, done) = (Array1::zeros(n), Array1::from_elem(n, false));
        Batch { obs: mat("obs", 11), act: mat("act", 3), rew, next_obs: mat("next_obs", 11), done }
    };
    let (data, queries) = (rows("data", 3000), rows("query", 100));
    for k in [1, 5] {
        let it = Sumo::new(&SumoConfig { k, ..Default::default() }, &data, 2).unwrap();
        let want = golden.f64(&format!("want.sumo.{k}"), 100).unwrap();
        for (got, want) in it.score_rows(&queries).unwrap().iter().zip(want) {
            assert!((f64::from(*got) - want).abs() <= 1e-6, "k = {k}: {got} {want}");
        }
        let ids: Vec<u64> = it.nearest(&queries, 5).unwrap().ids.iter().map(|&i| u64::from(i)).collect();
        assert_eq!(ids, golden.u64("want.support", 500).unwrap());
    }
}
