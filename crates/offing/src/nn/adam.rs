//! Adam, applied to a panel of weights while its gradient is still in registers.

use serde::{Deserialize, Serialize};

use super::buffer::{LANES, Line};

/// Adam's constants (Kingma & Ba).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamConfig {
    /// Decay of the first moment (β₁).
    pub beta1: f32,
    /// Decay of the second moment (β₂).
    pub beta2: f32,
    /// Added to the root of the second moment (ε).
    pub eps: f32,
}

impl Default for AdamConfig {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8 }
    }
}

/// One step of Adam: the constants with the bias corrections of step number t worked in.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    beta1: f32,
    beta2: f32,
    eps: f32,
    /// lr / (1 − β₁^t)
    rate: f32,
    /// 1 / √(1 − β₂^t)
    scale: f32,
}

impl AdamStep {
    /// Step number `t` (from 1) with learning rate `lr`.
    pub fn new(cfg: &AdamConfig, lr: f64, t: u64) -> Self {
        let t = t as f64;
        Self {
            beta1: cfg.beta1,
            beta2: cfg.beta2,
            eps: cfg.eps,
            rate: (lr / (1.0 - f64::from(cfg.beta1).powf(t))) as f32,
            scale: (1.0 / (1.0 - f64::from(cfg.beta2).powf(t)).sqrt()) as f32,
        }
    }

    /// Moves one weight against its gradient.
    #[inline(always)]
    pub fn apply(&self, w: &mut f32, m: &mut f32, v: &mut f32, grad: f32) {
        *m += (grad - *m) * (1.0 - self.beta1);
        *v = *v * self.beta2 + grad * grad * (1.0 - self.beta2);
        *w -= self.rate * *m / (v.sqrt() * self.scale + self.eps);
    }

    /// Moves sixteen weights: new weights and moments from old ones, all by value, so that it becomes vector code.
    #[inline(always)]
    pub(super) fn apply_line(&self, w: Line, m: Line, v: Line, grad: Line) -> (Line, Line, Line) {
        let (mut w, mut m, mut v) = (w, m, v);
        for j in 0..LANES {
            m[j] += (grad[j] - m[j]) * (1.0 - self.beta1);
            v[j] = v[j] * self.beta2 + grad[j] * grad[j] * (1.0 - self.beta2);
            w[j] -= self.rate * m[j] / (v[j].sqrt() * self.scale + self.eps);
        }
        (w, m, v)
    }
}

/// A single learnt number with its moments, in f64.
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
    pub fn step(&mut self, cfg: &AdamConfig, lr: f64, t: u64, grad: f64) {
        let (b1, b2) = (f64::from(cfg.beta1), f64::from(cfg.beta2));
        self.m += (grad - self.m) * (1.0 - b1);
        self.v = self.v * b2 + grad * grad * (1.0 - b2);
        let t = t as f64;
        let denominator = self.v.sqrt() / (1.0 - b2.powf(t)).sqrt() + f64::from(cfg.eps);
        self.value -= lr / (1.0 - b1.powf(t)) * self.m / denominator;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_steps_follow_the_published_recursion() {
        let cfg = AdamConfig::default();
        let (mut w, mut m, mut v) = (1.0f32, 0.0f32, 0.0f32);
        let mut wide = Scalar::new(1.0);
        let (mut p, mut m64, mut v64) = (1.0f64, 0.0f64, 0.0f64);
        for (t, g) in [(1, 0.5f64), (2, -0.2), (3, 1e-3)] {
            AdamStep::new(&cfg, 0.01, t).apply(&mut w, &mut m, &mut v, g as f32);
            wide.step(&cfg, 0.01, t, g);
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
