//! The paper's own numbers, from `experiments/paper/*.csv`.

use anyhow::Result;
use offing::Error;

use offing::data::catalogue::{set_of, version_of, without_version};

/// The transcribed tables that experiments stand beside.
const TABLES: &[(&str, &str)] = &[
    ("table1", include_str!("../../../../../experiments/paper/table1.csv")),
    ("table2", include_str!("../../../../../experiments/paper/table2.csv")),
    ("table3", include_str!("../../../../../experiments/paper/table3.csv")),
    ("table4", include_str!("../../../../../experiments/paper/table4.csv")),
    ("table5", include_str!("../../../../../experiments/paper/table5.csv")),
    ("table7", include_str!("../../../../../experiments/paper/table7.csv")),
    ("table8", include_str!("../../../../../experiments/paper/table8.csv")),
    ("table9", include_str!("../../../../../experiments/paper/table9.csv")),
    ("table10", include_str!("../../../../../experiments/paper/table10.csv")),
    ("table11", include_str!("../../../../../experiments/paper/table11.csv")),
];

/// Whether a dataset may stand beside the paper's numbers: a made set, or the version of D4RL's that the paper used (-v2, of
/// AntMaze -v0). Other versions were recorded by other policies, and Minari's copies of AntMaze have another ant.
fn comparable(dataset: &str) -> bool {
    let maze = set_of(dataset).is_some_and(|set| set.starts_with("antmaze"));
    let used = if maze { 0 } else { 2 };
    !dataset.starts_with("D4RL/") && version_of(dataset).is_none_or(|version| version == used)
}

/// One published table.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    dataset: &'static str,
    column: &'static str,
    metric: &'static str,
    mean: f64,
    std: Option<f64>,
}

impl Published {
    /// The table of that name.
    pub(super) fn of(table: &str) -> Result<Self> {
        let known: Vec<&str> = TABLES.iter().map(|(name, _)| *name).collect();
        let text = TABLES.iter().find(|(name, _)| *name == table).map(|(_, text)| *text);
        let text = text.ok_or_else(|| Error::unknown("published table", table, &known))?;
        // table,dataset,column,metric,mean,std; no field holds a comma or a quote.
        let row = |line: &'static str| {
            let mut fields = line.split(',').skip(1);
            let (dataset, column, metric) = (fields.next()?, fields.next()?, fields.next()?);
            let mean = fields.next()?.parse().ok()?;
            let std = fields.next().and_then(|s| s.parse().ok());
            Some(Row { dataset: without_version(dataset), column, metric, mean, std })
        };
        Ok(Self { rows: text.lines().skip(1).filter_map(row).collect() })
    }

    fn row(&self, dataset: &str, column: &str, metric: &str) -> Option<&Row> {
        if !comparable(dataset) {
            return None;
        }
        let set = set_of(dataset).unwrap_or_else(|| without_version(dataset).into());
        let is = |r: &&Row| (r.dataset, r.column, r.metric) == (set.as_str(), column, metric);
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
    pub(super) fn columns(&self) -> Vec<&'static str> {
        let mut columns = Vec::new();
        for row in &self.rows {
            if !columns.contains(&row.column) {
                columns.push(row.column);
            }
        }
        columns
    }

    /// The paper's datasets, in its order.
    #[cfg(test)]
    pub(super) fn datasets(&self) -> Vec<&'static str> {
        let mut datasets = Vec::new();
        for row in self.rows.iter().filter(|r| r.dataset != "average") {
            if !datasets.contains(&row.dataset) {
                datasets.push(row.dataset);
            }
        }
        datasets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_table_is_read() {
        for (name, text) in TABLES {
            let published = Published::of(name).unwrap();
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
