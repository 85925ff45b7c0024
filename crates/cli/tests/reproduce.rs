//! Tables of the paper as a user meets them: interrupted, partly failing, asked for by wrong names.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod training;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::command;
use training::{SMALL, data, ended_well};

/// Arguments of a tiny grid of two seeds: everything is there, nothing takes long.
fn tiny<'a>(table: &'a str, only: &'a str, dir: &'a str, out: &'a str) -> Vec<&'a str> {
    let mut args = vec!["reproduce", table, "--only", only, "--seeds", "2", "--dir", dir, "--out", out];
    let study = ["train.steps=200", "starts=10", "length=10", "bootstrap=10"];
    SMALL.iter().chain(&study).for_each(|set| args.extend(["--set", set]));
    args
}

fn files(out: &Path, table: &str) -> Vec<(String, Vec<u8>)> {
    ["csv", "cells.csv", "md", "tex", "html"]
        .map(|ending| {
            let name = format!("{table}.{ending}");
            let bytes = std::fs::read(out.join(&name)).unwrap();
            (name, bytes)
        })
        .to_vec()
}

/// Every file under `dir` whose name begins with `prefix`.
fn found(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(found(&path, prefix));
        } else if entry.file_name().to_string_lossy().starts_with(prefix) {
            all.push(path);
        }
    }
    all.sort();
    all
}

#[test]
fn a_killed_grid_gives_the_same_tables_and_finished_cells_are_not_run_again() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_string();
    let (whole, whole_out, killed, killed_out) = (path("a"), path("a-out"), path("b"), path("b-out"));
    let text = ended_well(&command(&tiny("table3", &data, &whole, &whole_out)).output().unwrap());
    for piece in ["Table 3", "s+a+s'", "s+a+r+s'*", "step*", "paper", "difference", "2 seeds", "table3.html"]
    {
        assert!(text.contains(piece), "`{piece}` missing in:\n{text}");
    }
    // Killed while the first policy trains, again while the second does: SIGKILL, no chance to tidy up.
    for wanted in [1, 2] {
        let mut child = command(&tiny("table3", &data, &killed, &killed_out))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        let begun = || {
            let runs: Vec<PathBuf> = found(Path::new(&killed), "0000")
                .iter()
                .filter_map(|p| p.parent().map(Path::to_path_buf))
                .collect();
            runs.iter().collect::<std::collections::BTreeSet<_>>().len()
        };
        while begun() < wanted && child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < Duration::from_secs(120), "no checkpoint after two minutes");
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        child.wait().unwrap();
    }
    assert!(!Path::new(&killed_out).join("table3.csv").exists(), "it was killed before the end");
    ended_well(&command(&tiny("table3", &data, &killed, &killed_out)).output().unwrap());
    for (a, b) in files(Path::new(&whole_out), "table3").iter().zip(&files(Path::new(&killed_out), "table3"))
    {
        assert!(a == b, "{} differs", a.0);
    }
    // Two numbers for each of five columns and two seeds.
    let cells = std::fs::read_to_string(Path::new(&whole_out).join("table3.cells.csv")).unwrap();
    assert_eq!(cells.lines().count(), 1 + 2 * 5 * 2);

    // Another table uses the same policies, and the estimators it has in common with the first.
    let metrics = || -> Vec<Vec<u8>> {
        found(Path::new(&whole), "metrics").iter().map(|p| std::fs::read(p).unwrap()).collect()
    };
    let (before, out5) = (metrics(), path("five"));
    let again = command(&tiny("table5", &data, &whole, &out5)).output().unwrap();
    ended_well(&again);
    assert_eq!(before.len(), 2, "one run directory a seed");
    assert!(metrics() == before, "nothing was trained");
    // Four search vectors and two more k for each seed: k = 1 is s+a+s' by another name.
    assert_eq!(found(Path::new(&whole), "study-").len(), 2 * (4 + 2));
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(said.contains("cell 2 of 2"), "{said}");
    let logs = |out: &str| -> Vec<String> {
        let files = found(&Path::new(out).join("cells"), "hopper-random.");
        let logs = files.iter().filter(|p| p.extension().is_some_and(|e| e == "log"));
        logs.map(|p| std::fs::read_to_string(p).unwrap()).collect()
    };
    assert_eq!(logs(&out5).len(), 2);
    assert!(
        logs(&out5).iter().all(|log| log.contains("finished already: all 200 steps")),
        "{:?}",
        logs(&out5)
    );
    // Even where nothing is written down about them, finished cells are found by their run directories.
    std::fs::remove_dir_all(Path::new(&out5).join("cells")).unwrap();
    let before = files(Path::new(&out5), "table5");
    ended_well(&command(&tiny("table5", &data, &whole, &out5)).output().unwrap());
    assert!(logs(&out5).iter().all(|log| !log.contains("studying")), "{:?}", logs(&out5));
    assert!(files(Path::new(&out5), "table5") == before);
}

#[test]
fn a_failed_cell_is_told_and_does_not_stop_the_others() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_string();
    let (broken, dir, out) = (path("broken.hdf5"), path("runs"), path("out"));
    std::fs::write(&broken, b"this is no dataset").unwrap();
    let only = format!("{broken},{data}");
    let mut args = tiny("table5", &only, &dir, &out);
    args[5] = "1";
    let output = command(&args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("Failed: 1 of 2 cells") && text.contains("broken.hdf5"), "{text}");
    let csv = std::fs::read_to_string(Path::new(&out).join("table5.csv")).unwrap();
    let ours = |dataset: &str| {
        let line = csv.lines().find(|l| l.starts_with(dataset) && l.contains(",k=5,")).unwrap();
        line.rsplit(',').nth(3).unwrap().parse::<f64>()
    };
    assert!(ours(&broken).is_err() && ours(&data).is_ok(), "{csv}");
    let page = std::fs::read_to_string(Path::new(&out).join("table5.html")).unwrap();
    let plain = std::fs::read_to_string(Path::new(&out).join("table5.md")).unwrap();
    for piece in
        ["offing reproduce table5 --profile quick --seeds 1", "max_epochs = 2", "threads", "broken.hdf5"]
    {
        assert!(page.contains(piece) && plain.contains(piece), "`{piece}` missing");
    }
}

#[test]
fn nonsense_is_one_clear_line_and_no_name_lists_all() {
    for (args, pieces) in [
        (vec!["reproduce", "tabel3"], vec!["unknown experiment `tabel3`", "did you mean `table3`?"]),
        (vec!["reproduce", "table2", "--profile", "papr"], vec!["unknown profile `papr`", "`paper`"]),
        (
            vec!["reproduce", "table2", "--only", "hoper-medium"],
            vec!["unknown dataset", "did you mean `hopper-medium`?"],
        ),
        (vec!["reproduce", "table2", "--set", "strats=5"], vec!["`strats`", "did you mean `starts`?"]),
        (vec!["reproduce", "missing.toml"], vec!["missing.toml: cannot read"]),
    ] {
        let output = command(&args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            (output.status.code(), error.trim_end().lines().count()),
            (Some(2), 1),
            "{args:?}: {error}"
        );
        assert!(pieces.iter().all(|p| error.contains(p)), "{args:?}: {error}");
    }
    let all = ended_well(&command(&["reproduce"]).output().unwrap());
    assert!(["table2", "table3", "table5", "table9"].iter().all(|t| all.contains(t)), "{all}");
}

#[test]
fn figure_1_is_drawn_from_a_run_and_comes_out_the_same_again() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_string();
    let (toml, dir, out) = (path("idea.toml"), path("runs"), path("out"));
    let text = "title = 'Idea'\nabout = 'A small one.'\n[profile.quick]\ndatasets = ['point-mass']\nseeds = 1\n\
                [grid]\nkind = 'idea'\nrows = 1500\nepochs = 3\nsteps = 200\ngamma = 0.95\nrollout = 5\nlength = 8\n\
                alpha = 1.0\n";
    std::fs::write(&toml, text).unwrap();
    let args = ["reproduce", &toml, "--dir", &dir, "--out", &out];
    let said = ended_well(&command(&args).output().unwrap());
    assert!(said.contains("trajectory 3") && said.contains("error where cut"), "{said}");
    let read = || -> Vec<Vec<u8>> {
        let file = |ending: &str| std::fs::read(Path::new(&out).join(format!("idea.{ending}"))).unwrap();
        ["csv", "svg", "html", "md", "cells.csv"].map(file).to_vec()
    };
    let first = read();
    let (csv, svg) = (String::from_utf8_lossy(&first[0]), String::from_utf8_lossy(&first[1]));
    assert!((3 + 1..=3 * 8 + 1).contains(&csv.lines().count()), "{csv}");
    assert!(svg.starts_with("<svg") && svg.contains("u = ε") && !svg.contains("NaN"));
    assert!(String::from_utf8_lossy(&first[2]).contains(&*svg), "the page holds the figure");
    // Nothing written down about the cell: it is found by its run directory, and drawn alike.
    std::fs::remove_dir_all(&out).unwrap();
    ended_well(&command(&args).output().unwrap());
    assert!(read() == first);
    let wrong = command(&[&args[..], &["--set", "rows=5"]].concat()).output().unwrap();
    let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(error.contains("leave --only, --set and --rows out") && error.lines().count() == 1, "{error}");
}

#[test]
fn times_are_measured_in_turns_and_kept() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_string();
    let (toml, out) = (path("times.toml"), path("out"));
    let text = format!(
        "title = 'Times'\nabout = 'Of small ones.'\npaper = 'table7'\n[profile.quick]\ndatasets = ['{data}']\nseeds = 1\n\
         settings = 'paper'\nset = ['model.ensemble.hidden=[16,16]', 'model.ensemble.decay=[0.0,0.0,0.0]', \
         'rollout.starts=100', 'sac.hidden=[16,16]', 'train.batch=16']\n[grid]\nkind = 'timing'\nblocks = 2\nupdates = 20\n\
         columns = [{{ name = 'mopo+sumo', against = 'mopo' }}, {{ name = 'mopo' }}]\n"
    );
    std::fs::write(&toml, text).unwrap();
    let args = ["reproduce", &toml, "--out", &out];
    let said = ended_well(&command(&args).output().unwrap());
    for piece in ["Seconds of 1000 gradient steps", "mopo+sumo of mopo", "0.91", "401", "443"] {
        assert!(said.contains(piece), "`{piece}` missing in:\n{said}");
    }
    let read = |name: &str| std::fs::read_to_string(Path::new(&out).join(name)).unwrap();
    let (csv, cells) = (read("times.csv"), read("times.cells.csv"));
    let ours = |line: &str| line.split(',').nth(3).unwrap().parse::<f64>().unwrap();
    assert!(csv.lines().skip(1).all(|line| ours(line) > 0.0), "{csv}");
    assert!(cells.contains(",mopo+sumo,seconds of search,") && cells.contains(",mopo,seconds,"), "{cells}");
    // A finished cell keeps its times; side by side they would mean nothing.
    ended_well(&command(&args).output().unwrap());
    assert_eq!(read("times.csv"), csv);
    let both = command(&[&args[..], &["--jobs", "2"]].concat()).output().unwrap();
    assert!(String::from_utf8_lossy(&both.stderr).contains("leave --jobs out"));
}
