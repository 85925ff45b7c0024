//! A little dense algebra in f64: Cholesky factors and symmetric eigenvectors, for fits of a few dozen unknowns.

/// Replaces the lower triangle of the symmetric `n`×`n` matrix `a` (row-major) by its Cholesky factor L, A = LLᵀ.
/// False when A is not positive definite.
pub(crate) fn cholesky(a: &mut [f64], n: usize) -> bool {
    for i in 0..n {
        for j in 0..=i {
            let (above, row) = a.split_at(i * n);
            let other = if i == j { &row[..j] } else { &above[j * n..][..j] };
            let sum = row[j] - row[..j].iter().zip(other).map(|(x, y)| x * y).sum::<f64>();
            a[i * n + j] = if i != j {
                sum / a[j * n + j]
            } else if sum > 0.0 {
                sum.sqrt()
            } else {
                return false;
            };
        }
    }
    true
}

/// Solves L y = b in place.
pub(crate) fn solve_lower(l: &[f64], n: usize, b: &mut [f64]) {
    for i in 0..n {
        let sum: f64 = l[i * n..][..i].iter().zip(&*b).map(|(l, y)| l * y).sum();
        b[i] = (b[i] - sum) / l[i * n + i];
    }
}

/// Solves Lᵀ x = y in place.
pub(crate) fn solve_upper(l: &[f64], n: usize, y: &mut [f64]) {
    for i in (0..n).rev() {
        y[i] /= l[i * n + i];
        let x = y[i];
        y[..i].iter_mut().zip(&l[i * n..]).for_each(|(y, l)| *y -= l * x);
    }
}

/// Eigenvalues and eigenvectors (column j belongs to value j) of a symmetric matrix, by Jacobi's rotations.
pub(crate) fn eigen(mut a: Vec<f64>, n: usize) -> (Vec<f64>, Vec<f64>) {
    let mut v = vec![0.0; n * n];
    (0..n).for_each(|i| v[i * n + i] = 1.0);
    let total: f64 = a.iter().map(|x| x * x).sum();
    for _sweep in 0..60 {
        let off: f64 =
            (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i * n + j].powi(2)).sum();
        if off <= 1e-26 * total {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                rotate(&mut a, &mut v, n, p, q);
            }
        }
    }
    ((0..n).map(|i| a[i * n + i]).collect(), v)
}

/// Makes a[p][q] zero.
fn rotate(a: &mut [f64], v: &mut [f64], n: usize, p: usize, q: usize) {
    let apq = a[p * n + q];
    if apq == 0.0 {
        return;
    }
    let theta = (a[q * n + q] - a[p * n + p]) / (2.0 * apq);
    let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
    let t = if theta == 0.0 { 1.0 } else { t };
    let c = 1.0 / (t * t + 1.0).sqrt();
    let s = t * c;
    for i in 0..n {
        let (x, y) = (a[i * n + p], a[i * n + q]);
        (a[i * n + p], a[i * n + q]) = (c * x - s * y, s * x + c * y);
    }
    for i in 0..n {
        let (x, y) = (a[p * n + i], a[q * n + i]);
        (a[p * n + i], a[q * n + i]) = (c * x - s * y, s * x + c * y);
        let (x, y) = (v[i * n + p], v[i * n + q]);
        (v[i * n + p], v[i * n + q]) = (c * x - s * y, s * x + c * y);
    }
}

/// The symmetric square root of a positive semi-definite matrix whose eigenvalues are first raised to at least
/// `floor`·largest.
pub(crate) fn root_floored(a: Vec<f64>, n: usize, floor: f64) -> Vec<f64> {
    let (values, v) = eigen(a, n);
    let least = floor * values.iter().copied().fold(0.0, f64::max);
    let roots: Vec<f64> = values.iter().map(|x| x.max(least).sqrt()).collect();
    let mut out = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..n {
            out[i * n + j] = (0..n).map(|k| v[i * n + k] * roots[k] * v[j * n + k]).sum();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// BᵀB + I/10 of a random B.
    fn positive(n: usize) -> Vec<f64> {
        let mut rng = Rng::stream(n as u64, "matrix", 0);
        let b: Vec<f64> = (0..n * n).map(|_| rng.normal()).collect();
        let entry = |i: usize, j: usize| {
            (0..n).map(|k| b[k * n + i] * b[k * n + j]).sum::<f64>() + if i == j { 0.1 } else { 0.0 }
        };
        (0..n * n).map(|at| entry(at / n, at % n)).collect()
    }

    #[test]
    fn a_solved_system_is_solved() {
        for n in [1, 2, 7, 23] {
            let a = positive(n);
            let mut l = a.clone();
            assert!(cholesky(&mut l, n));
            let b: Vec<f64> = (0..n).map(|i| i as f64 - 2.0).collect();
            let mut x = b.clone();
            solve_lower(&l, n, &mut x);
            solve_upper(&l, n, &mut x);
            for i in 0..n {
                let got: f64 = (0..n).map(|j| a[i * n + j] * x[j]).sum();
                assert!((got - b[i]).abs() < 1e-8, "{n} {i}: {got} {}", b[i]);
            }
        }
        assert!(!cholesky(&mut [1.0, 2.0, 2.0, 1.0], 2));
    }

    #[test]
    fn the_root_squares_to_the_matrix_and_small_values_are_raised() {
        for n in [1, 2, 9, 23] {
            let a = positive(n);
            let r = root_floored(a.clone(), n, 0.0);
            for i in 0..n {
                for j in 0..n {
                    let got: f64 = (0..n).map(|k| r[i * n + k] * r[k * n + j]).sum();
                    assert!((got - a[i * n + j]).abs() < 1e-9, "{n}");
                }
            }
        }
        let r = root_floored(vec![4.0, 0.0, 0.0, 0.0], 2, 0.01);
        assert!((r[0] - 2.0).abs() < 1e-12 && (r[3] - 0.2).abs() < 1e-12);
    }
}
