//! The frame of every page: one self-contained file with its own style and script, light and dark, nothing loaded from elsewhere.

use crate::svg::{COLOURS, escape};

const STYLE: &str = include_str!("page.css");
const CHARTS: &str = include_str!("chart.js");
const REPLAY: &str = include_str!("replay.js");

/// Colours that are not series, light and dark.
const SURFACES: [(&str, &str, &str); 10] = [
    ("ink", "#1a2027", "#e7eaed"),
    ("paper", "#ffffff", "#12161a"),
    ("card", "#f4f6f8", "#1b2127"),
    ("rule", "#dce1e6", "#313941"),
    ("faint", "#5a6470", "#9ca7b2"),
    ("accent", "#0b62bd", "#62aef7"),
    ("sky", "#fafbfc", "#161b20"),
    ("ground", "#e9edf1", "#232a31"),
    ("wall", "#cfd6dd", "#3a444e"),
    ("body", "#3d4c5c", "#a9b8c7"),
];

/// What a page is made of, beside its frame.
pub(crate) struct Page<'a> {
    pub(crate) title: &'a str,
    pub(crate) body: &'a str,
    /// Whether bodies move on it.
    pub(crate) replay: bool,
    /// Seconds after which it reloads itself.
    pub(crate) refresh: Option<u64>,
}

impl Page<'_> {
    pub(crate) fn html(&self) -> String {
        let (title, body) = (escape(self.title), self.body);
        let scheme = |pick: fn(&str, &str) -> String| -> String {
            let surfaces =
                SURFACES.iter().map(|(name, light, dark)| format!("--{name}:{};", pick(light, dark)));
            let series =
                COLOURS.iter().enumerate().map(|(i, (light, dark))| format!("--c{i}:{};", pick(light, dark)));
            surfaces.chain(series).collect()
        };
        let (light, dark) = (scheme(|light, _| light.into()), scheme(|_, dark| dark.into()));
        let (replay, start) = if self.replay { (REPLAY, "beginReplays();\n") } else { ("", "") };
        let refresh = self.refresh.map_or(String::new(), |s| format!(" data-refresh=\"{s}\""));
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n\
             :root {{ color-scheme: light dark; {light} }}\n\
             @media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ {dark} }} }}\n\
             :root[data-theme=dark] {{ color-scheme: dark; {dark} }} :root[data-theme=light] {{ color-scheme: light; }}\n\
             {STYLE}</style>\n</head>\n<body{refresh}>\n\
             <header><span><b>offing</b></span><button type=\"button\" id=\"theme\">theme: auto</button></header>\n\
             <main>\n<h1>{title}</h1>\n{body}<footer>offing {}</footer>\n</main>\n\
             <script>\n{CHARTS}{replay}begin();\n{start}</script>\n</body>\n</html>\n",
            env!("CARGO_PKG_VERSION")
        )
    }
}

/// JSON inside of a script element: `<` could end it.
pub(crate) fn data_script(json: &str) -> String {
    format!("<script type=\"application/json\">{}</script>\n", json.replace('<', "\\u003c"))
}
