//! Conjugate gradient: solves A·x = b by products with A alone.

/// A residual with a smaller square is a solution.
const SOLVED: f64 = 1e-10;

/// Approximates A⁻¹·b for a symmetric positive definite A, from x = b, in at most `iterations` products.
pub(super) fn conjugate_gradient(
    mut times: impl FnMut(&[f64]) -> Vec<f64>,
    b: &[f64],
    iterations: usize,
) -> Vec<f64> {
    let mut x = b.to_vec();
    let mut residual: Vec<f64> = b.iter().zip(times(&x)).map(|(b, ax)| b - ax).collect();
    let mut direction = residual.clone();
    let mut square = dot(&residual, &residual);
    for _ in 0..iterations {
        if square < SOLVED {
            break;
        }
        let image = times(&direction);
        let step = square / dot(&direction, &image);
        x.iter_mut().zip(&direction).for_each(|(x, d)| *x += step * d);
        residual.iter_mut().zip(&image).for_each(|(r, a)| *r -= step * a);
        let next = dot(&residual, &residual);
        let turn = next / square;
        direction.iter_mut().zip(&residual).for_each(|(d, r)| *d = r + turn * *d);
        square = next;
    }
    x
}

/// Σ a·b, in order.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Gaussian elimination with pivots.
    fn dense(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
        let n = b.len();
        for i in 0..n {
            let pivot = (i..n).max_by(|&p, &q| a[p][i].abs().total_cmp(&a[q][i].abs())).unwrap();
            a.swap(i, pivot);
            b.swap(i, pivot);
            for row in i + 1..n {
                let factor = a[row][i] / a[i][i];
                let upper = a[i].clone();
                a[row].iter_mut().zip(&upper).for_each(|(x, u)| *x -= factor * u);
                b[row] -= factor * b[i];
            }
        }
        for i in (0..n).rev() {
            let known: f64 = (i + 1..n).map(|k| a[i][k] * b[k]).sum();
            b[i] = (b[i] - known) / a[i][i];
        }
        b
    }

    #[test]
    fn it_agrees_with_a_dense_solution() {
        let (n, mut rng) = (12, Rng::stream(0, "cg", 0));
        let root: Vec<Vec<f64>> = (0..n).map(|_| (0..n).map(|_| rng.normal()).collect()).collect();
        let entry = |i: usize, j: usize| dot(&root[i], &root[j]) + if i == j { 0.1 } else { 0.0 };
        let a: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| entry(i, j)).collect()).collect();
        let b: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
        let times = |v: &[f64]| a.iter().map(|row| dot(row, v)).collect::<Vec<f64>>();
        let exact = dense(a.clone(), b.clone());
        let found = conjugate_gradient(times, &b, 3 * n);
        for (x, y) in found.iter().zip(&exact) {
            assert!((x - y).abs() < 1e-4 * (1.0 + y.abs()), "{found:?} against {exact:?}");
        }
        let early = conjugate_gradient(times, &b, 2);
        let miss = |x: &[f64]| times(x).iter().zip(&b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        assert!(miss(&early) > miss(&found) && miss(&found) < 1e-9);
    }
}
