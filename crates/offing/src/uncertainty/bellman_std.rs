//! Model-Bellman inconsistency (MOBILE): how much the value of the next state depends on which member imagines it.
//!
//! For each elite, draw next states s' ~ N(μ_e, σ_e) and actions a' ~ π(s'), and average min_j Q̄_j(s', a'); the score is
//! the unbiased deviation of these averages over the elites. It changes with the critics at every step, so it is not
//! built once like the other estimators: the algorithm calls [`BellmanStd::score`] with the agent it has.

use ndarray::{Array1, Array2, Axis};
use serde::{Deserialize, Serialize};

use super::{BuildContext, EstimatorConfig, Uncertainty, no_critics};
use crate::batch::Mat;
use crate::dynamics::{EnsembleConfig, Prediction};
use crate::error::{Result, require};
use crate::nn::{Noise, ThreadPool, Weights};
use crate::rng::Rng;
use crate::sac::Sac;

/// How values are sampled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BellmanStdConfig {
    /// Next states drawn from each elite.
    pub samples: usize,
}

impl Default for BellmanStdConfig {
    fn default() -> Self {
        Self { samples: 10 }
    }
}

impl BellmanStdConfig {
    /// Finds settings that cannot work for a model with so many elites.
    pub(crate) fn validate_for(&self, elites: usize) -> Result<()> {
        let samples = self.samples;
        require!(
            elites >= 2 && samples > 0,
            "bellman-std: wanted at least two elites and one sample, found {elites} and {samples}; raise \
             model.ensemble.elites or uncertainty.samples"
        );
        Ok(())
    }
}

impl EstimatorConfig for BellmanStdConfig {
    fn validate(&self, _rows: usize, model: &EnsembleConfig) -> Result<()> {
        self.validate_for(model.elites)
    }

    fn build(&self, _context: &BuildContext<'_>) -> Result<Box<dyn Uncertainty>> {
        Err(no_critics("bellman-std"))
    }

    fn needs_critics(&self) -> bool {
        true
    }
}

/// The estimator: which members count and how often each is sampled.
#[derive(Clone, Debug)]
pub struct BellmanStd {
    config: BellmanStdConfig,
    elites: Vec<usize>,
}

impl BellmanStd {
    /// An estimator over the given members, usually the model's elites.
    ///
    /// # Errors
    /// Fewer than two members, or no samples.
    pub fn new(config: &BellmanStdConfig, elites: &[usize]) -> Result<Self> {
        config.validate_for(elites.len())?;
        Ok(Self { config: config.clone(), elites: elites.to_vec() })
    }

    /// One score a row of the prediction, by the agent's target critics. Noise depends on `rng`, a row's number and the number of rows.
    ///
    /// # Panics
    /// When the prediction has fewer members than the elites name, or states of another width than the agent's.
    pub fn score(
        &self,
        prediction: &Prediction,
        agent: &Sac,
        pool: &ThreadPool,
        rng: &mut Rng,
    ) -> Array1<f32> {
        let (_, rows, width) = prediction.mean.dim();
        let (obs_dim, samples) = (width - 1, self.config.samples);
        // All draws in one matrix, elite after elite, draw after draw: one long pass through each network.
        let mut next = Mat::zeros((self.elites.len() * samples * rows, obs_dim));
        let noise = Noise::draw(rng);
        let mut draws: Vec<_> = next.axis_chunks_iter_mut(Axis(0), rows.max(1)).collect();
        pool.for_each_mut(&mut draws, |i, draw| {
            let member = self.elites[i / samples];
            let (mean, std) =
                (prediction.mean.index_axis(Axis(0), member), prediction.std.index_axis(Axis(0), member));
            let mut eps = vec![0.0f32; rows * obs_dim];
            noise.fill(i * rows, obs_dim, &mut eps);
            for (row, (mut to, eps)) in draw.rows_mut().into_iter().zip(eps.chunks_exact(obs_dim)).enumerate()
            {
                let gaussian = mean.row(row).into_iter().zip(std.row(row)).zip(eps);
                to.iter_mut().zip(gaussian).for_each(|(x, ((mean, std), e))| *x = mean + std * e);
            }
        });
        let act = agent.actor.act_batch(pool, &next, rng);
        let q = agent.min_q(Weights::Target, next.view(), act.view());
        let mut values = Array2::<f64>::zeros((self.elites.len(), rows));
        for (i, q) in q.iter().enumerate() {
            values[[i / (samples * rows), i % rows]] += f64::from(*q) / samples as f64;
        }
        let n = self.elites.len() as f64;
        let deviation = |column: ndarray::ArrayView1<f64>| {
            let mean = column.sum() / n;
            (column.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt() as f32
        };
        values.columns().into_iter().map(deviation).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sac::SacConfig;
    use ndarray::Array3;

    fn agent(pool: &ThreadPool) -> Sac {
        let cfg = SacConfig { hidden: vec![32, 32], ..Default::default() };
        Sac::new(&cfg, 3, 2, pool, &mut Rng::stream(0, "init", 0)).unwrap()
    }

    /// Members that agree up to `apart`, without noise of their own.
    fn prediction(apart: f32, std: f32) -> Prediction {
        let mean = Array3::from_shape_fn((4, 20, 4), |(m, i, j)| (i + j) as f32 / 10.0 + apart * m as f32);
        Prediction { std: Array3::from_elem((4, 20, 4), std), mean }
    }

    #[test]
    fn members_that_agree_leave_only_sampling_noise_and_those_that_differ_do_not() {
        let pool = ThreadPool::new(2);
        let agent = agent(&pool);
        let score = |samples, apart| {
            let it = BellmanStd::new(&BellmanStdConfig { samples }, &[0, 2, 3]).unwrap();
            it.score(&prediction(apart, 0.01), &agent, &pool, &mut Rng::stream(1, "noise", 0)).sum()
        };
        let (few, many, apart) = (score(4, 0.0), score(100, 0.0), score(100, 1.0));
        assert!(many < 0.5 * few && apart > 3.0 * many, "{few} {many} {apart}");
    }

    #[test]
    fn threads_and_repetition_change_nothing_and_bad_settings_are_named() {
        let cfg = BellmanStdConfig::default();
        let it = BellmanStd::new(&cfg, &[1, 2]).unwrap();
        let run = |threads| {
            let pool = ThreadPool::new(threads);
            it.score(&prediction(0.1, 0.1), &agent(&pool), &pool, &mut Rng::stream(1, "noise", 0))
        };
        assert_eq!(run(1), run(3));
        assert!(BellmanStd::new(&cfg, &[1]).unwrap_err().to_string().contains("two elites"));
    }
}
