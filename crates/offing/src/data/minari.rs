//! Minari datasets in HDF5 storage: a group per episode with one observation more than actions.
//!
//! Dictionary observations are flattened depth first, keys in alphabetical order (gymnasium's own order), tuples by
//! index, arrays row by row. One dictionary is special: `{observation, achieved_goal, desired_goal}` becomes
//! `achieved_goal` followed by `observation`, which for AntMaze is D4RL's 29 numbers (x and y first); the goal is left
//! out, as in D4RL. [`ReadOptions::minari_obs`] overrides the choice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ndarray::{Array1, Array2};
use serde_json::Value;

use super::d4rl::missing;
use super::dataset::{Dataset, Format, SimColumns};
use super::hdf5::Hdf5;
use super::options::ReadOptions;
use super::transitions::{Columns, Keys, assemble};
use crate::error::{Error, Result};

/// Entries of metadata.json that describe the storage, not the data.
pub(super) const STRUCTURE: &[&str] =
    &["total_episodes", "total_steps", "data_format", "dataset_size", "jpeg_encoding"];

const MAIN: &str = "main_data.hdf5";
const METADATA: &str = "metadata.json";

/// The directory with the data in it, when `dir` is a Minari dataset or its `data` directory.
pub(super) fn find(dir: &Path) -> Option<PathBuf> {
    let holds = |d: &Path| d.join(METADATA).is_file() || d.join(MAIN).is_file();
    [dir.join("data"), dir.to_path_buf()].into_iter().find(|d| holds(d))
}

/// Whether an HDF5 file with these datasets is laid out as Minari does.
pub(super) fn is_layout(names: &[String]) -> bool {
    names.iter().any(|n| episode_number(n).is_some())
}

/// Reads the Minari dataset whose files are in `dir`.
pub(super) fn read_dir(dir: &Path, options: &ReadOptions) -> Result<Dataset> {
    let metadata = read_metadata(&dir.join(METADATA))?;
    let format = metadata.get("data_format").and_then(Value::as_str).unwrap_or("hdf5");
    if format != "hdf5" {
        let hint = "convert it once in Python: s = minari.MinariDataset(DIR).storage; \
                    MinariStorage.new(NEW, s.observation_space, s.action_space, data_format=\"hdf5\").update_from_storage(s)";
        return Err(Error::key(dir.join(METADATA), "data_format", "`hdf5`", format!("`{format}`"), hint));
    }
    let path = dir.join(MAIN);
    super::read::expect_hdf5(&path)?;
    read(&Hdf5::open(&path)?, &path, metadata, options)
}

/// Reads an open Minari file; a metadata.json beside it is used when it is there.
pub(super) fn read_file(file: &Hdf5, path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let beside = path.with_file_name(METADATA);
    let metadata = if beside.is_file() { read_metadata(&beside)? } else { BTreeMap::new() };
    read(file, path, metadata, options)
}

fn read(
    file: &Hdf5,
    path: &Path,
    metadata: BTreeMap<String, Value>,
    options: &ReadOptions,
) -> Result<Dataset> {
    let mut episodes: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for name in file.names() {
        if let Some((number, key)) = episode_number(name) {
            episodes.entry(number).or_default().push(key);
        }
    }
    let Some((_, first)) = episodes.first_key_value() else {
        return Err(missing(path, "episode_0/observations", file.names()));
    };
    let plan = Plan::new(path, first, options)?;
    let mut notes = plan.notes.clone();
    let mut all = Growing::default();
    for (&number, keys) in &episodes {
        all.add(file, path, &plan, number, keys)?;
    }
    for (what, found) in [("total_episodes", episodes.len()), ("total_steps", all.rew.len())] {
        if let Some(said) = metadata.get(what).and_then(Value::as_u64).filter(|&n| n != found as u64) {
            notes.push(format!("metadata.json says {what} = {said}, the file has {found}"));
        }
    }
    let name = options.name.clone().or_else(|| metadata.get("dataset_id")?.as_str().map(str::to_string));
    let meta = metadata
        .into_iter()
        .filter(|(key, _)| !STRUCTURE.contains(&key.as_str()))
        .map(|(key, value)| (key, value.as_str().map_or_else(|| value.to_string(), str::to_string)))
        .collect();
    let options = ReadOptions { name: name.or_else(|| dataset_name(path)), ..options.clone() };
    assemble(all.into_columns(path, plan, notes, meta)?, path, Format::Minari, &options)
}

/// `episode_12/rewards` is 12 and `rewards`.
fn episode_number(name: &str) -> Option<(u64, &str)> {
    let (number, key) = name.strip_prefix("episode_")?.split_once('/')?;
    Some((number.parse().ok()?, key))
}

/// `.../hopper/medium-v0/data/main_data.hdf5` is `hopper/medium-v0`.
fn dataset_name(path: &Path) -> Option<String> {
    let dir = path.parent()?;
    let dir = if dir.file_name()? == "data" { dir.parent()? } else { dir };
    Some(dir.file_name()?.to_string_lossy().into_owned())
}

fn read_metadata(path: &Path) -> Result<BTreeMap<String, Value>> {
    if !path.is_file() {
        return Ok(BTreeMap::new());
    }
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", e))?;
    serde_json::from_str(&text).map_err(|e| {
        Error::file(path, format!("wanted a JSON object, found a syntax error ({e}); get it again"))
    })
}

/// Which datasets of an episode become which columns; decided on the first episode.
struct Plan {
    obs: Vec<String>,
    act: Vec<String>,
    sim: bool,
    goal: bool,
    ignored: Vec<String>,
    notes: Vec<String>,
}

impl Plan {
    fn new(path: &Path, keys: &[&str], options: &ReadOptions) -> Result<Self> {
        let names: Vec<String> = keys.iter().map(|k| k.to_string()).collect();
        let mut notes = Vec::new();
        let mut obs = leaves(keys, "observations");
        if obs.is_empty() {
            return Err(missing(path, "observations", &names));
        }
        let goal_task = ["achieved_goal", "desired_goal", "observation"].map(|k| format!("observations/{k}"));
        if let Some(chosen) = &options.minari_obs {
            let wanted: Vec<String> = chosen.iter().map(|k| format!("observations/{k}")).collect();
            let found: Vec<&String> = obs.iter().collect();
            if let Some(unknown) = wanted.iter().find(|w| !obs.contains(w)) {
                let hint = "name parts that the observation has";
                return Err(Error::key(path, unknown, "one of its parts", format!("{found:?}"), hint));
            }
            obs = wanted;
        } else if obs == goal_task {
            notes.push(
                "observation = achieved_goal followed by observation; desired_goal is left out, as in D4RL"
                    .into(),
            );
            obs = vec![goal_task[0].clone(), goal_task[2].clone()];
        } else if obs.len() > 1 {
            notes.push(format!("observation = {}", obs.join(", ")));
        }
        let act = leaves(keys, "actions");
        if act.is_empty() {
            return Err(missing(path, "actions", &names));
        }
        for key in ["rewards", "terminations", "truncations"] {
            if !keys.contains(&key) {
                return Err(missing(path, key, &names));
            }
        }
        let sim = keys.contains(&"infos/qpos") && keys.contains(&"infos/qvel");
        let goal = sim && keys.contains(&"infos/goal");
        let used = |k: &str| {
            obs.iter().chain(&act).any(|u| u == k)
                || ["rewards", "terminations", "truncations"].contains(&k)
                || (sim && (k == "infos/qpos" || k == "infos/qvel"))
                || (goal && k == "infos/goal")
        };
        let ignored = names.iter().filter(|k| !used(k)).cloned().collect();
        Ok(Self { obs, act, sim, goal, ignored, notes })
    }
}

/// Datasets at or below `root`, sorted; tuple entries by number.
fn leaves(keys: &[&str], root: &str) -> Vec<String> {
    let below = format!("{root}/");
    let mut found: Vec<&str> = keys.iter().copied().filter(|k| *k == root || k.starts_with(&below)).collect();
    let sort_key = |k: &str| -> Vec<(u64, String)> {
        k.split('/')
            .map(|part| match part.strip_prefix("_index_").and_then(|n| n.parse().ok()) {
                Some(number) => (number, String::new()),
                None => (0, part.to_string()),
            })
            .collect()
    };
    found.sort_by_key(|k| sort_key(k));
    found.into_iter().map(str::to_string).collect()
}

/// Columns growing episode by episode.
#[derive(Default)]
struct Growing {
    obs: Vec<f32>,
    next_obs: Vec<f32>,
    act: Vec<f32>,
    rew: Vec<f32>,
    done: Vec<bool>,
    timeout: Vec<bool>,
    episode: Vec<i64>,
    qpos: Vec<f64>,
    qvel: Vec<f64>,
    goal: Vec<f64>,
    /// Width of each part, once known: obs, act, qpos, qvel, goal.
    widths: [Option<usize>; 5],
}

impl Growing {
    fn add(&mut self, file: &Hdf5, path: &Path, plan: &Plan, number: u64, keys: &[&str]) -> Result<()> {
        let full = |key: &str| format!("episode_{number}/{key}");
        let need = |key: &str| {
            if keys.contains(&key) {
                return Ok(full(key));
            }
            let here: Vec<String> = keys.iter().map(|k| k.to_string()).collect();
            Err(missing(path, &full(key), &here))
        };
        let rew = file.column(&need("rewards")?)?;
        let steps = rew.len();
        let mut obs = Vec::new();
        for key in &plan.obs {
            obs.push(file.flat_matrix(&need(key)?)?);
        }
        let mut act = Vec::new();
        for key in &plan.act {
            act.push(file.flat_matrix(&need(key)?)?);
        }
        let flags = ["terminations", "truncations"].map(|key| file.flags(&need(key)?));
        let [done, timeout] = flags;
        let (done, timeout) = (done?, timeout?);
        let sized = |key: &str, found: usize, wanted: usize| {
            if found == wanted {
                return Ok(());
            }
            let hint = "the file is incomplete or was put together wrongly: get it again";
            Err(Error::key(
                path,
                full(key),
                format!("{wanted} rows for {steps} rewards"),
                found.to_string(),
                hint,
            ))
        };
        for (key, part) in plan.obs.iter().zip(&obs) {
            sized(key, part.nrows(), steps + 1)?;
        }
        for (key, part) in plan.act.iter().zip(&act) {
            sized(key, part.nrows(), steps)?;
        }
        sized("terminations", done.len(), steps)?;
        sized("truncations", timeout.len(), steps)?;
        let mut same_width = |slot: usize, key: &str, width: usize| {
            let wanted = *self.widths[slot].get_or_insert(width);
            if wanted == width {
                return Ok(());
            }
            let hint = "all episodes must have the same spaces";
            Err(Error::key(path, full(key), format!("width {wanted}"), width.to_string(), hint))
        };
        same_width(0, &plan.obs[0], obs.iter().map(|m| m.ncols()).sum())?;
        same_width(1, &plan.act[0], act.iter().map(|m| m.ncols()).sum())?;
        if plan.sim {
            let mut add = |slot: usize, key: &str, out: &mut Vec<f64>| -> Result<()> {
                let part = file.wide_matrix(&need(key)?)?;
                same_width(slot, key, part.ncols())?;
                // Minari records infos after the last step as well; some writers do not.
                if part.nrows() != steps + 1 {
                    sized(key, part.nrows(), steps)?;
                }
                out.extend(part.rows().into_iter().take(steps).flatten());
                Ok(())
            };
            add(2, "infos/qpos", &mut self.qpos)?;
            add(3, "infos/qvel", &mut self.qvel)?;
            if plan.goal {
                add(4, "infos/goal", &mut self.goal)?;
            }
        }
        for step in 0..steps {
            obs.iter().for_each(|part| self.obs.extend(part.row(step)));
            obs.iter().for_each(|part| self.next_obs.extend(part.row(step + 1)));
            act.iter().for_each(|part| self.act.extend(part.row(step)));
        }
        self.rew.extend(rew);
        self.done.extend(done);
        self.timeout.extend(timeout);
        self.episode.extend(std::iter::repeat_n(number as i64, steps));
        Ok(())
    }

    fn into_columns(
        self,
        path: &Path,
        plan: Plan,
        notes: Vec<String>,
        meta: BTreeMap<String, String>,
    ) -> Result<Columns> {
        let rows = self.rew.len();
        let width = |slot: usize| self.widths[slot].unwrap_or(0);
        let (obs, act, qpos, qvel, goal) = (width(0), width(1), width(2), width(3), width(4));
        let sim = match plan.sim {
            true => Some(SimColumns {
                qpos: shaped(path, rows, qpos, self.qpos)?,
                qvel: shaped(path, rows, qvel, self.qvel)?,
                goal: if plan.goal { Some(shaped(path, rows, goal, self.goal)?) } else { None },
            }),
            false => None,
        };
        Ok(Columns {
            obs: shaped(path, rows, obs, self.obs)?,
            act: shaped(path, rows, act, self.act)?,
            rew: Array1::from(self.rew),
            next_obs: Some(shaped(path, rows, obs, self.next_obs)?),
            done: Array1::from(self.done),
            timeout: Some(Array1::from(self.timeout)),
            episode: Some(self.episode),
            step: None,
            sim,
            keys: Keys {
                obs: vec!["observations".into()],
                act: vec!["actions".into()],
                rew: "rewards".into(),
                next_obs: vec!["observations".into()],
            },
            ignored: plan.ignored,
            notes,
            meta,
        })
    }
}

fn shaped<T>(path: &Path, rows: usize, width: usize, values: Vec<T>) -> Result<Array2<T>> {
    Array2::from_shape_vec((rows, width), values)
        .map_err(|_| Error::file(path, "wanted episodes of one shape, found several; get the file again"))
}
