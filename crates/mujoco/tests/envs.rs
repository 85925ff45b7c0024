//! What every task promises, checked on the real engine.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod engine;

use offing::Rng;
use offing::env::{Env, SimState, StepResult};
use offing::home::Home;
use offing_mujoco::{Engine, Maze, Physics, TASKS, bench, make, make_starting_anywhere};

fn env(task: &str, physics: Physics) -> Box<dyn Env> {
    make(engine::shared(), task, physics).unwrap()
}

fn random_act(env: &dyn Env, rng: &mut Rng) -> Vec<f32> {
    (0..env.spec().act_dim).map(|_| rng.range(-1.0, 1.0) as f32).collect()
}

#[test]
fn shapes_are_those_of_d4rl_and_gymnasium() {
    let widths = |task| Physics::ALL.map(|physics| env(task, physics).spec().obs_dim);
    assert_eq!(widths("halfcheetah"), [17; 4]);
    assert_eq!(widths("hopper"), [11; 4]);
    assert_eq!(widths("walker2d"), [17; 4]);
    assert_eq!(widths("ant"), [111, 27, 105, 111]);
    assert_eq!(widths("antmaze-large"), [29; 4]);
    let acts = TASKS.iter().map(|task| env(task, Physics::default()).spec().act_dim);
    assert_eq!(acts.collect::<Vec<_>>(), [6, 3, 6, 8, 8, 8, 8]);
    let horizons = TASKS.iter().map(|task| env(task, Physics::default()).spec().horizon);
    assert_eq!(horizons.collect::<Vec<_>>(), [1000, 1000, 1000, 1000, 700, 1000, 1000]);
}

#[test]
fn an_unknown_task_is_refused_with_the_names_that_exist() {
    let error = make(engine::shared(), "hoper", Physics::default()).err().unwrap().to_string();
    assert_eq!(error.lines().count(), 1);
    assert!(TASKS.iter().all(|task| error.contains(task)), "{error}");
    assert!("v4".parse::<Physics>().unwrap_err().to_string().contains("gymnasium-v4"));
}

#[test]
fn a_library_that_is_none_is_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("libmujoco.so.3.17.0");
    std::fs::write(&file, "<html>not found</html>").unwrap();
    let error = Engine::load(&Home::new(dir.path()), Some(&file), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("wanted the MuJoCo 3.17.0 shared library"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn an_episode_follows_from_its_seed() {
    for task in TASKS {
        let run = |seed: u64, mut env: Box<dyn Env>| {
            env.reset(seed);
            let mut rng = Rng::stream(seed, "acts", 0);
            let mut trace = env.obs().to_vec();
            for _ in 0..20 {
                let act = random_act(&*env, &mut rng);
                trace.push(env.step(&act).reward);
                trace.extend(env.obs());
            }
            trace
        };
        let mut used = env(task, Physics::default());
        used.reset(99);
        used.step(&vec![1.0; used.spec().act_dim]);
        let fresh = run(7, env(task, Physics::default()));
        assert_eq!(fresh, run(7, used), "{task}: what came before must not matter");
        assert_ne!(fresh, run(8, env(task, Physics::default())), "{task}");
    }
}

#[test]
fn a_state_taken_back_leads_to_the_same_steps() {
    for (task, physics) in TASKS.iter().flat_map(|t| Physics::ALL.map(|p| (*t, p))) {
        let (mut a, mut b) = (env(task, physics), env(task, physics));
        let mut rng = Rng::stream(1, task, 0);
        a.reset(3);
        for _ in 0..30 {
            let act = random_act(&*a, &mut rng);
            a.step(&act);
        }
        let state = a.state();
        a.set_state(&state).unwrap();
        b.set_state(&state).unwrap();
        assert_eq!(a.state(), state, "{task} {physics}");
        for _ in 0..10 {
            let act = random_act(&*a, &mut rng);
            assert_eq!(a.step(&act), b.step(&act));
            assert_eq!(a.obs(), b.obs(), "{task} {physics}");
        }
    }
}

#[test]
fn resuming_from_an_observation_leads_to_the_next_one() {
    for (task, physics) in TASKS.iter().flat_map(|t| Physics::ALL.map(|p| (*t, p))) {
        let (mut a, mut b) = (env(task, physics), env(task, physics));
        let mut rng = Rng::stream(2, task, 0);
        a.reset(4);
        let mut exact = 0;
        // What the resumed one lacks is the solver's warm start: with the ant's many contacts the solver stops elsewhere
        // within its tolerance, and contact forces, in the thousands before they are clipped, magnify that.
        let width = if task == "ant" { 27 } else { a.spec().obs_dim };
        let tolerance = if task.starts_with("ant") { 1e-6 } else { 1e-9 };
        for _ in 0..200 {
            let resumed = b.resume_from(a.obs()).unwrap();
            // Gentle, or the walker is down before a velocity has settled below the clip.
            let act: Vec<f32> = random_act(&*a, &mut rng).iter().map(|a| 0.3 * a).collect();
            let result = a.step(&act);
            b.step(&act);
            if resumed.clipped.is_empty() {
                exact += 1;
                for (x, y) in a.obs()[..width].iter().zip(b.obs()) {
                    assert!((x - y).abs() < tolerance, "{task} {physics}: {x} and {y}");
                }
            }
            if result.terminated {
                a.reset(rng.bits());
            }
        }
        assert!(exact > 50, "{task} {physics}: {exact} rows were exact");
    }
}

#[test]
fn clipped_velocities_are_reported() {
    let mut hopper = env("hopper", Physics::default());
    let mut obs = hopper.obs().to_vec();
    obs[6] = -10.0;
    obs[9] = 10.0;
    assert_eq!(hopper.resume_from(&obs).unwrap().clipped, [6, 9]);
    let mut cheetah = env("halfcheetah", Physics::default());
    let mut obs = cheetah.obs().to_vec();
    obs[12] = 15.0;
    assert!(cheetah.resume_from(&obs).unwrap().clipped.is_empty(), "HalfCheetah clips nothing");
}

#[test]
fn wrong_states_and_observations_are_refused() {
    let mut hopper = env("hopper", Physics::default());
    let before = hopper.state();
    let errors = [
        hopper.resume_from(&[0.0; 10]).unwrap_err(),
        hopper.resume_from(&[f64::NAN; 11]).unwrap_err(),
        hopper.set_state(&SimState { qpos: vec![0.0; 5], ..before.clone() }).unwrap_err(),
        hopper.set_state(&SimState { qvel: vec![f64::INFINITY; 6], ..before.clone() }).unwrap_err(),
        hopper.set_state(&SimState { goal: vec![1.0, 2.0], ..before.clone() }).unwrap_err(),
    ];
    for error in errors.map(|e| e.to_string()) {
        assert!(error.contains("hopper") && error.contains("wanted") && error.contains("found"), "{error}");
    }
    assert_eq!(hopper.state(), before, "a refused state changes nothing");
}

#[test]
fn a_state_the_engine_cannot_compute_with_is_told() {
    for task in ["halfcheetah", "hopper", "antmaze-umaze"] {
        let mut env = env(task, Physics::default());
        env.step(&vec![0.5; env.spec().act_dim]);
        assert!(!env.unstable(), "{task}");
        let mut state = env.state();
        state.qvel[0] = 1e11;
        env.set_state(&state).unwrap();
        env.step(&vec![0.5; env.spec().act_dim]);
        assert!(env.unstable(), "{task}");
        env.reset(0);
        assert!(!env.unstable(), "{task}: a reset forgets");
    }
}

#[test]
fn the_horizon_cuts_an_episode_off_without_ending_it() {
    let mut cheetah = env("halfcheetah", Physics::default());
    cheetah.reset(0);
    let results: Vec<StepResult> = (0..1000).map(|_| cheetah.step(&[0.1; 6])).collect();
    assert!(results[..999].iter().all(|m| !m.truncated && !m.terminated));
    assert!(results[999].truncated && !results[999].terminated);
}

#[test]
fn only_v5_withholds_the_bonus_from_the_step_that_falls() {
    let last_reward = |physics| {
        let mut hopper = env("hopper", physics);
        let mut state = hopper.state();
        state.qpos[2] = 0.25; // beyond the healthy angle
        hopper.set_state(&state).unwrap();
        let result = hopper.step(&[0.0; 3]);
        assert!(result.terminated);
        result.reward
    };
    let (v4, v5) = (last_reward(Physics::GymnasiumV4), last_reward(Physics::GymnasiumV5));
    assert!((v4 - v5 - 1.0).abs() < 1e-9, "{v4} and {v5}");
}

#[test]
fn goals_are_drawn_per_reset() {
    let mut env = env("antmaze-medium", Physics::default());
    let each = [1, 2, 3].map(|seed| {
        env.reset(seed);
        env.state().goal
    });
    assert!(each[0] != each[1] && each[1] != each[2]);
    for goal in each {
        assert!(goal.len() == 2 && goal.iter().all(|x| (20.0..21.5).contains(x)), "{goal:?}");
    }
}

#[test]
fn reaching_the_goal_pays_one_and_ends() {
    let mut env = env("antmaze-umaze", Physics::default());
    env.reset(0);
    let far = env.step(&[0.0; 8]);
    assert_eq!((far.reward, far.terminated), (0.0, false));
    let (x, y) = (env.obs()[0], env.obs()[1]);
    env.set_state(&SimState { goal: vec![x + 0.3, y], ..env.state() }).unwrap();
    let near = env.step(&[0.0; 8]);
    assert_eq!((near.reward, near.terminated), (1.0, true));
    assert_eq!(env.state().goal, [x + 0.3, y]);
}

#[test]
fn walls_hold_the_ant() {
    let mut env = env("antmaze-umaze", Physics::default());
    env.reset(0);
    let mut state = env.state();
    // Flung at the wall between the arms of the U, whose face is at y = 2.
    state.qvel[1] = 8.0;
    env.set_state(&state).unwrap();
    let ys: Vec<f64> = (0..40)
        .map(|_| {
            env.step(&[0.0; 8]);
            env.obs()[1]
        })
        .collect();
    assert!(ys.iter().all(|y| *y < 2.0), "{ys:?}");
    assert!(ys.iter().any(|y| *y > 0.5), "the ant did move: {ys:?}");
}

#[test]
fn starts_anywhere_lie_in_open_cells() {
    let mut env = make_starting_anywhere(engine::shared(), "antmaze-large", Physics::default()).unwrap();
    let mut cells = std::collections::BTreeSet::new();
    for seed in 0..300 {
        env.reset(seed);
        let (x, y) = (env.obs()[0], env.obs()[1]);
        let cell = Maze::large().cell([x, y]);
        let [cx, cy] = Maze::large().centre(cell);
        assert!((x - cx).abs() <= 2.0 && (y - cy).abs() <= 2.0);
        cells.insert(cell);
    }
    assert_eq!(cells.len(), Maze::large().open_cells().len(), "every open cell is reached");
}

#[test]
fn the_bench_measures_both_sides() {
    let rates = bench::rates(engine::shared(), "hopper", Physics::default(), 2, 200).unwrap();
    assert_eq!((rates.env.len(), rates.bare.len()), (2, 2));
    assert!(rates.env.iter().chain(&rates.bare).all(|r| *r > 100.0), "{rates:?}");
}
