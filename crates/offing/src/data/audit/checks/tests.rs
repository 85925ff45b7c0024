//! Each check of the audit on data that has the fault and on data that has not.

use super::super::super::Ends;
use super::super::audit;
use super::*;
use crate::data::generate::{BehaviourBlock, generate};
use crate::env::{Env, EnvPool, point_mass::PointMass};
use crate::policy::UniformPolicy;

fn clean() -> Dataset {
    let make_env = || Ok(Box::new(PointMass::new()) as Box<dyn Env>);
    let blocks = [BehaviourBlock { rows: 3000, behaviour: &UniformPolicy }];
    generate("point-mass-random", &EnvPool::new(make_env), &blocks, 0, &mut |_| ()).unwrap()
}

/// Audits clean data after `spoil` and wants exactly these findings (check, severity, rows).
fn check(spoil: impl FnOnce(&mut Dataset), wanted: &[(&str, Severity, usize)]) {
    let mut data = clean();
    spoil(&mut data);
    let found = audit(&data, Some(60));
    let found: Vec<_> = (found.findings.iter().filter(|f| f.severity != Severity::Ok))
        .map(|f| (f.check, f.severity, f.count))
        .collect();
    assert_eq!(found, wanted);
}

#[test]
fn clean_data_pass_every_check() {
    check(|_| (), &[]);
}

#[test]
fn nan_is_poison() {
    check(|d| d.rows.obs[[17, 1]] = f32::NAN, &[("non-finite values", Severity::Poison, 1)]);
}

#[test]
fn finite_but_extreme_values_are_noted() {
    check(|d| d.rows.rew[7] = 1e20, &[("extreme values", Severity::Note, 1)]);
    // The whole file in another unit: no entry is far from the others.
    let all = |d: &mut Dataset| {
        d.rows.obs.mapv_inplace(|v| (v + 0.01) * 1e30);
        d.rows.next_obs.mapv_inplace(|v| (v + 0.01) * 1e30);
    };
    check(all, &[("extreme values", Severity::Note, 3000)]);
    check(|d| d.rows.rew.mapv_inplace(|r| 1e5 * r), &[]);
    let mut data = clean();
    data.rows.rew[7] = -3e20;
    let found = audit(&data, Some(60));
    let finding = found.findings.iter().find(|f| f.check == "extreme values").unwrap();
    assert!(finding.detail.starts_with("reward is -3.0e20 in row 7: "), "{}", finding.detail);
    assert_eq!(finding.first_row, Some(7));
}

#[test]
fn a_file_that_marks_no_end_is_not_clean() {
    let none = |ends: Ends| move |d: &mut Dataset| d.reading.ends = ends;
    check(none(Ends::Unknown), &[("unknown episode ends", Severity::Note, 0)]);
    check(none(Ends::TerminalsOnly), &[]);
    let jump = |ends: Ends| {
        move |d: &mut Dataset| {
            d.reading.ends = ends;
            // Several times the longest ordinary step, and no teleport by the other measure.
            let step = &d.rows.next_obs - &d.rows.obs;
            let largest = step.iter().fold(0.0f32, |m, s| m.max(s.abs()));
            for i in [100, 200, 300] {
                d.rows.next_obs.row_mut(i).iter_mut().for_each(|v| *v += 5.0 * largest);
            }
        }
    };
    check(jump(Ends::TerminalsOnly), &[("unknown episode ends", Severity::Note, 3)]);
    check(jump(Ends::Unknown), &[("unknown episode ends", Severity::Note, 3)]);
}

#[test]
fn a_jump_is_a_teleport() {
    check(|d| d.rows.next_obs[[17, 0]] += 50.0, &[("teleports", Severity::Poison, 1)]);
}

#[test]
fn duplicated_rows_and_wild_actions_are_noted() {
    check(
        |d| {
            let (start, end) = (d.episodes[0].start, d.episodes[0].end);
            assert!(end - start > 3);
            for j in 0..2 {
                d.rows.act[[start, j]] = 3.0;
            }
        },
        &[("actions out of range", Severity::Note, 1)],
    );
    check(
        |d| {
            let rows: Vec<usize> = (0..d.rows.len()).chain([5]).collect();
            d.rows = d.rows.select(&rows);
            let mut timeout = d.timeout.to_vec();
            timeout.push(true);
            d.timeout = timeout.into();
            d.episodes.push(3000..3001);
        },
        &[("duplicate rows", Severity::Note, 1)],
    );
}

#[test]
fn an_end_without_a_mark_is_noted() {
    let unmark = |d: &mut Dataset| {
        let end = d.episodes[0].end - 1;
        (d.rows.done[end], d.timeout[end]) = (false, false);
    };
    check(unmark, &[("unmarked episode ends", Severity::Note, 1)]);
}

#[test]
fn an_episode_beyond_the_time_limit_hides_a_reset() {
    check(
        |d| {
            let second = d.episodes.remove(1);
            d.episodes[0].end = second.end;
            let middle = second.start - 1;
            (d.rows.done[middle], d.timeout[middle]) = (false, false);
        },
        &[("episodes beyond the time limit", Severity::Poison, 1)],
    );
}

#[test]
fn a_sensor_that_mostly_rests_is_no_teleport() {
    check(
        |d| {
            let n = d.rows.len();
            let touch = |i: usize| if i.is_multiple_of(97) { 100.0 } else { 0.0 };
            d.rows.obs.column_mut(3).iter_mut().enumerate().for_each(|(i, v)| *v = touch(i));
            d.rows.next_obs.column_mut(3).iter_mut().enumerate().for_each(|(i, v)| *v = touch((i + 1) % n));
        },
        &[],
    );
}

#[test]
fn returns_stop_at_the_first_terminal_and_leave_out_cut_episodes() {
    let mut data = clean();
    data.rows.rew.fill(1.0);
    data.rows.done.fill(false);
    data.timeout.fill(false);
    data.episodes = vec![0..60, 60..100, 100..160, 160..190];
    data.rows = data.rows.select(&(0..190).collect::<Vec<_>>());
    data.timeout = data.timeout.slice(ndarray::s![..190]).to_owned();
    data.rows.done[70] = true;
    data.rows.done[71] = true;
    // 60 whole, 11 to the terminal, 60 whole; the last is cut at 30 of 60 steps.
    let found = audit(&data, Some(60)).episode_length.unwrap();
    assert_eq!((found.count, found.min, found.max), (3, 11.0, 60.0));
}

#[test]
fn the_next_episodes_start_as_next_state_is_poison() {
    // Starts of the point mass lie on a wide ring; pin them to one place, as MuJoCo's resets are.
    let pin = |d: &mut Dataset| {
        for episode in d.episodes.clone() {
            d.rows.obs.row_mut(episode.start).assign(&ndarray::array![1.0, 1.0, 0.0, 0.0]);
        }
    };
    check(
        |d| {
            pin(d);
            for i in inner_ends(d).collect::<Vec<_>>() {
                let next = d.rows.obs.row(i + 1).to_owned();
                d.rows.next_obs.row_mut(i).assign(&next);
            }
        },
        &[("reset as next state", Severity::Poison, clean().episodes.len() - 1)],
    );
    // The same leak at terminals, read as one episode that walks on after each of them.
    let ends = clean().episodes.len() - 1;
    check(
        |d| {
            pin(d);
            for i in inner_ends(d).collect::<Vec<_>>() {
                let next = d.rows.obs.row(i + 1).to_owned();
                d.rows.next_obs.row_mut(i).assign(&next);
                (d.rows.done[i], d.timeout[i]) = (true, false);
            }
            d.episodes.truncate(1);
            d.episodes[0].end = 3000;
        },
        &[
            ("reset as next state", Severity::Poison, ends),
            ("episodes beyond the time limit", Severity::Poison, 1),
            ("terminals inside an episode", Severity::Note, ends),
        ],
    );
}

/// The given rows of clean data as one episode.
fn only(rows: &[usize]) -> impl FnOnce(&mut Dataset) {
    move |d: &mut Dataset| {
        d.rows = d.rows.select(rows);
        d.timeout = d.timeout.select(Axis(0), rows);
        d.episodes = vec![0..rows.len(); 1];
    }
}

#[test]
fn a_single_row_is_no_clean_log() {
    check(only(&[3]), &[("single row", Severity::Note, 1)]);
}

#[test]
fn one_row_again_and_again_is_one_finding() {
    check(only(&[3; 50]), &[("identical rows", Severity::Note, 50)]);
}

#[test]
fn a_constant_reward_asks_for_the_likely_cause() {
    let detail = |dropped: usize| {
        let mut data = clean();
        data.rows.rew.fill(0.0);
        data.reading.dropped_terminals = dropped;
        let found = audit(&data, Some(60)).findings;
        found.into_iter().find(|f| f.check == "constant reward").unwrap().detail
    };
    assert!(
        detail(0).ends_with("no policy is better than another; is this the right column?"),
        "{}",
        detail(0)
    );
    assert!(
        detail(7).ends_with("was it earned in the 7 terminal rows that had to be dropped?"),
        "{}",
        detail(7)
    );
}
