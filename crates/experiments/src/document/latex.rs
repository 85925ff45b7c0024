//! A document's tables as LaTeX.

use super::{Document, Element};
use crate::Table;

impl Document {
    /// The tables of the results for a paper; needs the package booktabs.
    pub fn latex(&self) -> String {
        let command = self.intro.iter().find_map(|element| match element {
            Element::Code(command) => Some(command.as_str()),
            _ => None,
        });
        let mut out = format!("% {}: {}\n", self.title, command.unwrap_or_default());
        let mut caption = "";
        for element in &self.results {
            match element {
                Element::Heading(text) => caption = text,
                Element::Table(table) => out.push_str(&latex_table(caption, table)),
                _ => {}
            }
        }
        out
    }
}

fn latex_table(caption: &str, table: &Table) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| latex_text(cell)).collect();
        format!("{} \\\\\n", cells.join(" & "))
    };
    let body: String = table.rows.iter().map(|row| line(row)).collect();
    format!(
        "\n\\begin{{table}}\n\\caption{{{}}}\n\\begin{{tabular}}{{l{}}}\n\\toprule\n{}\\midrule\n{body}\\bottomrule\n\
         \\end{{tabular}}\n\\end{{table}}\n",
        latex_text(caption),
        "r".repeat(table.header.len().saturating_sub(1)),
        line(&table.header)
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
    const LETTERS: &str = "α alpha β beta γ gamma δ delta ε varepsilon ζ zeta η eta θ theta κ kappa λ lambda μ mu ν nu \
                           ξ xi π pi ρ rho σ sigma τ tau φ varphi χ chi ψ psi ω omega";
    let mut words = LETTERS.split_whitespace();
    words.find(|word| word.chars().eq([c]))?;
    words.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greek_letters_and_signs_are_commands() {
        assert_eq!(latex_text("γ=0.9, s⊕a"), "$\\gamma$=0.9, s$\\oplus$a");
    }
}
