//! robomimic's HDF5 files: `data/demo_12/{obs/*, next_obs/*, actions, rewards, dones}`, a group for each demonstration.
//!
//! Observations are a dictionary: its flat parts of floating-point numbers are joined in alphabetical order (images and
//! integers are left out), or those that [`ReadOptions::minari_obs`] names, in its order.
//!
//! `dones` are 1 where the task is solved, and, as robomimic's extraction script may be told (`--done_mode` 1 and 2), in
//! the last row of every demonstration. So a `done` in a last row without a reward only ends the recording and is taken
//! as a time limit; every other one is a terminal. A demonstration may go on after the task is solved.

use std::collections::BTreeMap;
use std::path::Path;

use ndarray::{Array1, Axis, concatenate};

use super::super::dataset::Dataset;
use super::super::memory::check_fits;
use super::super::options::ReadOptions;
use super::super::transitions::{FileColumns, FileKeys, assemble};
use super::arrays::stacked;
use super::d4rl::missing;
use super::hdf5::Hdf5;
use super::{Candidate, Format, row_number};
use crate::batch::Mat;
use crate::error::{Error, Result};

impl Format {
    /// robomimic's HDF5 file; read only.
    pub const ROBOMIMIC: Self = Self {
        name: "robomimic",
        title: "robomimic HDF5",
        extensions: &["hdf5", "h5"],
        is_table: false,
        recognises: |candidate| candidate.has_hdf5(|name| demo_key(name).is_some()),
        read,
        write: None,
        row_place: row_number,
    };
}

const ACT: &str = "actions";
const REW: &str = "rewards";
const DONES: &str = "dones";

/// `data/demo_12/obs/object` is 12 and `obs/object`.
fn demo_key(name: &str) -> Option<(u64, &str)> {
    let (number, key) = name.strip_prefix("data/demo_")?.split_once('/')?;
    Some((number.parse().ok()?, key))
}

fn read(candidate: Candidate, options: &ReadOptions) -> Result<Dataset> {
    let path = candidate.path;
    let file = candidate.into_hdf5()?;
    let mut keys_of: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (number, key) in file.names().iter().filter_map(|name| demo_key(name)) {
        keys_of.entry(number).or_default().push(key);
    }
    let Some((&first, keys)) = keys_of.first_key_value() else {
        return Err(missing(path, "data/demo_0/actions", file.names()));
    };
    let mut layout = DemoLayout::new(&file, path, first, keys, options)?;
    let mut columns = FileColumns {
        keys: FileKeys::of_arrays("obs", ACT, REW, "next_obs"),
        ignored: layout.ignored(&file),
        notes: std::mem::take(&mut layout.notes),
        ..FileColumns::default()
    };
    let (mut demos, mut unsolved) = (Vec::with_capacity(keys_of.len()), 0);
    for &number in keys_of.keys() {
        let demo = Demo::read(&file, path, &layout, number)?;
        if demos.is_empty() {
            let width = 3 * demo.obs.ncols() + 2 * demo.act.ncols();
            let mut rows = 0u64;
            for number in keys_of.keys() {
                rows = rows.saturating_add(file.rows(&format!("data/demo_{number}/{ACT}"))?);
            }
            check_fits(path, rows.saturating_mul(4 * width as u64), options)?;
        }
        unsolved += usize::from(demo.ended_unsolved);
        demos.push(demo);
    }
    if unsolved > 0 {
        columns.notes.push(format!(
            "{unsolved} demonstrations end with a `done` without a reward: taken as time limits, not terminals"
        ));
    }
    columns.obs = stacked(path, "obs", demos.iter().map(|demo| &demo.obs))?;
    columns.act = stacked(path, ACT, demos.iter().map(|demo| &demo.act))?;
    if layout.has_next {
        let next_obs = demos.iter().filter_map(|demo| demo.next_obs.as_ref());
        columns.next_obs = Some(stacked(path, "next_obs", next_obs)?);
    }
    columns.rew = demos.iter().flat_map(|demo| &demo.rew).copied().collect();
    columns.done = demos.iter().flat_map(|demo| &demo.done).copied().collect();
    columns.timeout = Some(demos.iter().flat_map(|demo| &demo.timeout).copied().collect());
    let numbers = demos.iter().zip(keys_of.keys());
    columns.episode =
        Some(numbers.flat_map(|(demo, &number)| demo.rew.iter().map(move |_| number as i64)).collect());
    assemble(columns, path, Format::ROBOMIMIC, options)
}

/// Which datasets of a demonstration are read; decided on the first one.
struct DemoLayout {
    /// Parts of the observation, in order.
    obs: Vec<String>,
    has_next: bool,
    has_rewards: bool,
    has_dones: bool,
    notes: Vec<String>,
}

impl DemoLayout {
    fn new(file: &Hdf5, path: &Path, number: u64, keys: &[&str], options: &ReadOptions) -> Result<Self> {
        let all: Vec<&str> = keys.iter().filter_map(|key| key.strip_prefix("obs/")).collect();
        let full = |part: &str| format!("data/demo_{number}/obs/{part}");
        if all.is_empty() {
            let hint = "extract observations with robomimic's dataset_states_to_obs.py";
            let wanted = "observations in each demonstration";
            return Err(Error::key(path, full("…"), wanted, "states and actions alone", hint));
        }
        let mut obs: Vec<String> = Vec::new();
        match &options.minari_obs {
            Some(chosen) => obs.clone_from(chosen),
            None => {
                for part in &all {
                    if file.is_flat_float(&full(part))? {
                        obs.push(part.to_string());
                    }
                }
                obs.sort();
            }
        }
        if let Some(unknown) = obs.iter().find(|part| !all.contains(&part.as_str())) {
            let hint = "name parts that the observation has";
            return Err(Error::key(path, full(unknown), "one of its parts", format!("{all:?}"), hint));
        }
        if obs.is_empty() {
            let hint = "extract low-dimensional observations with robomimic's dataset_states_to_obs.py";
            return Err(Error::key(path, full("…"), "a part of plain numbers", format!("{all:?}"), hint));
        }
        let has = |key: &str| keys.contains(&key);
        if !has(ACT) {
            return Err(missing(path, &format!("data/demo_{number}/{ACT}"), keys));
        }
        if !has(REW) && !options.zero_rewards {
            let hint = "extract them with robomimic's dataset_states_to_obs.py, or read it with zero rewards \
                        (--zero-rewards)";
            return Err(Error::key(path, format!("data/demo_{number}/{REW}"), "rewards", "none", hint));
        }
        let mut notes = vec![format!("observation = {}", obs.join(", "))];
        if !has(REW) {
            notes.push("no rewards in the file: all are 0, as asked".into());
        }
        let has_next = obs.iter().all(|part| has(&format!("next_obs/{part}")));
        Ok(Self { has_next, has_rewards: has(REW), has_dones: has(DONES), obs, notes })
    }

    /// What is not read, each key once for all demonstrations.
    fn ignored(&self, file: &Hdf5) -> Vec<String> {
        let is_read = |key: &str| {
            let part = key.strip_prefix("obs/").or_else(|| key.strip_prefix("next_obs/"));
            [ACT, REW, DONES].contains(&key) || part.is_some_and(|part| self.obs.iter().any(|o| o == part))
        };
        let mut ignored: Vec<String> = Vec::new();
        for name in file.names() {
            let key = demo_key(name).map_or(name.as_str(), |(_, key)| key);
            if !is_read(key) && !ignored.iter().any(|known| known == key) {
                ignored.push(key.into());
            }
        }
        ignored
    }
}

/// The columns of one demonstration.
struct Demo {
    obs: Mat,
    act: Mat,
    rew: Array1<f32>,
    next_obs: Option<Mat>,
    done: Array1<bool>,
    timeout: Array1<bool>,
    /// Its last row has a `done` that only ends the recording.
    ended_unsolved: bool,
}

impl Demo {
    fn read(file: &Hdf5, path: &Path, layout: &DemoLayout, number: u64) -> Result<Self> {
        let full = |key: &str| format!("data/demo_{number}/{key}");
        let act = file.array(&full(ACT))?.flat_matrix()?;
        let steps = act.nrows();
        let check_rows = |key: &str, found: usize| match found == steps {
            true => Ok(()),
            false => {
                let hint = "the file is incomplete or was put together wrongly: get it again";
                Err(Error::key(
                    path,
                    full(key),
                    format!("{steps} rows, as in `{ACT}`"),
                    found.to_string(),
                    hint,
                ))
            }
        };
        let joined = |group: &str| -> Result<Mat> {
            let mut parts = Vec::with_capacity(layout.obs.len());
            for part in &layout.obs {
                let key = format!("{group}/{part}");
                let matrix = file.array(&full(&key))?.flat_matrix()?;
                check_rows(&key, matrix.nrows())?;
                parts.push(matrix);
            }
            let views: Vec<_> = parts.iter().map(|part| part.view()).collect();
            Ok(concatenate(Axis(1), &views).expect("the rows were checked"))
        };
        let (mut rew, mut done) = (Array1::zeros(steps), Array1::from_elem(steps, false));
        if layout.has_rewards {
            rew = file.array(&full(REW))?.column()?;
            check_rows(REW, rew.len())?;
        }
        if layout.has_dones {
            done = file.array(&full(DONES))?.flags()?;
            check_rows(DONES, done.len())?;
        }
        let mut timeout = Array1::from_elem(steps, false);
        let mut ended_unsolved = false;
        if let Some(last) = steps.checked_sub(1) {
            ended_unsolved = done[last] && rew[last] <= 0.0;
            done[last] &= !ended_unsolved;
            timeout[last] = !done[last];
        }
        let next_obs = layout.has_next.then(|| joined("next_obs")).transpose()?;
        Ok(Self { obs: joined("obs")?, act, rew, next_obs, done, timeout, ended_unsolved })
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, Array4, arr1, array};

    use super::super::hdf5_write::Hdf5Writer;
    use super::*;

    /// Two demonstrations of three steps; `solved` are the rewards of the second. The twelfth comes after the second.
    fn file(path: &Path, solved: [f32; 3], dones: [f32; 3], with_next: bool) {
        let out = Hdf5Writer::create(path, path).unwrap();
        for (number, rewards, dones) in [(12, [0.0f32, 1.0, 1.0], [0.0f32, 1.0, 1.0]), (2, solved, dones)] {
            let start = number as f32 * 100.0;
            let object = array![[start, 0.5], [start + 1.0, 0.5], [start + 2.0, 0.5]];
            let arm = Array2::from_shape_fn((3, 1), |(i, _)| -(i as f32));
            let key = |name: &str| format!("data/demo_{number}/{name}");
            out.put(&key("obs/robot0_eef_pos"), arm.view()).unwrap();
            out.put(&key("obs/object"), object.view()).unwrap();
            // A camera: four dimensions.
            out.put(&key("obs/agentview_image"), Array4::<f32>::zeros((3, 2, 2, 3)).view()).unwrap();
            if with_next {
                out.put(&key("next_obs/robot0_eef_pos"), (&arm - 1.0).view()).unwrap();
                out.put(&key("next_obs/object"), (&object + &array![[1.0, 0.0]]).view()).unwrap();
            }
            out.put(&key("actions"), Array2::<f32>::zeros((3, 7)).view()).unwrap();
            out.put(&key("rewards"), arr1(&rewards).view()).unwrap();
            out.put(&key("dones"), arr1(&dones).view()).unwrap();
            out.put(&key("states"), Array2::<f64>::zeros((3, 5)).view()).unwrap();
        }
        out.close().unwrap();
    }

    fn read_any(path: &Path) -> Result<Dataset> {
        super::super::read(path, &ReadOptions::default())
    }

    #[test]
    fn parts_are_joined_in_alphabetical_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lift.hdf5");
        file(&path, [0.0; 3], [0.0, 0.0, 1.0], true);
        let data = read_any(&path).unwrap();
        assert_eq!((data.format, data.rows.act_dim()), (Format::ROBOMIMIC, 7));
        assert_eq!(data.rows.obs.row(1).to_vec(), [201.0, 0.5, -1.0], "object, robot0_eef_pos of demo 2");
        assert_eq!(data.rows.next_obs.row(5).to_vec(), [1203.0, 0.5, -3.0], "the last step of demo 12");
        assert_eq!(data.episodes, [0..3, 3..6]);
        assert_eq!(data.rows.done, arr1(&[false, false, false, false, true, true]));
        assert_eq!(data.timeout, arr1(&[false, false, true, false, false, false]));
        let notes = &data.reading.notes;
        assert_eq!(notes[0], "observation = object, robot0_eef_pos");
        assert!(notes[1].starts_with("1 demonstrations end with a `done` without a reward"), "{notes:?}");
        assert_eq!(data.reading.ignored_keys, ["obs/agentview_image", "states"]);
        let chosen =
            ReadOptions { minari_obs: Some(vec!["robot0_eef_pos".into()]), ..ReadOptions::default() };
        let arm = super::super::read(&path, &chosen).unwrap();
        assert_eq!(arm.rows.obs.row(1).to_vec(), [-1.0]);
    }

    #[test]
    fn a_demonstration_that_just_stops_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.hdf5");
        file(&path, [0.0, 0.0, 1.0], [0.0; 3], true);
        let data = read_any(&path).unwrap();
        assert_eq!(data.timeout, arr1(&[false, false, true, false, false, false]));
        // Without next observations the last row of each is lost, and no row crosses to the other.
        file(&path, [0.0, 0.0, 1.0], [0.0; 3], false);
        let data = read_any(&path).unwrap();
        assert_eq!(data.episodes, [0..2, 2..3]);
        assert_eq!(data.rows.next_obs.row(1).to_vec(), [202.0, 0.5, -2.0]);
    }

    #[test]
    fn files_that_were_not_extracted_say_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("demo.hdf5");
        let out = Hdf5Writer::create(&path, &path).unwrap();
        out.put("data/demo_0/actions", Array2::<f32>::zeros((3, 7)).view()).unwrap();
        out.put("data/demo_0/states", Array2::<f64>::zeros((3, 5)).view()).unwrap();
        out.close().unwrap();
        let error = read_any(&path).unwrap_err().to_string();
        assert!(error.contains("found states and actions alone; extract observations"), "{error}");
    }
}
