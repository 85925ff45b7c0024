//! D4RL's flat HDF5 file: `observations`, `actions`, `rewards`, `terminals`, `timeouts`, mostly `next_observations`,
//! `infos/*` and `metadata/*`. Keys are looked for, never assumed.

use std::collections::BTreeMap;
use std::path::Path;

use ndarray::{Array1, Array2};
use rayon::prelude::*;

use super::dataset::{Dataset, Format, SimColumns};
use super::hdf5::{Hdf5, show_shape, some_names};
use super::hdf5_write::{Values, Writer};
use super::options::ReadOptions;
use super::transitions::{Columns, Keys, assemble};
use super::unknown_columns::{self, Absent};
use crate::batch::Mat;
use crate::error::{Error, Result};
use crate::home::replace_atomic;

/// Names under which a column is found, the usual one first.
pub(super) const OBS: &[&str] = &["observations", "obs"];
pub(super) const ACT: &[&str] = &["actions", "act"];
pub(super) const REW: &[&str] = &["rewards", "rew"];
pub(super) const NEXT_OBS: &[&str] = &["next_observations", "next_obs"];
pub(super) const DONE: &[&str] = &["terminals", "terminations", "dones"];
pub(super) const TIMEOUT: &[&str] = &["timeouts", "truncations"];

const QPOS: &str = "infos/qpos";
const QVEL: &str = "infos/qvel";
const GOAL: &str = "infos/goal";

/// Reads an open D4RL file.
pub(super) fn read(file: &Hdf5, path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let find = |names: &[&'static str]| names.iter().copied().find(|n| file.has(n));
    let need = |names: &[&'static str]| find(names).ok_or_else(|| missing(path, names[0], file.names()));
    let (obs, act, rew, done) = (need(OBS)?, need(ACT)?, need(REW)?, need(DONE)?);
    let (next_obs, timeout) = (find(NEXT_OBS), find(TIMEOUT));
    let sim = file.has(QPOS) && file.has(QVEL);
    let goal = sim && file.has(GOAL);

    let mut jobs = vec![Job::Matrix(obs), Job::Matrix(act), Job::Column(rew), Job::Flags(done)];
    jobs.extend(next_obs.map(Job::Matrix));
    jobs.extend(timeout.map(Job::Flags));
    if sim {
        jobs.extend([Job::Wide(QPOS), Job::Wide(QVEL)]);
    }
    if goal {
        jobs.push(Job::Wide(GOAL));
    }
    check_rows(file, path, &jobs)?;

    let mut parts: Vec<Part> = jobs.par_iter().map(|job| job.run(path)).collect::<Result<_>>()?;
    let mut take = |key: &str| {
        let at = jobs.iter().position(|j| j.key() == key).expect("only keys that have a job are taken");
        std::mem::replace(&mut parts[at], Part::Taken)
    };
    let meta: BTreeMap<String, String> = file
        .names()
        .iter()
        .filter_map(|n| Some((n.strip_prefix("metadata/")?.to_string(), file.remark(n)?)))
        .collect();
    let used = |name: &str| {
        jobs.iter().any(|j| j.key() == name)
            || name.strip_prefix("metadata/").is_some_and(|n| meta.contains_key(n))
    };
    let ignored: Vec<String> = file.names().iter().filter(|n| !used(n)).cloned().collect();
    let columns = Columns {
        obs: take(obs).matrix(),
        act: take(act).matrix(),
        rew: take(rew).column(),
        next_obs: next_obs.map(|key| take(key).matrix()),
        done: take(done).flags(),
        timeout: timeout.map(|key| take(key).flags()),
        episode: None,
        step: None,
        sim: sim.then(|| SimColumns {
            qpos: take(QPOS).wide(),
            qvel: take(QVEL).wide(),
            goal: goal.then(|| take(GOAL).wide()),
        }),
        keys: Keys {
            obs: vec![obs.into()],
            act: vec![act.into()],
            rew: rew.into(),
            next_obs: vec![next_obs.unwrap_or_default().into()],
        },
        notes: unused_note(&ignored, next_obs, timeout),
        ignored,
        meta,
    };
    assemble(columns, path, Format::D4rl, options)
}

/// A note of keys that were not used, if there are any; these two may be there under a misspelt name.
pub(super) fn unused_note(ignored: &[String], next_obs: Option<&str>, timeout: Option<&str>) -> Vec<String> {
    let next = Absent { name: NEXT_OBS[0], known: NEXT_OBS, also: unknown_columns::NEXT_ALSO, parts: &[] };
    let limit = Absent {
        name: TIMEOUT[0],
        known: TIMEOUT,
        also: unknown_columns::TIMEOUT_ALSO,
        parts: &["timeout", "truncated"],
    };
    let roles = [(next_obs, next), (timeout, limit)];
    let absent: Vec<Absent> =
        roles.into_iter().filter(|(found, _)| found.is_none()).map(|(_, role)| role).collect();
    unknown_columns::note(ignored, &absent).into_iter().collect()
}

/// Writes `data` as a D4RL file: the keys and types D4RL has (f32 columns, h5py booleans, states as f64), with
/// `next_observations` always there and [`Dataset::meta`] as texts under `metadata/`. The same dataset gives the same
/// bytes. What it cannot hold: episode bounds that neither a flag nor a gap marks.
pub fn write_d4rl(data: &Dataset, path: &Path) -> Result<()> {
    replace_atomic(path, |temporary| {
        let writer = Writer::create(temporary, path)?;
        let matrix = |key: &str, m: &Mat| {
            let values = m.as_standard_layout();
            writer.put(key, Some(m.ncols()), Values::F32(values.as_slice().expect("standard layout")))
        };
        let wide = |key: &str, m: &Array2<f64>| {
            let values = m.as_standard_layout();
            writer.put(key, Some(m.ncols()), Values::F64(values.as_slice().expect("standard layout")))
        };
        let flags = |key: &str, f: &Array1<bool>| writer.put(key, None, Values::Bool(&f.to_vec()));
        matrix(OBS[0], &data.rows.obs)?;
        matrix(ACT[0], &data.rows.act)?;
        writer.put(REW[0], None, Values::F32(&data.rows.rew.to_vec()))?;
        matrix(NEXT_OBS[0], &data.rows.next_obs)?;
        flags(DONE[0], &data.rows.done)?;
        flags(TIMEOUT[0], &data.timeout)?;
        if let Some(sim) = &data.sim {
            writer.check(writer.file().create_group("infos"))?;
            wide(QPOS, &sim.qpos)?;
            wide(QVEL, &sim.qvel)?;
            if let Some(goal) = &sim.goal {
                wide(GOAL, goal)?;
            }
        }
        writer.texts("metadata", &data.meta)?;
        writer.close()
    })
}

/// One column to be read; columns are read side by side, each through a handle of its own.
enum Job {
    Matrix(&'static str),
    Wide(&'static str),
    Column(&'static str),
    Flags(&'static str),
}

enum Part {
    Matrix(Mat),
    Wide(Array2<f64>),
    Column(Array1<f32>),
    Flags(Array1<bool>),
    Taken,
}

impl Job {
    fn key(&self) -> &'static str {
        match self {
            Self::Matrix(key) | Self::Wide(key) | Self::Column(key) | Self::Flags(key) => key,
        }
    }

    fn run(&self, path: &Path) -> Result<Part> {
        let file = Hdf5::open(path)?;
        Ok(match self {
            Self::Matrix(key) => Part::Matrix(file.matrix(key)?),
            Self::Wide(key) => Part::Wide(file.wide_matrix(key)?),
            Self::Column(key) => Part::Column(file.column(key)?),
            Self::Flags(key) => Part::Flags(file.flags(key)?),
        })
    }
}

impl Part {
    fn matrix(self) -> Mat {
        match self {
            Self::Matrix(m) => m,
            _ => unreachable!("a matrix job gives a matrix"),
        }
    }

    fn wide(self) -> Array2<f64> {
        match self {
            Self::Wide(m) => m,
            _ => unreachable!("a wide job gives a wide matrix"),
        }
    }

    fn column(self) -> Array1<f32> {
        match self {
            Self::Column(c) => c,
            _ => unreachable!("a column job gives a column"),
        }
    }

    fn flags(self) -> Array1<bool> {
        match self {
            Self::Flags(f) => f,
            _ => unreachable!("a flags job gives flags"),
        }
    }
}

/// All columns have as many rows as the observations: checked on shapes, before anything is read.
fn check_rows(file: &Hdf5, path: &Path, jobs: &[Job]) -> Result<()> {
    let first = jobs[0].key();
    let rows = file.shape(first)?.first().copied().unwrap_or(0);
    for job in jobs {
        let shape = file.shape(job.key())?;
        if shape.first().copied().unwrap_or(0) != rows {
            return Err(Error::key(
                path,
                job.key(),
                format!("{rows} rows, as in `{first}`"),
                format!("shape {}", show_shape(&shape)),
                "the file is incomplete or was put together wrongly: get it again",
            ));
        }
    }
    Ok(())
}

/// A column the layout cannot do without.
pub(super) fn missing(path: &Path, key: &str, names: &[String]) -> Error {
    Error::key(
        path,
        key,
        "this key, as in D4RL's files",
        some_names(names),
        "rename the keys or give the right file",
    )
}
