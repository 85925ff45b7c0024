//! Training as a user meets it: runs that are killed, stopped, damaged, asked for twice, and still end the same.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod training;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::command;
use training::{data, ended_well, outcome, tiny};

fn start(args: &[&str]) -> Child {
    command(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the run has written a checkpoint, or is over.
fn wait_for_checkpoint(dir: &str, child: &mut Child) {
    let checkpoints = Path::new(dir).join("checkpoints");
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(120) {
        let any = std::fs::read_dir(&checkpoints).is_ok_and(|mut files| {
            files.any(|f| f.is_ok_and(|f| f.path().extension().is_some_and(|e| e == "safetensors")))
        });
        if any || child.try_wait().unwrap().is_some() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no checkpoint after two minutes");
}

#[test]
fn a_run_killed_again_and_again_ends_as_if_nothing_had_happened() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let (whole, killed) = (temp.path().join("whole"), temp.path().join("killed"));
    let (whole, killed) = (whole.to_str().unwrap(), killed.to_str().unwrap());
    let text = ended_well(&command(&tiny("mopo+sumo", &data, whole, "2")).output().unwrap());
    for piece in ["last policy", "best on the way", "dataset's mean return"] {
        assert!(text.contains(piece), "{text}");
    }
    // At random moments: before the first step, while learning, while a checkpoint is written. The last waits for one, so
    // that there is something to go on with.
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let pauses = [(seed % 97) * 10, (seed / 97) % 600, (seed / 9973) % 1200, seed % 150];
    eprintln!("killing after {pauses:?} ms");
    for (i, pause) in pauses.into_iter().enumerate() {
        let mut child = start(&tiny("mopo+sumo", &data, killed, "1"));
        if i == 3 {
            wait_for_checkpoint(killed, &mut child);
        }
        std::thread::sleep(Duration::from_millis(pause.into()));
        // SIGKILL: the process gets no chance to tidy up.
        let _ = child.kill();
        child.wait().unwrap();
    }
    ended_well(&command(&["-q", "train", "--resume", killed]).output().unwrap());
    assert!(outcome(whole) == outcome(killed), "byte for byte");
    assert!(Path::new(killed).join("report.html").exists());
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(Path::new(killed).join(name)).unwrap()).unwrap()
    };
    assert!(read("timing.json")["phases"]["sac"].as_f64().is_some_and(|s| s > 0.0));
    assert!(read("made-by.json").as_array().is_some_and(|all| all.iter().any(|by| by["threads"] == 1)));
    let times = read("timing.json");
    ended_well(&command(&["-q", "train", "--resume", killed]).output().unwrap());
    assert_eq!(read("timing.json"), times, "looking at a finished run takes it no time");
}

#[test]
fn a_finished_training_shows_its_scores_beside_the_data_and_what_to_do_next() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let dir = temp.path().join("run");
    let args = tiny("mopo+sumo", &data, dir.to_str().unwrap(), "2");
    let output = command(&args[1..]).output().unwrap();
    let said = ended_well(&output);
    for piece in ["next:", "offing rank", "offing act", "offing report", "offing export", "report.html"] {
        assert!(said.contains(piece), "`{piece}` missing in:\n{said}");
    }
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    let scores = notes.lines().find(|line| line.contains("score ") && line.contains(" (data "));
    assert!(scores.is_some_and(|line| line.contains(['▁', '█'])), "a sparkline beside the data: {notes}");
}

#[test]
fn a_damaged_checkpoint_is_passed_over_and_the_result_is_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let (whole, hurt) = (temp.path().join("whole"), temp.path().join("hurt"));
    let (whole, hurt) = (whole.to_str().unwrap(), hurt.to_str().unwrap());
    for dir in [whole, hurt] {
        ended_well(&command(&tiny("amorel+sumo", &data, dir, "2")).output().unwrap());
    }
    let newest = Path::new(hurt).join("checkpoints/000000000400.safetensors");
    let mut bytes = std::fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    let again = command(&["train", "--resume", hurt]).output().unwrap();
    ended_well(&again);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(said.contains("refused") && said.contains("going on after step 350"), "{said}");
    assert!(outcome(whole) == outcome(hurt));
}

#[cfg(unix)]
#[test]
fn an_interrupt_saves_and_a_second_process_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let dir = temp.path().join("run");
    let dir = dir.to_str().unwrap();
    let mut args = tiny("mopo+sumo", &data, dir, "1");
    let at = args.iter().position(|a| *a == "--steps").unwrap();
    args[at + 1] = "1000000";
    let mut child = start(&args);
    wait_for_checkpoint(dir, &mut child);
    let second = command(&["-q", "train", "--resume", dir]).output().unwrap();
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.code() == Some(2) && error.contains("another process"), "{error}");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130), "stopped on request");
    assert!(
        Path::new(dir).join("timing.json").exists(),
        "its time is kept, for the next process to go on from"
    );
    let metrics = std::fs::read_to_string(Path::new(dir).join("metrics.jsonl")).unwrap();
    assert!(metrics.is_empty() || metrics.ends_with('\n'), "whole lines only");
}

#[test]
fn nonsense_is_one_clear_line() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let dir = temp.path().join("run");
    let dir = dir.to_str().unwrap();
    for (args, pieces) in [
        (vec!["train", "mopoo", &data], vec!["unknown algorithm `mopoo`", "`mopo`"]),
        (vec!["train", "mopo+sumoo", &data], vec!["unknown estimator `sumoo`", "`sumo`"]),
        (vec!["train", "mopo", "hopper-midium"], vec!["hopper-midium"]),
        (vec!["train", "mopo", &data, "--set", "rollout.lenght=3"], vec!["rollout.lenght", "`length`"]),
        (vec!["train", "mopo", &data, "--preset", "kitt"], vec!["unknown preset `kitt`", "kit"]),
        (vec!["train", "mopo", &data, "--set", "rollout.real_ratio=2"], vec!["real_ratio", "from 0 to 1"]),
        (vec!["train", "--resume", dir], vec!["wanted a run directory"]),
    ] {
        let output = command(&args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        let lines: Vec<&str> = error.lines().filter(|l| !l.starts_with('·')).collect();
        assert!(lines.len() == 1 && pieces.iter().all(|p| error.contains(p)), "{args:?}: {error}");
    }
    ended_well(&command(&tiny("bc", &data, dir, "2")[..10]).output().unwrap());
    let mut other = tiny("bc", &data, dir, "2")[..10].to_vec();
    other[9] = "300";
    let output = command(&other).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("`steps = 400` there, `steps = 300` asked for"), "{error}");
}

#[test]
fn losses_that_explode_end_a_run_with_one_line() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let dir = temp.path().join("run");
    let mut args = tiny("mopo+sumo", &data, dir.to_str().unwrap(), "2");
    args.extend(["--set", "sac.critic_lr=1e25"]);
    let output = command(&args).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.lines().count() == 1 && error.contains("lower the learning rate"), "{error}");
    assert!(!dir.join("policy.safetensors").exists(), "a broken policy is no result");
}

#[test]
fn a_study_compares_estimators_and_is_found_again() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let (dir, page) = (temp.path().join("studies"), temp.path().join("page.html"));
    let (dir, page) = (dir.to_str().unwrap(), page.to_str().unwrap());
    let mut args = vec!["-q", "calibrate", &data, "--seeds", "1", "--dir", dir, "--report", page];
    args.extend(["--estimators", "sumo", "pairwise", "{\"kind\":\"sumo\",\"k\":5}"]);
    let run = tiny("mopo", &data, dir, "2");
    args.extend(run.iter().skip_while(|a| **a != "--set"));
    args.extend(["--set", "train.steps=100", "--set", "starts=10", "--set", "length=10"]);
    let first = ended_well(&command(&args).output().unwrap());
    for piece in [
        "sumo",
        "pairwise",
        "sumo k=5",
        "AUROC",
        "before the end",
        "step 1 to 2",
        "95 % interval",
        "r, seed 0",
    ] {
        assert!(first.contains(piece), "`{piece}` missing in:\n{first}");
    }
    let again = ended_well(&command(&args).output().unwrap());
    assert_eq!(first, again, "found, not studied again");
    assert!(std::fs::read_to_string(page).unwrap().contains("<figure class=\"chart\">"));
}
