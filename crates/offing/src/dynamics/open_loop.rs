//! How far a model drifts from the simulator when both follow the data's own actions from the data's own
//! states.

use ndarray::{Array3, Axis, s};
use serde::Serialize;

use super::ensemble::Ensemble;
use super::linear::Linear;
use super::oracle::Oracle;
use super::{DynamicsModel, Members};
use crate::batch::{Batch, Mat};
use crate::data::Dataset;
use crate::error::{Result, invalid, require};
use crate::rng::Rng;

/// Where to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenLoopConfig {
    /// Windows to draw from the dataset.
    pub windows: usize,
    /// Steps of each.
    pub steps: usize,
    /// Seed of the windows and of sampled steps.
    pub seed: u64,
}

/// Errors by step. An error is the root mean square over observation columns, each divided by its standard
/// deviation over the dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpenLoop {
    /// Windows measured.
    pub windows: usize,
    /// Windows left out because their start hides clipped velocities.
    pub clipped: usize,
    /// Windows left out because the simulator gave up or refused the state.
    pub unstable: usize,
    /// One for each predictor.
    pub curves: Vec<Curve>,
}

/// A predictor's errors after 1, 2, … steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Which predictor.
    pub name: &'static str,
    /// Mean over the windows whose prediction is finite.
    pub mean: Vec<f64>,
    /// 10 % quantile over all windows.
    pub low: Vec<f64>,
    /// Median.
    pub median: Vec<f64>,
    /// 90 % quantile.
    pub high: Vec<f64>,
    /// Windows whose prediction is no longer finite.
    pub exploded: Vec<usize>,
}

/// From states, actions and the number of steps made to the next states.
type Predictor<'a> = dyn FnMut(&Mat, &Mat, usize) -> Mat + 'a;

/// Measures `model`, its sampled steps, `line` and the recorded states themselves against the simulator.
pub fn open_loop(
    model: &Ensemble,
    line: &Linear,
    oracle: &Oracle<'_>,
    data: &Dataset,
    cfg: &OpenLoopConfig,
) -> Result<OpenLoop> {
    let starts = draw_starts(data, cfg)?;
    let acts_at = |starts: &[usize]| {
        let shape = (starts.len(), cfg.steps, data.rows.act_dim());
        Array3::from_shape_fn(shape, |(i, t, j)| data.rows.act[[starts[i] + t, j]])
    };
    let truth = oracle.follow(&data.rows.obs.select(Axis(0), &starts), &acts_at(&starts))?;
    let lost = &truth.lost;
    let gone = |i: &usize| {
        [&lost.clipped, &lost.unstable, &lost.unreadable].iter().all(|l| l.binary_search(i).is_err())
    };
    let kept: Vec<usize> = (0..starts.len()).filter(gone).collect();
    require!(
        !kept.is_empty(),
        "none of {} windows could be replayed in the simulator exactly; check that the data are of {}",
        starts.len(),
        oracle.spec().task
    );
    let starts: Vec<usize> = kept.iter().map(|&i| starts[i]).collect();
    let truth_obs = truth.obs.select(Axis(0), &kept);
    let (first, acts) = (data.rows.obs.select(Axis(0), &starts), acts_at(&starts));
    let scale = deviations(&data.rows);

    let mut rng = Rng::stream(cfg.seed, "open-loop", 1);
    let roll = |name: &'static str, next: &mut Predictor<'_>| {
        let mut errors = Vec::with_capacity(cfg.steps);
        let mut obs = first.clone();
        for t in 0..cfg.steps {
            obs = next(&obs, &acts.index_axis(Axis(1), t).to_owned(), t);
            errors.push(error(&obs, &truth_obs.index_axis(Axis(1), t).to_owned(), &scale));
        }
        Curve::of(name, errors)
    };
    let width = data.rows.obs_dim();
    let curves = vec![
        roll("mean of the elites", &mut |obs, act, _| elite_mean(model, obs, act)),
        roll("sampled", &mut |obs, act, _| model.step(obs, act, Members::One, &mut rng).batch.next_obs),
        roll("linear", &mut |obs, act, _| line.predict(obs, act).slice(s![.., ..width]).to_owned()),
        roll("no change", &mut |obs, _, _| obs.clone()),
        roll("recorded", &mut |_, _, t| {
            let rows: Vec<usize> = starts.iter().map(|s| s + t).collect();
            data.rows.next_obs.select(Axis(0), &rows)
        }),
    ];
    Ok(OpenLoop {
        windows: starts.len(),
        clipped: lost.clipped.len(),
        unstable: lost.unstable.len() + lost.unreadable.len(),
        curves,
    })
}

/// First rows of windows that lie within one episode, in random order.
fn draw_starts(data: &Dataset, cfg: &OpenLoopConfig) -> Result<Vec<usize>> {
    let within = |e: &std::ops::Range<usize>| e.start..(e.end + 1).saturating_sub(cfg.steps).max(e.start);
    let mut starts: Vec<usize> = data.episodes.iter().flat_map(within).collect();
    if starts.is_empty() || cfg.steps == 0 || cfg.windows == 0 {
        let longest = data.episodes.iter().map(|e| e.len()).max().unwrap_or(0);
        return Err(invalid!(
            "open-loop error: wanted an episode of at least {} steps, the longest has {longest}; ask for fewer steps",
            cfg.steps.max(1)
        ));
    }
    let mut rng = Rng::stream(cfg.seed, "open-loop", 0);
    let count = cfg.windows.min(starts.len());
    for i in 0..count {
        let other = i + rng.below(starts.len() - i);
        starts.swap(i, other);
    }
    starts.truncate(count);
    Ok(starts)
}

fn elite_mean(model: &Ensemble, obs: &Mat, act: &Mat) -> Mat {
    let mean = model.predict(obs, act).mean;
    let elites = mean.select(Axis(0), model.elites());
    let width = obs.ncols();
    elites.slice(s![.., .., ..width]).mean_axis(Axis(0)).expect("a model has at least one elite")
}

/// Standard deviation of each observation column; 1 where it is constant.
fn deviations(rows: &Batch) -> Vec<f64> {
    let one = |column: ndarray::ArrayView1<'_, f32>| {
        let std = column.mapv(f64::from).std(0.0);
        if std > 1e-12 { std } else { 1.0 }
    };
    rows.obs.columns().into_iter().map(one).collect()
}

/// Root mean square of the scaled difference of each row; infinite where the prediction is not finite.
fn error(predicted: &Mat, truth: &Mat, scale: &[f64]) -> Vec<f64> {
    let rows = predicted.rows().into_iter().zip(truth.rows());
    rows.map(|(p, t)| {
        let square = |((p, t), s): ((&f32, &f32), &f64)| ((f64::from(*p) - f64::from(*t)) / s).powi(2);
        let mean = p.iter().zip(t).zip(scale).map(square).sum::<f64>() / scale.len() as f64;
        if mean.is_finite() { mean.sqrt() } else { f64::INFINITY }
    })
    .collect()
}

impl Curve {
    fn of(name: &'static str, errors: Vec<Vec<f64>>) -> Self {
        let mut curve =
            Self { name, mean: vec![], low: vec![], median: vec![], high: vec![], exploded: vec![] };
        for mut step in errors {
            step.sort_by(f64::total_cmp);
            let at = |share: f64| step[((step.len() - 1) as f64 * share).round() as usize];
            let finite = step.iter().take_while(|e| e.is_finite()).count();
            curve.mean.push(step[..finite].iter().sum::<f64>() / finite as f64);
            curve.low.push(at(0.1));
            curve.median.push(at(0.5));
            curve.high.push(at(0.9));
            curve.exploded.push(step.len() - finite);
        }
        curve
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Format, ReadReport};
    use crate::dynamics::EnsembleConfig;
    use crate::env::point_mass::PointMass;
    use crate::env::{Env, EnvPool};
    use crate::nn::ThreadPool;
    use ndarray::Array1;

    /// Episodes of 30 random steps of the point mass, which is a linear world.
    fn recorded(episodes: usize) -> Dataset {
        let n = episodes * 30;
        let mut rows = Batch {
            obs: Mat::zeros((n, 4)),
            act: Mat::zeros((n, 2)),
            rew: Array1::zeros(n),
            next_obs: Mat::zeros((n, 4)),
            done: Array1::from_elem(n, false),
        };
        let mut rng = Rng::stream(0, "acts", 0);
        let mut env = PointMass::new();
        for i in 0..n {
            if i % 30 == 0 {
                env.reset(i as u64);
            }
            rows.act.row_mut(i).iter_mut().for_each(|a| *a = rng.range(-1.0, 1.0) as f32);
            rows.obs.row_mut(i).iter_mut().zip(env.obs()).for_each(|(to, v)| *to = *v as f32);
            rows.rew[i] = env.step(&rows.act.row(i).to_vec()).reward as f32;
            rows.next_obs.row_mut(i).iter_mut().zip(env.obs()).for_each(|(to, v)| *to = *v as f32);
        }
        Dataset {
            names: Default::default(),
            name: "point-mass".into(),
            format: Format::NPZ,
            rows,
            reward_shift: 0.0,
            units: None,
            timeout: Array1::from_shape_fn(n, |i| i % 30 == 29),
            episodes: (0..episodes).map(|e| e * 30..(e + 1) * 30).collect(),
            sim: None,
            reading: ReadReport::default(),
            meta: Default::default(),
        }
    }

    #[test]
    fn errors_grow_with_the_steps_and_the_right_model_has_none() {
        let data = recorded(40);
        let config = EnsembleConfig {
            members: 2,
            elites: 2,
            hidden: vec![16; 2],
            decay: vec![0.0; 3],
            max_epochs: Some(2),
            ..Default::default()
        };
        let model = Ensemble::fit(&config, &data.rows, 0, &ThreadPool::new(2), |_, _| Ok(())).unwrap();
        let line = Linear::fit(&data.rows, &(0..1200).collect::<Vec<u32>>());
        let make = || Ok(Box::new(PointMass::new()) as Box<dyn Env>);
        let oracle = Oracle::new(EnvPool::new(make)).unwrap();
        let cfg = OpenLoopConfig { windows: 100, steps: 20, seed: 0 };
        let found = open_loop(&model, &line, &oracle, &data, &cfg).unwrap();
        assert_eq!((found.windows, found.clipped, found.unstable), (100, 0, 0));
        let curve = |name: &str| found.curves.iter().find(|c| c.name == name).unwrap();
        for name in ["linear", "recorded"] {
            assert!(curve(name).high[19] < 1e-4, "{name}: {:?}", curve(name));
        }
        for name in ["mean of the elites", "sampled", "no change"] {
            let c = curve(name);
            assert!(
                c.mean[19] > 2.0 * c.mean[0] && c.low[4] <= c.median[4] && c.median[4] <= c.high[4],
                "{c:?}"
            );
        }
        assert_eq!(found, open_loop(&model, &line, &oracle, &data, &cfg).unwrap(), "deterministic");
        let long = OpenLoopConfig { steps: 31, ..cfg };
        let error = open_loop(&model, &line, &oracle, &data, &long).unwrap_err().to_string();
        assert!(error.contains("the longest has 30"), "{error}");
    }

    #[test]
    fn windows_never_cross_an_episode() {
        let data = recorded(3);
        let starts = draw_starts(&data, &OpenLoopConfig { windows: 1000, steps: 30, seed: 1 }).unwrap();
        let mut starts = starts;
        starts.sort_unstable();
        assert_eq!(starts, [0, 30, 60]);
    }
}
