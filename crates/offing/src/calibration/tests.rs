//! A small study from end to end, with a simulator and without.

use super::*;
use crate::algorithms::Event;
use crate::data::generate::{BehaviourBlock, generate};
use crate::dynamics::{EnsembleConfig, TerminationConfig};
use crate::env::point_mass::PointMass;
use crate::env::{Env, EnvPool};
use crate::home::Home;
use crate::nn::ThreadPool;
use crate::policy::UniformPolicy;
use crate::run::{ControlFlow, RunDir};
use crate::uncertainty::CustomConfig;

fn new_env() -> Result<Box<dyn Env>> {
    Ok(Box::new(PointMass::new()))
}

fn config() -> StudyConfig {
    let ensemble = EnsembleConfig {
        members: 3,
        elites: 2,
        hidden: vec![32, 32],
        decay: vec![2.5e-5; 3],
        max_epochs: Some(4),
        ..EnsembleConfig::default()
    };
    let alive = "obs[0] * obs[0] + obs[1] * obs[1] < 9".to_string();
    StudyConfig {
        starts: 30,
        length: 30,
        bootstrap: 20,
        model: ModelConfig {
            ensemble,
            termination: Some(TerminationConfig::Expression { alive }),
            ..ModelConfig::default()
        },
        train: TrainConfig {
            steps: 200,
            batch: 64,
            evaluate_every: 200,
            episodes: 2,
            ..TrainConfig::default()
        },
        rollout: RolloutConfig {
            every: 100,
            starts: 100,
            length: 3,
            retain: 2,
            real_ratio: 0.5,
            ..RolloutConfig::default()
        },
        sac: SacConfig { hidden: vec![32, 32], ..SacConfig::default() },
    }
}

fn run(simulated: bool) -> Study {
    let envs = EnvPool::new(new_env);
    let block = BehaviourBlock { rows: 2500, behaviour: &UniformPolicy };
    let all = generate("point-mass", &envs, &[block], 0, &mut |_| ()).unwrap();
    let (data, held) = all.split(0.2, 0).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (home, pool) = (Home::new(dir.path().join("home")), ThreadPool::new(2));
    let mut run = RunDir::open_or_create(&dir.path().join("run"), "test").unwrap();
    let mut watch = |_: Event<'_>| ControlFlow::Continue(());
    // One from outside the crate: SUMO under another name.
    let mine =
        [CustomEstimator::new("mine", |context| UncertaintyConfig::from_id("sumo").unwrap().build(context))];
    let mut session = Session::new(&data, &home, &pool, 0, &mut run, &mut watch);
    let cfg = config();
    let subject = prepare(&cfg, &mut session).unwrap().unwrap();
    let oracle = Oracle::new(EnvPool::new(new_env)).unwrap();
    let names = ["sumo", "pairwise", "mixture-std", "bellman-std"];
    let mut estimators: Vec<_> =
        names.iter().map(|n| (n.to_string(), UncertaintyConfig::from_id(n).unwrap())).collect();
    if simulated {
        return study(&cfg, &estimators, &subject, TruthSource::Simulator(&oracle), &mut session).unwrap();
    }
    session.estimators = &mine;
    estimators.push(("mine".into(), UncertaintyConfig::Custom(CustomConfig { name: "mine".into() })));
    assert!(cfg.validate_for(&data, &estimators, &[]).is_err());
    cfg.validate_for(&data, &estimators, &mine).unwrap();
    study(&cfg, &estimators, &subject, TruthSource::HeldOut(&held), &mut session).unwrap()
}

#[test]
fn a_study_with_a_simulator_judges_every_estimator_on_every_choice_of_rows() {
    let study = run(true);
    assert_eq!(study.rows + study.exploded, 900);
    assert_eq!(study.findings.len(), 4 * 4 * 5, "variants × parts × (step and four estimators)");
    assert_eq!(study.timings.len(), 4);
    let headline = |name: &str| {
        let is = |f: &&EstimatorResult| {
            f.estimator == name && f.variant == NextObsKind::Sampled && f.part == RowSubset::All
        };
        study.findings.iter().find(is).unwrap().clone()
    };
    let sumo = headline("sumo");
    // Most of the error of so simple a task is the model's own noise, but what is left grows away from the data.
    assert!(
        sumo.rho.low > 0.0 && sumo.rho.low <= sumo.rho.value && sumo.rho.value <= sumo.rho.high,
        "{sumo:?}"
    );
    assert!(sumo.auroc > 0.5 && sumo.rows == study.rows - study.lost, "{sumo:?}");
    let text = serde_json::to_string(&study).unwrap();
    let back: Study = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text, "NaN or not, a study reads back as it was");
    let before = study.findings.iter().find(|f| f.part == RowSubset::BeforeEnd).unwrap();
    assert!(before.rows <= sumo.rows);
}

#[test]
fn without_a_simulator_held_out_transitions_are_the_truth() {
    let study = run(false);
    assert!(!study.simulated && study.rows > 300 && study.lost == 0);
    assert!(study.findings.iter().all(|f| f.rows > 0));
    let of = |name: &str| study.findings.iter().find(|f| f.estimator == name).unwrap().rho;
    assert_eq!(of("mine").value, of("sumo").value, "an estimator from outside is studied like the others");
}
