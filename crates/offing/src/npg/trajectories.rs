//! Trajectories of imagined rows, their returns and their advantages.

use serde::{Deserialize, Serialize};

/// The value after the last state of a trajectory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bootstrap {
    /// Nothing after a terminal or a halt; after the horizon, the baseline's value of the last state.
    #[default]
    Zero,
    /// Always the baseline's value of the last state, also after terminals and halts. MOReL's own code computes this,
    /// because it drops how a trajectory ended when it truncates it.
    Baseline,
}

/// One trajectory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trajectory {
    /// Its rows, in order.
    pub rows: Vec<u32>,
    /// Whether it ended for good, not at the horizon.
    pub ended: bool,
}

/// The trajectories of rows in the order of steps: `start` is each row's trajectory, `done` whether it ended there. A shorter
/// one than the horizon without an end was truncated because its values exploded: nothing follows it.
pub fn trajectories(start: &[u32], done: impl Fn(usize) -> bool, horizon: usize) -> Vec<Trajectory> {
    let count = start.iter().max().map_or(0, |&last| last as usize + 1);
    let mut all = vec![Trajectory { rows: Vec::new(), ended: false }; count];
    for (row, &start) in start.iter().enumerate() {
        all[start as usize].rows.push(row as u32);
        all[start as usize].ended = done(row);
    }
    all.retain(|path| !path.rows.is_empty());
    all.iter_mut().for_each(|path| path.ended |= path.rows.len() < horizon);
    all
}

/// Discounted sum of the rewards from each row on to the end of its trajectory.
pub fn returns(trajectories: &[Trajectory], rewards: &[f32], gamma: f64) -> Vec<f32> {
    // The advantage over a baseline of 0, with every later reward in it.
    advantages(trajectories, rewards, &vec![0.0; rewards.len()], (gamma, 1.0), Bootstrap::Zero)
}

/// Generalised advantages (Schulman et al. 2016): Σ_k (γλ)^k δ_{t+k}, with δ_t = r_t + γ b_{t+1} − b_t.
pub fn advantages(
    trajectories: &[Trajectory],
    rewards: &[f32],
    values: &[f32],
    (gamma, lambda): (f64, f64),
    bootstrap: Bootstrap,
) -> Vec<f32> {
    let mut out = vec![0.0; rewards.len()];
    for path in trajectories {
        let last = path.rows.last().map_or(0.0, |&row| f64::from(values[row as usize]));
        let mut next = if path.ended && bootstrap == Bootstrap::Zero { 0.0 } else { last };
        let mut sum = 0.0;
        for &row in path.rows.iter().rev() {
            let value = f64::from(values[row as usize]);
            let delta = f64::from(rewards[row as usize]) + gamma * next - value;
            sum = delta + gamma * lambda * sum;
            out[row as usize] = sum as f32;
            next = value;
        }
    }
    out
}

/// Shifts and scales to mean 0 and deviation 1.
pub fn whiten(values: &mut [f32]) {
    let rows = values.len().max(1) as f64;
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / rows;
    let var = values.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / rows;
    let scale = 1.0 / (var.sqrt() + 1e-6);
    values.iter_mut().for_each(|x| *x = ((f64::from(*x) - mean) * scale) as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_find_their_trajectories_and_how_these_ended() {
        // Three starts; 1 ends at its second row, 2 explodes after its first, 0 reaches the horizon of 3.
        let start = [0, 1, 2, 0, 1, 0];
        let found = trajectories(&start, |row| row == 4, 3);
        let path = |rows: &[u32], ended| Trajectory { rows: rows.to_vec(), ended };
        assert_eq!(found, [path(&[0, 3, 5], false), path(&[1, 4], true), path(&[2], true)]);
        // A start whose first step was dropped has no trajectory.
        assert_eq!(trajectories(&[0, 2], |_| false, 1), [path(&[0], false), path(&[1], false)]);
    }

    #[test]
    fn advantages_are_the_sums_of_the_definition_for_both_bootstraps() {
        let path = |ended| [Trajectory { rows: vec![2, 0, 1], ended }];
        let (rewards, values) = ([1.0, -2.0, 0.5], [0.3, 0.7, -0.4]);
        let (gamma, lambda) = (0.9, 0.8);
        for (ended, bootstrap, tail) in
            [(true, Bootstrap::Zero, 0.0), (true, Bootstrap::Baseline, 0.7), (false, Bootstrap::Zero, 0.7)]
        {
            let found = advantages(&path(ended), &rewards, &values, (gamma, lambda), bootstrap);
            let delta = [0.5 + gamma * 0.3 + 0.4, 1.0 + gamma * 0.7 - 0.3, -2.0 + gamma * tail - 0.7];
            let gl: f64 = gamma * lambda;
            let wanted = [delta[1] + gl * delta[2], delta[2], delta[0] + gl * delta[1] + gl * gl * delta[2]];
            for (got, want) in found.iter().zip(wanted) {
                assert!((f64::from(*got) - want).abs() < 1e-6, "{found:?} against {wanted:?}");
            }
        }
        let found = returns(&path(true), &rewards, gamma);
        assert!((f64::from(found[2]) - (0.5 + 0.9 * (1.0 - 0.9 * 2.0))).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn white_values_have_mean_zero_and_deviation_one() {
        let mut values = [3.0, 5.0, 7.0, 100.0];
        whiten(&mut values);
        let mean = values.iter().sum::<f32>() / 4.0;
        let var = values.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 4.0;
        assert!(mean.abs() < 1e-6 && (var - 1.0).abs() < 1e-5);
        let mut equal = [2.0; 3];
        whiten(&mut equal);
        assert_eq!(equal, [0.0; 3]);
    }
}
