//! `offing eval`: scores a policy in the simulator.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use offing::data::scores::{Reference, reference};
use offing::env::Pool;
use offing::eval::{Evaluation, evaluate};
use offing::policy::{Deterministic, Policy, TanhGaussian, Uniform};
use offing_mujoco::{Physics, make};

use super::data::write_json;
use crate::context::Context;
use crate::term;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A policy file (safetensors), or `uniform` for random actions.
    policy: String,
    /// The task to play, such as `hopper`.
    #[arg(long)]
    task: String,
    /// Episodes to play.
    #[arg(long, default_value_t = 10)]
    episodes: usize,
    /// Seed of starts and noise.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Sample actions instead of taking the mean.
    #[arg(long)]
    stochastic: bool,
    /// Which physics to simulate.
    #[arg(long, default_value_t)]
    physics: Physics,
    /// Also write returns and lengths as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let loaded = match args.policy.as_str() {
        "uniform" => None,
        path => Some(TanhGaussian::load(path.as_ref())?),
    };
    let engine = context.engine()?;
    engine.prepare(&args.task, &mut |line| context.say(line))?;
    let make_env = || make(engine, &args.task, args.physics);
    let pool = Pool::new(&make_env);
    let spec = pool.with(|env| env.spec().clone())?;
    if let Some(policy) = &loaded
        && (policy.obs_dim(), policy.act_dim()) != (spec.obs_dim, spec.act_dim)
    {
        bail!(
            "{}: wanted a policy for {} ({} observations, {} actions), found one for {} and {}; check --task",
            args.policy,
            args.task,
            spec.obs_dim,
            spec.act_dim,
            policy.obs_dim(),
            policy.act_dim()
        );
    }
    let policy: &dyn Policy = match &loaded {
        None => &Uniform,
        Some(policy) if args.stochastic => policy,
        Some(policy) => &Deterministic(policy),
    };
    let result = evaluate(&pool, policy, args.episodes, args.seed)?;
    let reference = d4rl_reference(&args.task, args.physics);
    if let Some(path) = &args.json {
        let score = reference.map(|r| result.score(&r));
        write_json(
            path,
            &serde_json::json!({
                "policy": args.policy, "task": args.task, "physics": args.physics.to_string(), "seed": args.seed,
                "stochastic": args.stochastic, "mean": result.mean(), "std": result.std(),
                "standard_error": result.standard_error(), "normalised_score": score, "episodes": result,
            }),
        )?;
    }
    print(&[(args.policy.clone(), &result)], &args.task, reference);
    Ok(ExitCode::SUCCESS)
}

/// D4RL's reference returns, where they apply: v5 counts rewards differently, so it has none.
fn d4rl_reference(task: &str, physics: Physics) -> Option<Reference> {
    reference(task).filter(|_| physics != Physics::GymnasiumV5)
}

/// Prints evaluations on one task as a table.
pub(crate) fn print(results: &[(String, &Evaluation)], task: &str, reference: Option<Reference>) {
    let rows = results.iter().map(|(name, result)| {
        let score = reference.map_or("-".into(), |r| {
            format!("{:.1} ± {:.1}", result.score(&r), r.normalise_spread(result.standard_error()))
        });
        vec![
            name.clone(),
            result.returns.len().to_string(),
            format!("{} ± {}", term::number(result.mean()), term::number(result.standard_error())),
            term::number(result.std()),
            term::number(result.mean_length()),
            score,
        ]
    });
    out!(
        "{}",
        term::table(
            &[task, "episodes", "mean return ± s.e.", "std", "mean length", "normalised score"],
            rows
        )
    );
}
