//! Speed of the learning core: reads commands from standard input, answers each with one line of seconds a run.
//!
//! `scripts/bench_nn_peers.py` drives it beside PyTorch and JAX, in turns. By hand:
//! `echo "peak 5 \n sac 200" | cargo run --release --example bench_nn -- 2`

use std::io::{BufRead, Write};
use std::time::Instant;

use ndarray::Array1;
use offing::dynamics::{DynamicsModel, EnsembleConfig, Members, Trainer};
use offing::nn::Team;
use offing::policy::Policy;
use offing::sac::{Sac, SacConfig};
use offing::{Batch, Mat, Rng};

const OBS: usize = 17;
const ACT: usize = 6;
const BATCH: usize = 256;
/// Rows of a rollout step.
const ROWS: usize = 50_000;

fn main() {
    let threads = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(2);
    let team = Team::new(threads);
    let mut rng = Rng::stream(0, "bench", 0);
    let batch = batch(BATCH, &mut rng);
    let mut agent =
        Sac::new(&SacConfig::default(), OBS, ACT, &team, &mut rng).expect("the defaults are valid");
    let rows = self::batch(ROWS, &mut rng);
    let cfg = EnsembleConfig { max_updates: Some(1), ..EnsembleConfig::default() };
    let mut trainer = Trainer::new(&cfg, &rows, 0, &team).expect("the bench rows are finite");
    let drawn: Vec<u32> = (0..7 * BATCH).map(|_| rng.below(ROWS) as u32).collect();
    let model = {
        let mut trained = Trainer::new(&cfg, &rows, 0, &team).expect("the bench rows are finite");
        trained.step().and_then(|_| trained.finish()).expect("one update is an epoch here")
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("standard input is text");
        let mut words = line.split_whitespace();
        let (Some(what), Some(runs)) = (words.next(), words.next().and_then(|n| n.parse().ok())) else {
            continue;
        };
        let seconds: Vec<f64> = match what {
            // Seconds per GFLOP, so that every answer is a time.
            "peak" => (0..runs).map(|_| 1e9 / peak(&team)).collect(),
            "sac" => times(runs, || {
                agent.update(&batch, &mut rng).expect("the bench batch is finite");
            }),
            "ensemble" => times(runs, || {
                trainer
                    .step_on(|member| &drawn[member * BATCH..][..BATCH])
                    .expect("the bench rows are finite");
            }),
            "forecast" => times(runs, || {
                std::hint::black_box(model.forecast(&rows.obs, &rows.act));
            }),
            "step" => times(runs, || {
                std::hint::black_box(model.step(&rows.obs, &rows.act, Members::One, &mut rng));
            }),
            "act" => times(runs, || {
                // A thousand single observations, as a simulator asks for them.
                let mut act = [0.0; ACT];
                for i in 0..1000 {
                    let obs = rows.obs.row(i);
                    agent.actor.act(obs.as_slice().expect("rows are contiguous"), &mut rng, &mut act);
                }
                std::hint::black_box(act);
            }),
            "act-batch" => times(runs, || {
                std::hint::black_box(agent.actor.act_batch(&team, &rows.obs, &mut rng));
            }),
            other => panic!("unknown bench `{other}`"),
        };
        println!("{}", serde_json::to_string(&seconds).expect("numbers are JSON"));
        std::io::stdout().flush().expect("standard output is open");
    }
}

fn times(runs: usize, mut work: impl FnMut()) -> Vec<f64> {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .collect()
}

fn batch(rows: usize, rng: &mut Rng) -> Batch {
    let mut mat = |cols: usize| Mat::from_shape_fn((rows, cols), |_| rng.normal() as f32);
    let (obs, act, next_obs) = (mat(OBS), mat(ACT).mapv(f32::tanh), mat(OBS));
    let rew = obs.column(0).to_owned();
    Batch { obs, act, rew, next_obs, done: Array1::from_elem(rows, false) }
}

/// Multiply-adds from registers alone on every thread: floating-point operations a second.
fn peak(team: &Team) -> f64 {
    const ROUNDS: usize = 400_000;
    let start = Instant::now();
    team.for_each(team.threads(), |_| {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: both features were just detected.
            unsafe { multiply_add(ROUNDS) };
            return;
        }
        multiply_add_portable(ROUNDS);
    });
    (team.threads() * ROUNDS * 10 * 8 * 2) as f64 / start.elapsed().as_secs_f64()
}

/// Ten independent chains of eight lanes: enough to hide the latency of two units.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_add(rounds: usize) {
    use std::arch::x86_64::*;
    let (x, y) = std::hint::black_box((_mm256_set1_ps(0.999), _mm256_set1_ps(1e-3)));
    let mut acc = std::hint::black_box([_mm256_set1_ps(1.0); 10]);
    for _ in 0..rounds {
        for a in &mut acc {
            *a = _mm256_fmadd_ps(*a, x, y);
        }
    }
    std::hint::black_box(&acc);
}

fn multiply_add_portable(rounds: usize) {
    let (x, y) = std::hint::black_box((0.999f32, 1e-3f32));
    let mut acc = std::hint::black_box([1.0f32; 80]);
    for _ in 0..rounds {
        for a in &mut acc {
            *a = *a * x + y;
        }
    }
    std::hint::black_box(&acc);
}
