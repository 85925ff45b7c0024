//! A clone of the logged behaviour, as a measure for other policies.

use crate::data::Dataset;
use crate::error::Result;
use crate::nn::ThreadPool;
use crate::replay::gather;
use crate::rng::Rng;
use crate::sac::{Actor, Cloner, Objective, SacConfig, Standardiser};

const STEPS: u64 = 2000;
const BATCH: usize = 256;

/// A policy that does on average what the log did.
///
/// # Errors
/// Actions that are not numbers.
pub fn clone_behaviour(data: &Dataset, pool: &ThreadPool, seed: u64) -> Result<Actor> {
    let rows = &data.rows;
    let standardiser = Standardiser::of(&rows.obs);
    let SacConfig { hidden, log_std, .. } = SacConfig::default();
    let mut actor = Actor::new(
        rows.obs_dim(),
        rows.act_dim(),
        &hidden,
        log_std,
        &mut Rng::stream(seed, "rank/clone/init", 0),
    );
    let mut cloner = Cloner::new(Objective::Mse, 1e-3);
    let mut batch = rows.select(&[]);
    for step in 0..STEPS {
        let mut rng = Rng::stream(seed, "rank/clone", step);
        let picks: Vec<usize> = (0..BATCH).map(|_| rng.below(rows.len())).collect();
        gather(rows, &picks, &mut batch);
        standardiser.apply(&mut batch.obs);
        cloner.step(&mut actor, pool, &batch)?;
    }
    Ok(standardiser.fold(&actor))
}
