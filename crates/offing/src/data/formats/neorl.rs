//! NeoRL's and NeoRL-2's npz archives: `obs`, `action`, `next_obs`, `reward`, `done` and either `truncated` (NeoRL-2) or
//! `index`, the first rows of the episodes (NeoRL).
//!
//! `done` ends the task, `truncated` is a time limit. With `index` alone, an episode that ends without `done` was cut by
//! its time limit.

use std::collections::HashMap;
use std::path::Path;

use ndarray::Array1;
use rayon::prelude::*;

use super::super::dataset::{Dataset, SimColumns};
use super::super::options::ReadOptions;
use super::super::transitions::{FileColumns, FileKeys, assemble};
use super::super::unknown_columns;
use super::arrays::StoredArray;
use super::d4rl::{sim_arrays, sim_keys};
use super::{Format, npz, row_number};
use crate::error::{Error, Result};

impl Format {
    /// NeoRL's npz archive.
    pub const NEORL: Self = Self {
        name: "neorl",
        title: "NeoRL npz",
        extensions: &["npz"],
        is_table: false,
        recognises: |candidate| npz::has_keys(candidate, |names| KEYS.iter().all(|key| has(names, key))),
        read: |candidate, options| read(candidate.path, options),
        write: Some(write),
        row_place: row_number,
    };
}

const OBS: &str = "obs";
const ACT: &str = "action";
const NEXT_OBS: &str = "next_obs";
const REW: &str = "reward";
const DONE: &str = "done";
const TRUNCATED: &str = "truncated";
const INDEX: &str = "index";

/// What every file has. D4RL's readers know neither `action` nor `reward`.
const KEYS: [&str; 5] = [OBS, ACT, NEXT_OBS, REW, DONE];

fn has(names: &[String], key: &str) -> bool {
    names.iter().any(|name| name == key)
}

fn read(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let names = npz::names(path)?;
    let optional = [TRUNCATED, INDEX].into_iter().filter(|key| has(&names, key));
    let sim = sim_keys(|key| has(&names, key));
    let used: Vec<&str> = KEYS.into_iter().chain(optional).chain(sim.iter().copied()).collect();
    npz::check_size(path, &used, options)?;
    let mut arrays: HashMap<&str, StoredArray> =
        used.par_iter().map(|&key| Ok((key, npz::load(path, key)?))).collect::<Result<_>>()?;
    let mut take = |key: &str| arrays.remove(key).expect("every key that is there was loaded");

    let done: Array1<bool> = take(DONE).flags()?;
    let (mut truncated, mut episode) = (None, None);
    if has(&names, TRUNCATED) {
        truncated = Some(take(TRUNCATED).flags()?);
    }
    if has(&names, INDEX) {
        let starts = starts(path, take(INDEX), done.len())?;
        truncated.get_or_insert_with(|| cut_before(&starts, &done));
        episode = Some(numbers(&starts, done.len()));
    }
    let sim = sim.iter().map(|key| take(key).matrix()).collect::<Result<Vec<_>>>()?;
    let ignored: Vec<String> = names.iter().filter(|n| !used.contains(&n.as_str())).cloned().collect();
    let columns = FileColumns {
        obs: take(OBS).matrix()?,
        act: take(ACT).matrix()?,
        rew: take(REW).column()?,
        next_obs: Some(take(NEXT_OBS).matrix()?),
        done,
        timeout: truncated,
        episode,
        sim: SimColumns::from_columns(sim),
        keys: FileKeys::of_arrays(OBS, ACT, REW, NEXT_OBS),
        notes: unknown_columns::note(&ignored, &[]).into_iter().collect(),
        ignored,
        ..FileColumns::default()
    };
    assemble(columns, path, Format::NEORL, options)
}

/// The first rows of the episodes, which must begin at 0 and rise.
fn starts(path: &Path, index: StoredArray, rows: usize) -> Result<Vec<usize>> {
    let index: Array1<f64> = index.column()?;
    let is_row = |v: &f64| v.fract() == 0.0 && (0.0..rows as f64).contains(v);
    let rises = index.windows(2).into_iter().all(|pair| pair[0] < pair[1]);
    if index.first() != Some(&0.0) || !rises || !index.iter().all(is_row) {
        let wanted = format!("rising row numbers from 0 to below {rows}, the first rows of the episodes");
        let hint = "the file was put together wrongly: get it again";
        return Err(Error::key(path, INDEX, wanted, "others", hint));
    }
    Ok(index.iter().map(|&v| v as usize).collect())
}

/// The number of the episode of every row.
fn numbers(starts: &[usize], rows: usize) -> Vec<i64> {
    let lengths = starts.iter().zip(starts.iter().skip(1).chain([&rows])).map(|(start, end)| end - start);
    lengths.enumerate().flat_map(|(number, length)| std::iter::repeat_n(number as i64, length)).collect()
}

/// The last rows of episodes that did not end by themselves.
fn cut_before(starts: &[usize], done: &Array1<bool>) -> Array1<bool> {
    let mut cut = Array1::from_elem(done.len(), false);
    for end in starts.iter().skip(1).chain([&done.len()]) {
        cut[end - 1] = !done[end - 1];
    }
    cut
}

/// Writes `data` with NeoRL-2's keys and types (all float32; simulator states, which NeoRL has no keys for, under D4RL's).
/// It cannot hold [`Dataset::meta`].
fn write(data: &Dataset, path: &Path) -> Result<()> {
    let rows = &data.rows;
    let number = |&flag: &bool| f32::from(flag);
    let (done, truncated) = (rows.done.map(number), data.timeout.map(number));
    let mut arrays = vec![
        (OBS, rows.obs.view().into()),
        (ACT, rows.act.view().into()),
        (NEXT_OBS, rows.next_obs.view().into()),
        (REW, rows.rew.view().into()),
        (DONE, done.view().into()),
        (TRUNCATED, truncated.view().into()),
    ];
    arrays.extend(sim_arrays(data));
    npz::write_archive(path, &arrays)
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, ArrayD, arr1, array};

    use super::super::super::audit::audit;
    use super::super::npz::write_plain;
    use super::*;

    /// Three episodes of two steps on a line, the second ended by itself.
    fn file(path: &Path, reward: ArrayD<f32>, extra: Option<(&'static str, &[f32])>) {
        let obs = array![[0.0f32], [1.0], [10.0], [11.0], [20.0], [21.0]];
        let mut arrays = vec![
            (NEXT_OBS, (&obs + 1.0).into_dyn()),
            (OBS, obs.into_dyn()),
            (ACT, Array2::from_elem((6, 2), 0.5).into_dyn()),
            (REW, reward),
            (DONE, arr1(&[0.0, 0.0, 0.0, 1.0, 0.0, 0.0]).into_dyn()),
        ];
        arrays.extend(extra.map(|(key, values)| (key, arr1(values).into_dyn())));
        write_plain(path, &arrays);
    }

    fn read_any(path: &Path) -> Result<Dataset> {
        super::super::read(path, &ReadOptions::default())
    }

    #[test]
    fn done_ends_the_task_and_truncated_the_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("DMSD-train.npz");
        let reward = array![[1.0f32], [2.0], [3.0], [4.0], [5.0], [6.0]];
        file(&path, reward.into_dyn(), Some((TRUNCATED, &[0.0, 1.0, 0.0, 0.0, 0.0, 1.0])));
        let data = read_any(&path).unwrap();
        assert_eq!((data.format, data.name.as_str()), (Format::NEORL, "DMSD-train"));
        assert_eq!(data.episodes, [0..2, 2..4, 4..6]);
        assert_eq!(data.rows.rew, arr1(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        assert_eq!(data.rows.done, arr1(&[false, false, false, true, false, false]));
        assert_eq!(data.timeout, arr1(&[false, true, false, false, false, true]));
        assert_eq!(data.reading.notes, Vec::<String>::new());
        let found = audit(&data, None);
        assert_eq!(found.episode_return.unwrap().mean, 7.0);
        assert_eq!((found.terminals, found.timeouts), (1, 2));
    }

    #[test]
    fn an_older_file_counts_its_episodes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        let with_index = |index: &[f32]| file(&path, arr1(&[1.0; 6]).into_dyn(), Some((INDEX, index)));
        with_index(&[0.0, 2.0, 4.0]);
        let data = read_any(&path).unwrap();
        assert_eq!(data.episodes, [0..2, 2..4, 4..6]);
        assert_eq!(
            data.timeout,
            arr1(&[false, true, false, false, false, true]),
            "the second ended by itself"
        );
        for wrong in [[0.0f32, 4.0, 2.0], [1.0, 2.0, 4.0], [0.0, 2.0, 6.0], [0.0, 2.5, 4.0]] {
            with_index(&wrong);
            let error = read_any(&path).unwrap_err().to_string();
            assert!(error.contains("`index`: wanted rising row numbers from 0 to below 6"), "{error}");
        }
    }

    #[test]
    fn nothing_that_ends_an_episode_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        file(&path, arr1(&[1.0; 6]).into_dyn(), None);
        let data = read_any(&path).unwrap();
        assert_eq!(data.episodes, [0..2, 2..4, 4..6], "found where the next state is not the following one");
        assert!(data.reading.notes[0].starts_with("no timeouts in the file"), "{:?}", data.reading.notes);
    }
}
