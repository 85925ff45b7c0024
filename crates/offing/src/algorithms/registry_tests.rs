//! Names, presets and profiles: what they mean, and how wrong ones are answered.

use super::model_based_sac::ModelBasedSacConfig;
use super::registry::*;
use crate::algorithms::RewardShift;
use crate::data::catalogue::generated_names;
use crate::pessimism::{Normaliser, Pessimism};
use crate::uncertainty::{AleatoricConfig, Norm, UncertaintyConfig};

fn named(name: &str) -> AlgorithmName {
    Registry::default().parse(name).unwrap()
}

/// The settings of an algorithm of the SAC family, which `configure` accepts.
fn plan(name: &str, dataset: &str, variant: Option<&str>) -> ModelBasedSacConfig {
    let (layers, _) = named(name).layers(dataset, variant, None).unwrap();
    named(name).configure(&layers).unwrap();
    layers.read().unwrap()
}

#[test]
fn every_preset_reads_for_every_dataset() {
    let estimators = UncertaintyConfig::all();
    for dataset in generated_names() {
        for spec in Registry::default().specs() {
            let base = spec.name;
            for profile in [None, Some("quick"), Some("standard")] {
                let (layers, _) = named(base).layers(&dataset, None, profile).unwrap();
                named(base).configure(&layers).unwrap();
            }
            let fits = |e: &&UncertaintyConfig| match spec.estimators {
                EstimatorUse::None => false,
                EstimatorUse::Any => !e.needs_critics(),
                EstimatorUse::WithCritics => true,
            };
            for estimator in estimators.iter().filter(fits) {
                let name = named(&format!("{base}+{}", estimator.id()));
                let (layers, _) = name.layers(&dataset, None, None).unwrap();
                let found = name.configure(&layers).unwrap().settings;
                assert_eq!(found["uncertainty"]["kind"].as_str(), Some(estimator.id()));
            }
            for (suffix, _) in spec.presets.iter().filter(|(suffix, _)| suffix.starts_with('.')) {
                let (layers, _) = named(base).layers(&dataset, Some(&suffix[1..]), None).unwrap();
                named(base).configure(&layers).unwrap();
            }
        }
    }
}

#[test]
fn names_mean_what_the_paper_means() {
    let base = plan("mopo", "hopper-medium", None);
    assert_eq!(base.uncertainty.id(), "aleatoric");
    let sumo = plan("mopo+sumo", "hopper-medium", None);
    let eq6 = Pessimism::Penalize { lambda: 1.0, normaliser: Normaliser::Dataset, reward_range: None };
    assert_eq!((sumo.uncertainty.id(), sumo.pessimism), ("sumo", eq6));
    assert_eq!(plan("amorel", "hopper-medium", Some("paper")).pessimism, Pessimism::Truncate { alpha: 5.0 });
    let mobile = plan("mobile", "hopper-medium-replay", None);
    assert_eq!((mobile.uncertainty.id(), mobile.sac.deterministic_backup), ("bellman-std", true));
    let sumo = plan("mobile+sumo", "hopper-medium-replay", None);
    assert_eq!((sumo.uncertainty.id(), sumo.pessimism), ("sumo", eq6));
    let (quick, _) = named("rambo").layers("x", None, Some("quick")).unwrap();
    assert_eq!(quick.table()["train"]["steps"].as_integer(), Some(30_000));
    for (name, shift) in [("amorel+sumo", -1.0), ("mobile", 0.0)] {
        let maze = plan(name, "antmaze-umaze", None).train;
        assert_eq!(
            (maze.reward_shift, maze.episodes, maze.drop_teleports),
            (RewardShift::By(shift), 100, true)
        );
    }
    let kit = plan("mopo", "hopper-medium-v2", Some("kit"));
    assert!(matches!(kit.pessimism, Pessimism::Penalize { lambda: 5.0, .. }));
    let l2 = UncertaintyConfig::Aleatoric(AleatoricConfig { norm: Norm::L2Std });
    assert_eq!(kit.uncertainty, l2, "the norm its λ belong to");
    let (quick, _) = named("mopo").layers("antmaze-umaze-v0", None, Some("quick")).unwrap();
    assert_eq!(quick.table()["train"]["episodes"].as_integer(), Some(100), "success needs many");
}

#[test]
fn the_adversary_decays_as_the_ensemble_does_and_says_so() {
    let plan = |sets: &[&str]| {
        let (mut layers, _) = named("rambo").layers("x", None, None).unwrap();
        sets.iter().try_for_each(|set| layers.set(set)).unwrap();
        named("rambo").configure(&layers)
    };
    let decay = |plan: &Configured| plan.settings["adversary"]["step"]["decay"].clone();
    let usual = plan(&[]).unwrap();
    assert_eq!(decay(&usual), usual.settings["model"]["ensemble"]["decay"], "written down");
    let small = ["model.ensemble.hidden=[32,32]", "model.ensemble.decay=[0.5,0.25,0.125]"];
    let own = toml::Value::Array([0.5, 0.25, 0.125].map(toml::Value::Float).to_vec());
    assert_eq!(decay(&plan(&small).unwrap()), own);
    let error = plan(&[small[0], small[1], "adversary.step.decay=[0.5]"]).unwrap_err().to_string();
    assert!(error.contains("adversary.step.decay: wanted 3 numbers"), "{error}");
}

#[test]
fn presets_know_a_dataset_by_its_id_and_by_its_file() {
    let lambda = |dataset: &str| match plan("mobile", dataset, None).pessimism {
        Pessimism::Penalize { lambda, .. } => lambda,
        other => panic!("{other:?}"),
    };
    for dataset in ["hopper-medium", "hopper-medium-v0", "hopper-medium-1000-s0-0a1b2c3d.hdf5"] {
        assert_eq!(lambda(dataset), 1.5, "{dataset}");
    }
    assert_eq!(lambda("hopper-medium-of-mine.npz"), 0.5);
}

#[test]
fn wrong_names_are_answered_with_right_ones() {
    for (name, pieces) in [
        ("mopp", &["`mopp`", "`mopo`"][..]),
        ("mopo+summo", &["`summo`", "`sumo`"]),
        ("bc+sumo", &["bc takes no estimator"]),
        ("combo+sumo", &["combo takes no estimator"]),
        ("rambo+sumo", &["rambo takes no estimator"]),
        ("mopo+bellman-std", &["`mobile`"]),
    ] {
        let error = Registry::default().parse(name).unwrap_err().to_string();
        assert!(pieces.iter().all(|p| error.contains(p)) && !error.contains('\n'), "{error}");
    }
    let error = named("amorel").layers("x", Some("kit"), None).unwrap_err().to_string();
    assert!(error.contains("known: paper"), "{error}");
}
