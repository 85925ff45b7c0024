//! λ-returns of imagined trajectories, with the way back.
//!
//! y_t = r_t + γ·((1 − λ)·Q_{t+1} + λ·y_{t+1}) after a step that does not end the episode, y_t = r_t after one that does,
//! y_t = Q_t where the step cannot be believed, and y_H = Q_H at the end. The step from t to t+1 brings r_t.

use ndarray::{Array2, ArrayView2};

/// What becomes of an imagined step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    /// The trajectory goes on.
    #[default]
    GoesOn,
    /// The episode ends with it.
    Ends,
    /// Too far from the data: values are those before the step.
    Unbelieved,
}

/// Trajectories of H steps: arrays of (step, row).
pub(super) struct Trajectories<'a> {
    /// r_t, H × rows.
    pub(super) rew: ArrayView2<'a, f32>,
    /// Q_t, (H + 1) × rows.
    pub(super) q: ArrayView2<'a, f32>,
    /// What becomes of each step, H × rows.
    pub(super) fate: ArrayView2<'a, Fate>,
    pub(super) gamma: f32,
    pub(super) lambda: f32,
}

impl Trajectories<'_> {
    /// y_t, H × rows.
    pub(super) fn returns(&self) -> Array2<f32> {
        let (steps, rows) = self.rew.dim();
        let mut y = Array2::zeros((steps, rows));
        for i in 0..rows {
            let mut after = self.q[[steps, i]];
            for t in (0..steps).rev() {
                let mixed = (1.0 - self.lambda) * self.q[[t + 1, i]] + self.lambda * after;
                after = match self.fate[[t, i]] {
                    Fate::GoesOn => self.rew[[t, i]] + self.gamma * mixed,
                    Fate::Ends => self.rew[[t, i]],
                    Fate::Unbelieved => self.q[[t, i]],
                };
                y[[t, i]] = after;
            }
        }
        y
    }

    /// The gradient of Σ_i weight(i) · y_0 at the rewards (H × rows) and the values ((H + 1) × rows).
    pub(super) fn gradient(&self, weight: impl Fn(usize) -> f32) -> (Array2<f32>, Array2<f32>) {
        let (steps, rows) = self.rew.dim();
        let (mut drew, mut dq) = (Array2::zeros((steps, rows)), Array2::zeros((steps + 1, rows)));
        for i in 0..rows {
            let mut flow = weight(i);
            for t in 0..steps {
                if self.fate[[t, i]] == Fate::Unbelieved {
                    dq[[t, i]] += flow;
                    flow = 0.0;
                    break;
                }
                drew[[t, i]] = flow;
                if self.fate[[t, i]] == Fate::Ends {
                    flow = 0.0;
                    break;
                }
                dq[[t + 1, i]] += flow * self.gamma * (1.0 - self.lambda);
                flow *= self.gamma * self.lambda;
            }
            dq[[steps, i]] += flow;
        }
        (drew, dq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Three rows: one goes on to the end, one ends at its second step, one is not believed from its third step on.
    fn case() -> (Array2<f32>, Array2<f32>, Array2<Fate>) {
        let mut rng = Rng::stream(0, "case", 0);
        let rew = Array2::from_shape_simple_fn((4, 3), || rng.normal() as f32);
        let q = Array2::from_shape_simple_fn((5, 3), || rng.normal() as f32);
        let mut fate = Array2::from_elem((4, 3), Fate::GoesOn);
        (fate[[1, 1]], fate[[2, 2]]) = (Fate::Ends, Fate::Unbelieved);
        (rew, q, fate)
    }

    fn trajectories<'a>(
        rew: &'a Array2<f32>,
        q: &'a Array2<f32>,
        fate: &'a Array2<Fate>,
    ) -> Trajectories<'a> {
        Trajectories { rew: rew.view(), q: q.view(), fate: fate.view(), gamma: 0.9, lambda: 0.7 }
    }

    #[test]
    fn returns_are_those_of_the_definition() {
        let (rew, q, fate) = case();
        let y = trajectories(&rew, &q, &fate).returns();
        // The mixture of all n-step returns, written out.
        let n_step = |i: usize, n: usize| {
            let rewards: f32 = (0..n).map(|t| 0.9f32.powi(t as i32) * rew[[t, i]]).sum();
            rewards + 0.9f32.powi(n as i32) * q[[n, i]]
        };
        let mixed: f32 = (1..4).map(|n| 0.3 * 0.7f32.powi(n - 1) * n_step(0, n as usize)).sum();
        assert!((y[[0, 0]] - (mixed + 0.7f32.powi(3) * n_step(0, 4))).abs() < 1e-5);
        assert_eq!(y[[1, 1]], rew[[1, 1]], "nothing comes after an end");
        assert_eq!(y[[2, 2]], q[[2, 2]], "the value before a step that is not believed");
    }

    #[test]
    fn gradients_equal_finite_differences() {
        let (rew, q, fate) = case();
        let (drew, dq) = trajectories(&rew, &q, &fate).gradient(|i| 1.0 + i as f32);
        let total = |rew: &Array2<f32>, q: &Array2<f32>| -> f32 {
            let y = trajectories(rew, q, &fate).returns();
            (0..3).map(|i| (1.0 + i as f32) * y[[0, i]]).sum()
        };
        let slope = |change: &dyn Fn(f32) -> f32| (change(0.5) - change(-0.5)) / 1.0;
        for t in 0..5 {
            for i in 0..3 {
                let by_q = slope(&|e| {
                    let mut q = q.clone();
                    q[[t, i]] += e;
                    total(&rew, &q)
                });
                assert!((by_q - dq[[t, i]]).abs() < 1e-4, "q {t} {i}: {by_q} against {}", dq[[t, i]]);
                if t < 4 {
                    let by_rew = slope(&|e| {
                        let mut rew = rew.clone();
                        rew[[t, i]] += e;
                        total(&rew, &q)
                    });
                    assert!(
                        (by_rew - drew[[t, i]]).abs() < 1e-4,
                        "r {t} {i}: {by_rew} against {}",
                        drew[[t, i]]
                    );
                }
            }
        }
    }
}
