//! Names for runs: by algorithm and dataset, then by the settings that differ, at last by directory.

use std::collections::BTreeMap;
use std::path::Path;

use crate::run_record::{RunKind, RunRecord};

/// A run with its names.
#[derive(Clone, Debug)]
pub(super) struct LabelledRun {
    pub(super) record: RunRecord,
    /// Runs that differ in their seeds alone share a group: one line with its spread.
    pub(super) group: String,
    /// Whether another run has the same group and seed: only their paths differ.
    pub(super) twin: bool,
}

impl LabelledRun {
    fn new(record: RunRecord) -> Self {
        let group = match &record.kind {
            RunKind::Training { algorithm, dataset } => format!("{algorithm} · {}", short(dataset)),
            RunKind::Collection { task } => format!("online SAC · {task}"),
            RunKind::Study | RunKind::Unknown => record.dir.display().to_string(),
        };
        Self { record, group, twin: false }
    }

    /// Its name in tables.
    pub(super) fn label(&self) -> String {
        if self.twin {
            format!("{} · {}", self.group, self.record.dir.display())
        } else {
            self.group.clone()
        }
    }

    /// Every setting under its dotted name.
    fn settings(&self) -> BTreeMap<String, String> {
        let mut flat = BTreeMap::new();
        let config = &self.record.config;
        config.get("settings").into_iter().for_each(|value| flatten("", value, &mut flat));
        for key in ["rows", "physics"] {
            config.get(key).into_iter().for_each(|value| flatten(key, value, &mut flat));
        }
        flat
    }
}

/// Names runs. Groups whose runs were made with several settings get those that differ added to their names.
pub(super) fn label_runs(records: Vec<RunRecord>) -> Vec<LabelledRun> {
    let mut runs: Vec<LabelledRun> = records.into_iter().map(LabelledRun::new).collect();
    let settings: Vec<BTreeMap<String, String>> = runs.iter().map(LabelledRun::settings).collect();
    let names: Vec<String> = runs.iter().map(|run| run.group.clone()).collect();
    for (i, run) in runs.iter_mut().enumerate() {
        let others = (0..names.len()).filter(|&j| names[j] == names[i]);
        let mut differing = BTreeMap::new();
        for other in others.map(|j| &settings[j]) {
            let keys = settings[i].keys().chain(other.keys());
            for key in keys.filter(|key| settings[i].get(*key) != other.get(*key)) {
                differing.insert(key, settings[i].get(key).map_or("none", String::as_str));
            }
        }
        // A rule or an estimator of another kind has other settings too; its kind says enough.
        let kinds: Vec<String> =
            differing.keys().filter_map(|key| Some(key.strip_suffix(".kind")?.to_string())).collect();
        let part_of_kind =
            |key: &str| !key.ends_with(".kind") && kinds.iter().any(|kind| key.starts_with(kind));
        let words: Vec<String> = differing
            .into_iter()
            .filter(|(key, _)| !part_of_kind(key))
            .map(|(key, value)| format!("{} = {value}", key.strip_suffix(".kind").unwrap_or(key)))
            .collect();
        if !words.is_empty() {
            run.group = format!("{} · {}", run.group, words.join(", "));
        }
    }
    let names: Vec<(String, u64)> = runs.iter().map(|run| (run.group.clone(), run.record.seed)).collect();
    for (run, name) in runs.iter_mut().zip(&names) {
        run.twin = names.iter().filter(|other| *other == name).count() > 1;
    }
    runs
}

/// Every leaf of a table under its dotted name.
fn flatten(name: &str, value: &toml::Value, out: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                flatten(&if name.is_empty() { key.clone() } else { format!("{name}.{key}") }, value, out);
            }
        }
        toml::Value::String(text) => drop(out.insert(name.into(), text.clone())),
        other => drop(out.insert(name.into(), other.to_string())),
    }
}

/// A dataset's name without the directories of a path.
pub(super) fn short(dataset: &str) -> String {
    Path::new(dataset).file_stem().map_or(dataset.into(), |s| s.to_string_lossy().into_owned())
}

/// What a group's colour depends on: its algorithm and settings, not its dataset.
pub(super) fn colour_key(group: &str) -> String {
    let parts = group.split(" · ").enumerate().filter(|(i, _)| *i != 1).map(|(_, part)| part);
    parts.collect::<Vec<_>>().join(" · ")
}

/// How names made of parts differ: the parts that not all of them have; nothing for a single name.
pub(super) fn distinct(names: &[&str]) -> Vec<String> {
    let parts: Vec<Vec<&str>> = names.iter().map(|name| name.split(" · ").collect()).collect();
    let everywhere = |part: &&str| parts.iter().all(|other| other.contains(part));
    let own = |parts: &Vec<&str>| {
        parts.iter().copied().filter(|part| !everywhere(part)).collect::<Vec<_>>().join(" · ")
    };
    parts.iter().map(own).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run that was never made.
    pub(in super::super) fn record(kind: RunKind, config: &str) -> RunRecord {
        let config = toml::from_str(config).unwrap();
        RunRecord {
            dir: "x".into(),
            kind,
            seed: 0,
            config,
            metrics: vec![],
            times: None,
            data: None,
            provenance: vec![],
        }
    }

    fn run(settings: &str) -> RunRecord {
        let kind = RunKind::Training { algorithm: "mopo+sumo".into(), dataset: "hopper".into() };
        record(kind, &format!("[settings]\n{settings}"))
    }

    #[test]
    fn runs_with_other_settings_are_told_apart_by_them() {
        let penalty = "pessimism = { kind = \"penalize\", lambda = 1.0 }\nrollout.real_ratio = 0.9";
        let ignore = "pessimism = { kind = \"ignore\" }\nrollout.real_ratio = 0.9";
        let runs = label_runs(vec![run(penalty), run(ignore), run(penalty)]);
        let groups: Vec<&str> = runs.iter().map(|r| r.group.as_str()).collect();
        assert_eq!(groups[0], "mopo+sumo · hopper · pessimism = penalize");
        assert_eq!(groups[1], "mopo+sumo · hopper · pessimism = ignore");
        assert_eq!(groups[0], groups[2]);
        assert_eq!(distinct(&groups[..2]), ["pessimism = penalize", "pessimism = ignore"]);
        assert_eq!(distinct(&groups[..1]), [""]);
        let mut alike = vec![run(ignore), run(ignore)];
        assert_eq!(label_runs(alike.clone())[0].group, "mopo+sumo · hopper");
        // The same settings and seed twice: the path is all there is.
        alike[1].dir = "y".into();
        let labels: Vec<String> = label_runs(alike.clone()).iter().map(LabelledRun::label).collect();
        assert_eq!(labels, ["mopo+sumo · hopper · x", "mopo+sumo · hopper · y"]);
        alike[1].seed = 1;
        assert_eq!(label_runs(alike)[0].label(), "mopo+sumo · hopper", "seeds tell them apart");
    }
}
