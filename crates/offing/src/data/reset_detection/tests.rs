//! Resets among the steps of bodies whose dynamics are known.

use super::*;
use crate::data::generate::{BehaviourBlock, generate};
use crate::data::{Dataset, LogColumns};
use crate::env::{Env, EnvPool, point_mass::PointMass};
use crate::policy::UniformPolicy;
use crate::rng::Rng;

#[test]
fn a_reset_is_a_jump_and_a_step_is_not() {
    let obs =
        Mat::from_shape_fn((1000, 2), |(i, j)| if j == 0 { ((i % 250) as f32 * 0.1).sin() } else { 7.0 });
    let scale = StepScale::measure(&obs, |i| i % 250 != 249).unwrap();
    assert!(!scale.is_jump(obs.row(10), obs.row(11)));
    let far = Mat::from_elem((1, 2), 5.0);
    assert!(scale.is_jump(obs.row(10), far.row(0)));
    let constant_moved = ndarray::arr1(&[obs[[11, 0]], 8.0]);
    assert!(!scale.is_jump(obs.row(10), constant_moved.view()), "an entry that never moves is no evidence");
}

#[test]
fn few_rows_give_no_scale() {
    assert!(StepScale::measure(&Mat::zeros((100, 2)), |_| true).is_none());
}

/// A log and the rows after which it was reset.
struct Made {
    log: LogColumns,
    ends: Vec<usize>,
}

/// A runner of six joints that swing by about a radian a step and are kicked now and then. It starts close to rest, so a
/// reset is no longer than its strides: halfcheetah's trouble.
fn runner(episodes: usize, steps: usize, seed: u64) -> Made {
    const JOINTS: usize = 6;
    let mut rng = Rng::stream(seed, "runner", 0);
    let (mut obs, mut act) = (Vec::new(), Vec::new());
    for _ in 0..episodes {
        let mut joints = [[0.0f64; 2]; JOINTS];
        joints.iter_mut().flatten().for_each(|v| *v = 0.1 * rng.normal());
        for _ in 0..steps {
            obs.extend(joints.iter().flatten().map(|&v| v as f32));
            let kick = if rng.uniform() < 0.02 { 0.3 * rng.normal() } else { 0.0 };
            for (j, [q, v]) in joints.iter_mut().enumerate() {
                let a = rng.range(-1.0, 1.0);
                act.push(a as f32);
                // A limit cycle of radius 1, reached within a few steps.
                let radius = q.hypot(*v).max(1e-6);
                let (sin, cos) = (0.9 + 0.1 * radius + 0.02 * j as f64).sin_cos();
                let grow = (1.0 + 0.5 * (1.0 - radius)).max(0.2);
                (*q, *v) = (grow * (cos * *q - sin * *v), grow * (sin * *q + cos * *v) + 0.1 * a + kick);
            }
        }
    }
    let n = episodes * steps;
    Made {
        log: LogColumns {
            obs: Mat::from_shape_vec((n, 2 * JOINTS), obs).unwrap(),
            act: Mat::from_shape_vec((n, JOINTS), act).unwrap(),
            rew: ndarray::Array1::zeros(n),
            done: ndarray::Array1::from_elem(n, false),
            ..LogColumns::default()
        },
        ends: (1..=episodes).map(|e| e * steps - 1).collect(),
    }
}

/// The last rows of episodes, as the reader sees them: rows of the file, since it drops exactly the last of each.
fn ends_read(log: LogColumns) -> Vec<usize> {
    let data = Dataset::from_columns("log", log).unwrap();
    let mut ends = Vec::new();
    for episode in &data.episodes {
        ends.push(episode.end + ends.len());
    }
    ends
}

#[test]
fn resets_shorter_than_a_stride_are_found_and_nothing_else() {
    for seed in 0..3 {
        let Made { log, ends } = runner(20, 500, seed);
        let mut strides: Vec<f64> = (0..log.obs.nrows() - 1)
            .map(|i| f64::from((&log.obs.row(i + 1) - &log.obs.row(i)).mapv(|v| v * v).sum()).sqrt())
            .collect();
        let resets: Vec<f64> = ends[..19].iter().map(|&i| strides[i]).collect();
        strides.sort_by(f64::total_cmp);
        assert!(quantile(&resets, 0.5) < 1.2 * quantile(&strides, 0.5), "{resets:?}");
        assert_eq!(ends_read(log), ends, "seed {seed}");
    }
}

#[test]
fn a_log_without_resets_stays_whole() {
    for (seed, steps) in [(0, 300), (1, 3000), (2, 30_000)] {
        let Made { log, ends } = runner(1, steps, seed);
        assert_eq!(ends_read(log), ends, "{steps} steps");
    }
}

#[test]
fn a_terminal_never_keeps_a_reset() {
    let Made { mut log, ends } = runner(20, 500, 3);
    ends.iter().for_each(|&i| log.done[i] = true);
    for timeouts in [false, true] {
        let timeout = timeouts.then(|| ndarray::Array1::from_elem(log.rew.len(), false));
        let data = Dataset::from_columns("log", LogColumns { timeout, ..log.clone() }).unwrap();
        assert_eq!((data.rows.len(), data.episodes.len()), (20 * 499, 20));
        assert!(data.rows.done.iter().all(|done| !done), "every terminal row was dropped");
    }
}

#[test]
fn a_reset_that_looks_like_a_step_goes_with_the_others() {
    let Made { mut log, ends } = runner(20, 500, 6);
    ends.iter().for_each(|&i| log.done[i] = true);
    // Three terminals in the middle of a stride: nothing about these steps is odd.
    [700, 1700, 2700].iter().for_each(|&i| log.done[i] = true);
    let data = Dataset::from_columns("log", log).unwrap();
    assert!(data.rows.done.iter().all(|done| !done));
}

#[test]
fn terminals_that_walk_on_are_kept() {
    let Made { mut log, ends } = runner(20, 500, 4);
    for &end in &ends {
        (end - 40..end).for_each(|i| log.done[i] = true);
    }
    let timeout = (0..log.rew.len()).map(|i| ends.contains(&i)).collect();
    let marked: usize = log.done.iter().filter(|d| **d).count();
    let data = Dataset::from_columns("log", LogColumns { timeout: Some(timeout), ..log }).unwrap();
    let kept = data.rows.done.iter().filter(|d| **d).count();
    assert!(kept * 100 >= marked * 97, "{kept} of {marked}");
}

#[test]
fn resets_of_the_point_mass_are_found_and_nothing_else() {
    let make_env = || Ok(Box::new(PointMass::new()) as Box<dyn Env>);
    let blocks = [BehaviourBlock { rows: 6000, behaviour: &UniformPolicy }];
    let made = generate("point-mass-random", &EnvPool::new(make_env), &blocks, 0, &mut |_| ()).unwrap();
    let ends: Vec<usize> = made.episodes.iter().map(|e| e.end - 1).collect();
    let rows = made.rows;
    let none = ndarray::Array1::from_elem(rows.len(), false);
    let log = LogColumns { obs: rows.obs, act: rows.act, rew: rows.rew, done: none, ..LogColumns::default() };
    assert_eq!(ends_read(log), ends);
}

#[test]
fn the_answer_is_the_same_on_any_number_of_threads() {
    let Made { log, .. } = runner(5, 5000, 5);
    let find = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| StepModel::fit(&log.obs, &log.act, |_| true).unwrap().misses(&log.obs, &log.act))
    };
    assert_eq!(find(1), find(3));
}
