//! `offing replay`: what a page draws is where the simulator has the body.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;

use offing::Rng;
use offing::env::{Outline, Physics, SimState, Simulators};
use offing::home::Home;
use offing::policy::{Deterministic, Policy, TanhGaussian, UniformPolicy};
use offing_mujoco::Mujoco;
use serde_json::Value;

fn policy(name: &str) -> String {
    format!("{}/../../policies/{name}.safetensors", env!("CARGO_MANIFEST_DIR"))
}

fn replay(args: &[&str], out: &Path) -> String {
    let words: Vec<&str> =
        ["replay"].iter().chain(args).chain(&["-o", out.to_str().unwrap()]).copied().collect();
    let output = common::command(&words).output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// Little-endian 32-bit integers in base64.
fn unpack(text: &str) -> Vec<i32> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for four in text.as_bytes().chunks(4) {
        let bits =
            four.iter().fold(0u32, |bits, &c| bits << 6 | if c == b'=' { 0 } else { u32::from(digit(c)) });
        let padded = four.iter().filter(|&&c| c == b'=').count();
        bytes.extend_from_slice(&bits.to_be_bytes()[1..4 - padded]);
    }
    bytes.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// What a page plays.
fn played(page: &Path) -> Value {
    let text = std::fs::read_to_string(page).unwrap();
    let (_, data) =
        text.split_once("<div class=\"replay\" data-autoplay><script type=\"application/json\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

/// Compares what a page draws of a track with where the simulator has the body in these states; answers with how many frames.
fn compare(data: &Value, track: usize, task: &str, states: &[SimState]) -> usize {
    let drawn = unpack(data["tracks"][track]["frames"].as_str().unwrap());
    let mut env = Mujoco::new(Home::new(common::home()), None).make(task, Physics::default()).unwrap();
    let parts = data["parts"].as_array().unwrap().len();
    let top = data["view"] == "top";
    assert_eq!(drawn.len(), states.len() * parts * 4, "{task}");
    for (frame, state) in drawn.chunks_exact(4 * parts).zip(states) {
        env.set_state(state).unwrap();
        let body: Vec<_> = env.shapes().into_iter().filter(|s| s.outline != Outline::Box).collect();
        assert_eq!(body.len(), parts, "{task}");
        for (ours, shape) in frame.chunks_exact(4).zip(body) {
            let [[ax, ay, az], [bx, by, bz]] = shape.ends();
            let theirs = if top { [ax, ay, bx, by] } else { [ax, az, bx, bz] };
            for (ours, theirs) in ours.iter().zip(theirs) {
                assert!((f64::from(*ours) * 1e-6 - theirs).abs() < 1e-6, "{task}: {ours} {theirs}");
            }
        }
    }
    states.len()
}

#[test]
fn a_page_draws_the_body_where_the_simulator_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    for task in ["hopper", "walker2d"] {
        let file = policy(&format!("{task}-6"));
        replay(&[&file, "--task", task, "--steps", "60"], &page);
        // The same episode, played here.
        let mut env = Mujoco::new(Home::new(common::home()), None).make(task, Physics::default()).unwrap();
        let actor = TanhGaussian::load(Path::new(&file)).unwrap();
        let mut rng = Rng::stream(0, "replay", 0);
        env.reset(rng.bits());
        let mut act = vec![0.0; env.spec().act_dim];
        let mut states = vec![env.state()];
        for _ in 0..60 {
            let obs: Vec<f32> = env.obs().iter().map(|&o| o as f32).collect();
            Deterministic(&actor).act(&obs, &mut rng, &mut act);
            env.step(&act);
            states.push(env.state());
        }
        assert_eq!(compare(&played(&page), 0, task, &states), 61, "60 steps and where they led");
    }
}

#[test]
fn every_built_in_body_is_drawn_where_it_is_and_has_a_picture() {
    let dir = tempfile::tempdir().unwrap();
    let (page, gif) = (dir.path().join("page.html"), dir.path().join("body.gif"));
    for task in offing_mujoco::TASKS {
        replay(&["uniform", "--task", task, "--steps", "12"], &page);
        let shown = played(&page);
        assert_eq!(shown["view"], if task.starts_with("ant") { "top" } else { "side" }, "{task}");
        assert_eq!(
            !shown["scenery"].as_array().unwrap().is_empty(),
            task.starts_with("antmaze"),
            "{task}: walls stand still"
        );
        let mut env = Mujoco::new(Home::new(common::home()), None).make(task, Physics::default()).unwrap();
        let mut rng = Rng::stream(0, "replay", 0);
        env.reset(rng.bits());
        let mut act = vec![0.0; env.spec().act_dim];
        let mut states = vec![env.state()];
        for _ in 0..shown["tracks"][0]["rewards"].as_array().unwrap().len() {
            UniformPolicy.act(&[], &mut rng, &mut act);
            env.step(&act);
            states.push(env.state());
        }
        assert!(compare(&shown, 0, task, &states) > 5, "{task}");
        replay(&["uniform", "--task", task, "--steps", "12"], &gif);
        assert!(std::fs::read(&gif).unwrap().starts_with(b"GIF89a"), "{task}");
    }
}

#[test]
fn a_gif_has_the_pictures_of_its_episode() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.gif");
    replay(&[&policy("halfcheetah-6"), "--task", "halfcheetah", "--steps", "30"], &file);
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"GIF89a") && bytes.ends_with(b";"));
    // One picture a step of 50 ms: 30 steps and where they led. A picture begins with a graphic control extension.
    let pictures = bytes.windows(3).filter(|w| *w == [0x21, 0xF9, 0x04]).count();
    assert_eq!(pictures, 31);
}

#[test]
fn what_cannot_be_shown_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let hopper = policy("hopper-6");
    for (args, out, wanted) in [
        (vec![hopper.as_str()], "page.html", "--task is missing"),
        (vec![&hopper, "--task", "walker2d"], "page.html", "check --task"),
        (vec![&hopper, "--task", "hopper"], "page.png", "wanted a file ending in .html, .gif, .webp or .mp4"),
    ] {
        let said = replay(&args, &dir.path().join(out));
        assert!(said.starts_with("error: ") && said.contains(wanted) && said.lines().count() == 1, "{said}");
    }
    assert!(!page.exists());
}
