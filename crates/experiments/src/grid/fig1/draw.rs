//! Figure 1 for readers.

use super::super::cells::{Cell, CellState};
use super::super::collect::Collected;
use super::{Fig1Drawing, Trajectory};
use crate::Element;
use crate::plot::{Axis, Plot, Series};
use crate::svg::GREY;
use crate::table::{Table, csv_number, row};

/// The figure of every finished cell.
pub(super) fn collect(cells: &[(Cell, CellState)]) -> Collected {
    let (mut results, mut details, mut steps, mut picture) = (Vec::new(), Vec::new(), Vec::new(), None);
    for (cell, state) in cells {
        let Some(drawing) = state.result().and_then(|f| f.drawing.as_deref()) else { continue };
        let name = if cells.len() > 1 { format!(", seed {}", cell.seed) } else { String::new() };
        results.push(Element::heading(format!("Trajectories{name}")));
        let header = ["", "steps imagined", "kept", "error where cut", "error at the end"];
        results.push(Element::table(&header, drawing.paths.iter().enumerate().map(overview).collect()));
        details.push(Element::heading(format!("The idea{name}")));
        let svg = drawing.svg("Where the data are, what SUMO says, where trajectories are cut");
        picture.get_or_insert_with(|| ("svg", svg.clone()));
        details.push(Element::Drawing(svg, caption(drawing)));
        details.extend(along(drawing));
        for (i, path) in drawing.paths.iter().enumerate() {
            steps.extend(
                steps_of(path)
                    .into_iter()
                    .map(|s| [vec![cell.seed.to_string(), (i + 1).to_string()], s].concat()),
            );
        }
    }
    if !results.is_empty() {
        results.push(Element::text(
            "Kept: steps before the first with u > ε, which AMOReL cuts. Error: distance between the imagined state and the one \
             that the simulator reaches by the same actions.",
        ));
    }
    let caveats = vec![
        "The data circle around the middle of a plane, where rewards are highest, and never go there. A dynamics model is \
         fitted to them and a policy is trained in it without any penalty; it learns to go to the middle. The field is u of \
         the step that the data's own policy would take at a place."
            .into(),
    ];
    let header = ["seed", "trajectory", "step", "x", "y", "real_x", "real_y", "u", "error", "kept"];
    let files = [("csv", Table::new(header, steps).csv())].into_iter().chain(picture).collect();
    Collected { files, results, details, caveats }
}

fn overview((i, path): (usize, &Trajectory)) -> Vec<String> {
    let at = |x: Option<&f32>| x.map_or("0".into(), |x| format!("{x:.3}"));
    let cut = path.kept.checked_sub(1).and_then(|last| path.error.get(last));
    let (all, kept) = (path.u.len().to_string(), path.kept.to_string());
    row(format!("trajectory {}", i + 1), [all, kept, at(cut), at(path.error.last())])
}

/// One line for each step.
fn steps_of(path: &Trajectory) -> Vec<Vec<String>> {
    let line = |(t, u): (usize, &f32)| {
        let (here, real) = (path.imagined[t + 1], path.real[t + 1]);
        let numbers = [here[0], here[1], real[0], real[1], *u, path.error[t]];
        let numbers = numbers.map(|x| csv_number(f64::from(x)));
        row((t + 1).to_string(), numbers.into_iter().chain([(t < path.kept).to_string()]))
    };
    path.u.iter().enumerate().map(line).collect()
}

fn caption(drawing: &Fig1Drawing) -> String {
    format!(
        "Shade: u, darker where the nearest transition of the data is farther away; the dashed border is ε = {:.3}, the \
         largest u of the data themselves times α. Imagined steps beyond it are not used. Trajectories have other speeds and \
         actions than the data's policy would have at a place, so they may be cut before the border.",
        drawing.epsilon
    )
}

/// u and error along the trajectories.
fn along(drawing: &Fig1Drawing) -> Vec<Element> {
    let over_steps = |values: &[f32]| -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(t, v)| ((t + 1) as f64, f64::from(*v))).collect()
    };
    let lines = |pick: fn(&Trajectory) -> &[f32]| -> Vec<Series> {
        let line = |(i, p): (usize, &Trajectory)| {
            Series::line(&format!("trajectory {}", i + 1), over_steps(pick(p))).in_slot(i)
        };
        drawing.paths.iter().enumerate().map(line).collect()
    };
    let last = drawing.paths.iter().map(|p| p.u.len()).max().unwrap_or(1) as f64;
    let epsilon = f64::from(drawing.epsilon);
    let mut score = lines(|p| &p.u);
    score.push(Series::dashed("ε", vec![(1.0, epsilon), (last, epsilon)]).in_slot(GREY));
    let plot = |title: &str, y: &str, series: Vec<Series>| {
        Plot::new(title, Axis::linear("imagined step"), Axis::linear(y), series)
    };
    let distance =
        plot("How far imagination is from the simulator", "distance of states", lines(|p| &p.error));
    vec![
        Element::figure(
            plot("SUMO's score along the trajectories", "u", score),
            "Cut where it first crosses ε.",
        ),
        Element::figure(distance, "The error that the score is to foretell."),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::cells::CellResult;
    use super::*;

    #[test]
    fn what_is_kept_ends_at_the_cut() {
        let path = Trajectory {
            imagined: vec![[2.0, 0.0], [1.5, 0.0], [1.0, 0.0], [0.5, 0.0]],
            real: vec![[2.0, 0.0], [1.5, 0.1], [1.0, 0.2], [0.5, 0.3]],
            u: vec![0.1, 0.9, 0.2],
            error: vec![0.1, 0.2, 0.3],
            kept: 1,
        };
        let field = vec![0.1, 0.9, 0.9, 0.1];
        let drawing = Fig1Drawing {
            rows: vec![[2.0, 0.0]],
            field,
            side: 2,
            reach: 3.0,
            epsilon: 0.5,
            paths: vec![path],
        };
        let cell = Cell { id: "i".into(), column: None, dataset: "point-mass".into(), seed: 0 };
        let found = CellResult { drawing: Some(Box::new(drawing)), ..CellResult::default() };
        let made = collect(&[(cell, CellState::Done(found))]);
        let Element::Table(Table { rows, .. }) = &made.results[1] else { panic!("a table") };
        assert_eq!(rows[0], ["trajectory 1", "3", "1", "0.100", "0.300"]);
        assert!(made.files[0].1.contains("\n0,1,1,1.5,0,"), "{}", made.files[0].1);
        let Element::Drawing(svg, _) = &made.details[1] else { panic!("a drawing") };
        for name in ["imagined and kept", "imagined beyond the cut", "cut", "dataset", "u = ε"] {
            assert!(svg.contains(name), "{name}");
        }
        assert_eq!(svg.matches("<svg").count(), 1);
    }
}
