//! The estimates against answers known beforehand, and against the truth on a point mass.

use ndarray::{Array1, Array3};

use super::*;
use crate::batch::Batch;
use crate::data::generate::{BehaviourBlock, generate};
use crate::dynamics::{DynamicsModel, Members, ModelStep, Oracle, Prediction};
use crate::env::point_mass::PointMass;
use crate::env::{Env, EnvPool};
use crate::error::Error;
use crate::eval::evaluate;
use crate::nn::ThreadPool;
use crate::pessimism::{Normaliser, Pessimism};
use crate::policy::Policy;
use crate::rng::Rng;
use crate::rollout::ModelRollout;
use crate::run::ControlFlow;
use crate::sac::Deterministic;
use crate::stats::spearman;
use crate::uncertainty::{BuildContext, UncertaintyConfig};

/// Steers to the middle a third of the time, and anywhere else: the data show every part of the evaluator.
struct Clumsy;

impl Policy for Clumsy {
    fn act(&self, obs: &[f32], rng: &mut Rng, act: &mut [f32]) {
        let careful = rng.uniform() < 0.3;
        for (i, a) in act.iter_mut().enumerate() {
            let steer = -0.6 * obs[i] - 0.6 * obs[2 + i];
            *a = if careful { steer.clamp(-1.0, 1.0) } else { rng.range(-1.0, 1.0) as f32 };
        }
    }
}

fn data(rows: usize) -> Dataset {
    let new = || -> Result<Box<dyn Env>> { Ok(Box::new(PointMass::new())) };
    generate("point-mass", &EnvPool::new(new), &[BehaviourBlock { rows, behaviour: &Clumsy }], 0, &mut |_| ())
        .unwrap()
}

/// a = tanh(−gain · (x + v)): the larger the gain, the sooner it is in the middle.
fn steer(gain: f32) -> Actor {
    let mut tensors = Tensors::default();
    let k = -gain;
    tensors.put_f32("mean.weight", &[2, 4], vec![k, 0.0, k, 0.0, 0.0, k, 0.0, k]);
    tensors.put_f32("mean.bias", &[2], vec![0.0; 2]);
    tensors.put_f32("log_std.weight", &[2, 4], vec![0.0; 8]);
    tensors.put_f32("log_std.bias", &[2], vec![-1.0; 2]);
    Actor::from_policy(&tensors).unwrap()
}

const GAINS: [f32; 4] = [1.0, 0.3, 0.1, 0.0];

/// Mean returns of the policies in the simulator.
fn truth() -> Vec<f64> {
    let new = || -> Result<Box<dyn Env>> { Ok(Box::new(PointMass::new())) };
    let envs = EnvPool::new(new);
    GAINS.iter().map(|&g| evaluate(&envs, &Deterministic(&steer(g)), 50, 0).unwrap().mean()).collect()
}

fn quick() -> FittedQConfig {
    FittedQConfig { steps: 1500, batch: 128, hidden: vec![48; 2], lr: 1e-3, gamma: 0.95, tau: 0.02 }
}

#[test]
fn fitted_q_finds_what_is_known_beforehand() {
    let mut data = data(400);
    data.rows.rew.fill(1.0);
    let cfg = FittedQConfig { gamma: 0.5, ..quick() };
    let pool = ThreadPool::new(1);
    let value = |data: &Dataset| {
        fitted_q(&cfg, data, &steer(1.0), &pool, 0, &mut |_| ControlFlow::Continue(())).unwrap().value
    };
    data.rows.done.fill(true);
    assert!((value(&data) - 1.0).abs() < 0.05, "the reward, then the end: {}", value(&data));
    data.rows.done.fill(false);
    assert!((value(&data) - 2.0).abs() < 0.1, "1 / (1 − γ) for ever: {}", value(&data));
}

#[test]
fn fitted_q_orders_policies_as_the_simulator_does_on_any_number_of_threads() {
    let data = data(6000);
    let estimate = |gain: f32, threads: usize| {
        fitted_q(&quick(), &data, &steer(gain), &ThreadPool::new(threads), 0, &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap()
    };
    let values: Vec<f64> = GAINS.iter().map(|&g| estimate(g, 2).value).collect();
    assert!(spearman(&values, &truth()) > 0.999, "{values:?} against {:?}", truth());
    assert_eq!(estimate(0.2, 1), estimate(0.2, 3));
    let stopped =
        fitted_q(&quick(), &data, &steer(1.0), &ThreadPool::new(1), 0, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(Error::Stopped)));
}

/// s' = s + 1 with reward 1; ends beyond 3; explodes from below 0.
struct Counting;

impl DynamicsModel for Counting {
    fn members(&self) -> usize {
        1
    }

    fn predict(&self, obs: &Mat, _act: &Mat) -> Prediction {
        let shape = (1, obs.nrows(), obs.ncols() + 1);
        Prediction { mean: Array3::zeros(shape), std: Array3::zeros(shape) }
    }

    fn done(&self, _obs: &Mat, _act: &Mat, next_obs: &Mat) -> Array1<bool> {
        next_obs.column(0).mapv(|x| x > 3.0)
    }

    fn step_by(&self, _: Array1<u32>, obs: &Mat, act: &Mat, _members: Members, _: &mut Rng) -> ModelStep {
        let next_obs = obs.mapv(|x| if x < 0.0 { f32::INFINITY } else { x + 1.0 });
        let done = self.done(obs, act, &next_obs);
        let rew = Array1::ones(obs.nrows());
        ModelStep::of_rows(Batch { obs: obs.clone(), act: act.clone(), rew, next_obs, done })
    }
}

#[test]
fn a_model_return_adds_up_discounted_rewards_until_the_end() {
    let pool = ThreadPool::new(1);
    let rule = Pessimism::Ignore {}.calibrate(0.0, &ndarray::arr1(&[0.0, 1.0])).unwrap();
    let mut in_model =
        ModelRollout { model: &Counting, estimator: None, rule, pool: &pool, one_member: false };
    let cfg = ModelReturnConfig { length: 10, gamma: 0.5, ..Default::default() };
    let mut rng = Rng::stream(0, "t", 0);
    // From 0 four steps, from 2 two: (1 + ½ + ¼ + ⅛ + 1 + ½) / 2.
    let starts = Mat::from_shape_fn((2, 4), |(i, _)| 2.0 * i as f32);
    let found = model_return(&cfg, &mut in_model, &steer(1.0), starts, -7.0, &mut rng).unwrap();
    assert_eq!((found.value, found.unpenalised, found.length, found.exploded), (1.6875, 1.6875, 3.0, 0.0));
    // The second explodes at once: ten steps of the worst, discounted.
    let starts = Mat::from_shape_fn((2, 4), |(i, _)| 2.0 - 3.0 * i as f32);
    let found = model_return(&cfg, &mut in_model, &steer(1.0), starts, -7.0, &mut rng).unwrap();
    let rest: f64 = (0..10).map(|t| 0.5f64.powi(t)).sum();
    assert_eq!((found.value, found.exploded), ((1.5 - 7.0 * rest) / 2.0, 0.5));
    assert_eq!(found.unpenalised, 0.75);
}

#[test]
fn in_the_true_world_the_penalised_order_is_the_true_one() {
    let (data, pool) = (data(6000), ThreadPool::new(2));
    let new = || -> Result<Box<dyn Env>> { Ok(Box::new(PointMass::new())) };
    let world = Oracle::new(EnvPool::new(new)).unwrap();
    let sumo = UncertaintyConfig::from_id("sumo").unwrap().build(&BuildContext::of_data(&data.rows)).unwrap();
    let rule = |lambda| Pessimism::Penalize { lambda, normaliser: Normaliser::Dataset, reward_range: None };
    let estimate = |gain: f32, lambda: f32| {
        let rule = rule(lambda).calibrate(sumo.max_loo_score(), &data.rows.rew).unwrap();
        let mut in_model =
            ModelRollout { model: &world, estimator: Some(&*sumo), rule, pool: &pool, one_member: false };
        let cfg = ModelReturnConfig { length: 60, gamma: 1.0, lambda, ..Default::default() };
        let policy = without_noise(&steer(gain)).unwrap();
        let mut rng = Rng::stream(0, "judge", 0);
        model_return(&cfg, &mut in_model, &policy, first_states(&data), -10.0, &mut rng).unwrap()
    };
    let (found, truth): (Vec<ModelReturn>, _) = (GAINS.iter().map(|&g| estimate(g, 0.1)).collect(), truth());
    let values: Vec<f64> = found.iter().map(|f| f.value).collect();
    assert!(spearman(&values, &truth) > 0.999, "{values:?} against {truth:?}");
    for (found, truth) in found.iter().zip(&truth) {
        // Other starts, the same world.
        assert!((found.unpenalised - truth).abs() < 8.0, "{found:?} against {truth}");
    }
    let (free, dear) = (estimate(1.0, 0.0), estimate(1.0, 1.0));
    assert_eq!(free.value, free.unpenalised);
    assert!(dear.value < free.value && dear.unpenalised == free.unpenalised, "{dear:?} {free:?}");
    assert_eq!(estimate(1.0, 1.0), dear, "the same again");
}

#[test]
fn a_policy_without_noise_acts_as_its_mean() {
    let (policy, pool) = (steer(0.7), ThreadPool::new(1));
    let obs = Mat::from_shape_fn((20, 4), |(i, j)| (i as f32 - 10.0) * 0.1 + j as f32);
    let quiet = without_noise(&policy).unwrap();
    let acts = quiet.act_batch(&pool, &obs, &mut Rng::stream(0, "t", 0));
    let means = policy.mean_batch(&pool, &obs);
    assert!(acts.iter().zip(&means).all(|(a, m)| (a - m).abs() < 1e-6));
    assert!(policy.act_batch(&pool, &obs, &mut Rng::stream(0, "t", 0)) != means);
}

#[test]
fn a_clone_does_what_the_log_did() {
    let (mut data, pool) = (data(6000), ThreadPool::new(2));
    data.rows.act = steer(0.7).mean_batch(&pool, &data.rows.obs);
    let acts = clone_behaviour(&data, &pool, 0).unwrap().mean_batch(&pool, &data.rows.obs);
    let error = (&acts - &data.rows.act).mapv(|e| e * e).mean().unwrap();
    let spread = data.rows.act.var(0.0);
    assert!(error < 0.05 * spread, "squared error {error} of {spread}");
    assert!(acts == clone_behaviour(&data, &pool, 0).unwrap().mean_batch(&pool, &data.rows.obs));
}

#[test]
fn failing_pays_where_living_costs_and_an_end_is_no_goal() {
    let mut data = data(100);
    data.rows.done.fill(false);
    data.rows.rew.fill(-1.0);
    assert_eq!(data.ending_pays(), None, "nothing ends");
    data.rows.done[9] = true;
    assert_eq!(data.ending_pays(), Some(-1.0));
    data.rows.rew[9] = 0.0;
    assert_eq!(data.ending_pays(), None, "a goal");
    data.rows.done.fill(false);
    data.rows.rew.fill(-1.0);
    (data.reading.dropped_terminals, data.reading.dropped_terminal_rewards) = (3, -3.0);
    assert_eq!(data.ending_pays(), Some(-1.0), "the rows of ends were left out");
    data.reading.dropped_terminal_rewards = 0.0;
    assert_eq!(data.ending_pays(), None, "a goal whose rows were left out");
    data.rows.rew.fill(1.0);
    assert_eq!(data.ending_pays(), None, "living pays");
    let lives = |length: f64| ModelReturn { value: 0.0, unpenalised: 0.0, length, exploded: 0.0 };
    assert!(ends_early(&lives(80.0), &lives(100.0)) && !ends_early(&lives(95.0), &lives(100.0)));
}
