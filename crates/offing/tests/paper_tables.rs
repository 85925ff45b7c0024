//! The transcribed tables of the paper add up to what the paper says about them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::Path;

/// (column, metric) → dataset → mean.
fn table(number: usize) -> BTreeMap<(String, String), BTreeMap<String, f64>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/paper");
    let mut reader = csv::Reader::from_path(root.join(format!("table{number}.csv"))).unwrap();
    assert_eq!(reader.headers().unwrap(), vec!["table", "dataset", "column", "metric", "mean", "std"]);
    let mut out: BTreeMap<(String, String), BTreeMap<String, f64>> = BTreeMap::new();
    for row in reader.records() {
        let row = row.unwrap();
        assert_eq!(&row[0], format!("table{number}"));
        assert!(row[5].is_empty() || row[5].parse::<f64>().unwrap() >= 0.0);
        let column = out.entry((row[2].to_string(), row[3].to_string())).or_default();
        assert!(column.insert(row[1].to_string(), row[4].parse().unwrap()).is_none(), "{row:?} twice");
    }
    out
}

#[test]
fn printed_averages_are_the_means_of_their_columns() {
    // Largest difference that rounding of printed values explains, and the one column that is off by more.
    for (number, datasets, slack) in [
        (1, 15, 0.11),
        (3, 6, 0.011),
        (4, 6, 0.051),
        (5, 6, 0.011),
        (8, 6, 0.051),
        (9, 6, 0.011),
        (10, 15, 0.051),
        (11, 15, 0.11),
    ] {
        for ((column, _), values) in table(number) {
            let mean =
                values.iter().filter(|(d, _)| *d != "average").map(|(_, v)| v).sum::<f64>() / datasets as f64;
            assert_eq!(values.len(), datasets + 1, "table {number} {column}");
            let off = (mean - values["average"]).abs();
            assert_eq!(
                off > slack,
                (number, column.as_str()) == (11, "combo"),
                "table {number} {column}: {mean}"
            );
        }
    }
}

#[test]
fn win_counts_are_the_papers() {
    let scores = table(1);
    for (algorithm, wins) in [("mopo", 11), ("amorel", 10), ("morel", 10), ("mobile", 9)] {
        let of = |name: String| &scores[&(name, "score".to_string())];
        let (base, sumo) = (of(algorithm.to_string()), of(format!("{algorithm}+sumo")));
        let better = base.iter().filter(|(d, v)| *d != "average" && sumo[*d] > **v).count();
        assert_eq!(better, wins, "{algorithm}");
    }
    let correlations = table(2);
    let best = |metric: &str, dataset: &str| {
        let of = |column: &str| correlations[&(column.to_string(), metric.to_string())][dataset];
        ["aleatoric", "pairwise", "loo-kl"].iter().all(|other| of("sumo") > of(other))
    };
    let datasets: Vec<String> = correlations.values().next().unwrap().keys().cloned().collect();
    assert_eq!(datasets.len(), 15);
    assert_eq!(datasets.iter().filter(|d| best("spearman", d) || best("pearson", d)).count(), 12);
    assert_eq!(table(11).len(), 10);
    assert_eq!(table(7).len(), 4);
}
