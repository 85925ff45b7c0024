//! The inputs of a policy update: samples, the surrogate's gradient, products with the Fisher matrix, and the distance of
//! a new policy from the old one.
//!
//! With L(θ) = mean exp(log π_θ(a|s) − log π_old(a|s))·A, the gradient at the old policy is mean ∇log π(a|s)·A. The Fisher
//! matrix is the Hessian of mean KL(π_old ‖ π_θ) there: Jᵀ Σ⁻¹ J for the network (J the mean's derivative, exact because the
//! second derivative of the mean is multiplied by a difference of means, which is 0) and 2 for each log σ.
//!
//! Rows are cut into shards of fixed size. One thread makes a shard's sums, which are joined in order in f64, so the number
//! of threads changes no bit.

use super::policy::GaussianPolicy;
use crate::batch::Mat;
use crate::nn::{Jvp, Keep, MlpEnsemble, Shard, ThreadPool, Weights};

/// Rows of a shard, whatever the number of threads: the sums are made shard by shard. Their activations stay in a core's own
/// cache from one pass to the next.
const ROWS: usize = 256;

/// The samples of one update, seen from the policy that made them.
pub struct Surrogate<'a> {
    policy: &'a GaussianPolicy,
    pool: &'a ThreadPool,
    act: &'a Mat,
    advantage: &'a [f32],
    /// σ⁻².
    precision: Vec<f32>,
    shards: Vec<SurrogateShard>,
    direction: MlpEnsemble,
}

struct SurrogateShard {
    shard: Shard,
    tangent: Jvp,
    /// Sum over the shard's rows of the gradient of the network's weights.
    gradient: MlpEnsemble,
    /// Σ over rows, for each log σ.
    log_std: Vec<f64>,
    /// μ of the old policy, flat.
    mean: Vec<f32>,
    /// Σ ratio·A and Σ KL.
    sums: [f64; 2],
}

impl<'a> Surrogate<'a> {
    /// Runs the policy on the states `obs`, in which it took the actions `act` (before clipping).
    pub fn new(
        policy: &'a GaussianPolicy,
        pool: &'a ThreadPool,
        obs: &Mat,
        act: &'a Mat,
        advantage: &'a [f32],
    ) -> Self {
        let (rows, width, shape) = (obs.nrows(), policy.act_dim(), policy.net.shape());
        assert!(act.dim() == (rows, width) && advantage.len() == rows, "one action and advantage a state");
        let shard = |i: usize| {
            let rows = i * ROWS..rows.min((i + 1) * ROWS);
            SurrogateShard {
                tangent: Jvp::new(shape, rows.len()),
                gradient: MlpEnsemble::zeros(shape.clone(), 1, Keep::Weights),
                log_std: vec![0.0; width],
                mean: vec![0.0; rows.len() * width],
                sums: [0.0; 2],
                shard: Shard::new(shape, rows, 1),
            }
        };
        let mut shards: Vec<SurrogateShard> = (0..rows.div_ceil(ROWS)).map(shard).collect();
        pool.for_each_mut(&mut shards, |_, s| {
            let first = s.shard.rows.start;
            let load = |i: usize, x: &mut [f32]| policy.standardizer.apply(obs.row(first + i), x);
            s.shard.x.fill_rows(s.shard.rows.len(), load);
            s.shard.forward(&policy.net, 0, Weights::Current);
            s.shard.nets[0].out.store_flat(&mut s.mean, width, 0);
        });
        let precision = policy.log_std.iter().map(|&l| (-2.0 * f64::from(l)).exp() as f32).collect();
        let direction = MlpEnsemble::zeros(shape.clone(), 1, Keep::Weights);
        Self { policy, pool, act, advantage, precision, shards, direction }
    }

    fn rows(&self) -> f64 {
        self.advantage.len() as f64
    }

    /// ∇L at the old policy, in the order of [`GaussianPolicy::params`].
    pub fn gradient(&mut self) -> Vec<f64> {
        let (policy, act, advantage, precision) = (self.policy, self.act, self.advantage, &self.precision);
        self.pool.for_each_mut(&mut self.shards, |_, s| {
            let width = precision.len();
            s.log_std.fill(0.0);
            for (i, row) in s.shard.rows.clone().enumerate() {
                for j in 0..width {
                    let off = act[[row, j]] - s.mean[i * width + j];
                    s.shard.nets[0].dout.set(i, j, advantage[row] * off * precision[j]);
                    let square = f64::from(off).powi(2) * f64::from(precision[j]);
                    s.log_std[j] += f64::from(advantage[row]) * (square - 1.0);
                }
            }
            s.backward(policy);
        });
        let mut gradient = MlpEnsemble::sum(self.shards.iter().map(|s| &s.gradient));
        let log_std = |j: usize| self.shards.iter().map(|s| s.log_std[j]).sum::<f64>();
        gradient.extend((0..self.precision.len()).map(log_std));
        let rows = self.rows();
        gradient.iter_mut().for_each(|g| *g /= rows);
        gradient
    }

    /// F·v for a direction in the order of [`GaussianPolicy::params`].
    pub fn fisher(&mut self, v: &[f64]) -> Vec<f64> {
        let (policy, precision, rows) = (self.policy, &self.precision, self.rows());
        let (weights, log_std) = v.split_at(v.len() - precision.len());
        let narrow: Vec<f32> = weights.iter().map(|&v| v as f32).collect();
        self.direction.set_flat(0, &narrow);
        let direction = &self.direction;
        self.pool.for_each_mut(&mut self.shards, |_, s| {
            let Shard { rows, x, nets } = &mut s.shard;
            s.tangent.along(policy.net.net(0), direction.net(0), &nets[0], x, rows.len());
            for i in 0..rows.len() {
                for (j, precision) in precision.iter().enumerate() {
                    nets[0].dout.set(i, j, s.tangent.out.get(i, j) * precision);
                }
            }
            s.backward(policy);
        });
        let mut product = MlpEnsemble::sum(self.shards.iter().map(|s| &s.gradient));
        product.iter_mut().for_each(|x| *x /= rows);
        product.extend(log_std.iter().map(|v| 2.0 * v));
        product
    }

    /// L of `new` and mean KL(old ‖ new). Consumes this value, because it overwrites the activations.
    pub fn compare(mut self, new: &GaussianPolicy) -> (f64, f64) {
        let (old, act, advantage) = (self.policy, self.act, self.advantage);
        self.pool.for_each_mut(&mut self.shards, |_, s| {
            let width = old.act_dim();
            s.shard.forward(&new.net, 0, Weights::Current);
            s.sums = [0.0; 2];
            for (i, row) in s.shard.rows.clone().enumerate() {
                let (mut log_ratio, mut kl) = (0.0, 0.0);
                for j in 0..width {
                    let a = f64::from(act[[row, j]]);
                    let was = Normal::new(s.mean[i * width + j], old.log_std[j]);
                    let is = Normal::new(s.shard.nets[0].out.get(i, j), new.log_std[j]);
                    log_ratio += is.log_density(a) - was.log_density(a);
                    kl += was.kl(&is);
                }
                s.sums[0] += log_ratio.exp() * f64::from(advantage[row]);
                s.sums[1] += kl;
            }
        });
        let mean = |k: usize| self.shards.iter().map(|s| s.sums[k]).sum::<f64>() / self.rows();
        (mean(0), mean(1))
    }
}

impl SurrogateShard {
    /// Takes `dout` back to the gradient of the weights, summed over the shard's rows.
    fn backward(&mut self, policy: &GaussianPolicy) {
        self.shard.backward(&policy.net, 0);
        self.gradient.set_to_gradient(1, |_| &self.shard);
    }
}

/// One action's distribution.
struct Normal {
    mean: f64,
    log_std: f64,
}

impl Normal {
    fn new(mean: f32, log_std: f32) -> Self {
        Self { mean: f64::from(mean), log_std: f64::from(log_std) }
    }

    /// Up to a constant.
    fn log_density(&self, a: f64) -> f64 {
        -0.5 * (a - self.mean).powi(2) * (-2.0 * self.log_std).exp() - self.log_std
    }

    fn kl(&self, other: &Self) -> f64 {
        let square = (self.mean - other.mean).powi(2) + (2.0 * self.log_std).exp();
        0.5 * square * (-2.0 * other.log_std).exp() - 0.5 + other.log_std - self.log_std
    }
}
