//! The studies that a run directory holds: one file an estimator, named by its settings.
//!
//! An estimator's findings do not depend on which others were studied beside it, so a table finds what another table
//! has worked out already, and adding an estimator costs that estimator alone.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use offing::calibration::{EstimatorResult, Study};
use offing::uncertainty::UncertaintyConfig;

use offing::checksum::short_hash;
use offing::home::write_json;

/// The estimators asked for, each with its study where there is one.
pub(crate) struct StudyCache {
    entries: Vec<CacheEntry>,
}

struct CacheEntry {
    name: String,
    config: UncertaintyConfig,
    file: PathBuf,
    study: Option<Study>,
}

impl StudyCache {
    /// Looks for all of them in a run directory.
    pub(crate) fn find(dir: &Path, estimators: &[(String, UncertaintyConfig)]) -> Result<Self> {
        let entry = |(name, config): &(String, UncertaintyConfig)| -> Result<CacheEntry> {
            let settings = serde_json::to_string(config)?;
            let file = dir.join(format!("study-{}-{}.json", config.id(), short_hash(&settings)));
            let study = match std::fs::read(&file) {
                Err(_) => None,
                // A name does not tell whether the estimator is still the same.
                _ if matches!(config, UncertaintyConfig::Custom(_)) => None,
                Ok(bytes) => Some(serde_json::from_slice(&bytes).with_context(|| {
                    format!("{}: does not read; remove it to study again", file.display())
                })?),
            };
            Ok(CacheEntry { name: name.clone(), config: config.clone(), file, study })
        };
        Ok(Self { entries: estimators.iter().map(entry).collect::<Result<_>>()? })
    }

    /// Those still to be studied.
    pub(crate) fn missing(&self) -> Vec<(String, UncertaintyConfig)> {
        let missing = self.entries.iter().filter(|p| p.study.is_none());
        missing.map(|p| (p.name.clone(), p.config.clone())).collect()
    }

    /// Takes a study of the missing ones apart and keeps each part.
    pub(crate) fn add(&mut self, found: &Study) -> Result<()> {
        for entry in self.entries.iter_mut().filter(|p| p.study.is_none()) {
            let own = |name: &str| name == entry.name;
            let mut study = found.clone();
            study.findings.retain(|f| own(&f.estimator) || f.estimator == STEP);
            study.timings.retain(|t| own(&t.estimator));
            study.scores.retain(|(name, _)| own(name));
            write_json(&entry.file, &serde_json::to_value(&study)?)?;
            entry.study = Some(study);
        }
        Ok(())
    }

    /// All as one study, in the order asked for, under the names asked for.
    pub(crate) fn join(self) -> Study {
        let mut studies = Vec::new();
        for CacheEntry { name, study, .. } in self.entries {
            let mut study: Study = study.expect("all have been found or studied");
            let named = |label: &mut String| {
                if label != STEP {
                    label.clone_from(&name);
                }
            };
            study.findings.iter_mut().for_each(|f| named(&mut f.estimator));
            study.timings.iter_mut().for_each(|t| named(&mut t.estimator));
            study.scores.iter_mut().for_each(|(label, _)| named(label));
            studies.push(study);
        }
        let rest = studies.split_off(1);
        let mut all = studies.pop().expect("at least one estimator was asked for");
        // Each choice of rows has its baseline and then the estimators, as a study of all together would.
        let mut findings: Vec<EstimatorResult> = Vec::new();
        for (at, finding) in all.findings.drain(..).enumerate() {
            let last = finding.estimator != STEP;
            findings.push(finding);
            if last {
                findings.extend(rest.iter().filter_map(|s| s.findings.get(at).cloned()));
            }
        }
        all.findings = findings;
        for study in rest {
            all.timings.extend(study.timings);
            all.scores.extend(study.scores);
        }
        all
    }
}

/// The rollout step, which every study judges beside the estimators.
const STEP: &str = "step";

#[cfg(test)]
mod tests {
    use super::*;
    use offing::calibration::{NextObsKind, RowSubset, Timing};
    use offing::stats::Interval;

    /// A study as `compare_estimators` would give it: each choice of rows with the baseline first.
    fn study(names: &[&str]) -> Study {
        let mut findings = Vec::new();
        for part in [RowSubset::All, RowSubset::Bounded] {
            for (i, name) in [&["step"], names].concat().into_iter().enumerate() {
                let value = name.len() as f64 + f64::from(u8::from(part == RowSubset::All));
                let interval = Interval { value, low: f64::NAN, high: i as f64 };
                let (rho, r) = (interval, interval);
                let (estimator, variant, rows) = (name.to_string(), NextObsKind::Sampled, 3);
                let (rho_within_step, auroc, auprc) = (0.0, 0.5, 0.5);
                findings.push(EstimatorResult {
                    estimator,
                    variant,
                    part,
                    rows,
                    rho,
                    r,
                    rho_within_step,
                    auroc,
                    auprc,
                });
            }
        }
        let timing = |name: &&str| Timing {
            estimator: name.to_string(),
            seconds_per_10k: 1.0,
            max_loo_score: Some(2.0),
            beyond: None,
        };
        Study {
            rows: 4,
            exploded: 0,
            lost: 1,
            clipped: 0,
            simulated: true,
            findings,
            timings: names.iter().map(timing).collect(),
            error: vec![(0, 1.0)],
            scores: names.iter().map(|n| (n.to_string(), vec![n.len() as f64])).collect(),
        }
    }

    fn asked(names: &[(&str, &str)]) -> Vec<(String, UncertaintyConfig)> {
        names.iter().map(|(n, id)| (n.to_string(), UncertaintyConfig::from_id(id).unwrap())).collect()
    }

    fn labels(study: &Study) -> Vec<&str> {
        study.findings.iter().map(|f| f.estimator.as_str()).collect()
    }

    #[test]
    fn studies_in_parts_are_the_study_of_all_and_serve_other_names() {
        let dir = tempfile::tempdir().unwrap();
        let first = asked(&[("sumo", "sumo"), ("pairwise", "pairwise")]);
        let mut cache = StudyCache::find(dir.path(), &first).unwrap();
        assert_eq!(cache.missing(), first);
        let whole = study(&["sumo", "pairwise"]);
        cache.add(&whole).unwrap();
        assert_eq!(serde_json::to_string(&cache.join()).unwrap(), serde_json::to_string(&whole).unwrap());

        // Another table: one of them under another name, one that is new.
        let second = asked(&[("loo-kl", "loo-kl"), ("k=1", "sumo")]);
        let mut cache = StudyCache::find(dir.path(), &second).unwrap();
        assert_eq!(cache.missing(), &second[..1], "what was studied is found");
        cache.add(&study(&["loo-kl"])).unwrap();
        let joined = cache.join();
        assert_eq!(labels(&joined), ["step", "loo-kl", "k=1", "step", "loo-kl", "k=1"]);
        assert_eq!(joined.findings[2].rho.value, 5.0, "sumo's own number");
        let named: Vec<&str> = joined.scores.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(named, ["loo-kl", "k=1"]);
        let again = StudyCache::find(dir.path(), &second).unwrap();
        assert!(again.missing().is_empty());

        let file = std::fs::read_dir(dir.path()).unwrap().flatten().next().unwrap().path();
        std::fs::write(&file, "{").unwrap();
        let all = asked(&[("a", "sumo"), ("b", "loo-kl"), ("c", "pairwise")]);
        let error = StudyCache::find(dir.path(), &all).err().unwrap().to_string();
        assert!(error.contains("remove it to study again"), "{error}");
    }
}
