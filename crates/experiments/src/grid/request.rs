//! A grid as somebody asks for it, and where its files go.

use std::path::{Path, PathBuf};

use offing::checksum::short_hash;
use offing::env::Physics;

use super::executors::quoted;
use super::experiment::Profile;
use crate::arguments::positive;

/// Everything a user can choose about a grid.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct GridRequest {
    /// The experiment: table1, table2, …, or a TOML file like theirs; without one, offing lists all.
    #[arg(default_value = "", hide_default_value = true)]
    pub name: String,
    /// `quick`: small networks, few steps, fewer datasets. `paper`: the paper's own sizes.
    #[arg(long, default_value = "quick")]
    pub profile: String,
    /// How many seeds [default: the profile's].
    #[arg(long, value_parser = positive)]
    pub seeds: Option<usize>,
    /// These datasets instead of the profile's: any that offing can generate, D4RL ids (hopper-medium-v2), or paths.
    #[arg(long, value_name = "DATASET", value_delimiter = ',')]
    pub only: Vec<String>,
    /// These columns instead of the profile's.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Use about this many rows of each dataset: whole episodes, drawn at random.
    #[arg(long)]
    pub rows: Option<usize>,
    /// Override one value of every run or study, such as --set starts=50 (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Which physics to evaluate or replay in.
    #[arg(long, default_value_t)]
    pub physics: Physics,
    /// Where run directories are [default: runs, as for `offing train`; runs/calibrate, as for `offing calibrate`].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    #[allow(rustdoc::invalid_html_tags, reason = "the comment is the option's help")]
    /// Where to write tables and the state of cells [default: runs/reproduce/<NAME>-<PROFILE>; there, the tables of a part
    /// of the grid or of other settings have a directory of their own].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl GridRequest {
    /// Where tables and the state of cells are written.
    pub(super) fn out(&self) -> PathBuf {
        let name = Path::new(&self.name).file_stem().unwrap_or_default().to_string_lossy();
        self.out.clone().unwrap_or_else(|| format!("runs/reproduce/{name}-{}", self.profile).into())
    }

    /// Where tables are written: those of a part of the grid, or of other settings, do not replace those of the whole, unless a
    /// user says where they belong.
    pub(super) fn tables_dir(&self, profile: &Profile) -> PathBuf {
        let seeds = self.seeds.filter(|&n| n as u64 != profile.seeds);
        let physics = Some(self.physics).filter(|p| *p != Physics::default());
        let (only, columns, set) = (&self.only, &self.columns, &self.set);
        let whole = only.is_empty() && columns.is_empty() && set.is_empty();
        if self.out.is_some() || (whole && (seeds, self.rows, physics) == (None, None, None)) {
            return self.out();
        }
        let what = short_hash(format!("{only:?} {columns:?} {set:?} {seeds:?} {:?} {physics:?}", self.rows));
        self.out().join(format!("part-{what}"))
    }

    /// Arguments that give the same grid again, with the same cells in the same places.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut words = vec!["reproduce".to_string(), self.name.clone()];
        let mut put = |flag: &str, value: String| words.extend([flag.to_string(), value]);
        put("--profile", self.profile.clone());
        self.seeds.iter().for_each(|seeds| put("--seeds", seeds.to_string()));
        self.only.iter().for_each(|name| put("--only", name.clone()));
        self.columns.iter().for_each(|name| put("--columns", name.clone()));
        self.rows.iter().for_each(|rows| put("--rows", rows.to_string()));
        self.set.iter().for_each(|set| put("--set", set.clone()));
        put("--physics", self.physics.to_string());
        self.dir.iter().for_each(|dir| put("--dir", dir.display().to_string()));
        put("--out", self.out().display().to_string());
        words
    }

    /// The command that gives these numbers again: what decides them, and nothing about this machine.
    pub(super) fn command(&self, seeds: u64) -> String {
        let name = quoted(&self.name);
        let mut words = vec![format!("offing reproduce {name} --profile {} --seeds {seeds}", self.profile)];
        for (flag, names) in [("--only", &self.only), ("--columns", &self.columns)] {
            if !names.is_empty() {
                words.push(format!("{flag} {}", quoted(&names.join(","))));
            }
        }
        words.extend(self.rows.map(|rows| format!("--rows {rows}")));
        words.extend(self.set.iter().map(|set| format!("--set {}", quoted(set))));
        if self.physics != Physics::default() {
            words.push(format!("--physics {}", self.physics));
        }
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::experiment::Experiment;
    use super::*;

    #[test]
    fn tables_of_a_part_do_not_replace_those_of_the_whole() {
        let experiment = Experiment::named("table1").unwrap();
        let profile = experiment.profile("quick").unwrap();
        let whole = GridRequest { name: "table1".into(), profile: "quick".into(), ..GridRequest::default() };
        let one = |text: &str| vec![text.to_string()];
        let tables = |request: GridRequest| request.tables_dir(profile).display().to_string();
        let dir = "runs/reproduce/table1-quick";
        assert_eq!(tables(whole.clone()), dir);
        assert_eq!(tables(GridRequest { seeds: Some(2), ..whole.clone() }), dir, "the profile's own number");
        let here = GridRequest { only: one("hopper-medium"), out: Some("here".into()), ..whole.clone() };
        assert_eq!(tables(here), "here");
        let parts = [
            GridRequest { only: one("hopper-medium"), ..whole.clone() },
            GridRequest { only: one("walker2d-medium"), ..whole.clone() },
            GridRequest { columns: one("mopo"), ..whole.clone() },
            GridRequest { seeds: Some(1), ..whole.clone() },
            GridRequest { rows: Some(1000), ..whole.clone() },
            GridRequest { set: one("train.steps=5"), ..whole },
        ];
        let mut seen: Vec<String> = parts.into_iter().map(tables).collect();
        assert!(seen.iter().all(|dir| dir.starts_with("runs/reproduce/table1-quick/part-")), "{seen:?}");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 6);
    }
}
