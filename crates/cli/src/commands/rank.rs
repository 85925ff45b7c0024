//! `offing rank`: which of several runs' policies is best, told without the simulator.

use crate::exit::ExitCode;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use offing::Rng;
use offing::algo::{ModelConfig, Session, Status};
use offing::data::Dataset;
use offing::eval::evaluate;
use offing::nn::Tensors;
use offing::pessimism::{Normaliser, Pessimism};
use offing::rank::{
    FittedQ, FittedQConfig, ModelReturn, ModelReturnConfig, first_states, fitted_q, model_return,
    without_noise,
};
use offing::rollout::ModelRollout;
use offing::run::{CONFIG, METRICS, RunDir, read_metrics};
use offing::sac::{Actor, Deterministic};
use offing::stats::spearman;
use offing::uncertainty::{BuildContext, Uncertainty, UncertaintyConfig};
use offing_mujoco::Physics;
use serde_json::json;
use toml::Value;

use super::data::write_json;
use super::dynamics::task_of;
use super::eval::{LAST, POLICIES};
use super::report::is_study;
use super::train::{Written, reopen};
use crate::context::Context;
use crate::workshop::{Job, in_session};
use crate::{signals, term};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run directories, or directories with runs somewhere inside; all trained on the same transitions.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Episodes in the simulator for each policy, to check the rankings against; 0 for none.
    #[arg(long, default_value_t = 0, value_name = "N")]
    online: usize,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Gradient steps of fitted Q evaluation for each policy.
    #[arg(long, default_value_t = FittedQConfig::default().steps, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Steps for which a policy is followed in the model.
    #[arg(long, default_value_t = ModelReturnConfig::default().length, value_parser = super::bench::positive)]
    length: usize,
    /// Discount of both judges.
    #[arg(long, default_value_t = FittedQConfig::default().gamma)]
    gamma: f64,
    /// Also write everything as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One policy and what was found out about it.
struct Contender {
    run: PathBuf,
    algorithm: String,
    seed: u64,
    /// `last policy` or `best on the way`.
    which: &'static str,
    policy: Actor,
    /// Episodes in the simulator that chose it among others of its run.
    chosen_by: usize,
    fitted: Option<FittedQ>,
    model: Option<ModelReturn>,
    online: Option<f64>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    if !(0.0..1.0).contains(&args.gamma) {
        bail!("--gamma: wanted a number from 0 to below 1, found {}", args.gamma);
    }
    let mut dirs = Vec::new();
    args.runs.iter().try_for_each(|path| find(path, &mut dirs))?;
    let runs = dirs.iter().map(|dir| Ok((dir.clone(), read(dir)?))).collect::<Result<Vec<_>>>()?;
    let (first, written) = runs.first().ok_or_else(|| {
        anyhow!("no run with a {CONFIG} was found; give directories made by `offing train`")
    })?;
    if let Some((other, _)) = runs.iter().find(|(_, w)| w.data != written.data) {
        bail!(
            "{} and {}: were trained on different transitions, so their policies cannot be ranked by them; rank runs of \
             one dataset",
            first.display(),
            other.display()
        );
    }
    let (_, _, _, data) = reopen(context, first)?;
    let mut contenders = Vec::new();
    for (dir, written) in &runs {
        contenders.extend(policies(context, dir, written, &data)?);
    }
    if contenders.is_empty() {
        bail!("none of the runs has a policy yet; wait until one is finished");
    }
    let physics: Physics = written.physics.parse()?;
    let temporary = tempfile::tempdir()?;
    let mut nowhere = RunDir::open_or_create(temporary.path(), "")?;
    let steps = args.steps * contenders.len() as u64;
    let job = Job { dataset: &data, physics, seed: args.seed, steps, json: false };
    signals::keep_nothing();
    let judged = in_session(context, &job, &mut nowhere, |session, _| {
        Ok(judge(args, session, &runs, &mut contenders))
    })?;
    match judged {
        Ok(()) => {}
        Err(offing::Error::Stopped) => {
            context.say("stopped; nothing was kept");
            return Ok(ExitCode::from(130));
        }
        Err(error) => return Err(error.into()),
    }
    print(&contenders, args.online);
    if let Some(path) = &args.json {
        write_json(path, &as_json(&contenders, args))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All runs at or below a path, in the order of their names.
fn find(path: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if path.join(CONFIG).is_file() {
        if !is_study(path) {
            found.push(path.to_path_buf());
        }
        return Ok(());
    }
    let entries = std::fs::read_dir(path)
        .map_err(|e| anyhow!("{}: cannot list: {e}; give a run directory", path.display()))?;
    let mut inside: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
    inside.sort();
    inside.iter().try_for_each(|path| find(path, found))
}

fn read(dir: &Path) -> Result<Written> {
    let path = dir.join(CONFIG);
    let table = crate::config::read_table(&path)?;
    table.try_into().map_err(|e: toml::de::Error| {
        anyhow!("{}: {}; it is no training run", path.display(), e.message().replace('\n', " "))
    })
}

/// The policies of one run.
fn policies(context: &Context, dir: &Path, written: &Written, data: &Dataset) -> Result<Vec<Contender>> {
    let mut found = Vec::new();
    let records = read_metrics(&dir.join(METRICS))?;
    let evaluations = records.iter().filter(|r| r.get("return").is_some_and(|v| v.is_number())).count();
    let episodes = evaluations * written.plan()?.train().episodes;
    for (which, file) in POLICIES {
        let path = dir.join(file);
        if !path.exists() {
            // Without a simulator nothing is ever picked on the way.
            let never = which != LAST && task_of(&data.name).is_none();
            let yet = if never { "" } else { " yet" };
            context.say(&format!("{}: has no {which}{yet}; the others are ranked", dir.display()));
            continue;
        }
        let bytes = std::fs::read(&path).map_err(|e| anyhow!("{}: cannot read: {e}", path.display()))?;
        let policy = Tensors::from_bytes(&bytes).and_then(|t| Actor::from_policy(&t));
        let policy = policy.map_err(|e| anyhow!("{}: {e}", path.display()))?;
        let (widths, wanted) =
            ((policy.obs_dim(), policy.act_dim()), (data.rows.obs_dim(), data.rows.act_dim()));
        if widths != wanted {
            bail!(
                "{}: wanted a policy of widths {wanted:?}, found {widths:?}; check the run",
                path.display()
            );
        }
        found.push(Contender {
            run: dir.to_path_buf(),
            algorithm: written.algorithm.clone(),
            seed: written.seed,
            which,
            policy,
            chosen_by: if which == LAST { 0 } else { episodes },
            fitted: None,
            model: None,
            online: None,
        });
    }
    Ok(found)
}

/// Asks both judges, and the simulator where that was allowed, about every policy.
fn judge(
    args: &Args,
    session: &mut Session<'_>,
    runs: &[(PathBuf, Written)],
    contenders: &mut [Contender],
) -> offing::Result<()> {
    let (pool, data) = (session.pool, session.data);
    in_the_model(args, session, runs, contenders)?;
    let cfg = FittedQConfig { steps: args.steps, gamma: args.gamma, ..FittedQConfig::default() };
    let total = args.steps * contenders.len() as u64;
    for (i, contender) in contenders.iter_mut().enumerate() {
        let before = i as u64 * args.steps;
        let mut watch =
            |step: u64| session.tell(&Status { step: before + step, steps: total, ..Status::default() });
        contender.fitted = Some(fitted_q(&cfg, data, &contender.policy, pool, args.seed, &mut watch)?);
    }
    if args.online > 0 {
        let evaluator = session.evaluator.ok_or_else(|| {
            offing::Error::Invalid("--online: this dataset has no simulator; rank without it".into())
        })?;
        for contender in contenders {
            let found = evaluate(evaluator.envs, &Deterministic(&contender.policy), args.online, args.seed)?;
            contender.online = Some(found.mean());
        }
    }
    Ok(())
}

/// Penalised returns of all policies in one model, that of the first run that has one: a yardstick of its own for each
/// policy would not compare, and a policy has learnt what its own model gets wrong. The penalty is Eq. 6's with SUMO and λ = 1.
fn in_the_model(
    args: &Args,
    session: &mut Session<'_>,
    runs: &[(PathBuf, Written)],
    contenders: &mut [Contender],
) -> offing::Result<()> {
    let model_of = |written: &Written| {
        let mut cfg: ModelConfig =
            written.settings.get("model").cloned().and_then(|m: Value| m.try_into().ok())?;
        cfg.seed = Some(cfg.seed.unwrap_or(written.seed));
        Some(cfg)
    };
    let Some((dir, model_cfg)) = runs.iter().find_map(|(dir, w)| Some((dir, model_of(w)?))) else {
        session.note("none of the runs has a model: no model return");
        return Ok(());
    };
    session.note(format!("all policies act in the model of {}", dir.display()));
    let model = session.model(&model_cfg)?;
    let (data, pool) = (session.data, session.pool);
    let source = BuildContext {
        model: Some(&model),
        pool: pool.clone(),
        seed: args.seed,
        home: Some(session.home),
        ..BuildContext::of_data(&data.rows)
    };
    let sumo: Box<dyn Uncertainty> = UncertaintyConfig::from_id("sumo")?.build(&source)?;
    let cfg = ModelReturnConfig { length: args.length, gamma: args.gamma, ..ModelReturnConfig::default() };
    let rule =
        Pessimism::Penalize { lambda: cfg.lambda, normaliser: Normaliser::Dataset, reward_range: None };
    let guard = rule.calibrate(sumo.max_loo_score(), &data.rows.rew)?;
    let least = data.rows.rew.iter().copied().fold(f32::INFINITY, f32::min);
    let worst = f64::from(least - cfg.lambda * guard.reward_range());
    let first = first_states(data);
    let rng = &mut Rng::stream(args.seed, "rank/starts", 0);
    let picks: Vec<usize> = (0..cfg.starts).map(|_| rng.below(first.nrows())).collect();
    let starts = first.select(ndarray::Axis(0), &picks);
    for contender in contenders {
        let mut dream = ModelRollout { model: &model, estimator: Some(&*sumo), guard: guard.clone(), pool };
        let policy = without_noise(&contender.policy)?;
        // The same draws for all: what differs is the policy.
        let rng = &mut Rng::stream(args.seed, "rank/model", 0);
        contender.model = Some(model_return(&cfg, &mut dream, &policy, starts.clone(), worst, rng)?);
    }
    Ok(())
}

/// A judge: its name and what it says of a policy.
type Judge = (&'static str, fn(&Contender) -> Option<f64>);

const JUDGES: [Judge; 2] =
    [("fitted Q", |c| c.fitted.map(|f| f.value)), ("penalised model return", |c| c.model.map(|m| m.value))];

fn print(contenders: &[Contender], online: usize) {
    for (name, value) in JUDGES {
        let mut order: Vec<(&Contender, f64)> =
            contenders.iter().filter_map(|c| Some((c, value(c)?))).collect();
        if order.is_empty() {
            continue;
        }
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let rows = order.iter().enumerate().map(|(place, (c, value))| {
            let mut row = vec![
                format!("{}. {} s{}", place + 1, c.algorithm, c.seed),
                c.which.to_string(),
                term::number(*value),
                if name == "fitted Q" {
                    c.fitted.map_or("-".into(), |f| term::number(f.error))
                } else {
                    c.model.map_or("-".into(), |m| term::number(m.unpenalised))
                },
            ];
            row.extend(c.online.map(term::number));
            row.push(c.run.display().to_string());
            row
        });
        let aside = if name == "fitted Q" { "error of Q" } else { "without penalty" };
        let by = format!("by {name}");
        let mut header = vec![by.as_str(), "policy", "value", aside];
        if online > 0 {
            header.push("true return");
        }
        header.push("run");
        out!("{}", term::table(&header, rows));
    }
    if let Some(words) = agreement(contenders) {
        out!("{words}");
    }
    out!("{}", budget(contenders, online));
}

/// Spearman's correlation of each judge with the true return; nothing where there is none, or too few policies to rank.
fn correlations(contenders: &[Contender]) -> Vec<(&'static str, Option<f64>)> {
    let of = |value: fn(&Contender) -> Option<f64>| {
        let pairs: Vec<(f64, f64)> = contenders.iter().filter_map(|c| value(c).zip(c.online)).collect();
        let (judged, truth): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let rho = spearman(&judged, &truth);
        (judged.len() > 1 && rho.is_finite()).then_some(rho)
    };
    JUDGES.iter().map(|(name, value)| (*name, of(*value))).collect()
}

fn agreement(contenders: &[Contender]) -> Option<String> {
    let found: Vec<String> = correlations(contenders)
        .into_iter()
        .filter_map(|(name, rho)| Some(format!("{name} {:.2}", rho?)))
        .collect();
    let words = format!("Spearman's ρ with the true return over {} policies: ", contenders.len());
    (!found.is_empty()).then(|| words + &found.join(", "))
}

/// What the rankings cost in the simulator, and what was spent before them.
fn budget(contenders: &[Contender], online: usize) -> String {
    let mut words = match online {
        0 => "0 episodes in the simulator were used for this ranking".to_string(),
        n => format!(
            "0 episodes in the simulator were used for this ranking, {} to check it",
            n * contenders.len()
        ),
    };
    let chosen: usize = contenders.iter().map(|c| c.chosen_by).sum();
    if chosen > 0 {
        words +=
            &format!("; the best policies had been picked by {} episodes in training", term::count(chosen));
    }
    words
}

fn as_json(contenders: &[Contender], args: &Args) -> serde_json::Value {
    let policies = contenders.iter().map(|c| {
        json!({
            "run": c.run, "algorithm": c.algorithm, "seed": c.seed, "policy": c.which,
            "fitted_q": c.fitted, "model_return": c.model, "true_return": c.online,
            "episodes_that_chose_it": c.chosen_by,
        })
    });
    let correlations = correlations(contenders).into_iter();
    let correlations: serde_json::Map<_, _> =
        correlations.map(|(name, rho)| (name.to_string(), json!(rho))).collect();
    json!({
        "policies": policies.collect::<Vec<_>>(), "spearman": correlations, "seed": args.seed, "gamma": args.gamma,
        "fitted_q_steps": args.steps, "model_steps": args.length,
        "online_episodes_for_ranking": 0, "online_episodes_for_checking": args.online * contenders.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(value: f64, online: Option<f64>, chosen_by: usize) -> Contender {
        Contender {
            run: "runs/x".into(),
            algorithm: "mopo".into(),
            seed: 0,
            which: "last policy",
            policy: Actor::new(2, 1, &[], [-5.0, 2.0], &mut Rng::stream(0, "t", 0)),
            chosen_by,
            fitted: Some(FittedQ { value, error: 0.1 }),
            model: None,
            online,
        }
    }

    #[test]
    fn the_budget_is_stated_plainly() {
        let mut both = [contender(1.0, None, 0), contender(2.0, None, 0)];
        assert_eq!(budget(&both, 0), "0 episodes in the simulator were used for this ranking");
        assert_eq!(agreement(&both), None);
        both[1].chosen_by = 1500;
        let words = budget(&both, 10);
        assert!(words.contains("20 to check it") && words.contains("picked by 1,500 episodes"), "{words}");
    }

    #[test]
    fn agreement_is_rank_correlation() {
        let four =
            [(1.0, 10.0), (2.0, 30.0), (3.0, 20.0), (4.0, 40.0)].map(|(v, o)| contender(v, Some(o), 0));
        assert_eq!(
            agreement(&four).unwrap(),
            "Spearman's ρ with the true return over 4 policies: fitted Q 0.80"
        );
    }
}
