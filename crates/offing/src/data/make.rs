//! Making a dataset: behaviour policies roll out in a simulator until enough rows are there.
//!
//! The rows depend on the seed and the behaviours alone. Episode e of block b draws from the stream (seed, b, e), and
//! episodes are joined in the order of their numbers, however many threads played them.

use ndarray::{Array1, Array2};
use rayon::prelude::*;

use super::{Dataset, Format, ReadReport, SimColumns};
use crate::batch::Batch;
use crate::env::{Env, EnvPool, SimState, Spec};
use crate::error::{Error, Result};
use crate::policy::Policy;
use crate::rng::Rng;

/// How a data-collecting agent behaves. Unlike a [`Policy`] it may look at the simulator's state and keep a plan over an
/// episode, as the way-point followers behind AntMaze data do.
pub trait Behaviour: Sync {
    /// Starts an episode in a freshly reset simulator (which it may put into another state).
    fn begin<'a>(&'a self, env: &mut dyn Env, rng: &mut Rng) -> Result<Box<dyn Actor + 'a>>;
}

/// One episode of a [`Behaviour`].
pub trait Actor {
    /// Writes the next action.
    fn act(&mut self, env: &dyn Env, rng: &mut Rng, act: &mut [f32]);
}

/// A policy as a behaviour.
pub struct Follow<'a>(pub &'a dyn Policy);

struct Following<'a> {
    policy: &'a dyn Policy,
    obs: Vec<f32>,
}

impl Behaviour for Follow<'_> {
    fn begin<'a>(&'a self, _env: &mut dyn Env, _rng: &mut Rng) -> Result<Box<dyn Actor + 'a>> {
        Ok(Box::new(Following { policy: self.0, obs: Vec::new() }))
    }
}

impl Actor for Following<'_> {
    fn act(&mut self, env: &dyn Env, rng: &mut Rng, act: &mut [f32]) {
        self.obs.clear();
        self.obs.extend(env.obs().iter().map(|&o| o as f32));
        self.policy.act(&self.obs, rng, act);
    }
}

/// A run of rows by one behaviour; blocks follow each other in the file.
pub struct Block<'a> {
    /// Rows wanted; the last episode is cut there and marked as a timeout.
    pub rows: usize,
    /// Who acts.
    pub behaviour: &'a dyn Behaviour,
}

/// Most episodes played at once. Which wave an episode is played in changes nothing: episodes are joined by number.
const WAVE: usize = 64;

/// More rows than this would not fit into the memory of most machines while they are made.
const MOST_ROWS: usize = 100_000_000;

/// Plays the blocks and joins them to one dataset called `name`. `progress` is told the rows made so far.
pub fn make(
    name: &str,
    envs: &EnvPool,
    blocks: &[Block],
    seed: u64,
    progress: &mut dyn FnMut(usize),
) -> Result<Dataset> {
    let spec = envs.with(|env| env.spec().clone())?;
    let total: usize = blocks.iter().map(|b| b.rows).sum();
    if total == 0 {
        return Err(Error::Invalid(format!("{name}: wanted at least one row, found --rows 0")));
    }
    if total > MOST_ROWS {
        return Err(Error::Invalid(format!(
            "{name}: wanted at most {MOST_ROWS} rows, found --rows {total}; make several sets with different seeds"
        )));
    }
    let mut columns = Columns::default();
    let mut episodes = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        let stop = columns.len() + block.rows;
        let stream = format!("make/{number}");
        let mut next = 0;
        while columns.len() < stop {
            let episodes_left =
                (stop - columns.len()).div_ceil(spec.horizon).max(rayon::current_num_threads());
            let count = episodes_left.min(WAVE) as u64;
            let wave: Vec<Columns> = (next..next + count)
                .into_par_iter()
                .map(|e| envs.with(|env| play(env, block.behaviour, &mut Rng::stream(seed, &stream, e)))?)
                .collect::<Result<_>>()?;
            next += count;
            if wave.iter().all(|episode| episode.len() == 0) {
                return Err(Error::Invalid(format!(
                    "{name}: the simulator became unstable at the first step of {count} episodes; check the policy that acted"
                )));
            }
            for episode in wave {
                let room = stop - columns.len();
                if room == 0 {
                    break;
                }
                if episode.len() == 0 {
                    continue;
                }
                let start = columns.len();
                columns.append(episode, room, &spec);
                episodes.push(start..columns.len());
            }
            progress(columns.len());
        }
    }
    columns.into_dataset(name, &spec, episodes)
}

fn play(env: &mut dyn Env, behaviour: &dyn Behaviour, rng: &mut Rng) -> Result<Columns> {
    env.reset(rng.bits());
    let mut actor = behaviour.begin(env, rng)?;
    let mut act = vec![0.0; env.spec().act_dim];
    let mut rows = Columns::default();
    loop {
        let state = env.state();
        rows.obs.extend(env.obs().iter().map(|&o| o as f32));
        rows.qpos.extend(&state.qpos);
        rows.qvel.extend(&state.qvel);
        rows.goal.extend(&state.goal);
        actor.act(env, rng, &mut act);
        let moment = env.step(&act);
        if env.unstable() {
            // The engine gave up and restarted: what it shows now did not follow from this action.
            rows.forget_last(env.spec(), &state);
            return Ok(rows);
        }
        rows.act.extend(&act);
        rows.rew.push(moment.reward as f32);
        rows.next_obs.extend(env.obs().iter().map(|&o| o as f32));
        rows.done.push(moment.terminated);
        rows.timeout.push(moment.truncated && !moment.terminated);
        if moment.terminated || moment.truncated {
            return Ok(rows);
        }
    }
}

/// Rows in the making, one flat vector a column.
#[derive(Default)]
struct Columns {
    obs: Vec<f32>,
    act: Vec<f32>,
    rew: Vec<f32>,
    next_obs: Vec<f32>,
    done: Vec<bool>,
    timeout: Vec<bool>,
    qpos: Vec<f64>,
    qvel: Vec<f64>,
    goal: Vec<f64>,
}

impl Columns {
    fn len(&self) -> usize {
        self.rew.len()
    }

    /// Takes back the half row of a step that failed, and ends the episode before it.
    fn forget_last(&mut self, spec: &Spec, state: &SimState) {
        self.obs.truncate(self.obs.len() - spec.obs_dim);
        self.qpos.truncate(self.qpos.len() - state.qpos.len());
        self.qvel.truncate(self.qvel.len() - state.qvel.len());
        self.goal.truncate(self.goal.len() - state.goal.len());
        if let Some(last) = self.timeout.last_mut() {
            *last = true;
        }
    }

    /// Takes the first `room` rows of an episode. An episode that is cut ends in a timeout: its return would go on.
    fn append(&mut self, episode: Columns, room: usize, spec: &Spec) {
        let (rows, whole) = (room.min(episode.len()), episode.len());
        self.obs.extend(&episode.obs[..rows * spec.obs_dim]);
        self.act.extend(&episode.act[..rows * spec.act_dim]);
        self.rew.extend(&episode.rew[..rows]);
        self.next_obs.extend(&episode.next_obs[..rows * spec.obs_dim]);
        self.done.extend(&episode.done[..rows]);
        self.timeout.extend(&episode.timeout[..rows]);
        for (mine, its) in
            [(&mut self.qpos, episode.qpos), (&mut self.qvel, episode.qvel), (&mut self.goal, episode.goal)]
        {
            mine.extend(&its[..its.len() / whole * rows]);
        }
        if rows < whole
            && let Some(last) = self.timeout.last_mut()
        {
            *last = true;
        }
    }

    fn into_dataset(self, name: &str, spec: &Spec, episodes: Vec<std::ops::Range<usize>>) -> Result<Dataset> {
        let n = self.len();
        let sim = (!self.qpos.is_empty()).then(|| SimColumns {
            qpos: columns(n, self.qpos),
            qvel: columns(n, self.qvel),
            goal: (!self.goal.is_empty()).then(|| columns(n, self.goal)),
        });
        let rows = Batch {
            obs: columns(n, self.obs),
            act: columns(n, self.act),
            rew: Array1::from(self.rew),
            next_obs: columns(n, self.next_obs),
            done: Array1::from(self.done),
        };
        debug_assert_eq!((rows.obs_dim(), rows.act_dim()), (spec.obs_dim, spec.act_dim));
        if let Some(i) = rows.next_obs.iter().position(|v| !v.is_finite()) {
            let row = i / spec.obs_dim;
            return Err(Error::Invalid(format!(
                "{name}: the simulator gave a non-finite observation at row {row}; check the policy that acted"
            )));
        }
        let reading = ReadReport {
            rows_in_file: n,
            rows_kept: n,
            next_obs: "recorded by the simulator".into(),
            ..ReadReport::default()
        };
        Ok(Dataset {
            name: name.into(),
            format: Format::D4rl,
            rows,
            reward_shift: 0.0,
            timeout: Array1::from(self.timeout),
            episodes,
            sim,
            reading,
            meta: Default::default(),
        })
    }
}

fn columns<T: Clone>(rows: usize, flat: Vec<T>) -> Array2<T> {
    let width = flat.len() / rows;
    Array2::from_shape_vec((rows, width), flat).expect("every row adds the same number of entries")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::point_mass::PointMass;
    use crate::policy::UniformPolicy;

    fn make_with(threads: usize, rows: [usize; 2], seed: u64) -> Dataset {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let make_env = || Ok(Box::new(PointMass::new()) as Box<dyn Env>);
            let behaviour = Follow(&UniformPolicy);
            let blocks = rows.map(|rows| Block { rows, behaviour: &behaviour });
            make("point-mass-random", &EnvPool::new(&make_env), &blocks, seed, &mut |_| ()).unwrap()
        })
    }

    #[test]
    fn the_rows_do_not_depend_on_the_thread_count() {
        let (one, three) = (make_with(1, [3000, 500], 5), make_with(3, [3000, 500], 5));
        assert_eq!(one.rows, three.rows);
        assert_eq!((one.timeout, one.episodes, one.sim), (three.timeout, three.episodes, three.sim));
        assert_ne!(one.rows, make_with(1, [3000, 500], 6).rows);
    }

    #[test]
    fn episodes_are_whole_and_a_cut_one_ends_in_a_timeout() {
        let data = make_with(2, [1000, 10], 0);
        assert_eq!(data.rows.len(), 1010);
        assert_eq!(data.episodes.last().unwrap().end, 1010);
        for pair in data.episodes.windows(2) {
            assert_eq!(pair[0].end, pair[1].start);
        }
        for episode in &data.episodes {
            let last = episode.end - 1;
            assert!(data.rows.done[last] ^ data.timeout[last], "row {last} ends an episode one way");
            for i in episode.start..last {
                assert!(!data.rows.done[i] && !data.timeout[i]);
                assert_eq!(data.rows.next_obs.row(i), data.rows.obs.row(i + 1));
            }
        }
        assert!(data.timeout[999] && data.timeout[1009], "both blocks are cut at their last row");
    }
}
