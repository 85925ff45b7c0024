//! D4RL's flat HDF5 file: `observations`, `actions`, `rewards`, `terminals`, `timeouts`, mostly `next_observations`,
//! `infos/*` and `metadata/*`. Each key is optional until a reader needs it. npz archives share the keys.

use std::collections::HashMap;
use std::path::Path;

use rayon::prelude::*;

use super::super::dataset::{Dataset, SimColumns};
use super::super::messages::some_names;
use super::super::options::ReadOptions;
use super::super::transitions::{FileColumns, FileKeys, assemble};
use super::super::unknown_columns::{self, Absent};
use super::arrays::{OutArray, StoredArray};
use super::hdf5::{Hdf5, SIGNATURE};
use super::hdf5_write::Hdf5Writer;
use super::{Candidate, Format, row_number};
use crate::error::{Error, Result};
use crate::home::replace_atomic;

impl Format {
    /// D4RL's flat HDF5 file.
    pub const D4RL: Self = Self {
        name: "d4rl",
        title: "D4RL HDF5",
        extensions: &["hdf5", "h5"],
        is_table: false,
        recognises: |candidate| candidate.starts_with(SIGNATURE),
        read,
        write: Some(write),
        row_place: row_number,
    };
}

// Names under which a column is found, the usual one first.
const OBS: &[&str] = &["observations", "obs"];
const ACT: &[&str] = &["actions", "act"];
const REW: &[&str] = &["rewards", "rew"];
const NEXT_OBS: &[&str] = &["next_observations", "next_obs"];
const DONE: &[&str] = &["terminals", "terminations", "dones"];
const TIMEOUT: &[&str] = &["timeouts", "truncations"];
/// The keys of [`SimColumns`].
const SIM: [&str; 3] = ["infos/qpos", "infos/qvel", "infos/goal"];

/// The keys of simulator states in a file with these names: none without both positions and velocities.
pub(super) fn sim_keys(has: impl Fn(&str) -> bool) -> &'static [&'static str] {
    let count = SIM.iter().take_while(|key| has(key)).count();
    const KEYS: &[&str] = &SIM;
    if count < 2 { &[] } else { &KEYS[..count] }
}

fn read(candidate: Candidate, options: &ReadOptions) -> Result<Dataset> {
    let path = candidate.path;
    let file = candidate.into_hdf5()?;
    // Columns are read side by side, each through a handle of its own.
    let fits = |keys: &[&str]| file.check_size(keys, options);
    let mut columns = read_keyed(path, file.names(), fits, |key| Hdf5::reopen(path)?.array(key))?;
    let remark = |name: &String| Some((name.strip_prefix("metadata/")?.to_string(), file.remark(name)?));
    columns.meta = file.names().iter().filter_map(remark).collect();
    let meta = &columns.meta;
    columns.ignored.retain(|name| name.strip_prefix("metadata/").is_none_or(|n| !meta.contains_key(n)));
    assemble(columns, path, Format::D4RL, options)
}

/// The columns of a file of named arrays, found by D4RL's keys. `fits` sees the keys to be read; then several threads call
/// `load`, once for each array.
pub(super) fn read_keyed<'a>(
    path: &Path,
    names: &[String],
    fits: impl FnOnce(&[&str]) -> Result<()>,
    load: impl Fn(&'static str) -> Result<StoredArray<'a>> + Sync,
) -> Result<FileColumns> {
    let find = |keys: &[&'static str]| keys.iter().copied().find(|k| names.iter().any(|n| n == k));
    let need = |keys: &[&'static str]| find(keys).ok_or_else(|| missing(path, keys[0], names));
    let (obs, act, rew, done) = (need(OBS)?, need(ACT)?, need(REW)?, need(DONE)?);
    let (next_obs, timeout) = (find(NEXT_OBS), find(TIMEOUT));
    let sim = sim_keys(|key| names.iter().any(|n| n == key));

    let mut used = vec![obs, act, rew, done];
    used.extend(next_obs.into_iter().chain(timeout).chain(sim.iter().copied()));
    fits(&used)?;
    let mut arrays: HashMap<&str, StoredArray> =
        used.par_iter().map(|&key| Ok((key, load(key)?))).collect::<Result<_>>()?;
    let mut take = |key: &str| arrays.remove(key).expect("every key in use was loaded");

    let sim = sim.iter().map(|key| take(key).matrix()).collect::<Result<Vec<_>>>()?;
    let ignored: Vec<String> = names.iter().filter(|n| !used.contains(&n.as_str())).cloned().collect();
    Ok(FileColumns {
        obs: take(obs).matrix()?,
        act: take(act).matrix()?,
        rew: take(rew).column()?,
        next_obs: next_obs.map(|key| take(key).matrix()).transpose()?,
        done: take(done).flags()?,
        timeout: timeout.map(|key| take(key).flags()).transpose()?,
        sim: SimColumns::from_columns(sim),
        keys: FileKeys::of_arrays(obs, act, rew, next_obs.unwrap_or_default()),
        notes: unused_note(&ignored, next_obs.is_none(), timeout.is_none()),
        ignored,
        ..FileColumns::default()
    })
}

/// A note of the keys that nothing reads, if there are any. The absent columns may be there under a misspelt name.
fn unused_note(ignored: &[String], no_next_obs: bool, no_timeout: bool) -> Vec<String> {
    let next = Absent { name: NEXT_OBS[0], known: NEXT_OBS, also: unknown_columns::NEXT_ALSO, parts: &[] };
    let limit = Absent {
        name: TIMEOUT[0],
        known: TIMEOUT,
        also: unknown_columns::TIMEOUT_ALSO,
        parts: &["timeout", "truncated"],
    };
    let absent: Vec<Absent> =
        no_next_obs.then_some(next).into_iter().chain(no_timeout.then_some(limit)).collect();
    unknown_columns::note(ignored, &absent).into_iter().collect()
}

/// Writes `data` as a D4RL file: the keys and types D4RL has (f32 columns, h5py booleans, states as f64), always with
/// `next_observations`, and [`Dataset::meta`] as texts under `metadata/`. The same dataset gives the same bytes.
/// The format cannot hold episode bounds that neither a flag nor a gap marks.
fn write(data: &Dataset, path: &Path) -> Result<()> {
    replace_atomic(path, |temporary| {
        let writer = Hdf5Writer::create(temporary, path)?;
        for (key, array) in keyed_arrays(data) {
            writer.put(key, array)?;
        }
        writer.texts("metadata", &data.names.added_to(&data.meta))?;
        writer.close()
    })
}

/// The arrays of a dataset under D4RL's keys.
pub(super) fn keyed_arrays(data: &Dataset) -> Vec<(&'static str, OutArray<'_>)> {
    let rows = &data.rows;
    let mut arrays = vec![
        (OBS[0], rows.obs.view().into()),
        (ACT[0], rows.act.view().into()),
        (REW[0], rows.rew.view().into()),
        (NEXT_OBS[0], rows.next_obs.view().into()),
        (DONE[0], rows.done.view().into()),
        (TIMEOUT[0], data.timeout.view().into()),
    ];
    arrays.extend(sim_arrays(data));
    arrays
}

/// The simulator states of a dataset under D4RL's keys.
pub(super) fn sim_arrays(data: &Dataset) -> impl Iterator<Item = (&'static str, OutArray<'_>)> {
    let sim = data.sim.iter().flat_map(|sim| sim.columns());
    SIM.into_iter().zip(sim).map(|(key, (_, column))| (key, column.view().into()))
}

/// A column the layout cannot do without.
pub(super) fn missing<S: AsRef<str>>(path: &Path, key: &str, names: &[S]) -> Error {
    let hint = "rename the keys or give the right file";
    Error::key(path, key, "this key, as in D4RL's files", some_names(names), hint)
}
