//! Tables with columns of one's own names, from training to alarm; metrics as JSON; longer runs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod training;

use std::fmt::Write as _;
use std::path::Path;

use common::command;
use training::ended_well;

/// A heater in a room: temperature, outside temperature, power, comfort. Two runs of 100 steps.
fn write_log(path: &Path) {
    let mut text = String::from("run,power,room,outside,comfort,note\n");
    for run in 0..2 {
        let mut room = 15.0 + f64::from(run);
        for step in 0..100 {
            let (outside, power) = (5.0 + f64::from(step % 10), f64::from((step * 7 + run) % 20) / 20.0);
            writeln!(text, "{run},{power},{room},{outside},{},0", -(room - 20.0).abs()).unwrap();
            room += 0.1 * (outside - room) + 2.0 * power;
        }
    }
    std::fs::write(path, text).unwrap();
}

const COLUMNS: &str = "obs = ['room', 'outside']\nact = ['power']\nrew = 'comfort'\nepisode = 'run'\n";

#[test]
fn a_column_map_serves_training_resuming_and_scoring() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_string();
    let (log, map, run) = (path("heater.csv"), path("columns.toml"), path("run"));
    write_log(Path::new(&log));
    std::fs::write(&map, COLUMNS).unwrap();
    let sets = ["--set", "hidden=[8,8]", "--set", "train.evaluate_every=50", "--steps", "100"];
    let train = |dir: &str| {
        command(&["-q", "train", "bc", &log, "--columns", &map, "--dir", dir, "--json"])
            .args(sets)
            .output()
            .unwrap()
    };
    // No simulator knows this log: the metrics are spoken all the same.
    let lines = ended_well(&train(&run));
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|l| l["step"].as_u64()).collect::<Vec<_>>(), [Some(50), Some(100), None]);
    assert!(lines[0]["cloning_loss"].is_number() && lines[2]["dir"] == run.as_str(), "{lines:?}");
    let config = std::fs::read_to_string(Path::new(&run).join("config.toml")).unwrap();
    assert!(config.contains("comfort") && config.contains("outside"), "{config}");

    // The run knows its columns. It goes on to the end that a longer one has.
    let long = path("long");
    ended_well(&train(&long));
    let more =
        |dir: &str, steps: &str| command(&["train", "--resume", dir, "--steps", steps]).output().unwrap();
    ended_well(&more(&long, "150"));
    ended_well(&more(&run, "120"));
    ended_well(&more(&run, "150"));
    let policy = |dir: &str| std::fs::read(Path::new(dir).join("policy.safetensors")).unwrap();
    assert!(policy(&long) == policy(&run), "by one stretch or by two");
    let error = more(&run, "150");
    let said = String::from_utf8_lossy(&error.stderr).into_owned();
    assert!(
        error.status.code() == Some(2) && said.contains("more steps than the 150 it has taken"),
        "{said}"
    );

    // Every row lies at distance 0 from the log itself.
    let scores = path("scores.json");
    let out = command(&["-q", "score", &log, &log, "--columns", &map, "--json", &scores]).output().unwrap();
    ended_well(&out);
    let scores: serde_json::Value = serde_json::from_slice(&std::fs::read(&scores).unwrap()).unwrap();
    let rows = scores["rows"].as_array().unwrap();
    assert!(rows.len() >= 196 && rows.iter().all(|row| row["u"] == 0.0), "{}", rows.len());

    std::fs::write(&map, "obs = ['rom']\nact = ['power']\nrew = 'comfort'\n").unwrap();
    let refused = command(&["-q", "train", "bc", &log, "--columns", &map]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("`rom`") && said.contains("room"), "{said}");
}
