//! A document for readers: built once from its elements, written as an HTML page, as Markdown or as LaTeX tables.

mod html;
mod latex;
mod markdown;

use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use offing::home::write_atomic;

use crate::bars::Bar;
use crate::plot::Plot;
use crate::table::Table;

/// What a reader gets, from top to bottom.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// Its first line.
    pub title: String,
    /// What it is about, how to make it again, what to know before reading.
    pub intro: Vec<Element>,
    /// What was found; the terminal shows it too, but for figures.
    pub results: Vec<Element>,
    /// What only pages show.
    pub details: Vec<Element>,
    /// Seconds after which a page reloads itself, while what it shows is still being made.
    pub refresh: Option<u64>,
}

/// One figure of an overview: what it is, its value, and a few words below.
#[derive(Clone, Debug)]
pub struct Card {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) note: String,
    /// Whether it is what the page is about.
    pub(crate) main: bool,
}

impl Card {
    pub(crate) fn new(name: impl Into<String>, value: impl Into<String>, note: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into(), note: note.into(), main: false }
    }
}

/// One piece of a document.
#[derive(Clone, Debug)]
pub enum Element {
    /// A heading below the title.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A line of code: a command, a path.
    Code(String),
    /// A table.
    Table(Table),
    /// Figures of an overview.
    Cards(Vec<Card>),
    /// Values beside each other as bars, and a caption.
    Bars(Vec<Bar>, String),
    /// A plot and its caption.
    Figure(Box<Plot>, String),
    /// A figure that is an SVG element already, and its caption.
    Drawing(String, String),
    /// Bodies in motion.
    Replay {
        /// What the page's script plays.
        json: String,
        /// Whether it begins by itself.
        autoplay: bool,
    },
    /// Lines as they are, with the name of their language: a configuration.
    Lines(&'static str, String),
}

impl Element {
    pub(crate) fn heading(text: impl Into<String>) -> Self {
        Self::Heading(text.into())
    }

    /// A heading and what stands below it.
    pub(crate) fn section(heading: impl Into<String>, content: Self) -> [Self; 2] {
        [Self::heading(heading), content]
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> Self {
        Self::Table(Table::new(header.iter().copied(), rows))
    }

    pub(crate) fn figure(plot: Plot, caption: impl Into<String>) -> Self {
        Self::Figure(Box::new(plot), caption.into())
    }
}

impl Document {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Everything, from top to bottom.
    fn elements(&self) -> impl Iterator<Item = &Element> {
        self.intro.iter().chain(&self.results).chain(&self.details)
    }

    /// Writes the page, whole or not at all.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write_html(&self, path: &Path) -> Result<()> {
        Ok(write_atomic(path, |file| file.write_all(self.html().as_bytes()))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_a_format_are_kept_out_of_its_text() {
        let document = Document {
            title: "t".into(),
            intro: vec![
                Element::text("a <b>"),
                Element::Code("offing reproduce t".into()),
                Element::text("c"),
            ],
            results: vec![
                Element::heading("ρ of 50 %"),
                Element::table(&["", "k_1"], vec![vec!["step*".into(), "1.0 ± 0.5".into()]]),
            ],
            details: vec![
                Element::heading("Curves"),
                Element::Drawing("<svg/>".into(), "c".into()),
                Element::heading("Settings"),
                Element::Lines("toml", "x = 1\n".into()),
            ],
            refresh: None,
        };
        let markdown = document.markdown();
        let start = "# t\n\na \\<b>\n\n```console\n$ offing reproduce t\n```\n\nc\n\n## ρ of 50 %\n";
        assert!(markdown.starts_with(start) && markdown.contains("| step\\* | 1.0 ± 0.5 |\n"), "{markdown}");
        assert!(
            markdown.contains("## Curves\n\nFigures: in the page.\n\n## Settings\n\n```toml"),
            "{markdown}"
        );
        let latex = document.latex();
        for piece in [
            "% t: offing reproduce t\n",
            "\\caption{$\\rho$ of 50 \\%}",
            "\\begin{tabular}{lr}",
            " & k\\_1 \\\\",
            "1.0 $\\pm$ 0.5",
        ] {
            assert!(latex.contains(piece), "`{piece}` missing in {latex}");
        }
        assert!(document.html().contains("x = 1"));
    }
}
