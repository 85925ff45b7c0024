//! Tables of scores: a cell is one `offing train`, in the directory that command itself would take. So a run trained by
//! hand with the same settings is found, tables share their runs, and a run can be resumed by hand.

mod report;
mod scores;
mod statistics;

use std::path::Path;

use anyhow::{Result, anyhow};
use offing::algorithms::Configured;
use offing::data::Dataset;
use offing::env::Physics;
use offing::run::CONFIG;
use offing::train::{RunConfig, behaviour_score, prepare};

use self::scores::Scores;
use self::statistics::Statistics;
use super::cells::{Cell, CellResult, CellState, CellValue};
use super::collect::Collected;
use super::comparison::Comparison;
use super::executors::quoted;
use super::experiment::{AlgorithmColumn, TrainingGrid};
use super::{Grid, GridKind};
use crate::Runtime;
use crate::configure::configure;
use crate::report::write_run_page;
use crate::run_record::RunRecord;

impl TrainingGrid {
    fn column(&self, cell: &Cell) -> Result<&AlgorithmColumn> {
        let found = self.columns.iter().find(|c| Some(&c.name) == cell.column.as_ref());
        found.ok_or_else(|| anyhow!("cell `{}` has no column of this grid", cell.id))
    }

    /// What one would ask of `offing train`.
    fn run_config(&self, grid: &Grid, column: &AlgorithmColumn, dataset: &str, seed: u64) -> RunConfig {
        // A profile says how many rows; the paper takes all. What a name stands for must not depend on what is on disk.
        let profile = grid.settings_profile().map(str::to_string);
        let all = if profile.is_none() { grid.generated_rows(dataset) } else { None };
        RunConfig {
            seed: Some(seed),
            preset: grid.profile.presets.get(&column.name).cloned(),
            profile,
            overrides: column.set.iter().chain(&grid.set).cloned().collect(),
            rows: grid.rows.or(all),
            physics: Some(grid.request.physics),
            base_dir: grid.dir.clone(),
            ..RunConfig::new(column.algorithm(), dataset)
        }
    }

    /// The settings of a column on a dataset and the rows it learns from.
    fn settings(
        &self,
        grid: &Grid,
        column: &AlgorithmColumn,
        dataset: &str,
    ) -> Result<(Configured, Option<usize>)> {
        let run = self.run_config(grid, column, dataset, 0);
        let presets = (run.preset.as_deref(), run.profile.as_deref());
        let (configured, rows) = configure(column.algorithm(), dataset, presets, &run.overrides)?;
        Ok((configured, run.rows.or(rows)))
    }

    /// A column as a command, for readers.
    fn command(&self, grid: &Grid, column: &AlgorithmColumn) -> String {
        let of = |dataset: &String| self.run_config(grid, column, dataset, 0).rows;
        let mut rows: Vec<Option<usize>> = grid.datasets.iter().map(of).collect();
        rows.sort_unstable();
        rows.dedup();
        let run = self.run_config(grid, column, "", 0);
        let mut words = vec![format!("offing train {} DATASET --seed SEED", column.algorithm())];
        words.extend(run.profile.map(|p| format!("--profile {p}")));
        words.extend(run.preset.map(|p| format!("--preset {p}")));
        match rows[..] {
            [rows] => words.extend(rows.map(|rows| format!("--rows {rows}"))),
            // Published files are taken whole.
            _ => words.extend(rows.iter().flatten().map(|rows| format!("[made sets: --rows {rows}]"))),
        }
        words.extend(run.overrides.iter().map(|set| format!("--set {}", quoted(set))));
        words.extend(run.physics.filter(|p| *p != Physics::default()).map(|p| format!("--physics {p}")));
        words.join(" ")
    }
}

impl GridKind for TrainingGrid {
    fn cells_of(&self, grid: &Grid, dataset: &str) -> Result<Vec<(Option<&str>, String)>> {
        let cell = |column: &AlgorithmColumn| {
            // The settings as they come out: a cell of an older preset is another cell.
            let (configured, rows) = self.settings(grid, column, dataset)?;
            let settings = toml::to_string(&configured.settings)?;
            Ok::<_, anyhow::Error>(format!("{} {rows:?} {settings}", column.algorithm()))
        };
        self.columns.iter().map(|column| Ok((Some(column.name.as_str()), cell(column)?))).collect()
    }

    fn run(&self, runtime: &Runtime, grid: &Grid, cell: &Cell) -> Result<Option<CellResult>> {
        let column = self.column(cell)?;
        let config = self.run_config(grid, column, &cell.dataset, cell.seed);
        let prepared = prepare(&config, &mut runtime.hooks())?;
        let (dir, text) = (prepared.dir.clone(), prepared.manifest.to_toml()?);
        grid.store.write(cell, &CellState::Begun(Some(dir.clone())))?;
        let of_data = reached_by_data(&prepared.data, grid.request.physics, &column.name);
        let data = prepared.manifest.data.clone();
        let is_same = || std::fs::read_to_string(dir.join(CONFIG)).is_ok_and(|found| found == text);
        if !(is_same() && prepared.is_finished()) {
            // A run by hand, another table's cell, or one of a grid that was killed and is still saving, may be at it.
            let Some(run) = runtime.open_when_free(&dir, &text)? else { return Ok(None) };
            if !prepared.is_finished() {
                if !prepared.run_in(run, &mut runtime.hooks())?.finished {
                    return Ok(None);
                }
                write_run_page(&dir)?;
            }
        }
        let mut found = read_result(&dir, &column.name)?;
        found.values.extend(of_data);
        Ok(Some(CellResult { data, ..found }))
    }

    fn collect(&self, grid: &Grid, cells: &[(Cell, CellState)]) -> Result<Collected> {
        let scores = Scores::of(&self.columns, Comparison::of(grid, cells)?);
        let statistics = Statistics::of(&scores);
        let (results, details) = self.elements(grid, &scores, &statistics);
        let files = vec![("csv", scores.csv()), ("statistics.csv", statistics.csv())];
        Ok(Collected { files, results, details, caveats: self.caveats(grid) })
    }

    /// Some algorithms shift rewards or leave rows out.
    fn data_key(&self, grid: &Grid, cell: &Cell) -> String {
        let found = self.column(cell).and_then(|column| self.settings(grid, column, &cell.dataset));
        found.map_or(String::new(), |(configured, rows)| {
            let train = configured.algorithm.blocks().train;
            format!("{rows:?} {:?} {:?}", train.drop_teleports, train.reward_shift)
        })
    }
}

/// What a policy has to beat, as numbers of a cell.
fn reached_by_data(data: &Dataset, physics: Physics, column: &str) -> Vec<CellValue> {
    let (mean, score) = behaviour_score(data, physics);
    let values = [("data's return", mean), ("data's score", score)];
    values.into_iter().filter_map(|(metric, x)| Some(CellValue::new(column, metric, x?, 0))).collect()
}

/// A finished run's returns and scores: of the last policy, and of the best on the way.
fn read_result(dir: &Path, column: &str) -> Result<CellResult> {
    let run = RunRecord::read(dir)?;
    let mut values = Vec::new();
    for (metric, best) in [("score", "best score"), ("return", "best return")] {
        let series = run.series(metric);
        let highest = series.iter().map(|(_, y)| *y).max_by(f64::total_cmp);
        for (metric, value) in [(metric, series.last().map(|(_, y)| *y)), (best, highest)] {
            values.extend(value.map(|x| CellValue::new(column, metric, x, 0)));
        }
    }
    let scores = run.series("score");
    let curve = if scores.is_empty() { run.series("return") } else { scores };
    let curve = curve.into_iter().map(|(step, y)| (step as u64, y)).collect();
    Ok(CellResult { values, curve, provenance: run.provenance, ..CellResult::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use offing::run::METRICS;

    #[test]
    fn a_runs_last_and_best_scores_are_read_from_its_metrics() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(CONFIG), "").unwrap();
        let lines = "{\"step\":5,\"return\":10.0,\"score\":1.0}\n{\"step\":10,\"return\":30.0,\"score\":3.0}\n\
                     {\"step\":12,\"q\":1.0}\n{\"step\":15,\"return\":20.0,\"score\":2.0}\n{\"step\":";
        std::fs::write(dir.path().join(METRICS), lines).unwrap();
        let found = read_result(dir.path(), "mopo").unwrap();
        let values: Vec<(&str, f64)> = found.values.iter().map(|v| (v.metric.as_str(), v.value)).collect();
        assert_eq!(values, [("score", 2.0), ("best score", 3.0), ("return", 20.0), ("best return", 30.0)]);
        assert_eq!(found.curve, [(5, 1.0), (10, 3.0), (15, 2.0)]);
        // Data without a reference have returns alone, data without a simulator nothing.
        std::fs::write(dir.path().join(METRICS), "{\"step\":5,\"return\":7.0,\"score\":null}\n").unwrap();
        let plain = read_result(dir.path(), "mopo").unwrap();
        assert_eq!((plain.values.len(), &plain.curve[..]), (2, &[(5, 7.0)][..]));
        std::fs::write(dir.path().join(METRICS), "{\"step\":5}\n").unwrap();
        assert!(read_result(dir.path(), "mopo").unwrap().values.is_empty());
    }
}
