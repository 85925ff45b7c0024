//! SUMO's index on disk: the tree as its own file (mapped, not read), and a small JSON file beside it.
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
}

impl Sumo {
    /// Saves the index as `file` and its card as `file`.json. `episodes` lets a later [`Sumo::load`] name supporting rows by
    /// episode and step.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn save(&self, file: &Path, episodes: &[Range<usize>]) -> Result<()> {
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
        };
        write_json(&card_path(file), &card)
    }

    /// Opens what [`Sumo::save`] wrote, with the episodes' rows. The tree is mapped: processes that load it share it.
    ///
    /// # Errors
    /// Missing, damaged or foreign files, and a card that belongs to another tree.
    pub fn load(file: &Path, threads: usize) -> Result<(Self, Vec<Range<usize>>)> {
        let path = card_path(file);
        let text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, "read", e))?;
        let card: IndexInfo = serde_json::from_str(&text)
            .map_err(|e| bad_file!(&path, "wanted the card of a saved index, found {e}; save it again"))?;
        if card.version != VERSION {
            let what =
                format!("wanted version {VERSION} of an index's card, found {}; save it again", card.version);
            return Err(Error::file(&path, what));
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
        if !fits {
            return Err(Error::file(
                &path,
                "wanted the rows, columns and metric of its index, found others; save it again",
            ));
        }
        let ends = card.episode_starts.iter().skip(1).copied().chain([card.rows]);
        let episodes = card.episode_starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect();
        let max_distance = OnceLock::new();
        let _ = max_distance.set(card.max_distance);
        Ok((Self { config: card.config, space: card.space, index, max_distance }, episodes))
    }

    /// Whether `file` looks like a saved index: its card lies beside it.
    pub fn is_saved(file: &Path) -> bool {
        file.is_file() && card_path(file).is_file()
    }

    /// [`Sumo::new`], cached in `home` by content: the same rows and settings are indexed once.
    ///
    /// # Errors
    /// As [`Sumo::new`], and a cache that cannot be written.
    pub fn open(home: &Home, config: &SumoConfig, data: &Batch, threads: usize) -> Result<Self> {
        config.validate_for(data.len())?;
        let name = content_hash(config, data)?;
        let _lock = home.lock("index", &name)?;
        let file = home.dir("index")?.join(format!("{name}.knn"));
        // A damaged or outdated file is no reason to stop: it is made again.
        if let Ok((kept, _)) = Self::load(&file, threads) {
            return Ok(kept);
        }
        let made = Self::new(config, data, threads)?;
        made.save(&file, &[])?;
        Ok(made)
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

/// Names an index by everything it depends on.
fn content_hash(config: &SumoConfig, data: &Batch) -> Result<String> {
    let settings = serde_json::to_string(config).map_err(|e| invalid!("sumo: {e}"))?;
    let mut sum = Checksum::of(&format!("{VERSION} {settings} {} {} ", data.obs_dim(), data.act_dim()));
    sum.rows(&config.vector.rows(data));
    Ok(sum.finish()[..32].to_string())
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
