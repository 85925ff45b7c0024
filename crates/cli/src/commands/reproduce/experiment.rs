//! An experiment as its TOML file says it: the columns of a table, and the datasets and seeds of each profile.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use offing::Error;
use offing::data::catalogue::{Recipe, made_names};
use offing::uncertainty::UncertaintyConfig;
use serde::Deserialize;

/// Experiments by name; the files lie in `experiments/`.
const EXPERIMENTS: &[(&str, &str)] = &[
    ("table2", include_str!("../../../../../experiments/table2.toml")),
    ("table3", include_str!("../../../../../experiments/table3.toml")),
    ("table5", include_str!("../../../../../experiments/table5.toml")),
    ("table9", include_str!("../../../../../experiments/table9.toml")),
];

/// One table or figure of the paper.
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
    profile: BTreeMap<String, Profile>,
    pub(super) grid: Grid,
}

/// How much of it to run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    pub(super) datasets: Vec<String>,
    pub(super) seeds: u64,
}

/// What a cell is, and what it gives.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Grid {
    /// A cell is the calibration study of one dataset and seed; it gives every column at once.
    Calibration { columns: Vec<Column> },
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
        let Grid::Calibration { columns } = &found.grid;
        if columns.is_empty() {
            bail!("{source}: `grid.columns`: wanted at least one column, found none");
        }
        for (i, column) in columns.iter().enumerate() {
            if columns[..i].iter().any(|c| c.name == column.name) || column.name == super::table::BASELINE {
                bail!(
                    "{source}: wanted columns of different names, found `{}` again; rename one",
                    column.name
                );
            }
        }
        Ok(found)
    }

    /// The profile of that name.
    pub(super) fn profile(&self, name: &str) -> Result<&Profile> {
        let known: Vec<&String> = self.profile.keys().collect();
        Ok(self.profile.get(name).ok_or_else(|| Error::unknown("profile", name, &known))?)
    }

    /// The columns, in order.
    pub(super) fn columns(&self) -> &[Column] {
        let Grid::Calibration { columns } = &self.grid;
        columns
    }
}

/// The datasets a user chose: names of the experiment, any other made set, a published id, or a path.
pub(super) fn choose(only: &[String], profile: &Profile) -> Result<Vec<String>> {
    let mut chosen: Vec<String> = Vec::new();
    for name in only {
        let bare = bare(name);
        let known = profile.datasets.contains(name)
            || Recipe::parse(bare).is_ok()
            || std::path::Path::new(name).exists();
        if !known {
            return Err(Error::unknown("dataset", name, &made_names()).into());
        }
        if !chosen.contains(name) {
            chosen.push(name.clone());
        }
    }
    Ok(if chosen.is_empty() { profile.datasets.clone() } else { chosen })
}

/// A dataset's name without D4RL's version: made and published sets of one name share a row of the paper.
pub(super) fn bare(dataset: &str) -> &str {
    dataset.strip_suffix("-v2").unwrap_or(dataset)
}

#[cfg(test)]
mod tests {
    use super::super::published::Published;
    use super::*;

    #[test]
    fn every_experiment_reads_and_its_columns_are_the_papers() {
        let all = Experiment::all().unwrap();
        assert_eq!(all.len(), 4);
        for experiment in &all {
            let table = experiment.paper.as_deref().unwrap();
            assert_eq!(table, experiment.name);
            let published = Published::of(table).unwrap();
            let own: Vec<&str> =
                experiment.columns().iter().filter(|c| !c.beyond).map(|c| c.name.as_str()).collect();
            let mut theirs = published.columns();
            theirs.sort_by_key(|c| own.iter().position(|o| o == c));
            assert_eq!(own, theirs, "{}", experiment.name);
            let paper = experiment.profile("paper").unwrap();
            let rows = paper.datasets.iter().filter(|d| published.get(d, own[0], "spearman").is_some());
            assert_eq!(rows.count(), if table == "table2" { 15 } else { 6 });
            let quick = experiment.profile("quick").unwrap();
            assert_eq!((quick.datasets.len(), quick.seeds), (3, 2));
            for dataset in quick.datasets.iter().chain(&paper.datasets) {
                assert!(Recipe::parse(dataset).is_ok(), "{dataset}");
                assert!(published.get(dataset, own[0], "pearson").is_some(), "{dataset} stands in the paper");
            }
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
        let ids = ["hopper-medium-v2", "walker2d-random", "hopper-medium-v2"].map(String::from);
        assert_eq!(choose(&ids, quick).unwrap(), &ids[..2]);
        assert_eq!(choose(&[], quick).unwrap(), quick.datasets);

        let head = "title = 't'\nabout = ''\n[profile.quick]\ndatasets = []\nseeds = 1\n[grid]\nkind = 'calibration'\n";
        let bad = |columns: &str| Experiment::parse("x", &format!("{head}{columns}"), "x.toml").unwrap_err();
        one_line(bad("columns = []"), "at least one column");
        let sumo = "{ name = 'a', estimator = { kind = 'sumo' } }";
        one_line(bad(&format!("columns = [{sumo}, {sumo}]")), "`a` again");
        one_line(bad("columns = [{ nam = 'a' }]"), "did you mean `name`?");
        one_line(bad("columns = [{ name = 'a', estimator = { kind = 'summo' } }]"), "did you mean `sumo`?");
    }
}
