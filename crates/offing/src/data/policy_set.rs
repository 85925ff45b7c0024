//! A directory of behaviour policies, and which of them generate which flavour of data.
//!
//! Files are called `<task>-<number>.safetensors`, numbered along training; an optional `index.json` beside them holds the
//! normalised score of each. `medium` is the first snapshot that reaches D4RL's score for its task and `expert` the best
//! one, unless the caller names them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::catalogue::GeneratedName;
use crate::error::{Error, Result, bad_file};
use crate::policy::TanhGaussian;
use crate::tasks;

/// The normalised score from which a snapshot of `task` counts as `medium`; none does where D4RL has no such data.
pub fn medium_mark(task: &str) -> f64 {
    tasks::task_of(task).and_then(|task| task.medium_score).unwrap_or(f64::INFINITY)
}

/// Behaviour policies in a directory, or inside the program.
#[derive(Clone, Debug)]
pub struct PolicySet {
    /// The directory; for a built-in set, what stands for it in messages.
    dir: PathBuf,
    built_in: Option<&'static [(&'static str, &'static [u8])]>,
    snapshots: Vec<Snapshot>,
}

/// Snapshots chosen by the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct SnapshotChoice {
    /// Number of the snapshot that is `medium`.
    pub medium: Option<usize>,
    /// Number of the snapshot that is `expert`.
    pub expert: Option<usize>,
}

/// A behaviour policy, read.
#[derive(Clone, Debug)]
pub struct LoadedPolicy {
    /// The policy's file name.
    pub file: String,
    /// The policy.
    pub policy: TanhGaussian,
    /// SHA-256 of the file.
    pub digest: [u8; 32],
}

impl LoadedPolicy {
    /// Refuses a policy with other widths than `wanted`, which are those of observation and action.
    pub fn check_widths(&self, whose: &str, wanted: (usize, usize), advice: &str) -> Result<()> {
        let found = (self.policy.obs_dim(), self.policy.act_dim());
        if wanted == found {
            return Ok(());
        }
        let (inputs, actions) = wanted;
        let found = format!("found {} and {}; give {advice}", found.0, found.1);
        Err(bad_file!(&self.file, "wanted {whose} with {inputs} inputs and {actions} actions, {found}"))
    }
}

#[derive(Clone, Debug)]
struct Snapshot {
    task: String,
    number: usize,
    file: String,
    score: Option<f64>,
}

#[derive(Deserialize)]
struct IndexEntry {
    file: String,
    normalized: Option<f64>,
}

impl PolicySet {
    /// Lists the policies of a directory.
    pub fn open(dir: &Path) -> Result<Self> {
        let index = dir.join("index.json");
        let scores = fs::read(&index).map_or(Ok(Vec::new()), |text| read_index(&text, &index))?;
        let entries = fs::read_dir(dir).map_err(|e| Error::io(dir, "list the policies", e))?;
        let files = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(Self { dir: dir.into(), built_in: None, snapshots: snapshots(files, &scores) })
    }

    /// The policies whose contents are part of the program, with the text of their index.
    pub fn built_in(files: &'static [(&'static str, &'static [u8])], index: &str) -> Result<Self> {
        let dir = PathBuf::from("built-in policies");
        let scores = read_index(index.as_bytes(), &dir)?;
        let names = files.iter().map(|(name, _)| name.to_string());
        Ok(Self { dir, built_in: Some(files), snapshots: snapshots(names, &scores) })
    }

    /// The policies of a flavour, in the order in which their rows follow each other. Each gives an equal share.
    pub fn policies_for(&self, recipe: &GeneratedName, choice: SnapshotChoice) -> Result<Vec<LoadedPolicy>> {
        let task = &recipe.task;
        let all: Vec<&Snapshot> = self.snapshots.iter().filter(|s| &s.task == task).collect();
        let first = *all.first().ok_or_else(|| self.missing(task, "any number"))?;
        let chosen: Vec<&Snapshot> = match recipe.flavour.as_str() {
            "random" => vec![first],
            "medium" => vec![self.medium(&all, task, choice)?],
            "medium-replay" => {
                let medium = self.medium(&all, task, choice)?.number;
                all.iter().copied().filter(|s| s.number <= medium).collect()
            }
            "medium-expert" => vec![self.medium(&all, task, choice)?, self.expert(&all, task, choice)?],
            "expert" => vec![self.expert(&all, task, choice)?],
            other => {
                let hint = "known: random, medium, medium-replay, medium-expert, expert".into();
                return Err(Error::Unknown { kind: "flavour", name: other.into(), hint });
            }
        };
        chosen.into_iter().map(|s| self.load(&s.file)).collect()
    }

    /// Loads one file of the set.
    pub fn load(&self, file: &str) -> Result<LoadedPolicy> {
        let path = self.dir.join(file);
        let bytes = match self.built_in {
            None => fs::read(&path).map_err(|e| Error::io(&path, "read the policy", e))?,
            Some(files) => {
                let found = files.iter().find(|(name, _)| *name == file);
                found.ok_or_else(|| Error::file(&path, "there is no such built-in policy"))?.1.to_vec()
            }
        };
        let policy = TanhGaussian::from_bytes(&bytes, &path)?;
        Ok(LoadedPolicy { file: file.into(), policy, digest: Sha256::digest(&bytes).into() })
    }

    fn medium<'a>(&self, all: &[&'a Snapshot], task: &str, choice: SnapshotChoice) -> Result<&'a Snapshot> {
        if let Some(number) = choice.medium {
            return self.numbered(all, task, number);
        }
        let mark = medium_mark(task);
        (all.iter().copied().find(|s| s.score.is_some_and(|score| score >= mark)))
            .ok_or_else(|| self.unscored("medium", task, &format!("a snapshot of score {mark} or more")))
    }

    fn expert<'a>(&self, all: &[&'a Snapshot], task: &str, choice: SnapshotChoice) -> Result<&'a Snapshot> {
        if let Some(number) = choice.expert {
            return self.numbered(all, task, number);
        }
        let scored = all.iter().copied().filter_map(|s| s.score.map(|score| (score, s)));
        (scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, s)| s))
            .ok_or_else(|| self.unscored("expert", task, "at least one scored snapshot"))
    }

    fn numbered<'a>(&self, all: &[&'a Snapshot], task: &str, number: usize) -> Result<&'a Snapshot> {
        all.iter()
            .copied()
            .find(|s| s.number == number)
            .ok_or_else(|| self.missing(task, &number.to_string()))
    }

    fn missing(&self, task: &str, number: &str) -> Error {
        let wanted = format!("{task}-<{number}>.safetensors");
        bad_file!(&self.dir, "wanted a policy file {wanted}, found none; give another --policies directory")
    }

    fn unscored(&self, flavour: &str, task: &str, wanted: &str) -> Error {
        bad_file!(
            self.dir.join("index.json"),
            "wanted {wanted} for {task}, found none; name the snapshot yourself with --{flavour} NUMBER"
        )
    }
}

fn read_index(text: &[u8], path: &Path) -> Result<Vec<IndexEntry>> {
    let wanted = r#"a list of {"file", "normalized"}"#;
    serde_json::from_slice(text)
        .map_err(|e| bad_file!(path, "wanted {wanted}, found otherwise ({e}); fix or remove it"))
}

/// The snapshots among some file names, by task and number.
fn snapshots(files: impl Iterator<Item = String>, scores: &[IndexEntry]) -> Vec<Snapshot> {
    let mut found: Vec<Snapshot> = files
        .filter_map(|file| {
            let (task, number) = file.strip_suffix(".safetensors")?.rsplit_once('-')?;
            let (task, number) = (task.to_string(), number.parse().ok()?);
            let score = scores.iter().find(|s| s.file == file).and_then(|s| s.normalized);
            Some(Snapshot { task, number, score, file })
        })
        .collect();
    found.sort_by(|a, b| (&a.task, a.number).cmp(&(&b.task, b.number)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eleven empty snapshots are enough: choosing reads only names and scores.
    fn numbers(flavour: &str, choice: SnapshotChoice) -> Result<Vec<usize>> {
        let scores = [3.0, 39.0, 25.0, 40.0, 27.0, 46.0, 98.0, 45.0, 103.0, 87.0, 37.0];
        let snapshots = (0..11)
            .map(|number| Snapshot {
                task: "hopper".into(),
                number,
                file: format!("hopper-{number}.safetensors"),
                score: Some(scores[number]),
            })
            .collect();
        let set = PolicySet { dir: "policies".into(), built_in: None, snapshots };
        let all: Vec<&Snapshot> = set.snapshots.iter().collect();
        match flavour {
            "medium" => Ok(vec![set.medium(&all, "hopper", choice)?.number]),
            _ => Ok(vec![set.expert(&all, "hopper", choice)?.number]),
        }
    }

    #[test]
    fn medium_is_the_first_at_the_mark_and_expert_the_best() {
        assert_eq!(numbers("medium", SnapshotChoice::default()).unwrap(), [5]);
        assert_eq!(numbers("expert", SnapshotChoice::default()).unwrap(), [8]);
        assert_eq!(numbers("medium", SnapshotChoice { medium: Some(3), expert: None }).unwrap(), [3]);
        let error =
            numbers("expert", SnapshotChoice { medium: None, expert: Some(40) }).unwrap_err().to_string();
        assert!(error.contains("hopper-<40>.safetensors"), "{error}");
    }
}
