//! What a network computes for some rows, forward and backward.

use super::backward::{Backward, Slope, Transposed, backward};
use super::buffer::{Buf, LANES};
use super::layer::{Activation, Forward, Weights, forward};
use super::layer_norm::{Denormalise, Normalise, Normalised, denormalise, normalise};
use super::mlp_ensemble::Net;
use super::packed_matrix::PackedMatrix;
use super::shape::Shape;

/// What a network computed for some rows, and the gradients on the way back.
#[derive(Clone, Debug)]
pub struct Activations {
    pub(super) hidden: Vec<PackedMatrix>,
    /// Which of `hidden` a layer writes. Without a backward pass, two buffers take turns and stay in the cache.
    slot: Vec<usize>,
    slope: Vec<PackedMatrix>,
    /// Of layers with normalisation.
    normalised: Vec<Normalised>,
    delta: Vec<PackedMatrix>,
    pack: Buf,
    /// The network's output.
    pub out: PackedMatrix,
    /// The loss's gradient at the output: to be filled before [`Activations::backward`].
    pub dout: PackedMatrix,
}

impl Activations {
    /// Room for `rows` rows, forward and backward.
    pub fn new(shape: &Shape, rows: usize) -> Self {
        let hidden = || (0..shape.layers() - 1).map(|l| PackedMatrix::new(rows, shape.outputs(l)));
        let outputs = shape.outputs(shape.layers() - 1);
        let widest = shape.sizes[1..].iter().max().copied().unwrap_or(0);
        Self {
            hidden: hidden().collect(),
            slot: (0..shape.layers() - 1).collect(),
            slope: if shape.activation == Activation::Silu { hidden().collect() } else { Vec::new() },
            normalised: match shape.layer_norm {
                true => (0..shape.layers() - 1).map(|l| Normalised::new(rows, shape.outputs(l))).collect(),
                false => Vec::new(),
            },
            delta: hidden().collect(),
            pack: Buf::zeros(2 * widest.div_ceil(LANES) * LANES * LANES),
            out: PackedMatrix::new(rows, outputs),
            dout: PackedMatrix::new(rows, outputs),
        }
    }

    /// Room for `rows` rows, forward only.
    pub fn forward_only(shape: &Shape, rows: usize) -> Self {
        let (mut hidden, mut slot) = (Vec::<PackedMatrix>::new(), Vec::<usize>::new());
        for l in 0..shape.layers() - 1 {
            let size = shape.outputs(l);
            let free = (0..hidden.len()).find(|&b| hidden[b].cols() == size && slot.last() != Some(&b));
            slot.push(free.unwrap_or(hidden.len()));
            if free.is_none() {
                hidden.push(PackedMatrix::new(rows, size));
            }
        }
        let outputs = shape.outputs(shape.layers() - 1);
        let (out, dout) = (PackedMatrix::new(rows, outputs), PackedMatrix::new(0, outputs));
        let (slope, normalised, delta) = (Vec::new(), Vec::new(), Vec::new());
        Self { hidden, slot, slope, normalised, delta, pack: Buf::default(), out, dout }
    }

    /// Runs the first `rows` rows of `x` through the network into `out`.
    pub fn forward(&mut self, net: Net<'_>, which: Weights, x: &PackedMatrix, rows: usize) {
        let last = net.shape.layers() - 1;
        for l in 0..=last {
            let layer = net.layer(l);
            let to = self.slot.get(l).copied();
            let from = l.checked_sub(1).map(|l| self.slot[l]);
            let normalised = net.shape.layer_norm && to.is_some();
            let activation = to.map(|_| net.shape.activation).filter(|_| !normalised);
            let mut slope = self.slope.get_mut(l);
            let (x, y) = match (from, to) {
                (None, None) => (x, &mut self.out),
                (None, Some(to)) => (x, &mut self.hidden[to]),
                (Some(from), None) => (&self.hidden[from], &mut self.out),
                (Some(from), Some(to)) => {
                    let pair = self.hidden.get_disjoint_mut([from, to]);
                    let [x, y] = pair.expect("a layer reads one buffer and writes another");
                    (&*x, y)
                }
            };
            let early = if normalised { None } else { slope.take() };
            forward(net.simd(), Forward { x, rows, layer, which, y, activation, slope: early });
            if normalised {
                let (activation, keep) = (net.shape.activation, self.normalised.get_mut(l));
                normalise(net.simd(), Normalise { y, rows, activation, keep, slope });
            }
        }
    }

    /// Takes `dout` back to the output of the first layer. With `map`, row i of `dout` and of everything computed
    /// here belongs to row `map[i]` of the forward pass (ReLU networks only).
    pub fn backward(&mut self, net: Net<'_>, rows: usize, map: Option<&[u32]>) {
        self.backward_with(net, (Weights::Current, None), rows, map);
    }

    /// [`Activations::backward`] and [`Activations::input_gradient`] at all columns, with the weights transposed before.
    pub fn backward_to_input(
        &mut self,
        net: Net<'_>,
        transposed: &Transposed,
        rows: usize,
        dx: &mut PackedMatrix,
    ) {
        let by = (Weights::Current, Some(transposed));
        self.backward_with(net, by, rows, None);
        self.input_gradient_with(net, by, rows, 0..dx.cols(), dx);
    }

    /// [`Activations::backward`] through the given copy of the weights, the one that went forward.
    pub fn backward_by(&mut self, net: Net<'_>, which: Weights, rows: usize, map: Option<&[u32]>) {
        self.backward_with(net, (which, None), rows, map);
    }

    fn backward_with(
        &mut self,
        net: Net<'_>,
        (which, transposed): (Weights, Option<&Transposed>),
        rows: usize,
        map: Option<&[u32]>,
    ) {
        for l in (1..net.shape.layers()).rev() {
            let slope = match self.slope.get(l - 1) {
                Some(stored) => {
                    assert!(map.is_none(), "stored slopes are not gathered");
                    Slope::Stored(stored)
                }
                None if net.shape.activation == Activation::Tanh => {
                    assert!(map.is_none(), "only steps are gathered");
                    Slope::Tanh(&self.hidden[l - 1])
                }
                None => Slope::Step(&self.hidden[l - 1], map),
            };
            let (below, above) = self.delta.split_at_mut(l);
            let (dy, dx) = (above.first().unwrap_or(&self.dout), &mut below[l - 1]);
            let (layer, panels) = (net.layer(l), 0..net.shape.inputs(l).div_ceil(LANES));
            let (pack, transposed) = (&mut self.pack, transposed.map(|all| all.layer(l)));
            backward(net.simd(), Backward { dy, rows, layer, which, panels, slope, dx, pack, transposed });
            if let Some(kept) = self.normalised.get(l - 1) {
                denormalise(net.simd(), Denormalise { kept, rows, map, dx });
            }
        }
    }

    /// After [`Activations::backward`]: the loss's gradient at columns `cols` of the network's input, into `dx` (other
    /// columns of the panels concerned are filled too).
    pub fn input_gradient(
        &mut self,
        net: Net<'_>,
        rows: usize,
        cols: std::ops::Range<usize>,
        dx: &mut PackedMatrix,
    ) {
        self.input_gradient_by(net, Weights::Current, rows, cols, dx);
    }

    /// [`Activations::input_gradient`] after [`Activations::backward_by`] the same weights.
    pub fn input_gradient_by(
        &mut self,
        net: Net<'_>,
        which: Weights,
        rows: usize,
        cols: std::ops::Range<usize>,
        dx: &mut PackedMatrix,
    ) {
        self.input_gradient_with(net, (which, None), rows, cols, dx);
    }

    fn input_gradient_with(
        &mut self,
        net: Net<'_>,
        (which, transposed): (Weights, Option<&Transposed>),
        rows: usize,
        cols: std::ops::Range<usize>,
        dx: &mut PackedMatrix,
    ) {
        let dy = self.delta.first().unwrap_or(&self.dout);
        let panels = cols.start / LANES..cols.end.div_ceil(LANES);
        let (layer, slope, pack) = (net.layer(0), Slope::One, &mut self.pack);
        let transposed = transposed.map(|all| all.layer(0));
        backward(net.simd(), Backward { dy, rows, layer, which, panels, slope, dx, pack, transposed });
    }

    /// Input of layer `l` (`x` for the first) and the loss's gradient at its output: what a weight gradient needs.
    pub(super) fn source<'s>(
        &'s self,
        l: usize,
        x: &'s PackedMatrix,
    ) -> (&'s PackedMatrix, &'s PackedMatrix) {
        let input = if l == 0 { x } else { &self.hidden[l - 1] };
        (input, self.delta.get(l).unwrap_or(&self.dout))
    }
}
