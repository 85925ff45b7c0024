//! An algorithm of one's own, written against the public API alone: TD3+BC in a learnt model.
//!
//! Its critics see real and imagined rows and are trained on the Huber loss; its actor follows the critics and stays near the
//! logged actions. Registered under a name, it has presets, `--set`-like overrides, run directories, checkpoints and
//! bit-exact resuming as the built-in ones do.
//!
//! ```console
//! $ cargo run --release --example my_algorithm
//! ```

use ndarray::s;
use offing::algorithms::{
    Algorithm, AlgorithmSpec, Blocks, EstimatorUse, ModelConfig, Registry, RolloutConfig, SacLearner,
    Session, TrainConfig, TrainLoop,
};
use offing::data::generate::{BehaviourBlock, generate};
use offing::env::point_mass::{PointMass, PointMassSimulators};
use offing::env::{Env, EnvPool};
use offing::nn::Noise;
use offing::policy::UniformPolicy;
use offing::rollout::ModelRollout;
use offing::sac::{Actor, Losses, Sac, SacConfig};
use offing::train::{Hooks, RunConfig, mean_return, train};
use offing::{Batch, Error, Result};
use serde::{Deserialize, Serialize};

/// The settings; those in tables of their own are shared with other algorithms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ModelBasedTd3Bc {
    train: TrainConfig,
    rollout: RolloutConfig,
    model: ModelConfig,
    sac: SacConfig,
    /// Weight of Q beside the distance to the logged actions (α).
    alpha: f32,
}

impl Default for ModelBasedTd3Bc {
    fn default() -> Self {
        let (train, rollout, model) =
            (TrainConfig::default(), RolloutConfig::default(), ModelConfig::default());
        Self { train, rollout, model, sac: SacConfig::default(), alpha: 2.5 }
    }
}

impl Algorithm for ModelBasedTd3Bc {
    /// The shared settings are validated for us.
    fn blocks(&self) -> Blocks<'_> {
        Blocks {
            rollout: Some(&self.rollout),
            model: Some(&self.model),
            sac: Some(&self.sac),
            ..Blocks::new(&self.train)
        }
    }

    fn validate(&self) -> Result<()> {
        match self.alpha {
            alpha if alpha > 0.0 && alpha.is_finite() => Ok(()),
            alpha => Err(Error::Invalid(format!("alpha: wanted a positive number, found {alpha}"))),
        }
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Option<Actor>> {
        let model = session.fit_model(&self.model)?;
        let mut rollout = ModelRollout::without_rule(&model, session.pool);
        let mut learner =
            SacLearner::new(session, &self.sac, &self.rollout, (self.train.steps, self.train.batch))?;
        let mut train = TrainLoop::start(session, &self.train, self.rollout.every, &mut learner)?;
        while let Some(step) = train.next(&learner)? {
            if step.starts_block {
                learner.rollout(&mut train, &mut rollout, step)?;
            }
            learner.sample(train.session, step);
            let mut rng = train.session.rng("td3bc", step.index);
            let (agent, batch) = (&mut learner.agent, &learner.batch);
            let critic = critic_step(agent, &batch.rows, Noise::draw(&mut rng));
            let actor = actor_step(agent, &batch.rows, batch.real, self.alpha);
            agent.sync_targets();
            let losses = Losses { critic, actor, ..Losses::default() };
            agent.check_losses(&losses)?;
            if train.finish_step(losses) {
                train.evaluate(&learner.agent.actor, learner.metrics(&losses))?;
            }
            train.show_policy(|| Ok(learner.agent.actor.clone()))?;
        }
        let actor = learner.agent.actor;
        Ok(train.finish(&actor)?.then_some(actor))
    }
}

/// Critics: mean of the Huber loss of Q − y.
fn critic_step(agent: &mut Sac, batch: &Batch, noise: Noise<'_>) -> f64 {
    let y = agent.td_target(batch, noise);
    agent.critic_step_with(&batch.obs, &batch.act, |q, dq| {
        let (mut loss, count) = (0.0, q.len() as f32);
        for (q, mut dq) in q.rows().into_iter().zip(dq.rows_mut()) {
            for i in 0..y.len() {
                let error = q[i] - y[i];
                let huber = if error.abs() < 1.0 { 0.5 * error * error } else { error.abs() - 0.5 };
                loss += f64::from(huber / count);
                dq[i] = error.clamp(-1.0, 1.0) * q.len() as f32 / (count * y.len() as f32);
            }
        }
        loss
    })
}

/// Actor: −λ·Q(s, π(s)) over all rows, with λ = α / mean |Q|, and (π(s) − a)² over the logged ones.
fn actor_step(agent: &mut Sac, batch: &Batch, real: usize, alpha: f32) -> f64 {
    let rows = batch.len() as f32;
    agent.actor_step_with(&batch.obs, Noise::Zero, |out, gradient| {
        let q = out.q.row(0);
        let lambda = alpha * rows / q.mapv(f32::abs).sum().max(1e-6);
        gradient.q.row_mut(0).fill(-lambda / rows);
        let error = &out.act.slice(s![..real, ..]) - &batch.act.slice(s![..real, ..]);
        let share = 1.0 / real.max(1) as f32;
        gradient.act.slice_mut(s![..real, ..]).assign(&(2.0 * share * &error));
        f64::from(share * error.mapv(|e| e * e).sum() - lambda * q.sum() / rows)
    })
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().map_err(|e| Error::io("the temporary directory", "create", e))?;
    let mut hooks = Hooks::new(dir.path().join("home")).with_simulators(&PointMassSimulators);
    hooks.registry = Registry::default().with(AlgorithmSpec::new::<ModelBasedTd3Bc>(
        "model-td3bc",
        "TD3+BC on real and imagined rows",
        EstimatorUse::None,
        &[("", PRESET)],
    ));
    let config = RunConfig::new("model-td3bc", logged()?).set("alpha=5").dir(dir.path().join("run"));
    let trained = train(&config, &mut hooks)?;
    let [learnt, data] = [trained.scores.last, mean_return(&trained.data)].map(|r| r.unwrap_or(f64::NAN));
    println!("model-td3bc: mean return {learnt:.1}, the data {data:.1}");
    Ok(())
}

/// Hyperparameters for everyone who does not say otherwise; `[on."dataset"]` tables would hold those of a dataset.
const PRESET: &str = "
[train]
steps = 2000
batch = 128
evaluate_every = 1000
[rollout]
every = 100
starts = 400
real_ratio = 0.5
[model]
termination = { kind = 'expression', alive = 'obs[0] * obs[0] + obs[1] * obs[1] < 9' }
[model.ensemble]
members = 3
elites = 2
hidden = [48, 48]
decay = [0.0, 0.0, 0.0]
max_epochs = 12
[sac]
hidden = [64, 64]
actor_lr = 1e-3
critic_lr = 1e-3
gamma = 0.95
tau = 0.01
deterministic_backup = true
";

/// A log of random actions in a small simulator: what would be your own data.
fn logged() -> Result<offing::data::Dataset> {
    let make = || -> Result<Box<dyn Env>> { Ok(Box::new(PointMass::new())) };
    let block = BehaviourBlock { rows: 6000, behaviour: &UniformPolicy };
    generate("point-mass", &EnvPool::new(make), &[block], 0, &mut |_| ())
}
