//! What is wrong with a table of settings, in one line that names the key and no type of Rust.

use toml::{Table, Value};

use crate::error::hint;

/// Reads a table as the settings that are wanted, to find out whether that works.
pub(super) type Attempt<'a> = dyn Fn(Table) -> Result<(), toml::de::Error> + 'a;

/// Most places that are suggested for a key.
const SUGGESTED: usize = 3;

/// The error in one line: which key, what was wanted, what was found, what to do.
pub(super) fn explain(error: &toml::de::Error, table: &Table, attempt: &Attempt<'_>) -> String {
    let message = one_line(error.message());
    let root = Value::Table(table.clone());
    let place = place_of(error);
    // serde: "unknown field `a`, expected one of `b`, `c`", "unknown variant `a`, expected `b`", "missing field `a`".
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if let Some((name, known)) = quoted.split_first() {
        if message.starts_with("unknown field") {
            return unknown_key(&key_below(&root, &place, name), name, known, table, attempt);
        }
        if message.starts_with("unknown variant") {
            let word = Value::String((*name).to_string());
            let path = value_below(&root, &place, |value| *value == word).unwrap_or(place);
            return format!("unknown choice `{path} = {name}`; {}", hint(name, known));
        }
        if message.starts_with("missing field") {
            let path = joined(&place, name);
            return format!("configuration key `{path}`: wanted a value, found none; add it");
        }
    }
    let mistyped = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let Some((found, expected)) = mistyped.and_then(|rest| rest.rsplit_once(", expected ")) {
        let path = value_below(&root, &place, |value| is_what(value, found)).unwrap_or(place);
        return wrong_value(&path, at(&root, &path), found, expected);
    }
    let found = at(&root, &place).map(shown).unwrap_or_default();
    if message.contains("untagged enum") {
        return format!(
            "configuration key `{place}`: wanted another kind of value, found {found}; fix the value"
        );
    }
    match place.rsplit('.').next().filter(|key| !key.is_empty()) {
        None => format!("configuration: {message}; fix the value"),
        Some(key) => {
            let words =
                message.strip_prefix(key).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&message);
            format!("configuration key `{place}`: {words}; fix the value")
        }
    }
}

/// The first number of a table, as `--set` would set it: an example that fits the command.
pub(super) fn example(table: &Table) -> String {
    let root = Value::Table(table.clone());
    let mut all = Vec::new();
    below("", &root, &mut all);
    let number = all.into_iter().find(|(_, value)| value.is_integer() || value.is_float());
    number.map_or("key=1".into(), |(path, value)| format!("{path}={value}"))
}

/// A key that does not exist where it stands: the places where it does, or the nearest name there is.
fn unknown_key(path: &str, name: &str, known: &[&str], table: &Table, attempt: &Attempt<'_>) -> String {
    let elsewhere = places_for(path, name, table, attempt);
    if !elsewhere.is_empty() {
        return format!("unknown configuration key `{path}`; did you mean `{}`?", elsewhere.join("` or `"));
    }
    if known.is_empty() {
        return format!("unknown configuration key `{path}`; no key is allowed there");
    }
    format!("unknown configuration key `{path}`; {}", hint(name, known))
}

/// Where else a misplaced key would be read, with the value it has. Found by trying, since keys without a default stand in no
/// table.
fn places_for(path: &str, name: &str, table: &Table, attempt: &Attempt<'_>) -> Vec<String> {
    let mut rest = table.clone();
    let Some(value) = parent(&mut rest, path).and_then(|(above, key)| above.remove(key)) else {
        return Vec::new();
    };
    // With another mistake left, trying says nothing.
    if attempt(rest.clone()).is_err() {
        return Vec::new();
    }
    let root = Value::Table(rest.clone());
    let mut all = Vec::new();
    below("", &root, &mut all);
    let tables = all.iter().filter(|(_, value)| value.is_table()).map(|(place, _)| joined(place, name));
    let fits = |place: &String| {
        let mut moved = rest.clone();
        let put = parent(&mut moved, place).map(|(above, key)| above.insert(key.to_string(), value.clone()));
        put.is_some() && attempt(moved).is_ok()
    };
    let found: Vec<String> = tables.chain([name.to_string()]).filter(fits).collect();
    // Who wrote `model.lr` meant the model's, not the temperature's.
    let own = path.strip_suffix(name).filter(|own| !own.is_empty());
    let near: Vec<String> =
        found.iter().filter(|place| own.is_some_and(|own| place.starts_with(own))).cloned().collect();
    let mut best = if near.is_empty() { found } else { near };
    best.truncate(SUGGESTED);
    best
}

/// The table that a path's last key stands in, and that key.
fn parent<'a>(table: &'a mut Table, path: &'a str) -> Option<(&'a mut Table, &'a str)> {
    let (above, key) = path.rsplit_once('.').unwrap_or(("", path));
    let mut here = table;
    for step in above.split('.').filter(|step| !step.is_empty()) {
        here = here.get_mut(step)?.as_table_mut()?;
    }
    Some((here, key))
}

fn wrong_value(path: &str, value: Option<&Value>, found: &str, expected: &str) -> String {
    let key = if path.is_empty() { "configuration".into() } else { format!("configuration key `{path}`") };
    let seen = value.filter(|value| !value.is_table()).map_or_else(|| plain(found).to_string(), shown);
    if expected.starts_with("internally tagged enum") || expected.starts_with("adjacently tagged enum") {
        let kind = value.and_then(Value::as_str).unwrap_or("…");
        return format!("{key}: wanted a table with a kind, found {seen}; write {path}.kind={kind}");
    }
    format!("{key}: wanted {}, found {seen}; fix the value", plain(expected))
}

/// serde's words for kinds of values, in a user's.
fn plain(words: &str) -> &str {
    match words {
        "f32" | "f64" => "a number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "a boolean" => "true or false",
        "a string" | "string only" | "string or table" => "a word",
        "a sequence" | "sequence" => "a list",
        "a map" | "map" => "a table",
        "unit variant" => "another value",
        _ if words.starts_with("struct ") => "a table",
        _ => words.strip_prefix("an array of ").unwrap_or(words),
    }
}

/// Whether a value is what serde says it found.
fn is_what(value: &Value, found: &str) -> bool {
    match value {
        Value::String(text) => found == format!("string {text:?}"),
        Value::Integer(number) => found == format!("integer `{number}`"),
        Value::Float(_) => found.starts_with("floating point"),
        Value::Boolean(truth) => found == format!("boolean `{truth}`"),
        Value::Array(_) => found == "sequence",
        Value::Table(_) => found == "map",
        Value::Datetime(_) => false,
    }
}

/// The table or value the error is about, as a dotted path. Below a `kind` serde does not keep the path: there it is the table
/// with the kind.
fn place_of(error: &toml::de::Error) -> String {
    // Only the whole text of the error has it, in a line of its own.
    let text = error.to_string();
    let line = text.lines().find_map(|line| line.strip_prefix("in `")?.strip_suffix('`'));
    line.unwrap_or_default().to_string()
}

/// What stands at a path.
fn at<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|key| !key.is_empty()).try_fold(root, |value, key| value.get(key))
}

/// Everything below a value, with its path.
fn below<'a>(place: &str, value: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    for (key, inner) in value.as_table().into_iter().flatten() {
        let path = joined(place, key);
        found.push((path.clone(), inner));
        below(&path, inner, found);
    }
}

/// The path of a key in a table, or somewhere below it.
fn key_below(root: &Value, place: &str, name: &str) -> String {
    let direct = joined(place, name);
    if at(root, &direct).is_some() {
        return direct;
    }
    let mut all = Vec::new();
    at(root, place).into_iter().for_each(|value| below(place, value, &mut all));
    let ending = format!(".{name}");
    all.into_iter().map(|(path, _)| path).find(|path| path.ends_with(&ending)).unwrap_or(direct)
}

/// The path of a value: the place itself, unless that is a table in which such a value stands.
fn value_below(root: &Value, place: &str, is_it: impl Fn(&Value) -> bool) -> Option<String> {
    let here = at(root, place)?;
    if !here.is_table() || (is_it(here) && !place.is_empty()) {
        return Some(place.to_string());
    }
    let mut all = Vec::new();
    below(place, here, &mut all);
    all.into_iter().find(|(_, value)| is_it(value)).map(|(path, _)| path)
}

fn joined(place: &str, key: &str) -> String {
    if place.is_empty() { key.to_string() } else { format!("{place}.{key}") }
}

fn shown(value: &Value) -> String {
    one_line(&value.to_string())
}

pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use crate::algorithms::Registry;

    /// What `offing train` says about a setting.
    fn refused(algorithm: &str, set: &str) -> String {
        let algorithm = Registry::default().parse(algorithm).unwrap();
        let (mut layers, _) = algorithm.layers("mine", None, None).unwrap();
        let done = layers.set(set).and_then(|()| algorithm.configure(&layers).map(drop));
        let error = done.unwrap_err().to_string();
        assert!(!error.contains('\n') && !error.contains("enum") && !error.contains("Config"), "{error}");
        error
    }

    #[test]
    fn a_misplaced_key_is_named_as_typed_and_shown_its_place() {
        for (set, typed, meant) in [
            ("model.lr=0.001", "`model.lr`", "`model.ensemble.lr`"),
            ("model.max_epochs=3", "`model.max_epochs`", "`model.ensemble.max_epochs`"),
            ("model.members=3", "`model.members`", "`model.ensemble.members`"),
            ("batch=3", "`batch`", "`train.batch`"),
            ("rollout.lenght=3", "`rollout.lenght`", "`length`"),
            ("pessimism.lamda=3", "`pessimism.lamda`", "`lambda`"),
            ("uncertainty.kk=3", "`uncertainty.kk`", "`k`"),
            ("uncertainty.kind=summo", "uncertainty.kind = summo", "`sumo`"),
            ("sac.order=critic-frst", "sac.order = critic-frst", "`critic-first`"),
        ] {
            let error = refused("mopo+sumo", set);
            assert!(
                error.contains(typed) && error.contains(&format!("did you mean {meant}?")),
                "{set}: {error}"
            );
        }
    }

    #[test]
    fn a_wrong_value_is_told_with_its_key_and_without_types() {
        for (set, pieces) in [
            ("pessimism.lambda=abc", &["`pessimism.lambda`", "wanted a number, found \"abc\""][..]),
            ("train.steps=-1", &["`train.steps`", "wanted a whole number from 0, found -1"]),
            ("train.batch=0.5", &["`train.batch`", "found 0.5"]),
            ("sac.hidden=5", &["`sac.hidden`", "wanted a list, found 5"]),
            ("sac=5", &["`sac`", "wanted a table, found 5"]),
            ("sac.order=5", &["`sac.order`", "found 5"]),
            ("train.drop_teleports=1", &["`train.drop_teleports`", "wanted true or false, found 1"]),
            ("train.reward_shift=zero", &["`train.reward_shift`", "a number or `to-zero`, found `zero`"]),
            ("train.reward_shift=true", &["`train.reward_shift`", "found true"]),
            ("model.termination=never", &["`model.termination`", "write model.termination.kind=never"]),
            ("model.termination.kind=expression", &["`model.termination.alive`", "add it"]),
            ("model.ensemble.members=0", &["model.ensemble.members: wanted at least 1"]),
            ("model.ensemble.max_epochs=0", &["model.ensemble.max_epochs: wanted at least 1"]),
            ("pessimism.lambda=-1", &["pessimism.lambda: wanted a number from 0, found -1"]),
            ("train.steps", &["key=value", "such as "]),
        ] {
            let error = refused("mopo+sumo", set);
            for piece in pieces {
                assert!(error.contains(piece), "{set}: `{piece}` missing in: {error}");
            }
        }
        let error = refused("rambo", "adversary.step.decay=[0.1]");
        assert!(error.contains("adversary.step.decay: wanted 5 numbers"), "{error}");
        assert!(!refused("mopo", "train.steps").contains("model.lr="), "an example that works");
    }
}
