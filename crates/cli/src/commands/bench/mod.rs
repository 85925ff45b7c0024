//! `offing bench …`: speed, measured. Every bench prints a table and writes the same JSON.

mod data;
mod dynamics;
mod env;
mod knn;
mod sac;
mod train;
mod uncertainty;

use std::path::PathBuf;

use crate::exit::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Subcommand;
use offing::nn::{ThreadPool, peak};
use offing::uncertainty::UncertaintyConfig;
use offing::{Batch, Mat, Rng};
use serde::Serialize;

pub(crate) use train::{Timed, plan_timed, train_in_turns};

use super::data::write_json;
use super::doctor::cpu_name;
use crate::context::Context;
use crate::term;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Simulator steps a second on one core, beside the bare engine.
    Env(env::Args),
    /// Reading, writing and making datasets.
    Data(data::Args),
    /// Exact neighbour search on imagined transitions.
    Knn(knn::Args),
    /// One gradient step of actor, critics and temperature.
    Sac(sac::Args),
    /// One gradient step of the model ensemble, and its forecasts.
    Dynamics(dynamics::Args),
    /// Scoring imagined rows, beside the ensemble's own forward pass.
    Uncertainty(uncertainty::Args),
    /// Whole trainings: seconds of a thousand gradient steps by phase, the projected run, memory.
    Train(train::Args),
}

pub(crate) fn run(context: &Context, command: &Bench) -> Result<ExitCode> {
    match command {
        Bench::Env(args) => env::run(context, args),
        Bench::Data(args) => data::run(context, args),
        Bench::Knn(args) => knn::run(context, args),
        Bench::Sac(args) => sac::run(args),
        Bench::Dynamics(args) => dynamics::run(args),
        Bench::Uncertainty(args) => uncertainty::run(context, args),
        Bench::Train(args) => train::run(context, args),
    }
}

/// Options of every bench.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// Write the samples as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How often each thing is measured.
    #[arg(long, default_value_t = 5, value_parser = positive)]
    samples: usize,
}

/// A count of at least 1, for clap.
pub(crate) fn positive(text: &str) -> std::result::Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "wanted a whole number of at least 1".into())
}

/// What the benches of the learning core share: the shape of the work, which is half-cheetah's.
#[derive(clap::Args)]
pub(crate) struct Learning {
    #[command(flatten)]
    common: Common,
    /// Threads that do the arithmetic.
    #[arg(long, default_value_t = 2, value_parser = positive)]
    threads: usize,
    /// Gradient steps a sample round.
    #[arg(long, default_value_t = 20, value_parser = positive)]
    updates: usize,
    /// Rows of one gradient step.
    #[arg(long, default_value_t = 256, value_parser = positive)]
    batch: usize,
    /// Width of a state.
    #[arg(long, default_value_t = 17, value_parser = positive)]
    obs: usize,
    /// Width of an action.
    #[arg(long, default_value_t = 6, value_parser = positive)]
    act: usize,
}

impl Learning {
    /// Rows of noise: speed does not depend on what is learnt.
    fn rows(&self, rows: usize, rng: &mut Rng) -> Batch {
        let mut mat = |cols: usize| Mat::from_shape_fn((rows, cols), |_| rng.normal() as f32);
        let (obs, act, next_obs) = (mat(self.obs), mat(self.act).mapv(f32::tanh), mat(self.obs));
        Batch { rew: obs.column(0).to_owned(), obs, act, next_obs, done: vec![false; rows].into() }
    }

    /// Measures `--updates` runs of `step` and, before and after them, the machine's peak; records the times, the
    /// peak, and the share of the peak that `flop` operations in the median time are.
    fn measure(
        &self,
        recorder: &mut Recorder,
        pool: &ThreadPool,
        (name, flop): (&str, f64),
        mut step: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let before = peak(pool);
        let mut times = Vec::with_capacity(self.updates);
        for _ in 0..self.updates {
            times.push(seconds(&mut step)?);
        }
        // One side of a pair of peaks may be disturbed; their mean is what the updates could have had.
        let peak = (before + peak(pool)) / 2.0;
        times.iter().for_each(|t| recorder.add(name, "ms", t * 1e3));
        recorder.add("FMA peak", "GFLOP/s", peak / 1e9);
        recorder.add("share of the peak", "ratio", flop / median(&times) / peak);
        Ok(())
    }
}

/// The samples of one measured thing.
#[derive(Serialize)]
pub(crate) struct Measured {
    name: String,
    unit: &'static str,
    median: f64,
    samples: Vec<f64>,
}

/// Collects samples and hands them out as table and JSON.
pub(crate) struct Recorder {
    bench: &'static str,
    threads: usize,
    results: Vec<Measured>,
}

impl Recorder {
    pub(crate) fn new(bench: &'static str, threads: usize) -> Self {
        Self { bench, threads, results: Vec::new() }
    }

    /// Adds one sample; samples of one name belong together, in the order of their first mention.
    pub(crate) fn add(&mut self, name: &str, unit: &'static str, value: f64) {
        let place = self.results.iter().position(|r| r.name == name).unwrap_or_else(|| {
            self.results.push(Measured { name: name.into(), unit, median: 0.0, samples: Vec::new() });
            self.results.len() - 1
        });
        let result = &mut self.results[place];
        result.samples.push(value);
        result.median = median(&result.samples);
    }

    pub(crate) fn finish(self, common: &Common) -> Result<ExitCode> {
        let rows = self.results.iter().map(|r| {
            let (low, high) =
                r.samples.iter().fold((f64::INFINITY, 0.0f64), |(l, h), &s| (l.min(s), h.max(s)));
            vec![
                r.name.clone(),
                term::number(r.median),
                term::number(low),
                term::number(high),
                r.unit.to_string(),
            ]
        });
        out!("{}", term::table(&[self.bench, "median", "min", "max", "unit"], rows));
        if let Some(path) = &common.json {
            let value = serde_json::json!({
                "bench": self.bench, "commit": commit(), "machine": cpu_name(), "threads": self.threads,
                "results": self.results,
            });
            write_json(path, &value)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// An estimator's id, and those of its settings that are not the defaults: `sumo k=5`.
pub(crate) fn estimator_label(config: &UncertaintyConfig) -> String {
    let settings = |of: &UncertaintyConfig| serde_json::to_value(of).unwrap_or_default();
    let usual = UncertaintyConfig::from_id(config.id()).map(|d| settings(&d)).unwrap_or_default();
    let mut label = config.id().to_string();
    for (key, value) in settings(config).as_object().into_iter().flatten() {
        if usual.get(key) != Some(value) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_string);
            label.push_str(&format!(" {key}={value}"));
        }
    }
    label
}

pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// The commit this program was built from, with a mark when sources differed from it; the version where it was built outside a
/// checkout, or not for release.
pub(crate) fn commit() -> String {
    match env!("OFFING_COMMIT") {
        "" => format!("v{}", env!("CARGO_PKG_VERSION")),
        commit => commit.into(),
    }
}

/// Wall seconds of `work`.
pub(crate) fn seconds<T>(work: impl FnOnce() -> Result<T>) -> Result<f64> {
    let start = Instant::now();
    std::hint::black_box(work()?);
    Ok(start.elapsed().as_secs_f64())
}

/// Processor seconds this process has used so far, over all its threads.
pub(crate) fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields 14 and 15 count from 1; the command name in field 2 may hold spaces, so count behind its bracket.
    let ticks = stat.rsplit_once(')').map(|(_, rest)| {
        rest.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum::<f64>()
    });
    ticks.unwrap_or(f64::NAN) / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
