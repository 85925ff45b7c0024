//! The latent forward model behind the pullback metric: encoder q(z|s), forward model z' ~ N(z + μ, σ)(z, a), decoder.
//!
//! Trained by ½‖D(z) − s‖² + ½‖D(z') − s'‖² + w·[KL(q(z|s) ‖ N(0, I)) + KL(F(z, a) ‖ q(z'|s'))] in standardised units, the
//! last term without a gradient into q(z'|s').

use super::pullback::PullbackConfig;
use super::smooth::Radial;
use super::space::{moments, standardise};
use crate::batch::{Batch, Mat};
use crate::error::{Result, invalid};
use crate::nn::{
    Activation, Activations, AdamConfig, AdamStep, Init, Keep, MlpEnsemble, PackedMatrix, Shape, ThreadPool,
    TrainStep, Weights,
};
use crate::rng::Rng;

/// Rows a thread takes at once.
const CHUNK: usize = 120;
/// Rows behind the decoder's deviations.
const SAMPLE: usize = 20_000;

/// Log-variances are kept where their exponential is harmless.
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
        let mut desk = Desk::new(&it, cfg.batch_size, s, a);
        for update in 1..=cfg.updates {
            let rows: Vec<usize> = (0..cfg.batch_size).map(|_| rng.below(data.len())).collect();
            for (i, &row) in rows.iter().enumerate() {
                for (panel, from, at) in
                    [(&mut desk.now, &obs, 0), (&mut desk.next, &next, 0), (&mut desk.pair, &act, l)]
                {
                    from.row(row).iter().enumerate().for_each(|(c, &v)| put(panel, i, at + c, v));
                }
            }
            desk.pass(&it, cfg.kl_weight, &mut rng);
            it.train(&desk, AdamStep::new(&AdamConfig::default(), cfg.lr, update));
        }
        let bad = [&it.encoder, &it.forward, &it.decoder].into_iter().any(|s| s.not_finite().is_some());
        if bad {
            return Err(invalid!(
                "pullback: the latent model became non-finite within {} updates; lower its lr ({})",
                cfg.updates,
                cfg.lr
            ));
        }
        Ok(it)
    }

    fn train(&mut self, desk: &Desk, adam: AdamStep) {
        let (alone, rows) = (ThreadPool::new(1), desk.rows);
        let step = TrainStep { adam, decay: &[], tau: None };
        let with = |pair: (_, _)| (pair.0, pair.1, rows);
        self.encoder.train(&alone, 0..1, 1, |_, l, _| with(desk.encode.source(l, &desk.now)), &step);
        self.forward.train(&alone, 0..1, 1, |_, l, _| with(desk.advance.source(l, &desk.pair)), &step);
        let decode = |_: usize, l: usize, part: usize| {
            let (trace, z) = [(&desk.decode, &desk.z), (&desk.decode_next, &desk.z_next)][part];
            with(trace.source(l, z))
        };
        self.decoder.train(&alone, 0..1, 2, decode, &step);
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
        let mut chunks: Vec<_> = flat.chunks_mut(CHUNK * outputs).collect();
        pool.for_each_mut(&mut chunks, |chunk, out| {
            let n = out.len() / outputs;
            let mut x = PackedMatrix::new(n, rows.ncols());
            let mut trace = Activations::forward_only(net.shape(), n);
            for i in 0..n {
                for (c, &v) in rows.row(chunk * CHUNK + i).iter().enumerate() {
                    put(&mut x, i, c, (v - scale.0[c]) * scale.1[c]);
                }
            }
            trace.forward(net.net(0), Weights::Current, &x, n);
            trace.out.store_flat(out, outputs, 0);
        });
        Mat::from_shape_vec((rows.nrows(), outputs), flat).expect("one row of outputs a row")
    }
}

fn put(panels: &mut PackedMatrix, row: usize, col: usize, value: f32) {
    let at = panels.at(row, col);
    panels.data_mut()[at] = value;
}

fn get(panels: &PackedMatrix, row: usize, col: usize) -> f32 {
    panels.data()[panels.at(row, col)]
}

/// The buffers of a training step.
struct Desk {
    rows: usize,
    latent: usize,
    /// s, s' and (z, a).
    now: PackedMatrix,
    next: PackedMatrix,
    pair: PackedMatrix,
    z: PackedMatrix,
    z_next: PackedMatrix,
    encode: Activations,
    encode_next: Activations,
    advance: Activations,
    decode: Activations,
    decode_next: Activations,
    dz: PackedMatrix,
    dz_next: PackedMatrix,
    dpair: PackedMatrix,
}

impl Desk {
    fn new(it: &Latent, rows: usize, s: usize, a: usize) -> Self {
        let l = it.latent;
        Self {
            rows,
            latent: l,
            now: PackedMatrix::new(rows, s),
            next: PackedMatrix::new(rows, s),
            pair: PackedMatrix::new(rows, l + a),
            z: PackedMatrix::new(rows, l),
            z_next: PackedMatrix::new(rows, l),
            encode: Activations::new(it.encoder.shape(), rows),
            encode_next: Activations::forward_only(it.encoder.shape(), rows),
            advance: Activations::new(it.forward.shape(), rows),
            decode: Activations::new(it.decoder.shape(), rows),
            decode_next: Activations::new(it.decoder.shape(), rows),
            dz: PackedMatrix::new(rows, l),
            dz_next: PackedMatrix::new(rows, l),
            dpair: PackedMatrix::new(rows, l + a),
        }
    }

    /// Forward and back; leaves every network's gradients in its trace.
    fn pass(&mut self, it: &Latent, kl: f32, rng: &mut Rng) {
        let (n, l) = (self.rows, self.latent);
        let mut noise = || (0..n * l).map(|_| rng.normal() as f32).collect::<Vec<f32>>();
        let (first, second) = (noise(), noise());
        self.encode.forward(it.encoder.net(0), Weights::Current, &self.now, n);
        self.encode_next.forward(it.encoder.net(0), Weights::Current, &self.next, n);
        let deviation = |out: &PackedMatrix, i: usize, j: usize| (0.5 * clamp(get(out, i, l + j))).exp();
        for (at, eps) in first.iter().enumerate() {
            let (i, j) = (at / l, at % l);
            let z = get(&self.encode.out, i, j) + deviation(&self.encode.out, i, j) * eps;
            put(&mut self.z, i, j, z);
            put(&mut self.pair, i, j, z);
        }
        self.advance.forward(it.forward.net(0), Weights::Current, &self.pair, n);
        for (at, eps) in second.iter().enumerate() {
            let (i, j) = (at / l, at % l);
            let mean = get(&self.z, i, j) + get(&self.advance.out, i, j);
            put(&mut self.z_next, i, j, mean + deviation(&self.advance.out, i, j) * eps);
        }
        let share = 1.0 / n as f32;
        for (trace, z, target, dz) in [
            (&mut self.decode, &self.z, &self.now, &mut self.dz),
            (&mut self.decode_next, &self.z_next, &self.next, &mut self.dz_next),
        ] {
            trace.forward(it.decoder.net(0), Weights::Current, z, n);
            for i in 0..n {
                for c in 0..target.cols() {
                    let error = get(&trace.out, i, c) - get(target, i, c);
                    put(&mut trace.dout, i, c, share * error);
                }
            }
            trace.backward(it.decoder.net(0), n, None);
            trace.input_gradient(it.decoder.net(0), n, 0..l, dz);
        }
        let kl = kl * share;
        for (at, eps) in second.iter().enumerate() {
            let (i, j) = (at / l, at % l);
            let mean = get(&self.z, i, j) + get(&self.advance.out, i, j);
            let std = deviation(&self.advance.out, i, j);
            let (want, want_std) = (get(&self.encode_next.out, i, j), deviation(&self.encode_next.out, i, j));
            let dz = get(&self.dz_next, i, j);
            // ∂KL(N(m, v) ‖ N(m', v')): (m − m')/v' and ½(v/v' − 1) for the log-variance.
            let ratio = std / want_std;
            put(&mut self.advance.dout, i, j, dz + kl * (mean - want) / (want_std * want_std));
            put(&mut self.advance.dout, i, l + j, dz * 0.5 * std * eps + kl * 0.5 * (ratio * ratio - 1.0));
        }
        self.advance.backward(it.forward.net(0), n, None);
        self.advance.input_gradient(it.forward.net(0), n, 0..l, &mut self.dpair);
        for (at, eps) in first.iter().enumerate() {
            let (i, j) = (at / l, at % l);
            let (mean, std) = (get(&self.encode.out, i, j), deviation(&self.encode.out, i, j));
            // z reaches the loss by its own decoding, by the forward model's input and by its skip connection.
            let dz = get(&self.dz, i, j) + get(&self.dpair, i, j) + get(&self.advance.dout, i, j);
            put(&mut self.encode.dout, i, j, dz + kl * mean);
            put(&mut self.encode.dout, i, l + j, dz * 0.5 * std * eps + kl * 0.5 * (std * std - 1.0));
        }
        self.encode.backward(it.encoder.net(0), n, None);
    }
}
