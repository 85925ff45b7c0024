//! A finished grid for readers: the terminal, a Markdown file, LaTeX, one self-contained page.

use crate::page::Page;
use crate::plot::Plot;
use crate::term;

/// All that a report tells.
pub(super) struct Report {
    pub(super) title: String,
    pub(super) about: String,
    /// The command that gives these numbers again.
    pub(super) command: String,
    /// What the profile is and is not, where the data come from, versions, hardware: one sentence each.
    pub(super) circumstances: Vec<String>,
    /// What the experiment found; all of it is also for the terminal, but for figures.
    pub(super) tables: Vec<Part>,
    /// What only pages show.
    pub(super) more: Vec<Part>,
}

/// Parts of a report, from top to bottom.
pub(super) enum Part {
    Heading(String),
    Text(String),
    Code(String),
    Table(Vec<String>, Vec<Vec<String>>),
    Figure(Box<Plot>, String),
    /// A figure that is an SVG element already.
    Drawing(String, String),
    /// Lines as they are, with the name of their language.
    Lines(&'static str, String),
}

impl Part {
    pub(super) fn heading(text: impl Into<String>) -> Self {
        Self::Heading(text.into())
    }

    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) -> Self {
        Self::Table(header.iter().map(|h| (*h).to_string()).collect(), rows)
    }

    /// A table whose last column is the paper's; without it where the paper has none of these numbers.
    pub(super) fn table_with_paper(header: &[&str], mut rows: Vec<Vec<String>>) -> Self {
        let known = rows.iter().any(|row| row.last().is_some_and(|cell| cell != "-"));
        let keep = header.len() - usize::from(!known);
        rows.iter_mut().for_each(|row| row.truncate(keep));
        Self::table(&header[..keep], rows)
    }
}

impl Report {
    /// Prints what a user at the terminal wants to see.
    pub(super) fn print(&self) {
        out!("{}", self.title);
        for part in &self.tables {
            match part {
                Part::Heading(text) => out!("\n{text}"),
                Part::Table(header, rows) => {
                    let header: Vec<&str> = header.iter().map(String::as_str).collect();
                    let bands: Vec<String> =
                        term::wide_table(&header, rows).iter().map(ToString::to_string).collect();
                    out!("{}", bands.join("\n\n"));
                }
                Part::Text(text) | Part::Code(text) | Part::Lines(_, text) => out!("{text}"),
                Part::Figure(..) | Part::Drawing(..) => {}
            }
        }
    }

    /// Everything, from top to bottom.
    fn parts(&self) -> Vec<&Part> {
        self.tables.iter().chain(&self.more).collect()
    }

    pub(super) fn html(&self) -> Page {
        let mut page = Page::new(&self.title);
        page.text(&self.about);
        page.code(&self.command);
        self.circumstances.iter().for_each(|text| page.text(text));
        for part in self.parts() {
            match part {
                Part::Heading(text) => page.heading(text),
                Part::Text(text) => page.text(text),
                Part::Code(text) => page.code(text),
                Part::Table(header, rows) => {
                    let header: Vec<&str> = header.iter().map(String::as_str).collect();
                    page.table(&header, rows);
                }
                Part::Figure(plot, caption) => page.figure(plot, caption),
                Part::Drawing(svg, caption) => page.drawing(svg, caption),
                Part::Lines(_, text) => page.pre(text),
            }
        }
        page
    }

    pub(super) fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n{}\n\n", self.title, plain(&self.about));
        out.push_str(&format!("```console\n$ {}\n```\n", self.command));
        self.circumstances.iter().for_each(|text| out.push_str(&format!("\n{}\n", plain(text))));
        let parts = self.parts();
        for (i, part) in parts.iter().enumerate() {
            match part {
                // Figures are in the page alone.
                Part::Heading(text) if only_figures(&parts[i + 1..]) => {
                    out.push_str(&format!("\n## {}\n\nFigures: in the page.\n", plain(text)));
                }
                Part::Heading(text) => out.push_str(&format!("\n## {}\n", plain(text))),
                Part::Text(text) => out.push_str(&format!("\n{}\n", plain(text))),
                Part::Code(text) => out.push_str(&format!("\n```console\n$ {text}\n```\n")),
                Part::Table(header, rows) => out.push_str(&format!("\n{}", markdown_table(header, rows))),
                Part::Figure(..) | Part::Drawing(..) => {}
                Part::Lines(language, text) => {
                    out.push_str(&format!("\n```{language}\n{}\n```\n", text.trim_end()));
                }
            }
        }
        out
    }

    /// The tables for a paper; needs the package booktabs.
    pub(super) fn latex(&self) -> String {
        let mut out = format!("% {}: {}\n", self.title, self.command);
        let mut caption = String::new();
        for part in &self.tables {
            match part {
                Part::Heading(text) => caption.clone_from(text),
                Part::Table(header, rows) => out.push_str(&latex_table(&caption, header, rows)),
                _ => {}
            }
        }
        out
    }
}

/// Whether figures are all that comes before the next heading.
fn only_figures(parts: &[&Part]) -> bool {
    let section: Vec<_> = parts.iter().take_while(|p| !matches!(p, Part::Heading(_))).collect();
    !section.is_empty() && section.iter().all(|p| matches!(p, Part::Figure(..) | Part::Drawing(..)))
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

fn latex_table(caption: &str, header: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| latex_text(cell)).collect();
        format!("{} \\\\\n", cells.join(" & "))
    };
    let body: String = rows.iter().map(|row| line(row)).collect();
    format!(
        "\n\\begin{{table}}\n\\caption{{{}}}\n\\begin{{tabular}}{{l{}}}\n\\toprule\n{}\\midrule\n{body}\\bottomrule\n\
         \\end{{tabular}}\n\\end{{table}}\n",
        latex_text(caption),
        "r".repeat(header.len().saturating_sub(1)),
        line(header)
    )
}

/// Text as LaTeX takes it.
fn latex_text(text: &str) -> String {
    let sign = |c: char| match c {
        '\\' => "\\textbackslash{}".to_string(),
        '&' | '%' | '$' | '#' | '_' | '{' | '}' => format!("\\{c}"),
        '~' => "\\textasciitilde{}".into(),
        '^' => "\\textasciicircum{}".into(),
        '±' => "$\\pm$".into(),
        '−' => "$-$".into(),
        '×' => "$\\times$".into(),
        '⊕' => "$\\oplus$".into(),
        '√' => "$\\surd$".into(),
        '–' => "--".into(),
        '<' => "$<$".into(),
        '>' => "$>$".into(),
        other => greek(other).map_or_else(|| other.to_string(), |name| format!("$\\{name}$")),
    };
    text.chars().map(sign).collect()
}

/// The name of a small Greek letter.
fn greek(c: char) -> Option<&'static str> {
    const LETTERS: &[(char, &str)] = &[
        ('α', "alpha"),
        ('β', "beta"),
        ('γ', "gamma"),
        ('δ', "delta"),
        ('ε', "varepsilon"),
        ('ζ', "zeta"),
        ('η', "eta"),
        ('θ', "theta"),
        ('κ', "kappa"),
        ('λ', "lambda"),
        ('μ', "mu"),
        ('ν', "nu"),
        ('ξ', "xi"),
        ('π', "pi"),
        ('ρ', "rho"),
        ('σ', "sigma"),
        ('τ', "tau"),
        ('φ', "varphi"),
        ('χ', "chi"),
        ('ψ', "psi"),
        ('ω', "omega"),
    ];
    LETTERS.iter().find(|(letter, _)| *letter == c).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_without_any_number_of_the_papers_has_no_column_for_them() {
        let row = |paper: &str| vec!["mopo".to_string(), "1.0".into(), paper.into()];
        let width = |rows: Vec<Vec<String>>| match Part::table_with_paper(&["", "ours", "paper"], rows) {
            Part::Table(header, rows) => (header.len(), rows[0].len()),
            _ => (0, 0),
        };
        assert_eq!(width(vec![row("-"), row("2.0")]), (3, 3));
        assert_eq!(width(vec![row("-"), row("-")]), (2, 2));
    }

    #[test]
    fn signs_of_a_format_are_kept_out_of_its_text() {
        let report = Report {
            title: "t".into(),
            about: "a <b>".into(),
            command: "offing reproduce t".into(),
            circumstances: vec!["c".into()],
            tables: vec![
                Part::heading("ρ of 50 %"),
                Part::table(&["", "k_1"], vec![vec!["step*".into(), "1.0 ± 0.5".into()]]),
            ],
            more: vec![
                Part::heading("Curves"),
                Part::Drawing("<svg/>".into(), "c".into()),
                Part::heading("Settings"),
                Part::Lines("toml", "x = 1\n".into()),
            ],
        };
        assert!(
            report.markdown().contains("| step\\* | 1.0 ± 0.5 |\n") && report.markdown().contains("a \\<b>")
        );
        let markdown = report.markdown();
        assert!(
            markdown.contains("## Curves\n\nFigures: in the page.\n\n## Settings\n\n```toml"),
            "{markdown}"
        );
        assert_eq!(latex_text("γ=0.9, s⊕a"), "$\\gamma$=0.9, s$\\oplus$a");
        let latex = report.latex();
        for piece in
            ["\\caption{$\\rho$ of 50 \\%}", "\\begin{tabular}{lr}", " & k\\_1 \\\\", "1.0 $\\pm$ 0.5"]
        {
            assert!(latex.contains(piece), "`{piece}` missing in {latex}");
        }
        assert!(report.html().html().contains("x = 1"));
    }
}
