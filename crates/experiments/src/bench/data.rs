//! Reading, writing and generating datasets.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use offing::data::catalogue::GeneratedName;
use offing::data::{self, Dataset, Format, ReadOptions};
use offing::env::{GenerateOptions, Simulators};

use super::{Measurements, cpu_seconds, seconds};
use crate::Runtime;

/// Reads `file` that often; without one, generates, reads and writes the set of that name and size.
///
/// # Errors
/// An unknown set, or a file that cannot be read.
pub fn bench_data(
    runtime: &Runtime,
    file: Option<&Path>,
    (set, rows): (&str, usize),
    policies: Option<PathBuf>,
    samples: usize,
) -> Result<Measurements> {
    let mut measured = Measurements::new("data", rayon::current_num_threads());
    let dir = tempfile::tempdir()?;
    let made = dir.path().join("made.hdf5");
    let options = GenerateOptions { rows, policies, out: Some(made.clone()), ..GenerateOptions::default() };
    for _ in 0..samples {
        if let Some(file) = file {
            read(file, &mut measured)?;
            continue;
        }
        runtime.mujoco.prepare(&GeneratedName::parse(set)?.task, &mut |line| runtime.say(line))?;
        let wall = seconds(|| Ok(runtime.mujoco.generate(set, &options, &mut |_| ())?))?;
        measured.add(&format!("make {set} ({rows} rows)"), "rows/s", rows as f64 / wall);
        let dataset = read(&made, &mut measured)?;
        let before = cpu_seconds();
        data::write(&dataset, &made, Format::D4RL)?;
        measured.add("write, processor time", "s", cpu_seconds() - before);
    }
    Ok(measured)
}

fn read(file: &Path, measured: &mut Measurements) -> Result<Dataset> {
    let (timer, before) = (Instant::now(), cpu_seconds());
    let dataset = data::read(file, &ReadOptions::default())?;
    measured.add("read, processor time", "s", cpu_seconds() - before);
    measured.add("read, wall time", "s", timer.elapsed().as_secs_f64());
    Ok(dataset)
}
