//! Picks the behaviour policies of a training run: medium, the steps before it, and the best.

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::snapshot;
use crate::data::policy_set::medium_mark;
use crate::env::EnvPool;
use crate::error::{Error, Result, bad_file};
use crate::eval::evaluate;
use crate::home::write_atomic;
use crate::policy::TanhGaussian;
use crate::run::{METRICS, read_metrics};
use crate::tasks::Reference;

/// Snapshots on the way from the untrained policy to `medium`, at even distances in training steps, as a replay buffer
/// would hold them.
const EARLY: u64 = 5;
/// Episodes that score a chosen snapshot: more than an evaluation during training has, because the best of many short
/// evaluations is partly luck.
const EPISODES: usize = 50;
/// Candidates for the best that are scored again.
const CANDIDATES: usize = 5;

/// A snapshot chosen for the set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chosen {
    /// File name inside the set.
    pub file: String,
    /// Training steps before it.
    pub step: u64,
    /// Mean return of sampled actions over fifty episodes.
    pub sampled_return: f64,
    /// Its normalised score: what the data it generates will have.
    pub normalized: f64,
    /// Its use: `way` (a step on the way to medium), `medium` or `expert`.
    pub role: &'static str,
}

/// Writes `<task>-<number>.safetensors` into `out`: the untrained policy, even steps on the way to the first snapshot that
/// reaches D4RL's score for `medium`, that one, and the best of the run.
pub fn publish(
    run: &Path,
    task: &str,
    envs: &EnvPool,
    reference: Reference,
    out: &Path,
) -> Result<Vec<Chosen>> {
    let records = read_metrics(&run.join(METRICS))?;
    let scored: Vec<(u64, f64)> = records
        .iter()
        .filter_map(|r| Some((r.get("step")?.as_u64()?, r.get("sampled_score")?.as_f64()?)))
        .collect();
    let rescore = |step: u64| -> Result<(f64, f64)> {
        let policy = TanhGaussian::load(&run.join(snapshot(step)))?;
        let mean = evaluate(envs, &policy, EPISODES, step)?.mean();
        Ok((mean, reference.normalise(mean)))
    };
    let mark = medium_mark(task);
    let mut medium = None;
    for (step, _) in scored.iter().filter(|(_, score)| *score >= mark) {
        if rescore(*step)?.1 >= mark {
            medium = Some(*step);
            break;
        }
    }
    let medium = medium.ok_or_else(|| {
        let best = scored.iter().map(|(_, score)| *score).fold(f64::NEG_INFINITY, f64::max);
        let found = format!("found {best:.1} at best; train longer");
        bad_file!(run, "wanted a snapshot of {task} that scores {mark} or more, {found}")
    })?;
    let mut picks: Vec<(u64, &'static str)> =
        (0..EARLY).map(|i| (nearest(&scored, medium * i / EARLY), "way")).collect();
    picks.push((medium, "medium"));
    let mut ranked = scored.clone();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut expert = (f64::NEG_INFINITY, medium);
    for (step, _) in ranked.iter().take(CANDIDATES) {
        let score = rescore(*step)?.1;
        if score > expert.0 {
            expert = (score, *step);
        }
    }
    if expert.1 > medium {
        picks.push((expert.1, "expert"));
    }
    picks.dedup_by_key(|(step, _)| *step);
    let mut chosen = Vec::new();
    for (number, (step, role)) in picks.into_iter().enumerate() {
        let file = format!("{task}-{number}.safetensors");
        let from = run.join(snapshot(step));
        let bytes = fs::read(&from).map_err(|e| Error::io(&from, "read the snapshot", e))?;
        write_atomic(&out.join(&file), |f| std::io::Write::write_all(f, &bytes))?;
        let (sampled_return, normalized) = rescore(step)?;
        chosen.push(Chosen { file, step, sampled_return, normalized, role });
    }
    Ok(chosen)
}

/// The evaluated step closest to `wanted`.
fn nearest(scored: &[(u64, f64)], wanted: u64) -> u64 {
    scored.iter().map(|(step, _)| *step).min_by_key(|step| step.abs_diff(wanted)).unwrap_or(0)
}
