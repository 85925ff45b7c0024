//! Every algorithm on a point mass: it learns more than its data show, resumes bit for bit and refuses nonsense.

use std::path::Path;

use super::*;
use crate::data::Dataset;
use crate::data::generate::{BehaviourBlock, generate};
use crate::dynamics::{EnsembleConfig, TerminationConfig};
use crate::env::point_mass::PointMass;
use crate::env::{Env, EnvPool};
use crate::error::Result;
use crate::home::Home;
use crate::iql::IqlConfig;
use crate::nn::{Tensors, ThreadPool};
use crate::pessimism::{Normaliser, Pessimism};
use crate::policy::Policy;
use crate::rng::Rng;
use crate::run::{ControlFlow, METRICS, RunDir, read_metrics};
use crate::sac::SacConfig;
use crate::td3::Td3Config;
use crate::uncertainty::{BellmanStdConfig, UncertaintyConfig};
use bc::BcConfig;
use combo::{ComboConfig, Conservative};
use iql::IqlAlgorithmConfig;
use mobile::MobileConfig;
use model_based_sac::ModelBasedSacConfig;
use rambo::{Cloning, Opponent, RamboConfig};
use td3bc::Td3BcConfig;

/// Steers to the middle half the time, and anywhere the other half.
struct Clumsy;

impl Policy for Clumsy {
    fn act(&self, obs: &[f32], rng: &mut Rng, act: &mut [f32]) {
        let careful = rng.uniform() < 0.3;
        for (i, a) in act.iter_mut().enumerate() {
            let steer = -0.6 * obs[i] - 0.6 * obs[2 + i];
            *a = if careful { steer.clamp(-1.0, 1.0) } else { rng.range(-1.0, 1.0) as f32 };
        }
    }
}

pub(super) fn new_env() -> Result<Box<dyn Env>> {
    Ok(Box::new(PointMass::new()))
}

pub(crate) fn point_mass_data() -> Dataset {
    let envs = EnvPool::new(new_env);
    generate("point-mass", &envs, &[BehaviourBlock { rows: 6000, behaviour: &Clumsy }], 0, &mut |_| ())
        .unwrap()
}

/// Mean return of the data's whole episodes.
pub(super) fn behaviour_return(data: &Dataset) -> f64 {
    let whole = &data.episodes[..data.episodes.len() - 1];
    let total: f64 = whole.iter().flat_map(|e| e.clone()).map(|i| f64::from(data.rows.rew[i])).sum();
    total / whole.len() as f64
}

/// A small model of the point mass.
pub(super) fn world() -> ModelConfig {
    let termination = TerminationConfig::Expression { alive: "obs[0] * obs[0] + obs[1] * obs[1] < 9".into() };
    let ensemble = EnsembleConfig {
        members: 3,
        elites: 2,
        hidden: vec![48, 48],
        decay: vec![2.5e-5; 3],
        max_epochs: Some(12),
        ..EnsembleConfig::default()
    };
    ModelConfig { ensemble, termination: Some(termination), ..ModelConfig::default() }
}

pub(super) fn small(pessimism: Pessimism, estimator: &str, steps: u64) -> ModelBasedSacConfig {
    ModelBasedSacConfig {
        train: TrainConfig {
            steps,
            batch: 128,
            evaluate_every: steps / 4,
            checkpoint_every: 200,
            ..TrainConfig::default()
        },
        rollout: RolloutConfig {
            every: 100,
            starts: 400,
            length: 5,
            retain: 5,
            real_ratio: 0.5,
            ..RolloutConfig::default()
        },
        model: world(),
        uncertainty: UncertaintyConfig::from_id(estimator).unwrap(),
        pessimism,
        sac: SacConfig {
            hidden: vec![64, 64],
            actor_lr: 1e-3,
            critic_lr: 1e-3,
            gamma: 0.95,
            tau: 0.01,
            ..SacConfig::default()
        },
    }
}

pub(super) fn penalise() -> Pessimism {
    Pessimism::Penalize { lambda: 1.0, normaliser: Normaliser::Dataset, reward_range: None }
}

/// Trains in `dir` until `stop_at`; the return of each evaluation.
fn train_mopo(
    cfg: &ModelBasedSacConfig,
    data: &Dataset,
    dir: &Path,
    threads: usize,
    stop_at: u64,
) -> Vec<f64> {
    train_by(cfg, data, dir, threads, stop_at)
}

/// Trains by any algorithm.
pub(super) fn train_by(
    algorithm: &dyn Algorithm,
    data: &Dataset,
    dir: &Path,
    threads: usize,
    stop_at: u64,
) -> Vec<f64> {
    let home = dir.join("home");
    in_session(data, (&home, dir), threads, stop_at, |session| train(algorithm, session)).unwrap();
    let records = read_metrics(&dir.join("run").join(METRICS)).unwrap_or_default();
    records.iter().map(|r| r["return"].as_f64().unwrap()).collect()
}

/// Runs `work` in a session of a run in `dir` that stops at step `stop_at`; models are cached in `home`.
pub(super) fn in_session<T>(
    data: &Dataset,
    (home, dir): (&Path, &Path),
    threads: usize,
    stop_at: u64,
    work: impl FnOnce(&mut Session<'_>) -> Result<T>,
) -> Result<T> {
    let envs = EnvPool::new(new_env);
    let (home, pool) = (Home::new(home), ThreadPool::new(threads));
    let mut run = RunDir::open_or_create(&dir.join("run"), "test")?;
    let mut stop = false;
    let mut on_event = |event: Event<'_>| {
        stop |= matches!(event, Event::Step(status) if status.step >= stop_at);
        if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut session = Session::new(data, &home, &pool, 1, &mut run, &mut on_event);
    session.evaluator = Some(Evaluator { envs: &envs, reference: None });
    work(&mut session)
}

#[test]
fn mopo_amorel_and_morel_with_sumo_beat_the_behaviour_policy() {
    let data = point_mass_data();
    let behaviour = behaviour_return(&data);
    for rule in [penalise(), Pessimism::Truncate { alpha: 1.0 }, Pessimism::Halt { alpha: 1.0, penalty: 5.0 }]
    {
        let dir = tempfile::tempdir().unwrap();
        let returns = train_mopo(&small(rule, "sumo", 4000), &data, dir.path(), 2, u64::MAX);
        assert!(returns[3] > behaviour + 5.0, "{rule:?}: {returns:?} against {behaviour}");
    }
}

pub(super) fn outcome(dir: &Path) -> Vec<Vec<u8>> {
    let run = dir.join("run");
    let mut files: Vec<Vec<u8>> = [METRICS, "policy.safetensors", "best.safetensors", "policy.onnx"]
        .iter()
        .map(|name| std::fs::read(run.join(name)).unwrap())
        .collect();
    // Not every algorithm picks one.
    files.extend(std::fs::read(run.join(PICKED_POLICY)));
    files
}

#[test]
fn a_stopped_and_resumed_run_equals_an_uninterrupted_one_on_any_number_of_threads() {
    let data = point_mass_data();
    for (rule, estimator) in [(penalise(), "sumo"), (Pessimism::Truncate { alpha: 1.0 }, "pairwise")] {
        let cfg = small(rule, estimator, 600);
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        train_mopo(&cfg, &data, whole.path(), 1, u64::MAX);
        for stop_at in [140, 300, 320, u64::MAX] {
            train_mopo(&cfg, &data, parts.path(), 2, stop_at);
        }
        assert!(outcome(whole.path()) == outcome(parts.path()), "{rule:?}");
    }
}

#[test]
fn a_running_maximum_survives_a_resume() {
    let data = point_mass_data();
    let rule = Pessimism::Penalize { lambda: 1.0, normaliser: Normaliser::Running, reward_range: Some(1.0) };
    let cfg = small(rule, "sumo", 400);
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train_mopo(&cfg, &data, whole.path(), 1, u64::MAX);
    for stop_at in [100, 130, u64::MAX] {
        train_mopo(&cfg, &data, parts.path(), 1, stop_at);
    }
    assert!(outcome(whole.path()) == outcome(parts.path()));
}

fn mobile_config(steps: u64) -> ModelBasedSacConfig {
    let rule = Pessimism::Penalize { lambda: 0.5, normaliser: Normaliser::None, reward_range: None };
    let mut cfg = small(rule, "bellman-std", steps);
    cfg.uncertainty = UncertaintyConfig::BellmanStd(BellmanStdConfig { samples: 3 });
    cfg.sac.deterministic_backup = true;
    cfg
}

fn combo_config(steps: u64) -> ComboConfig {
    let ModelBasedSacConfig { train, rollout, model, sac, .. } = small(penalise(), "sumo", steps);
    let conservative = Conservative { beta: 0.1, actions: 3, target: Some(3.0), ..Conservative::default() };
    ComboConfig { train, rollout, model, sac: SacConfig { deterministic_backup: true, ..sac }, conservative }
}

fn rambo_config(steps: u64) -> RamboConfig {
    let ModelBasedSacConfig { train, rollout, model, sac, .. } = small(penalise(), "sumo", steps);
    let adversary = Opponent { batch: 64, ratio: 0.2, ..Opponent::default() };
    let cloning = Cloning { steps: 200, lr: 1e-3, ..Cloning::default() };
    RamboConfig { train, rollout, model, sac, adversary, cloning }
}

#[test]
fn mobile_combo_and_rambo_beat_the_behaviour_policy() {
    let data = point_mass_data();
    let behaviour = behaviour_return(&data);
    let (mobile, combo, rambo) = (MobileConfig(mobile_config(4000)), combo_config(4000), rambo_config(4000));
    let algorithms: [(&str, &dyn Algorithm); 3] = [("mobile", &mobile), ("combo", &combo), ("rambo", &rambo)];
    for (name, algorithm) in algorithms {
        let dir = tempfile::tempdir().unwrap();
        let returns = train_by(algorithm, &data, dir.path(), 2, u64::MAX);
        assert!(returns[3] > behaviour + 5.0, "{name}: {returns:?} against {behaviour}");
    }
}

#[test]
fn mobile_combo_and_rambo_resume_bit_for_bit_on_any_number_of_threads() {
    let data = point_mass_data();
    let (mobile, mut combo, mut rambo) =
        (MobileConfig(mobile_config(400)), combo_config(400), rambo_config(400));
    rambo.sac.actor_layer_norm = true;
    rambo.rollout.logged_weight = Some(0.3);
    combo.rollout.actions = RolloutActions::Uniform;
    combo.rollout.logged_weight = Some(0.8);
    let algorithms: [(&str, &dyn Algorithm); 3] = [("mobile", &mobile), ("combo", &combo), ("rambo", &rambo)];
    for (name, algorithm) in algorithms {
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        train_by(algorithm, &data, whole.path(), 1, u64::MAX);
        for stop_at in [150, 250, u64::MAX] {
            train_by(algorithm, &data, parts.path(), 2, stop_at);
        }
        assert!(outcome(whole.path()) == outcome(parts.path()), "{name}");
    }
}

fn td3bc_config(steps: u64) -> Td3BcConfig {
    let train = small(penalise(), "sumo", steps).train;
    let td3 = Td3Config { hidden: vec![64, 64], gamma: 0.95, tau: 0.01, ..Td3Config::default() };
    Td3BcConfig { train, td3: Td3Config { actor_lr: 1e-3, critic_lr: 1e-3, ..td3 } }
}

fn iql_config(steps: u64) -> IqlAlgorithmConfig {
    let train = small(penalise(), "sumo", steps).train;
    let iql = IqlConfig { hidden: vec![64, 64], gamma: 0.95, tau: 0.01, ..IqlConfig::default() };
    IqlAlgorithmConfig { train, iql: IqlConfig { actor_lr: 1e-3, critic_lr: 1e-3, value_lr: 1e-3, ..iql } }
}

#[test]
fn td3bc_and_iql_beat_the_behaviour_policy_with_standardised_observations_and_without() {
    let data = point_mass_data();
    let behaviour = behaviour_return(&data);
    for standardise in [true, false] {
        let (mut td3bc, mut iql) = (td3bc_config(4000), iql_config(4000));
        (td3bc.td3.standardise, iql.iql.standardise) = (standardise, standardise);
        let algorithms: [(&str, &dyn Algorithm); 2] = [("td3bc", &td3bc), ("iql", &iql)];
        for (name, algorithm) in algorithms {
            let dir = tempfile::tempdir().unwrap();
            let returns = train_by(algorithm, &data, dir.path(), 2, u64::MAX);
            assert!(returns[3] > behaviour + 5.0, "{name}, {standardise}: {returns:?} against {behaviour}");
        }
    }
}

#[test]
fn td3bc_and_iql_resume_bit_for_bit_on_any_number_of_threads() {
    let data = point_mass_data();
    let (td3bc, mut iql) = (td3bc_config(400), iql_config(400));
    iql.iql.standardise = true;
    let algorithms: [(&str, &dyn Algorithm); 2] = [("td3bc", &td3bc), ("iql", &iql)];
    for (name, algorithm) in algorithms {
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        train_by(algorithm, &data, whole.path(), 1, u64::MAX);
        for stop_at in [140, 250, u64::MAX] {
            train_by(algorithm, &data, parts.path(), 2, stop_at);
        }
        assert!(outcome(whole.path()) == outcome(parts.path()), "{name}");
    }
}

#[test]
fn cloning_with_normalised_layers_resumes_bit_for_bit_and_its_policy_has_them() {
    let (data, train) = (point_mass_data(), small(penalise(), "sumo", 400).train);
    let cfg = BcConfig { train, hidden: vec![32, 32], layer_norm: true, ..BcConfig::default() };
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train_by(&cfg, &data, whole.path(), 1, u64::MAX);
    for stop_at in [140, u64::MAX] {
        train_by(&cfg, &data, parts.path(), 2, stop_at);
    }
    assert!(outcome(whole.path()) == outcome(parts.path()));
    let file = std::fs::read(whole.path().join("run/policy.safetensors")).unwrap();
    let policy = Actor::from_policy(&Tensors::from_bytes(&file).unwrap()).unwrap();
    assert!(policy.layer_norm());
}

#[test]
fn mobile_with_sumo_is_the_recipe_and_with_its_own_score_refuses_a_normaliser() {
    let data = point_mass_data();
    let cfg = small(penalise(), "sumo", 200);
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train_mopo(&cfg, &data, one.path(), 1, u64::MAX);
    train_by(&MobileConfig(cfg), &data, other.path(), 1, u64::MAX);
    assert!(outcome(one.path()) == outcome(other.path()));
    let odd = MobileConfig(ModelBasedSacConfig { pessimism: penalise(), ..mobile_config(200) });
    let dir = tempfile::tempdir().unwrap();
    let error =
        in_session(&data, (dir.path(), dir.path()), 1, u64::MAX, |session| train(&odd, session)).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("normaliser `none`") && !error.contains('\n'), "{error}");
}

#[test]
fn nonsense_settings_are_named() {
    let combo = ComboConfig {
        conservative: Conservative { temperature: 0.0, ..Conservative::default() },
        ..ComboConfig::default()
    };
    let rambo = RamboConfig {
        adversary: Opponent { lambda: f64::NAN, ..Opponent::default() },
        ..RamboConfig::default()
    };
    let mut decays = rambo_config(10);
    validate(&decays).unwrap();
    assert_eq!(decays.clone().resolved().adversary.step.decay, decays.model.ensemble.decay, "the ensemble's");
    decays.adversary.step.decay = vec![0.1; 5];
    assert_eq!(decays.clone().resolved(), decays, "what is given stays");
    let far = ModelBasedSacConfig {
        pessimism: Pessimism::Penalize { lambda: -1.0, normaliser: Normaliser::Dataset, reward_range: None },
        ..small(penalise(), "sumo", 10)
    };
    let weighted = |weight: f32, real_ratio: f64| {
        let mut cfg = small(penalise(), "sumo", 10);
        (cfg.rollout.logged_weight, cfg.rollout.real_ratio) = (Some(weight), real_ratio);
        validate(&cfg)
    };
    weighted(0.9, 0.5).unwrap();
    for (error, word) in [
        (validate(&combo).unwrap_err(), "conservative.temperature"),
        (validate(&rambo).unwrap_err(), "adversary.lambda"),
        (validate(&decays).unwrap_err(), "adversary.step.decay: wanted 3 numbers"),
        (validate(&far).unwrap_err(), "pessimism.lambda"),
        (weighted(1.5, 0.5).unwrap_err(), "rollout.logged_weight: wanted a number from 0 to 1"),
        (weighted(0.5, 1.0).unwrap_err(), "found 128 logged rows in a batch of 128"),
        (weighted(0.5, 0.0).unwrap_err(), "found 0 logged rows"),
    ] {
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn what_the_data_cannot_serve_is_said_before_a_model_is_fitted() {
    let data = point_mass_data();
    let with = |estimator: &str| ModelBasedSacConfig {
        uncertainty: serde_json::from_str(estimator).unwrap(),
        ..small(penalise(), "sumo", 10)
    };
    validate_for(&with(r#"{"kind":"sumo"}"#), &data).unwrap();
    let mut narrow = with(r#"{"kind":"sumo"}"#);
    narrow.model.termination = Some(TerminationConfig::Expression { alive: "obs[9] > 0".into() });
    let mut nameless = with(r#"{"kind":"sumo"}"#);
    nameless.model.termination = None;
    let mut greedy = with(r#"{"kind":"sumo"}"#);
    greedy.model.ensemble.batch_size = 100_000;
    for (cfg, word) in [
        (with(r#"{"kind":"sumo","k":0}"#), "uncertainty: sumo: wanted k from 1"),
        (with(r#"{"kind":"sumo","k":100000}"#), "found 100000"),
        (with(r#"{"kind":"bellman-std"}"#), "wanted the critics"),
        (narrow, "model.termination.alive"),
        (greedy, "smaller model.ensemble.batch_size"),
    ] {
        let error = validate_for(&cfg, &data).unwrap_err().to_string();
        assert!(error.contains(word) && !error.contains('\n'), "{error}");
    }
    // Where rows end, it is learnt when; where none does, none will.
    validate_for(&nameless, &data).unwrap();
    assert_eq!(nameless.model.termination_for(&data).unwrap(), TerminationConfig::Never {});
    let mut ends = data.clone();
    ends.rows.done[7] = true;
    validate_for(&nameless, &ends).unwrap();
    assert!(matches!(nameless.model.termination_for(&ends).unwrap(), TerminationConfig::Learnt { .. }));
    ends.name = "hopper-log".into();
    assert_eq!(nameless.model.termination_for(&ends).unwrap(), TerminationConfig::Hopper {});
    let trusting =
        ModelBasedSacConfig { pessimism: Pessimism::Ignore {}, ..with(r#"{"kind":"sumo","k":0}"#) };
    validate_for(&trusting, &data).unwrap();
    assert!(validate_for(&MobileConfig(mobile_config(10)), &data).is_ok());
}
