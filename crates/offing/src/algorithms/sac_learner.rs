//! A soft actor-critic that learns in a model: rollouts into a buffer, batches of real and imagined rows.

use serde_json::json;

use super::config::{RolloutActions, RolloutConfig};
use super::record::Metrics;
use super::session::Session;
use super::train_loop::{Checkpoint, Step, TrainLoop};
use crate::batch::Batch;
use crate::error::Result;
use crate::nn::Tensors;
use crate::replay::gather_at;
use crate::rollout::{ModelBuffer, ModelRollout, Rollout, RolloutStats, UniformActions};
use crate::sac::{Actor, Losses, Sac, SacConfig, Standardiser, TwoMeans};

/// An agent, the buffer of imagined rows, and the batches it draws from both.
pub struct SacLearner {
    /// The agent.
    pub agent: Sac,
    /// The imagined rows (D_model).
    pub buffer: ModelBuffer,
    /// What the last rollout did.
    pub stats: Option<RolloutStats>,
    cfg: RolloutConfig,
    batch_size: usize,
    /// Rows that the coming steps of the block draw, the next step last: late scoring has to know them ahead.
    draws: Vec<Draw>,
    /// The batch that [`sample`](Self::sample) drew last.
    pub batch: MixedBatch,
    /// What the agent sees of observations, where it does not see them as logged.
    standardiser: Option<Standardiser>,
}

/// A batch: rows of the dataset first, imagined ones after them.
pub struct MixedBatch {
    /// All rows.
    pub rows: Batch,
    /// How many rows come from the dataset.
    pub real: usize,
    /// Which rows of the dataset they are.
    pub data_rows: Vec<usize>,
    /// Scores of the imagined rows; NaN where the rule needs none.
    pub u: Vec<f32>,
    /// Steps from the start of its rollout to each imagined row: 0 for the first.
    pub depth: Vec<u32>,
}

/// Row numbers of one batch, in the dataset and in the buffer.
struct Draw {
    step: u64,
    real: Vec<usize>,
    imagined: Vec<usize>,
}

impl SacLearner {
    /// A fresh agent with an empty buffer (Alg. 1 lines 1 and 2), for `steps` steps on batches of `batch_size` rows.
    ///
    /// # Errors
    /// Settings that make no sense.
    pub fn new(
        session: &Session<'_>,
        sac: &SacConfig,
        rollout: &RolloutConfig,
        (steps, batch_size): (u64, usize),
    ) -> Result<Self> {
        let (obs_dim, act_dim) = (session.data.rows.obs_dim(), session.data.rows.act_dim());
        Ok(Self {
            agent: Sac::new(&sac.over(steps), obs_dim, act_dim, session.pool, &mut session.rng("init", 0))?,
            buffer: ModelBuffer::new(rollout.capacity(), obs_dim, act_dim),
            stats: None,
            cfg: rollout.clone(),
            batch_size,
            draws: Vec::new(),
            batch: MixedBatch::empty(obs_dim, act_dim),
            standardiser: None,
        })
    }

    /// The agent sees standardised observations: [`MixedBatch::rows`] has them, and rollouts and [`policy`](Self::policy)
    /// act on raw ones by a folded actor.
    #[must_use]
    pub fn standardised(mut self, standardiser: Standardiser) -> Self {
        self.standardiser = Some(standardiser);
        self
    }

    /// The policy for observations as they are logged.
    pub fn policy(&self) -> Actor {
        self.folded(self.agent.policy())
    }

    /// The actor as it is now, for observations as they are logged; [`policy`](Self::policy) may be an average.
    pub fn actor(&self) -> Actor {
        self.folded(self.agent.actor.clone())
    }

    fn folded(&self, actor: Actor) -> Actor {
        match &self.standardiser {
            Some(standardiser) => standardiser.fold(&actor),
            None => actor,
        }
    }

    /// Rolls the policy out from states of the dataset into the buffer (Alg. 1 lines 6–11). Where the rule is a penalty,
    /// the rows that the coming batches draw are scored now, in one search.
    ///
    /// # Errors
    /// As the model and the estimator.
    pub fn rollout(
        &mut self,
        train: &mut TrainLoop<'_, '_>,
        rollout: &mut ModelRollout<'_>,
        step: Step,
    ) -> Result<()> {
        let rows = self.imagine(train.session, rollout, step)?;
        self.push(train, rows, rollout, step)
    }

    /// Rolls the policy out without keeping the rows: for algorithms that change them before [`push`](Self::push).
    ///
    /// # Errors
    /// As the model and the estimator.
    pub fn imagine(
        &self,
        session: &mut Session<'_>,
        rollout: &mut ModelRollout<'_>,
        step: Step,
    ) -> Result<Rollout> {
        let (starts, first) = (self.cfg.starts, self.cfg.first_states);
        let start = session.sample_starts_with_first(starts, first, &mut session.rng("start", step.index));
        let actor = self.actor();
        let (length, mut rng) = (self.cfg.length, session.rng("rollout", step.index));
        let uniform = UniformActions { obs_dim: actor.obs_dim(), act_dim: actor.act_dim() };
        session.timer.time("rollout", || match self.cfg.actions {
            RolloutActions::Policy => rollout.run(&actor, start, length, &mut rng),
            RolloutActions::Uniform => rollout.run(&uniform, start, length, &mut rng),
        })
    }

    /// Puts the rows of a rollout into the buffer, and scores those that the coming batches draw, where the rule is a
    /// penalty and they have no score yet.
    ///
    /// # Errors
    /// As the estimator.
    pub fn push(
        &mut self,
        train: &mut TrainLoop<'_, '_>,
        rows: Rollout,
        rollout: &mut ModelRollout<'_>,
        step: Step,
    ) -> Result<()> {
        self.buffer.push(&rows);
        let session = &mut *train.session;
        self.draws = (step.index..step.block_end).rev().map(|step| self.draw(session, step)).collect();
        let mut stats = rows.stats;
        if let (true, Some(estimator)) = (rollout.rule.rule().penalises(), rollout.estimator) {
            let drawn = self.draws.iter().flat_map(|draw| draw.imagined.iter().copied());
            let (buffer, rule) = (&mut self.buffer, &mut rollout.rule);
            session.timer.time("search", || buffer.score(drawn, estimator, rule, &mut stats))?;
        }
        train.status.rollout = Some(stats.clone());
        self.stats = Some(stats);
        Ok(())
    }

    /// The batch of a step (Alg. 1 line 12). While the buffer is empty (everything was truncated), all rows come from the
    /// dataset.
    pub fn sample(&mut self, session: &Session<'_>, step: Step) -> &mut MixedBatch {
        let planned = self.draws.pop_if(|draw| draw.step == step.index);
        // Nothing is planned in the block that a resumed run goes on with.
        let draw = planned.unwrap_or_else(|| self.draw(session, step.index));
        self.batch.fill(&session.data.rows, &self.buffer, draw);
        if let Some(standardiser) = &self.standardiser {
            standardiser.apply(&mut self.batch.rows.obs);
            standardiser.apply(&mut self.batch.rows.next_obs);
        }
        &mut self.batch
    }

    /// One update of the agent on the sampled batch (Alg. 1 line 13).
    ///
    /// # Errors
    /// Losses that are not finite.
    pub fn update(&mut self, session: &mut Session<'_>, step: Step) -> Result<Losses> {
        let (means, mut rng) = (self.two_means(), session.rng("sac", step.index));
        let (agent, rows) = (&mut self.agent, &self.batch.rows);
        session.timer.time("sac", || agent.update_two_means(rows, means, &mut rng))
    }

    /// What the batch's logged and imagined rows count in the critics' loss, where that is set.
    pub fn two_means(&self) -> Option<TwoMeans> {
        self.cfg.logged_weight.map(|weight| TwoMeans { first: self.batch.real, weight })
    }

    fn draw(&self, session: &Session<'_>, step: u64) -> Draw {
        let mut rng = session.rng("mix", step);
        let (batch, imagined) = (self.batch_size, self.buffer.ring.len());
        let real = if imagined == 0 { batch } else { self.cfg.real_rows(batch) };
        let real_rows = (0..real).map(|_| rng.below(session.data.rows.len())).collect();
        let imagined = (real..batch).map(|_| rng.below(imagined)).collect();
        Draw { step, real: real_rows, imagined }
    }

    /// Losses and what the last rollout did, for the metrics.
    pub fn metrics(&self, losses: &Losses) -> Metrics {
        let mut metrics = Metrics::default();
        metrics.put("critic_loss", json!(losses.critic));
        metrics.put("actor_loss", json!(losses.actor));
        metrics.put("q", json!(losses.q));
        metrics.put("entropy", json!(losses.entropy));
        metrics.put("alpha", json!(losses.alpha));
        if let Some(stats) = &self.stats {
            metrics.put_rollout(stats);
        }
        metrics
    }
}

impl Checkpoint for SacLearner {
    fn save(&self, out: &mut Tensors) {
        out.put_all("agent", self.agent.save());
        out.put_all("imagined", self.buffer.save());
        if let Some(stats) = &self.stats {
            out.put_f64("tally", &stats.to_numbers());
        }
    }

    fn load(&mut self, from: &Tensors) -> Result<()> {
        self.agent.load(&from.under("agent"))?;
        self.buffer.load(&from.under("imagined"))?;
        let stats = from.shape("tally").map(|_| from.f64("tally", RolloutStats::NUMBERS)).transpose()?;
        self.stats = stats.map(|numbers| RolloutStats::from_numbers(&numbers));
        Ok(())
    }
}

impl MixedBatch {
    fn empty(obs_dim: usize, act_dim: usize) -> Self {
        let rows = Batch::empty(obs_dim, act_dim);
        Self { rows, real: 0, data_rows: Vec::new(), u: Vec::new(), depth: Vec::new() }
    }

    fn fill(&mut self, data: &Batch, buffer: &ModelBuffer, draw: Draw) {
        let (real, rows) = (draw.real.len(), draw.real.len() + draw.imagined.len());
        if self.rows.len() != rows {
            self.rows = data.select(&vec![0; rows]);
        }
        gather_at(data, &draw.real, &mut self.rows, 0);
        gather_at(buffer.ring.columns(), &draw.imagined, &mut self.rows, real);
        self.real = real;
        self.u.clear();
        self.u.extend(draw.imagined.iter().map(|&slot| buffer.score_at(slot)));
        self.depth.clear();
        self.depth.extend(draw.imagined.iter().map(|&slot| buffer.depth_at(slot)));
        self.data_rows = draw.real;
    }

    /// What a rule changes and looks at in the imagined rows.
    pub fn imagined(&mut self) -> ImaginedRows<'_> {
        let rewards = self.rows.rew.as_slice_mut().expect("a batch is contiguous");
        ImaginedRows { rewards: &mut rewards[self.real..], u: &self.u, depth: &self.depth }
    }
}

/// The imagined rows of a batch.
pub struct ImaginedRows<'a> {
    /// Their rewards, to be penalised.
    pub rewards: &'a mut [f32],
    /// Their raw scores. Do not scale them, a normaliser looks at them: scale what `CalibratedRule::penalties` gives.
    pub u: &'a [f32],
    /// Steps from the start of its rollout to each: 0 for the first.
    pub depth: &'a [u32],
}
