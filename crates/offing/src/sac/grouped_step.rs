//! A step of the critics on thousands of rows that come in groups, such as a state with many actions.
//!
//! A loss that looks at one critic and one group at a time lets some groups go forward, back and into the gradient while they
//! are in a core's cache, and leave nothing behind but a sum. All rows at once would go through memory four times.

use std::ops::Range;

use super::Sac;
use crate::nn::{Keep, MlpEnsemble, ScratchPool, Shard, TrainStep, Weights};

/// Rows that go through a network together: their activations fit a core's own cache.
const CHUNK: usize = 128;
/// Rows of which one thread sums the gradient. Parts are summed in order, so results do not depend on the threads.
const PART: usize = 1024;

/// Where groups of rows begin, and how they are cut.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// The groups of each chunk, and the chunks of each part.
    chunks: Vec<Range<usize>>,
    parts: Vec<Range<usize>>,
    /// One sum for each part.
    gradients: Vec<MlpEnsemble>,
    scratch: ScratchPool<Shard>,
}

impl Groups {
    /// Cuts groups of so many rows each: chunks of whole groups, parts of whole chunks.
    fn cut(&mut self, sizes: impl Iterator<Item = usize>, critics: &MlpEnsemble) {
        self.chunks.clear();
        self.parts.clear();
        let (mut in_chunk, mut in_part) = (usize::MAX, usize::MAX);
        for (group, rows) in sizes.enumerate() {
            if in_chunk.saturating_add(rows) > CHUNK {
                if in_part.saturating_add(rows) > PART {
                    self.parts.push(self.chunks.len()..self.chunks.len());
                    in_part = 0;
                }
                self.chunks.push(group..group);
                in_chunk = 0;
                self.parts.last_mut().expect("the first chunk starts a part").end += 1;
            }
            self.chunks.last_mut().expect("the first group starts a chunk").end += 1;
            in_chunk += rows;
            in_part += rows;
        }
        let (shape, nets) = (critics.shape(), critics.nets());
        self.gradients
            .resize_with(self.parts.len(), || MlpEnsemble::zeros(shape.clone(), nets, Keep::Weights));
    }
}

impl Sac {
    /// One step of all critics on a sum of losses, one for each critic and group of rows. Group i has `rows(i)` rows;
    /// `load(i, row, pair)` fills the state and action of one. `loss(critic, i, q, dq)` gets the group's values, fills
    /// ∂loss/∂Q, which starts as zeros, and what it returns comes back, critic after critic and group after group.
    pub fn critic_step_by_group<T: Send + Default>(
        &mut self,
        groups: usize,
        rows: impl Fn(usize) -> usize + Sync,
        load: impl Fn(usize, usize, &mut [f32]) + Sync,
        loss: impl Fn(usize, usize, &[f32], &mut [f32]) -> T + Sync,
    ) -> Vec<Vec<T>> {
        let (critics, nets) = (&self.critics, self.critics.nets());
        let cut = &mut self.groups;
        cut.cut((0..groups).map(&rows), critics);
        let Groups { chunks, parts, gradients, scratch } = cut;
        let (chunks, shape) = (&*chunks, critics.shape());
        let mut found: Vec<Vec<T>> = (0..nets).map(|_| (0..groups).map(|_| T::default()).collect()).collect();
        // Each part with its gradient and its share of what every critic finds.
        let mut tasks: Vec<_> = parts.iter().cloned().zip(gradients).map(|task| (task, Vec::new())).collect();
        for found in &mut found {
            let mut rest = found.as_mut_slice();
            for ((part, _), shares) in &mut tasks {
                let (mine, others) = rest.split_at_mut(chunks[part.clone()].iter().map(Range::len).sum());
                rest = others;
                shares.push(mine);
            }
        }
        self.pool.for_each_mut(&mut tasks, |_, ((part, gradient), shares)| {
            let most =
                chunks[part.clone()].iter().map(|chunk| chunk.clone().map(&rows).sum()).max().unwrap_or(0);
            scratch.with(
                || Shard::new(shape, 0..most, 1),
                |shard| {
                    if shard.x.capacity() < most {
                        *shard = Shard::new(shape, 0..most, 1);
                    }
                    let (mut q, mut dq) = (vec![0.0; most], vec![0.0; most]);
                    for (net, found) in shares.iter_mut().enumerate() {
                        let mut found = found.iter_mut();
                        for (i, chunk) in chunks[part.clone()].iter().enumerate() {
                            let mut members =
                                chunk.clone().flat_map(|g| (0..rows(g)).map(move |row| (g, row)));
                            let n = chunk.clone().map(&rows).sum();
                            shard.rows = 0..n;
                            shard.x.fill_rows(n, |_, pair| {
                                let (group, row) = members.next().expect("as many rows as the groups have");
                                load(group, row, pair);
                            });
                            shard.forward(critics, net, Weights::Current);
                            shard.nets[0].out.store_flat(&mut q[..n], 1, 0);
                            dq[..n].fill(0.0);
                            let mut first = 0;
                            for (group, found) in chunk.clone().zip(&mut found) {
                                let of = first..first + rows(group);
                                *found = loss(net, group, &q[of.clone()], &mut dq[of.clone()]);
                                first = of.end;
                            }
                            shard.nets[0].dout.load_flat(&dq[..n], 1, 0);
                            shard.backward(critics, net);
                            gradient.add_gradient(net, shard, i > 0);
                        }
                    }
                },
            );
        });
        drop(tasks);
        self.steps.critic += 1;
        let step = TrainStep::new(self.cfg.critic_lr, self.steps.critic);
        self.critics.train_on(&self.pool, &self.groups.gradients, &step);
        found
    }
}
