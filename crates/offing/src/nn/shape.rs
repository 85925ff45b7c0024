//! The shape of a network: widths, activation, and the order in which its panels are kept.

use super::buffer::LANES;
use super::layer::Activation;

/// Layer widths and activation of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub(super) sizes: Vec<usize>,
    pub(super) activation: Activation,
    pub(super) layer_norm: bool,
    /// Layer and index in it of every panel of a network, in storage order.
    pub(super) units: Vec<(usize, usize)>,
    /// Where each layer's panels start.
    pub(super) first: Vec<usize>,
    /// Where pairs of panels of one layer end, and the last panel of a layer that has no other.
    pub(super) pair_ends: Vec<usize>,
}

impl Shape {
    /// A network of `inputs`, then hidden layers, then linear `outputs`.
    pub fn new(inputs: usize, hidden: &[usize], outputs: usize, activation: Activation) -> Self {
        let sizes: Vec<usize> =
            std::iter::once(inputs).chain(hidden.iter().copied()).chain(std::iter::once(outputs)).collect();
        assert!(sizes.iter().all(|&s| s > 0), "layers must not be empty: {sizes:?}");
        // Wide layers first: threads take panels in this order and should end on small ones.
        let mut layers: Vec<usize> = (0..sizes.len() - 1).collect();
        layers.sort_by_key(|&l| std::cmp::Reverse(sizes[l]));
        let (mut units, mut first) = (Vec::new(), vec![0; layers.len()]);
        for l in layers {
            first[l] = units.len();
            units.extend((0..sizes[l + 1].div_ceil(LANES)).map(|p| (l, p)));
        }
        let mut end = 0;
        let pairs = units.chunk_by(|a, b| a.0 == b.0).flat_map(|layer| layer.chunks(2));
        let pair_ends = pairs
            .map(|pair| {
                end += pair.len();
                end
            })
            .collect();
        Self { sizes, activation, layer_norm: false, units, first, pair_ends }
    }

    /// The same with or without layer normalisation: every hidden layer is linear, then normalised, then activated.
    #[must_use]
    pub fn with_layer_norm(self, layer_norm: bool) -> Self {
        Self { layer_norm, ..self }
    }

    /// Whether hidden layers are normalised.
    pub fn layer_norm(&self) -> bool {
        self.layer_norm
    }

    /// Number of weight layers.
    pub fn layers(&self) -> usize {
        self.sizes.len() - 1
    }

    /// Activation of the hidden layers.
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// Inputs of layer `l`.
    pub fn inputs(&self, l: usize) -> usize {
        self.sizes[l]
    }

    /// Outputs of layer `l`.
    pub fn outputs(&self, l: usize) -> usize {
        self.sizes[l + 1]
    }

    /// Multiply-adds of one forward pass of one row.
    pub fn multiplies(&self) -> usize {
        self.sizes.windows(2).map(|w| w[0] * w[1]).sum()
    }

    /// Multiply-adds of one training pass of one row: each layer's product, its weights' gradient and, except for the
    /// first, its input's gradient.
    pub fn training_multiplies(&self) -> usize {
        3 * self.multiplies() - self.sizes[0] * self.sizes[1]
    }

    pub(super) fn lanes(&self, l: usize) -> usize {
        if self.outputs(l) == 1 { 1 } else { LANES }
    }
}
