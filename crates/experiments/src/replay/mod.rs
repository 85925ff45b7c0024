//! What a policy does, to look at: a page that animates bodies, in the simulator and as the model imagines them.

mod scene;
mod packed;
mod imagine;
mod lettering;
mod picture;
mod movie;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use offing::Rng;
use offing::data::{Dataset, ReadOptions};
use offing::env::{Env, EnvPool, Physics, SimState, Simulators};
use offing::policy::{Deterministic, Policy, TanhGaussian, UniformPolicy};
use offing::tasks::reference_under;
use offing::train::resume;
use serde::Serialize;

use crate::arguments::positive;
use crate::format::number;
use crate::provenance::version;
use crate::run_record::POLICIES;
use crate::{Document, Element, Runtime};
use imagine::Imagined;
use scene::{Frame, Part, View, frame, parts, scenery, states_behind};

/// The policy that acts at random.
const UNIFORM: &str = "uniform";

/// What to show, and where to write it.
#[derive(Clone, Debug, clap::Args)]
pub struct ReplayRequest {
    /// A run directory, a policy file or `uniform` for random actions (with --task), or a dataset of a task with a simulator.
    #[arg(value_name = "RUN|POLICY|DATASET")]
    what: String,
    /// The page to write (.html), or a moving picture (.gif; .webp and .mp4 where ffmpeg is installed).
    #[arg(short, long, default_value = "replay.html", value_name = "FILE")]
    out: PathBuf,
    /// The task that a policy file plays, such as `hopper`.
    #[arg(long)]
    task: Option<String>,
    /// Steps of an episode to show, at most.
    #[arg(long, default_value_t = 1000, value_parser = positive)]
    steps: usize,
    /// Steps that the model imagines before it starts again from the real state.
    #[arg(long, default_value_t = 50, value_parser = positive)]
    horizon: usize,
    /// Leave out what the model imagines: no model is fitted, no index built.
    #[arg(long)]
    no_model: bool,
    /// Seed of starts.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Which physics to simulate [default: the run's or the dataset's own, else d4rl-v2].
    #[arg(long)]
    physics: Option<Physics>,
}

/// Everything that a page shows.
#[derive(Debug, Serialize)]
struct Replay {
    title: String,
    view: View,
    /// Seconds of a step.
    interval: f64,
    parts: Vec<Part>,
    /// Walls, two corners each, in metres.
    scenery: Vec<[f64; 4]>,
    tracks: Vec<Track>,
}

/// One episode.
#[derive(Debug, Serialize)]
struct Track {
    name: String,
    about: String,
    #[serde(serialize_with = "packed::frames")]
    frames: Vec<Frame>,
    rewards: Vec<f32>,
    /// Whether the task ended it.
    ended: bool,
    /// Whether it begins again where it ends: a short episode of the data beside a long one.
    repeat: bool,
    imagined: Option<Imagined>,
}

/// An episode before it is drawn.
struct Episode {
    states: Vec<SimState>,
    obs: Vec<Vec<f64>>,
    act: Vec<Vec<f32>>,
    rewards: Vec<f32>,
    ended: bool,
}

impl ReplayRequest {
    /// Plays, draws and writes; the file's path comes back.
    ///
    /// # Errors
    /// Something that is no run, policy or dataset, or that has no simulator; a file that cannot be written.
    pub fn run(&self, runtime: &Runtime) -> Result<PathBuf> {
        let ending = self.out.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if ending != "html" && !movie::ENDINGS.contains(&ending) {
            bail!(
                "{}: wanted a file ending in .html, .gif, .webp or .mp4, found another; choose one of them",
                self.out.display()
            );
        }
        let path = Path::new(&self.what);
        let replay = if path.is_dir() && path.join(offing::run::CONFIG).is_file() {
            self.of_run(runtime, path)?
        } else if self.what == UNIFORM || self.what.ends_with(".safetensors") {
            self.of_policy(runtime, path)?
        } else {
            self.of_dataset(runtime)?
        };
        match ending {
            "html" => self.document(&replay)?.write_html(&self.out)?,
            _ => movie::write(&replay.for_movie(), &self.out, ending)?,
        }
        Ok(self.out.clone())
    }

    /// What a report shows of a run: its last policy, what its model imagines, and an episode of its data.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) fn embedded(runtime: &Runtime, dir: &Path) -> Result<Element> {
        let what = dir.display().to_string();
        let request = Self {
            what,
            out: PathBuf::new(),
            task: None,
            steps: 500,
            horizon: 50,
            no_model: false,
            seed: 0,
            physics: None,
        };
        let replay = request.of_run(runtime, dir)?;
        Ok(Element::Replay { json: serde_json::to_string(&replay)?, autoplay: false })
    }

    fn document(&self, replay: &Replay) -> Result<Document> {
        let mut page = Document::new(&replay.title);
        page.intro = vec![
            Element::text(replay.lead()),
            Element::Code(self.command()),
            Element::text(format!(
                "Made by offing {}. Positions are the simulator's to a micrometre.",
                version()
            )),
        ];
        page.results.push(Element::Replay { json: serde_json::to_string(replay)?, autoplay: true });
        Ok(page)
    }

    /// What was asked, as it would be typed.
    fn command(&self) -> String {
        let mut words = vec!["offing replay".to_string(), self.what.clone()];
        words.extend(self.task.iter().map(|task| format!("--task {task}")));
        let usual = [
            ("steps", self.steps as u64, 1000),
            ("horizon", self.horizon as u64, 50),
            ("seed", self.seed, 0),
        ];
        words.extend(
            usual.iter().filter(|(_, n, usual)| n != usual).map(|(name, n, _)| format!("--{name} {n}")),
        );
        words.extend(self.no_model.then(|| "--no-model".to_string()));
        words.extend(self.physics.map(|physics| format!("--physics {physics}")));
        words.push(format!("-o {}", self.out.display()));
        words.join(" ")
    }

    fn of_run(&self, runtime: &Runtime, dir: &Path) -> Result<Replay> {
        if self.task.is_some() {
            bail!("--task is for policy files; {} says itself what it was trained for", dir.display());
        }
        let run = resume(dir, &mut runtime.hooks())?;
        let (task, envs) =
            self.simulator(runtime, &run.data, self.physics.map_or_else(|| run.physics(), Ok)?)?;
        let found = POLICIES.iter().find(|(_, file)| dir.join(file).exists());
        let Some((which, file)) = found else {
            bail!("{}: has no policy yet; train on with `offing train --resume`", dir.display());
        };
        let policy = TanhGaussian::load(&dir.join(file))?;
        let algorithm = &run.manifest.algorithm;
        let mut replay = self.stage(&task, &envs, format!("{algorithm} on {}", run.data.name))?;
        let episode = self.play(&envs, &Deterministic(&policy))?;
        let imagined = match self.no_model {
            true => None,
            false => imagine::along(runtime, &run, &episode, self.horizon)?,
        };
        let mut track = replay.track(&envs, &episode, format!("{algorithm}, {which}"), &task)?;
        track.imagined = imagined
            .map(|(obs, mut imagined)| {
                imagined.draw(
                    &envs,
                    &episode,
                    &obs,
                    (replay.view, replay.view.hidden(&task)),
                    self.horizon,
                )?;
                anyhow::Ok(imagined)
            })
            .transpose()?;
        replay.tracks.push(track);
        replay.add_logged(&envs, &run.data, &task, &[0.5, 1.0], self.steps)?;
        Ok(replay)
    }

    fn of_policy(&self, runtime: &Runtime, path: &Path) -> Result<Replay> {
        let Some(task) = &self.task else {
            bail!("--task is missing: which task is {} to play, such as `--task hopper`?", path.display());
        };
        let policy = (self.what != UNIFORM).then(|| TanhGaussian::load(path)).transpose()?;
        let envs = runtime.envs(task, self.physics.unwrap_or_default())?;
        let spec = envs.with(|env| env.spec().clone())?;
        let wanted = (spec.obs_dim, spec.act_dim);
        if let Some(found) =
            policy.as_ref().map(|p| (p.obs_dim(), p.act_dim())).filter(|found| *found != wanted)
        {
            bail!(
                "{}: wanted a policy of widths {wanted:?} for {task}, found {found:?}; check --task",
                path.display()
            );
        }
        let name = match &policy {
            Some(_) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            None => "random actions".into(),
        };
        let mut replay = self.stage(task, &envs, format!("{name} on {task}"))?;
        let episode = match &policy {
            Some(policy) => self.play(&envs, &Deterministic(policy))?,
            None => self.play(&envs, &UniformPolicy)?,
        };
        let track = replay.track(&envs, &episode, name, task)?;
        replay.tracks.push(track);
        Ok(replay)
    }

    fn of_dataset(&self, runtime: &Runtime) -> Result<Replay> {
        let (data, _) = runtime.read_data(&self.what, ReadOptions::default())?;
        let own = data.meta.get("physics").and_then(|text| text.split(' ').next()?.parse().ok());
        let physics = self.physics.or(own).unwrap_or_default();
        let (task, envs) = self.simulator(runtime, &data, physics)?;
        let mut replay = self.stage(&task, &envs, data.name.clone())?;
        replay.add_logged(&envs, &data, &task, &[1.0, 0.5, 0.0], self.steps)?;
        Ok(replay)
    }

    fn simulator<'a>(
        &self,
        runtime: &'a Runtime,
        data: &Dataset,
        physics: Physics,
    ) -> Result<(String, EnvPool<'a>)> {
        let Some(task) = runtime.mujoco.task_of(&data.name) else {
            bail!("{}: there is no simulator of this task, so nothing can be drawn", data.name);
        };
        let envs = runtime.envs(&task, physics)?;
        Ok((task, envs))
    }

    /// An empty page for a task.
    fn stage(&self, task: &str, envs: &EnvPool<'_>, title: String) -> Result<Replay> {
        let (shapes, interval) = envs.with(|env| {
            env.reset(self.seed);
            (env.shapes(), env.control_interval())
        })?;
        if shapes.is_empty() {
            bail!("{task}: its simulator has no bodies to draw");
        }
        let interval = interval.context("the simulator has no clock")?;
        let view = View::of(task);
        let (parts, scenery) = (parts(&shapes), scenery(view, &shapes));
        Ok(Replay { title, view, interval, parts, scenery, tracks: Vec::new() })
    }

    /// One episode in the simulator.
    fn play(&self, envs: &EnvPool<'_>, policy: &dyn Policy) -> Result<Episode> {
        Ok(envs.with(|env| {
            let mut rng = Rng::stream(self.seed, "replay", 0);
            env.reset(rng.bits());
            let mut act = vec![0.0; env.spec().act_dim];
            let mut episode = Episode {
                states: Vec::new(),
                obs: Vec::new(),
                act: Vec::new(),
                rewards: Vec::new(),
                ended: false,
            };
            for _ in 0..self.steps {
                let obs: Vec<f32> = env.obs().iter().map(|&o| o as f32).collect();
                policy.act(&obs, &mut rng, &mut act);
                episode.states.push(env.state());
                episode.obs.push(env.obs().to_vec());
                episode.act.push(act.clone());
                let step = env.step(&act);
                episode.rewards.push(step.reward as f32);
                episode.ended = step.terminated;
                if step.terminated || step.truncated || env.unstable() {
                    break;
                }
            }
            // Where the last action led.
            episode.states.push(env.state());
            episode.obs.push(env.obs().to_vec());
            episode
        })?)
    }
}

impl Replay {
    /// What a page says first.
    fn lead(&self) -> &'static str {
        match &self.tracks[..] {
            [first, ..] if first.imagined.is_some() => {
                "The learnt policy in the simulator, and the same actions in its learnt model; beside it, what the data hold."
            }
            [first, ..] if first.repeat => {
                "Episodes of the data: the best, a typical one (the median row's) and the worst by their return."
            }
            [_] => "One episode in the simulator, with the policy's mean actions.",
            _ => "The learnt policy in the simulator; beside it, what the data hold.",
        }
    }

    /// A moving picture has room for two: what the data hold, and what was learnt from them.
    fn for_movie(mut self) -> Self {
        if self.tracks.len() == 3 && !self.tracks[0].repeat {
            self.tracks.truncate(2);
            self.tracks.swap(0, 1);
        }
        self
    }

    fn track(&self, envs: &EnvPool<'_>, episode: &Episode, name: String, task: &str) -> Result<Track> {
        let frames = draw(envs, self.view, &episode.states)?;
        let total: f64 = episode.rewards.iter().map(|&r| f64::from(r)).sum();
        let whole = episode.ended || episode.rewards.len() == envs.with(|env| env.spec().horizon)?;
        let score = reference_under(task, Physics::default())
            .filter(|_| whole)
            .map_or(String::new(), |r| format!(", score {:.1}", r.normalise(total)));
        let about = format!("return {}{score}, {} steps", number(total), episode.rewards.len());
        let (rewards, ended) = (episode.rewards.clone(), episode.ended);
        Ok(Track { name, about, frames, rewards, ended, repeat: false, imagined: None })
    }

    /// Logged episodes, by where a row's episode ranks by its return: 1 the best, 0.5 the one that the median row is from. Rows
    /// count, not episodes: most episodes of a poor policy are over before there is anything to see.
    fn add_logged(
        &mut self,
        envs: &EnvPool<'_>,
        data: &Dataset,
        task: &str,
        ranks: &[f64],
        steps: usize,
    ) -> Result<()> {
        let total = |rows: &std::ops::Range<usize>| -> f64 {
            data.rows.rew.iter().skip(rows.start).take(rows.len()).map(|&r| f64::from(r)).sum()
        };
        let mut order: Vec<(usize, f64)> = data.episodes.iter().map(total).enumerate().collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1));
        let all: usize = data.episodes.iter().map(|rows| rows.len()).sum();
        for rank in ranks {
            let mut passed = 0;
            let reached = |(index, _): &&(usize, f64)| {
                passed += data.episodes[*index].len();
                passed as f64 >= rank * all as f64 && passed > 0
            };
            let Some(&(index, _)) = order.iter().find(reached) else {
                bail!("{}: has no episode to show", data.name)
            };
            let rows = data.episodes[index].clone();
            let shown = rows.start..rows.end.min(rows.start + steps);
            let states = envs.with(|env| logged_states(env, data, shown.clone(), self.view.hidden(task)))?;
            if states.is_empty() {
                bail!("{}: the states of episode {index} cannot be simulated; check --physics", data.name);
            }
            let rewards: Vec<f32> = shown.clone().take(states.len()).map(|row| data.rows.rew[row]).collect();
            let ended = shown.end == rows.end && data.rows.done[rows.end - 1];
            let episode = Episode { states, obs: Vec::new(), act: Vec::new(), rewards, ended };
            let which = match rank {
                r if *r >= 1.0 => "best episode",
                r if *r <= 0.0 => "worst episode",
                _ => "typical episode",
            };
            let name = format!("the data, {which} ({index})");
            let track = Track { repeat: true, ..self.track(envs, &episode, name, task)? };
            self.tracks.push(track);
        }
        Ok(())
    }
}

/// Frames of states.
fn draw(envs: &EnvPool<'_>, view: View, states: &[SimState]) -> Result<Vec<Frame>> {
    let frames =
        envs.with(|env| states.iter().map(|s| frame(env, view, s)).collect::<offing::Result<_>>())?;
    Ok(frames?)
}

/// States of logged rows: the file's own where it has them, else those behind its observations.
fn logged_states(
    env: &mut dyn Env,
    data: &Dataset,
    rows: std::ops::Range<usize>,
    hidden: usize,
) -> Vec<SimState> {
    match &data.sim {
        Some(sim) => rows
            .map(|row| SimState {
                qpos: sim.qpos.row(row).to_vec(),
                qvel: sim.qvel.row(row).to_vec(),
                goal: sim.goal.as_ref().map_or(Vec::new(), |goal| goal.row(row).to_vec()),
            })
            .collect(),
        None => {
            let obs = |row: usize| data.rows.obs.row(row).iter().map(|&o| f64::from(o)).collect();
            let act: Vec<Vec<f32>> = rows.clone().map(|row| data.rows.act.row(row).to_vec()).collect();
            states_behind(env, hidden, &vec![0.0; hidden], rows.map(obs).zip(act.iter().map(Vec::as_slice)))
        }
    }
}
