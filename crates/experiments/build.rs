//! Tells the program which commit it is built from: numbers are kept together with it.

use std::path::Path;
use std::process::Command;

/// What goes into the program; a change of it may make a commit's name untrue.
const SOURCES: [&str; 10] = [
    "crates/knn/src",
    "crates/offing/src",
    "crates/mujoco/src",
    "crates/experiments/src",
    "crates/cli/src",
    "presets",
    "policies",
    "experiments/paper",
    ":(glob)experiments/*.toml",
    "Cargo.lock",
];

fn main() {
    // Nobody keeps numbers of other builds, and they need not be made anew with every commit.
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        println!("cargo::rerun-if-changed=build.rs");
        println!("cargo::rustc-env=OFFING_COMMIT=");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // The log grows with every commit and checkout. A path that is not there would run this each time.
    let grids = std::fs::read_dir(root.join("experiments")).into_iter().flatten().flatten();
    let grids = grids.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "toml"));
    let others =
        SOURCES.iter().chain(&[".git/logs/HEAD", "crates/experiments/build.rs"]).map(|part| root.join(part));
    for path in others.filter(|path| path.exists()).chain(grids) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rustc-env=OFFING_COMMIT={}", commit(&root).unwrap_or_default());
}

/// The commit, with a mark when sources differ from it. Nothing outside a checkout of offing's own: an unpacked archive may lie
/// in somebody else's.
fn commit(root: &Path) -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(args).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
        output.status.success().then_some(text)
    };
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let head = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&[&["status", "--porcelain", "--untracked-files=no", "--"], &SOURCES[..]].concat())?;
    Some(if changed.is_empty() { head } else { format!("{head}+changes") })
}
