//! The policy π(a|s) = N(μ(s), diag σ²): a tanh network for μ, and a log σ that does not depend on the state.
//!
//! Its actions have no bound; the environment clips them to [-1, 1]. The density is that of the action before clipping:
//! the clip is part of the environment, so the gradient stays exact.

use ndarray::{ArrayView1, ArrayView2, Axis};

use super::config::NpgConfig;
use crate::batch::Mat;
use crate::error::Result;
use crate::nn::{Activation, Field, Init, Keep, MlpEnsemble, Noise, Shape, Tensors, ThreadPool, Weights};
use crate::rng::Rng;
use crate::sac::Actor;

/// Rows a thread draws noise for at once.
const CHUNK: usize = 128;

/// A column with a smaller deviation counts as constant and is only shifted.
const CONSTANT: f64 = 1e-6;

/// A Gaussian policy.
#[derive(Clone, Debug)]
pub struct GaussianPolicy {
    pub(super) net: MlpEnsemble,
    pub(super) log_std: Vec<f32>,
    range: [f32; 2],
    pub(super) standardizer: Standardizer,
}

/// Brings states to mean 0 and deviation 1 for a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Standardizer {
    shift: Vec<f32>,
    /// 1 / deviation.
    inverse: Vec<f32>,
}

impl Standardizer {
    /// From the columns of `obs`.
    pub fn of(obs: &Mat) -> Self {
        let rows = obs.nrows().max(1) as f64;
        let (mut shift, mut inverse) = (Vec::new(), Vec::new());
        for column in obs.axis_iter(Axis(1)) {
            let mean = column.iter().map(|&x| f64::from(x)).sum::<f64>() / rows;
            let square = column.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / rows;
            let std = square.sqrt();
            shift.push(mean as f32);
            inverse.push(if std < CONSTANT { 1.0 } else { (1.0 / std) as f32 });
        }
        Self { shift, inverse }
    }

    /// States of `width` numbers as they are.
    pub fn none(width: usize) -> Self {
        Self { shift: vec![0.0; width], inverse: vec![1.0; width] }
    }

    /// Width of a state.
    pub fn width(&self) -> usize {
        self.shift.len()
    }

    /// Writes the standardised state into `to`.
    pub(super) fn apply(&self, obs: ArrayView1<'_, f32>, to: &mut [f32]) {
        for (col, (to, x)) in to.iter_mut().zip(obs).enumerate() {
            *to = (x - self.shift[col]) * self.inverse[col];
        }
    }
}

impl GaussianPolicy {
    /// A fresh policy, whose mean hardly depends on the state at first.
    pub fn new(cfg: &NpgConfig, standardizer: Standardizer, act_dim: usize, rng: &mut Rng) -> Self {
        let shape = Shape::new(standardizer.width(), &cfg.hidden, act_dim, Activation::Tanh);
        let mut net = MlpEnsemble::new(shape, 1, Init::Uniform, Keep::Weights, rng);
        let last = net.shape().layers() - 1;
        let (mut weight, mut bias) = net.get(0, last, Field::Weight);
        weight.iter_mut().chain(&mut bias).for_each(|w| *w *= 0.01);
        net.set(0, last, Field::Weight, &weight, &bias);
        let log_std = vec![cfg.log_std; act_dim];
        Self { net, log_std, range: cfg.log_std_range, standardizer }
    }

    /// Width of an observation.
    pub fn obs_dim(&self) -> usize {
        self.standardizer.width()
    }

    /// Width of an action.
    pub fn act_dim(&self) -> usize {
        self.log_std.len()
    }

    /// Entropy of the distribution before clipping, in nats.
    pub fn entropy(&self) -> f64 {
        let half = 0.5 * (1.0 + std::f64::consts::TAU.ln());
        self.log_std.iter().map(|&l| f64::from(l) + half).sum()
    }

    /// Actions for a batch, before clipping. Row i's noise depends on the noise's key and i alone.
    pub fn sample(&self, pool: &ThreadPool, obs: ArrayView2<'_, f32>, noise: Noise<'_>) -> Mat {
        let (rows, width) = (obs.nrows(), self.act_dim());
        assert_eq!(obs.ncols(), self.obs_dim(), "observations of the width this policy was made for");
        let mut act = vec![0.0; rows * width];
        let load = |row: usize, x: &mut [f32]| self.standardizer.apply(obs.row(row), x);
        self.net.predict(pool, (0, Weights::Current), (&mut act, width), load);
        let std: Vec<f32> = self.log_std.iter().map(|l| l.exp()).collect();
        let mut chunks: Vec<_> = act.chunks_mut(CHUNK * width).collect();
        pool.for_each_mut(&mut chunks, |i, act| {
            let mut eps = vec![0.0; act.len()];
            noise.fill(i * CHUNK, width, &mut eps);
            act.iter_mut().zip(&eps).zip(std.iter().cycle()).for_each(|((a, eps), std)| *a += std * eps);
        });
        Mat::from_shape_vec((rows, width), act).expect("one action a row was written")
    }

    /// All parameters in one run: the network's, then log σ.
    pub fn params(&self) -> Vec<f32> {
        let mut flat = self.net.flat(0);
        flat.extend(&self.log_std);
        flat
    }

    /// Sets what [`GaussianPolicy::params`] gets; log σ is clamped.
    pub fn set_params(&mut self, params: &[f32]) {
        let (weights, log_std) = params.split_at(self.net.params());
        self.net.set_flat(0, weights);
        self.log_std = log_std.iter().map(|l| l.clamp(self.range[0], self.range[1])).collect();
    }

    /// The policy as one that can be scored, written and exported like any other, with the standardisation worked into
    /// its first layer.
    ///
    /// # Errors
    /// Weights that are not finite.
    pub fn to_actor(&self) -> Result<Actor> {
        let (from, width) = (self.net.shape(), self.act_dim());
        let last = from.layers() - 1;
        let hidden: Vec<usize> = (0..last).map(|l| from.outputs(l)).collect();
        let shape = Shape::new(self.obs_dim(), &hidden, 2 * width, Activation::Tanh);
        let mut net = MlpEnsemble::zeros(shape, 1, Keep::Moments);
        for l in 0..=last {
            let (mut weight, mut bias) = self.net.get(0, l, Field::Weight);
            if l == 0 {
                for (row, bias) in weight.chunks_exact_mut(self.obs_dim()).zip(&mut bias) {
                    let mut sum = f64::from(*bias);
                    for (col, w) in row.iter_mut().enumerate() {
                        let folded = f64::from(*w) * f64::from(self.standardizer.inverse[col]);
                        sum -= folded * f64::from(self.standardizer.shift[col]);
                        *w = folded as f32;
                    }
                    *bias = sum as f32;
                }
            }
            if l == last {
                // log σ does not depend on the state.
                weight.resize(2 * weight.len(), 0.0);
                bias.extend(&self.log_std);
            }
            net.set(0, l, Field::Weight, &weight, &bias);
        }
        Actor::from_net(net, self.range, true)
    }

    /// All parameters, for a checkpoint.
    pub fn save(&self) -> Tensors {
        let (mut out, params) = (Tensors::default(), self.params());
        out.put_f32("params", &[params.len()], params);
        out
    }

    /// Restores what [`GaussianPolicy::save`] returned.
    pub fn load(&mut self, from: &Tensors) -> Result<()> {
        let params = from.f32("params", &[self.net.params() + self.act_dim()])?;
        self.set_params(&params);
        Ok(())
    }
}
