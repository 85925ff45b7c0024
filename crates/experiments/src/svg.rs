//! What all figures share: the SVG element, colours, text.

/// Colours that most eyes can distinguish, light and dark, in the order series take them. Figures name them as CSS variables, so that
/// one figure reads well on a light and on a dark page; outside a page the light ones are the fallback.
pub(crate) const COLOURS: [(&str, &str); 8] = [
    ("#0b6bcb", "#5aa9f5"),
    ("#c4560a", "#f0924c"),
    ("#0f8a5f", "#3fc796"),
    ("#a03fa6", "#d78bdc"),
    ("#7a7a7a", "#9c9c9c"),
    ("#b08900", "#dcb93a"),
    ("#b3203f", "#ef6f8b"),
    ("#3d8fa8", "#79c8df"),
];

/// The slot of the colour for what is no result: the data, a reference.
pub(crate) const GREY: usize = 4;

/// Width of every figure.
pub(crate) const WIDTH: f64 = 760.0;

/// The colour of a slot, for CSS; slots past the last begin again.
pub(crate) fn colour(slot: usize) -> String {
    let slot = slot % COLOURS.len();
    format!("var(--c{slot},{})", COLOURS[slot].0)
}

/// Text made safe for SVG and HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The beginning of a figure, with its title at `left`.
pub(crate) fn open(title: &str, height: f64, left: f64) -> String {
    let title = escape(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" style=\"fill:var(--ink,#222)\">\n\
         <text x=\"{left}\" y=\"20\" font-size=\"14\" font-weight=\"600\">{title}</text>\n"
    )
}

/// A text at a point; `anchor` is start, middle or end.
pub(crate) fn text(x: f64, y: f64, anchor: &str, content: &str) -> String {
    format!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#, escape(content))
}

/// One entry of a legend: its sign, and its name beside it.
pub(crate) fn legend_entry(sign: &str, left: f64, y: f64, name: &str) -> String {
    format!("{sign}<text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n", left + 28.0, y + 4.0, escape(name))
}
