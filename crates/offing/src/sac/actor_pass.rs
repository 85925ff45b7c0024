//! Mean actions at some states that can be taken back: to the states, and into a step of the actor's weights.

use ndarray::s;

use super::{Actor, Sac};
use crate::batch::Mat;
use crate::nn::{PackedMatrix, Shard, ThreadPool, Weights};

/// Room for the actor at some states, forward and back.
#[derive(Debug)]
pub struct ActorPass {
    shards: Vec<(Shard, PackedMatrix)>,
}

impl ActorPass {
    /// Room for `rows` states.
    pub fn new(actor: &Actor, rows: usize, pool: &ThreadPool) -> Self {
        let shape = actor.net.shape();
        let shard = |rows: std::ops::Range<usize>| {
            let dx = PackedMatrix::new(rows.len(), shape.inputs(0));
            (Shard::new(shape, rows, 1), dx)
        };
        Self { shards: pool.shards(rows).map(shard).collect() }
    }

    /// tanh μ(s).
    pub fn forward(&mut self, actor: &Actor, pool: &ThreadPool, obs: &Mat) -> Mat {
        pool.for_each_mut(&mut self.shards, |_, (shard, _)| {
            shard.x.load(obs.view(), shard.rows.start, shard.rows.len(), 0);
            shard.forward(&actor.net, 0, Weights::Current);
        });
        let mut act = Mat::zeros((obs.nrows(), actor.act_dim()));
        for (shard, _) in &self.shards {
            let out = &shard.nets[0].out;
            for (i, row) in shard.rows.clone().enumerate() {
                act.row_mut(row).iter_mut().enumerate().for_each(|(j, a)| *a = out.get(i, j).tanh());
            }
        }
        act
    }

    /// After [`forward`](Self::forward), which gave `act`: from the gradient at the actions to that at the states. The
    /// gradient of the weights waits for [`Sac::train_actor_on`].
    pub fn backward(&mut self, actor: &Actor, pool: &ThreadPool, act: &Mat, dact: &Mat) -> Mat {
        let width = actor.act_dim();
        pool.for_each_mut(&mut self.shards, |_, (shard, dx)| {
            let (first, rows) = (shard.rows.start, shard.rows.len());
            let net = &mut shard.nets[0];
            net.dout.fill_rows(rows, |i, gradient| {
                // σ, in the columns after μ, plays no part.
                gradient.fill(0.0);
                let pairs = act.row(first + i).into_iter().zip(dact.row(first + i));
                gradient[..width].iter_mut().zip(pairs).for_each(|(to, (a, d))| *to = d * (1.0 - a * a));
            });
            net.backward(actor.net.net(0), rows, None);
            net.input_gradient(actor.net.net(0), rows, 0..dx.cols(), dx);
        });
        let mut dobs = Mat::zeros((act.nrows(), actor.obs_dim()));
        for (shard, dx) in &self.shards {
            let mut to = dobs.slice_mut(s![shard.rows.clone(), ..]);
            for (i, mut row) in to.rows_mut().into_iter().enumerate() {
                row.iter_mut().enumerate().for_each(|(j, d)| *d = dx.get(i, j));
            }
        }
        dobs
    }
}

impl Sac {
    /// One step of the actor on the gradients that went back through `passes`, summed in their order.
    pub fn train_actor_on(&mut self, passes: &[ActorPass]) {
        let shards: Vec<&Shard> =
            passes.iter().flat_map(|pass| pass.shards.iter().map(|(shard, _)| shard)).collect();
        let step = self.next_actor_step();
        self.actor.net.train(&self.pool, 0..1, shards.len(), |i| shards[i], &step);
    }
}
