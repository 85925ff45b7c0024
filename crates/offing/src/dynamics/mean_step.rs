//! A step of the ensemble's means that can be taken back: how a loss of imagined states reaches the actions that led there.

use ndarray::Array1;

use super::ensemble::Ensemble;
use crate::batch::Mat;
use crate::nn::{PackedMatrix, Shard, Weights};

/// Room for a step of some rows, forward and back. Rows are shared out among the elites in equal blocks, so
/// with one turn for all its steps a trajectory is one member's.
#[derive(Debug)]
pub struct MeanStep {
    blocks: Vec<Block>,
}

/// The rows of one member.
#[derive(Debug)]
struct Block {
    member: usize,
    shard: Shard,
    /// Gradient at the network's input.
    dx: PackedMatrix,
}

/// The gradient of a loss at what went into a step.
#[derive(Clone, Debug)]
pub struct StepGradient {
    /// At the states.
    pub obs: Mat,
    /// At the actions.
    pub act: Mat,
}

impl MeanStep {
    /// Room for `rows` rows.
    pub fn new(model: &Ensemble, rows: usize) -> Self {
        let (elites, shape) = (model.elites(), model.stack.shape());
        let edge = |i: usize| i * rows / elites.len();
        let block = |(i, &member): (usize, &usize)| {
            let rows = edge(i)..edge(i + 1);
            let dx = PackedMatrix::new(rows.len(), shape.inputs(0));
            Block { member, shard: Shard::new(shape, rows, 1), dx }
        };
        Self { blocks: elites.iter().enumerate().map(block).filter(|b| !b.shard.rows.is_empty()).collect() }
    }

    /// Gives each block the member that stands `turn` places further on in the list of elites.
    pub fn turn(&mut self, model: &Ensemble, turn: usize) {
        let elites = model.elites();
        for (i, block) in self.blocks.iter_mut().enumerate() {
            block.member = elites[(i + turn) % elites.len()];
        }
    }

    /// The mean next states and rewards.
    pub fn forward(&mut self, model: &Ensemble, obs: &Mat, act: &Mat) -> (Mat, Array1<f32>) {
        model.pool.for_each_mut(&mut self.blocks, |_, Block { member, shard, .. }| {
            for (i, row) in shard.rows.clone().enumerate() {
                model.scaler.load(obs, act, row, &mut shard.x, i);
            }
            shard.forward(&model.stack, *member, Weights::Current);
        });
        let width = model.obs_dim();
        let (mut next, mut rew) = (obs.clone(), Array1::zeros(obs.nrows()));
        for Block { shard, .. } in &self.blocks {
            let out = &shard.nets[0].out;
            for (i, row) in shard.rows.clone().enumerate() {
                // The network predicts the change.
                next.row_mut(row).iter_mut().enumerate().for_each(|(j, x)| *x += out.get(i, j));
                rew[row] = out.get(i, width);
            }
        }
        (next, rew)
    }

    /// After [`forward`](Self::forward): from the gradient at the next states and rewards to that at states and actions.
    pub fn backward(&mut self, model: &Ensemble, dnext: &Mat, drew: &Array1<f32>) -> StepGradient {
        let (width, transposed) = (model.obs_dim(), model.transposed());
        model.pool.for_each_mut(&mut self.blocks, |_, Block { member, shard, dx }| {
            let (net, rows) = (&mut shard.nets[0], shard.rows.len());
            let first = shard.rows.start;
            net.dout.fill_rows(rows, |i, gradient| {
                // Deviations, in the columns after the means, play no part.
                gradient.fill(0.0);
                gradient.iter_mut().zip(dnext.row(first + i)).for_each(|(to, d)| *to = *d);
                gradient[width] = drew[first + i];
            });
            net.backward_to_input(model.stack.net(*member), &transposed[*member], rows, dx);
        });
        let mut gradient =
            StepGradient { obs: dnext.clone(), act: Mat::zeros((drew.len(), model.act_dim())) };
        for Block { shard, dx, .. } in &self.blocks {
            for (i, row) in shard.rows.clone().enumerate() {
                for (j, slope) in model.scaler.slopes().iter().enumerate() {
                    let d = dx.get(i, j) * slope;
                    if j < width {
                        gradient.obs[[row, j]] += d;
                    } else {
                        gradient.act[[row, j - width]] = d;
                    }
                }
            }
        }
        gradient
    }

    /// The member that makes each row.
    pub fn members(&self) -> Array1<u32> {
        self.blocks.iter().flat_map(|b| b.shard.rows.clone().map(|_| b.member as u32)).collect()
    }
}
