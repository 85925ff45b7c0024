//! Adam, applied to a panel of weights while its gradient is still in registers.

use super::buffer::{LANES, Line};

/// Decay of the first moment, decay of the second, and what is added to its root (Kingma & Ba's defaults).
const BETA1: f32 = 0.9;
const BETA2: f32 = 0.999;
const EPS: f32 = 1e-8;

/// One step of Adam, with the bias corrections of step number t worked in.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// lr / (1 − β₁^t)
    rate: f32,
    /// 1 / √(1 − β₂^t)
    scale: f32,
}

impl AdamStep {
    /// Step number `t` (from 1) with learning rate `lr`.
    pub fn new(lr: f64, t: u64) -> Self {
        let t = t as f64;
        Self {
            rate: (lr / (1.0 - f64::from(BETA1).powf(t))) as f32,
            scale: (1.0 / (1.0 - f64::from(BETA2).powf(t)).sqrt()) as f32,
        }
    }

    /// Moves one weight against its gradient.
    #[inline(always)]
    pub fn apply(&self, w: &mut f32, m: &mut f32, v: &mut f32, grad: f32) {
        *m += (grad - *m) * (1.0 - BETA1);
        *v = *v * BETA2 + grad * grad * (1.0 - BETA2);
        *w -= self.rate * *m / (v.sqrt() * self.scale + EPS);
    }

    /// Moves sixteen weights: new weights and moments from old ones, all by value, so that it becomes vector code.
    #[inline(always)]
    pub(super) fn apply_line(&self, w: Line, m: Line, v: Line, grad: Line) -> (Line, Line, Line) {
        let (mut w, mut m, mut v) = (w, m, v);
        for j in 0..LANES {
            self.apply(&mut w[j], &mut m[j], &mut v[j], grad[j]);
        }
        (w, m, v)
    }
}

/// A single learned number with its moments, in f64.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scalar {
    /// The number.
    pub value: f64,
    /// First moment.
    pub m: f64,
    /// Second moment.
    pub v: f64,
}

impl Scalar {
    /// A number that has not moved yet.
    pub fn new(value: f64) -> Self {
        Self { value, m: 0.0, v: 0.0 }
    }

    /// Moves it against its gradient: step number `t` (from 1) with learning rate `lr`.
    pub fn step(&mut self, lr: f64, t: u64, grad: f64) {
        let (b1, b2) = (f64::from(BETA1), f64::from(BETA2));
        self.m += (grad - self.m) * (1.0 - b1);
        self.v = self.v * b2 + grad * grad * (1.0 - b2);
        let t = t as f64;
        let denominator = self.v.sqrt() / (1.0 - b2.powf(t)).sqrt() + f64::from(EPS);
        self.value -= lr / (1.0 - b1.powf(t)) * self.m / denominator;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_steps_follow_the_published_recursion() {
        let (mut w, mut m, mut v) = (1.0f32, 0.0f32, 0.0f32);
        let mut wide = Scalar::new(1.0);
        let (mut p, mut m64, mut v64) = (1.0f64, 0.0f64, 0.0f64);
        for (t, g) in [(1, 0.5f64), (2, -0.2), (3, 1e-3)] {
            AdamStep::new(0.01, t).apply(&mut w, &mut m, &mut v, g as f32);
            wide.step(0.01, t, g);
            m64 = 0.9 * m64 + 0.1 * g;
            v64 = 0.999 * v64 + 0.001 * g * g;
            let (mh, vh) = (m64 / (1.0 - 0.9f64.powi(t as i32)), v64 / (1.0 - 0.999f64.powi(t as i32)));
            p -= 0.01 * mh / (vh.sqrt() + 1e-8);
            assert!(
                (f64::from(w) - p).abs() < 1e-6 && (wide.value - p).abs() < 1e-7,
                "{w} {} {p}",
                wide.value
            );
        }
    }
}
