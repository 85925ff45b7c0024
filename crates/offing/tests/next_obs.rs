//! Files without next observations: rewards near a goal survive, reset states never become next states.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fixture;

use std::path::Path;

use fixture::with_options;
use offing::data::audit::{Severity, audit};
use offing::data::{Dataset, Ends, TerminalNext};

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

/// Ten walks of 20 steps without terminals; `marked` says which of them bear a timeout at their end.
fn walks(path: &Path, marked: impl Fn(usize) -> bool) {
    let mut text = String::from("obs_0,act_0,reward,timeout,episode\n");
    for (e, t) in (0..10).flat_map(|e| (0..20).map(move |t| (e, t))) {
        text.push_str(&format!("{},0.5,0,{},{e}\n", 0.1 * t as f32, u8::from(t == 19 && marked(e))));
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn the_last_episode_keeps_its_time_limit_mark() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("walks.csv");
    let marks = |d: &Dataset| d.timeout.iter().filter(|&&t| t).count();
    walks(&path, |_| true);
    let data = with_options(&path, |_| ()).unwrap();
    assert_eq!((data.rows.len(), marks(&data)), (190, 10));
    assert!(data.timeout[189]);
    // A file that just stops was not cut by a time limit.
    walks(&path, |e| e < 9);
    let data = with_options(&path, |_| ()).unwrap();
    assert_eq!((data.rows.len(), marks(&data)), (190, 9));
    assert!(!data.timeout[189]);
}

#[test]
fn unmarked_episode_ends_are_found_in_any_unit_and_despite_rounding() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("walks.csv");
    for unit in [1e-8f32, 1e-5, 1.0, 1e5] {
        let mut text = String::from("obs_0,obs_1,act_0,reward,next_obs_0,next_obs_1,terminal\n");
        for (e, t) in (0..10).flat_map(|e| (0..20).map(move |t| (e, t))) {
            let at = |t: i32| unit * (0.1 * t as f32 + 0.01 * e as f32);
            // Noise of rounding: relative to the entry, and to the column where the entry is next to nothing.
            let noise = 1.0 + 1e-6;
            let small = if t == 0 { 1e-6 * unit } else { 0.0 };
            text.push_str(&format!(
                "{},{},0.5,0,{},{},0\n",
                at(t),
                unit * t as f32 + small,
                at(t + 1) * noise,
                unit * (t + 1) as f32 * noise
            ));
        }
        std::fs::write(&path, text).unwrap();
        let data = with_options(&path, |_| ()).unwrap();
        assert_eq!(data.episodes.len(), 10, "unit {unit}");
        assert!(data.episodes.iter().all(|e| e.len() == 20), "unit {unit}");
    }
}

#[test]
fn many_resets_without_a_mark_are_found_and_never_called_clean() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.csv");
    // So many alike that the longest steps of the file are resets: by their length alone none of them is implausible.
    let mut text = String::from("obs_0,obs_1,obs_2,obs_3,act_0,reward\n");
    for (e, t) in (0..30).flat_map(|e| (0..200).map(move |t| (e, t))) {
        for j in 0..4 {
            let start = 0.1 * ((7 * e + 3 * j) % 11) as f32;
            text.push_str(&format!("{},", start + 0.15 * (0.3 * t as f32 + (j + e) as f32).sin()));
        }
        text.push_str(&format!("{},{}\n", (t as f32).sin(), (t as f32).cos()));
    }
    std::fs::write(&path, text).unwrap();
    let data = with_options(&path, |_| ()).unwrap();
    assert_eq!((data.reading.ends, data.rows.len(), data.episodes.len()), (Ends::Unknown, 5970, 30));
    assert!(data.episodes.iter().all(|e| e.len() == 199));
    let found = audit(&data, None);
    assert_eq!(found.verdict(), Severity::Note);
    let ends = found.findings.iter().find(|f| f.check == "unknown episode ends").unwrap();
    assert_eq!((ends.severity, ends.count), (Severity::Note, 0));
    assert!(ends.detail.contains("marks no end") && ends.detail.contains("episode column"), "{ends:?}");
    // A file that tells is not suspected, however its steps look.
    walks(&path, |_| true);
    assert_eq!(with_options(&path, |_| ()).unwrap().reading.ends, Ends::Marked);
    antmaze_like(&path, 10, 100, false);
    assert_eq!(with_options(&path, |_| ()).unwrap().reading.ends, Ends::TerminalsOnly);
}

/// Walks of 20 steps in two columns, with next states rounded to `digits`; the rows in the order of `order`.
fn numbered_walks(path: &Path, columns: &str, digits: usize, order: impl Fn(usize) -> usize) {
    let mut text = format!("obs_0,obs_1,act_0,reward,next_obs_0,next_obs_1{columns}\n");
    for i in (0..200).map(order) {
        let (e, t) = (i / 20, i % 20);
        let at = |t: usize| (0.137 * t as f32 + 0.011 * e as f32, (t as f32 * 0.7).sin());
        let ((x, y), (next_x, next_y)) = (at(t), at(t + 1));
        text.push_str(&format!("{x},{y},0.5,{t},{next_x:.digits$},{next_y:.digits$}"));
        if columns.contains("episode") {
            text.push_str(&format!(",{e}"));
        }
        if columns.contains("step") {
            text.push_str(&format!(",{t}"));
        }
        text.push('\n');
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn numbers_of_episodes_or_steps_decide_however_coarse_the_next_states_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("walks.csv");
    for columns in [",episode", ",step", ",episode,step"] {
        for digits in [1, 2, 6] {
            numbered_walks(&path, columns, digits, |i| i);
            let data = with_options(&path, |_| ()).unwrap();
            assert_eq!(data.episodes.len(), 10, "{columns}, {digits} digits");
            assert!(data.episodes.iter().all(|e| e.len() == 20), "{columns}, {digits} digits");
            let notes = &data.reading.notes;
            assert!(!notes.iter().any(|n| n.contains("found where next_obs")), "{notes:?}");
        }
    }
    // Next states that are hardly states any more: both numbers together leave no doubt.
    numbered_walks(&path, ",episode,step", 0, |i| i);
    let data = with_options(&path, |_| ()).unwrap();
    assert!(data.episodes.len() == 10 && data.episodes.iter().all(|e| e.len() == 20));
    assert!(data.reading.notes.iter().any(|n| n.contains("numbers of episodes or steps decide")));
    // Without such numbers only the states tell, and these are too coarse.
    numbered_walks(&path, "", 1, |i| i);
    assert!(with_options(&path, |_| ()).unwrap().episodes.len() > 100);
}

#[test]
fn rows_out_of_order_are_called_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("walks.csv");
    let shuffled = |columns: &str, order: fn(usize) -> usize| {
        numbered_walks(&path, columns, 6, order);
        let found = audit(&with_options(&path, |_| ()).unwrap(), None);
        let of = |check: &str| found.findings.iter().find(|f| f.check == check).unwrap().clone();
        assert_eq!(of("unmarked episode ends").count, 0, "one fault, one finding");
        let finding = of("shuffled rows");
        assert!(
            finding.severity == Severity::Note && finding.detail.ends_with("sort by episode and step"),
            "{finding:?}"
        );
    };
    // 77 and 200 have no common factor: every row once, far from its neighbours.
    shuffled(",episode", |i| i * 77 % 200);
    shuffled("", |i| i * 77 % 200);
    // Ten environments in turn.
    shuffled(",episode,step", |i| i % 10 * 20 + i / 10);
    // Whole episodes in another order are in order.
    numbered_walks(&path, ",episode,step", 6, |i| i / 20 * 3 % 10 * 20 + i % 20);
    let data = with_options(&path, |_| ()).unwrap();
    assert_eq!((data.episodes.len(), audit(&data, None).verdict()), (10, Severity::Note));
    let shuffled = audit(&data, None).findings.into_iter().find(|f| f.check == "shuffled rows").unwrap();
    assert_eq!(shuffled.severity, Severity::Ok);
    // Without next states nothing can be saved: the message says how.
    let mut text = String::from("obs_0,act_0,reward,episode\n");
    (0..40).for_each(|i| text.push_str(&format!("{i},0,0,{}\n", i % 4)));
    std::fs::write(&path, text).unwrap();
    let error = with_options(&path, |_| ()).unwrap_err().to_string();
    assert!(error.ends_with("sort the rows by episode and step"), "{error}");
}

#[test]
fn terminals_that_had_to_be_dropped_change_the_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("walks.csv");
    let log = |last_is_terminal: bool| {
        let mut text = String::from("obs_0,act_0,reward,terminal,timeout,episode\n");
        for (e, t) in (0..10).flat_map(|e| (0..20).map(move |t| (e, t))) {
            let ended = t == 19 && last_is_terminal;
            let noise = ((7 * e + 3 * t) % 11) as f32;
            let (end, cut) = (u8::from(ended), u8::from(t == 19 && !ended));
            text.push_str(&format!("{},{},{noise},{end},{cut},{e}\n", 0.1 * t as f32, 0.01 * noise));
        }
        std::fs::write(&path, text).unwrap();
        audit(&with_options(&path, |_| ()).unwrap(), None)
    };
    let (limits, terminals) = (log(false), log(true));
    let of = |a: &offing::data::audit::Audit| {
        a.findings.iter().find(|f| f.check == "dropped terminals").unwrap().clone()
    };
    assert_eq!((limits.reading.dropped_terminals, of(&limits).severity), (0, Severity::Ok));
    assert_eq!((terminals.reading.dropped_terminals, of(&terminals).severity), (10, Severity::Note));
    let rewards: i32 = (0..10).map(|e| (7 * e + 3 * 19) % 11).sum();
    assert_eq!(terminals.reading.dropped_terminal_rewards, f64::from(rewards));
    assert!(of(&terminals).detail.starts_with("10 terminal rows are not used"), "{:?}", of(&terminals));
    assert!(of(&terminals).detail.contains("none is left") && of(&terminals).count == 10);
    assert_eq!(terminals.verdict(), Severity::Note);
}
