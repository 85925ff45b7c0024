//! Least squares by Adam: how the baseline learns returns and how a policy's mean learns the dataset's actions.

use crate::error::Result;
use crate::nn::{
    Activations, AdamConfig, AdamStep, Keep, MlpEnsemble, PackedMatrix, Shape, Tensors, ThreadPool,
    TrainStep, Weights,
};
use crate::rng::Rng;

/// A network under training.
#[derive(Debug)]
pub(super) struct Regression {
    pub(super) stack: MlpEnsemble,
    /// Steps taken by the optimiser.
    pub(super) steps: u64,
    pub(super) lr: f64,
    /// Weight decay of every layer.
    pub(super) decay: f32,
}

/// One thread's share of a batch.
struct Part {
    rows: std::ops::Range<usize>,
    x: PackedMatrix,
    trace: Activations,
    loss: Vec<f64>,
}

impl Part {
    fn new(shape: &Shape, rows: std::ops::Range<usize>) -> Self {
        let n = rows.len();
        Self {
            rows,
            x: PackedMatrix::new(n, shape.inputs(0)),
            trace: Activations::new(shape, n),
            loss: vec![0.0; n],
        }
    }
}

impl Regression {
    /// Trains the first network of `stack`, with fresh moments.
    pub(super) fn of(stack: &MlpEnsemble, lr: f64, decay: f32) -> Self {
        let mut trained = MlpEnsemble::zeros(stack.shape().clone(), 1, Keep::Moments);
        trained.copy_weights(0, stack, 0);
        Self { stack: trained, steps: 0, lr, decay }
    }

    /// One pass over `rows` rows in random order, in batches of `batch`; returns the mean squared error on the way.
    ///
    /// `load(row, x, to)` puts a row's inputs into row `to` of `x`; `target(row, j)` is its j-th wanted output. `tick` is
    /// called after every batch; an error it returns ends the pass.
    pub(super) fn pass(
        &mut self,
        pool: &ThreadPool,
        (rows, batch): (usize, usize),
        load: impl Fn(usize, &mut PackedMatrix, usize) + Sync,
        target: impl Fn(usize, usize) -> f32 + Sync,
        rng: &mut Rng,
        tick: &mut dyn FnMut() -> Result<()>,
    ) -> Result<f64> {
        let mut order: Vec<usize> = (0..rows).collect();
        (1..rows).rev().for_each(|i| order.swap(i, rng.below(i + 1)));
        let width = self.stack.shape().outputs(self.stack.shape().layers() - 1);
        let decay = vec![self.decay; self.stack.shape().layers()];
        let (mut total, mut parts) = (0.0, Vec::<Part>::new());
        for picks in order.chunks(batch) {
            let (n, count) = (picks.len(), pool.parts(picks.len()));
            if parts.last().is_none_or(|p| p.rows.end != n) {
                let share = |i: usize| i * n / count..(i + 1) * n / count;
                parts = (0..count).map(|i| Part::new(self.stack.shape(), share(i))).collect();
            }
            let net = self.stack.net(0);
            pool.for_each_mut(&mut parts, |_, p| {
                let (picks, rows) = (&picks[p.rows.clone()], p.rows.len());
                picks.iter().enumerate().for_each(|(k, &row)| load(row, &mut p.x, k));
                p.trace.forward(net, Weights::Current, &p.x, rows);
                for (k, &row) in picks.iter().enumerate() {
                    p.loss[k] = 0.0;
                    for j in 0..width {
                        let at = p.trace.out.at(k, j);
                        let miss = p.trace.out.data()[at] - target(row, j);
                        p.trace.dout.data_mut()[at] = 2.0 * miss / (n * width) as f32;
                        p.loss[k] += f64::from(miss).powi(2) / width as f64;
                    }
                }
                p.trace.backward(net, rows, None);
            });
            parts.iter().flat_map(|p| &p.loss).for_each(|l| total += l);
            self.steps += 1;
            let adam = AdamStep::new(&AdamConfig::default(), self.lr, self.steps);
            let source = |_: usize, l: usize, part: usize| {
                let part = &parts[part];
                let (x, dy) = part.trace.source(l, &part.x);
                (x, dy, part.rows.len())
            };
            self.stack.train(pool, 0..1, parts.len(), source, &TrainStep { adam, decay: &decay, tau: None });
            tick()?;
        }
        Ok(total / rows.max(1) as f64)
    }

    /// Weights, moments and steps, for a checkpoint.
    pub(super) fn save(&self) -> Tensors {
        let mut out = Tensors::default();
        self.stack.save("net", &mut out);
        out.put_u64("steps", &[self.steps]);
        out
    }

    /// Takes back what [`Regression::save`] gave.
    pub(super) fn load(&mut self, from: &Tensors) -> Result<()> {
        let steps = from.u64("steps", 1)?[0];
        self.stack.load("net", from)?;
        self.steps = steps;
        Ok(())
    }
}
