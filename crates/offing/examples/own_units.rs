//! A log in its own units: kelvin, pascal, a heater from 0 to 40 kW. Nothing is scaled by hand, going in or coming out.
//!
//! `cargo run --release --example own_units`

use offing::data::{Dataset, LogColumns};
use offing::policy::{Deterministic, Policy};
use offing::train::{Hooks, RunConfig, train};
use offing::{Error, Mat, Result, Rng};

const STEPS: usize = 60;

/// A heated tank: temperature in K, pressure in Pa. It should be at 325 K, and the relief valve trips at 1.1 bar.
struct Tank {
    temperature: f64,
    pressure: f64,
}

impl Tank {
    fn new(rng: &mut Rng) -> Self {
        Self { temperature: 293.0 + 3.0 * rng.normal(), pressure: 1e5 + 300.0 * rng.normal() }
    }

    fn obs(&self) -> [f32; 2] {
        [self.temperature as f32, self.pressure as f32]
    }

    /// One minute at this power; the reward, and whether the valve tripped.
    fn step(&mut self, power: f32, rng: &mut Rng) -> (f32, bool) {
        let power = f64::from(power).clamp(0.0, 40.0);
        self.temperature += 0.15 * power - 0.06 * (self.temperature - 288.0) + 0.1 * rng.normal();
        self.pressure +=
            0.4 * (1e5 + 220.0 * (self.temperature - 293.0) - self.pressure) + 50.0 * rng.normal();
        let tripped = self.pressure > 1.1e5;
        let reward = 2.0 - (self.temperature - 325.0).abs() / 20.0 - if tripped { 10.0 } else { 0.0 };
        (reward as f32, tripped)
    }
}

/// An operator who heats too little, and not the same every time.
struct Operator;

impl Policy for Operator {
    fn act(&self, obs: &[f32], rng: &mut Rng, act: &mut [f32]) {
        act[0] = (12.0 + 0.5 * (312.0 - obs[0]) + 10.0 * rng.normal() as f32).clamp(0.0, 40.0);
    }
}

/// Plays episodes; calls `seen` with every step, and gives back their mean return.
fn play(
    policy: &dyn Policy,
    episodes: u64,
    mut seen: impl FnMut([f32; 2], f32, f32, [f32; 2], bool, bool),
) -> f64 {
    let mut total = 0.0;
    for episode in 0..episodes {
        let rng = &mut Rng::stream(episode, "tank", 0);
        let mut tank = Tank::new(rng);
        for t in 0..STEPS {
            let (obs, mut act) = (tank.obs(), [0.0]);
            policy.act(&obs, rng, &mut act);
            let (reward, tripped) = tank.step(act[0], rng);
            total += f64::from(reward);
            seen(obs, act[0], reward, tank.obs(), tripped, t + 1 == STEPS);
            if tripped {
                break;
            }
        }
    }
    total / episodes as f64
}

/// What the operator's episodes look like in a log.
fn logged() -> Result<Dataset> {
    let (mut obs, mut act, mut rew, mut next, mut done, mut timeout) =
        (vec![], vec![], vec![], vec![], vec![], vec![]);
    play(&Operator, 80, |s, a, r, s2, tripped, late| {
        obs.extend(s);
        act.push(a);
        rew.push(r);
        next.extend(s2);
        done.push(tripped);
        timeout.push(late && !tripped);
    });
    let rows = rew.len();
    let matrix =
        |values: Vec<f32>, width| Mat::from_shape_vec((rows, width), values).expect("as many as rows");
    Dataset::from_columns(
        "tank",
        LogColumns {
            obs: matrix(obs, 2),
            act: matrix(act, 1),
            rew: rew.into(),
            next_obs: Some(matrix(next, 2)),
            done: done.into(),
            timeout: Some(timeout.into()),
        },
    )
}

/// Mean returns of the operator and of the policy learnt from the log, in the tank itself.
pub(crate) fn run() -> Result<[f64; 2]> {
    let dir = tempfile::tempdir().map_err(|e| Error::io("the temporary directory", "create", e))?;
    let mut config = RunConfig::new("landfall", logged()?).profile("quick").dir(dir.path().join("run"));
    // The condition speaks of pascal, as the log does.
    for setting in [
        "model.termination={kind='expression', alive='obs[1] < 1.1e5'}",
        "train.action_range={low=[0.0], high=[40.0]}",
        "train.steps=1500",
        "warm_start.steps=500",
        "model.ensemble.max_updates=2000",
        "model.ensemble.hidden=[64, 64]",
        "model.ensemble.decay=[0.0, 0.0, 0.0]",
        "sac.hidden=[64, 64]",
    ] {
        config = config.set(setting);
    }
    let trained = train(&config, &mut Hooks::new(dir.path().join("home")))?;
    let policy = trained.policy.ok_or_else(|| Error::Invalid("the training was stopped".into()))?;
    let nothing = |_, _, _, _, _, _| ();
    Ok([play(&Operator, 50, nothing), play(&Deterministic(&policy), 50, nothing)])
}

#[allow(dead_code, reason = "a test calls `run` alone")]
fn main() -> Result<()> {
    let [operator, learnt] = run()?;
    println!("mean return in the tank: the operator {operator:.1}, learnt from the log {learnt:.1}");
    Ok(())
}
