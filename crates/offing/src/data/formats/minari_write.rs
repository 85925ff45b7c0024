//! Writing a dataset as a Minari directory that `minari.load_dataset` and `minari.MinariDataset` open.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use ndarray::{ArrayView1, Axis, concatenate, s};
use serde_json::{Value, json};

use super::super::catalogue::is_versioned;
use super::super::dataset::Dataset;
use super::hdf5_write::Hdf5Writer;
use super::minari::STRUCTURE;
use crate::error::{Error, Result};
use crate::home::{partial_name, sync_dir};

/// The oldest Minari whose files look like ours; newer ones read it.
const MINARI_VERSION: &str = "0.5.0";

/// Entries of metadata.json that are not texts.
const NOT_TEXT: &[&str] = &["author", "author_email", "ref_min_score", "ref_max_score", "requirements"];

/// Writes `data` as a Minari dataset: `dir/data/main_data.hdf5` and `dir/data/metadata.json`. `dir` must not exist
/// yet; it appears complete or not at all.
///
/// What Minari cannot hold: a next observation that differs from the following observation, so an episode is split
/// there; and the simulator state after an episode's last step, so `infos` have one row a step.
pub(super) fn write(data: &Dataset, dir: &Path) -> Result<()> {
    if dir.exists() {
        return Err(Error::file(
            dir,
            "wanted a directory that does not exist yet, found one; remove it or choose another",
        ));
    }
    let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = parent.join(partial_name(&name));
    let result = fill(data, dir, &temporary).and_then(|()| {
        fs::rename(&temporary, dir).map_err(|e| Error::io(dir, "put the finished directory in place", e))
    });
    match result {
        // Best effort: the error that matters is the one already in hand.
        Err(_) => _ = fs::remove_dir_all(&temporary),
        Ok(()) => sync_dir(parent),
    }
    result
}

fn fill(data: &Dataset, dir: &Path, temporary: &Path) -> Result<()> {
    let inside = temporary.join("data");
    fs::create_dir_all(&inside).map_err(|e| Error::io(&inside, "create the directory", e))?;
    let episodes = continuous(data);
    let main = inside.join("main_data.hdf5");
    let writer = Hdf5Writer::create(&main, dir)?;
    for (number, episode) in episodes.iter().enumerate() {
        put_episode(&writer, data, number, episode)?;
    }
    writer.close()?;
    sync(&main)?;
    let size = fs::metadata(&main).map_err(|e| Error::io(&main, "read", e))?.len();
    let metadata = metadata(data, episodes.len(), size);
    let path = inside.join("metadata.json");
    fs::write(&path, metadata).map_err(|e| Error::io(&path, "write", e))?;
    sync(&path)
}

fn sync(path: &Path) -> Result<()> {
    let file = fs::File::options().write(true).open(path);
    file.and_then(|f| f.sync_all()).map_err(|e| Error::io(path, "write", e))
}

/// The episodes, split wherever the next observation is not the very next row's observation.
fn continuous(data: &Dataset) -> Vec<Range<usize>> {
    let same =
        |a: ArrayView1<f32>, b: ArrayView1<f32>| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
    let mut ranges = Vec::new();
    for episode in &data.episodes {
        let mut start = episode.start;
        for i in episode.clone() {
            let last = i + 1 == episode.end;
            if last || !same(data.rows.next_obs.row(i), data.rows.obs.row(i + 1)) {
                ranges.push(start..i + 1);
                start = i + 1;
            }
        }
    }
    ranges
}

fn put_episode(writer: &Hdf5Writer<'_>, data: &Dataset, number: usize, episode: &Range<usize>) -> Result<()> {
    let group = format!("episode_{number}");
    writer.group(&group, &[("id", number), ("total_steps", episode.len())])?;
    let key = |name: &str| format!("{group}/{name}");
    let steps = s![episode.clone()];
    let matrix_steps = s![episode.clone(), ..];
    let last = data.rows.next_obs.slice(s![episode.end - 1..episode.end, ..]);
    let obs = concatenate(Axis(0), &[data.rows.obs.slice(matrix_steps), last]).expect("equal widths");
    writer.put(&key("observations"), obs.view())?;
    writer.put(&key("actions"), data.rows.act.slice(matrix_steps))?;
    writer.put(&key("rewards"), data.rows.rew.slice(steps))?;
    writer.put(&key("terminations"), data.rows.done.slice(steps))?;
    writer.put(&key("truncations"), data.timeout.slice(steps))?;
    for (name, column) in data.sim.iter().flat_map(|sim| sim.columns()) {
        writer.put(&key(&format!("infos/{name}")), column.slice(matrix_steps))?;
    }
    Ok(())
}

fn metadata(data: &Dataset, episodes: usize, bytes: u64) -> String {
    let mut entries: BTreeMap<String, Value> = BTreeMap::new();
    for (key, text) in &data.names.added_to(&data.meta) {
        let parsed = NOT_TEXT.contains(&key.as_str()).then(|| serde_json::from_str(text).ok()).flatten();
        entries.insert(key.clone(), parsed.unwrap_or_else(|| Value::String(text.clone())));
    }
    STRUCTURE.iter().for_each(|key| drop(entries.remove(*key)));
    entries.entry("dataset_id".into()).or_insert_with(|| json!(dataset_id(&data.name)));
    entries.insert("minari_version".into(), json!(MINARI_VERSION));
    entries.insert("total_episodes".into(), json!(episodes));
    entries.insert("total_steps".into(), json!(data.rows.len()));
    entries.insert("data_format".into(), json!("hdf5"));
    entries.insert("dataset_size".into(), json!((bytes as f64 / 1e5).round() / 10.0));
    entries.insert("observation_space".into(), json!(box_space(data.rows.obs_dim(), None)));
    let within = data.rows.act.iter().all(|a| a.abs() <= 1.0);
    entries.insert("action_space".into(), json!(box_space(data.rows.act_dim(), within.then_some(1.0))));
    serde_json::to_string_pretty(&entries).expect("texts and finite numbers")
}

/// Minari ids end in a version.
fn dataset_id(name: &str) -> String {
    if is_versioned(name) { name.into() } else { format!("{name}-v0") }
}

/// A Box space as Minari serialises it; Python's JSON has a word for infinity.
fn box_space(width: usize, bound: Option<f32>) -> String {
    let bound = bound.map_or("Infinity".to_string(), |b| format!("{b:.1}"));
    let list = |sign: &str| vec![format!("{sign}{bound}"); width].join(", ");
    format!(
        r#"{{"type": "Box", "dtype": "float32", "shape": [{width}], "low": [{}], "high": [{}]}}"#,
        list("-"),
        list("")
    )
}
