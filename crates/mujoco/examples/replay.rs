//! Replays actions in an offing environment: one JSON request a line on stdin, one JSON answer a line on stdout.
//!
//! `{"task", "physics", "qpos", "qvel", "goal"?, "acts": [[…]]}` steps on from one state and answers
//! `{"first", "obs", "rewards", "terminated"}`; `{"task", "physics", "resume": [[…]], "acts": [[…]]}` resumes from each
//! observation by itself and answers `{"obs", "rewards", "terminated", "clipped"}`. All numbers survive the trip
//! exactly. `scripts/check_gymnasium.py` drives this.

use std::io::{BufRead, Write};
use std::path::PathBuf;

use offing::env::{Env, SimState};
use offing::home::Home;
use offing_mujoco::{Engine, make};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    task: String,
    physics: String,
    #[serde(default)]
    qpos: Vec<f64>,
    #[serde(default)]
    qvel: Vec<f64>,
    #[serde(default)]
    goal: Vec<f64>,
    #[serde(default)]
    resume: Vec<Vec<f64>>,
    acts: Vec<Vec<f32>>,
}

#[derive(Default, Serialize)]
struct Answer {
    first: Vec<f64>,
    obs: Vec<Vec<f64>>,
    rewards: Vec<f64>,
    terminated: Vec<bool>,
    clipped: Vec<usize>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = Home::locate(std::env::var_os("OFFING_HOME").map(PathBuf::from))?;
    let explicit = std::env::var_os("MUJOCO_LIB").map(PathBuf::from);
    let engine = Engine::load(&home, explicit.as_deref(), &mut |line| eprintln!("{line}"))?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line?)?;
        let mut env = make(&engine, &request.task, request.physics.parse()?)?;
        let answer =
            if request.resume.is_empty() { roll(&mut *env, &request)? } else { resume(&mut *env, &request)? };
        serde_json::to_writer(&mut out, &answer)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

/// Steps on from one state, through terminations.
fn roll(env: &mut dyn Env, request: &Request) -> offing::Result<Answer> {
    let Request { qpos, qvel, goal, .. } = request;
    env.set_state(&SimState { qpos: qpos.clone(), qvel: qvel.clone(), goal: goal.clone() })?;
    let mut answer = Answer { first: env.obs().to_vec(), ..Answer::default() };
    for act in &request.acts {
        record(env, act, &mut answer);
    }
    Ok(answer)
}

/// One step from each observation.
fn resume(env: &mut dyn Env, request: &Request) -> offing::Result<Answer> {
    let mut answer = Answer::default();
    for (obs, act) in request.resume.iter().zip(&request.acts) {
        answer.clipped.push(env.resume_from(obs)?.clipped.len());
        record(env, act, &mut answer);
    }
    Ok(answer)
}

fn record(env: &mut dyn Env, act: &[f32], answer: &mut Answer) {
    let result = env.step(act);
    answer.obs.push(env.obs().to_vec());
    answer.rewards.push(result.reward);
    answer.terminated.push(result.terminated);
}
