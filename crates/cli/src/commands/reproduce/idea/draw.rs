//! Figure 1 for readers.

use super::super::cells::{Cell, Outcome};
use super::super::collect::Made;
use super::super::parts::Part;
use super::{Drawing, Path};
use crate::csv::{field, number};
use crate::plane::{Line, Plane, Stroke};
use crate::plot::{Axis, Plot, Series};

/// The figure of every finished cell.
pub(in super::super) fn made(cells: &[(Cell, Outcome)]) -> Made {
    let (mut tables, mut more) = (Vec::new(), Vec::new());
    let mut pictures = Vec::new();
    let mut csv = String::from("seed,trajectory,step,x,y,real_x,real_y,u,error,kept\n");
    for (cell, outcome) in cells {
        let Some(drawing) = outcome.found().and_then(|f| f.drawing.as_deref()) else { continue };
        let name = if cells.len() > 1 { format!(", seed {}", cell.seed) } else { String::new() };
        tables.push(Part::heading(format!("Trajectories{name}")));
        let header = ["", "steps imagined", "kept", "error where cut", "error at the end"];
        tables.push(Part::table(&header, drawing.paths.iter().enumerate().map(row).collect()));
        more.push(Part::heading(format!("The idea{name}")));
        let svg = plane(drawing).svg();
        pictures.push(svg.clone());
        more.push(Part::Drawing(svg, caption(drawing)));
        more.extend(along(drawing));
        for (i, path) in drawing.paths.iter().enumerate() {
            steps(&mut csv, cell.seed, i, path);
        }
    }
    if !tables.is_empty() {
        tables.push(Part::text(
            "Kept: steps before the first with u > ε, which AMOReL cuts. Error: distance between the imagined state and the one \
             that the simulator reaches by the same actions.",
        ));
    }
    let circumstances = vec![
        "The data circle around the middle of a plane, where rewards are highest, and never go there. A dynamics model is \
         fitted to them and a policy is trained in it without any penalty; it learns to go to the middle. The field is u of \
         the step that the data's own policy would take at a place."
            .into(),
    ];
    let picture = pictures.into_iter().next().map(|svg| ("svg", svg));
    let files = [("csv", csv)].into_iter().chain(picture).collect();
    Made { files, tables, more, circumstances }
}

fn row((i, path): (usize, &Path)) -> Vec<String> {
    let at = |x: Option<&f32>| x.map_or("0".into(), |x| format!("{x:.3}"));
    let cut = path.kept.checked_sub(1).and_then(|last| path.error.get(last));
    let (all, kept) = (path.u.len().to_string(), path.kept.to_string());
    vec![format!("trajectory {}", i + 1), all, kept, at(cut), at(path.error.last())]
}

fn steps(csv: &mut String, seed: u64, i: usize, path: &Path) {
    for (t, u) in path.u.iter().enumerate() {
        let (here, real) = (path.imagined[t + 1], path.real[t + 1]);
        let text = |x: f32| number(Some(f64::from(x)));
        let numbers = [here[0], here[1], real[0], real[1], *u, path.error[t]].map(text).join(",");
        let name = field(&format!("{}", i + 1));
        csv.push_str(&format!("{seed},{name},{},{numbers},{}\n", t + 1, t < path.kept));
    }
}

fn plane(drawing: &Drawing) -> Plane {
    let point = |p: &[f32; 2]| (f64::from(p[0]), f64::from(p[1]));
    let part = |points: &[[f32; 2]]| points.iter().map(point).collect::<Vec<_>>();
    let line = |name: &str, slot: usize, stroke: Stroke, pick: &dyn Fn(&Path) -> Vec<(f64, f64)>| Line {
        name: name.into(),
        slot,
        stroke,
        paths: drawing.paths.iter().map(pick).filter(|p| !p.is_empty()).collect(),
    };
    let kept = |p: &Path| part(&p.imagined[..=p.kept]);
    let dropped = |p: &Path| part(&p.imagined[p.kept..]);
    Plane {
        title: "Where the data are, what SUMO says, where trajectories are cut".into(),
        reach: f64::from(drawing.reach),
        side: drawing.side,
        field: drawing.field.iter().map(|u| f64::from(*u)).collect(),
        border: f64::from(drawing.epsilon),
        field_name: "u".into(),
        border_name: "u = ε".into(),
        lines: vec![
            Line { name: "dataset".into(), slot: 4, stroke: Stroke::Dots, paths: vec![part(&drawing.rows)] },
            line("the same actions in the simulator", 2, Stroke::Dashed, &|p| part(&p.real)),
            line("imagined beyond the cut", 6, Stroke::Line, &dropped),
            line("imagined and kept", 0, Stroke::Thick, &kept),
            line("start", 0, Stroke::Start, &|p| part(&p.imagined[..1])),
            line("cut", 6, Stroke::Cross, &|p| {
                if p.kept < p.u.len() { part(&p.imagined[p.kept..=p.kept]) } else { vec![] }
            }),
        ],
    }
}

fn caption(drawing: &Drawing) -> String {
    format!(
        "Shade: u, darker where the nearest transition of the data is farther away; the dashed border is ε = {:.3}, the \
         largest u of the data themselves times α. ModelBuffer steps beyond it are not used. Trajectories have other speeds and \
         actions than the data's policy would have at a place, so they may be cut before the border.",
        drawing.epsilon
    )
}

/// u and error along the trajectories.
fn along(drawing: &Drawing) -> Vec<Part> {
    let over_steps = |values: &[f32]| -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(t, v)| ((t + 1) as f64, f64::from(*v))).collect()
    };
    let lines = |pick: fn(&Path) -> &[f32]| -> Vec<Series> {
        let line = |(i, p): (usize, &Path)| {
            Series::line(&format!("trajectory {}", i + 1), over_steps(pick(p))).in_slot(i)
        };
        drawing.paths.iter().enumerate().map(line).collect()
    };
    let last = drawing.paths.iter().map(|p| p.u.len()).max().unwrap_or(1) as f64;
    let epsilon = f64::from(drawing.epsilon);
    let mut score = lines(|p| &p.u);
    score.push(Series::dashed("ε", vec![(1.0, epsilon), (last, epsilon)]).in_slot(4));
    let plot = |title: &str, y: &str, series: Vec<Series>| {
        let plot = Plot { title: title.into(), x: Axis::linear("imagined step"), y: Axis::linear(y), series };
        Box::new(plot)
    };
    vec![
        Part::Figure(
            plot("SUMO's score along the trajectories", "u", score),
            "Cut where it first crosses ε.".into(),
        ),
        Part::Figure(
            plot("How far imagination is from the simulator", "distance of states", lines(|p| &p.error)),
            "The error that the score is to foretell.".into(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::cells::Found;
    use super::*;

    #[test]
    fn what_is_kept_ends_at_the_cut() {
        let path = Path {
            imagined: vec![[2.0, 0.0], [1.5, 0.0], [1.0, 0.0], [0.5, 0.0]],
            real: vec![[2.0, 0.0], [1.5, 0.1], [1.0, 0.2], [0.5, 0.3]],
            u: vec![0.1, 0.9, 0.2],
            error: vec![0.1, 0.2, 0.3],
            kept: 1,
        };
        let field = vec![0.1, 0.9, 0.9, 0.1];
        let drawing =
            Drawing { rows: vec![[2.0, 0.0]], field, side: 2, reach: 3.0, epsilon: 0.5, paths: vec![path] };
        let cell = Cell { id: "i".into(), column: None, dataset: "point-mass".into(), seed: 0 };
        let found = Found { drawing: Some(Box::new(drawing)), ..Found::default() };
        let made = made(&[(cell, Outcome::Done(found))]);
        let Part::Table(_, rows) = &made.tables[1] else { panic!("a table") };
        assert_eq!(rows[0], ["trajectory 1", "3", "1", "0.100", "0.300"]);
        assert!(made.files[0].1.contains("\n0,1,1,1.5,0,"), "{}", made.files[0].1);
        let Part::Drawing(svg, _) = &made.more[1] else { panic!("a drawing") };
        for name in ["imagined and kept", "imagined beyond the cut", "cut", "dataset", "u = ε"] {
            assert!(svg.contains(name), "{name}");
        }
        assert_eq!(svg.matches("<svg").count(), 1);
    }
}
