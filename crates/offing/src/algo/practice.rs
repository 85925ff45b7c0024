//! The loop that model-based algorithms share: imagine, take gradient steps on mixed batches, keep what is needed to go on.

use std::ops::Range;

use serde_json::{Map, Value, json};

use super::config::{Acting, RolloutConfig, TrainConfig};
use super::session::{Session, Status, record_tally};
use crate::batch::Batch;
use crate::error::Result;
use crate::nn::Tensors;
use crate::replay::gather_at;
use crate::rollout::{ModelBuffer, ModelRollout, RolloutStats, Uniform};
use crate::run::ControlFlow;
use crate::sac::{Losses, Sac, SacConfig};

/// Gradient steps between two looks of the watcher: at COMBO's pace a wish to stop is heard within two seconds.
const TELL_EVERY: u64 = 20;

/// The settings of the loop.
#[derive(Clone, Copy)]
pub(super) struct Course<'a> {
    pub(super) train: &'a TrainConfig,
    pub(super) rollout: &'a RolloutConfig,
    pub(super) sac: &'a SacConfig,
}

/// What makes one algorithm differ from another.
pub(super) trait Method {
    /// Before the very first step, when nothing is resumed.
    fn begin(&mut self, _session: &mut Session<'_>, _agent: &mut Sac) -> Result<()> {
        Ok(())
    }
    /// Fills the buffer before the gradient steps of `lesson.steps`.
    fn imagine(&mut self, session: &mut Session<'_>, agent: &Sac, lesson: &mut Lesson<'_>) -> Result<()>;
    /// One gradient step.
    fn update(&mut self, session: &mut Session<'_>, agent: &mut Sac, mixed: &mut Mixed) -> Result<Losses>;
    /// After the gradient steps between two rollouts.
    fn reflect(&mut self, _session: &mut Session<'_>, _agent: &Sac, _steps: Range<u64>) -> Result<()> {
        Ok(())
    }
    /// What it found, for the metrics.
    fn findings(&self, _put: &mut dyn FnMut(&str, Value)) {}
    /// Its own state, for a checkpoint.
    fn save(&self, _out: &mut Tensors) {}
    /// Takes back what `save` gave.
    fn load(&mut self, _from: &Tensors) -> Result<()> {
        Ok(())
    }
}

/// The gradient steps between two rollouts, with the buffer they draw from.
pub(super) struct Lesson<'a> {
    pub(super) course: Course<'a>,
    pub(super) steps: Range<u64>,
    pub(super) imagined: &'a mut ModelBuffer,
    pub(super) status: &'a mut Status,
}

/// A batch: rows of the dataset first, imagined ones after them.
pub(super) struct Mixed {
    pub(super) batch: Batch,
    /// How many rows are the dataset's.
    pub(super) real: usize,
    /// Scores of the imagined rows.
    pub(super) u: Vec<f32>,
    /// Number of the gradient step.
    pub(super) step: u64,
}

/// Trains to the end, or until the watcher stops it; `None` then.
pub(super) fn practise(
    method: &mut dyn Method,
    course: Course<'_>,
    session: &mut Session<'_>,
) -> Result<Option<Sac>> {
    let (obs_dim, act_dim) = (session.data.rows.obs_dim(), session.data.rows.act_dim());
    let sac = course.sac.over(course.train.steps);
    let mut agent = Sac::new(&sac, obs_dim, act_dim, session.pool, &mut session.rng("init", 0))?;
    let mut imagined = ModelBuffer::new(course.rollout.capacity(), obs_dim, act_dim); // Alg. 1 line 2: D_model ← ∅
    let mut status = Status { steps: course.train.steps, ..Status::default() };
    let mut kept = None;
    match session.resume(course.train.steps)? {
        None => method.begin(session, &mut agent)?,
        Some((step, state)) => {
            (status.step, kept) = (step, Some(step));
            status.tally = load_tally(&state)?;
            agent.load(&state.under("agent"))?;
            imagined.load(&state.under("imagined"))?;
            method.load(&state)?;
        }
    }
    while status.step < course.train.steps {
        let every = course.train.checkpoint_every;
        let due = status.step / every > kept.unwrap_or(0) / every;
        let mut flow = session.tell(&status);
        if due {
            session.checkpoint(status.step, save(&agent, &imagined, &status, method))?;
            kept = Some(status.step);
        }
        if flow == ControlFlow::Continue(()) {
            let steps = block(course, status.step);
            let begun = status.step > steps.start; // stopped in its midst: what it needs is imagined already
            let mut lesson = Lesson { course, steps, imagined: &mut imagined, status: &mut status };
            if !begun {
                method.imagine(session, &agent, &mut lesson)?; // lines 6–11
            }
            flow = lesson.learn(method, session, &mut agent)?;
            if flow == ControlFlow::Continue(()) {
                method.reflect(session, &agent, lesson.steps)?;
            }
        }
        if flow == ControlFlow::Break(()) {
            if kept != Some(status.step) {
                session.checkpoint(status.step, save(&agent, &imagined, &status, method))?;
            }
            return Ok(None);
        }
    }
    if kept != Some(status.step) {
        session.checkpoint(status.step, save(&agent, &imagined, &status, method))?;
    }
    let _ = session.tell(&status);
    session.finish(&agent.actor)?;
    Ok(Some(agent))
}

impl Lesson<'_> {
    /// Rolls the policy out from states of the dataset into the buffer (Alg. 1 lines 6–11).
    pub(super) fn rollout(
        &mut self,
        dream: &mut ModelRollout<'_>,
        session: &mut Session<'_>,
        agent: &Sac,
    ) -> Result<RolloutStats> {
        let (rollout, step) = (self.course.rollout, self.steps.start);
        let start = session.starts(rollout.starts, &mut session.rng("start", step));
        let mut rng = session.rng("rollout", step);
        let uniform = Uniform { obs_dim: agent.actor.obs_dim(), act_dim: agent.actor.act_dim() };
        let dreamt = session.timer.time("rollout", || match rollout.actions {
            Acting::Policy => dream.rollout(&agent.actor, start, rollout.length, &mut rng),
            Acting::Uniform => dream.rollout(&uniform, start, rollout.length, &mut rng),
        })?;
        self.imagined.push(&dreamt);
        Ok(dreamt.tally)
    }

    /// Slots of the buffer that the coming gradient steps will draw: what late scoring has to score.
    pub(super) fn draws(&self, session: &Session<'_>) -> Vec<usize> {
        self.steps.clone().flat_map(|step| self.draw(session, step).1).collect()
    }

    /// Takes the gradient steps that are left. Whoever wants to stop is heard between any two of them, but not after the
    /// last, which [`Method::reflect`] belongs to.
    fn learn(
        &mut self,
        method: &mut dyn Method,
        session: &mut Session<'_>,
        agent: &mut Sac,
    ) -> Result<ControlFlow<()>> {
        let mut mixed = Mixed {
            batch: Batch::empty(session.data.rows.obs_dim(), session.data.rows.act_dim()),
            real: 0,
            u: Vec::new(),
            step: 0,
        };
        let (train, end) = (self.course.train, self.steps.end);
        for step in self.status.step..end {
            let (real, dreamt) = self.draw(session, step);
            mixed.fill(&session.data.rows, &real, self.imagined, &dreamt);
            mixed.step = step;
            self.status.losses = method.update(session, agent, &mut mixed)?;
            self.status.step = step + 1;
            if self.status.step.is_multiple_of(train.evaluate_every) || self.status.step == train.steps {
                let values = findings(self.status, method);
                session.record(train, self.status, &agent.actor, values)?;
            }
            let tell = self.status.step.is_multiple_of(TELL_EVERY) && self.status.step < end;
            if tell && session.tell(self.status) == ControlFlow::Break(()) {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Rows of the dataset and of the buffer that the batch of `step` takes. While the buffer is empty (everything was
    /// truncated), all come from the dataset.
    fn draw(&self, session: &Session<'_>, step: u64) -> (Vec<usize>, Vec<usize>) {
        let mut rng = session.rng("mix", step);
        let (batch, dreamt) = (self.course.train.batch, self.imagined.ring.len());
        let real = if dreamt == 0 { batch } else { self.course.rollout.real_rows(batch) };
        let real_rows = (0..real).map(|_| rng.below(session.data.rows.len())).collect();
        let dreamt_rows = (real..batch).map(|_| rng.below(dreamt)).collect();
        (real_rows, dreamt_rows)
    }
}

impl Mixed {
    fn fill(&mut self, data: &Batch, real: &[usize], imagined: &ModelBuffer, dreamt: &[usize]) {
        if self.batch.len() != real.len() + dreamt.len() {
            self.batch = data.select(&vec![0; real.len() + dreamt.len()]);
        }
        gather_at(data, real, &mut self.batch, 0);
        gather_at(imagined.ring.columns(), dreamt, &mut self.batch, real.len());
        self.real = real.len();
        self.u.clear();
        self.u.extend(dreamt.iter().map(|&slot| imagined.score_at(slot)));
    }

    /// Rewards of the imagined rows, with their scores.
    pub(super) fn imagined_rewards(&mut self) -> (&mut [f32], &[f32]) {
        let rewards = self.batch.rew.as_slice_mut().expect("a batch is contiguous");
        (&mut rewards[self.real..], &self.u)
    }
}

/// The steps between two rollouts that `step` belongs to.
fn block(course: Course<'_>, step: u64) -> Range<u64> {
    let start = step / course.rollout.every * course.rollout.every;
    start..(start + course.rollout.every).min(course.train.steps)
}

fn findings(status: &Status, method: &dyn Method) -> Map<String, Value> {
    let l = &status.losses;
    let mut values = Map::new();
    let mut put = |name: &str, value: Value| drop(values.insert(name.into(), value));
    put("critic_loss", json!(l.critic));
    put("actor_loss", json!(l.actor));
    put("q", json!(l.q));
    put("entropy", json!(l.entropy));
    put("alpha", json!(l.alpha));
    if let Some(tally) = &status.tally {
        record_tally(tally, &mut put);
    }
    method.findings(&mut put);
    values
}

fn save(agent: &Sac, imagined: &ModelBuffer, status: &Status, method: &dyn Method) -> Tensors {
    let mut out = Tensors::default();
    out.put_all("agent", agent.save());
    out.put_all("imagined", imagined.save());
    if let Some(tally) = &status.tally {
        out.put_f64("tally", &tally.to_numbers());
    }
    method.save(&mut out);
    out
}

/// What the last rollout did; the metrics of the steps after a resume tell it.
fn load_tally(from: &Tensors) -> Result<Option<RolloutStats>> {
    let kept = from.shape("tally").map(|_| from.f64("tally", RolloutStats::NUMBERS));
    Ok(kept.transpose()?.map(|numbers| RolloutStats::from_numbers(&numbers)))
}
