//! A square plane as SVG: a shaded field with one contour, clouds of points and paths, both axes on one scale.

use std::fmt::Write;

use crate::svg::{self, colour, legend_entry};

/// What is drawn, from the back to the front: the field, its border, the lines.
#[derive(Clone, Debug)]
pub(crate) struct ContourPlot {
    pub(crate) title: String,
    /// The plane goes from −`reach` to `reach` both ways.
    pub(crate) reach: f64,
    /// Cells of the field along a side.
    pub(crate) side: usize,
    /// Their values, row by row from the lower left.
    pub(crate) field: Vec<f64>,
    /// The value whose contour is drawn.
    pub(crate) border: f64,
    pub(crate) field_name: String,
    pub(crate) border_name: String,
    pub(crate) lines: Vec<ContourLine>,
}

/// Paths that look alike.
#[derive(Clone, Debug)]
pub(crate) struct ContourLine {
    pub(crate) name: String,
    /// Which of the page's colours.
    pub(crate) slot: usize,
    pub(crate) shape: Shape,
    /// Width, dashes and caps, as attributes of SVG.
    pub(crate) stroke: &'static str,
    pub(crate) paths: Vec<Vec<(f64, f64)>>,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Joined.
    Path,
    /// A dot at each, which needs round caps.
    Dots,
    /// A cross at each.
    Crosses,
}

impl Shape {
    /// Points in pixels as the data of a path.
    fn path(self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let point = |(i, (x, y)): (usize, (f64, f64))| match self {
            // A line of length 0 with round caps is a dot.
            Self::Dots => format!("M{x:.1} {y:.1}h0"),
            Self::Crosses => format!("M{:.1} {:.1}l10 10m0 -10l-10 10", x - 5.0, y - 5.0),
            Self::Path => format!("{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" }),
        };
        points.enumerate().map(point).collect()
    }
}

impl ContourLine {
    fn svg(&self, path: &str) -> String {
        format!("<path d=\"{path}\" fill=\"none\" {} style=\"stroke:{}\"/>", self.stroke, colour(self.slot))
    }
}

const SIZE: f64 = 460.0;
const LEFT: f64 = 40.0;
const TOP: f64 = 36.0;
/// Shades that the field is drawn in.
const SHADES: usize = 9;
/// Which of the page's colours shades the field.
const FIELD: usize = 1;

impl ContourPlot {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let place = |v: f64| SIZE * (v + self.reach) / (2.0 * self.reach);
        (LEFT + place(x), TOP + SIZE - place(y))
    }

    /// The figure as an SVG element.
    pub(crate) fn svg(&self) -> String {
        let mut svg = svg::open(&self.title, TOP + SIZE + 34.0, LEFT);
        let _ = writeln!(
            svg,
            "<clipPath id=\"plane\"><rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{SIZE}\" height=\"{SIZE}\"/></clipPath>\n\
             <g clip-path=\"url(#plane)\">"
        );
        self.shade(&mut svg);
        let _ = writeln!(
            svg,
            "<path d=\"{}\" fill=\"none\" stroke-width=\"1.5\" stroke-dasharray=\"3 3\" style=\"stroke:var(--ink,#222)\"/>",
            self.contour()
        );
        for line in &self.lines {
            let path = |points: &Vec<(f64, f64)>| line.shape.path(points.iter().map(|point| self.at(*point)));
            let _ = writeln!(svg, "{}", line.svg(&line.paths.iter().map(path).collect::<String>()));
        }
        svg.push_str("</g>\n");
        self.frame(&mut svg);
        self.legend(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    /// Cells of one shade are one element.
    fn shade(&self, svg: &mut String) {
        let finite = || self.field.iter().copied().filter(|v| v.is_finite());
        let (low, high) =
            (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        let cell = SIZE / self.side as f64;
        for shade in 1..SHADES {
            let mut path = String::new();
            for (i, value) in self.field.iter().enumerate() {
                let place = ((value - low) / (high - low).max(1e-12) * SHADES as f64) as usize;
                if place.min(SHADES - 1) == shade {
                    let (x, y) = ((i % self.side) as f64 * cell, (i / self.side) as f64 * cell);
                    let top = TOP + SIZE - y - cell;
                    // A hair larger than the cell: no seams between neighbours.
                    let _ = write!(path, "M{:.1} {top:.1}h{1:.1}v{1:.1}h-{1:.1}z", LEFT + x, cell + 0.2);
                }
            }
            let opacity = 0.07 * shade as f64;
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" style=\"fill:{}\" fill-opacity=\"{opacity:.2}\"/>",
                colour(FIELD)
            );
        }
    }

    /// The edges between cells on either side of the border.
    fn contour(&self) -> String {
        let (n, cell) = (self.side, SIZE / self.side as f64);
        let above = |x: usize, y: usize| self.field[y * n + x] > self.border;
        let mut path = String::new();
        for y in 0..n {
            for x in 0..n {
                let (left, bottom) = (LEFT + x as f64 * cell, TOP + SIZE - y as f64 * cell);
                if x > 0 && above(x, y) != above(x - 1, y) {
                    let _ = write!(path, "M{left:.1} {bottom:.1}v-{cell:.1}");
                }
                if y > 0 && above(x, y) != above(x, y - 1) {
                    let _ = write!(path, "M{left:.1} {bottom:.1}h{cell:.1}");
                }
            }
        }
        path
    }

    fn frame(&self, svg: &mut String) {
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{SIZE}\" height=\"{SIZE}\" fill=\"none\" style=\"stroke:var(--ink,#222)\"/>"
        );
        let bottom = TOP + SIZE;
        for i in 0..=4 {
            let value = self.reach * (f64::from(i) / 2.0 - 1.0);
            let (x, y) = (self.at((value, 0.0)).0, self.at((0.0, value)).1);
            svg.push_str(&svg::text(x, bottom + 18.0, "middle", &value.to_string()));
            svg.push_str(&(svg::text(LEFT - 6.0, y + 4.0, "end", &value.to_string()) + "\n"));
        }
    }

    fn legend(&self, svg: &mut String) {
        let left = LEFT + SIZE + 20.0;
        let mut at = TOP + 12.0;
        let mut entry = |sign: &dyn Fn(f64) -> String, name: &str| {
            svg.push_str(&legend_entry(&sign(at), left, at, name));
            at += 22.0;
        };
        let shade = |at: f64| {
            let (top, colour) = (at - 6.0, colour(FIELD));
            format!(
                "<rect x=\"{left}\" y=\"{top:.1}\" width=\"20\" height=\"12\" style=\"fill:{colour}\" fill-opacity=\"0.5\"/>"
            )
        };
        entry(&shade, &self.field_name);
        let border = |at: f64| {
            format!(
                "<path d=\"M{left} {at:.1}h20\" stroke-width=\"1.5\" stroke-dasharray=\"3 3\" style=\"stroke:var(--ink,#222)\"/>"
            )
        };
        entry(&border, &self.border_name);
        for line in &self.lines {
            let sign = |at: f64| match line.shape {
                Shape::Path => line.svg(&format!("M{left:.1} {at:.1}h20")),
                shape => line.svg(&shape.path([(left + 10.0, at)].into_iter())),
            };
            entry(&sign, &line.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(field: Vec<f64>) -> ContourPlot {
        ContourPlot {
            title: "a < b".into(),
            reach: 2.0,
            side: 2,
            field,
            border: 0.5,
            field_name: "u".into(),
            border_name: "border".into(),
            lines: vec![ContourLine {
                name: "l".into(),
                slot: 0,
                shape: Shape::Path,
                stroke: "",
                paths: vec![vec![(-2.0, -2.0), (2.0, 2.0)]],
            }],
        }
    }

    #[test]
    fn both_axes_have_one_scale_and_y_goes_up() {
        let plane = plane(vec![0.0; 4]);
        assert_eq!(plane.at((-2.0, -2.0)), (LEFT, TOP + SIZE));
        assert_eq!(plane.at((2.0, 2.0)), (LEFT + SIZE, TOP));
        assert!(plane.svg().contains("a &lt; b"));
    }

    #[test]
    fn the_border_lies_between_cells_on_either_side_of_it() {
        // Only the upper right cell is above: two edges, in the middle.
        let path = plane(vec![0.0, 0.1, 0.2, 0.9]).contour();
        assert_eq!(path.matches('M').count(), 2, "{path}");
        assert!(path.contains(&format!("M{:.1} {:.1}v-", LEFT + SIZE / 2.0, TOP + SIZE / 2.0)), "{path}");
        assert_eq!(plane(vec![0.0; 4]).contour(), "");
        let svg = plane(vec![0.0, f64::NAN, 1.0, 0.5]).svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
