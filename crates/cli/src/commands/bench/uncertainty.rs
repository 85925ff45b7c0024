//! `offing bench uncertainty`: what scoring imagined rows costs, beside the ensemble's own forward pass for them.

use crate::exit::ExitCode;

use anyhow::{Context as _, Result};
use offing::data::ReadOptions;
use offing::dynamics::{DynamicsModel, Ensemble, EnsembleConfig, Members};
use offing::nn::ThreadPool;
use offing::uncertainty::{BuildContext, UncertaintyConfig};
use offing::{Mat, Rng};

use super::super::data::load;
use super::{Common, Recorder, estimator_label, seconds};
use crate::context::Context;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The dataset to score against (path, id or name).
    dataset: String,
    #[command(flatten)]
    common: Common,
    /// ModelBuffer rows to score.
    #[arg(long, default_value_t = 50_000, value_parser = super::positive)]
    rows: usize,
    /// Estimators by id, or as JSON settings.
    #[arg(long, value_delimiter = ' ', num_args = 1.., default_values_t = ["sumo".to_string(), "fathom".into()])]
    estimators: Vec<String>,
    /// Gradient steps of the (full-size) ensemble before it imagines: enough for next states near the data.
    #[arg(long, default_value_t = 500)]
    updates: u64,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let threads = rayon::current_num_threads();
    let configs = args.estimators.iter().map(|e| parse(e)).collect::<Result<Vec<_>>>()?;
    let (data, _) = load(context, &args.dataset, ReadOptions::default())?;
    let pool = ThreadPool::new(threads);
    context.say("training the ensemble");
    let cfg = EnsembleConfig { max_updates: Some(args.updates), ..EnsembleConfig::default() };
    let model = Ensemble::fit(&cfg, &data.rows, 0, &pool, |_, _| Ok(()))?;
    let mut rng = Rng::stream(0, "bench", 0);
    let chosen: Vec<usize> = (0..args.rows).map(|_| rng.below(data.rows.len())).collect();
    let start = data.rows.select(&chosen);
    // The data's actions, disturbed as a policy in training disturbs them.
    let act: Mat = start.act.mapv(|a| (f64::from(a) + 0.3 * rng.normal()).clamp(-1.0, 1.0) as f32);
    let step = model.step(&start.obs, &act, Members::All, &mut rng);
    let source =
        BuildContext { model: Some(&model), pool: pool.clone(), ..BuildContext::of_data(&data.rows) };
    let mut recorder = Recorder::new("uncertainty", threads);
    let mut built = Vec::new();
    for config in &configs {
        context.say(&format!("building {}", config.id()));
        let wall = seconds(|| {
            built.push(config.build(&source)?);
            Ok(())
        })?;
        recorder.add(&format!("{} build", estimator_label(config)), "s", wall);
        let estimator = built.last().expect("it was just built");
        let wall = seconds(|| Ok(estimator.max_loo_score()))?;
        recorder.add(&format!("{} baseline of the data", estimator_label(config)), "s", wall);
    }
    let label_rows = format!("{} rows", args.rows);
    for _ in 0..args.common.samples {
        let wall = seconds(|| Ok(model.predict(&start.obs, &act)))?;
        recorder.add(&format!("forward of all members, {label_rows}"), "s", wall);
        let mut draw = rng.clone();
        let wall = seconds(|| Ok(model.step(&start.obs, &act, Members::One, &mut draw)))?;
        recorder.add(&format!("step by one member, {label_rows}"), "s", wall);
        for (config, estimator) in configs.iter().zip(&built) {
            let wall = seconds(|| Ok(estimator.score(&step)?))?;
            recorder.add(&format!("{}, {label_rows}", estimator_label(config)), "s", wall);
        }
    }
    recorder.finish(&args.common)
}

/// An id, or settings in JSON such as `{"kind":"sumo","k":5}`.
fn parse(text: &str) -> Result<UncertaintyConfig> {
    if text.starts_with('{') {
        return serde_json::from_str(text).with_context(|| format!("--estimators {text}"));
    }
    Ok(UncertaintyConfig::from_id(text)?)
}
