//! Horizontal bars with names, one below the other, as HTML: they are as wide as the window, and their text stays as large as
//! the page's.

use std::fmt::Write;

use crate::svg::{GREY, colour, escape};

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    pub(crate) name: String,
    /// Its length; nothing is drawn unless it is finite.
    pub(crate) value: f64,
    /// What stands beside it.
    pub(crate) text: String,
    /// One deviation to either side.
    pub(crate) spread: f64,
    /// Where to mark what is ordinary.
    pub(crate) tick: Option<f64>,
    /// Which of the page's colours.
    pub(crate) slot: usize,
}

impl Bar {
    pub(crate) fn new(name: impl Into<String>, value: f64, text: impl Into<String>) -> Self {
        Self { name: name.into(), value, text: text.into(), spread: 0.0, tick: None, slot: 0 }
    }

    pub(crate) fn in_slot(self, slot: usize) -> Self {
        Self { slot, ..self }
    }

    /// In grey: no result, but what results are held against.
    pub(crate) fn reference(self) -> Self {
        self.in_slot(GREY)
    }
}

/// Bars from 0, to the left where values are negative.
pub(crate) fn bars_html(bars: &[Bar]) -> String {
    let finite = |v: f64| if v.is_finite() { v } else { 0.0 };
    let ends = bars.iter().flat_map(|b| [b.value - b.spread, b.value + b.spread, b.tick.unwrap_or(0.0)]);
    let (low, high) =
        ends.map(finite).fold((0.0, 0.0), |(low, high): (f64, f64), v| (low.min(v), high.max(v)));
    let share = |v: f64| 100.0 * (v - low) / (high - low).max(1e-12);
    let span = |from: f64, to: f64| {
        format!("left:{:.2}%;width:{:.2}%", share(from.min(to)), share(from.max(to)) - share(from.min(to)))
    };
    let mut out = String::from("<div class=\"bars\" role=\"list\">\n");
    for bar in bars {
        let mut inside = String::new();
        if bar.value.is_finite() {
            let _ = write!(
                inside,
                r#"<i class="bar" style="{};background:{}"></i>"#,
                span(0.0, bar.value),
                colour(bar.slot)
            );
        }
        if bar.spread > 0.0 && bar.value.is_finite() {
            let _ = write!(
                inside,
                r#"<i class="whisker" style="{}"></i>"#,
                span(bar.value - bar.spread, bar.value + bar.spread)
            );
        }
        if let Some(tick) = bar.tick.filter(|t| t.is_finite()) {
            let _ = write!(inside, r#"<i class="tick" style="left:{:.2}%"></i>"#, share(tick));
        }
        let (name, text) = (escape(&bar.name), escape(&bar.text));
        let _ = writeln!(
            out,
            r#"<div class="row" role="listitem"><span class="name">{name}</span><span class="track" aria-hidden="true">{inside}</span><span class="value">{text}</span></div>"#
        );
    }
    out + "</div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_their_names_and_what_is_no_number_has_no_bar() {
        let html = bars_html(&[
            Bar { tick: Some(0.1), ..Bar::new("a < b", 0.5, "0.500") },
            Bar::new("obs[1]", f64::NAN, "-"),
            Bar { spread: 0.1, ..Bar::new("below", -0.5, "−0.5") }.reference(),
        ]);
        let found = ["class=\"bar\"", "class=\"tick\"", "class=\"whisker\""].map(|c| html.matches(c).count());
        assert_eq!(found, [2, 1, 1], "{html}");
        assert!(html.contains("a &lt; b") && !html.contains("NaN"), "{html}");
        // From −0.6 to 0.5: zero lies at 54.5 %.
        assert!(
            html.contains("left:54.55%;width:45.45%") && html.contains("left:9.09%;width:45.45%"),
            "{html}"
        );
        assert!(!bars_html(&[]).contains("NaN"));
    }
}
