//! The plane of Figure 1 as SVG: u as a shaded field with its contour at ε, the data and the trajectories, both axes on one
//! scale.

use std::fmt::Write;

use super::{Fig1Drawing, Trajectory};
use crate::svg::{self, GREY, colour, legend_entry};

/// Paths that look alike.
struct PlaneLine<'a> {
    name: &'static str,
    /// Which of the page's colours.
    slot: usize,
    look: Look,
    paths: Vec<&'a [[f32; 2]]>,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Joined.
    Path,
    /// A dot at each, which needs round caps.
    Dots,
    /// A cross at each.
    Crosses,
}

/// A shape, and width, dashes and caps as attributes of SVG.
type Look = (Shape, &'static str);
const THIN: Look = (Shape::Path, r#"stroke-width="1.6""#);
const THICK: Look = (Shape::Path, r#"stroke-width="3" stroke-linejoin="round""#);
const DASHED: Look = (Shape::Path, r#"stroke-width="1.6" stroke-dasharray="5 4""#);
const SMALL_DOTS: Look = (Shape::Dots, r#"stroke-width="3" stroke-linecap="round" stroke-opacity="0.6""#);
const LARGE_DOTS: Look = (Shape::Dots, r#"stroke-width="9" stroke-linecap="round""#);
const CROSSES: Look = (Shape::Crosses, r#"stroke-width="2.5""#);

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

impl PlaneLine<'_> {
    fn svg(&self, path: &str) -> String {
        format!(r#"<path d="{path}" fill="none" {} style="stroke:{}"/>"#, self.look.1, colour(self.slot))
    }
}

const SIZE: f64 = 460.0;
const LEFT: f64 = 40.0;
const TOP: f64 = 36.0;
/// Shades that the field is drawn in.
const SHADES: usize = 9;
/// Which of the page's colours shades the field.
const FIELD: usize = 1;

/// How the contour is drawn.
const BORDER: &str = r#"stroke-width="1.5" stroke-dasharray="3 3" style="stroke:var(--ink,#222)""#;

/// Where the plane lies, as attributes of a rectangle.
fn plane_rect() -> String {
    format!(r#"x="{LEFT}" y="{TOP}" width="{SIZE}" height="{SIZE}""#)
}

impl Fig1Drawing {
    /// A position in pixels.
    fn at(&self, position: [f32; 2]) -> (f64, f64) {
        let reach = f64::from(self.reach);
        let [x, y] = position.map(|v| SIZE * (f64::from(v) + reach) / (2.0 * reach));
        (LEFT + x, TOP + SIZE - y)
    }

    /// The figure as an SVG element.
    pub(super) fn svg(&self, title: &str) -> String {
        let lines = self.lines();
        let mut svg = svg::open(title, TOP + SIZE + 34.0, LEFT);
        let _ = writeln!(svg, r#"<clipPath id="plane"><rect {}/></clipPath>"#, plane_rect());
        let _ = writeln!(svg, r#"<g clip-path="url(#plane)">"#);
        self.shade(&mut svg);
        let _ = writeln!(svg, r#"<path d="{}" fill="none" {BORDER}/>"#, self.contour());
        for line in &lines {
            let path = |points: &&[[f32; 2]]| line.look.0.path(points.iter().map(|point| self.at(*point)));
            let _ = writeln!(svg, "{}", line.svg(&line.paths.iter().map(path).collect::<String>()));
        }
        svg.push_str("</g>\n");
        self.frame(&mut svg);
        legend(&mut svg, &lines);
        svg.push_str("</svg>\n");
        svg
    }

    /// What lies over the field, from the back to the front.
    fn lines(&self) -> Vec<PlaneLine<'_>> {
        let line = |name, slot, look, pick: fn(&Trajectory) -> &[[f32; 2]]| {
            let paths = self.paths.iter().map(pick).filter(|path| !path.is_empty()).collect();
            PlaneLine { name, slot, look, paths }
        };
        vec![
            PlaneLine { name: "dataset", slot: GREY, look: SMALL_DOTS, paths: vec![&self.rows] },
            line("the same actions in the simulator", 2, DASHED, |p| &p.real),
            line("imagined beyond the cut", 6, THIN, |p| &p.imagined[p.kept..]),
            line("imagined and kept", 0, THICK, |p| &p.imagined[..=p.kept]),
            line("start", 0, LARGE_DOTS, |p| &p.imagined[..1]),
            line("cut", 6, CROSSES, |p| if p.kept < p.u.len() { &p.imagined[p.kept..=p.kept] } else { &[] }),
        ]
    }

    /// Cells of one shade are one element.
    fn shade(&self, svg: &mut String) {
        let finite = || self.field.iter().map(|u| f64::from(*u)).filter(|v| v.is_finite());
        let (low, high) =
            (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        let cell = SIZE / self.side as f64;
        for shade in 1..SHADES {
            let mut path = String::new();
            for (i, value) in self.field.iter().enumerate() {
                let place = ((f64::from(*value) - low) / (high - low).max(1e-12) * SHADES as f64) as usize;
                if place.min(SHADES - 1) == shade {
                    let (x, y) = ((i % self.side) as f64 * cell, (i / self.side) as f64 * cell);
                    let top = TOP + SIZE - y - cell;
                    // A hair larger than the cell: no seams between neighbours.
                    let _ = write!(path, "M{:.1} {top:.1}h{1:.1}v{1:.1}h-{1:.1}z", LEFT + x, cell + 0.2);
                }
            }
            let (opacity, colour) = (0.07 * shade as f64, colour(FIELD));
            let _ = writeln!(svg, r#"<path d="{path}" style="fill:{colour}" fill-opacity="{opacity:.2}"/>"#);
        }
    }

    /// The edges between cells on either side of the border.
    fn contour(&self) -> String {
        let (n, cell) = (self.side, SIZE / self.side as f64);
        let above = |x: usize, y: usize| self.field[y * n + x] > self.epsilon;
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
        let _ = writeln!(svg, r#"<rect {} fill="none" style="stroke:var(--ink,#222)"/>"#, plane_rect());
        let bottom = TOP + SIZE;
        for i in 0..=4 {
            let value = self.reach * (i as f32 / 2.0 - 1.0);
            let (x, y) = self.at([value, value]);
            svg.push_str(&svg::text(x, bottom + 18.0, "middle", &value.to_string()));
            svg.push_str(&(svg::text(LEFT - 6.0, y + 4.0, "end", &value.to_string()) + "\n"));
        }
    }
}

fn legend(svg: &mut String, lines: &[PlaneLine<'_>]) {
    let left = LEFT + SIZE + 20.0;
    let mut at = TOP + 12.0;
    let mut entry = |sign: &dyn Fn(f64) -> String, name: &str| {
        svg.push_str(&legend_entry(&sign(at), left, at, name));
        at += 22.0;
    };
    let shade = |at: f64| {
        let (top, colour) = (at - 6.0, colour(FIELD));
        let place = format!(r#"x="{left}" y="{top:.1}" width="20" height="12""#);
        format!(r#"<rect {place} style="fill:{colour}" fill-opacity="0.5"/>"#)
    };
    entry(&shade, "u");
    let border = |at: f64| format!(r#"<path d="M{left} {at:.1}h20" {BORDER}/>"#);
    entry(&border, "u = ε");
    for line in lines {
        let sign = |at: f64| match line.look.0 {
            Shape::Path => line.svg(&format!("M{left:.1} {at:.1}h20")),
            shape => line.svg(&shape.path([(left + 10.0, at)].into_iter())),
        };
        entry(&sign, line.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(field: Vec<f32>) -> Fig1Drawing {
        let rows = vec![[-2.0, -2.0], [2.0, 2.0]];
        Fig1Drawing { rows, field, side: 2, reach: 2.0, epsilon: 0.5, paths: vec![] }
    }

    #[test]
    fn both_axes_have_one_scale_and_y_goes_up() {
        let plane = plane(vec![0.0; 4]);
        assert_eq!(plane.at([-2.0, -2.0]), (LEFT, TOP + SIZE));
        assert_eq!(plane.at([2.0, 2.0]), (LEFT + SIZE, TOP));
        assert!(plane.svg("a < b").contains("a &lt; b"));
    }

    #[test]
    fn the_border_lies_between_cells_on_either_side_of_it() {
        // Only the upper right cell is above: two edges, in the middle.
        let path = plane(vec![0.0, 0.1, 0.2, 0.9]).contour();
        assert_eq!(path.matches('M').count(), 2, "{path}");
        assert!(path.contains(&format!("M{:.1} {:.1}v-", LEFT + SIZE / 2.0, TOP + SIZE / 2.0)), "{path}");
        assert_eq!(plane(vec![0.0; 4]).contour(), "");
        let svg = plane(vec![0.0, f32::NAN, 1.0, 0.5]).svg("");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
