//! Landfall: the policy climbs its own return through the model, and search holds it to the data.
//!
//! 1. *Warm start.* The actor clones the data and the critics are fitted to its discounted returns. From half-way on,
//!    rows that did better than usual for their state count more.
//! 2. *Unrolled returns.* From states of the data, the policy acts for a few steps in the model. The λ-return of that
//!    trajectory is a differentiable function of the actor's weights: its gradient says how each action changes every
//!    later state, reward and value. (Dreamer, Hafner et al. 2020, and LEQ, Park & Lee 2025, learn by it, too.)
//! 3. *Guard.* A step that SUMO's search finds farther from the data than the data's own level costs reward, and the
//!    gradient of its score (Eq. 4) points back to the nearest logged transition. A step beyond the dataset's largest score
//!    (Eq. 7 with α = 1) is not believed at all: the trajectory's value is that before it.
//! 4. *Anchor.* The actor's loss keeps a share of the weighted cloning loss on logged rows (TD3+BC, Fujimoto & Gu 2021).
//! 5. *Check.* Policies are followed through members of the model that none has learnt from. The best there is the final one.

mod config;
mod guard;
mod learn;
#[cfg(test)]
mod tests;

pub use config::{Anchor, FinalPolicy, LandfallConfig, UnrollConfig, WarmStart};

use ndarray::{Array1, s};
use serde_json::json;

use super::Algorithm;
use super::config::Blocks;
use super::follow::{MeanActions, longest_episode};
use super::lambda_return::Fate;
use super::record::Metrics;
use super::returns::Returns;
use super::session::Session;
use super::train_loop::{Checkpoint, TrainLoop};
use crate::batch::{Batch, Mat};
use crate::dynamics::Ensemble;
use crate::error::{Error, Result, ensure};
use crate::nn::Tensors;
use crate::pessimism::Pessimism;
use crate::replay::gather;
use crate::rollout::ModelRollout;
use crate::sac::{Actor, Cloner, Losses, Objective, Sac, Standardiser};
use crate::unroll::Unroll;
use guard::{Guard, Scored};
use learn::{critic_step, spread_around};

/// Trajectories of a rollout that gathers states of the policy's own.
const GATHERED: usize = 50;

impl Algorithm for LandfallConfig {
    fn blocks(&self) -> Blocks<'_> {
        Blocks {
            model: Some(&self.model),
            uncertainty: Some(&self.uncertainty),
            pessimism: Some(&self.pessimism),
            sac: Some(&self.sac),
            ..Blocks::new(&self.train)
        }
    }

    fn validate(&self) -> Result<()> {
        let (starts, batch) = (self.unroll.starts, self.train.batch);
        let fits = (1..=batch).contains(&starts);
        ensure(fits, "unroll.starts", &format!("from 1 to {batch} (train.batch)"), starts)?;
        let own = self.model.dynamics.as_deref();
        ensure(
            own.is_none(),
            "model.dynamics",
            "none, as Landfall differentiates the model",
            own.unwrap_or(""),
        )?;
        ensure(self.unroll.length > 0, "unroll.length", "at least 1", self.unroll.length)?;
        let UnrollConfig { lambda, noise, own_states, gather_every, expectile, average, .. } = self.unroll;
        let between = expectile > 0.0 && expectile < 1.0;
        ensure(between, "unroll.expectile", "a number between 0 and 1", expectile)?;
        ensure(noise >= 0.0 && noise.is_finite(), "unroll.noise", "a number from 0", noise)?;
        ensure((0.0..=1.0).contains(&own_states), "unroll.own_states", "a number from 0 to 1", own_states)?;
        ensure((0.0..=1.0).contains(&average), "unroll.average", "a number from 0 to 1", average)?;
        ensure(gather_every > 0, "unroll.gather_every", "at least 1", gather_every)?;
        ensure((0.0..=1.0).contains(&lambda), "unroll.lambda", "a number from 0 to 1", lambda)?;
        let lr = self.warm_start.lr;
        ensure(lr > 0.0 && lr.is_finite(), "warm_start.lr", "a positive number", lr)?;
        if let Some(share) = self.unroll.logged_weight {
            ensure((0.0..=1.0).contains(&share), "unroll.logged_weight", "a number from 0 to 1", share)?;
        }
        let Anchor { weight, weight_end, selectivity } = self.anchor;
        let [weight, end] = [weight, weight_end.unwrap_or(weight)].map(f64::from);
        for (key, value) in
            [("anchor.weight", weight), ("anchor.weight_end", end), ("anchor.selectivity", selectivity)]
        {
            ensure(value >= 0.0 && value.is_finite(), key, "a number from 0", value)?;
        }
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Option<Actor>> {
        let model = session.fit_model(&self.model)?;
        let warm_start = match self.stays_with_clone(session) {
            false => self.warm_start.clone(),
            true => {
                session.note("staying with the clone of the data (unroll.despite_bad_model=true learns through the model)");
                self.warm_start.over(self.train.steps)
            }
        };
        let estimator = session.build_estimator(&self.uncertainty, &self.pessimism, &model)?;
        let rule = session.calibrate(self.pessimism, estimator.as_deref())?;
        let guard = Guard { estimator: estimator.as_deref(), rule };
        let data = session.data;
        let (obs_dim, act_dim) = (data.rows.obs_dim(), data.rows.act_dim());
        let standardiser = match self.standardise {
            true => Standardiser::of(&data.rows.obs),
            false => Standardiser::identity(obs_dim),
        };
        let returns = Returns::of(data, self.sac.gamma);
        let updates = self.train.steps.saturating_sub(warm_start.steps);
        let mut sac = self.sac.over(updates);
        sac.actor_average = sac.actor_average.or(self.unroll.average_rate(updates));
        let mut agent = Sac::new(&sac, obs_dim, act_dim, session.pool, &mut session.rng("init", 0))?;
        let centred = agent.actor.clone().centred_on(&data.rows.act);
        agent.set_actor(&centred);
        let UnrollConfig { starts, length, .. } = self.unroll;
        let mut unroll = Unroll::new(&agent.actor, &model, (starts, length), self.train.batch, session.pool);
        let own = Mat::zeros((0, obs_dim));
        let (weights, noise) = (Vec::new(), Vec::new());
        let mut state = State { agent, weights, noise, own, found: Found::default(), picked: None };
        let check = self.check_of(&model);
        let mut train = TrainLoop::start(session, &self.train, 1, &mut state)?;
        let mut cloner = Cloner::new(Objective::Mse, warm_start.lr).after(train.status.step);
        let mut batch = Batch::empty(obs_dim, act_dim);
        while let Some(step) = train.next(&state)? {
            let warm = step.index < warm_start.steps;
            let session = &mut *train.session;
            if warm && step.index == warm_start.steps / 2 {
                state.weights =
                    session.timer.time("weigh", || self.weigh(&state.agent, data, &standardiser, &returns));
            }
            let mut rng = session.rng("batch", step.index);
            let picks: Vec<usize> = (0..self.train.batch).map(|_| rng.below(data.rows.len())).collect();
            gather(&data.rows, &picks, &mut batch);
            if step.index == warm_start.steps && self.unroll.noise > 0.0 {
                let spread = spread_around(&state.agent.actor, data, &standardiser, session.pool);
                state.noise = spread.into_iter().map(|spread| self.unroll.noise * spread).collect();
            }
            if !warm && (step.index - warm_start.steps).is_multiple_of(self.unroll.gather_every) {
                let folded = standardiser.fold(&state.agent.actor);
                let policy = MeanActions { policy: &folded, noise: &state.noise };
                state.own = self.gather_states(session, &guard, &model, &policy, step.index)?;
            }
            let mut start = batch.next_obs.slice(s![..starts, ..]).to_owned();
            let logged = if state.own.is_empty() { starts } else { self.unroll.logged() };
            for i in logged..starts {
                start.row_mut(i).assign(&state.own.row(rng.below(state.own.nrows())));
                // What ended in the log did not end here.
                batch.done[i] = false;
            }
            standardiser.apply(&mut batch.obs);
            batch.rew *= returns.scale;
            let State { agent, weights, noise, found, .. } = &mut state;
            let weight = |i: usize| weights.get(picks[i]).copied().unwrap_or(1.0);
            let (pool, timer) = (session.pool, &mut session.timer);
            if warm {
                let y: Array1<f32> = picks.iter().map(|&row| returns.values[row]).collect();
                cloner.set_lr(warm_start.lr_at(step.index));
                found.cloning = timer
                    .time("cloning", || cloner.step_weighted(&mut agent.actor, pool, &batch, weight))?
                    / act_dim as f64;
                found.critic =
                    timer.time("critics", || critic_step(agent, (&batch.obs, &batch.act), &y, |_| 1.0, 0.5));
                agent.sync_targets();
                if step.index + 1 == warm_start.steps {
                    // Cloning had moments of its own.
                    let clone = agent.actor.clone();
                    agent.set_actor(&clone);
                }
            } else {
                let by = (&model, step.index as usize);
                let mut columns = noise.iter().cycle();
                let draw = || columns.next().map_or(0.0, |&deviation| deviation * rng.normal() as f32);
                timer.time("unroll", || {
                    unroll.forward(&agent.actor, by, &standardiser, pool, &start, draw);
                });
                let looked_at: Vec<usize> = (0..starts).map(|_| rng.below(length)).collect();
                let scored = timer.time("search", || guard.score(&unroll, &model, &returns, &looked_at))?;
                let updates = (self.train.steps - warm_start.steps).max(1) as f64;
                let anchor = self.anchor.weight_at((step.index - warm_start.steps) as f64 / updates);
                let y = timer.time("actor", || {
                    let anchored = unroll.anchor(&agent.actor, pool, &batch.obs);
                    let danchored = self.anchor_gradient(anchored, &batch.act, (anchor, weight), found);
                    let (gradient, y) =
                        self.return_gradient(agent, &unroll, &standardiser, &scored, &batch.done, found);
                    unroll.train_actor(agent, &model, &standardiser, pool, (&gradient, &danchored));
                    y
                });
                found.critic = timer.time("critics", || {
                    self.learn_values(
                        agent,
                        &unroll,
                        &standardiser,
                        (&batch, logged),
                        &scored,
                        &y,
                        &returns,
                        &mut rng,
                    )
                });
                agent.sync_targets();
                found.guard(&scored);
            }
            found.check(step.index)?;
            let is_last = step.index + 1 == self.train.steps;
            let losses = Losses { critic: found.critic, actor: found.actor, q: found.q, ..Losses::default() };
            let policy =
                || standardiser.fold(&if warm { state.agent.actor.clone() } else { state.agent.policy() });
            if train.finish_step(losses) {
                let (session, models) = (&mut *train.session, (&model, check.as_ref()));
                let mut evaluated = policy();
                let mut metrics = self.metrics(session, models, &evaluated, &state.found, &returns)?;
                if let Some(estimate) = metrics.estimated_return
                    && state.picked.as_ref().is_none_or(|picked| estimate > picked.estimate)
                {
                    state.picked = Some(Picked { estimate, policy: evaluated.clone() });
                }
                if let Some(better) = self.instead(&state.picked).filter(|_| is_last) {
                    evaluated = better.clone();
                    metrics = self.metrics(session, models, &evaluated, &state.found, &returns)?;
                }
                train.evaluate(&evaluated, metrics)?;
            }
            train.show_policy(|| {
                let instead = self.instead(&state.picked).filter(|_| is_last);
                Ok(instead.cloned().unwrap_or_else(policy))
            })?;
        }
        let last = || standardiser.fold(&state.agent.policy());
        let policy = self.instead(&state.picked).cloned().unwrap_or_else(last);
        Ok(train.finish(&policy)?.then_some(policy))
    }
}

impl LandfallConfig {
    /// Whether the model is too bad to learn through.
    fn stays_with_clone(&self, session: &Session<'_>) -> bool {
        session.model_is_bad && !self.unroll.despite_bad_model
    }

    /// The members of the model that the policy does not learn from; none when it learns from all.
    fn check_of(&self, model: &Ensemble) -> Option<Ensemble> {
        let others: Vec<usize> = (0..model.members()).filter(|m| !model.elites().contains(m)).collect();
        (!others.is_empty()).then(|| model.clone().with_members(others))
    }

    /// The policy that the training ends with in place of the last one.
    fn instead<'p>(&self, picked: &'p Option<Picked>) -> Option<&'p Actor> {
        picked.as_ref().filter(|_| self.final_policy == FinalPolicy::Picked).map(|picked| &picked.policy)
    }

    /// States that the policy reaches in the model, from first states of episodes and from any: as far as the guard lets it.
    fn gather_states(
        &self,
        session: &mut Session<'_>,
        guard: &Guard<'_>,
        model: &Ensemble,
        policy: &MeanActions<'_>,
        step: u64,
    ) -> Result<Mat> {
        let mut rng = session.rng("gather", step);
        let start = session.sample_starts_with_first(GATHERED, 0.5, &mut rng);
        let rule = match guard.rule.epsilon() {
            Some(_) => guard.rule.clone(),
            None => Pessimism::Truncate { alpha: 1.0 }
                .calibrate(guard.rule.max_score(), &session.data.rows.rew)?,
        };
        let mut rollout =
            ModelRollout { model, estimator: guard.estimator, rule, pool: session.pool, one_member: true };
        let longest = longest_episode(session.data);
        let rows = session.timer.time("gather", || rollout.run(policy, start, longest, &mut rng))?;
        Ok(rows.rows.obs)
    }

    /// Numbers of an evaluation. The policy is followed from first states of the log through the model that it learns from,
    /// and through its check, if there is one, which decides.
    fn metrics(
        &self,
        session: &mut Session<'_>,
        (model, check): (&Ensemble, Option<&Ensemble>),
        policy: &Actor,
        found: &Found,
        returns: &Returns,
    ) -> Result<Metrics> {
        let mut metrics = Metrics::default();
        let scale = f64::from(returns.scale);
        metrics.put("critic_loss", json!(found.critic));
        metrics.put("q", json!(found.q / scale));
        metrics.put("data_return", json!(returns.mean));
        metrics.put("cloning_loss", json!(found.cloning));
        metrics.put("u_mean", json!(found.u));
        metrics.put("penalty", json!(found.penalty));
        metrics.put("unbelieved", json!(found.unbelieved));
        // A model that is not learnt through does not pick a policy either.
        if !self.stays_with_clone(session) {
            session.follow(check.unwrap_or(model), policy, &mut metrics)?;
            if check.is_some() {
                metrics.put("climbed_return", json!(session.follow_in(model, policy)?.total));
            }
        }
        Ok(metrics)
    }
}

/// What the last step found; means over the batch.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    critic: f64,
    actor: f64,
    /// λ-return, scaled.
    q: f64,
    /// Squared distance from logged actions.
    cloning: f64,
    /// The anchor's part of the actor's loss.
    anchor: f64,
    u: f64,
    penalty: f64,
    /// Share of steps that were not believed.
    unbelieved: f64,
}

impl Found {
    fn guard(&mut self, scored: &Scored) {
        (self.u, self.penalty) = (scored.u, scored.penalty);
        let lost = scored.fate.iter().filter(|&&fate| fate == Fate::Unbelieved).count();
        self.unbelieved = lost as f64 / scored.fate.len().max(1) as f64;
    }

    fn check(&self, step: u64) -> Result<()> {
        let fits = |x: f64| x.abs() < f64::from(f32::MAX);
        match [("critics' loss", self.critic), ("λ-return", self.q)].iter().find(|(_, x)| !fits(*x)) {
            None => Ok(()),
            Some((name, x)) => Err(Error::Invalid(format!(
                "the {name} became {x:.4e} at step {step}; check the data for huge values, or lower the learning rates"
            ))),
        }
    }

    fn numbers(&self) -> [f64; 8] {
        let Self { critic, actor, q, cloning, anchor, u, penalty, unbelieved } = *self;
        [critic, actor, q, cloning, anchor, u, penalty, unbelieved]
    }
}

/// What a checkpoint keeps.
struct State {
    agent: Sac,
    /// Weights of the data's rows in the cloning loss; none while all count alike.
    weights: Vec<f32>,
    /// Deviation of the noise on each column of imagined actions; none before the first of them.
    noise: Vec<f32>,
    /// States that the policy reached in the model.
    own: Mat,
    found: Found,
    /// Of the policies evaluated so far, the one with the highest estimated return.
    picked: Option<Picked>,
}

/// A policy with its estimated return.
struct Picked {
    estimate: f64,
    policy: Actor,
}

impl Checkpoint for State {
    fn save(&self, out: &mut Tensors) {
        out.put_all("agent", self.agent.save());
        out.put_f32("weights", &[self.weights.len()], self.weights.clone());
        out.put_f32("noise", &[self.noise.len()], self.noise.clone());
        out.put_f32("own", &[self.own.nrows(), self.own.ncols()], self.own.iter().copied().collect());
        out.put_f64("found", &self.found.numbers());
        if let Some(Picked { estimate, policy }) = &self.picked {
            out.put_f64("picked_return", &[*estimate]);
            out.put_all("picked", policy.to_policy());
        }
    }

    fn load(&mut self, from: &Tensors) -> Result<()> {
        self.agent.load(&from.under("agent"))?;
        let list = |name: &str| {
            let length = from.shape(name).map_or(0, |shape| shape.iter().product());
            from.f32(name, &[length])
        };
        (self.weights, self.noise) = (list("weights")?, list("noise")?);
        let shape = [from.shape("own").map_or(0, |shape| shape[0]), self.own.ncols()];
        self.own = Mat::from_shape_vec(shape, from.f32("own", &shape)?).expect("the shape was checked");
        let [critic, actor, q, cloning, anchor, u, penalty, unbelieved] =
            from.f64("found", 8)?.try_into().expect("eight numbers were asked for");
        self.found = Found { critic, actor, q, cloning, anchor, u, penalty, unbelieved };
        self.picked = match from.shape("picked_return") {
            None => None,
            Some(_) => {
                let estimate = from.f64("picked_return", 1)?[0];
                Some(Picked { estimate, policy: Actor::from_policy(&from.under("picked"))? })
            }
        };
        Ok(())
    }
}
