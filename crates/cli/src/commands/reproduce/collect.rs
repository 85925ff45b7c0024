//! From finished cells to what a reader gets: tables in the terminal, CSV, Markdown, LaTeX and one page.

use crate::exit::ExitCode;
use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use offing::data::catalogue::{Found as Place, Origin};
use offing::home::write_atomic;
use offing_mujoco::{MUJOCO, Physics};

use super::super::bench::commit;
use super::super::doctor::cpu_name;
use super::cells::{Cell, Outcome, cells_csv, curves_csv};
use super::local::quoted;
use super::parts::{Part, Report};
use super::published::Published;
use super::work::{Kind, Work};
use super::{Args, calibration, cores, idea, timing, training};
use crate::context::Context;

/// What one kind of grid makes of its cells.
pub(super) struct Made {
    /// Files beside the report, by what follows the name.
    pub(super) files: Vec<(&'static str, String)>,
    /// What the terminal shows, too.
    pub(super) tables: Vec<Part>,
    /// What only pages show.
    pub(super) more: Vec<Part>,
    /// What a reader must know to judge the numbers, a sentence or two each.
    pub(super) circumstances: Vec<String>,
}

/// Makes tables and pages from what is finished.
pub(super) fn collect(
    context: &Context,
    args: &Args,
    work: &Work<'_>,
    done: &[(Cell, Outcome)],
) -> Result<ExitCode> {
    let published = match &work.experiment.paper {
        Some(table) => Published::of(table)?,
        None => Published::default(),
    };
    let mut made = match &work.kind {
        Kind::Calibration { columns, study } => {
            let table = calibration::Table::of(columns, &published, &work.datasets, done);
            let (tables, more) = calibration::parts(&table, done, toml::to_string(study)?);
            let circumstances = calibration::circumstances(study, work.rows, &args.profile);
            Made { files: vec![("csv", table.csv())], tables, more, circumstances }
        }
        Kind::Training { columns, .. } => {
            let scores = training::Scores::of(columns, &published, &work.datasets, done);
            let statistics = training::Statistics::of(&scores);
            let (tables, more) = training::parts(work, &scores, &statistics);
            let files = vec![("csv", scores.csv()), ("statistics.csv", statistics.csv())];
            Made { files, tables, more, circumstances: training::circumstances(work, &args.profile) }
        }
        Kind::Timing { columns, .. } => timing::made(columns, &published, &work.datasets, done),
        Kind::Idea(_) => idea::made(done),
    };
    // A figure of its own data has none of the paper's.
    if !matches!(work.kind, Kind::Idea(_)) {
        made.circumstances.push(origins(context, &work.datasets));
    }
    made.circumstances.extend(work.experiment.notes.iter().cloned());
    made.circumstances.push(machine(args, work));
    made.tables.extend(unfinished(done));
    made.files.push(("cells.csv", cells_csv(done)));
    if done.iter().any(|(_, o)| o.found().is_some_and(|f| !f.curve.is_empty())) {
        made.files.push(("curves.csv", curves_csv(done)));
    }
    let report = Report {
        title: work.experiment.title.clone(),
        about: work.experiment.about.clone(),
        command: command(args, work.seeds),
        circumstances: made.circumstances,
        tables: made.tables,
        more: made.more,
    };
    report.print();
    write(&args.out(), &work.experiment.name, &report, &made.files)?;
    let all = done.iter().all(|(_, outcome)| outcome.found().is_some());
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Which cells have no numbers, and why.
fn unfinished(done: &[(Cell, Outcome)]) -> Vec<Part> {
    let mut parts = Vec::new();
    let failed: Vec<Vec<String>> = (done.iter())
        .filter_map(|(cell, outcome)| match outcome {
            Outcome::Failed(why) => Some(vec![cell.label(), why.clone()]),
            _ => None,
        })
        .collect();
    if !failed.is_empty() {
        parts.push(Part::heading(format!("Failed: {} of {} cells", failed.len(), done.len())));
        parts.push(Part::table(&["cell", "why"], failed));
    }
    let open = |(_, o): &&(Cell, Outcome)| matches!(o, Outcome::Missing | Outcome::Begun(_));
    let open = done.iter().filter(open).count();
    if open > 0 {
        let of = done.len();
        parts.push(Part::text(format!(
            "Not finished yet: {open} of {of} cells; the tables are of the others."
        )));
    }
    parts
}

fn write(out: &Path, name: &str, report: &Report, files: &[(&str, String)]) -> Result<()> {
    std::fs::create_dir_all(out)
        .map_err(|e| anyhow::anyhow!("{}: cannot create: {e}; give another --out", out.display()))?;
    let text = |ending: &str, content: &str| -> Result<()> {
        let path = out.join(format!("{name}.{ending}"));
        Ok(write_atomic(&path, |f| f.write_all(content.as_bytes()))?)
    };
    files.iter().try_for_each(|(ending, content)| text(ending, content))?;
    text("md", &report.markdown())?;
    text("tex", &report.latex())?;
    let page = out.join(format!("{name}.html"));
    report.html().write(&page)?;
    out!("{}", page.display());
    Ok(())
}

/// The command that gives these numbers again: what decides them, and nothing about this machine.
fn command(args: &Args, seeds: u64) -> String {
    let name = args.name.as_deref().unwrap_or_default();
    let name = quoted(name);
    let mut words = vec![format!("offing reproduce {name} --profile {} --seeds {seeds}", args.profile)];
    for (flag, names) in [("--only", &args.only), ("--columns", &args.columns)] {
        if !names.is_empty() {
            words.push(format!("{flag} {}", quoted(&names.join(","))));
        }
    }
    words.extend(args.rows.map(|rows| format!("--rows {rows}")));
    words.extend(args.set.iter().map(|set| format!("--set {}", quoted(set))));
    if args.physics != Physics::default() {
        words.push(format!("--physics {}", args.physics));
    }
    words.join(" ")
}

fn origins(context: &Context, datasets: &[String]) -> String {
    let origin = |name: &String| match context.catalogue.find(name) {
        Ok(Place::File { origin, .. }) => origin,
        // Not there, or there several times: a name that offing makes.
        Ok(Place::ToMake(_)) | Err(_) => Origin::Made,
    };
    let origins: Vec<String> = datasets.iter().map(|d| format!("{d} ({})", origin(d))).collect();
    format!(
        "Datasets: {}. Made sets come from offing's own simulator and built-in policies, the paper's from D4RL.",
        origins.join(", ")
    )
}

/// What made this page, and where. Cells may have run elsewhere and earlier; of what they found only times depend on that.
fn machine(args: &Args, work: &Work<'_>) -> String {
    let made = format!(
        "This page was made by offing {} ({}) on {} with {} cores; physics {}, MuJoCo {}.",
        env!("CARGO_PKG_VERSION"),
        commit(),
        cpu_name(),
        cores(),
        args.physics,
        MUJOCO
    );
    if work.alone() { made } else { format!("{made} Numbers do not depend on the number of threads.") }
}
