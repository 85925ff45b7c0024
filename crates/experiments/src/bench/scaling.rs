//! What more cores would bring: gradient steps measured on the threads there are, and a model of the rest.
//!
//! A thread of t has a t-th of a batch's rows and a t-th of the weights to change. It waits for the others after each job, and
//! it fetches from their caches what they changed, (t − 1)/t of the weights:
//!
//! T(t) = rows(B/t) + weights/t + jobs · wait · log2 t + exchange · 2 (t − 1)/t
//!
//! rows(n) + weights is what a step of n rows takes on one thread, measured for every n: small shares use the kernels less
//! well, and that is in it. weights is what is left of it at 0 rows. wait is measured with empty jobs of two threads, and exchange is
//! what a real step of two threads takes beyond all the rest. What the model leaves out: the clock falls when all cores work.

use anyhow::Result;
use offing::Rng;
use offing::dynamics::{EnsembleConfig, Trainer};
use offing::nn::ThreadPool;
use offing::sac::{Sac, SacConfig};

use super::networks::NetworkBench;
use super::{Measurements, median, seconds};

/// Empty jobs of one measurement of waiting.
const EMPTY_JOBS: usize = 20_000;
const WARM_UP: usize = 5;
/// Rows that batches of the ensemble are drawn from.
const ENSEMBLE_ROWS: usize = 20_000;
/// Steps of one sample.
const STEPS: usize = 40;

/// One kind of gradient step.
enum Step {
    Sac,
    Ensemble,
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Self::Sac => "SAC update",
            Self::Ensemble => "ensemble step",
        }
    }

    /// Median seconds of a step of so many rows, and the jobs in it.
    fn measure(&self, work: &NetworkBench, rows: usize, threads: usize) -> Result<(f64, f64)> {
        let pool = ThreadPool::new(threads);
        let mut rng = Rng::stream(0, "bench", 0);
        match self {
            Self::Sac => {
                let batch = work.rows(rows, &mut rng);
                let cfg = SacConfig { hidden: vec![256; 3], ..SacConfig::default() };
                let mut agent = Sac::new(&cfg, work.obs, work.act, &pool, &mut rng)?;
                timed(&pool, || Ok(agent.update(&batch, &mut rng).map(|_| ())?))
            }
            Self::Ensemble => {
                let cfg =
                    EnsembleConfig { batch_size: rows, hidden: vec![400; 4], ..EnsembleConfig::default() };
                let data = work.rows(ENSEMBLE_ROWS, &mut rng);
                let mut trainer = Trainer::new(&cfg, &data, 0, &pool)?;
                let drawn: Vec<u32> = (0..rows).map(|_| rng.below(data.len()) as u32).collect();
                timed(&pool, || Ok(trainer.step_on(|_| &drawn).map(|_| ())?))
            }
        }
    }
}

fn timed(pool: &ThreadPool, mut step: impl FnMut() -> Result<()>) -> Result<(f64, f64)> {
    (0..WARM_UP).try_for_each(|_| step())?;
    let before = pool.jobs();
    let times = (0..STEPS).map(|_| seconds(&mut step)).collect::<Result<Vec<f64>>>()?;
    Ok((median(&times), (pool.jobs() - before) as f64 / STEPS as f64))
}

/// Seconds that two threads take to agree that an empty job is done.
fn wait_of_two() -> Result<f64> {
    let pool = ThreadPool::new(2);
    let spent = seconds(|| {
        (0..EMPTY_JOBS).for_each(|_| pool.for_each(2, |i| _ = std::hint::black_box(i)));
        Ok(())
    })?;
    Ok(spent / EMPTY_JOBS as f64)
}

/// The terms of a step's time: see the top of this file.
struct Model {
    weights: f64,
    /// Jobs of a step times the wait of two threads.
    waits: f64,
    exchange: f64,
}

impl Model {
    /// Seconds on so many threads, where a thread's share of the rows takes `share` alone, weights included.
    fn predict(&self, share: f64, threads: usize) -> f64 {
        let t = threads as f64;
        let work = (share - self.weights).max(0.0) + self.weights / t;
        work + self.waits * t.log2() + self.exchange * 2.0 * (t - 1.0) / t
    }
}

/// What a step of no rows would take: the line through the two smallest shares, at 0.
fn at_no_rows((few, short): (usize, f64), (more, long): (usize, f64)) -> f64 {
    (short - (long - short) * few as f64 / (more - few) as f64).clamp(0.0, short)
}

/// Steps of `batch` rows, of half-cheetah's widths, on 1 to `cores` threads, and the steps a second that so many cores do as
/// one run or as many.
///
/// # Errors
/// Settings that make no network.
pub fn bench_scaling(batch: usize, cores: usize, samples: usize) -> Result<Measurements> {
    let work = NetworkBench { threads: 1, updates: STEPS, batch, obs: 17, act: 6 };
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    let mut measured = Measurements::new("scaling", here);
    let splits: Vec<usize> = (0..).map(|i| 1 << i).take_while(|t| *t <= cores).collect();
    for _ in 0..samples {
        let wait = wait_of_two()?;
        measured.add("wait of two threads", "µs", 1e6 * wait);
        for step in [Step::Sac, Step::Ensemble] {
            let name = step.name();
            let share = |threads: &usize| {
                let rows = batch.div_ceil(*threads);
                Ok((*threads, rows, step.measure(&work, rows, 1)?.0))
            };
            let shares = splits.iter().map(share).collect::<Result<Vec<_>>>()?;
            let (of_two, jobs) = step.measure(&work, batch, 2)?;
            let weights = match &shares[..] {
                [.., (_, more, long), (_, few, short)] if more > few => {
                    at_no_rows((*few, *short), (*more, *long))
                }
                _ => 0.0,
            };
            let mut model = Model { weights, waits: jobs * wait, exchange: 0.0 };
            if let Some((_, _, half)) = shares.get(1).filter(|_| here > 1) {
                model.exchange = (of_two - model.predict(*half, 2)).max(0.0);
            }
            measured.add(&format!("{name}: jobs"), "a step", jobs);
            measured.add(&format!("{name}: exchange of two threads"), "ms", 1e3 * model.exchange);
            measured.add(&format!("{name}: of it weights"), "ms", 1e3 * weights);
            for (threads, _, share) in shares {
                let predicted = model.predict(share, threads);
                measured.add(&format!("{name}: {threads} threads, model"), "ms", 1e3 * predicted);
                if threads <= here {
                    let (real, _) = step.measure(&work, batch, threads)?;
                    measured.add(&format!("{name}: {threads} threads, measured"), "ms", 1e3 * real);
                }
                let runs = cores / threads;
                let rate = runs as f64 / predicted;
                measured.add(&format!("{name}: {cores} cores as {runs} × {threads}"), "steps/s", rate);
            }
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_takes_its_share_and_more_threads_also_wait_and_fetch() {
        let model = Model { weights: 2.0, waits: 1.0, exchange: 4.0 };
        assert_eq!(model.predict(8.0, 1), 8.0);
        // A share of half the rows: 3 + 2 on one thread.
        assert_eq!(model.predict(5.0, 2), 3.0 + 1.0 + 1.0 + 4.0);
        assert_eq!(model.predict(3.5, 4), 1.5 + 0.5 + 2.0 + 6.0);
    }

    #[test]
    fn weights_are_what_no_rows_would_take() {
        assert_eq!(at_no_rows((16, 3.0), (32, 4.0)), 2.0);
        assert_eq!(at_no_rows((16, 1.0), (32, 4.0)), 0.0, "never less than nothing");
    }
}
