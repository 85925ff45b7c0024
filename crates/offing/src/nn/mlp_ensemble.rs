//! Ensembles of equal multi-layer perceptrons: one actor, a few critics, several dynamics models.
//!
//! The forward and backward passes of a row touch no other row, so threads take shards of a batch through whole
//! networks without waiting for each other; the weight gradients then are shared out by panel.

use std::ops::Range;

use super::activations::Activations;
use super::buffer::{Buf, LANES, read, write};
use super::layer::{Panel, Weights};
use super::matmul::Simd;
use super::packed_matrix::PackedMatrix;
use super::scratch_pool::ScratchPool;
use super::shape::Shape;
use super::thread_pool::ThreadPool;
use super::weight_gradient::polyak;
use crate::rng::Rng;

/// Rows a thread takes at once when a network is only evaluated: their activations fit the second-level cache.
const CHUNK: usize = 120;

/// How fresh weights are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// Weights and biases uniform in ±1/√inputs: PyTorch's default for a linear layer.
    Uniform,
    /// Weights normal with deviation 1/(2√inputs), redrawn beyond two deviations; biases 0. Usual for model ensembles.
    TruncatedNormal,
}

/// What an ensemble keeps beside its weights.
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
    pub(super) shape: Shape,
    nets: usize,
    /// Network after network, in the order of the shape's units.
    pub(super) panels: Vec<Panel>,
    pub(super) simd: Simd,
    scratch: ScratchPool<(PackedMatrix, Activations)>,
}

/// One network of an ensemble, to run.
#[derive(Clone, Copy, Debug)]
pub struct Net<'a> {
    pub(super) shape: &'a Shape,
    panels: &'a [Panel],
    simd: Simd,
}

/// One network of an ensemble, to run and to train: several threads may each have another of the same ensemble.
#[derive(Debug)]
pub struct NetMut<'a> {
    pub(super) shape: &'a Shape,
    pub(super) panels: &'a mut [Panel],
    pub(super) simd: Simd,
}

impl MlpEnsemble {
    /// Fresh networks; targets start as copies.
    pub fn new(shape: Shape, nets: usize, init: Init, keep: Keep, rng: &mut Rng) -> Self {
        let mut new = Self::zeros(shape, nets, keep);
        for net in 0..nets {
            for l in 0..new.shape.layers() {
                let (inputs, outputs) = (new.shape.inputs(l), new.shape.outputs(l));
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
                new.set(net, l, Field::Weight, &weight, &bias);
            }
        }
        new.copy_targets();
        new
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
        Self { shape, nets, panels, simd: Simd::detect(), scratch: ScratchPool::default() }
    }

    /// The same networks on other instructions, for comparison: the results are the same, the speed is not.
    pub fn with_simd(mut self, simd: Simd) -> Self {
        self.simd = simd;
        self
    }

    /// The same ensemble without weights, to borrow some by [`MlpEnsemble::swap_weights`].
    pub(crate) fn without_weights(mut self) -> Self {
        self.panels.iter_mut().for_each(|panel| panel.w = Buf::default());
        self
    }

    /// The same weights with or without layer normalisation, which has none of its own.
    #[must_use]
    pub fn with_layer_norm(mut self, layer_norm: bool) -> Self {
        self.shape = self.shape.with_layer_norm(layer_norm);
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

    /// All networks, each by itself.
    pub fn nets_mut(&mut self) -> impl Iterator<Item = NetMut<'_>> {
        let (shape, simd) = (&self.shape, self.simd);
        self.panels.chunks_exact_mut(shape.units.len()).map(move |panels| NetMut { shape, panels, simd })
    }

    /// Copies the weights of network `from` of `other`, which has the same shape, to network `net`.
    pub fn copy_weights(&mut self, net: usize, other: &MlpEnsemble, from: usize) {
        assert_eq!(self.shape, other.shape, "networks of one shape");
        let per_net = self.shape.units.len();
        let to = &mut self.panels[net * per_net..][..per_net];
        for (to, from) in to.iter_mut().zip(&other.panels[from * per_net..]) {
            to.w.copy_from_slice(&from.w);
        }
    }

    /// Multiplies the weights and biases of every network's last layer; targets follow.
    pub fn scale_outputs(&mut self, factor: f32) {
        let last = self.shape.layers() - 1;
        for net in 0..self.nets {
            let (mut weight, mut bias) = self.get(net, last, Field::Weight);
            weight.iter_mut().chain(&mut bias).for_each(|w| *w *= factor);
            self.set(net, last, Field::Weight, &weight, &bias);
        }
        self.copy_targets();
    }

    /// The same networks with target copies of their weights.
    #[must_use]
    pub fn with_targets(mut self) -> Self {
        self.panels.iter_mut().for_each(|panel| panel.target = panel.w.clone());
        self
    }

    /// w ← target for every network.
    pub fn take_targets(&mut self) {
        self.panels.iter_mut().for_each(|panel| panel.w.copy_from_slice(&panel.target));
    }

    /// Takes the weights of an ensemble of the same shape, and starts with fresh moments and targets.
    pub fn restart_from(&mut self, other: &MlpEnsemble) {
        for net in 0..self.nets {
            self.copy_weights(net, other, net);
        }
        self.panels.iter_mut().flat_map(|panel| [&mut panel.m, &mut panel.v]).for_each(|buf| buf.fill(0.0));
        self.copy_targets();
    }

    /// Exchanges the weights, and nothing else, with an ensemble of the same shape.
    pub(crate) fn swap_weights(&mut self, other: &mut MlpEnsemble) {
        assert!(self.shape == other.shape && self.nets == other.nets, "ensembles of one shape");
        self.panels.iter_mut().zip(&mut other.panels).for_each(|(a, b)| std::mem::swap(&mut a.w, &mut b.w));
    }

    /// Runs rows through network number `net`, in chunks shared among threads. `load(row, x)` fills a row's inputs; `out`
    /// gets the first `width` outputs of each row, row after row.
    pub fn predict(
        &self,
        pool: &ThreadPool,
        (net, which): (usize, Weights),
        (out, width): (&mut [f32], usize),
        load: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        let mut chunks: Vec<_> = out.chunks_mut(CHUNK * width).collect();
        let make = || {
            let x = PackedMatrix::new(CHUNK, self.shape.inputs(0));
            (x, Activations::forward_only(&self.shape, CHUNK))
        };
        pool.for_each_mut(&mut chunks, |i, out| {
            self.scratch.with(make, |(x, activations)| {
                let rows = out.len() / width;
                x.fill_rows(rows, |row, x| load(i * CHUNK + row, x));
                activations.forward(self.net(net), which, x, rows);
                activations.out.store_flat(out, width, 0);
            });
        });
    }

    /// Runs rows through every network, in chunks shared among threads, and keeps the first output: `out` gets all rows of the
    /// first network, then those of the next. `load(rows, x)` puts
    /// those rows into the first of `x`.
    pub fn predict_first(
        &self,
        pool: &ThreadPool,
        which: Weights,
        out: &mut [f32],
        load: impl Fn(Range<usize>, &mut PackedMatrix) + Sync,
    ) {
        let rows = out.len() / self.nets;
        let mut chunks: Vec<Vec<&mut [f32]>> = (0..rows.div_ceil(CHUNK)).map(|_| Vec::new()).collect();
        for of_net in out.chunks_exact_mut(rows.max(1)) {
            chunks.iter_mut().zip(of_net.chunks_mut(CHUNK)).for_each(|(chunk, out)| chunk.push(out));
        }
        let make = || {
            let x = PackedMatrix::new(CHUNK, self.shape.inputs(0));
            (x, Activations::forward_only(&self.shape, CHUNK))
        };
        pool.for_each_mut(&mut chunks, |i, outs| {
            self.scratch.with(make, |(x, activations)| {
                let first = i * CHUNK;
                load(first..(first + CHUNK).min(rows), x);
                for (net, out) in outs.iter_mut().enumerate() {
                    activations.forward(self.net(net), which, x, out.len());
                    activations.out.store_flat(out, 1, 0);
                }
            });
        });
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

    /// What this ensemble keeps, with the suffix of its tensors' names.
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

/// The numbers that belong to a weight.
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
        [&panel.w, &panel.m, &panel.v, &panel.target][self as usize]
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

impl NetMut<'_> {
    /// The network as it is now.
    pub fn net(&self) -> Net<'_> {
        Net { shape: self.shape, panels: self.panels, simd: self.simd }
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
