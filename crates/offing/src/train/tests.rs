//! The front door on a point mass: rows in memory, an estimator of one's own, resuming, refusals.

use super::*;
use crate::algorithms::tests::point_mass_data;
use crate::env::point_mass::PointMassSimulators;
use crate::run::ControlFlow;
use crate::sac::Alpha;
use crate::uncertainty::SumoConfig;

/// A training of some seconds.
fn small(dir: &Path) -> RunConfig {
    let sets = [
        "train.steps=200",
        "train.evaluate_every=100",
        "train.episodes=2",
        "rollout.every=100",
        "rollout.starts=100",
        "model.ensemble.members=2",
        "model.ensemble.elites=2",
        "model.ensemble.hidden=[16,16]",
        "model.ensemble.decay=[0.0,0.0,0.0]",
        "model.ensemble.max_epochs=2",
        "model.termination={kind=\"never\"}",
        "sac.hidden=[16,16]",
    ];
    let config = RunConfig::new("mopo+sumo", point_mass_data()).dir(dir.join("run"));
    sets.iter().fold(config, |config, set| config.set(*set))
}

fn outcome(dir: &Path) -> Vec<Vec<u8>> {
    ["metrics.jsonl", "policy.safetensors"].map(|name| std::fs::read(dir.join(name)).unwrap()).to_vec()
}

#[test]
fn rows_in_memory_are_trained_scored_and_kept_with_what_was_asked() {
    let temp = tempfile::tempdir().unwrap();
    let mut hooks = Hooks::new(temp.path().join("home")).with_simulators(&PointMassSimulators);
    let trained = train(&small(temp.path()), &mut hooks).unwrap();
    assert!(trained.finished && trained.policy.is_some() && trained.scores.last.is_some());
    let manifest = RunManifest::read(&trained.dir).unwrap();
    assert_eq!((manifest.algorithm.as_str(), manifest.dataset.as_str()), ("mopo+sumo", "point-mass"));
    assert_eq!(manifest.settings["train"]["steps"].as_integer(), Some(200));
    assert_eq!(manifest.data, trained.data.digest());
}

#[test]
fn every_setting_of_the_training_reaches_the_rows() {
    let temp = tempfile::tempdir().unwrap();
    let mut hooks = Hooks::new(temp.path());
    let mut config = small(temp.path()).set("train.reward_shift=2.5");
    config.rows = Some(2000);
    let prepared = prepare(&config, &mut hooks).unwrap();
    assert_eq!(prepared.data.reward_shift, 2.5);
    assert!((1900..=2100).contains(&prepared.data.rows.len()), "{}", prepared.data.rows.len());
    assert!(!prepared.dir.exists(), "nothing is written");
    // Who goes around the front door with other rows is refused, not ignored.
    let raw = point_mass_data();
    let error = algorithms::validate_for(prepared.configured.algorithm.as_ref(), &raw).unwrap_err();
    assert!(error.to_string().contains("train.reward_shift"), "{error}");
}

#[test]
fn an_estimator_of_ones_own_trains_as_the_built_in_one_and_is_missed_without() {
    let temp = tempfile::tempdir().unwrap();
    let mut hooks = Hooks::new(temp.path().join("home")).with_simulators(&PointMassSimulators);
    let built_in = train(&small(&temp.path().join("a")), &mut hooks).unwrap();
    let mine = || {
        CustomEstimator::new("mine", |context| {
            crate::uncertainty::UncertaintyConfig::Sumo(SumoConfig::default()).build(context)
        })
    };
    let own = train_with(&small(&temp.path().join("b")), mine(), &mut hooks).unwrap();
    assert!(outcome(&built_in.dir) == outcome(&own.dir), "the same scores, the same bytes");
    let error = resume(&own.dir, &mut hooks).map(|_| ()).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn a_stopped_run_resumes_by_its_directory_and_a_refused_one_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let log = temp.path().join("point-mass.npz");
    let data = point_mass_data();
    crate::data::write(&data, &log, crate::data::Format::NPZ).unwrap();
    let named = |dir: &str| RunConfig {
        data: log.to_string_lossy().into_owned().into(),
        ..small(&temp.path().join(dir))
    };
    let home = temp.path().join("home");
    let whole = train(&named("whole"), &mut Hooks::new(&home)).unwrap();
    let mut stopping = Hooks::new(&home).with_events(|event| match event {
        crate::algorithms::Event::Step(status) if status.step >= 60 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    let stopped = train(&named("stopped"), &mut stopping).unwrap();
    assert!(!stopped.finished && stopped.policy.is_none());
    let mut hooks = Hooks::new(&home);
    let again = resume(&stopped.dir, &mut hooks).unwrap();
    assert!(!again.is_finished() && again.steps_left() < 200);
    let again = again.run(&mut hooks).unwrap();
    assert!(again.finished && outcome(&whole.dir) == outcome(&again.dir));

    let bad = named("bad").set("uncertainty={kind=\"sumo\",k=100000}");
    let error = train(&bad, &mut hooks).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains("uncertainty: sumo: wanted k") && !temp.path().join("bad/run").exists(),
        "{error}"
    );
}

#[test]
fn an_extended_run_is_the_longer_run() {
    let temp = tempfile::tempdir().unwrap();
    let log = temp.path().join("point-mass.npz");
    crate::data::write(&point_mass_data(), &log, crate::data::Format::NPZ).unwrap();
    let of_steps = |steps: u64, dir: &str| RunConfig {
        data: log.to_string_lossy().into_owned().into(),
        ..small(&temp.path().join(dir)).set(format!("train.steps={steps}"))
    };
    let mut hooks = Hooks::new(temp.path().join("home"));
    let whole = train(&of_steps(200, "whole"), &mut hooks).unwrap();
    let short = train(&of_steps(100, "short"), &mut hooks).unwrap();
    for too_few in [50, 100] {
        let error = extend(&short.dir, too_few, &mut hooks).map(drop).unwrap_err().to_string();
        assert!(error.contains("wanted more steps than the 100 it has taken"), "{error}");
    }
    let longer = extend(&short.dir, 200, &mut hooks).unwrap();
    assert!(!longer.is_finished() && longer.steps_left() == 100);
    let longer = longer.run(&mut hooks).unwrap();
    assert!(longer.finished && outcome(&whole.dir) == outcome(&longer.dir));
    assert_eq!(resume(&short.dir, &mut hooks).unwrap().train_config().steps, 200);

    let falling: toml::Table = toml::from_str("[sac.actor_schedule]\nkind = 'cosine'").unwrap();
    assert!(follows_steps(&falling) && !follows_steps(&short_settings()));
}

fn short_settings() -> toml::Table {
    toml::from_str(
        "[sac.actor_schedule]\nkind = 'cosine'\nsteps = 9\n[iql]\nactor_schedule = { kind = 'constant' }",
    )
    .unwrap()
}

#[test]
fn data_of_a_run_are_found_from_elsewhere() {
    let temp = tempfile::tempdir().unwrap();
    let run = temp.path().join("runs/mopo/log/s0");
    std::fs::create_dir_all(&run).unwrap();
    assert_eq!(data_near("log.csv", &run), "log.csv", "it is not there");
    let log = temp.path().canonicalize().unwrap().join("log.csv");
    std::fs::write(&log, "").unwrap();
    assert_eq!(data_near("log.csv", &run), log.to_str().unwrap());
    assert_eq!(data_near("log", &run), "log", "a directory of runs is no data");
}

#[test]
fn a_run_of_yesterday_goes_on_without_what_presets_say_today() {
    // MOBILE's preset now clamps the temperature; this run was written before it did.
    let text = "algorithm = 'mobile'\ndataset = 'halfcheetah-medium'\nseed = 0\nphysics = 'd4rl-v2'\ndata = ''\n\
                [settings.sac.alpha]\nkind = 'auto'\nlr = 0.0003\n\
                [settings.uncertainty]\nkind = 'bellman-std'\n\
                [settings.pessimism]\nkind = 'penalize'\nlambda = 0.5\nnormaliser = 'none'";
    let alpha = |settings: &toml::Table| -> Alpha { settings["sac"]["alpha"].clone().try_into().unwrap() };
    let registry = crate::algorithms::Registry::default();
    let manifest: RunManifest = toml::from_str(text).unwrap();
    let then = alpha(&manifest.configure(&registry).unwrap().settings);
    assert!(matches!(then, Alpha::Auto { max: None, .. }), "{then:?}");
    let (today, _) = registry.parse("mobile").unwrap().layers("halfcheetah-medium", None, None).unwrap();
    assert!(matches!(alpha(today.table()), Alpha::Auto { max: Some(_), .. }), "or this test says nothing");
}

#[test]
fn a_program_scores_policies_itself_and_watches_them() {
    let temp = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    let watch = |event: crate::algorithms::Event<'_>| {
        if let crate::algorithms::Event::Policy(step, policy) = event {
            assert_eq!((policy.obs_dim(), policy.act_dim()), (4, 2));
            seen.push(step);
        }
        ControlFlow::Continue(())
    };
    let mut hooks = Hooks::new(temp.path().join("home")).with_events(watch);
    hooks.own_evaluation = Some(Box::new(|_, episodes, _| {
        Ok(crate::eval::Evaluation { returns: vec![7.0; episodes], lengths: vec![3; episodes] })
    }));
    hooks.watch_every = Some(80);
    let trained = train(&small(temp.path()).set("train.snapshot_every=100"), &mut hooks).unwrap();
    assert_eq!(trained.scores.last, Some(7.0));
    drop(hooks);
    assert_eq!(seen, [80, 100, 160, 200], "every 80 steps and at evaluations");
    for step in [100, 200] {
        let path = trained.dir.join(format!("snapshots/step-{step}.safetensors"));
        assert!(crate::policy::TanhGaussian::load(&path).is_ok(), "{}", path.display());
    }
    assert_eq!(
        std::fs::read(trained.dir.join("snapshots/step-200.safetensors")).unwrap(),
        std::fs::read(trained.dir.join("policy.safetensors")).unwrap()
    );
}

#[test]
fn a_rule_of_the_program_is_asked_for_by_name_and_its_panic_leaves_nothing() {
    use crate::Mat;
    use crate::dynamics::{ModelParts, StepFn};
    let temp = tempfile::tempdir().unwrap();
    let config =
        |dir: &str, rule: &str| small(&temp.path().join(dir)).set(format!("model.termination={rule}"));
    let mine = |name: &str, ends: fn(&Mat) -> ndarray::Array1<bool>| ModelParts {
        termination: Some(StepFn::new(name, move |_: &Mat, _: &Mat, next: &Mat| ends(next))),
        ..ModelParts::default()
    };
    let mut hooks = Hooks::new(temp.path().join("home"));
    let never = train(&config("never", "{kind=\"never\"}"), &mut hooks).unwrap();
    let custom = "{kind=\"custom\",name=\"mine\"}";
    let error = train(&config("missing", custom), &mut hooks).map(drop).unwrap_err().to_string();
    assert!(error.contains("wanted the function `mine`") && !temp.path().join("missing").exists(), "{error}");
    hooks.parts = mine("mine", |next| ndarray::Array1::from_elem(next.nrows(), false));
    let own = train(&config("own", custom), &mut hooks).unwrap();
    assert!(outcome(&never.dir) == outcome(&own.dir), "the same answers, the same bytes");
    hooks.parts = mine("mine", |_| std::panic::resume_unwind(Box::new("stop")));
    let panicked = catch_unwind(AssertUnwindSafe(|| train(&config("panic", custom), &mut hooks).map(drop)));
    assert!(panicked.is_err() && !temp.path().join("panic").exists());
}
