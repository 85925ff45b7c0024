//! NumPy archives (`np.savez`, `np.savez_compressed`) with D4RL's keys.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use ndarray::{Array1, Array2};
use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

use super::d4rl::{ACT, DONE, NEXT_OBS, OBS, REW, TIMEOUT, missing};
use super::dataset::{Dataset, Format, SimColumns};
use super::hdf5::{check_flags, escaped, float16, one_line, show_shape};
use super::options::ReadOptions;
use super::transitions::{Columns, Keys, assemble};
use crate::error::{Error, Result};
use crate::home::replace_atomic;

const MAGIC: &[u8] = b"\x93NUMPY";

/// One array of the archive.
struct Npy {
    shape: Vec<usize>,
    values: Vec<f64>,
}

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
        ignored: {
            let used = [Some(obs), Some(act), Some(rew), Some(done), next_obs, timeout, goal];
            let sim = sim.map(|(p, v)| [p, v]).unwrap_or_default();
            let mut left: Vec<String> = names
                .iter()
                .filter(|n| !used.contains(&Some(n.as_str())) && !sim.contains(&n.as_str()))
                .cloned()
                .collect();
            left.sort();
            left
        },
        notes: Vec::new(),
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

/// The .npy header, padded as NumPy does.
fn header(descr: &str, shape: &[usize]) -> Vec<u8> {
    let shape = show_shape(shape);
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let unpadded = MAGIC.len() + 4 + text.len() + 1;
    text.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
    text.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

fn load(archive: &mut ZipArchive<BufReader<File>>, path: &Path, key: &str) -> Result<Npy> {
    let bad = |wanted: &str, found: String| {
        Error::key(
            path,
            escaped(key),
            wanted,
            found,
            "the archive is damaged or of another kind: save it again",
        )
    };
    let name = if archive.index_for_name(&format!("{key}.npy")).is_some() {
        format!("{key}.npy")
    } else {
        key.into()
    };
    let mut entry = archive.by_name(&name).map_err(|e| bad("a readable entry", one_line(&e.to_string())))?;
    let unreadable = |e: std::io::Error| bad("a complete .npy array", one_line(&e.to_string()));
    let mut lead = [0u8; 8];
    entry.read_exact(&mut lead).map_err(unreadable)?;
    if !lead.starts_with(MAGIC) {
        return Err(bad("a .npy array", format!("an entry that begins with {:02x?}", &lead)));
    }
    let mut length = [0u8; 4];
    let wide = lead[6] >= 2;
    entry.read_exact(&mut length[..if wide { 4 } else { 2 }]).map_err(unreadable)?;
    let length = u32::from_le_bytes(length);
    if length > 1 << 16 {
        return Err(bad("a header of at most 64 KiB", format!("{length} bytes")));
    }
    let mut text = vec![0u8; length as usize];
    entry.read_exact(&mut text).map_err(unreadable)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let header = parse_header(&text).ok_or_else(|| bad("a .npy header", one_line(&text)))?;
    let Header { descr, fortran, shape } = header;
    if descr.ends_with("f2") {
        return Err(float16(path, key));
    }
    let descr = Descr::parse(&descr).ok_or_else(|| {
        let hint = "save it as float32 in this byte order";
        let found = format!("type `{}`", one_line(&descr));
        Error::key(path, escaped(key), "little-endian numbers or booleans", found, hint)
    })?;
    let size = descr.size();
    let total = shape.iter().try_fold(size, |t, &d| t.checked_mul(d));
    let total = total.ok_or_else(|| bad("a shape that fits in memory", show_shape(&shape)))?;
    // Grows with what is really there, so a lying header cannot make it allocate; one byte more shows a surplus.
    let mut bytes = Vec::new();
    entry.by_ref().take(total as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() != total {
        return Err(bad(
            &format!("{total} bytes for shape {}", show_shape(&shape)),
            format!("{} or more", bytes.len()),
        ));
    }
    let mut values: Vec<f64> = bytes.chunks_exact(size).map(|b| descr.decode(b)).collect();
    if let (true, &[rows, width]) = (fortran, shape.as_slice()) {
        values = (0..rows).flat_map(|i| (0..width).map(move |j| j * rows + i)).map(|at| values[at]).collect();
    }
    Ok(Npy { values, shape })
}

/// Element types of NumPy that stand for numbers.
#[derive(Clone, Copy)]
enum Descr {
    Float(usize),
    Signed(usize),
    Unsigned(usize),
}

impl Descr {
    fn parse(text: &str) -> Option<Self> {
        let (order, rest) = text.split_at_checked(1)?;
        let (kind, size) = rest.split_at_checked(1)?;
        let size: usize = size.parse().ok()?;
        let ordered = order == "<" || order == "|" || (order == "=" && cfg!(target_endian = "little"));
        match (ordered, kind, size) {
            (true, "f", 4 | 8) => Some(Self::Float(size)),
            (true, "i", 1 | 2 | 4 | 8) => Some(Self::Signed(size)),
            (true, "u", 1 | 2 | 4 | 8) | (true, "b", 1) => Some(Self::Unsigned(size)),
            _ => None,
        }
    }

    fn size(self) -> usize {
        match self {
            Self::Float(size) | Self::Signed(size) | Self::Unsigned(size) => size,
        }
    }

    fn decode(self, bytes: &[u8]) -> f64 {
        let mut word = [0u8; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let unsigned = u64::from_le_bytes(word);
        match self {
            Self::Float(4) => f64::from(f32::from_bits(unsigned as u32)),
            Self::Float(_) => f64::from_bits(unsigned),
            Self::Unsigned(_) => unsigned as f64,
            Self::Signed(size) => {
                let unused = 64 - 8 * size as u32;
                ((unsigned << unused) as i64 >> unused) as f64
            }
        }
    }
}

/// What stands before the numbers.
struct Header {
    descr: String,
    /// Column by column.
    fortran: bool,
    shape: Vec<usize>,
}

/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`; `None` for anything else.
fn parse_header(text: &str) -> Option<Header> {
    let after = |key: &str| text.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    let descr = after("descr")?.strip_prefix('\'')?.split_once('\'')?.0;
    let shape = after("shape")?.strip_prefix('(')?.split_once(')')?.0;
    let shape: Vec<usize> = shape
        .split(',')
        .map(str::trim)
        .filter(|d| !d.is_empty())
        .map(|d| d.parse().ok())
        .collect::<Option<_>>()?;
    let order = after("fortran_order")?;
    let fortran = order.starts_with("True");
    (fortran || order.starts_with("False")).then_some(())?;
    Some(Header { descr: descr.into(), fortran, shape })
}

impl Npy {
    fn matrix(self, path: &Path, key: &str) -> Result<Array2<f64>> {
        let shape = match *self.shape.as_slice() {
            [rows] => (rows, 1),
            [rows, width] if width > 0 => (rows, width),
            _ => return Err(wrong_shape(path, key, "(rows, width)", &self.shape)),
        };
        Array2::from_shape_vec(shape, self.values)
            .map_err(|_| wrong_shape(path, key, "(rows, width)", &self.shape))
    }

    fn column(self, path: &Path, key: &str) -> Result<Array1<f64>> {
        match *self.shape.as_slice() {
            [_] | [_, 1] => Ok(Array1::from(self.values)),
            _ => Err(wrong_shape(path, key, "(rows,) or (rows, 1)", &self.shape)),
        }
    }

    fn flags(self, path: &Path, key: &str) -> Result<Array1<bool>> {
        let column = self.column(path, key)?;
        check_flags(path, key, column.iter().copied())?;
        Ok(column.mapv(|v| v != 0.0))
    }
}

fn wrong_shape(path: &Path, key: &str, wanted: &str, found: &[usize]) -> Error {
    Error::key(path, key, format!("shape {wanted}"), show_shape(found), "flatten it before saving")
}

fn damaged(path: &Path, why: &str) -> Error {
    let why = one_line(why);
    Error::file(
        path,
        format!("wanted a complete .npz archive, found a damaged or truncated one ({why}); save it again"),
    )
}
