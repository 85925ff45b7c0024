//! How a network's output moves when its weights move: the directional derivative J·v, for tanh networks.
//!
//! Together with [`Activations::backward`] (Jᵀ·u) it gives products with the Fisher matrix of a Gaussian policy:
//! F·v = Jᵀ Σ⁻¹ J v. Layer by layer, with h the activations of the forward pass,
//! dz = h·V + dh·W and dh' = (1 − h'²) ∘ dz, where V is the direction's share of the layer.

use super::activations::Activations;
use super::backward::{Slope, scale};
use super::buffer::{LANES, write};
use super::layer::{Activation, Panel};
use super::matmul::{Kernel, dispatch, tiles};
use super::mlp_ensemble::{Field, MlpEnsemble, Net};
use super::packed_matrix::PackedMatrix;
use super::shape::Shape;

/// Room for the derivatives of one [`Activations`].
#[derive(Clone, Debug)]
pub struct Jvp {
    hidden: Vec<PackedMatrix>,
    /// How the network's output moves.
    pub out: PackedMatrix,
}

impl Jvp {
    /// Room for `rows` rows.
    pub fn new(shape: &Shape, rows: usize) -> Self {
        let layers = shape.layers();
        Self {
            hidden: (0..layers - 1).map(|l| PackedMatrix::new(rows, shape.outputs(l))).collect(),
            out: PackedMatrix::new(rows, shape.outputs(layers - 1)),
        }
    }

    /// Fills `out` with the derivative along `direction` at the weights of `net`, for the rows of the forward pass that
    /// `trace` holds (made with the way back; tanh networks only).
    pub fn along(
        &mut self,
        net: Net<'_>,
        direction: Net<'_>,
        trace: &Activations,
        x: &PackedMatrix,
        rows: usize,
    ) {
        assert!(net.shape.activation == Activation::Tanh, "the slope of other activations is not at hand");
        assert!(!net.shape.layer_norm, "networks without layer normalisation only");
        assert!(net.shape == direction.shape, "a direction has the network's shape");
        for l in 0..net.shape.layers() {
            let h = if l == 0 { x } else { &trace.hidden[l - 1] };
            let (below, above) = self.hidden.split_at_mut(l);
            let (y, slope) = match above.first_mut() {
                Some(y) => (y, Slope::Tanh(&trace.hidden[l])),
                None => (&mut self.out, Slope::One),
            };
            let (dh, w, v) = (below.last(), net.layer(l), direction.layer(l));
            push(net.simd(), Push { h, dh, rows, w, v, slope, y });
        }
    }
}

/// `y = (h·V + dh·W) ∘ slope`; no `dh` for the first layer, whose input does not move.
pub(super) struct Push<'a> {
    pub h: &'a PackedMatrix,
    pub dh: Option<&'a PackedMatrix>,
    pub rows: usize,
    pub w: &'a [Panel],
    pub v: &'a [Panel],
    pub slope: Slope<'a>,
    pub y: &'a mut PackedMatrix,
}

dispatch!(
    /// Runs a derivative through a layer.
    pub(super) push, push_wide, (p: Push<'_>)
);

#[inline(always)]
fn push_wide<K: Kernel>(p: Push<'_>) {
    let Push { h, dh, rows, w, v, slope, y } = p;
    let inputs = h.cols();
    if y.cols() == 1 {
        return push_column(h, dh, rows, &w[0].w, &v[0].w, y);
    }
    assert!(rows <= h.capacity() && rows <= y.capacity() && w.len() == v.len());
    assert!(dh.is_none_or(|dh| dh.cols() == inputs && rows <= dh.capacity()));
    assert!(w.len() == y.cols().div_ceil(LANES));
    for (panel, (w, v)) in w.iter().zip(v).enumerate() {
        assert!(w.w.len() >= (inputs + 1) * LANES && v.w.len() >= (inputs + 1) * LANES);
        for (row, height) in tiles(rows, K::ROWS[0]) {
            let mut sums = [K::ZEROS];
            // SAFETY: row + height ≤ rows ≤ the capacity of h and dh; h has inputs + 1 columns in its panels, dh has
            // `inputs`; both weights were checked to have as many rows.
            unsafe {
                let a = h.data().as_ptr().add(row * LANES);
                let jump = h.capacity() * LANES;
                K::accumulate::<1, LANES, 1>(height, a, [v.w.as_ptr()], inputs + 1, jump, true, &mut sums);
                if let Some(dh) = dh {
                    let a = dh.data().as_ptr().add(row * LANES);
                    let jump = dh.capacity() * LANES;
                    K::accumulate::<1, LANES, 1>(height, a, [w.w.as_ptr()], inputs, jump, false, &mut sums);
                }
            }
            let first = (panel * y.capacity() + row) * LANES;
            for (i, &line) in sums[0].as_ref()[..height].iter().enumerate() {
                write(y.data_mut(), first + i * LANES, scale(line, slope, panel, row + i));
            }
        }
    }
}

/// A layer with one output, which has no activation after it.
#[inline(always)]
fn push_column(
    h: &PackedMatrix,
    dh: Option<&PackedMatrix>,
    rows: usize,
    w: &[f32],
    v: &[f32],
    y: &mut PackedMatrix,
) {
    for row in 0..rows {
        let inputs = h.cols();
        let mut sum = v[inputs];
        for k in 0..inputs {
            sum += h.get(row, k) * v[k] + dh.map_or(0.0, |dh| dh.get(row, k) * w[k]);
        }
        y.set(row, 0, sum);
    }
}

impl MlpEnsemble {
    /// Number of weights and biases of one network.
    pub fn params(&self) -> usize {
        (0..self.shape().layers()).map(|l| (self.shape().inputs(l) + 1) * self.shape().outputs(l)).sum()
    }

    /// Weights and biases of network `net` in one run: layer after layer, the weight (outputs × inputs), then the bias.
    pub fn flat(&self, net: usize) -> Vec<f32> {
        let layers = (0..self.shape().layers()).map(|l| self.get(net, l, Field::Weight));
        layers.flat_map(|(weight, bias)| weight.into_iter().chain(bias)).collect()
    }

    /// Σ of the first network's weights over all `terms`, in their order and in f64, laid out as by [`MlpEnsemble::flat`].
    pub(crate) fn sum<'s>(mut terms: impl Iterator<Item = &'s MlpEnsemble>) -> Vec<f64> {
        let Some(first) = terms.next() else { return Vec::new() };
        let wide = |panel: &Panel| panel.w.iter().map(|&w| f64::from(w)).collect::<Vec<f64>>();
        let mut totals: Vec<Vec<f64>> = first.panels.iter().map(wide).collect();
        for term in terms {
            for (total, panel) in totals.iter_mut().zip(&term.panels) {
                total.iter_mut().zip(panel.w.iter()).for_each(|(t, &w)| *t += f64::from(w));
            }
        }
        let shape = first.shape();
        let mut flat = Vec::with_capacity(first.params());
        for l in 0..shape.layers() {
            let (inputs, outputs, lanes) = (shape.inputs(l), shape.outputs(l), shape.lanes(l));
            let at = |k: usize, j: usize| totals[shape.first[l] + j / LANES][k * lanes + j % lanes];
            (0..outputs).for_each(|j| flat.extend((0..inputs).map(|k| at(k, j))));
            flat.extend((0..outputs).map(|j| at(inputs, j)));
        }
        flat
    }

    /// Sets what [`MlpEnsemble::flat`] gets.
    pub fn set_flat(&mut self, net: usize, mut params: &[f32]) {
        assert_eq!(params.len(), self.params(), "one number a parameter");
        for l in 0..self.shape().layers() {
            let (inputs, outputs) = (self.shape().inputs(l), self.shape().outputs(l));
            let (weight, rest) = params.split_at(inputs * outputs);
            let (bias, rest) = rest.split_at(outputs);
            self.set(net, l, Field::Weight, weight, bias);
            params = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Init, Keep, Simd, Weights};
    use super::*;
    use crate::rng::Rng;

    /// The output of a tanh network in f64.
    fn plain(params: &[f64], sizes: &[usize], x: &[f64]) -> Vec<f64> {
        let (mut x, mut at) = (x.to_vec(), 0);
        for (l, pair) in sizes.windows(2).enumerate() {
            let (inputs, outputs) = (pair[0], pair[1]);
            let (weight, bias) = params[at..at + (inputs + 1) * outputs].split_at(inputs * outputs);
            at += (inputs + 1) * outputs;
            let z = (0..outputs).map(|j| {
                bias[j] + weight[j * inputs..][..inputs].iter().zip(&x).map(|(w, x)| w * x).sum::<f64>()
            });
            x = z.map(|z| if l + 2 == sizes.len() { z } else { z.tanh() }).collect();
        }
        x
    }

    #[test]
    fn the_derivative_along_a_direction_equals_finite_differences() {
        let shapes: [&[usize]; 4] = [&[5, 18, 7, 3], &[23, 33, 1], &[4, 16, 32, 36], &[3, 2]];
        for (sizes, simd) in shapes.iter().flat_map(|s| Simd::all().into_iter().map(move |simd| (*s, simd))) {
            let mut rng = Rng::stream(1, "tangent", sizes.len() as u64);
            let (inputs, outputs, rows) = (sizes[0], sizes[sizes.len() - 1], 13);
            let shape = Shape::new(inputs, &sizes[1..sizes.len() - 1], outputs, Activation::Tanh);
            let mut draw = || {
                MlpEnsemble::new(
                    shape.clone(),
                    1,
                    Init::Uniform,
                    Keep::Weights,
                    &mut Rng::stream(rng.bits(), "", 0),
                )
            };
            let (net, direction) = (draw().with_simd(simd), draw().with_simd(simd));
            let mut x = PackedMatrix::new(rows + 2, inputs);
            let flat: Vec<f32> = (0..rows * inputs).map(|_| rng.normal() as f32).collect();
            x.load_flat(&flat, inputs, 0);
            let mut trace = Activations::new(&shape, rows + 2);
            trace.forward(net.net(0), Weights::Current, &x, rows);
            let mut tangent = Jvp::new(&shape, rows + 2);
            tangent.along(net.net(0), direction.net(0), &trace, &x, rows);
            let wide = |v: Vec<f32>| v.into_iter().map(f64::from).collect::<Vec<_>>();
            let (theta, v) = (wide(net.flat(0)), wide(direction.flat(0)));
            assert_eq!(theta.len(), net.params());
            for row in 0..rows {
                let x = wide(flat[row * inputs..][..inputs].to_vec());
                let at = |step: f64| {
                    let moved: Vec<f64> = theta.iter().zip(&v).map(|(t, v)| t + step * v).collect();
                    plain(&moved, sizes, &x)
                };
                let (up, down) = (at(1e-5), at(-1e-5));
                for col in 0..outputs {
                    let numeric = (up[col] - down[col]) / 2e-5;
                    let got = f64::from(tangent.out.get(row, col));
                    assert!((got - numeric).abs() < 2e-5 * (1.0 + numeric.abs()), "{got} against {numeric}");
                }
            }
        }
    }

    #[test]
    fn parameters_in_one_run_come_back() {
        let shape = || Shape::new(3, &[20, 5], 2, Activation::Tanh);
        let mut rng = Rng::stream(0, "flat", 0);
        let stack = MlpEnsemble::new(shape(), 1, Init::Uniform, Keep::Weights, &mut rng);
        let mut other = MlpEnsemble::zeros(shape(), 1, Keep::Weights);
        other.set_flat(0, &stack.flat(0));
        assert_eq!(stack.flat(0), other.flat(0));
        assert_eq!(stack.get(0, 1, Field::Weight), other.get(0, 1, Field::Weight));
        let wanted: Vec<f64> = stack.flat(0).iter().map(|&w| 2.0 * f64::from(w)).collect();
        assert_eq!(MlpEnsemble::sum([&stack, &other].into_iter()), wanted);
    }
}
