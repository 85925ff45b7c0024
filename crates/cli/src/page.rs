//! One self-contained HTML page: text, tables and figures, nothing loaded from elsewhere, light and dark.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use offing::home::write_atomic;

use crate::plot::{COLOURS, Plot, escape};

/// A page under construction, from top to bottom.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    title: String,
    body: String,
}

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 52rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid var(--rule); }
.many { font-size: .85em; } .many th, .many td { padding: .25rem .4rem; } .many td:first-child { white-space: nowrap; }
th { font-weight: 600; border-bottom-color: var(--ink); } th:first-child, td:first-child { text-align: left; padding-left: 0; }
figure { margin: 1.2rem 0; } figure svg { width: 100%; height: auto; }
figcaption, footer { color: var(--faint); font-size: .9rem; } footer { margin-top: 3rem; }
.wide { overflow-x: auto; } code { font-size: .92em; overflow-wrap: anywhere; }
";

impl Page {
    pub(crate) fn new(title: &str) -> Self {
        Self { title: title.into(), body: format!("<h1>{}</h1>\n", escape(title)) }
    }

    pub(crate) fn heading(&mut self, text: &str) {
        self.body.push_str(&format!("<h2>{}</h2>\n", escape(text)));
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.body.push_str(&format!("<p>{}</p>\n", escape(text)));
    }

    /// A line of code: a command, a path.
    pub(crate) fn code(&mut self, text: &str) {
        self.body.push_str(&format!("<p><code>{}</code></p>\n", escape(text)));
    }

    /// Lines of text as they are: a configuration.
    pub(crate) fn pre(&mut self, text: &str) {
        self.body.push_str(&format!("<pre class=\"wide\">{}</pre>\n", escape(text)));
    }

    /// A table whose first column is text and whose others are numbers.
    pub(crate) fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        let row = |cells: &mut dyn Iterator<Item = &str>, tag: &str| {
            // A number is not torn from its deviation, nor an interval in two.
            let whole =
                |cell: &str| escape(cell).replace(" ± ", "&nbsp;±&nbsp;").replace(" – ", "&nbsp;–&nbsp;");
            let cells: String = cells.map(|cell| format!("<{tag}>{}</{tag}>", whole(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        // Small print where there are many columns, so that they fit beside each other.
        let many = if header.len() > 8 { " class=\"many\"" } else { "" };
        let head = row(&mut header.iter().copied(), "th");
        let body: String = rows.iter().map(|r| row(&mut r.iter().map(String::as_str), "td")).collect();
        self.body.push_str(&format!(
            "<div class=\"wide\"><table{many}>\n<thead>{head}</thead>\n<tbody>{body}</tbody>\n</table></div>\n"
        ));
    }

    pub(crate) fn figure(&mut self, plot: &Plot, caption: &str) {
        self.drawing(&plot.svg(), caption);
    }

    /// A figure that is an SVG element already.
    pub(crate) fn drawing(&mut self, svg: &str, caption: &str) {
        let caption = escape(caption);
        self.body.push_str(&format!("<figure>\n{svg}<figcaption>{caption}</figcaption>\n</figure>\n"));
    }

    /// The whole page.
    pub(crate) fn html(&self) -> String {
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
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n:root {{ {light} }}\n\
             @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}{STYLE}</style>\n</head>\n<body>\n{}\
             <footer>offing {}</footer>\n</body>\n</html>\n",
            escape(&self.title),
            self.body,
            env!("CARGO_PKG_VERSION")
        )
    }

    /// Writes the page, whole or not at all.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        Ok(write_atomic(path, |file| file.write_all(self.html().as_bytes()))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Series};

    #[test]
    fn a_page_escapes_its_text_and_loads_nothing() {
        let mut page = Page::new("a & b");
        page.heading("h");
        page.text("1 < 2");
        page.code("offing dynamics \"x\"");
        page.table(&["", "n"], &[vec!["<script>".into(), "1 ± 2".into()]]);
        let series = vec![Series::line("s", vec![(0.0, 1.0), (1.0, 2.0)])];
        let plot = Plot { title: "t".into(), x: Axis::linear("x"), y: Axis::log("y"), series };
        page.figure(&plot, "caption");
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
