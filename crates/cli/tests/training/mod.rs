//! Small trainings that tests of runs and of grids share.

#![allow(dead_code, reason = "not every file of tests needs all of it")]

use std::path::Path;
use std::process::Output;

use crate::common::command;

/// What a command that must succeed printed.
pub(crate) fn ended_well(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A small dataset, made once for each test that asks.
pub(crate) fn data(dir: &Path) -> String {
    let out = dir.join("hopper-random.hdf5").to_str().unwrap().to_string();
    ended_well(
        &command(&["-q", "data", "make", "hopper-random", "--rows", "3000", "--out", &out]).output().unwrap(),
    );
    out
}

/// Settings of trainings that have everything and take about a second.
pub(crate) const SMALL: &[&str] = &[
    "model.ensemble.hidden=[16,16]",
    "model.ensemble.decay=[0.0,0.0,0.0]",
    "model.ensemble.members=3",
    "model.ensemble.elites=2",
    "model.ensemble.max_epochs=2",
    "rollout.every=50",
    "rollout.starts=100",
    "sac.hidden=[32,32]",
    "train.batch=64",
    "train.evaluate_every=100",
    "train.checkpoint_every=50",
    "train.episodes=2",
];

/// Arguments of a tiny run.
pub(crate) fn tiny<'a>(algorithm: &'a str, data: &'a str, dir: &'a str, threads: &'a str) -> Vec<&'a str> {
    let mut args = vec!["-q", "--threads", threads, "train", algorithm, data, "--dir", dir, "--steps", "400"];
    SMALL.iter().for_each(|set| args.extend(["--set", set]));
    args
}

pub(crate) fn outcome(dir: &str) -> Vec<Vec<u8>> {
    let read = |name| std::fs::read(Path::new(dir).join(name)).unwrap();
    let files = ["config.toml", "metrics.jsonl", "policy.safetensors", "best.safetensors", "policy.onnx"];
    files.into_iter().chain(["events.out.tfevents.offing"]).map(read).collect()
}
