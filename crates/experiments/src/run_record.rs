//! A run read back from its directory: what it was asked to do, what it measured, how long it took, what it learnt from.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use offing::algorithms::PICKED_POLICY;
use offing::config::read_table;
use offing::nn::Tensors;
use offing::run::{CONFIG, METRICS, PhaseTimer, Provenance, Record, TIMING, read_metrics};
use offing::sac::Actor;
use offing::train::DATA_CARD;
use serde::Deserialize;
use toml::Table;

use crate::files::read_json;

/// What a run's last policy is called.
pub const LAST_POLICY: &str = "last policy";

/// What the policy is called that a run picked by its model.
pub const PICKED: &str = "picked by the model";

/// What the policy is called that scored best in the simulator.
pub const BEST_POLICY: &str = "best on the way";

/// The policies a run can have, in the order of tables: what was learnt, what its model chose on the way, and what the
/// simulator did. Algorithms without a model pick none; without a simulator there is no best one.
pub const POLICIES: [(&str, &str); 3] =
    [(LAST_POLICY, "policy.safetensors"), (PICKED, PICKED_POLICY), (BEST_POLICY, "best.safetensors")];

/// Everything a run directory holds.
#[derive(Clone, Debug)]
pub struct RunRecord {
    /// Where it is.
    pub dir: PathBuf,
    /// What kind of run it is.
    pub kind: RunKind,
    /// Its seed.
    pub seed: u64,
    /// Its config.toml.
    pub config: Table,
    /// Its metrics, line by line.
    pub metrics: Vec<Record>,
    /// Where its time went, where that was recorded.
    pub times: Option<PhaseTimer>,
    /// What it learnt from, where that was recorded.
    pub data: Option<DataCard>,
    /// Who worked on it.
    pub provenance: Vec<Provenance>,
}

/// What made a run directory.
#[derive(Clone, Debug, PartialEq)]
pub enum RunKind {
    /// `offing train`.
    Training {
        /// The algorithm with its estimator.
        algorithm: String,
        /// The dataset as it was asked for.
        dataset: String,
    },
    /// `offing data collect`: online SAC on a task.
    Collection {
        /// The task.
        task: String,
    },
    /// `offing calibrate`: it also trains a policy, without a rule, for its rollouts alone.
    Study,
    /// Something else.
    Unknown,
}

/// What a run learnt from: how well the data's own episodes went is what a policy has to beat.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DataCard {
    /// The dataset's name.
    pub dataset: String,
    /// How many rows it has.
    pub transitions: usize,
    /// How many episodes.
    pub episodes: usize,
    /// Mean return of its episodes.
    #[serde(rename = "return")]
    pub mean_return: Option<f64>,
    /// The same as a normalised score.
    pub score: Option<f64>,
}

impl RunRecord {
    /// Reads the run in that directory.
    ///
    /// # Errors
    /// A config.toml or a metrics file that is missing or cannot be read.
    pub fn read(dir: &Path) -> Result<Self> {
        let config = read_table(&dir.join(CONFIG))?;
        let seed = config.get("seed").or_else(|| config.get("collect")?.get("seed"));
        Ok(Self {
            dir: dir.to_path_buf(),
            kind: RunKind::of(&config),
            seed: seed.and_then(|s| s.as_integer()).unwrap_or(0) as u64,
            config,
            metrics: read_metrics(&dir.join(METRICS))?,
            times: dir.join(TIMING).is_file().then(|| PhaseTimer::resume(dir)),
            data: read_json(&dir.join(DATA_CARD)),
            provenance: Provenance::of_run(dir),
        })
    }

    /// A metric over the steps; steps at which it was not measured are left out.
    pub fn series(&self, metric: &str) -> Vec<(f64, f64)> {
        let number = |r: &Record, key: &str| r.get(key).and_then(|v| v.as_f64());
        self.metrics.iter().filter_map(|r| Some((number(r, "step")?, number(r, metric)?))).collect()
    }

    /// How many of its steps it has taken, and how many it is to take, where its settings say so.
    pub fn progress(&self) -> (u64, Option<u64>) {
        let tables = [self.config.get("settings").and_then(|s| s.get("train")), self.config.get("collect")];
        let wanted = tables.into_iter().flatten().find_map(|table| table.get("steps")?.as_integer());
        (self.last("step").unwrap_or(0.0) as u64, wanted.and_then(|n| n.try_into().ok()))
    }

    /// Whether it has taken all of its steps.
    pub fn is_finished(&self) -> bool {
        let (taken, wanted) = self.progress();
        wanted.is_none_or(|wanted| taken >= wanted)
    }

    /// The last value of a metric that was measured.
    pub fn last(&self, metric: &str) -> Option<f64> {
        self.metrics.iter().rev().find_map(|r| r.get(metric)?.as_f64())
    }
}

impl RunKind {
    fn of(config: &Table) -> Self {
        let text = |key: &str| config.get(key).and_then(|v| v.as_str()).map(str::to_string);
        match (text("algorithm"), text("dataset"), text("task")) {
            _ if config.contains_key("study") => Self::Study,
            (Some(algorithm), Some(dataset), _) => Self::Training { algorithm, dataset },
            (_, _, Some(task)) => Self::Collection { task },
            _ => Self::Unknown,
        }
    }
}

/// All run directories at or below a path that hold each of these files, in the order of their names; studies are none.
pub(crate) fn find_runs(path: &Path, files: &[&str]) -> Result<Vec<PathBuf>> {
    find_unseen_runs(path, files, &mut BTreeSet::new())
}

/// [`find_runs`] outside of the directories that were `seen`: links may lead back to one, or to one run twice.
fn find_unseen_runs(path: &Path, files: &[&str], seen: &mut BTreeSet<PathBuf>) -> Result<Vec<PathBuf>> {
    if !seen.insert(path.canonicalize().unwrap_or_else(|_| path.to_path_buf())) {
        return Ok(Vec::new());
    }
    if files.iter().all(|file| path.join(file).is_file()) {
        let is_study =
            read_table(&path.join(CONFIG)).is_ok_and(|config| RunKind::of(&config) == RunKind::Study);
        return Ok(if is_study { Vec::new() } else { vec![path.to_path_buf()] });
    }
    let entries = std::fs::read_dir(path)
        .map_err(|e| anyhow!("{}: cannot list: {e}; give a run directory", path.display()))?;
    let mut inside: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
    inside.sort();
    let found = inside.iter().map(|path| find_unseen_runs(path, files, seen)).collect::<Result<Vec<_>>>()?;
    Ok(found.concat())
}

/// Reads a policy file.
///
/// # Errors
/// A file that cannot be read, or holds no policy.
pub fn load_actor(path: &Path) -> Result<Actor> {
    let bytes = std::fs::read(path).map_err(|e| anyhow!("{}: cannot read: {e}", path.display()))?;
    let actor = Tensors::from_foreign_bytes(&bytes).and_then(|tensors| Actor::from_policy(&tensors));
    actor.map_err(|e| anyhow!("{}: {e}", path.display()))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_back_end_and_a_run_is_found_once() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("a/run");
        std::fs::create_dir_all(&run).unwrap();
        std::fs::write(run.join(METRICS), "").unwrap();
        for (target, link) in [("..", "a/up"), (".", "a/here"), ("a/run", "again"), ("absent", "a/nowhere")] {
            std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
        }
        assert_eq!(find_runs(dir.path(), &[METRICS]).unwrap(), [run]);
    }
}
