//! From finished cells to what a reader gets: tables in the terminal, CSV, Markdown, LaTeX and one page.

use crate::exit::ExitCode;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use offing::data::catalogue::{Located as Place, Origin, GeneratedName};
use offing::home::write_atomic;
use offing_mujoco::{MUJOCO, Physics};

use super::super::bench::commit;
use super::super::doctor::cpu_name;
use super::cells::{Cell, Found, Outcome, cells_csv, curves_csv};
use super::local::quoted;
use super::parts::{Part, Report};
use super::published::Published;
use super::work::{Kind, Work};
use super::{Args, calibration, idea, timing, training};
use crate::context::Context;
use crate::provenance::{By, cores};

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
    made.circumstances.extend(made_by(done, work.alone()));
    made.circumstances.push(machine(args, work));
    made.tables.extend(unfinished(done));
    let mixed = mixed_data(&work.datasets, done, |cell| work.same_data(cell), &args.out());
    made.tables.extend(mixed.iter().map(Part::text));
    made.files.push(("cells.csv", cells_csv(done, work.interval())));
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
    write(&args.tables(work.profile), &work.experiment.name, &report, &made.files)?;
    let all = done.iter().all(|(_, outcome)| outcome.found().is_some());
    Ok(if all && mixed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
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
        Ok(Place::File { origin, .. }) => origin.to_string(),
        Ok(Place::ToGenerate(_)) => Origin::Generated.to_string(),
        // There several times: a name that offing makes.
        Err(_) if GeneratedName::parse(name).is_ok() => Origin::Generated.to_string(),
        Err(_) => "not on this machine".into(),
    };
    let origins: Vec<String> = datasets.iter().map(|d| format!("{d} ({})", origin(d))).collect();
    format!(
        "Datasets: {}. Made sets come from offing's own simulator, by its built-in policies unless they were made with \
         --policies; the paper's come from D4RL.",
        origins.join(", ")
    )
}

/// What ran the cells, where they tell. Times depend on the machine and the threads, other numbers on the program alone.
fn made_by(done: &[(Cell, Outcome)], times: bool) -> Option<String> {
    let found: Vec<&Found> = done.iter().filter_map(|(_, outcome)| outcome.found()).collect();
    let words = |by: &By| match times {
        true => {
            let threads =
                if by.threads == 1 { "one thread".into() } else { format!("{} threads", by.threads) };
            format!("{} on {} with {} cores, {threads} used", by.offing, by.cpu, by.cores)
        }
        false => format!("{} on {}", by.offing, by.cpu),
    };
    let mut all: Vec<String> = found.iter().flat_map(|f| &f.by).map(words).collect();
    let silent = found.iter().filter(|f| f.by.is_empty()).count();
    all.sort_unstable();
    all.dedup();
    let one = all.len() == 1;
    let told = match silent {
        0 => String::new(),
        _ => format!(" {silent} of {} cells do not tell.", found.len()),
    };
    let how = if one { "Cells were run by" } else { "Cells were not all run alike:" };
    (!all.is_empty()).then(|| format!("{how} offing {}.{told}", all.join("; offing ")))
}

/// Datasets whose cells are not of the same transitions, as when a set was made anew on the way: no mean should be over them.
/// `kind` tells cells apart that are meant to differ.
fn mixed_data(
    datasets: &[String],
    done: &[(Cell, Outcome)],
    kind: impl Fn(&Cell) -> String,
    out: &Path,
) -> Vec<String> {
    let mixed = |dataset: &&String| {
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        let of = done.iter().filter(|(cell, _)| cell.dataset == **dataset);
        let told = of.filter_map(|(cell, outcome)| Some((cell, outcome.found()?.data.as_str())));
        let mut told = told.filter(|(_, data)| !data.is_empty());
        told.any(|(cell, data)| *seen.entry(kind(cell)).or_insert(data) != data)
    };
    let words = |dataset: &String| {
        format!(
            "{dataset}: its cells learnt from different transitions, so its numbers do not belong together. Remove the cells of \
             the data you do not mean (told apart by `data` in {}) and run the same command again.",
            out.join("cells/*.json").display()
        )
    };
    datasets.iter().filter(mixed).map(words).collect()
}

/// What made this page, and where.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(dataset: &str, seed: u64, data: &str, threads: usize) -> (Cell, Outcome) {
        let cell = Cell { id: format!("{dataset}{seed}"), column: None, dataset: dataset.into(), seed };
        let by = By { offing: "0.1.0 (abc)".into(), cpu: "a CPU".into(), cores: 8, threads };
        let by = if threads > 0 { vec![by] } else { Vec::new() };
        (cell, Outcome::Done(Found { data: data.into(), by, ..Found::default() }))
    }

    #[test]
    fn cells_of_different_transitions_are_told() {
        let datasets = ["a".to_string(), "b".into()];
        // An older cell does not say what it learnt from.
        let done = [cell("a", 0, "x", 1), cell("a", 1, "x", 1), cell("a", 2, "", 1), cell("b", 0, "y", 1)];
        let alike = |_: &Cell| String::new();
        assert!(mixed_data(&datasets, &done, alike, Path::new("out")).is_empty());
        let done = [cell("a", 0, "x", 1), cell("b", 0, "y", 1), cell("b", 1, "z", 1)];
        let by_seed = |cell: &Cell| cell.seed.to_string();
        assert!(mixed_data(&datasets, &done, by_seed, Path::new("out")).is_empty(), "meant to differ");
        let told = mixed_data(&datasets, &done, alike, Path::new("out"));
        assert!(told.len() == 1 && told[0].starts_with("b: its cells learnt from different"), "{told:?}");
    }

    #[test]
    fn who_ran_the_cells_is_told_with_threads_only_where_they_matter() {
        let done = [cell("a", 0, "", 1), cell("a", 1, "", 4), cell("a", 2, "", 0)];
        let scores = made_by(&done, false).unwrap();
        assert_eq!(scores, "Cells were run by offing 0.1.0 (abc) on a CPU. 1 of 3 cells do not tell.");
        let times = made_by(&done, true).unwrap();
        let alone =
            "Cells were not all run alike: offing 0.1.0 (abc) on a CPU with 8 cores, 4 threads used; offing";
        assert!(times.starts_with(alone) && times.contains("one thread used"), "{times}");
        assert_eq!(made_by(&[cell("a", 0, "", 0)], false), None);
    }
}
