//! Steps a second of one task, as JSON: `env_rate TASK PHYSICS [STEPS] [ROUNDS]`. `scripts/bench_env_peers.py` puts
//! gymnasium's beside it.

use std::path::PathBuf;

use offing::home::Home;
use offing_mujoco::{Engine, bench};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [task, physics, rest @ ..] = words.as_slice() else {
        return Err("usage: env_rate TASK PHYSICS [STEPS] [ROUNDS]".into());
    };
    let number = |i: usize, default: usize| rest.get(i).map_or(Ok(default), |word| word.parse());
    let home = Home::locate(std::env::var_os("OFFING_HOME").map(PathBuf::from))?;
    let explicit = std::env::var_os("MUJOCO_LIB").map(PathBuf::from);
    let engine = Engine::load(&home, explicit.as_deref(), &mut |line| eprintln!("{line}"))?;
    let rates = bench::rates(&engine, task, physics.parse()?, number(1, 5)?, number(0, 20_000)?)?;
    println!("{}", serde_json::json!({ "env": rates.env, "bare": rates.bare }));
    Ok(())
}
