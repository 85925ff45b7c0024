//! One picture of a replay, drawn in software: panels beside each other, each with its body, its words and, where something was
//! imagined, the imagined body as an outline in the colour of u.

use super::lettering;
use super::scene::{Frame, UNITS_PER_METRE, View};
use super::{Replay, Track};

const PAPER: [u8; 3] = [255, 255, 255];
const GROUND: [u8; 3] = [214, 220, 226];
const BODY: [u8; 3] = [61, 76, 92];
/// Blue as near as the data are to each other, red at and beyond ε, as on the page.
const RAMP: [[u8; 3]; 4] = [[43, 131, 186], [122, 198, 158], [253, 190, 90], [215, 38, 30]];
const RAMP_STEPS: usize = 12;
/// Shades of an ink over the paper.
const SHADES: usize = 16;
/// Places of inks in the palette.
const GROUND_INK: usize = 0;
const BODY_INK: usize = 1;
const RAMP_INK: usize = 2;
/// Pixels of a letter's unit: small letters are four units tall.
const LETTER: f64 = 1.55;
/// Torso positions before now that a trail shows.
const TRAIL: usize = 100;

/// The colours of a picture, three numbers each; pixels are places in it.
pub(super) fn palette() -> Vec<u8> {
    let ramp = |i: usize| {
        let x = i as f64 / (RAMP_STEPS - 1) as f64 * (RAMP.len() - 1) as f64;
        let at = (x as usize).min(RAMP.len() - 2);
        mix(RAMP[at], RAMP[at + 1], x - at as f64)
    };
    let inks = [GROUND, BODY].into_iter().chain((0..RAMP_STEPS).map(ramp));
    inks.flat_map(|ink| (0..SHADES).flat_map(move |s| mix(PAPER, ink, s as f64 / (SHADES - 1) as f64)))
        .collect()
}

fn mix(from: [u8; 3], to: [u8; 3], share: f64) -> [u8; 3] {
    std::array::from_fn(|i| {
        (f64::from(from[i]) + (f64::from(to[i]) - f64::from(from[i])) * share).round() as u8
    })
}

/// Width of a panel, and height of all; even numbers, as video wants them.
pub(super) fn panel_size(replay: &Replay) -> (usize, usize) {
    match (replay.tracks.len(), replay.view) {
        (1, View::Side) => (480, 260),
        (_, View::Side) => (360, 240),
        (_, View::Top) => (340, 340),
    }
}

/// All panels at one step, row by row.
pub(super) fn picture(replay: &Replay, at: usize) -> Vec<u8> {
    let (width, height) = panel_size(replay);
    let panels: Vec<Panel> = replay.tracks.iter().map(|track| panel(replay, track, at)).collect();
    let row =
        |y: usize| panels.iter().flat_map(move |p| p.pixels[y * width..(y + 1) * width].iter().copied());
    (0..height).flat_map(row).collect()
}

struct Panel {
    pixels: Vec<u8>,
    width: usize,
    height: usize,
}

/// From metres to pixels.
struct Camera {
    centre: [f64; 2],
    middle: [f64; 2],
    metre: f64,
}

impl Camera {
    /// Follows the body; a maze is shown whole.
    fn new(replay: &Replay, frame: &Frame, (width, height): (usize, usize)) -> Self {
        let (width, height) = (width as f64, height as f64);
        let torso = torso(frame);
        if !replay.scenery.is_empty() {
            let ends = |i: usize| {
                let all = replay.scenery.iter().flat_map(move |w| [w[i], w[i + 2]]);
                all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
            };
            let ((x0, x1), (y0, y1)) = (ends(0), ends(1));
            let metre = 0.97 * (width / (x1 - x0)).min((height - 44.0) / (y1 - y0));
            return Self {
                centre: [(x0 + x1) / 2.0, (y0 + y1) / 2.0],
                middle: [width / 2.0, height / 2.0 + 20.0],
                metre,
            };
        }
        match replay.view {
            View::Side => {
                Self { centre: [torso[0], 0.0], middle: [width / 2.0, 0.9 * height], metre: height / 2.45 }
            }
            View::Top => {
                Self { centre: torso, middle: [width / 2.0, height / 2.0 + 10.0], metre: height / 6.0 }
            }
        }
    }

    fn place(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        [
            self.middle[0] + (x - self.centre[0]) * self.metre,
            self.middle[1] - (y - self.centre[1]) * self.metre,
        ]
    }

    fn ends(&self, line: &[i32; 4]) -> [[f64; 2]; 2] {
        let [a, b, c, d] = line.map(|v| f64::from(v) / UNITS_PER_METRE);
        [self.place([a, b]), self.place([c, d])]
    }
}

fn torso(frame: &Frame) -> [f64; 2] {
    let [a, b, c, d] = frame.first().map_or([0.0; 4], |line| line.map(|v| f64::from(v) / UNITS_PER_METRE));
    [(a + c) / 2.0, (b + d) / 2.0]
}

/// One track at one step. Episodes of the data begin again where they end.
fn panel(replay: &Replay, track: &Track, at: usize) -> Panel {
    let count = track.frames.len();
    let at = if track.repeat { at % count } else { at.min(count - 1) };
    let (width, height) = panel_size(replay);
    let camera = Camera::new(replay, &track.frames[at], (width, height));
    let mut panel = Panel { pixels: vec![0; width * height], width, height };
    panel.ground(replay, &camera);
    let from = at.saturating_sub(TRAIL);
    for pair in track.frames[from..=at].windows(2) {
        panel.stroke(
            [camera.place(torso(&pair[0])), camera.place(torso(&pair[1]))],
            0.7,
            (GROUND_INK, SHADES - 1),
        );
    }
    // As the model imagined it, in the colour of u; a new start from the real state is no movement.
    for step in from + 1..=at {
        let Some(imagined) = track.imagined.as_ref().filter(|i| !i.starts_at(step - 1)) else { continue };
        if let (Some((before, _)), Some((now, share))) = (imagined.at(step - 1), imagined.at(step)) {
            let line = [camera.place(torso(before)), camera.place(torso(now))];
            panel.stroke(line, 1.2, (ramp_ink(f64::from(share)), SHADES - 1));
        }
    }
    let radius = |i: usize| (replay.parts[i].radius * camera.metre).max(1.0);
    for (i, line) in track.frames[at].iter().enumerate() {
        // A rim of paper keeps limbs apart that cross.
        panel.stroke(camera.ends(line), radius(i) + 1.2, (BODY_INK, 0));
        panel.stroke(camera.ends(line), radius(i), (BODY_INK, SHADES - 1));
    }
    if let Some((ghost, share)) = track.imagined.as_ref().filter(|_| at > 0).and_then(|i| i.at(at)) {
        let capsules: Vec<_> =
            ghost.iter().enumerate().map(|(i, line)| (camera.ends(line), radius(i))).collect();
        panel.rim(&capsules, ramp_ink(f64::from(share)));
    }
    panel.words(track, at);
    panel
}

fn ramp_ink(share: f64) -> usize {
    RAMP_INK + (share.clamp(0.0, 1.0) * (RAMP_STEPS - 1) as f64).round() as usize
}

impl Panel {
    /// The floor from the side, a grid of metres from above, walls; lines show that the body moves.
    fn ground(&mut self, replay: &Replay, camera: &Camera) {
        let (faint, light) = ((SHADES / 4) as u8, (SHADES / 2) as u8);
        let on_metre = |centre: f64, offset: f64| {
            ((offset / camera.metre + centre).rem_euclid(1.0) * camera.metre) < 1.0
        };
        let whole = !replay.scenery.is_empty();
        for (i, pixel) in self.pixels.iter_mut().enumerate() {
            let (x, y) = ((i % self.width) as f64, (i / self.width) as f64);
            let tick = on_metre(camera.centre[0], x - camera.middle[0]);
            *pixel = match replay.view {
                _ if whole => 0,
                View::Side if y >= camera.middle[1] => {
                    if tick {
                        SHADES as u8 - 1
                    } else {
                        light
                    }
                }
                View::Top if tick || on_metre(camera.centre[1], camera.middle[1] - y) => faint,
                View::Side if tick && y > 44.0 => faint,
                _ => 0,
            };
        }
        for &[a, b, c, d] in &replay.scenery {
            self.fill(camera.place([a, b]), camera.place([c, d]));
        }
    }

    /// Name and result at the top; the step, and what colours mean, at the bottom.
    fn words(&mut self, track: &Track, at: usize) {
        let (width, height) = (self.width as f64, self.height as f64);
        self.text(&track.name, [10.0, 19.0], 0.95);
        self.text(&track.about, [10.0, 37.0], 0.6);
        self.text(&format!("step {at}"), [10.0, height - 8.0], 0.6);
        if track.imagined.is_some() {
            let (left, base, wide) = (width - 128.0, height - 8.0, 5.0);
            self.text("u", [left - 14.0, base], 0.8);
            for i in 0..RAMP_STEPS {
                let x = left + i as f64 * wide;
                self.stroke([[x, base - 3.5], [x + wide, base - 3.5]], 3.2, (RAMP_INK + i, SHADES - 1));
            }
            self.text("ε", [left + wide * RAMP_STEPS as f64 + 10.0, base], 0.8);
        }
    }

    fn text(&mut self, text: &str, at: [f64; 2], weight: f64) {
        // What does not fit is left out, letter by letter.
        let room = ((self.width as f64 - at[0] - 4.0) / lettering::width("n", LETTER)) as usize;
        let text: String = text.chars().take(room).collect();
        for line in lettering::strokes(&text, at, LETTER) {
            self.stroke(line, weight, (BODY_INK, SHADES - 1));
        }
    }

    fn fill(&mut self, from: [f64; 2], to: [f64; 2]) {
        let range = |i: usize, end: usize| {
            let (low, high) = (from[i].min(to[i]).max(0.0), from[i].max(to[i]).min(end as f64));
            low.round() as usize..(high.max(low).round() as usize).min(end)
        };
        for y in range(1, self.height) {
            for x in range(0, self.width) {
                self.pixels[y * self.width + x] = SHADES as u8 - 1;
            }
        }
    }

    /// Where pixels can be within `reach` of a line.
    fn around(&self, [a, b]: [[f64; 2]; 2], reach: f64) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let range = |i: usize, end: usize| {
            let (low, high) = (a[i].min(b[i]) - reach - 1.0, a[i].max(b[i]) + reach + 2.0);
            low.clamp(0.0, end as f64) as usize..high.clamp(0.0, end as f64) as usize
        };
        (range(0, self.width), range(1, self.height))
    }

    /// A line with round ends; its rim is as dark as it is covered.
    fn stroke(&mut self, line: [[f64; 2]; 2], radius: f64, (ink, darkest): (usize, usize)) {
        let (xs, ys) = self.around(line, radius);
        for y in ys {
            for x in xs.clone() {
                let cover = (radius - distance([x, y], line) + 0.5).clamp(0.0, 1.0);
                let shade = (cover * (SHADES - 1) as f64).round() as usize;
                let pixel = &mut self.pixels[y * self.width + x];
                if darkest == 0 {
                    // Paper: wipes out what is more than half covered.
                    *pixel = if cover > 0.5 { 0 } else { *pixel };
                } else if shade == SHADES - 1 || shade > usize::from(*pixel) % SHADES {
                    // A rim that is fainter than what lies under it leaves that alone.
                    *pixel = (ink * SHADES + shade) as u8;
                }
            }
        }
    }

    /// A rim around capsules taken together, about four pixels wide and mostly outside.
    fn rim(&mut self, capsules: &[([[f64; 2]; 2], f64)], ink: usize) {
        for (line, radius) in capsules {
            let (xs, ys) = self.around(*line, *radius + 3.0);
            for y in ys {
                for x in xs.clone() {
                    let depth =
                        capsules.iter().map(|(line, r)| r - distance([x, y], *line)).fold(f64::MIN, f64::max);
                    let cover = (2.5 - (depth + 0.75).abs()).clamp(0.0, 1.0);
                    if cover > 0.45 {
                        self.pixels[y * self.width + x] =
                            (ink * SHADES + (cover * (SHADES - 1) as f64) as usize) as u8;
                    }
                }
            }
        }
    }
}

/// From the middle of a pixel to a line.
fn distance([x, y]: [usize; 2], [[ax, ay], [bx, by]]: [[f64; 2]; 2]) -> f64 {
    let (dx, dy) = (bx - ax, by - ay);
    let (px, py) = (x as f64 + 0.5 - ax, y as f64 + 0.5 - ay);
    let along = ((px * dx + py * dy) / (dx * dx + dy * dy).max(1e-12)).clamp(0.0, 1.0);
    (px - along * dx).hypot(py - along * dy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blank() -> Panel {
        Panel { pixels: vec![0; 200 * 100], width: 200, height: 100 }
    }

    #[test]
    fn every_pixel_names_a_colour_of_the_palette() {
        let mut panel = blank();
        panel.stroke([[100.0, 50.0], [140.0, 90.0]], 8.0, (ramp_ink(2.0), SHADES - 1));
        let colours = palette().len() / 3;
        assert!(colours < 256, "one place is left for what does not change");
        assert!(panel.pixels.iter().all(|&p| usize::from(p) < colours));
        // Along the axis it is solid, far beside it nothing is left.
        assert_eq!(usize::from(panel.pixels[70 * 200 + 120]) % SHADES, SHADES - 1);
        assert_eq!(panel.pixels[70 * 200 + 140], 0);
    }

    #[test]
    fn an_outline_leaves_its_inside_alone() {
        let mut panel = blank();
        panel.rim(&[([[60.0, 50.0], [140.0, 50.0]], 12.0)], ramp_ink(0.0));
        assert_eq!(panel.pixels[50 * 200 + 100], 0, "the middle");
        assert_eq!(usize::from(panel.pixels[38 * 200 + 100]) / SHADES, ramp_ink(0.0), "the rim");
    }

    #[test]
    fn a_line_outside_the_picture_paints_nothing() {
        let mut panel = blank();
        panel.stroke([[-500.0, -500.0], [-400.0, -400.0]], 8.0, (1, SHADES - 1));
        panel.stroke([[5000.0, 50.0], [6000.0, 50.0]], 8.0, (1, SHADES - 1));
        panel.text(&"long".repeat(100), [190.0, 95.0], 0.6);
        panel.stroke([[f64::NAN, 0.0], [1.0, 1.0]], 1.0, (1, SHADES - 1));
        assert!(panel.pixels.iter().take(90 * 200).all(|&p| p == 0));
    }
}
