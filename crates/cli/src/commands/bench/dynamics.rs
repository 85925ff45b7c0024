//! One gradient step of the model ensemble, and forecasts of many rows: by every member, and by one member a row.

use crate::exit::ExitCode;

use anyhow::Result;
use offing::Rng;
use offing::dynamics::{DynamicsModel, EnsembleConfig, Members, Trainer};
use offing::nn::ThreadPool;

use super::{Learning, Recorder, seconds};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: Learning,
    /// Members of the ensemble.
    #[arg(long, default_value_t = 7, value_parser = super::positive)]
    members: usize,
    /// Hidden widths of a member.
    #[arg(long, value_delimiter = ',', default_values_t = [400, 400, 400, 400])]
    hidden: Vec<usize>,
    /// Rows to forecast; 0 leaves the forecasts out.
    #[arg(long, default_value_t = 50_000)]
    rows: usize,
}

/// Steps before the first that counts.
const WARM_UP: usize = 3;

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (work, pool) = (&args.work, ThreadPool::new(args.work.threads));
    let mut recorder = Recorder::new("dynamics", work.threads);
    let mut rng = Rng::stream(0, "bench", 0);
    // Enough rows that a batch of them is no neighbour of another in memory, as in a real dataset.
    let data = work.rows(args.rows.max(20_000).max(2 * work.batch), &mut rng);
    let defaults = EnsembleConfig::default();
    let cfg = EnsembleConfig {
        members: args.members,
        elites: defaults.elites.min(args.members),
        decay: vec![defaults.decay[0]; args.hidden.len() + 1],
        hidden: args.hidden.clone(),
        batch_size: work.batch,
        max_updates: Some(1),
        ..defaults
    };
    let mut trainer = Trainer::new(&cfg, &data, 0, &pool)?;
    let drawn: Vec<u32> = (0..args.members * work.batch).map(|_| rng.below(data.len()) as u32).collect();
    let mut step = || trainer.step_on(|member| &drawn[member * work.batch..][..work.batch]).map(|_| ());
    for _ in 0..WARM_UP {
        step()?;
    }
    let flop = Trainer::new(&cfg, &data, 0, &pool)?.step_flop(work.batch);
    let model = {
        let mut short = Trainer::new(&cfg, &data, 0, &pool)?;
        short.step()?;
        short.finish()?
    };
    let some: Vec<usize> = (0..args.rows).collect();
    let asked = data.select(&some);
    for _ in 0..work.common.samples {
        work.measure(&mut recorder, &pool, ("step", flop), || Ok(step()?))?;
        if args.rows > 0 {
            let all = seconds(|| Ok(model.predict(&asked.obs, &asked.act)))?;
            recorder.add("forecast by all members", "rows/s", args.rows as f64 / all);
            let one = seconds(|| Ok(model.step(&asked.obs, &asked.act, Members::One, &mut rng)))?;
            recorder.add("step by one member a row", "rows/s", args.rows as f64 / one);
        }
    }
    recorder.add("products of a step", "GFLOP", flop / 1e9);
    recorder.finish(&work.common)
}
