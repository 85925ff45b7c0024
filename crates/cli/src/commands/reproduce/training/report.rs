//! A table of scores for readers: the scores, each algorithm beside the paper's, learning curves.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::super::super::calibrate::Mean;
use super::super::super::report::{level_line, steps_of};
use super::super::experiment::Panel;
use super::super::parts::Part;
use super::super::work::{Kind, Work};
use super::statistics::{Statistics, profile};
use super::table::{Head, Run, Scores, Which};
use crate::plot::{Axis, Plot, Series};
use crate::term;

/// What the terminal shows, too; then what only pages show.
pub(crate) fn parts(work: &Work<'_>, scores: &Scores, statistics: &Statistics) -> (Vec<Part>, Vec<Part>) {
    let names: Vec<String> = scores.columns.iter().map(Head::label).collect();
    let header = || [String::new()].into_iter().chain(names.iter().cloned()).collect::<Vec<String>>();
    let unit = if scores.unit == "score" { "Normalised scores" } else { "Returns" };
    let (last_header, last) = scores.last_beside_data();
    let told = last_header.len() > names.len() + 1;
    let seeds = if scores.seeds == 1 { "one seed".into() } else { format!("{} seeds", scores.seeds) };
    let mut parts =
        vec![Part::heading(format!("{unit} of the last policies, {seeds}")), Part::Table(last_header, last)];
    if !scores.silent.is_empty() {
        parts.push(Part::text(format!(
            "Without a number: {}. Nothing normalises their returns, or no simulator runs their policies; what is known of \
             their runs is in the cells' file.",
            scores.silent.join(", ")
        )));
    }
    if told {
        parts.push(Part::text("The data: what their own episodes reached on average."));
    }
    parts.extend(beside(scores));
    parts.extend(statistics.parts());
    parts.push(Part::heading(format!("{unit} of the best policies on the way")));
    parts.push(Part::text(
        "Chosen by evaluating in the simulator, which offline learning does not have; the paper reports the last.",
    ));
    parts.push(Part::Table(header(), scores.rows(Which::Best)));
    if scores.columns.iter().any(|c| c.beyond) {
        parts.push(Part::text("* not in the paper's table."));
    }
    let mut more = Vec::new();
    if let Some(figure) = profile(scores) {
        more.extend([Part::heading("Performance profiles"), figure]);
    }
    let curves = curves(work, scores);
    if !curves.is_empty() {
        more.push(Part::heading("Learning curves"));
        more.extend(curves);
    }
    more.push(Part::heading("Each column as a command"));
    if let Kind::Training { columns, .. } = &work.kind {
        for column in columns {
            more.push(Part::text(format!("{}:", column.name)));
            more.push(Part::Code(super::command(work, column)));
        }
    }
    (parts, more)
}

/// Every column with the one it is to beat, and the others alone, beside the paper's numbers; then who won how often.
fn beside(scores: &Scores) -> Vec<Part> {
    let mut parts = Vec::new();
    let head = |name: &str| scores.columns.iter().find(|c| c.name == name);
    let beaten = |c: &Head| scores.columns.iter().any(|other| other.against.as_deref() == Some(&c.name));
    let published = |c: &Head| scores.datasets.iter().any(|d| scores.paper(d, &c.name).is_some());
    for column in &scores.columns {
        let pair: Vec<&Head> = match &column.against {
            Some(against) => head(against).into_iter().chain([column]).collect(),
            None if beaten(column) => continue,
            None => vec![column],
        };
        if !pair.iter().any(|c| published(c)) {
            continue;
        }
        let names: Vec<&str> = pair.iter().map(|c| c.name.as_str()).collect();
        parts.push(Part::heading(format!("{}, beside the paper", names.join(" and "))));
        parts.push(Part::Table(Scores::beside_header(&pair), scores.beside(&pair)));
    }
    let count = |(wins, of): (usize, usize)| format!("{wins} of {of}");
    let row = |c: &Head| {
        let ours = scores.wins(c)?;
        let theirs = scores.paper_wins(c).map_or("-".into(), count);
        Some(vec![c.label(), c.against.clone()?, count(ours), theirs])
    };
    let rows: Vec<Vec<String>> = scores.columns.iter().filter_map(row).collect();
    if !rows.is_empty() {
        parts.push(Part::heading("Wins"));
        parts.push(Part::table_with_paper(&["", "over", "ours", "paper"], rows));
        let words = "On how many of the datasets run here the mean of the last policies is higher, as the paper counts.";
        parts.push(Part::text(words));
    }
    parts
}

/// Learning curves, one figure a dataset and panel.
fn curves(work: &Work<'_>, scores: &Scores) -> Vec<Part> {
    let Kind::Training { panels, .. } = &work.kind else { return Vec::new() };
    let y = if scores.unit == "score" { "normalised score" } else { "return" };
    let mut parts = Vec::new();
    for dataset in &scores.datasets {
        let mut plots: Vec<(String, Vec<&Head>)> = Vec::new();
        for panel in *panels {
            let columns = scores.columns.iter().filter(|c| panel.columns.contains(&c.name)).collect();
            plots.push((format!("{dataset}: {}", panel.title), columns));
        }
        if panels.is_empty() {
            plots.push((dataset.clone(), scores.columns.iter().collect()));
        }
        for (title, columns) in plots {
            let mut kinds: BTreeMap<Reverse<&str>, Vec<Series>> = BTreeMap::new();
            for (slot, column) in columns.iter().enumerate() {
                let kind = Reverse(steps_of(work.algorithm(&column.name)));
                kinds.entry(kind).or_default().extend(curve(scores, dataset, column, slot));
            }
            kinds.retain(|_, series| !series.is_empty());
            for (Reverse(steps), mut series) in kinds {
                series.extend(scores.data(dataset).map(|level| level_line(level, &series)));
                let title = title.clone();
                let plot = Plot { title, x: Axis::linear(steps), y: Axis::linear(y), series };
                let caption = match scores.seeds {
                    1 => "One seed.",
                    _ => "Mean over seeds; the shade is one standard deviation.",
                };
                parts.push(Part::Figure(Box::new(plot), caption.into()));
            }
        }
        for panel in panels.iter().filter(|p| !p.at.is_empty()) {
            parts.extend(over_values(scores, dataset, panel, y));
        }
    }
    parts
}

/// Last scores over the number that a panel's columns differ in.
fn over_values(scores: &Scores, dataset: &str, panel: &Panel, y: &str) -> Option<Part> {
    let found = |(name, x): (&String, &f64)| Some((*x, scores.mean(dataset, name, Which::Last)?));
    let found: Vec<(f64, Mean)> = panel.columns.iter().zip(&panel.at).filter_map(found).collect();
    if found.len() < 2 {
        return None;
    }
    let points = found.iter().map(|(x, m)| (*x, m.mean)).collect();
    let seeds = (panel.columns.iter().zip(&panel.at))
        .flat_map(|(name, x)| scores.values(dataset, name, Which::Last).into_iter().map(move |y| (*x, y)));
    let plot = Plot {
        title: format!("{dataset}: last policies"),
        x: Axis::linear(&panel.title),
        y: Axis::linear(y),
        series: vec![
            Series::line("mean", points)
                .with_band(found.iter().map(|(_, m)| (m.mean - m.std, m.mean + m.std)).collect()),
            Series::scatter("runs", seeds.collect()).in_slot(1),
        ],
    };
    Some(Part::Figure(Box::new(plot), "One dot a run; the shade is one standard deviation.".into()))
}

fn curve(scores: &Scores, dataset: &str, column: &Head, slot: usize) -> Option<Series> {
    let runs: Vec<&Run> =
        scores.runs.iter().filter(|r| r.dataset == dataset && r.column == column.name).collect();
    let mut at: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for run in &runs {
        run.curve.iter().for_each(|(x, y)| at.entry(*x).or_default().push(*y));
    }
    let of = |values: &[f64]| {
        let mean = Mean::of(values);
        (mean.mean, mean.std)
    };
    let points: Vec<(f64, f64)> = at.iter().map(|(x, v)| (*x as f64, of(v).0)).collect();
    let band = at.values().map(|v| (of(v).0 - of(v).1, of(v).0 + of(v).1)).collect();
    let line = Series::line(&column.name, points).in_slot(slot);
    match (at.is_empty(), runs.len() > 1) {
        (true, _) => None,
        (false, true) => Some(line.with_band(band)),
        (false, false) => Some(line),
    }
}

/// What a reader must know about the runs to judge the numbers.
pub(crate) fn circumstances(work: &Work<'_>, profile: &str) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let mut steps: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    if let Kind::Training { columns, .. } = &work.kind {
        for (dataset, column) in work.datasets.iter().flat_map(|d| columns.iter().map(move |c| (d, c))) {
            let Ok((plan, n)) = super::plan(work, column, dataset) else { continue };
            let n = n.map_or("all rows".into(), |n| format!("about {} rows", term::count(n)));
            if !rows.contains(&n) {
                rows.push(n);
            }
            let of = steps.entry(plan.train().steps).or_default();
            if !of.contains(&column.name.as_str()) {
                of.push(&column.name);
            }
        }
    }
    let of = |(steps, names): (&u64, &Vec<&str>)| {
        format!("{} ({})", term::count(*steps as usize), names.join(", "))
    };
    let steps: Vec<String> = match steps.len() {
        1 => steps.keys().map(|n| term::count(*n as usize)).collect(),
        _ => steps.iter().map(of).collect(),
    };
    let mut size =
        format!("Profile {profile}: {} of each dataset, {} steps.", rows.join(" or "), steps.join("; "));
    if profile == "quick" {
        size.push_str(
            " Networks are small, and all seeds of a dataset share one dynamics model (presets/quick.toml), so that seeds \
             differ less than they would. It tells whether a thing works, not how well it could: the paper trains larger \
             networks for a million steps.",
        );
    }
    let numbers = match work.seeds {
        1 => "Numbers are the last evaluation of one run each: nothing tells how far another seed would be.".to_string(),
        2 => "Numbers are the mean of two seeds' last evaluations ± the standard deviation (n − 1), which of two is their \
              difference divided by √2."
            .into(),
        n => format!("Numbers are the mean of {n} seeds' last evaluations ± the standard deviation (n − 1)."),
    };
    let evaluation = "An evaluation is the mean return of several episodes with the policy's mean action.";
    vec![size, format!("{numbers} {evaluation}")]
}
