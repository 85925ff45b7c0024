//! A small dataset with every feature a format must carry, made by arithmetic.
#![allow(dead_code, reason = "shared by several test files, each using a part")]

use std::path::Path;

use ndarray::{Array1, Array2};
use offing::Batch;
use offing::data::{Dataset, Format, ReadOptions, ReadReport, SimColumns, read};

/// Episodes of 3 to 90 steps that end in turn by a terminal and by a time limit; the last is unfinished.
pub(crate) fn made(n: usize, obs_dim: usize, goal: bool) -> Dataset {
    let mut done = Array1::from_elem(n, false);
    let mut timeout = Array1::from_elem(n, false);
    let mut episodes = Vec::new();
    let (mut start, mut number) = (0, 0);
    while start < n {
        let end = (start + 3 + (number * 37) % 88).min(n);
        if end < n {
            if number % 2 == 0 { done[end - 1] = true } else { timeout[end - 1] = true }
        }
        episodes.push(start..end);
        (start, number) = (end, number + 1);
    }
    // Each episode starts somewhere else and moves smoothly, so a reset is never mistaken for a step.
    let value = |episode: usize, step: usize, j: usize| {
        (episode % 7) as f32 * 3.0 + ((step + j * 5) as f32 * 0.05).sin() + 1e-3 * j as f32
    };
    let mut obs = Array2::zeros((n, obs_dim));
    let mut next_obs = Array2::zeros((n, obs_dim));
    for (e, range) in episodes.iter().enumerate() {
        for i in range.clone() {
            for j in 0..obs_dim {
                obs[[i, j]] = value(e, i - range.start, j);
                next_obs[[i, j]] = value(e, i - range.start + 1, j);
            }
        }
    }
    let act = Array2::from_shape_fn((n, 2), |(i, j)| ((i * 13 + j * 7) as f32 * 0.37).sin());
    let rew = Array1::from_shape_fn(n, |i| (i as f32 * 0.11).cos());
    let wide =
        |d: usize, k: f64| Array2::from_shape_fn((n, d), |(i, j)| (i as f64 * k + j as f64).sin() / 3.0);
    let sim = SimColumns { qpos: wide(4, 0.1), qvel: wide(3, 0.2), goal: goal.then(|| wide(2, 0.3)) };
    Dataset {
        name: "made".into(),
        format: Format::D4rl,
        rows: Batch { obs, act, rew, next_obs, done },
        reward_shift: 0.0,
        timeout,
        episodes,
        sim: Some(sim),
        reading: ReadReport::default(),
        meta: [("algorithm".into(), "arithmetic".into()), ("seed".into(), "3".into())].into(),
    }
}

/// Reads `path` with options changed by `set`.
pub(crate) fn with_options(path: &Path, set: impl FnOnce(&mut ReadOptions)) -> offing::Result<Dataset> {
    let mut options = ReadOptions::default();
    set(&mut options);
    read(path, &options)
}
