//! Strangers' files beside one's own, and homes and runs that others have touched.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(unix)]

#[allow(dead_code)]
mod common;
mod training;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{command, home};
use training::{data, ended_well, outcome, tiny};

#[test]
fn code_in_the_working_directory_does_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let ran = dir.path().join("ran");
    let code = format!("open({:?}, 'w').write(__name__)\n", ran.display().to_string());
    // `importlib.metadata` imports csv, `-m pip` runs pip.
    for name in ["csv.py", "pip.py", "importlib.py", "sitecustomize.py"] {
        fs::write(dir.path().join(name), &code).unwrap();
    }
    let output = command(&["doctor"])
        .current_dir(dir.path())
        .env("PYTHONPATH", dir.path())
        .env("OFFING_HOME", dir.path().join("home"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("pip"), "{output:?}");
    assert!(!ran.exists(), "{:?} ran", fs::read_to_string(&ran));
}

/// Whatever starts Python: each start is isolated, and not where the user's files are.
#[test]
fn every_python_is_started_isolated_and_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let (bin, log) = (dir.path().join("bin"), dir.path().join("log"));
    fs::create_dir(&bin).unwrap();
    for name in ["python3", "python", "pip3", "pip"] {
        let path = bin.join(name);
        let script = format!("#!/bin/sh\necho \"{name} $(pwd -P) $1\" >> '{}'\nexit 1\n", log.display());
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for args in [&["doctor"][..], &["doctor", "--fetch"], &["eval", "uniform", "--task", "hopper"]] {
        let output = command(args)
            .current_dir(dir.path())
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .env("OFFING_HOME", dir.path().join("home"))
            .output()
            .unwrap();
        let starts = fs::read_to_string(&log).unwrap_or_default();
        assert!(!starts.is_empty(), "{args:?} started no Python: {output:?}");
        for start in starts.lines() {
            let well = match start.split_once(' ') {
                Some(("python3" | "python", rest)) => rest == "/ -I",
                Some((_, rest)) => rest.starts_with("/ "),
                None => false,
            };
            assert!(well, "{args:?}: {start}");
        }
        fs::remove_file(&log).unwrap();
    }
}

fn refused(output: &Output, path: &Path) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{}: {error}", path.display());
    assert_eq!(error.lines().count(), 1, "{error}");
    let name = path.display().to_string();
    assert!(error.contains(&name) && error.contains("only this user or root can change"), "{error}");
}

/// Runs `act` while others could have written the file, and while another user owns it, where the test may give it away.
fn while_others_own(path: &Path, act: &dyn Fn()) {
    let mode = fs::metadata(path).unwrap().permissions();
    fs::set_permissions(path, fs::Permissions::from_mode(mode.mode() | 0o002)).unwrap();
    act();
    fs::set_permissions(path, mode).unwrap();
    if chown(path, Some(12345), None).is_ok() {
        act();
        chown(path, Some(0), None).unwrap();
    }
}

#[test]
fn what_another_user_can_change_in_a_home_is_refused_in_one_line() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let home = temp.path().join("home");
    let runs = |name: &str| temp.path().join(name).to_str().unwrap().to_string();
    let train = |dir: &str| {
        let mut train = command(&tiny("mopo+sumo", &data, dir, "2"));
        // The simulator's own checks are other tests': it is not in this home.
        train.env("OFFING_HOME", &home).env("MUJOCO_LIB", library()).output().unwrap()
    };
    bodies(&home);
    ended_well(&train(&runs("whole")));
    let entries = |kind: &str| {
        let found = fs::read_dir(home.join(kind)).unwrap().map(|e| e.unwrap().path());
        let mut found: Vec<PathBuf> = found.filter(|p| !p.ends_with(".lock") && !hidden(p)).collect();
        found.sort();
        found
    };
    let model = entries("models").remove(0);
    let mut places = entries("index");
    places.extend(["model.safetensors", "report.json"].map(|name| model.join(name)));
    places.extend([home.clone(), home.join("models"), model]);
    assert_eq!(places.len(), 7, "index, its card, model, its report, and directories: {places:?}");
    for path in &places {
        while_others_own(path, &|| refused(&train(&runs("refused")), path));
    }
    ended_well(&train(&runs("again")));
    assert!(outcome(&runs("whole")) == outcome(&runs("again")), "byte for byte");

    let planted = home.join("datasets/hopper-random-3000-s0-0123abcd.hdf5");
    fs::create_dir_all(planted.parent().unwrap()).unwrap();
    fs::copy(&data, &planted).unwrap();
    let mirrors = home.join("mirrors.toml");
    fs::write(&mirrors, "").unwrap();
    let with_home = |args: &[&str]| command(args).env("OFFING_HOME", &home).output().unwrap();
    ended_well(&with_home(&["-q", "data", "info", "hopper-random"]));
    while_others_own(&planted, &|| {
        refused(&with_home(&["-q", "data", "info", "hopper-random"]), &planted);
        refused(&with_home(&["-q", "train", "bc", "hopper-random", "--steps", "10"]), &planted);
    });
    while_others_own(&mirrors, &|| refused(&with_home(&["data", "fetch", "hopper-medium-v2"]), &mirrors));
}

fn hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// The simulator's library in the home that all tests share.
fn library() -> PathBuf {
    let place = fs::read_dir(home().join("mujoco")).unwrap().map(|e| e.unwrap().path());
    let dir =
        place.into_iter().find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("mujoco-")));
    dir.expect("a test that made data has fetched it")
}

/// Copies what describes the simulated bodies into another home.
fn bodies(into: &Path) {
    for from in fs::read_dir(home().join("mujoco")).unwrap().map(|e| e.unwrap().path()) {
        let name = from.file_name().unwrap();
        if name.to_string_lossy().starts_with("gymnasium-") {
            let to = into.join("mujoco").join(name);
            fs::create_dir_all(&to).unwrap();
            for file in fs::read_dir(from).unwrap().map(|e| e.unwrap().path()) {
                fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
            }
        }
    }
}

/// A planted library is not loaded, whatever it is: its hash is not the pinned one, or others can change it.
#[test]
fn a_planted_simulator_is_refused_in_one_line() {
    let temp = tempfile::tempdir().unwrap();
    data(temp.path());
    let (real, home) = (library(), temp.path().join("home"));
    let dir = home.join("mujoco").join(real.file_name().unwrap());
    fs::create_dir_all(&dir).unwrap();
    bodies(&home);
    let file = fs::read_dir(&real).unwrap().next().unwrap().unwrap().path();
    let planted = dir.join(file.file_name().unwrap());
    let eval = || {
        let args = ["-q", "eval", "uniform", "--task", "hopper", "--episodes", "1"];
        command(&args).env("OFFING_HOME", &home).output().unwrap()
    };
    fs::copy(&file, &planted).unwrap();
    ended_well(&eval());
    while_others_own(&planted, &|| refused(&eval(), &planted));
    let mut bytes = fs::read(&file).unwrap();
    bytes.push(0);
    fs::write(&planted, bytes).unwrap();
    let output = eval();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.lines().count() == 1, "{output:?}");
    assert!(error.contains("wanted the file of mujoco") && error.contains("sha256"), "{error}");
}

#[test]
fn what_was_lost_is_told_also_with_q() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let dir = temp.path().join("run").to_str().unwrap().to_string();
    let mut args = tiny("bc", &data, &dir, "1")[..10].to_vec();
    ["hidden=[16,16]", "train.checkpoint_every=200", "train.evaluate_every=400", "train.episodes=1"]
        .iter()
        .for_each(|set| args.extend(["--set", set]));
    ended_well(&command(&args).output().unwrap());
    let run = Path::new(&dir);
    for checkpoint in fs::read_dir(run.join("checkpoints")).unwrap().map(|e| e.unwrap().path()) {
        fs::write(&checkpoint, b"torn").unwrap();
    }
    fs::remove_file(run.join("metrics.jsonl")).unwrap();
    let output = command(&["-q", "train", "--resume", &dir, "--steps", "500"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    for part in ["metrics.jsonl: is gone", "refused", "no checkpoint is whole; starting over"] {
        assert!(told.contains(part), "`{part}` is missing in: {told}");
    }
}

/// Neither a home without room nor one that may only be read costs more than the index.
#[test]
fn a_home_that_takes_no_index_trains_without_and_says_so() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let (home, path) = (temp.path().join("home"), |name: &str| temp.path().join(name).display().to_string());
    let train = |name: &str, limits: &str| {
        let run = path(name);
        let args = tiny("mopo+sumo", &data, &run, "2");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{limits} exec \"$@\""), "sh", env!("CARGO_BIN_EXE_offing")]);
        let output = shell.args(&args[1..]).env("OFFING_HOME", &home).env("MUJOCO_LIB", library()).output();
        let output = output.unwrap();
        ended_well(&output);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    bodies(&home);
    assert!(!train("whole", "").contains("in memory alone"));
    let index = fs::read_dir(home.join("index")).unwrap().map(|e| e.unwrap().path());
    let index = index.into_iter().find(|p| p.extension().is_some_and(|e| e == "knn")).unwrap();
    let blocks = fs::metadata(&index).unwrap().len() / 512 - 1;
    fs::remove_dir_all(home.join("index")).unwrap();
    // Blocks of `sh` have 512 bytes; nothing else that is written is as large as the index.
    let told = train("full", &format!("trap '' XFSZ; ulimit -f {blocks};"));
    assert!(told.contains("the index is kept in memory alone: ") && told.contains("too large"), "{told}");
    // A file in the place of the directory: not even root can write there.
    fs::remove_dir_all(home.join("index")).unwrap();
    fs::write(home.join("index"), b"").unwrap();
    let told = train("taken", "");
    assert!(told.contains("the index is kept in memory alone: "), "{told}");
    for name in ["full", "taken"] {
        assert!(outcome(&path("whole")) == outcome(&path(name)), "{name}: byte for byte");
    }
}
