//! Plots as data: lines with shaded bands, scatters, linear and logarithmic axes. The page's own script draws them, as large as
//! the window and in the reader's colours, and reads values out of them.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::svg::GREY;

/// A figure with one pair of axes.
#[derive(Clone, Debug)]
pub struct Plot {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    /// Whether it shows a metric over the steps of trainings: such curves begin at 0 and can be smoothed.
    pub(crate) curve: bool,
}

/// What an axis shows.
#[derive(Clone, Debug, Serialize)]
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
    /// The lines of which this is the mean.
    pub(crate) seeds: Vec<Vec<(f64, f64)>>,
    /// Which colour it takes; where none is given, a name has one colour on the whole page.
    pub(crate) slot: Option<usize>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
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
        Self { name: name.into(), mark: Mark::Line, points, band: None, seeds: Vec::new(), slot: None }
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

    /// Shades the space between low and high, which has one pair for each point.
    pub(crate) fn with_band(mut self, band: Vec<(f64, f64)>) -> Self {
        assert_eq!(band.len(), self.points.len(), "one pair of bounds for each point");
        self.band = Some(band);
        self
    }

    fn json(&self, slots: &Slots) -> Value {
        let (x, y) = columns(&self.points);
        let mut out = json!({ "name": self.name, "mark": self.mark, "slot": slots.of(self), "x": x, "y": y });
        if let Some(band) = &self.band {
            let (low, high) = columns(band);
            out["low"] = low;
            out["high"] = high;
        }
        if self.seeds.len() > 1 {
            let seed = |points: &Vec<(f64, f64)>| {
                let (x, y) = columns(points);
                json!({ "x": x, "y": y })
            };
            out["seeds"] = self.seeds.iter().map(seed).collect();
        }
        out
    }
}

/// Both coordinates with six digits: more than a figure can show. What is not finite becomes null.
fn columns(points: &[(f64, f64)]) -> (Value, Value) {
    let six = |v: f64| match v.is_finite() {
        true => format!("{v:.5e}").parse::<f64>().map_or(Value::Null, whole_or_real),
        false => Value::Null,
    };
    (points.iter().map(|p| six(p.0)).collect(), points.iter().map(|p| six(p.1)).collect())
}

/// 5000 rather than 5000.0: most steps are whole.
fn whole_or_real(v: f64) -> Value {
    if v.fract() == 0.0 && v.abs() < 1e15 { json!(v as i64) } else { json!(v) }
}

/// Which colour each name has on a page.
#[derive(Debug, Default)]
pub(crate) struct Slots(BTreeMap<String, usize>);

impl Slots {
    /// Gives the names of all plots a colour each, in the order in which they come; grey is for what is no result.
    pub(crate) fn of_page<'a>(plots: impl Iterator<Item = &'a Plot>) -> Self {
        let mut slots = Self::default();
        let mut free = (0..).filter(|slot| slot % 8 != GREY);
        for series in plots.flat_map(|plot| &plot.series).filter(|series| series.slot.is_none()) {
            slots.0.entry(series.name.clone()).or_insert_with(|| free.next().unwrap_or(0));
        }
        slots
    }

    fn of(&self, series: &Series) -> usize {
        series.slot.or_else(|| self.0.get(&series.name).copied()).unwrap_or(0)
    }
}

impl Plot {
    pub(crate) fn new(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self { title: title.into(), x, y, series, curve: false }
    }

    /// It shows a metric over the steps of trainings.
    pub(crate) fn over_steps(self) -> Self {
        Self { curve: true, ..self }
    }

    /// What the page's script draws.
    pub(crate) fn json(&self, slots: &Slots) -> String {
        let series: Vec<Value> = self.series.iter().map(|s| s.json(slots)).collect();
        let plot =
            json!({ "title": self.title, "x": self.x, "y": self.y, "curve": self.curve, "series": series });
        plot.to_string()
    }
}

/// A dashed grey line at `level`, as long as the lines beside it: what a policy has to beat.
pub(crate) fn level_line(level: f64, beside: &[Series]) -> Series {
    let steps = beside.iter().flat_map(|s| s.points.iter().map(|p| p.0));
    let last = steps.fold(0.0f64, f64::max);
    Series::dashed("the data's mean", vec![(0.0, level), (last, level)]).in_slot(GREY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(series: Vec<Series>) -> Plot {
        Plot::new("a", Axis::linear("step"), Axis::log("error"), series)
    }

    #[test]
    fn a_name_has_one_colour_on_a_page_and_grey_is_left_for_references() {
        let line = |name: &str| Series::line(name, vec![(0.0, 1.0)]);
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let plots = [plot(vec![line("z").in_slot(3), line("b")]), plot(names.map(line).to_vec())];
        let slots = Slots::of_page(plots.iter());
        let found: Vec<usize> = plots[1].series.iter().map(|s| slots.of(s)).collect();
        assert_eq!(found, [1, 0, 2, 3, 5, 6, 7, 8, 9], "the first chart has given b the first colour");
        assert_eq!(slots.of(&plots[0].series[0]), 3, "a colour that was asked for stays");
    }

    #[test]
    fn numbers_have_six_digits_and_what_is_no_number_is_null() {
        let points = vec![(5000.0, 1.0 / 3.0), (1e6, f64::NAN), (2.0, f64::INFINITY)];
        let json = plot(vec![Series::line("m", points)]).json(&Slots::default());
        assert!(
            json.contains(r#""x":[5000,1000000,2]"#) && json.contains(r#""y":[0.333333,null,null]"#),
            "{json}"
        );
    }

    #[test]
    fn several_seeds_are_kept_beside_their_mean() {
        let mut line = Series::line("m", vec![(1.0, 2.0)]).with_band(vec![(1.0, 3.0)]);
        line.seeds = vec![vec![(1.0, 1.0)], vec![(1.0, 3.0)]];
        let json: Value = serde_json::from_str(&plot(vec![line]).json(&Slots::default())).unwrap();
        let series = &json["series"][0];
        assert_eq!(
            (&series["low"][0], &series["high"][0], &series["seeds"][1]["y"][0]),
            (&json!(1), &json!(3), &json!(3))
        );
    }

    #[test]
    fn the_datas_mean_begins_where_curves_do() {
        let level = level_line(7.0, &[Series::line("m", vec![(600.0, 1.0)])]);
        assert_eq!(
            level.points,
            [(0.0, 7.0), (600.0, 7.0)],
            "one evaluation alone has a line beside it, too"
        );
    }
}
