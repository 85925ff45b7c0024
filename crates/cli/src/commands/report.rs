//! `offing report`: runs as one page: learning curves with their spread over seeds, last and best scores, what the
//! rollouts did, where the time went.

use crate::exit::ExitCode;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use offing::run::{CONFIG, METRICS, Record, TIMING, read_metrics};
use toml::Table;

use super::bound;
use super::train::DATA_CARD;
use crate::context::Context;
use crate::page::Page;
use crate::plot::{Axis, Plot, Series};
use crate::term;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run directories, or directories with runs somewhere inside.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Where to write the page.
    #[arg(long, default_value = "report.html")]
    out: PathBuf,
}

pub(crate) fn run(_context: &Context, args: &Args) -> Result<ExitCode> {
    let mut found = Vec::new();
    for path in &args.runs {
        find(path, &mut found)?;
    }
    if found.is_empty() {
        bail!("no run with a {CONFIG} and a {METRICS} was found; give directories made by `offing train`");
    }
    tell_apart(&mut found);
    found.sort_by(|a, b| (&a.group, a.seed).cmp(&(&b.group, b.seed)));
    page(&found).write(&args.out)?;
    out!("{}", term::table(&HEADER, found.iter().map(Run::row)));
    let terms = bound_terms(&found);
    if !terms.is_empty() {
        out!("{}", term::text_table(&bound::HEADER, terms));
        out!("{}", bound::CAVEAT);
    }
    out!("{}", args.out.display());
    Ok(ExitCode::SUCCESS)
}

/// Writes one page of several runs.
pub(crate) fn write_page(dirs: &[PathBuf], out: &Path) -> Result<()> {
    let mut runs = dirs.iter().map(|dir| Run::read(dir)).collect::<Result<Vec<Run>>>()?;
    tell_apart(&mut runs);
    page(&runs).write(out)
}

/// The terms of the paper's bounds that can be estimated, a row each.
fn bound_terms(runs: &[Run]) -> Vec<Vec<String>> {
    let of = |run: &Run| {
        let terms = bound::terms(&run.config, &run.records);
        terms.into_iter().map(|t| t.row(&run.label(), run.seed)).collect::<Vec<_>>()
    };
    runs.iter().flat_map(of).collect()
}

/// Writes the page of one run beside its files.
pub(crate) fn write_own(dir: &Path) -> Result<()> {
    let run = Run::read(dir)?;
    page(&[run]).write(&dir.join("report.html"))
}

const HEADER: [&str; 8] = ["run", "seed", "steps", "last return", "best", "last score", "best", "minutes"];

/// A run as read back from its directory.
struct Run {
    dir: PathBuf,
    /// Runs that differ in their seeds alone share a group: one line with its spread.
    group: String,
    seed: u64,
    config: Table,
    records: Vec<Record>,
    timing: Option<serde_json::Value>,
    /// What it learnt from.
    data: Option<serde_json::Value>,
    /// Whether another run has the same group and seed: only the path tells them apart.
    twin: bool,
}

impl Run {
    /// Its name in tables.
    fn label(&self) -> String {
        if self.twin { format!("{} · {}", self.group, self.dir.display()) } else { self.group.clone() }
    }

    fn read(dir: &Path) -> Result<Self> {
        let config = crate::config::read_table(&dir.join(CONFIG))?;
        let text = |key: &str| config.get(key).and_then(|v| v.as_str()).map(str::to_string);
        let group = match (text("algorithm"), text("dataset"), text("task")) {
            (Some(algorithm), Some(dataset), _) => format!("{algorithm} · {}", short(&dataset)),
            (_, _, Some(task)) => format!("online SAC · {task}"),
            _ => dir.display().to_string(),
        };
        let seed = config.get("seed").or_else(|| config.get("collect").and_then(|c| c.get("seed")));
        let seed = seed.and_then(|s| s.as_integer()).unwrap_or(0) as u64;
        let json =
            |name: &str| std::fs::read(dir.join(name)).ok().and_then(|t| serde_json::from_slice(&t).ok());
        let (timing, data) = (json(TIMING), json(DATA_CARD));
        let records = read_metrics(&dir.join(METRICS))?;
        Ok(Self { dir: dir.to_path_buf(), group, seed, config, records, timing, data, twin: false })
    }

    fn values(&self, key: &str) -> Vec<(f64, f64)> {
        let number = |r: &Record, key: &str| r.get(key).and_then(|v| v.as_f64());
        self.records.iter().filter_map(|r| Some((number(r, "step")?, number(r, key)?))).collect()
    }

    fn row(&self) -> Vec<String> {
        let last_and_best = |key: &str| {
            let values = self.values(key);
            let last = values.last().map_or("-".into(), |v| term::number(v.1));
            let best = values.iter().map(|v| v.1).fold(f64::NEG_INFINITY, f64::max);
            (last, if best.is_finite() { term::number(best) } else { "-".into() })
        };
        let (last, best) = last_and_best("return");
        let (last_score, best_score) = last_and_best("score");
        let steps = self.values("step").last().map_or(0, |v| v.0 as usize);
        let seconds = self.timing.as_ref().and_then(|t| t.get("seconds")).and_then(|s| s.as_f64());
        let minutes = seconds.map_or("-".into(), |s| format!("{:.1}", s / 60.0));
        vec![
            self.label(),
            self.seed.to_string(),
            term::count(steps),
            last,
            best,
            last_score,
            best_score,
            minutes,
        ]
    }
}

/// Adds the settings that differ to the names of groups whose runs were made with several.
fn tell_apart(runs: &mut [Run]) {
    let settings: Vec<BTreeMap<String, String>> = runs
        .iter()
        .map(|run| {
            let mut flat = BTreeMap::new();
            run.config.get("settings").into_iter().for_each(|value| flatten("", value, &mut flat));
            for key in ["rows", "physics"] {
                run.config.get(key).into_iter().for_each(|value| flatten(key, value, &mut flat));
            }
            flat
        })
        .collect();
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
    let names: Vec<(String, u64)> = runs.iter().map(|run| (run.group.clone(), run.seed)).collect();
    for (run, name) in runs.iter_mut().zip(&names) {
        run.twin = names.iter().filter(|other| *other == name).count() > 1;
    }
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
fn short(dataset: &str) -> String {
    Path::new(dataset).file_stem().map_or(dataset.into(), |s| s.to_string_lossy().into_owned())
}

/// All runs at or below a path.
fn find(path: &Path, found: &mut Vec<Run>) -> Result<()> {
    if path.join(CONFIG).is_file() && path.join(METRICS).is_file() {
        if !is_study(path) {
            found.push(Run::read(path)?);
        }
        return Ok(());
    }
    let entries = std::fs::read_dir(path)
        .map_err(|e| anyhow::anyhow!("{}: cannot list: {e}; give a run directory", path.display()))?;
    for entry in entries.flatten().filter(|e| e.path().is_dir()) {
        find(&entry.path(), found)?;
    }
    Ok(())
}

/// Whether the directory is one of `offing calibrate`, which also trains a policy: without a rule, for its rollouts alone.
pub(crate) fn is_study(dir: &Path) -> bool {
    crate::config::read_table(&dir.join(CONFIG)).is_ok_and(|config| config.contains_key("study"))
}

fn page(runs: &[Run]) -> Page {
    let mut groups: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    runs.iter().for_each(|run| groups.entry(&run.group).or_default().push(run));
    let title = match groups.keys().collect::<Vec<_>>()[..] {
        [one] => format!("offing: {one}"),
        _ => format!("offing: {} runs", runs.len()),
    };
    let mut page = Page::new(&title);
    page.text(
        "Scores are means over evaluation episodes with the policy's mean action. \"Last\" is the policy at the end; \
         \"best\" is chosen by evaluating in the simulator, which offline learning does not have.",
    );
    page.table(&HEADER, &runs.iter().map(Run::row).collect::<Vec<_>>());
    let scored = runs.iter().any(|r| !r.values("score").is_empty());
    let (key, label) = if scored { ("score", "normalised score") } else { ("return", "return") };
    let charts = charts(&groups);
    curves(
        &mut page,
        &charts,
        key,
        label,
        "Learning curves; the shade is one standard deviation over seeds.",
    );
    for (key, label, caption) in [
        ("u_mean", "mean u", "Uncertainty of imagined steps, mean of the scored ones."),
        ("guarded_share", "share cut", "Share of imagined steps beyond the threshold."),
        ("q", "Q", "The critics' value of the policy's own actions."),
        ("critic_loss", "critic loss", "The critics' squared error."),
        ("cloning_loss", "cloning loss", "The cloning loss."),
    ] {
        if runs.iter().any(|r| !r.series(key).is_empty()) {
            curves(&mut page, &charts, key, label, caption);
        }
    }
    let terms = bound_terms(runs);
    if !terms.is_empty() {
        page.heading("Terms of the bounds");
        page.text(bound::CAVEAT);
        page.table(&bound::HEADER, &terms);
    }
    times(&mut page, runs);
    page.heading("Configurations");
    for run in runs {
        page.code(&format!("offing train --config {}", run.dir.join(CONFIG).display()));
        page.pre(&toml::to_string(&run.config).unwrap_or_default());
    }
    page
}

impl Run {
    /// A metric over the steps; the share of guarded steps is a quotient of two.
    fn series(&self, key: &str) -> Vec<(f64, f64)> {
        if key != "guarded_share" {
            return self.values(key);
        }
        let (guarded, imagined) = (self.values("guarded"), self.values("imagined"));
        let share = guarded.iter().zip(&imagined).map(|(g, i)| (g.0, g.1 / i.1.max(1.0)));
        if guarded.iter().any(|g| g.1 > 0.0) { share.collect() } else { Vec::new() }
    }
}

/// Runs that one plot can show: of one dataset, and with the same kind of steps.
struct Chart<'a> {
    /// What tells it from the other charts; empty when there is one.
    name: String,
    /// What its steps are.
    steps: &'static str,
    /// Groups of runs, with the name to call each here.
    groups: Vec<(String, &'a [&'a Run])>,
}

/// What an algorithm's steps are. MOReL plans: hundreds of iterations, each as long as thousands of gradient steps.
pub(crate) fn steps_of(algorithm: &str) -> &'static str {
    let planned = algorithm.split('+').next() == Some("morel");
    if planned { "iterations of planning" } else { "steps" }
}

/// Puts groups of runs into charts.
fn charts<'a>(groups: &'a BTreeMap<&str, Vec<&'a Run>>) -> Vec<Chart<'a>> {
    let mut sorted: BTreeMap<(String, &'static str), Vec<&'a str>> = BTreeMap::new();
    for (group, runs) in groups {
        let text = |key: &str| runs[0].config.get(key).and_then(|v| v.as_str()).unwrap_or_default();
        sorted.entry((short(text("dataset")), steps_of(text("algorithm")))).or_default().push(group);
    }
    let several = sorted.len() > 1;
    let chart = |((dataset, steps), names): (&(String, &'static str), &Vec<&'a str>)| Chart {
        name: if several { dataset.clone() } else { String::new() },
        steps,
        groups: distinct(names).into_iter().zip(names.iter().map(|name| groups[name].as_slice())).collect(),
    };
    sorted.iter().map(chart).collect()
}

fn curves(page: &mut Page, charts: &[Chart<'_>], key: &str, label: &str, caption: &str) {
    // A name has one colour in all charts.
    let names: BTreeSet<&str> =
        charts.iter().flat_map(|c| c.groups.iter().map(|(name, _)| name.as_str())).collect();
    let slots: Vec<&str> = names.into_iter().collect();
    for chart in charts {
        let mut series = Vec::new();
        for (name, runs) in &chart.groups {
            let mut at: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            for run in *runs {
                run.series(key).iter().for_each(|(x, y)| at.entry(*x as u64).or_default().push(*y));
            }
            let of = |values: &[f64]| {
                let n = values.len() as f64;
                let mean = values.iter().sum::<f64>() / n;
                let spread = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
                (mean, spread.sqrt())
            };
            let points: Vec<(f64, f64)> = at.iter().map(|(x, v)| (*x as f64, of(v).0)).collect();
            if points.is_empty() {
                continue;
            }
            let slot = slots.iter().position(|s| s == name).unwrap_or(0);
            let line = Series::line(name, points).in_slot(slot);
            let band = at.values().map(|v| (of(v).0 - of(v).1, of(v).0 + of(v).1)).collect();
            series.push(if runs.len() > 1 { line.with_band(band) } else { line });
        }
        if !series.is_empty() {
            series.extend(level_of_data(chart, key, &series));
            let title = if chart.name.is_empty() { label.into() } else { format!("{label}: {}", chart.name) };
            page.figure(
                &Plot { title, x: Axis::linear(chart.steps), y: Axis::linear(label), series },
                caption,
            );
        }
    }
}

/// A level line at what the episodes of the data reached, where its runs wrote that down: what a policy has to beat.
fn level_of_data(chart: &Chart<'_>, key: &str, beside: &[Series]) -> Option<Series> {
    let runs = chart.groups.iter().flat_map(|(_, runs)| runs.iter());
    let level = runs.filter_map(|run| run.data.as_ref()?.get(key)?.as_f64()).next()?;
    Some(level_line(level, beside))
}

/// A dashed grey line at `level`, as long as the lines beside it.
pub(crate) fn level_line(level: f64, beside: &[Series]) -> Series {
    const GREY: usize = 4;
    let steps = beside.iter().flat_map(|s| s.points.iter().map(|p| p.0));
    let (first, last) = steps.fold((f64::INFINITY, 0.0f64), |(low, high), x| (low.min(x), high.max(x)));
    Series::dashed("the data's mean", vec![(first, level), (last, level)]).in_slot(GREY)
}

/// What tells names made of parts apart: the parts that are not in all of them; nothing for a single name.
fn distinct(names: &[&str]) -> Vec<String> {
    let parts: Vec<Vec<&str>> = names.iter().map(|name| name.split(" · ").collect()).collect();
    let everywhere = |part: &&str| parts.iter().all(|other| other.contains(part));
    let own = |parts: &Vec<&str>| {
        parts.iter().copied().filter(|part| !everywhere(part)).collect::<Vec<_>>().join(" · ")
    };
    parts.iter().map(own).collect()
}

fn times(page: &mut Page, runs: &[Run]) {
    let mut rows = Vec::new();
    for run in runs {
        let phases = run.timing.as_ref().and_then(|t| t.get("phases")).and_then(|p| p.as_object());
        for (phase, seconds) in phases.into_iter().flatten() {
            let name = format!("{} (seed {})", run.label(), run.seed);
            rows.push(vec![name, phase.clone(), format!("{:.1}", seconds.as_f64().unwrap_or(0.0))]);
        }
    }
    if !rows.is_empty() {
        page.heading("Where the time went");
        page.table(&["run", "phase", "seconds"], &rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(settings: &str) -> Run {
        let config = toml::from_str(&format!("[settings]\n{settings}")).unwrap();
        let (dir, group) = (PathBuf::from("x"), "mopo+sumo · hopper".to_string());
        Run { dir, group, seed: 0, config, records: Vec::new(), timing: None, data: None, twin: false }
    }

    #[test]
    fn a_chart_has_one_dataset_and_one_kind_of_steps() {
        let named = |algorithm: &str, dataset: &str| {
            let config =
                toml::from_str(&format!("algorithm = '{algorithm}'\ndataset = '{dataset}'")).unwrap();
            Run { group: format!("{algorithm} · {dataset}"), config, ..run("") }
        };
        let runs = [
            named("mopo", "hopper"),
            named("morel-sac", "hopper"),
            named("morel+sumo", "hopper"),
            named("mopo", "ant"),
        ];
        let mut groups: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        runs.iter().for_each(|run| groups.entry(&run.group).or_default().push(run));
        let found: Vec<(String, &str, usize)> =
            charts(&groups).into_iter().map(|c| (c.name, c.steps, c.groups.len())).collect();
        let wanted = [("ant", "steps", 1), ("hopper", "iterations of planning", 1), ("hopper", "steps", 2)];
        assert_eq!(found, wanted.map(|(name, steps, groups)| (name.to_string(), steps, groups)));
        assert!(
            charts(&groups).iter().all(|chart| level_of_data(chart, "score", &[]).is_none()),
            "nothing was written down"
        );
        groups.retain(|name, _| name.ends_with("ant"));
        assert_eq!(charts(&groups)[0].name, "", "a single chart needs no name");
    }

    #[test]
    fn what_the_data_reached_is_a_level_line() {
        let one = Run { data: Some(serde_json::json!({ "return": 80.0, "score": 7.3 })), ..run("") };
        let groups = BTreeMap::from([("mopo", vec![&one])]);
        let drawn = [Series::line("mopo", vec![(5.0, 1.0), (50.0, 9.0)])];
        let level = |key: &str| level_of_data(&charts(&groups)[0], key, &drawn).map(|s| s.points);
        assert_eq!(level("score"), Some(vec![(5.0, 7.3), (50.0, 7.3)]));
        assert_eq!(level("return"), Some(vec![(5.0, 80.0), (50.0, 80.0)]));
        assert_eq!(level("q"), None, "the data have no critic");
    }

    #[test]
    fn runs_with_other_settings_are_told_apart_by_them() {
        let penalty = "pessimism = { kind = \"penalize\", lambda = 1.0 }\nrollout.real_ratio = 0.9";
        let ignore = "pessimism = { kind = \"ignore\" }\nrollout.real_ratio = 0.9";
        let mut runs = [run(penalty), run(ignore), run(penalty)];
        tell_apart(&mut runs);
        let groups = runs.map(|r| r.group);
        assert_eq!(groups[0], "mopo+sumo · hopper · pessimism = penalize");
        assert_eq!(groups[1], "mopo+sumo · hopper · pessimism = ignore");
        assert_eq!(groups[0], groups[2]);
        assert_eq!(distinct(&[&groups[0], &groups[1]]), ["pessimism = penalize", "pessimism = ignore"]);
        assert_eq!(distinct(&[&groups[0]]), [""]);
        let mut alike = [run(ignore), run(ignore)];
        tell_apart(&mut alike);
        assert_eq!(alike[0].group, "mopo+sumo · hopper");
        // The same settings and seed twice: the path is all there is.
        alike[1].dir = PathBuf::from("y");
        let labels: Vec<String> = alike.iter().map(|run| run.row()[0].clone()).collect();
        assert_eq!(labels, ["mopo+sumo · hopper · x", "mopo+sumo · hopper · y"]);
        alike[1].seed = 1;
        tell_apart(&mut alike);
        assert_eq!(alike[0].label(), "mopo+sumo · hopper", "seeds tell them apart");
    }
}
