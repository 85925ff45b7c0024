//! What the columns of a log are called, where its file says so.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::messages::escaped;

/// Under which keys of [`Dataset::meta`](super::Dataset::meta) files keep the names.
const OBS: &str = "obs_names";
const ACT: &str = "act_names";

/// The names of the columns of observations and actions: one a column, or none at all where the file has no names.
///
/// ```
/// use offing::data::ColumnNames;
/// let names = ColumnNames { obs: vec!["t_in".into(), "p_tank".into()], act: Vec::new() };
/// assert_eq!(names.obs_label(1), "obs[1] (p_tank)");
/// assert_eq!(names.act_label(0), "act[0]");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnNames {
    /// Of observations.
    pub obs: Vec<String>,
    /// Of actions.
    pub act: Vec<String>,
}

impl ColumnNames {
    /// Whether no column has a name.
    pub fn is_empty(&self) -> bool {
        self.obs.is_empty() && self.act.is_empty()
    }

    /// An observation's column for messages: `obs[3] (p_tank)`, or `obs[3]` without a name.
    pub fn obs_label(&self, column: usize) -> String {
        label("obs", &self.obs, column)
    }

    /// An action's column for messages.
    pub fn act_label(&self, column: usize) -> String {
        label("act", &self.act, column)
    }

    /// A next observation's column for messages.
    pub fn next_obs_label(&self, column: usize) -> String {
        label("next_obs", &self.obs, column)
    }

    /// The names as they may be printed, without those that do not fit the widths.
    pub(super) fn fitting(self, obs_dim: usize, act_dim: usize) -> Self {
        let fit = |names: Vec<String>, width: usize| -> Vec<String> {
            let names: Vec<String> = names.iter().map(|name| escaped(name.trim())).collect();
            if names.len() == width { names } else { Vec::new() }
        };
        Self { obs: fit(self.obs, obs_dim), act: fit(self.act, act_dim) }
    }

    /// Takes the names out of what a file says about itself, where offing wrote them there.
    pub(super) fn from_meta(meta: &mut BTreeMap<String, String>) -> Self {
        let mut take = |key: &str| -> Vec<String> {
            let names = meta.get(key).and_then(|text| serde_json::from_str(text).ok());
            names.inspect(|_| drop(meta.remove(key))).unwrap_or_default()
        };
        Self { obs: take(OBS), act: take(ACT) }
    }

    /// What a file shall say about itself: `meta`, and the names.
    pub(super) fn added_to(&self, meta: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut meta = meta.clone();
        for (key, names) in [(OBS, &self.obs), (ACT, &self.act)] {
            if !names.is_empty() {
                meta.insert(key.into(), serde_json::json!(names).to_string());
            }
        }
        meta
    }
}

fn label(group: &str, names: &[String], column: usize) -> String {
    match names.get(column) {
        Some(name) => format!("{group}[{column}] ({name})"),
        None => format!("{group}[{column}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_file_s_metadata_and_must_fit() {
        let names = ColumnNames { obs: vec!["a, \"b\"".into(), "p\u{7}".into()], act: Vec::new() };
        let mut meta = names.added_to(&[("seed".to_string(), "3".to_string())].into());
        assert_eq!(meta.len(), 2);
        let read = ColumnNames::from_meta(&mut meta);
        assert_eq!((&read, meta.len()), (&names, 1));
        assert_eq!(read.clone().fitting(2, 1).obs[1], "p\\u{7}", "a terminal must not obey a file");
        assert!(read.fitting(3, 1).is_empty());
        let mut other = [(OBS.to_string(), "no list".to_string())].into();
        assert!(ColumnNames::from_meta(&mut other).is_empty() && other.len() == 1);
    }
}
