//! Plots as SVG: lines with shaded bands, scatters, linear and logarithmic axes, a legend.
//!
//! Written here rather than with a plotting crate because colours are CSS variables of the page, so that one
//! figure reads well in light and in dark; the crates draw fixed colours.

use std::fmt::Write;

use crate::svg::{self, COLOURS, GREY, WIDTH, colour, escape, legend_entry};

/// A figure with one pair of axes.
#[derive(Clone, Debug)]
pub struct Plot {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

/// What an axis shows.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) log: bool,
}

/// One line or cloud of points. Points that are not finite, or not positive on a logarithmic axis, are left
/// out and break a line.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) mark: Mark,
    pub(crate) points: Vec<(f64, f64)>,
    /// Low and high at each point.
    pub(crate) band: Option<Vec<(f64, f64)>>,
    /// Which colour it takes; its place among the plot's series when not given.
    pub(crate) slot: Option<usize>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Line,
    Dashed,
    Points,
}

impl Axis {
    pub(crate) fn linear(label: &str) -> Self {
        Self { label: label.into(), log: false }
    }

    pub(crate) fn log(label: &str) -> Self {
        Self { log: true, ..Self::linear(label) }
    }
}

impl Series {
    pub(crate) fn line(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), mark: Mark::Line, points, band: None, slot: None }
    }

    pub(crate) fn dashed(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { mark: Mark::Dashed, ..Self::line(name, points) }
    }

    pub(crate) fn scatter(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { mark: Mark::Points, ..Self::line(name, points) }
    }

    /// Takes that colour, so that a thing looks the same in every plot.
    pub(crate) fn in_slot(self, slot: usize) -> Self {
        Self { slot: Some(slot), ..self }
    }

    /// How it is drawn in that place of a plot: where colours repeat, the second line is dashed.
    fn mark_in(&self, place: usize) -> Mark {
        let again = self.slot.unwrap_or(place) / COLOURS.len() % 2 == 1;
        if again && self.mark == Mark::Line { Mark::Dashed } else { self.mark }
    }

    /// Shades the space between low and high, which has one pair for each point.
    pub(crate) fn with_band(mut self, band: Vec<(f64, f64)>) -> Self {
        assert_eq!(band.len(), self.points.len(), "one pair of bounds for each point");
        self.band = Some(band);
        self
    }
}

const HEIGHT: f64 = 400.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 52.0;
const LEFT: f64 = 68.0;

/// From values to pixels along one axis.
struct Scale {
    log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Spans the given values, with ends at ticks for linear axes and a little room for logarithmic ones.
    fn new(values: impl Iterator<Item = f64>, log: bool, from: f64, to: f64) -> Self {
        let usable = values.filter(|v| v.is_finite() && (!log || *v > 0.0));
        let (low, high) = usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let (low, high) = match (low <= high, log) {
            (false, true) => (1.0, 10.0),
            (false, false) => (0.0, 1.0),
            (true, true) if high / low < 1.5 => (low / 1.5, high * 1.5),
            (true, true) => {
                let room = (high / low).powf(0.04);
                (low / room, high * room)
            }
            (true, false) if high - low <= 1e-12 * high.abs().max(1.0) => (low - 0.5, high + 0.5),
            (true, false) => {
                let step = step(high - low);
                ((low / step).floor() * step, (high / step).ceil() * step)
            }
        };
        Self { log, low, high, from, to }
    }

    fn at(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.log && value <= 0.0) {
            return None;
        }
        let share = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        Some(self.from + share * (self.to - self.from))
    }

    /// Like [`Scale::at`], for edges of a band: what lies outside is drawn at the border.
    fn clamped(&self, value: f64) -> Option<f64> {
        (!value.is_nan()).then(|| self.at(value.clamp(self.low, self.high))).flatten()
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let step = step(self.high - self.low);
            let count = ((self.high - self.low) / step).round() as usize;
            let first = (self.low / step).ceil() * step;
            let ticks = (0..=count).map(|i| first + i as f64 * step);
            // −0 and 1e-17 are 0.
            return ticks
                .filter(|t| *t <= self.high + 1e-9 * step)
                .map(|t| if t.abs() < 1e-9 * step { 0.0 } else { t })
                .collect();
        }
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let decades = self.high.log10() - self.low.log10();
        let between: &[f64] = match decades {
            ..1.5 => &[1.0, 2.0, 3.0, 5.0],
            ..3.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        // Where not every power has room, those shown are multiples of the stride, so that 1 is among them.
        let stride = ((decades / 8.0).ceil() as i32).max(1);
        (first.div_euclid(stride) * stride..=last)
            .step_by(stride as usize)
            .flat_map(|e| between.iter().map(move |m| m * 10f64.powi(e)))
            .filter(|t| (self.low..=self.high).contains(t))
            .collect()
    }
}

/// A round distance between ticks, for about six of them.
fn step(span: f64) -> f64 {
    let raw = span / 6.0;
    let unit = 10f64.powf(raw.log10().floor());
    let times = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|m| m * unit >= raw * 0.999).unwrap_or(10.0);
    times * unit
}

/// A tick's text, short.
fn tick_label(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        // Steps of a training: 150000 reads as 150k.
        a if (1e4..1e6).contains(&a) && a % 100.0 == 0.0 => format!("{}k", value / 1e3),
        a if (1e6..1e9).contains(&a) && a % 1e4 == 0.0 => format!("{}M", value / 1e6),
        a if !(1e-3..1e5).contains(&a) => format!("{value:e}"),
        _ => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
    }
}

impl Plot {
    pub(crate) fn new(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self { title: title.into(), x, y, series }
    }

    /// The figure as an SVG element.
    pub(crate) fn svg(&self) -> String {
        let longest = self.series.iter().map(|s| s.name.chars().count()).max().unwrap_or(0);
        let beside = if longest > 0 { 34.0 + 6.6 * longest as f64 } else { 0.0 };
        // Long names go below the plot, or they would leave it no room.
        let below = beside > 0.4 * WIDTH;
        let right = 24.0 + if below { 0.0 } else { beside };
        let height = HEIGHT + if below { 20.0 * self.series.len() as f64 + 4.0 } else { 0.0 };
        let values =
            |pick: fn(&(f64, f64)) -> f64| self.series.iter().flat_map(move |s| s.points.iter().map(pick));
        let bands = self.series.iter().flat_map(|s| s.band.iter().flatten().flat_map(|(l, h)| [*l, *h]));
        let x = Scale::new(values(|p| p.0), self.x.log, LEFT, WIDTH - right);
        let y = Scale::new(values(|p| p.1).chain(bands), self.y.log, HEIGHT - BOTTOM, TOP);
        let mut svg = svg::open(&self.title, height, LEFT);
        self.frame(&mut svg, &x, &y);
        for (i, series) in self.series.iter().enumerate() {
            band(&mut svg, series, &x, &y, &colour(series.slot.unwrap_or(i)));
        }
        for (i, series) in self.series.iter().enumerate() {
            marks(&mut svg, series, series.mark_in(i), &x, &y, &colour(series.slot.unwrap_or(i)));
        }
        let at = if below { (LEFT, HEIGHT) } else { (x.to + 16.0, TOP + 10.0) };
        self.legend(&mut svg, at);
        svg.push_str("</svg>\n");
        svg
    }

    fn frame(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let line = |x1: f64, x2: f64, y1: f64, y2: f64, style: &str| {
            let ends = format!(r#"x1="{x1:.1}" x2="{x2:.1}" y1="{y1:.1}" y2="{y2:.1}""#);
            format!(r#"<line {ends} style="{style}" stroke-width="1"/>"#)
        };
        let grid = "stroke:var(--rule,#ddd)";
        for tick in y.ticks() {
            let at = y.at(tick).unwrap_or(y.from);
            let label = svg::text(x.from - 8.0, at + 4.0, "end", &tick_label(tick));
            let _ = writeln!(svg, "{}{label}", line(x.from, x.to, at, at, grid));
        }
        for tick in x.ticks() {
            let at = x.at(tick).unwrap_or(x.from);
            let label = svg::text(at, y.from + 19.0, "middle", &tick_label(tick));
            let _ = writeln!(svg, "{}{label}", line(at, at, y.from, y.from + 5.0, grid));
        }
        let _ = writeln!(svg, "{}", line(x.from, x.to, y.from, y.from, "stroke:var(--ink,#222)"));
        let _ = writeln!(svg, "{}", svg::text((x.from + x.to) / 2.0, HEIGHT - 12.0, "middle", &self.x.label));
        let (middle, label) = ((y.from + y.to) / 2.0, escape(&self.y.label));
        let place = format!(r#"transform="translate(16 {middle:.1}) rotate(-90)" text-anchor="middle""#);
        let _ = writeln!(svg, "<text {place}>{label}</text>");
    }

    fn legend(&self, svg: &mut String, (left, top): (f64, f64)) {
        for (i, series) in self.series.iter().enumerate().filter(|(_, s)| !s.name.is_empty()) {
            let y = top + 20.0 * i as f64;
            let place = match series.mark {
                Mark::Points => format!("M{:.1} {y:.1}h0", left + 10.0),
                _ => format!("M{left:.1} {y:.1}h20"),
            };
            let colour = colour(series.slot.unwrap_or(i));
            let stroke = stroke(series.mark_in(i), 2.0);
            let sign = format!(r#"<path d="{place}" style="stroke:{colour}" {stroke}/>"#);
            svg.push_str(&legend_entry(&sign, left, y, &series.name));
        }
    }
}

/// A dashed grey line at `level`, as long as the lines beside it: what a policy has to beat.
pub(crate) fn level_line(level: f64, beside: &[Series]) -> Series {
    let steps = beside.iter().flat_map(|s| s.points.iter().map(|p| p.0));
    let (first, last) = steps.fold((f64::INFINITY, 0.0f64), |(low, high), x| (low.min(x), high.max(x)));
    Series::dashed("the data's mean", vec![(first, level), (last, level)]).in_slot(GREY)
}

fn stroke(mark: Mark, points: f64) -> String {
    match mark {
        Mark::Line => r#"fill="none" stroke-width="2" stroke-linejoin="round""#.into(),
        Mark::Dashed => r#"fill="none" stroke-width="2" stroke-dasharray="5 4""#.into(),
        Mark::Points => format!(r#"fill="none" stroke-width="{}" stroke-linecap="round""#, 3.0 * points),
    }
}

/// The points of a series in pixels, split where one cannot be shown.
fn runs(points: impl Iterator<Item = Option<(f64, f64)>>) -> Vec<Vec<(f64, f64)>> {
    let mut runs = vec![Vec::new()];
    for point in points {
        match (point, runs.last_mut()) {
            (Some(point), Some(run)) => run.push(point),
            (None, Some(run)) if !run.is_empty() => runs.push(Vec::new()),
            _ => (),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

fn band(svg: &mut String, series: &Series, x: &Scale, y: &Scale, colour: &str) {
    let Some(band) = &series.band else { return };
    let edge = |pick: fn(&(f64, f64)) -> f64| {
        runs(series.points.iter().zip(band).map(|((px, _), bounds)| {
            // A point is shown on both edges or on neither.
            y.clamped(bounds.0).and(y.clamped(bounds.1))?;
            Some((x.at(*px)?, y.clamped(pick(bounds))?))
        }))
    };
    for (low, high) in edge(|b| b.0).into_iter().zip(edge(|b| b.1)) {
        let around = high.iter().chain(low.iter().rev()).map(|(x, y)| format!("{x:.1},{y:.1}"));
        let around = around.collect::<Vec<_>>().join(" ");
        let _ = writeln!(svg, r#"<polygon points="{around}" style="fill:{colour}" fill-opacity="0.16"/>"#);
    }
}

fn marks(svg: &mut String, series: &Series, mark: Mark, x: &Scale, y: &Scale, colour: &str) {
    let mut path = String::new();
    for run in runs(series.points.iter().map(|(px, py)| Some((x.at(*px)?, y.at(*py)?)))) {
        for (i, (x, y)) in run.iter().enumerate() {
            let _ = match mark {
                // A line of length 0 with round caps is a dot: thousands of them in one element.
                Mark::Points => write!(path, "M{x:.1} {y:.1}h0"),
                _ => write!(path, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" }),
            };
        }
    }
    // Dots shrink and fade as they become many.
    let (size, opacity) = match (mark, series.points.len()) {
        (Mark::Points, 0..300) => (2.0, 0.9),
        (Mark::Points, 300..2000) => (1.2, 0.5),
        (Mark::Points, _) => (0.9, 0.3),
        _ => (1.0, 1.0),
    };
    let stroke = stroke(mark, size);
    let _ =
        writeln!(svg, r#"<path d="{path}" style="stroke:{colour}" stroke-opacity="{opacity}" {stroke}/>"#);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(y: Axis, series: Vec<Series>) -> Plot {
        Plot { title: "a < b".into(), x: Axis::linear("step"), y, series }
    }

    #[test]
    fn tick_labels_are_short_and_tell_values_apart() {
        let labels = [0.0, 50_000.0, 150_000.0, 2_500_000.0, 1e-5, 2e10].map(tick_label);
        assert_eq!(labels, ["0", "50k", "150k", "2.5M", "1e-5", "2e10"]);
    }

    #[test]
    fn a_ninth_line_has_the_colour_of_the_first_but_is_dashed() {
        let one = |i: usize| Series::line(&format!("n{i}"), vec![(0.0, i as f64), (1.0, i as f64)]);
        let svg = plot(Axis::linear("y"), (0..9).map(one).collect()).svg();
        assert_eq!(svg.matches("stroke:var(--c0,").count(), 4, "two lines and their signs");
        assert_eq!(svg.matches("stroke-dasharray").count(), 2, "one of them");
    }

    #[test]
    fn ticks_are_round_and_cover_the_data() {
        let linear = |low, high| Scale::new([low, high].into_iter(), false, 0.0, 100.0).ticks();
        assert_eq!(linear(0.0, 1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(linear(-7.0, 48.0), [-10.0, 0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        let around = linear(3.0, 3.0);
        assert!(
            around.len() == 5 && (around[2] - 3.0).abs() < 1e-9,
            "one value has an axis, too: {around:?}"
        );
        let log = |low, high| Scale::new([low, high].into_iter(), true, 0.0, 100.0).ticks();
        assert_eq!(log(0.02, 5.0), [0.03, 0.1, 0.30000000000000004, 1.0, 3.0]);
        assert_eq!(
            log(1e-12, 1.0).iter().map(|t| t.log10().round()).collect::<Vec<_>>(),
            [-12.0, -10.0, -8.0, -6.0, -4.0, -2.0, 0.0]
        );
        assert_eq!([0.0, 0.25, 12000.0, 3e-7].map(tick_label), ["0", "0.25", "12k", "3e-7"]);
    }

    #[test]
    fn points_that_cannot_be_shown_break_the_line_and_nothing_else() {
        let points = vec![(0.0, 1.0), (1.0, 0.0), (2.0, 10.0), (3.0, f64::NAN), (4.0, 5.0), (5.0, 6.0)];
        let svg = plot(Axis::log("error"), vec![Series::line("m", points)]).svg();
        let path = svg.lines().find(|l| l.contains("<path d=\"M") && l.contains("L")).unwrap();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (3, 1), "{path}");
        assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.contains("a &lt; b"));
    }

    #[test]
    fn a_band_with_an_infinite_edge_ends_at_the_border() {
        let line =
            Series::line("m", vec![(0.0, 1.0), (1.0, 2.0)]).with_band(vec![(0.5, 2.0), (1.0, f64::INFINITY)]);
        let svg = plot(Axis::linear("error"), vec![line]).svg();
        let band = svg.lines().find(|l| l.contains("<polygon")).unwrap();
        assert!(band.contains(&format!("{TOP:.1}")) && !band.contains("inf"), "{band}");
    }

    #[test]
    fn nothing_to_show_is_an_empty_frame() {
        for axis in [Axis::linear("y"), Axis::log("y")] {
            let svg = plot(axis, vec![Series::scatter("none", vec![])]).svg();
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
        }
    }
}
