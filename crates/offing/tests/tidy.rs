//! Rules of the repository that a compiler does not check.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The modules of the library in the order in which lib.rs lists them.
fn modules() -> Vec<String> {
    let lib = fs::read_to_string(crates().join("offing/src/lib.rs")).unwrap();
    lib.lines().filter_map(|l| l.strip_prefix("pub mod ")?.strip_suffix(';')).map(str::to_string).collect()
}

#[test]
fn a_module_imports_only_from_modules_above_it() {
    let order = modules();
    assert!(order.len() > 5, "{order:?}");
    let root = crates().join("offing/src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    for file in files {
        let place = file.strip_prefix(&root).unwrap().components().next().unwrap();
        let own = place.as_os_str().to_string_lossy().trim_end_matches(".rs").to_string();
        let Some(rank) = order.iter().position(|m| *m == own) else { continue };
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for used in code.split("crate::").skip(1) {
            let module: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if let Some(other) = order.iter().position(|m| *m == module) {
                assert!(
                    other <= rank,
                    "{}: uses `{module}`, which lib.rs lists below `{own}`",
                    file.display()
                );
            }
        }
    }
}

#[test]
fn every_file_opens_with_what_it_is_and_stays_readable() {
    let mut files = Vec::new();
    sources(&crates(), &mut files);
    assert!(files.len() > 20);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!"), "{}: a module opens with //! and one sentence", file.display());
        let lines = text.lines().count();
        assert!(lines <= 600, "{}: {lines} lines; would it read better as two files?", file.display());
    }
}
