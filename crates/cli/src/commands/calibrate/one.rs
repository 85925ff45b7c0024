//! One dataset, one seed: found finished, gone on with, or begun.

use std::path::PathBuf;

use anyhow::Result;
use offing::calibration::{Study, StudyConfig, TruthSource, prepare, study};
use offing::data::Dataset;
use offing::dynamics::Oracle;
use offing::env::EnvPool;
use offing::run::RunDir;
use offing::uncertainty::UncertaintyConfig;
use offing_mujoco::Physics;
use serde::Serialize;

use super::super::dynamics::task_of;
use super::super::train::{file_word, open_when_free, short_hash};
use super::kept::Kept;
use crate::context::Context;
use crate::datasets::find_data;
use crate::provenance::By;
use crate::term;
use crate::workshop::{Job, in_session};

/// Share of the episodes that stand for the truth where there is no simulator.
const HELD_OUT: f64 = 0.1;

/// Everything a study follows from.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) dataset: String,
    pub(crate) rows: Option<usize>,
    /// The size of a made set where no rows are asked for.
    pub(crate) made_rows: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) physics: Physics,
    pub(crate) config: StudyConfig,
    pub(crate) estimators: Vec<(String, UncertaintyConfig)>,
    pub(crate) dir: PathBuf,
}

/// What is written down. The estimators are not part of it: another choice of them uses the same policy.
#[derive(Serialize)]
struct Written<'a> {
    dataset: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<usize>,
    seed: u64,
    physics: String,
    data: String,
    study: &'a StudyConfig,
}

/// A finished study, and what is behind it.
pub(crate) struct Studied {
    pub(crate) study: Study,
    /// Checksum of the transitions.
    pub(crate) data: String,
    pub(crate) by: Vec<By>,
}

/// The study; `None` when it was stopped on the way.
pub(crate) fn run_one(context: &Context, plan: &Plan) -> Result<Option<Studied>> {
    let all = find_data(context, &plan.dataset, plan.rows.or(plan.made_rows), &plan.config.train)?;
    context.say(&format!("learning from {} transitions of {}", term::count(all.rows.len()), all.name));
    let (data, held) = match task_of(&all.name).is_some() {
        true => (all, None),
        false => {
            let (data, held) = all.split(HELD_OUT, 0)?;
            (data, Some(held))
        }
    };
    let written = Written {
        dataset: &plan.dataset,
        rows: plan.rows,
        seed: plan.seed,
        physics: plan.physics.to_string(),
        data: data.digest(),
        study: &plan.config,
    };
    let text = toml::to_string(&written)?;
    let dir = plan.dir.join(file_word(&plan.dataset)).join(format!("s{}-{}", plan.seed, short_hash(&text)));
    let mut kept = Kept::find(&dir, &plan.estimators)?;
    let studied =
        |kept: Kept| Studied { study: kept.join(), data: written.data.clone(), by: By::of_run(&dir) };
    if kept.missing().is_empty() {
        return Ok(Some(studied(kept)));
    }
    plan.config.validate_for(&data, &kept.missing(), &[])?;
    // Another table's cell, perhaps: tables share studies, and what it finds need not be found again.
    let Some(mut run) = open_when_free(context, &dir, &text)? else { return Ok(None) };
    kept = Kept::find(&dir, &plan.estimators)?;
    let missing = kept.missing();
    if missing.is_empty() {
        return Ok(Some(studied(kept)));
    }
    let studying = By::sign(&dir).and_then(|()| study_in(context, plan, &mut run, (&data, held), &missing));
    let found = match studying {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(None),
        Err(error) => {
            run.remove_if_empty();
            return Err(error);
        }
    };
    kept.add(&found)?;
    Ok(Some(studied(kept)))
}

/// Trains the policy in its directory and studies the estimators; `None` when it was stopped on the way.
fn study_in(
    context: &Context,
    plan: &Plan,
    run: &mut RunDir,
    (data, held): (&Dataset, Option<Dataset>),
    missing: &[(String, UncertaintyConfig)],
) -> Result<Option<Study>> {
    let steps = plan.config.train.steps;
    let job = Job { dataset: data, physics: plan.physics, seed: plan.seed, steps, json: false };
    context.say(&format!("studying {} with seed {}", plan.dataset, plan.seed));
    in_session(context, &job, run, |session, simulators| {
        let subject = match prepare(&plan.config, session) {
            Ok(Some(subject)) => subject,
            Ok(None) | Err(offing::Error::Stopped) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let found = match (simulators, &held) {
            (Some(make), _) => {
                let oracle = Oracle::new(EnvPool::new(make))?;
                study(&plan.config, missing, &subject, TruthSource::Simulator(&oracle), session)?
            }
            (None, Some(held)) => {
                study(&plan.config, missing, &subject, TruthSource::HeldOut(held), session)?
            }
            (None, None) => {
                anyhow::bail!("{}: has neither a simulator nor episodes to hold back", plan.dataset)
            }
        };
        Ok(Some(found))
    })
}
