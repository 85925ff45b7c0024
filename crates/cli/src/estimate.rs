//! What a run will cost, told before it starts: the algorithm itself runs for a second on a few thousand rows, with few
//! rollouts and an untrained model, and its times are scaled up.

use std::time::Instant;

use anyhow::Result;
use offing::Rng;
use offing::algo::{Event, RolloutConfig, Session};
use offing::data::Dataset;
use offing::dynamics::{EnsembleConfig, FitRequest, TerminationConfig, Trainer, is_cached};
use offing::env::EnvPool;
use offing::home::Home;
use offing::nn::ThreadPool;
use offing::run::{ControlFlow, PhaseTimer, RunDir};
use offing::tasks::horizon;
use offing_mujoco::{Physics, make};
use toml::{Table, Value};

use crate::commands::dynamics::task_of;
use crate::commands::train::Written;
use crate::context::Context;
use crate::term;

/// What is to be forecast.
pub(crate) struct Forecast<'a> {
    pub(crate) written: &'a Written,
    pub(crate) data: &'a Dataset,
    pub(crate) physics: Physics,
    /// Steps that are still to be done.
    pub(crate) left: u64,
}

/// Rows of the dataset the probe learns from.
const ROWS: usize = 4000;
/// Starts of its rollouts, and gradient steps between them.
const STARTS: usize = 500;
const EVERY: u64 = 5;
/// Gradient steps of what is trained once, before the learning.
const ONCE: i64 = 20;
/// Seconds of training after which it is stopped.
const PROBE: f64 = 1.0;
/// How the time of a search grows with the rows searched (measured on half-cheetah; hopper's grows more slowly).
const SEARCH_GROWTH: f64 = 0.38;

/// One line about what the run will cost on this machine.
pub(crate) fn estimate(context: &Context, of: &Forecast<'_>) -> Result<String> {
    let threads = rayon::current_num_threads();
    let pool = ThreadPool::new(threads);
    let few = of.data.subsampled(ROWS, 0);
    let (model, model_words) = model_cost(context, of, &few, &pool)?;
    let (begin, step) = step_cost(of, &few, &pool)?;
    let learning = step * of.left as f64;
    let before: f64 = begin.iter().map(|(_, seconds)| seconds).sum();
    let (evaluating, evaluations) = evaluation_cost(context, of, threads)?;
    let total = term::duration(model.unwrap_or(0.0) + before + learning + evaluating);
    let mut parts = vec![model_words];
    parts.extend(begin.iter().map(|(what, seconds)| format!("{what} {}", term::duration(*seconds))));
    parts.push(format!(
        "{} steps at {:.1} ms ({})",
        term::count(of.left as usize),
        1e3 * step,
        term::duration(learning)
    ));
    if evaluations > 0 {
        parts.push(format!(
            "{evaluations} evaluations of up to {}",
            term::duration(evaluating / evaluations as f64)
        ));
    }
    parts.retain(|words| !words.is_empty());
    let after = if model.is_none() { " after the model" } else { "" };
    let s = if threads == 1 { "" } else { "s" };
    Ok(format!("about {total}{after} on {threads} thread{s}: {}", parts.join(", ")))
}

/// Seconds that fitting the model may take, and words about it; no number where the data decide how many epochs there are.
fn model_cost(
    context: &Context,
    of: &Forecast<'_>,
    few: &Dataset,
    pool: &ThreadPool,
) -> Result<(Option<f64>, String)> {
    let Some(model) = of.written.settings.get("model").and_then(Value::as_table) else {
        return Ok((Some(0.0), String::new()));
    };
    let Some(cfg) = model.get("ensemble").cloned().and_then(|e| e.try_into::<EnsembleConfig>().ok()) else {
        return Ok((Some(0.0), String::new()));
    };
    let seed = model.get("seed").and_then(Value::as_integer).map_or(of.written.seed, |seed| seed as u64);
    let fit =
        FitRequest { rows: &of.data.rows, config: &cfg, termination: &TerminationConfig::Never {}, seed };
    if is_cached(context.home(), &fit)? {
        return Ok((Some(0.0), "the model is there already".into()));
    }
    let mut trainer = Trainer::new(&cfg, &few.rows, 0, pool)?;
    trainer.step()?;
    let (start, mut updates) = (Instant::now(), 0);
    while updates < 3 || (updates < 20 && start.elapsed().as_secs_f64() < 0.2) {
        trainer.step()?;
        updates += 1;
    }
    let update = start.elapsed().as_secs_f64() / f64::from(updates);
    let rows = of.data.rows.len();
    let held = ((rows as f64 * cfg.holdout) as usize).min(cfg.holdout_max);
    let epoch = (rows - held).div_ceil(cfg.batch_size) as u64;
    let most = [cfg.max_epochs.map(|n| n as u64 * epoch), cfg.max_updates].into_iter().flatten().min();
    Ok(match most {
        Some(most) => {
            let seconds = update * most as f64;
            (Some(seconds), format!("model up to {}", term::duration(seconds)))
        }
        None => {
            let seconds = term::duration(update * epoch as f64);
            (None, format!("model {seconds} an epoch until it stops improving"))
        }
    })
}

/// Trainings that come once, before the first gradient step, with their seconds.
type Before = Vec<(&'static str, f64)>;

/// What comes before the first gradient step (RAMBO clones, some estimators train encoders), and seconds of one step with
/// its share of the rollouts, measured by running the algorithm itself.
fn step_cost(of: &Forecast<'_>, few: &Dataset, pool: &ThreadPool) -> Result<(Before, f64)> {
    let mut settings = of.written.settings.clone();
    let rollout: Option<RolloutConfig> =
        settings.get("rollout").cloned().and_then(|table| table.try_into().ok());
    put(&mut settings, &["train", "evaluate_every"], i64::MAX);
    put(&mut settings, &["train", "checkpoint_every"], i64::MAX);
    put(&mut settings, &["train", "steps"], i64::MAX);
    let starts = rollout.as_ref().map_or(0, |r| r.starts.min(STARTS));
    if rollout.is_some() {
        put(&mut settings, &["rollout", "every"], EVERY as i64);
        put(&mut settings, &["rollout", "starts"], starts as i64);
    }
    put(&mut settings, &["model", "ensemble", "max_updates"], 1);
    let cloning = shorten(&mut settings, &["cloning", "steps"]);
    let encoder = shorten(&mut settings, &["uncertainty", "updates"]);
    let plan = Written { settings, ..of.written.clone() }.plan()?;
    let dir = tempfile::tempdir()?;
    let home = Home::new(dir.path().join("home"));
    let mut run = RunDir::open_or_create(&dir.path().join("run"), "")?;
    let (mut first, mut steps) = (None, 0);
    let mut watch = |event: Event<'_>| {
        let Event::Step(status) = event else { return ControlFlow::Continue(()) };
        steps = status.step;
        let first: &Instant = first.get_or_insert_with(Instant::now);
        if steps > 0 && first.elapsed().as_secs_f64() > PROBE {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let mut session = Session {
        data: few,
        home: &home,
        pool,
        seed: of.written.seed,
        evaluator: None,
        run: &mut run,
        watch: &mut watch,
        timer: PhaseTimer::default(),
        scores: Default::default(),
    };
    match plan.run(&mut session) {
        Ok(_) | Err(offing::Error::Stopped) => {}
        Err(error) => return Err(error.into()),
    }
    let (mut begin, mut per_step) = (Before::new(), 0.0);
    for (phase, seconds) in session.timer.phases() {
        per_step += match phase {
            "cloning" if cloning.is_some() => {
                begin.extend(cloning.map(|times| ("cloning", seconds * times)));
                0.0
            }
            "index" => {
                begin.extend(encoder.map(|times| ("the estimator", seconds * times)));
                0.0
            }
            "model" | "checkpoint" | "evaluate" => 0.0,
            "rollout" => {
                let rollouts = steps.div_ceil(EVERY).max(1) as f64;
                let wanted = rollout.as_ref().map_or(0.0, |r| r.starts as f64 / r.every as f64);
                seconds / rollouts / starts.max(1) as f64 * wanted
            }
            "search" => {
                let growth = (of.data.rows.len() as f64 / few.rows.len() as f64).powf(SEARCH_GROWTH);
                seconds / steps.max(1) as f64 * growth
            }
            _ => seconds / steps.max(1) as f64,
        };
    }
    Ok((begin, per_step))
}

/// Seconds of all evaluations, should every episode last to its end, and their number.
fn evaluation_cost(context: &Context, of: &Forecast<'_>, threads: usize) -> Result<(f64, u64)> {
    let train = of.written.plan()?.train().clone();
    let (Some(task), Some(length)) = (task_of(&of.data.name), horizon(&of.data.name)) else {
        return Ok((0.0, 0));
    };
    let engine = context.engine()?;
    engine.prepare(&task, &mut |line| context.say(line))?;
    let make_env = || make(engine, &task, of.physics);
    let mut act = vec![0.0; of.data.rows.act_dim()];
    let mut rng = Rng::stream(0, "estimate", 0);
    let step = EnvPool::new(&make_env).with(|env| {
        env.reset(0);
        let (start, steps) = (Instant::now(), 200);
        for _ in 0..steps {
            act.iter_mut().for_each(|a| *a = rng.range(-1.0, 1.0) as f32);
            let moment = env.step(&act);
            if moment.terminated || moment.truncated {
                env.reset(0);
            }
        }
        start.elapsed().as_secs_f64() / f64::from(steps)
    })?;
    let evaluations = of.left.div_ceil(train.evaluate_every);
    let rounds = train.episodes.div_ceil(threads.min(train.episodes)) as f64;
    Ok((step * length as f64 * rounds * evaluations as f64, evaluations))
}

/// Cuts a number of gradient steps down to a few, where the settings have it; returns how many times more there were.
fn shorten(settings: &mut Table, path: &[&str; 2]) -> Option<f64> {
    let steps = settings.get(path[0])?.get(path[1])?.as_integer().filter(|n| *n > 0)?;
    put(settings, path, steps.min(ONCE));
    Some(steps as f64 / steps.min(ONCE) as f64)
}

/// Sets a value at a path of tables that are there; other algorithms have other tables.
fn put(settings: &mut Table, path: &[&str], value: i64) {
    match path {
        [key] => drop(settings.insert((*key).to_string(), Value::Integer(value))),
        [key, rest @ ..] => {
            if let Some(table) = settings.get_mut(*key).and_then(Value::as_table_mut) {
                put(table, rest, value);
            }
        }
        [] => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_shortened_where_the_settings_have_the_steps() {
        let text = "[cloning]\nsteps = 50000\n[uncertainty]\nkind = \"sumo\"\n";
        let mut settings: Table = toml::from_str(text).unwrap();
        assert_eq!(shorten(&mut settings, &["cloning", "steps"]), Some(2500.0));
        assert_eq!(shorten(&mut settings, &["uncertainty", "updates"]), None);
        put(&mut settings, &["model", "ensemble", "max_updates"], 1);
        let wanted: Table = toml::from_str(&text.replace("50000", "20")).unwrap();
        assert_eq!(settings, wanted, "no table is made up");
    }
}
