//! What cannot work is refused at once: before a model is fitted, and without a directory that is left behind.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

/// The program in a home of its own, so that a model that was fitted shows.
fn offing(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offing"));
    let nowhere = home.join("nowhere");
    command.args(args).env("OFFING_HOME", home.join("home")).current_dir(home);
    command.env("D4RL_DATASET_DIR", &nowhere).env("MINARI_DATASETS_PATH", &nowhere);
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A log of a task that offing does not know: two observations, one action of this size, some ends.
fn log(dir: &Path, name: &str, action: f64) -> String {
    let mut text = String::from("obs_0,obs_1,act_0,reward,next_obs_0,next_obs_1,terminal,timeout\n");
    for i in 0..600 {
        let x = f64::from(i % 40) * 0.1;
        let a = if i % 3 == 0 { action } else { -0.25 };
        let (end, cut) = (u8::from(i % 80 == 79), u8::from(i % 80 == 39));
        writeln!(text, "{x},{},{a},{},{},{},{end},{cut}", 2.0 * x, x * a, x + 0.1, 2.0 * x + a).unwrap();
    }
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

const SMALL: &[&str] = &[
    "model.ensemble.hidden=[8]",
    "model.ensemble.decay=[0.0,0.0]",
    "model.ensemble.members=2",
    "model.ensemble.elites=2",
    "model.ensemble.batch_size=64",
    "model.ensemble.max_epochs=1",
    "rollout.every=20",
    "rollout.starts=20",
    "sac.hidden=[8]",
    "train.batch=16",
];

const NEVER: &str = "model.termination.kind=never";

/// Arguments of a small run with more settings.
fn run<'a>(algorithm: &'a str, log: &'a str, dir: &'a str, sets: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["train", algorithm, log, "--dir", dir, "--steps", "3000"];
    // MOReL has no rollouts and another learner.
    let foreign =
        |set: &str| algorithm == "morel" && (set.starts_with("rollout.") || set.starts_with("sac."));
    for set in SMALL.iter().copied() {
        if !foreign(set) {
            args.push("--set");
            args.push(set);
        }
    }
    for set in sets.iter().copied() {
        args.push("--set");
        args.push(set);
    }
    args
}

#[test]
fn bad_settings_are_refused_before_anything_is_fitted_or_written() {
    let temp = tempfile::tempdir().unwrap();
    let log = log(temp.path(), "log.csv", 0.5);
    for (algorithm, sets, piece) in [
        (
            "mopo+sumo",
            &[NEVER, "pessimism.lambda=-1"][..],
            "pessimism.lambda: wanted a number from 0, found -1",
        ),
        ("amorel+sumo", &[NEVER, "pessimism.alpha=-1"], "pessimism.alpha"),
        ("mopo+sumo", &[NEVER, "uncertainty.k=0"], "wanted k from 1 to 599"),
        ("mopo+sumo", &[NEVER, "uncertainty.k=600"], "found 600"),
        ("mopo+loo-kl", &[NEVER, "model.ensemble.members=1", "model.ensemble.elites=1"], "2 members"),
        ("mobile", &[NEVER, "model.ensemble.elites=1"], "two elites"),
        ("mopo", &[NEVER, "uncertainty.kind=bellman-std"], "wanted the critics"),
        ("morel", &[NEVER, "uncertainty={kind=\"sumo\",k=0}"], "wanted k from 1"),
        ("rambo", &[NEVER, "adversary.step.decay=[0.1]"], "adversary.step.decay: wanted 2 numbers"),
        (
            "mopo+sumo",
            &["model.termination={kind=\"expression\",alive=\"obs[9] > 0\"}"],
            "model.termination.alive",
        ),
        (
            "mopo",
            &["model.termination={kind=\"learnt\",classifier={threshold=2}}"],
            "model.termination.classifier.threshold: wanted a number from 0 to below 1, found 2",
        ),
        ("mopo", &[NEVER, "model.ensemble.max_epochs=0"], "model.ensemble.max_epochs: wanted at least 1"),
        ("mopo", &[NEVER, "model.ensemble.batch_size=1000"], "a smaller model.ensemble.batch_size"),
    ] {
        let output = offing(temp.path(), &run(algorithm, &log, "runs/new", sets));
        let error = said(&output);
        assert_eq!(output.status.code(), Some(2), "{sets:?}: {error}");
        let lines: Vec<&str> = error.lines().filter(|line| !line.starts_with('·')).collect();
        assert!(lines.len() == 1 && lines[0].contains(piece), "{sets:?}: `{piece}` missing in: {error}");
        assert!(!error.contains("no estimate of the cost"), "{error}");
        assert!(!temp.path().join("runs").exists(), "{sets:?}: a directory is left");
    }
    for (args, flag) in [
        (vec!["train", "mopo", &log, "--rows", "0"], "--rows"),
        (vec!["calibrate", &log, "--rows", "0"], "--rows"),
        (vec!["calibrate", &log, "--seeds", "0"], "--seeds"),
        (vec!["rank", "anything", "--steps", "0"], "--steps"),
    ] {
        let output = offing(temp.path(), &args);
        assert!(output.status.code() == Some(2) && said(&output).contains(flag), "{}", said(&output));
    }
    let study = ["calibrate", &log, "--seeds", "1", "--estimators", "sumo,{\"kind\":\"sumo\",\"k\":580}"];
    let output = offing(temp.path(), &[&study[..], &["--set", NEVER]].concat());
    assert!(output.status.code() == Some(2) && said(&output).contains("found 580"), "{}", said(&output));
    assert!(!temp.path().join("runs").exists() && !temp.path().join("home/models").exists());
}

#[test]
fn a_new_run_that_fails_leaves_no_directory_and_an_old_one_stays() {
    let temp = tempfile::tempdir().unwrap();
    let log = log(temp.path(), "log.csv", 0.5);
    let explode = [NEVER, "sac.critic_lr=1e25", "train.steps=2000"];
    let args = run("mopo+sumo", &log, "runs/new", &explode);
    let args: Vec<&str> = args.into_iter().filter(|a| !["--steps", "3000"].contains(a)).collect();
    let failed = |message: &str| {
        let output = offing(temp.path(), &[&["-q"], &args[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{message}: {}", said(&output));
        assert!(said(&output).contains("lower the learning rate"), "{}", said(&output));
    };
    failed("new");
    assert!(!temp.path().join("runs").exists(), "made for nothing");
    std::fs::create_dir_all(temp.path().join("runs/new")).unwrap();
    failed("there before");
    assert!(temp.path().join("runs/new/config.toml").exists());
}

#[test]
fn a_run_without_a_simulator_tells_what_it_is() {
    let temp = tempfile::tempdir().unwrap();
    let log = log(temp.path(), "log.csv", 2.0);
    let args = ["train", "bc", &log, "--dir", "run", "--steps", "20", "--set", "hidden=[8]"];
    let output = offing(temp.path(), &args);
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("actions from [-0.25] to [2.0] are scaled to [-1, 1]"),
        "{}",
        said(&output)
    );
    let mut raw = args.to_vec();
    raw[4] = "raw";
    raw.extend(["--set", "train.units=as-logged"]);
    let output = offing(temp.path(), &raw);
    assert!(said(&output).contains("200 rows have actions outside [-1, 1]"), "{}", said(&output));
    let output = offing(temp.path(), &["train", "--resume", "run"]);
    let words = said(&output);
    assert!(words.contains("finished already") && !words.contains("going on after"), "{words}");

    // A run directory stands for its last policy.
    let obs = temp.path().join("obs.npy");
    offing::data::write_npy(&offing::Mat::zeros((3, 2)), &obs).unwrap();
    let output = offing(temp.path(), &["act", "run", "obs.npy", "a.csv"]);
    assert!(output.status.success(), "{}", said(&output));
    let text = std::fs::read_to_string(temp.path().join("a.csv")).unwrap();
    assert!(text.starts_with("act_0\n") && text.lines().count() == 4, "{text}");
    let output = offing(temp.path(), &["act", "run", "obs.npy", "a.txt"]);
    assert!(
        output.status.code() == Some(2) && said(&output).contains(".npy, .csv, .tsv or .parquet"),
        "{}",
        said(&output)
    );
    check_tables(temp.path());
    let output = offing(temp.path(), &["export", "run", "a.onnx"]);
    assert!(output.status.success(), "{}", said(&output));

    let output = offing(temp.path(), &["rank", "run", "--steps", "2"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("has no best on the way; the others"), "{}", said(&output));
}

/// The trained policy answers alike whatever file its observations come in.
fn check_tables(dir: &Path) {
    let numbers: Vec<[f32; 2]> = (0..50).map(|i| [0.37 * i as f32 - 3.0, 0.5 - 0.11 * i as f32]).collect();
    let flat = numbers.iter().flatten().copied().collect();
    offing::data::write_npy(&offing::Mat::from_shape_vec((50, 2), flat).unwrap(), &dir.join("o.npy"))
        .unwrap();
    let table = |separator: &str, show: fn(f32) -> String| {
        let line = |o: &[f32; 2]| format!("e{separator}{}{separator}{}\n", show(o[0]), show(o[1]));
        let names = ["episode", "obs_0", "obs_1"].join(separator);
        format!("{names}\n{}", numbers.iter().map(line).collect::<String>())
    };
    std::fs::write(dir.join("o.csv"), table(",", |x| x.to_string())).unwrap();
    std::fs::write(dir.join("german.csv"), table(";", |x| x.to_string().replace('.', ","))).unwrap();
    let act = |obs: &str, out: &[&str]| {
        let output = offing(dir, &[&["act", "run", obs], out].concat());
        (output.status.code(), said(&output))
    };
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(act("o.npy", &["wanted.csv"]).0, Some(0));
    assert_eq!(text("wanted.csv").lines().count(), 51);
    for obs in ["o.csv", "german.csv"] {
        let (code, words) = act(obs, &["-o", "found.csv"]);
        assert!(code == Some(0) && words.contains("not used: episode"), "{words}");
        assert_eq!(text("found.csv"), text("wanted.csv"), "{obs}");
    }
    // Through Parquet and back, under names of one's own.
    assert_eq!(act("o.csv", &["-o", "found.parquet"]).0, Some(0));
    let log = text("o.csv").replace("episode,obs_0,obs_1", "episode,height,speed");
    std::fs::write(dir.join("own.csv"), log).unwrap();
    std::fs::write(dir.join("map.toml"), "obs = [\"height\", \"speed\"]\n").unwrap();
    let (code, words) = act("own.csv", &["-o", "found.tsv", "--columns", "map.toml"]);
    assert_eq!(code, Some(0), "{words}");
    assert_eq!(text("found.tsv"), text("wanted.csv"), "one column has no separator");
    let refused = |obs: &str, out: &[&str], pieces: &[&str]| {
        let (code, words) = act(obs, out);
        assert_eq!(code, Some(2), "{words}");
        assert!(pieces.iter().all(|piece| words.contains(piece)), "{words}");
    };
    refused("own.csv", &["-o", "no.csv"], &["own.csv: `obs_0`", "episode, height, speed", "column map"]);
    std::fs::write(dir.join("wide.csv"), "obs_0,obs_1,obs_2\n1,2,3\n").unwrap();
    refused("wide.csv", &["no.csv"], &["wanted observations of 2 columns", "found 3 (obs_0 … obs_2)"]);
    std::fs::write(dir.join("bad.csv"), "obs_0,obs_1\n1,2\n1,nan\n").unwrap();
    refused("bad.csv", &["no.csv"], &["`obs_1`: wanted finite numbers, found NaN in line 3"]);
    refused("found.parquet", &["no.csv"], &["`obs_0`", "only act_0"]);
    refused("o.npy", &["no.csv", "--columns", "map.toml"], &["wanted a table for a column map"]);
    refused("o.npy", &[], &["<OUT>"]);
    assert!(!dir.join("no.csv").exists());
}
