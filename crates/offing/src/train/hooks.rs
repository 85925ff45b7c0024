//! What surrounds a training: where data are, what simulates, who listens, what a program adds.

use std::path::PathBuf;

use super::reference_of;
use crate::algorithms::{Evaluator, Event, OwnEvaluation, Registry, Session, TrainConfig, UnitsChoice};
use crate::data::audit::teleport_rows;
use crate::data::catalogue::Catalogue;
use crate::data::resolve::{DataEvent, Resolver};
use crate::data::{Dataset, ReadOptions};
use crate::dynamics::ModelParts;
use crate::env::{Env, EnvPool, Physics, Simulators};
use crate::error::{Result, invalid, require};
use crate::home::Home;
use crate::nn::ThreadPool;
use crate::run::{ControlFlow, RunDir};
use crate::tasks::body_of;
use crate::uncertainty::CustomEstimator;

/// What surrounds a training. All of it has defaults: no simulator, all threads, nobody who listens.
pub struct Hooks<'a> {
    /// Where datasets, models and indexes are.
    pub catalogue: Catalogue,
    /// What evaluates policies and generates datasets; `None` does neither.
    pub simulators: Option<&'a dyn Simulators>,
    /// Called with everything that happens; says whether to go on.
    pub on_event: Box<dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a>,
    /// The algorithms that names can mean.
    pub registry: Registry,
    /// Estimators from outside this crate, by name.
    pub estimators: Vec<CustomEstimator<'a>>,
    /// The program's own way to score policies, in place of the simulators.
    pub own_evaluation: Option<Box<OwnEvaluation<'a>>>,
    /// Parts of the dynamics model that the program brings itself.
    pub parts: ModelParts,
    /// Steps between two [`Event::Policy`], which also come with evaluations; 0: only with them. Without it, none come.
    pub watch_every: Option<u64>,
    /// Threads to work with.
    pub threads: usize,
    /// The program that trains, for the run's provenance.
    pub program: String,
}

impl<'a> Hooks<'a> {
    /// Defaults, with models, indexes and generated datasets kept under `home`.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        let user = dirs::home_dir().unwrap_or_else(|| ".".into());
        let catalogue = Catalogue {
            home: Home::new(home),
            d4rl: user.join(".d4rl/datasets"),
            minari: user.join(".minari/datasets"),
        };
        Self {
            catalogue,
            simulators: None,
            on_event: Box::new(|_| ControlFlow::Continue(())),
            registry: Registry::default(),
            estimators: Vec::new(),
            own_evaluation: None,
            parts: ModelParts::default(),
            watch_every: None,
            threads: rayon::current_num_threads(),
            program: env!("CARGO_PKG_VERSION").into(),
        }
    }

    /// Takes simulators.
    #[must_use]
    pub fn with_simulators(mut self, simulators: &'a dyn Simulators) -> Self {
        self.simulators = Some(simulators);
        self
    }

    /// Takes an event handler.
    #[must_use]
    pub fn with_events(mut self, on_event: impl FnMut(Event<'_>) -> ControlFlow<()> + 'a) -> Self {
        self.on_event = Box::new(on_event);
        self
    }

    /// Says something to whoever listens.
    pub fn note(&mut self, line: impl Into<String>) {
        let _ = (self.on_event)(Event::Note(line.into()));
    }

    /// Datasets by name.
    pub fn resolver<T>(&mut self, work: impl FnOnce(&mut Resolver<'_>) -> T) -> T {
        let handler = &mut self.on_event;
        let mut on_event = |event: DataEvent<'_>| {
            let _ = handler(Event::Data(event));
        };
        work(&mut Resolver {
            catalogue: &self.catalogue,
            simulators: self.simulators,
            on_event: &mut on_event,
        })
    }

    /// The dataset of that name, as the `train` settings want it.
    ///
    /// # Errors
    /// As [`Resolver::read`].
    pub fn load(&mut self, name: &str, rows: Option<usize>, cfg: &TrainConfig) -> Result<Dataset> {
        let (data, _) = self.resolver(|resolver| {
            let path = resolver.locate(name, rows)?;
            resolver.read_with_notes(
                &path,
                ReadOptions { columns: cfg.columns.clone(), ..ReadOptions::default() },
            )
        })?;
        self.adapt(data, rows, cfg)
    }

    /// The dataset of that name with this checksum after [`adapt`](Self::adapt); `None` where it has another.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn find_same(
        &mut self,
        name: &str,
        rows: Option<usize>,
        cfg: &TrainConfig,
        digest: &str,
    ) -> Result<Option<Dataset>> {
        let mut unread = None;
        for place in self.resolver(|resolver| resolver.candidates(name, rows))? {
            match self.load(&place, rows, cfg) {
                Ok(data) if data.digest() == digest => return Ok(Some(data)),
                Ok(_) => {}
                // It may be the very one: report it, unless another turns out to be.
                Err(error) => unread = Some(error),
            }
        }
        unread.map_or(Ok(None), Err)
    }

    /// Changes a dataset as the `train` settings say: without teleports, subsampled to whole episodes of about `rows`
    /// rows, rewards shifted, in standard units.
    ///
    /// # Errors
    /// A stated range of actions that does not fit the logged ones.
    pub fn adapt(&mut self, mut data: Dataset, rows: Option<usize>, cfg: &TrainConfig) -> Result<Dataset> {
        if cfg.drop_teleports {
            let teleports = teleport_rows(&data);
            if !teleports.is_empty() {
                self.note(format!("leaving out {} teleports (train.drop_teleports)", teleports.len()));
                data = data.without(&teleports);
            }
        }
        if let Some(rows) = rows.filter(|&rows| rows < data.rows.len()) {
            data = data.subsampled(rows, 0);
        }
        let shift = cfg.reward_shift.of(&data.rows.rew);
        if shift != 0.0 {
            data.shift_rewards(shift);
        }
        let known = body_of(&data.name).is_some()
            || self.simulators.is_some_and(|simulators| simulators.task_of(&data.name).is_some());
        let standard = match cfg.units {
            UnitsChoice::Auto => !known,
            choice => choice == UnitsChoice::Standard,
        };
        if standard && data.units.is_none() {
            data.bring_inward(cfg.action_range.as_ref())?;
            if let Some(range) = data.units.as_ref().and_then(|units| units.act.as_ref()) {
                self.note(format!(
                    "actions from {:?} to {:?} are scaled to [-1, 1]; the policy gives them as logged (train.action_range)",
                    range.low, range.high
                ));
            }
        }
        Ok(data)
    }

    /// Runs `work` in a session on these data, with simulators to score policies in where their task has any.
    ///
    /// # Errors
    /// Data of other widths than their task's simulator has, and what `work` answers.
    pub fn in_session<T>(
        &mut self,
        data: &Dataset,
        physics: Physics,
        seed: u64,
        run: &mut RunDir,
        work: impl FnOnce(&mut Session<'_>) -> Result<T>,
    ) -> Result<T> {
        let simulators = self.simulators.filter(|_| self.own_evaluation.is_none());
        let simulated = simulators.and_then(|s| Some((s, s.task_of(&data.name)?)));
        let on_event = &mut *self.on_event;
        if let Some((simulators, task)) = &simulated {
            simulators.prepare(task, &mut |line| {
                let _ = on_event(Event::Note(line.into()));
            })?;
            check_widths(data, simulators.make(task, physics)?.as_ref(), task)?;
        }
        let make = || match &simulated {
            Some((simulators, task)) => simulators.make(task, physics),
            None => Err(invalid!("there is no simulator for this dataset")),
        };
        let (envs, pool) = (EnvPool::new(make), ThreadPool::new(self.threads));
        let home = &self.catalogue.home;
        let mut session = Session::new(data, home, &pool, seed, run, on_event);
        session.estimators = &self.estimators;
        session.evaluator =
            simulated.as_ref().map(|_| Evaluator { envs: &envs, reference: reference_of(data, physics) });
        session.parts = self.parts.clone();
        session.watch_every = self.watch_every;
        // Reborrowed for as long as the session lives.
        session.own_evaluation = match &mut self.own_evaluation {
            Some(own) => Some(&mut **own),
            None => None,
        };
        if simulated.is_none() && session.own_evaluation.is_none() {
            session.note("no simulator for this dataset: the policy is not scored during training");
        }
        work(&mut session)
    }
}

/// A policy learnt from these data must be one that acts in this simulator.
fn check_widths(data: &Dataset, env: &dyn Env, task: &str) -> Result<()> {
    let (found, wanted) =
        ((data.rows.obs_dim(), data.rows.act_dim()), (env.spec().obs_dim, env.spec().act_dim));
    require!(
        found == wanted,
        "{}: wanted {} observations and {} actions, as {task} has, found {} and {}; rename the file if it belongs to \
         another task",
        data.name,
        wanted.0,
        wanted.1,
        found.0,
        found.1
    );
    Ok(())
}
