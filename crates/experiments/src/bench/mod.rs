//! Speed, measured. Every bench gives samples that become a table and JSON of one shape.

mod data;
mod env;
mod knn;
mod knn_queries;
mod networks;
mod scaling;
mod training;
mod uncertainty;

use std::time::Instant;

use anyhow::Result;
use offing::run::cpu_name;
use offing::stats;
use serde::Serialize;
use serde_json::json;

use crate::Table;
use crate::format::number;
use crate::provenance::commit;
pub use data::bench_data;
pub use env::bench_env;
pub use knn::{KnnBench, KnnData};
pub use networks::{NetworkBench, bench_dynamics, bench_sac};
pub use scaling::bench_scaling;
pub use training::TrainingBench;
pub(crate) use training::{TimedTraining, configure_timed, train_in_turns};
pub use uncertainty::bench_uncertainty;

/// The samples of one measured thing.
#[derive(Serialize)]
struct Measured {
    name: String,
    unit: &'static str,
    median: f64,
    samples: Vec<f64>,
}

/// Everything a bench measured.
pub struct Measurements {
    bench: &'static str,
    threads: usize,
    results: Vec<Measured>,
}

impl Measurements {
    fn new(bench: &'static str, threads: usize) -> Self {
        Self { bench, threads, results: Vec::new() }
    }

    /// Adds one sample; samples of one name belong together, in the order of their first mention.
    fn add(&mut self, name: &str, unit: &'static str, value: f64) {
        let place = self.results.iter().position(|r| r.name == name).unwrap_or_else(|| {
            self.results.push(Measured { name: name.into(), unit, median: 0.0, samples: Vec::new() });
            self.results.len() - 1
        });
        let result = &mut self.results[place];
        result.samples.push(value);
        result.median = median(&result.samples);
    }

    /// Adds the wall seconds of `work`, and returns what it gives.
    fn time<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let done = std::hint::black_box(work()?);
        self.add(name, "s", start.elapsed().as_secs_f64());
        Ok(done)
    }

    /// One row for each measured thing.
    pub fn table(&self) -> Table {
        let row = |r: &Measured| {
            let (low, high) =
                r.samples.iter().fold((f64::INFINITY, 0.0f64), |(l, h), &s| (l.min(s), h.max(s)));
            vec![r.name.clone(), number(r.median), number(low), number(high), r.unit.to_string()]
        };
        Table::new([self.bench, "median", "min", "max", "unit"], self.results.iter().map(row))
    }

    /// All samples, with the commit and the machine.
    pub fn json(&self) -> serde_json::Value {
        json!({
            "bench": self.bench, "commit": commit(), "machine": cpu_name(), "threads": self.threads,
            "results": self.results,
        })
    }
}

/// The middle of the samples.
pub(crate) fn median(samples: &[f64]) -> f64 {
    stats::quantile(samples, 0.5)
}

/// Wall seconds of `work`.
fn seconds<T>(work: impl FnOnce() -> Result<T>) -> Result<f64> {
    let start = Instant::now();
    std::hint::black_box(work()?);
    Ok(start.elapsed().as_secs_f64())
}

/// Processor seconds this process has used so far, over all its threads.
fn cpu_seconds() -> f64 {
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
