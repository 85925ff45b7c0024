//! `offing quickstart`: from nothing to a scored policy, in one command.

use std::process::ExitCode;

use anyhow::Result;
use offing::data::audit::audit;
use offing::data::catalogue::{Origin, Recipe};
use offing::data::scores::reference;
use offing::data::{self, ReadOptions};
use offing::env::Pool;
use offing::eval::evaluate;
use offing::policy::Uniform;
use offing_mujoco::made::MakeOptions;
use offing_mujoco::{Physics, horizon, make};

use super::{data as data_command, eval};
use crate::context::Context;
use crate::report::print_audit;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Transitions to record.
    #[arg(long, default_value_t = 50_000)]
    rows: usize,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let recipe = Recipe::parse("hopper-random")?;
    let engine = context.engine()?;
    context.say(&format!("MuJoCo {} from {}", engine.version(), engine.library().display()));

    let options = MakeOptions { rows: args.rows, seed: args.seed, ..MakeOptions::default() };
    let path = data_command::make_shown(context, &recipe, &options)?;
    let data = data::read(&path, &ReadOptions { name: Some(recipe.name.clone()), ..ReadOptions::default() })?;
    print_audit(&audit(&data, horizon(&data.name)), Origin::Made);

    context.say("scoring its behaviour policy in the simulator");
    let make_env = || make(engine, &recipe.task, Physics::default());
    let result = evaluate(&Pool::new(&make_env), &Uniform, 20, args.seed)?;
    eval::print(&[("uniform actions".into(), &result)], &recipe.task, reference(&recipe.task));
    out!("dataset: {}", path.display());
    Ok(ExitCode::SUCCESS)
}
