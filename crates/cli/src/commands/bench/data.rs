//! Reading, writing and making datasets.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use offing::data::catalogue::Recipe;
use offing::data::policy_set::PolicySet;
use offing::data::{self, ReadOptions};
use offing_mujoco::made::{MakeOptions, make_set};

use super::{Common, Recorder, cpu_seconds, seconds};
use crate::context::Context;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// A dataset file to read (default: one is made and written first).
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
    let recipe = Recipe::parse(&args.set)?;
    let engine = context.engine()?;
    engine.prepare(&recipe.task, &mut |line| context.say(line))?;
    for sample in 0..args.common.samples {
        let made = dir.path().join(format!("made-{sample}.hdf5"));
        let options = MakeOptions {
            rows: args.rows,
            policies: args.policies.as_deref().map(PolicySet::open).transpose()?,
            out: Some(made.clone()),
            ..MakeOptions::default()
        };
        let name = format!("make {} ({} rows)", args.set, args.rows);
        let wall =
            seconds(
                || Ok(make_set(engine, &context.catalogue, &recipe, &options, &mut |_| ()).map(|_| ())?),
            )?;
        recorder.add(&name, "rows/s", args.rows as f64 / wall);

        let file = args.file.as_ref().unwrap_or(&made);
        let mut dataset = None;
        let before = cpu_seconds();
        let wall = seconds(|| {
            dataset = Some(data::read(file, &ReadOptions::default())?);
            Ok(())
        })?;
        recorder.add("read, processor time", "s", cpu_seconds() - before);
        recorder.add("read, wall time", "s", wall);
        if let Some(dataset) = dataset {
            let before = cpu_seconds();
            data::write_d4rl(&dataset, &dir.path().join("written.hdf5"))?;
            recorder.add("write, processor time", "s", cpu_seconds() - before);
        }
        std::fs::remove_file(&made)?;
    }
    recorder.finish(&args.common)
}
