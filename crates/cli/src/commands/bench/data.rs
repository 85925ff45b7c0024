//! Reading, writing and making datasets.

use crate::exit::ExitCode;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use offing::data::catalogue::GeneratedName;
use offing::data::{self, Dataset, ReadOptions};
use offing::env::{GenerateOptions, Simulators};

use super::{Common, Recorder, cpu_seconds, seconds};
use crate::context::Context;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Only read this dataset file (default: one is made, written and read).
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Rows to make.
    #[arg(long, default_value_t = 100_000)]
    rows: usize,
    /// Which set to make.
    #[arg(long, default_value = "hopper-random")]
    set: String,
    /// Behaviour policies for sets that need them.
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let mut recorder = Recorder::new("data", rayon::current_num_threads());
    let dir = tempfile::tempdir()?;
    for _ in 0..args.common.samples {
        match &args.file {
            Some(file) => {
                read(file, &mut recorder)?;
            }
            None => {
                let made = dir.path().join("made.hdf5");
                make(context, args, &made, &mut recorder)?;
                let dataset = read(&made, &mut recorder)?;
                let before = cpu_seconds();
                data::write(&dataset, &made, data::Format::D4RL)?;
                recorder.add("write, processor time", "s", cpu_seconds() - before);
            }
        }
    }
    recorder.finish(&args.common)
}

fn make(context: &Context, args: &Args, out: &Path, recorder: &mut Recorder) -> Result<()> {
    let task = GeneratedName::parse(&args.set)?.task;
    context.mujoco.prepare(&task, &mut |line| context.say(line))?;
    let options = GenerateOptions {
        rows: args.rows,
        policies: args.policies.clone(),
        out: Some(out.into()),
        ..GenerateOptions::default()
    };
    let wall = seconds(|| Ok(context.mujoco.generate(&args.set, &options, &mut |_| ()).map(|_| ())?))?;
    recorder.add(&format!("make {} ({} rows)", args.set, args.rows), "rows/s", args.rows as f64 / wall);
    Ok(())
}

fn read(file: &Path, recorder: &mut Recorder) -> Result<Dataset> {
    let (timer, before) = (Instant::now(), cpu_seconds());
    let dataset = data::read(file, &ReadOptions::default())?;
    recorder.add("read, processor time", "s", cpu_seconds() - before);
    recorder.add("read, wall time", "s", timer.elapsed().as_secs_f64());
    Ok(dataset)
}
