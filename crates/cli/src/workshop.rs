//! Where learning happens: a dataset, its simulator if there is one, threads, a run directory and a view of the progress.

use anyhow::{Result, bail};
use offing::algo::{Evaluator, Event, Session, Status};
use offing::data::Dataset;
use offing::data::scores::{Reference, reference};
use offing::env::{Env, EnvPool};
use offing::nn::ThreadPool;
use offing::run::{ControlFlow, PhaseTimer, RunDir};
use offing_mujoco::{Physics, make};

use crate::commands::dynamics::task_of;
use crate::context::Context;
use crate::{signals, term};

/// What a session is made of.
pub(crate) struct Job<'a> {
    pub(crate) dataset: &'a Dataset,
    pub(crate) physics: Physics,
    pub(crate) seed: u64,
    /// Steps of the training, for the bar.
    pub(crate) steps: u64,
    /// JSON lines on stdout instead of a bar.
    pub(crate) json: bool,
}

/// The simulators of a session; `None` for data without one.
pub(crate) type Simulators<'a> = &'a (dyn Fn() -> offing::Result<Box<dyn Env>> + Sync);

/// Runs `work` in a session. It also gets the maker of simulators, where the dataset's task has one.
pub(crate) fn in_session<T>(
    context: &Context,
    job: &Job<'_>,
    run: &mut RunDir,
    work: impl FnOnce(&mut Session<'_>, Option<Simulators<'_>>) -> Result<T>,
) -> Result<T> {
    let task = task_of(&job.dataset.name);
    let engine = match &task {
        None => None,
        Some(task) => {
            let engine = context.engine()?;
            engine.prepare(task, &mut |line| context.say(line))?;
            check_shapes(job.dataset, make(engine, task, job.physics)?.as_ref(), task)?;
            Some((engine, task.clone()))
        }
    };
    let make_env = || -> offing::Result<Box<dyn Env>> {
        match &engine {
            Some((engine, task)) => make(engine, task, job.physics),
            None => Err(offing::Error::Invalid("there is no simulator for this dataset".into())),
        }
    };
    let envs = EnvPool::new(&make_env);
    let evaluator =
        engine.as_ref().map(|_| Evaluator { envs: &envs, reference: reference_of(job.dataset, job.physics) });
    signals::listen();
    let bar = term::training_bar(job.steps, context.quiet || job.json);
    let mut view = View { bar, json: job.json, seen: None, context };
    let bar = view.bar.clone();
    let mut watch = |event: Event<'_>| {
        view.show(&event);
        if signals::asked_to_stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let pool = ThreadPool::new(rayon::current_num_threads());
    let timer = PhaseTimer::going_on(run.path());
    let mut session = Session {
        data: job.dataset,
        home: context.home(),
        pool: &pool,
        seed: job.seed,
        evaluator,
        run,
        watch: &mut watch,
        timer,
        scores: Default::default(),
    };
    let simulators: Option<Simulators<'_>> = engine.as_ref().map(|_| &make_env as Simulators<'_>);
    let done = work(&mut session, simulators);
    bar.finish_and_clear();
    done
}

/// A policy learnt from these data must be one that acts in this simulator.
fn check_shapes(data: &Dataset, env: &dyn Env, task: &str) -> Result<()> {
    let (found, wanted) =
        ((data.rows.obs_dim(), data.rows.act_dim()), (env.spec().obs_dim, env.spec().act_dim));
    if found != wanted {
        bail!(
            "{}: wanted {} observations and {} actions, as {task} has, found {} and {}; rename the data if they are of another \
             world",
            data.name,
            wanted.0,
            wanted.1,
            found.0,
            found.1
        );
    }
    Ok(())
}

/// Reference returns, where they apply: v5 counts rewards differently, so it has none.
pub(crate) fn reference_of(dataset: &Dataset, physics: Physics) -> Option<Reference> {
    reference(&dataset.name).filter(|_| physics != Physics::GymnasiumV5)
}

/// The progress of a run in the terminal.
struct View<'a> {
    bar: indicatif::ProgressBar,
    json: bool,
    /// The step of the evaluation that was told last.
    seen: Option<u64>,
    context: &'a Context,
}

impl View<'_> {
    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Note(line) if !self.json => self.bar.suspend(|| self.context.say(line)),
            Event::Note(_) => {}
            Event::Fit(p) => {
                let best = p.holdout.iter().copied().fold(f64::INFINITY, f64::min);
                let words =
                    format!("dynamics model: epoch {}, best hold-out error {}", p.epoch, term::number(best));
                self.bar.set_message(words);
            }
            Event::Step(status) => self.step(status),
        }
    }

    fn step(&mut self, status: &Status) {
        self.bar.set_position(status.step);
        let mut words = Vec::new();
        if let Some(value) = status.scores.last {
            let score = status.last_score.map_or(String::new(), |s| format!(" (score {s:.1})"));
            words.push(format!("return {}{score}", term::number(value)));
        }
        let l = &status.losses;
        if l.critic > 0.0 {
            words.push(format!("critic {} · Q {}", term::number(l.critic), term::number(l.q)));
        } else {
            words.push(format!("loss {}", term::number(l.actor)));
        }
        if let Some(tally) = &status.tally {
            if let Some(u) = tally.mean_score() {
                words.push(format!("u {u:.2}"));
            }
            if tally.guarded > 0 {
                words.push(format!(
                    "cut {:.0} %",
                    100.0 * tally.guarded as f64 / tally.imagined.max(1) as f64
                ));
            }
        }
        self.bar.set_message(words.join(" · "));
        if self.json && status.evaluated != self.seen {
            self.seen = status.evaluated;
            let (last, best) = (status.scores.last, status.scores.best);
            let line = serde_json::json!({ "step": status.evaluated, "return": last, "best": best, "score": status.last_score });
            out!("{line}");
        }
    }
}
