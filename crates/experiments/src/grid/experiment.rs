//! An experiment as its TOML file says it: the columns of a table, and the datasets and seeds of each profile.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use offing::Error;
use offing::algorithms::Registry;
use offing::config::read_text;
use offing::data::catalogue::{GeneratedName, generated_names, without_version};
use offing::uncertainty::UncertaintyConfig;
use serde::{Deserialize, Serialize};

use super::GridKind;
use super::calibration::BASELINE;
use crate::format::counted;

/// Files of `experiments/` by name.
macro_rules! files {
    ($ending:literal: $($name:literal)+) => {
        &[$(($name, include_str!(concat!("../../experiments/", $name, $ending)))),+]
    };
}
pub(super) use files;

/// Experiments by name.
const EXPERIMENTS: &[(&str, &str)] = files!(".toml": "table1" "table2" "table3" "table4" "table5" "table7" "table8"
    "table9" "table10" "table11" "fig1" "fig4" "fig5" "real-share");

/// One table or figure of the paper, or a grid beside them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The name it is asked for by.
    #[serde(skip)]
    pub name: String,
    /// Its title.
    pub title: String,
    /// What its numbers are, in a sentence.
    pub(super) about: String,
    /// The published table beside it.
    pub(super) paper: Option<String>,
    /// What a reader of the published numbers should know, a sentence each.
    #[serde(default)]
    pub(super) notes: Vec<String>,
    profile: BTreeMap<String, Profile>,
    pub(super) grid: GridSpec,
}

/// How much of it to run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    pub(super) datasets: Vec<String>,
    pub(super) seeds: u64,
    /// Columns by name; all when empty.
    #[serde(default)]
    pub(super) columns: Vec<String>,
    /// The profile that settings come from, where it is not the one of the same name.
    settings: Option<String>,
    /// Settings over it, as `--set` takes them.
    #[serde(default)]
    pub(super) set: Vec<String>,
    /// Presets of columns (`--preset`).
    #[serde(default)]
    pub(super) presets: BTreeMap<String, String>,
}

/// What a cell is, and what numbers it gives.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum GridSpec {
    /// A cell is the calibration study of one dataset and seed; it gives every column at once.
    Calibration(CalibrationGrid),
    /// A cell is one `offing train`: one column, dataset and seed.
    Training(TrainingGrid),
    /// A cell measures how long all columns take on one dataset, in turns.
    Timing(TimingGrid),
    /// Figure 1: a cell is one small run on a point mass.
    #[serde(rename = "idea")]
    Fig1(Fig1Grid),
}

/// A grid of calibration studies.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CalibrationGrid {
    pub(super) columns: Vec<EstimatorColumn>,
}

/// A grid of trainings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrainingGrid {
    pub(super) columns: Vec<AlgorithmColumn>,
    /// Learning curves to draw side by side; one figure a dataset with all columns when empty.
    #[serde(default)]
    pub(super) panels: Vec<Panel>,
}

/// A grid of timings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimingGrid {
    pub(super) columns: Vec<AlgorithmColumn>,
    /// Blocks of 1000 gradient steps of each column.
    pub(super) blocks: usize,
    /// Gradient steps of the dynamics model before.
    pub(super) updates: usize,
}

/// Sizes of the run behind Figure 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fig1Grid {
    /// Rows of data.
    pub(super) rows: usize,
    /// Epochs of the dynamics model at most.
    pub(super) epochs: usize,
    /// Gradient steps of the policy.
    pub(super) steps: u64,
    /// Its discount (γ), and how many steps are imagined while it learns.
    pub(super) gamma: f64,
    pub(super) rollout: usize,
    /// Steps of an imagined trajectory.
    pub(super) length: usize,
    /// Factor of the threshold (α).
    pub(super) alpha: f32,
}

/// One estimator of a calibration table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EstimatorColumn {
    /// Its name here and in the published table.
    pub(super) name: String,
    pub(super) estimator: UncertaintyConfig,
    /// Whether the paper's table lacks it.
    #[serde(default)]
    pub(super) beyond: bool,
}

/// One algorithm of a table of scores.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AlgorithmColumn {
    /// Its name here and in the published table.
    pub(super) name: String,
    /// As `offing train` takes it; the name when not given.
    algorithm: Option<String>,
    /// Settings of its own, as `--set` takes them.
    #[serde(default)]
    pub(super) set: Vec<String>,
    /// The column it is to beat: wins are counted against it.
    pub(super) against: Option<String>,
    /// Whether the paper's table lacks it.
    #[serde(default)]
    pub(super) beyond: bool,
}

/// One figure of learning curves.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) columns: Vec<String>,
    /// What its columns differ in, a number each: their last scores are drawn over it, too.
    #[serde(default)]
    pub(super) at: Vec<f64>,
}

impl AlgorithmColumn {
    pub(super) fn algorithm(&self) -> &str {
        self.algorithm.as_deref().unwrap_or(&self.name)
    }

    /// Its name in tables.
    pub(super) fn label(&self) -> String {
        starred(&self.name, self.beyond)
    }
}

/// A column's name, with a star where the paper's table has no such column.
pub(super) fn starred(name: &str, beyond: bool) -> String {
    if beyond { format!("{name}*") } else { name.to_string() }
}

impl GridSpec {
    /// What runs its cells and makes its tables.
    pub(super) fn kind(&self) -> &dyn GridKind {
        match self {
            Self::Calibration(grid) => grid,
            Self::Training(grid) => grid,
            Self::Timing(grid) => grid,
            Self::Fig1(grid) => grid,
        }
    }

    /// Columns that are algorithms.
    fn algorithms(&self) -> &[AlgorithmColumn] {
        match self {
            Self::Training(TrainingGrid { columns, .. }) | Self::Timing(TimingGrid { columns, .. }) => {
                columns
            }
            Self::Calibration(_) | Self::Fig1(_) => &[],
        }
    }

    /// Names of the columns, in order, and whether the paper's table lacks each.
    pub(super) fn columns(&self) -> Vec<(&str, bool)> {
        match self {
            Self::Calibration(grid) => grid.columns.iter().map(|c| (c.name.as_str(), c.beyond)).collect(),
            _ => self.algorithms().iter().map(|c| (c.name.as_str(), c.beyond)).collect(),
        }
    }

    /// The same with some columns only. One that is not among them cannot be beaten.
    pub(super) fn with_columns(mut self, chosen: &[String]) -> Self {
        match &mut self {
            Self::Calibration(grid) => grid.columns.retain(|c| chosen.contains(&c.name)),
            Self::Training(TrainingGrid { columns, .. }) | Self::Timing(TimingGrid { columns, .. }) => {
                columns.retain(|c| chosen.contains(&c.name));
                columns.iter_mut().for_each(|c| c.against = c.against.take().filter(|a| chosen.contains(a)));
            }
            Self::Fig1(_) => {}
        }
        self
    }
}

impl Profile {
    /// The profile its settings come from; `paper` is the presets alone.
    pub(super) fn settings<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        Some(self.settings.as_deref().unwrap_or(name)).filter(|settings| *settings != "paper")
    }
}

impl Experiment {
    /// All there are.
    ///
    /// # Errors
    /// None: every one of them reads.
    pub fn all() -> Result<Vec<Self>> {
        EXPERIMENTS.iter().map(|(name, _)| Self::named(name)).collect()
    }

    /// The experiment of that name, or in the TOML file of that path.
    pub(super) fn named(name: &str) -> Result<Self> {
        if name.ends_with(".toml") {
            let text = std::fs::read_to_string(name).with_context(|| format!("{name}: cannot read"))?;
            let stem = std::path::Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
            return Self::parse(&stem, &text, name);
        }
        match EXPERIMENTS.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::parse(name, text, &format!("experiments/{name}.toml")),
            None => {
                let known: Vec<&str> = EXPERIMENTS.iter().map(|(known, _)| *known).collect();
                Err(Error::unknown("experiment", name, &known).into())
            }
        }
    }

    fn parse(name: &str, text: &str, source: &str) -> Result<Self> {
        let mut found: Self = read_text(text, source)?;
        found.name = name.into();
        let names = found.names();
        if names.is_empty() && !matches!(found.grid, GridSpec::Fig1(_)) {
            bail!("{source}: `grid.columns`: wanted at least one column, found none");
        }
        for (i, column) in names.iter().enumerate() {
            if names[..i].contains(column) || *column == BASELINE {
                bail!("{source}: wanted columns of different names, found `{column}` again; rename one");
            }
        }
        if let Some((profile, _)) = found.profile.iter().find(|(_, p)| p.seeds == 0) {
            bail!("{source}: `profile.{profile}.seeds`: wanted at least 1, found 0");
        }
        let mut referenced: Vec<&String> = found.profile.values().flat_map(|p| &p.columns).collect();
        referenced.extend(found.profile.values().flat_map(|p| p.presets.keys()));
        for column in found.grid.algorithms() {
            Registry::default().parse(column.algorithm()).with_context(|| source.to_string())?;
            referenced.extend(&column.against);
        }
        if let GridSpec::Training(TrainingGrid { panels, .. }) = &found.grid {
            referenced.extend(panels.iter().flat_map(|p| &p.columns));
            if let Some(p) = panels.iter().find(|p| !p.at.is_empty() && p.at.len() != p.columns.len()) {
                let (n, found) = (p.columns.len(), p.at.len());
                bail!("{source}: panel `{}`: `at`: wanted {n} numbers, one a column, found {found}", p.title);
            }
        }
        if let Some(unknown) = referenced.into_iter().find(|name| !names.contains(&name.as_str())) {
            return Err(Error::unknown("column", unknown, &names)).with_context(|| source.to_string());
        }
        Ok(found)
    }

    /// How much a profile runs: `3 datasets × 2 seeds`.
    ///
    /// # Errors
    /// An unknown profile.
    pub fn size(&self, profile: &str) -> Result<String> {
        let profile = self.profile(profile)?;
        let (datasets, seeds) = (profile.datasets.len(), profile.seeds as usize);
        Ok(format!("{} × {}", counted(datasets, "dataset"), counted(seeds, "seed")))
    }

    /// The profile of that name.
    pub(super) fn profile(&self, name: &str) -> Result<&Profile> {
        let known: Vec<&String> = self.profile.keys().collect();
        Ok(self.profile.get(name).ok_or_else(|| Error::unknown("profile", name, &known))?)
    }

    fn names(&self) -> Vec<&str> {
        self.grid.columns().into_iter().map(|(name, _)| name).collect()
    }

    /// The columns to run: those a user chose, the profile's, or all.
    pub(super) fn chosen(&self, asked: &[String], profile: &Profile) -> Result<Vec<String>> {
        let names = self.names();
        if let Some(unknown) = asked.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(Error::unknown("column", unknown, &names).into());
        }
        let wanted = if asked.is_empty() { &profile.columns } else { asked };
        let chosen = names.into_iter().map(str::to_string);
        Ok(chosen.filter(|name| wanted.is_empty() || wanted.contains(name)).collect())
    }
}

/// Whether a name ends in a version, as ids of D4RL and Minari do; whether there is such a dataset is seen when it is read.
fn is_published_id(name: &str) -> bool {
    let version = name.rsplit_once("-v").map_or("", |(_, version)| version);
    !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit())
}

/// The datasets a user chose: names of the experiment, any other generated dataset, a published id, or a path.
pub(super) fn choose(only: &[String], profile: &Profile) -> Result<Vec<String>> {
    let mut chosen: Vec<String> = Vec::new();
    for name in only {
        let known = profile.datasets.contains(name)
            || GeneratedName::parse(without_version(name)).is_ok()
            || is_published_id(name)
            || std::path::Path::new(name).exists();
        let path = std::path::Path::new(name);
        if !known && (path.extension().is_some() || path.components().count() > 1) {
            bail!("{name}: no such file; check the path");
        }
        if !known {
            return Err(Error::unknown("dataset", name, &generated_names()).into());
        }
        if !chosen.contains(name) {
            chosen.push(name.clone());
        }
    }
    Ok(if chosen.is_empty() { profile.datasets.clone() } else { chosen })
}

#[cfg(test)]
mod tests {
    use super::super::published::Published;
    use super::*;

    #[test]
    fn every_experiment_reads_and_its_columns_are_the_papers() {
        for experiment in &Experiment::all().unwrap() {
            let Some(table) = experiment.paper.as_deref() else { continue };
            let published = Published::of(table).unwrap();
            let own: Vec<&str> = experiment
                .grid
                .columns()
                .into_iter()
                .filter(|(_, beyond)| !beyond)
                .map(|(name, _)| name)
                .collect();
            let mut theirs = published.columns();
            theirs.sort_by_key(|c| own.iter().position(|o| o == c));
            assert_eq!(own, theirs, "{}", experiment.name);
            let (paper, quick) = (experiment.profile("paper").unwrap(), experiment.profile("quick").unwrap());
            // Its published numbers are means over datasets.
            if matches!(experiment.grid, GridSpec::Timing(_)) {
                assert!(own.iter().all(|c| published.get("average", c, "minutes").is_some()));
                continue;
            }
            assert!(paper.seeds == 5 && quick.seeds <= paper.seeds, "{}", experiment.name);
            let metric = match &experiment.grid {
                GridSpec::Calibration(_) => "pearson",
                _ => "score",
            };
            for dataset in quick.datasets.iter().chain(&paper.datasets) {
                assert!(GeneratedName::parse(dataset).is_ok(), "{dataset}");
                assert!(published.get(dataset, own[0], metric).is_some(), "{dataset} stands in the paper");
            }
            assert_eq!(paper.datasets.len(), published.datasets().len(), "{}", experiment.name);
        }
    }

    #[test]
    fn wrong_names_and_files_are_answered_in_one_line() {
        let one_line = |error: anyhow::Error, piece: &str| {
            let text = format!("{error:#}");
            assert!(text.contains(piece) && !text.contains('\n'), "{text}");
        };
        one_line(Experiment::named("tabel2").unwrap_err(), "did you mean `table2`?");
        one_line(Experiment::named("nothing.toml").unwrap_err(), "nothing.toml: cannot read");
        let table2 = Experiment::named("table2").unwrap();
        one_line(table2.profile("quik").unwrap_err(), "did you mean `quick`?");
        let quick = table2.profile("quick").unwrap();
        one_line(choose(&["hoper-medium".into()], quick).unwrap_err(), "did you mean `hopper-medium`?");
        one_line(choose(&["logs/mine.parquet".into()], quick).unwrap_err(), "mine.parquet: no such file");
        let ids = ["hopper-medium-v2", "walker2d-random", "hopper-medium-v2"].map(String::from);
        assert_eq!(choose(&ids, quick).unwrap(), &ids[..2]);
        assert_eq!(choose(&[], quick).unwrap(), quick.datasets);
        one_line(table2.chosen(&["sumoo".into()], quick).unwrap_err(), "did you mean `sumo`?");

        let head = "title = 't'\nabout = ''\n[profile.quick]\ndatasets = []\nseeds = 1\n[grid]\n";
        let bad = |grid: &str| Experiment::parse("x", &format!("{head}{grid}"), "x.toml").unwrap_err();
        let calibration = |columns: &str| bad(&format!("kind = 'calibration'\ncolumns = {columns}"));
        one_line(calibration("[]"), "at least one column");
        let none = "title = 't'\nabout = ''\n[profile.quick]\ndatasets = []\nseeds = 0\n[grid]\nkind = 'calibration'\n\
                    columns = [{ name = 'a', estimator = { kind = 'sumo' } }]";
        one_line(Experiment::parse("x", none, "x.toml").unwrap_err(), "wanted at least 1, found 0");
        let sumo = "{ name = 'a', estimator = { kind = 'sumo' } }";
        one_line(calibration(&format!("[{sumo}, {sumo}]")), "`a` again");
        one_line(calibration("[{ nam = 'a' }]"), "did you mean `name`?");
        one_line(calibration("[{ name = 'a', estimator = { kind = 'summo' } }]"), "did you mean `sumo`?");
        let training = |columns: &str| bad(&format!("kind = 'training'\ncolumns = {columns}"));
        one_line(training("[{ name = 'mopo+summo' }]"), "did you mean `sumo`?");
        one_line(training("[{ name = 'mopo+sumo', against = 'mopo' }]"), "unknown column `mopo`");
        let panel = "[{ name = 'mopo' }]\npanels = [{ title = 'p', columns = ['mopo'], at = [1.0, 2.0] }]";
        one_line(training(panel), "wanted 1 numbers, one a column, found 2");
    }
}
