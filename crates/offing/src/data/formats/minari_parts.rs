//! Minari's arrow and parquet storages: `data/<episode>/part-0.arrow` or `.parquet`, one row a time step.
//!
//! All columns are as long as the observations, so the last row of actions, rewards and flags is padding.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::options::ReadOptions;
use super::arrays::{StoredArray, StoredValues};
use super::arrow_file::ArrowFile;
use super::hdf5::Hdf5;
use super::parquet_arrays::ParquetArrays;
use crate::error::{Error, Result};

/// Where the arrays of an episode come from, by their keys in HDF5 storage (`episode_3/rewards`).
pub(super) trait EpisodeArrays<'p> {
    /// The array at `key`.
    fn array<'k>(&self, key: &'k str) -> Result<StoredArray<'k>>
    where
        'p: 'k;
}

impl<'p> EpisodeArrays<'p> for Hdf5<'p> {
    fn array<'k>(&self, key: &'k str) -> Result<StoredArray<'k>>
    where
        'p: 'k,
    {
        self.array(key)
    }
}

/// The file of one episode.
pub(super) struct EpisodeParts {
    pub(super) number: u64,
    pub(super) path: PathBuf,
}

impl EpisodeParts {
    /// The files of all episodes beside `metadata`, by number.
    pub(super) fn find(metadata: &Path, format: &str) -> Result<Vec<Self>> {
        let dir = metadata.parent().unwrap_or(Path::new("."));
        let entries = fs::read_dir(dir).map_err(|e| Error::io(dir, "list", e))?;
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            found.push(Self { number, path: entry.path().join(format!("part-0.{format}")) });
        }
        found.sort_by_key(|part| part.number);
        Ok(found)
    }

    /// Opens the file.
    pub(super) fn load<'a>(&'a self, options: &'a ReadOptions) -> Result<PartArrays<'a>> {
        Ok(match self.path.extension().is_some_and(|e| e == "arrow") {
            true => PartArrays::Arrow(ArrowFile::open(&self.path)?),
            false => PartArrays::Parquet(ParquetArrays::open(&self.path, options)?),
        })
    }
}

/// The columns of one episode's file.
pub(super) enum PartArrays<'a> {
    Arrow(ArrowFile<'a>),
    Parquet(ParquetArrays<'a>),
}

impl PartArrays<'_> {
    /// The keys of the columns, those inside structures joined by `/`.
    pub(super) fn keys(&self) -> Vec<&str> {
        match self {
            Self::Arrow(file) => file.keys().collect(),
            Self::Parquet(file) => file.keys().iter().map(String::as_str).collect(),
        }
    }
}

impl<'p> EpisodeArrays<'p> for PartArrays<'p> {
    fn array<'k>(&self, key: &'k str) -> Result<StoredArray<'k>>
    where
        'p: 'k,
    {
        let inside = key.split_once('/').map_or(key, |(_, inside)| inside);
        let mut array = match self {
            Self::Arrow(file) => file.array(inside)?,
            Self::Parquet(file) => file.array(inside)?,
        };
        if !inside.starts_with("observations") && !inside.starts_with("infos") {
            drop_last_row(&mut array);
        }
        Ok(array)
    }
}

fn drop_last_row(array: &mut StoredArray) {
    let [rows, rest @ ..] = array.shape.as_mut_slice() else { return };
    *rows = rows.saturating_sub(1);
    let length = *rows * rest.iter().product::<usize>();
    match &mut array.values {
        StoredValues::F32(values) => values.truncate(length),
        StoredValues::F64(values) => values.truncate(length),
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{arr1, array};

    use super::super::super::dataset::Dataset;
    use super::super::parquet_arrays::write_plain;
    use super::super::{Format, read};
    use super::*;

    /// An episode of two steps that minari 0.5.4 and pyarrow 26.0.1 wrote. Observations are {a: (2,), b: (1,)}, and the
    /// infos hold words, positions in float64 and velocities in int16.
    const ARROW: &[u8] = include_bytes!("../../../tests/golden/minari-episode.arrow");

    fn dataset(dir: &Path, format: &str, episodes: u64, put: impl Fn(u64, &Path)) {
        let metadata =
            format!(r#"{{"data_format": "{format}", "total_episodes": {episodes}, "dataset_id": "a/b-v0"}}"#);
        fs::create_dir_all(dir.join("data")).unwrap();
        fs::write(dir.join("data/metadata.json"), metadata).unwrap();
        for number in 0..episodes {
            let episode = dir.join(format!("data/{number}"));
            fs::create_dir_all(&episode).unwrap();
            put(number, &episode.join(format!("part-0.{format}")));
        }
    }

    fn check(data: &Dataset, episodes: usize) {
        assert_eq!((data.format, data.name.as_str()), (Format::MINARI, "a/b-v0"));
        assert_eq!(data.rows.len(), 2 * episodes);
        assert_eq!(data.rows.obs.slice(ndarray::s![..2, ..]), array![[0.0, 0.5, -1.0], [1.0, 0.5, -2.0]]);
        assert_eq!(data.rows.next_obs.row(1).to_vec(), [2.0, 0.5, -3.0]);
        assert_eq!(data.rows.act.slice(ndarray::s![..2, ..]), array![[0.25], [-0.25]]);
        assert_eq!((data.rows.rew[0], data.rows.rew[1]), (1.0, 2.0));
        assert_eq!((data.rows.done[0], data.rows.done[1], data.timeout[1]), (false, true, false));
        assert_eq!(data.episodes[0], 0..2);
    }

    #[test]
    fn arrow_storage_is_read() {
        let dir = tempfile::tempdir().unwrap();
        dataset(dir.path(), "arrow", 12, |_, path| fs::write(path, ARROW).unwrap());
        let data = read(dir.path(), &ReadOptions::default()).unwrap();
        check(&data, 12);
        let sim = data.sim.as_ref().unwrap();
        assert_eq!((sim.qpos[[1, 0]], sim.qvel[[1, 0]]), (0.2, 2.0), "all digits of float64");
        assert_eq!(data.reading.ignored_keys, ["infos/word"]);
        fs::remove_file(dir.path().join("data/3/part-0.arrow")).unwrap();
        let error = read(dir.path(), &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains("part-0.arrow") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn parquet_storage_is_read() {
        let dir = tempfile::tempdir().unwrap();
        // The last row of what is not an observation is padding.
        let columns = [
            ("observations/a", Some(2), vec![0.0, 0.5, 1.0, 0.5, 2.0, 0.5]),
            ("observations/b", Some(1), vec![-1.0, -2.0, -3.0]),
            ("actions", Some(1), vec![0.25, -0.25, 0.0]),
            ("rewards", None, vec![1.0, 2.0, 0.0]),
            ("terminations", None, vec![0.0, 1.0, 0.0]),
            ("truncations", None, vec![0.0, 0.0, 0.0]),
        ];
        dataset(dir.path(), "parquet", 2, |_, path| write_plain(path, &columns));
        let data = read(dir.path(), &ReadOptions::default()).unwrap();
        check(&data, 2);
        let chosen = ReadOptions { minari_obs: Some(vec!["b".into()]), ..ReadOptions::default() };
        assert_eq!(read(dir.path(), &chosen).unwrap().rows.obs.column(0), arr1(&[-1.0, -2.0, -1.0, -2.0]));
    }

    #[test]
    fn a_directory_without_episodes_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        dataset(dir.path(), "arrow", 0, |_, _| ());
        let error = read(dir.path(), &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains("wanted a directory for each episode"), "{error}");
    }

    #[test]
    fn damaged_arrow_files_are_refused_or_read_but_never_panic() {
        let path = Path::new("a.arrow");
        let mut refused = 0;
        for at in 0..ARROW.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = ARROW.to_vec();
                bytes[at] = value;
                let read_all = |file: ArrowFile| {
                    let mut numbers = file.keys().filter(|key| *key != "infos/word");
                    numbers.try_for_each(|key| file.array(key).map(drop))
                };
                let result = ArrowFile::parse(path, bytes).and_then(read_all);
                refused += usize::from(result.is_err_and(|e| !e.to_string().contains('\n')));
            }
        }
        assert!(refused > 100, "{refused}");
    }
}
