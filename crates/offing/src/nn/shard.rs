//! Gradient steps: every one in the library is built from this file.
//!
//! A batch is cut into [`Shard`]s. Each thread takes a shard forward through the networks, puts the loss's gradient at
//! their outputs, and takes it back; no row waits for another. Then [`MlpEnsemble::train`] sums each weight's gradient
//! over the shards, in order, and Adam applies it. [`Fitter`] does all of this for a loss that is a sum over rows:
//!
//! ```
//! use offing::Rng;
//! use offing::nn::{Activation, Fitter, Init, Keep, MlpEnsemble, Shape, ThreadPool};
//! let (pool, mut rng) = (ThreadPool::new(2), Rng::stream(0, "doc", 0));
//! let shape = Shape::new(1, &[16], 1, Activation::Tanh);
//! let mut net = MlpEnsemble::new(shape, 1, Init::Uniform, Keep::Moments, &mut rng);
//! let inputs: Vec<f32> = (0..64).map(|i| i as f32 / 32.0 - 1.0).collect();
//! let mut fitter = Fitter::new(1e-2, 0.0);
//! let mut fit = || {
//!     fitter.step(&mut net, &pool, 64, |row, x| x[0] = inputs[row], |row, out, gradient| {
//!         let error = out[0] - 0.5 * inputs[row];
//!         gradient[0] = 2.0 * error / 64.0;
//!         f64::from(error * error) / 64.0
//!     })
//! };
//! let first = fit();
//! assert!((0..200).map(|_| fit()).last().unwrap() < 0.1 * first);
//! ```

use std::ops::Range;

use super::activations::Activations;
use super::adam::AdamStep;
use super::layer::{Panel, Weights};
use super::matmul::Simd;
use super::mlp_ensemble::{MlpEnsemble, NetMut};
use super::packed_matrix::PackedMatrix;
use super::shape::Shape;
use super::thread_pool::ThreadPool;
use super::weight_gradient::{Gradient, Update, train_on_sum, train_panels};

/// Rows `rows` of a batch, and what one or more networks of an ensemble compute for them.
#[derive(Clone, Debug)]
pub struct Shard {
    /// Which rows of the batch; row i of the matrices is row `rows.start + i`.
    pub rows: Range<usize>,
    /// The networks' common input.
    pub x: PackedMatrix,
    /// Outputs, gradients and all between, network after network.
    pub nets: Vec<Activations>,
}

/// How [`MlpEnsemble::train`] turns gradients into weights.
#[derive(Clone, Copy, Debug)]
pub struct TrainStep<'a> {
    /// The optimiser's step.
    pub adam: AdamStep,
    /// Weight decay per layer; layers beyond its length have none.
    pub decay: &'a [f32],
    /// Also move the target copies this far.
    pub tau: Option<f32>,
}

impl TrainStep<'_> {
    /// Adam's step number `t` (from 1) with learning rate `lr`, without decay or targets.
    pub fn new(lr: f64, t: u64) -> Self {
        Self { adam: AdamStep::new(lr, t), decay: &[], tau: None }
    }

    fn update(&self, layer: usize) -> Update {
        let decay = self.decay.get(layer).copied().unwrap_or(0.0);
        Update { adam: Some(self.adam), decay, tau: self.tau, add: false }
    }
}

impl Shard {
    /// Room for rows `rows` in `nets` networks of one shape.
    pub fn new(shape: &Shape, rows: Range<usize>, nets: usize) -> Self {
        let x = PackedMatrix::new(rows.len(), shape.inputs(0));
        let nets = (0..nets).map(|_| Activations::new(shape, rows.len())).collect();
        Self { rows, x, nets }
    }

    /// Runs the rows through networks number `first` and on.
    pub fn forward(&mut self, of: &MlpEnsemble, first: usize, which: Weights) {
        for (j, net) in self.nets.iter_mut().enumerate() {
            net.forward(of.net(first + j), which, &self.x, self.rows.len());
        }
    }

    /// Takes each network's `dout` back to its first layer.
    pub fn backward(&mut self, of: &MlpEnsemble, first: usize) {
        for (j, net) in self.nets.iter_mut().enumerate() {
            net.backward(of.net(first + j), self.rows.len(), None);
        }
    }
}

impl MlpEnsemble {
    /// One gradient step of networks `nets`: sums each weight's gradient over the shards, in order, and applies Adam (and
    /// Polyak averaging when the step has a `tau`) at once.
    ///
    /// `shard(i)` is shard `i` of `count`, taken back already; its first network is number `nets.start`.
    pub fn train<'s>(
        &mut self,
        pool: &ThreadPool,
        nets: Range<usize>,
        count: usize,
        shard: impl Fn(usize) -> &'s Shard + Sync,
        step: &TrainStep<'_>,
    ) {
        self.apply_gradient(pool, nets, count, shard, |layer| step.update(layer));
    }

    /// One gradient step of all networks, whose gradient was summed in parts by [`MlpEnsemble::add_gradient`].
    pub(crate) fn train_on(&mut self, pool: &ThreadPool, parts: &[MlpEnsemble], step: &TrainStep<'_>) {
        let (shape, simd) = (&self.shape, self.simd);
        assert!(parts.iter().all(|part| part.shape == *shape && part.panels.len() == self.panels.len()));
        pool.for_each_mut(&mut self.panels, |i, panel| {
            let (layer, _) = shape.units[i % shape.units.len()];
            let size = (shape.inputs(layer), shape.outputs(layer));
            train_on_sum(simd, parts, i, size, panel, step.update(layer));
        });
    }

    /// Adds the gradient of network `net` to that network's weights here, or puts it in their place: of a network of this
    /// shape, the shard's first.
    pub(crate) fn add_gradient(&mut self, net: usize, shard: &Shard, add: bool) {
        let update = Update { add, ..Update::default() };
        self.apply_gradient(&ThreadPool::new(1), net..net + 1, 1, |_| shard, |_| update);
    }

    /// Fills the first network's weights with a gradient: that of a network of this shape, the shards' first.
    pub(crate) fn set_to_gradient<'s>(&mut self, count: usize, shard: impl Fn(usize) -> &'s Shard + Sync) {
        self.apply_gradient(&ThreadPool::new(1), 0..1, count, shard, |_| Update::default());
    }

    fn apply_gradient<'s>(
        &mut self,
        pool: &ThreadPool,
        nets: Range<usize>,
        count: usize,
        shard: impl Fn(usize) -> &'s Shard + Sync,
        update: impl Fn(usize) -> Update + Sync,
    ) {
        let (shape, simd, per_net) = (&self.shape, self.simd, self.shape.units.len());
        let panels = &mut self.panels[nets.start * per_net..nets.end * per_net];
        pool.for_each_part_mut(panels, &shape.pair_ends, |first, pair| {
            let (layer, _) = shape.units[first % per_net];
            train_pair(
                (shape, simd),
                (first / per_net, first % per_net),
                (count, &shard),
                pair,
                update(layer),
            );
        });
    }
}

impl NetMut<'_> {
    /// [`MlpEnsemble::train`] of this network alone, by the calling thread; it is the shards' first.
    pub fn train<'s>(
        &mut self,
        count: usize,
        shard: impl Fn(usize) -> &'s Shard + Sync,
        step: &TrainStep<'_>,
    ) {
        let (shape, simd) = (self.shape, self.simd);
        let mut first = 0;
        for &end in &shape.pair_ends {
            let (layer, _) = shape.units[first];
            let pair = &mut self.panels[first..end];
            train_pair((shape, simd), (0, first), (count, &shard), pair, step.update(layer));
            first = end;
        }
    }
}

/// Trains one or two panels of a layer: those from unit `unit` on, of the shards' network `net`.
fn train_pair<'s>(
    (shape, simd): (&Shape, Simd),
    (net, unit): (usize, usize),
    (count, shard): (usize, &(dyn Fn(usize) -> &'s Shard + Sync)),
    pair: &mut [Panel],
    update: Update,
) {
    let (layer, panel) = shape.units[unit];
    let gradient = Gradient { count, shard, net, layer, panel };
    train_panels(simd, &gradient, (shape.inputs(layer), shape.outputs(layer)), pair, update);
}

/// Adam on one network, for losses that are a sum over rows.
#[derive(Debug)]
pub struct Fitter {
    /// Learning rate.
    lr: f64,
    /// Weight decay of every layer.
    decay: f32,
    /// Steps taken.
    pub steps: u64,
    shards: Vec<(Shard, Vec<f64>)>,
}

impl Fitter {
    /// A fresh optimiser. The network holds the moments: use one optimiser for one network.
    pub fn new(lr: f64, decay: f32) -> Self {
        Self { lr, decay, steps: 0, shards: Vec::new() }
    }

    /// Changes the learning rate.
    pub fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    /// One step of the first network of `net` on a batch of `rows` rows; returns the loss before it.
    ///
    /// `load(row, x)` fills a row's inputs. `loss(row, out, gradient)` gets its outputs, fills ∂loss/∂outputs, which starts
    /// as zeros, and returns the row's share of the loss.
    pub fn step(
        &mut self,
        net: &mut MlpEnsemble,
        pool: &ThreadPool,
        rows: usize,
        load: impl Fn(usize, &mut [f32]) + Sync,
        loss: impl Fn(usize, &[f32], &mut [f32]) -> f64 + Sync,
    ) -> f64 {
        let shape = net.shape();
        if !self.shards.iter().map(|(shard, _)| shard.rows.clone()).eq(pool.shards(rows)) {
            let shard = |rows: Range<usize>| (Shard::new(shape, rows.clone(), 1), vec![0.0; rows.len()]);
            self.shards = pool.shards(rows).map(shard).collect();
        }
        let width = shape.outputs(shape.layers() - 1);
        let reader = &*net;
        pool.for_each_mut(&mut self.shards, |_, (shard, losses)| {
            let first = shard.rows.start;
            shard.x.fill_rows(losses.len(), |i, x| load(first + i, x));
            shard.forward(reader, 0, Weights::Current);
            let (mut out, net) = (vec![0.0; width], &mut shard.nets[0]);
            let Activations { out: outputs, dout, .. } = net;
            dout.fill_rows(losses.len(), |i, gradient| {
                outputs.store_row(i, &mut out, 0);
                gradient.fill(0.0);
                losses[i] = loss(first + i, &out, gradient);
            });
            shard.backward(reader, 0);
        });
        self.steps += 1;
        let decay = vec![self.decay; net.shape().layers()];
        let step = TrainStep { decay: &decay, ..TrainStep::new(self.lr, self.steps) };
        let shards = &self.shards;
        net.train(pool, 0..1, shards.len(), |i| &shards[i].0, &step);
        self.losses().fold(0.0, |total, loss| total + loss)
    }

    /// Each row's share of the last step's loss, in order.
    pub fn losses(&self) -> impl Iterator<Item = f64> {
        self.shards.iter().flat_map(|(_, losses)| losses.iter().copied())
    }
}
