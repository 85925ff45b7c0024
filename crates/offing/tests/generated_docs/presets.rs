//! The settings that every name gives in the end: an algorithm, its presets, each on every dataset, and the profiles over them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use offing::algorithms::{AlgorithmSpec, Registry};
use toml::{Table, Value};

/// A dataset that no preset knows.
const ANY: &str = "x";
/// One of AntMaze that no preset knows by itself.
const ANTMAZE: &str = "antmaze-umaze";

/// What one name of `offing train` stands for.
pub(crate) struct Setup {
    /// `mopo`, `mopo --preset kit`, `mopo+sumo`.
    pub(crate) label: String,
    pub(crate) algorithm: &'static str,
    /// Without a variant or an estimator.
    pub(crate) is_base: bool,
    /// The file's name.
    pub(crate) file: String,
    pub(crate) plain: Table,
    pub(crate) antmaze: Table,
    pub(crate) quick: Table,
    /// Datasets that presets have a part for: plain, and with the quick profile.
    pub(crate) on: BTreeMap<String, (Table, Table)>,
}

/// Every setup, in the order of the registry.
pub(crate) fn setups(presets: &Path) -> Vec<Setup> {
    let mut files: Vec<String> = fs::read_dir(presets).unwrap().flatten().map(|e| name(&e.path())).collect();
    files.sort();
    let registry = Registry::default();
    let mut all = Vec::new();
    for spec in registry.specs() {
        let own = |file: &&String| {
            let rest = file.strip_prefix(spec.name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+']))
        };
        let own: Vec<&String> = files.iter().filter(own).collect();
        for file in &own {
            all.push(setup(&registry, spec, file, &datasets(presets, &[spec.name, file])));
        }
        assert!(
            own.iter().any(|f| *f == spec.name),
            "presets/{}.toml: wanted a preset, found none",
            spec.name
        );
    }
    all
}

fn setup(registry: &Registry, spec: &AlgorithmSpec, file: &str, datasets: &BTreeSet<String>) -> Setup {
    let suffix = &file[spec.name.len()..];
    let variant = suffix.strip_prefix('.');
    let algorithm = registry.parse(if variant.is_some() { spec.name } else { file }).unwrap();
    let settings = |dataset: &str, profile: Option<&str>| {
        let (layers, _) = algorithm.layers(dataset, variant, profile).unwrap();
        algorithm.configure(&layers).unwrap().settings
    };
    Setup {
        label: match variant {
            Some(variant) => format!("{} --preset {variant}", spec.name),
            None => file.into(),
        },
        algorithm: spec.name,
        is_base: suffix.is_empty(),
        file: file.into(),
        plain: settings(ANY, None),
        antmaze: settings(ANTMAZE, None),
        quick: settings(ANY, Some("quick")),
        on: datasets.iter().map(|d| (d.clone(), (settings(d, None), settings(d, Some("quick"))))).collect(),
    }
}

/// The datasets that these presets have a part for.
fn datasets(presets: &Path, files: &[&str]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(presets.join(format!("{file}.toml"))).unwrap();
        let table: Table = text.parse().unwrap();
        all.extend(
            table.get("on").and_then(Value::as_table).into_iter().flatten().map(|(name, _)| name.clone()),
        );
    }
    all
}

fn name(path: &Path) -> String {
    let file = path.file_name().unwrap().to_string_lossy();
    file.strip_suffix(".toml").unwrap_or(&file).to_string()
}

/// The defaults of an algorithm with assignments on top, `None` where they are refused.
pub(crate) fn defaults_with(algorithm: &str, sets: &[String]) -> Option<Table> {
    let name = Registry::default().parse(algorithm).unwrap();
    let mut layers = name.defaults().unwrap();
    sets.iter().try_for_each(|set| layers.set(set)).unwrap();
    name.configure(&layers).ok().map(|it| it.settings)
}

/// The value at a path of keys.
pub(crate) fn at<'a>(table: &'a Table, path: &[String]) -> Option<&'a Value> {
    let (last, before) = path.split_last()?;
    before.iter().try_fold(table, |table, key| table.get(key)?.as_table())?.get(last)
}
