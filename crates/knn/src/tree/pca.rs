//! Principal axes of a sample, in f64: leading eigenvectors of its covariance.

/// Leading `m` eigenvectors of the symmetric `d`×`d` matrix `cov` and their eigenvalues, largest first. The
/// vectors are orthonormal to rounding, which is all that exactness needs; how well they fit only matters for speed.
pub(crate) fn leading_axes(cov: &[f64], d: usize, m: usize) -> (Vec<Vec<f64>>, Vec<f64>) {
    // Jacobi costs ~30 d³: beyond this size iterate on a block of vectors instead.
    const DIRECT: usize = 80;
    if d <= DIRECT {
        let (vectors, values) = jacobi(cov.to_vec(), d);
        return (vectors.into_iter().take(m).collect(), values.into_iter().take(m).collect());
    }
    let block = (m + 8).min(d);
    let mut basis: Vec<Vec<f64>> = (0..block).map(|b| (0..d).map(|i| start(i, b)).collect()).collect();
    orthonormalise(&mut basis);
    for _ in 0..30 {
        basis = basis.iter().map(|v| multiply(cov, d, v)).collect();
        orthonormalise(&mut basis);
    }
    // Rayleigh–Ritz: the best axes inside the block.
    let image: Vec<Vec<f64>> = basis.iter().map(|v| multiply(cov, d, v)).collect();
    let small: Vec<f64> = basis.iter().flat_map(|v| image.iter().map(|w| dot(v, w))).collect();
    let (turn, values) = jacobi(small, block);
    let mut vectors: Vec<Vec<f64>> = turn
        .iter()
        .take(m)
        .map(|t| (0..d).map(|i| t.iter().zip(&basis).map(|(c, v)| c * v[i]).sum()).collect())
        .collect();
    orthonormalise(&mut vectors);
    (vectors, values.into_iter().take(m).collect())
}

/// A fixed, unstructured start: no axis of real data is orthogonal to all of these.
fn start(i: usize, b: usize) -> f64 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (b as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
    let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x >> 11) as f64 / (1u64 << 53) as f64 - 0.5
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn multiply(cov: &[f64], d: usize, v: &[f64]) -> Vec<f64> {
    cov.chunks_exact(d).map(|row| dot(row, v)).collect()
}

/// Gram–Schmidt, twice, with a unit vector in place of one that vanishes.
fn orthonormalise(basis: &mut [Vec<f64>]) {
    let d = basis.first().map_or(0, Vec::len);
    let mut spare = 0;
    for b in 0..basis.len() {
        let (done, rest) = basis.split_at_mut(b);
        let v = &mut rest[0];
        loop {
            let before = dot(v, v);
            for _ in 0..2 {
                for u in done.iter() {
                    let c = dot(u, v);
                    v.iter_mut().zip(u).for_each(|(x, y)| *x -= c * y);
                }
            }
            let after = dot(v, v);
            if after > 1e-20 * before && after > 0.0 && after.is_finite() {
                let scale = 1.0 / after.sqrt();
                v.iter_mut().for_each(|x| *x *= scale);
                break;
            }
            v.fill(0.0);
            v[spare % d] = 1.0;
            spare += 1;
        }
    }
}

/// All eigenvectors of a symmetric matrix by cyclic Jacobi rotations, largest eigenvalue first.
fn jacobi(mut a: Vec<f64>, d: usize) -> (Vec<Vec<f64>>, Vec<f64>) {
    let mut vectors: Vec<Vec<f64>> =
        (0..d).map(|i| (0..d).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    for _ in 0..30 {
        let off: f64 =
            (0..d).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i * d + j].powi(2)).sum();
        let diagonal: f64 = (0..d).map(|i| a[i * d + i].powi(2)).sum();
        if off <= 1e-26 * diagonal {
            break;
        }
        for p in 0..d {
            for q in p + 1..d {
                rotate(&mut a, &mut vectors, d, p, q);
            }
        }
    }
    let mut order: Vec<usize> = (0..d).collect();
    order.sort_by(|&i, &j| a[j * d + j].total_cmp(&a[i * d + i]));
    let values = order.iter().map(|&i| a[i * d + i].max(0.0)).collect();
    (order.into_iter().map(|i| std::mem::take(&mut vectors[i])).collect(), values)
}

fn rotate(a: &mut [f64], vectors: &mut [Vec<f64>], d: usize, p: usize, q: usize) {
    let apq = a[p * d + q];
    if apq == 0.0 {
        return;
    }
    let theta = (a[q * d + q] - a[p * d + p]) / (2.0 * apq);
    let t = if theta.is_finite() { theta.signum() / (theta.abs() + theta.hypot(1.0)) } else { 0.0 };
    let c = 1.0 / t.hypot(1.0);
    let s = t * c;
    for i in 0..d {
        let (x, y) = (a[i * d + p], a[i * d + q]);
        (a[i * d + p], a[i * d + q]) = (c * x - s * y, s * x + c * y);
    }
    for i in 0..d {
        let (x, y) = (a[p * d + i], a[q * d + i]);
        (a[p * d + i], a[q * d + i]) = (c * x - s * y, s * x + c * y);
    }
    let (left, right) = vectors.split_at_mut(q);
    for (x, y) in left[p].iter_mut().zip(right[0].iter_mut()) {
        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covariance(d: usize) -> Vec<f64> {
        // B Bᵀ with decaying columns: full rank, known to be positive.
        let b: Vec<f64> = (0..d * d).map(|i| start(i / d, i % d) / (1.0 + (i % d) as f64)).collect();
        (0..d * d).map(|i| (0..d).map(|k| b[(i / d) * d + k] * b[(i % d) * d + k]).sum()).collect()
    }

    #[test]
    fn axes_are_orthonormal_and_eigen() {
        for (d, m) in [(1, 1), (2, 2), (7, 3), (40, 15), (120, 15)] {
            let cov = covariance(d);
            let (vectors, values) = leading_axes(&cov, d, m);
            for (i, v) in vectors.iter().enumerate() {
                for (j, w) in vectors.iter().enumerate() {
                    assert!((dot(v, w) - f64::from(u8::from(i == j))).abs() < 1e-12, "d {d}: axes {i} {j}");
                }
            }
            // The first axis has converged in any case; later ones only approximately for the block method.
            let image = multiply(&cov, d, &vectors[0]);
            let miss: f64 = image.iter().zip(&vectors[0]).map(|(a, b)| (a - values[0] * b).powi(2)).sum();
            assert!(miss.sqrt() < 1e-6 * values[0], "d {d}: {miss}");
        }
    }

    #[test]
    fn a_zero_matrix_still_gives_axes() {
        let (vectors, values) = leading_axes(&vec![0.0; 100 * 100], 100, 5);
        assert!(vectors.iter().all(|v| (dot(v, v) - 1.0).abs() < 1e-12));
        assert!(values.iter().all(|&v| v == 0.0));
    }
}
