//! A finished grid for readers: the terminal, a Markdown file, one self-contained page.

use super::cells::{Cell, Outcome};
use super::experiment::Experiment;
use super::table::{METRICS, Table};
use crate::page::Page;
use crate::plot::{Axis, Plot, Series};
use crate::term;

/// All that a report tells.
pub(super) struct Report<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) table: &'a Table,
    pub(super) cells: &'a [(Cell, Outcome)],
    /// The command that gives these numbers again.
    pub(super) command: String,
    /// What the profile is and is not, where the data come from, versions, hardware: one sentence each.
    pub(super) circumstances: Vec<String>,
    /// The resolved settings.
    pub(super) settings: String,
}

/// Parts of a report, from top to bottom.
enum Part {
    Heading(String),
    Text(String),
    Code(String),
    Table(Vec<String>, Vec<Vec<String>>),
    Figure(Plot, String),
    Settings(String),
}

impl Report<'_> {
    /// Prints what a user at the terminal wants to see.
    pub(super) fn print(&self) {
        out!("{}", self.experiment.title);
        for part in self.tables() {
            match part {
                Part::Heading(text) => out!("\n{text}"),
                Part::Table(header, rows) => {
                    let header: Vec<&str> = header.iter().map(String::as_str).collect();
                    out!("{}", term::table(&header, rows));
                }
                Part::Text(text) => out!("{text}"),
                Part::Code(_) | Part::Figure(..) | Part::Settings(_) => {}
            }
        }
    }

    pub(super) fn html(&self) -> Page {
        let mut page = Page::new(&self.experiment.title);
        for part in self.parts() {
            match &part {
                Part::Heading(text) => page.heading(text),
                Part::Text(text) => page.text(text),
                Part::Code(text) => page.code(text),
                Part::Table(header, rows) => {
                    let header: Vec<&str> = header.iter().map(String::as_str).collect();
                    page.table(&header, rows);
                }
                Part::Figure(plot, caption) => page.figure(plot, caption),
                Part::Settings(text) => page.pre(text),
            }
        }
        page
    }

    pub(super) fn markdown(&self) -> String {
        let mut out = format!("# {}\n", self.experiment.title);
        for part in self.parts() {
            match part {
                Part::Heading(text) => out.push_str(&format!("\n## {text}\n")),
                Part::Text(text) => out.push_str(&format!("\n{}\n", plain(&text))),
                Part::Code(text) => out.push_str(&format!("\n```console\n$ {text}\n```\n")),
                Part::Table(header, rows) => out.push_str(&format!("\n{}", markdown_table(&header, &rows))),
                Part::Figure(..) => {}
                Part::Settings(text) => out.push_str(&format!("\n```toml\n{}\n```\n", text.trim_end())),
            }
        }
        out
    }

    fn parts(&self) -> Vec<Part> {
        let mut parts = vec![Part::Text(self.experiment.about.clone()), Part::Code(self.command.clone())];
        parts.extend(self.circumstances.iter().cloned().map(Part::Text));
        parts.extend(self.tables());
        parts.extend(METRICS.iter().filter_map(|(metric, sign)| self.figure(metric, sign)));
        let notes: Vec<Part> = (self.cells.iter())
            .filter_map(|(cell, outcome)| match outcome {
                Outcome::Done { note, .. } => Some(Part::Text(format!("{}: {note}", cell.dataset))),
                Outcome::Failed(_) => None,
            })
            .collect();
        if !notes.is_empty() {
            parts.push(Part::Heading("Rows behind the numbers".into()));
            parts.extend(notes);
        }
        parts.push(Part::Heading("Settings".into()));
        parts.push(Part::Settings(self.settings.clone()));
        parts
    }

    /// One table a dataset, the means, the failures.
    fn tables(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        for dataset in &self.table.datasets {
            let seeds = (self.cells.iter())
                .filter(|(cell, outcome)| cell.dataset == *dataset && matches!(outcome, Outcome::Done { .. }))
                .count();
            let seeds = if seeds == 1 { "1 seed".into() } else { format!("{seeds} seeds") };
            parts.push(Part::Heading(format!("{dataset}: {seeds}")));
            parts.push(Part::Table(Table::header(""), self.table.of_dataset(dataset)));
        }
        let finished = self.table.finished().len();
        if finished > 1 {
            let mut header = Table::header("");
            header.extend(["best ρ, ours".into(), "best ρ, paper".into()]);
            parts.push(Part::Heading(format!("Mean of {finished} datasets")));
            parts.push(Part::Table(header, self.table.means()));
            let words = "Best: on how many datasets a column has the highest ρ of the paper's columns.";
            parts.push(Part::Text(words.into()));
        }
        if self.table.columns.iter().any(|c| c.beyond) {
            let words = "* not in the paper's table; `step` is the rollout step itself, the baseline.";
            parts.push(Part::Text(words.into()));
        }
        let failed: Vec<Vec<String>> = (self.cells.iter())
            .filter_map(|(cell, outcome)| match outcome {
                Outcome::Failed(why) => Some(vec![cell.dataset.clone(), cell.seed.to_string(), why.clone()]),
                Outcome::Done { .. } => None,
            })
            .collect();
        if !failed.is_empty() {
            parts.push(Part::Heading(format!("Failed: {} of {} cells", failed.len(), self.cells.len())));
            parts.push(Part::Table(["dataset", "seed", "why"].map(String::from).to_vec(), failed));
        }
        parts
    }

    /// Ours over the paper's: points on the line are reproduced.
    fn figure(&self, metric: &str, sign: &str) -> Option<Part> {
        if !self.table.has_published() {
            return None;
        }
        let points = |column: &str| -> Vec<(f64, f64)> {
            let of = |d: &String| {
                let e = self.table.entry(d, column, metric);
                Some((e.paper?, e.ours?.mean))
            };
            self.table.datasets.iter().filter_map(of).collect()
        };
        let mut series = vec![Series::dashed("equal", vec![(0.0, 0.0), (1.0, 1.0)])];
        for head in self.table.columns.iter().filter(|c| !c.beyond) {
            series.push(Series::scatter(&head.name, points(&head.name)));
        }
        let plot = Plot {
            title: format!("{sign}, ours over the paper's"),
            x: Axis::linear(&format!("{sign}, paper")),
            y: Axis::linear(&format!("{sign}, ours")),
            series,
        };
        Some(Part::Figure(plot, "One point for each dataset; on the dashed line both are the same.".into()))
    }
}

fn markdown_table(header: &[String], rows: &[Vec<String>]) -> String {
    let line =
        |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
    let mut out = line(&mut header.iter().map(|h| plain(h)));
    out.push_str(&line(
        &mut (0..header.len()).map(|i| if i == 0 { "---".into() } else { "---:".to_string() }),
    ));
    rows.iter().for_each(|row| out.push_str(&line(&mut row.iter().map(|cell| plain(cell)))));
    out
}

/// Text without what Markdown would take as a sign.
fn plain(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*").replace('<', "\\<")
}
