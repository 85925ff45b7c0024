//! A document as Markdown.

use super::{Document, Element};
use crate::Table;

impl Document {
    /// The document as Markdown; figures are in the page alone.
    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n", self.title);
        let elements: Vec<&Element> = self.elements().collect();
        for (i, element) in elements.iter().enumerate() {
            match element {
                Element::Heading(text) => {
                    out.push_str(&format!("\n## {}\n", plain(text)));
                    if only_figures(&elements[i + 1..]) {
                        out.push_str("\nFigures: in the page.\n");
                    }
                }
                Element::Text(text) => out.push_str(&format!("\n{}\n", plain(text))),
                Element::Code(text) => out.push_str(&format!("\n```console\n$ {text}\n```\n")),
                Element::Table(table) => out.push_str(&format!("\n{}", markdown_table(table))),
                Element::Figure(..)
                | Element::Drawing(..)
                | Element::Cards(_)
                | Element::Bars(..)
                | Element::Replay { .. } => {}
                Element::Lines(language, text) => {
                    out.push_str(&format!("\n```{language}\n{}\n```\n", text.trim_end()));
                }
            }
        }
        out
    }
}

/// Whether figures are all that comes before the next heading.
fn only_figures(elements: &[&Element]) -> bool {
    let mut section = elements.iter().take_while(|b| !matches!(b, Element::Heading(_))).peekable();
    section.peek().is_some() && section.all(|b| matches!(b, Element::Figure(..) | Element::Drawing(..)))
}

fn markdown_table(table: &Table) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let text = |cells: &[String]| line(&cells.iter().map(|cell| plain(cell)).collect::<Vec<_>>());
    let mut rule = vec!["---:".to_string(); table.header.len()];
    rule[0] = "---".into();
    let rows: String = table.rows.iter().map(|row| text(row)).collect();
    text(&table.header) + &line(&rule) + &rows
}

/// Text without what Markdown would take as a sign.
fn plain(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*").replace('<', "\\<")
}
