//! A replay as a moving picture: a GIF, written here, or what ffmpeg makes of the same pictures.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, bail};
use gif::{DisposalMethod, Encoder, Frame as Picture, Repeat};
use offing::home::write_atomic;

use super::Replay;
use super::picture::{palette, panel_size, picture};

/// Pictures a second, and seconds at most.
const RATE: f64 = 20.0;
const LONGEST: f64 = 10.0;
/// The place in the palette of a pixel that is as it was.
const UNCHANGED: u8 = 255;

/// Endings of files that this module writes.
pub(super) const ENDINGS: [&str; 3] = ["gif", "webp", "mp4"];

/// The steps to show, and how long each stays, in hundredths of a second. Bodies with a short step hop faster than eyes
/// follow: they are shown at half their speed.
fn steps(replay: &Replay) -> (Vec<usize>, u16) {
    let longest = replay.tracks.iter().map(|t| t.frames.len()).max().unwrap_or(0);
    let slow = if replay.interval < 0.01 { 0.5 } else { 1.0 };
    let every = (slow / (RATE * replay.interval)).max(1.0);
    let pictures = (longest as f64 / every).ceil().clamp(1.0, RATE * LONGEST) as usize;
    let steps = (0..pictures).map(|i| (i as f64 * every) as usize).collect();
    (steps, (every * replay.interval / slow * 100.0).round() as u16)
}

/// Writes the picture, whole or not at all.
pub(super) fn write(replay: &Replay, path: &Path, ending: &str) -> Result<()> {
    let (width, height) = panel_size(replay);
    let size = (width * replay.tracks.len(), height);
    let (steps, delay) = steps(replay);
    let pictures = steps.into_iter().map(|step| picture(replay, step));
    match ending {
        "gif" => {
            let bytes = encode_gif(pictures, size, delay).context("cannot encode the picture")?;
            Ok(write_atomic(path, |file| file.write_all(&bytes))?)
        }
        _ => by_ffmpeg(pictures, size, 100.0 / f64::from(delay.max(1)), path, ending),
    }
}

fn encode_gif(
    pictures: impl Iterator<Item = Vec<u8>>,
    (width, height): (usize, usize),
    delay: u16,
) -> Result<Vec<u8>> {
    let mut colours = palette();
    colours.resize(3 * 256, 0);
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, width as u16, height as u16, &colours)?;
    encoder.set_repeat(Repeat::Infinite)?;
    let mut before: Vec<u8> = Vec::new();
    for now in pictures {
        // Pixels that stay are left out: most of them, and equal ones take next to no room.
        let changed =
            |(i, pixel): (usize, &u8)| if before.get(i) == Some(pixel) { UNCHANGED } else { *pixel };
        let buffer: Vec<u8> = now.iter().enumerate().map(changed).collect();
        encoder.write_frame(&Picture {
            width: width as u16,
            height: height as u16,
            delay,
            dispose: DisposalMethod::Keep,
            transparent: Some(UNCHANGED),
            buffer: buffer.into(),
            ..Picture::default()
        })?;
        before = now;
    }
    drop(encoder);
    Ok(bytes)
}

fn by_ffmpeg(
    pictures: impl Iterator<Item = Vec<u8>>,
    (width, height): (usize, usize),
    rate: f64,
    path: &Path,
    ending: &str,
) -> Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::Builder::new().suffix(&format!(".{ending}")).tempfile_in(dir)?;
    let mut command = Command::new("ffmpeg");
    command.args(["-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]);
    command.args(["-s", &format!("{width}x{height}"), "-r", &rate.to_string(), "-i", "-"]);
    match ending {
        "webp" => command.args(["-loop", "0", "-lossless", "1"]),
        _ => command.args(["-pix_fmt", "yuv420p", "-movflags", "+faststart"]),
    };
    let child = command.arg(file.path()).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|e| {
        anyhow!(
            "{}: ffmpeg makes .{ending} files and cannot be started ({e}); install it, or write a .gif",
            path.display()
        )
    })?;
    let colours = palette();
    let mut input = child.stdin.take().context("ffmpeg takes no input")?;
    for pixels in pictures {
        let rgb: Vec<u8> =
            pixels.iter().flat_map(|&p| colours[3 * usize::from(p)..][..3].iter().copied()).collect();
        if input.write_all(&rgb).is_err() {
            break;
        }
    }
    drop(input);
    let done = child.wait_with_output()?;
    if !done.status.success() {
        let said =
            String::from_utf8_lossy(&done.stderr).lines().next().unwrap_or("no reason given").to_string();
        bail!("{}: ffmpeg could not make it: {said}; write a .gif instead", path.display());
    }
    file.persist(path).map_err(|e| anyhow!("{}: cannot write: {}", path.display(), e.error))?;
    Ok(())
}
