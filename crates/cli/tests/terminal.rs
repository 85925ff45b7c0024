//! What a person meets at the terminal: where to start, settings, completions, colours.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::{Command, Output};

use common::{command, home};

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn alone_it_says_what_to_do_next() {
    let dir = tempfile::tempdir().unwrap();
    let said = || {
        let output = command(&[]).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success());
        text(&output)
    };
    let first = said();
    assert!(first.contains("offing quickstart") && first.contains("offing train LOG"), "{first}");
    let run = dir.path().join("runs/landfall/my-logs/s0");
    std::fs::create_dir_all(&run).unwrap();
    std::fs::write(run.join("config.toml"), "").unwrap();
    assert!(
        said().contains("offing train --resume runs/landfall/my-logs/s0"),
        "an unfinished run is to be finished"
    );
    std::fs::write(run.join("policy.safetensors"), "").unwrap();
    assert!(said().contains("offing act runs/landfall/my-logs/s0"), "a finished one is to be used");
}

#[test]
fn settings_are_listed_with_value_and_meaning_one_a_line_in_a_pipe() {
    let output = command(&["settings", "landfall"]).output().unwrap();
    let all = text(&output);
    assert!(all.lines().any(|line| line == "train.steps = 12000  # Gradient steps (--steps)."), "{all}");
    let some = text(&command(&["settings", "mopo+sumo", "neighbour"]).output().unwrap());
    assert!(some.contains("uncertainty.k = 1") && !some.contains("train.steps"), "{some}");
    let none = command(&["settings", "bc", "neighbour"]).output().unwrap();
    assert_eq!(none.status.code(), Some(1), "{}", text(&none));
    let wrong = command(&["settings", "landfal"]).output().unwrap();
    assert!(wrong.status.code() == Some(2) && text(&wrong).contains("landfall"), "{}", text(&wrong));
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = command(&["completions", shell]).output().unwrap();
        let script = text(&output);
        assert!(output.status.success(), "{script}");
        for word in ["quickstart", "calibrate", "settings", "drop-bad"] {
            assert!(script.contains(word), "{shell}: {word} is missing");
        }
        if shell == "bash" {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &script).unwrap();
            assert!(Command::new("bash").arg("-n").arg(file.path()).status().unwrap().success());
        }
    }
}

#[test]
fn pipes_get_no_colours() {
    for args in [&["--help"][..], &["train", "--help"], &[], &["doctor"], &["eval", "nothing-here"]] {
        let output = command(args).env_remove("NO_COLOR").output().unwrap();
        assert!(!text(&output).contains('\u{1b}'), "{args:?}: {}", text(&output));
    }
}

/// `script` of util-linux lends a terminal.
#[cfg(target_os = "linux")]
#[test]
fn a_terminal_gets_colours_unless_no_color_is_set() {
    let seen = |no_color: Option<&str>| {
        let mut command = Command::new("script");
        command.args(["-qec", &format!("{} eval nothing-here", env!("CARGO_BIN_EXE_offing")), "/dev/null"]);
        command.env("OFFING_HOME", home()).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        text(&command.output().unwrap())
    };
    let (with, without) = (seen(None), seen(Some("1")));
    assert!(with.contains("\u{1b}[31m") && with.contains("error:"), "{with:?}");
    assert!(!without.contains('\u{1b}') && without.contains("error:"), "{without:?}");
}
