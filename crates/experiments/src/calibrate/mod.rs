//! Calibration studies: which estimator knows where the model is wrong.

mod summary;
mod advice;
mod page;
mod study_cache;
mod run;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use offing::calibration::StudyConfig;
use offing::config::{Layers, read_text};
use offing::env::Physics;
use offing::uncertainty::UncertaintyConfig;
use toml::Table;

pub use run::OwnStudy;
pub(crate) use run::{FinishedStudy, StudyRequest, run_study};
pub use summary::StudySummary;

use crate::Runtime;
use crate::arguments::{ColumnsFile, positive};

const QUICK: &str = include_str!("quick.toml");

/// Studies of one dataset, as a user asks for them.
#[derive(Clone, Debug, clap::Args)]
pub struct CalibrationRequest {
    /// A path, a D4RL or Minari id, or the name of a generated dataset.
    pub dataset: String,
    /// Estimators to compare, by id or as JSON settings such as {"kind":"sumo","k":5}, with blanks or commas between them
    /// [default: all].
    #[arg(long, num_args = 1.., value_name = "ID")]
    pub estimators: Vec<String>,
    /// How many seeds to study.
    #[arg(long, default_value_t = 5, value_parser = positive)]
    pub seeds: usize,
    /// `quick`: 100,000 rows, a small ensemble, 20,000 policy steps.
    #[arg(long)]
    pub profile: Option<String>,
    /// Use about this many rows: whole episodes, drawn at random.
    #[arg(long, value_parser = positive)]
    pub rows: Option<usize>,
    /// Override one value, such as --set starts=50 (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Which physics to replay in.
    #[arg(long, default_value_t)]
    pub physics: Physics,
    /// Where to keep models in training and results; the same command resumes where it stopped.
    #[arg(long, value_name = "DIR", default_value = "runs/calibrate")]
    pub dir: PathBuf,
    /// Which columns of a table to read.
    #[command(flatten)]
    pub columns: ColumnsFile,
}

impl CalibrationRequest {
    /// Studies one seed after the other; `None` when stopped on the way.
    ///
    /// # Errors
    /// Unknown names or settings, or a study that fails.
    pub fn run(&self, runtime: &Runtime) -> Result<Option<StudySummary>> {
        self.run_with(runtime, &OwnStudy::default())
    }

    /// [`run`](Self::run) with what a program brings.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with(&self, runtime: &Runtime, own: &OwnStudy<'_>) -> Result<Option<StudySummary>> {
        let set: Vec<String> = self.set.iter().cloned().chain(self.columns.setting()?).collect();
        let (config, rows) = study_settings(self.profile.as_deref(), &set)?;
        let mut request = StudyRequest {
            dataset: self.dataset.clone(),
            rows: self.rows.or(rows),
            generated_rows: None,
            seed: 0,
            physics: self.physics,
            config,
            estimators: parse_estimators(&self.estimators)?,
            dir: self.dir.clone(),
        };
        let mut summary = StudySummary { dataset: self.dataset.clone(), studies: Vec::new() };
        for seed in 0..self.seeds as u64 {
            request.seed = seed;
            let Some(found) = run_study(runtime, &request, own)? else { return Ok(None) };
            summary.studies.push((seed, found.study));
        }
        Ok(Some(summary))
    }
}

/// Settings of a study from profile and overrides, and the rows the profile asks for.
///
/// # Errors
/// An unknown profile, or settings that make no study.
pub(crate) fn study_settings(profile: Option<&str>, set: &[String]) -> Result<(StudyConfig, Option<usize>)> {
    let mut layers = Layers::of::<StudyConfig>()?;
    let mut rows = None;
    match profile {
        None | Some("paper") => {}
        Some("quick") => {
            let mut table: Table = read_text(QUICK, "presets/calibrate.quick.toml")?;
            rows = table.remove("rows").and_then(|v| v.as_integer()).map(|n| n as usize);
            layers.put(table);
        }
        Some(other) => bail!("unknown profile `{other}`; known: quick, paper"),
    }
    set.iter().try_for_each(|set| layers.set(set))?;
    let config: StudyConfig = layers.read()?;
    config.validate()?;
    Ok((config, rows))
}

/// Estimators from lists of ids or JSON settings, with blanks or commas between them; all when there is no list. Each is named
/// by its id and the settings that are not the defaults: `sumo k=5`.
///
/// # Errors
/// An unknown estimator, or lists that name none.
fn parse_estimators(lists: &[String]) -> Result<Vec<(String, UncertaintyConfig)>> {
    let mut found = Vec::new();
    for text in lists.iter().flat_map(|list| split_list(list)) {
        let config = parse_estimator(&text)?;
        found.push((estimator_label(&config), config));
    }
    if lists.is_empty() {
        found = UncertaintyConfig::all().into_iter().map(|c| (c.id().to_string(), c)).collect();
    }
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|(name, _)| seen.insert(name.clone()));
    if found.is_empty() {
        bail!("--estimators: wanted at least one, found none; leave it out for all");
    }
    Ok(found)
}

/// An estimator by id, or by its settings as JSON.
///
/// # Errors
/// An unknown id, or settings it does not have.
pub fn parse_estimator(text: &str) -> Result<UncertaintyConfig> {
    match text.starts_with('{') {
        true => serde_json::from_str(text).with_context(|| format!("--estimators {text}")),
        false => Ok(UncertaintyConfig::from_id(text)?),
    }
}

/// An estimator's id, and those of its settings that are not the defaults: `sumo k=5`.
pub(crate) fn estimator_label(config: &UncertaintyConfig) -> String {
    let settings = |of: &UncertaintyConfig| serde_json::to_value(of).unwrap_or_default();
    let usual = UncertaintyConfig::from_id(config.id()).map(|d| settings(&d)).unwrap_or_default();
    let mut label = config.id().to_string();
    for (key, value) in settings(config).as_object().into_iter().flatten() {
        if usual.get(key) != Some(value) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_string);
            label.push_str(&format!(" {key}={value}"));
        }
    }
    label
}

/// Splits a list at blanks and commas, but for those inside of braces: settings as JSON have both.
fn split_list(list: &str) -> Vec<String> {
    let (mut depth, mut found) = (0usize, vec![String::new()]);
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && (c == ',' || c.is_whitespace()) {
            found.push(String::new());
        } else if let Some(last) = found.last_mut() {
            last.push(c);
        }
    }
    found.retain(|text| !text.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimators_stand_between_blanks_or_commas_and_keep_their_own() {
        let json = r#"{"kind":"count", "bits":8}"#;
        assert_eq!(split_list("sumo,aleatoric"), ["sumo", "aleatoric"]);
        assert_eq!(split_list("sumo, aleatoric pairwise,"), ["sumo", "aleatoric", "pairwise"]);
        assert_eq!(split_list(&format!("sumo,{json},loo-kl")), ["sumo", json, "loo-kl"]);
        let nested = r#"{"kind":"sumo","embedding":{"kind":"projection","dim":4}}"#;
        assert_eq!(split_list(&format!("{nested} {json}")), [nested, json]);
        assert_eq!(parse_estimators(&[json.into()]).unwrap()[0].0, "count bits=8");
        assert!(split_list(" , ").is_empty() && parse_estimators(&[" , ".into()]).is_err());
    }

    #[test]
    fn settings_that_make_no_study_are_refused() {
        for (set, word) in [
            ("starts=0", "starts: wanted at least 1"),
            ("model.ensemble.members=0", "model.ensemble.members"),
            ("model.lr=1", "`model.ensemble.lr`"),
            ("rollout.real_ratio=2", "rollout.real_ratio"),
        ] {
            let error = format!("{:#}", study_settings(None, &[set.to_string()]).unwrap_err());
            assert!(error.contains(word) && !error.contains('\n'), "{error}");
        }
        study_settings(Some("quick"), &[]).unwrap();
    }
}
