//! Where presets, AntMaze and the quick profile give a setting another value than its default.

use toml::{Table, Value};

use super::presets::{Setup, at};
use super::text::{code, value};

/// Datasets that a note names; of more it gives the number.
const NAMED: usize = 3;

/// A setting, and under which kinds it exists.
pub(crate) struct Key {
    pub(crate) path: Vec<String>,
    /// Tables that must be of a kind for the setting to exist.
    pub(crate) kinds: Vec<(Vec<String>, String)>,
    /// What it means when a table does not have it.
    pub(crate) unset: String,
}

/// The value of a setup, if it has the setting, and its other values by dataset.
#[derive(PartialEq)]
struct Entry {
    value: Option<String>,
    others: Vec<(String, Vec<String>)>,
}

impl Key {
    /// The value in a table, `None` where the setting does not exist.
    pub(crate) fn read(&self, table: &Table) -> Option<String> {
        let of_kind = |(path, kind): &(Vec<String>, String)| {
            let path: Vec<String> = path.iter().cloned().chain(["kind".into()]).collect();
            at(table, &path).and_then(Value::as_str) == Some(kind)
        };
        if !table.contains_key(&self.path[0]) || !self.kinds.iter().all(of_kind) {
            return None;
        }
        Some(at(table, &self.path).map_or_else(|| self.unset.clone(), value))
    }

    /// All differences from the default, as one cell.
    pub(crate) fn notes(&self, default: &str, setups: &[Setup]) -> String {
        let mut all = self.of_presets(default, setups);
        let bases = || setups.iter().filter(|it| it.is_base);
        let antmaze = bases().map(|it| (it, &it.antmaze, self.read(&it.plain) != self.read(&it.antmaze)));
        all.extend(self.of_profile("AntMaze", default, antmaze));
        let quick = bases().map(|it| {
            let changes = |(plain, quick): (&Table, &Table)| self.read(plain) != self.read(quick);
            let on = it.on.values().any(|(plain, quick)| changes((plain, quick)));
            (it, &it.quick, on || changes((&it.plain, &it.quick)))
        });
        all.extend(self.of_profile("quick", default, quick));
        all.join("; ")
    }

    fn of_presets(&self, default: &str, setups: &[Setup]) -> Vec<String> {
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        for setup in setups {
            let entry = self.entry(setup);
            let base = setups.iter().find(|it| it.is_base && it.algorithm == setup.algorithm);
            let below = base.filter(|_| !setup.is_base).map(|base| self.entry(base));
            let below = below.filter(|below| !below.is_empty());
            let below = below.unwrap_or(Entry { value: Some(default.into()), others: Vec::new() });
            if entry == below || entry.is_empty() {
                continue;
            }
            let text = entry.text(entry.value == below.value);
            match groups.iter_mut().find(|(known, _)| *known == text) {
                Some((_, labels)) => labels.push(&setup.label),
                None => groups.push((text, vec![&setup.label])),
            }
        }
        groups.into_iter().map(|(text, labels)| format!("{}: {text}", labels.join(", "))).collect()
    }

    fn entry(&self, setup: &Setup) -> Entry {
        let mut others: Vec<(String, Vec<String>)> = Vec::new();
        for (dataset, (table, _)) in &setup.on {
            let usual = if dataset.starts_with("antmaze") { &setup.antmaze } else { &setup.plain };
            let Some(found) = self.read(table).filter(|found| Some(found) != self.read(usual).as_ref())
            else {
                continue;
            };
            match others.iter_mut().find(|(known, _)| *known == found) {
                Some((_, datasets)) => datasets.push(dataset.clone()),
                None => others.push((found, vec![dataset.clone()])),
            }
        }
        Entry { value: self.read(&setup.plain), others }
    }

    /// What a profile makes of the setting: the value most algorithms get, then the exceptions.
    fn of_profile<'a>(
        &self,
        name: &str,
        default: &str,
        tables: impl Iterator<Item = (&'a Setup, &'a Table, bool)>,
    ) -> Option<String> {
        let mut changed = false;
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        for (setup, table, differs) in tables {
            let Some(found) = self.read(table) else { continue };
            changed |= differs;
            match groups.iter_mut().find(|(known, _)| *known == found) {
                Some((_, algorithms)) => algorithms.push(setup.algorithm),
                None => groups.push((found, vec![setup.algorithm])),
            }
        }
        // The first of the largest groups.
        let most = groups.iter().map(|(_, algorithms)| algorithms.len()).max()?;
        let usual = groups.remove(groups.iter().position(|(_, algorithms)| algorithms.len() == most)?).0;
        let others: Vec<String> =
            groups.iter().map(|(found, of)| format!("{}: {}", of.join(", "), code(found))).collect();
        let others = match &others[..] {
            // The default again: presets differ from it on some datasets.
            [] if usual == default => " on every dataset".into(),
            [] => String::new(),
            others => format!(" ({})", others.join("; ")),
        };
        changed.then(|| format!("{name}: {}{others}", code(&usual)))
    }

    /// Whose presets choose this kind, for a key that ends with `kind`.
    pub(crate) fn users(&self, kind: &str, setups: &[Setup]) -> String {
        let bases = || setups.iter().filter(|it| it.is_base);
        let mut users = Vec::new();
        for setup in setups {
            let base = bases().find(|it| it.algorithm == setup.algorithm).filter(|_| !setup.is_base);
            let (entry, below) = (self.entry(setup), base.map(|base| self.entry(base)));
            if below.as_ref() == Some(&entry) {
                continue;
            }
            let has = |entry: &Entry| entry.value.as_deref() == Some(kind);
            if has(&entry) && !below.is_some_and(|below| has(&below)) {
                users.push(setup.label.clone());
            }
            if let Some((_, datasets)) = entry.others.iter().find(|(found, _)| found == kind) {
                users.push(format!("{} on {}", setup.label, listed(datasets)));
            }
        }
        users.join(", ")
    }
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.value.is_none() && self.others.is_empty()
    }

    /// The value, unless the reader knows it, and those on datasets.
    fn text(&self, own_is_known: bool) -> String {
        let all = self.others.iter().map(|(found, _)| found).chain(&self.value);
        let numbers: Option<Vec<f64>> = all.map(|it| it.parse().ok()).collect();
        if let Some(numbers) = numbers.filter(|_| self.others.len() > 2) {
            let (low, high) = numbers.iter().fold((f64::MAX, f64::MIN), |(l, h), x| (l.min(*x), h.max(*x)));
            return format!("{} to {} by dataset", code(&low.to_string()), code(&high.to_string()));
        }
        let others =
            self.others.iter().map(|(found, datasets)| format!("{} on {}", code(found), listed(datasets)));
        let own = self.value.as_ref().filter(|_| !own_is_known).map(|it| code(it));
        own.into_iter().chain(others).collect::<Vec<_>>().join(", ")
    }
}

fn listed(datasets: &[String]) -> String {
    match datasets {
        [only] => only.clone(),
        all if all.len() > NAMED => format!("{} datasets", all.len()),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
        [] => String::new(),
    }
}
