//! Grids of trainings as a user meets them: killed, stopped, partly failing, run cell by cell by somebody else.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod training;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use training::{SMALL, data, ended_well};

/// Settings of every cell.
fn settings() -> impl Iterator<Item = &'static str> {
    SMALL.iter().copied().chain(["train.steps=300"])
}

/// A directory with a dataset and a grid of four cells: two columns, two seeds.
struct Bench {
    temp: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { temp: tempfile::tempdir().unwrap() };
        data(bench.temp.path());
        let set: Vec<String> = settings().map(|s| format!("'{s}'")).collect();
        let text = format!(
            "title = 'Tiny'\nabout = 'A tiny grid.'\npaper = 'table1'\n\
             [profile.tiny]\ndatasets = ['hopper-random.hdf5']\nseeds = 2\nsettings = 'paper'\nset = [{}]\n\
             [grid]\nkind = 'training'\ncolumns = [{{ name = 'mopo+sumo', against = 'mopo' }}, {{ name = 'mopo' }}]\n",
            set.join(", ")
        );
        std::fs::write(bench.path("tiny.toml"), text).unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = common::command(args);
        command.current_dir(self.temp.path());
        command
    }

    fn grid(&self, dir: &str, more: &[&str]) -> Command {
        let out = format!("{dir}-out");
        let mut args = vec!["reproduce", "tiny.toml", "--profile", "tiny", "--dir", dir, "--out", &out];
        args.extend(more);
        self.command(&args)
    }

    fn start(&self, dir: &str, more: &[&str]) -> Child {
        self.grid(dir, more).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// What a finished grid wrote.
    fn tables(&self, dir: &str) -> Vec<(String, Vec<u8>)> {
        let read = |ending: &str| {
            let name = format!("tiny.{ending}");
            let bytes = std::fs::read(self.path(&format!("{dir}-out")).join(&name)).unwrap();
            (name, bytes)
        };
        ["csv", "statistics.csv", "cells.csv", "curves.csv", "md", "tex", "html"].map(read).to_vec()
    }

    fn assert_same(&self, a: &str, b: &str) {
        for (a, b) in self.tables(a).iter().zip(&self.tables(b)) {
            assert!(a == b, "{} differs", a.0);
        }
    }
}

/// Every file under `dir` of that name.
fn found(dir: &Path, name: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(found(&path, name));
        } else if entry.file_name() == name {
            all.push(path);
        }
    }
    all.sort();
    all
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(180), "waited three minutes for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_grid_killed_at_random_moments_gives_the_same_tables_byte_for_byte() {
    let bench = Bench::new();
    let text = ended_well(&bench.grid("whole", &[]).output().unwrap());
    for piece in [
        "Tiny",
        "mopo+sumo",
        "last policies",
        "best policies",
        "Wins",
        "Wilcoxon",
        "interquartile",
        "tiny.html",
    ] {
        assert!(text.contains(piece), "`{piece}` missing in:\n{text}");
    }
    // SIGKILL at moments that differ from run to run, from before the first file to the middle of a training: the grid
    // gets no chance to tell its cells.
    let timer = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let random = u64::from(timer.subsec_nanos());
    for (begun, pause) in [(0, random % 701), (1, random % 409), (2, random % 251), (3, random % 149)] {
        let mut child = bench.start("killed", &["--jobs", "2"]);
        wait_until("runs", || {
            found(&bench.path("killed"), "config.toml").len() >= begun || child.try_wait().unwrap().is_some()
        });
        std::thread::sleep(Duration::from_millis(pause));
        let _ = child.kill();
        child.wait().unwrap();
    }
    ended_well(&bench.grid("killed", &["--jobs", "2"]).output().unwrap());
    bench.assert_same("whole", "killed");

    // Finished cells are not run again, and a grid that is finished says so.
    let metrics = |dir: &str| -> Vec<_> {
        let files = found(&bench.path(dir), "metrics.jsonl");
        files.iter().map(|p| std::fs::metadata(p).unwrap().modified().unwrap()).collect()
    };
    let before = metrics("whole");
    assert_eq!(before.len(), 4, "one run directory for each column and seed");
    let again = bench.grid("whole", &[]).output().unwrap();
    assert_eq!(ended_well(&again), text);
    assert!(String::from_utf8_lossy(&again.stderr).contains("4 of 4 cells are finished"));
    assert_eq!(metrics("whole"), before);
}

#[cfg(unix)]
#[test]
fn asked_to_stop_the_cells_save_and_the_grid_goes_on_later() {
    let bench = Bench::new();
    // Whoever works in a run directory holds its lock.
    let held = || {
        let free = |lock: &PathBuf| std::fs::File::open(lock).unwrap().try_lock().is_ok();
        found(&bench.path("stopped"), ".lock").iter().filter(|lock| !free(lock)).count()
    };
    for signal in ["-INT", "-TERM"] {
        let mut child = bench.start("stopped", &["--jobs", "2", "--set", "train.steps=1000000"]);
        wait_until("two runs", || held() == 2);
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(held(), 0, "no cell is left running");
    }
    assert!(!bench.path("stopped-out/tiny.csv").exists());
}

#[test]
fn cells_can_be_run_by_somebody_else_and_collected_later() {
    let bench = Bench::new();
    // One of the four was trained by hand, with the same settings.
    let mut train = vec!["-q", "train", "mopo", "hopper-random.hdf5", "--seed", "1"];
    settings().for_each(|set| train.extend(["--set", set]));
    ended_well(&bench.command(&train).output().unwrap());
    let by_hand = found(&bench.path("runs"), "metrics.jsonl");
    let written = std::fs::metadata(&by_hand[0]).unwrap().modified().unwrap();

    let cells = || -> Vec<serde_json::Value> {
        let text = ended_well(&bench.grid("runs", &["--list-cells", "--json"]).output().unwrap());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let listed = cells();
    assert_eq!(listed.len(), 4);
    assert!(listed.iter().all(|c| c["state"] == "missing" && c["dataset"] == "hopper-random.hdf5"));
    let nothing = bench.grid("runs", &["--collect"]).output().unwrap();
    let text = String::from_utf8_lossy(&nothing.stdout).into_owned();
    assert!(nothing.status.code() == Some(1) && text.contains("Not finished yet: 4 of 4 cells"), "{text}");
    for cell in listed.iter().rev() {
        let words: Vec<&str> =
            cell["command"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
        assert_eq!(words.last(), Some(&cell["id"].as_str().unwrap()));
        ended_well(&bench.command(&words[1..]).output().unwrap());
    }
    assert!(cells().iter().all(|c| c["state"] == "done"));
    assert_eq!(found(&bench.path("runs"), "metrics.jsonl").len(), 4, "the one by hand was found");
    assert_eq!(std::fs::metadata(&by_hand[0]).unwrap().modified().unwrap(), written);
    ended_well(&bench.grid("runs", &["--collect"]).output().unwrap());
    ended_well(&bench.grid("whole", &[]).output().unwrap());
    bench.assert_same("runs", "whole");

    let output = bench.grid("runs", &["--cell", "nobody"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && error.contains("no cell `nobody`"), "{error}");
}

#[test]
fn a_failed_cell_is_told_and_does_not_stop_the_others() {
    let bench = Bench::new();
    std::fs::write(bench.path("broken.hdf5"), b"this is no dataset").unwrap();
    let only = ["--only", "broken.hdf5,hopper-random.hdf5", "--columns", "mopo", "--seeds", "1"];
    let output = bench.grid("runs", &only).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("Failed: 1 of 2 cells") && text.contains("broken.hdf5"), "{text}");
    let csv = std::fs::read_to_string(bench.path("runs-out/tiny.csv")).unwrap();
    let ours =
        |dataset: &str| csv.lines().find(|l| l.starts_with(dataset)).unwrap().split(',').nth(5).unwrap();
    assert!(ours("broken.hdf5").is_empty() && ours("hopper-random").parse::<f64>().is_ok(), "{csv}");
    // Mended, the failed cell alone is run.
    std::fs::copy(bench.path("hopper-random.hdf5"), bench.path("broken.hdf5")).unwrap();
    let again = bench.grid("runs", &only).output().unwrap();
    ended_well(&again);
    assert!(String::from_utf8_lossy(&again.stderr).contains("1 of 2 cells are finished"));

    for (more, piece) in [
        (["--set", "rollout.lenght=3"], "did you mean `length`?"),
        (["--columns", "mopo+summo"], "did you mean `mopo+sumo`?"),
        (["--only", "hopper-medium-v2"], "hopper_medium-v2.hdf5"),
    ] {
        let output = bench.grid("other", &more).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(piece) && error.lines().count() == 1, "{error}");
        assert!(!bench.path("other").exists() && !bench.path("other-out").exists());
    }
}

/// Slurm's commands as far as offing uses them: sbatch runs the tasks of an array one after another, squeue finds nothing.
#[cfg(unix)]
const SBATCH: &str = r#"#!/bin/sh
echo "$@" >> "$SLURM_LOG"
script=$2
last=$(sed -n 's/^#SBATCH --array=0-\([0-9]*\).*/\1/p' "$script")
for i in $(seq 0 "$last"); do SLURM_ARRAY_TASK_ID=$i sh "$script" > "$SLURM_LOG.$i" 2>&1; done
echo "${SLURM_ID:-7};cluster"
"#;

#[cfg(unix)]
#[test]
fn an_array_job_gives_the_same_tables_and_nothing_is_submitted_twice() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::new();
    let bin = bench.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let tool = |name: &str, text: &str| {
        std::fs::write(bin.join(name), text).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    tool("sbatch", SBATCH);
    // The first time it does not answer, as a busy controller does not.
    let silent = "#!/bin/sh\nif [ ! -e \"$SLURM_LOG.asked\" ]; then touch \"$SLURM_LOG.asked\"; echo 'no answer' >&2; exit 1; fi\n";
    tool("squeue", &(silent.to_string() + "if [ -n \"$QUEUE\" ]; then echo \"$QUEUE\"; fi\n"));
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let slurm = |more: &[&str], queue: &str| {
        let mut command = bench.grid("array", more);
        command.env("PATH", &path).env("QUEUE", queue).env("SLURM_LOG", bench.path("log"));
        command.output().unwrap()
    };
    let array = ["--executor", "slurm", "--jobs", "3", "--sbatch=--partition=cpu"];
    let submitted = slurm(&[&array[..], &["--wait"]].concat(), "");
    ended_well(&submitted);
    let said = String::from_utf8_lossy(&submitted.stderr).into_owned();
    assert!(
        said.contains("4 cells submitted as job 7") && said.contains("no answer; asking again"),
        "{said}"
    );
    ended_well(&bench.grid("whole", &[]).output().unwrap());
    bench.assert_same("array", "whole");
    let script = std::fs::read_to_string(bench.path("array-out/slurm/job.sh")).unwrap();
    for line in [
        "#SBATCH --array=0-3%3",
        "#SBATCH --partition=cpu",
        "#SBATCH --cpus-per-task=",
        "\nexport OFFING_HOME=",
    ] {
        assert!(script.contains(line), "`{line}` missing in:\n{script}");
    }
    // A finished grid submits nothing, it makes its tables.
    ended_well(&slurm(&array, ""));
    assert_eq!(std::fs::read_to_string(bench.path("log")).unwrap().lines().count(), 1);

    // With one more seed there are two more cells; while they wait they are not submitted again.
    let more = [&array[..], &["--seeds", "3"]].concat();
    let waiting = slurm(&more, "0 RUNNING\n1 PENDING");
    let error = String::from_utf8_lossy(&waiting.stderr).into_owned();
    assert!(
        error.contains("job 7 of this grid is still in the queue") && error.contains("scancel -M cluster 7"),
        "{error}"
    );
    std::fs::write(bench.path("array-out/slurm/job.json"), {
        let listed = ended_well(&slurm(&["--seeds", "3", "--list-cells", "--json"], ""));
        let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].clone();
        let ids: Vec<serde_json::Value> = listed.lines().map(id).collect();
        serde_json::json!({ "id": "8", "cells": &ids[4..] }).to_string()
    })
    .unwrap();
    let status = ended_well(&slurm(&["--seeds", "3", "--status"], "0 RUNNING\n1 PENDING"));
    assert!(status.contains("6 cells: 4 done, 1 running, 1 pending"), "{status}");
    assert!(status.contains("Slurm job 8: 1 running, 1 pending"), "{status}");

    tool("sbatch", "#!/bin/sh\necho 'sbatch: error: invalid partition specified: cpu' >&2\nexit 1\n");
    let refused = slurm(&more, "");
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && error.contains("invalid partition specified"), "{error}");
}
