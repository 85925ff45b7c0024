//! One whole update of soft actor-critic, beside the multiply-adds the machine could do meanwhile.

use crate::exit::ExitCode;

use anyhow::Result;
use offing::Rng;
use offing::nn::ThreadPool;
use offing::sac::{Sac, SacConfig};

use super::{Learning, Recorder};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: Learning,
    /// Hidden widths of actor and critics.
    #[arg(long, value_delimiter = ',', default_values_t = [256, 256, 256])]
    hidden: Vec<usize>,
}

/// Updates before the first that counts.
const WARM_UP: usize = 20;

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (work, pool) = (&args.work, ThreadPool::new(args.work.threads));
    let mut recorder = Recorder::new("sac", work.threads);
    let mut rng = Rng::stream(0, "bench", 0);
    let batch = work.rows(work.batch, &mut rng);
    let cfg = SacConfig { hidden: args.hidden.clone(), ..SacConfig::default() };
    let mut agent = Sac::new(&cfg, work.obs, work.act, &pool, &mut rng)?;
    for _ in 0..WARM_UP {
        agent.update(&batch, &mut rng)?;
    }
    let flop = agent.update_flop(work.batch);
    for _ in 0..work.common.samples {
        work.measure(&mut recorder, &pool, ("update", flop), || {
            Ok(agent.update(&batch, &mut rng).map(|_| ())?)
        })?;
    }
    recorder.add("products of an update", "GFLOP", flop / 1e9);
    recorder.finish(&work.common)
}
