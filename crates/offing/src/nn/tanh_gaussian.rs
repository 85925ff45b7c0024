//! The tanh-squashed Gaussian: a = tanh(z), z = μ + σε, with its log-density and gradients.
//!
//! log π(a) = Σ_i [ −½ε_i² − ln σ_i − ½ ln 2π − ln(1 − tanh² z_i) ], where the last term is computed as
//! 2(ln 2 − z − softplus(−2z)), which is finite for every z. Peers add 1e-6 inside the logarithm instead.

use ndarray::ArrayView2;

use super::math;
use super::matmul::{Kernel, Simd, dispatch};
use super::packed_matrix::PackedMatrix;
use crate::rng::Rng;

const HALF_LN_TAU: f32 = 0.918_938_5;

/// Where the standard normal ε of each row comes from.
#[derive(Clone, Copy, Debug)]
pub enum Noise<'a> {
    /// Drawn: row i has its own stream under this key, so it does not depend on how rows are shared out.
    Key(u64),
    /// Given for each row (for tests against other implementations).
    Given(ArrayView2<'a, f32>),
    /// None: the mean action.
    Zero,
}

impl Noise<'_> {
    /// A fresh key from a stream.
    pub fn draw(rng: &mut Rng) -> Noise<'static> {
        Noise::Key(rng.bits())
    }

    /// Fills `eps` with the noise of rows `first..`, `width` numbers a row.
    pub fn fill(&self, first: usize, width: usize, eps: &mut [f32]) {
        for (i, row) in eps.chunks_exact_mut(width).enumerate() {
            match self {
                Noise::Key(key) => {
                    let mut rng = Rng::stream(*key, "ε", (first + i) as u64);
                    row.iter_mut().for_each(|e| *e = rng.normal() as f32);
                }
                Noise::Given(given) => row.iter_mut().zip(given.row(first + i)).for_each(|(e, g)| *e = *g),
                Noise::Zero => row.fill(0.0),
            }
        }
    }
}

/// Actions sampled for some rows, and what their gradients need. Everything is flat: row after row.
#[derive(Clone, Debug)]
pub struct TanhGaussianHead {
    width: usize,
    low: f32,
    high: f32,
    clipped: bool,
    mean: Vec<f32>,
    log_std: Vec<f32>,
    eps: Vec<f32>,
    std: Vec<f32>,
    log_density: Vec<f32>,
    /// The actions.
    pub act: Vec<f32>,
    /// Log-density of each row's action.
    pub log_prob: Vec<f32>,
}

impl TanhGaussianHead {
    /// Room for `rows` actions of `width` entries, with log σ clamped to `range`.
    pub fn new(rows: usize, width: usize, range: [f32; 2]) -> Self {
        let flat = || vec![0.0; rows * width];
        Self {
            width,
            low: range[0],
            high: range[1],
            clipped: false,
            mean: flat(),
            log_std: flat(),
            eps: flat(),
            std: flat(),
            log_density: flat(),
            act: flat(),
            log_prob: vec![0.0; rows],
        }
    }

    /// With `clip`, actions are a plain Gaussian's, clipped to [-1, 1], and `log_prob` is the log-density before that.
    /// Such a head has no [`TanhGaussianHead::gradient`].
    pub fn clipped(mut self, clip: bool) -> Self {
        self.clipped = clip;
        self
    }

    /// Samples an action for each of `rows` rows; columns of `out` are all μ, then all log σ. The rows are number
    /// `first` and on of the batch that `noise` is for.
    pub fn sample(&mut self, simd: Simd, out: &PackedMatrix, rows: usize, noise: Noise<'_>, first: usize) {
        let n = rows * self.width;
        noise.fill(first, self.width, &mut self.eps[..n]);
        out.store_flat(&mut self.mean[..n], self.width, 0);
        out.store_flat(&mut self.log_std[..n], self.width, self.width);
        if self.clipped {
            self.clip(n)
        } else {
            squash(simd, self, n)
        }
        for (total, terms) in self.log_prob[..rows].iter_mut().zip(self.log_density.chunks_exact(self.width))
        {
            *total = terms.iter().sum();
        }
    }

    fn clip(&mut self, n: usize) {
        for i in 0..n {
            let log_std = self.log_std[i].clamp(self.low, self.high);
            self.std[i] = log_std.exp();
            self.act[i] = (self.mean[i] + self.std[i] * self.eps[i]).clamp(-1.0, 1.0);
            self.log_density[i] = -0.5 * self.eps[i] * self.eps[i] - log_std - HALF_LN_TAU;
        }
    }

    /// Entry `j` of a row's action without noise, tanh(μ).
    pub fn mean_act(&self, row: usize, j: usize) -> f32 {
        self.mean[row * self.width + j].tanh()
    }

    /// The gradient of `scale · L` at μ and log σ, into `dout`, where `dlog_prob` is ∂L/∂log π of a row and `dact` is ∂L/∂a,
    /// flat.
    pub fn gradient(
        &self,
        rows: usize,
        scale: f32,
        dlog_prob: impl Fn(usize) -> f32,
        dact: &[f32],
        dout: &mut PackedMatrix,
    ) {
        assert!(!self.clipped, "a clipped action has no gradient");
        for row in 0..rows {
            let dlog_prob = dlog_prob(row);
            for j in 0..self.width {
                let i = row * self.width + j;
                let a = self.act[i];
                // ∂ log π/∂z = 2 tanh z; ∂a/∂z = 1 − tanh² z.
                let dz = scale * (dlog_prob * 2.0 * a + dact[i] * (1.0 - a * a));
                let inside = (self.low..=self.high).contains(&self.log_std[i]);
                let dlog = if inside { dz * self.std[i] * self.eps[i] - scale * dlog_prob } else { 0.0 };
                dout.set(row, j, dz);
                dout.set(row, self.width + j, dlog);
            }
        }
    }
}

dispatch!(
    /// Squashes the first `n` entries.
    pub(super) squash, squash_wide, (head: &mut TanhGaussianHead, n: usize)
);

#[inline(always)]
fn squash_wide<K: Kernel>(head: &mut TanhGaussianHead, n: usize) {
    let (mean, log_std, eps) = (&head.mean[..n], &head.log_std[..n], &head.eps[..n]);
    let (std, act, density) = (&mut head.std[..n], &mut head.act[..n], &mut head.log_density[..n]);
    for i in 0..n {
        let log_std = log_std[i].clamp(head.low, head.high);
        std[i] = math::exp::<K::Arithmetic>(log_std);
        let z = mean[i] + std[i] * eps[i];
        act[i] = math::tanh::<K::Arithmetic>(z);
        let jacobian = math::ln_one_minus_tanh_squared::<K::Arithmetic>(z);
        density[i] = -0.5 * eps[i] * eps[i] - log_std - HALF_LN_TAU - jacobian;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array2;

    /// alpha · log π − Σ c·a in f64 for one row of two actions.
    fn loss(mean: [f64; 2], log_std: [f64; 2], eps: [f64; 2], alpha: f64, c: [f64; 2]) -> f64 {
        (0..2)
            .map(|i| {
                let ls = log_std[i].clamp(-5.0, 2.0);
                let z = mean[i] + ls.exp() * eps[i];
                let jacobian = 2.0 * (2f64.ln() - z - (-2.0 * z).exp().ln_1p());
                let log_prob = -0.5 * eps[i] * eps[i] - ls - 0.5 * std::f64::consts::TAU.ln() - jacobian;
                alpha * log_prob - c[i] * z.tanh()
            })
            .sum()
    }

    #[test]
    fn log_density_and_gradients_are_those_of_the_formula() {
        for (mean, log_std) in
            [([0.3, -1.2], [-0.5, 0.4]), ([4.0, -6.0], [-5.5, 2.5]), ([0.0, 12.0], [1.0, -4.0])]
        {
            let (eps, alpha, c) = ([0.7, -1.1], 0.2, [1.5, -0.4]);
            let mut out = PackedMatrix::new(1, 4);
            out.load_flat(&[mean[0], mean[1], log_std[0], log_std[1]].map(|x: f64| x as f32), 4, 0);
            let noise = Array2::from_shape_vec((1, 2), eps.map(|x: f64| x as f32).to_vec()).unwrap();
            let mut head = TanhGaussianHead::new(1, 2, [-5.0, 2.0]);
            head.sample(Simd::detect(), &out, 1, Noise::Given(noise.view()), 0);
            let log_prob = loss(mean, log_std, eps, 1.0, [0.0; 2]);
            assert!((f64::from(head.log_prob[0]) - log_prob).abs() < 1e-5 * (1.0 + log_prob.abs()));
            let mut dout = PackedMatrix::new(1, 4);
            head.gradient(1, 1.0, |_| alpha as f32, &c.map(|x| -x as f32), &mut dout);
            for i in 0..4 {
                let at = |step: f64| {
                    let (mut m, mut l) = (mean, log_std);
                    *(if i < 2 { &mut m[i] } else { &mut l[i - 2] }) += step;
                    loss(m, l, eps, alpha, c)
                };
                let numeric = (at(1e-6) - at(-1e-6)) / 2e-6;
                let got = f64::from(dout.data()[i]);
                assert!((got - numeric).abs() < 3e-6 * (1.0 + numeric.abs()), "{i}: {got} against {numeric}");
            }
        }
    }

    #[test]
    fn noise_of_a_row_does_not_depend_on_the_rows_around_it() {
        let (mut all, mut some) = (vec![0.0; 30], vec![0.0; 6]);
        Noise::Key(9).fill(0, 3, &mut all);
        Noise::Key(9).fill(4, 3, &mut some);
        assert_eq!(all[12..18], some);
        assert_ne!(all[12..15], all[15..18]);
    }
}
