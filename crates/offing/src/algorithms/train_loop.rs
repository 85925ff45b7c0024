//! The steps of a training: resumed where an earlier process stopped, saved, recorded and stopped on request.
//!
//! ```text
//! let mut train = TrainLoop::start(session, &cfg.train, cfg.rollout.every, &mut state)?;
//! while let Some(step) = train.next(&state)? {
//!     …                                              // one gradient step of the algorithm
//!     if train.finish_step(losses) {
//!         train.evaluate(&actor, metrics)?;
//!     }
//!     train.show_policy(|| Ok(actor.clone()))?;
//! }
//! Ok(train.finish(&actor)?.then_some(actor))
//! ```

use super::config::TrainConfig;
use super::record::Metrics;
use super::session::{Event, Session, Status};
use crate::error::Result;
use crate::nn::Tensors;
use crate::run::ControlFlow;
use crate::sac::{Actor, Losses};

/// Steps between two polls for a stop request: at COMBO's pace about two seconds.
const POLL_EVERY: u64 = 20;

/// What a checkpoint keeps of an algorithm. Everything else is a function of the settings, the data and the step.
pub trait Checkpoint {
    /// Adds the state to a checkpoint.
    fn save(&self, out: &mut Tensors);
    /// Takes back what [`save`](Self::save) added.
    ///
    /// # Errors
    /// Tensors that are missing or of another shape.
    fn load(&mut self, from: &Tensors) -> Result<()>;
}

/// One step of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its number, from 0.
    pub index: u64,
    /// The first step of its block: rollouts happen here. Never true for a step in the middle of a block that a resumed
    /// run goes on with.
    pub starts_block: bool,
    /// The first step of its block.
    pub block_start: u64,
    /// The step after the last one of its block.
    pub block_end: u64,
}

impl Step {
    /// Whether it is the last step of its block.
    pub fn ends_block(&self) -> bool {
        self.index + 1 == self.block_end
    }
}

/// The steps of a training.
pub struct TrainLoop<'s, 'd> {
    /// Data, threads, timer and the rest.
    pub session: &'s mut Session<'d>,
    /// How the training stands.
    pub status: Status,
    cfg: TrainConfig,
    /// Steps between two places where state is small: rollouts happen there, and regular checkpoints.
    block: u64,
    poll_every: u64,
    /// The step of the newest checkpoint.
    saved: Option<u64>,
    /// Whether `state` came from a checkpoint.
    resumed: bool,
    /// Whether whoever watches the policy asked to stop.
    asked_to_stop: bool,
    stopped: bool,
}

impl<'s, 'd> TrainLoop<'s, 'd> {
    /// Starts a training, or goes on with the run's newest checkpoint, which it loads into `state`. Checkpoints fall
    /// on multiples of `block` steps, except where somebody stops the run.
    ///
    /// # Errors
    /// A checkpoint of another algorithm or of other sizes.
    pub fn start(
        session: &'s mut Session<'d>,
        cfg: &TrainConfig,
        block: u64,
        state: &mut dyn Checkpoint,
    ) -> Result<Self> {
        let mut status = Status { steps: cfg.steps, ..Status::default() };
        let mut saved = None;
        if let Some((step, tensors)) = session.resume(cfg.steps)? {
            (status.step, saved) = (step, Some(step));
            state.load(&tensors)?;
        }
        let (cfg, resumed) = (cfg.clone(), saved.is_some());
        let (asked_to_stop, stopped) = (false, false);
        Ok(Self {
            session,
            status,
            cfg,
            block,
            poll_every: POLL_EVERY,
            saved,
            resumed,
            asked_to_stop,
            stopped,
        })
    }

    /// Polls for stop requests before every step: for algorithms whose steps take seconds.
    #[must_use]
    pub fn poll_every_step(mut self) -> Self {
        self.poll_every = 1;
        self
    }

    /// Whether the run goes on from a checkpoint: what an algorithm does once, before its first step, is done then.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// The next step, or `None` at the end or when an event handler asked to stop; `state` is saved where it is due.
    ///
    /// # Errors
    /// A checkpoint that cannot be written.
    pub fn next(&mut self, state: &dyn Checkpoint) -> Result<Option<Step>> {
        let (index, every) = (self.status.step, self.cfg.checkpoint_every);
        if index >= self.cfg.steps {
            self.save(state)?;
            let _ = self.session.report_progress(&self.status);
            return Ok(None);
        }
        let block_start = index / self.block * self.block;
        let starts_block = index == block_start;
        let poll = index.is_multiple_of(self.poll_every) || (starts_block && self.block > 1);
        self.stopped = self.asked_to_stop
            || (poll && self.session.report_progress(&self.status) == ControlFlow::Break(()));
        if self.stopped || (starts_block && index / every > self.saved.unwrap_or(0) / every) {
            self.save(state)?;
        }
        let block_end = (block_start + self.block).min(self.cfg.steps);
        Ok((!self.stopped).then_some(Step { index, starts_block, block_start, block_end }))
    }

    /// Ends a step. Whether an evaluation is due: then call [`evaluate`](Self::evaluate).
    pub fn finish_step(&mut self, losses: Losses) -> bool {
        self.status.losses = losses;
        self.status.step += 1;
        self.is_evaluated(self.status.step)
    }

    /// Whether an evaluation falls on this number of steps.
    fn is_evaluated(&self, step: u64) -> bool {
        step.is_multiple_of(self.cfg.evaluate_every) || step == self.cfg.steps
    }

    /// Scores the policy, where there is a simulator, and records that together with `metrics`.
    ///
    /// # Errors
    /// A simulator that fails, or files that cannot be written.
    pub fn evaluate(&mut self, actor: &Actor, metrics: Metrics) -> Result<()> {
        self.session.record(&self.cfg, &mut self.status, actor, metrics)
    }

    /// Shows the policy to whoever watches it and keeps a snapshot, where either is due after this step; `policy` is asked
    /// for only then. Comes last in a step.
    ///
    /// # Errors
    /// What `policy` answers, or files that cannot be written.
    pub fn show_policy(&mut self, policy: impl FnOnce() -> Result<Actor>) -> Result<()> {
        let step = self.status.step;
        let is_due = |every: u64| step.is_multiple_of(every);
        let kept = self.cfg.snapshot_every.is_some_and(is_due);
        let watched = self.session.watch_every.is_some_and(|every| is_due(every) || self.is_evaluated(step));
        if !kept && !watched {
            return Ok(());
        }
        let policy = self.session.outward(&policy()?);
        if kept {
            self.session.write_snapshot(step, &policy)?;
        }
        if watched {
            self.asked_to_stop |= (self.session.on_event)(Event::Policy(step, &policy)).is_break();
        }
        Ok(())
    }

    /// Writes the policy of a finished training; false for a stopped one.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn finish(self, actor: &Actor) -> Result<bool> {
        if !self.stopped {
            self.session.write_policy(actor)?;
        }
        Ok(!self.stopped)
    }

    fn save(&mut self, state: &dyn Checkpoint) -> Result<()> {
        if self.saved != Some(self.status.step) {
            let mut tensors = Tensors::default();
            state.save(&mut tensors);
            self.session.checkpoint(self.status.step, tensors)?;
            self.saved = Some(self.status.step);
        }
        Ok(())
    }
}
