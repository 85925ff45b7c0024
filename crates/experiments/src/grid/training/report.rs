//! A table of scores for readers: the scores, each algorithm beside the paper's, learning curves.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::super::Grid;
use super::super::experiment::{AlgorithmColumn, Panel, TrainingGrid};
use super::scores::{Scores, Which};
use super::statistics::{Statistics, profile};
use crate::format::{count, or_dash};
use crate::mean_std::{MeanStd, mean_line};
use crate::plot::{Axis, Plot, Series, level_line};
use crate::report::steps_of;
use crate::{Element, Table};

impl TrainingGrid {
    /// What the terminal shows, too; then what only pages show.
    pub(super) fn elements(
        &self,
        grid: &Grid,
        scores: &Scores,
        statistics: &Statistics,
    ) -> (Vec<Element>, Vec<Element>) {
        let unit = if scores.unit == "score" { "Normalised scores" } else { "Returns" };
        let last = scores.last_beside_data();
        let with_data = last.header.len() > scores.columns.len() + 1;
        let seeds = if scores.seeds == 1 { "one seed".into() } else { format!("{} seeds", scores.seeds) };
        let mut results =
            Element::section(format!("{unit} of the last policies, {seeds}"), Element::Table(last)).to_vec();
        if !scores.silent.is_empty() {
            results.push(Element::text(format!(
                "Without a number: {}. Nothing normalises their returns, or no simulator runs their policies; what is known of \
                 their runs is in the cells' file.",
                scores.silent.join(", ")
            )));
        }
        if with_data {
            results.push(Element::text("The data: what their own episodes reached on average."));
        }
        results.extend(beside(scores));
        results.extend(statistics.elements());
        let chosen = "Chosen by evaluating in the simulator, which offline learning does not have; the paper reports the last.";
        let heading = format!("{unit} of the best policies on the way");
        results.extend(Element::section(heading, Element::text(chosen)));
        results.push(Element::Table(scores.table(Which::Best)));
        if scores.columns.iter().any(|c| c.beyond) {
            results.push(Element::text("* not in the paper's table."));
        }
        let mut details = Vec::new();
        if let Some(figure) = profile(scores) {
            details.extend(Element::section("Performance profiles", figure));
        }
        let curves = self.curves(scores);
        if !curves.is_empty() {
            details.push(Element::heading("Learning curves"));
            details.extend(curves);
        }
        details.push(Element::heading("Each column as a command"));
        for column in &self.columns {
            details.push(Element::text(format!("{}:", column.name)));
            details.push(Element::Code(self.command(grid, column)));
        }
        (results, details)
    }

    /// Learning curves, one figure a dataset and panel.
    fn curves(&self, scores: &Scores) -> Vec<Element> {
        let y = if scores.unit == "score" { "normalised score" } else { "return" };
        let caption = match scores.seeds {
            1 => "One seed.",
            _ => "Mean over seeds; the shade is one standard deviation.",
        };
        let mut elements = Vec::new();
        for dataset in &scores.numbers.datasets {
            let mut plots: Vec<(String, Vec<&AlgorithmColumn>)> = Vec::new();
            for panel in &self.panels {
                let columns = scores.columns.iter().filter(|c| panel.columns.contains(&c.name)).collect();
                plots.push((format!("{dataset}: {}", panel.title), columns));
            }
            if self.panels.is_empty() {
                plots.push((dataset.clone(), scores.columns.iter().collect()));
            }
            for (title, columns) in plots {
                let mut kinds: BTreeMap<Reverse<&str>, Vec<Series>> = BTreeMap::new();
                for (slot, column) in columns.iter().enumerate() {
                    let kind = Reverse(steps_of(column.algorithm()));
                    kinds.entry(kind).or_default().extend(scores.curve(dataset, &column.name, slot));
                }
                kinds.retain(|_, series| !series.is_empty());
                for (Reverse(steps), mut series) in kinds {
                    series.extend(scores.data(dataset).map(|level| level_line(level, &series)));
                    let plot = Plot::new(title.clone(), Axis::linear(steps), Axis::linear(y), series);
                    elements.push(Element::figure(plot, caption));
                }
            }
            for panel in self.panels.iter().filter(|p| !p.at.is_empty()) {
                elements.extend(over_values(scores, dataset, panel, y));
            }
        }
        elements
    }

    /// What a reader must know about the runs behind the numbers.
    pub(super) fn caveats(&self, grid: &Grid) -> Vec<String> {
        let profile = &grid.request.profile;
        let mut rows: Vec<String> = Vec::new();
        let mut steps: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
        for (dataset, column) in grid.datasets.iter().flat_map(|d| self.columns.iter().map(move |c| (d, c))) {
            let Ok((configured, n)) = self.settings(grid, column, dataset) else { continue };
            let n = n.map_or("all rows".into(), |n| format!("about {} rows", count(n)));
            if !rows.contains(&n) {
                rows.push(n);
            }
            let of = steps.entry(configured.algorithm.blocks().train.steps).or_default();
            if !of.contains(&column.name.as_str()) {
                of.push(&column.name);
            }
        }
        let one = steps.len() == 1;
        let words = |(steps, names): (&u64, &Vec<&str>)| match one {
            true => count(*steps as usize),
            false => format!("{} ({})", count(*steps as usize), names.join(", ")),
        };
        let steps: Vec<String> = steps.iter().map(words).collect();
        let mut size =
            format!("Profile {profile}: {} of each dataset, {} steps.", rows.join(" or "), steps.join("; "));
        if profile == "quick" {
            size.push_str(
                " Networks are small, and all seeds of a dataset share one dynamics model (presets/quick.toml), so that seeds \
                 differ less than they would. It tells whether a thing works, not how well it could: the paper trains larger \
                 networks for a million steps.",
            );
        }
        let numbers = match grid.seeds {
            1 => "Numbers are the last evaluation of one run each: nothing tells how far another seed would be.".to_string(),
            2 => "Numbers are the mean of two seeds' last evaluations ± the standard deviation (n − 1), which of two is their \
                  difference divided by √2."
                .into(),
            n => format!("Numbers are the mean of {n} seeds' last evaluations ± the standard deviation (n − 1)."),
        };
        let evaluation =
            "An evaluation is the mean return of several episodes with the policy's mean action.";
        vec![size, format!("{numbers} {evaluation}")]
    }
}

/// Every column with the one it is to beat, and the others alone, beside the paper's numbers; then who won how often.
fn beside(scores: &Scores) -> Vec<Element> {
    let mut elements = Vec::new();
    let head = |name: &str| scores.columns.iter().find(|c| c.name == name);
    let beaten =
        |c: &AlgorithmColumn| scores.columns.iter().any(|other| other.against.as_deref() == Some(&c.name));
    let published =
        |c: &AlgorithmColumn| scores.numbers.datasets.iter().any(|d| scores.paper(d, &c.name).is_some());
    for column in &scores.columns {
        let pair: Vec<&AlgorithmColumn> = match &column.against {
            Some(against) => head(against).into_iter().chain([column]).collect(),
            None if beaten(column) => continue,
            None => vec![column],
        };
        if !pair.iter().any(|c| published(c)) {
            continue;
        }
        let names: Vec<&str> = pair.iter().map(|c| c.name.as_str()).collect();
        let heading = format!("{}, beside the paper", names.join(" and "));
        elements.extend(Element::section(heading, Element::Table(scores.beside_paper(&pair))));
    }
    let share = |(wins, of): (usize, usize)| format!("{wins} of {of}");
    let row = |c: &AlgorithmColumn| {
        let ours = scores.wins(c)?;
        let theirs = or_dash(scores.paper_wins(c), share);
        Some(vec![c.label(), c.against.clone()?, share(ours), theirs])
    };
    let rows: Vec<Vec<String>> = scores.columns.iter().filter_map(row).collect();
    if !rows.is_empty() {
        let table = Table::with_paper(&["", "over", "ours", "paper"], rows);
        elements.extend(Element::section("Wins", Element::Table(table)));
        let words = "On how many of the datasets run here the mean of the last policies is higher, as the paper counts.";
        elements.push(Element::text(words));
    }
    elements
}

/// Last scores over the number that a panel's columns differ in.
fn over_values(scores: &Scores, dataset: &str, panel: &Panel, y: &str) -> Option<Element> {
    let found = |(name, x): (&String, &f64)| Some((*x, scores.mean(dataset, name, Which::Last)?));
    let found: Vec<(f64, MeanStd)> = panel.columns.iter().zip(&panel.at).filter_map(found).collect();
    if found.len() < 2 {
        return None;
    }
    let points = found.iter().map(|(x, m)| (*x, m.mean)).collect();
    let seeds = (panel.columns.iter().zip(&panel.at))
        .flat_map(|(name, x)| scores.values(dataset, name, Which::Last).into_iter().map(move |y| (*x, y)));
    let series = vec![
        Series::line("mean", points).with_band(found.iter().map(|(_, m)| m.band()).collect()),
        Series::scatter("runs", seeds.collect()).in_slot(1),
    ];
    let (title, x) = (format!("{dataset}: last policies"), Axis::linear(&panel.title));
    let plot = Plot::new(title, x, Axis::linear(y), series);
    Some(Element::figure(plot, "One dot a run; the shade is one standard deviation."))
}

impl Scores {
    /// The learning curve of a column, with its spread where there are several seeds.
    fn curve(&self, dataset: &str, column: &str, slot: usize) -> Option<Series> {
        let runs =
            self.numbers.results(Some(dataset)).filter(|(cell, _)| cell.column.as_deref() == Some(column));
        let curves: Vec<Vec<(f64, f64)>> =
            runs.map(|(_, found)| found.curve.iter().map(|(x, y)| (*x as f64, *y)).collect()).collect();
        Some(mean_line(column, &curves)?.in_slot(slot))
    }
}
