//! Minari datasets: an episode has one observation more than actions. HDF5 storage has a group for each episode, arrow and
//! parquet storage a directory ([`minari_parts`](super::minari_parts)).
//!
//! Dictionary observations are flattened depth first, keys in alphabetical order (gymnasium's own order), tuples by
//! index, arrays row by row. One dictionary is special: `{observation, achieved_goal, desired_goal}` becomes
//! `achieved_goal` followed by `observation`, which for AntMaze is D4RL's 29 numbers (x and y first); the goal is left
//! out, as in D4RL. [`ReadOptions::minari_obs`] overrides the choice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ndarray::{Array1, Array2, ArrayView2, Axis, concatenate, s};
use serde_json::Value;

use super::super::dataset::{Dataset, SimColumns};
use super::super::memory::check_fits;
use super::super::options::ReadOptions;
use super::super::transitions::{FileColumns, FileKeys, assemble};
use super::d4rl::{missing, sim_keys};
use super::hdf5::{Hdf5, SIGNATURE};
use super::minari_parts::{EpisodeArrays, EpisodeParts};
use super::minari_write::write;
use super::{Candidate, Format, row_number};
use crate::batch::Mat;
use crate::error::{Error, Result, bad_file};

impl Format {
    /// A Minari dataset directory. Written in HDF5 storage.
    pub const MINARI: Self = Self {
        name: "minari",
        title: "Minari directory",
        extensions: &[],
        is_table: false,
        recognises,
        read: |candidate, options| read(candidate.path, options),
        write: Some(write),
        row_place: row_number,
    };
}

/// Entries of metadata.json that describe the storage, not the data.
pub(super) const STRUCTURE: &[&str] =
    &["total_episodes", "total_steps", "data_format", "dataset_size", "jpeg_encoding"];

const MAIN: &str = "main_data.hdf5";
const METADATA: &str = "metadata.json";

const REWARDS: &str = "rewards";
const TERMINATIONS: &str = "terminations";
const TRUNCATIONS: &str = "truncations";

fn recognises(candidate: &Candidate) -> bool {
    if candidate.is_dir {
        return storage(candidate.path).is_some();
    }
    // Opening a file of thousands of episodes takes a second: where the names settle it, it is opened once, to read it.
    let path = candidate.path;
    let is_named = path.ends_with(MAIN) && path.with_file_name(METADATA).is_file();
    let has_episodes = || candidate.has_hdf5(|name| episode_key(name).is_some());
    candidate.starts_with(SIGNATURE) && (is_named || has_episodes())
}

/// The directory with the data in it, when `dir` is a Minari dataset or its `data` directory.
fn storage(dir: &Path) -> Option<PathBuf> {
    let holds = |d: &Path| d.join(METADATA).is_file() || d.join(MAIN).is_file();
    [dir.join("data"), dir.to_path_buf()].into_iter().find(|d| holds(d))
}

/// Reads a Minari dataset by its directory or its HDF5 file. The metadata.json beside the file is optional.
fn read(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let main = storage(path).map_or_else(|| path.to_path_buf(), |dir| dir.join(MAIN));
    let beside = main.with_file_name(METADATA);
    let metadata = read_metadata(&beside)?;
    let format = metadata.get("data_format").and_then(Value::as_str).unwrap_or("hdf5").to_string();
    match format.as_str() {
        "arrow" | "parquet" if path.is_dir() => return read_parts(&beside, &format, metadata, options),
        "hdf5" => (),
        _ if path.is_dir() => {
            let hint = "convert it once in Python: s = minari.MinariDataset(DIR).storage; \
                        MinariStorage.new(NEW, s.observation_space, s.action_space, data_format=\"hdf5\").update_from_storage(s)";
            let wanted = "`hdf5`, `arrow` or `parquet`";
            return Err(Error::key(beside, "data_format", wanted, format!("`{format}`"), hint));
        }
        _ => (),
    }
    let candidate = Candidate::open(&main)?;
    if !candidate.starts_with(SIGNATURE) {
        return Err(candidate.not_a_dataset());
    }
    read_file(&main, metadata, options)
}

fn read_file(path: &Path, metadata: BTreeMap<String, Value>, options: &ReadOptions) -> Result<Dataset> {
    let file = Hdf5::open(path)?;
    let mut keys_of: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (number, key) in file.names().iter().filter_map(|name| episode_key(name)) {
        keys_of.entry(number).or_default().push(key);
    }
    let Some(first) = keys_of.values().next() else {
        return Err(missing(path, "episode_0/observations", file.names()));
    };
    let layout = EpisodeLayout::new(path, first, options)?;
    check_actions(path, &file, &metadata, keys_of.keys().next(), &layout)?;
    let mut episodes: Vec<MinariEpisode> = Vec::with_capacity(keys_of.len());
    for (&number, keys) in &keys_of {
        let episode = MinariEpisode::read(&file, path, &layout, number, keys)?;
        if episodes.is_empty() {
            episode.check_size(path, &metadata, options)?;
        }
        episodes.push(episode);
    }
    finish(&episodes, path, layout, metadata, options)
}

/// Reads arrow or parquet storage, whose metadata.json is at `path`.
fn read_parts(
    path: &Path,
    format: &str,
    metadata: BTreeMap<String, Value>,
    options: &ReadOptions,
) -> Result<Dataset> {
    let parts = EpisodeParts::find(path, format)?;
    let (mut layout, mut episodes) = (None, Vec::with_capacity(parts.len()));
    for part in &parts {
        let arrays = part.load(options)?;
        let keys = arrays.keys();
        if layout.is_none() {
            layout = Some(EpisodeLayout::new(&part.path, &keys, options)?);
        }
        if let Some(layout) = &layout {
            let episode = MinariEpisode::read(&arrays, &part.path, layout, part.number, &keys)?;
            if episodes.is_empty() {
                episode.check_size(path, &metadata, options)?;
            }
            episodes.push(episode);
        }
    }
    match layout {
        Some(layout) => finish(&episodes, path, layout, metadata, options),
        None => {
            Err(bad_file!(path, "wanted a directory for each episode beside it, found none; get it again"))
        }
    }
}

fn finish(
    episodes: &[MinariEpisode],
    path: &Path,
    layout: EpisodeLayout,
    metadata: BTreeMap<String, Value>,
    options: &ReadOptions,
) -> Result<Dataset> {
    let mut columns = join(episodes, path, layout)?;
    for (what, found) in [("total_episodes", episodes.len()), ("total_steps", columns.rew.len())] {
        if let Some(said) = metadata.get(what).and_then(Value::as_u64).filter(|&n| n != found as u64) {
            columns.notes.push(format!("metadata.json says {what} = {said}, the file has {found}"));
        }
    }
    let name = options.name.clone().or_else(|| metadata.get("dataset_id")?.as_str().map(str::to_string));
    columns.meta = metadata
        .into_iter()
        .filter(|(key, _)| !STRUCTURE.contains(&key.as_str()))
        .map(|(key, value)| (key, value.as_str().map_or_else(|| value.to_string(), str::to_string)))
        .collect();
    let options = ReadOptions { name: name.or_else(|| dataset_name(path)), ..options.clone() };
    assemble(columns, path, Format::MINARI, &options)
}

/// Makes sure that actions are quantities. The number of a choice would be learnt as one: 2 as "twice 1".
fn check_actions(
    path: &Path,
    file: &Hdf5,
    metadata: &BTreeMap<String, Value>,
    episode: Option<&u64>,
    layout: &EpisodeLayout,
) -> Result<()> {
    let hint = "offing learns continuous actions only; take a dataset with a Box action space";
    let wanted = "continuous actions (a Box)";
    // Minari keeps spaces as JSON inside a text.
    let space = metadata.get("action_space").and_then(|space| match space {
        Value::String(text) => serde_json::from_str(text).ok(),
        other => Some(other.clone()),
    });
    if let Some(space) = space {
        return match discrete(&space) {
            Some(found) => {
                Err(Error::key(path.with_file_name(METADATA), "action_space", wanted, found, hint))
            }
            None => Ok(()),
        };
    }
    for (number, key) in
        episode.into_iter().flat_map(|number| layout.act.iter().map(move |key| (number, key)))
    {
        let key = format!("episode_{number}/{key}");
        if file.holds_integers(&key) {
            return Err(Error::key(path, key, wanted, "integers, as discrete actions are stored", hint));
        }
    }
    Ok(())
}

/// The discrete space in a space or its parts, in words.
fn discrete(space: &Value) -> Option<String> {
    let name = space.get("type").and_then(Value::as_str).unwrap_or_default();
    match name {
        "Discrete" => Some(match space.get("n").and_then(Value::as_u64) {
            Some(n) => format!("Discrete with {n} actions"),
            None => name.into(),
        }),
        "MultiDiscrete" | "MultiBinary" | "Text" => Some(name.into()),
        _ => match space.get("subspaces") {
            Some(Value::Object(parts)) => parts.values().find_map(discrete),
            Some(Value::Array(parts)) => parts.iter().find_map(discrete),
            _ => None,
        },
    }
}

/// `episode_12/rewards` is 12 and `rewards`.
fn episode_key(name: &str) -> Option<(u64, &str)> {
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
    serde_json::from_str(&text)
        .map_err(|e| bad_file!(path, "wanted a JSON object, found a syntax error ({e}); get it again"))
}

/// Which datasets of an episode become which columns; decided on the first episode.
struct EpisodeLayout {
    obs: Vec<String>,
    act: Vec<String>,
    sim: &'static [&'static str],
    ignored: Vec<String>,
    notes: Vec<String>,
}

impl EpisodeLayout {
    fn new(path: &Path, keys: &[&str], options: &ReadOptions) -> Result<Self> {
        let mut notes = Vec::new();
        let (mut obs, act) = (leaves(keys, "observations"), leaves(keys, "actions"));
        let found = |key: &str| match key {
            "observations" => !obs.is_empty(),
            "actions" => !act.is_empty(),
            _ => keys.contains(&key),
        };
        for key in ["observations", "actions", REWARDS, TERMINATIONS, TRUNCATIONS] {
            if !found(key) {
                return Err(missing(path, key, keys));
            }
        }
        let goal_task = ["achieved_goal", "desired_goal", "observation"].map(|k| format!("observations/{k}"));
        if let Some(chosen) = &options.minari_obs {
            let wanted: Vec<String> = chosen.iter().map(|k| format!("observations/{k}")).collect();
            if let Some(unknown) = wanted.iter().find(|w| !obs.contains(w)) {
                let hint = "name parts that the observation has";
                return Err(Error::key(path, unknown, "one of its parts", format!("{obs:?}"), hint));
            }
            obs = wanted;
        } else if obs == goal_task {
            notes.push(
                "observation = achieved_goal followed by observation; desired_goal is left out, as in D4RL"
                    .into(),
            );
            obs.remove(1);
        } else if obs.len() > 1 {
            notes.push(format!("observation = {}", obs.join(", ")));
        }
        let sim = sim_keys(|key| keys.contains(&key));
        let used = |key: &str| {
            obs.iter().chain(&act).any(|u| u == key)
                || [REWARDS, TERMINATIONS, TRUNCATIONS].contains(&key)
                || sim.contains(&key)
        };
        let ignored = keys.iter().filter(|key| !used(key)).map(|key| key.to_string()).collect();
        Ok(Self { obs, act, sim, ignored, notes })
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

/// The columns of one episode.
struct MinariEpisode {
    number: u64,
    /// One row more than the others: the last is the observation after the last step.
    obs: Mat,
    act: Mat,
    rew: Array1<f32>,
    done: Array1<bool>,
    timeout: Array1<bool>,
    /// One matrix for each key of [`EpisodeLayout::sim`].
    sim: Vec<Array2<f64>>,
}

impl MinariEpisode {
    /// Makes sure that a dataset of episodes as wide as this one fits into memory, as far as its metadata counts steps.
    fn check_size(
        &self,
        path: &Path,
        metadata: &BTreeMap<String, Value>,
        options: &ReadOptions,
    ) -> Result<()> {
        let steps = metadata.get("total_steps").and_then(Value::as_u64).unwrap_or(0);
        let states: usize = self.sim.iter().map(Array2::ncols).sum();
        let width = 3 * self.obs.ncols() + 2 * self.act.ncols() + 4 * states;
        check_fits(path, steps.saturating_mul(4 * width as u64), options)
    }

    fn read<'p>(
        file: &impl EpisodeArrays<'p>,
        path: &Path,
        layout: &EpisodeLayout,
        number: u64,
        keys: &[&str],
    ) -> Result<Self> {
        let full = |key: &str| format!("episode_{number}/{key}");
        let need = |key: &str| match keys.contains(&key) {
            true => Ok(full(key)),
            false => Err(missing(path, &full(key), keys)),
        };
        let rew = file.array(&need(REWARDS)?)?.column()?;
        let steps = rew.len();
        let check_rows = |key: &str, found: usize, wanted: usize| {
            let hint = "the file is incomplete or was put together wrongly: get it again";
            let wanted_rows = format!("{wanted} rows for {steps} rewards");
            match found == wanted {
                true => Ok(()),
                false => Err(Error::key(path, full(key), wanted_rows, found.to_string(), hint)),
            }
        };
        let side_by_side = |parts: &[String], rows: usize| -> Result<Mat> {
            let mut matrices = Vec::with_capacity(parts.len());
            for key in parts {
                let matrix = file.array(&need(key)?)?.flat_matrix()?;
                check_rows(key, matrix.nrows(), rows)?;
                matrices.push(matrix);
            }
            let views: Vec<_> = matrices.iter().map(|m| m.view()).collect();
            Ok(concatenate(Axis(1), &views).expect("the rows were checked"))
        };
        let flags = |key: &str| -> Result<Array1<bool>> {
            let flags = file.array(&need(key)?)?.flags()?;
            check_rows(key, flags.len(), steps)?;
            Ok(flags)
        };
        let states = |key: &str| -> Result<Array2<f64>> {
            let states: Array2<f64> = file.array(&need(key)?)?.matrix()?;
            // Minari records infos after the last step as well; some writers do not.
            if states.nrows() != steps + 1 {
                check_rows(key, states.nrows(), steps)?;
            }
            Ok(states.slice_move(s![..steps, ..]))
        };
        Ok(Self {
            number,
            obs: side_by_side(&layout.obs, steps + 1)?,
            act: side_by_side(&layout.act, steps)?,
            done: flags(TERMINATIONS)?,
            timeout: flags(TRUNCATIONS)?,
            sim: layout.sim.iter().map(|key| states(key)).collect::<Result<_>>()?,
            rew,
        })
    }
}

/// All episodes one after the other.
fn join(episodes: &[MinariEpisode], path: &Path, layout: EpisodeLayout) -> Result<FileColumns> {
    let (obs, act) = (&layout.obs[0], &layout.act[0]);
    let sim = layout.sim.iter().enumerate().map(|(i, key)| stacked(episodes, path, key, |e| e.sim[i].view()));
    Ok(FileColumns {
        obs: stacked(episodes, path, obs, |e| e.obs.slice(s![..e.rew.len(), ..]))?,
        act: stacked(episodes, path, act, |e| e.act.view())?,
        rew: episodes.iter().flat_map(|e| &e.rew).copied().collect(),
        next_obs: Some(stacked(episodes, path, obs, |e| e.obs.slice(s![1.., ..]))?),
        done: episodes.iter().flat_map(|e| &e.done).copied().collect(),
        timeout: Some(episodes.iter().flat_map(|e| &e.timeout).copied().collect()),
        episode: Some(episodes.iter().flat_map(|e| e.rew.iter().map(|_| e.number as i64)).collect()),
        sim: SimColumns::from_columns(sim.collect::<Result<Vec<_>>>()?),
        keys: FileKeys::of_arrays("observations", "actions", REWARDS, "observations"),
        ignored: layout.ignored,
        notes: layout.notes,
        ..FileColumns::default()
    })
}

/// One matrix of all episodes, which must be as wide in each.
fn stacked<T: Copy>(
    episodes: &[MinariEpisode],
    path: &Path,
    key: &str,
    part: impl Fn(&MinariEpisode) -> ArrayView2<'_, T>,
) -> Result<Array2<T>> {
    let width = part(&episodes[0]).ncols();
    if let Some(other) = episodes.iter().find(|e| part(e).ncols() != width) {
        let (key, found) = (format!("episode_{}/{key}", other.number), part(other).ncols().to_string());
        let hint = "all episodes must have the same spaces";
        return Err(Error::key(path, key, format!("width {width}"), found, hint));
    }
    let parts: Vec<_> = episodes.iter().map(part).collect();
    let joined = concatenate(Axis(0), &parts).expect("the widths were checked");
    Ok(if joined.is_standard_layout() { joined } else { joined.as_standard_layout().into_owned() })
}
