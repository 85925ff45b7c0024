//! A dataset without the rows that the audit calls poison.

use super::super::Dataset;
use super::checks::bad_rows;

/// Rows that were left out for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The audit's check that names them.
    pub check: &'static str,
    /// How many.
    pub rows: usize,
    /// How many of them are terminal: what they say about ends is lost.
    pub terminals: usize,
}

/// The set without the rows that [`audit`](super::audit) calls poison, and without extreme values where they are few. A
/// row is left out with its next state, and its trajectory ends there by a timeout: nothing joins the rows around it.
/// `None` when no row is left.
pub fn drop_bad(data: &Dataset, horizon: Option<usize>) -> (Option<Dataset>, Vec<Dropped>) {
    let (mut left, mut dropped) = (data.clone(), Vec::<Dropped>::new());
    // Each round takes at least one row.
    while let Some((check, rows)) = bad_rows(&left, horizon) {
        let terminals = rows.iter().filter(|&&row| left.rows.done[row]).count();
        match dropped.iter_mut().find(|d| d.check == check) {
            Some(before) => {
                (before.rows, before.terminals) = (before.rows + rows.len(), before.terminals + terminals)
            }
            None => dropped.push(Dropped { check, rows: rows.len(), terminals }),
        }
        if rows.len() == left.rows.len() {
            return (None, dropped);
        }
        mark_cuts(&mut left, &rows);
        left = left.without(&rows);
    }
    let reading = &mut left.reading;
    reading.rows_kept = left.rows.len();
    reading.dropped.extend(dropped.iter().map(|d| (format!("bad: {}", d.check), d.rows)));
    (Some(left), dropped)
}

/// Marks the rows before those to drop (in rising order) as cut by a timeout, where their episode goes on.
fn mark_cuts(data: &mut Dataset, rows: &[usize]) {
    let starts: Vec<usize> = data.episodes.iter().map(|e| e.start).collect();
    for &row in rows.iter().filter(|row| starts.binary_search(row).is_err()) {
        data.timeout[row - 1] |= !data.rows.done[row - 1];
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Severity, audit};
    use super::*;
    use crate::data::generate::{BehaviourBlock, generate};
    use crate::env::{Env, EnvPool, point_mass::PointMass};
    use crate::policy::UniformPolicy;

    fn clean() -> Dataset {
        let make_env = || Ok(Box::new(PointMass::new()) as Box<dyn Env>);
        let blocks = [BehaviourBlock { rows: 3000, behaviour: &UniformPolicy }];
        generate("point-mass-random", &EnvPool::new(make_env), &blocks, 0, &mut |_| ()).unwrap()
    }

    /// Every step of an episode leads to the row after it, and every end is marked.
    fn check_sound(data: &Dataset) {
        assert_eq!(data.episodes.iter().map(|e| e.len()).sum::<usize>(), data.rows.len());
        for episode in &data.episodes {
            for i in episode.start..episode.end - 1 {
                assert_eq!(data.rows.next_obs.row(i), data.rows.obs.row(i + 1), "row {i}");
            }
            let last = episode.end - 1;
            let is_last_of_all = episode.end == data.rows.len();
            assert!(data.rows.done[last] || data.timeout[last] || is_last_of_all, "row {last}");
        }
    }

    /// Spoils clean data, drops what is bad, and wants these reasons and nothing left to find.
    fn check(spoil: impl FnOnce(&mut Dataset), wanted: &[(&str, usize)]) -> Dataset {
        let mut data = clean();
        spoil(&mut data);
        let (left, dropped) = drop_bad(&data, Some(60));
        let left = left.unwrap();
        assert_eq!(dropped.iter().map(|d| (d.check, d.rows)).collect::<Vec<_>>(), wanted);
        let all = wanted.iter().map(|(_, rows)| rows).sum::<usize>();
        assert_eq!((left.rows.len(), left.reading.rows_kept), (3000 - all, 3000 - all));
        let found = audit(&left, Some(60));
        let poison = found.findings.iter().find(|f| f.severity == Severity::Poison);
        assert!(poison.is_none(), "{poison:?}");
        check_sound(&left);
        left
    }

    #[test]
    fn clean_data_stay_as_they_are() {
        assert_eq!(check(|_| (), &[]).rows, clean().rows);
    }

    #[test]
    fn a_missing_state_ends_its_trajectory_and_costs_the_steps_to_it_and_from_it() {
        let row = clean().episodes[3].start + 5;
        let spoil = |d: &mut Dataset| {
            d.rows.obs[[row, 1]] = f32::NAN;
            d.rows.next_obs[[row - 1, 1]] = f32::NAN;
        };
        let left = check(spoil, &[("non-finite values", 2)]);
        assert_eq!(left.episodes.len(), clean().episodes.len() + 1);
        assert_eq!(left.episodes[3].len(), 4, "cut before the two rows");
        assert!(left.timeout[left.episodes[3].end - 1] && !left.rows.done[left.episodes[3].end - 1]);
        for spoil in [
            (|d: &mut Dataset| d.rows.rew[7] = f32::INFINITY) as fn(&mut Dataset),
            |d| d.rows.act[[7, 0]] = f32::NEG_INFINITY,
            |d| d.rows.rew[0] = f32::NAN,
            |d| d.rows.next_obs[[2999, 0]] = f32::NAN,
        ] {
            check(spoil, &[("non-finite values", 1)]);
        }
    }

    #[test]
    fn absurd_values_are_dropped_unless_the_column_is_in_another_unit() {
        check(|d| d.rows.rew[7] = 1e20, &[("extreme values", 1)]);
        check(|d| d.rows.rew.mapv_inplace(|r| (r - 9.0) * 1e20), &[]);
    }

    #[test]
    fn what_an_infinity_and_an_absurd_value_hide_is_dropped_too() {
        let spoil = |d: &mut Dataset| {
            let row = d.episodes[5].start;
            d.rows.next_obs[[row + 3, 0]] = f32::INFINITY;
            d.rows.act[[row + 8, 0]] = 1e9;
            d.rows.next_obs[[row + 12, 1]] += 50.0;
        };
        let wanted = [("non-finite values", 1), ("extreme values", 1), ("teleports", 1)];
        // Next states of rows 3 and 12 no longer are the states after them, and the rows are gone.
        check(spoil, &wanted);
    }

    #[test]
    fn resets_that_pass_for_steps_are_cut_out() {
        let pin = |d: &mut Dataset| {
            for episode in d.episodes.clone() {
                d.rows.obs.row_mut(episode.start).assign(&ndarray::array![1.0, 1.0, 0.0, 0.0]);
            }
        };
        let ends = clean().episodes.len() - 1;
        let leak = |d: &mut Dataset| {
            pin(d);
            for i in d.episodes[..ends].iter().map(|e| e.end - 1).collect::<Vec<_>>() {
                let next = d.rows.obs.row(i + 1).to_owned();
                d.rows.next_obs.row_mut(i).assign(&next);
            }
        };
        let left = check(leak, &[("reset as next state", ends)]);
        assert_eq!(left.episodes.len(), ends + 1);
        // Two episodes under one name: the step between them goes, and both halves stay.
        let unmarked = |d: &mut Dataset| {
            pin(d);
            let second = d.episodes.remove(1);
            d.episodes[0].end = second.end;
            let row = second.start - 1;
            d.rows.next_obs.row_mut(row).assign(&ndarray::array![1.0, 1.0, 0.0, 0.0]);
            d.rows.obs.row_mut(row).fill(40.0);
            d.rows.next_obs.row_mut(row - 1).fill(40.0);
            (d.rows.done[row], d.timeout[row]) = (false, false);
        };
        let mut data = clean();
        unmarked(&mut data);
        let (left, dropped) = drop_bad(&data, Some(60));
        assert_eq!((dropped[0].check, dropped[0].rows), ("unmarked reset", 1));
        assert_eq!(left.unwrap().episodes.len(), clean().episodes.len());
    }

    #[test]
    fn an_episode_beyond_the_time_limit_goes_as_a_whole() {
        let lengths = clean().episodes[..2].iter().map(|e| e.len()).sum();
        let join = |d: &mut Dataset| {
            let second = d.episodes.remove(1);
            d.episodes[0].end = second.end;
        };
        let left = check(join, &[("episodes beyond the time limit", lengths)]);
        assert_eq!(left.episodes.len(), clean().episodes.len() - 2);
    }

    #[test]
    fn terminals_that_go_are_counted_and_nothing_may_be_left() {
        let mut data = clean();
        let end = data.episodes[0].end - 1;
        (data.rows.done[end], data.rows.rew[end]) = (true, f32::NAN);
        let (left, dropped) = drop_bad(&data, Some(60));
        assert_eq!(dropped, [Dropped { check: "non-finite values", rows: 1, terminals: 1 }]);
        assert!(left.unwrap().timeout[end - 1], "the log is cut where its end was");
        data.rows.rew.fill(f32::NAN);
        let (left, dropped) = drop_bad(&data, Some(60));
        assert_eq!((left.is_none(), dropped[0].rows), (true, 3000));
    }
}
