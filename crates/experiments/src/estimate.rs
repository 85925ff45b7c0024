//! What a run will cost, before it starts: the algorithm itself runs for a second on a few thousand rows, with few rollouts and
//! an untrained model, and its times are scaled up.

use std::time::Instant;

use anyhow::Result;
use offing::Rng;
use offing::algorithms::{Configured, Event, Registry, Session};
use offing::data::Dataset;
use offing::dynamics::{FitRequest, TerminationConfig, Trainer, is_cached};
use offing::env::Simulators;
use offing::home::Home;
use offing::nn::ThreadPool;
use offing::run::{ControlFlow, RunDir};
use offing::tasks::horizon;
use offing::train::PreparedRun;
use toml::Table;

use crate::Runtime;
use crate::format::{count, counted, duration};
use crate::runtime::break_if;

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

/// Settings with a number of gradient steps that come once, before the first of the learner: RAMBO clones, some estimators
/// train encoders. Each with its phase in the timer, and what it is called here.
const TRAINED_ONCE: [(&str, &str, &str, &str); 2] =
    [("cloning", "steps", "cloning", "cloning"), ("uncertainty", "updates", "index", "the estimator")];

/// One line about what is left of a run on this machine; `None` when it is finished.
///
/// # Errors
/// A probe that fails.
pub fn estimate(runtime: &Runtime, run: &PreparedRun) -> Result<Option<String>> {
    let left = run.steps_left();
    if left == 0 {
        return Ok(None);
    }
    let threads = rayon::current_num_threads();
    let pool = ThreadPool::new(threads);
    let few = run.data.subsampled(ROWS, 0);
    let (model, model_words) = model_cost(runtime, run, &few, &pool)?;
    let (begin, step) = step_cost(run, &few, &pool)?;
    let learning = step * left as f64;
    let before: f64 = begin.iter().map(|(_, seconds)| seconds).sum();
    let (evaluating, evaluations) = evaluation_cost(runtime, run, threads)?;
    let total = duration(model.unwrap_or(0.0) + before + learning + evaluating);
    let mut parts = vec![model_words];
    parts.extend(begin.iter().map(|(what, seconds)| format!("{what} {}", duration(*seconds))));
    parts.push(format!("{} steps at {:.1} ms ({})", count(left as usize), 1e3 * step, duration(learning)));
    if evaluations > 0 {
        parts.push(format!(
            "{evaluations} evaluations of up to {}",
            duration(evaluating / evaluations as f64)
        ));
    }
    parts.retain(|words| !words.is_empty());
    let after = if model.is_none() { " after the model" } else { "" };
    Ok(Some(format!("about {total}{after} on {}: {}", counted(threads, "thread"), parts.join(", "))))
}

/// Seconds that fitting the model may take, and words about it; no number where the data decide how many epochs there are.
fn model_cost(
    runtime: &Runtime,
    run: &PreparedRun,
    few: &Dataset,
    pool: &ThreadPool,
) -> Result<(Option<f64>, String)> {
    let Some(model) = run.configured.algorithm.blocks().model else { return Ok((Some(0.0), String::new())) };
    let (cfg, seed) = (&model.ensemble, model.seed.unwrap_or(run.manifest.seed));
    let fit = FitRequest {
        rows: &run.data.rows,
        names: &run.data.names,
        config: cfg,
        termination: &TerminationConfig::Never {},
        seed,
    };
    if is_cached(runtime.home(), &fit)? {
        return Ok((Some(0.0), "the model is there already".into()));
    }
    let mut trainer = Trainer::new(cfg, &few.rows, 0, pool)?;
    trainer.step()?;
    let (start, mut updates) = (Instant::now(), 0);
    while updates < 3 || (updates < 20 && start.elapsed().as_secs_f64() < 0.2) {
        trainer.step()?;
        updates += 1;
    }
    let update = start.elapsed().as_secs_f64() / f64::from(updates);
    let rows = run.data.rows.len();
    let held = ((rows as f64 * cfg.holdout) as usize).min(cfg.holdout_max);
    let epoch = (rows - held).div_ceil(cfg.batch_size) as u64;
    let most = [cfg.max_epochs.map(|n| n as u64 * epoch), cfg.max_updates].into_iter().flatten().min();
    Ok(match most {
        Some(most) => {
            let seconds = update * most as f64;
            (Some(seconds), format!("model up to {}", duration(seconds)))
        }
        None => {
            let seconds = duration(update * epoch as f64);
            (None, format!("model {seconds} an epoch until it stops improving"))
        }
    })
}

/// The algorithm of a run with settings for the probe, and how many times longer what is trained once takes in the run itself.
fn probe(run: &PreparedRun) -> Result<(Configured, Vec<Option<f64>>)> {
    let never = i64::MAX;
    let mut set =
        ["evaluate_every", "checkpoint_every", "steps"].map(|key| format!("train.{key}={never}")).to_vec();
    if let Some(rollout) = run.configured.algorithm.blocks().rollout {
        set.push(format!("rollout.every={EVERY}"));
        set.push(format!("rollout.starts={}", rollout.starts.min(STARTS)));
    }
    set.extend(run.configured.algorithm.blocks().model.map(|_| "model.ensemble.max_updates=1".to_string()));
    // Steps of a warm start cost less than those after it.
    if run.manifest.settings.contains_key("warm_start") {
        set.push("warm_start.steps=0".into());
    }
    let once = TRAINED_ONCE.map(|(table, key, ..)| shortened(&run.manifest.settings, table, key));
    for ((table, key, ..), (steps, _)) in TRAINED_ONCE.iter().zip(once.iter().flatten()) {
        set.push(format!("{table}.{key}={steps}"));
    }
    let algorithm = Registry::default().parse(&run.manifest.algorithm)?;
    let mut layers = algorithm.defaults()?;
    layers.put(run.manifest.settings.clone());
    set.iter().try_for_each(|set| layers.set(set))?;
    Ok((algorithm.configure(&layers)?, once.iter().map(|once| once.map(|(_, times)| times)).collect()))
}

/// A few gradient steps in place of those of a setting, and how many times more there are; `None` where there is no such
/// setting.
fn shortened(settings: &Table, table: &str, key: &str) -> Option<(i64, f64)> {
    let steps = settings.get(table)?.get(key)?.as_integer().filter(|n| *n > 0)?;
    Some((steps.min(ONCE), steps as f64 / steps.min(ONCE) as f64))
}

/// What comes once, before the first gradient step, with its seconds; and seconds of one step with its share of the rollouts,
/// measured by running the algorithm itself.
fn step_cost(run: &PreparedRun, few: &Dataset, pool: &ThreadPool) -> Result<(Vec<(&'static str, f64)>, f64)> {
    let (probe, once) = probe(run)?;
    let dir = tempfile::tempdir()?;
    let home = Home::new(dir.path().join("home"));
    let mut run_dir = RunDir::open_or_create(&dir.path().join("run"), "")?;
    let (mut first, mut steps) = (None, 0);
    let mut on_event = |event: Event<'_>| {
        let Event::Step(status) = event else { return ControlFlow::Continue(()) };
        steps = status.step;
        let first: &Instant = first.get_or_insert_with(Instant::now);
        break_if(steps > 0 && first.elapsed().as_secs_f64() > PROBE)
    };
    let mut session = Session::new(few, &home, pool, run.manifest.seed, &mut run_dir, &mut on_event);
    match probe.algorithm.run(&mut session) {
        Ok(_) | Err(offing::Error::Stopped) => {}
        Err(error) => return Err(error.into()),
    }
    let timer = session.timer.clone();
    let (mut begin, mut per_step) = (Vec::new(), 0.0);
    for (phase, seconds) in timer.phases() {
        if let Some(place) = TRAINED_ONCE.iter().position(|(_, _, known, _)| *known == phase) {
            if let Some(times) = once[place] {
                begin.push((TRAINED_ONCE[place].3, seconds * times));
            }
            // An index is built once even where no encoder is trained for it.
            if once[place].is_some() || phase == "index" {
                continue;
            }
        }
        per_step += match phase {
            "model" | "checkpoint" | "evaluate" | "gather" | "follow" => 0.0,
            "rollout" => {
                let (probed, wanted) =
                    (probe.algorithm.blocks().rollout, run.configured.algorithm.blocks().rollout);
                let rollouts = steps.div_ceil(EVERY).max(1) as f64;
                let starts = probed.map_or(1, |r| r.starts.max(1)) as f64;
                seconds / rollouts / starts * wanted.map_or(0.0, |r| r.starts as f64 / r.every as f64)
            }
            "search" => {
                let growth = (run.data.rows.len() as f64 / few.rows.len() as f64).powf(SEARCH_GROWTH);
                seconds / steps.max(1) as f64 * growth
            }
            _ => seconds / steps.max(1) as f64,
        };
    }
    Ok((begin, per_step))
}

/// Seconds of all evaluations, should every episode last to its end, and their number.
fn evaluation_cost(runtime: &Runtime, run: &PreparedRun, threads: usize) -> Result<(f64, u64)> {
    let train = run.train_config();
    let (Some(task), Some(length)) = (runtime.mujoco.task_of(&run.data.name), horizon(&run.data.name)) else {
        return Ok((0.0, 0));
    };
    let mut act = vec![0.0; run.data.rows.act_dim()];
    let mut rng = Rng::stream(0, "estimate", 0);
    let step = runtime.envs(&task, run.physics()?)?.with(|env| {
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
    let evaluations = run.steps_left().div_ceil(train.evaluate_every);
    let rounds = train.episodes.div_ceil(threads.min(train.episodes)) as f64;
    Ok((step * length as f64 * rounds * evaluations as f64, evaluations))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_shortened_where_the_settings_have_the_steps() {
        let text = "[cloning]\nsteps = 50000\n[uncertainty]\nkind = \"sumo\"\n";
        let settings: Table = toml::from_str(text).unwrap();
        assert_eq!(shortened(&settings, "cloning", "steps"), Some((20, 2500.0)));
        assert_eq!(shortened(&settings, "uncertainty", "updates"), None);
        assert_eq!(shortened(&settings, "model", "updates"), None);
    }
}
