//! A replay as a moving picture: one strip a track, drawn in software.

use std::path::Path;

use anyhow::{Context as _, Result};
use gif::{Encoder, Frame as Picture, Repeat};
use offing::home::write_atomic;

use super::scene::{Frame, UNITS_PER_METRE, View};
use super::{Replay, Track};

const WIDTH: usize = 480;
const STRIP: usize = 180;
/// Pictures a second, and seconds at most.
const RATE: f64 = 20.0;
const LONGEST: f64 = 10.0;

const PAPER: [u8; 3] = [255, 255, 255];
const GROUND: [u8; 3] = [222, 226, 230];
const BODY: [u8; 3] = [47, 93, 138];
/// Blue near the data, red at and beyond ε, as on the page.
const RAMP: [[u8; 3]; 4] = [[43, 131, 186], [171, 221, 164], [253, 174, 97], [215, 25, 28]];
const RAMP_STEPS: usize = 12;
/// Shades of an ink over the paper.
const SHADES: usize = 16;

/// Inks in the order of the palette: ground, body, then the ramp.
fn inks() -> Vec<[u8; 3]> {
    let ramp = |i: usize| {
        let x = i as f64 / (RAMP_STEPS - 1) as f64 * (RAMP.len() - 1) as f64;
        let at = (x as usize).min(RAMP.len() - 2);
        mix(RAMP[at], RAMP[at + 1], x - at as f64)
    };
    [GROUND, BODY].into_iter().chain((0..RAMP_STEPS).map(ramp)).collect()
}

fn mix(from: [u8; 3], to: [u8; 3], share: f64) -> [u8; 3] {
    std::array::from_fn(|i| {
        (f64::from(from[i]) + (f64::from(to[i]) - f64::from(from[i])) * share).round() as u8
    })
}

/// Writes the picture, whole or not at all.
pub(super) fn write(replay: &Replay, path: &Path) -> Result<()> {
    let palette: Vec<u8> = inks()
        .iter()
        .flat_map(|ink| (0..SHADES).flat_map(|s| mix(PAPER, *ink, s as f64 / (SHADES - 1) as f64)))
        .collect();
    let height = STRIP * replay.tracks.len();
    let longest = replay.tracks.iter().map(|t| t.frames.len()).max().unwrap_or(0);
    let every = (1.0 / (RATE * replay.interval)).max(1.0);
    let pictures = ((longest as f64 / every) as usize).clamp(1, (RATE * LONGEST) as usize);
    let delay = (every * replay.interval * 100.0).round() as u16;
    let draw = |out: &mut dyn std::io::Write| -> Result<()> {
        let mut encoder = Encoder::new(out, WIDTH as u16, height as u16, &palette)?;
        encoder.set_repeat(Repeat::Infinite)?;
        for i in 0..pictures {
            let at = (i as f64 * every) as usize;
            let mut picture = Vec::with_capacity(WIDTH * height);
            for track in &replay.tracks {
                picture.extend(strip(replay, track, at.min(track.frames.len() - 1)));
            }
            let picture = Picture {
                width: WIDTH as u16,
                height: height as u16,
                delay,
                buffer: picture.into(),
                ..Picture::default()
            };
            encoder.write_frame(&picture)?;
        }
        Ok(())
    };
    let mut drawn = Vec::new();
    draw(&mut drawn).context("cannot encode the picture")?;
    Ok(write_atomic(path, |file| std::io::Write::write_all(file, &drawn))?)
}

/// One track at one time.
fn strip(replay: &Replay, track: &Track, at: usize) -> Vec<u8> {
    let frame = &track.frames[at];
    let metre = STRIP as f64 / if replay.view == View::Top { 9.0 } else { 2.2 };
    let body = replay.parts.iter().position(|p| !p.is_box).unwrap_or(0);
    let metres = |x: i32| f64::from(x) / UNITS_PER_METRE;
    let centre: [f64; 2] =
        std::array::from_fn(|i| (metres(frame[body][i]) + metres(frame[body][i + 2])) / 2.0);
    let (middle, floor) = (WIDTH as f64 / 2.0, STRIP as f64 * 0.9);
    let place = |x: i32, y: i32| match replay.view {
        View::Side => [middle + (metres(x) - centre[0]) * metre, floor - metres(y) * metre],
        View::Top => {
            [middle + (metres(x) - centre[0]) * metre, STRIP as f64 / 2.0 - (metres(y) - centre[1]) * metre]
        }
    };
    let mut pixels = vec![0u8; WIDTH * STRIP];
    ground(&mut pixels, replay.view, (centre, metre), floor);
    let mut paint = |frame: &Frame, ink: usize, width: f64| {
        for (part, [a, b, c, d]) in replay.parts.iter().zip(frame) {
            let (from, to) = (place(*a, *b), place(*c, *d));
            if part.is_box {
                fill(&mut pixels, from, to);
            } else {
                stroke(&mut pixels, from, to, (part.radius * metre * width).max(1.0), ink);
            }
        }
    };
    paint(frame, 1, 1.0);
    if let Some(imagined) = &track.imagined
        && let Some((ghost, share)) = imagined.at(at)
    {
        paint(ghost, 2 + (share.clamp(0.0, 1.0) * (RAMP_STEPS - 1) as f32) as usize, 0.45);
    }
    pixels
}

/// The floor from the side, a grid of metres from above; ticks show that the body moves.
fn ground(pixels: &mut [u8], view: View, (centre, metre): ([f64; 2], f64), floor: f64) {
    let light = (SHADES / 2) as u8;
    for (i, pixel) in pixels.iter_mut().enumerate() {
        let (x, y) = ((i % WIDTH) as f64, (i / WIDTH) as f64);
        let on_metre = |centre: f64, offset: f64| ((offset / metre + centre).rem_euclid(1.0) * metre) < 1.5;
        let tick = on_metre(centre[0], x - WIDTH as f64 / 2.0);
        *pixel = match view {
            View::Side if y >= floor => {
                if tick {
                    SHADES as u8 - 1
                } else {
                    light
                }
            }
            View::Top if tick || on_metre(centre[1], STRIP as f64 / 2.0 - y) => light,
            _ => 0,
        };
    }
}

fn fill(pixels: &mut [u8], from: [f64; 2], to: [f64; 2]) {
    let range = |i: usize, end: usize| {
        let (low, high) = (from[i].min(to[i]).max(0.0), from[i].max(to[i]).min(end as f64));
        low as usize..(high.max(low) as usize).min(end)
    };
    for y in range(1, STRIP) {
        for x in range(0, WIDTH) {
            pixels[y * WIDTH + x] = SHADES as u8 - 1;
        }
    }
}

/// A line with round ends; its rim is as dark as it is covered.
fn stroke(pixels: &mut [u8], [ax, ay]: [f64; 2], [bx, by]: [f64; 2], radius: f64, ink: usize) {
    let (dx, dy) = (bx - ax, by - ay);
    let length = (dx * dx + dy * dy).max(1e-12);
    let bounds = |a: f64, b: f64, end: usize| {
        let (low, high) =
            ((a.min(b) - radius - 1.0).max(0.0), (a.max(b) + radius + 2.0).clamp(0.0, end as f64));
        low as usize..high as usize
    };
    for y in bounds(ay, by, STRIP) {
        for x in bounds(ax, bx, WIDTH) {
            let (px, py) = (x as f64 + 0.5 - ax, y as f64 + 0.5 - ay);
            let along = ((px * dx + py * dy) / length).clamp(0.0, 1.0);
            let distance = ((px - along * dx).powi(2) + (py - along * dy).powi(2)).sqrt();
            let cover = (radius - distance + 0.5).clamp(0.0, 1.0);
            let shade = (cover * (SHADES - 1) as f64).round() as usize;
            let pixel = &mut pixels[y * WIDTH + x];
            // A rim that is fainter than what lies under it leaves that alone.
            if shade == SHADES - 1 || shade > usize::from(*pixel) % SHADES {
                *pixel = (ink * SHADES + shade) as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pixel_names_a_colour_of_the_palette() {
        let mut pixels = vec![0; WIDTH * STRIP];
        stroke(&mut pixels, [100.0, 50.0], [140.0, 90.0], 8.0, 2 + RAMP_STEPS - 1);
        assert!(inks().len() * SHADES <= 256);
        assert!(pixels.iter().all(|&p| usize::from(p) < inks().len() * SHADES));
        // Along the axis it is solid, a radius beside it nothing is left.
        assert_eq!(usize::from(pixels[70 * WIDTH + 120]) % SHADES, SHADES - 1);
        assert_eq!(pixels[70 * WIDTH + 120 + 20], 0);
    }

    #[test]
    fn a_line_outside_the_picture_paints_nothing() {
        let mut pixels = vec![0; WIDTH * STRIP];
        stroke(&mut pixels, [-500.0, -500.0], [-400.0, -400.0], 8.0, 1);
        stroke(&mut pixels, [5000.0, 50.0], [6000.0, 50.0], 8.0, 1);
        assert!(pixels.iter().all(|&p| p == 0));
    }
}
