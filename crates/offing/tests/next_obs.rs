//! Files without next observations: rewards near a goal survive, reset states never become next states.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod made;

use std::path::Path;

use made::with_options;
use offing::data::{Dataset, TerminalNext};

/// A walk to a goal as in AntMaze, as a CSV table: terminal for every step near the goal while the walk goes on, a
/// time limit after `length` steps, then a reset to the start.
fn antmaze_like(path: &Path, episodes: usize, length: usize, with_timeouts: bool) {
    let mut text = String::from("obs_0,obs_1,act_0,reward,terminal");
    text.push_str(if with_timeouts { ",timeout\n" } else { "\n" });
    for e in 0..episodes {
        for t in 0..length {
            let x = 0.1 * t as f32 + 0.001 * e as f32;
            let wobble = (t as f32 * 0.7).sin() * 0.2;
            let near = u8::from(t + 20 >= length);
            text.push_str(&format!("{x},{wobble},0.5,{near},{near}"));
            text.push_str(&match with_timeouts {
                true => format!(",{}\n", u8::from(t + 1 == length)),
                false => "\n".into(),
            });
        }
    }
    std::fs::write(path, text).unwrap();
}

/// No kept row jumps back to the start.
fn check_no_reset(data: &Dataset) {
    for (obs, next) in data.rows.obs.rows().into_iter().zip(data.rows.next_obs.rows()) {
        assert!((next[0] - obs[0]).abs() < 0.2, "{obs} -> {next}");
    }
}

#[test]
fn rewards_near_the_goal_are_kept_and_resets_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("maze.csv");
    antmaze_like(&path, 10, 100, true);
    let data = with_options(&path, |_| ()).unwrap();
    // Of each episode only the time-limit row is lost.
    assert_eq!(data.rows.len(), 10 * 99);
    assert_eq!(data.rows.rew.sum(), 10.0 * 19.0);
    assert_eq!(data.episodes.len(), 10);
    assert!(data.episodes.iter().all(|e| e.len() == 99));
    check_no_reset(&data);
}

#[test]
fn without_time_limits_resets_are_found_by_their_jump() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("maze.csv");
    antmaze_like(&path, 10, 100, false);
    let data = with_options(&path, |_| ()).unwrap();
    assert_eq!(data.rows.rew.sum(), 10.0 * 19.0);
    assert_eq!(data.episodes.len(), 10);
    check_no_reset(&data);
    assert!(data.reading.notes.iter().any(|n| n.contains("no timeouts")), "{:?}", data.reading);
}

#[test]
fn each_choice_for_terminal_rows_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("maze.csv");
    antmaze_like(&path, 10, 100, false);
    let with = |choice| with_options(&path, |o| o.terminal_next = choice).unwrap();

    let dropped = with(TerminalNext::Drop);
    assert_eq!((dropped.rows.rew.sum(), dropped.rows.len()), (0.0, 10 * 80));
    let (reason, count) = &dropped.reading.dropped[0];
    assert_eq!(*count, 10 * 20);
    assert!(reason.contains("200 of them carry the largest reward"), "{reason}");

    let repeated = with(TerminalNext::Repeat);
    assert_eq!((repeated.rows.rew.sum(), repeated.rows.len()), (200.0, 1000));
    for i in 0..1000 {
        assert_eq!(repeated.rows.done[i], repeated.rows.obs.row(i) == repeated.rows.next_obs.row(i));
    }

    let followed = with(TerminalNext::Follow);
    assert_eq!(followed.rows.len(), 999);
    assert!(followed.rows.next_obs[[99, 0]] < 0.1, "the reset state, as asked for");
}
