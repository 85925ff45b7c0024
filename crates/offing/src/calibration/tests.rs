//! The study on worlds whose answer is known.

use ndarray::Array1;

use super::*;
use crate::batch::{Batch, Mat};
use crate::dynamics::{Ensemble, EnsembleConfig, Members, Oracle};
use crate::env::point_mass::PointMass;
use crate::env::{Env, Pool};
use crate::error::Result;
use crate::nn::Team;
use crate::rng::Rng;
use crate::sac::Actor;
use crate::uncertainty::{Source, Uncertainty, UncertaintyConfig};

/// Random play of the point mass.
fn data(rows: usize) -> Batch {
    let mut env = PointMass::new();
    let (s, a) = (env.spec().obs_dim, env.spec().act_dim);
    let mut rng = Rng::stream(0, "play", 0);
    let mut out = Batch::empty(s, a).select(&[]);
    let (mut obs, mut act, mut next, mut rew, mut done) = (vec![], vec![], vec![], vec![], vec![]);
    env.reset(0);
    for i in 0..rows {
        if i % 50 == 0 {
            env.reset(i as u64);
        }
        let action: Vec<f32> = (0..a).map(|_| rng.range(-1.0, 1.0) as f32).collect();
        obs.extend(env.obs().iter().map(|&x| x as f32));
        let moment = env.step(&action);
        act.extend(action);
        next.extend(env.obs().iter().map(|&x| x as f32));
        rew.push(moment.reward as f32);
        done.push(moment.terminated);
    }
    let mat = |flat: Vec<f32>, width| Mat::from_shape_vec((rows, width), flat).unwrap();
    (out.obs, out.act, out.next_obs) = (mat(obs, s), mat(act, a), mat(next, s));
    (out.rew, out.done) = (rew.into(), done.into());
    out
}

fn model(rows: &Batch) -> Ensemble {
    let cfg = EnsembleConfig {
        members: 3,
        elites: 2,
        hidden: vec![32; 4],
        batch_size: 64,
        max_epochs: Some(6),
        ..Default::default()
    };
    Ensemble::fit(&cfg, rows, 0, &Team::new(2), |_, _| Ok(())).unwrap()
}

/// Knows the truth: scores are the errors themselves, turned round on request.
#[derive(Debug)]
struct Knows {
    truth: Mat,
    sign: f32,
}

impl Uncertainty for Knows {
    fn score(&self, step: &crate::dynamics::Step) -> Result<Array1<f32>> {
        let error = &self.truth - &step.batch.next_obs;
        Ok(error.map_axis(ndarray::Axis(1), |e| self.sign * e.dot(&e).sqrt()))
    }
    fn needs(&self) -> Members {
        Members::One
    }
    fn max_baseline(&self) -> f32 {
        0.1
    }
}

#[test]
fn one_that_knows_scores_one_and_the_rest_lie_between() {
    let rows = data(3000);
    let model = model(&rows);
    let make = || Ok(Box::new(PointMass::new()) as Box<dyn Env>);
    let oracle = Oracle::new(Pool::new(&make)).unwrap();
    let mut rng = Rng::stream(1, "calibrate", 0);
    let (s, a) = (rows.obs_dim(), rows.act_dim());
    let actor = Actor::new(s, a, &[16], [-5.0, 2.0], &mut rng);
    let start = rows.obs.select(ndarray::Axis(0), &(0..20).map(|i| i * 100).collect::<Vec<_>>());
    let team = Team::new(2);
    let trial = imagine(&model, &actor, start, 15, &team, &mut rng).unwrap().replay(&oracle).unwrap();
    let counts = trial.counts;
    assert_eq!(counts.asked, 300);
    assert_eq!(counts.compared + counts.exploded + counts.cut + counts.lost, 300, "{counts:?}");
    let source = Source { model: Some(&model), ..Source::of_data(&rows) };
    let sumo = UncertaintyConfig::from_id("sumo").unwrap().build(&source).unwrap();
    let pairwise = UncertaintyConfig::from_id("pairwise").unwrap().build(&source).unwrap();
    let knows = Knows { truth: trial.truth.clone(), sign: 1.0 };
    let lies = Knows { truth: trial.truth.clone(), sign: -1.0 };
    let all: Vec<(String, &dyn Uncertainty)> = vec![
        ("knows".into(), &knows),
        ("lies".into(), &lies),
        ("sumo".into(), &*sumo),
        ("pairwise".into(), &*pairwise),
    ];
    let cfg = StudyConfig { repeats: 100, clip: Some((0..1, 0.5)), ..Default::default() };
    let found = study(&trial, &all, &cfg, &mut rng).unwrap();
    // Sampled and mean, clipped and not, on four subsets, with the step index beside them.
    assert_eq!(found.outcomes.len(), 4 * 4 * 5);
    let knows = found.headline("knows").unwrap();
    assert!(knows.spearman.value > 0.999 && knows.pearson.value > 0.999, "{knows:?}");
    assert!(knows.auroc > 0.999 && knows.auprc > 0.99 && knows.spearman_within_step > 0.99, "{knows:?}");
    let lies = found.headline("lies").unwrap();
    assert!(lies.spearman.value < -0.999 && lies.auroc < 0.001, "{lies:?}");
    for outcome in &found.outcomes {
        let Interval { value, low, high } = outcome.spearman;
        let sane =
            outcome.rows == 0 || value.is_nan() || (low - 1e-9 <= high && (-1.0..=1.0).contains(&value));
        assert!(sane, "{outcome:?}");
    }
    let cost = &found.cost[0];
    assert_eq!(cost.beyond.iter().map(|b| b.0).collect::<Vec<_>>(), [1.0, 5.0, 10.0]);
    let share =
        found.error.iter().filter(|e| **e > f64::from(0.1f32)).count() as f64 / found.error.len() as f64;
    assert!((cost.beyond[0].1 - share).abs() < 0.01, "{cost:?} {share}");
    assert_eq!(found.by_step[0].steps.iter().map(|s| s.rows).sum::<usize>(), counts.compared);
    assert_eq!(found.by_step[0].steps.len(), 15);
}

use crate::stats::Interval;

#[test]
fn held_out_rows_serve_where_there_is_no_simulator() {
    let rows = data(2000);
    let (train, held) =
        (rows.select(&(0..1500).collect::<Vec<_>>()), rows.select(&(1500..2000).collect::<Vec<_>>()));
    let model = model(&train);
    let mut rng = Rng::stream(1, "calibrate", 0);
    let episodes: Vec<_> = (0..10).map(|e| e * 50..(e + 1) * 50).collect();
    let trial = held_out(&model, &held, &episodes, &mut rng).unwrap();
    assert_eq!((trial.counts.compared, trial.rows.rollout[499], trial.rows.time[499]), (500, 9, 49));
    assert_eq!(trial.truth, held.next_obs);
    let sumo = UncertaintyConfig::from_id("sumo").unwrap().build(&Source::of_data(&train)).unwrap();
    let found = study(&trial, &[("sumo".into(), &*sumo)], &StudyConfig::default(), &mut rng).unwrap();
    assert!(found.headline("sumo").unwrap().spearman.value.is_finite());
    let message = held_out(&model, &Batch::empty(1, 1), &[], &mut rng).unwrap_err().to_string();
    assert!(message.contains("held-out rows"), "{message}");
}

#[test]
fn nothing_to_compare_is_named() {
    let rows = data(1000);
    let model = model(&rows);
    let mut rng = Rng::stream(1, "x", 0);
    let actor = Actor::new(rows.obs_dim(), rows.act_dim(), &[8], [-5.0, 2.0], &mut rng);
    let none = Mat::zeros((0, rows.obs_dim()));
    let message = imagine(&model, &actor, none, 5, &Team::new(1), &mut rng).unwrap_err().to_string();
    assert!(message.contains("start states"), "{message}");
    let one = held_out(&model, &rows.select(&[0]), &[0..1], &mut rng).unwrap();
    let message = study(&one, &[], &StudyConfig::default(), &mut rng).unwrap_err().to_string();
    assert!(message.contains("at least three rows"), "{message}");
}
