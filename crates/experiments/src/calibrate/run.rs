//! One study: one dataset, one seed; found finished, resumed, or begun.

use std::path::PathBuf;

use anyhow::Result;
use offing::Error;
use offing::calibration::{Study, StudyConfig, TruthSource, prepare, study};
use offing::checksum::short_hash;
use offing::data::Dataset;
use offing::dynamics::Oracle;
use offing::env::{EnvPool, Physics, Simulators};
use offing::run::{Provenance, RunDir};
use offing::train::slug;
use offing::uncertainty::{CustomEstimator, UncertaintyConfig};
use serde::Serialize;

use super::study_cache::StudyCache;
use crate::Runtime;
use crate::format::count;
use crate::provenance::this_process;

/// Share of the episodes that stand for the truth where there is no simulator.
const HELD_OUT: f64 = 0.1;

/// Everything a study follows from.
#[derive(Clone, Debug)]
pub(crate) struct StudyRequest {
    /// The dataset: a path, an id or a name.
    pub(crate) dataset: String,
    /// About how many rows to use.
    pub(crate) rows: Option<usize>,
    /// The size of a generated set where no rows are asked for.
    pub(crate) generated_rows: Option<usize>,
    /// Seed of everything random.
    pub(crate) seed: u64,
    /// Which physics to replay in.
    pub(crate) physics: Physics,
    /// The study's settings.
    pub(crate) config: StudyConfig,
    /// Estimators to compare, with the names to show them by.
    pub(crate) estimators: Vec<(String, UncertaintyConfig)>,
    /// Where run directories are.
    pub(crate) dir: PathBuf,
}

/// What a program brings to a study besides the request: nothing, unless it says so.
#[derive(Clone, Copy)]
pub struct OwnStudy<'a> {
    /// Rows in memory, in place of the dataset that the request names.
    pub data: Option<&'a Dataset>,
    /// Makes the estimators that settings of kind `custom` name. Their findings are not kept: a name does not tell whether the
    /// estimator is the same.
    pub estimators: &'a dyn Fn() -> Vec<CustomEstimator<'static>>,
    /// Called with the rows that the study works with.
    pub on_data: &'a dyn Fn(&Dataset),
}

impl Default for OwnStudy<'_> {
    fn default() -> Self {
        Self { data: None, estimators: &Vec::new, on_data: &|_| () }
    }
}

/// A study's config.toml. The estimators are not part of it: another choice of them uses the same policy.
#[derive(Serialize)]
struct StudyManifest<'a> {
    dataset: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<usize>,
    seed: u64,
    physics: String,
    data: String,
    study: &'a StudyConfig,
}

/// A finished study, and what is behind it.
pub(crate) struct FinishedStudy {
    /// What was found.
    pub(crate) study: Study,
    /// Checksum of the transitions.
    pub(crate) data: String,
    /// Who worked on it.
    pub(crate) provenance: Vec<Provenance>,
}

/// Runs a study; `None` when it was stopped on the way.
///
/// # Errors
/// Data that cannot be read, or settings that the data cannot serve.
pub(crate) fn run_study(
    runtime: &Runtime,
    request: &StudyRequest,
    own: &OwnStudy<'_>,
) -> Result<Option<FinishedStudy>> {
    let rows = request.rows.or(request.generated_rows);
    let all = match own.data {
        Some(data) => runtime.hooks().adapt(data.clone(), rows, &request.config.train)?,
        None => runtime.load_data(&request.dataset, rows, &request.config.train)?,
    };
    (own.on_data)(&all);
    runtime.say(&format!("learning from {} transitions of {}", count(all.rows.len()), all.name));
    let (data, held_out) = match runtime.mujoco.task_of(&all.name).is_some() {
        true => (all, None),
        false => {
            let (data, held_out) = all.split(HELD_OUT, 0)?;
            (data, Some(held_out))
        }
    };
    let manifest = StudyManifest {
        dataset: &request.dataset,
        rows: request.rows,
        seed: request.seed,
        physics: request.physics.to_string(),
        data: data.digest(),
        study: &request.config,
    };
    let text = toml::to_string(&manifest)?;
    let name = format!("s{}-{}", request.seed, short_hash(&text));
    let dir = request.dir.join(slug(&request.dataset)).join(name);
    let mut cache = StudyCache::find(&dir, &request.estimators)?;
    if !cache.missing().is_empty() {
        request.config.validate_for(&data, &cache.missing(), &(own.estimators)())?;
        // Another table's cell, perhaps: tables share studies, and what it finds need not be found again.
        let Some(mut run) = runtime.open_when_free(&dir, &text)? else { return Ok(None) };
        cache = StudyCache::find(&dir, &request.estimators)?;
        let missing = cache.missing();
        if !missing.is_empty() {
            let signed = this_process().sign(&dir).map_err(Into::into);
            match signed.and_then(|()| study_in(runtime, request, own, &mut run, (&data, held_out), &missing))
            {
                Ok(Some(found)) => cache.add(&found)?,
                Ok(None) => return Ok(None),
                Err(error) => {
                    run.remove_if_empty();
                    return Err(error);
                }
            }
        }
    }
    let provenance = Provenance::of_run(&dir);
    Ok(Some(FinishedStudy { study: cache.join(), data: manifest.data, provenance }))
}

/// Trains the policy in its directory and studies the estimators; `None` when it was stopped on the way.
fn study_in(
    runtime: &Runtime,
    request: &StudyRequest,
    own: &OwnStudy<'_>,
    run: &mut RunDir,
    (data, held_out): (&Dataset, Option<Dataset>),
    missing: &[(String, UncertaintyConfig)],
) -> Result<Option<Study>> {
    runtime.say(&format!("studying {} with seed {}", request.dataset, request.seed));
    let (config, physics) = (&request.config, request.physics);
    (runtime.before_training)();
    let mut hooks = runtime.hooks();
    hooks.estimators = (own.estimators)();
    let found = hooks.in_session(data, physics, request.seed, run, |session| {
        let Some(subject) = prepare(config, session)? else { return Err(Error::Stopped) };
        match (&held_out, runtime.mujoco.task_of(&data.name)) {
            (Some(held_out), _) => study(config, missing, &subject, TruthSource::HeldOut(held_out), session),
            (None, Some(task)) => {
                let oracle = Oracle::new(EnvPool::of_task(&runtime.mujoco, &task, physics))?;
                study(config, missing, &subject, TruthSource::Simulator(&oracle), session)
            }
            (None, None) => Err(Error::Invalid(format!(
                "{}: has neither a simulator nor episodes to hold back",
                request.dataset
            ))),
        }
    });
    match found {
        Err(Error::Stopped) => Ok(None),
        found => Ok(Some(found?)),
    }
}
