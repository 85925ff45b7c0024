//! The paper's own numbers, from `experiments/paper/*.csv`.

use anyhow::Result;
use offing::Error;
use offing::data::catalogue::{set_of, version_of, without_version};
use serde::Deserialize;

use super::experiment::{Experiment, files};

/// The transcribed tables that experiments stand beside.
const TABLES: &[(&str, &str)] = files!(".csv": "paper/table1" "paper/table2" "paper/table3" "paper/table4" "paper/table5"
    "paper/table7" "paper/table8" "paper/table9" "paper/table10" "paper/table11");

/// Whether a dataset may stand beside the paper's numbers: a generated one, or the version of D4RL's that the paper used (-v2, of
/// AntMaze -v0). Other versions were recorded by other policies, and Minari's copies of AntMaze have another ant.
fn comparable(dataset: &str) -> bool {
    let maze = set_of(dataset).is_some_and(|set| set.starts_with("antmaze"));
    let used = if maze { 0 } else { 2 };
    !dataset.starts_with("D4RL/") && version_of(dataset).is_none_or(|version| version == used)
}

/// One published table.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    rows: Vec<PublishedRow>,
}

/// One line of a transcribed table.
#[derive(Clone, Debug, Deserialize)]
struct PublishedRow {
    dataset: String,
    column: String,
    metric: String,
    mean: f64,
    std: Option<f64>,
}

impl Published {
    /// The table of that name.
    pub(super) fn of(table: &str) -> Result<Self> {
        let known: Vec<&str> = TABLES.iter().map(|(name, _)| name.trim_start_matches("paper/")).collect();
        let place = known.iter().position(|name| *name == table);
        let place = place.ok_or_else(|| Error::unknown("published table", table, &known))?;
        let rows = csv::Reader::from_reader(TABLES[place].1.as_bytes()).into_deserialize();
        Ok(Self { rows: rows.collect::<Result<_, _>>()? })
    }

    /// The table beside an experiment; empty where the paper has none.
    pub(super) fn beside(experiment: &Experiment) -> Result<Self> {
        experiment.paper.as_deref().map_or(Ok(Self::default()), Self::of)
    }

    fn row(&self, dataset: &str, column: &str, metric: &str) -> Option<&PublishedRow> {
        if !comparable(dataset) {
            return None;
        }
        let set = set_of(dataset).unwrap_or_else(|| without_version(dataset).into());
        let is = |r: &&PublishedRow| {
            (without_version(&r.dataset), r.column.as_str(), r.metric.as_str()) == (&set, column, metric)
        };
        self.rows.iter().find(is)
    }

    /// The published mean, where the paper has it.
    pub(super) fn get(&self, dataset: &str, column: &str, metric: &str) -> Option<f64> {
        self.row(dataset, column, metric).map(|r| r.mean)
    }

    /// Its standard deviation, where the paper gives one.
    pub(super) fn std(&self, dataset: &str, column: &str, metric: &str) -> Option<f64> {
        self.row(dataset, column, metric).and_then(|r| r.std)
    }

    /// The paper's columns, in its order.
    #[cfg(test)]
    pub(super) fn columns(&self) -> Vec<&str> {
        in_order(self.rows.iter().map(|r| r.column.as_str()))
    }

    /// The paper's datasets, in its order.
    #[cfg(test)]
    pub(super) fn datasets(&self) -> Vec<&str> {
        in_order(self.rows.iter().map(|r| without_version(&r.dataset)).filter(|d| *d != "average"))
    }
}

/// Every name once, in the order of first mention.
#[cfg(test)]
fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    names.for_each(|name| {
        if !seen.contains(&name) {
            seen.push(name)
        }
    });
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_table_is_read() {
        for (name, text) in TABLES {
            let published = Published::of(name.trim_start_matches("paper/")).unwrap();
            assert_eq!(published.rows.len(), text.lines().count() - 1, "{name}");
        }
        let two = Published::of("table2").unwrap();
        assert_eq!(two.get("halfcheetah-random-v2", "sumo", "spearman"), Some(0.84));
        assert_eq!(two.get("halfcheetah-random", "loo-kl", "pearson"), Some(0.06));
        let file = "data/halfcheetah_random-v2.hdf5";
        assert_eq!(two.get(file, "loo-kl", "pearson"), Some(0.06), "D4RL's file, wherever it lies");
        assert_eq!(two.get("halfcheetah-random", "fathom", "pearson"), None);
        for other in ["halfcheetah-random-v0", "data/halfcheetah_random.hdf5"] {
            assert_eq!(two.get(other, "sumo", "spearman"), None, "{other}: other policies made it");
        }
        let mazes = Published::of("table8").unwrap();
        let file = "Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse";
        for same in ["antmaze-umaze-v0", "antmaze-umaze", &format!("{file}.hdf5")] {
            assert!(mazes.get(same, "mopo", "score").is_some(), "{same}");
        }
        for other in ["antmaze-umaze-v2", "D4RL/antmaze/umaze-v1", &format!("{file}_fixed.hdf5")] {
            assert_eq!(mazes.get(other, "mopo", "score"), None, "{other}");
        }
        let one = Published::of("table1").unwrap();
        assert_eq!(one.get("hopper-random", "mopo+sumo", "score"), Some(24.5));
        assert_eq!(one.std("hopper-random", "mopo+sumo", "score"), Some(0.9));
        assert_eq!(two.std("halfcheetah-random", "sumo", "spearman"), None);
        assert!(Published::of("table22").unwrap_err().to_string().contains("`table2`"));
    }
}
