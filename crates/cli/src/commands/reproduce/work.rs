//! A grid as it was asked for: which cells it has, what each one's id is, and how one is run.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use offing::calibration::StudyConfig;
use offing::data::catalogue::GeneratedName;
use offing_mujoco::Physics;

use super::super::calibrate::settings;
use super::super::data::DEFAULT_ROWS;
use super::super::train::short_hash;
use super::Args;
use super::cells::{Cell, Found, file_part};
use super::experiment::{Column, Experiment, Grid, Idea, Panel, Profile, Trained, choose};
use super::{calibration, idea, timing, training};
use crate::algorithms::Plan;
use crate::context::Context;

/// Everything the numbers of a grid follow from, and where its runs are.
pub(super) struct Work<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) profile: &'a Profile,
    pub(super) datasets: Vec<String>,
    pub(super) seeds: u64,
    /// About how many rows of a dataset are used, where that was said or the study's profile says it.
    pub(super) rows: Option<usize>,
    pub(super) physics: Physics,
    /// Where run directories are.
    pub(super) dir: PathBuf,
    pub(super) kind: Kind<'a>,
}

/// What the cells are.
pub(super) enum Kind<'a> {
    Calibration {
        columns: Vec<&'a Column>,
        study: Box<StudyConfig>,
    },
    Training {
        columns: Vec<&'a Trained>,
        panels: &'a [Panel],
        profile: Option<&'a str>,
        set: Vec<String>,
    },
    Timing {
        columns: Vec<&'a Trained>,
        blocks: usize,
        updates: usize,
        profile: Option<&'a str>,
        set: Vec<String>,
    },
    Idea(Idea),
}

impl<'a> Work<'a> {
    pub(super) fn new(experiment: &'a Experiment, args: &'a Args) -> Result<Self> {
        let profile = experiment.profile(&args.profile)?;
        let chosen = experiment.chosen(&args.columns, profile)?;
        let settings_of = profile.settings(&args.profile);
        let set: Vec<String> = profile.set.iter().chain(&args.set).cloned().collect();
        let (kind, rows, dir) = match &experiment.grid {
            Grid::Calibration { columns } => {
                let (study, rows) = settings(settings_of, &set)?;
                let columns = columns.iter().filter(|c| chosen.contains(&c.name)).collect();
                (Kind::Calibration { columns, study: Box::new(study) }, rows, "runs/calibrate")
            }
            Grid::Training { columns, panels } => {
                let columns: Vec<&Trained> = columns.iter().filter(|c| chosen.contains(&c.name)).collect();
                (Kind::Training { columns, panels, profile: settings_of, set }, None, "runs")
            }
            Grid::Timing { columns, blocks, updates } => {
                let columns: Vec<&Trained> = columns.iter().filter(|c| chosen.contains(&c.name)).collect();
                if args.jobs.is_some_and(|jobs| jobs > 1) {
                    bail!("times mean nothing when cells run side by side; leave --jobs out");
                }
                let (blocks, updates) = (*blocks, *updates);
                (Kind::Timing { columns, blocks, updates, profile: settings_of, set }, None, "runs")
            }
            Grid::Idea(idea) => {
                if !(args.only.is_empty() && set.is_empty() && args.rows.is_none()) {
                    bail!(
                        "{} is drawn from one small run of its own; leave --only, --set and --rows out, or copy \
                         experiments/{0}.toml and change that",
                        experiment.name
                    );
                }
                (Kind::Idea(*idea), None, "runs")
            }
        };
        let work = Self {
            experiment,
            profile,
            datasets: choose(&args.only, profile)?,
            seeds: args.seeds.map_or(profile.seeds, |n| n as u64),
            rows: args.rows.or(rows),
            physics: args.physics,
            dir: args.dir.clone().unwrap_or_else(|| dir.into()),
            kind,
        };
        work.check()?;
        Ok(work)
    }

    /// Says what is wrong with the settings, if anything, before a cell is run.
    fn check(&self) -> Result<()> {
        for dataset in &self.datasets {
            match &self.kind {
                Kind::Training { columns, .. } => {
                    columns.iter().try_for_each(|column| training::plan(self, column, dataset).map(drop))?;
                }
                Kind::Timing { .. } => timing::plans(self, dataset).map(drop)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Looks for the datasets of these cells that offing cannot make: what is missing is told before hours are spent on the
    /// others.
    pub(super) fn find_files(&self, context: &Context, cells: &[Cell]) -> Result<()> {
        if !matches!(self.kind, Kind::Idea(_)) {
            for cell in cells.iter().filter(|cell| GeneratedName::parse(&cell.dataset).is_err()) {
                context.catalogue.find(&cell.dataset)?;
            }
        }
        Ok(())
    }

    /// What cells of one dataset have in common when they are meant to learn from the same transitions: some algorithms shift
    /// rewards or leave rows out.
    pub(super) fn same_data(&self, cell: &Cell) -> String {
        let Kind::Training { columns, .. } = &self.kind else { return String::new() };
        let column = columns.iter().find(|c| Some(&c.name) == cell.column.as_ref());
        let plan = column.and_then(|column| training::plan(self, column, &cell.dataset).ok());
        plan.map_or(String::new(), |(plan, rows)| {
            let train = plan.train();
            format!("{rows:?} {:?} {:?}", train.drop_teleports, train.reward_shift)
        })
    }

    /// All cells, seed after seed and dataset after dataset, so that a first look at everything comes early.
    pub(super) fn cells(&self) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for seed in 0..self.seeds {
            for dataset in &self.datasets {
                match &self.kind {
                    Kind::Calibration { columns, study } => {
                        let estimators: Vec<_> = columns.iter().map(|c| (&c.name, &c.estimator)).collect();
                        let what = serde_json::to_string(&(study, estimators))?;
                        cells.push(self.cell(None, dataset, seed, &what));
                    }
                    Kind::Timing { blocks, .. } => {
                        let (plans, rows) = timing::plans(self, dataset)?;
                        let tables: Vec<_> = plans.iter().map(Plan::table).collect::<Result<_>>()?;
                        let what = format!("time {tables:?} {rows:?} {blocks}");
                        cells.push(self.cell(None, dataset, seed, &what));
                    }
                    Kind::Idea(idea) => {
                        let what = format!("idea {}", serde_json::to_string(idea)?);
                        cells.push(self.cell(None, dataset, seed, &what));
                    }
                    Kind::Training { columns, .. } => {
                        for column in columns {
                            // The settings as they come out: a cell of an older preset is another cell.
                            let (plan, rows) = training::plan(self, column, dataset)?;
                            let settings = toml::to_string(&plan.table()?)?;
                            let what = format!("{} {rows:?} {settings}", column.algorithm());
                            cells.push(self.cell(Some(&column.name), dataset, seed, &what));
                        }
                    }
                }
            }
        }
        Ok(cells)
    }

    fn cell(&self, column: Option<&str>, dataset: &str, seed: u64, what: &str) -> Cell {
        let file = fingerprint(Path::new(dataset));
        let hash = short_hash(format!("{what} {dataset} {file:?} {seed} {:?} {}", self.rows, self.physics));
        let name = column.map_or(String::new(), |c| format!("{}.", file_part(c)));
        let id = format!("{name}{}.s{seed}.{hash}", file_part(dataset));
        Cell { id, column: column.map(str::to_string), dataset: dataset.into(), seed }
    }

    /// What `low` and `high` of a cell's numbers are.
    pub(super) fn interval(&self) -> &'static str {
        match self.kind {
            Kind::Calibration { .. } => "bootstrap 95 %",
            Kind::Timing { .. } => "fastest to slowest block",
            Kind::Training { .. } | Kind::Idea(_) => "",
        }
    }

    /// The size of a made set where neither a user nor the profile says how many rows are used: all of them are as many as
    /// D4RL's have, whatever sizes have been made before.
    pub(super) fn made_rows(&self, dataset: &str) -> Option<usize> {
        GeneratedName::parse(dataset).is_ok().then_some(DEFAULT_ROWS)
    }

    /// Settings of one column over the presets: its own, then the profile's and the user's.
    pub(super) fn sets(&self, column: &Trained) -> Vec<String> {
        let Kind::Training { set, .. } = &self.kind else { return Vec::new() };
        column.set.iter().chain(set).cloned().collect()
    }

    /// The algorithm of a column of trainings; its own name where there is no such column.
    pub(super) fn algorithm<'s>(&'s self, column: &'s str) -> &'s str {
        let Kind::Training { columns, .. } = &self.kind else { return column };
        columns.iter().find(|c| c.name == column).map_or(column, |c| c.algorithm())
    }

    /// Whether cells must not run side by side.
    pub(super) fn alone(&self) -> bool {
        matches!(self.kind, Kind::Timing { .. })
    }

    /// The cell of that id.
    pub(super) fn named(&self, id: &str) -> Result<Cell> {
        let found = self.cells()?.into_iter().find(|cell| cell.id == id);
        found.ok_or_else(|| {
            anyhow!(
                "no cell `{id}` in this grid; --list-cells, with the same other arguments, shows them all"
            )
        })
    }

    /// One cell: found finished, gone on with, or begun. `None` when it was stopped on the way. `begun` is told its run
    /// directory, where it has one of its own.
    pub(super) fn run(
        &self,
        context: &Context,
        cell: &Cell,
        begun: &dyn Fn(PathBuf) -> Result<()>,
    ) -> Result<Option<Found>> {
        match &self.kind {
            Kind::Calibration { columns, study } => calibration::run(context, self, (columns, study), cell),
            Kind::Timing { .. } => timing::run(context, self, cell),
            Kind::Idea(idea) => idea::run(context, self, idea, cell),
            Kind::Training { columns, .. } => {
                let column = columns.iter().find(|c| Some(&c.name) == cell.column.as_ref());
                let column =
                    column.ok_or_else(|| anyhow!("cell `{}` has no column of this grid", cell.id))?;
                training::run(context, self, column, cell, begun)
            }
        }
    }
}

/// What tells a file from another one of its name, without reading all of it: its size and some of its bytes.
fn fingerprint(path: &Path) -> Option<(u64, String)> {
    use std::io::{Read, Seek, SeekFrom};
    const PLACES: u64 = 16;
    let mut file = std::fs::File::open(path).ok().filter(|_| path.is_file())?;
    let len = file.metadata().ok()?.len();
    let mut seen = Vec::new();
    for place in 0..PLACES {
        let mut bytes = [0; 4096];
        file.seek(SeekFrom::Start(len / PLACES * place)).ok()?;
        let read = file.read(&mut bytes).ok()?;
        seen.extend_from_slice(&bytes[..read]);
    }
    Some((len, short_hash(seen)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }

    /// Cells of an experiment as somebody at the command line would ask for it.
    fn cells(words: &[&str]) -> Result<Vec<Cell>> {
        let args = Alone::try_parse_from([&["reproduce"], words].concat())?.args;
        let experiment = Experiment::named(words[0])?;
        Work::new(&experiment, &args)?.cells()
    }

    #[test]
    fn settings_of_every_experiment_are_sound_and_cells_are_told_apart() {
        for experiment in Experiment::all().unwrap() {
            for profile in ["quick", "paper"] {
                let cells = cells(&[&experiment.name, "--profile", profile]).unwrap();
                let mut ids: Vec<&str> = cells.iter().map(|c| c.id.as_str()).collect();
                ids.sort_unstable();
                ids.dedup();
                assert_eq!(ids.len(), cells.len(), "{} {profile}", experiment.name);
            }
        }
        // 15 datasets, 8 columns, 5 seeds; 5 settings on one dataset.
        assert_eq!(cells(&["table1", "--profile", "paper"]).unwrap().len(), 600);
        assert_eq!(cells(&["table11", "--profile", "paper"]).unwrap().len(), 750);
        assert_eq!(cells(&["fig4", "--profile", "paper"]).unwrap().len(), 25);
        let error = cells(&["table7", "--jobs", "2"]).unwrap_err().to_string();
        assert!(error.contains("leave --jobs out"), "{error}");
        let error = cells(&["fig1", "--rows", "9"]).unwrap_err().to_string();
        assert!(error.contains("leave --only, --set and --rows out"), "{error}");
    }

    #[test]
    fn another_file_of_the_same_name_is_another_cell_and_a_copy_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("a.hdf5"), dir.path().join("b.hdf5"));
        std::fs::write(&path, vec![1; 100_000]).unwrap();
        let first = fingerprint(&path);
        std::fs::copy(&path, &copy).unwrap();
        assert_eq!(fingerprint(&copy), first);
        std::fs::write(&path, vec![2; 100_000]).unwrap();
        assert_ne!(fingerprint(&path), first);
        assert_eq!(fingerprint(dir.path()), None, "a directory");
    }

    #[test]
    fn other_settings_are_other_cells() {
        let id = |words: &[&str]| cells(words).unwrap()[0].id.clone();
        let plain = id(&["table4"]);
        assert_eq!(
            plain,
            id(&["table4", "--jobs", "2", "--out", "elsewhere"]),
            "where and how change nothing"
        );
        for other in [["--set", "train.steps=5"], ["--rows", "1000"], ["--profile", "paper"]] {
            assert_ne!(plain, id(&["table4", other[0], other[1]]), "{other:?}");
        }
        assert_ne!(
            id(&["table7"]),
            id(&["table7", "--columns", "mopo,mopo+sumo"]),
            "they take turns with others"
        );
    }
}
