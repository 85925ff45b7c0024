//! What can be done with runs: told beforehand what they cost, scored, stopped by a full disk and gone on with.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod training;

use std::path::Path;
use std::process::{Command, Output};

use common::{command, home};
use training::{data, ended_well, outcome, tiny};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The checkpoints that are there, and nothing that is half written.
fn checkpoints(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir.join("checkpoints"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.iter().all(|n| n.ends_with(".safetensors") && !n.starts_with('.')), "{names:?}");
    names
}

/// The program behind a shell line that ends in `"$@"`.
fn shelled(line: &str, args: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", line, "sh", env!("CARGO_BIN_EXE_offing")]).args(args);
    shell.env("OFFING_HOME", home()).env_remove("MUJOCO_LIB");
    shell
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_grow_ends_a_run_with_one_line_and_loses_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let (whole, stopped) = (temp.path().join("whole"), temp.path().join("stopped"));
    let (whole, stopped) = (whole.to_str().unwrap(), stopped.to_str().unwrap());
    // The first run also leaves model and index in the cache; what is limited below is the run directory alone.
    ended_well(&command(&tiny("mopo+sumo", &data, whole, "2")).output().unwrap());
    // Checkpoints grow with the buffer of imagined rows, from 110 kB to 180: the first fit, the last do not. Blocks of `sh`
    // have 512 bytes; without the trap the signal would end the program before it can speak.
    let args = tiny("mopo+sumo", &data, stopped, "2");
    let output = shelled("trap '' XFSZ; ulimit -f 300; exec \"$@\"", &args).output().unwrap();
    let error = said(&output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.lines().count() == 1 && error.contains("make room") && error.contains("--resume"),
        "{error}"
    );
    let kept = checkpoints(Path::new(stopped));
    assert!(!kept.is_empty() && !kept.contains(&"000000000400.safetensors".into()), "{kept:?}");
    ended_well(&command(&["-q", "train", "--resume", stopped]).output().unwrap());
    assert!(outcome(whole) == outcome(stopped), "byte for byte");
}

/// Whether this user may mount a file system of memory, in a name space of its own.
#[cfg(target_os = "linux")]
fn can_mount(at: &Path) -> bool {
    let mount = format!("mount -t tmpfs -o size=64k none '{}'", at.display());
    Command::new("unshare").args(["-rm", "sh", "-c", &mount]).output().is_ok_and(|o| o.status.success())
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_a_run_with_one_line_and_loses_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let (disk, out) = (temp.path().join("disk"), temp.path().join("out"));
    std::fs::create_dir(&disk).unwrap();
    if !can_mount(&disk) {
        eprintln!("not tested: mounting is not allowed here; the test with a limit on files stands in");
        return;
    }
    let data = data(temp.path());
    let (whole, run) = (temp.path().join("whole"), disk.join("run"));
    let (whole, run) = (whole.to_str().unwrap(), run.to_str().unwrap());
    ended_well(&command(&tiny("mopo+sumo", &data, whole, "2")).output().unwrap());
    // The mount is gone with the last process of its name space, so both runs and the copy happen in one shell.
    let line = format!(
        "mount -t tmpfs -o size=430k none '{disk}' || exit 90
         \"$@\"; code=$?
         cp -r '{run}' '{out}'
         mount -o remount,size=64m '{disk}' || exit 91
         \"$1\" -q train --resume '{run}' >/dev/null || exit 92
         cp -r '{run}' '{out}-resumed'
         exit $code",
        disk = disk.display(),
        out = out.display()
    );
    let mut unshared = Command::new("unshare");
    unshared.args(["-rm", "sh", "-c", &line, "sh", env!("CARGO_BIN_EXE_offing")]);
    let output = unshared
        .args(tiny("mopo+sumo", &data, run, "2"))
        .env("OFFING_HOME", home())
        .env_remove("MUJOCO_LIB")
        .output()
        .unwrap();
    let error = said(&output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.lines().count() == 1 && error.contains("No space left") && error.contains("--resume"),
        "{error}"
    );
    let kept = checkpoints(&out);
    assert!(!kept.is_empty() && !kept.contains(&"000000000400.safetensors".into()), "{kept:?}");
    assert!(outcome(whole) == outcome(&format!("{}-resumed", out.display())), "byte for byte");
}

#[test]
fn a_run_is_scored_by_its_last_its_picked_and_its_best_policy() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let (dir, json) = (temp.path().join("run"), temp.path().join("scores.json"));
    let (dir, json) = (dir.to_str().unwrap(), json.to_str().unwrap());
    ended_well(&command(&tiny("mopo+sumo", &data, dir, "2")).output().unwrap());
    let text =
        ended_well(&command(&["-q", "eval", dir, "--episodes", "3", "--json", json]).output().unwrap());
    for piece in [
        "mopo+sumo on hopper-random",
        "last policy",
        "picked by the model",
        "best on the way",
        "dataset's mean return",
    ] {
        assert!(text.contains(piece), "`{piece}` missing in:\n{text}");
    }
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let policies = value["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 3);
    let files = ["policy.safetensors", "picked.safetensors", "best.safetensors"];
    for (policy, file) in policies.iter().zip(files) {
        // A run scores as its policy files do.
        let path = Path::new(dir).join(file);
        let args =
            ["-q", "eval", path.to_str().unwrap(), "--task", "hopper", "--episodes", "3", "--json", json];
        ended_well(&command(&args).output().unwrap());
        let alone: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        assert_eq!((&policy["mean"], &policy["file"].as_str()), (&alone["mean"], &Some(file)));
        assert_eq!(policy["episodes"]["returns"].as_array().unwrap().len(), 3);
    }
    assert!(value["dataset_mean_return"].as_f64().unwrap() > 0.0);
    // A run on its way has a best policy only, and says so.
    std::fs::remove_file(Path::new(dir).join("policy.safetensors")).unwrap();
    let output = command(&["eval", dir, "--episodes", "1"]).output().unwrap();
    assert!(said(&output).contains("not finished"), "{}", said(&output));
    assert!(ended_well(&output).contains("best on the way"));
    let output = command(&["eval", dir, "--task", "hopper"]).output().unwrap();
    assert!(output.status.code() == Some(2) && said(&output).contains("--task is for policy files"));
}

#[test]
fn the_cost_is_told_before_and_a_dry_run_leaves_nothing_behind() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let dir = temp.path().join("run");
    let mut args = tiny("mopo+sumo", &data, dir.to_str().unwrap(), "2");
    args.extend(["--dry-run", "--set", "train.steps=30000"]);
    let args: Vec<&str> = args.into_iter().filter(|a| !["--steps", "400"].contains(a)).collect();
    let text = ended_well(&command(&args).output().unwrap());
    for piece in ["algorithm = \"mopo+sumo\"", "steps = 30000", "about ", "on 2 threads", "30,000 steps at"] {
        assert!(text.contains(piece), "`{piece}` missing in:\n{text}");
    }
    assert!(!dir.exists(), "nothing is written");
    // The resolved settings are themselves runnable.
    let file = temp.path().join("again.toml");
    let settings: Vec<&str> = text.lines().filter(|l| !l.starts_with("about ")).collect();
    std::fs::write(&file, settings.join("\n")).unwrap();
    let again = ["-q", "--threads", "2", "train", "--config", file.to_str().unwrap(), "--dry-run"];
    let again = ended_well(&command(&again).output().unwrap());
    assert_eq!(again.lines().filter(|l| !l.starts_with("about ")).collect::<Vec<_>>(), settings);
    // Its seed and physics are part of a run, unless others are asked for.
    let other = settings.join("\n").replace("seed = 0", "seed = 7").replace("d4rl-v2", "gymnasium-v5");
    std::fs::write(&file, other).unwrap();
    let dry = |more: &[&str]| {
        let mut args = vec!["-q", "--threads", "2", "train", "--config", file.to_str().unwrap(), "--dry-run"];
        args.extend(more);
        ended_well(&command(&args).output().unwrap())
    };
    let kept = dry(&[]);
    assert!(kept.contains("\nseed = 7\n") && kept.contains("physics = \"gymnasium-v5\""), "{kept}");
    let changed = dry(&["--seed", "0", "--physics", "gymnasium-v4"]);
    assert!(changed.contains("\nseed = 0\n") && changed.contains("physics = \"gymnasium-v4\""), "{changed}");
}

#[test]
fn runs_are_ranked_without_the_simulator_and_the_budget_is_told() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let runs = temp.path().join("runs");
    let dir = |name: &str| runs.join(name).to_str().unwrap().to_string();
    ended_well(&command(&tiny("mopo+sumo", &data, &dir("a"), "2")).output().unwrap());
    ended_well(&command(&tiny("bc", &data, &dir("b"), "2")[..10]).output().unwrap());
    // A calibration study lies among runs, as it does by default; it is none.
    std::fs::create_dir_all(dir("calibrate")).unwrap();
    std::fs::write(runs.join("calibrate/config.toml"), "dataset = 'hopper-random'\n[study]\nstarts = 3\n")
        .unwrap();
    let json = |name: &str| temp.path().join(name).to_str().unwrap().to_string();
    let rank = |threads: &str, file: &str, more: &[&str]| {
        let all = runs.to_str().unwrap();
        let mut args = vec!["-q", "--threads", threads, "rank", all, "--steps", "100", "--length", "20"];
        args.extend(["--json", file]);
        args.extend(more);
        ended_well(&command(&args).output().unwrap())
    };
    let text = rank("2", &json("a.json"), &[]);
    for piece in ["by fitted Q", "by penalised model return", "last policy", "best on the way", "bc s0"] {
        assert!(text.contains(piece), "`{piece}` missing in:\n{text}");
    }
    assert!(text.contains("0 episodes in the simulator were used for this ranking; the best"), "{text}");
    rank("1", &json("b.json"), &[]);
    let read = |name: &str| std::fs::read(json(name)).unwrap();
    assert!(read("a.json") == read("b.json"), "the same on any number of threads");
    let text = rank("2", &json("c.json"), &["--online", "2"]);
    assert!(text.contains("Spearman's ρ") && text.contains("10 to check it"), "{text}");
    let value: serde_json::Value = serde_json::from_slice(&read("c.json")).unwrap();
    assert_eq!(value["policies"].as_array().unwrap().len(), 5);
    assert!(value["policies"][0]["true_return"].is_number() && value["spearman"]["fitted Q"].is_number());
    // Data of another seed: no common ground.
    let other = temp.path().join("hopper-other.hdf5").to_str().unwrap().to_string();
    let make = ["-q", "data", "make", "hopper-random", "--rows", "2000", "--seed", "1", "--out", &other];
    ended_well(&command(&make).output().unwrap());
    ended_well(&command(&tiny("bc", &other, &dir("c"), "2")[..10]).output().unwrap());
    let output = command(&["-q", "rank", runs.to_str().unwrap()]).output().unwrap();
    let error = said(&output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.lines().count() == 1 && error.contains("different transitions"), "{error}");
}
