//! `offing settings`: what can be set, what it is for an algorithm, and what it means.

use anyhow::Result;
use console::measure_text_width;
use offing::algorithms::Registry;
use offing_experiments::Table;

use crate::exit::ExitCode;
use crate::term;

/// The page with every setting. A test keeps it as the doc comments are.
const PAGE: &str = include_str!("settings.md");

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The algorithm, alone or with an estimator (mopo+sumo); without one, offing lists the algorithms.
    algorithm: Option<String>,
    /// Only settings with this word in their key or meaning.
    word: Option<String>,
    /// The dataset they are for: some presets differ by dataset.
    #[arg(long, default_value = "")]
    dataset: String,
    /// Another preset of the algorithm, such as `kit` of mopo.
    #[arg(long)]
    preset: Option<String>,
    /// `quick` or `standard`.
    #[arg(long)]
    profile: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let registry = Registry::default();
    let Some(name) = &args.algorithm else {
        let row =
            |spec: &offing::algorithms::AlgorithmSpec| vec![spec.name.to_string(), spec.summary.to_string()];
        term::print_text_table(&Table::new(["algorithm", "what it does"], registry.specs().iter().map(row)));
        term::print_next(&[(
            format!("offing settings {}", Registry::DEFAULT),
            "its settings, with values and meaning",
        )]);
        return Ok(ExitCode::SUCCESS);
    };
    let (layers, _) =
        registry.parse(name)?.layers(&args.dataset, args.preset.as_deref(), args.profile.as_deref())?;
    let word = args.word.as_deref().unwrap_or_default().to_lowercase();
    let mut settings = listed(layers.table(), &described(PAGE));
    settings.retain(|s| s.key.contains(&word) || s.what.to_lowercase().contains(&word));
    if settings.is_empty() {
        out!("no setting of {name} has `{word}` in its key or meaning");
        return Ok(ExitCode::NEGATIVE);
    }
    print(&settings);
    let example = settings.iter().find(|s| s.value != "none").unwrap_or(&settings[0]);
    term::print_next(&[(
        format!("offing train {name} DATASET --set {}={}", example.key, example.value),
        "set one; docs/settings.md explains the layers",
    )]);
    Ok(ExitCode::SUCCESS)
}

/// One setting of an algorithm.
#[derive(Clone, Debug, PartialEq)]
struct Setting {
    key: String,
    value: String,
    what: String,
}

/// A row of the page: which kind it belongs to, and whether it may be left out.
#[derive(Clone, Debug, PartialEq)]
struct Described {
    kind: Option<String>,
    key: String,
    optional: bool,
    what: String,
}

/// The settings that a table holds, and those that it could hold beside them.
fn listed(table: &toml::Table, page: &[Described]) -> Vec<Setting> {
    let mut values = Vec::new();
    flatten(table, "", &mut values);
    let kind_at = |path: &str| {
        let key = if path.is_empty() { "kind".to_string() } else { format!("{path}.kind") };
        values.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone())
    };
    let mut found: Vec<Setting> = Vec::new();
    for row in page {
        let value = values.iter().find(|(key, _)| *key == row.key).map(|(_, value)| value.clone());
        let (path, _) = row.key.rsplit_once('.').unwrap_or_default();
        let is_here =
            || path.is_empty() || values.iter().any(|(key, _)| key.starts_with(&format!("{path}.")));
        let of_this_kind = match &row.kind {
            Some(kind) => tables_above(path).any(|table| kind_at(table).as_ref() == Some(kind)),
            None => true,
        };
        let value = match value {
            Some(value) if of_this_kind => value,
            None if row.optional && !path.is_empty() && is_here() && of_this_kind => "none".into(),
            _ => continue,
        };
        if found.iter().all(|setting| setting.key != row.key) {
            found.push(Setting { key: row.key.clone(), value, what: row.what.clone() });
        }
    }
    // A table's kind has no row of its own: its meaning is that of the kind.
    for (key, value) in values.iter().filter(|(key, _)| key.ends_with(".kind")) {
        let table = key.trim_end_matches(".kind");
        let meant = page.iter().find(|row| row.key == *table && row.kind.as_ref() == Some(value));
        let what = meant.map_or(String::new(), |row| row.what.clone());
        let place = found
            .iter()
            .position(|setting| setting.key.starts_with(&format!("{table}.")))
            .unwrap_or(found.len());
        found.insert(place, Setting { key: key.clone(), value: value.clone(), what });
    }
    found
}

/// A path and the paths above it: a, a.b, a.b.c.
fn tables_above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('.').map(|(at, _)| &path[..at]).chain([path])
}

/// `a.b = value` for every value in a table and those inside it.
fn flatten(table: &toml::Table, path: &str, out: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let key = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(inner, &key, out),
            toml::Value::String(text) => out.push((key, text.clone())),
            other => out.push((key, other.to_string())),
        }
    }
}

/// The rows of the page's tables. A row of a kind itself has the table's key.
fn described(page: &str) -> Vec<Described> {
    let (mut rows, mut section, mut kind, mut has_kinds) = (Vec::new(), String::new(), None, false);
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            (section, kind) = (name.replace('`', ""), None);
            continue;
        }
        let Some(cells) = cells(line) else { continue };
        match cells.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["kind", "key", ..] => (has_kinds, kind) = (true, None),
            ["key", "default", ..] => (has_kinds, kind) = (false, None),
            [name, "", _, what, ..] if has_kinds && !name.is_empty() => {
                kind = Some(name.to_string());
                rows.push(Described {
                    kind: kind.clone(),
                    key: section.clone(),
                    optional: false,
                    what: what.into(),
                });
            }
            ["", key, default, what, ..] if has_kinds => rows.push(Described {
                kind: kind.clone(),
                key: key.into(),
                optional: default == "none",
                what: what.into(),
            }),
            [key, default, what, ..] if !has_kinds => {
                rows.push(Described {
                    kind: None,
                    key: key.into(),
                    optional: default == "none",
                    what: what.into(),
                });
            }
            _ => {}
        }
    }
    rows
}

/// The cells of a line of a Markdown table, as plain text.
fn cells(line: &str) -> Option<Vec<String>> {
    let inside = line.strip_prefix('|')?.strip_suffix('|')?;
    // A bar inside a cell is escaped.
    let marked = inside.replace("\\|", "\u{0}");
    Some(marked.split('|').map(|cell| plain(&cell.replace('\u{0}', "|"))).collect())
}

/// Markdown without its marks: `code`, [links](…), line breaks.
fn plain(cell: &str) -> String {
    let text = cell.trim().replace('`', "").replace("<br>•", ";").replace(".;", ";");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("](") {
        let (before, after) = rest.split_at(at);
        let Some(end) = after.find(')') else { break };
        match before.rfind('[') {
            Some(open) => {
                out.push_str(&before[..open]);
                out.push_str(&before[open + 1..]);
            }
            None => out.push_str(before),
        }
        rest = &after[end + 1..];
    }
    out + rest
}

/// One line a setting, its meaning beside it; in a terminal the meaning is wrapped, elsewhere lines stay whole for grep.
fn print(settings: &[Setting]) {
    let heads: Vec<String> = settings.iter().map(|s| format!("{} = {}", s.key, s.value)).collect();
    let column =
        heads.iter().map(|head| measure_text_width(head)).filter(|w| *w <= 44).max().unwrap_or(0) + 2;
    let width = term::terminal_width();
    for (head, setting) in heads.iter().zip(settings) {
        let Some(width) = width else {
            out!("{head}  # {}", setting.what);
            continue;
        };
        let beside = usize::from(width).saturating_sub(column + 1).max(24);
        let mut indent =
            format!("{head}{}", " ".repeat(column.saturating_sub(measure_text_width(head)).max(2)));
        for line in term::whole_words(&setting.what, Some(beside as u16), "").lines() {
            out!("{indent}{line}");
            indent = " ".repeat(column);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Vec<Setting> {
        let (layers, _) = Registry::default().parse(name).unwrap().layers("", None, None).unwrap();
        listed(layers.table(), &described(PAGE))
    }

    #[test]
    fn every_setting_of_every_algorithm_is_listed_with_its_meaning() {
        for spec in Registry::default().specs() {
            let (layers, _) = Registry::default().parse(spec.name).unwrap().layers("", None, None).unwrap();
            let (mut values, found) = (Vec::new(), of(spec.name));
            flatten(layers.table(), "", &mut values);
            for (key, value) in values {
                let setting = found.iter().find(|s| s.key == key);
                let setting = setting.unwrap_or_else(|| panic!("{}: {key} is not listed", spec.name));
                assert_eq!(setting.value, value, "{}: {key}", spec.name);
                assert!(!setting.what.is_empty(), "{}: {key} has no meaning", spec.name);
            }
        }
    }

    #[test]
    fn what_is_listed_belongs_to_the_chosen_kind() {
        let key = |name: &str, key: &str| of(name).into_iter().find(|s| s.key == key);
        assert_eq!(key("mopo+sumo", "uncertainty.kind").unwrap().value, "sumo");
        assert_eq!(key("mopo+sumo", "uncertainty.embedding").unwrap().value, "none", "it could be set");
        assert_eq!(key("mopo+pairwise", "uncertainty.k"), None);
        assert_eq!(key("landfall", "train.steps").unwrap().value, "12000", "the preset counts");
        assert_eq!(key("bc", "model.ensemble.members"), None);
    }

    #[test]
    fn markdown_becomes_plain_text() {
        assert_eq!(plain(" a [link](x.md#y) and `code`.<br>• `b`: c "), "a link and code; b: c");
        assert_eq!(cells("| `a` | x\\|y |").unwrap(), ["a", "x|y"]);
    }
}
