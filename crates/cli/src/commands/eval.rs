//! `offing eval`: scores a policy in the simulator, or the last and the best policy of a run.

use crate::exit::ExitCode;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use offing::env::EnvPool;
use offing::eval::{Evaluation, evaluate};
use offing::policy::{Deterministic, Policy, TanhGaussian, UniformPolicy};
use offing::tasks::{Reference, reference};
use offing_mujoco::{Physics, make};
use serde_json::json;

use super::data::write_json;
use super::dynamics::task_of;
use super::train::{mean_return, reopen};
use crate::context::Context;
use crate::term;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A run directory, a policy file (safetensors), or `uniform` for random actions.
    #[arg(value_name = "RUN|POLICY")]
    policy: String,
    /// The task to play, such as `hopper`; a run knows its own.
    #[arg(long)]
    task: Option<String>,
    /// Episodes to play with each policy.
    #[arg(long, default_value_t = 10)]
    episodes: usize,
    /// Seed of starts and noise.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Sample actions instead of taking the mean.
    #[arg(long)]
    stochastic: bool,
    /// Which physics to simulate [default: the run's own, else d4rl-v2].
    #[arg(long)]
    physics: Option<Physics>,
    /// Also write returns and lengths as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let path = Path::new(&args.policy);
    if path.is_dir() { of_run(context, args, path) } else { of_policy(context, args) }
}

/// The two policies every run has, in the order of tables: what was learnt, and what the simulator chose on the way.
pub(crate) const POLICIES: [(&str, &str); 2] =
    [(LAST, "policy.safetensors"), ("best on the way", "best.safetensors")];

/// What a run's last policy is called.
pub(crate) const LAST: &str = "last policy";

fn of_run(context: &Context, args: &Args, dir: &Path) -> Result<ExitCode> {
    if args.task.is_some() {
        bail!("--task is for policy files; {} says itself what it was trained for", dir.display());
    }
    let (written, _, _, data) = reopen(context, dir)?;
    let Some(task) = task_of(&data.name) else {
        bail!(
            "{}: {} has no simulator to play in, so its policies cannot be scored",
            dir.display(),
            data.name
        );
    };
    let physics = args.physics.map_or_else(|| written.physics.parse(), Ok)?;
    let mut found = Vec::new();
    for (name, file) in POLICIES {
        let path = dir.join(file);
        match path.exists() {
            true => found.push((name, file, play(context, args, &task, physics, Some(&path))?)),
            false if name == LAST => {
                context.say("the run is not finished: its last policy is written at its end")
            }
            false => context.say("no policy was scored on the way, so there is no best one"),
        }
    }
    let behaviour = mean_return(&data);
    let reference = d4rl_reference(&data.name, physics);
    let mut rows: Vec<Vec<String>> = POLICIES
        .iter()
        .map(|(name, _)| match found.iter().find(|(found, ..)| found == name) {
            Some((_, _, result)) => row(name, result, reference),
            None => vec![name.to_string(), "0".into(), "-".into(), "-".into(), "-".into(), "-".into()],
        })
        .collect();
    let score = behaviour.zip(reference).map_or("-".into(), |(mean, r)| format!("{:.1}", r.normalise(mean)));
    let mean = behaviour.map_or("-".into(), term::number);
    rows.push(vec!["dataset's mean return".into(), "-".into(), mean, "-".into(), "-".into(), score]);
    out!("{}", term::table(&header(&format!("{} on {}", written.algorithm, data.name)), rows));
    if let Some(path) = &args.json {
        let policies = found.iter().map(|(name, file, result)| {
            let mut value = figures(result, reference);
            value.insert("policy".into(), json!(name));
            value.insert("file".into(), json!(file));
            value
        });
        let score = behaviour.zip(reference).map(|(mean, r)| r.normalise(mean));
        let value = json!({
            "run": dir, "algorithm": written.algorithm, "dataset": written.dataset, "task": task,
            "physics": physics.to_string(), "seed": args.seed, "stochastic": args.stochastic,
            "policies": policies.collect::<Vec<_>>(),
            "dataset_mean_return": behaviour, "dataset_normalised_score": score,
        });
        write_json(path, &value)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn of_policy(context: &Context, args: &Args) -> Result<ExitCode> {
    let Some(task) = &args.task else {
        bail!("--task is missing: which task is {} to play, such as `--task hopper`?", args.policy);
    };
    let physics = args.physics.unwrap_or_default();
    let path = (args.policy != "uniform").then(|| Path::new(&args.policy));
    let result = play(context, args, task, physics, path)?;
    let reference = d4rl_reference(task, physics);
    print(&[(args.policy.clone(), &result)], task, reference);
    if let Some(path) = &args.json {
        let mut value = figures(&result, reference);
        value.insert("policy".into(), json!(args.policy));
        value.insert("task".into(), json!(task));
        value.insert("physics".into(), json!(physics.to_string()));
        value.insert("seed".into(), json!(args.seed));
        value.insert("stochastic".into(), json!(args.stochastic));
        write_json(path, &value.into())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Plays the episodes with the policy in `path`, or with random actions without one.
fn play(
    context: &Context,
    args: &Args,
    task: &str,
    physics: Physics,
    path: Option<&Path>,
) -> Result<Evaluation> {
    let loaded = path.map(TanhGaussian::load).transpose()?;
    let engine = context.engine()?;
    engine.prepare(task, &mut |line| context.say(line))?;
    let make_env = || make(engine, task, physics);
    let envs = EnvPool::new(&make_env);
    let spec = envs.with(|env| env.spec().clone())?;
    if let Some(policy) = &loaded
        && (policy.obs_dim(), policy.act_dim()) != (spec.obs_dim, spec.act_dim)
    {
        bail!(
            "{}: wanted a policy for {task} ({} observations, {} actions), found one for {} and {}; check --task",
            path.map_or(args.policy.clone(), |p| p.display().to_string()),
            spec.obs_dim,
            spec.act_dim,
            policy.obs_dim(),
            policy.act_dim()
        );
    }
    let policy: &dyn Policy = match &loaded {
        None => &UniformPolicy,
        Some(policy) if args.stochastic => policy,
        Some(policy) => &Deterministic(policy),
    };
    Ok(evaluate(&envs, policy, args.episodes, args.seed)?)
}

fn figures(result: &Evaluation, reference: Option<Reference>) -> serde_json::Map<String, serde_json::Value> {
    let score = reference.map(|r| result.score(&r));
    let value = json!({
        "mean": result.mean(), "std": spread(result), "standard_error": result.standard_error(),
        "normalised_score": score, "episodes": result,
    });
    value.as_object().cloned().unwrap_or_default()
}

/// D4RL's reference returns, where they apply: v5 counts rewards differently, so it has none.
fn d4rl_reference(task: &str, physics: Physics) -> Option<Reference> {
    reference(task).filter(|_| physics != Physics::GymnasiumV5)
}

/// Prints evaluations on one task as a table.
pub(crate) fn print(results: &[(String, &Evaluation)], task: &str, reference: Option<Reference>) {
    let rows = results.iter().map(|(name, result)| row(name, result, reference));
    out!("{}", term::table(&header(task), rows));
}

fn header(title: &str) -> [&str; 6] {
    [title, "episodes", "mean return ± s.e.", "std", "mean length", "normalised score"]
}

/// Standard deviation of the returns; unknown for a single episode.
fn spread(result: &Evaluation) -> Option<f64> {
    (result.returns.len() > 1).then(|| result.std())
}

/// The mean return with its standard error, which a single episode does not have.
pub(crate) fn mean_with_error(result: &Evaluation) -> String {
    let error = result.standard_error().map_or(String::new(), |e| format!(" ± {}", term::number(e)));
    term::number(result.mean()) + &error
}

fn row(name: &str, result: &Evaluation, reference: Option<Reference>) -> Vec<String> {
    let score = reference.map_or("-".into(), |r| {
        let error = result.standard_error().map(|e| format!(" ± {:.1}", r.normalise_spread(e)));
        format!("{:.1}{}", result.score(&r), error.unwrap_or_default())
    });
    vec![
        name.to_string(),
        result.returns.len().to_string(),
        mean_with_error(result),
        spread(result).map_or("-".into(), term::number),
        term::number(result.mean_length()),
        score,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_episode_has_no_spread() {
        let one = Evaluation { returns: vec![45.5], lengths: vec![10] };
        let cells = row("x", &one, reference("hopper"));
        assert!(cells.iter().all(|cell| !cell.contains('±')) && cells[3] == "-", "{cells:?}");
        let figures = figures(&one, None);
        assert!(figures["standard_error"].is_null() && figures["std"].is_null(), "{figures:?}");
        let two = Evaluation { returns: vec![1.0, 3.0], lengths: vec![10, 10] };
        assert_eq!(mean_with_error(&two), format!("{} ± {}", term::number(2.0), term::number(1.0)));
    }
}
