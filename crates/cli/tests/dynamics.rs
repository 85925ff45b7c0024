//! `offing dynamics` on a small set: it fits once, finds the model again, and writes what it found.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::Output;

use common::{command, home};

fn offing(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

const SMALL: [&str; 10] = [
    "--set",
    "model.hidden=[16]",
    "--set",
    "model.decay=[0, 0]",
    "--set",
    "model.max_epochs=2",
    "--set",
    "model.members=3",
    "--set",
    "model.elites=2",
];

#[test]
fn a_model_is_fitted_once_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (data, json, page) = (path("hopper-random.hdf5"), path("found.json"), path("found.html"));
    let made =
        offing(&["-q", "data", "make", "hopper-random", "--rows", "2500", "--seed", "11", "--out", &data]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let run = |extra: &[&str]| {
        let args: Vec<&str> = ["dynamics", data.as_str(), "--windows", "40"]
            .iter()
            .chain(&SMALL)
            .chain(extra)
            .copied()
            .collect();
        let output = offing(&args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        (String::from_utf8(output.stdout).unwrap(), error)
    };
    // An earlier run of this test must leave no model to be found.
    let _ = std::fs::remove_dir_all(home().join("models"));
    let (first, said) = run(&["--json", &json, "--report", &page]);
    assert!(said.contains("epoch 2: loss") && said.contains("fitted a model of 3 members"), "{said}");
    for piece in ["member 2", "mean of the elites", "linear least squares", "open-loop error", "sampled"] {
        assert!(first.contains(piece), "`{piece}` missing in:\n{first}");
    }
    let (second, said) = run(&[]);
    assert!(said.contains("found a model") && !said.contains("epoch 1"), "{said}");
    assert!(first.starts_with(&second), "the same model gives the same figures");

    let found: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(found["holdout"]["members"].as_array().unwrap().len(), 3);
    assert_eq!(found["config"]["model"]["max_epochs"], 2);
    let linear = found["holdout"]["linear"].as_f64().unwrap();
    assert!(linear > 0.0 && linear < 1.0, "a line explains something of hopper: {linear}");
    let curves = found["open_loop"]["curves"].as_array().unwrap();
    let recorded = curves.iter().find(|c| c["name"] == "recorded").unwrap();
    let drift = recorded["mean"][0].as_f64().unwrap();
    assert!(drift < 1e-4, "made rows are what the simulator does: {drift}");
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(
        page.matches("<figure class=\"chart\">").count() == 3
            && page.contains("Dynamics model of hopper-random"),
        "{page}"
    );
}

#[test]
fn wrong_settings_are_one_line() {
    for (set, pieces) in [
        ("model.membres=3", ["model.membres", "did you mean `members`?"]),
        ("model.elites=9", ["model.elites: ", "wanted from 1 to 7"]),
        ("modl.lr=1", ["modl", "did you mean `model`?"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("hopper-random.hdf5").to_str().unwrap().to_string();
        assert!(
            offing(&["-q", "data", "make", "hopper-random", "--rows", "400", "--out", &data])
                .status
                .success()
        );
        let output = offing(&["-q", "dynamics", &data, "--set", set]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(pieces.iter().all(|piece| error.contains(piece)), "{error}");
    }
}
