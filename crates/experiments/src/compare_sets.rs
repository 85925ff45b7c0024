//! Two datasets side by side, as tables and as a page.

use offing::data::compare::{
    ColumnComparison, Comparison, Distribution, EpisodeComparison, NeighbourDistances, SetSummary,
};

use crate::bars::Bar;
use crate::format::{count, number};
use crate::plot::{Axis, Plot, Series};
use crate::table::{Table, row};
use crate::{Document, Element};

/// Columns shown at the terminal and in figures; those that differ least stay out.
const SHOWN: usize = 24;
/// Bars of a histogram.
const BARS: usize = 40;
/// Points of a distribution function.
const POINTS: usize = 200;

/// The comparison for readers: what the terminal prints and what the page shows. `command` is how to make it again.
pub fn document(found: &Comparison, command: &str) -> Document {
    let mut page = Document::new(format!("{} beside {}", found.a.name, found.b.name));
    let verdict = found.verdict();
    page.intro = vec![Element::Code(command.into())];
    page.results = vec![Element::text(capitalised(&verdict) + ".")];
    page.results.extend(found.notes.iter().map(|note| Element::text(capitalised(note) + ".")));
    page.results.push(Element::Table(sets(found)));
    page.results.extend(episodes(found));
    page.results.extend(columns(found));
    page.results.extend(neighbours(found));
    if found.columns.len() > SHOWN {
        let all: Vec<&ColumnComparison> = found.columns.iter().collect();
        page.details =
            Element::section("All columns, in their order", Element::Table(column_table(&all))).into();
    }
    page
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn sets(found: &Comparison) -> Table {
    let share = |share: f64| match share {
        0.0 => "0".into(),
        1.0 => "all".into(),
        share => format!("{} %", number(100.0 * share)),
    };
    let of = |set: &SetSummary| {
        let counts = [set.rows, set.episodes, set.terminals, set.timeouts].map(count);
        row(&set.name, counts.into_iter().chain([share(set.in_other), share(set.steps_in_other)]))
    };
    let header =
        ["", "rows", "episodes", "terminals", "timeouts", "rows in the other", "whatever the reward"];
    Table::new(header, [of(&found.a), of(&found.b)])
}

fn episodes(found: &Comparison) -> Vec<Element> {
    let known = [("return", &found.returns), ("length", &found.lengths)];
    let known: Vec<_> = known.into_iter().filter_map(|(what, c)| Some((what, c.as_ref()?))).collect();
    if known.is_empty() {
        return Vec::new();
    }
    let line = |name: String, d: &Distribution| {
        let numbers = [d.mean, d.std].into_iter().chain(d.quantiles).map(number);
        row(name, std::iter::once(count(d.count)).chain(numbers))
    };
    let rows = known.iter().flat_map(|(what, c)| {
        let difference = format!("{} ± {}", number(c.difference), number(c.standard_error));
        let blank = std::iter::repeat_n(String::new(), 6);
        [
            line(format!("{what}, {}", found.a.name), &c.a),
            line(format!("{what}, {}", found.b.name), &c.b),
            row(
                format!("{what}, difference (KS {:.2})", c.ks),
                [String::new(), difference].into_iter().chain(blank),
            ),
        ]
    });
    let header = ["finished episodes", "count", "mean", "sd", "1 %", "25 %", "median", "75 %", "99 %"];
    let mut elements = vec![
        Element::heading("Episodes"),
        Element::Table(Table::new(header, rows)),
        Element::text(
            "The difference is that of the means, with its standard error. KS is the Kolmogorov–Smirnov distance, the largest \
             difference of the distribution functions.",
        ),
    ];
    elements.extend(known.iter().map(|(what, c)| {
        Element::figure(histogram(found, what, c), format!("Share of the finished episodes by {what}."))
    }));
    elements
}

/// Both histograms over the same bars, as outlines with shaded areas.
fn histogram(found: &Comparison, what: &str, c: &EpisodeComparison) -> Plot {
    let low = c.values.iter().filter_map(|v| v.first()).copied().fold(f64::INFINITY, f64::min);
    let high = c.values.iter().filter_map(|v| v.last()).copied().fold(f64::NEG_INFINITY, f64::max);
    let width = if high > low { (high - low) / BARS as f64 } else { 1.0 };
    let series = |name: &str, values: &[f64]| {
        let mut shares = vec![0.0; BARS];
        for value in values {
            let bar = ((value - low) / width) as usize;
            shares[bar.min(BARS - 1)] += 1.0 / values.len() as f64;
        }
        let edge = |i: usize| low + i as f64 * width;
        let steps = shares.iter().enumerate().flat_map(|(i, &s)| [(edge(i), s), (edge(i + 1), s)]);
        let outline: Vec<(f64, f64)> =
            [(edge(0), 0.0)].into_iter().chain(steps).chain([(edge(BARS), 0.0)]).collect();
        let areas = outline.iter().map(|(_, share)| (0.0, *share)).collect();
        Series::line(name, outline).with_band(areas)
    };
    let series = vec![series(&found.a.name, &c.values[0]), series(&found.b.name, &c.values[1])];
    Plot::new(
        format!("{}s", capitalised(what)),
        Axis::linear(what),
        Axis::linear("share of episodes"),
        series,
    )
}

fn columns(found: &Comparison) -> Vec<Element> {
    let mut worst: Vec<&ColumnComparison> = found.columns.iter().collect();
    // What cannot be compared comes first: it is the largest difference of all.
    let size = |c: &ColumnComparison| if c.ks.is_nan() { f64::INFINITY } else { c.ks };
    worst.sort_by(|x, y| size(y).total_cmp(&size(x)));
    let hidden = worst.len().saturating_sub(SHOWN);
    worst.truncate(SHOWN);
    let mut told = format!(
        "Largest differences first. Cells hold {}/{}. The shift is the largest difference at any of the quantiles, in \
         standard deviations of {}. “halves” is the KS distance between two random halves of one set, whole episodes apart: \
         what chance alone makes.",
        found.a.name, found.b.name, found.b.name
    );
    if hidden > 0 {
        told += &format!(" {hidden} columns that differ less are not shown here.");
    }
    vec![
        Element::heading("Columns"),
        Element::Table(column_table(&worst)),
        Element::text(told),
        Element::Bars(
            bars(&worst),
            "KS distance by column. Bars: between the sets, orange where they differ by more than chance. Ticks: between halves of one set.".into(),
        ),
    ]
}

fn bars(columns: &[&ColumnComparison]) -> Vec<Bar> {
    let bar = |c: &&ColumnComparison| Bar {
        tick: (!c.ks_halves.is_nan()).then_some(c.ks_halves),
        slot: usize::from(c.differs()),
        ..Bar::new(&c.column, c.ks, if c.ks.is_nan() { "-".into() } else { format!("{:.3}", c.ks) })
    };
    columns.iter().map(bar).collect()
}

fn column_table(columns: &[&ColumnComparison]) -> Table {
    let distance = |ks: f64| if ks.is_nan() { "-".into() } else { format!("{ks:.3}") };
    let rows = columns.iter().map(|c| {
        let at =
            |set: &Option<Distribution>, i: usize| set.map_or("-".into(), |d| cell(d.quantiles[i], d.std));
        let shift =
            if c.shift.is_finite() { format!("{:+.2}", c.shift).replace('-', "−") } else { "-".into() };
        let quantiles = (0..5).map(|i| format!("{}/{}", at(&c.a, i), at(&c.b, i)));
        row(&c.column, [distance(c.ks), distance(c.ks_halves), shift].into_iter().chain(quantiles))
    });
    Table::new(["column", "KS", "halves", "shift", "1 %", "25 %", "median", "75 %", "99 %"], rows)
}

/// A value with the decimals that its column's spread makes worth reading.
fn cell(value: f64, std: f64) -> String {
    let size = value.abs().max(std);
    match size {
        0.0 => "0".into(),
        1e-3..1e6 => {
            let decimals = (1.0 - std.max(1e-3 * size).log10().floor()).clamp(0.0, 5.0) as usize;
            let text = format!("{value:.decimals$}");
            if text.trim_start_matches('-').bytes().all(|b| b == b'0' || b == b'.') {
                "0".into()
            } else {
                text
            }
        }
        _ => format!("{value:.2e}"),
    }
}

fn neighbours(found: &Comparison) -> Vec<Element> {
    let Some(near) = &found.neighbours else { return Vec::new() };
    let line = |set: &str, other: &str, d: &NeighbourDistances| {
        let of = |name: String, q: &offing::data::compare::DistanceQuantiles, beyond: String| {
            row(name, [q.median, q.p90, q.p99].map(number).into_iter().chain([beyond]))
        };
        let beyond = format!("{:.1} %", 100.0 * d.beyond);
        [
            of(format!("{set} to its own"), &d.own, String::new()),
            of(format!("{set} to {other}"), &d.other, beyond),
        ]
    };
    let (a, b) = (&found.a.name, &found.b.name);
    let rows = [line(a, b, &near.a), line(b, a, &near.b)].concat();
    let told = format!(
        "Distance from {} and {} rows to the nearest of {} rows of each set, between (s, a, s') standardised by {b}. Rows look in \
         other episodes than their own. “far” is the share of rows that lie farther from the other set than 99 % of that set's \
         own rows do; 1 % is chance.",
        count(near.a.rows),
        count(near.b.rows),
        count(near.searched_rows)
    );
    vec![
        Element::heading("Nearest neighbours"),
        Element::Table(Table::new(["distance from a row of", "median", "90 %", "99 %", "far"], rows)),
        Element::text(told),
        Element::figure(
            distances(a, b, [&near.a, &near.b]),
            "Share of the rows whose nearest neighbour is at most so far away. Lines that lie on each other: the sets cover the \
             same ground.",
        ),
    ]
}

fn distances(a: &str, b: &str, near: [&NeighbourDistances; 2]) -> Plot {
    let curve = |values: &[f64]| -> Vec<(f64, f64)> {
        let last = values.len().saturating_sub(1);
        let at = |i: usize| i * last / POINTS;
        (0..=POINTS)
            .filter(|_| !values.is_empty())
            .map(|i| (values[at(i)], i as f64 / POINTS as f64))
            .collect()
    };
    let series = vec![
        Series::line(&format!("{a} to {b}"), curve(&near[0].values[1])).in_slot(0),
        Series::dashed(&format!("{a} to its own"), curve(&near[0].values[0])).in_slot(0),
        Series::line(&format!("{b} to {a}"), curve(&near[1].values[1])).in_slot(1),
        Series::dashed(&format!("{b} to its own"), curve(&near[1].values[0])).in_slot(1),
    ];
    Plot::new("Distance to the nearest row", Axis::log("distance"), Axis::linear("share of rows"), series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use offing::Rng;
    use offing::data::compare::{CompareConfig, compare};
    use offing::data::{Dataset, LogColumns};

    /// Episodes of 20 random steps; the second column is shifted.
    fn log(name: &str, shift: f64, seed: u64) -> Dataset {
        let mut rng = Rng::stream(seed, "log", 0);
        let mut part = |width: usize| {
            ndarray::Array2::from_shape_fn((800, width), |(_, j)| {
                (rng.normal() + shift * (j == 1) as u8 as f64) as f32
            })
        };
        let (obs, act) = (part(30), part(1));
        let columns = LogColumns {
            next_obs: Some(obs.clone()),
            rew: obs.column(0).to_owned(),
            done: (0..800).map(|i| i % 20 == 19).collect(),
            obs,
            act,
            timeout: None,
        };
        Dataset::from_columns(name, columns).unwrap()
    }

    #[test]
    fn a_page_begins_with_the_verdict_and_folds_columns_that_agree() {
        let found = compare(&log("one", 1.0, 0), &log("other", 0.0, 1), &CompareConfig::default()).unwrap();
        let page = document(&found, "offing data audit one --against other");
        let html = page.html();
        for piece in [
            "offing data audit one --against other",
            "column obs[1] differs",
            "KS distance by column",
            "All columns",
        ] {
            assert!(html.contains(piece), "`{piece}` missing in {}", found.verdict());
        }
        let figures = html.matches("<figure class=\"chart\">").count();
        assert_eq!(
            (figures, html.matches("<div class=\"bars\"").count()),
            (3, 1),
            "returns, lengths, neighbours; columns"
        );
        assert!(html.contains("8 columns that differ less"), "{}", found.verdict());
        // The page's code knows the word, too.
        assert!(!["[NaN", ",NaN", ">NaN"].iter().any(|bad| html.contains(bad)));
    }

    #[test]
    fn cells_have_the_digits_that_say_something() {
        let cells = [(1.23456, 0.5), (101_325.0, 300.0), (0.0, 0.0), (-0.000_01, 1.0), (3e-9, 1e-9)];
        assert_eq!(cells.map(|(v, s)| cell(v, s)), ["1.23", "101325", "0", "0", "3.00e-9"]);
    }
}
