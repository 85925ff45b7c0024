//! Tables from made-up cells: every number can be checked by hand.

use super::super::super::cells::{Cell, CellResult, CellState, CellValue};
use super::super::super::experiment::{Experiment, GridSpec, TrainingGrid};
use super::super::super::published::Published;
use super::*;

fn cell(column: &str, dataset: &str, seed: u64, last: f64, best: f64) -> (Cell, CellState) {
    let values = [("score", last), ("best score", best), ("return", 10.0 * last)];
    let values = values.map(|(metric, value)| CellValue::new(column, metric, value, 0)).to_vec();
    let found = CellResult { values, curve: vec![(5, best), (10, last)], ..CellResult::default() };
    (at(column, dataset, seed), CellState::Done(found))
}

fn at(column: &str, dataset: &str, seed: u64) -> Cell {
    let id = format!("{column}.{dataset}.s{seed}");
    Cell { id, column: Some(column.into()), dataset: dataset.into(), seed }
}

/// Two algorithms with and without SUMO on three datasets, one of which failed for one of them.
pub(crate) fn scores() -> Scores {
    let experiment = Experiment::named("table1").unwrap();
    let GridSpec::Training(TrainingGrid { columns, .. }) = &experiment.grid else {
        panic!("a table of scores")
    };
    let mopo_or_amorel = |c: &&AlgorithmColumn| c.name.starts_with("mopo") || c.name.starts_with("amorel");
    let columns: Vec<AlgorithmColumn> = columns.iter().filter(mopo_or_amorel).cloned().collect();
    let datasets = ["hopper-medium", "walker2d-medium-v2", "halfcheetah-medium"];
    let mut cells = vec![
        cell("mopo+sumo", datasets[0], 0, 50.0, 60.0),
        cell("mopo+sumo", datasets[0], 1, 54.0, 54.0),
        cell("mopo", datasets[0], 0, 40.0, 41.0),
        cell("mopo", datasets[0], 1, 44.0, 45.0),
        cell("mopo+sumo", datasets[1], 0, 30.0, 30.0),
        cell("mopo+sumo", datasets[1], 1, 32.0, 40.0),
        cell("mopo", datasets[1], 0, 35.0, 35.0),
        cell("mopo", datasets[1], 1, 37.0, 38.0),
        cell("mopo", datasets[2], 0, 70.0, 70.0),
        (at("mopo+sumo", datasets[2], 0), CellState::Failed("no such file".into())),
    ];
    for dataset in datasets {
        cells.push(cell("amorel", dataset, 0, 10.0, 12.0));
        cells.push(cell("amorel+sumo", dataset, 0, 10.0, 12.0));
    }
    let published = Published::of("table1").unwrap();
    Scores::of(&columns, Comparison { datasets: datasets.map(String::from).to_vec(), cells, published })
}

#[test]
fn what_the_data_reached_stands_in_front_where_it_is_known() {
    let mut scores = scores();
    assert_eq!(scores.last_beside_data().header.len(), scores.columns.len() + 1, "not known");
    for (cell, state) in &mut scores.numbers.cells {
        let reached = [("hopper-medium", 7.3), ("walker2d-medium-v2", 20.0)];
        let reached = reached.iter().find(|(dataset, _)| *dataset == cell.dataset);
        if let (CellState::Done(found), Some((_, x))) = (state, reached) {
            found.values.push(CellValue::new(cell.column.as_deref().unwrap(), "data's score", *x, 0));
        }
    }
    let Table { header, rows } = scores.last_beside_data();
    assert_eq!(header[1], "the data");
    let reached: Vec<&str> = rows.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(reached, ["7.3", "20.0", "-", "13.7"], "the mean is over the datasets that all columns have");
    assert!(rows.iter().all(|row| row.len() == header.len()));
}

#[test]
fn ours_the_papers_and_the_difference_stand_side_by_side() {
    let scores = scores();
    let pair: Vec<&AlgorithmColumn> = scores.columns.iter().filter(|c| c.name.starts_with("mopo")).collect();
    let Table { header, rows } = scores.beside_paper(&pair);
    assert_eq!(header, ["", "mopo+sumo", "paper", "difference", "mopo", "paper", "difference"]);
    // The paper: hopper-medium 74.6 ± 1.9 and 45.6 ± 2.5.
    assert_eq!(rows[0][1], "52.0 ± 2.8");
    assert!(rows[0][2].starts_with("74.6 ± "), "{rows:?}");
    assert_eq!(rows[0][3], "−22.6");
    assert_eq!(
        &rows[1][4..],
        ["36.0 ± 1.4", "42.3 ± 0.8", "−6.3"],
        "a published id has the paper's row, too"
    );
    assert_eq!(&rows[2][1..2], ["-"], "failed");
    // Means are over the two datasets that both have: (52 + 31) / 2 beside (74.6 + 57.3) / 2 = 65.95 and
    // (45.6 + 42.3) / 2 = 43.95, to the nearest tenth as binary fractions lie.
    assert_eq!(rows[3], ["mean of 2", "41.5", "65.9", "−24.4", "39.0", "44.0", "−5.0"]);
    let amorel = scores.columns.iter().position(|c| c.name == "amorel").unwrap();
    assert_eq!(scores.table(Which::Last).rows[0][amorel + 1], "10.0 (n = 1)", "of two seeds");
    let best = scores.table(Which::Best).rows;
    assert_eq!((best[0][1].as_str(), best[3][0].as_str()), ("57.0 ± 4.2", "mean of 2"));
}

#[test]
fn runs_without_a_score_are_named() {
    let experiment = Experiment::named("table4").unwrap();
    let GridSpec::Training(TrainingGrid { columns, .. }) = &experiment.grid else {
        panic!("a table of scores")
    };
    let datasets = ["hopper-medium".to_string(), "mine.hdf5".into(), "walker2d-medium".into()];
    let mut mute = cell("euclidean", "mine.hdf5", 0, 1.0, 1.0);
    let CellState::Done(found) = &mut mute.1 else { panic!("done") };
    found.values.retain(|v| v.metric == "return");
    let cells = [cell("euclidean", "hopper-medium", 0, 50.0, 60.0), mute];
    let (datasets, cells) = (datasets.to_vec(), cells.to_vec());
    let scores = Scores::of(columns, Comparison { datasets, cells, published: Published::default() });
    assert_eq!((scores.unit, &scores.silent[..]), ("score", &["mine.hdf5".to_string()][..]));
}

#[test]
fn wins_are_counted_as_the_paper_does_and_only_where_both_have_a_number() {
    let scores = scores();
    let of = |name: &str| scores.columns.iter().find(|c| c.name == name).unwrap();
    assert_eq!(scores.wins(of("mopo+sumo")), Some((1, 2)));
    assert_eq!(scores.paper_wins(of("mopo+sumo")), Some((2, 2)));
    assert_eq!(scores.wins(of("amorel+sumo")), Some((0, 3)), "a tie is no win");
    assert_eq!(scores.wins(of("mopo")), None, "it has nobody to beat");
}

#[test]
fn the_file_holds_every_number_once() {
    let csv = scores().csv();
    assert_eq!(csv.lines().count(), 1 + 3 * 4 * 2);
    assert!(csv.contains("\nhopper-medium,mopo+sumo,true,score,2,52,2.8"), "{csv}");
    assert!(csv.contains("\nhopper-medium,mopo+sumo,true,best score,2,57,"), "{csv}");
    assert!(csv.contains("\nhalfcheetah-medium,mopo+sumo,true,score,0,,,68.9,"), "{csv}");
}

#[test]
fn the_papers_own_wins_follow_from_its_rows() {
    let experiment = Experiment::named("table1").unwrap();
    let GridSpec::Training(TrainingGrid { columns, .. }) = &experiment.grid else {
        panic!("a table of scores")
    };
    let published = Published::of("table1").unwrap();
    let datasets: Vec<String> = published.datasets().iter().map(|d| (*d).to_string()).collect();
    let mut cells = Vec::new();
    for column in columns {
        cells.extend(datasets.iter().map(|d| cell(&column.name, d, 0, 1.0, 1.0)));
    }
    let scores = Scores::of(columns, Comparison { datasets, cells, published });
    let wins: Vec<(usize, usize)> = scores.columns.iter().filter_map(|c| scores.paper_wins(c)).collect();
    assert_eq!(wins, [(11, 15), (10, 15), (10, 15), (9, 15)], "as its text says");
}
