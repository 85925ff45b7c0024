//! A calibration table for readers.

use offing::calibration::StudyConfig;

use super::table::{CalibrationTable, METRICS};
use crate::Element;
use crate::format::{count, counted};
use crate::plot::{Axis, Plot, Series};

/// One table a dataset and the means; then, for pages alone, figures and the rows behind the numbers.
pub(super) fn elements(table: &CalibrationTable, settings: String) -> (Vec<Element>, Vec<Element>) {
    let mut details = Vec::new();
    if table.has_published() {
        details.extend(METRICS.iter().map(|(metric, sign)| figure(table, metric, sign)));
    }
    let all = table.numbers.results(None);
    let notes: Vec<_> = all.map(|(cell, f)| Element::text(format!("{}: {}", cell.dataset, f.note))).collect();
    if !notes.is_empty() {
        details.push(Element::heading("Rows behind the numbers"));
        details.extend(notes);
    }
    details.extend(Element::section("Settings", Element::Lines("toml", settings)));
    (tables(table), details)
}

fn tables(table: &CalibrationTable) -> Vec<Element> {
    let mut elements = Vec::new();
    let finished = table.finished().len();
    if finished > 1 {
        for (metric, sign) in METRICS {
            let heading = format!("{sign} on every dataset, ours");
            elements.extend(Element::section(heading, Element::Table(table.overview(metric))));
        }
    }
    for dataset in &table.numbers.datasets {
        let seeds = table.numbers.results(Some(dataset)).count();
        let heading = format!("{dataset}: {}", counted(seeds, "seed"));
        elements.extend(Element::section(heading, Element::Table(table.of_dataset(dataset))));
    }
    if finished > 1 {
        let heading = format!("Mean of {finished} datasets");
        elements.extend(Element::section(heading, Element::Table(table.means())));
        let words = "Best: on how many datasets a column has the highest ρ, or the highest ρ or r (the paper's way to count), of \
                     the paper's columns; equals are all counted.";
        elements.push(Element::text(words));
        if let Some(sumo) = table.sumo() {
            let header = ["", "datasets", "rank sums + : −", "Wilcoxon p"];
            let against = Element::table(&header, table.against_sumo());
            elements.extend(Element::section(format!("{} against each, by ρ", sumo.name), against));
            elements.push(Element::text("Two-sided signed-rank test of the datasets' means over seeds."));
        }
    }
    if table.columns.iter().any(|c| c.beyond) {
        let words = "* not in the paper's table; `step` is the rollout step itself, the baseline.";
        elements.push(Element::text(words));
    }
    elements
}

/// Ours over the paper's: points on the line are reproduced.
fn figure(table: &CalibrationTable, metric: &str, sign: &str) -> Element {
    let points = |column: &str| -> Vec<(f64, f64)> {
        let of = |d: &String| {
            let e = table.numbers.get(d, column, metric);
            Some((e.paper?, e.ours?.mean))
        };
        table.numbers.datasets.iter().filter_map(of).collect()
    };
    let mut series = vec![Series::dashed("equal", vec![(0.0, 0.0), (1.0, 1.0)])];
    for head in table.columns.iter().filter(|c| !c.beyond) {
        series.push(Series::scatter(&head.name, points(&head.name)));
    }
    let (x, y) = (Axis::linear(&format!("{sign}, paper")), Axis::linear(&format!("{sign}, ours")));
    let plot = Plot::new(format!("{sign}, ours over the paper's"), x, y, series);
    let caption = "One point for each dataset; on the dashed line both are the same.";
    Element::figure(plot, caption)
}

/// What a reader must know about the study behind the numbers.
pub(super) fn caveats(study: &StudyConfig, rows: Option<usize>, profile: &str) -> Vec<String> {
    let StudyConfig { model, train, .. } = study;
    let rows = rows.map_or("all rows".into(), |n| format!("about {} rows", count(n)));
    let epochs =
        model.ensemble.max_epochs.map_or("as many epochs as help".into(), |n| format!("at most {n} epochs"));
    let seed = match model.seed {
        Some(seed) => format!("all seeds share the model of seed {seed}"),
        None => "every seed trains its own model".into(),
    };
    let size = format!(
        "Profile {profile}: {rows} of each dataset, a model trained for {epochs} ({seed}), a policy trained in it for {} \
         steps.",
        count(train.steps as usize)
    );
    let quick = "It shows how estimators compare, not the paper's own conditions.";
    vec![
        if profile == "quick" { format!("{size} {quick}") } else { size },
        "Numbers are the mean over seeds ± the standard deviation, on all imagined steps, next states as sampled and not \
         clipped; intervals of single seeds are in the .cells.csv."
            .into(),
    ]
}
