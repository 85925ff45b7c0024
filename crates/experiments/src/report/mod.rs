//! Runs as one page: how well they went beside the data, learning curves with their spread over seeds, bodies in motion, what
//! the rollouts did, where the time went, how to make them again.

mod labels;
mod charts;
mod overview;
mod theory;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use offing::env::Simulators as _;
use offing::run::{CONFIG, METRICS};

use crate::bars::Bar;
use crate::format::duration;
use crate::replay::ReplayRequest;
use crate::run_record::{LAST_POLICY, POLICIES, RunKind, RunRecord, find_runs};
use crate::table::row;
use crate::{Document, Element, Runtime, Table};
pub(crate) use charts::steps_of;
use labels::{LabelledRun, label_runs};
use overview::Found;
pub use theory::CAVEAT;

/// Several runs, each with a name of its own.
pub struct RunReport {
    runs: Vec<LabelledRun>,
    /// One of them in motion, and its name.
    replay: Option<(String, Element)>,
}

impl RunReport {
    /// All runs at or below these paths, sorted by name and seed.
    ///
    /// # Errors
    /// No run there, or one that cannot be read.
    pub fn find(paths: &[PathBuf]) -> Result<Self> {
        let mut dirs = Vec::new();
        for path in paths {
            dirs.extend(find_runs(path, &[CONFIG, METRICS])?);
        }
        if dirs.is_empty() {
            bail!(
                "no run with a {CONFIG} and a {METRICS} was found; give directories made by `offing train`"
            );
        }
        let mut report = Self::of(&dirs)?;
        report.runs.sort_by(|a, b| (&a.group, a.record.seed).cmp(&(&b.group, b.record.seed)));
        Ok(report)
    }

    /// The runs in these directories, in this order.
    ///
    /// # Errors
    /// A run that cannot be read.
    pub fn of(dirs: &[impl AsRef<Path>]) -> Result<Self> {
        let records = dirs.iter().map(|dir| RunRecord::read(dir.as_ref())).collect::<Result<Vec<_>>>()?;
        Ok(Self { runs: label_runs(records), replay: None })
    }

    /// Whether every run has taken all of its steps.
    pub fn is_finished(&self) -> bool {
        self.runs.iter().all(|run| run.record.is_finished())
    }

    /// Plays the last policy of the run that ended best, for the page. A run that cannot be played is reported in a line and
    /// left out: its numbers are there all the same.
    pub fn add_replay(&mut self, runtime: &Runtime) {
        let playable = |run: &&LabelledRun| match &run.record.kind {
            RunKind::Training { dataset, .. } => {
                let policy = POLICIES.iter().any(|(_, file)| run.record.dir.join(file).is_file());
                policy && runtime.mujoco.task_of(&labels::short(dataset)).is_some()
            }
            _ => false,
        };
        let last = |run: &LabelledRun| Found::of(&run.record).last.unwrap_or(f64::NEG_INFINITY);
        let best = self.runs.iter().filter(playable).max_by(|a, b| last(a).total_cmp(&last(b)));
        let Some(run) = best else { return };
        match ReplayRequest::embedded(runtime, &run.record.dir) {
            Ok(element) => {
                self.replay = Some((format!("{}, seed {}", run.label(), run.record.seed), element))
            }
            Err(error) => runtime.say(&format!("{}: not played: {error:#}", run.record.dir.display())),
        }
    }

    /// Steps, returns, scores and minutes of every run.
    pub fn table(&self) -> Table {
        overview::table(&self.runs)
    }

    /// The terms of the paper's bounds that can be estimated; `None` when there are none.
    pub fn theory_table(&self) -> Option<Table> {
        let of = |run: &LabelledRun| {
            let terms = theory::terms(&run.record);
            terms.into_iter().map(|t| t.row(&run.label(), run.record.seed)).collect::<Vec<_>>()
        };
        let rows: Vec<Vec<String>> = self.runs.iter().flat_map(of).collect();
        (!rows.is_empty()).then(|| Table::new(["run", "seed", "term", "value", "from"], rows))
    }

    /// The page.
    pub fn document(&self) -> Document {
        let mut groups: Vec<&str> = self.runs.iter().map(|run| run.group.as_str()).collect();
        groups.sort_unstable();
        groups.dedup();
        let title = match groups[..] {
            [one] => one.to_string(),
            _ => format!("{} runs", self.runs.len()),
        };
        let mut page = Document::new(title);
        page.intro.push(Element::text(overview::lead(&self.runs)));
        page.results.push(overview::cards(&self.runs));
        page.results.extend(overview::bars(&self.runs));
        page.results.extend(charts::learning_curves(&self.runs));
        if let Some((name, replay)) = &self.replay {
            page.results.extend(Element::section(format!("In motion: {name}"), replay.clone()));
        }
        if self.runs.len() > 1 {
            page.results.extend(Element::section("Run by run", Element::Table(self.table())));
        }
        let mut section = |heading: &str, elements: Vec<Element>| {
            if !elements.is_empty() {
                page.details.push(Element::heading(heading));
                page.details.extend(elements);
            }
        };
        section(
            "Uncertainty: where u sat, what was cut, how long rollouts were",
            charts::uncertainty(&self.runs),
        );
        section("The learner: values, losses, what the model promises", charts::learner(&self.runs));
        if let Some(terms) = self.theory_table() {
            section("Terms of the bounds", vec![Element::text(CAVEAT), Element::Table(terms)]);
        }
        section("Where the time went", self.times());
        section("Commands, versions and settings", self.origins());
        page
    }

    /// Seconds by phase: bars for one run, a table for several.
    fn times(&self) -> Vec<Element> {
        let phases = |run: &LabelledRun| -> Vec<(String, f64)> {
            let times = run.record.times.iter().flat_map(|timer| timer.phases());
            times.map(|(phase, s)| (phase.to_string(), s)).collect()
        };
        if let [run] = &self.runs[..] {
            let bars: Vec<Bar> =
                phases(run).into_iter().map(|(phase, s)| Bar::new(phase, s, duration(s))).collect();
            let caption = "Time by phase; what is not listed is reading data, evaluating and writing.";
            return if bars.is_empty() { Vec::new() } else { vec![Element::Bars(bars, caption.into())] };
        }
        let mut names: Vec<String> = Vec::new();
        for (phase, _) in self.runs.iter().flat_map(phases) {
            if !names.contains(&phase) {
                names.push(phase);
            }
        }
        let of = |run: &LabelledRun| {
            let spent = phases(run);
            let cell = |name: &String| {
                spent.iter().find(|(phase, _)| phase == name).map_or("-".into(), |(_, s)| format!("{s:.1}"))
            };
            row(format!("{} (seed {})", run.label(), run.record.seed), names.iter().map(cell))
        };
        let table = Table::new(row("seconds", names.iter().cloned()), self.runs.iter().map(of));
        if names.is_empty() { Vec::new() } else { vec![Element::Table(table)] }
    }

    /// How to make each run again, and what made it.
    fn origins(&self) -> Vec<Element> {
        let mut elements = Vec::new();
        for run in &self.runs {
            let record = &run.record;
            let config = record.dir.join(CONFIG);
            elements.push(Element::text(format!("{}, seed {}:", run.label(), record.seed)));
            elements.push(Element::Code(format!("offing train --config {}", config.display())));
            for by in &record.provenance {
                elements.push(Element::text(format!(
                    "Made by offing {} on {}, {} of {} cores.",
                    by.offing, by.cpu, by.threads, by.cores
                )));
            }
            let policy = record.dir.join(POLICIES[0].1);
            if policy.is_file() {
                elements.push(Element::text(format!("To use its {LAST_POLICY}:")));
                elements.push(Element::Code(format!(
                    "offing act {} observations.npy actions.npy",
                    policy.display()
                )));
            }
            elements.push(Element::Lines("toml", toml::to_string(&record.config).unwrap_or_default()));
        }
        elements
    }
}

/// Writes the page of one run beside its files.
///
/// # Errors
/// A run that cannot be read.
pub fn write_run_page(dir: &Path) -> Result<()> {
    RunReport::of(&[dir])?.document().write_html(&dir.join("report.html"))
}
