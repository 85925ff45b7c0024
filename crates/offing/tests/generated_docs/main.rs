//! Tables of the documentation come from doc comments, defaults and presets. The test fails when a page is not current;
//! `make docs-update` rewrites the pages.
//!
//! A page has prose by hand and, between `<!-- generated: NAME … -->` and `<!-- end of generated -->`, what is made here.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod notes;
mod presets;
mod registries;
mod settings;
mod source;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use settings::Settings;
use source::{Source, renamed};

const END: &str = "<!-- end of generated -->";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The page of an algorithm below docs/algorithms: the one of its name, or the only one with a command that trains it.
fn page(algorithm: &str) -> String {
    let pages = repository().join("docs/algorithms");
    if pages.join(format!("{algorithm}.md")).exists() {
        return format!("{algorithm}.md");
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&pages).unwrap().flatten() {
        let (file, text) =
            (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap());
        let mut commands = text.split("offing train ").skip(1).filter_map(|it| it.split([' ', '+']).next());
        if file != "README.md" && commands.any(|name| name == algorithm) {
            found.push(file);
        }
    }
    match &found[..] {
        [only] => only.clone(),
        _ => panic!("docs/algorithms: wanted one page with `offing train {algorithm}`, found {found:?}"),
    }
}

/// The page with a block replaced.
fn with_block(text: &str, file: &str, name: &str, block: &str) -> String {
    let start = format!("<!-- generated: {name} ");
    let inside = || {
        let (before, rest) = text.split_once(&start)?;
        let (note, rest) = rest.split_once("-->\n")?;
        let (_, after) = rest.split_once(END)?;
        Some(format!("{before}{start}{note}-->\n\n{block}\n{END}{after}"))
    };
    inside()
        .unwrap_or_else(|| panic!("{file}: wanted a line `{start}… -->` and after it `{END}`, found none"))
}

#[test]
fn generated_parts_of_the_docs_are_current() {
    let root = repository();
    let source = Source::read(&root.join("crates/offing/src"));
    let setups = presets::setups(&root.join("presets"));
    let below = |way: &'static str| move |name: &str| format!("{way}{}", page(name));
    let settings = Settings { source: &source, setups: &setups, page: &below("algorithms/") };
    let algorithms = |way, presets| registries::algorithms(&setups, &below(way), presets);
    let mut stale = Vec::new();
    for (file, blocks) in [
        ("docs/settings.md", vec![("settings", settings.render())]),
        (
            "docs/estimators.md",
            vec![
                ("estimators", registries::estimators(&source)),
                ("estimator-settings", registries::estimator_settings(&source)),
            ],
        ),
        ("docs/algorithms/README.md", vec![("algorithms", algorithms("", "../../presets/"))]),
    ] {
        let path = root.join(file);
        let found = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"));
        let wanted =
            blocks.iter().fold(found.clone(), |text, (name, block)| with_block(&text, file, name, block));
        if found != wanted {
            if std::env::var_os("OFFING_UPDATE_DOCS").is_some() {
                fs::write(&path, &wanted).unwrap();
            } else {
                stale.push(file);
            }
        }
    }
    assert!(stale.is_empty(), "not current: {}; update with `make docs-update`", stale.join(", "));
}

#[test]
fn variants_have_the_names_that_serde_gives_them() {
    for (ident, name) in [("Log1p", "log1p"), ("L2Std", "l2-std"), ("CrossEntropy", "cross-entropy")] {
        assert_eq!(renamed(ident, "kebab-case"), name);
    }
    assert_eq!(renamed("Silu", "lowercase"), "silu");
}

#[test]
fn doc_comments_become_cells_of_a_table() {
    let cell = |doc: &str| text::prose(&[doc.to_string()]);
    assert_eq!(cell("−log π(a|s), see [`Cloner`](super::Cloner)."), "−log π(a\\|s), see `Cloner`.");
    assert_eq!(cell("Kinds: docs/data.md#kinds."), "Kinds: [data](data.md#kinds).");
    let values = "a = [1000000, 5000, -1.0, 0.0003, 0.25]".parse::<toml::Table>().unwrap();
    assert_eq!(text::value(&values["a"]), "[1_000_000, 5000, -1, 3e-4, 0.25]");
}
