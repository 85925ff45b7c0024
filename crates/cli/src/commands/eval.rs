//! `offing eval`: scores a policy in the simulator, or a run's policies: the last, the one picked by its model, the best.

use std::path::Path;

use anyhow::{Result, bail};
use offing::env::{Physics, Simulators};
use offing::eval::{Evaluation, evaluate};
use offing::policy::{Deterministic, Policy, TanhGaussian, UniformPolicy};
use offing::tasks::{Reference, reference_under};
use offing::train::{mean_return, resume};
use offing_experiments::format::{number, or_dash};
use offing_experiments::run_record::{LAST_POLICY, PICKED, POLICIES};
use offing_experiments::{Runtime, Table};
use serde_json::{Value, json};

use crate::args::JsonFile;
use crate::exit::ExitCode;
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
    #[command(flatten)]
    json: JsonFile,
}

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    let path = Path::new(&args.policy);
    if path.is_dir() { of_run(runtime, args, path) } else { of_policy(runtime, args) }
}

fn of_run(runtime: &Runtime, args: &Args, dir: &Path) -> Result<ExitCode> {
    if args.task.is_some() {
        bail!("--task is for policy files; {} says itself what it was trained for", dir.display());
    }
    let run = resume(dir, &mut runtime.hooks())?;
    let data = &run.data.name;
    let Some(task) = runtime.mujoco.task_of(data) else {
        bail!("{}: {data} has no simulator to play in, so its policies cannot be scored", dir.display());
    };
    let physics = args.physics.map_or_else(|| run.physics(), Ok)?;
    let reference = reference_under(&run.data.name, physics);
    let (mut rows, mut policies) = (Vec::new(), Vec::new());
    for (name, file) in POLICIES {
        let path = dir.join(file);
        if path.exists() {
            let result = play(runtime, args, &task, physics, Some(&path))?;
            rows.push(row(name, &result, reference));
            let mut value = figures(&result, reference);
            (value["policy"], value["file"]) = (json!(name), json!(file));
            policies.push(value);
        } else if name != PICKED {
            runtime.say(match name == LAST_POLICY {
                true => "the run is not finished: its last policy is written at its end",
                false => "no policy was scored on the way, so there is no best one",
            });
            rows.push([name, "0", "-", "-", "-", "-"].map(String::from).to_vec());
        }
    }
    let behaviour = mean_return(&run.data);
    let score = behaviour.zip(reference).map(|(mean, r)| r.normalise(mean));
    let (mean, normalised) = (or_dash(behaviour, number), or_dash(score, |s| format!("{s:.1}")));
    rows.push(vec!["dataset's mean return".into(), "-".into(), mean, "-".into(), "-".into(), normalised]);
    let algorithm = &run.manifest.algorithm;
    print(&format!("{algorithm} on {}", run.data.name), rows);
    args.json.write(|| {
        json!({
            "run": dir, "algorithm": algorithm, "dataset": run.manifest.dataset, "task": task,
            "physics": physics.to_string(), "seed": args.seed, "stochastic": args.stochastic, "policies": policies,
            "dataset_mean_return": behaviour, "dataset_normalised_score": score,
        })
    })?;
    Ok(ExitCode::SUCCESS)
}

fn of_policy(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    let Some(task) = &args.task else {
        bail!("--task is missing: which task is {} to play, such as `--task hopper`?", args.policy);
    };
    let physics = args.physics.unwrap_or_default();
    let path = (args.policy != "uniform").then(|| Path::new(&args.policy));
    let result = play(runtime, args, task, physics, path)?;
    let reference = reference_under(task, physics);
    print(task, vec![row(&args.policy, &result, reference)]);
    args.json.write(|| {
        let mut value = figures(&result, reference);
        (value["policy"], value["task"]) = (json!(args.policy), json!(task));
        value["physics"] = json!(physics.to_string());
        (value["seed"], value["stochastic"]) = (json!(args.seed), json!(args.stochastic));
        value
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Plays the episodes with the policy in `path`, or with random actions without one.
fn play(
    runtime: &Runtime,
    args: &Args,
    task: &str,
    physics: Physics,
    path: Option<&Path>,
) -> Result<Evaluation> {
    let loaded = path.map(TanhGaussian::load).transpose()?;
    let envs = runtime.envs(task, physics)?;
    let spec = envs.with(|env| env.spec().clone())?;
    if let (Some(policy), Some(path)) = (&loaded, path) {
        let ((obs, act), wanted) = ((policy.obs_dim(), policy.act_dim()), (spec.obs_dim, spec.act_dim));
        if (obs, act) != wanted {
            let wanted = format!("({} observations, {} actions)", wanted.0, wanted.1);
            let path = path.display();
            bail!("{path}: wanted a policy for {task} {wanted}, found one for {obs} and {act}; check --task");
        }
    }
    let policy: &dyn Policy = match &loaded {
        None => &UniformPolicy,
        Some(policy) if args.stochastic => policy,
        Some(policy) => &Deterministic(policy),
    };
    Ok(evaluate(&envs, policy, args.episodes, args.seed)?)
}

fn figures(result: &Evaluation, reference: Option<Reference>) -> Value {
    json!({
        "mean": result.mean(), "std": spread(result), "standard_error": result.standard_error(),
        "normalised_score": reference.map(|r| result.score(&r)), "episodes": result,
    })
}

/// Prints evaluations as a table.
fn print(title: &str, rows: Vec<Vec<String>>) {
    let header = [title, "episodes", "mean return ± s.e.", "std", "mean length", "normalised score"];
    term::print_table(&Table::new(header, rows));
}

/// Standard deviation of the returns; unknown for a single episode.
fn spread(result: &Evaluation) -> Option<f64> {
    (result.returns.len() > 1).then(|| result.std())
}

/// The mean return with its standard error, which a single episode does not have.
pub(crate) fn mean_with_error(result: &Evaluation) -> String {
    let error = result.standard_error().map_or(String::new(), |e| format!(" ± {}", number(e)));
    number(result.mean()) + &error
}

fn row(name: &str, result: &Evaluation, reference: Option<Reference>) -> Vec<String> {
    let score = or_dash(reference, |r| {
        let error = result.standard_error().map(|e| format!(" ± {:.1}", r.normalise_spread(e)));
        format!("{:.1}{}", result.score(&r), error.unwrap_or_default())
    });
    vec![
        name.to_string(),
        result.returns.len().to_string(),
        mean_with_error(result),
        or_dash(spread(result), number),
        number(result.mean_length()),
        score,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_episode_has_no_spread() {
        let one = Evaluation { returns: vec![45.5], lengths: vec![10] };
        let cells = row("x", &one, reference_under("hopper", Physics::default()));
        assert!(cells.iter().all(|cell| !cell.contains('±')) && cells[3] == "-", "{cells:?}");
        let figures = figures(&one, None);
        assert!(figures["standard_error"].is_null() && figures["std"].is_null(), "{figures:?}");
        let two = Evaluation { returns: vec![1.0, 3.0], lengths: vec![10, 10] };
        assert_eq!(mean_with_error(&two), format!("{} ± {}", number(2.0), number(1.0)));
    }
}
