//! A document as one self-contained HTML page: what matters first, the rest where a reader unfolds it.

use super::{Card, Document, Element};
use crate::Table;
use crate::bars::bars_html;
use crate::page::{Page, data_script};
use crate::plot::{Plot, Slots};
use crate::svg::escape;

impl Document {
    /// The whole page.
    pub fn html(&self) -> String {
        let slots = Slots::of_page(self.elements().filter_map(|element| match element {
            Element::Figure(plot, _) => Some(plot.as_ref()),
            _ => None,
        }));
        let lead = self.intro.iter().position(|element| matches!(element, Element::Text(_)));
        let mut body = lead.map_or(String::new(), |i| element_html(&self.intro[i], &slots));
        body += &flow(self.results.iter(), &slots);
        // What only pages show is folded, section by section.
        for section in self.details.chunk_by(|_, next| !matches!(next, Element::Heading(_))) {
            let (heading, rest) = match section {
                [Element::Heading(text), rest @ ..] => (text.as_str(), rest),
                rest => ("More", rest),
            };
            body += &fold(heading, &flow(rest.iter(), &slots));
        }
        let notes =
            self.intro.iter().enumerate().filter(|(i, _)| Some(*i) != lead).map(|(_, element)| element);
        let notes = flow(notes, &slots);
        if !notes.is_empty() {
            body += &fold("How this was made", &notes);
        }
        let replay = self.elements().any(|element| matches!(element, Element::Replay { .. }));
        Page { title: &self.title, body: &body, replay, refresh: self.refresh }.html()
    }
}

fn fold(heading: &str, content: &str) -> String {
    format!("<details>\n<summary><h2>{}</h2></summary>\n{content}</details>\n", escape(heading))
}

/// Elements one after the other; figures that follow each other stand beside each other where there is room.
fn flow<'a>(elements: impl Iterator<Item = &'a Element>, slots: &Slots) -> String {
    let elements: Vec<&Element> = elements.collect();
    let is_plot = |element: &Element| matches!(element, Element::Figure(..));
    let part = |part: &[&Element]| {
        let inside: String = part.iter().map(|element| element_html(element, slots)).collect();
        if part.len() > 1 && is_plot(part[0]) {
            format!("<div class=\"pair\">\n{inside}</div>\n")
        } else {
            inside
        }
    };
    elements.chunk_by(|a, b| is_plot(a) == is_plot(b)).map(part).collect()
}

fn element_html(element: &Element, slots: &Slots) -> String {
    match element {
        Element::Heading(text) => format!("<h2>{}</h2>\n", escape(text)),
        Element::Text(text) => format!("<p>{}</p>\n", escape(text)),
        Element::Code(text) => format!(
            "<div class=\"code\"><code>{}</code><button type=\"button\" class=\"copy\" aria-label=\"Copy this command\">copy</button></div>\n",
            escape(text)
        ),
        Element::Lines(_, text) => format!("<pre tabindex=\"0\">{}</pre>\n", escape(text)),
        Element::Table(table) => table_html(table),
        Element::Cards(cards) => {
            format!("<dl class=\"cards\">\n{}</dl>\n", cards.iter().map(card_html).collect::<String>())
        }
        Element::Bars(bars, caption) => {
            format!("{}<p class=\"note\">{}</p>\n", bars_html(bars), escape(caption))
        }
        Element::Figure(plot, caption) => figure_html(plot, caption, slots),
        Element::Drawing(svg, caption) => {
            format!(
                "<figure class=\"drawing\">\n{svg}<figcaption>{}</figcaption>\n</figure>\n",
                escape(caption)
            )
        }
        Element::Replay { json, autoplay } => {
            let autoplay = if *autoplay { " data-autoplay" } else { "" };
            format!("<div class=\"replay\"{autoplay}>{}</div>\n", data_script(json))
        }
    }
}

fn card_html(card: &Card) -> String {
    let main = if card.main { " main" } else { "" };
    let (name, value, note) = (escape(&card.name), escape(&card.value), escape(&card.note));
    format!("<div class=\"card{main}\"><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>\n")
}

fn figure_html(plot: &Plot, caption: &str, slots: &Slots) -> String {
    let (data, caption) = (data_script(&plot.json(slots)), escape(caption));
    format!("<figure class=\"chart\">\n{data}<figcaption>{caption}</figcaption>\n</figure>\n")
}

/// Whether all that a column says are numbers, perhaps with their spread or share.
fn is_numeric(table: &Table, column: usize) -> bool {
    let numeric = |cell: &str| {
        cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || "−-+±.–".contains(c))
    };
    table.rows.iter().filter_map(|row| row.get(column)).all(|cell| numeric(cell))
}

fn table_html(table: &Table) -> String {
    // A number is not torn from its deviation, nor an interval in two.
    let whole = |cell: &str| {
        let mut cell = escape(cell).replace(" %", "&nbsp;%");
        for sign in ["±", "–", "/"] {
            cell = cell.replace(&format!(" {sign} "), &format!("&nbsp;{sign}&nbsp;"));
        }
        cell
    };
    let words: Vec<&str> = (0..table.header.len())
        .map(|i| if i > 0 && !is_numeric(table, i) { " class=\"w\"" } else { "" })
        .collect();
    let head: String = table
        .header
        .iter()
        .zip(&words)
        .map(|(name, class)| format!("<th scope=\"col\" role=\"columnheader\"{class}>{}</th>", whole(name)))
        .collect();
    let row = |cells: &Vec<String>| {
        let cell = |((cell, name), class): ((&String, &String), &&str)| {
            format!("<td role=\"cell\" data-name=\"{}\"{class}>{}</td>", escape(name), whole(cell))
        };
        let cells: String = cells.iter().zip(&table.header).zip(&words).map(cell).collect();
        format!("<tr role=\"row\">{cells}</tr>\n")
    };
    // Small print where there are many columns, so that they fit beside each other; below each other on a phone.
    let many = if table.header.len() > 8 { " many" } else { "" };
    let stacked = if table.header.len() > 3 { "stacked" } else { "" };
    let body: String = table.rows.iter().map(row).collect();
    format!(
        "<div class=\"wide\"><table role=\"table\" class=\"{stacked}{many}\">\n<thead role=\"rowgroup\"><tr role=\"row\">{head}</tr></thead>\n\
         <tbody role=\"rowgroup\">\n{body}</tbody>\n</table></div>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Series};

    fn page() -> Document {
        let series = vec![Series::line("</script>", vec![(0.0, 1.0), (1.0, 2.0)])];
        let plot = Plot::new("t", Axis::linear("x"), Axis::log("y"), series);
        let mut page = Document::new("a & b");
        page.intro = vec![
            Element::Code("offing dynamics \"x\"".into()),
            Element::text("1 < 2"),
            Element::text("later"),
        ];
        page.results = vec![
            Element::heading("h"),
            Element::table(
                &["", "n", "why"],
                vec![vec!["<script>".into(), "1 ± 2".into(), "because".into()]],
            ),
            Element::figure(plot, "caption"),
        ];
        page
    }

    #[test]
    fn a_page_escapes_its_text_and_loads_nothing() {
        let html = page().html();
        for piece in [
            "<title>a &amp; b</title>",
            "1 &lt; 2",
            "&lt;script&gt;",
            ">1&nbsp;±&nbsp;2</td>",
            "class=\"w\">because</td>",
            "\"name\":\"\\u003c/script>\"",
            "<figcaption>caption",
        ] {
            assert!(html.contains(piece), "{piece}");
        }
        assert!(!html.contains("src=") && !html.contains("href=") && !html.contains("@import"));
        assert!(!html.contains("Bodies in motion"), "a page without a replay has no script for one");
    }

    #[test]
    fn the_lead_and_the_results_come_first_and_the_rest_is_folded() {
        let html = page().html();
        let at = |piece: &str| html.find(piece).unwrap_or_else(|| panic!("{piece} is missing"));
        assert!(at("1 &lt; 2") < at("<h2>h</h2>") && at("<h2>h</h2>") < at("How this was made"));
        assert!(at("How this was made") < at("offing dynamics") && at("offing dynamics") < at("later"));
    }
}
