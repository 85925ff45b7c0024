//! The command line as a user meets it: real files, the real simulator, and what happens when something is wrong.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{command, home};

fn offing(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn stdout(args: &[&str]) -> String {
    let output = offing(args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Wants exit code 2 and one line that holds every given piece. Quiet, as whoever comes first also fetches the simulator.
fn refused(args: &[&str], pieces: &[&str]) {
    let output = offing(&[&["-q"], args].concat());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    assert_eq!(error.trim_end().lines().count(), 1, "one line wanted, found: {error}");
    for piece in pieces {
        assert!(error.contains(piece), "`{piece}` missing in: {error}");
    }
}

fn made(rows: &str, seed: &str, threads: &str, out: &Path) -> Vec<u8> {
    let out = out.to_str().unwrap();
    stdout(&[
        "--threads",
        threads,
        "-q",
        "data",
        "make",
        "hopper-random",
        "--rows",
        rows,
        "--seed",
        seed,
        "--out",
        out,
    ]);
    std::fs::read(out).unwrap()
}

#[test]
fn quickstart_goes_from_nothing_to_two_scored_policies_and_a_report() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    let args = ["-q", "quickstart", "--rows", "3000", "--steps", "60", "--episodes", "2", "--dir", at];
    let text = stdout(&args);
    let pieces = [
        "hopper-medium-replay (made)",
        "3,000 transitions",
        "verdict: clean",
        "Landfall",
        "a clone of the data",
        "the policies that made the data",
    ];
    for piece in pieces {
        assert!(text.contains(piece), "`{piece}` missing in:\n{text}");
    }
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(
        page.contains("landfall") && page.contains("bc") && page.contains("<figure class=\"chart\">"),
        "the page shows both runs"
    );
    assert!(page.contains("<div class=\"replay\">") && page.len() < 2_000_000, "{} bytes", page.len());
    assert!(dir.path().join("landfall/policy.onnx").is_file());
    // A second call finds everything done.
    assert_eq!(stdout(&args), text);
}

#[test]
fn a_flavour_is_made_by_the_built_in_policies() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("m.hdf5");
    let out = out.to_str().unwrap();
    stdout(&["-q", "data", "make", "hopper-medium-replay", "--rows", "3000", "--out", out]);
    let info = stdout(&["data", "info", out]);
    assert!(info.contains("hopper-0.safetensors, hopper-1.safetensors"), "{info}");
}

#[test]
fn the_same_seed_makes_the_same_bytes_whatever_the_threads() {
    let dir = tempfile::tempdir().unwrap();
    let one = made("2000", "7", "1", &dir.path().join("a.hdf5"));
    assert!(one == made("2000", "7", "3", &dir.path().join("b.hdf5")), "threads changed the file");
    assert!(one != made("2000", "8", "1", &dir.path().join("c.hdf5")), "the seed did not change the file");
}

#[test]
fn a_set_keeps_its_rows_through_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    made("500", "1", "2", &dir.path().join("start.hdf5"));
    let mut from = path("start.hdf5");
    // CSV and npz hold no metadata: the name tells the body, and with it the time limit.
    for to in ["a.parquet", "b-v0", "c.npz", "d.csv", "hopper-e.hdf5"] {
        stdout(&["data", "convert", &from, &path(to)]);
        from = path(to);
    }
    refused(&["data", "convert", &from, &path("a.parquet")], &["a.parquet", "--force"]);
    let audit = |file: &str| {
        let json = path("audit.json");
        stdout(&["data", "audit", file, "--json", &json]);
        let value: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        ["rows", "terminals", "timeouts", "reward", "episode_return"].map(|key| value["audit"][key].clone())
    };
    assert_eq!(audit(&path("start.hdf5")), audit(&from));
}

#[test]
fn a_log_that_is_only_named_like_a_robot_is_not_taken_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("hopper_logs.csv");
    let mut text = String::from("obs_0,obs_1,act_0,reward,next_obs_0,next_obs_1,done,timeout\n");
    for i in 0..200 {
        let (x, end) = (f64::from(i % 20) / 20.0, i32::from(i % 20 == 19));
        text += &format!("{x},{},{},1.0,{},{},0,{end}\n", 1.0 - x, x / 2.0, x + 0.05, 0.95 - x);
    }
    std::fs::write(&log, text).unwrap();
    let audit = stdout(&["data", "audit", log.to_str().unwrap()]);
    assert!(audit.contains("named like hopper") && audit.contains("own-hopper_logs"), "{audit}");
    assert!(!audit.contains("normalised score"), "{audit}");
    let text = std::fs::read_to_string(&log).unwrap().replace("done", "finished");
    std::fs::write(&log, text).unwrap();
    let audit = stdout(&["data", "audit", log.to_str().unwrap()]);
    assert!(audit.contains("did you mean `done`?") && audit.contains("verdict: usable"), "{audit}");
}

#[test]
fn a_thread_count_that_no_machine_has_is_refused() {
    for threads in ["0", "99999", "two"] {
        let output = offing(&["--threads", threads, "data", "list"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains("from 1 to 1024"), "{threads}: {error}");
    }
}

#[test]
fn a_policy_for_another_body_is_refused() {
    refused(&["eval", "nowhere.safetensors", "--task", "hopper"], &["nowhere.safetensors", "cannot read"]);
    refused(&["eval", "uniform", "--task", "hoper"], &["unknown task `hoper`", "hopper"]);
    refused(&["eval", "uniform", "--task", "hopper", "--episodes", "0", "-q"], &["at least one episode"]);
}

#[test]
fn wrong_names_and_files_are_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    let html = dir.path().join("dead-server.hdf5");
    std::fs::write(&html, "<!DOCTYPE html><html><body>403 Forbidden</body></html>").unwrap();
    let empty = dir.path().join("empty.hdf5");
    std::fs::write(&empty, "").unwrap();
    refused(&["data", "audit", html.to_str().unwrap()], &["dead-server.hdf5"]);
    refused(&["data", "info", empty.to_str().unwrap()], &["empty.hdf5"]);
    refused(&["data", "info", "hoper-medium"], &["did you mean `hopper-medium`?"]);
    refused(
        &["data", "info", "hopper-medium-v2"],
        &["hopper_medium-v2.hdf5", "offing data fetch hopper-medium-v2"],
    );
    refused(&["data", "make", "hopper-random", "--rows", "0", "-q"], &["at least one row"]);
    refused(&["data", "make", "hopper-random", "--rows", "99999999999", "-q"], &["at most"]);
    refused(&["data", "make", "antmaze-umaze", "-q"], &["ant-navigate.safetensors"]);
    refused(&["data", "make", "hopper-random", "--out", "x.parquet", "-q"], &["x.parquet", ".hdf5"]);
    let map = dir.path().join("map.toml");
    std::fs::write(&map, "obs = [\"a\"]\nreward = \"b\"\n").unwrap();
    refused(
        &["data", "info", html.to_str().unwrap(), "--columns", map.to_str().unwrap()],
        &["line 2", "unknown field"],
    );
    refused(
        &["data", "make", "hopper-expert", "--policies", "nowhere", "-q"],
        &["nowhere", "cannot list the policies"],
    );
}

#[test]
fn an_audit_that_finds_poison_exits_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("log.csv");
    let mut text = String::from("obs_0,obs_1,act_0,reward,next_obs_0,next_obs_1,done\n");
    for i in 0..300 {
        let jump = if i == 200 { 1000.0 } else { 0.0 };
        let x = f64::from(i % 50) * 0.1;
        text += &format!("{x},1,0.5,1.0,{},1,{}\n", x + 0.1 + jump, i32::from(i % 50 == 49));
    }
    std::fs::write(&csv, text).unwrap();
    let output = offing(&["data", "audit", csv.to_str().unwrap()]);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(report.contains("teleports") && report.contains("POISON"), "{report}");
}

#[test]
fn bad_rows_are_dropped_with_a_reason_and_the_rest_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    // No next states: the row before an empty cell loses its own.
    let mut text = String::from("obs_0,obs_1,act_0,reward,done,episode\n");
    for i in 0..300 {
        let (t, e) = (i % 50, i / 50);
        let x = f64::from(t) * 0.1 + if i == 210 { 1000.0 } else { 0.0 };
        let wobble = (0.3 * f64::from(i)).sin();
        let reward = if i == 30 { "inf".into() } else { format!("{wobble}") };
        let obs = if i == 120 { "NA".into() } else { format!("{x}") };
        text += &format!("{obs},{},{wobble},{reward},0,{e}\n", f64::from(t) * 0.2 + wobble);
    }
    std::fs::write(path("log.csv"), text).unwrap();
    refused(&["data", "convert", &path("log.csv"), &path("a.parquet")], &["line 122", "NA"]);
    assert_eq!(offing(&["data", "audit", &path("log.csv")]).status.code(), Some(1));
    for target in ["a.parquet", "a.csv", "a.hdf5", "a.npz", "a-v0"] {
        let report = stdout(&["data", "convert", &path("log.csv"), &path(target), "--drop-bad"]);
        for line in ["dropped 5 of 294 rows; 289 rows left", "3 rows: non-finite values", "2 rows: teleports"]
        {
            assert!(report.contains(line), "`{line}` missing in:\n{report}");
        }
        let audit = stdout(&["data", "audit", &path(target)]);
        assert!(!audit.contains("POISON") && audit.contains("289 transitions"), "{audit}");
    }
    let nothing = "obs_0,act_0,reward,next_obs_0\nnan,1,1,1\n1,inf,1,1\n";
    std::fs::write(path("nothing.csv"), nothing).unwrap();
    let args = ["data", "convert", &path("nothing.csv"), &path("b.csv"), "--drop-bad"];
    refused(&args, &["found none of 2 rows (2 non-finite values)", "mend the log"]);
}

#[test]
fn doctor_and_list_work_on_an_empty_machine() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_offing")).args(args).env("OFFING_HOME", dir.path()).output().unwrap()
    };
    assert!(run(&["data", "list"]).status.success());
    let doctor = run(&["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(text.contains("vector units") && text.contains("MuJoCo"), "{text}");
}

#[test]
fn a_reader_that_stops_reading_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_offing"))
        .args(["data", "list"])
        .env("OFFING_HOME", home())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn benches_write_the_agreed_json() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("bench.json");
    let path = json.to_str().unwrap();
    stdout(&["bench", "env", "--tasks", "hopper", "--steps", "200", "--samples", "2", "--json", path, "-q"]);
    let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    for key in ["bench", "commit", "machine", "threads", "results"] {
        assert!(!value[key].is_null(), "{key}");
    }
    let result = &value["results"][0];
    assert_eq!(result["samples"].as_array().unwrap().len(), 2);
    assert!(
        result["median"].as_f64().unwrap() > 0.0 && result["name"].is_string() && result["unit"].is_string()
    );
}

/// A tank that is filled and drained, with names, in episodes of 25 steps; the temperature may be off by a little.
fn tank(path: &Path, seed: u64, offset: f64) {
    let mut text = String::from("trial,t_in,p_tank,valve,gain,burst\n");
    let mut state = seed;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 31) as f64 - 0.5
    };
    for row in 0..1500 {
        let (valve, step) = (20.0 + 40.0 * noise(), (row % 25) as f64);
        let (t, p) = (293.0 + offset + noise(), 1e5 + 1e3 * step + 3e3 * noise());
        text +=
            &format!("{},{t:.4},{p:.2},{valve:.3},{:.3},{}\n", row / 25, noise(), u8::from(row % 25 == 24));
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn names_of_columns_go_from_a_table_to_info_and_conditions() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    tank(Path::new(&path("tank.csv")), 1, 0.0);
    let map = "obs = [\"t_in\", \"p_tank\"]\nact = [\"valve\"]\nrew = \"gain\"\nepisode = \"trial\"\ndone = \"burst\"\n";
    std::fs::write(path("columns.toml"), map).unwrap();
    stdout(&[
        "-q",
        "data",
        "convert",
        &path("tank.csv"),
        &path("tank.parquet"),
        "--columns",
        &path("columns.toml"),
    ]);
    let info = stdout(&["-q", "data", "info", &path("tank.parquet"), "--json", &path("info.json")]);
    for piece in ["obs[1] (p_tank)", "act[0] (valve)", "reward", "median"] {
        assert!(info.contains(piece), "`{piece}` missing in:\n{info}");
    }
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(path("info.json")).unwrap()).unwrap();
    assert_eq!((&json["names"]["obs"][1], json["columns"].as_array().unwrap().len()), (&"p_tank".into(), 4));
    let alive = |condition: &str| format!("model.termination={{kind=\"expression\",alive=\"{condition}\"}}");
    let train = |condition: &str, words: &[&str]| {
        refused(
            &["train", "mopo+sumo", &path("tank.parquet"), "--dry-run", "--set", &alive(condition)],
            words,
        );
    };
    train("p_tnk < 1.6e5", &["model.termination.alive", "(`t_in`, `p_tank`, `valve`)"]);
    train("prev.valve < 30", &["(`t_in`, `p_tank`)"]);
}

#[test]
fn two_logs_are_compared_and_the_sensor_that_moved_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let map = "obs = [\"t_in\", \"p_tank\"]\nact = [\"valve\"]\nrew = \"gain\"\nepisode = \"trial\"\n";
    std::fs::write(path("columns.toml"), map).unwrap();
    for (name, seed, offset) in [("monday.csv", 1, 0.0), ("tuesday.csv", 2, 0.0), ("friday.csv", 3, 0.3)] {
        tank(Path::new(&path(name)), seed, offset);
    }
    let columns = ["--columns", &path("columns.toml")];
    let compared = |a: &str, b: &str, more: &[&str]| {
        stdout(&[&["-q", "data", "audit", &path(a), "--against", &path(b)], &columns[..], more].concat())
    };
    let same = compared("tuesday.csv", "monday.csv", &[]);
    assert!(same.contains("No column differs") || same.contains("no column differs"), "{same}");
    let (page, json) = (path("page.html"), path("found.json"));
    let moved = compared("friday.csv", "monday.csv", &["--out", &page, "--json", &json]);
    assert!(moved.lines().nth(1).unwrap().contains("column obs[0] (t_in) differs (KS 0."), "{moved}");
    assert!(std::fs::read_to_string(&page).unwrap().matches("<figure class=\"chart\">").count() >= 2);
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert!(json["comparison"]["columns"][0]["shift"].as_f64().unwrap() > 0.5, "{json}");
    let copy = compared("monday.csv", "monday.csv", &[]);
    assert!(copy.contains("A copy: monday (first) and monday (second) hold the same rows"), "{copy}");
    let narrow = path("narrow.csv");
    std::fs::write(&narrow, "obs_0,act_0,reward\n1,2,3\n2,3,4\n3,4,5\n").unwrap();
    stdout(
        &[&["-q", "data", "convert", &path("monday.csv"), &path("monday.parquet")], &columns[..]].concat(),
    );
    let words = ["wanted two sets of one shape", "observations 1 and 2 wide and actions 1 and 1 wide"];
    refused(&["data", "audit", &narrow, "--against", &path("monday.parquet")], &words);
}
