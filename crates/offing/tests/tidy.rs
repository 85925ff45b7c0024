//! Rules of the repository that a compiler does not check, for every crate and every file.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file that still reads well.
const MAX_LINES: usize = 450;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The code of a file without comments and test modules, and the names of test modules in files of their own.
fn code_without_tests(text: &str) -> (String, Vec<String>) {
    let (mut code, mut test_files) = (String::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("#[cfg(test)]") {
            let indent = &line[..line.len() - trimmed.len()];
            let item = lines.by_ref().find(|l| !l.trim_start().starts_with("#[")).unwrap();
            if let Some(module) = item.trim().strip_suffix(';') {
                test_files.extend(module.split_once("mod ").map(|(_, name)| name.to_string()));
            } else if !item.ends_with('}') {
                // rustfmt puts the end of an item where its start was indented to.
                lines.by_ref().find(|l| l.strip_prefix(indent).is_some_and(|l| l.starts_with('}')));
            }
        } else if !trimmed.starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
    }
    (code, test_files)
}

/// The module path of a file below `src`: `["data", "hdf5"]` for `data/hdf5.rs`, nothing for `lib.rs`.
fn module_path(file: &Path, src: &Path) -> Vec<String> {
    let path = file.strip_prefix(src).unwrap().with_extension("");
    let parts = path.iter().map(|part| part.to_string_lossy().into_owned());
    parts.filter(|part| !["lib", "main", "mod"].contains(&part.as_str())).collect()
}

/// The top-level modules that code at `depth` below the root names: `crate::x`, `crate::{x, y}`, or as many `super::` as deep.
fn uses(code: &str, depth: usize) -> BTreeSet<String> {
    let to_root = "super::".repeat(depth);
    let mut found = BTreeSet::new();
    for root in ["crate::", &to_root] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if before.is_alphanumeric() || "_:$".contains(before) {
                continue;
            }
            let rest = &code[at + root.len()..];
            let paths = rest.strip_prefix('{').map_or_else(|| vec![rest], listed);
            let word = |c: &char| c.is_alphanumeric() || *c == '_';
            found.extend(paths.iter().map(|path| path.chars().take_while(word).collect::<String>()));
        }
    }
    found.retain(|name| !name.is_empty() && name != "super");
    found
}

/// The paths of a list such as `a, b::{c, d}}` up to its closing brace.
fn listed(text: &str) -> Vec<&str> {
    let (mut paths, mut nesting, mut start) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            ',' | '}' if nesting == 0 => {
                paths.push(text[start..at].trim());
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '{' => nesting += 1,
            '}' => nesting -= 1,
            _ => {}
        }
    }
    paths
}

/// The modules of a crate in the order in which its lib.rs lists them.
fn modules(lib: &str) -> Vec<String> {
    let module = |line: &str| {
        let line = line.strip_suffix(';')?;
        let name = line.strip_prefix("mod ").or_else(|| line.split_once(" mod ").map(|(_, name)| name))?;
        Some(name.to_string())
    };
    lib.lines().filter_map(module).collect()
}

/// Every import of a module from a module that lib.rs lists below it.
fn upward_imports(src: &Path) -> Vec<String> {
    let order = modules(&code_without_tests(&fs::read_to_string(src.join("lib.rs")).unwrap()).0);
    let files: Vec<(PathBuf, Vec<String>, String)> = sources(src)
        .into_iter()
        .map(|file| (file.clone(), module_path(&file, src), fs::read_to_string(&file).unwrap()))
        .collect();
    let tests: Vec<Vec<String>> = (files.iter())
        .flat_map(|(_, path, text)| {
            let inside = move |name: String| path.iter().cloned().chain([name]).collect();
            code_without_tests(text).1.into_iter().map(inside).collect::<Vec<Vec<String>>>()
        })
        .collect();
    let mut wrong = Vec::new();
    for (file, path, text) in &files {
        let Some(own) = path.first().and_then(|own| order.iter().position(|m| m == own)) else { continue };
        if tests.iter().any(|test| path.starts_with(test)) {
            continue;
        }
        for used in uses(&code_without_tests(text).0, path.len()) {
            if order.iter().position(|m| *m == used).is_some_and(|other| other > own) {
                let own = &order[own];
                wrong.push(format!("{}: uses `{used}`, which lib.rs lists below `{own}`", file.display()));
            }
        }
    }
    wrong
}

/// Modules in one order in which each imports from those above only: so there are no cycles between them either.
#[test]
fn a_module_imports_only_from_modules_above_it() {
    let mut checked = 0;
    for dir in fs::read_dir(crates()).unwrap().flatten().map(|e| e.path()) {
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        if !dir.join("src/lib.rs").is_file() {
            continue;
        }
        let wrong = upward_imports(&dir.join("src"));
        assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
        checked += 1;
    }
    assert!(checked >= 5, "{checked} crates");
}

#[test]
fn imports_are_found_in_every_form_and_only_outside_tests() {
    let code = "use crate::data::{Dataset, sub::X};\nuse crate::{env, nn::{Net, Pool}, Batch};\n\
                // crate::comment\nuse super::super::top::Y;\n#[cfg(test)]\nmod tests {\n    use crate::hidden;\n}\n\
                #[cfg(test)]\nmod other_tests;\nfn f() { crate::run::go() }\n";
    let (code, tests) = code_without_tests(code);
    let found: Vec<String> = uses(&code, 2).into_iter().collect();
    assert_eq!(found, ["Batch", "data", "env", "nn", "run", "top"]);
    assert_eq!(tests, ["other_tests"]);
}

#[test]
fn every_file_opens_with_what_it_is_and_stays_readable() {
    let files = sources(&crates());
    assert!(files.len() > 20);
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| !file.components().any(|part| part.as_os_str() == "target")) {
        let text = fs::read_to_string(file).unwrap();
        if !text.starts_with("//!") {
            wrong.push(format!("{}: wanted a first line of //! that says what it is", file.display()));
        }
        let lines = text.lines().count();
        if lines > MAX_LINES {
            let file = file.display();
            wrong.push(format!("{file}: {lines} lines, wanted at most {MAX_LINES}; make two files of it"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
