//! Riemannian pullback metric (GELATO, Tennenholtz & Mannor 2022): how far (s, a) lies from the data along curves that
//! stay where the model is sure.
//!
//! A latent forward model gives z' ~ N(μ_F, σ_F)(z, a) and s' ~ N(μ_D, σ_D)(z'). A small move of z changes the decoded
//! distribution by G_D = J_μDᵀJ_μD + J_σDᵀJ_σD; seen from (z, a) this is
//! **G = J_μFᵀ G_D J_μF + J_σFᵀ diag(G_D) J_σF**. A curve's length is ∫ √(ċᵀ G ċ) dt, and u is the mean length of the
//! straight latent segments to the nearest rows of the data, cut into pieces with G taken at their middles.
//!
//! No code of the authors is public. Ours to fix, and settings here: latent size, number of neighbours and pieces, the
//! networks. σ_D is an inverse radial-basis network, large away from the data, so that paths across empty space are
//! long. docs/deviations.md lists what is our reading.

use std::sync::OnceLock;

use ndarray::{Array1, ArrayView1};
use offing_knn::{NeighborIndex, Neighbors, Tree};
use serde::{Deserialize, Serialize};

use super::latent::Latent;
use super::smooth::{Radial, Smooth};
use super::space::{Distance, tree_config};
use super::{BuildContext, EstimatorConfig, Uncertainty, finite, map_rows};
use crate::batch::{Batch, Mat};
use crate::dynamics::{EnsembleConfig, ModelStep};
use crate::error::{Result, require};
use crate::nn::ThreadPool;

/// Data rows searched at once for the largest score.
const SWEEP: usize = 8192;

/// Sizes of the latent model and of the search in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PullbackConfig {
    /// Dimensions of the latent state (z).
    pub latent: usize,
    /// Hidden widths of encoder, forward model and decoder.
    pub hidden: Vec<usize>,
    /// Nearest rows whose distances are averaged (K).
    pub neighbors: usize,
    /// Pieces of a latent segment.
    pub segments: usize,
    /// Centres of the noise network (σ_D).
    pub centers: usize,
    /// Gradient steps of the latent model.
    pub updates: u64,
    /// Rows of a step.
    pub batch_size: usize,
    /// Learning rate.
    pub lr: f64,
    /// Weight of the KL terms against the reconstruction, in standardised units.
    pub kl_weight: f32,
}

impl Default for PullbackConfig {
    fn default() -> Self {
        Self {
            latent: 8,
            hidden: vec![64, 64],
            neighbors: 5,
            segments: 4,
            centers: 64,
            updates: 5000,
            batch_size: 256,
            lr: 1e-3,
            kl_weight: 1e-2,
        }
    }
}

/// The estimator.
#[derive(Debug)]
pub struct Pullback {
    config: PullbackConfig,
    latent: Latent,
    geometry: Geometry,
    /// (z, a) of the data.
    points: Mat,
    index: Tree,
    pool: ThreadPool,
    max_score: OnceLock<f32>,
}

/// The networks as functions that can be differentiated.
#[derive(Debug)]
struct Geometry {
    latent: usize,
    forward: Smooth,
    decoder: Smooth,
    noise: Radial,
}

impl Pullback {
    /// Trains the latent model on the data and indexes the data's embeddings.
    ///
    /// # Errors
    /// Settings out of range, values that are not finite, or training that diverges.
    pub fn new(config: &PullbackConfig, data: &Batch, pool: &ThreadPool, seed: u64) -> Result<Self> {
        config.validate_for(data.len())?;
        crate::dynamics::check_rows(&Batch { rew: Array1::zeros(data.len()), ..data.clone() })?;
        let latent = Latent::fit(config, data, seed)?;
        let points = latent.embed(&data.obs, &data.act, pool);
        let noise = latent.radial(config.centers, data, pool, seed);
        let geometry = Geometry {
            latent: config.latent,
            forward: Smooth::of(&latent.forward),
            decoder: Smooth::of(&latent.decoder),
            noise,
        };
        let index = Tree::new(&tree_config(Distance::Euclidean, pool.threads()), points.view())?;
        let max_score = OnceLock::new();
        Ok(Self { config: config.clone(), latent, geometry, points, index, pool: pool.clone(), max_score })
    }

    /// Mean length to the neighbours, all but the row's own number when that is given.
    fn lengths(&self, points: &Mat, near: &Neighbors, own: Option<usize>) -> Array1<f32> {
        let Self { geometry, config: PullbackConfig { neighbors, segments, .. }, .. } = self;
        map_rows(
            &self.pool,
            points.nrows(),
            || (),
            |(), row| {
                let ids = near.ids.row(row);
                let others = ids.iter().map(|&id| id as usize).filter(|&id| own.map(|o| o + row) != Some(id));
                let length = |id: usize| geometry.length(points.row(row), self.points.row(id), *segments);
                (others.take(*neighbors).map(length).sum::<f64>() / *neighbors as f64) as f32
            },
        )
    }

    fn find_max_score(&self) -> Result<f32> {
        let mut largest = 0.0f32;
        for first in (0..self.points.nrows()).step_by(SWEEP) {
            let rows = first..(first + SWEEP).min(self.points.nrows());
            let points = self.points.slice(ndarray::s![rows, ..]).to_owned();
            let near = self.index.search(points.view(), self.config.neighbors + 1)?;
            largest = self.lengths(&points, &near, Some(first)).iter().fold(largest, |a, &b| a.max(b));
        }
        Ok(largest)
    }
}

impl Uncertainty for Pullback {
    fn score(&self, step: &ModelStep) -> Result<Array1<f32>> {
        let points = self.latent.embed(&step.batch.obs, &step.batch.act, &self.pool);
        let near = self.index.search(points.view(), self.config.neighbors)?;
        finite("pullback", self.lengths(&points, &near, None))
    }

    /// Computed on first use: one pass over the data.
    fn max_loo_score(&self) -> f32 {
        let find = || self.find_max_score().expect("the data was searched when it was indexed");
        *self.max_score.get_or_init(find)
    }
}

impl Geometry {
    /// Length of the straight segment between two embeddings, G at the middle of each piece.
    fn length(&self, from: ArrayView1<f32>, to: ArrayView1<f32>, pieces: usize) -> f64 {
        let step: Vec<f32> = from.iter().zip(to).map(|(a, b)| (b - a) / pieces as f32).collect();
        let at = |piece: usize| -> Vec<f32> {
            from.iter().zip(&step).map(|(a, s)| a + (piece as f32 + 0.5) * s).collect()
        };
        (0..pieces).map(|piece| self.speed(&at(piece), &step)).sum()
    }

    /// √(δᵀ G(e) δ).
    fn speed(&self, e: &[f32], delta: &[f32]) -> f64 {
        let l = self.latent;
        // μ_F = z + change, log-variance behind it; derivatives along δ.
        let moved = self.forward.along(e, std::slice::from_ref(&delta.to_vec()));
        let next: Vec<f32> = (0..l).map(|i| e[i] + moved.value[i]).collect();
        let mean: Vec<f64> = (0..l).map(|i| f64::from(delta[i] + moved.tangent[0][i])).collect();
        let spread = |i: usize| {
            let log_var = super::latent::clamp(moved.value[l + i]);
            f64::from((0.5 * log_var).exp() * 0.5 * moved.tangent[0][l + i])
        };
        // Columns of the decoder's Jacobians, mean and deviation.
        let axes: Vec<Vec<f32>> = (0..l).map(|i| (0..l).map(|j| f32::from(i == j)).collect()).collect();
        let decoded = self.decoder.along(&next, &axes).tangent;
        let noise = self.noise.jacobian(&next);
        let (mut along, mut across) = (0.0f64, 0.0f64);
        for jacobian in [&decoded, &noise] {
            for j in 0..jacobian[0].len() {
                let sum: f64 = jacobian.iter().zip(&mean).map(|(column, v)| f64::from(column[j]) * v).sum();
                along += sum * sum;
            }
            for (i, column) in jacobian.iter().enumerate() {
                // diag(G_D)_i is the squared length of column i.
                across += spread(i).powi(2) * column.iter().map(|c| f64::from(*c).powi(2)).sum::<f64>();
            }
        }
        (along + across).sqrt()
    }
}

impl EstimatorConfig for PullbackConfig {
    fn validate(&self, rows: usize, _model: &EnsembleConfig) -> Result<()> {
        self.validate_for(rows)
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Uncertainty>> {
        Ok(Box::new(Pullback::new(self, context.data, &context.pool, context.seed)?))
    }
}

impl PullbackConfig {
    /// Finds settings that cannot work for so many rows.
    fn validate_for(&self, rows: usize) -> Result<()> {
        for (name, size) in [
            ("latent", self.latent),
            ("neighbors", self.neighbors),
            ("segments", self.segments),
            ("centers", self.centers),
            ("batch_size", self.batch_size),
            ("updates", self.updates as usize),
        ] {
            require!(size > 0, "pullback: wanted {name} of at least 1, found 0");
        }
        let Self { hidden, neighbors, lr, kl_weight, .. } = self;
        require!(!hidden.contains(&0), "pullback: wanted hidden widths of at least 1, found {hidden:?}");
        require!(
            *lr > 0.0 && lr.is_finite() && *kl_weight >= 0.0 && kl_weight.is_finite(),
            "pullback: wanted a positive lr and a kl_weight of at least 0, found {lr} and {kl_weight}"
        );
        require!(rows > *neighbors, "pullback: wanted more than {neighbors} rows (neighbors), found {rows}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::stats::spearman;

    /// A ring of states, walked by the action.
    fn ring(n: usize, seed: u64) -> Batch {
        let mut rng = Rng::stream(seed, "ring", 0);
        let mut batch = Batch::empty(4, 1);
        let (mut obs, mut act, mut next) = (Mat::zeros((n, 4)), Mat::zeros((n, 1)), Mat::zeros((n, 4)));
        let place = |angle: f64| [angle.cos(), angle.sin(), (2.0 * angle).cos(), 0.5 * angle.sin()];
        for i in 0..n {
            let (angle, turn) = (rng.range(0.0, std::f64::consts::TAU), rng.range(-0.3, 0.3));
            act[[i, 0]] = turn as f32;
            for j in 0..4 {
                obs[[i, j]] = (place(angle)[j] + 0.02 * rng.normal()) as f32;
                next[[i, j]] = (place(angle + turn)[j] + 0.02 * rng.normal()) as f32;
            }
        }
        batch.rew = Array1::zeros(n);
        batch.done = Array1::from_elem(n, false);
        Batch { obs, act, next_obs: next, ..batch }
    }

    fn small() -> PullbackConfig {
        PullbackConfig {
            latent: 3,
            hidden: vec![32, 32],
            centers: 24,
            updates: 1500,
            batch_size: 64,
            ..Default::default()
        }
    }

    #[test]
    fn it_grows_away_from_the_data_and_threads_change_nothing() {
        let data = ring(1500, 0);
        let it = Pullback::new(&small(), &data, &ThreadPool::new(2), 0).unwrap();
        let mut queries = ring(200, 1);
        let mut rng = Rng::stream(3, "away", 0);
        let away: Vec<f64> = (0..200)
            .map(|i| {
                let by = 1.5 * rng.uniform();
                (0..4).for_each(|j| queries.obs[[i, j]] *= 1.0 + by as f32);
                by
            })
            .collect();
        let u = it.score(&ModelStep::of_rows(queries.clone())).unwrap();
        let rho = spearman(&u.iter().map(|&u| f64::from(u)).collect::<Vec<_>>(), &away);
        assert!(rho > 0.5, "{rho}");
        let on_data = it.score(&ModelStep::of_rows(data.clone())).unwrap();
        assert!(on_data.mean().unwrap() < 0.5 * u.mean().unwrap());
        assert!(it.max_loo_score() >= on_data.iter().fold(0.0, |a: f32, b| a.max(*b)) * 0.99);
        let alone = Pullback::new(&small(), &data, &ThreadPool::new(1), 0).unwrap();
        assert_eq!(alone.score(&ModelStep::of_rows(queries.clone())).unwrap(), u);
    }

    #[test]
    fn the_metric_is_the_formula_by_finite_differences() {
        let data = ring(600, 0);
        let it = Pullback::new(&PullbackConfig { updates: 200, ..small() }, &data, &ThreadPool::new(1), 0)
            .unwrap();
        let g = &it.geometry;
        let e: Vec<f32> = it.points.row(7).to_vec();
        let delta: Vec<f32> = (0..4).map(|i| 0.1 * (i as f32 + 1.0)).collect();
        let l = 3;
        let (h, wide) = (1e-2f32, |x: &[f32]| x.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>());
        // (μ_F, σ_F)(e), and the decoder's (μ_D, σ_D)(z').
        let forward = |e: &[f32]| {
            let out = g.forward.along(e, &[]).value;
            let mean: Vec<f32> = (0..l).map(|i| e[i] + out[i]).collect();
            let std: Vec<f32> = (0..l).map(|i| (0.5 * out[l + i]).exp()).collect();
            (mean, std)
        };
        let decode = |z: &[f32]| [wide(&g.decoder.along(z, &[]).value), g.noise.deviations(z)].concat();
        let shift =
            |x: &[f32], d: &[f32], by: f32| x.iter().zip(d).map(|(x, d)| x + by * d).collect::<Vec<f32>>();
        let (up, down) = (forward(&shift(&e, &delta, h)), forward(&shift(&e, &delta, -h)));
        let slope = |a: &[f32], b: &[f32]| -> Vec<f64> {
            a.iter().zip(b).map(|(a, b)| f64::from(a - b) / f64::from(2.0 * h)).collect()
        };
        let (v, w) = (slope(&up.0, &down.0), slope(&up.1, &down.1));
        let z = forward(&e).0;
        let columns: Vec<Vec<f64>> = (0..l)
            .map(|i| {
                let axis: Vec<f32> = (0..l).map(|j| f32::from(i == j)).collect();
                let (up, down) = (decode(&shift(&z, &axis, h)), decode(&shift(&z, &axis, -h)));
                up.iter().zip(&down).map(|(a, b)| (a - b) / f64::from(2.0 * h)).collect()
            })
            .collect();
        let outputs = columns[0].len();
        let along: f64 =
            (0..outputs).map(|j| (0..l).map(|i| columns[i][j] * v[i]).sum::<f64>().powi(2)).sum();
        let across: f64 = (0..l).map(|i| w[i].powi(2) * columns[i].iter().map(|c| c * c).sum::<f64>()).sum();
        let (got, want) = (g.speed(&e, &delta), (along + across).sqrt());
        assert!((got - want).abs() < 0.02 * want, "{got} {want}");
    }

    #[test]
    fn bad_settings_are_named() {
        let data = ring(30, 0);
        let fail = |cfg: PullbackConfig, data: &Batch| {
            Pullback::new(&cfg, data, &ThreadPool::new(1), 0).unwrap_err().to_string()
        };
        assert!(fail(PullbackConfig { latent: 0, ..small() }, &data).contains("latent of at least 1"));
        assert!(fail(PullbackConfig { neighbors: 30, ..small() }, &data).contains("more than 30 rows"));
        let mut bad = data.clone();
        bad.next_obs[[3, 1]] = f32::NAN;
        assert!(fail(small(), &bad).contains("`next_obs` at row 3"));
    }
}
