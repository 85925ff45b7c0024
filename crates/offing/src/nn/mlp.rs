//! Stacks of equal multi-layer perceptrons: one actor, a few critics, an ensemble of models.
//!
//! The forward and backward passes of a row touch no other row, so threads take parts of a batch through whole
//! networks without waiting for each other; the weight gradients then are shared out by panel.

use super::adam::AdamStep;
use super::buffer::{Buf, LANES, read, write};
use super::gradient::{Sources, Update, gradient_panel, polyak, train_panel};
use super::layer::Panel;
use super::matmul::Simd;
use super::matrix::PackedMatrix;
use super::shape::Shape;
use super::thread_pool::ThreadPool;
use crate::rng::Rng;

/// How fresh weights are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// Weights and biases uniform in ±1/√inputs: PyTorch's default for a linear layer.
    Uniform,
    /// Weights normal with deviation 1/(2√inputs), redrawn beyond two deviations; biases 0. Usual for model ensembles.
    TruncatedNormal,
}

/// What a stack keeps beside its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Weights only.
    Weights,
    /// Adam's moments too.
    Moments,
    /// Adam's moments and a target copy.
    MomentsAndTarget,
}

/// `nets` networks of one shape.
#[derive(Clone, Debug)]
pub struct MlpEnsemble {
    shape: Shape,
    nets: usize,
    panels: Vec<Panel>,
    simd: Simd,
}

/// One network of a stack, to run.
#[derive(Clone, Copy, Debug)]
pub struct Net<'a> {
    pub(super) shape: &'a Shape,
    panels: &'a [Panel],
    simd: Simd,
}

impl MlpEnsemble {
    /// Fresh networks; targets start as copies.
    pub fn new(shape: Shape, nets: usize, init: Init, keep: Keep, rng: &mut Rng) -> Self {
        let mut stack = Self::zeros(shape, nets, keep);
        for net in 0..nets {
            for l in 0..stack.shape.layers() {
                let (inputs, outputs) = (stack.shape.inputs(l), stack.shape.outputs(l));
                let scale = 1.0 / (inputs as f64).sqrt();
                let mut weight = vec![0.0; inputs * outputs];
                let mut bias = vec![0.0; outputs];
                match init {
                    Init::Uniform => {
                        weight.iter_mut().chain(&mut bias).for_each(|w| *w = rng.range(-scale, scale) as f32)
                    }
                    Init::TruncatedNormal => weight.iter_mut().for_each(|w| {
                        *w = loop {
                            let z = rng.normal();
                            if z.abs() <= 2.0 {
                                break (z * 0.5 * scale) as f32;
                            }
                        }
                    }),
                }
                stack.set(net, l, Field::Weight, &weight, &bias);
            }
        }
        stack.copy_targets();
        stack
    }

    /// Networks whose weights are all zero, to be filled with [`MlpEnsemble::set`].
    pub fn zeros(shape: Shape, nets: usize, keep: Keep) -> Self {
        let panel = |l: usize| {
            let len = (shape.inputs(l) + 1) * shape.lanes(l);
            let extra = |wanted: bool| if wanted { Buf::zeros(len) } else { Buf::default() };
            let (moments, target) = (keep != Keep::Weights, keep == Keep::MomentsAndTarget);
            Panel { w: Buf::zeros(len), m: extra(moments), v: extra(moments), target: extra(target) }
        };
        let panels = (0..nets).flat_map(|_| shape.units.iter().map(|&(l, _)| panel(l))).collect();
        Self { shape, nets, panels, simd: Simd::detect() }
    }

    /// The same networks on plain Rust kernels: slower, for comparison.
    pub fn portable(mut self) -> Self {
        self.simd = Simd::Portable;
        self
    }

    /// The same stack without weights, to be lent some by [`MlpEnsemble::swap_weights`].
    pub(crate) fn without_weights(mut self) -> Self {
        self.panels.iter_mut().for_each(|panel| panel.w = Buf::default());
        self
    }

    /// The networks' common shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Number of networks.
    pub fn nets(&self) -> usize {
        self.nets
    }

    /// The kernels in use.
    pub fn simd(&self) -> Simd {
        self.simd
    }

    /// Network number `net`.
    pub fn net(&self, net: usize) -> Net<'_> {
        let per_net = self.shape.units.len();
        Net { shape: &self.shape, panels: &self.panels[net * per_net..][..per_net], simd: self.simd }
    }

    /// Network `net` takes over the weights of network `from` of `other`, which has the same shape.
    pub fn copy_weights(&mut self, net: usize, other: &MlpEnsemble, from: usize) {
        assert_eq!(self.shape, other.shape, "networks of one shape");
        let per_net = self.shape.units.len();
        let to = &mut self.panels[net * per_net..][..per_net];
        for (to, from) in to.iter_mut().zip(&other.panels[from * per_net..]) {
            to.w.copy_from_slice(&from.w);
        }
    }

    /// Exchanges the weights, and nothing else, with a stack of the same shape.
    pub(crate) fn swap_weights(&mut self, other: &mut MlpEnsemble) {
        assert!(self.shape == other.shape && self.nets == other.nets, "stacks of one shape");
        self.panels.iter_mut().zip(&mut other.panels).for_each(|(a, b)| std::mem::swap(&mut a.w, &mut b.w));
    }

    /// One gradient step of the given networks: sums each weight's gradient over the parts of the batch, in order,
    /// and applies Adam (and Polyak averaging when `tau` is given) at once.
    ///
    /// `source(net, layer, part)` is the layer's input, the loss's gradient at its output, and the number of rows.
    pub(crate) fn train<'s>(
        &mut self,
        pool: &ThreadPool,
        nets: std::ops::Range<usize>,
        parts: usize,
        source: impl Fn(usize, usize, usize) -> (&'s PackedMatrix, &'s PackedMatrix, usize) + Sync,
        step: &TrainStep<'_>,
    ) {
        let (shape, simd) = (&self.shape, self.simd);
        let per_net = shape.units.len();
        let panels = &mut self.panels[nets.start * per_net..nets.end * per_net];
        pool.for_each_mut(panels, |i, panel| {
            let (net, (l, index)) = (nets.start + i / per_net, shape.units[i % per_net]);
            let sources = Layer::new(parts, |part| source(net, l, part));
            let decay = step.decay.get(l).copied().unwrap_or(0.0);
            let update = Update { adam: step.adam, decay, tau: step.tau };
            train_panel(simd, &sources, shape.inputs(l), index, shape.outputs(l), panel, update);
        });
    }

    /// The gradient that `MlpEnsemble::train` would apply (without decay), as (weight, bias) of one layer.
    pub fn gradient<'s>(
        &self,
        l: usize,
        parts: usize,
        source: impl Fn(usize) -> (&'s PackedMatrix, &'s PackedMatrix, usize) + Sync,
    ) -> (Vec<f32>, Vec<f32>) {
        let (inputs, outputs) = (self.shape.inputs(l), self.shape.outputs(l));
        let mut grads = Self::zeros(self.shape.clone(), 1, Keep::Weights);
        let sources = Layer::new(parts, source);
        for index in 0..outputs.div_ceil(LANES) {
            let grad = &mut grads.panels[self.shape.first[l] + index].w;
            gradient_panel(self.simd, &sources, inputs, index, outputs, grad);
        }
        grads.get(0, l, Field::Weight)
    }

    /// Fills this stack's weights with the gradient of one part of a batch, for the first network: `source(layer)` is
    /// the layer's input, the loss's gradient at its output, and the number of rows.
    pub(crate) fn gradient_of_part<'s>(
        &mut self,
        source: impl Fn(usize) -> (&'s PackedMatrix, &'s PackedMatrix, usize) + Sync,
    ) {
        let (shape, simd) = (&self.shape, self.simd);
        for (&(l, index), panel) in shape.units.iter().zip(&mut self.panels) {
            let sources = Layer::new(1, |_| source(l));
            gradient_panel(simd, &sources, shape.inputs(l), index, shape.outputs(l), &mut panel.w);
        }
    }

    /// target ← (1 − τ)·target + τ·w for every network.
    pub fn average_targets(&mut self, pool: &ThreadPool, tau: f32) {
        pool.for_each_mut(&mut self.panels, |_, panel| {
            for at in (0..panel.w.len()).step_by(LANES) {
                let target = polyak(read(&panel.target, at), read(&panel.w, at), tau);
                write(&mut panel.target, at, target);
            }
        });
    }

    /// target ← w for every network that has a target.
    pub fn copy_targets(&mut self) {
        for panel in &mut self.panels {
            if !panel.target.is_empty() {
                panel.target.copy_from_slice(&panel.w);
            }
        }
    }

    /// The first value that is not finite, as (network, layer).
    pub fn not_finite(&self) -> Option<(usize, usize)> {
        let per_net = self.shape.units.len();
        let bad = self.panels.iter().position(|p| p.w.iter().any(|w| !w.is_finite()))?;
        Some((bad / per_net, self.shape.units[bad % per_net].0))
    }

    /// All panels, network after network, in storage order.
    pub(super) fn panels(&self) -> &[Panel] {
        &self.panels
    }

    /// What this stack keeps, with the suffix of its tensors' names.
    pub(super) fn fields(&self) -> impl Iterator<Item = (Field, &'static str)> + use<> {
        let kept = |field: Field| self.panels.first().is_some_and(|p| !field.of(p).is_empty());
        let all =
            [(Field::Weight, ""), (Field::First, ".m"), (Field::Second, ".v"), (Field::Target, ".target")];
        all.map(|(field, suffix)| kept(field).then_some((field, suffix))).into_iter().flatten()
    }

    /// Weight (outputs × inputs, row-major, as PyTorch keeps it) and bias of a layer, or their moments or target.
    pub fn get(&self, net: usize, l: usize, field: Field) -> (Vec<f32>, Vec<f32>) {
        let (inputs, outputs, lanes) = (self.shape.inputs(l), self.shape.outputs(l), self.shape.lanes(l));
        let first = net * self.shape.units.len() + self.shape.first[l];
        let at = |k: usize, j: usize| field.of(&self.panels[first + j / LANES])[k * lanes + j % lanes];
        let weight = (0..outputs).flat_map(|j| (0..inputs).map(move |k| at(k, j))).collect();
        (weight, (0..outputs).map(|j| at(inputs, j)).collect())
    }

    /// Sets what [`MlpEnsemble::get`] gets.
    pub fn set(&mut self, net: usize, l: usize, field: Field, weight: &[f32], bias: &[f32]) {
        let (inputs, outputs, lanes) = (self.shape.inputs(l), self.shape.outputs(l), self.shape.lanes(l));
        assert!(weight.len() == inputs * outputs && bias.len() == outputs, "a layer's size is fixed");
        let first = net * self.shape.units.len() + self.shape.first[l];
        for j in 0..outputs {
            let values = field.of_mut(&mut self.panels[first + j / LANES]);
            for k in 0..inputs {
                values[k * lanes + j % lanes] = weight[j * inputs + k];
            }
            values[inputs * lanes + j % lanes] = bias[j];
        }
    }
}

/// What is kept per weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The weight.
    Weight,
    /// Adam's first moment.
    First,
    /// Adam's second moment.
    Second,
    /// The Polyak average.
    Target,
}

impl Field {
    fn of(self, panel: &Panel) -> &Buf {
        match self {
            Self::Weight => &panel.w,
            Self::First => &panel.m,
            Self::Second => &panel.v,
            Self::Target => &panel.target,
        }
    }

    fn of_mut(self, panel: &mut Panel) -> &mut Buf {
        match self {
            Self::Weight => &mut panel.w,
            Self::First => &mut panel.m,
            Self::Second => &mut panel.v,
            Self::Target => &mut panel.target,
        }
    }
}

/// How `MlpEnsemble::train` turns gradients into weights.
pub(crate) struct TrainStep<'a> {
    pub(crate) adam: AdamStep,
    /// Weight decay per layer; layers beyond its length have none.
    pub(crate) decay: &'a [f32],
    /// Also move the target copies this far.
    pub(crate) tau: Option<f32>,
}

/// One layer's inputs and output gradients, part by part.
struct Layer<'s, F> {
    parts: usize,
    source: F,
    panels: std::marker::PhantomData<&'s PackedMatrix>,
}

impl<'s, F: Fn(usize) -> (&'s PackedMatrix, &'s PackedMatrix, usize) + Sync> Layer<'s, F> {
    fn new(parts: usize, source: F) -> Self {
        Self { parts, source, panels: std::marker::PhantomData }
    }
}

impl<'s, F: Fn(usize) -> (&'s PackedMatrix, &'s PackedMatrix, usize) + Sync> Sources for Layer<'s, F> {
    fn count(&self) -> usize {
        self.parts
    }
    fn part(&self, i: usize) -> (&PackedMatrix, &PackedMatrix, usize) {
        (self.source)(i)
    }
}

impl<'a> Net<'a> {
    /// The kernels in use.
    pub fn simd(&self) -> Simd {
        self.simd
    }

    pub(super) fn layer(&self, l: usize) -> &'a [Panel] {
        &self.panels[self.shape.first[l]..][..self.shape.outputs(l).div_ceil(LANES)]
    }
}
