//! Whole trainings at full size: seconds of a thousand gradient steps, split by phase, the run of a million steps they
//! project to, and memory. Several algorithms take turns, block by block, so that a busy machine treats them alike.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use offing::Rng;
use offing::algorithms::{Configured, Event, Session, TrainConfig};
use offing::data::Dataset;
use offing::env::{Physics, Simulators};
use offing::eval::evaluate;
use offing::home::Home;
use offing::nn::ThreadPool;
use offing::run::{PhaseTimer, RunDir};
use offing::sac::{Actor, Deterministic};

use super::{Measurements, median, seconds};
use crate::Runtime;
use crate::arguments::positive;
use crate::configure::configure;
use crate::runtime::break_if;

/// What to train.
#[derive(clap::Args)]
pub struct TrainingBench {
    /// Algorithms to measure in turns. Memory is that of all of them together: name one to measure its own.
    #[arg(long, value_delimiter = ' ', num_args = 1.., default_values_t = ["mopo+sumo".to_string(), "mopo".into()])]
    algorithms: Vec<String>,
    /// The dataset to learn from.
    #[arg(long, default_value = "halfcheetah-medium-replay")]
    dataset: String,
    /// Its rows.
    #[arg(long, default_value_t = 1_000_000, value_parser = positive)]
    rows: usize,
    /// Gradient steps of the ensemble before it imagines; a whole run has 100,000. A model of a hundred steps imagines
    /// noise, and noise has no near neighbours: searches then take a hundred times as long.
    #[arg(long, default_value_t = 2000, value_parser = positive)]
    updates: usize,
    /// Change a setting of all algorithms, such as sac.hidden=[64,64] (may be repeated).
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
#[derive(Default)]
pub(crate) struct TimedTraining {
    /// Wall seconds of each block of 1000 gradient steps.
    pub(crate) blocks: Vec<f64>,
    /// Seconds of each step of the ensemble; none when it was found fitted.
    updates: Vec<f64>,
    /// Resident megabytes after each block.
    resident: Vec<f64>,
    /// Seconds of each phase, over all blocks.
    pub(crate) timer: PhaseTimer,
    last_update: Option<Instant>,
    /// The first step of the block, and when it began.
    begun: Option<(u64, Instant)>,
}

impl TrainingBench {
    /// Trains in turns, so many blocks of a thousand gradient steps; `None` when asked to stop on the way.
    ///
    /// # Errors
    /// An unknown algorithm or dataset.
    pub fn run(&self, runtime: &Runtime, samples: usize) -> Result<Option<Measurements>> {
        let data = runtime.load_data(&self.dataset, Some(self.rows), &TrainConfig::default())?;
        let configured = |name: &String| {
            Ok(configure_timed(name, &self.dataset, (None, None), self.updates, &self.set)?.0)
        };
        let all = self.algorithms.iter().map(configured).collect::<Result<Vec<_>>>()?;
        runtime.say("training in turns");
        let Some(timed) = train_in_turns(runtime, &all, &data, samples, 0)? else { return Ok(None) };
        let mut measured = Measurements::new("train", rayon::current_num_threads());
        let evaluation = evaluation(runtime, &data)?;
        let updates: Vec<f64> = timed.iter().flat_map(|t| t.updates.iter().copied()).collect();
        updates.iter().for_each(|s| measured.add("step of the ensemble", "ms", 1e3 * s));
        measured.add("evaluation of 10 episodes", "s", evaluation);
        for (name, timed) in self.algorithms.iter().zip(&timed) {
            report(&mut measured, name, timed, median(&updates) * MODEL_UPDATES + evaluation * EVALUATIONS);
        }
        measured.add("peak memory", "MB", process_status("VmHWM:"));
        // Only what one training alone does shows whether it grows.
        if let [one] = &timed[..]
            && one.resident.len() > FULL
        {
            measured.add("memory growth after the buffer is full", "MB", growth(&one.resident));
        }
        Ok(Some(measured))
    }
}

/// The algorithm's settings for this dataset, with a model that is fitted for a moment only, and the rows the profile asks
/// for; `presets` are a preset and a profile.
pub(crate) fn configure_timed(
    name: &str,
    dataset: &str,
    presets: (Option<&str>, Option<&str>),
    updates: usize,
    set: &[String],
) -> Result<(Configured, Option<usize>)> {
    let never = 1_000_000_000;
    let mut sets = vec![
        format!("model.ensemble.max_updates={updates}"),
        format!("rollout.every={BLOCK}"),
        format!("train.steps={never}"),
        format!("train.evaluate_every={never}"),
        format!("train.checkpoint_every={never}"),
    ];
    sets.extend(set.iter().cloned());
    configure(name, dataset, presets, &sets).with_context(|| format!("timing {name}"))
}

/// Trains all of them for so many blocks, a block at a time in turns; `None` when asked to stop on the way.
pub(crate) fn train_in_turns(
    runtime: &Runtime,
    configured: &[Configured],
    data: &Dataset,
    blocks: usize,
    seed: u64,
) -> Result<Option<Vec<TimedTraining>>> {
    let dir = tempfile::tempdir()?;
    // All of them share what they keep.
    let (home, stop) = (Home::new(dir.path().join("home")), runtime.stop_requested);
    let timed = in_turns(configured, |configured, own, turn| {
        let mut run = RunDir::open_or_create(&dir.path().join(own.to_string()), "")?;
        let pool = ThreadPool::new(rayon::current_num_threads());
        let mut timed = TimedTraining::default();
        let mut on_event = |event: Event<'_>| {
            timed.see(&event, blocks, turn);
            break_if(timed.blocks.len() >= blocks || stop())
        };
        let mut session = Session::new(data, &home, &pool, seed, &mut run, &mut on_event);
        configured.algorithm.run(&mut session)?;
        let timer = session.timer.clone();
        Ok(TimedTraining { timer, ..timed })
    });
    let timed = timed.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(timed.iter().all(|t| t.blocks.len() >= blocks).then_some(timed))
}

/// Does several works on threads of their own. One at a time runs, until it passes its turn or ends.
fn in_turns<W: Sync, T: Send>(
    works: &[W],
    work: impl Fn(&W, usize, &Turn) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    std::thread::scope(|scope| {
        let (mut waiting, mut threads) = (Vec::new(), Vec::new());
        for (own, w) in works.iter().enumerate() {
            let (start, started) = channel();
            let (pass, passed) = channel();
            waiting.push((start, passed));
            let (turn, work) = (Turn { started, pass }, &work);
            threads.push(scope.spawn(move || {
                turn.wait();
                work(w, own, &turn)
            }));
        }
        // One that has ended neither takes another turn nor passes one.
        while !waiting.is_empty() {
            waiting.retain(|(start, passed)| start.send(()).is_ok() && passed.recv().is_ok());
        }
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|ended| ended.unwrap_or_else(|_| Err(anyhow!("a training panicked")))).collect()
    })
}

/// One work's turns among several.
struct Turn {
    started: Receiver<()>,
    pass: Sender<()>,
}

impl Turn {
    fn wait(&self) {
        // Fails only when the round is over, and then nobody waits.
        let _ = self.started.recv();
    }

    /// Lets the others run, and waits for the next turn.
    fn pass(&self) {
        let _ = self.pass.send(());
        self.wait();
    }
}

impl TimedTraining {
    /// Takes times down, and lets others run between two of the blocks that are wanted.
    fn see(&mut self, event: &Event<'_>, wanted: usize, turn: &Turn) {
        match event {
            Event::Fit(_) => {
                let before = self.last_update.replace(Instant::now());
                self.updates.extend(before.map(|b| b.elapsed().as_secs_f64()));
            }
            Event::Step(status) => {
                if let Some((first, since)) = self.begun {
                    if status.step == first || !status.step.is_multiple_of(BLOCK) {
                        return;
                    }
                    self.blocks.push(since.elapsed().as_secs_f64());
                    self.resident.push(process_status("VmRSS:"));
                    if self.blocks.len() < wanted {
                        turn.pass();
                    }
                }
                self.begun = Some((status.step, Instant::now()));
            }
            _ => {}
        }
    }
}

/// One training's figures; `surroundings` are the seconds of model and evaluations in the projected run.
fn report(measured: &mut Measurements, name: &str, timed: &TimedTraining, surroundings: f64) {
    let blocks = timed.blocks.len() as f64;
    timed.blocks.iter().for_each(|s| measured.add(&format!("{name}: 1000 steps"), "s", *s));
    let mean = timed.blocks.iter().sum::<f64>() / blocks;
    let mut other = mean;
    let (mut index, mut checkpoint) = (0.0, 0.0);
    for (phase, total) in timed.timer.phases() {
        match phase {
            "model" => {}
            "index" => index = total,
            "checkpoint" => checkpoint = total,
            _ => {
                other -= total / blocks;
                measured.add(&format!("{name}: {phase} of 1000 steps"), "s", total / blocks);
                measured.add(&format!("{name}: share of {phase}"), "ratio", total / blocks / mean);
            }
        }
    }
    measured.add(&format!("{name}: the rest of 1000 steps"), "s", other);
    measured.add(&format!("{name}: share of the rest"), "ratio", other / mean);
    measured.add(&format!("{name}: checkpoint"), "s", checkpoint);
    measured.add(&format!("{name}: index"), "s", index);
    let learning = median(&timed.blocks) * STEPS / BLOCK as f64;
    let hours = (learning + surroundings + index + checkpoint * CHECKPOINTS) / 3600.0;
    measured.add(&format!("{name}: projected run of 1,000,000 steps"), "h", hours);
}

/// Seconds of an evaluation of ten episodes; nothing for data without a simulator.
fn evaluation(runtime: &Runtime, data: &Dataset) -> Result<f64> {
    let Some(task) = runtime.mujoco.task_of(&data.name) else { return Ok(0.0) };
    let envs = runtime.envs(&task, Physics::default())?;
    let rng = &mut Rng::stream(0, "bench", 0);
    let actor = Actor::new(data.rows.obs_dim(), data.rows.act_dim(), &[256; 3], [-5.0, 2.0], rng);
    // The first makes the simulators.
    evaluate(&envs, &Deterministic(&actor), rayon::current_num_threads(), 0)?;
    seconds(|| Ok(evaluate(&envs, &Deterministic(&actor), EPISODES as usize, 0)?))
}

/// A figure of /proc/self/status in megabytes; NaN where there is none.
fn process_status(key: &str) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trainings_take_turns_until_each_is_done() {
        let order = std::sync::Mutex::new(Vec::new());
        let done = in_turns(&[2, 4, 1], |blocks, own, turn| {
            for block in 0..*blocks {
                order.lock().unwrap().push(own);
                if block + 1 < *blocks {
                    turn.pass();
                }
            }
            Ok(own)
        });
        assert_eq!(done.into_iter().collect::<Result<Vec<usize>>>().unwrap(), [0, 1, 2]);
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
            // Other tests allocate meanwhile: what is now is read before what was most.
            let now = process_status("VmRSS:");
            assert!(now > 1.0 && process_status("VmHWM:") >= now);
        }
    }
}
