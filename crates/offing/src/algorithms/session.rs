//! What every algorithm needs around it: data, threads, a simulator to be scored in, a run directory, an event handler.

use serde_json::{Map, Value};

use super::config::ModelConfig;
use crate::batch::{Batch, Mat};
use crate::data::Dataset;
use crate::data::resolve::DataEvent;
use crate::dynamics::{
    self, CachedModel, Correction, Ensemble, FitEvent, FitRequest, ModelParts, Termination,
};
use crate::env::EnvPool;
use crate::error::{Error, Result};
use crate::eval::Evaluation;
use crate::home::Home;
use crate::nn::{Tensors, ThreadPool};
use crate::pessimism::{CalibratedRule, Pessimism};
use crate::rng::Rng;
use crate::rollout::RolloutStats;
use crate::run::{ControlFlow, PhaseTimer, RunDir};
use crate::sac::{Actor, Losses};
use crate::tasks::Reference;
use crate::uncertainty::{BuildContext, ColumnScale, CustomEstimator, Uncertainty, UncertaintyConfig};

/// A model whose squared error is more than this share of linear regression's is not worth rolling out.
const BAD_MODEL: f64 = 0.9;

/// A simulator to score policies in.
#[derive(Clone, Copy)]
pub struct Evaluator<'a> {
    /// Simulators of the dataset's task.
    pub envs: &'a EnvPool<'a>,
    /// Its reference returns, where it has any.
    pub reference: Option<Reference>,
}

/// Scores a policy in the log's units over so many episodes; the seed fixes everything random.
pub type OwnEvaluation<'a> = dyn FnMut(&Actor, usize, u64) -> Result<Evaluation> + 'a;

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
    /// A program's own way to score policies, in place of the evaluator.
    pub own_evaluation: Option<&'a mut OwnEvaluation<'a>>,
    /// Steps between two [`Event::Policy`], which also come with evaluations; 0: only with them. Without it, none come.
    pub watch_every: Option<u64>,
    /// Parts of the dynamics model that the program brings itself.
    pub parts: ModelParts,
    /// Where results go.
    pub run: &'a mut RunDir,
    /// Called with everything that happens; says whether to go on.
    pub on_event: &'a mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    /// Estimators from outside this crate.
    pub estimators: &'a [CustomEstimator<'a>],
    /// Where the time goes.
    pub timer: PhaseTimer,
    /// Scores of the run so far.
    pub scores: Scores,
    /// The policy to take where there is no simulator.
    pub(super) pick: Option<Pick>,
    /// Whether the fitted model hardly predicts held-out rows.
    pub(super) model_is_bad: bool,
}

/// Returns in the simulator, as far as they were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    /// Mean return of the last evaluation.
    pub last: Option<f64>,
    /// The best so far. Choosing by it uses the simulator, which offline learning does not have: report both.
    pub best: Option<f64>,
    /// That of the policy that was picked without the simulator.
    pub picked: Option<f64>,
}

/// The policy of the highest estimated return among those evaluated so far, from the data alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pick {
    /// See [`Metrics::estimated_return`](super::Metrics::estimated_return).
    pub(super) estimated_return: f64,
    /// Steps that it has learnt.
    pub(super) step: u64,
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
    pub rollout: Option<RolloutStats>,
    /// Returns so far.
    pub scores: Scores,
    /// Normalised score of the last evaluation.
    pub last_score: Option<f64>,
}

/// What happens in a training.
pub enum Event<'a> {
    /// Something to say, one line.
    Note(String),
    /// Something was lost: one line that those hear who want no others.
    Warning(String),
    /// A dataset is being found, generated or read.
    Data(DataEvent<'a>),
    /// A run begins: what the episodes of its data returned, and their normalised score, where these are known.
    Behaviour {
        /// Mean return.
        mean_return: Option<f64>,
        /// Normalised score.
        score: Option<f64>,
    },
    /// The dynamics model took a step.
    Fit(&'a dynamics::FitProgress),
    /// The learner took steps.
    Step(&'a Status),
    /// A line of metrics.jsonl was written.
    Recorded(&'a Map<String, Value>),
    /// The policy after so many steps, in the log's units, every [`Session::watch_every`] steps. A stop takes effect before
    /// the next step.
    Policy(u64, &'a Actor),
}

impl<'a> Session<'a> {
    /// A session that scores policies nowhere; set [`evaluator`](Self::evaluator) for that.
    pub fn new(
        data: &'a Dataset,
        home: &'a Home,
        pool: &'a ThreadPool,
        seed: u64,
        run: &'a mut RunDir,
        on_event: &'a mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Self {
        let timer = PhaseTimer::resume(run.path());
        Self {
            data,
            home,
            pool,
            seed,
            evaluator: None,
            own_evaluation: None,
            watch_every: None,
            parts: ModelParts::default(),
            run,
            on_event,
            estimators: &[],
            timer,
            scores: Scores::default(),
            pick: None,
            model_is_bad: false,
        }
    }

    /// The stream of random numbers of `name` number `index`. Numbering streams by step is what makes a resumed run
    /// equal to an uninterrupted one.
    pub fn rng(&self, name: &str, index: u64) -> Rng {
        Rng::stream(self.seed, name, index)
    }

    /// Says something.
    pub fn note(&mut self, line: impl Into<String>) {
        let _ = (self.on_event)(Event::Note(line.into()));
    }

    /// The dynamics model: found in the cache by content, or fitted.
    pub fn fit_model(&mut self, cfg: &ModelConfig) -> Result<Ensemble> {
        let termination = cfg.termination_for(self.data)?;
        self.tell_assumed_rule(cfg);
        let fit = FitRequest {
            rows: &self.data.rows,
            names: &self.data.names,
            config: &cfg.ensemble,
            termination: &termination,
            seed: cfg.seed.unwrap_or(self.seed),
        };
        let on_event = &mut *self.on_event;
        let mut progress = |event: FitEvent<'_>| {
            let flow = match event {
                FitEvent::Note(line) => on_event(Event::Note(line)),
                FitEvent::Step(progress) => on_event(Event::Fit(progress)),
            };
            match flow {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(Error::Stopped),
            }
        };
        let (home, pool) = (self.home, self.pool);
        let cached: CachedModel =
            self.timer.time("model", || dynamics::fit_cached(home, fit, pool, &mut progress))?;
        let (verb, elites) = (if cached.fresh { "fitted" } else { "found" }, cached.model.elites());
        let errors: Vec<f64> = elites.iter().map(|&m| cached.model.holdout()[m]).collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        self.note(format!(
            "{verb} the dynamics model ({} members, {} epochs, hold-out error of its elites {mean:.4})",
            cached.model.members(),
            cached.epochs
        ));
        self.report_model_error(&cached.model, cfg);
        let model = self.with_parts(cached.model, cfg)?;
        self.check_termination(&model);
        Ok(model)
    }

    /// The model with the rule and the functions that the program brings, in the units of the session's rows.
    fn with_parts(&self, mut model: Ensemble, cfg: &ModelConfig) -> Result<Ensemble> {
        let parts = cfg.select_parts(&self.parts)?;
        if let Some(rule) = &parts.termination {
            model = model.with_termination(Termination::Custom(rule.clone()));
        }
        if let Some(units) = &self.data.units {
            model = model.in_units(units);
        }
        Ok(model.with_correction(Correction::new(parts, self.data.units.as_ref(), self.data.reward_shift)))
    }

    /// Says how much better the model predicts held-out rows than two models without any learning to speak of.
    fn report_model_error(&mut self, model: &Ensemble, cfg: &ModelConfig) {
        let (rows, seed) = (&self.data.rows, cfg.seed.unwrap_or(self.seed));
        let (found, _) = self.timer.time("model", || dynamics::compare(model, rows, &cfg.ensemble, seed));
        let [line, still] = [found.linear, found.unchanged].map(|error| found.elite_mean / error);
        self.note(format!(
            "its squared error on held-out rows is {line:.3} times that of linear regression and {still:.3} times that of \
             \"nothing changes\""
        ));
        // In a world that is linear, or nearly so, both errors are small and their ratio says nothing.
        self.model_is_bad = still > BAD_MODEL || (line > BAD_MODEL && found.elite_mean > 0.05);
        if self.model_is_bad {
            self.note(
                "warning: the model hardly predicts these data, so imagined rows will mislead; use more rows or longer \
                 training (model.ensemble.max_updates), or learn without a model (`td3bc`, `iql`)",
            );
        }
    }

    /// Warns where an early end is worth more than living on: then a policy learns to fail.
    pub(super) fn warn_if_ending_pays(&mut self) {
        if let Some(step) = self.data.ending_pays() {
            self.note(format!(
                "warning: a step brings {step:.3} on average, so ending an episode early pays; if ends are failures, shift \
                 rewards with --set train.reward_shift=to-zero"
            ));
        }
    }

    /// The estimator that scores imagined steps; `None` where the rule needs no scores.
    ///
    /// # Errors
    /// As [`UncertaintyConfig::build`].
    pub fn build_estimator(
        &mut self,
        estimator: &UncertaintyConfig,
        rule: &Pessimism,
        model: &Ensemble,
    ) -> Result<Option<Box<dyn Uncertainty>>> {
        if !rule.needs_scores() {
            return Ok(None);
        }
        if matches!(estimator, UncertaintyConfig::Sumo(sumo) if sumo.columns == ColumnScale::Raw) {
            self.check_columns();
        }
        let context = BuildContext {
            model: Some(model),
            pool: self.pool.clone(),
            seed: self.seed,
            home: Some(self.home),
            needs_max_loo_score: rule.needs_max_loo_score(),
            custom: self.estimators,
            ..BuildContext::of_data(&self.data.rows)
        };
        let built = self.timer.time("index", || estimator.build(&context))?;
        built.warning().into_iter().for_each(|warning| self.note(warning));
        Ok(Some(built))
    }

    /// The rule with its constants fixed from the dataset: ε of Eq. 7, r_max of Eq. 6.
    ///
    /// # Errors
    /// Settings that make no sense.
    pub fn calibrate(
        &mut self,
        rule: Pessimism,
        estimator: Option<&dyn Uncertainty>,
    ) -> Result<CalibratedRule> {
        let asked = estimator.filter(|_| rule.needs_max_loo_score());
        let largest = self.timer.time("index", || asked.map_or(0.0, |e| e.max_loo_score()));
        let quantile = estimator.zip(rule.level_quantile());
        let level = self.timer.time("index", || quantile.map_or(Ok(0.0), |(e, q)| e.loo_quantile(q)))?;
        let rule = rule.calibrate(largest, &self.data.rows.rew)?.from_level(level);
        if let (Some(epsilon), Some(estimator)) = (rule.epsilon(), estimator) {
            let distance = estimator.distance_of(epsilon).map(|d| format!(", a distance of {d:.3}"));
            let distance = distance.unwrap_or_default();
            self.note(format!("rollouts are cut at steps with u > {epsilon:.4}{distance} (Eq. 7)"));
        }
        Ok(rule)
    }

    /// States of the dataset to start rollouts from, drawn with replacement.
    pub fn sample_starts(&self, count: usize, rng: &mut Rng) -> Mat {
        let rows: Vec<usize> = (0..count).map(|_| rng.below(self.data.rows.len())).collect();
        self.data.rows.obs.select(ndarray::Axis(0), &rows)
    }

    /// The same, `share` of them first states of episodes.
    pub fn sample_starts_with_first(&self, count: usize, share: f64, rng: &mut Rng) -> Mat {
        let episodes = &self.data.episodes;
        let first = if episodes.is_empty() { 0 } else { (count as f64 * share).round() as usize };
        let rows: Vec<usize> = (0..count)
            .map(|i| match i < first {
                true => episodes[rng.below(episodes.len())].start,
                false => rng.below(self.data.rows.len()),
            })
            .collect();
        self.data.rows.obs.select(ndarray::Axis(0), &rows)
    }

    /// A batch of the dataset's rows, drawn with replacement.
    pub fn sample_batch(&self, count: usize, rng: &mut Rng) -> Batch {
        let rows: Vec<usize> = (0..count).map(|_| rng.below(self.data.rows.len())).collect();
        self.data.rows.select(&rows)
    }

    /// Tells the event handler how the training stands; its answer says whether to go on.
    pub fn report_progress(&mut self, status: &Status) -> ControlFlow<()> {
        (self.on_event)(Event::Step(status))
    }

    /// Keeps the state after `step` steps, and how long it has taken.
    pub(super) fn checkpoint(&mut self, step: u64, mut state: Tensors) -> Result<()> {
        let or_nan = |x: Option<f64>| x.unwrap_or(f64::NAN);
        let Scores { last, best, picked } = self.scores;
        state.put_f64("scores", &[last, best, picked].map(or_nan));
        if let Some(pick) = self.pick {
            state.put_f64("pick", &[pick.estimated_return, pick.step as f64]);
        }
        let run = &mut *self.run;
        self.timer.time("checkpoint", || run.checkpoint(step, &state))?;
        self.run.save_timing(&self.timer)
    }

    /// The newest state of a run of `steps` steps, if any.
    pub(super) fn resume(&mut self, steps: u64) -> Result<Option<(u64, Tensors)>> {
        let found = self.run.resume()?;
        for warning in self.run.take_warnings() {
            let _ = (self.on_event)(Event::Warning(warning));
        }
        if let Some((step, state)) = &found {
            let kept = state.shape("scores").map_or(3, |shape| shape.iter().product());
            let scores = state.f64("scores", kept)?;
            let number = |i: usize| scores.get(i).copied().filter(|score| score.is_finite());
            self.scores = Scores { last: number(0), best: number(1), picked: number(2) };
            if state.shape("pick").is_some() {
                let pick = state.f64("pick", 2)?;
                self.pick = Some(Pick { estimated_return: pick[0], step: pick[1] as u64 });
            }
            self.note(match *step >= steps {
                true => format!("finished already: all {steps} steps are done"),
                false => format!("going on after step {step}"),
            });
        }
        Ok(found)
    }
}
