//! MOPO, AMOReL and MOReL-on-SAC, with any estimator: one loop, three rules of pessimism. Paper: Algorithms 1 and 2.
//! Deviations: docs/deviations.md.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::config::{ModelConfig, RolloutConfig, TrainConfig};
use super::session::{Session, Status};
use crate::batch::Batch;
use crate::error::Result;
use crate::imagination::{Imagination, Imagined, Tally};
use crate::nn::Tensors;
use crate::pessimism::Pessimism;
use crate::replay::gather_at;
use crate::run::Flow;
use crate::sac::{Sac, SacConfig};
use crate::uncertainty::{Source, UncertaintyConfig};

/// A recipe: what scores a step, what is done about it, and how the policy learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecipeConfig {
    /// The training loop.
    pub train: TrainConfig,
    /// Imagined rollouts.
    pub rollout: RolloutConfig,
    /// The dynamics model.
    pub model: ModelConfig,
    /// What scores a step.
    pub uncertainty: UncertaintyConfig,
    /// What is done about it.
    pub pessimism: Pessimism,
    /// The learner.
    pub sac: SacConfig,
}

impl Default for RecipeConfig {
    fn default() -> Self {
        Self {
            train: TrainConfig::default(),
            rollout: RolloutConfig::default(),
            model: ModelConfig::default(),
            uncertainty: UncertaintyConfig::default(),
            pessimism: Pessimism::Penalize {
                lambda: 1.0,
                normaliser: crate::pessimism::Normaliser::default(),
                reward_range: None,
            },
            sac: SacConfig::default(),
        }
    }
}

/// Trains to the end, or until the watcher stops it; `None` then.
pub fn train(cfg: &RecipeConfig, session: &mut Session<'_>) -> Result<Option<Sac>> {
    cfg.train.check()?;
    cfg.rollout.check()?;
    let data = session.data;
    let (obs_dim, act_dim) = (data.rows.obs_dim(), data.rows.act_dim());
    let model = session.model(&cfg.model)?; // Alg. 1 line 3
    let estimator = match cfg.pessimism.asks() {
        false => None,
        true => {
            let (team, home) = (session.team.clone(), Some(session.home));
            let source = Source { data: &data.rows, model: Some(&model), team, seed: session.seed, home };
            Some(session.clock.time("index", || cfg.uncertainty.build(&source))?)
        }
    };
    let baseline = estimator.as_deref().map_or(0.0, |e| e.max_baseline());
    let guard = cfg.pessimism.calibrate(baseline, &data.rows.rew)?; // Alg. 2 line 4: ε
    if let (Some(epsilon), Some(estimator)) = (guard.epsilon(), estimator.as_deref()) {
        let distance =
            estimator.distance_of(epsilon).map_or(String::new(), |d| format!(", a distance of {d:.3}"));
        session.note(format!("steps with u > {epsilon:.4}{distance} are cut (Eq. 7)"));
    }
    let mut dream = Imagination { model: &model, estimator: estimator.as_deref(), guard, team: session.team };
    let mut agent = Sac::new(&cfg.sac, obs_dim, act_dim, session.team, &mut session.rng("init", 0))?;
    let mut imagined = Imagined::new(cfg.rollout.capacity(), obs_dim, act_dim); // line 2: D_model ← ∅
    let mut status = Status { steps: cfg.train.steps, ..Status::default() };
    if let Some((step, state)) = session.resume()? {
        status.step = step;
        load(&state, &mut agent, &mut imagined, &mut dream)?;
    }
    let mut kept = status.step;
    while status.step < cfg.train.steps {
        let due = status.step / cfg.train.checkpoint_every > kept / cfg.train.checkpoint_every;
        if session.tell(&status) == Flow::Stop {
            session.checkpoint(status.step, save(&agent, &imagined, &dream))?;
            return Ok(None);
        }
        if due {
            session.checkpoint(status.step, save(&agent, &imagined, &dream))?;
            kept = status.step;
        }
        imagine(cfg, session, &mut dream, &agent, &mut imagined, &mut status)?; // lines 6–11
        learn(cfg, session, &dream, &mut agent, &mut imagined, &mut status)?;
    }
    session.checkpoint(status.step, save(&agent, &imagined, &dream))?;
    session.finish(&agent.actor)?;
    Ok(Some(agent))
}

/// Fills the buffer, draws the batches of the steps until the next rollout ahead, and scores what they will use.
fn imagine(
    cfg: &RecipeConfig,
    session: &mut Session<'_>,
    dream: &mut Imagination<'_>,
    agent: &Sac,
    imagined: &mut Imagined,
    status: &mut Status,
) -> Result<()> {
    let start = session.starts(cfg.rollout.starts, &mut session.rng("start", status.step));
    let mut rng = session.rng("rollout", status.step);
    let rollout =
        session.clock.time("rollout", || dream.rollout(&agent.actor, start, cfg.rollout.length, &mut rng))?;
    imagined.push(&rollout);
    let mut tally: Tally = rollout.tally;
    if let (Pessimism::Penalize { .. }, Some(estimator)) = (cfg.pessimism, dream.estimator) {
        let steps = block(cfg, status.step);
        let draws: Vec<usize> = steps.flat_map(|step| draw(cfg, session, imagined, step).1).collect();
        let guard = &mut dream.guard;
        session.clock.time("search", || imagined.score(draws.into_iter(), estimator, guard, &mut tally))?;
    }
    status.tally = Some(tally);
    Ok(())
}

/// The gradient steps until the next rollout.
fn learn(
    cfg: &RecipeConfig,
    session: &mut Session<'_>,
    dream: &Imagination<'_>,
    agent: &mut Sac,
    imagined: &mut Imagined,
    status: &mut Status,
) -> Result<()> {
    let (obs_dim, act_dim) = (session.data.rows.obs_dim(), session.data.rows.act_dim());
    let mut batch = Batch::empty(obs_dim, act_dim);
    let mut scores = Vec::new();
    for step in block(cfg, status.step) {
        let (real, dreamt) = draw(cfg, session, imagined, step);
        if batch.len() != real.len() + dreamt.len() {
            batch = session.data.rows.select(&vec![0; real.len() + dreamt.len()]);
        }
        gather_at(&session.data.rows, &real, &mut batch, 0);
        gather_at(imagined.ring.columns(), &dreamt, &mut batch, real.len());
        scores.clear();
        scores.extend(dreamt.iter().map(|&slot| imagined.score_at(slot)));
        let rewards = batch.rew.as_slice_mut().expect("a batch is contiguous");
        dream.guard.penalise(&mut rewards[real.len()..], &scores); // Eq. 6
        let mut rng = session.rng("sac", step);
        status.losses = session.clock.time("sac", || agent.update(&batch, &mut rng))?;
        status.step = step + 1;
        if status.step.is_multiple_of(100) {
            // A wish to stop is heard before the next rollout, where there is least state to keep.
            let _ = session.tell(status);
        }
        if status.step.is_multiple_of(cfg.train.evaluate_every) || status.step == cfg.train.steps {
            let values = findings(status, &dream.guard);
            session.record(&cfg.train, status, &agent.actor, values)?;
        }
    }
    Ok(())
}

/// The steps from `step` until the next rollout.
fn block(cfg: &RecipeConfig, step: u64) -> std::ops::Range<u64> {
    step..((step / cfg.rollout.every + 1) * cfg.rollout.every).min(cfg.train.steps)
}

/// Rows of the dataset and of the buffer that the batch of `step` takes. While the buffer is empty (everything was
/// truncated), all come from the dataset.
fn draw(
    cfg: &RecipeConfig,
    session: &Session<'_>,
    imagined: &Imagined,
    step: u64,
) -> (Vec<usize>, Vec<usize>) {
    let mut rng = session.rng("mix", step);
    let dreamt = imagined.ring.len();
    let real = if dreamt == 0 { cfg.train.batch } else { cfg.rollout.real_rows(cfg.train.batch) };
    let real_rows = (0..real).map(|_| rng.below(session.data.rows.len())).collect();
    let dreamt_rows = (real..cfg.train.batch).map(|_| rng.below(dreamt)).collect();
    (real_rows, dreamt_rows)
}

fn findings(status: &Status, guard: &crate::pessimism::Guard) -> Map<String, Value> {
    let l = &status.losses;
    let mut values = Map::new();
    let mut put = |name: &str, value: Value| values.insert(name.into(), value);
    put("critic_loss", json!(l.critic));
    put("actor_loss", json!(l.actor));
    put("q", json!(l.q));
    put("entropy", json!(l.entropy));
    put("alpha", json!(l.alpha));
    if let Some(tally) = &status.tally {
        put("imagined", json!(tally.imagined));
        put("guarded", json!(tally.guarded));
        put("terminated", json!(tally.terminated));
        put("exploded", json!(tally.exploded));
        put("u_mean", json!(tally.mean_score()));
        put("u_max", json!((tally.scored > 0).then_some(tally.score_max)));
        put("scored", json!(tally.scored));
    }
    if let Some(epsilon) = guard.epsilon() {
        put("epsilon", json!(epsilon));
    }
    values
}

fn save(agent: &Sac, imagined: &Imagined, dream: &Imagination<'_>) -> Tensors {
    let mut out = Tensors::default();
    out.put_all("agent", agent.save());
    out.put_all("imagined", imagined.save());
    out.put_f32("running_max", &[1], vec![dream.guard.running_max()]);
    out
}

fn load(from: &Tensors, agent: &mut Sac, imagined: &mut Imagined, dream: &mut Imagination<'_>) -> Result<()> {
    agent.load(&from.under("agent"))?;
    imagined.load(&from.under("imagined"))?;
    dream.guard.restore(from.f32("running_max", &[1])?[0]);
    Ok(())
}
