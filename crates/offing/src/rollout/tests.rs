//! What imagination promises: rules, late scoring, ends and bytes.

use super::*;
use crate::dynamics::Prediction;
use crate::pessimism::{Normaliser, Pessimism};
use crate::uncertainty::{BuildContext, UncertaintyConfig};

/// A world that drifts along the action, with noise.
struct Drift;

impl DynamicsModel for Drift {
    fn members(&self) -> usize {
        1
    }

    fn draw_members(&self, rows: usize, _rng: &mut Rng) -> Array1<u32> {
        Array1::zeros(rows)
    }

    fn predict(&self, _obs: &Mat, _act: &Mat) -> Prediction {
        unreachable!("nobody here reads predictions")
    }

    fn done(&self, _obs: &Mat, _act: &Mat, next_obs: &Mat) -> Array1<bool> {
        Array1::from_elem(next_obs.nrows(), false)
    }

    fn step_by(&self, _: Array1<u32>, obs: &Mat, act: &Mat, _members: Members, rng: &mut Rng) -> ModelStep {
        let next_obs = obs + &act.mapv(|a| 0.5 * a).mapv_into(|a| a + 0.1 * rng.normal() as f32);
        let (rew, done) = (next_obs.column(0).to_owned(), self.done(obs, act, &next_obs));
        ModelStep::of_rows(Batch { obs: obs.clone(), act: act.clone(), rew, next_obs, done })
    }
}

/// An estimator whose rows are scored in the rollout, not when they are drawn.
#[derive(Debug)]
struct Early(Box<dyn Uncertainty>);

impl Uncertainty for Early {
    fn score(&self, step: &ModelStep) -> Result<Array1<f32>> {
        self.0.score(step)
    }

    fn needs(&self) -> Members {
        Members::All
    }

    fn max_loo_score(&self) -> f32 {
        self.0.max_loo_score()
    }
}

/// Rewards of `draws` after the penalty, and how many rows were scored: rollouts and draws in turns, as in training.
fn penalised(normaliser: Normaliser, early: bool, order: &[usize]) -> (Vec<f32>, u64) {
    let mut rng = Rng::stream(0, "data", 0);
    let mut mat = |cols| Mat::from_shape_simple_fn((300, cols), || rng.range(-1.0, 1.0) as f32);
    let (obs, act, next_obs) = (mat(2), mat(2), mat(2));
    let rew = obs.column(1).to_owned();
    let data = Batch { obs, act, rew, next_obs, done: Array1::from_elem(300, false) };
    let sumo = UncertaintyConfig::from_id("sumo").unwrap().build(&BuildContext::of_data(&data)).unwrap();
    let estimator: Box<dyn Uncertainty> = if early { Box::new(Early(sumo)) } else { sumo };
    let rule = Pessimism::Penalize { lambda: 1.0, normaliser, reward_range: None };
    let rule = rule.calibrate(estimator.max_loo_score(), &data.rew).unwrap();
    let pool = ThreadPool::new(1);
    let mut in_model =
        ModelRollout { model: &Drift, estimator: Some(&*estimator), rule, pool: &pool, one_member: false };
    let mut imagined = ModelBuffer::new(1000, 2, 2);
    let (mut rewards, mut scored) = (Vec::new(), 0);
    for turn in 0..3 {
        let start = data.obs.slice(s![..40, ..]).to_owned();
        let rng = &mut Rng::stream(turn, "rollout", 0);
        let mut rollout = in_model.run(&UniformActions { obs_dim: 2, act_dim: 2 }, start, 5, rng).unwrap();
        imagined.push(&rollout);
        let slots = || order.iter().map(|slot| slot + 200 * turn as usize);
        imagined.score(slots(), &*estimator, &mut in_model.rule, &mut rollout.stats).unwrap();
        scored += rollout.stats.scored;
        let mut drawn: Vec<f32> = slots().map(|i| imagined.ring.columns().rew[i]).collect();
        let u: Vec<f32> = slots().map(|i| imagined.score_at(i)).collect();
        in_model.rule.penalise(&mut drawn, &u);
        rewards.extend(drawn);
    }
    (rewards, scored)
}

#[test]
fn scoring_when_drawn_equals_scoring_early_but_for_a_running_maximum() {
    let draws: Vec<usize> = (0..60).map(|i| i * 7 % 200).collect();
    for normaliser in [Normaliser::Dataset, Normaliser::Batch, Normaliser::None] {
        let (early, all) = penalised(normaliser, true, &draws);
        let (lazy, drawn) = penalised(normaliser, false, &draws);
        assert_eq!(early, lazy, "{normaliser:?}: bit for bit");
        assert_eq!((all, drawn), (600, 180), "and less work");
    }
    // The maximum over drawn rows is smaller, so their penalty is larger.
    let (early, _) = penalised(Normaliser::Running, true, &draws[..5]);
    let (lazy, _) = penalised(Normaliser::Running, false, &draws[..5]);
    assert!(early.iter().zip(&lazy).all(|(e, l)| l <= e) && early != lazy);
}

#[test]
fn uniform_actions_fill_the_box_and_follow_from_the_stream() {
    let nobody = UniformActions { obs_dim: 2, act_dim: 3 };
    let (pool, obs) = (ThreadPool::new(1), Mat::zeros((5000, 2)));
    let drawn = |seed| nobody.sample_actions(&pool, &obs, &mut Rng::stream(seed, "test", 0));
    let act = drawn(0);
    assert_eq!(act.dim(), (5000, 3));
    assert!(act.iter().all(|a| (-1.0..=1.0).contains(a)));
    // Mean 0 and variance 1/3, each within five standard errors.
    let n = act.len() as f64;
    let mean = act.iter().map(|&a| f64::from(a)).sum::<f64>() / n;
    let variance = act.iter().map(|&a| f64::from(a).powi(2)).sum::<f64>() / n;
    assert!(mean.abs() < 5.0 * (1.0 / (3.0 * n)).sqrt(), "{mean}");
    assert!((variance - 1.0 / 3.0).abs() < 5.0 * (4.0 / (45.0 * n)).sqrt(), "{variance}");
    assert_eq!(act, drawn(0));
    assert_ne!(act, drawn(1));
}
