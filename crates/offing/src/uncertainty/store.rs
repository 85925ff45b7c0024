//! SUMO's index on disk: the tree as its own file, and a small JSON file beside it.
//!
//! The JSON holds what the tree does not know: the settings, the scale of the columns, the data's largest leave-one-out
//! distance and where episodes begin. A saved index plus a threshold is all that a run-time alarm needs.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use offing_knn::{NeighborIndex, Tree};
use serde::{Deserialize, Serialize};

use super::space::{Space, tree_config};
use super::sumo::{Sumo, SumoConfig};
use crate::batch::Batch;
use crate::checksum::{Checksum, of_bytes};
use crate::error::{Error, Result, bad_file, invalid};
use crate::home::{Home, write_json};

/// Raised when the meaning of the files changes.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexInfo {
    version: u32,
    config: SumoConfig,
    space: Space,
    rows: usize,
    /// Largest leave-one-out distance of the data.
    max_distance: f32,
    /// First row of every episode; empty when unknown.
    episode_starts: Vec<usize>,
    /// Hash of the tree file's first bytes, which hold the checksum of the rest: card and tree belong together.
    tree: String,
    /// Hash of the rows and settings that the index was made from, where it is kept in a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

impl Sumo {
    /// Saves the index as `file` and its card as `file`.json. `episodes` lets a later [`Sumo::load`] name supporting rows by
    /// episode and step.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn save(&self, file: &Path, episodes: &[Range<usize>]) -> Result<()> {
        self.save_as(file, episodes, None)
    }

    fn save_as(&self, file: &Path, episodes: &[Range<usize>], content: Option<String>) -> Result<()> {
        use super::Uncertainty;
        self.max_loo_score();
        let max_distance = *self.max_distance.get().expect("the largest score was just computed");
        self.index.save(file)?;
        let card = IndexInfo {
            version: VERSION,
            config: self.config.clone(),
            space: self.space.clone(),
            rows: self.index.len(),
            max_distance,
            episode_starts: episodes.iter().map(|e| e.start).collect(),
            tree: head_hash(file)?,
            content,
        };
        write_json(&card_path(file), &card)
    }

    /// Opens what [`Sumo::save`] wrote, with the episodes' rows.
    ///
    /// # Errors
    /// Missing, damaged or foreign files, and a card that belongs to another tree.
    pub fn load(file: &Path, threads: usize) -> Result<(Self, Vec<Range<usize>>)> {
        Self::load_as(file, threads, None)
    }

    /// [`Sumo::load`] of an index of this content, if it matters.
    fn load_as(file: &Path, threads: usize, content: Option<&String>) -> Result<(Self, Vec<Range<usize>>)> {
        let path = card_path(file);
        let text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, "read", e))?;
        let card: IndexInfo = serde_json::from_str(&text)
            .map_err(|e| bad_file!(&path, "wanted the card of a saved index, found {e}; save it again"))?;
        if card.version != VERSION {
            let what =
                format!("wanted version {VERSION} of an index's card, found {}; save it again", card.version);
            return Err(Error::file(&path, what));
        }
        if content.is_some() && card.content.as_ref() != content {
            return Err(Error::file(&path, "wanted the index of these rows and settings, found another"));
        }
        if card.tree != head_hash(file)? {
            return Err(Error::file(
                file,
                "wanted the index this card was saved with, found another; save both again",
            ));
        }
        let index = Tree::load(&tree_config(card.config.metric, threads), file)?;
        let fits = (index.len(), index.dim(), index.metric())
            == (card.rows, card.space.dim(), card.config.metric.into());
        if !fits || !card.is_consistent() {
            return Err(Error::file(
                &path,
                "wanted the rows, columns and settings of its index, found others; save it again",
            ));
        }
        let ends = card.episode_starts.iter().skip(1).copied().chain([card.rows]);
        let episodes = card.episode_starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect();
        let max_distance = OnceLock::new();
        let _ = max_distance.set(card.max_distance);
        Ok((Self { config: card.config, space: card.space, index, max_distance, unsaved: None }, episodes))
    }

    /// Whether `file` looks like a saved index: its card lies beside it.
    pub fn is_saved(file: &Path) -> bool {
        file.is_file() && card_path(file).is_file()
    }

    /// [`Sumo::new`], cached in `home` by content: the same rows and settings are indexed once. A home that is full or may
    /// only be read costs the next run the time of indexing, nothing else: [`warning`](super::Uncertainty::warning) says so.
    ///
    /// # Errors
    /// As [`Sumo::new`], and an index that another user can change ([`Home::check_owner`]).
    pub fn open(home: &Home, config: &SumoConfig, data: &Batch, threads: usize) -> Result<Self> {
        config.validate_for(data.len())?;
        let content = content_hash(config, data)?;
        let name = &content[..32];
        let file = home.root().join("index").join(format!("{name}.knn"));
        [&file, &card_path(&file)].into_iter().try_for_each(|path| home.check_owner(path))?;
        let lock = home.lock("index", name);
        // A file that is damaged, outdated or of other rows under this name is no reason to stop: it is made again.
        if let Ok((kept, _)) = Self::load_as(&file, threads, Some(&content)) {
            return Ok(kept);
        }
        let mut made = Self::new(config, data, threads)?;
        if let Err(why) = lock.and_then(|_held| made.save_as(&file, &[], Some(content))) {
            made.unsaved = Some(format!("the index is kept in memory alone: {why}"));
        }
        Ok(made)
    }
}

impl IndexInfo {
    /// Whether what a search and an alarm rely on holds; any program may have written the file.
    fn is_consistent(&self) -> bool {
        let (starts, config) = (&self.episode_starts, &self.config);
        config.validate_for(self.rows).is_ok()
            && self.space.agrees_with(config.vector, config.columns, config.embedding.as_ref())
            && self.max_distance >= 0.0
            && starts.is_sorted()
            && starts.last().is_none_or(|last| *last <= self.rows)
    }
}

fn card_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_os_string();
    name.push(".json");
    name.into()
}

/// Hash of the header, which itself holds a checksum over the file.
fn head_hash(file: &Path) -> Result<String> {
    let mut head = Vec::new();
    let opened = std::fs::File::open(file).map_err(|e| Error::io(file, "read", e))?;
    opened.take(4096).read_to_end(&mut head).map_err(|e| Error::io(file, "read", e))?;
    Ok(of_bytes(&head))
}

/// A hash of everything an index depends on; its first half names the file.
fn content_hash(config: &SumoConfig, data: &Batch) -> Result<String> {
    let settings = serde_json::to_string(config).map_err(|e| invalid!("sumo: {e}"))?;
    let mut sum = Checksum::of(&format!("{VERSION} {settings} {} {} ", data.obs_dim(), data.act_dim()));
    sum.rows(&config.vector.rows(data));
    Ok(sum.finish())
}

#[cfg(test)]
mod tests {
    use super::super::EmbeddingConfig;
    use super::super::space::ColumnScale;
    use super::*;
    use crate::batch::Mat;
    use crate::rng::Rng;

    fn rows(n: usize, seed: u64) -> Batch {
        let mut rng = Rng::stream(seed, "rows", 0);
        let mut mat = |cols| Mat::from_shape_fn((n, cols), |_| 10.0 * rng.normal() as f32);
        let (obs, act, next_obs) = (mat(4), mat(2), mat(4));
        Batch { obs, act, next_obs, rew: vec![0.0; n].into(), done: vec![false; n].into() }
    }

    fn configs() -> [SumoConfig; 3] {
        let embedding = Some(EmbeddingConfig::Network { dim: 5, hidden: 16, seed: 2 });
        [
            SumoConfig::default(),
            SumoConfig { k: 4, columns: ColumnScale::Standardised, ..Default::default() },
            SumoConfig { columns: ColumnScale::Standardised, embedding, ..Default::default() },
        ]
    }

    #[test]
    fn a_saved_index_scores_alike_and_knows_its_episodes() {
        let dir = tempfile::tempdir().unwrap();
        let (data, queries) = (rows(300, 0), rows(50, 1));
        for (i, config) in configs().iter().enumerate() {
            let made = Sumo::new(config, &data, 1).unwrap();
            let file = dir.path().join(format!("{i}.knn"));
            made.save(&file, &[0..120, 120..300]).unwrap();
            assert!(Sumo::is_saved(&file));
            let (back, episodes) = Sumo::load(&file, 2).unwrap();
            assert_eq!(episodes, [0..120, 120..300]);
            assert_eq!(back.config(), config);
            assert_eq!(back.score_rows(&queries).unwrap(), made.score_rows(&queries).unwrap());
            assert_eq!(back.threshold(2.0), made.threshold(2.0));
        }
    }

    #[test]
    fn the_cache_is_used_told_apart_and_mended() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        let (data, queries) = (rows(300, 0), rows(50, 1));
        let files = || {
            let all = std::fs::read_dir(dir.path().join("index")).unwrap().flatten().map(|e| e.path());
            all.filter(|p| p.extension().is_some_and(|e| e == "knn")).collect::<Vec<_>>()
        };
        let config = SumoConfig::default();
        let first = Sumo::open(&home, &config, &data, 1).unwrap();
        let stamp = |p: &PathBuf| std::fs::metadata(p).unwrap().modified().unwrap();
        let (file, time) = (files()[0].clone(), stamp(&files()[0]));
        let second = Sumo::open(&home, &config, &data, 1).unwrap();
        assert_eq!(second.score_rows(&queries).unwrap(), first.score_rows(&queries).unwrap());
        assert_eq!((files().len(), stamp(&file)), (1, time), "found, not made again");
        Sumo::open(&home, &SumoConfig { k: 2, ..config.clone() }, &data, 1).unwrap();
        let mut other = data.clone();
        other.next_obs[[299, 3]] += 1.0;
        Sumo::open(&home, &config, &other, 1).unwrap();
        assert_eq!(files().len(), 3, "other settings and other rows are other files");
        drop(second);
        std::fs::write(&file, b"garbage").unwrap();
        let mended = Sumo::open(&home, &config, &data, 1).unwrap();
        assert_eq!(mended.score_rows(&queries).unwrap(), first.score_rows(&queries).unwrap());
    }

    #[test]
    fn an_index_of_other_rows_or_settings_under_the_right_name_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        let (data, queries) = (rows(300, 0), rows(50, 1));
        let config = SumoConfig::default();
        let right = Sumo::open(&home, &config, &data, 1).unwrap().score_rows(&queries).unwrap();
        let name = format!("{}.knn", &content_hash(&config, &data).unwrap()[..32]);
        let file = dir.path().join("index").join(name);
        let kept = std::fs::read(card_path(&file)).unwrap();
        for (other_rows, other) in
            [(rows(300, 7), config.clone()), (data.clone(), SumoConfig { k: 2, ..config.clone() })]
        {
            let elsewhere = tempfile::tempdir().unwrap();
            Sumo::open(&Home::new(elsewhere.path()), &other, &other_rows, 1).unwrap();
            for entry in std::fs::read_dir(elsewhere.path().join("index")).unwrap().flatten() {
                match entry.path().to_string_lossy() {
                    path if path.ends_with(".knn") => std::fs::copy(entry.path(), &file).map(|_| ()).unwrap(),
                    path if path.ends_with(".json") => {
                        std::fs::copy(entry.path(), card_path(&file)).map(|_| ()).unwrap();
                    }
                    _ => (),
                }
            }
            assert_ne!(std::fs::read(card_path(&file)).unwrap(), kept, "another index lies there");
            let again = Sumo::open(&home, &config, &data, 1).unwrap();
            assert_eq!(again.score_rows(&queries).unwrap(), right);
            assert_eq!(std::fs::read(card_path(&file)).unwrap(), kept, "made again");
        }
        // Without the hash, as older versions wrote it.
        Sumo::new(&config, &rows(300, 7), 1).unwrap().save(&file, &[]).unwrap();
        assert_eq!(Sumo::open(&home, &config, &data, 1).unwrap().score_rows(&queries).unwrap(), right);
    }

    #[test]
    fn cards_that_would_abort_hang_or_silence_an_alarm_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.knn");
        let embedding = Some(EmbeddingConfig::Projection { dim: 5, seed: 2 });
        let config = SumoConfig { embedding, columns: ColumnScale::Standardised, ..Default::default() };
        Sumo::new(&config, &rows(100, 0), 1).unwrap().save(&file, &[0..40, 40..100]).unwrap();
        let good = std::fs::read_to_string(card_path(&file)).unwrap();
        let good: serde_json::Value = serde_json::from_str(&good).unwrap();
        for (place, value) in [
            ("/config/k", serde_json::json!(0)),
            ("/config/k", serde_json::json!(u64::MAX)),
            ("/space/embedding/config/dim", serde_json::json!(1u64 << 40)),
            ("/space/embedding/inputs", serde_json::json!(1u64 << 60)),
            ("/space/embedding/inputs", serde_json::json!(9)),
            ("/space/obs_dim", serde_json::json!(1u64 << 63)),
            ("/space/obs_dim", serde_json::json!(3)),
            ("/space/scale", serde_json::json!([[0.0], [1.0]])),
            ("/max_distance", serde_json::json!(null)),
            ("/max_distance", serde_json::json!(-1.0)),
            ("/episode_starts", serde_json::json!([0, 90, 40])),
            ("/episode_starts", serde_json::json!([0, 1000])),
        ] {
            let mut card = good.clone();
            *card.pointer_mut(place).unwrap() = value;
            std::fs::write(card_path(&file), card.to_string()).unwrap();
            let error = Sumo::load(&file, 1).unwrap_err().to_string();
            assert!(error.contains("a.knn.json") && error.contains("save it again"), "{place}: {error}");
        }
        std::fs::write(card_path(&file), good.to_string()).unwrap();
        Sumo::load(&file, 1).unwrap();
    }

    #[test]
    fn a_home_that_takes_no_index_is_told_and_does_no_harm() {
        use super::super::Uncertainty;
        let dir = tempfile::tempdir().unwrap();
        let (config, data) = (SumoConfig::default(), rows(300, 0));
        let whole = Sumo::open(&Home::new(dir.path().join("home")), &config, &data, 1).unwrap();
        assert_eq!(whole.warning(), None);
        // A home that not even root can write to, and a place that is taken.
        let (file, taken) = (dir.path().join("file"), dir.path().join("taken"));
        std::fs::write(&file, b"").unwrap();
        let name = content_hash(&config, &data).unwrap()[..32].to_string();
        std::fs::create_dir_all(taken.join("index").join(format!("{name}.knn/in the way"))).unwrap();
        for home in [file, taken] {
            let made = Sumo::open(&Home::new(home), &config, &data, 1).unwrap();
            let told = made.warning().unwrap();
            assert!(told.starts_with("the index is kept in memory alone: "), "{told}");
            assert_eq!(made.score_rows(&data).unwrap(), whole.score_rows(&data).unwrap());
        }
    }

    #[test]
    fn mixed_up_and_missing_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a.knn"), dir.path().join("b.knn"));
        Sumo::new(&SumoConfig::default(), &rows(100, 0), 1).unwrap().save(&a, &[]).unwrap();
        Sumo::new(&SumoConfig::default(), &rows(100, 1), 1).unwrap().save(&b, &[]).unwrap();
        std::fs::copy(&b, &a).unwrap();
        let fail = |file: &Path| Sumo::load(file, 1).unwrap_err().to_string();
        assert!(fail(&a).contains("found another"));
        std::fs::write(card_path(&b), "{").unwrap();
        assert!(fail(&b).contains("card of a saved index"));
        assert!(fail(&dir.path().join("c.knn")).contains("c.knn.json"));
        assert!(!Sumo::is_saved(&dir.path().join("c.knn")));
    }
}
