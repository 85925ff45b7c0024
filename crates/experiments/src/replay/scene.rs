//! What a page or a picture of moving bodies holds: outlines in the plane, frame by frame.

use offing::env::{Env, Outline, Shape, SimState};
use serde::Serialize;

/// Positions are kept as whole micrometres: they survive JSON to 1e-6 m.
pub(super) const UNITS_PER_METRE: f64 = 1e6;

/// From where a body is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum View {
    /// Planar bodies: x to the right, z up.
    Side,
    /// The ant and its mazes: x to the right, y up.
    Top,
}

impl View {
    pub(super) fn of(task: &str) -> Self {
        if task.starts_with("ant") { Self::Top } else { Self::Side }
    }

    /// Positions of the root that an observation of `task` hides, and that nothing but motion changes.
    pub(super) fn hidden(self, task: &str) -> usize {
        match self {
            Self::Side => 1,
            Self::Top => {
                if task.starts_with("antmaze") {
                    0
                } else {
                    2
                }
            }
        }
    }

    fn project(self, [x, y, z]: [f64; 3]) -> [f64; 2] {
        match self {
            Self::Side => [x, z],
            Self::Top => [x, y],
        }
    }
}

/// A part of a body: what it is, the same in all frames.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Part {
    /// Half its width.
    pub(super) radius: f64,
}

/// Outlines of all parts in one frame: two points each, in micrometres.
pub(super) type Frame = Vec<[i32; 4]>;

/// Bodies are made of balls and capsules; boxes are the walls of a maze, which stand still.
fn is_wall(shape: &&Shape) -> bool {
    shape.outline == Outline::Box
}

/// The parts of a body, in the order of frames.
pub(super) fn parts(shapes: &[Shape]) -> Vec<Part> {
    shapes.iter().filter(|s| !is_wall(s)).map(|s| Part { radius: s.size[0] }).collect()
}

/// What stands still around the body: two corners of each wall, in metres.
pub(super) fn scenery(view: View, shapes: &[Shape]) -> Vec<[f64; 4]> {
    let corners = |s: &Shape| {
        let [[a, b], [c, d]] = s.ends().map(|end| view.project(end));
        [a, b, c, d]
    };
    shapes.iter().filter(is_wall).map(corners).collect()
}

/// What the simulator shows of a state.
pub(super) fn frame(env: &mut dyn Env, view: View, state: &SimState) -> offing::Result<Frame> {
    env.set_state(state)?;
    Ok(outlines(view, &env.shapes()))
}

fn outlines(view: View, shapes: &[Shape]) -> Frame {
    let whole = |x: f64| (x * UNITS_PER_METRE).round() as i32;
    let ends = |s: &Shape| {
        let [[a, b], [c, d]] = s.ends().map(|end| view.project(end));
        [a, b, c, d].map(whole)
    };
    shapes.iter().filter(|s| !is_wall(s)).map(ends).collect()
}

/// States of a body that was only observed, along the actions it took. Observations hide where the root is, so it moves as the
/// simulator moves it. `None` from where an observation cannot be simulated.
pub(super) fn states_behind<'a>(
    env: &mut dyn Env,
    hidden: usize,
    root: &[f64],
    steps: impl Iterator<Item = (Vec<f64>, &'a [f32])>,
) -> Vec<SimState> {
    let mut root = root[..hidden.min(root.len())].to_vec();
    let mut states = Vec::new();
    for (obs, act) in steps {
        if env.resume_from(&obs).is_err() {
            break;
        }
        let mut state = env.state();
        state.qpos[..root.len()].copy_from_slice(&root);
        states.push(state);
        env.step(act);
        for (x, moved) in root.iter_mut().zip(env.state().qpos) {
            *x += moved;
        }
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outlines_are_the_shapes_to_a_micrometre() {
        let turned = [0.6, 0.0, 0.8, 0.0, 1.0, 0.0, -0.8, 0.0, 0.6];
        let capsule = Shape {
            outline: Outline::Capsule,
            size: [0.05, 0.25, 0.0],
            centre: [1.234_567_8, 9.0, 0.5],
            rotation: turned,
        };
        let found = outlines(View::Side, &[capsule]);
        for (ours, theirs) in found[0].iter().zip([1.034_567_8, 0.35, 1.434_567_8, 0.65]) {
            assert!((f64::from(*ours) / UNITS_PER_METRE - theirs).abs() <= 5.1e-7, "{ours} {theirs}");
        }
        assert_eq!(outlines(View::Top, &[capsule])[0][1], 9_000_000);
        assert_eq!(parts(&[capsule]), [Part { radius: 0.05 }]);
        let wall = Shape {
            outline: Outline::Box,
            rotation: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
            ..capsule
        };
        let all = [wall, capsule];
        assert_eq!(
            (parts(&all).len(), outlines(View::Top, &all).len()),
            (1, 1),
            "a wall is no part of the body"
        );
        assert_eq!(scenery(View::Top, &all).len(), 1);
    }
}
