//! Horizontal bars with names, one below the other.

use std::fmt::Write;

use crate::svg::{self, GREY, WIDTH, colour};

/// One bar.
pub(crate) struct Bar {
    pub(crate) name: String,
    /// Its length; nothing is drawn unless it is finite.
    pub(crate) value: f64,
    /// Where to mark what is ordinary.
    pub(crate) tick: Option<f64>,
    /// Whether it stands out.
    pub(crate) marked: bool,
}

const ROW: f64 = 22.0;
const TOP: f64 = 40.0;

/// Bars that begin at 0, as an SVG element.
pub(crate) fn strip(title: &str, label: &str, bars: &[Bar]) -> String {
    let longest = bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
    let left = (18.0 + 6.6 * longest as f64).clamp(68.0, 0.4 * WIDTH);
    let right = WIDTH - 70.0;
    let lengths = bars.iter().flat_map(|bar| [Some(bar.value), bar.tick]).flatten().filter(|v| v.is_finite());
    let most = lengths.fold(0.0, f64::max).max(1e-9);
    let at = |value: f64| left + (right - left) * value / most;
    let bottom = TOP + ROW * bars.len() as f64;
    let mut out = svg::open(title, bottom + 34.0, left);
    for (i, bar) in bars.iter().enumerate() {
        let middle = TOP + ROW * (i as f64 + 0.5);
        let fill = colour(if bar.marked { 1 } else { 0 });
        let _ = writeln!(out, "{}", svg::text(left - 8.0, middle + 4.0, "end", &shortened(&bar.name, left)));
        if bar.value.is_finite() {
            let (top, width) = (middle - 7.0, at(bar.value) - left);
            let _ = writeln!(
                out,
                r#"<rect x="{left:.1}" y="{top:.1}" width="{width:.1}" height="14" style="fill:{fill}" fill-opacity="0.8"/>"#
            );
            let _ = writeln!(
                out,
                "{}",
                svg::text(right + 10.0, middle + 4.0, "start", &format!("{:.3}", bar.value))
            );
        }
        if let Some(tick) = bar.tick {
            let (x, top, foot) = (at(tick), middle - 9.0, middle + 9.0);
            let _ = writeln!(
                out,
                r#"<line x1="{x:.1}" x2="{x:.1}" y1="{top:.1}" y2="{foot:.1}" style="stroke:{}" stroke-width="2.5"/>"#,
                colour(GREY)
            );
        }
    }
    let line = format!(r#"x1="{left:.1}" x2="{left:.1}" y1="{TOP:.1}" y2="{bottom:.1}""#);
    let _ = writeln!(out, r#"<line {line} style="stroke:var(--ink,#222)" stroke-width="1"/>"#);
    let _ = writeln!(out, "{}", svg::text((left + right) / 2.0, bottom + 22.0, "middle", label));
    out.push_str("</svg>\n");
    out
}

/// A name that fits beside its bar.
fn shortened(name: &str, left: f64) -> String {
    let room = ((left - 18.0) / 6.6) as usize;
    match name.chars().count() > room + 1 {
        true => name.chars().take(room).chain(['…']).collect(),
        false => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_their_names_and_what_is_no_number_has_no_bar() {
        let bar =
            |name: &str, value: f64| Bar { name: name.into(), value, tick: Some(0.1), marked: value > 0.2 };
        let svg =
            strip("t", "KS", &[bar("a < b", 0.5), bar("obs[1]", f64::NAN), bar(&"long".repeat(40), 0.1)]);
        assert_eq!((svg.matches("<rect").count(), svg.matches("2.5").count()), (2, 3));
        assert!(svg.contains("a &lt; b") && svg.contains('…') && !svg.contains("NaN"), "{svg}");
        assert!(!strip("t", "KS", &[]).contains("NaN"));
    }
}
