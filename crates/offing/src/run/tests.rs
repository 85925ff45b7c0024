//! Run directories under rough treatment.

use std::fs;

use serde_json::json;

use super::*;

fn state(value: u64) -> Tensors {
    let mut state = Tensors::default();
    state.put_u64("value", &[value]);
    state.put_f32("weights", &[100], vec![value as f32; 100]);
    state
}

#[test]
fn the_last_two_checkpoints_are_kept_and_a_damaged_one_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = RunDir::open_or_create(dir.path(), "a = 1\n").unwrap();
    for step in [10, 20, 30] {
        run.record(json!({ "step": step })).unwrap();
        run.checkpoint(step, &state(step)).unwrap();
    }
    run.record(json!({ "step": 35 })).unwrap();
    let files = fs::read_dir(dir.path().join("checkpoints")).unwrap().count();
    assert_eq!(files, 2);
    let newest = dir.path().join("checkpoints/000000000030.safetensors");
    let mut bytes = fs::read(&newest).unwrap();
    let last = bytes.len() - 7;
    bytes[last] ^= 0x10;
    fs::write(&newest, bytes).unwrap();
    let (step, found) = run.resume().unwrap().unwrap();
    assert_eq!((step, found), (20, state(20)));
    let notes = run.take_warnings();
    assert!(notes.len() == 1 && notes[0].contains("checksum"), "{notes:?}");
    let steps: Vec<_> = run.records().unwrap().iter().map(|r| r["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [10, 20], "what came after the checkpoint will be recorded again");
}

#[test]
fn a_half_line_and_half_a_checkpoint_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = RunDir::open_or_create(dir.path(), "").unwrap();
    run.record(json!({ "step": 1 })).unwrap();
    run.checkpoint(1, &state(1)).unwrap();
    drop(run);
    let metrics = dir.path().join(METRICS);
    let mut text = fs::read(&metrics).unwrap();
    text.extend(b"{\"step\": 2, \"ret");
    fs::write(&metrics, text).unwrap();
    fs::write(dir.path().join("checkpoints/.000000000002.safetensors.99.partial"), b"half").unwrap();
    let mut run = RunDir::open(dir.path()).unwrap();
    assert_eq!(run.resume().unwrap().unwrap().0, 1);
    run.record(json!({ "step": 2 })).unwrap();
    assert_eq!(run.records().unwrap().len(), 2);
    assert_eq!(fs::read_dir(dir.path().join("checkpoints")).unwrap().count(), 1);
}

#[test]
fn a_second_holder_and_another_configuration_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunDir::open_or_create(dir.path(), "steps = 10\n").unwrap();
    let second = RunDir::open(dir.path()).unwrap_err().to_string();
    assert!(second.contains("another process"), "{second}");
    drop(run);
    let other = RunDir::open_or_create(dir.path(), "steps = 20\n").unwrap_err().to_string();
    assert!(other.contains("`steps = 10` there, `steps = 20` asked for"), "{other}");
    let none = RunDir::open(&dir.path().join("nothing")).unwrap_err().to_string();
    assert!(none.contains("wanted a run directory"), "{none}");
}

#[test]
fn events_are_those_of_an_uninterrupted_run() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut run = RunDir::open_or_create(whole.path(), "").unwrap();
    (1..=4).for_each(|step| run.record(json!({ "step": step, "return": 0.5 * step as f64 })).unwrap());
    let mut run = RunDir::open_or_create(parts.path(), "").unwrap();
    (1..=2).for_each(|step| run.record(json!({ "step": step, "return": 0.5 * step as f64 })).unwrap());
    run.checkpoint(2, &state(2)).unwrap();
    run.record(json!({ "step": 3, "return": 99.0 })).unwrap();
    drop(run);
    // As a process that was killed in the middle of a write leaves it.
    let events = parts.path().join(EVENTS);
    let half = fs::read(&events).unwrap();
    fs::write(&events, &half[..half.len() - 5]).unwrap();
    let mut run = RunDir::open(parts.path()).unwrap();
    assert_eq!(run.resume().unwrap().unwrap().0, 2);
    (3..=4).for_each(|step| run.record(json!({ "step": step, "return": 0.5 * step as f64 })).unwrap());
    assert_eq!(fs::read(whole.path().join(EVENTS)).unwrap(), fs::read(&events).unwrap());
}

#[test]
fn a_glance_tells_whether_somebody_works_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    assert!(!is_held(&path), "there is nothing");
    let run = RunDir::open_or_create(&path, "a = 1\n").unwrap();
    assert!(is_held(&path));
    drop(run);
    assert!(!is_held(&path));
}

#[test]
fn a_run_that_failed_before_it_began_leaves_nothing_and_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join("runs").join(name);
    RunDir::open_or_create(&path("mopo/s0"), "a = 1\n").unwrap().remove_if_empty();
    assert!(!dir.path().join("runs").exists(), "nor what was made above it");
    // A neighbour keeps its parents.
    drop(RunDir::open_or_create(&path("mopo/s1"), "a = 1\n").unwrap());
    RunDir::open_or_create(&path("mopo/s0"), "a = 1\n").unwrap().remove_if_empty();
    assert!(!path("mopo/s0").exists() && path("mopo/s1").join(CONFIG).exists());
    // One that was there before stays, and so does one with a record or a checkpoint.
    RunDir::open_or_create(&path("mopo/s1"), "a = 1\n").unwrap().remove_if_empty();
    assert!(path("mopo/s1").join(CONFIG).exists());
    fs::create_dir_all(path("empty")).unwrap();
    RunDir::open_or_create(&path("empty"), "").unwrap().remove_if_empty();
    assert!(path("empty").exists());
    let mut run = RunDir::open_or_create(&path("recorded"), "").unwrap();
    run.record(json!({ "step": 1 })).unwrap();
    run.remove_if_empty();
    assert!(path("recorded").join(METRICS).exists());
    let mut run = RunDir::open_or_create(&path("kept"), "").unwrap();
    run.checkpoint(1, &state(1)).unwrap();
    run.remove_if_empty();
    assert_eq!(newest_step(&path("kept")), Some(1));
}

#[test]
fn a_checkpoint_whose_settings_are_gone_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = RunDir::open_or_create(dir.path(), "a = 1\n").unwrap();
    run.checkpoint(10, &state(10)).unwrap();
    drop(run);
    fs::remove_file(dir.path().join(CONFIG)).unwrap();
    let error = RunDir::open_or_create(dir.path(), "a = 2\n").unwrap_err().to_string();
    assert!(error.contains("found a checkpoint of step 10 and no config.toml"), "{error}");
    assert!(!dir.path().join(CONFIG).exists(), "nothing is written");
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_run_directory_is_refused_and_its_target_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (precious, path) = (dir.path().join("precious"), dir.path().join("run"));
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), b"mine").unwrap();
    fs::write(precious.join(".mine.partial"), b"mine").unwrap();
    for (link, target) in [(METRICS, "file"), (".lock", "absent"), ("checkpoints", "")] {
        drop(RunDir::open_or_create(&path, "a = 1\n").unwrap());
        let link = path.join(link);
        fs::remove_dir(&link).or_else(|_| fs::remove_file(&link)).unwrap();
        std::os::unix::fs::symlink(precious.join(target), &link).unwrap();
        let error = RunDir::open(&path).unwrap_err().to_string();
        assert!(error.contains("symbolic link") && error.lines().count() == 1, "{error}");
        fs::remove_file(&link).unwrap();
    }
    assert_eq!(fs::read(precious.join("file")).unwrap(), b"mine");
    assert_eq!(fs::read_dir(&precious).unwrap().count(), 2);
}

#[test]
fn what_was_lost_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = RunDir::open_or_create(dir.path(), "").unwrap();
    assert!(run.take_warnings().is_empty());
    for step in [10, 20] {
        run.record(json!({ "step": step })).unwrap();
        run.checkpoint(step, &state(step)).unwrap();
        fs::write(run.checkpoints.path(step), b"torn").unwrap();
    }
    drop(run);
    fs::remove_file(dir.path().join(METRICS)).unwrap();
    let mut run = RunDir::open(dir.path()).unwrap();
    assert!(run.resume().unwrap().is_none());
    let told = run.take_warnings().join("\n");
    for part in ["metrics.jsonl: is gone", "000000000010.safetensors: refused", "starting over"] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn a_checkpoint_that_cannot_be_read_at_the_moment_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = RunDir::open_or_create(dir.path(), "").unwrap();
    run.checkpoint(10, &state(10)).unwrap();
    // What no user can read as a file.
    let newest = dir.path().join("checkpoints/000000000020.safetensors");
    fs::create_dir(&newest).unwrap();
    let error = run.resume().unwrap_err().to_string();
    assert!(error.contains("000000000020.safetensors: cannot read"), "{error}");
    assert!(newest.exists() && run.take_warnings().is_empty());
}
