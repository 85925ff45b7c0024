//! Generating a dataset: behaviour policies roll out in a simulator until enough rows are recorded.
//!
//! The rows depend on the seed and the behaviours alone. Episode e of block b draws from the stream (seed, b, e), and
//! episodes are joined in the order of their numbers, however many threads played them.

use ndarray::{Array1, Array2};
use rayon::prelude::*;

use super::{Dataset, Format, ReadReport, SimColumns};
use crate::batch::Batch;
use crate::env::{Env, EnvPool, Spec};
use crate::error::{Result, invalid, require};
use crate::policy::Policy;
use crate::rng::Rng;

/// How a data-collecting agent behaves. Unlike a [`Policy`] it may look at the simulator's state and keep a plan over an
/// episode, as the way-point followers behind AntMaze data do. Every policy is a behaviour.
pub trait Behaviour: Sync {
    /// Starts an episode in a freshly reset simulator (which it may put into another state).
    fn begin<'a>(&'a self, env: &mut dyn Env, rng: &mut Rng) -> Result<Box<dyn EpisodeBehaviour + 'a>>;
}

/// A [`Behaviour`] during one episode.
pub trait EpisodeBehaviour {
    /// Writes the next action.
    fn act(&mut self, env: &dyn Env, rng: &mut Rng, act: &mut [f32]);
}

impl<P: Policy> Behaviour for P {
    fn begin<'a>(&'a self, _env: &mut dyn Env, _rng: &mut Rng) -> Result<Box<dyn EpisodeBehaviour + 'a>> {
        Ok(Box::new(PolicyEpisode { policy: self, obs: Vec::new() }))
    }
}

struct PolicyEpisode<'a, P> {
    policy: &'a P,
    obs: Vec<f32>,
}

impl<P: Policy> EpisodeBehaviour for PolicyEpisode<'_, P> {
    fn act(&mut self, env: &dyn Env, rng: &mut Rng, act: &mut [f32]) {
        self.obs.clear();
        self.obs.extend(env.obs().iter().map(|&o| o as f32));
        self.policy.act(&self.obs, rng, act);
    }
}

/// A run of rows by one behaviour; blocks follow each other in the file.
pub struct BehaviourBlock<'a> {
    /// Rows wanted; the last episode is cut there and marked as a timeout.
    pub rows: usize,
    /// Who acts.
    pub behaviour: &'a dyn Behaviour,
}

/// Most episodes played at once. Which wave an episode is played in changes nothing: episodes are joined by number.
const WAVE: usize = 64;

/// More rows than this would not fit into the memory of most machines while they are generated.
const MOST_ROWS: usize = 100_000_000;

/// Plays the blocks and joins them to one dataset called `name`. Calls `progress` with the rows recorded so far.
///
/// ```
/// use offing::data::generate::{BehaviourBlock, generate};
/// use offing::env::{Env, EnvPool, point_mass::PointMass};
/// use offing::policy::UniformPolicy;
/// let new_env = || Ok(Box::new(PointMass::new()) as Box<dyn Env>);
/// let blocks = [BehaviourBlock { rows: 200, behaviour: &UniformPolicy }];
/// let data = generate("point-mass-random", &EnvPool::new(new_env), &blocks, 0, &mut |_| ())?;
/// assert_eq!(data.rows.len(), 200);
/// # Ok::<(), offing::Error>(())
/// ```
pub fn generate(
    name: &str,
    envs: &EnvPool,
    blocks: &[BehaviourBlock],
    seed: u64,
    progress: &mut dyn FnMut(usize),
) -> Result<Dataset> {
    let spec = envs.with(|env| env.spec().clone())?;
    let total: usize = blocks.iter().map(|b| b.rows).sum();
    require!(total > 0, "{name}: wanted at least one row, found --rows 0");
    require!(
        total <= MOST_ROWS,
        "{name}: wanted at most {MOST_ROWS} rows, found --rows {total}; make several sets with different seeds"
    );
    let mut rows = RecordedRows::default();
    let mut episodes = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        let stop = rows.len() + block.rows;
        let stream = format!("make/{number}");
        let mut next = 0;
        while rows.len() < stop {
            let episodes_left = (stop - rows.len()).div_ceil(spec.horizon).max(rayon::current_num_threads());
            let count = episodes_left.min(WAVE) as u64;
            let wave: Vec<RecordedRows> = (next..next + count)
                .into_par_iter()
                .map(|e| envs.with(|env| play(env, block.behaviour, &mut Rng::stream(seed, &stream, e)))?)
                .collect::<Result<_>>()?;
            next += count;
            require!(
                wave.iter().any(|episode| episode.len() > 0),
                "{name}: the simulator became unstable at the first step of {count} episodes; check the \
                 policy that acted"
            );
            for episode in wave.iter().filter(|episode| episode.len() > 0) {
                let start = rows.len();
                if start < stop {
                    rows.append(episode, stop - start);
                    episodes.push(start..rows.len());
                }
            }
            progress(rows.len());
        }
    }
    rows.into_dataset(name, &spec, episodes)
}

fn play(env: &mut dyn Env, behaviour: &dyn Behaviour, rng: &mut Rng) -> Result<RecordedRows> {
    env.reset(rng.bits());
    let mut behaviour = behaviour.begin(env, rng)?;
    let mut act = vec![0.0; env.spec().act_dim];
    let mut obs: Vec<f32> = Vec::new();
    let mut rows = RecordedRows::default();
    loop {
        let state = env.state();
        obs.clear();
        obs.extend(env.obs().iter().map(|&o| o as f32));
        behaviour.act(env, rng, &mut act);
        let step = env.step(&act);
        if env.unstable() {
            // The engine gave up and restarted: what it shows now did not follow from this action.
            rows.mark_cut();
            return Ok(rows);
        }
        rows.obs.extend(&obs);
        rows.act.extend(&act);
        rows.rew.push(step.reward as f32);
        rows.next_obs.extend(env.obs().iter().map(|&o| o as f32));
        rows.done.push(step.terminated);
        rows.timeout.push(step.truncated && !step.terminated);
        for (column, values) in rows.sim.iter_mut().zip([&state.qpos, &state.qvel, &state.goal]) {
            column.extend(values);
        }
        if step.terminated || step.truncated {
            return Ok(rows);
        }
    }
}

/// Rows as they are recorded, one flat vector a column.
#[derive(Default)]
struct RecordedRows {
    obs: Vec<f32>,
    act: Vec<f32>,
    rew: Vec<f32>,
    next_obs: Vec<f32>,
    done: Vec<bool>,
    timeout: Vec<bool>,
    /// The columns of [`SimColumns`]; one that the simulator does not have stays empty.
    sim: [Vec<f64>; 3],
}

impl RecordedRows {
    fn len(&self) -> usize {
        self.rew.len()
    }

    /// Marks the last row as a timeout: the return would go on.
    fn mark_cut(&mut self) {
        if let Some(last) = self.timeout.last_mut() {
            *last = true;
        }
    }

    /// Appends the first `room` rows of an episode.
    fn append(&mut self, episode: &Self, room: usize) {
        let (whole, rows) = (episode.len(), room.min(episode.len()));
        fn add<T: Copy>(to: &mut Vec<T>, from: &[T], (rows, whole): (usize, usize)) {
            to.extend(&from[..from.len() / whole * rows]);
        }
        let share = (rows, whole);
        add(&mut self.obs, &episode.obs, share);
        add(&mut self.act, &episode.act, share);
        add(&mut self.rew, &episode.rew, share);
        add(&mut self.next_obs, &episode.next_obs, share);
        add(&mut self.done, &episode.done, share);
        add(&mut self.timeout, &episode.timeout, share);
        self.sim.iter_mut().zip(&episode.sim).for_each(|(to, from)| add(to, from, share));
        if rows < whole {
            self.mark_cut();
        }
    }

    fn into_dataset(self, name: &str, spec: &Spec, episodes: Vec<std::ops::Range<usize>>) -> Result<Dataset> {
        let n = self.len();
        if let Some(i) = self.next_obs.iter().position(|v| !v.is_finite()) {
            let row = i / spec.obs_dim;
            return Err(invalid!(
                "{name}: the simulator gave a non-finite observation at row {row}; check the policy that acted"
            ));
        }
        let sim = self.sim.into_iter().filter(|column| !column.is_empty()).map(|column| matrix(n, column));
        let rows = Batch {
            obs: matrix(n, self.obs),
            act: matrix(n, self.act),
            rew: Array1::from(self.rew),
            next_obs: matrix(n, self.next_obs),
            done: Array1::from(self.done),
        };
        let next_obs = "recorded by the simulator".into();
        Ok(Dataset {
            names: Default::default(),
            name: name.into(),
            format: Format::D4RL,
            rows,
            reward_shift: 0.0,
            units: None,
            timeout: Array1::from(self.timeout),
            episodes,
            sim: SimColumns::from_columns(sim),
            reading: ReadReport { rows_in_file: n, rows_kept: n, next_obs, ..ReadReport::default() },
            meta: Default::default(),
        })
    }
}

fn matrix<T>(rows: usize, flat: Vec<T>) -> Array2<T> {
    let width = flat.len() / rows;
    Array2::from_shape_vec((rows, width), flat).expect("every row adds the same number of entries")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::point_mass::PointMass;
    use crate::policy::UniformPolicy;

    fn generate_with(threads: usize, rows: [usize; 2], seed: u64) -> Dataset {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let make_env = || Ok(Box::new(PointMass::new()) as Box<dyn Env>);
            let blocks = rows.map(|rows| BehaviourBlock { rows, behaviour: &UniformPolicy });
            generate("point-mass-random", &EnvPool::new(make_env), &blocks, seed, &mut |_| ()).unwrap()
        })
    }

    #[test]
    fn the_rows_do_not_depend_on_the_thread_count() {
        let (one, three) = (generate_with(1, [3000, 500], 5), generate_with(3, [3000, 500], 5));
        assert_eq!(one.rows, three.rows);
        assert_eq!((one.timeout, one.episodes, one.sim), (three.timeout, three.episodes, three.sim));
        assert_ne!(one.rows, generate_with(1, [3000, 500], 6).rows);
    }

    #[test]
    fn episodes_are_whole_and_a_cut_one_ends_in_a_timeout() {
        let data = generate_with(2, [1000, 10], 0);
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
