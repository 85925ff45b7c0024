//! NumPy archives (`np.savez`, `np.savez_compressed`) with D4RL's keys.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::Path;

use ndarray::{Array1, Array2};
use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

use super::d4rl::{ACT, DONE, NEXT_OBS, OBS, REW, TIMEOUT, missing, unused_note};
use super::dataset::{Dataset, Format, SimColumns};
use super::hdf5::one_line;
use super::npy::{Npy, bad, header};
use super::options::ReadOptions;
use super::transitions::{Columns, Keys, assemble};
use crate::error::{Error, Result};
use crate::home::replace_atomic;

/// Reads the archive at `path`.
pub(super) fn read(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|e| damaged(path, &e.to_string()))?;
    let mut names: Vec<String> = Vec::new();
    for name in archive.file_names() {
        let name = name.map_err(|e| damaged(path, &e.to_string()))?;
        names.push(name.strip_suffix(".npy").unwrap_or(&name).to_string());
    }
    let find = |keys: &[&'static str]| keys.iter().copied().find(|k| names.iter().any(|n| n == k));
    let need = |keys: &[&'static str]| find(keys).ok_or_else(|| missing(path, keys[0], &names));
    let (obs, act, rew, done) = (need(OBS)?, need(ACT)?, need(REW)?, need(DONE)?);
    let (next_obs, timeout) = (find(NEXT_OBS), find(TIMEOUT));
    let sim = find(&["infos/qpos"]).zip(find(&["infos/qvel"]));
    let goal = sim.and_then(|_| find(&["infos/goal"]));

    let ignored: Vec<String> = {
        let used = [Some(obs), Some(act), Some(rew), Some(done), next_obs, timeout, goal];
        let sim = sim.map(|(p, v)| [p, v]).unwrap_or_default();
        let mut left: Vec<String> = names
            .iter()
            .filter(|n| !used.contains(&Some(n.as_str())) && !sim.contains(&n.as_str()))
            .cloned()
            .collect();
        left.sort();
        left
    };
    let mut load = |key: &str| load(&mut archive, path, key);
    let columns = Columns {
        obs: load(obs)?.matrix(path, obs)?.mapv(|v| v as f32),
        act: load(act)?.matrix(path, act)?.mapv(|v| v as f32),
        rew: load(rew)?.column(path, rew)?.mapv(|v| v as f32),
        next_obs: match next_obs {
            Some(key) => Some(load(key)?.matrix(path, key)?.mapv(|v| v as f32)),
            None => None,
        },
        done: load(done)?.flags(path, done)?,
        timeout: timeout.map(|key| load(key)?.flags(path, key)).transpose()?,
        episode: None,
        step: None,
        sim: match sim {
            Some((qpos, qvel)) => Some(SimColumns {
                qpos: load(qpos)?.matrix(path, qpos)?,
                qvel: load(qvel)?.matrix(path, qvel)?,
                goal: goal.map(|key| load(key)?.matrix(path, key)).transpose()?,
            }),
            None => None,
        },
        keys: Keys {
            obs: vec![obs.into()],
            act: vec![act.into()],
            rew: rew.into(),
            next_obs: vec![next_obs.unwrap_or_default().into()],
        },
        notes: unused_note(&ignored, next_obs, timeout),
        ignored,
        meta: BTreeMap::new(),
    };
    assemble(columns, path, Format::Npz, options)
}

/// Writes `data` as `np.savez_compressed` would, with D4RL's keys and types. It cannot hold [`Dataset::meta`].
pub fn write_npz(data: &Dataset, path: &Path) -> Result<()> {
    replace_atomic(path, |temporary| {
        let file = File::create(temporary).map_err(|e| Error::io(path, "write", e))?;
        let mut zip = ZipWriter::new(std::io::BufWriter::new(file));
        let mut put = |key: &str, descr: &str, shape: &[usize], bytes: Vec<u8>| -> Result<()> {
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Deflated)
                .compression_level(Some(2))
                .large_file(bytes.len() > u32::MAX as usize / 2);
            zip.start_file(format!("{key}.npy"), options).map_err(|e| Error::io(path, "write", e.into()))?;
            zip.write_all(&header(descr, shape))
                .and_then(|()| zip.write_all(&bytes))
                .map_err(|e| Error::io(path, "write", e))
        };
        let f32s = |m: &mut dyn Iterator<Item = &f32>| m.flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let f64s = |m: &Array2<f64>| m.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let bools = |m: &Array1<bool>| m.iter().map(|&b| u8::from(b)).collect::<Vec<u8>>();
        let rows = &data.rows;
        put(OBS[0], "<f4", rows.obs.shape(), f32s(&mut rows.obs.iter()))?;
        put(ACT[0], "<f4", rows.act.shape(), f32s(&mut rows.act.iter()))?;
        put(REW[0], "<f4", rows.rew.shape(), f32s(&mut rows.rew.iter()))?;
        put(NEXT_OBS[0], "<f4", rows.next_obs.shape(), f32s(&mut rows.next_obs.iter()))?;
        put(DONE[0], "|b1", rows.done.shape(), bools(&rows.done))?;
        put(TIMEOUT[0], "|b1", data.timeout.shape(), bools(&data.timeout))?;
        if let Some(sim) = &data.sim {
            put("infos/qpos", "<f8", sim.qpos.shape(), f64s(&sim.qpos))?;
            put("infos/qvel", "<f8", sim.qvel.shape(), f64s(&sim.qvel))?;
            if let Some(goal) = &sim.goal {
                put("infos/goal", "<f8", goal.shape(), f64s(goal))?;
            }
        }
        let mut out = zip.finish().map_err(|e| Error::io(path, "write", e.into()))?;
        out.flush().map_err(|e| Error::io(path, "write", e))
    })
}

fn load(archive: &mut ZipArchive<BufReader<File>>, path: &Path, key: &str) -> Result<Npy> {
    let name = if archive.index_for_name(&format!("{key}.npy")).is_some() {
        format!("{key}.npy")
    } else {
        key.into()
    };
    let entry =
        archive.by_name(&name).map_err(|e| bad(path, key, "a readable entry", one_line(&e.to_string())))?;
    Npy::read(entry, path, key)
}

fn damaged(path: &Path, why: &str) -> Error {
    let why = one_line(why);
    Error::file(
        path,
        format!("wanted a complete .npz archive, found a damaged or truncated one ({why}); save it again"),
    )
}
