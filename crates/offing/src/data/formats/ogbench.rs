//! OGBench's npz archives: `observations`, `actions`, `terminals`, and in single-task sets `rewards` and `masks`.
//!
//! `terminals` end trajectories, not the task: they are time limits. `masks` are 0 where the task ended. Without
//! `next_observations` the last row of a trajectory holds its final observation and no step: `valids` are 0 there
//! (OGBench's compact form, where `terminals` mark the step before it as well), or `terminals` are 1 (its files as
//! published).

use std::collections::HashMap;
use std::path::Path;

use ndarray::{Array1, Axis};
use rayon::prelude::*;

use super::super::checks::check_lengths;
use super::super::dataset::{Dataset, SimColumns};
use super::super::options::ReadOptions;
use super::super::transitions::{FileColumns, FileKeys, assemble};
use super::super::unknown_columns;
use super::arrays::StoredArray;
use super::{Format, npz, row_number};
use crate::error::{Error, Result};

impl Format {
    /// OGBench's npz archive; read only.
    pub const OGBENCH: Self = Self {
        name: "ogbench",
        title: "OGBench npz",
        extensions: &["npz"],
        is_table: false,
        recognises: |candidate| npz::has_keys(candidate, is_ogbench),
        read: |candidate, options| read(candidate.path, options),
        write: None,
        row_place: row_number,
    };
}

const OBS: &str = "observations";
const ACT: &str = "actions";
const REW: &str = "rewards";
const NEXT_OBS: &str = "next_observations";
const TERMINALS: &str = "terminals";
const MASKS: &str = "masks";
const VALIDS: &str = "valids";
/// The keys of [`SimColumns`].
const SIM: [&str; 2] = ["qpos", "qvel"];

/// An archive with D4RL's keys has rewards and no masks.
fn is_ogbench(names: &[String]) -> bool {
    let has = |key: &str| names.iter().any(|name| name == key);
    [OBS, ACT, TERMINALS].into_iter().all(has) && !has("timeouts") && (has(MASKS) || has(VALIDS) || !has(REW))
}

fn read(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let names = npz::names(path)?;
    let has = |key: &&str| names.iter().any(|name| name == key);
    if !has(&REW) && !options.zero_rewards {
        let wanted = "rewards, as OGBench's singletask sets have";
        let hint = "save what ogbench.make_env_and_datasets(\"…-singletask-…\") returns with np.savez, \
                    or read it with zero rewards (--zero-rewards)";
        return Err(Error::key(path, REW, wanted, "none", hint));
    }
    let sim = if SIM.iter().all(&has) { &SIM[..] } else { &[] };
    let optional = [REW, NEXT_OBS, MASKS, VALIDS].into_iter().filter(has);
    let used: Vec<&str> =
        [OBS, ACT, TERMINALS].into_iter().chain(optional).chain(sim.iter().copied()).collect();
    npz::check_size(path, &used, options)?;
    let mut arrays: HashMap<&str, StoredArray> =
        used.par_iter().map(|&key| Ok((key, npz::load(path, key)?))).collect::<Result<_>>()?;
    let mut take = |key: &str| arrays.remove(key);
    const LOADED: &str = "what an archive of this kind has was loaded";
    let obs = take(OBS).expect(LOADED).matrix()?;
    let act = take(ACT).expect(LOADED).matrix()?;
    let ends: Array1<bool> = take(TERMINALS).expect(LOADED).flags()?;
    let rows = ends.len();
    let rew = take(REW).map_or_else(|| Ok(Array1::zeros(rows)), StoredArray::column)?;
    let goes_on = take(MASKS).map(StoredArray::flags).transpose()?;
    let valid = take(VALIDS).map(StoredArray::flags).transpose()?;
    let next_obs = take(NEXT_OBS).map(StoredArray::matrix).transpose()?;
    let sim = sim.iter().filter_map(|key| take(key)).map(StoredArray::matrix).collect::<Result<Vec<_>>>()?;

    let mut notes =
        vec!["terminals end trajectories, not the task: they are taken as time limits".to_string()];
    if options.zero_rewards && !has(&REW) {
        notes.push("no rewards in the file: all are 0, as asked".into());
    }
    if goes_on.is_none() {
        notes.push("no masks in the file: no row is taken as terminal".into());
    }
    let ignored: Vec<String> = names.iter().filter(|n| !used.contains(&n.as_str())).cloned().collect();
    notes.extend(unknown_columns::note(&ignored, &[]));
    // The last rows of trajectories: those of steps, or those of final observations.
    let last = match valid.filter(|_| next_obs.is_none()) {
        Some(valid) => valid.map(|&valid| !valid),
        None => ends,
    };
    let columns = FileColumns {
        obs,
        act,
        rew,
        next_obs,
        done: goes_on.map_or_else(|| Array1::from_elem(rows, false), |mask| mask.map(|&goes_on| !goes_on)),
        timeout: Some(last),
        sim: SimColumns::from_columns(sim),
        keys: FileKeys::of_arrays(OBS, ACT, REW, NEXT_OBS),
        notes,
        ignored,
        ..FileColumns::default()
    };
    check_lengths(&columns, path)?;
    let columns = if columns.next_obs.is_some() { columns } else { steps(columns) };
    assemble(columns, path, Format::OGBENCH, options)
}

/// The steps of a file whose trajectories end with a row that is only an observation.
fn steps(columns: FileColumns) -> FileColumns {
    let FileColumns { obs, act, rew, done, timeout, sim, mut notes, .. } = columns;
    let is_final = timeout.expect("final observations are marked");
    let n = is_final.len();
    let rows: Vec<usize> = (0..n - 1).filter(|&i| !is_final[i]).collect();
    let following: Vec<usize> = rows.iter().map(|&i| i + 1).collect();
    let finals = is_final.iter().filter(|&&f| f).count();
    notes.push(format!("{finals} rows are final observations of trajectories, not steps"));
    if !is_final[n - 1] {
        notes.push("the last row is left out: its next observation is not in the file".into());
    }
    let before = is_final.iter().scan(0, |count, &f| Some(std::mem::replace(count, *count + i64::from(f))));
    let number: Vec<i64> = before.collect();
    FileColumns {
        next_obs: Some(obs.select(Axis(0), &following)),
        obs: obs.select(Axis(0), &rows),
        act: act.select(Axis(0), &rows),
        rew: rew.select(Axis(0), &rows),
        done: done.select(Axis(0), &rows),
        timeout: Some(is_final.select(Axis(0), &following)),
        episode: Some(rows.iter().map(|&i| number[i]).collect()),
        sim: sim.map(|sim| sim.select(&rows)),
        notes,
        keys: columns.keys,
        names: columns.names,
        ignored: columns.ignored,
        ..FileColumns::default()
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, arr1, array};

    use super::super::npz::write_plain;
    use super::*;

    /// Two trajectories of two steps and a final observation each; the task ends with the third step.
    const OBS_ROWS: [f32; 6] = [0.0, 1.0, 2.0, 10.0, 11.0, 12.0];

    fn read_as(path: &Path, zero_rewards: bool) -> Result<Dataset> {
        super::super::read(path, &ReadOptions { zero_rewards, ..ReadOptions::default() })
    }

    /// An archive of observations, actions and the given columns.
    fn file(path: &Path, obs: &[f32], columns: &[(&'static str, &[f32])]) {
        let n = obs.len();
        let mut arrays = vec![
            (OBS, arr1(obs).insert_axis(Axis(1)).into_dyn()),
            (ACT, Array2::from_elem((n, 2), 0.5).into_dyn()),
        ];
        arrays.extend(columns.iter().map(|(key, values)| (*key, arr1(values).into_dyn())));
        write_plain(path, &arrays);
    }

    fn check(data: &Dataset) {
        assert_eq!(data.format, Format::OGBENCH);
        assert_eq!(data.rows.obs, array![[0.0], [1.0], [10.0], [11.0]]);
        assert_eq!(data.rows.next_obs, array![[1.0], [2.0], [11.0], [12.0]]);
        assert_eq!(data.episodes, [0..2, 2..4]);
        assert_eq!(data.timeout, arr1(&[false, true, false, true]));
    }

    #[test]
    fn the_compact_form_leaves_final_observations_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cube-compact.npz");
        file(
            &path,
            &OBS_ROWS,
            &[
                (TERMINALS, &[0.0, 1.0, 1.0, 0.0, 1.0, 1.0]),
                (VALIDS, &[1.0, 1.0, 0.0, 1.0, 1.0, 0.0]),
                (MASKS, &[1.0, 1.0, 1.0, 0.0, 1.0, 1.0]),
                (REW, &[-1.0, -1.0, -1.0, 0.0, -1.0, -1.0]),
            ],
        );
        let data = read_as(&path, false).unwrap();
        check(&data);
        assert_eq!(
            data.rows.done,
            arr1(&[false, false, true, false]),
            "the mask ends the task, no terminal does"
        );
        assert_eq!(data.rows.rew, arr1(&[-1.0, -1.0, 0.0, -1.0]));
    }

    #[test]
    fn the_regular_form_has_next_observations() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cube.npz");
        file(
            &path,
            &[0.0, 1.0, 10.0, 11.0],
            &[
                (NEXT_OBS, &[1.0, 2.0, 11.0, 12.0]),
                (TERMINALS, &[0.0, 1.0, 0.0, 1.0]),
                (MASKS, &[1.0, 1.0, 0.0, 1.0]),
                (REW, &[-1.0, -1.0, 0.0, -1.0]),
            ],
        );
        let data = read_as(&path, false).unwrap();
        check(&data);
        assert_eq!(data.rows.done, arr1(&[false, false, true, false]));
    }

    #[test]
    fn published_files_have_no_rewards() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("antmaze-giant-play-v0.npz");
        file(&path, &OBS_ROWS, &[(TERMINALS, &[0.0, 0.0, 1.0, 0.0, 0.0, 1.0])]);
        let error = read_as(&path, false).unwrap_err().to_string();
        assert!(
            error.contains("`rewards`: wanted rewards, as OGBench's singletask sets have, found none"),
            "{error}"
        );
        assert!(error.contains("--zero-rewards") && !error.contains('\n'), "{error}");
        let data = read_as(&path, true).unwrap();
        check(&data);
        assert_eq!((data.rows.rew.sum(), data.rows.done.iter().any(|&d| d)), (0.0, false));
        assert!(data.reading.notes.iter().any(|note| note.contains("2 rows are final observations")));
    }

    #[test]
    fn a_column_of_another_length_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        file(&path, &OBS_ROWS, &[(TERMINALS, &[0.0; 6]), (VALIDS, &[1.0; 5]), (REW, &[0.0; 6])]);
        let error = read_as(&path, false).unwrap_err().to_string();
        assert!(error.contains("wanted 6 rows, as in `observations`, found 5"), "{error}");
    }
}
