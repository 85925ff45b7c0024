//! LeRobot datasets, versions 2 and 3: a directory with `meta/info.json` and Parquet files below `data/chunk-000`, an
//! episode in each (v2) or many (v3).
//!
//! A row is a frame: `observation.*`, `action`, `next.reward`, `next.done`, `episode_index`, `frame_index`. The next state
//! is the following frame of the episode, so the last frame of each has none. `next.done` marks it; it is a terminal
//! unless `next.truncated` says otherwise, or `next.success`, where there is such a column, is not set.

use std::fs;
use std::path::{Path, PathBuf};

use ndarray::{Array1, Array2, Axis, concatenate};
use serde_json::Value;

use super::super::column_names::ColumnNames;
use super::super::dataset::Dataset;
use super::super::options::ReadOptions;
use super::super::transitions::{FileColumns, FileKeys, assemble};
use super::arrays::stacked;
use super::d4rl::missing;
use super::parquet_arrays::ParquetArrays;
use super::{Format, row_number};
use crate::batch::Mat;
use crate::error::{Error, Result, bad_file};

impl Format {
    /// A LeRobot dataset directory; read only.
    pub const LEROBOT: Self = Self {
        name: "lerobot",
        title: "LeRobot directory with meta/info.json",
        extensions: &[],
        is_table: false,
        recognises: |candidate| candidate.is_dir && is_lerobot(candidate.path),
        read: |candidate, options| read(candidate.path, options),
        write: None,
        row_place: row_number,
    };
}

const ACT: &str = "action";
const REW: &str = "next.reward";
const DONE: &str = "next.done";
const SUCCESS: &str = "next.success";
const TRUNCATED: &str = "next.truncated";
const EPISODE: &str = "episode_index";
const FRAME: &str = "frame_index";

fn is_lerobot(dir: &Path) -> bool {
    dir.join("meta/info.json").is_file() && dir.join("data").is_dir()
}

fn read(dir: &Path, options: &ReadOptions) -> Result<Dataset> {
    let data = dir.join("data");
    let mut files = Vec::new();
    parquet_files(&data, &mut files)?;
    let Some(first) = files.first() else {
        let hint = "get the whole dataset";
        return Err(bad_file!(data, "wanted Parquet files (chunk-000/file-000.parquet), found none; {hint}"));
    };
    let layout = FrameLayout::new(first, options)?;
    let mut parts = Vec::with_capacity(files.len());
    for file in &files {
        parts.push(Frames::read(file, &layout, options)?);
    }
    let flags = |of: fn(&Frames) -> &Option<Array1<bool>>| -> Option<Array1<bool>> {
        parts
            .iter()
            .map(of)
            .all(Option::is_some)
            .then(|| parts.iter().filter_map(|part| of(part).as_ref()).flatten().copied().collect())
    };
    let (done, success, truncated) = (flags(|p| &p.done), flags(|p| &p.success), flags(|p| &p.truncated));
    let rows: usize = parts.iter().map(|part| part.rew.len()).sum();
    let ended = done.unwrap_or_else(|| Array1::from_elem(rows, false));
    let mut done = ended.clone();
    for limits in [truncated, success.map(|success| success.map(|&s| !s))].into_iter().flatten() {
        done.zip_mut_with(&limits, |done, &limit| *done &= !limit);
    }
    let timeout = ndarray::Zip::from(&ended).and(&done).map_collect(|&ended, &done| ended && !done);
    let columns = FileColumns {
        obs: stacked(dir, "observation", parts.iter().map(|p| &p.obs))?,
        act: stacked(dir, ACT, parts.iter().map(|p| &p.act))?,
        rew: parts.iter().flat_map(|p| &p.rew).copied().collect(),
        done,
        timeout: Some(timeout),
        episode: Some(parts.iter().flat_map(|p| &p.episode).copied().collect()),
        step: Some(parts.iter().flat_map(|p| &p.frame).copied().collect()),
        keys: FileKeys::of_arrays(&layout.obs[0], ACT, REW, ""),
        names: names(dir, &layout.obs, parts.first()),
        ignored: layout.ignored,
        notes: layout.notes,
        ..FileColumns::default()
    };
    assemble(columns, dir, Format::LEROBOT, options)
}

/// What `meta/info.json` calls the entries of each feature: a list of names, or one list under a word such as `motors`. Names
/// are an extra: what cannot be understood is left out.
fn names(dir: &Path, obs: &[String], frames: Option<&Frames>) -> ColumnNames {
    let info = fs::read(dir.join("meta/info.json")).ok();
    let info: Value = info.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let of = |key: &str, width: usize| -> Option<Vec<String>> {
        let names = &info["features"][key]["names"];
        let list = match names.as_object() {
            Some(lists) if lists.len() == 1 => lists.values().next()?.as_array()?,
            _ => names.as_array()?,
        };
        let names: Option<Vec<String>> = list.iter().map(|name| Some(name.as_str()?.to_string())).collect();
        names.filter(|names| names.len() == width)
    };
    let Some(frames) = frames else { return ColumnNames::default() };
    let parts: Vec<_> =
        obs.iter().zip(&frames.widths).map(|(key, &width)| (key, width, of(key, width))).collect();
    let act = of(ACT, frames.act.ncols()).unwrap_or_default();
    if parts.iter().all(|(.., names)| names.is_none()) {
        return ColumnNames { obs: Vec::new(), act };
    }
    let numbered = |key: &str, width: usize| {
        let word = key.rsplit('.').next().unwrap_or(key).to_string();
        (0..width).map(|i| format!("{word}_{i}")).collect()
    };
    let obs = parts.into_iter().flat_map(|(key, width, names)| names.unwrap_or_else(|| numbered(key, width)));
    ColumnNames { obs: obs.collect(), act }
}

/// Every Parquet file below `dir`, by path: the order of the frames.
fn parquet_files(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(dir).map_err(|e| Error::io(dir, "list", e))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            parquet_files(&path, found)?;
        } else if path.extension().is_some_and(|e| e == "parquet") {
            found.push(path);
        }
    }
    Ok(())
}

/// Which columns are read; decided on the first file.
struct FrameLayout {
    /// Parts of the observation, in order.
    obs: Vec<String>,
    /// The optional columns that are there.
    optional: Vec<&'static str>,
    ignored: Vec<String>,
    notes: Vec<String>,
}

impl FrameLayout {
    fn new(path: &Path, options: &ReadOptions) -> Result<Self> {
        let file = ParquetArrays::open(path, options)?;
        let has = |key: &str| file.keys().iter().any(|k| k == key);
        let states = file.number_keys().filter(|k| k.starts_with("observation.") && !k.contains('/'));
        let mut all: Vec<&str> = states.collect();
        all.sort_unstable();
        let obs: Vec<String> = match &options.minari_obs {
            Some(chosen) => chosen.clone(),
            None => all.iter().map(|key| key.to_string()).collect(),
        };
        if let Some(unknown) = obs.iter().find(|key| !all.contains(&key.as_str())) {
            let hint = "name columns that the observation has";
            return Err(Error::key(path, unknown, "a column of numbers", format!("{all:?}"), hint));
        }
        if obs.is_empty() {
            let hint = "only flat states can be read, no images";
            return Err(Error::key(path, "observation.state", "a column of numbers", "none", hint));
        }
        for key in [ACT, EPISODE, FRAME] {
            if !has(key) {
                return Err(missing(path, key, file.keys()));
            }
        }
        if !has(REW) && !options.zero_rewards {
            let hint = "add the column, or read it with zero rewards (--zero-rewards)";
            return Err(Error::key(
                path,
                REW,
                "a reward in each frame",
                "none, as in most demonstrations",
                hint,
            ));
        }
        let mut notes = vec![format!("observation = {}", obs.join(", "))];
        if !has(REW) {
            notes.push("no rewards in the files: all are 0, as asked".into());
        }
        if !has(DONE) {
            notes.push("no next.done in the files: no row is taken as terminal".into());
        }
        let optional: Vec<&str> =
            [REW, DONE, SUCCESS, TRUNCATED].into_iter().filter(|key| has(key)).collect();
        let is_read = |key: &&String| {
            let key = key.as_str();
            obs.iter().any(|o| o == key) || optional.contains(&key) || [ACT, EPISODE, FRAME].contains(&key)
        };
        let ignored = file.keys().iter().filter(|key| !is_read(key)).cloned().collect();
        Ok(Self { obs, optional, ignored, notes })
    }
}

/// The columns of one file.
struct Frames {
    obs: Mat,
    /// Of the observation's parts.
    widths: Vec<usize>,
    act: Mat,
    rew: Array1<f32>,
    done: Option<Array1<bool>>,
    success: Option<Array1<bool>>,
    truncated: Option<Array1<bool>>,
    episode: Vec<i64>,
    frame: Vec<i64>,
}

impl Frames {
    fn read(path: &Path, layout: &FrameLayout, options: &ReadOptions) -> Result<Self> {
        let file = ParquetArrays::open(path, options)?;
        let numbers = |key: &str| -> Result<Vec<i64>> {
            let column: Array1<f64> = file.array(key)?.column()?;
            Ok(column.iter().map(|&v| v as i64).collect())
        };
        let flags = |key: &str| -> Result<Option<Array1<bool>>> {
            let is_there = layout.optional.contains(&key);
            is_there.then(|| file.array(key)?.flags()).transpose()
        };
        let mut keys: Vec<&str> = layout.obs.iter().map(String::as_str).collect();
        keys.push(ACT);
        file.check_size(&keys)?;
        let act = file.array(ACT)?.flat_matrix()?;
        let mut parts = Vec::with_capacity(layout.obs.len());
        for key in &layout.obs {
            parts.push(file.array(key)?.flat_matrix()?);
        }
        let widths = parts.iter().map(|part| part.ncols()).collect();
        let views: Vec<_> = parts.iter().map(|part| part.view()).collect();
        let uneven =
            || Error::key(path, "observation", "as many rows in each column", "others", "get it again");
        let obs: Array2<f32> = concatenate(Axis(1), &views).map_err(|_| uneven())?;
        let rew = match layout.optional.contains(&REW) {
            true => file.array(REW)?.column()?,
            false => Array1::zeros(act.nrows()),
        };
        let (done, success, truncated) = (flags(DONE)?, flags(SUCCESS)?, flags(TRUNCATED)?);
        Ok(Self {
            obs,
            widths,
            act,
            rew,
            done,
            success,
            truncated,
            episode: numbers(EPISODE)?,
            frame: numbers(FRAME)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use ndarray::arr1;

    use super::super::parquet_arrays::write_plain;
    use super::*;

    type Column = (&'static str, Option<usize>, Vec<f32>);

    /// Frames of one episode from `start`: a state of two numbers, another of one, an action of one.
    fn frames(episode: f32, start: f32, count: usize, extra: Vec<Column>) -> Vec<Column> {
        let count_up = |from: f32| (0..count).map(move |i| from + i as f32);
        let mut columns: Vec<Column> = vec![
            ("observation.state", Some(2), count_up(start).flat_map(|v| [v, 0.5]).collect()),
            ("observation.environment_state", Some(1), count_up(-start).collect()),
            (ACT, Some(1), vec![0.25; count]),
            (EPISODE, None, vec![episode; count]),
            (FRAME, None, count_up(0.0).collect()),
        ];
        columns.extend(extra);
        columns
    }

    fn dataset(dir: &Path, files: &[(&str, Vec<Column>)]) {
        fs::create_dir_all(dir.join("meta")).unwrap();
        fs::write(dir.join("meta/info.json"), "{}").unwrap();
        for (name, columns) in files {
            let path = dir.join("data").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            write_plain(&path, columns);
        }
    }

    #[test]
    fn the_next_state_is_the_following_frame() {
        let dir = tempfile::tempdir().unwrap();
        let ended = |rewards: [f32; 3], success: f32| {
            vec![
                (REW, None, rewards.to_vec()),
                (DONE, None, vec![0.0, 0.0, 1.0]),
                (SUCCESS, None, vec![0.0, 0.0, success]),
            ]
        };
        dataset(
            dir.path(),
            &[
                ("chunk-001/file-000.parquet", frames(2.0, 50.0, 3, ended([0.0, 0.0, 0.0], 0.0))),
                ("chunk-000/file-000.parquet", frames(0.0, 10.0, 3, ended([0.0, 0.5, 1.0], 1.0))),
            ],
        );
        let data = super::super::read(dir.path(), &ReadOptions::default()).unwrap();
        assert_eq!((data.format, data.episodes.clone()), (Format::LEROBOT, vec![0..2, 2..4]));
        assert_eq!(data.rows.obs.row(0).to_vec(), [-10.0, 10.0, 0.5], "parts in alphabetical order");
        assert_eq!(data.rows.next_obs.row(1).to_vec(), [-8.0, 12.0, 0.5]);
        assert_eq!(data.rows.rew, arr1(&[0.0, 0.5, 0.0, 0.0]));
        assert_eq!(data.reading.dropped.iter().map(|(_, n)| n).sum::<usize>(), 2, "the last frame of each");
        assert_eq!(data.reading.notes[0], "observation = observation.environment_state, observation.state");
        // The frame at which an episode was solved is terminal, the one at which another just ended is not.
        let repeat =
            ReadOptions { terminal_next: crate::data::TerminalNext::Repeat, ..ReadOptions::default() };
        let data = super::super::read(dir.path(), &repeat).unwrap();
        assert_eq!(data.rows.done, arr1(&[false, false, true, false, false]));
        let state =
            ReadOptions { minari_obs: Some(vec!["observation.state".into()]), ..ReadOptions::default() };
        assert_eq!(super::super::read(dir.path(), &state).unwrap().rows.obs_dim(), 2);
    }

    #[test]
    fn names_come_from_the_description_of_the_features() {
        let dir = tempfile::tempdir().unwrap();
        dataset(dir.path(), &[("chunk-000/file-000.parquet", frames(0.0, 10.0, 4, Vec::new()))]);
        let zero = ReadOptions { zero_rewards: true, ..ReadOptions::default() };
        let read = || super::super::read(dir.path(), &zero).unwrap().names;
        assert!(read().is_empty());
        let info = r#"{"features": {"observation.state": {"names": {"motors": ["pan", "lift"]}}, "action": {"names": ["pan"]}}}"#;
        fs::write(dir.path().join("meta/info.json"), info).unwrap();
        assert_eq!(read().obs, ["environment_state_0", "pan", "lift"]);
        assert_eq!(read().act, ["pan"]);
        fs::write(dir.path().join("meta/info.json"), info.replace("\"lift\"", "7")).unwrap();
        assert!(read().obs.is_empty(), "other things than names are no names");
    }

    #[test]
    fn demonstrations_without_rewards_say_so() {
        let dir = tempfile::tempdir().unwrap();
        dataset(dir.path(), &[("chunk-000/episode_000000.parquet", frames(0.0, 10.0, 4, Vec::new()))]);
        let error = super::super::read(dir.path(), &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains("`next.reward`: wanted a reward in each frame, found none"), "{error}");
        assert!(error.contains("--zero-rewards") && !error.contains('\n'), "{error}");
        let zero = ReadOptions { zero_rewards: true, ..ReadOptions::default() };
        let data = super::super::read(dir.path(), &zero).unwrap();
        assert_eq!((data.rows.len(), data.rows.rew.sum()), (3, 0.0));
        fs::remove_dir_all(dir.path().join("data/chunk-000")).unwrap();
        let error = super::super::read(dir.path(), &zero).unwrap_err().to_string();
        assert!(error.contains("wanted Parquet files"), "{error}");
    }
}
