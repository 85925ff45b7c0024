//! Whether the weights of a policy, which may come from a stranger's file, can drive its numbers to infinity.

/// How large a network's numbers can become: weights may be finite and their sums not, and ∞ − ∞ is no action.
#[derive(Clone)]
pub(crate) struct Reach {
    /// Bound of the numbers between two layers.
    most: f64,
    finite: bool,
}

impl Default for Reach {
    /// Beyond any observation in units that someone would choose.
    fn default() -> Self {
        Self { most: 1e6, finite: true }
    }
}

impl Reach {
    /// Through a layer, given the sum of its weights' magnitudes for each output.
    pub(crate) fn layer(&mut self, weights: &[f64], bias: &[f32]) {
        let outputs = weights.iter().zip(bias).map(|(sum, bias)| sum * self.most + f64::from(bias.abs()));
        self.most = outputs.fold(0.0, f64::max);
        self.finite &= self.most < f64::from(f32::MAX);
    }

    /// Through tanh or a normalisation over this many units.
    pub(crate) fn settle(&mut self, units: usize) {
        self.most = (units as f64).sqrt().max(1.0);
    }

    /// Whether no number so far can have been infinite.
    pub(crate) fn is_finite(&self) -> bool {
        self.finite
    }
}
