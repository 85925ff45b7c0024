//! `offing` alone: what it is, and what to do next.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Result;
use offing_experiments::format::counted;

use crate::exit::ExitCode;
use crate::term;

/// Runs to look at; a directory with more of them is told by this many.
const MOST: usize = 200;

pub(crate) fn run() -> Result<ExitCode> {
    out!(
        "offing {}: learn policies from logged data, and know where the learnt model cannot be trusted",
        env!("CARGO_PKG_VERSION")
    );
    let runs = runs_below(Path::new("runs"));
    let command = |text: &str| text.to_string();
    match runs.last() {
        None => {
            out!("\nsee it work:");
            term::print_list(&[(
                command("offing quickstart"),
                "a dataset, a model, a policy, its score and a report: minutes",
            )]);
            out!("\nwith your own log (Parquet, CSV, npz, HDF5, Minari, LeRobot):");
            term::print_list(&[
                (command("offing data audit LOG"), "is it fit to learn from?"),
                (command("offing train LOG"), "learn a policy from it"),
                (
                    command("offing calibrate LOG --profile quick"),
                    "which uncertainty estimate to trust on it",
                ),
            ]);
        }
        Some((newest, finished)) => {
            out!("\n{} in runs/, the newest {}", counted(runs.len(), "run"), newest.display());
            let run = newest.display();
            let mut next = match finished {
                true => vec![
                    (format!("offing replay {run}"), "watch its policy, and what the model imagined"),
                    (
                        format!("offing act {run} OBSERVATIONS -o actions.csv"),
                        "its actions for your observations",
                    ),
                ],
                false => vec![(format!("offing train --resume {run}"), "finish it")],
            };
            next.push((command("offing report runs"), "all runs on one page"));
            let siblings = newest.parent().unwrap_or(newest).display();
            next.push((format!("offing rank {siblings}"), "which policy to take, from the data alone"));
            term::print_next(&next);
        }
    }
    out!("\nall commands: offing --help; examples: offing COMMAND --help; this machine: offing doctor");
    Ok(ExitCode::SUCCESS)
}

/// Run directories below a place, the newest last, each with whether it has its last policy.
fn runs_below(place: &Path) -> Vec<(PathBuf, bool)> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    let mut open = vec![(place.to_path_buf(), 0)];
    while let Some((dir, depth)) = open.pop() {
        let config = dir.join("config.toml");
        if let Ok(changed) = config.metadata().and_then(|m| m.modified()) {
            found.push((changed, dir));
        } else if depth < 4 && found.len() < MOST {
            let inside = std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
            open.extend(
                inside.filter(|path| path.is_dir() && !path.is_symlink()).map(|path| (path, depth + 1)),
            );
        }
    }
    found.sort();
    let finished = |dir: &Path| dir.join("policy.safetensors").is_file();
    found
        .into_iter()
        .map(|(_, dir)| {
            let done = finished(&dir);
            (dir, done)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_below_a_directory_the_newest_last() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(runs_below(&dir.path().join("runs")), []);
        let make = |name: &str| {
            let run = dir.path().join(name);
            std::fs::create_dir_all(&run).unwrap();
            std::fs::write(run.join("config.toml"), "").unwrap();
            run
        };
        let first = make("landfall/hopper/s0");
        std::fs::write(first.join("policy.safetensors"), "").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        let second = make("quickstart");
        std::fs::File::options()
            .write(true)
            .open(second.join("config.toml"))
            .unwrap()
            .set_modified(later)
            .unwrap();
        assert_eq!(runs_below(dir.path()), [(first, true), (second, false)]);
    }
}
