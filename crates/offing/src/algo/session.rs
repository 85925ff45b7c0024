//! What every algorithm needs around it: data, threads, a place to be scored, a run directory, and someone who watches.

use serde_json::{Map, Value, json};

use super::config::{ModelConfig, TrainConfig};
use crate::batch::{Batch, Mat};
use crate::data::Dataset;
use crate::data::scores::Reference;
use crate::dynamics::{self, Cached, Ensemble, Fit, FitEvent};
use crate::env::EnvPool;
use crate::error::{Error, Result};
use crate::eval::evaluate;
use crate::home::Home;
use crate::nn::{Tensors, ThreadPool};
use crate::pessimism::{CalibratedRule, Pessimism};
use crate::rng::Rng;
use crate::rollout::RolloutStats;
use crate::run::{ControlFlow, PhaseTimer, RunDir};
use crate::sac::{Actor, Losses, Mean};
use crate::uncertainty::{BuildContext, Uncertainty, UncertaintyConfig};

/// A simulator to score policies in.
#[derive(Clone, Copy)]
pub struct Evaluator<'a> {
    /// Simulators of the dataset's task.
    pub envs: &'a EnvPool<'a>,
    /// Its reference returns, where it has any.
    pub reference: Option<Reference>,
}

/// The surroundings of one training.
pub struct Session<'a> {
    /// The rows to learn from.
    pub data: &'a Dataset,
    /// Where models and indexes are kept.
    pub home: &'a Home,
    /// The threads to work with.
    pub pool: &'a ThreadPool,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// Where policies are scored; nowhere for data without a simulator.
    pub evaluator: Option<Evaluator<'a>>,
    /// Where results go.
    pub run: &'a mut RunDir,
    /// Told of everything; says whether to go on.
    pub watch: &'a mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    /// Where the time goes.
    pub timer: PhaseTimer,
    /// Scores of the run so far.
    pub scores: Scores,
}

/// Returns in the simulator, as far as they were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    /// Mean return of the last evaluation.
    pub last: Option<f64>,
    /// The best so far. Choosing by it uses the simulator, which offline learning does not have: report both.
    pub best: Option<f64>,
}

/// How a training stands.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Gradient steps taken.
    pub step: u64,
    /// Gradient steps in all.
    pub steps: u64,
    /// What the last update found.
    pub losses: Losses,
    /// The last rollout and the scoring after it.
    pub tally: Option<RolloutStats>,
    /// Returns so far.
    pub scores: Scores,
    /// Normalised score of the last evaluation.
    pub last_score: Option<f64>,
    /// The step of the last evaluation.
    pub evaluated: Option<u64>,
}

/// What happens in a training.
pub enum Event<'a> {
    /// Something to say, one line.
    Note(String),
    /// The dynamics model took a step.
    Fit(&'a dynamics::Progress),
    /// The learner took steps.
    Step(&'a Status),
}

impl Session<'_> {
    /// The stream of random numbers of `name` number `index`. Numbering streams by step is what makes a resumed run
    /// equal to an uninterrupted one.
    pub fn rng(&self, name: &str, index: u64) -> Rng {
        Rng::stream(self.seed, name, index)
    }

    /// Says something.
    pub fn note(&mut self, line: impl Into<String>) {
        let _ = (self.watch)(Event::Note(line.into()));
    }

    /// The dynamics model: found in the cache by content, or fitted.
    pub fn model(&mut self, cfg: &ModelConfig) -> Result<Ensemble> {
        let termination = cfg.termination_for(self.data)?;
        let fit = Fit {
            rows: &self.data.rows,
            config: &cfg.ensemble,
            termination: &termination,
            seed: cfg.seed.unwrap_or(self.seed),
        };
        let watch = &mut *self.watch;
        let mut progress = |event: FitEvent<'_>| {
            let flow = match event {
                FitEvent::Note(line) => watch(Event::Note(line)),
                FitEvent::Step(progress) => watch(Event::Fit(progress)),
            };
            match flow {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(Error::Stopped),
            }
        };
        let (home, pool) = (self.home, self.pool);
        let cached: Cached = self.timer.time("model", || dynamics::cached(home, fit, pool, &mut progress))?;
        let (verb, elites) = (if cached.fresh { "fitted" } else { "found" }, cached.model.elites());
        let errors: Vec<f64> = elites.iter().map(|&m| cached.model.holdout()[m]).collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        self.note(format!(
            "{verb} the dynamics model ({} members, {} epochs, hold-out error of its elites {mean:.4})",
            cached.model.members(),
            cached.epochs
        ));
        Ok(cached.model)
    }

    /// Who scores imagined steps, if the rule asks anyone, and the rule with its constants fixed from the dataset.
    pub(super) fn judge(
        &mut self,
        estimator: &UncertaintyConfig,
        rule: Pessimism,
        model: &Ensemble,
    ) -> Result<(Option<Box<dyn Uncertainty>>, CalibratedRule)> {
        let rows = &self.data.rows;
        let (pool, home) = (self.pool.clone(), Some(self.home));
        let baseline = rule.needs_baseline();
        let source = BuildContext {
            model: Some(model),
            pool,
            seed: self.seed,
            home,
            needs_max_loo_score: baseline,
            ..BuildContext::of_data(rows)
        };
        let built =
            self.timer.time("index", || rule.needs_scores().then(|| estimator.build(&source)).transpose())?;
        if let Some(remark) = built.as_deref().and_then(|e| e.warning()) {
            self.note(remark);
        }
        let asked = built.as_deref().filter(|_| baseline);
        let baseline = self.timer.time("index", || asked.map_or(0.0, |e| e.max_loo_score()));
        Ok((built, rule.calibrate(baseline, &rows.rew)?))
    }

    /// States of the dataset to start rollouts from, drawn with replacement.
    pub fn starts(&self, count: usize, rng: &mut Rng) -> Mat {
        let rows: Vec<usize> = (0..count).map(|_| rng.below(self.data.rows.len())).collect();
        self.data.rows.obs.select(ndarray::Axis(0), &rows)
    }

    /// A batch of the dataset's rows, drawn with replacement.
    pub fn some_rows(&self, count: usize, rng: &mut Rng) -> Batch {
        let rows: Vec<usize> = (0..count).map(|_| rng.below(self.data.rows.len())).collect();
        self.data.rows.select(&rows)
    }

    /// Scores the policy, where there is a simulator, and records that together with `values`; keeps the best policy.
    pub fn record(
        &mut self,
        cfg: &TrainConfig,
        status: &mut Status,
        actor: &Actor,
        values: Map<String, Value>,
    ) -> Result<()> {
        let mut line = Map::new();
        line.insert("step".into(), json!(status.step));
        line.extend(values);
        if let Some(evaluator) = self.evaluator {
            let seed = self.rng("evaluate", status.step).bits();
            let found =
                self.timer.time("evaluate", || evaluate(evaluator.envs, &Mean(actor), cfg.episodes, seed))?;
            let mean = found.mean();
            line.insert("return".into(), json!(mean));
            line.insert("return_std".into(), json!(found.std()));
            line.insert("length".into(), json!(found.mean_length()));
            status.last_score = evaluator.reference.map(|r| found.score(&r));
            line.insert("score".into(), json!(status.last_score));
            if self.scores.best.is_none_or(|best| mean > best) {
                self.scores.best = Some(mean);
                self.run.write("best.safetensors", &actor.to_policy().to_bytes()?)?;
            }
            self.scores.last = Some(mean);
            status.evaluated = Some(status.step);
            status.scores = self.scores;
        }
        self.run.record(Value::Object(line))
    }

    /// Tells the watcher how it stands.
    pub fn tell(&mut self, status: &Status) -> ControlFlow<()> {
        (self.watch)(Event::Step(status))
    }

    /// Keeps the state after `step` steps, and how long it has taken.
    pub fn checkpoint(&mut self, step: u64, mut state: Tensors) -> Result<()> {
        let or_nan = |x: Option<f64>| x.unwrap_or(f64::NAN);
        state.put_f64("scores", &[or_nan(self.scores.last), or_nan(self.scores.best)]);
        let run = &mut *self.run;
        self.timer.time("checkpoint", || run.checkpoint(step, &state))?;
        self.run.keep_times(&self.timer)
    }

    /// The newest state of a run of `steps` steps, if any.
    pub fn resume(&mut self, steps: u64) -> Result<Option<(u64, Tensors)>> {
        let found = self.run.resume()?;
        for note in self.run.take_notes() {
            self.note(note);
        }
        if let Some((step, state)) = &found {
            let scores = state.f64("scores", 2)?;
            let number = |x: f64| x.is_finite().then_some(x);
            self.scores = Scores { last: number(scores[0]), best: number(scores[1]) };
            self.note(match *step >= steps {
                true => format!("finished already: all {steps} steps are done"),
                false => format!("going on after step {step}"),
            });
        }
        Ok(found)
    }

    /// Writes the finished policy.
    pub fn finish(&mut self, actor: &Actor) -> Result<()> {
        self.run.write("policy.safetensors", &actor.to_policy().to_bytes()?)?;
        self.run.write("policy.onnx", &crate::export::onnx(actor)?)?;
        Ok(())
    }
}

/// What rollouts did, under the names every algorithm's metrics have for it.
pub(super) fn record_tally(tally: &RolloutStats, put: &mut dyn FnMut(&str, Value)) {
    put("imagined", json!(tally.imagined));
    put("guarded", json!(tally.guarded));
    put("terminated", json!(tally.terminated));
    put("exploded", json!(tally.exploded));
    put("u_mean", json!(tally.mean_score()));
    put("u_max", json!((tally.scored > 0).then_some(tally.score_max)));
    put("scored", json!(tally.scored));
}
