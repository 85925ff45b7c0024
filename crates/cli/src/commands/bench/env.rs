//! Simulator steps a second on one core, beside the bare engine on the same trajectories.

use crate::exit::ExitCode;

use anyhow::Result;
use offing_mujoco::{Physics, TASKS, bench};

use super::{Common, Recorder};
use crate::context::Context;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Tasks to step (default: all).
    #[arg(long, value_delimiter = ',')]
    tasks: Vec<String>,
    /// Steps a sample.
    #[arg(long, default_value_t = 20_000, value_parser = super::positive)]
    steps: usize,
    /// Which physics to simulate.
    #[arg(long, default_value_t)]
    physics: Physics,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let engine = context.engine()?;
    let mut recorder = Recorder::new("env", 1);
    let all: Vec<String> = TASKS.iter().map(|t| (*t).to_string()).collect();
    for task in if args.tasks.is_empty() { &all } else { &args.tasks } {
        engine.prepare(task, &mut |line| context.say(line))?;
        let rates = bench::rates(engine, task, args.physics, args.common.samples, args.steps)?;
        for (env, bare) in rates.env.iter().zip(&rates.bare) {
            recorder.add(task, "steps/s", *env);
            recorder.add(&format!("{task}, bare mj_step"), "steps/s", *bare);
            recorder.add(&format!("{task}, share of bare"), "ratio", env / bare);
        }
    }
    recorder.finish(&args.common)
}
