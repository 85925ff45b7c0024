//! An experiment as its TOML file says it: the columns of a table, and the datasets and seeds of each profile.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use offing::Error;
use offing::data::catalogue::{GeneratedName, generated_names, without_version};
use offing::uncertainty::UncertaintyConfig;
use serde::{Deserialize, Serialize};

use crate::algorithms::Algorithm;

/// Experiments by name; the files lie in `experiments/`.
const EXPERIMENTS: &[(&str, &str)] = &[
    ("table1", include_str!("../../../../../experiments/table1.toml")),
    ("table2", include_str!("../../../../../experiments/table2.toml")),
    ("table3", include_str!("../../../../../experiments/table3.toml")),
    ("table4", include_str!("../../../../../experiments/table4.toml")),
    ("table5", include_str!("../../../../../experiments/table5.toml")),
    ("table7", include_str!("../../../../../experiments/table7.toml")),
    ("table8", include_str!("../../../../../experiments/table8.toml")),
    ("table9", include_str!("../../../../../experiments/table9.toml")),
    ("table10", include_str!("../../../../../experiments/table10.toml")),
    ("table11", include_str!("../../../../../experiments/table11.toml")),
    ("fig1", include_str!("../../../../../experiments/fig1.toml")),
    ("fig4", include_str!("../../../../../experiments/fig4.toml")),
    ("fig5", include_str!("../../../../../experiments/fig5.toml")),
    ("real-share", include_str!("../../../../../experiments/real-share.toml")),
];

/// One table or figure of the paper, or a grid beside them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Experiment {
    /// The name it is asked for by.
    #[serde(skip)]
    pub(super) name: String,
    pub(super) title: String,
    /// What its numbers are, in a sentence.
    pub(super) about: String,
    /// The published table beside it.
    pub(super) paper: Option<String>,
    /// What a reader of the published numbers should know, a sentence each.
    #[serde(default)]
    pub(super) notes: Vec<String>,
    profile: BTreeMap<String, Profile>,
    pub(super) grid: Grid,
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

/// What a cell is, and what it gives.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Grid {
    /// A cell is the calibration study of one dataset and seed; it gives every column at once.
    Calibration { columns: Vec<Column> },
    /// A cell is one `offing train`: one column, dataset and seed.
    Training {
        columns: Vec<Trained>,
        /// Learning curves to draw side by side; one figure a dataset with all columns when empty.
        #[serde(default)]
        panels: Vec<Panel>,
    },
    /// A cell measures how long all columns take on one dataset, in turns.
    Timing {
        columns: Vec<Trained>,
        /// Blocks of 1000 gradient steps of each column.
        blocks: usize,
        /// Gradient steps of the dynamics model before.
        updates: usize,
    },
    /// Figure 1: a cell is one small run on a point mass.
    Idea(Idea),
}

/// Sizes of the run behind Figure 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Idea {
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
pub(super) struct Column {
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
pub(super) struct Trained {
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

impl Trained {
    pub(super) fn algorithm(&self) -> &str {
        self.algorithm.as_deref().unwrap_or(&self.name)
    }
}

impl Profile {
    /// The profile its settings come from; `paper` is the presets alone.
    pub(super) fn settings<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        Some(self.settings.as_deref().unwrap_or(name)).filter(|settings| *settings != "paper")
    }
}

impl Experiment {
    /// Names and titles of all there are.
    pub(super) fn all() -> Result<Vec<Self>> {
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
        let mut found: Self = crate::config::read_text(text, source)?;
        found.name = name.into();
        let names = found.names();
        if names.is_empty() && !matches!(found.grid, Grid::Idea(_)) {
            bail!("{source}: `grid.columns`: wanted at least one column, found none");
        }
        for (i, column) in names.iter().enumerate() {
            if names[..i].contains(column) || *column == super::calibration::BASELINE {
                bail!("{source}: wanted columns of different names, found `{column}` again; rename one");
            }
        }
        if let Some((profile, _)) = found.profile.iter().find(|(_, p)| p.seeds == 0) {
            bail!("{source}: `profile.{profile}.seeds`: wanted at least 1, found 0");
        }
        let mut meant: Vec<&String> = found.profile.values().flat_map(|p| &p.columns).collect();
        meant.extend(found.profile.values().flat_map(|p| p.presets.keys()));
        if let Grid::Training { columns, .. } | Grid::Timing { columns, .. } = &found.grid {
            for column in columns {
                Algorithm::parse(column.algorithm()).with_context(|| source.to_string())?;
                meant.extend(&column.against);
            }
        }
        if let Grid::Training { panels, .. } = &found.grid {
            meant.extend(panels.iter().flat_map(|p| &p.columns));
            if let Some(p) = panels.iter().find(|p| !p.at.is_empty() && p.at.len() != p.columns.len()) {
                let (n, found) = (p.columns.len(), p.at.len());
                bail!("{source}: panel `{}`: `at`: wanted {n} numbers, one a column, found {found}", p.title);
            }
        }
        if let Some(unknown) = meant.into_iter().find(|name| !names.contains(&name.as_str())) {
            return Err(Error::unknown("column", unknown, &names)).with_context(|| source.to_string());
        }
        Ok(found)
    }

    /// The profile of that name.
    pub(super) fn profile(&self, name: &str) -> Result<&Profile> {
        let known: Vec<&String> = self.profile.keys().collect();
        Ok(self.profile.get(name).ok_or_else(|| Error::unknown("profile", name, &known))?)
    }

    /// Names of the columns, in order.
    pub(super) fn names(&self) -> Vec<&str> {
        match &self.grid {
            Grid::Calibration { columns } => columns.iter().map(|c| c.name.as_str()).collect(),
            Grid::Training { columns, .. } | Grid::Timing { columns, .. } => {
                columns.iter().map(|c| c.name.as_str()).collect()
            }
            Grid::Idea(_) => Vec::new(),
        }
    }

    /// The columns to run: those a user chose, the profile's, or all.
    pub(super) fn chosen(&self, asked: &[String], profile: &Profile) -> Result<Vec<String>> {
        let names = self.names();
        if let Some(unknown) = asked.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(Error::unknown("column", unknown, &names).into());
        }
        let wanted = if asked.is_empty() { &profile.columns } else { asked };
        let all = wanted.is_empty();
        let chosen = names.into_iter().filter(|name| all || wanted.iter().any(|w| w == name));
        Ok(chosen.map(str::to_string).collect())
    }
}

/// Whether a name ends in a version, as ids of D4RL and Minari do; whether there is such a dataset is seen when it is read.
fn is_published_id(name: &str) -> bool {
    let version = name.rsplit_once("-v").map_or("", |(_, version)| version);
    !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit())
}

/// The datasets a user chose: names of the experiment, any other made set, a published id, or a path.
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
            let own: Vec<&str> = match &experiment.grid {
                Grid::Calibration { columns } => {
                    columns.iter().filter(|c| !c.beyond).map(|c| c.name.as_str()).collect()
                }
                Grid::Training { columns, .. } | Grid::Timing { columns, .. } => {
                    columns.iter().filter(|c| !c.beyond).map(|c| c.name.as_str()).collect()
                }
                Grid::Idea(_) => Vec::new(),
            };
            let mut theirs = published.columns();
            theirs.sort_by_key(|c| own.iter().position(|o| o == c));
            assert_eq!(own, theirs, "{}", experiment.name);
            let (paper, quick) = (experiment.profile("paper").unwrap(), experiment.profile("quick").unwrap());
            // Its published numbers are means over datasets.
            if matches!(experiment.grid, Grid::Timing { .. }) {
                assert!(own.iter().all(|c| published.get("average", c, "minutes").is_some()));
                continue;
            }
            assert!(paper.seeds == 5 && quick.seeds <= paper.seeds, "{}", experiment.name);
            let metric = match &experiment.grid {
                Grid::Calibration { .. } => "pearson",
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
