//! MOReL on a point mass: it learns more than its data show, resumes bit for bit and refuses nonsense.

use std::path::Path;

use super::morel::{MorelConfig, PlanConfig, Starts};
use super::tests::{behaviour_return, in_session, outcome, point_mass_data, world};
use super::*;
use crate::data::Dataset;
use crate::npg::{Bootstrap, NpgConfig};
use crate::pessimism::{Normaliser, Pessimism};
use crate::run::{METRICS, Record, read_metrics};
use crate::uncertainty::UncertaintyConfig;

/// A trajectory of sixty steps needs a better model than the five of the other algorithms.
fn small(estimator: &str, steps: u64) -> MorelConfig {
    let mut model = world();
    model.ensemble.max_epochs = Some(60);
    model.ensemble.patience = 20;
    MorelConfig {
        train: TrainConfig {
            steps,
            evaluate_every: (steps / 3).max(1),
            checkpoint_every: 2,
            ..TrainConfig::default()
        },
        plan: PlanConfig { starts: 30, horizon: 60, ..PlanConfig::default() },
        model,
        uncertainty: UncertaintyConfig::from_id(estimator).unwrap(),
        pessimism: Pessimism::Halt { alpha: 1.0, penalty: 5.0 },
        npg: NpgConfig { hidden: vec![32, 32], gamma: 0.97, clone_epochs: 2, ..NpgConfig::default() },
    }
}

/// Trains in `dir` until `stop_at`; what was recorded.
fn train(
    cfg: &MorelConfig,
    data: &Dataset,
    home: &Path,
    dir: &Path,
    threads: usize,
    stop_at: u64,
) -> crate::error::Result<Vec<Record>> {
    let finished = in_session(data, (home, dir), threads, stop_at, |session| super::train(cfg, session))?;
    assert_eq!(finished.is_some(), stop_at >= cfg.train.steps);
    read_metrics(&dir.join("run").join(METRICS))
}

#[test]
fn morel_with_pairwise_and_with_sumo_beats_the_behaviour_policy() {
    let data = point_mass_data();
    let (behaviour, home) = (behaviour_return(&data), tempfile::tempdir().unwrap());
    for estimator in ["pairwise", "sumo"] {
        let dir = tempfile::tempdir().unwrap();
        let records = train(&small(estimator, 18), &data, home.path(), dir.path(), 2, u64::MAX).unwrap();
        let last = records.last().unwrap();
        let number = |name: &str| last[name].as_f64().unwrap_or_else(|| panic!("{name}: {last:?}"));
        assert!(number("return") > behaviour + 5.0, "{estimator}: {records:?} against {behaviour}");
        // The step is δ / 2 in KL, to second order.
        assert!((0.005..0.02).contains(&number("kl")) && number("surrogate") > 0.0, "{last:?}");
        assert!(number("path_length") <= 60.0 && number("halted") <= 1.0 && number("u_max") > 0.0);
    }
}

#[test]
fn a_stopped_and_resumed_run_equals_an_uninterrupted_one_on_any_number_of_threads() {
    let (data, home) = (point_mass_data(), tempfile::tempdir().unwrap());
    for (estimator, plan) in [
        ("sumo", PlanConfig { from: Starts::Half, ..small("sumo", 9).plan }),
        (
            "pairwise",
            PlanConfig {
                from: Starts::Any,
                each_member: false,
                deterministic: false,
                bootstrap: Bootstrap::Baseline,
                ..small("sumo", 9).plan
            },
        ),
    ] {
        let cfg = MorelConfig { plan, ..small(estimator, 9) };
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        train(&cfg, &data, home.path(), whole.path(), 1, u64::MAX).unwrap();
        for stop_at in [3, 4, u64::MAX] {
            let threads = if stop_at == 3 { 3 } else { 2 };
            train(&cfg, &data, home.path(), parts.path(), threads, stop_at).unwrap();
        }
        assert!(outcome(whole.path()) == outcome(parts.path()), "{estimator}");
    }
}

#[test]
fn nonsense_is_one_clear_line_before_anything_is_done() {
    let (data, home) = (point_mass_data(), tempfile::tempdir().unwrap());
    let base = || small("sumo", 5);
    let penalty = Pessimism::Penalize { lambda: 1.0, normaliser: Normaliser::Dataset, reward_range: None };
    for (cfg, word) in [
        (MorelConfig { pessimism: penalty, ..base() }, "wanted halt, truncate or ignore, found penalize"),
        (MorelConfig { plan: PlanConfig { starts: 0, ..base().plan }, ..base() }, "plan: wanted starts"),
        (MorelConfig { npg: NpgConfig { damping: -1.0, ..base().npg }, ..base() }, "npg.damping"),
        (MorelConfig { train: TrainConfig { steps: 0, ..base().train }, ..base() }, "train.steps"),
        (
            MorelConfig { pessimism: Pessimism::Halt { alpha: -1.0, penalty: 0.0 }, ..base() },
            "pessimism.alpha",
        ),
        (MorelConfig { pessimism: Pessimism::Truncate { alpha: 0.0 }, ..base() }, "raise pessimism.alpha"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let error = train(&cfg, &data, home.path(), dir.path(), 1, u64::MAX).unwrap_err().to_string();
        assert!(error.contains(word) && !error.contains('\n'), "{error}");
    }
}
