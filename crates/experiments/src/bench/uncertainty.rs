//! What scoring imagined rows costs, beside the ensemble's own forward pass for them.

use anyhow::Result;
use offing::data::ReadOptions;
use offing::dynamics::{DynamicsModel, Ensemble, EnsembleConfig, Members};
use offing::nn::ThreadPool;
use offing::uncertainty::{BuildContext, UncertaintyConfig};
use offing::{Mat, Rng};

use super::Measurements;
use crate::Runtime;
use crate::calibrate::estimator_label;

/// Scores so many imagined rows with each estimator, in a full-size ensemble that took so many gradient steps.
///
/// # Errors
/// A dataset that cannot be read, or an estimator that cannot be built.
pub fn bench_uncertainty(
    runtime: &Runtime,
    dataset: &str,
    estimators: &[UncertaintyConfig],
    rows: usize,
    updates: u64,
    samples: usize,
) -> Result<Measurements> {
    let threads = rayon::current_num_threads();
    let (data, _) = runtime.read_data(dataset, ReadOptions::default())?;
    let pool = ThreadPool::new(threads);
    runtime.say("training the ensemble");
    let cfg = EnsembleConfig { max_updates: Some(updates), ..EnsembleConfig::default() };
    let model = Ensemble::fit(&cfg, &data.rows, 0, &pool, |_, _| Ok(()))?;
    let mut rng = Rng::stream(0, "bench", 0);
    let chosen: Vec<usize> = (0..rows).map(|_| rng.below(data.rows.len())).collect();
    let start = data.rows.select(&chosen);
    // The data's actions, disturbed as a policy in training disturbs them.
    let act: Mat = start.act.mapv(|a| (f64::from(a) + 0.3 * rng.normal()).clamp(-1.0, 1.0) as f32);
    let step = model.step(&start.obs, &act, Members::All, &mut rng);
    let context =
        BuildContext { model: Some(&model), pool: pool.clone(), ..BuildContext::of_data(&data.rows) };
    let mut measured = Measurements::new("uncertainty", threads);
    let mut built = Vec::new();
    for config in estimators {
        let label = estimator_label(config);
        runtime.say(&format!("building {}", config.id()));
        let estimator = measured.time(&format!("{label} build"), || Ok(config.build(&context)?))?;
        measured.time(&format!("{label} baseline of the data"), || Ok(estimator.max_loo_score()))?;
        built.push((label, estimator));
    }
    for _ in 0..samples {
        measured
            .time(&format!("forward of all members, {rows} rows"), || Ok(model.predict(&start.obs, &act)))?;
        let mut draw = rng.clone();
        measured.time(&format!("step by one member, {rows} rows"), || {
            Ok(model.step(&start.obs, &act, Members::One, &mut draw))
        })?;
        for (label, estimator) in &built {
            measured.time(&format!("{label}, {rows} rows"), || Ok(estimator.score(&step)?))?;
        }
    }
    Ok(measured)
}
