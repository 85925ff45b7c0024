//! Gradient steps: one whole update of soft actor-critic, and one of the model ensemble with forecasts of many rows, beside
//! the multiply-adds the machine could do meanwhile.

use anyhow::Result;
use offing::dynamics::{DynamicsModel, EnsembleConfig, Members, Trainer};
use offing::nn::{ThreadPool, peak};
use offing::sac::{Sac, SacConfig};
use offing::{Batch, Mat, Rng};

use super::{Measurements, median, seconds};
use crate::arguments::positive;

/// Updates of SAC before the first that counts, and steps of the ensemble.
const SAC_WARM_UP: usize = 20;
const DYNAMICS_WARM_UP: usize = 3;

/// The shape of gradient steps, by default half-cheetah's.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct NetworkBench {
    /// Threads that do the arithmetic.
    #[arg(long, default_value_t = 2, value_parser = positive)]
    pub threads: usize,
    /// Gradient steps a sample.
    #[arg(long, default_value_t = 20, value_parser = positive)]
    pub updates: usize,
    /// Rows of one gradient step.
    #[arg(long, default_value_t = 256, value_parser = positive)]
    pub batch: usize,
    /// Width of a state.
    #[arg(long, default_value_t = 17, value_parser = positive)]
    pub obs: usize,
    /// Width of an action.
    #[arg(long, default_value_t = 6, value_parser = positive)]
    pub act: usize,
}

impl NetworkBench {
    /// Rows of noise: speed does not depend on what is learnt.
    pub(super) fn rows(&self, rows: usize, rng: &mut Rng) -> Batch {
        let mut mat = |cols: usize| Mat::from_shape_fn((rows, cols), |_| rng.normal() as f32);
        let (obs, act, next_obs) = (mat(self.obs), mat(self.act).mapv(f32::tanh), mat(self.obs));
        Batch { rew: obs.column(0).to_owned(), obs, act, next_obs, done: vec![false; rows].into() }
    }

    /// Measures runs of `step` and, before and after them, the machine's peak; records the times, the peak, and the share
    /// of the peak that `flop` operations in the median time are.
    fn measure(
        &self,
        measured: &mut Measurements,
        pool: &ThreadPool,
        (name, flop): (&str, f64),
        mut step: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let before = peak(pool);
        let times = (0..self.updates).map(|_| seconds(&mut step)).collect::<Result<Vec<f64>>>()?;
        // One side of a pair of peaks may be disturbed; their mean is what the updates could have had.
        let peak = (before + peak(pool)) / 2.0;
        times.iter().for_each(|t| measured.add(name, "ms", t * 1e3));
        measured.add("FMA peak", "GFLOP/s", peak / 1e9);
        measured.add("share of the peak", "ratio", flop / median(&times) / peak);
        Ok(())
    }
}

/// One whole update of actor, critics and temperature of an agent with these settings.
///
/// # Errors
/// Settings that make no network.
pub fn bench_sac(work: &NetworkBench, cfg: &SacConfig, samples: usize) -> Result<Measurements> {
    let pool = ThreadPool::new(work.threads);
    let mut measured = Measurements::new("sac", work.threads);
    let mut rng = Rng::stream(0, "bench", 0);
    let batch = work.rows(work.batch, &mut rng);
    let mut agent = Sac::new(cfg, work.obs, work.act, &pool, &mut rng)?;
    for _ in 0..SAC_WARM_UP {
        agent.update(&batch, &mut rng)?;
    }
    let flop = agent.update_flop(work.batch);
    for _ in 0..samples {
        work.measure(&mut measured, &pool, ("update", flop), || {
            Ok(agent.update(&batch, &mut rng).map(|_| ())?)
        })?;
    }
    measured.add("products of an update", "GFLOP", flop / 1e9);
    Ok(measured)
}

/// One gradient step of an ensemble of so many members with these hidden widths, and forecasts of so many rows: by every
/// member, and by one member a row.
///
/// # Errors
/// Settings that make no network.
pub fn bench_dynamics(
    work: &NetworkBench,
    members: usize,
    hidden: &[usize],
    rows: usize,
    samples: usize,
) -> Result<Measurements> {
    let pool = ThreadPool::new(work.threads);
    let mut measured = Measurements::new("dynamics", work.threads);
    let mut rng = Rng::stream(0, "bench", 0);
    // Enough rows that a batch of them is no neighbour of another in memory, as in a real dataset.
    let data = work.rows(rows.max(20_000).max(2 * work.batch), &mut rng);
    let defaults = EnsembleConfig::default();
    let cfg = EnsembleConfig {
        members,
        elites: defaults.elites.min(members),
        decay: vec![defaults.decay[0]; hidden.len() + 1],
        hidden: hidden.to_vec(),
        batch_size: work.batch,
        max_updates: Some(1),
        ..defaults
    };
    let mut trainer = Trainer::new(&cfg, &data, 0, &pool)?;
    let drawn: Vec<u32> = (0..members * work.batch).map(|_| rng.below(data.len()) as u32).collect();
    let mut step = || trainer.step_on(|member| &drawn[member * work.batch..][..work.batch]).map(|_| ());
    for _ in 0..DYNAMICS_WARM_UP {
        step()?;
    }
    let flop = Trainer::new(&cfg, &data, 0, &pool)?.step_flop(work.batch);
    let model = {
        let mut short = Trainer::new(&cfg, &data, 0, &pool)?;
        short.step()?;
        short.finish()?
    };
    let asked = data.select(&(0..rows).collect::<Vec<usize>>());
    for _ in 0..samples {
        work.measure(&mut measured, &pool, ("step", flop), || Ok(step()?))?;
        if rows > 0 {
            let all = seconds(|| Ok(model.predict(&asked.obs, &asked.act)))?;
            measured.add("forecast by all members", "rows/s", rows as f64 / all);
            let one = seconds(|| Ok(model.step(&asked.obs, &asked.act, Members::One, &mut rng)))?;
            measured.add("step by one member a row", "rows/s", rows as f64 / one);
        }
    }
    measured.add("products of a step", "GFLOP", flop / 1e9);
    Ok(measured)
}
