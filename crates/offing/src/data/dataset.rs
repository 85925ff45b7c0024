//! What a dataset is once it has been read: transitions, episodes, simulator states and how they were obtained.

use std::collections::BTreeMap;
use std::ops::Range;

use ndarray::{Array1, Array2, ArrayView1, Axis};

use super::column_names::ColumnNames;
use super::formats::Format;
use crate::batch::Batch;
use crate::checksum::Checksum;
use crate::error::{Result, require};
use crate::rng::Rng;
use crate::units::{ActionRange, Units};

/// Logged transitions with what is known about where they come from.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// The name to print in tables: a dataset id or a file stem.
    pub name: String,
    /// Which file layout it was read from.
    pub format: Format,
    /// What the file calls the columns; empty where it does not say.
    pub names: ColumnNames,
    /// The transitions, in the file's order.
    pub rows: Batch,
    /// What was added to every reward after reading.
    pub reward_shift: f32,
    /// Between the log's units and those of `rows`, where they are not the same.
    pub units: Option<Units>,
    /// Rows at which a time limit (not a terminal) ended the episode; the return would go on from `next_obs`. A file
    /// may mark a row as both: then `done` decides.
    pub timeout: Array1<bool>,
    /// Rows of each episode, in order, without gaps; the last may be unfinished.
    pub episodes: Vec<Range<usize>>,
    /// Simulator states at `obs`, when the file has them.
    pub sim: Option<SimColumns>,
    /// How the transitions were obtained from the file: the choices and the rows they cost.
    pub reading: ReadReport,
    /// What the file says about itself: D4RL's `metadata/*` texts and numbers, Minari's `metadata.json`.
    pub meta: BTreeMap<String, String>,
}

/// Simulator states beside the observations (`infos/qpos`, `infos/qvel`, `infos/goal`).
#[derive(Clone, Debug, PartialEq)]
pub struct SimColumns {
    /// Generalised positions, one row a transition.
    pub qpos: Array2<f64>,
    /// Generalised velocities.
    pub qvel: Array2<f64>,
    /// Goal positions, when the task has a goal.
    pub goal: Option<Array2<f64>>,
}

/// Where next observations came from and what had to be left out; `offing data info` shows it.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct ReadReport {
    /// Rows in the file.
    pub rows_in_file: usize,
    /// Transitions kept.
    pub rows_kept: usize,
    /// How next observations were obtained, in words.
    pub next_obs: String,
    /// Rows left out because their next observation is not in the file, with the reason.
    pub dropped: Vec<(String, usize)>,
    /// How many of the rows left out are terminal: their rewards and what they say about ends are lost.
    pub dropped_terminals: usize,
    /// The sum of their rewards, as the file has them.
    pub dropped_terminal_rewards: f64,
    /// Keys of the file that were not used.
    pub ignored_keys: Vec<String>,
    /// How the file marks where its episodes end.
    pub ends: Ends,
    /// What else a user should know about how the file was understood, one sentence each.
    pub notes: Vec<String>,
}

/// How a file marks where episodes end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ends {
    /// By next observations, time limits, or numbers of episodes or steps.
    #[default]
    #[serde(rename = "told")]
    Marked,
    /// Terminals are all it marks: time limits are not known.
    TerminalsOnly,
    /// Nothing marks an end, and there are no next observations to compare with.
    Unknown,
}

impl SimColumns {
    /// What files call the columns, in the order of [`SimColumns::columns`].
    pub(super) const NAMES: [&str; 3] = ["qpos", "qvel", "goal"];

    /// The columns from one to three matrices in the order of [`SimColumns::NAMES`]; `None` without both of the first
    /// two.
    pub(super) fn from_columns(columns: impl IntoIterator<Item = Array2<f64>>) -> Option<Self> {
        let mut columns = columns.into_iter();
        Some(Self { qpos: columns.next()?, qvel: columns.next()?, goal: columns.next() })
    }

    /// The columns there are, with their names.
    pub(super) fn columns(&self) -> impl Iterator<Item = (&'static str, &Array2<f64>)> {
        let columns = [Some(&self.qpos), Some(&self.qvel), self.goal.as_ref()];
        Self::NAMES.into_iter().zip(columns.into_iter().flatten())
    }

    /// The given rows, in the given order.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self::from_columns(self.columns().map(|(_, m)| m.select(Axis(0), rows)))
            .expect("at least two columns")
    }
}

impl Dataset {
    /// Standardises observations and brings actions to [−1, 1], as [`Units::of`] does.
    ///
    /// # Errors
    /// As [`Units::of`].
    pub fn bring_inward(&mut self, range: Option<&ActionRange>) -> Result<()> {
        let units = Units::of(&self.rows, range)?;
        units.rows_inward(&mut self.rows);
        self.units = Some(units);
        Ok(())
    }

    /// Every column of observations and actions, and the reward, with labels for messages: `obs[3] (p_tank)`, `act[0]`,
    /// `reward`.
    pub fn columns(&self) -> impl Iterator<Item = (String, ArrayView1<'_, f32>)> {
        let obs = self.rows.obs.columns().into_iter().enumerate();
        let act = self.rows.act.columns().into_iter().enumerate();
        let obs = obs.map(|(j, column)| (self.names.obs_label(j), column));
        let act = act.map(|(j, column)| (self.names.act_label(j), column));
        obs.chain(act).chain([("reward".to_string(), self.rows.rew.view())])
    }

    /// The mean reward of a step, where that is a cost and an end is no goal: then a policy gains by failing soon. `None` where
    /// living on pays, where nothing ends, or where ends are rewarded. Ends count also where their rows were left out.
    pub fn ending_pays(&self) -> Option<f64> {
        let mean = |ends: bool, (sum, count): (f64, f64)| {
            let chosen = self.rows.rew.iter().zip(&self.rows.done).filter(|(_, done)| **done == ends);
            let (sum, count) = chosen.fold((sum, count), |(sum, n), (r, _)| (sum + f64::from(*r), n + 1.0));
            (count > 0.0).then(|| sum / count)
        };
        let lost = self.reading.dropped_terminals as f64;
        let lost_rewards = self.reading.dropped_terminal_rewards + lost * f64::from(self.reward_shift);
        let (end, step) = (mean(true, (lost_rewards, lost))?, mean(false, (0.0, 0.0))?);
        (step < 0.0 && end <= step).then_some(step)
    }

    /// About `rows` transitions: whole episodes, drawn without replacement, in their old order; the last one drawn is
    /// cut. All of them when there are no more.
    pub fn subsampled(&self, rows: usize, seed: u64) -> Self {
        if rows >= self.rows.len() {
            return self.clone();
        }
        let mut left = rows;
        let mut kept = Vec::new();
        for episode in self.shuffled(seed) {
            let take = episode.len().min(left);
            if take == 0 {
                break;
            }
            kept.push(episode.start..episode.start + take);
            left -= take;
        }
        self.select_ranges(kept)
    }

    /// Adds a number to every reward, and remembers it.
    pub fn shift_rewards(&mut self, by: f32) {
        self.rows.rew += by;
        self.reward_shift += by;
    }

    /// The set without the given rows (in rising order); an episode that loses a row inside becomes two, cut there.
    pub fn without(&self, rows: &[usize]) -> Self {
        let mut kept = Vec::new();
        for episode in &self.episodes {
            let mut start = episode.start;
            let from = rows.partition_point(|&row| row < episode.start);
            for &row in rows[from..].iter().take_while(|&&row| row < episode.end) {
                kept.push(start..row);
                start = row + 1;
            }
            kept.push(start..episode.end);
        }
        kept.retain(|piece| !piece.is_empty());
        self.select_ranges(kept)
    }

    /// Two sets of whole episodes: about `share` of them, at least one, in the second.
    ///
    /// # Errors
    /// A single episode cannot be split.
    pub fn split(&self, share: f64, seed: u64) -> Result<(Self, Self)> {
        let count = self.episodes.len();
        require!(
            count >= 2,
            "{}: wanted at least two episodes, to hold one back, found {count}; mark where episodes end",
            self.name
        );
        let held = ((count as f64 * share).round() as usize).clamp(1, count - 1);
        let mut order = self.shuffled(seed);
        let rest = order.split_off(held);
        Ok((self.select_ranges(rest), self.select_ranges(order)))
    }

    /// The episodes in random order.
    fn shuffled(&self, seed: u64) -> Vec<Range<usize>> {
        let mut order = self.episodes.clone();
        let mut rng = Rng::stream(seed, "episodes", 0);
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i + 1));
        }
        order
    }

    /// These stretches of rows as the new episodes, in their old order.
    fn select_ranges(&self, mut stretches: Vec<Range<usize>>) -> Self {
        stretches.sort_by_key(|e| e.start);
        let picks: Vec<usize> = stretches.iter().cloned().flatten().collect();
        let mut at = 0;
        let place = |e: &Range<usize>| {
            at += e.len();
            at - e.len()..at
        };
        Self {
            name: self.name.clone(),
            format: self.format,
            names: self.names.clone(),
            rows: self.rows.select(&picks),
            reward_shift: self.reward_shift,
            units: self.units.clone(),
            timeout: self.timeout.select(Axis(0), &picks),
            episodes: stretches.iter().map(place).collect(),
            sim: self.sim.as_ref().map(|s| s.select(&picks)),
            reading: self.reading.clone(),
            meta: self.meta.clone(),
        }
    }

    /// Where an AntMaze's goal is, by what earned a reward: the mean position after rewarded rows. The goal columns
    /// are no guide: D4RL's hold where the behaviour was heading, and its rewards belong to another goal. Only
    /// without a rewarded row do they count; `None` without either.
    pub fn goal(&self) -> Option<[f32; 2]> {
        if self.rows.obs_dim() < 2 {
            return None;
        }
        let bounds = |(low, high): (f32, f32), &r: &f32| (low.min(r), high.max(r));
        let (low, high) = self.rows.rew.iter().fold((f32::INFINITY, f32::NEG_INFINITY), bounds);
        let rewarded: Vec<usize> =
            (0..self.rows.len()).filter(|&i| high > low && self.rows.rew[i] == high).collect();
        if rewarded.is_empty() {
            let goals = self.sim.as_ref()?.goal.as_ref()?;
            return Some([goals.get((0, 0))?, goals.get((0, 1))?].map(|&x| x as f32));
        }
        let mean = |col: usize| {
            let sum: f64 = rewarded.iter().map(|&i| f64::from(self.rows.next_obs[[i, col]])).sum();
            (sum / rewarded.len() as f64) as f32
        };
        Some([mean(0), mean(1)])
    }

    /// SHA-256 over all transitions, in hexadecimal digits: two datasets with the same one train alike.
    pub fn digest(&self) -> String {
        let rows = &self.rows;
        let mut sum = Checksum::of(&format!("{} {} {}", rows.len(), rows.obs_dim(), rows.act_dim()));
        sum.transitions(rows);
        sum.numbers(rows.done.iter().map(|&d| f32::from(u8::from(d))));
        sum.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::generate::{BehaviourBlock, generate};
    use crate::env::{Env, EnvPool, point_mass::PointMass};

    fn data() -> Dataset {
        let new = || -> Result<Box<dyn Env>> { Ok(Box::new(PointMass::new())) };
        let block = BehaviourBlock { rows: 1000, behaviour: &crate::policy::UniformPolicy };
        generate("point-mass", &EnvPool::new(new), &[block], 0, &mut |_| ()).unwrap()
    }

    #[test]
    fn subsampling_and_splitting_keep_episodes_whole_and_rows_apart() {
        let all = data();
        let fewer = all.subsampled(300, 0);
        assert_eq!((fewer.rows.len(), fewer.episodes.last().unwrap().end), (300, 300));
        assert_eq!(all.subsampled(5000, 0).rows, all.rows);
        let (rest, held) = all.split(0.2, 0).unwrap();
        assert_eq!(rest.episodes.len() + held.episodes.len(), all.episodes.len());
        assert_eq!(rest.rows.len() + held.rows.len(), all.rows.len());
        for set in [&fewer, &rest, &held] {
            for e in &set.episodes[..set.episodes.len() - 1] {
                let (next, obs) = (set.rows.next_obs.row(e.start), set.rows.obs.row(e.start + 1));
                assert!(e.len() == 1 || next == obs, "rows of an episode follow each other");
            }
        }
        let second = all.episodes[1].clone();
        let dropped = [0, second.start + 3, second.start + 4, all.rows.len() - 1];
        let less = all.without(&dropped);
        assert_eq!((less.rows.len(), less.episodes.len()), (996, all.episodes.len() + 1));
        assert_eq!(less.episodes[1].len(), 3, "an episode is cut where it loses rows");
        assert_eq!(less.rows.obs.row(0), all.rows.obs.row(1));
        let one = Dataset { episodes: std::iter::once(0..1000).collect(), ..all };
        assert!(one.split(0.5, 0).unwrap_err().to_string().contains("at least two episodes"));
    }

    #[test]
    fn a_goal_is_where_rewards_were_earned() {
        let mut maze = data();
        maze.rows.rew.fill(-1.0);
        assert_eq!(maze.goal(), None, "nothing was earned and nothing is said");
        let (rows, width) = (maze.rows.len(), maze.rows.obs_dim());
        let heading = Array2::from_elem((rows, 2), 9.0);
        let still = || Array2::zeros((rows, 1));
        maze.sim = Some(SimColumns { qpos: still(), qvel: still(), goal: Some(heading) });
        assert_eq!(maze.goal(), Some([9.0, 9.0]), "nothing was earned");
        for (row, x) in [(3, 1.0), (500, 2.0)] {
            maze.rows.rew[row] = 0.0;
            maze.rows.next_obs.row_mut(row).assign(&Array1::from_elem(width, x));
        }
        assert_eq!(maze.goal(), Some([1.5, 1.5]));
    }

    #[test]
    fn a_digest_tells_datasets_apart() {
        let (a, mut b) = (data(), data());
        assert_eq!(a.digest(), b.digest());
        b.rows.done[7] = !b.rows.done[7];
        assert_ne!(a.digest(), b.digest());
    }

    #[test]
    fn a_digest_is_what_it_always_was() {
        // Run configurations hold digests: another order or width of the bytes would cut every run off from its data.
        // hashlib.sha256(b"2 2 1" + struct.pack("<14f", 1,2,3,4, .5,-.5, 2,3,4,5, 10,20, 0,1)).hexdigest()
        let all = data();
        let rows = Batch {
            obs: ndarray::arr2(&[[1.0, 2.0], [3.0, 4.0]]),
            act: ndarray::arr2(&[[0.5], [-0.5]]),
            next_obs: ndarray::arr2(&[[2.0, 3.0], [4.0, 5.0]]),
            rew: ndarray::arr1(&[10.0, 20.0]),
            done: ndarray::arr1(&[false, true]),
        };
        let wanted = "aba0c5de5aeb0595982161722fa83cf3b02a272458cfaabbb5bb9ecc9afd793a";
        assert_eq!(Dataset { rows, ..all }.digest(), wanted);
    }
}
