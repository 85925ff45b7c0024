//! A ring of transitions that holds the newest ones.
//!
//! ```
//! use offing::Batch;
//! use offing::replay::ReplayBuffer;
//! let mut ring = ReplayBuffer::new(3, 2, 1);
//! for i in 0..5 {
//!     ring.push_row(&[i as f32; 2], &[0.0], i as f32, &[0.0; 2], false);
//! }
//! let mut batch = Batch::empty(2, 1);
//! ring.take(&[0, 1, 2], &mut batch);
//! assert_eq!(batch.rew.to_vec(), [3.0, 4.0, 2.0]); // 0 and 1 are overwritten
//! ```

use ndarray::{Array1, s};

use crate::batch::{Batch, Mat};
use crate::error::{Result, invalid};
use crate::nn::Tensors;

/// Transitions in a ring of fixed capacity, addressed by slot.
#[derive(Clone, Debug)]
pub struct ReplayBuffer {
    rows: Batch,
    len: usize,
    next: usize,
}

impl ReplayBuffer {
    /// An empty ring for `capacity` rows.
    pub fn new(capacity: usize, obs_dim: usize, act_dim: usize) -> Self {
        assert!(capacity > 0, "a ring needs room");
        let rows = Batch {
            obs: Mat::zeros((capacity, obs_dim)),
            act: Mat::zeros((capacity, act_dim)),
            rew: Array1::zeros(capacity),
            next_obs: Mat::zeros((capacity, obs_dim)),
            done: Array1::from_elem(capacity, false),
        };
        Self { rows, len: 0, next: 0 }
    }

    /// Rows held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Most rows it can hold.
    pub fn capacity(&self) -> usize {
        self.rows.len()
    }

    /// The columns, of which the first [`ReplayBuffer::len`] rows are held.
    pub fn columns(&self) -> &Batch {
        &self.rows
    }

    /// Adds one transition, in the place of the oldest when full; returns its slot.
    pub fn push_row(&mut self, obs: &[f32], act: &[f32], rew: f32, next_obs: &[f32], done: bool) -> usize {
        let slot = self.next;
        let copy = |to: &mut Mat, from: &[f32]| {
            to.row_mut(slot).iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        };
        copy(&mut self.rows.obs, obs);
        copy(&mut self.rows.act, act);
        copy(&mut self.rows.next_obs, next_obs);
        self.rows.rew[slot] = rew;
        self.rows.done[slot] = done;
        self.advance();
        slot
    }

    /// Adds transitions in order; returns the slot of the first.
    pub fn push(&mut self, batch: &Batch) -> usize {
        let first = self.next;
        for i in 0..batch.len() {
            let slot = self.next;
            gather_at(batch, &[i], &mut self.rows, slot);
            self.advance();
        }
        first
    }

    fn advance(&mut self) {
        self.next = (self.next + 1) % self.capacity();
        self.len = (self.len + 1).min(self.capacity());
    }

    /// Copies the rows in `slots` into `to`, which is resized to them.
    pub fn take(&self, slots: &[usize], to: &mut Batch) {
        gather(&self.rows, slots, to);
    }

    /// The held rows and where the next goes.
    pub fn save(&self) -> Tensors {
        let mut out = Tensors::default();
        let n = self.len;
        for (name, m) in [("obs", &self.rows.obs), ("act", &self.rows.act), ("next_obs", &self.rows.next_obs)]
        {
            out.put_f32(name, &[n, m.ncols()], m.slice(s![..n, ..]).iter().copied().collect());
        }
        out.put_f32("rew", &[n], self.rows.rew.slice(s![..n]).to_vec());
        let done = self.rows.done.slice(s![..n]).iter().map(|&d| f32::from(u8::from(d))).collect();
        out.put_f32("done", &[n], done);
        out.put_u64("ring", &[n as u64, self.next as u64]);
        out
    }

    /// Restores what [`ReplayBuffer::save`] gave into a ring of the same capacity and widths.
    pub fn load(&mut self, from: &Tensors) -> Result<()> {
        let ring = from.u64("ring", 2)?;
        let (n, next) = (ring[0] as usize, ring[1] as usize);
        if n > self.capacity() || next >= self.capacity() {
            return Err(invalid!(
                "a replay ring: wanted at most {} rows, found {n}; resume with the configuration it was made with",
                self.capacity()
            ));
        }
        let columns =
            [("obs", &mut self.rows.obs), ("act", &mut self.rows.act), ("next_obs", &mut self.rows.next_obs)];
        for (name, to) in columns {
            let values = from.f32(name, &[n, to.ncols()])?;
            to.slice_mut(s![..n, ..]).iter_mut().zip(values).for_each(|(to, v)| *to = v);
        }
        let (rew, done) = (from.f32("rew", &[n])?, from.f32("done", &[n])?);
        for i in 0..n {
            (self.rows.rew[i], self.rows.done[i]) = (rew[i], done[i] != 0.0);
        }
        (self.len, self.next) = (n, next);
        Ok(())
    }
}

/// Copies the rows `rows` of `from` into `to`, which is resized to them; nothing is allocated when it fits already.
pub fn gather(from: &Batch, rows: &[usize], to: &mut Batch) {
    let shape = (rows.len(), from.obs_dim(), from.act_dim());
    if (to.len(), to.obs_dim(), to.act_dim()) != shape {
        *to = from.select(rows);
        return;
    }
    gather_at(from, rows, to, 0);
}

/// Copies the rows `rows` of `from` over those of `to` from row `first` on.
pub fn gather_at(from: &Batch, rows: &[usize], to: &mut Batch, first: usize) {
    for (i, &row) in rows.iter().enumerate() {
        if let Some(&later) = rows.get(i + Batch::AHEAD) {
            from.fetch_early(later);
        }
        let i = first + i;
        to.obs.row_mut(i).assign(&from.obs.row(row));
        to.act.row_mut(i).assign(&from.act.row(row));
        to.next_obs.row_mut(i).assign(&from.next_obs.row(row));
        (to.rew[i], to.done[i]) = (from.rew[row], from.done[row]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(capacity: usize, rows: usize) -> ReplayBuffer {
        let mut ring = ReplayBuffer::new(capacity, 2, 1);
        for i in 0..rows {
            let x = i as f32;
            ring.push_row(&[x, -x], &[0.5 * x], x, &[x + 1.0, 0.0], i % 3 == 0);
        }
        ring
    }

    #[test]
    fn the_newest_rows_stay() {
        let ring = filled(4, 6);
        assert_eq!((ring.len(), ring.capacity()), (4, 4));
        assert_eq!(ring.columns().rew.to_vec(), [4.0, 5.0, 2.0, 3.0]);
    }

    #[test]
    fn a_saved_ring_goes_on_as_if_nothing_had_happened() {
        for rows in [0, 3, 6] {
            let mut ring = filled(4, rows);
            let mut back = ReplayBuffer::new(4, 2, 1);
            back.load(&ring.save()).unwrap();
            for ring in [&mut ring, &mut back] {
                ring.push_row(&[9.0; 2], &[9.0], 9.0, &[9.0; 2], true);
            }
            assert_eq!(ring.save(), back.save());
        }
        let error = ReplayBuffer::new(3, 2, 1).load(&filled(4, 4).save()).unwrap_err().to_string();
        assert!(error.contains("at most 3 rows, found 4"), "{error}");
    }
}
