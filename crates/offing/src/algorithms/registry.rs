//! Algorithms by name: which settings each has, where its presets are, how the two become an algorithm to run.

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Table;

use super::bc::BcConfig;
use super::combo::ComboConfig;
use super::iql::IqlAlgorithmConfig;
use super::landfall::LandfallConfig;
use super::mobile::MobileConfig;
use super::model_based_sac::ModelBasedSacConfig;
use super::morel::MorelConfig;
use super::rambo::RamboConfig;
use super::td3bc::Td3BcConfig;
use super::{Algorithm, validate};
use crate::config::{self, Layers};
use crate::data::catalogue::set_of;
use crate::error::{Error, Result, invalid};
use crate::uncertainty::UncertaintyConfig;

/// The presets of an algorithm, each a file of `presets/` by what follows the algorithm's name in its file name: nothing,
/// `.VARIANT`, or `+ESTIMATOR`.
macro_rules! presets {
    ($($suffix:literal: $file:literal),+) => {
        &[$(($suffix, include_str!(concat!("../../presets/", $file, ".toml")))),+]
    };
}

/// The algorithms of this crate. A new one is its page, its preset and its line here.
const ALGORITHMS: &[AlgorithmSpec] = &[
    AlgorithmSpec::new::<LandfallConfig>(
        "landfall",
        "follows the gradient of its return through the model, held to the data by search",
        EstimatorUse::Any,
        presets!("": "landfall"),
    ),
    AlgorithmSpec::new::<ModelBasedSacConfig>(
        "mopo",
        "penalises rewards by the estimator's score",
        EstimatorUse::Any,
        presets!("": "mopo", "+sumo": "mopo+sumo", ".kit": "mopo.kit"),
    ),
    AlgorithmSpec::new::<ModelBasedSacConfig>(
        "amorel",
        "cuts rollouts where the score passes the dataset's largest",
        EstimatorUse::Any,
        presets!("": "amorel", ".paper": "amorel.paper"),
    ),
    AlgorithmSpec::new::<MorelConfig>(
        "morel",
        "plans by natural policy gradient in a model that halts where it is unsure",
        EstimatorUse::Any,
        presets!("": "morel", ".mjrl": "morel.mjrl"),
    ),
    AlgorithmSpec::new::<ModelBasedSacConfig>(
        "morel-sac",
        "learns by SAC in a model that halts where it is unsure",
        EstimatorUse::Any,
        presets!("": "morel-sac"),
    ),
    AlgorithmSpec::new::<MobileConfig>(
        "mobile",
        "lowers the critics' targets by how much members disagree on the next value",
        EstimatorUse::WithCritics,
        presets!("": "mobile", "+sumo": "mobile+sumo"),
    ),
    AlgorithmSpec::new::<ComboConfig>(
        "combo",
        "pushes values down at imagined actions and up at logged ones",
        EstimatorUse::None,
        presets!("": "combo"),
    ),
    AlgorithmSpec::new::<RamboConfig>(
        "rambo",
        "trains the model against the policy, within what the data allow",
        EstimatorUse::None,
        presets!("": "rambo"),
    ),
    AlgorithmSpec::new::<Td3BcConfig>(
        "td3bc",
        "follows critics of the logged rows and stays near the logged actions; no model",
        EstimatorUse::None,
        presets!("": "td3bc"),
    ),
    AlgorithmSpec::new::<IqlAlgorithmConfig>(
        "iql",
        "values logged actions only and imitates the better ones; no model",
        EstimatorUse::None,
        presets!("": "iql"),
    ),
    AlgorithmSpec::new::<BcConfig>(
        "bc",
        "clones the behaviour in the data",
        EstimatorUse::None,
        presets!("": "bc"),
    ),
];

/// Settings for any algorithm by name: each over its preset.
const PROFILES: &[(&str, &str)] = &[
    ("quick", include_str!("../../presets/quick.toml")),
    ("standard", include_str!("../../presets/standard.toml")),
];

/// What every algorithm changes on AntMaze.
const ANTMAZE: &str = include_str!("../../presets/antmaze.toml");

/// Which estimators an algorithm takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EstimatorUse {
    /// It meets uncertainty without an estimator, or not at all.
    None,
    /// Any that can be built before training.
    Any,
    /// Those that read the critics, too.
    WithCritics,
}

/// An algorithm as the registry knows it.
#[derive(Clone, Copy, Debug)]
pub struct AlgorithmSpec {
    /// What users type.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Which estimators can follow the name.
    pub estimators: EstimatorUse,
    pub(super) presets: &'static [(&'static str, &'static str)],
    /// The name of the struct with its settings, with the path of its module.
    pub settings_type: fn() -> &'static str,
    defaults: fn() -> Result<Layers>,
    read: fn(&Layers) -> Result<Configured>,
}

/// An algorithm with settings that were read and validated.
#[derive(Debug)]
pub struct Configured {
    /// What runs.
    pub algorithm: Box<dyn Algorithm>,
    /// Its settings, whole, as a run writes them down.
    pub settings: Table,
}

impl AlgorithmSpec {
    /// An algorithm whose settings are an `A`. Of `presets`, the one without a suffix is the default.
    pub const fn new<A: Algorithm + Default + Serialize + DeserializeOwned + 'static>(
        name: &'static str,
        summary: &'static str,
        estimators: EstimatorUse,
        presets: &'static [(&'static str, &'static str)],
    ) -> Self {
        let (settings_type, defaults, read) = (std::any::type_name::<A>, Layers::of::<A>, read::<A>);
        Self { name, summary, estimators, presets, settings_type, defaults, read }
    }

    fn preset(&self, suffix: &str) -> Option<&'static str> {
        self.presets.iter().find(|(known, _)| *known == suffix).map(|(_, text)| *text)
    }
}

fn read<A: Algorithm + Serialize + DeserializeOwned + 'static>(layers: &Layers) -> Result<Configured> {
    let algorithm = layers.read::<A>()?.resolved();
    validate(&algorithm)?;
    Ok(Configured { settings: config::to_table(&algorithm)?, algorithm: Box::new(algorithm) })
}

/// The algorithms that names can mean: those of this crate, and more that a program adds.
#[derive(Clone, Debug)]
pub struct Registry {
    specs: Vec<AlgorithmSpec>,
}

impl Default for Registry {
    fn default() -> Self {
        Self { specs: ALGORITHMS.to_vec() }
    }
}

impl Registry {
    /// The algorithm of runs that name none.
    pub const DEFAULT: &str = "landfall";

    /// Adds an algorithm; it replaces one of the same name.
    #[must_use]
    pub fn with(mut self, spec: AlgorithmSpec) -> Self {
        self.specs.retain(|known| known.name != spec.name);
        self.specs.push(spec);
        self
    }

    /// All algorithms, in the order of tables.
    pub fn specs(&self) -> &[AlgorithmSpec] {
        &self.specs
    }

    /// Reads `mopo` or `mopo+sumo`.
    ///
    /// # Errors
    /// An unknown algorithm or estimator, or one that the algorithm does not take.
    pub fn parse(&self, name: &str) -> Result<AlgorithmName> {
        let (base, estimator) = match name.split_once('+') {
            Some((base, estimator)) => (base, Some(estimator)),
            None => (name, None),
        };
        let known = self.specs.iter().find(|spec| spec.name == base);
        let spec = *known.ok_or_else(|| {
            Error::unknown("algorithm", base, &self.specs.iter().map(|s| s.name).collect::<Vec<_>>())
        })?;
        let estimator = match estimator {
            None => None,
            Some(_) if spec.estimators == EstimatorUse::None => {
                return Err(invalid!("`{name}`: {base} takes no estimator; write `{base}`"));
            }
            Some("bellman-std") if spec.estimators != EstimatorUse::WithCritics => {
                return Err(invalid!(
                    "`{name}`: bellman-std needs the critics of MOBILE; write `mobile`, or choose another estimator"
                ));
            }
            Some(id) => Some(UncertaintyConfig::from_id(id)?.id()),
        };
        Ok(AlgorithmName { spec, estimator })
    }
}

/// An algorithm with the estimator asked for.
#[derive(Clone, Copy, Debug)]
pub struct AlgorithmName {
    /// The algorithm.
    pub spec: AlgorithmSpec,
    estimator: Option<&'static str>,
}

impl std::fmt::Display for AlgorithmName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.spec.name, self.estimator.map(|e| format!("+{e}")).unwrap_or_default())
    }
}

impl AlgorithmName {
    /// The settings' defaults alone: for a run whose own settings, which are whole, come on top.
    ///
    /// # Errors
    /// Defaults that TOML cannot hold.
    pub fn defaults(&self) -> Result<Layers> {
        (self.spec.defaults)()
    }

    /// Defaults, preset, estimator and profile, one over the other; also the rows that the profile asks for.
    ///
    /// # Errors
    /// A variant or a profile that does not exist.
    pub fn layers(
        &self,
        dataset: &str,
        variant: Option<&str>,
        profile: Option<&str>,
    ) -> Result<(Layers, Option<usize>)> {
        let set = set_of(dataset);
        let dataset = set.as_deref().unwrap_or(dataset);
        let name = self.spec.name;
        let mut layers = self.defaults()?;
        let source = |suffix: &str| format!("presets/{name}{suffix}.toml");
        if let Some(preset) = self.spec.preset("") {
            layers.preset(preset, &source(""), Some(dataset))?;
        }
        if let Some(variant) = variant {
            let suffix = format!(".{variant}");
            let preset = self.spec.preset(&suffix).ok_or_else(|| self.unknown_variant(variant))?;
            layers.preset(preset, &source(&suffix), Some(dataset))?;
        }
        if let Some(estimator) = self.estimator {
            let suffix = format!("+{estimator}");
            match self.spec.preset(&suffix) {
                Some(preset) => layers.preset(preset, &source(&suffix), Some(dataset))?,
                None => layers.set(&format!("uncertainty={{kind=\"{estimator}\"}}"))?,
            }
        }
        let mut rows = None;
        if let Some(profile) = profile {
            let known: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
            let found = PROFILES.iter().find(|(name, _)| *name == profile);
            let (_, text) = found.ok_or_else(|| Error::unknown("profile", profile, &known))?;
            rows = self.put_shared(&mut layers, text)?;
        }
        // Above the profile: a success rate over ten episodes says nothing.
        if dataset.starts_with("antmaze") {
            self.put_shared(&mut layers, ANTMAZE)?;
        }
        Ok((layers, rows))
    }

    /// Puts settings for all algorithms on top, and over them what their `[of.NAME]` says about this one; returns their
    /// `rows`. Tables that this algorithm does not have are left out.
    fn put_shared(&self, layers: &mut Layers, text: &str) -> Result<Option<usize>> {
        let mut table: Table = config::read_text(text, "a profile")?;
        let rows = table.remove("rows").and_then(|v| v.as_integer()).map(|n| n as usize);
        let mut of = table.remove("of").and_then(|v| v.try_into::<Table>().ok()).unwrap_or_default();
        table.retain(|key, _| layers.table().contains_key(key));
        layers.put(table);
        if let Some(own) = of.remove(self.spec.name).and_then(|v| v.try_into::<Table>().ok()) {
            layers.put(own);
        }
        Ok(rows)
    }

    fn unknown_variant(&self, variant: &str) -> Error {
        let others: Vec<&str> = self.spec.presets.iter().filter_map(|(s, _)| s.strip_prefix('.')).collect();
        let known = if others.is_empty() { "it has the default only".into() } else { others.join(", ") };
        invalid!("unknown preset `{variant}` of {}; known: {known}", self.spec.name)
    }

    /// Reads the layers as this algorithm's settings, and validates them.
    ///
    /// # Errors
    /// Unknown keys, values of another kind, values that make no sense: one line that says which.
    pub fn configure(&self, layers: &Layers) -> Result<Configured> {
        (self.spec.read)(layers)
    }
}
