//! What a policy update is computed from: samples, the surrogate's gradient, products with the Fisher matrix, and how far
//! a new policy is from the old one.
//!
//! With L(θ) = mean exp(log π_θ(a|s) − log π_old(a|s))·A, the gradient at the old policy is mean ∇log π(a|s)·A. The Fisher
//! matrix is the Hessian of mean KL(π_old ‖ π_θ) there: Jᵀ Σ⁻¹ J for the network (J the mean's derivative, exact because the
//! second derivative of the mean is multiplied by a difference of means, which is 0) and 2 for each log σ.
//!
//! Rows are cut into parts of fixed size, each part's sums are made by one thread and joined in order in f64, so threads
//! change no bit.

use super::policy::GaussianPolicy;
use crate::batch::Mat;
use crate::nn::{Activations, Jvp, Keep, MlpEnsemble, PackedMatrix, ThreadPool, Weights};

/// Rows of a part: their activations stay in a core's own cache from one pass to the next.
const PART: usize = 256;

/// The samples of one update, seen from the policy that made them.
pub struct Surrogate<'a> {
    policy: &'a GaussianPolicy,
    pool: &'a ThreadPool,
    act: &'a Mat,
    advantage: &'a [f32],
    /// σ⁻².
    precision: Vec<f32>,
    parts: Vec<Part>,
    direction: MlpEnsemble,
}

struct Part {
    first: usize,
    rows: usize,
    x: PackedMatrix,
    trace: Activations,
    tangent: Jvp,
    /// Sum over the part's rows of the gradient of the network's weights.
    gradient: MlpEnsemble,
    /// Σ over rows, for each log σ.
    log_std: Vec<f64>,
    /// μ of the old policy, flat.
    mean: Vec<f32>,
    /// Σ ratio·A and Σ KL.
    sums: [f64; 2],
}

impl<'a> Surrogate<'a> {
    /// Runs the policy on the states `obs`, in which it took the actions `act` (before the cut).
    pub fn new(
        policy: &'a GaussianPolicy,
        pool: &'a ThreadPool,
        obs: &Mat,
        act: &'a Mat,
        advantage: &'a [f32],
    ) -> Self {
        let (rows, width, shape) = (obs.nrows(), policy.act_dim(), policy.stack.shape());
        assert!(act.dim() == (rows, width) && advantage.len() == rows, "one action and advantage a state");
        let part = |i: usize| {
            let (first, n) = (i * PART, PART.min(rows - i * PART));
            Part {
                first,
                rows: n,
                x: PackedMatrix::new(n, policy.obs_dim()),
                trace: Activations::new(shape, n),
                tangent: Jvp::new(shape, n),
                gradient: MlpEnsemble::zeros(shape.clone(), 1, Keep::Weights),
                log_std: vec![0.0; width],
                mean: vec![0.0; n * width],
                sums: [0.0; 2],
            }
        };
        let mut parts: Vec<Part> = (0..rows.div_ceil(PART)).map(part).collect();
        pool.for_each_mut(&mut parts, |_, p| {
            policy.standard.load(obs.view(), p.first, p.rows, &mut p.x);
            p.trace.forward(policy.stack.net(0), Weights::Current, &p.x, p.rows);
            p.trace.out.store_flat(&mut p.mean, width, 0);
        });
        let precision = policy.log_std.iter().map(|&l| (-2.0 * f64::from(l)).exp() as f32).collect();
        let direction = MlpEnsemble::zeros(shape.clone(), 1, Keep::Weights);
        Self { policy, pool, act, advantage, precision, parts, direction }
    }

    fn rows(&self) -> f64 {
        self.advantage.len() as f64
    }

    /// ∇L at the old policy, in the order of [`GaussianPolicy::params`].
    pub fn gradient(&mut self) -> Vec<f64> {
        let (policy, act, advantage, precision) = (self.policy, self.act, self.advantage, &self.precision);
        self.pool.for_each_mut(&mut self.parts, |_, p| {
            let width = precision.len();
            p.log_std.fill(0.0);
            for i in 0..p.rows {
                let (row, mean) = (p.first + i, &p.mean[i * width..][..width]);
                for j in 0..width {
                    let off = act[[row, j]] - mean[j];
                    let at = p.trace.dout.at(i, j);
                    p.trace.dout.data_mut()[at] = advantage[row] * off * precision[j];
                    let square = f64::from(off).powi(2) * f64::from(precision[j]);
                    p.log_std[j] += f64::from(advantage[row]) * (square - 1.0);
                }
            }
            p.back(policy);
        });
        let mut gradient = MlpEnsemble::sum(self.parts.iter().map(|p| &p.gradient));
        gradient
            .extend((0..self.precision.len()).map(|j| self.parts.iter().map(|p| p.log_std[j]).sum::<f64>()));
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
        self.pool.for_each_mut(&mut self.parts, |_, p| {
            p.tangent.along(policy.stack.net(0), direction.net(0), &p.trace, &p.x, p.rows);
            for i in 0..p.rows {
                for (j, precision) in precision.iter().enumerate() {
                    let at = p.trace.dout.at(i, j);
                    p.trace.dout.data_mut()[at] = p.tangent.out.data()[at] * precision;
                }
            }
            p.back(policy);
        });
        let mut product = MlpEnsemble::sum(self.parts.iter().map(|p| &p.gradient));
        product.iter_mut().for_each(|x| *x /= rows);
        product.extend(log_std.iter().map(|v| 2.0 * v));
        product
    }

    /// L of `new` and mean KL(old ‖ new). Ends the use of this value: activations are overwritten.
    pub fn compare(mut self, new: &GaussianPolicy) -> (f64, f64) {
        let (old, act, advantage) = (self.policy, self.act, self.advantage);
        self.pool.for_each_mut(&mut self.parts, |_, p| {
            let width = old.act_dim();
            p.trace.forward(new.stack.net(0), Weights::Current, &p.x, p.rows);
            p.sums = [0.0; 2];
            for i in 0..p.rows {
                let (mut log_ratio, mut kl) = (0.0, 0.0);
                for j in 0..width {
                    let a = f64::from(act[[p.first + i, j]]);
                    let was = Normal::new(p.mean[i * width + j], old.log_std[j]);
                    let is = Normal::new(p.trace.out.data()[p.trace.out.at(i, j)], new.log_std[j]);
                    log_ratio += is.log_density(a) - was.log_density(a);
                    kl += was.kl(&is);
                }
                p.sums[0] += log_ratio.exp() * f64::from(advantage[p.first + i]);
                p.sums[1] += kl;
            }
        });
        let mean = |k: usize| self.parts.iter().map(|p| p.sums[k]).sum::<f64>() / self.rows();
        (mean(0), mean(1))
    }
}

impl Part {
    /// Takes `dout` back to the gradient of the weights, summed over the part's rows.
    fn back(&mut self, policy: &GaussianPolicy) {
        self.trace.backward(policy.stack.net(0), self.rows, None);
        let (trace, x, rows) = (&self.trace, &self.x, self.rows);
        self.gradient.gradient_of_part(|l| {
            let (x, dy) = trace.source(l, x);
            (x, dy, rows)
        });
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

    /// But for a constant.
    fn log_density(&self, a: f64) -> f64 {
        -0.5 * (a - self.mean).powi(2) * (-2.0 * self.log_std).exp() - self.log_std
    }

    fn kl(&self, other: &Self) -> f64 {
        let square = (self.mean - other.mean).powi(2) + (2.0 * self.log_std).exp();
        0.5 * square * (-2.0 * other.log_std).exp() - 0.5 + other.log_std - self.log_std
    }
}
