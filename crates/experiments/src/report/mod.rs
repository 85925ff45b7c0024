//! Runs as one page: learning curves with their spread over seeds, last and best scores, what the rollouts did, where the
//! time went.

mod charts;
mod labels;
mod theory;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use offing::run::{CONFIG, METRICS};

use crate::format::{count, number, or_dash};
use crate::run_record::{RunRecord, find_runs};
use crate::{Document, Element, Table};
pub(crate) use charts::steps_of;
use labels::{LabelledRun, label_runs};
pub use theory::CAVEAT;

/// Several runs, each with a name of its own.
pub struct RunReport {
    runs: Vec<LabelledRun>,
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
        Ok(Self { runs: label_runs(records) })
    }

    /// Steps, returns, scores and minutes of every run.
    pub fn table(&self) -> Table {
        let header =
            ["run", "seed", "steps", "last return", "last score", "picked", "best", "data's", "minutes"];
        Table::new(header, self.runs.iter().map(overview_row))
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
            [one] => format!("offing: {one}"),
            _ => format!("offing: {} runs", self.runs.len()),
        };
        let mut page = Document::new(title);
        page.intro.push(Element::text(
            "Scores are means over evaluation episodes with the policy's mean action. \"Last\" is the policy at the end; \
             \"picked\" has the highest return in the run's own model, of all that were evaluated; \"best\" is chosen by \
             evaluating in the simulator, which offline learning does not have.",
        ));
        page.results.push(Element::Table(self.table()));
        page.results.extend(charts::figures(&self.runs));
        if let Some(terms) = self.theory_table() {
            page.results.extend(Element::section("Terms of the bounds", Element::text(CAVEAT)));
            page.results.push(Element::Table(terms));
        }
        if let Some(times) = self.times() {
            page.details.extend(Element::section("Where the time went", Element::Table(times)));
        }
        page.details.push(Element::heading("Configurations"));
        for LabelledRun { record, .. } in &self.runs {
            let config = record.dir.join(CONFIG);
            page.details.push(Element::Code(format!("offing train --config {}", config.display())));
            page.details.push(Element::Lines("toml", toml::to_string(&record.config).unwrap_or_default()));
        }
        page
    }

    fn times(&self) -> Option<Table> {
        let of = |run: &LabelledRun| {
            let name = format!("{} (seed {})", run.label(), run.record.seed);
            let times = run.record.times.iter().flat_map(|timer| timer.phases());
            times.map(|(phase, s)| vec![name.clone(), phase.into(), format!("{s:.1}")]).collect::<Vec<_>>()
        };
        let rows: Vec<Vec<String>> = self.runs.iter().flat_map(of).collect();
        (!rows.is_empty()).then(|| Table::new(["run", "phase", "seconds"], rows))
    }
}

/// Writes the page of one run beside its files.
///
/// # Errors
/// A run that cannot be read.
pub fn write_run_page(dir: &Path) -> Result<()> {
    RunReport::of(&[dir])?.document().write_html(&dir.join("report.html"))
}

fn overview_row(run: &LabelledRun) -> Vec<String> {
    let record = &run.record;
    let mut row =
        vec![run.label(), record.seed.to_string(), count(record.last("step").unwrap_or(0.0) as usize)];
    let scores = record.series("score");
    // Where there are no scores, returns stand for them.
    let values = if scores.is_empty() { record.series("return") } else { scores };
    let best = values.iter().map(|v| v.1).max_by(f64::total_cmp).filter(|best| best.is_finite());
    let step = record.last("picked_step");
    let picked = values.iter().find(|v| Some(v.0) == step);
    row.push(or_dash(record.last("return"), number));
    row.push(or_dash(record.last("score"), number));
    row.push(or_dash(picked, |v| number(v.1)));
    row.push(or_dash(best, number));
    row.push(or_dash(record.data.as_ref().and_then(|data| data.score.or(data.mean_return)), number));
    row.push(or_dash(record.times.as_ref(), |timer| format!("{:.1}", timer.elapsed() / 60.0)));
    row
}
