//! A cache of trained ensembles by content: the same rows, configuration and seed are fitted once on a machine.
//!
//! `models/<hash>/` holds `model.safetensors` and, written last, `report.json` with its checksum. While a fit
//! runs, `trainer.safetensors` is its latest checkpoint, so a killed fit resumes where it stopped, bit for
//! bit.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::config::EnsembleConfig;
use super::data::check_rows;
use super::ensemble::Ensemble;
use super::termination::TerminationConfig;
use super::trainer::{FitProgress, FitReport, Trainer};
use crate::batch::Batch;
use crate::checksum::{Checksum, of_bytes};
use crate::data::ColumnNames;
use crate::error::{Error, Result, bad_file, invalid};
use crate::home::{Home, write_atomic, write_json};
use crate::nn::{Tensors, ThreadPool};

/// Counts changes of the training code or of the files that make older models no longer what a fit would
/// give.
const VERSION: u32 = 1;

// The files in a model's directory.
const MODEL: &str = "model.safetensors";
const REPORT: &str = "report.json";
const TRAINER: &str = "trainer.safetensors";

/// Gradient steps between checkpoints: half a minute at the paper's size, next to nothing lost or spent.
const CHECKPOINT_EVERY: u64 = 500;

/// What to fit: the model is a function of this and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct FitRequest<'a> {
    /// The rows to learn from.
    pub rows: &'a Batch,
    /// Size and training of the ensemble.
    pub config: &'a EnsembleConfig,
    /// What the columns are called, for conditions that use the names. Not part of the key.
    pub names: &'a ColumnNames,
    /// When an imagined episode ends. Not part of the key: it is built anew each time.
    pub termination: &'a TerminationConfig,
    /// Seed of everything random.
    pub seed: u64,
}

/// A model from the cache or fresh from training.
#[derive(Clone, Debug)]
pub struct CachedModel {
    /// The model.
    pub model: Ensemble,
    /// What was found in the data, and how long training was.
    pub report: FitReport,
    /// Epochs trained.
    pub epochs: u64,
    /// Gradient steps taken.
    pub updates: u64,
    /// True when it was trained (or its training finished) now.
    pub fresh: bool,
    /// Its directory.
    pub dir: PathBuf,
}

/// What happens on the way to a model.
#[derive(Clone, Debug)]
pub enum FitEvent<'a> {
    /// A line for the user.
    Note(String),
    /// A gradient step was taken.
    Step(&'a FitProgress),
}

/// `report.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedReport {
    version: u32,
    /// What [`key`] gives for what it was fitted to: a model of other rows under this name is noticed.
    key: String,
    /// SHA-256 of `model.safetensors`.
    model_sha256: String,
    config: EnsembleConfig,
    seed: u64,
    epochs: u64,
    updates: u64,
    fit: FitReport,
}

/// The ensemble for `fit`: loaded from `home`, or trained there under a lock. `progress` is called after every
/// step; an error it returns stops training, and the next call resumes from the last checkpoint.
pub fn fit_cached(
    home: &Home,
    fit: FitRequest<'_>,
    pool: &ThreadPool,
    progress: &mut dyn FnMut(FitEvent<'_>) -> Result<()>,
) -> Result<CachedModel> {
    fit_cached_every(home, fit, pool, CHECKPOINT_EVERY, progress)
}

fn fit_cached_every(
    home: &Home,
    fit: FitRequest<'_>,
    pool: &ThreadPool,
    every: u64,
    progress: &mut dyn FnMut(FitEvent<'_>) -> Result<()>,
) -> Result<CachedModel> {
    // Before any hash or lock: rows or values that cannot be trained on.
    fit.config.validate()?;
    check_rows(fit.rows)?;
    let termination = fit.termination.build(fit.rows, fit.names, fit.seed)?;
    let key = key(&fit)?;
    let _lock = home.lock_or_notify("models", &key, || {
        progress(FitEvent::Note("another process is fitting this model; waiting for it".into()))
    })?;
    let dir = home.dir(&format!("models/{key}"))?;
    for file in [REPORT, MODEL, TRAINER] {
        home.check_owner(&dir.join(file))?;
    }
    let kept = find(&dir, &key, pool)
        .or_else(|error| progress(FitEvent::Note(format!("{error}; fitting it again"))).map(|()| None))?;
    let found = match kept {
        Some(found) => found,
        None => {
            let mut trainer = Trainer::new(fit.config, fit.rows, fit.seed, pool)?;
            train(&mut trainer, &dir, &key, every, progress)?;
            keep(trainer, &fit, key, &dir)?
        }
    };
    Ok(CachedModel { model: found.model.with_termination(termination), ..found })
}

/// Whether [`fit_cached`] would find the model finished.
pub fn is_cached(home: &Home, fit: &FitRequest<'_>) -> Result<bool> {
    Ok(home.root().join("models").join(key(fit)?).join(REPORT).exists())
}

/// Name of a model: a hash of everything its weights follow from.
pub fn key(fit: &FitRequest<'_>) -> Result<String> {
    let config = serde_json::to_string(fit.config)
        .map_err(|e| invalid!("cannot write the model's configuration: {e}"))?;
    let rows = fit.rows;
    let head = format!(
        "offing model {VERSION}\n{config}\nseed {}\n{} {} {}\n",
        fit.seed,
        rows.len(),
        rows.obs_dim(),
        rows.act_dim()
    );
    let mut sum = Checksum::of(&head);
    sum.transitions(rows);
    Ok(sum.finish()[..32].to_string())
}

/// The finished model in `dir`, none when there is none yet, an error when it is damaged or not the one of this key.
fn find(dir: &Path, key: &str, pool: &ThreadPool) -> Result<Option<CachedModel>> {
    let path = dir.join(REPORT);
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).map_err(|e| Error::io(&path, "read", e))?;
    let report: SavedReport = serde_json::from_str(&text)
        .map_err(|e| bad_file!(&path, "wanted a model's report, found a damaged file ({e})"))?;
    if report.key != key {
        return Err(Error::file(&path, "wanted the model of these rows, settings and seed, found another"));
    }
    let path = dir.join(MODEL);
    let bytes = fs::read(&path).map_err(|e| Error::io(&path, "read", e))?;
    if of_bytes(&bytes) != report.model_sha256 {
        return Err(Error::file(&path, "wanted the model its report describes, found other content"));
    }
    let model = Tensors::from_bytes(&bytes)
        .and_then(|tensors| Ensemble::load(&tensors, pool))
        .map_err(|e| Error::file(&path, e.to_string()))?;
    let SavedReport { epochs, updates, fit, .. } = report;
    Ok(Some(CachedModel { model, report: fit, epochs, updates, fresh: false, dir: dir.to_path_buf() }))
}

/// Trains to the end, from the last checkpoint when there is one.
fn train(
    trainer: &mut Trainer<'_>,
    dir: &Path,
    key: &str,
    every: u64,
    progress: &mut dyn FnMut(FitEvent<'_>) -> Result<()>,
) -> Result<()> {
    let path = dir.join(TRAINER);
    if path.exists() {
        let bytes = fs::read(&path).map_err(|e| Error::io(&path, "read", e))?;
        let note = match unsealed(key, &bytes).and_then(Tensors::from_bytes).and_then(|t| trainer.load(&t)) {
            Ok(()) => "resuming the fit that was interrupted".to_string(),
            Err(error) => format!("{}: {error}; fitting from the start", path.display()),
        };
        progress(FitEvent::Note(note))?;
    }
    loop {
        let now = trainer.step()?;
        if now.finished {
            return progress(FitEvent::Step(&now));
        }
        if now.updates % every == 0 {
            let bytes = trainer.save().to_bytes()?;
            write_atomic(&path, |file| {
                file.write_all(&seal(key, &bytes))?;
                file.write_all(&bytes)
            })?;
        }
        progress(FitEvent::Step(&now))?;
    }
}

/// A checkpoint is 32 bytes of checksum and the tensors.
fn unsealed<'a>(key: &str, bytes: &'a [u8]) -> Result<&'a [u8]> {
    match bytes.split_at_checked(32) {
        Some((sum, rest)) if seal(key, rest)[..] == *sum => Ok(rest),
        _ => {
            Err(invalid!("wanted a checkpoint of this fit with its checksum, found a damaged or another one"))
        }
    }
}

/// Over the key as well: the checkpoint of another fit is no place to go on from.
fn seal(key: &str, bytes: &[u8]) -> impl AsRef<[u8]> + std::ops::Deref<Target = [u8]> {
    Sha256::new().chain_update(key).chain_update(bytes).finalize()
}

/// Stores the trained model; the report goes last, so that a model with a report is whole.
fn keep(trainer: Trainer<'_>, fit: &FitRequest<'_>, key: String, dir: &Path) -> Result<CachedModel> {
    let (report, now) = (trainer.report().clone(), trainer.now());
    let model = trainer.finish()?;
    let bytes = model.save().to_bytes()?;
    let path = dir.join(REPORT);
    if path.exists() {
        fs::remove_file(&path).map_err(|e| Error::io(&path, "remove", e))?;
    }
    write_atomic(&dir.join(MODEL), |file| file.write_all(&bytes))?;
    let written = SavedReport {
        version: VERSION,
        key,
        model_sha256: of_bytes(&bytes),
        config: fit.config.clone(),
        seed: fit.seed,
        epochs: now.epoch,
        updates: now.updates,
        fit: report.clone(),
    };
    write_json(&path, &written)?;
    // The model is safe; a checkpoint that cannot be removed only takes space.
    let _ = fs::remove_file(dir.join(TRAINER));
    let (epochs, updates) = (now.epoch, now.updates);
    Ok(CachedModel { model, report, epochs, updates, fresh: true, dir: dir.to_path_buf() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Mat;
    use crate::rng::Rng;
    use ndarray::Array1;

    fn rows() -> Batch {
        let mut rng = Rng::stream(3, "rows", 0);
        let obs = Mat::from_shape_fn((600, 3), |_| rng.normal() as f32);
        let act = Mat::from_shape_fn((600, 2), |_| rng.normal() as f32);
        let next_obs = obs.mapv(f32::sin);
        Batch { rew: act.column(0).to_owned(), done: Array1::from_elem(600, false), obs, act, next_obs }
    }

    fn config() -> EnsembleConfig {
        EnsembleConfig {
            members: 2,
            elites: 1,
            hidden: vec![16; 2],
            decay: vec![1e-5; 3],
            batch_size: 50,
            max_epochs: Some(4),
            ..Default::default()
        }
    }

    const NEVER: TerminationConfig = TerminationConfig::Never {};
    static NONE: ColumnNames = ColumnNames { obs: Vec::new(), act: Vec::new() };

    fn fit<'a>(rows: &'a Batch, config: &'a EnsembleConfig) -> FitRequest<'a> {
        FitRequest { rows, names: &NONE, config, termination: &NEVER, seed: 5 }
    }

    fn bytes(found: &CachedModel) -> Vec<u8> {
        found.model.save().to_bytes().unwrap()
    }

    /// Calls with a checkpoint every 7 steps; returns what was said, too.
    fn call(home: &Home, fit: FitRequest<'_>, stop_at: Option<u64>) -> (Result<CachedModel>, Vec<String>) {
        let mut said = Vec::new();
        let result = fit_cached_every(home, fit, &ThreadPool::new(1), 7, &mut |event| {
            match event {
                FitEvent::Note(line) => said.push(line),
                FitEvent::Step(now) if Some(now.updates) == stop_at => {
                    return Err(invalid!("killed"));
                }
                FitEvent::Step(_) => (),
            }
            Ok(())
        });
        (result, said)
    }

    #[test]
    fn the_second_call_finds_what_the_first_trained() {
        let (dir, rows, config) = (tempfile::tempdir().unwrap(), rows(), config());
        let home = Home::new(dir.path());
        assert!(!is_cached(&home, &fit(&rows, &config)).unwrap());
        let first = call(&home, fit(&rows, &config), None).0.unwrap();
        assert!(is_cached(&home, &fit(&rows, &config)).unwrap());
        let second = call(&home, fit(&rows, &config), None).0.unwrap();
        assert!(first.fresh && !second.fresh);
        assert_eq!(bytes(&first), bytes(&second));
        assert_eq!((first.report, first.epochs), (second.report, second.epochs));
        assert!(!second.dir.join(TRAINER).exists(), "no checkpoint is left behind");
    }

    #[test]
    fn a_killed_fit_resumes_bit_for_bit() {
        let (rows, config) = (rows(), config());
        let whole = tempfile::tempdir().unwrap();
        let whole = call(&Home::new(whole.path()), fit(&rows, &config), None).0.unwrap();
        // 480 training rows make 10 steps an epoch: before a checkpoint, at one, after one, in a later epoch.
        for stop in [3, 7, 9, 26] {
            let dir = tempfile::tempdir().unwrap();
            let home = Home::new(dir.path());
            assert!(call(&home, fit(&rows, &config), Some(stop)).0.is_err());
            let (again, said) = call(&home, fit(&rows, &config), None);
            assert_eq!(bytes(&again.unwrap()), bytes(&whole), "killed at {stop}");
            assert_eq!(said.len(), usize::from(stop >= 7), "{said:?}");
        }
    }

    #[test]
    fn damaged_files_are_said_and_fitted_again() {
        let (dir, rows, config) = (tempfile::tempdir().unwrap(), rows(), config());
        let home = Home::new(dir.path());
        let good = call(&home, fit(&rows, &config), None).0.unwrap();
        for file in [good.dir.join(MODEL), good.dir.join(REPORT)] {
            let mut content = fs::read(&file).unwrap();
            let middle = content.len() / 2;
            content[middle] ^= 0x10;
            fs::write(&file, &content).unwrap();
            let (again, said) = call(&home, fit(&rows, &config), None);
            let again = again.unwrap();
            assert!(again.fresh && said.len() == 1 && !said[0].contains('\n'), "{said:?}");
            assert_eq!(bytes(&again), bytes(&good));
        }
        // A damaged checkpoint of a fit that was killed.
        fs::remove_file(good.dir.join(REPORT)).unwrap();
        fs::write(good.dir.join(TRAINER), b"half a checkpoint, and more than 32 bytes of it").unwrap();
        let (again, said) = call(&home, fit(&rows, &config), None);
        assert_eq!(bytes(&again.unwrap()), bytes(&good));
        assert!(said[0].contains("from the start"), "{said:?}");
    }

    #[test]
    fn a_model_or_checkpoint_of_another_fit_under_the_right_name_is_not_used() {
        let (dir, rows, config) = (tempfile::tempdir().unwrap(), rows(), config());
        let home = Home::new(dir.path());
        let good = call(&home, fit(&rows, &config), None).0.unwrap();
        let mut other_rows = rows.clone();
        other_rows.rew[17] += 1.0;
        for other in [FitRequest { seed: 6, ..fit(&rows, &config) }, fit(&other_rows, &config)] {
            let elsewhere = tempfile::tempdir().unwrap();
            let other_home = Home::new(elsewhere.path());
            assert!(call(&other_home, other, Some(26)).0.is_err());
            let half = elsewhere.path().join("models").join(key(&other).unwrap()).join(TRAINER);
            let half = fs::read(half).unwrap();
            let another = call(&other_home, other, None).0.unwrap();
            for file in [MODEL, REPORT] {
                fs::copy(another.dir.join(file), good.dir.join(file)).unwrap();
            }
            let (again, said) = call(&home, fit(&rows, &config), None);
            assert!(said[0].contains("these rows, settings and seed, found another"), "{said:?}");
            assert_eq!(bytes(&again.unwrap()), bytes(&good));
            fs::remove_file(good.dir.join(REPORT)).unwrap();
            fs::write(good.dir.join(TRAINER), half).unwrap();
            let (again, said) = call(&home, fit(&rows, &config), None);
            assert!(said[0].contains("from the start"), "{said:?}");
            assert_eq!(bytes(&again.unwrap()), bytes(&good));
        }
    }

    #[test]
    fn every_ingredient_has_its_own_key() {
        let (rows, config) = (rows(), config());
        let base = key(&fit(&rows, &config)).unwrap();
        let mut other_rows = rows.clone();
        other_rows.rew[17] += 1.0;
        let other_config = EnsembleConfig { lr: 2e-3, ..config.clone() };
        let others = [
            key(&fit(&other_rows, &config)).unwrap(),
            key(&fit(&rows, &other_config)).unwrap(),
            key(&FitRequest { seed: 6, ..fit(&rows, &config) }).unwrap(),
        ];
        assert!(others.iter().all(|k| *k != base) && others[0] != others[1] && others[1] != others[2]);
        assert_eq!(base, key(&fit(&rows, &config)).unwrap());
    }
}
