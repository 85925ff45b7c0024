//! Tables from made-up cells: every number can be checked by hand.

use super::super::super::cells::{Cell, CellResult, CellState, CellValue, cells_csv};
use super::super::super::experiment::{CalibrationGrid, Experiment, GridSpec};
use super::super::super::published::Published;
use super::*;

fn cell(dataset: &str, seed: u64, values: &[(&str, f64)]) -> (Cell, CellState) {
    let value = |&(column, value): &(&str, f64)| {
        METRICS.map(|(metric, _)| {
            let own = if metric == "spearman" { value } else { value / 2.0 };
            CellValue::new(column, metric, own, 7).within(value - 0.1, value + 0.1)
        })
    };
    let values = values.iter().flat_map(value).collect();
    (at(dataset, seed), CellState::Done(CellResult { values, ..CellResult::default() }))
}

fn at(dataset: &str, seed: u64) -> Cell {
    Cell { id: format!("{dataset}.s{seed}"), column: None, dataset: dataset.into(), seed }
}

fn table() -> (CalibrationTable, Vec<(Cell, CellState)>) {
    let experiment = Experiment::named("table5").unwrap();
    let datasets = ["hopper-medium", "walker2d-medium-v2", "hopper-random", "halfcheetah-medium"];
    let failed = at(datasets[3], 0);
    let cells = vec![
        cell(datasets[0], 0, &[("k=1", 0.5), ("k=5", 0.6), ("k=10", 0.7), ("step", 0.1)]),
        cell(datasets[0], 1, &[("k=1", 0.7), ("k=5", 0.6), ("k=10", 0.5), ("step", 0.3)]),
        cell(datasets[1], 0, &[("k=1", 0.82), ("k=5", 0.9), ("k=10", f64::NAN), ("step", 0.2)]),
        cell(datasets[2], 0, &[("k=1", 0.4), ("k=5", 0.3), ("k=10", 0.2), ("step", 0.1)]),
        (failed, CellState::Failed("no such file".into())),
    ];
    let published = Published::of("table5").unwrap();
    let GridSpec::Calibration(CalibrationGrid { columns }) = &experiment.grid else {
        panic!("a calibration table")
    };
    let numbers =
        Comparison { datasets: datasets.map(String::from).to_vec(), cells: cells.clone(), published };
    (CalibrationTable::of(columns, numbers), cells)
}

#[test]
fn ours_the_papers_and_the_difference_stand_side_by_side() {
    let (table, _) = table();
    // The paper: hopper-medium, k=1: ρ .86, r .79.
    let hopper = table.of_dataset("hopper-medium").rows;
    assert_eq!(hopper[0], ["k=1", "0.60 ± 0.14", "0.86", "−0.26", "0.30 ± 0.07", "0.79", "−0.49"]);
    assert_eq!(hopper[3], ["step*", "0.20 ± 0.14", "-", "-", "0.10 ± 0.07", "-", "-"]);
    // A published id and a made name share the paper's row; .82 is what the paper has; a score without a rank has no ρ.
    let walker = table.of_dataset("walker2d-medium-v2").rows;
    assert_eq!(&walker[0][..4], ["k=1", "0.82", "0.82", "0.00"]);
    assert_eq!(&walker[2][..4], ["k=10", "-", "0.81", "-"]);
    assert_eq!(
        &table.of_dataset("hopper-random").rows[0][..4],
        ["k=1", "0.40", "-", "-"],
        "not in the paper"
    );
    assert_eq!(table.of_dataset("halfcheetah-medium").rows[0][1], "-", "failed");
}

#[test]
fn means_are_over_what_finished_and_wins_only_where_all_can_be_compared() {
    let (table, _) = table();
    let Table { header, rows: means } = table.means();
    // (.6 + .82 + .4) / 3; the paper lacks hopper-random, so it has no mean over these. Best of three on hopper-medium
    // (as the others, which are equal) and hopper-random; on walker2d one has no ρ.
    assert_eq!(&means[0][..4], ["k=1", "0.61", "-", "-"]);
    assert_eq!(means[2][1], "-", "k=10 has no number on walker2d");
    let wins: Vec<&str> = means.iter().map(|row| row[7].as_str()).collect();
    assert_eq!(wins, ["2 of 2", "1 of 2", "1 of 2", "-"]);
    assert_eq!(means[0][8], "1 of 2", "the paper's, where it has the dataset");
    assert!(means.iter().all(|row| row.len() == header.len()));
}

#[test]
fn the_papers_own_wins_are_counted_as_it_counts_them() {
    // "best rho or r on 12 of 15"; by rho alone it is 11.
    let experiment = Experiment::named("table2").unwrap();
    let published = Published::of("table2").unwrap();
    let GridSpec::Calibration(CalibrationGrid { columns }) = &experiment.grid else {
        panic!("a calibration table")
    };
    let names: Vec<String> = published.datasets().into_iter().map(String::from).collect();
    let found: Vec<(&str, f64)> = columns.iter().map(|c| (c.name.as_str(), 0.5)).collect();
    let cells: Vec<_> = names.iter().map(|d| cell(d, 0, &found)).collect();
    let table = CalibrationTable::of(columns, Comparison { datasets: names, cells, published });
    let sumo = table.means().rows.into_iter().find(|row| row[0] == "sumo").unwrap();
    assert_eq!((sumo[8].as_str(), sumo[10].as_str()), ("11 of 15", "12 of 15"));
}

#[test]
fn datasets_stand_below_each_other_and_columns_are_tested_against_sumo() {
    let (table, _) = table();
    let Table { header, rows } = table.overview("spearman");
    assert_eq!(header, ["", "k=1", "k=5", "k=10", "step*"]);
    assert_eq!(rows[1], ["walker2d-medium-v2", "0.82", "0.90", "-", "0.20"]);
    assert_eq!(rows.len(), 3, "one failed");
    // k=1 over k=5: 0, −.08, +.1: ranks 1 and 2.
    assert_eq!(table.against_sumo()[0], ["k=5", "3", "2 : 1", "1.000"]);
    assert_eq!(table.against_sumo()[1][..2], ["k=10", "2"]);
}

#[test]
fn files_hold_every_number_once() {
    let (table, cells) = table();
    let csv = table.csv();
    assert_eq!(csv.lines().count(), 1 + 4 * 4 * 2);
    assert!(csv.contains("\nhopper-medium,k=1,true,spearman,2,0.6,"), "{csv}");
    assert!(csv.contains("\nwalker2d-medium-v2,k=10,true,spearman,1,,,0.81,\n"), "{csv}");
    assert!(csv.contains("\nhalfcheetah-medium,step,false,pearson,0,,,,\n"), "{csv}");
    let raw = cells_csv(&cells, "bootstrap 95 %");
    assert_eq!(raw.lines().count(), 1 + 4 * 4 * 2);
    assert!(raw.contains("hopper-medium,1,k=5,pearson,0.3,0.5,0.7,bootstrap 95 %,7"), "{raw}");
}
