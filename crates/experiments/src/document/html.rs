//! A document as one self-contained HTML page: nothing loaded from elsewhere, light and dark.

use super::{Document, Element};
use crate::Table;
use crate::svg::{COLOURS, escape};

const STYLE: &str = include_str!("page.css");

impl Document {
    /// The whole page.
    pub fn html(&self) -> String {
        let title = escape(&self.title);
        let body: String = self.elements().map(element_html).collect();
        let colours = |pick: fn(&(&'static str, &'static str)) -> &'static str| -> String {
            COLOURS.iter().enumerate().map(|(i, c)| format!(" --c{i}: {};", pick(c))).collect()
        };
        let light = format!("--ink: #222; --paper: #fff; --rule: #ddd; --faint: #666;{}", colours(|c| c.0));
        let dark = format!(
            "--ink: #e4e4e4; --paper: #17191c; --rule: #383c42; --faint: #9aa0a6;{}",
            colours(|c| c.1)
        );
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n:root {{ {light} }}\n\
             @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}\
             <footer>offing {}</footer>\n</body>\n</html>\n",
            env!("CARGO_PKG_VERSION")
        )
    }
}

fn element_html(element: &Element) -> String {
    match element {
        Element::Heading(text) => format!("<h2>{}</h2>\n", escape(text)),
        Element::Text(text) => format!("<p>{}</p>\n", escape(text)),
        Element::Code(text) => format!("<p><code>{}</code></p>\n", escape(text)),
        Element::Lines(_, text) => format!("<pre class=\"wide\">{}</pre>\n", escape(text)),
        Element::Table(table) => table_html(table),
        Element::Figure(plot, caption) => figure_html(&plot.svg(), caption),
        Element::Drawing(svg, caption) => figure_html(svg, caption),
    }
}

fn figure_html(svg: &str, caption: &str) -> String {
    format!("<figure>\n{svg}<figcaption>{}</figcaption>\n</figure>\n", escape(caption))
}

fn table_html(table: &Table) -> String {
    let row = |cells: &[String], tag: &str| {
        // A number is not torn from its deviation, nor an interval in two.
        let whole = |cell: &str| {
            let mut cell = escape(cell).replace(" %", "&nbsp;%");
            for sign in ["±", "–", "/"] {
                cell = cell.replace(&format!(" {sign} "), &format!("&nbsp;{sign}&nbsp;"));
            }
            cell
        };
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", whole(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    // Small print where there are many columns, so that they fit beside each other.
    let many = if table.header.len() > 8 { r#" class="many""# } else { "" };
    let body: String = table.rows.iter().map(|cells| row(cells, "td")).collect();
    format!(
        "<div class=\"wide\"><table{many}>\n<thead>{}</thead>\n<tbody>{body}</tbody>\n</table></div>\n",
        row(&table.header, "th")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Plot, Series};

    #[test]
    fn a_page_escapes_its_text_and_loads_nothing() {
        let series = vec![Series::line("s", vec![(0.0, 1.0), (1.0, 2.0)])];
        let plot = Plot { title: "t".into(), x: Axis::linear("x"), y: Axis::log("y"), series };
        let mut page = Document::new("a & b");
        page.details = vec![
            Element::heading("h"),
            Element::text("1 < 2"),
            Element::Code("offing dynamics \"x\"".into()),
            Element::table(&["", "n"], vec![vec!["<script>".into(), "1 ± 2".into()]]),
            Element::figure(plot, "caption"),
        ];
        let html = page.html();
        for piece in [
            "<title>a &amp; b</title>",
            "1 &lt; 2",
            "&lt;script&gt;",
            "<td>1&nbsp;±&nbsp;2</td>",
            "<svg",
            "<figcaption>caption",
        ] {
            assert!(html.contains(piece), "{piece}");
        }
        assert!(!html.contains("<script") && !html.contains("src=") && !html.contains("href="));
    }
}
