//! A calibration table for readers.

use offing::calibration::StudyConfig;

use super::super::cells::{Cell, Outcome};
use super::super::parts::Part;
use super::table::{METRICS, Table};
use crate::plot::{Axis, Plot, Series};
use crate::term;

/// One table a dataset and the means; then, for pages alone, figures and the rows behind the numbers.
pub(crate) fn parts(table: &Table, cells: &[(Cell, Outcome)], settings: String) -> (Vec<Part>, Vec<Part>) {
    let mut more: Vec<Part> = METRICS.iter().filter_map(|(m, sign)| figure(table, m, sign)).collect();
    let note = |(cell, outcome): &(Cell, Outcome)| {
        Some(Part::text(format!("{}: {}", cell.dataset, outcome.found()?.note)))
    };
    let notes: Vec<Part> = cells.iter().filter_map(note).collect();
    if !notes.is_empty() {
        more.push(Part::heading("Rows behind the numbers"));
        more.extend(notes);
    }
    more.push(Part::heading("Settings"));
    more.push(Part::Lines("toml", settings));
    (tables(table, cells), more)
}

fn tables(table: &Table, cells: &[(Cell, Outcome)]) -> Vec<Part> {
    let mut parts = Vec::new();
    let finished = table.finished().len();
    if finished > 1 {
        for (metric, sign) in METRICS {
            let (header, rows) = table.overview(metric);
            parts.push(Part::heading(format!("{sign} on every dataset, ours")));
            parts.push(Part::Table(header, rows));
        }
    }
    for dataset in &table.datasets {
        let done = |(cell, outcome): &&(Cell, Outcome)| cell.dataset == *dataset && outcome.found().is_some();
        let seeds = cells.iter().filter(done).count();
        let seeds = if seeds == 1 { "1 seed".into() } else { format!("{seeds} seeds") };
        parts.push(Part::heading(format!("{dataset}: {seeds}")));
        parts.push(Part::Table(Table::header(""), table.of_dataset(dataset)));
    }
    if finished > 1 {
        let mut header = Table::header("");
        header.extend(Table::WINS.map(String::from));
        parts.push(Part::heading(format!("Mean of {finished} datasets")));
        parts.push(Part::Table(header, table.means()));
        let words = "Best: on how many datasets a column has the highest ρ, or the highest ρ or r (the paper's way to count), of \
                     the paper's columns; equals are all counted.";
        parts.push(Part::text(words));
        if let Some(sumo) = table.sumo() {
            parts.push(Part::heading(format!("{} against each, by ρ", sumo.name)));
            let header = ["", "datasets", "rank sums + : −", "Wilcoxon p"];
            parts.push(Part::table(&header, table.against_sumo()));
            parts.push(Part::text("Two-sided signed-rank test of the datasets' means over seeds."));
        }
    }
    if table.columns.iter().any(|c| c.beyond) {
        let words = "* not in the paper's table; `step` is the rollout step itself, the baseline.";
        parts.push(Part::text(words));
    }
    parts
}

/// Ours over the paper's: points on the line are reproduced.
fn figure(table: &Table, metric: &str, sign: &str) -> Option<Part> {
    if !table.has_published() {
        return None;
    }
    let points = |column: &str| -> Vec<(f64, f64)> {
        let of = |d: &String| {
            let e = table.entry(d, column, metric);
            Some((e.paper?, e.ours?.mean))
        };
        table.datasets.iter().filter_map(of).collect()
    };
    let mut series = vec![Series::dashed("equal", vec![(0.0, 0.0), (1.0, 1.0)])];
    for head in table.columns.iter().filter(|c| !c.beyond) {
        series.push(Series::scatter(&head.name, points(&head.name)));
    }
    let plot = Plot {
        title: format!("{sign}, ours over the paper's"),
        x: Axis::linear(&format!("{sign}, paper")),
        y: Axis::linear(&format!("{sign}, ours")),
        series,
    };
    let caption = "One point for each dataset; on the dashed line both are the same.";
    Some(Part::Figure(Box::new(plot), caption.into()))
}

/// What a reader must know about the study to judge the numbers.
pub(crate) fn circumstances(study: &StudyConfig, rows: Option<usize>, profile: &str) -> Vec<String> {
    let StudyConfig { model, train, .. } = study;
    let rows = rows.map_or("all rows".into(), |n| format!("about {} rows", term::count(n)));
    let epochs =
        model.ensemble.max_epochs.map_or("as many epochs as help".into(), |n| format!("at most {n} epochs"));
    let seed = match model.seed {
        Some(seed) => format!("all seeds share the model of seed {seed}"),
        None => "every seed trains its own model".into(),
    };
    let size = format!(
        "Profile {profile}: {rows} of each dataset, a model trained for {epochs} ({seed}), a policy trained in it for {} \
         steps.",
        term::count(train.steps as usize)
    );
    let quick = "It shows how estimators compare, not the paper's own conditions.";
    vec![
        if profile == "quick" { format!("{size} {quick}") } else { size },
        "Numbers are the mean over seeds ± the standard deviation, on all imagined steps, next states as sampled and not \
         clipped; intervals of single seeds are in the .cells.csv."
            .into(),
    ]
}
