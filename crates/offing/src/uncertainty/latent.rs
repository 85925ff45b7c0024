//! The latent forward model behind the pullback metric: encoder q(z|s), forward model z' ~ N(z + μ, σ)(z, a), decoder.
//!
//! Trained by ½‖D(z) − s‖² + ½‖D(z') − s'‖² + w·[KL(q(z|s) ‖ N(0, I)) + KL(F(z, a) ‖ q(z'|s'))] in standardised units, the
//! last term without a gradient into q(z'|s').

use super::pullback::PullbackConfig;
use super::smooth::Radial;
use super::space::{moments, standardise};
use crate::batch::{Batch, Mat};
use crate::error::{Result, require};
use crate::nn::{
    Activation, Activations, Init, Keep, MlpEnsemble, PackedMatrix, Shape, Shard, ThreadPool, TrainStep,
    Weights,
};
use crate::rng::Rng;

/// Rows behind the decoder's deviations.
const SAMPLE: usize = 20_000;

/// Clamps log-variances to where their exponential is harmless.
pub(super) fn clamp(log_var: f32) -> f32 {
    log_var.clamp(-10.0, 4.0)
}

/// The trained model.
#[derive(Debug)]
pub(super) struct Latent {
    encoder: MlpEnsemble,
    pub(super) forward: MlpEnsemble,
    pub(super) decoder: MlpEnsemble,
    obs_scale: (Vec<f32>, Vec<f32>),
    act_scale: (Vec<f32>, Vec<f32>),
    latent: usize,
}

impl Latent {
    /// Trains on the rows of `data`.
    pub(super) fn fit(cfg: &PullbackConfig, data: &Batch, seed: u64) -> Result<Self> {
        let scale = |m: &Mat| {
            let (mean, inverse, _) = moments(m);
            (mean, inverse)
        };
        let (obs_scale, act_scale) = (scale(&data.obs), scale(&data.act));
        let scaled = |m: &Mat, scale: &(Vec<f32>, Vec<f32>)| {
            let mut m = m.clone();
            standardise(&mut m, &scale.0, &scale.1);
            m
        };
        let (obs, act) = (scaled(&data.obs, &obs_scale), scaled(&data.act, &act_scale));
        let next = scaled(&data.next_obs, &obs_scale);
        let mut rng = Rng::stream(seed, "pullback", 0);
        let (s, a, l) = (data.obs_dim(), data.act_dim(), cfg.latent);
        let mut net = |inputs, outputs| {
            let shape = Shape::new(inputs, &cfg.hidden, outputs, Activation::Silu);
            MlpEnsemble::new(shape, 1, Init::Uniform, Keep::Moments, &mut rng)
        };
        let (encoder, forward, decoder) = (net(s, 2 * l), net(l + a, 2 * l), net(l, s));
        let mut it = Self { encoder, forward, decoder, obs_scale, act_scale, latent: l };
        let mut work = LatentStep::new(&it, cfg.batch_size);
        for update in 1..=cfg.updates {
            let rows: Vec<usize> = (0..cfg.batch_size).map(|_| rng.below(data.len())).collect();
            for (i, &row) in rows.iter().enumerate() {
                for (to, from, at) in [
                    (&mut work.encode.x, &obs, 0),
                    (&mut work.next, &next, 0),
                    (&mut work.advance.x, &act, l),
                ] {
                    from.row(row).iter().enumerate().for_each(|(c, &v)| to.set(i, at + c, v));
                }
            }
            work.pass(&it, cfg.kl_weight, &mut rng);
            it.train(&work, TrainStep::new(cfg.lr, update));
        }
        let finite = [&it.encoder, &it.forward, &it.decoder].iter().all(|net| net.not_finite().is_none());
        require!(finite, "pullback: the latent model became non-finite; lower its lr ({})", cfg.lr);
        Ok(it)
    }

    fn train(&mut self, work: &LatentStep, step: TrainStep<'_>) {
        let alone = ThreadPool::new(1);
        self.encoder.train(&alone, 0..1, 1, |_| &work.encode, &step);
        self.forward.train(&alone, 0..1, 1, |_| &work.advance, &step);
        self.decoder.train(&alone, 0..1, 2, |i| [&work.decode, &work.decode_next][i], &step);
    }

    /// (z, a) of each row: the encoder's mean, and the standardised action.
    pub(super) fn embed(&self, obs: &Mat, act: &Mat, pool: &ThreadPool) -> Mat {
        let (l, a) = (self.latent, act.ncols());
        let codes = self.run(&self.encoder, obs, &self.obs_scale, l, pool);
        Mat::from_shape_fn((obs.nrows(), l + a), |(i, j)| {
            if j < l {
                codes[[i, j]]
            } else {
                (act[[i, j - l]] - self.act_scale.0[j - l]) * self.act_scale.1[j - l]
            }
        })
    }

    /// The deviations of the decoder, from what it leaves over on a sample of next states.
    pub(super) fn radial(&self, centers: usize, data: &Batch, pool: &ThreadPool, seed: u64) -> Radial {
        let mut rng = Rng::stream(seed, "pullback.centers", 0);
        let rows: Vec<usize> = (0..SAMPLE.min(data.len())).map(|_| rng.below(data.len())).collect();
        let mut next = data.next_obs.select(ndarray::Axis(0), &rows);
        let codes = self.run(&self.encoder, &next, &self.obs_scale, self.latent, pool);
        standardise(&mut next, &self.obs_scale.0, &self.obs_scale.1);
        let as_is = (vec![0.0; self.latent], vec![1.0; self.latent]);
        let decoded = self.run(&self.decoder, &codes, &as_is, next.ncols(), pool);
        Radial::fit(&codes, &(&decoded - &next), centers, &mut rng)
    }

    /// The first `outputs` outputs of a network on standardised rows.
    fn run(
        &self,
        net: &MlpEnsemble,
        rows: &Mat,
        scale: &(Vec<f32>, Vec<f32>),
        outputs: usize,
        pool: &ThreadPool,
    ) -> Mat {
        let mut flat = vec![0.0f32; rows.nrows() * outputs];
        net.predict(pool, (0, Weights::Current), (&mut flat, outputs), |row, x| {
            let values = x.iter_mut().zip(rows.row(row)).enumerate();
            values.for_each(|(c, (x, v))| *x = (v - scale.0[c]) * scale.1[c]);
        });
        Mat::from_shape_vec((rows.nrows(), outputs), flat).expect("one row of outputs a row")
    }
}

/// The buffers of a training step. Three networks feed each other, so a loss of single rows (`nn::Fitter`) does not do.
struct LatentStep {
    rows: usize,
    latent: usize,
    /// From s to z.
    encode: Shard,
    /// s', and its encoding, which gets no gradient.
    next: PackedMatrix,
    encode_next: Activations,
    /// From (z, a) to z'.
    advance: Shard,
    /// From z to s and from z' to s'.
    decode: Shard,
    decode_next: Shard,
    dz: PackedMatrix,
    dz_next: PackedMatrix,
    dpair: PackedMatrix,
}

impl LatentStep {
    fn new(it: &Latent, rows: usize) -> Self {
        let (l, s, pair) = (it.latent, it.encoder.shape().inputs(0), it.forward.shape().inputs(0));
        let shard = |of: &MlpEnsemble| Shard::new(of.shape(), 0..rows, 1);
        Self {
            rows,
            latent: l,
            encode: shard(&it.encoder),
            next: PackedMatrix::new(rows, s),
            encode_next: Activations::forward_only(it.encoder.shape(), rows),
            advance: shard(&it.forward),
            decode: shard(&it.decoder),
            decode_next: shard(&it.decoder),
            dz: PackedMatrix::new(rows, l),
            dz_next: PackedMatrix::new(rows, l),
            dpair: PackedMatrix::new(rows, pair),
        }
    }

    /// Forward and back; leaves every network's gradients in its shard.
    fn pass(&mut self, it: &Latent, kl: f32, rng: &mut Rng) {
        let (n, l) = (self.rows, self.latent);
        let mut noise = || (0..n * l).map(|_| rng.normal() as f32).collect::<Vec<f32>>();
        let (first, second) = (noise(), noise());
        self.encode.forward(&it.encoder, 0, Weights::Current);
        self.encode_next.forward(it.encoder.net(0), Weights::Current, &self.next, n);
        let deviation = |out: &PackedMatrix, i: usize, j: usize| (0.5 * clamp(out.get(i, l + j))).exp();
        let Self { encode, next, encode_next, advance, decode, decode_next, .. } = self;
        let encoded = &mut encode.nets[0];
        for (at, eps) in first.iter().enumerate() {
            let (i, j) = (at / l, at % l);
            let z = encoded.out.get(i, j) + deviation(&encoded.out, i, j) * eps;
            decode.x.set(i, j, z);
            advance.x.set(i, j, z);
        }
        advance.forward(&it.forward, 0, Weights::Current);
        let advanced = &mut advance.nets[0];
        for (at, eps) in second.iter().enumerate() {
            let (i, j) = (at / l, at % l);
            let mean = decode.x.get(i, j) + advanced.out.get(i, j);
            decode_next.x.set(i, j, mean + deviation(&advanced.out, i, j) * eps);
        }
        let share = 1.0 / n as f32;
        for (shard, target, dz) in
            [(&mut *decode, &encode.x, &mut self.dz), (decode_next, &*next, &mut self.dz_next)]
        {
            shard.forward(&it.decoder, 0, Weights::Current);
            for i in 0..n {
                for c in 0..target.cols() {
                    let error = shard.nets[0].out.get(i, c) - target.get(i, c);
                    shard.nets[0].dout.set(i, c, share * error);
                }
            }
            shard.backward(&it.decoder, 0);
            shard.nets[0].input_gradient(it.decoder.net(0), n, 0..l, dz);
        }
        let kl = kl * share;
        for (at, eps) in second.iter().enumerate() {
            let (i, j) = (at / l, at % l);
            let mean = decode.x.get(i, j) + advanced.out.get(i, j);
            let std = deviation(&advanced.out, i, j);
            let (want, want_std) = (encode_next.out.get(i, j), deviation(&encode_next.out, i, j));
            let dz = self.dz_next.get(i, j);
            // ∂KL(N(m, v) ‖ N(m', v')): (m − m')/v' and ½(v/v' − 1) for the log-variance.
            let ratio = std / want_std;
            advanced.dout.set(i, j, dz + kl * (mean - want) / (want_std * want_std));
            advanced.dout.set(i, l + j, dz * 0.5 * std * eps + kl * 0.5 * (ratio * ratio - 1.0));
        }
        advanced.backward(it.forward.net(0), n, None);
        advanced.input_gradient(it.forward.net(0), n, 0..l, &mut self.dpair);
        for (at, eps) in first.iter().enumerate() {
            let (i, j) = (at / l, at % l);
            let (mean, std) = (encoded.out.get(i, j), deviation(&encoded.out, i, j));
            // z reaches the loss by its own decoding, by the forward model's input and by its skip connection.
            let dz = self.dz.get(i, j) + self.dpair.get(i, j) + advanced.dout.get(i, j);
            encoded.dout.set(i, j, dz + kl * mean);
            encoded.dout.set(i, l + j, dz * 0.5 * std * eps + kl * 0.5 * (std * std - 1.0));
        }
        encoded.backward(it.encoder.net(0), n, None);
    }
}
