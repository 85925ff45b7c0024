//! How a loss of the critics' values changes with the states and actions that they look at.

use ndarray::ArrayView1;

use super::Sac;
use crate::batch::Mat;
use crate::nn::{Activations, PackedMatrix, Weights};

/// Rows that are taken forward and back together: what a network computes for them stays in a core's own cache.
const CHUNK: usize = 128;

/// Room for one critic at some rows, forward and back.
#[derive(Debug)]
pub(super) struct CriticRoom {
    x: PackedMatrix,
    net: Activations,
    dx: PackedMatrix,
}

/// One critic and some rows that its gradient flows to.
struct Task<'a> {
    critic: usize,
    rows: &'a [u32],
    /// ∂loss/∂(s, a) of these rows, flat.
    gradient: Vec<f32>,
}

impl Sac {
    /// The gradient of a loss of the critics' values at the states and actions that they look at. `loss` gets Q (critics ×
    /// rows), fills ∂loss/∂Q, which starts as zeros, and its result comes back after the gradients at s and a. No weight
    /// changes.
    ///
    /// What critics compute on the way to Q is forgotten and computed again for the rows where ∂loss/∂Q is not 0: with the
    /// smallest critic's value that is once for each row, and takes less time than to keep it all.
    pub fn value_gradient<T>(
        &self,
        which: Weights,
        (obs, act): (&Mat, &Mat),
        loss: impl FnOnce(&Mat, &mut Mat) -> T,
    ) -> (Mat, Mat, T) {
        let q = self.q_values(which, obs.view(), act.view());
        let mut dq = Mat::zeros(q.dim());
        let found = loss(&q, &mut dq);
        let flows = |slopes: ArrayView1<'_, f32>| -> Vec<u32> {
            (0..slopes.len() as u32).filter(|&row| slopes[row as usize] != 0.0).collect()
        };
        let chosen: Vec<Vec<u32>> = dq.rows().into_iter().map(flows).collect();
        let mut tasks = Vec::new();
        for (critic, rows) in chosen.iter().enumerate() {
            tasks.extend(rows.chunks(CHUNK).map(|rows| Task { critic, rows, gradient: Vec::new() }));
        }
        let shape = self.critics.shape();
        let (obs_dim, width) = (obs.ncols(), shape.inputs(0));
        let room = || CriticRoom {
            x: PackedMatrix::new(CHUNK, width),
            net: Activations::new(shape, CHUNK),
            dx: PackedMatrix::new(CHUNK, width),
        };
        self.pool.for_each_mut(&mut tasks, |_, task| {
            self.rooms.with(room, |CriticRoom { x, net, dx }| {
                let (critic, rows) = (self.critics.net(task.critic), task.rows);
                for (i, &row) in rows.iter().enumerate() {
                    for (at, matrix) in [(0, obs), (obs_dim, act)] {
                        let values = matrix.row(row as usize);
                        match values.as_slice() {
                            Some(values) => x.load_row(i, values, at),
                            None => x.load_row(i, &values.to_vec(), at),
                        }
                    }
                    net.dout.set(i, 0, dq[[task.critic, row as usize]]);
                }
                net.forward(critic, which, x, rows.len());
                net.backward_by(critic, which, rows.len(), None);
                net.input_gradient_by(critic, which, rows.len(), 0..width, dx);
                task.gradient.resize(rows.len() * width, 0.0);
                dx.store_flat(&mut task.gradient, width, 0);
            });
        });
        let (mut dobs, mut dact) = (Mat::zeros(obs.dim()), Mat::zeros(act.dim()));
        for Task { rows, gradient, .. } in tasks {
            for (&row, gradient) in rows.iter().zip(gradient.chunks_exact(width)) {
                let (mut dobs, mut dact) = (dobs.row_mut(row as usize), dact.row_mut(row as usize));
                dobs.iter_mut().chain(&mut dact).zip(gradient).for_each(|(to, d)| *to += d);
            }
        }
        (dobs, dact, found)
    }
}
