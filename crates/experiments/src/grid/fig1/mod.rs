//! Figure 1, the idea of SUMO, drawn from a real run: a point mass whose data circle around the middle and never go there. A
//! model learns from them, a policy that trusts it learns in the model to go to the middle, where rewards are higher. SUMO's
//! score rises where imagined steps leave the data; cut there (AMOReL), trajectories end before they go astray.

mod plane;
mod draw;

use anyhow::{Result, bail};
use offing::Rng;
use offing::algorithms::model_based_sac::ModelBasedSacConfig;
use offing::algorithms::{Evaluator, Event, Session, train};
use offing::batch::{Batch, Mat};
use offing::config::Layers;
use offing::data::Dataset;
use offing::data::generate::{BehaviourBlock, generate};
use offing::dynamics::{DynamicsModel, Ensemble, Members, ModelStep};
use offing::env::point_mass::PointMass;
use offing::env::{Env, EnvPool};
use offing::nn::ThreadPool;
use offing::policy::Policy;
use offing::run::RunDir;
use offing::sac::Actor;
use offing::uncertainty::{Sumo, SumoConfig, Uncertainty};
use serde::{Deserialize, Serialize};

use super::cells::{Cell, CellResult, CellState, CellValue};
use super::collect::Collected;
use super::experiment::Fig1Grid;
use super::{Grid, GridKind};
use crate::Runtime;
use crate::provenance::this_process;

/// All that is drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Fig1Drawing {
    /// Positions in the data.
    rows: Vec<[f32; 2]>,
    /// u over the plane, row by row from the lower left, with `side` numbers a row.
    field: Vec<f32>,
    side: usize,
    /// The plane goes from −`reach` to `reach` both ways.
    reach: f32,
    /// The threshold (Eq. 7).
    epsilon: f32,
    paths: Vec<Trajectory>,
}

/// One imagined trajectory and what the simulator makes of the same actions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Trajectory {
    imagined: Vec<[f32; 2]>,
    real: Vec<[f32; 2]>,
    /// Score of each step.
    u: Vec<f32>,
    /// Distance between the imagined and the real state after each step.
    error: Vec<f32>,
    /// Steps that truncation keeps.
    kept: usize,
}

/// Radius that the data circle at, their speed, and how restless they are.
const RADIUS: f32 = 2.0;
const SPEED: f32 = 0.8;
const NOISE: f32 = 0.5;
/// Half the side of the plane drawn.
const REACH: f32 = 3.0;
/// Points of the field along a side, positions of the data drawn, trajectories.
const SIDE: usize = 48;
const SHOWN: usize = 700;
const PATHS: usize = 3;

/// Circles around the middle.
struct Circling;

impl Circling {
    /// Where it wants to go at a position, and how fast.
    fn velocity(x: f32, y: f32) -> [f32; 2] {
        let r = x.hypot(y).max(1e-3);
        let inwards = 1.5 * (RADIUS - r);
        [-SPEED * y / r + inwards * x / r, SPEED * x / r + inwards * y / r]
    }

    fn steer(obs: &[f32]) -> [f32; 2] {
        let wanted = Self::velocity(obs[0], obs[1]);
        [0, 1].map(|i| (1.5 * (wanted[i] - obs[2 + i]) + 0.3 * obs[2 + i]).clamp(-1.0, 1.0))
    }
}

impl Policy for Circling {
    fn act(&self, obs: &[f32], rng: &mut Rng, act: &mut [f32]) {
        for (a, steer) in act.iter_mut().zip(Self::steer(obs)) {
            *a = (steer + NOISE * rng.normal() as f32).clamp(-1.0, 1.0);
        }
    }
}

/// A small model, and a policy that trusts it.
const TRAINING: &str = include_str!("training.toml");

impl Fig1Grid {
    fn training_config(&self) -> Result<ModelBasedSacConfig> {
        let mut layers = Layers::of::<ModelBasedSacConfig>()?;
        layers.preset(TRAINING, "training.toml", None)?;
        for (key, value) in [
            ("train.steps", self.steps as f64),
            ("train.evaluate_every", self.steps as f64),
            ("model.ensemble.max_epochs", self.epochs as f64),
            ("rollout.length", self.rollout as f64),
            ("sac.gamma", self.gamma),
        ] {
            layers.set(&format!("{key}={value}"))?;
        }
        Ok(layers.read()?)
    }
}

impl GridKind for Fig1Grid {
    fn accept(&self, grid: &Grid) -> Result<Option<usize>> {
        if !(grid.request.only.is_empty() && grid.set.is_empty() && grid.rows.is_none()) {
            bail!(
                "{} is drawn from one small run of its own; leave --only, --set and --rows out, or copy \
                 experiments/{0}.toml and change that",
                grid.experiment.name
            );
        }
        Ok(None)
    }

    fn cells_of(&self, _grid: &Grid, _dataset: &str) -> Result<Vec<(Option<&str>, String)>> {
        Ok(vec![(None, format!("idea {}", serde_json::to_string(self)?))])
    }

    fn run(&self, runtime: &Runtime, grid: &Grid, cell: &Cell) -> Result<Option<CellResult>> {
        let envs = EnvPool::new(|| Ok(Box::new(PointMass::new())));
        let blocks = [BehaviourBlock { rows: self.rows, behaviour: &Circling }];
        let data = generate("point-mass", &envs, &blocks, cell.seed, &mut |_| ())?;
        let (cfg, pool) = (self.training_config()?, ThreadPool::new(rayon::current_num_threads()));
        let dir = grid.dir.join("idea").join(&cell.id);
        let mut run = RunDir::open_or_create(&dir, &toml::to_string(&cfg)?)?;
        let mut on_event = |_: Event<'_>| runtime.control_flow();
        let mut session = Session::new(&data, runtime.home(), &pool, cell.seed, &mut run, &mut on_event);
        session.evaluator = Some(Evaluator { envs: &envs, reference: None });
        let Some(actor) = train(&cfg, &mut session)? else { return Ok(None) };
        let model = session.fit_model(&cfg.model)?;
        let sumo = Sumo::new(&SumoConfig::default(), &data.rows, rayon::current_num_threads())?;
        let epsilon = self.alpha * sumo.max_loo_score();
        let world = Fig1World { pool: &pool, model: &model, sumo: &sumo, actor: &actor, epsilon };
        let drawing = world.draw(&data, self.length, cell.seed)?;
        Ok(Some(CellResult {
            values: values(&drawing),
            note: format!("{} rows, ε = {epsilon:.3}", data.rows.len()),
            data: data.digest(),
            provenance: vec![this_process()],
            drawing: Some(Box::new(drawing)),
            ..CellResult::default()
        }))
    }

    fn collect(&self, _grid: &Grid, cells: &[(Cell, CellState)]) -> Result<Collected> {
        Ok(draw::collect(cells))
    }
}

/// What draws the figure: the model, the policy that acts in it, and the estimator.
struct Fig1World<'a> {
    pool: &'a ThreadPool,
    model: &'a Ensemble,
    sumo: &'a Sumo,
    actor: &'a Actor,
    epsilon: f32,
}

impl Fig1World<'_> {
    fn draw(&self, data: &Dataset, length: usize, seed: u64) -> Result<Fig1Drawing> {
        let rng = &mut Rng::stream(seed, "figure 1", 0);
        let rows = (0..SHOWN).map(|_| {
            let row = data.rows.obs.row(rng.below(data.rows.len()));
            [row[0], row[1]]
        });
        let rows = rows.collect();
        let starts: Vec<usize> = (0..PATHS).map(|_| rng.below(data.rows.len())).collect();
        let path = |row: usize| self.path(&data.rows.obs.row(row).to_vec(), length, rng);
        let paths = starts.into_iter().map(path).collect::<Result<_>>()?;
        Ok(Fig1Drawing { rows, field: self.field()?, side: SIDE, reach: REACH, epsilon: self.epsilon, paths })
    }

    /// u of the step that the data's policy would take at each point, as the model foretells it.
    fn field(&self) -> Result<Vec<f32>> {
        let at = |i: usize| REACH * (2.0 * (i as f32 + 0.5) / SIDE as f32 - 1.0);
        let mut obs = Mat::zeros((SIDE * SIDE, 4));
        let mut act = Mat::zeros((SIDE * SIDE, 2));
        for (i, (mut o, mut a)) in obs.rows_mut().into_iter().zip(act.rows_mut()).enumerate() {
            let (x, y) = (at(i % SIDE), at(i / SIDE));
            // Its velocity, but never faster than it is anywhere in the data.
            let v = Circling::velocity(x, y);
            let slow = (SPEED / v[0].hypot(v[1])).min(1.0);
            let state = [x, y, slow * v[0], slow * v[1]];
            state.iter().enumerate().for_each(|(j, s)| o[j] = *s);
            Circling::steer(&state).iter().enumerate().for_each(|(j, s)| a[j] = *s);
        }
        // The members' mean: one member's noise would only blur the picture.
        let forecast = self.model.predict(&obs, &act);
        let mean = forecast.mean.mean_axis(ndarray::Axis(0)).unwrap_or_else(|| Mat::zeros((SIDE * SIDE, 5)));
        let batch = Batch {
            next_obs: mean.slice(ndarray::s![.., ..4]).to_owned(),
            rew: mean.column(4).to_owned(),
            done: ndarray::Array1::from_elem(SIDE * SIDE, false),
            obs,
            act,
        };
        Ok(self.sumo.score(&ModelStep::of_rows(batch))?.to_vec())
    }

    /// Imagines from a state on, and lets the simulator do the same.
    fn path(&self, start: &[f32], length: usize, rng: &mut Rng) -> Result<Trajectory> {
        let mut env = PointMass::new();
        env.resume_from(&start.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>())?;
        let mut obs = Mat::from_shape_fn((1, start.len()), |(_, j)| start[j]);
        let first = [start[0], start[1]];
        let mut path = Trajectory { imagined: vec![first], real: vec![first], ..Trajectory::default() };
        for _ in 0..length {
            let act = self.actor.mean_batch(self.pool, &obs);
            let step = self.model.step(&obs, &act, Members::One, rng);
            let u = self.sumo.score(&step)?[0];
            if u <= self.epsilon && path.kept == path.u.len() {
                path.kept += 1;
            }
            env.step(&[act[[0, 0]], act[[0, 1]]]);
            obs = step.batch.next_obs;
            let real = env.obs();
            let error: f64 = obs.iter().zip(real).map(|(o, r)| (f64::from(*o) - r).powi(2)).sum();
            path.imagined.push([obs[[0, 0]], obs[[0, 1]]]);
            path.real.push([real[0] as f32, real[1] as f32]);
            path.u.push(u);
            path.error.push(error.sqrt() as f32);
            // Beyond the plane there is nothing to see.
            if obs[[0, 0]].abs().max(obs[[0, 1]].abs()) > REACH {
                break;
            }
        }
        Ok(path)
    }
}

/// The numbers of the drawing.
fn values(drawing: &Fig1Drawing) -> Vec<CellValue> {
    let of = |(i, path): (usize, &Trajectory)| {
        let cut = path.kept.checked_sub(1).map_or(0.0, |last| path.error[last]);
        let end = path.error.last().copied().unwrap_or(0.0);
        let values = [("steps kept", path.kept as f32), ("error where cut", cut), ("error at the end", end)];
        let column = format!("trajectory {}", i + 1);
        values.map(|(metric, x)| CellValue::new(&column, metric, f64::from(x), path.u.len()))
    };
    drawing.paths.iter().enumerate().flat_map(of).collect()
}
