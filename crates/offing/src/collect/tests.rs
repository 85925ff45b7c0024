//! Online training: resumes bit for bit, can be extended, learns.

use super::*;
use crate::env::point_mass::PointMass;

fn config(steps: u64) -> CollectConfig {
    CollectConfig {
        steps,
        uniform_steps: 100,
        batch: 32,
        evaluate_every: 200,
        episodes: 2,
        checkpoint_every: 150,
        sac: SacConfig { hidden: vec![32, 32], ..CollectConfig::default().sac },
        ..CollectConfig::default()
    }
}

fn train(cfg: &CollectConfig, dir: &std::path::Path, pool: &ThreadPool, stop_at: u64) -> bool {
    let make = || -> Result<Box<dyn Env>> { Ok(Box::new(PointMass::default())) };
    let envs = EnvPool::new(make);
    let mut run = RunDir::open_or_create(dir, "test").unwrap();
    let on_progress = &mut |p: &Progress| {
        if p.step >= stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    collect(cfg, &envs, None, &mut run, pool, on_progress).unwrap()
}

fn files(dir: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for sub in ["", "snapshots", "checkpoints"] {
        for entry in std::fs::read_dir(dir.join(sub)).unwrap().flatten().filter(|e| e.path().is_file()) {
            let name = format!("{sub}/{}", entry.file_name().to_string_lossy());
            found.push((name, std::fs::read(entry.path()).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn a_stopped_and_resumed_training_equals_an_uninterrupted_one_on_any_number_of_threads() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cfg = config(700);
    assert!(train(&cfg, whole.path(), &ThreadPool::new(1), u64::MAX));
    for stop_at in [100, 300, 500] {
        assert!(!train(&cfg, parts.path(), &ThreadPool::new(2), stop_at));
    }
    assert!(train(&cfg, parts.path(), &ThreadPool::new(2), u64::MAX));
    let newest = |files: Vec<(String, Vec<u8>)>| -> Vec<_> {
        files
            .into_iter()
            .filter(|(name, _)| !name.contains("checkpoints/") || name.contains("0700"))
            .collect()
    };
    let (a, b) = (newest(files(whole.path())), newest(files(parts.path())));
    assert_eq!(a.iter().map(|f| &f.0).collect::<Vec<_>>(), b.iter().map(|f| &f.0).collect::<Vec<_>>());
    for ((name, a), (_, b)) in a.iter().zip(&b) {
        assert!(a == b, "{name} is the same, byte for byte");
    }
}

#[test]
fn a_run_made_longer_equals_one_that_was_long_from_the_start() {
    let (long, longer) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train(&config(500), long.path(), &ThreadPool::new(1), u64::MAX);
    // Stopped between episodes, as a run is by hand, and then asked for more.
    assert!(!train(&config(300), longer.path(), &ThreadPool::new(1), 100));
    assert!(train(&config(500), longer.path(), &ThreadPool::new(1), u64::MAX));
    let policy = |dir: &std::path::Path| std::fs::read(dir.join("snapshots/000000400.safetensors")).unwrap();
    assert!(policy(long.path()) == policy(longer.path()));
}

#[test]
fn soft_actor_critic_learns_to_reach_the_middle() {
    let dir = tempfile::tempdir().unwrap();
    let cfg = CollectConfig { episodes: 10, evaluate_every: 1500, ..config(3000) };
    train(&cfg, dir.path(), &ThreadPool::new(2), u64::MAX);
    let records = crate::run::read_metrics(&dir.path().join(crate::run::METRICS)).unwrap();
    let returns: Vec<f64> = records.iter().map(|r| r["return"].as_f64().unwrap()).collect();
    assert!(returns[2] > returns[0] + 0.5 * returns[0].abs(), "{returns:?}");
}

#[test]
fn a_zero_is_named() {
    let cfg = CollectConfig { evaluate_every: 0, ..CollectConfig::default() };
    assert!(cfg.validate().unwrap_err().to_string().contains("evaluate_every"));
}
