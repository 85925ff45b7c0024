//! The policy π(a|s) = N(μ(s), diag σ²): a tanh network for μ, and a log σ that does not depend on the state.
//!
//! Its actions have no bound; a world cuts them to [-1, 1]. The density is that of the action before the cut, so the cut
//! is part of the world and the gradient stays exact.

use ndarray::{ArrayView2, Axis};

use super::config::NpgConfig;
use crate::batch::Mat;
use crate::error::Result;
use crate::nn::{
    Activation, Activations, Field, Init, Keep, MlpEnsemble, Noise, PackedMatrix, ScratchPool, Shape,
    Tensors, ThreadPool, Weights,
};
use crate::rng::Rng;
use crate::sac::Actor;

/// Rows a thread takes at once.
const CHUNK: usize = 128;

/// A deviation below this is that of a constant column, which is only shifted.
const CONSTANT: f64 = 1e-6;

/// A Gaussian policy.
#[derive(Clone, Debug)]
pub struct GaussianPolicy {
    pub(super) stack: MlpEnsemble,
    pub(super) log_std: Vec<f32>,
    range: [f32; 2],
    pub(super) standard: Standard,
    scratch: ScratchPool<(PackedMatrix, Activations)>,
}

/// How states are brought to mean 0 and deviation 1 before a network sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct Standard {
    shift: Vec<f32>,
    /// 1 / deviation.
    inverse: Vec<f32>,
}

impl Standard {
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

    /// Entry `col` of a state, standardised.
    #[inline(always)]
    pub(super) fn apply(&self, col: usize, x: f32) -> f32 {
        (x - self.shift[col]) * self.inverse[col]
    }

    /// Puts rows `first..first + rows` of `obs`, standardised, into `to`.
    pub(super) fn load(&self, obs: ArrayView2<'_, f32>, first: usize, rows: usize, to: &mut PackedMatrix) {
        let mut line = vec![0.0; self.width()];
        for row in 0..rows {
            let source = obs.row(first + row);
            line.iter_mut().zip(source).enumerate().for_each(|(col, (to, x))| *to = self.apply(col, *x));
            to.load_row(row, &line, 0);
        }
    }
}

impl GaussianPolicy {
    /// A fresh policy, whose mean hardly depends on the state at first.
    pub fn new(cfg: &NpgConfig, standard: Standard, act_dim: usize, rng: &mut Rng) -> Self {
        let shape = Shape::new(standard.width(), &cfg.hidden, act_dim, Activation::Tanh);
        let mut stack = MlpEnsemble::new(shape, 1, Init::Uniform, Keep::Weights, rng);
        let last = stack.shape().layers() - 1;
        let (mut weight, mut bias) = stack.get(0, last, Field::Weight);
        weight.iter_mut().chain(&mut bias).for_each(|w| *w *= 0.01);
        stack.set(0, last, Field::Weight, &weight, &bias);
        let log_std = vec![cfg.log_std; act_dim];
        Self { stack, log_std, range: cfg.log_std_range, standard, scratch: ScratchPool::default() }
    }

    /// Width of an observation.
    pub fn obs_dim(&self) -> usize {
        self.standard.width()
    }

    /// Width of an action.
    pub fn act_dim(&self) -> usize {
        self.log_std.len()
    }

    /// log σ of each action.
    pub fn log_std(&self) -> &[f32] {
        &self.log_std
    }

    /// Entropy of the distribution before the cut, in nats.
    pub fn entropy(&self) -> f64 {
        let half = 0.5 * (1.0 + std::f64::consts::TAU.ln());
        self.log_std.iter().map(|&l| f64::from(l) + half).sum()
    }

    /// Actions for a batch, before the cut. Row i's noise depends on the noise's key and i alone.
    pub fn sample(&self, pool: &ThreadPool, obs: ArrayView2<'_, f32>, noise: Noise<'_>) -> Mat {
        let (rows, width) = (obs.nrows(), self.act_dim());
        assert_eq!(obs.ncols(), self.obs_dim(), "observations of the width this policy was made for");
        let mut act = vec![0.0; rows * width];
        let std: Vec<f32> = self.log_std.iter().map(|l| l.exp()).collect();
        let mut chunks: Vec<_> = act.chunks_mut(CHUNK * width).collect();
        let make = || {
            (PackedMatrix::new(CHUNK, self.obs_dim()), Activations::forward_only(self.stack.shape(), CHUNK))
        };
        pool.for_each_mut(&mut chunks, |i, act| {
            let (first, n) = (i * CHUNK, act.len() / width);
            noise.fill(first, width, act);
            self.scratch.with(make, |(x, trace)| {
                self.standard.load(obs, first, n, x);
                trace.forward(self.stack.net(0), Weights::Current, x, n);
                for (row, act) in act.chunks_exact_mut(width).enumerate() {
                    for (j, a) in act.iter_mut().enumerate() {
                        *a = trace.out.data()[trace.out.at(row, j)] + std[j] * *a;
                    }
                }
            });
        });
        Mat::from_shape_vec((rows, width), act).expect("one action a row was written")
    }

    /// All parameters in one run: the network's, then log σ.
    pub fn params(&self) -> Vec<f32> {
        let mut flat = self.stack.flat(0);
        flat.extend(&self.log_std);
        flat
    }

    /// Sets what [`GaussianPolicy::params`] gets; log σ is clamped.
    pub fn set_params(&mut self, params: &[f32]) {
        let (weights, log_std) = params.split_at(self.stack.params());
        self.stack.set_flat(0, weights);
        self.log_std = log_std.iter().map(|l| l.clamp(self.range[0], self.range[1])).collect();
    }

    /// The policy as policies are stored ([`crate::policy::TanhGaussian`]), with the standardisation worked into its
    /// first layer.
    pub fn to_policy(&self) -> Tensors {
        let mut out = Tensors::default();
        let (shape, last) = (self.stack.shape(), self.stack.shape().layers() - 1);
        for l in 0..=last {
            let (mut weight, mut bias) = self.stack.get(0, l, Field::Weight);
            let inputs = shape.inputs(l);
            if l == 0 {
                for (row, bias) in weight.chunks_exact_mut(inputs).zip(&mut bias) {
                    let mut sum = f64::from(*bias);
                    for (col, w) in row.iter_mut().enumerate() {
                        let folded = f64::from(*w) * f64::from(self.standard.inverse[col]);
                        sum -= folded * f64::from(self.standard.shift[col]);
                        *w = folded as f32;
                    }
                    *bias = sum as f32;
                }
            }
            let name = if l < last { format!("hidden.{l}") } else { "mean".into() };
            out.put_f32(format!("{name}.weight"), &[bias.len(), inputs], weight);
            out.put_f32(format!("{name}.bias"), &[bias.len()], bias);
        }
        let (inputs, width) = (shape.inputs(last), self.act_dim());
        out.put_f32("log_std.weight", &[width, inputs], vec![0.0; width * inputs]);
        out.put_f32("log_std.bias", &[width], self.log_std.clone());
        out.put_f32("log_std_range", &[2], self.range.to_vec());
        out.put_u64("tanh_units", &[1]);
        out.put_u64("clipped", &[1]);
        out
    }

    /// The policy as one that can be scored, written and exported like any other.
    ///
    /// # Errors
    /// Weights that are not finite.
    pub fn to_actor(&self) -> Result<Actor> {
        Actor::from_policy(&self.to_policy())
    }

    /// All parameters, for a checkpoint.
    pub fn save(&self) -> Tensors {
        let (mut out, params) = (Tensors::default(), self.params());
        out.put_f32("params", &[params.len()], params);
        out
    }

    /// Takes back what [`GaussianPolicy::save`] gave.
    pub fn load(&mut self, from: &Tensors) -> Result<()> {
        let params = from.f32("params", &[self.stack.params() + self.act_dim()])?;
        self.set_params(&params);
        Ok(())
    }
}
