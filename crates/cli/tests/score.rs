//! `offing score`: scores with their support, saved indexes, and the alarm as a process meets it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn offing(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_offing"))
        .args(args)
        .env("OFFING_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails at once closes its input: that is its right.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Two episodes of a walk on a line: s, a, s'.
fn csv(path: &Path, rows: usize, shift: f64) {
    let mut text = String::from("obs_0,obs_1,act_0,reward,next_obs_0,next_obs_1,terminal,timeout\n");
    for i in 0..rows {
        let (x, a) = (i as f64 * 0.1 + shift, if i % 3 == 0 { 0.5 } else { -0.25 });
        let timeout = u8::from(i + 1 == rows / 2 || i + 1 == rows);
        writeln!(text, "{x},{},{a},1,{},{},0,{timeout}", 2.0 * x, x + 0.1, 2.0 * x + 0.2).unwrap();
    }
    std::fs::write(path, text).unwrap();
}

/// A row that is too far away for an f32 is the last that an alarm may miss.
#[test]
fn a_distance_beyond_every_number_is_an_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.csv");
    csv(&data, 60, 0.0);
    let data = data.to_str().unwrap();
    let out =
        offing(&["-q", "score", data, "-", "--alpha", "1"], "0,0,0.5,0.1,0.2\n3e38,-3e38,0,3e38,-3e38\n");
    assert_eq!(String::from_utf8_lossy(&out.stdout).lines().nth(1), Some("inf alarm"));
    assert_eq!(out.status.code(), Some(3), "{}", String::from_utf8_lossy(&out.stderr));
    // What is no number is still a bad line, told without the terminal's own words.
    let out = offing(&["-q", "score", data, "-", "--alpha", "1"], "1,2,3,4,\u{1b}[2Jx\n");
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(told.contains("u{1b}[2Jx") && !told.contains('\u{1b}'), "{told:?}");
    assert_eq!(out.status.code(), Some(2));
}

/// Names and remarks of a stranger's file are shown, not obeyed.
#[cfg(unix)]
#[test]
fn file_names_do_not_speak_to_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("a\u{1b}[31mb\u{7}.csv");
    csv(&name, 60, 0.0);
    let name = name.to_str().unwrap();
    for args in [
        &["data", "info", name][..],
        &["data", "audit", name],
        &["score", name, name],
        &["eval", name],
        &["report", name],
    ] {
        let out = offing(args, "");
        let told = [out.stdout, out.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(!told.replace(['\n', '\t'], "").contains(char::is_control), "{args:?}: {told:?}");
        assert!(told.contains("u{1b}[31mb"), "{args:?}: {told}");
    }
}

#[test]
fn scores_support_saved_index_and_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (data, near, far, index, json) =
        (path("data.csv"), path("near.csv"), path("far.csv"), path("data.knn"), path("scores.json"));
    csv(Path::new(&data), 60, 0.0);
    csv(Path::new(&near), 10, 0.0);
    csv(Path::new(&far), 10, 500.0);
    // Rows of the data themselves: u = 0, no alarm, each supported by itself.
    let out = offing(&["-q", "score", &data, &near, "--alpha", "1", "--json", &json, "--index", &index], "");
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["alarms"], 0);
    for (i, row) in report["rows"].as_array().unwrap().iter().enumerate() {
        assert_eq!((row["u"].as_f64(), row["support"][0]["row"].as_u64()), (Some(0.0), Some(i as u64)));
        assert_eq!(row["support"][0]["at"], serde_json::json!({ "episode": 0, "step": i }));
    }
    // Far rows, by the saved index alone: alarm.
    std::fs::remove_file(&data).unwrap();
    let out = offing(&["-q", "score", &index, &far, "--alpha", "1", "--support", "2", "--json", &json], "");
    assert_eq!(out.status.code(), Some(3), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("10 of 10 rows beyond") && text.contains("alarm"), "{text}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    // The last row of the second episode is the nearest.
    assert_eq!(report["rows"][0]["support"][0]["at"], serde_json::json!({ "episode": 1, "step": 29 }));
    // Line by line, as a deployed policy would ask.
    let out = offing(&["score", &index, "-", "--alpha", "1"], "0.1 0.2 -0.25 0.2 0.4\n\n900,0,0,0,0\n");
    assert_eq!(out.status.code(), Some(3));
    let lines: Vec<String> = String::from_utf8(out.stdout).unwrap().lines().map(String::from).collect();
    assert!(lines.len() == 2 && lines[0].ends_with(" ok") && lines[1].ends_with(" alarm"), "{lines:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("ms (median)"));
    // A header is no row, and a bad line does not end the watch.
    let header = "obs_0,obs_1,act_0,next_obs_0,next_obs_1\n";
    let input = format!("{header}0.1,0.2,-0.25,0.2,0.4\n1,2,3\n0.2,0.4,-0.25,0.3,0.6\r\n");
    let out = offing(&["-q", "score", &index, "-", "--alpha", "1"], &input);
    let error = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("line 3: wanted 5 numbers") && error.contains("passed over"), "{error}");
    assert_eq!(String::from_utf8(out.stdout).unwrap().matches(" ok").count(), 2, "the others are scored");
    let out = offing(&["-q", "score", &index, "-", "--alpha", "1"], &format!("{input}900,0,0,0,0\n"));
    assert_eq!(out.status.code(), Some(3), "an alarm counts for more");
    let out = offing(&["-q", "score", &index, "-"], header);
    assert!(out.status.success() && out.stdout.is_empty());
    // What cannot be kept is shown all the same.
    let nowhere = path("data.knn/scores.json");
    let out = offing(&["-q", "score", &index, &far, "--json", &nowhere], "");
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stdout).contains("largest u"));
}

#[test]
fn bad_requests_are_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (data, index) = (path("data.csv"), path("data.knn"));
    csv(Path::new(&data), 60, 0.0);
    assert!(offing(&["-q", "score", &data, &data, "--index", &index], "").status.success());
    let refused = |args: &[&str], input: &str, pieces: &[&str]| {
        let out = offing(&[&["-q", "score"], args].concat(), input);
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!((out.status.code(), error.trim_end().lines().count()), (Some(2), 1), "{args:?}: {error}");
        for piece in pieces {
            assert!(error.contains(piece), "`{piece}` missing in: {error}");
        }
    };
    refused(&[&data, &data, "--k", "60"], "", &["from 1 to 59", "found 60"]);
    refused(&[&index, &data, "--k", "2"], "", &["saved index", "leave out --k"]);
    refused(&[&index, "-"], "1 2 3\n", &["line 1", "wanted 5 numbers", "found 3"]);
    refused(&[&index, "-"], "1 2 3 4 five\n", &["line 1", "`five`"]);
    refused(&[&index, "-"], "1 2 3 4 inf\n", &["line 1", "next_obs[1]"]);
    refused(&[&data, &data, "--alpha", "-1"], "", &["at least 0"]);
    refused(&[&data, &data, "--support", "61"], "", &["k = 61"]);
    refused(&["nothing-there", &data], "", &["unknown dataset"]);
    std::fs::write(format!("{index}.json"), "{}").unwrap();
    refused(&[&index, &data], "", &["card of a saved index"]);
}
