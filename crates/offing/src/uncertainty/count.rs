//! Count-based estimation (Kim & Oh 2023): u = 1/√n̂, n̂ being how often the data holds what (s, a) hashes to.
//!
//! Each member of the ensemble gets an autoencoder on top of its second hidden layer, whose code of some 50 sigmoid units
//! is rounded to bits; bits are folded into six tables by six primes, and the count of a code is the smallest of its six
//! cells, at least 1. The counts of the best autoencoders are averaged (`avg`), or moved by half a deviation up (`uc`) or
//! down (`lc`).
//!
//! As in the authors' code the trunk stays as the dynamics left it. Unlike there, the autoencoder's output is linear and
//! its target standardised: their SiLU output cannot be below −0.28 and raw targets let one column drown the others.

use ndarray::Array1;
use serde::{Deserialize, Serialize};

use super::coder::{Coder, Trunk, linear};
use super::{BuildContext, EstimatorConfig, Uncertainty, finite};
use crate::batch::Batch;
use crate::dynamics::{Ensemble, EnsembleConfig, ModelStep};
use crate::error::{Result, invalid, require};
use crate::nn::ThreadPool;

/// The sizes of the tables.
const PRIMES: [u64; 6] = [999_931, 999_953, 999_959, 999_961, 999_979, 999_983];

/// How codes are learnt and counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CountConfig {
    /// Bits of a code.
    pub bits: usize,
    /// How the members' counts become one.
    pub over: CountAggregate,
    /// Deviations by which `uc` and `lc` move the mean.
    pub coefficient: f64,
    /// Autoencoders used: those with the lowest hold-out error.
    pub elites: usize,
    /// Half-width of uniform noise on the code while training. 0 as in the authors' code; Tang et al. 2017, from whom the
    /// hashing comes, use 0.3, which drives the units to 0 and 1: without it places that differ may round to one code.
    pub noise: f32,
    /// Gradient steps of each autoencoder.
    pub updates: u64,
    /// Rows of a step.
    pub batch_size: usize,
    /// Learning rate.
    pub lr: f64,
}

impl Default for CountConfig {
    fn default() -> Self {
        Self {
            bits: 50,
            over: CountAggregate::Avg,
            coefficient: 0.5,
            elites: 5,
            noise: 0.0,
            updates: 3000,
            batch_size: 256,
            lr: 1e-3,
        }
    }
}

/// One count from several members'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountAggregate {
    /// Their mean.
    #[default]
    Avg,
    /// Mean plus `coefficient` deviations.
    Uc,
    /// Mean minus `coefficient` deviations; 1 when that is not positive.
    Lc,
}

/// The estimator.
#[derive(Debug)]
pub struct Count {
    config: CountConfig,
    members: Vec<Member>,
    pool: ThreadPool,
    max_score: f32,
}

/// One autoencoder with its tables.
#[derive(Debug)]
struct Member {
    coder: Coder,
    tables: Vec<Vec<u32>>,
}

impl Count {
    /// Trains an autoencoder on every member's trunk, keeps the best and counts the data.
    ///
    /// # Errors
    /// Settings out of range, data too small to hold some out, or training that diverges.
    pub fn new(
        config: &CountConfig,
        data: &Batch,
        model: &Ensemble,
        pool: &ThreadPool,
        seed: u64,
    ) -> Result<Self> {
        config.validate_for(data.len(), model.members())?;
        data.check_widths("count", model.obs_dim(), model.act_dim())?;
        let weights = model.save();
        let mut coders: Vec<Result<(Coder, f64)>> = Vec::new();
        coders.resize_with(model.members(), || Err(invalid!("not trained yet")));
        pool.for_each_mut(&mut coders, |member, out| {
            *out =
                Trunk::of(&weights, member).and_then(|trunk| Coder::fit(config, trunk, data, seed, member));
        });
        let error = |coder: &Result<(Coder, f64)>| coder.as_ref().map_or(f64::INFINITY, |c| c.1);
        coders.sort_by(|a, b| error(a).total_cmp(&error(b)));
        let mut members = Vec::new();
        for coder in coders.into_iter().take(config.elites) {
            let (coder, _) = coder?;
            let tables = PRIMES.iter().map(|&p| vec![0u32; p as usize]).collect();
            members.push(Member { coder, tables });
        }
        let mut it = Self { config: config.clone(), members, pool: pool.clone(), max_score: 0.0 };
        let mut codes = Vec::new();
        for member in &mut it.members {
            let found = member.coder.codes(&data.obs, &data.act, pool);
            for &code in &found {
                for (table, prime) in member.tables.iter_mut().zip(PRIMES) {
                    table[(code % prime) as usize] += 1;
                }
            }
            codes.push(found);
        }
        // Leave-one-out: the row's own mark is taken off.
        let score = |row: usize| it.combine(|m| it.members[m].count(codes[m][row], 1));
        it.max_score = (0..data.len()).map(score).fold(0.0, f32::max);
        Ok(it)
    }

    /// 1/√n̂ from the members' counts.
    fn combine(&self, count: impl Fn(usize) -> f64) -> f32 {
        let counts: Vec<f64> = (0..self.members.len()).map(count).collect();
        let n = counts.len() as f64;
        let mean = counts.iter().sum::<f64>() / n;
        let deviation = (counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / n).sqrt();
        let estimate = match self.config.over {
            CountAggregate::Avg => mean,
            CountAggregate::Uc => mean + self.config.coefficient * deviation,
            CountAggregate::Lc => mean - self.config.coefficient * deviation,
        };
        let estimate = if estimate > 0.0 { estimate } else { 1.0 };
        estimate.sqrt().recip() as f32
    }
}

impl Member {
    /// How often the data holds a code, at least 1, after taking `less` marks off.
    fn count(&self, code: u64, less: u32) -> f64 {
        let cells = self.tables.iter().zip(PRIMES).map(|(table, prime)| table[(code % prime) as usize]);
        f64::from(cells.min().unwrap_or(0).saturating_sub(less).max(1))
    }
}

impl Uncertainty for Count {
    fn score(&self, step: &ModelStep) -> Result<Array1<f32>> {
        let Batch { obs, act, .. } = &step.batch;
        let codes: Vec<Vec<u64>> = self.members.iter().map(|m| m.coder.codes(obs, act, &self.pool)).collect();
        let score = |row: usize| self.combine(|m| self.members[m].count(codes[m][row], 0));
        finite("count", (0..obs.nrows()).map(score).collect())
    }

    fn max_loo_score(&self) -> f32 {
        self.max_score
    }
}

impl EstimatorConfig for CountConfig {
    fn validate(&self, rows: usize, model: &EnsembleConfig) -> Result<()> {
        if model.hidden.is_empty() {
            return Err(linear());
        }
        self.validate_for(rows, model.members)
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Uncertainty>> {
        let model = context.model_for("count")?;
        Ok(Box::new(Count::new(self, context.data, model, &context.pool, context.seed)?))
    }
}

impl CountConfig {
    /// Finds settings that cannot work for so many rows and a model of so many members.
    fn validate_for(&self, rows: usize, members: usize) -> Result<()> {
        let Self { bits, elites, noise, updates, batch_size, lr, .. } = *self;
        require!(
            (1..=64).contains(&bits),
            "count: wanted from 1 to 64 bits, found {bits}; the authors use 32 and 50"
        );
        require!(
            (1..=members).contains(&elites),
            "count: wanted from 1 to {members} elites (members), found {elites}"
        );
        require!((0.0..1.0).contains(&noise), "count: wanted noise from 0 to below 1, found {noise}");
        require!(
            batch_size > 0 && updates > 0 && lr > 0.0 && lr.is_finite(),
            "count: wanted positive batch_size, updates and lr, found {batch_size}, {updates} and {lr}"
        );
        require!(rows >= 20, "count: wanted at least 20 rows of data, found {rows}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Mat;
    use crate::rng::Rng;

    /// Three tight clusters of very different sizes.
    fn clusters() -> Batch {
        let mut rng = Rng::stream(0, "clusters", 0);
        let n = 2000;
        let place = |i: usize| {
            [0.0, 4.0, -4.0][if i < 1900 {
                0
            } else if i < 1990 {
                1
            } else {
                2
            }]
        };
        let obs = Mat::from_shape_fn((n, 3), |(i, j)| {
            (place(i) * [1.0, 0.5, -1.0][j] + 0.05 * rng.normal()) as f32
        });
        let act = Mat::from_shape_fn((n, 2), |(i, _)| (place(i) * 0.2 + 0.05 * rng.normal()) as f32);
        let next_obs = &obs + 0.1;
        Batch { obs, act, rew: Array1::zeros(n), next_obs, done: Array1::from_elem(n, false) }
    }

    fn model(data: &Batch) -> Ensemble {
        let cfg = EnsembleConfig {
            members: 3,
            elites: 2,
            hidden: vec![32; 4],
            batch_size: 64,
            max_epochs: Some(3),
            ..Default::default()
        };
        Ensemble::fit(&cfg, data, 0, &ThreadPool::new(2), |_, _| Ok(())).unwrap()
    }

    fn small() -> CountConfig {
        CountConfig { bits: 16, elites: 2, noise: 0.3, updates: 1000, batch_size: 64, ..Default::default() }
    }

    #[test]
    fn what_is_often_seen_is_certain_and_threads_change_nothing() {
        let data = clusters();
        let model = model(&data);
        let it = Count::new(&small(), &data, &model, &ThreadPool::new(2), 0).unwrap();
        let u = it.score(&ModelStep::of_rows(data.clone())).unwrap();
        let mean = |rows: std::ops::Range<usize>| rows.clone().map(|i| u[i]).sum::<f32>() / rows.len() as f32;
        // Nothing makes an autoencoder tell all clusters apart, but the rarest must not look common.
        let (common, rarest) = (mean(0..1600), mean(1900..2000));
        assert!(common < 0.1 && rarest > 2.0 * common, "{common} {rarest}");
        // Codes of 16 bits are below every prime, so cells are counts of equal codes: u by its definition.
        let codes: Vec<Vec<u64>> =
            it.members.iter().map(|m| m.coder.codes(&data.obs, &data.act, &it.pool)).collect();
        for row in (0..2000).step_by(97) {
            let equal = |codes: &Vec<u64>| codes.iter().filter(|c| **c == codes[row]).count() as f64;
            let mean = codes.iter().map(equal).sum::<f64>() / 2.0;
            assert!((f64::from(u[row]) - 1.0 / mean.sqrt()).abs() < 1e-6, "{row}: {} {mean}", u[row]);
        }
        assert!(it.max_loo_score() >= u.iter().fold(0.0, |a: f32, b| a.max(*b)) && it.max_loo_score() <= 1.0);
        let alone = Count::new(&small(), &data, &model, &ThreadPool::new(1), 0).unwrap();
        assert_eq!(alone.score(&ModelStep::of_rows(data.clone())).unwrap(), u);
    }

    #[test]
    fn upper_and_lower_counts_lie_around_the_mean() {
        let data = clusters();
        let model = model(&data);
        let of = |over| {
            let it =
                Count::new(&CountConfig { over, ..small() }, &data, &model, &ThreadPool::new(2), 0).unwrap();
            it.score(&ModelStep::of_rows(data.clone())).unwrap()
        };
        let (avg, uc, lc) = (of(CountAggregate::Avg), of(CountAggregate::Uc), of(CountAggregate::Lc));
        assert!((0..avg.len()).all(|i| uc[i] <= avg[i] && avg[i] <= lc[i]));
        assert!(uc != avg && lc != avg);
    }

    #[test]
    fn bad_settings_are_named() {
        let data = clusters();
        let model = model(&data);
        let fail = |cfg: CountConfig| {
            Count::new(&cfg, &data, &model, &ThreadPool::new(1), 0).unwrap_err().to_string()
        };
        assert!(fail(CountConfig { bits: 65, ..small() }).contains("64 bits"));
        assert!(fail(CountConfig { elites: 4, ..small() }).contains("elites"));
        assert!(fail(CountConfig { noise: 1.5, ..small() }).contains("noise"));
        assert!(fail(CountConfig { lr: f64::NAN, ..small() }).contains("lr"));
    }
}
