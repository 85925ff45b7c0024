//! Whole trainings at full size: seconds of a thousand gradient steps, split by phase, the run of a million steps they
//! project to, and memory. Several algorithms take turns, block by block, so that a busy machine treats them alike.

use crate::exit::ExitCode;
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use offing::Rng;
use offing::algo::{Event, Session, TrainConfig};
use offing::data::Dataset;
use offing::env::EnvPool;
use offing::eval::evaluate;
use offing::home::Home;
use offing::nn::ThreadPool;
use offing::run::{ControlFlow, PhaseTimer, RunDir};
use offing::sac::{Actor, Deterministic};
use offing_mujoco::{Physics, make};

use super::super::dynamics::task_of;
use super::{Common, Recorder, median, seconds};
use crate::algorithms::{Algorithm, Plan};
use crate::context::Context;
use crate::datasets::find_data;
use crate::signals;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Algorithms to measure in turns. Memory is that of all of them together: name one to know its own.
    #[arg(long, value_delimiter = ' ', num_args = 1.., default_values_t = ["mopo+sumo".to_string(), "mopo".into()])]
    algorithms: Vec<String>,
    /// The dataset to learn from.
    #[arg(long, default_value = "halfcheetah-medium-replay")]
    dataset: String,
    /// Its rows.
    #[arg(long, default_value_t = 1_000_000, value_parser = super::positive)]
    rows: usize,
    /// Gradient steps of the ensemble before it imagines; a whole run has 100,000. A model of a hundred steps imagines
    /// noise, and noise has no near neighbours: searches then take a hundred times as long.
    #[arg(long, default_value_t = 2000, value_parser = super::positive)]
    updates: usize,
    /// Change a setting of all algorithms, such as sac.hidden=[64,64]; may be given again.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// The run that is projected: a million steps, after so many of the ensemble, with so many evaluations and checkpoints.
const STEPS: f64 = 1e6;
const MODEL_UPDATES: f64 = 1e5;
const EVALUATIONS: f64 = 100.0;
const EPISODES: f64 = 10.0;
const CHECKPOINTS: f64 = 100.0;
/// Gradient steps between two looks at the timer, and between rollouts.
const BLOCK: u64 = 1000;
/// Blocks after which the buffer of imagined rows has its full size, so that memory may not grow any more.
const FULL: usize = 5;

/// What one training was seen to do.
pub(crate) struct Timed {
    /// Wall seconds of each block of 1000 gradient steps.
    pub(crate) blocks: Vec<f64>,
    /// Seconds of each step of the ensemble; none when it was found fitted.
    updates: Vec<f64>,
    /// Resident megabytes after each block.
    resident: Vec<f64>,
    /// Seconds of each phase, over all blocks.
    pub(crate) timer: PhaseTimer,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let threads = rayon::current_num_threads();
    let data = find_data(context, &args.dataset, Some(args.rows), &TrainConfig::default())?;
    let plan = |name: &String| Ok(plan_timed(name, &args.dataset, (None, None), args.updates, &args.set)?.0);
    let plans = args.algorithms.iter().map(plan).collect::<Result<Vec<_>>>()?;
    context.say("training in turns");
    let Some(seen) = train_in_turns(&plans, &data, args.common.samples, 0)? else {
        return Ok(ExitCode::from(130));
    };
    let mut recorder = Recorder::new("train", threads);
    let evaluation = evaluation(context, &data)?;
    let updates: Vec<f64> = seen.iter().flat_map(|s| s.updates.iter().copied()).collect();
    updates.iter().for_each(|s| recorder.add("step of the ensemble", "ms", 1e3 * s));
    recorder.add("evaluation of 10 episodes", "s", evaluation);
    for (name, seen) in args.algorithms.iter().zip(&seen) {
        report(&mut recorder, name, seen, median(&updates) * MODEL_UPDATES + evaluation * EVALUATIONS);
    }
    recorder.add("peak memory", "MB", status("VmHWM:"));
    // Only what one training alone does tells whether it grows.
    if let [one] = &seen[..]
        && one.resident.len() > FULL
    {
        recorder.add("memory growth after the buffer is full", "MB", growth(&one.resident));
    }
    recorder.finish(&args.common)
}

/// The algorithm's settings for this dataset, with a model that is fitted for a moment only, and the rows the profile asks
/// for; `presets` are a preset and a profile.
pub(crate) fn plan_timed(
    name: &str,
    dataset: &str,
    presets: (Option<&str>, Option<&str>),
    updates: usize,
    set: &[String],
) -> Result<(Plan, Option<usize>)> {
    let algorithm = Algorithm::parse(name)?;
    let mut prepared = algorithm.layers(dataset, presets.0, presets.1)?;
    let layers = &mut prepared.layers;
    layers.set(&format!("model.ensemble.max_updates={updates}"))?;
    layers.set(&format!("rollout.every={BLOCK}"))?;
    layers.set("train.steps=1000000000")?;
    layers.set("train.evaluate_every=1000000000")?;
    layers.set("train.checkpoint_every=1000000000")?;
    set.iter().try_for_each(|set| layers.set(set))?;
    let plan = algorithm.plan(layers).with_context(|| format!("timing {name}"))?;
    Ok((plan, prepared.rows))
}

/// Trains all of them for so many blocks, a block at a time in turns; `None` when asked to stop on the way.
pub(crate) fn train_in_turns(
    plans: &[Plan],
    data: &Dataset,
    blocks: usize,
    seed: u64,
) -> Result<Option<Vec<Timed>>> {
    let dir = tempfile::tempdir()?;
    let turns = Turns::new(plans.len());
    let seen: Vec<Result<Timed>> = std::thread::scope(|scope| {
        let (turns, dir) = (&turns, dir.path());
        let workers: Vec<_> = plans
            .iter()
            .enumerate()
            .map(|(i, plan)| scope.spawn(move || train(plan, (data, seed), dir, blocks, (turns, i))))
            .collect();
        let joined = workers.into_iter().map(|w| w.join());
        joined.map(|seen| seen.unwrap_or_else(|_| Err(anyhow!("a training panicked")))).collect()
    });
    let seen = seen.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(seen.iter().all(|s| s.blocks.len() >= blocks).then_some(seen))
}

/// Trains for so many blocks, one at a time when it is this training's turn, and writes one checkpoint.
fn train(
    plan: &Plan,
    (data, seed): (&Dataset, u64),
    dir: &Path,
    samples: usize,
    (turns, own): (&Turns, usize),
) -> Result<Timed> {
    let _place = turns.take(own);
    let home = Home::new(dir.join("home"));
    let mut run = RunDir::open_or_create(&dir.join(own.to_string()), "")?;
    let pool = ThreadPool::new(rayon::current_num_threads());
    let (mut blocks, mut updates, mut resident) = (Vec::new(), Vec::new(), Vec::new());
    let (mut since, mut last_update, mut last_step) = (Instant::now(), None, None);
    let mut watch = |event: Event<'_>| {
        match event {
            Event::Fit(_) => {
                let before: Option<Instant> = last_update.replace(Instant::now());
                updates.extend(before.map(|b| b.elapsed().as_secs_f64()));
            }
            Event::Step(status) if last_step.is_none() => {
                (since, last_step) = (Instant::now(), Some(status.step));
            }
            Event::Step(status) if status.step.is_multiple_of(BLOCK) && Some(status.step) != last_step => {
                blocks.push(since.elapsed().as_secs_f64());
                resident.push(self::status("VmRSS:"));
                if blocks.len() < samples {
                    turns.pass(own);
                }
                (since, last_step) = (Instant::now(), Some(status.step));
            }
            _ => {}
        }
        if blocks.len() >= samples || signals::asked_to_stop() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let mut session = Session {
        data,
        home: &home,
        pool: &pool,
        seed,
        evaluator: None,
        run: &mut run,
        watch: &mut watch,
        timer: PhaseTimer::default(),
        scores: Default::default(),
    };
    plan.run(&mut session)?;
    let timer = session.timer.clone();
    Ok(Timed { blocks, updates, resident, timer })
}

/// One training's figures; `surroundings` are the seconds of model and evaluations in the projected run.
fn report(recorder: &mut Recorder, name: &str, seen: &Timed, surroundings: f64) {
    let blocks = seen.blocks.len() as f64;
    seen.blocks.iter().for_each(|s| recorder.add(&format!("{name}: 1000 steps"), "s", *s));
    let mean = seen.blocks.iter().sum::<f64>() / blocks;
    let mut other = mean;
    let (mut index, mut checkpoint) = (0.0, 0.0);
    for (phase, total) in seen.timer.phases() {
        match phase {
            "model" => {}
            "index" => index = total,
            "checkpoint" => checkpoint = total,
            _ => {
                other -= total / blocks;
                recorder.add(&format!("{name}: {phase} of 1000 steps"), "s", total / blocks);
                recorder.add(&format!("{name}: share of {phase}"), "ratio", total / blocks / mean);
            }
        }
    }
    recorder.add(&format!("{name}: the rest of 1000 steps"), "s", other);
    recorder.add(&format!("{name}: share of the rest"), "ratio", other / mean);
    recorder.add(&format!("{name}: checkpoint"), "s", checkpoint);
    recorder.add(&format!("{name}: index"), "s", index);
    let learning = median(&seen.blocks) * STEPS / BLOCK as f64;
    let hours = (learning + surroundings + index + checkpoint * CHECKPOINTS) / 3600.0;
    recorder.add(&format!("{name}: projected run of 1,000,000 steps"), "h", hours);
}

/// Seconds of an evaluation of ten episodes; nothing for data without a simulator.
fn evaluation(context: &Context, data: &Dataset) -> Result<f64> {
    let Some(task) = task_of(&data.name) else { return Ok(0.0) };
    let engine = context.engine()?;
    engine.prepare(&task, &mut |line| context.say(line))?;
    let make_env = || make(engine, &task, Physics::default());
    let envs = EnvPool::new(&make_env);
    let rng = &mut Rng::stream(0, "bench", 0);
    let actor = Actor::new(data.rows.obs_dim(), data.rows.act_dim(), &[256; 3], [-5.0, 2.0], rng);
    // The first makes the simulators.
    evaluate(&envs, &Deterministic(&actor), rayon::current_num_threads(), 0)?;
    seconds(|| Ok(evaluate(&envs, &Deterministic(&actor), EPISODES as usize, 0)?))
}

/// A figure of /proc/self/status in megabytes; NaN where there is none.
fn status(key: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kilobytes = line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(f64::NAN) / 1024.0
}

/// Megabytes by which the later half of what follows the filling of the buffer lies above the first block after it.
fn growth(resident: &[f64]) -> f64 {
    let steady = &resident[FULL - 1..];
    median(&steady[steady.len() / 2..]) - steady[0]
}

/// Whose turn it is among several trainings.
struct Turns {
    state: Mutex<(usize, Vec<bool>)>,
    changed: Condvar,
}

/// A place in the round, given back when its holder is done or fails.
struct Place<'a>(&'a Turns, usize);

impl Turns {
    fn new(count: usize) -> Self {
        Self { state: Mutex::new((0, vec![true; count])), changed: Condvar::new() }
    }

    /// Waits for the first turn of `own`.
    fn take(&self, own: usize) -> Place<'_> {
        self.wait(own);
        Place(self, own)
    }

    /// Gives the turn to the next and waits for the next one of `own`.
    fn pass(&self, own: usize) {
        self.advance(own, true);
        self.wait(own);
    }

    fn wait(&self, own: usize) {
        let state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        let _state = self.changed.wait_while(state, |(turn, _)| *turn != own);
    }

    fn advance(&self, own: usize, stays: bool) {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        state.1[own] = stays;
        let count = state.1.len();
        let next = (1..=count).map(|i| (own + i) % count).find(|&i| state.1[i]);
        state.0 = next.unwrap_or(count);
        self.changed.notify_all();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.advance(self.1, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trainings_take_turns_until_each_is_done() {
        let turns = Turns::new(3);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for (own, blocks) in [(0, 2), (1, 4), (2, 1)] {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let _place = turns.take(own);
                    for block in 0..blocks {
                        order.lock().unwrap().push(own);
                        if block + 1 < blocks {
                            turns.pass(own);
                        }
                    }
                });
            }
        });
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 0, 1, 1, 1]);
    }

    #[test]
    fn growth_is_what_comes_after_the_buffer_is_full() {
        assert_eq!(growth(&[10.0, 20.0, 30.0, 40.0, 50.0, 50.0, 51.0, 50.0]), 0.5);
        assert_eq!(growth(&[10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0]), 25.0);
    }

    #[test]
    fn memory_is_read_from_the_system() {
        if cfg!(target_os = "linux") {
            assert!(status("VmHWM:") >= status("VmRSS:") && status("VmRSS:") > 1.0);
        }
    }
}
