//! `offing calibrate`: which estimator knows where the model is wrong, on any dataset.

mod figures;
mod kept;
mod one;
mod summary;

use crate::exit::ExitCode;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use offing::calibration::StudyConfig;
use offing::uncertainty::UncertaintyConfig;
use offing_mujoco::Physics;
use toml::Table;

pub(crate) use one::{Plan, Studied, run_one};
pub(crate) use summary::{Mean, Summary};

use super::data::write_json;
use crate::config::Layers;
use crate::context::Context;

const QUICK: &str = include_str!("../../../../../presets/calibrate.quick.toml");

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A path, a D4RL or Minari id, or the name of a made set.
    dataset: String,
    /// Estimators to compare, by id or as JSON settings such as {"kind":"sumo","k":5}, with blanks or commas between them
    /// [default: all].
    #[arg(long, num_args = 1.., value_name = "ID")]
    estimators: Vec<String>,
    /// How many seeds to study.
    #[arg(long, default_value_t = 5, value_parser = super::bench::positive)]
    seeds: usize,
    /// `quick`: 100,000 rows, a small ensemble, 20,000 policy steps.
    #[arg(long)]
    profile: Option<String>,
    /// Study about so many rows: whole episodes, drawn at random.
    #[arg(long, value_parser = super::bench::positive)]
    rows: Option<usize>,
    /// Override one value, such as --set starts=50 (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Which physics to replay in.
    #[arg(long, default_value_t)]
    physics: Physics,
    /// Where models in training and results are kept; the same command goes on where it stopped.
    #[arg(long, value_name = "DIR", default_value = "runs/calibrate")]
    dir: PathBuf,
    /// Also write all findings as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write all findings as CSV.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write a page with tables and figures.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Settings of a study from profile and overrides, and the rows the profile asks for.
pub(crate) fn settings(profile: Option<&str>, set: &[String]) -> Result<(StudyConfig, Option<usize>)> {
    let mut layers = Layers::of::<StudyConfig>()?;
    let mut rows = None;
    match profile {
        None | Some("paper") => {}
        Some("quick") => {
            let mut table: Table = toml::from_str(QUICK)?;
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

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let (config, rows) = settings(args.profile.as_deref(), &args.set)?;
    let estimators: Vec<(String, UncertaintyConfig)> = match args.estimators.is_empty() {
        true => UncertaintyConfig::all().into_iter().map(|c| (c.id().to_string(), c)).collect(),
        false => {
            let asked = args.estimators.iter().flat_map(|text| apart(text));
            asked.map(|text| named(&text)).collect::<Result<_>>()?
        }
    };
    let mut seen = std::collections::BTreeSet::new();
    let estimators: Vec<_> = estimators.into_iter().filter(|(name, _)| seen.insert(name.clone())).collect();
    if estimators.is_empty() {
        bail!("--estimators: wanted at least one, found none; leave it out for all");
    }
    let mut summary = Summary::new(&args.dataset);
    for seed in 0..args.seeds as u64 {
        let plan = Plan {
            made_rows: None,
            dataset: args.dataset.clone(),
            rows: args.rows.or(rows),
            seed,
            physics: args.physics,
            config: config.clone(),
            estimators: estimators.clone(),
            dir: args.dir.clone(),
        };
        match run_one(context, &plan)? {
            Some(found) => summary.add(seed, found.study),
            None => {
                context.say("stopped; the same command goes on from here");
                return Ok(ExitCode::from(130));
            }
        }
    }
    summary.print();
    if let Some(path) = &args.json {
        write_json(path, &summary.json()?)?;
    }
    if let Some(path) = &args.csv {
        use std::io::Write;
        offing::home::write_atomic(path, |f| f.write_all(summary.csv().as_bytes()))?;
    }
    if let Some(path) = &args.report {
        figures::page(&summary).write(path)?;
        out!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes a list apart at blanks and commas, but for those inside of braces: settings as JSON have both.
fn apart(list: &str) -> Vec<String> {
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

/// An estimator by id, or by its settings as JSON.
fn named(text: &str) -> Result<(String, UncertaintyConfig)> {
    let config = match text.starts_with('{') {
        true => serde_json::from_str(text).with_context(|| format!("--estimators {text}"))?,
        false => UncertaintyConfig::from_id(text)?,
    };
    Ok((super::bench::estimator_label(&config), config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimators_stand_between_blanks_or_commas_and_keep_their_own() {
        let json = r#"{"kind":"count", "bits":8}"#;
        assert_eq!(apart("sumo,aleatoric"), ["sumo", "aleatoric"]);
        assert_eq!(apart("sumo, aleatoric pairwise,"), ["sumo", "aleatoric", "pairwise"]);
        assert_eq!(apart(&format!("sumo,{json},loo-kl")), ["sumo", json, "loo-kl"]);
        let nested = r#"{"kind":"sumo","embedding":{"kind":"projection","dim":4}}"#;
        assert_eq!(apart(&format!("{nested} {json}")), [nested, json]);
        assert_eq!(named(json).unwrap().0, "count bits=8");
        assert!(apart(" , ").is_empty());
    }

    #[test]
    fn settings_that_make_no_study_are_refused() {
        for (set, word) in [
            ("starts=0", "starts: wanted at least 1"),
            ("model.ensemble.members=0", "model.ensemble.members"),
            ("model.lr=1", "`model.ensemble.lr`"),
            ("rollout.real_ratio=2", "rollout.real_ratio"),
        ] {
            let error = format!("{:#}", settings(None, &[set.to_string()]).unwrap_err());
            assert!(error.contains(word) && !error.contains('\n'), "{error}");
        }
        settings(Some("quick"), &[]).unwrap();
    }
}
