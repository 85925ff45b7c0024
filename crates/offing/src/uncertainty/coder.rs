//! The autoencoder behind hash counts: a frozen trunk of the dynamics model, an encoder to bits, a decoder back.

use super::count::CountConfig;
use crate::batch::{Batch, Mat};
use crate::dynamics::Scaler;
use crate::error::{Error, Result, invalid, require};
use crate::nn::{
    Activation, Activations, Field, Init, Keep, MlpEnsemble, PackedMatrix, Shape, Shard, Tensors, ThreadPool,
    TrainStep, Weights, math,
};
use crate::rng::Rng;

/// Rows a thread takes at once.
const CHUNK: usize = 120;

/// The first hidden layers of one member, with its input standardisation.
#[derive(Debug)]
pub(super) struct Trunk {
    stack: MlpEnsemble,
    activation: Activation,
    scaler: Scaler,
}

/// A trained autoencoder.
#[derive(Debug)]
pub(super) struct Coder {
    trunk: Trunk,
    encoder: MlpEnsemble,
    bits: usize,
}

/// A linear model has nothing to build codes on.
pub(super) fn linear() -> Error {
    invalid!("count: wanted a model with hidden layers, found a linear one")
}

impl Trunk {
    /// The first two hidden layers of a saved model's member (all, when it has fewer).
    pub(super) fn of(weights: &Tensors, member: usize) -> Result<Self> {
        let shape = |l: usize| weights.shape(&format!("model.{member}.{l}.weight")).map(<[usize]>::to_vec);
        let hidden = (0..).take_while(|&l| shape(l + 1).is_some()).count().min(2);
        let sizes: Vec<Vec<usize>> = (0..hidden).filter_map(shape).collect();
        let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else {
            return Err(linear());
        };
        let activation = if weights.u64("silu", 1)?[0] != 0 { Activation::Silu } else { Activation::Relu };
        // The last hidden layer is this stack's output, so its activation is applied by hand.
        let inner: Vec<usize> = sizes[..hidden - 1].iter().map(|s| s[0]).collect();
        let mut stack =
            MlpEnsemble::zeros(Shape::new(first[1], &inner, last[0], activation), 1, Keep::Weights);
        for (l, size) in sizes.iter().enumerate() {
            let weight = weights.f32(&format!("model.{member}.{l}.weight"), size)?;
            let bias = weights.f32(&format!("model.{member}.{l}.bias"), &size[..1])?;
            stack.set(0, l, Field::Weight, &weight, &bias);
        }
        let scaler = Scaler::from_tensors("scaler.", weights, first[1])?;
        Ok(Self { stack, activation, scaler })
    }

    fn inputs(&self) -> usize {
        self.scaler.width()
    }

    fn outputs(&self) -> usize {
        self.stack.shape().outputs(self.stack.shape().layers() - 1)
    }

    /// Features of the loaded rows.
    fn run(&self, x: &PackedMatrix, trace: &mut Activations, features: &mut PackedMatrix, rows: usize) {
        trace.forward(self.stack.net(0), Weights::Current, x, rows);
        for row in 0..rows {
            for col in 0..features.cols() {
                let z = trace.out.get(row, col);
                let feature = match self.activation {
                    Activation::Silu => z * math::sigmoid::<math::Plain>(z),
                    Activation::Relu => z.max(0.0),
                    Activation::Tanh => z.tanh(),
                };
                features.set(row, col, feature);
            }
        }
    }
}

impl Coder {
    /// Trains to reconstruct standardised (s, a); returns the coder and its hold-out error.
    pub(super) fn fit(
        cfg: &CountConfig,
        trunk: Trunk,
        data: &Batch,
        seed: u64,
        member: usize,
    ) -> Result<(Self, f64)> {
        let mut rng = Rng::stream(seed, "count", member as u64);
        let narrow = if cfg.bits < 50 { 50 } else { 100 };
        let (width, rows) = (trunk.inputs(), cfg.batch_size);
        let encoder = Shape::new(trunk.outputs(), &[100, narrow], cfg.bits, Activation::Silu);
        let decoder = Shape::new(cfg.bits, &[narrow, 100], width, Activation::Silu);
        let mut encoder = MlpEnsemble::new(encoder, 1, Init::TruncatedNormal, Keep::Moments, &mut rng);
        let mut decoder = MlpEnsemble::new(decoder, 1, Init::TruncatedNormal, Keep::Moments, &mut rng);
        let held = (data.len() / 10).clamp(1, 1000);
        let mut order: Vec<usize> = (0..data.len()).collect();
        (0..held).for_each(|i| order.swap(i, i + rng.below(data.len() - i)));
        let mut work = CoderStep::new(&trunk, &encoder, &decoder, rows);
        let (alone, noise) = (ThreadPool::new(1), f64::from(cfg.noise));
        for update in 1..=cfg.updates {
            for i in 0..rows {
                let row = order[held + rng.below(data.len() - held)];
                trunk.scaler.load(&data.obs, &data.act, row, &mut work.x, i);
            }
            work.forward(&trunk, &encoder, &decoder, rows, || rng.range(-noise, noise) as f32);
            work.backward(&encoder, &decoder, rows);
            let step = TrainStep::new(cfg.lr, update);
            encoder.train(&alone, 0..1, 1, |_| &work.encode, &step);
            decoder.train(&alone, 0..1, 1, |_| &work.decode, &step);
        }
        require!(
            encoder.not_finite().or(decoder.not_finite()).is_none(),
            "count: the autoencoder became non-finite; lower its lr ({})",
            cfg.lr
        );
        let mut error = 0.0;
        for chunk in order[..held].chunks(rows) {
            chunk
                .iter()
                .enumerate()
                .for_each(|(i, &r)| trunk.scaler.load(&data.obs, &data.act, r, &mut work.x, i));
            work.forward(&trunk, &encoder, &decoder, chunk.len(), || 0.0);
            error += work.squared_error(chunk.len());
        }
        Ok((Self { trunk, encoder, bits: cfg.bits }, error / (held * width) as f64))
    }

    /// The code of each row, bit i worth 2^i.
    pub(super) fn codes(&self, obs: &Mat, act: &Mat, pool: &ThreadPool) -> Vec<u64> {
        let mut out = vec![0u64; obs.nrows()];
        let mut chunks: Vec<_> = out.chunks_mut(CHUNK).collect();
        pool.for_each_mut(&mut chunks, |i, out| {
            let n = out.len();
            let mut x = PackedMatrix::new(n, self.trunk.inputs());
            let mut features = PackedMatrix::new(n, self.trunk.outputs());
            let mut first = Activations::forward_only(self.trunk.stack.shape(), n);
            let mut trace = Activations::forward_only(self.encoder.shape(), n);
            (0..n).for_each(|row| self.trunk.scaler.load(obs, act, i * CHUNK + row, &mut x, row));
            self.trunk.run(&x, &mut first, &mut features, n);
            trace.forward(self.encoder.net(0), Weights::Current, &features, n);
            for (row, code) in out.iter_mut().enumerate() {
                // A sigmoid rounds to 1 where its argument is positive.
                let bit = |b: usize| u64::from(trace.out.get(row, b) > 0.0) << b;
                *code = (0..self.bits).map(bit).sum();
            }
        });
        out
    }
}

/// The buffers of a training step. One network feeds the other, so a loss of single rows (`nn::Fitter`) does not do.
struct CoderStep {
    x: PackedMatrix,
    first: Activations,
    /// From the trunk's features to the code.
    encode: Shard,
    /// σ(code); the decoder's input is the same with noise.
    sigmoid: PackedMatrix,
    decode: Shard,
    dcode: PackedMatrix,
}

impl CoderStep {
    fn new(trunk: &Trunk, encoder: &MlpEnsemble, decoder: &MlpEnsemble, rows: usize) -> Self {
        let bits = decoder.shape().inputs(0);
        Self {
            x: PackedMatrix::new(rows, trunk.inputs()),
            first: Activations::forward_only(trunk.stack.shape(), rows),
            encode: Shard::new(encoder.shape(), 0..rows, 1),
            sigmoid: PackedMatrix::new(rows, bits),
            decode: Shard::new(decoder.shape(), 0..rows, 1),
            dcode: PackedMatrix::new(rows, bits),
        }
    }

    fn forward(
        &mut self,
        trunk: &Trunk,
        encoder: &MlpEnsemble,
        decoder: &MlpEnsemble,
        rows: usize,
        mut noise: impl FnMut() -> f32,
    ) {
        (self.encode.rows, self.decode.rows) = (0..rows, 0..rows);
        trunk.run(&self.x, &mut self.first, &mut self.encode.x, rows);
        self.encode.forward(encoder, 0, Weights::Current);
        for row in 0..rows {
            for col in 0..self.sigmoid.cols() {
                let s = math::sigmoid::<math::Plain>(self.encode.nets[0].out.get(row, col));
                self.sigmoid.set(row, col, s);
                self.decode.x.set(row, col, s + noise());
            }
        }
        self.decode.forward(decoder, 0, Weights::Current);
    }

    /// Gradients of the mean squared error.
    fn backward(&mut self, encoder: &MlpEnsemble, decoder: &MlpEnsemble, rows: usize) {
        let (width, bits) = (self.x.cols(), self.sigmoid.cols());
        let scale = 2.0 / (rows * width) as f32;
        for row in 0..rows {
            for col in 0..width {
                let error = self.error(row, col);
                self.decode.nets[0].dout.set(row, col, scale * error);
            }
        }
        self.decode.backward(decoder, 0);
        self.decode.nets[0].input_gradient(decoder.net(0), rows, 0..bits, &mut self.dcode);
        for row in 0..rows {
            for col in 0..bits {
                let s = self.sigmoid.get(row, col);
                self.encode.nets[0].dout.set(row, col, self.dcode.get(row, col) * s * (1.0 - s));
            }
        }
        self.encode.backward(encoder, 0);
    }

    fn error(&self, row: usize, col: usize) -> f32 {
        self.decode.nets[0].out.get(row, col) - self.x.get(row, col)
    }

    fn squared_error(&self, rows: usize) -> f64 {
        let error = |row: usize, col: usize| f64::from(self.error(row, col)).powi(2);
        (0..rows).map(|row| (0..self.x.cols()).map(|col| error(row, col)).sum::<f64>()).sum()
    }
}
