//! The Gaussian head: means, bounded log-variances, and the gradient of the negative log-likelihood.
//!
//! Outputs are D means then D raw log-variances. Bounds (learnt, shared by members):
//! lv ← max − softplus(max − lv), then lv ← min + softplus(lv − min).

use crate::nn::math::{Arithmetic, exp, sigmoid, softplus};
use crate::nn::{Kernel, PackedMatrix, Scalar, Simd, dispatch};

/// The learnt bounds of the log-variance, one pair for each target column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bounds {
    pub(super) max: Vec<Scalar>,
    pub(super) min: Vec<Scalar>,
}

impl Bounds {
    pub(super) fn new(width: usize, max: f32, min: f32) -> Self {
        Self { max: vec![Scalar::new(f64::from(max)); width], min: vec![Scalar::new(f64::from(min)); width] }
    }

    /// Repeats the bounds for `rows` rows, so that loops over flat rows need no column index.
    pub(super) fn tile(&self, max: &mut [f32], min: &mut [f32]) {
        for (to, from) in [(max, &self.max), (min, &self.min)] {
            for row in to.chunks_exact_mut(from.len()) {
                row.iter_mut().zip(from).for_each(|(to, from)| *to = from.value as f32);
            }
        }
    }
}

/// What is computed from a network's output.
#[derive(Clone, Copy)]
enum Pass {
    Deviations,
    Losses,
    Gradient,
}

/// Flat working arrays for some rows.
#[derive(Clone, Debug)]
pub(super) struct Head {
    width: usize,
    /// Means of the targets.
    pub(super) mean: Vec<f32>,
    /// Raw log-variances, then whatever the last call made of them (standard deviations, gradients).
    pub(super) spread: Vec<f32>,
    /// Targets; then gradients at the means.
    pub(super) target: Vec<f32>,
    max: Vec<f32>,
    min: Vec<f32>,
    /// Entries' losses are weighted by their variance to this power, which counts as a constant.
    beta: f32,
    /// Each row's weight in the loss, once for every entry.
    scale: Vec<f32>,
    /// Each row's contribution to the gradients of the bounds.
    pub(super) dmax: Vec<f32>,
    pub(super) dmin: Vec<f32>,
    /// Each entry's loss.
    pub(super) loss: Vec<f32>,
}

impl Head {
    pub(super) fn new(rows: usize, width: usize) -> Self {
        let flat = || vec![0.0; rows * width];
        Self {
            width,
            mean: flat(),
            spread: flat(),
            target: flat(),
            max: flat(),
            min: flat(),
            beta: 0.0,
            scale: flat(),
            dmax: flat(),
            dmin: flat(),
            loss: flat(),
        }
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// With this weight of the variance in the gradient (β of β-NLL, Seitzer et al. 2022): at 0 means are fitted by
    /// likelihood, at 1 by squared error.
    pub(super) fn with_beta(self, beta: f32) -> Self {
        Self { beta, ..self }
    }

    /// Takes over the current bounds; needed once after they changed.
    pub(super) fn set_bounds(&mut self, bounds: &Bounds) {
        bounds.tile(&mut self.max, &mut self.min);
    }

    /// Reads means and standard deviations from a network's output.
    pub(super) fn deviations(&mut self, simd: Simd, out: &PackedMatrix, rows: usize) {
        self.run(Pass::Deviations, simd, out, rows);
    }

    /// Fills `loss` with (μ − y)² e^−lv + lv, given `target`, which stays.
    pub(super) fn losses(&mut self, simd: Simd, out: &PackedMatrix, rows: usize) {
        self.run(Pass::Losses, simd, out, rows);
    }

    /// Puts the gradient of Σ_i `scale(i)` · ((μ_i − y_i)² e^−lv_i + lv_i) at the output into `dout`, given `target`.
    pub(super) fn gradient(
        &mut self,
        simd: Simd,
        out: &PackedMatrix,
        rows: usize,
        scale: impl Fn(usize) -> f32,
        dout: &mut PackedMatrix,
    ) {
        let n = rows * self.width;
        self.scale[..n].chunks_exact_mut(self.width).enumerate().for_each(|(i, row)| row.fill(scale(i)));
        self.run(Pass::Gradient, simd, out, rows);
        dout.load_flat(&self.target[..n], self.width, 0);
        dout.load_flat(&self.spread[..n], self.width, self.width);
    }

    fn run(&mut self, pass: Pass, simd: Simd, out: &PackedMatrix, rows: usize) {
        let n = rows * self.width;
        out.store_flat(&mut self.mean[..n], self.width, 0);
        out.store_flat(&mut self.spread[..n], self.width, self.width);
        run_pass(simd, self, pass, n);
    }

    #[inline(always)]
    fn deviations_wide<A: Arithmetic>(&mut self, n: usize) {
        let (spread, max, min) = (&mut self.spread[..n], &self.max[..n], &self.min[..n]);
        for i in 0..n {
            let (lv, _, _) = bound::<A>(spread[i], max[i], min[i]);
            spread[i] = exp::<A>(0.5 * lv);
        }
    }

    #[inline(always)]
    fn losses_wide<A: Arithmetic>(&mut self, n: usize) {
        let (mean, spread, target) = (&self.mean[..n], &self.spread[..n], &self.target[..n]);
        let (max, min, loss) = (&self.max[..n], &self.min[..n], &mut self.loss[..n]);
        for i in 0..n {
            let (lv, _, _) = bound::<A>(spread[i], max[i], min[i]);
            let error = mean[i] - target[i];
            loss[i] = error * error * exp::<A>(-lv) + lv;
        }
    }

    #[inline(always)]
    fn gradient_wide<A: Arithmetic>(&mut self, n: usize) {
        let (mean, spread, target) = (&self.mean[..n], &mut self.spread[..n], &mut self.target[..n]);
        let (max, min, loss) = (&self.max[..n], &self.min[..n], &mut self.loss[..n]);
        let (dmax, dmin, scale) = (&mut self.dmax[..n], &mut self.dmin[..n], &self.scale[..n]);
        let beta = self.beta;
        for i in 0..n {
            let raw = spread[i];
            let (lv, upper, lower) = bound::<A>(raw, max[i], min[i]);
            let (error, precision) = (mean[i] - target[i], exp::<A>(-lv));
            loss[i] = error * error * precision + lv;
            let scale = if beta == 0.0 { scale[i] } else { scale[i] * exp::<A>(beta * lv) };
            target[i] = scale * 2.0 * error * precision;
            let dlv = scale * (1.0 - error * error * precision);
            // lv = min + softplus(upper − min), upper = max − softplus(max − raw).
            dmin[i] = dlv * (1.0 - lower);
            let dupper = dlv * lower;
            dmax[i] = dupper * (1.0 - upper);
            spread[i] = dupper * upper;
        }
    }
}

/// The bounded log-variance, and the slopes of both steps by their argument.
#[inline(always)]
fn bound<A: Arithmetic>(raw: f32, max: f32, min: f32) -> (f32, f32, f32) {
    let upper = max - softplus::<A>(max - raw);
    (min + softplus::<A>(upper - min), sigmoid::<A>(max - raw), sigmoid::<A>(upper - min))
}

dispatch!(
    /// Runs a pass over the first `n` entries.
    run_pass, run_pass_wide, (head: &mut Head, pass: Pass, n: usize)
);

#[inline(always)]
fn run_pass_wide<K: Kernel>(head: &mut Head, pass: Pass, n: usize) {
    match pass {
        Pass::Deviations => head.deviations_wide::<K::Arithmetic>(n),
        Pass::Losses => head.losses_wide::<K::Arithmetic>(n),
        Pass::Gradient => head.gradient_wide::<K::Arithmetic>(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(mean: f64, raw: f64, y: f64, max: f64, min: f64) -> f64 {
        let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        let upper = max - softplus(max - raw);
        let lv = min + softplus(upper - min);
        (mean - y).powi(2) * (-lv).exp() + lv
    }

    #[test]
    fn beta_weighs_an_entry_by_its_variance() {
        let gradient = |beta: f32| {
            let mut head = Head::new(1, 1).with_beta(beta);
            head.set_bounds(&Bounds::new(1, 0.5, -10.0));
            let (mut out, mut dout) = (PackedMatrix::new(1, 2), PackedMatrix::new(1, 2));
            out.load_flat(&[0.3, -2.0], 2, 0);
            head.target[0] = 0.1;
            head.gradient(Simd::detect(), &out, 1, |_| 1.0, &mut dout);
            (dout.data()[0], dout.data()[1])
        };
        let ((mean, spread), (weighted_mean, weighted_spread)) = (gradient(0.0), gradient(1.0));
        assert!((weighted_mean - 2.0 * (0.3 - 0.1)).abs() < 1e-6, "squared error: {weighted_mean}");
        assert!((weighted_spread / spread - weighted_mean / mean).abs() < 1e-6);
    }

    #[test]
    fn gradients_equal_finite_differences() {
        for simd in Simd::all() {
            for (mean, raw, y) in [(0.3, -1.0, 0.1), (-2.0, 3.0, 1.0), (0.5, -14.0, 0.5005)] {
                let (max, min) = (0.5, -10.0);
                let mut head = Head::new(1, 1);
                head.set_bounds(&Bounds::new(1, 0.5, -10.0));
                let (mut out, mut dout) = (PackedMatrix::new(1, 2), PackedMatrix::new(1, 2));
                out.load_flat(&[mean as f32, raw as f32], 2, 0);
                head.target[0] = y as f32;
                head.gradient(simd, &out, 1, |_| 1.0, &mut dout);
                let numeric = |f: &dyn Fn(f64) -> f64| (f(1e-5) - f(-1e-5)) / 2e-5;
                for (name, got, want) in [
                    ("mean", dout.data()[0], numeric(&|e| loss(mean + e, raw, y, max, min))),
                    ("raw", dout.data()[1], numeric(&|e| loss(mean, raw + e, y, max, min))),
                    ("max", head.dmax[0], numeric(&|e| loss(mean, raw, y, max + e, min))),
                    ("min", head.dmin[0], numeric(&|e| loss(mean, raw, y, max, min + e))),
                ] {
                    assert!(
                        (f64::from(got) - want).abs() < 2e-4 * (1.0 + want.abs()),
                        "{name}: got {got}, want {want}"
                    );
                }
            }
        }
    }
}
