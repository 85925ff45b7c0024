//! What a run is asked for, and what it writes down.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Table;

use crate::algorithms::{AlgorithmName, Configured, Registry};
use crate::checksum::short_hash;
use crate::config;
use crate::data::Dataset;
use crate::env::Physics;
use crate::error::{Result, bad_file, invalid, require};
use crate::run::CONFIG;

/// A run as a user asks for it. What is left open comes from [`settings_file`](Self::settings_file), the profile, the
/// presets and the defaults, in this order.
#[derive(Clone, Debug, Default)]
pub struct RunConfig {
    /// The algorithm, such as `mopo+sumo`. Without it, that of the settings file, or `landfall`.
    pub algorithm: Option<String>,
    /// What to learn from.
    pub data: DataSource,
    /// Seed of everything random; 0 when nothing says otherwise.
    pub seed: Option<u64>,
    /// Hyperparameters by another source than the default preset's (`kit`, `paper`, `mjrl`).
    pub preset: Option<String>,
    /// Settings that lie over the preset (`quick`).
    pub profile: Option<String>,
    /// Settings over the preset and the profile, such as a program's own defaults.
    pub base: Option<Table>,
    /// A TOML table over all of these: settings, or the config.toml of a run, which gives that run again.
    pub settings_file: Option<Table>,
    /// Single settings on top, each `key=value`.
    pub overrides: Vec<String>,
    /// Learn from about so many rows: whole episodes, drawn at random.
    pub rows: Option<usize>,
    /// Which physics to evaluate in.
    pub physics: Option<Physics>,
    /// The run directory; [`RunManifest::default_dir`] under [`base_dir`](Self::base_dir) when not given.
    pub dir: Option<PathBuf>,
    /// Where run directories without a name go.
    pub base_dir: PathBuf,
}

/// What to learn from.
#[derive(Clone, Debug)]
pub enum DataSource {
    /// A path, an id or a name; empty for that of the settings file.
    Named(String),
    /// Rows in memory.
    Rows(Box<Dataset>),
}

impl Default for DataSource {
    fn default() -> Self {
        Self::Named(String::new())
    }
}

impl From<&str> for DataSource {
    fn from(name: &str) -> Self {
        Self::Named(name.into())
    }
}

impl From<String> for DataSource {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}

impl From<Dataset> for DataSource {
    fn from(data: Dataset) -> Self {
        Self::Rows(Box::new(data))
    }
}

impl RunConfig {
    /// An algorithm on data: a name, a path, or rows in memory.
    pub fn new(algorithm: impl Into<String>, data: impl Into<DataSource>) -> Self {
        let (algorithm, data) = (Some(algorithm.into()), data.into());
        Self { algorithm, data, base_dir: "runs".into(), ..Self::default() }
    }

    /// Sets one value: `pessimism.lambda=5`.
    #[must_use]
    pub fn set(mut self, assignment: impl Into<String>) -> Self {
        self.overrides.push(assignment.into());
        self
    }

    /// Takes a profile.
    #[must_use]
    pub fn profile(mut self, name: impl Into<String>) -> Self {
        self.profile = Some(name.into());
        self
    }

    /// Takes a seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Takes a run directory.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Puts the layers together and validates the settings.
    pub(super) fn resolve(&self, registry: &Registry) -> Result<Request> {
        let given = self.settings_file.as_ref();
        let written: Option<RunManifest> = match given.filter(|table| table.contains_key("algorithm")) {
            None => None,
            Some(table) => Some(RunManifest::from_table(table.clone())?),
        };
        let name = self.algorithm.as_deref().or(written.as_ref().map(|w| w.algorithm.as_str()));
        let name = name.unwrap_or(Registry::DEFAULT);
        let (dataset, named_here) = match &self.data {
            DataSource::Named(name) if name.is_empty() => {
                let dataset = written.as_ref().map(|w| w.dataset.clone());
                (dataset.ok_or_else(|| invalid!("no dataset: give one, or a --config of a run"))?, false)
            }
            DataSource::Named(name) => (name.clone(), true),
            DataSource::Rows(data) => (data.name.clone(), true),
        };
        let algorithm = registry.parse(name)?;
        let (mut layers, profile_rows) =
            algorithm.layers(&dataset, self.preset.as_deref(), self.profile.as_deref())?;
        if let Some(base) = &self.base {
            layers.put(base.clone());
        }
        let mut rows = self.rows.or(profile_rows);
        if let Some(written) = &written {
            // Not over today's presets: what they have learnt since is not part of the run.
            if self.preset.is_none() && self.profile.is_none() {
                layers = algorithm.defaults()?;
            }
            layers.put(written.settings.clone());
            rows = self.rows.or(written.rows);
        } else if let Some(table) = given {
            layers.put(table.clone());
        }
        self.overrides.iter().try_for_each(|set| layers.set(set))?;
        let physics = match (self.physics, &written) {
            (Some(given), _) => given,
            (None, Some(written)) => written.physics.parse()?,
            (None, None) => Physics::default(),
        };
        Ok(Request {
            configured: algorithm.configure(&layers)?,
            algorithm,
            dataset,
            rows,
            seed: self.seed.or(written.as_ref().map(|w| w.seed)).unwrap_or_default(),
            physics,
            digest: written.filter(|_| !named_here && self.rows.is_none()).map(|w| w.data),
        })
    }
}

/// A run with everything decided but its data.
pub(super) struct Request {
    pub(super) algorithm: AlgorithmName,
    pub(super) configured: Configured,
    pub(super) dataset: String,
    pub(super) rows: Option<usize>,
    pub(super) seed: u64,
    pub(super) physics: Physics,
    /// Checksum of the transitions to use, where the request is that of an earlier run.
    pub(super) digest: Option<String>,
}

/// What a run writes down as its config.toml; reading it back gives the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunManifest {
    /// The algorithm with its estimator, such as `mopo+sumo`.
    pub algorithm: String,
    /// The dataset as it was named.
    pub dataset: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Rows that were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<usize>,
    /// The physics of evaluations.
    pub physics: String,
    /// Checksum of the transitions trained on: a run does not go on with other data.
    pub data: String,
    /// All settings of the algorithm.
    pub settings: Table,
}

impl RunManifest {
    /// Reads the configuration of the run in `dir`.
    ///
    /// # Errors
    /// A directory without a run, or a file that is no configuration of a training.
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(CONFIG);
        require!(
            path.is_file(),
            "{}: wanted a run directory with a {CONFIG}, found none; check the path",
            dir.display()
        );
        Self::from_table(config::read_table(&path)?)
            .map_err(|error| bad_file!(&path, "{error}; it is no training run"))
    }

    fn from_table(table: Table) -> Result<Self> {
        table.try_into().map_err(|e: toml::de::Error| invalid!("{}", e.message()))
    }

    /// As config.toml.
    ///
    /// # Errors
    /// Settings that TOML cannot hold.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|e| invalid!("cannot write the configuration as TOML: {e}"))
    }

    /// The algorithm with these settings.
    ///
    /// # Errors
    /// An algorithm or settings that this version does not know.
    pub fn configure(&self, registry: &Registry) -> Result<Configured> {
        let algorithm = registry.parse(&self.algorithm)?;
        // Not over today's presets: what they have learnt since is not part of the run.
        let mut layers = algorithm.defaults()?;
        layers.put(self.settings.clone());
        algorithm.configure(&layers)
    }

    /// Where the run lies under `base` when no directory is given for it:
    /// `<algorithm>/<dataset>/s<seed>-<hash of the configuration>`.
    ///
    /// # Errors
    /// As [`to_toml`](Self::to_toml).
    pub fn default_dir(&self, base: &Path) -> Result<PathBuf> {
        let name = format!("s{}-{}", self.seed, short_hash(self.to_toml()?));
        Ok(base.join(&self.algorithm).join(slug(&self.dataset)).join(name))
    }
}

/// The part of a dataset's name that can be a directory's.
pub fn slug(name: &str) -> String {
    let stem = Path::new(name).file_stem().map_or(name.into(), |s| s.to_string_lossy().into_owned());
    stem.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}
