//! COMBO (Yu et al. 2021): no estimator; the critics are pushed down at the policy's and random actions of all rows and
//! up at the dataset's own.
//!
//! Loss of critic j: mean (Q_j − y)² + β · (mean_s T·log Σ_a exp((Q_j(s, a) − log μ(a)) / T) − mean over real rows Q_j).
//! The actions a of a state s: some from π(·|s), as many from π(·|s') and as many uniform; μ is what each was drawn from.

use ndarray::{Array1, Axis, s};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Algorithm;
use super::config::{Blocks, ModelConfig, RolloutConfig, TrainConfig};
use super::sac_learner::{MixedBatch, SacLearner};
use super::session::Session;
use super::train_loop::{Checkpoint, Step, TrainLoop};
use crate::batch::Mat;
use crate::error::{Result, invalid};
use crate::nn::{Noise, Scalar, Tensors, ThreadPool};
use crate::rng::Rng;
use crate::rollout::ModelRollout;
use crate::sac::{Actor, Losses, RowFactors, Sac, SacConfig};

/// Settings of COMBO.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ComboConfig {
    /// The training loop.
    pub train: TrainConfig,
    /// Imagined rollouts.
    pub rollout: RolloutConfig,
    /// The dynamics model.
    pub model: ModelConfig,
    /// The conservative term.
    pub conservative: Conservative,
    /// The learner.
    pub sac: SacConfig,
}

/// COMBO's conservative term.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Conservative {
    /// Weight of the term (β).
    pub beta: f64,
    /// Temperature (T) of the soft maximum.
    pub temperature: f64,
    /// Actions drawn for a state from each of its three sources.
    pub actions: usize,
    /// States of the term (ρ).
    pub states: States,
    /// What the soft maximum runs over.
    pub pool: SoftMaxOver,
    /// Learn a factor on β so that the term meets this value; OfflineRL-Kit has 10 when switched on.
    pub target: Option<f64>,
    /// Learning rate of that factor.
    pub target_lr: f64,
}

impl Default for Conservative {
    fn default() -> Self {
        Self {
            beta: 0.5,
            temperature: 1.0,
            actions: 10,
            states: States::default(),
            pool: SoftMaxOver::default(),
            target: None,
            target_lr: 3e-4,
        }
    }
}

/// States of the conservative term (ρ).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum States {
    /// The whole batch.
    #[default]
    Mix,
    /// Imagined rows only.
    Model,
}

/// What a soft maximum runs over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SoftMaxOver {
    /// All actions of a state, as in the paper.
    #[default]
    State,
    /// One action of each source at a time, as OfflineRL-Kit's code does by dropping a reshape.
    Triples,
}

impl Algorithm for ComboConfig {
    fn blocks(&self) -> Blocks<'_> {
        Blocks {
            rollout: Some(&self.rollout),
            model: Some(&self.model),
            sac: Some(&self.sac),
            ..Blocks::new(&self.train)
        }
    }

    fn validate(&self) -> Result<()> {
        let c = &self.conservative;
        let named = [("beta", c.beta), ("temperature", c.temperature), ("target_lr", c.target_lr)];
        for (name, value) in named {
            if !(value.is_finite() && (value > 0.0 || (name == "beta" && value == 0.0))) {
                return Err(invalid!("conservative.{name}: wanted a positive number, found {value}"));
            }
        }
        match c.actions {
            0 => Err(invalid!("conservative.actions: wanted at least 1, found 0; 10 is usual")),
            _ => Ok(()),
        }
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Option<Actor>> {
        let model = session.fit_model(&self.model)?;
        let mut rollout = ModelRollout::without_rule(&model, session.pool);
        let learner =
            SacLearner::new(session, &self.sac, &self.rollout, (self.train.steps, self.train.batch))?;
        let mut state =
            State { learner, weight: Weight { cfg: &self.conservative, log: Scalar::new(0.0), steps: 0 } };
        let mut train = TrainLoop::start(session, &self.train, self.rollout.every, &mut state)?;
        while let Some(step) = train.next(&state)? {
            let State { learner, weight } = &mut state;
            if step.starts_block {
                learner.rollout(&mut train, &mut rollout, step)?;
            }
            learner.sample(train.session, step);
            let (losses, gap) = update(learner, weight, train.session, step)?;
            if train.finish_step(losses) {
                let mut metrics = learner.metrics(&losses);
                metrics.put("conservative_gap", json!(gap));
                metrics.put("conservative_weight", json!(weight.value()));
                train.session.follow(rollout.model, &learner.agent.actor, step.index, &mut metrics)?;
                train.evaluate(&learner.agent.actor, metrics)?;
            }
            train.show_policy(|| Ok(learner.agent.actor.clone()))?;
        }
        let actor = state.learner.agent.actor;
        Ok(train.finish(&actor)?.then_some(actor))
    }
}

/// One step of actor, temperature and critics; also the conservative term before β, mean over critics.
fn update(
    learner: &mut SacLearner,
    weight: &mut Weight<'_>,
    session: &mut Session<'_>,
    step: Step,
) -> Result<(Losses, f64)> {
    let mut rng = session.rng("sac", step.index);
    let (next, current) = (Noise::draw(&mut rng), Noise::draw(&mut rng));
    let factors = RowFactors::of(learner.two_means(), learner.batch.rows.len());
    let SacLearner { agent, batch: MixedBatch { rows: batch, real, .. }, .. } = learner;
    let (cfg, pool, real) = (weight.cfg, session.pool, *real);
    let (mut losses, y) = session.timer.time("sac", || {
        let actor = agent.actor_step(batch, current);
        agent.temperature_step(-actor.entropy);
        (actor, agent.td_target(batch, next))
    });
    let states = match cfg.states {
        States::Mix => 0..batch.len(),
        States::Model => real..batch.len(),
    };
    let probes = session.timer.time("probe", || {
        let rows = |of: &Mat| of.slice(s![states.clone(), ..]).to_owned();
        Probes::draw(agent, pool, &rows(&batch.obs), &rows(&batch.next_obs), cfg, &mut rng)
    });
    let (mut gap, beta) = (0.0, weight.value());
    losses.critic = session.timer.time("critics", || {
        let [obs, act] = [(&batch.obs, &probes.obs), (&batch.act, &probes.act)].map(|(real, probe)| {
            ndarray::concatenate(Axis(0), &[real.view(), probe.view()]).expect("columns of one width")
        });
        agent.critic_step_with(&obs, &act, |q, dq| {
            let (nets, mut error) = (q.nrows() as f64, 0.0);
            for (q, mut dq) in q.rows().into_iter().zip(dq.rows_mut()) {
                let (q, dq) = (q.to_slice().expect("contiguous"), dq.as_slice_mut().expect("contiguous"));
                let (q, probed) = q.split_at(batch.len());
                let (dq, dprobed) = dq.split_at_mut(batch.len());
                error += squared_error(q, &y, &factors, dq) / nets;
                gap += probes.soft_maximum(probed, beta, dprobed) / nets;
                gap -= mean(&q[..real], -beta, &mut dq[..real]) / nets;
            }
            error
        })
    });
    agent.sync_targets();
    weight.step(gap);
    losses.alpha = agent.alpha();
    agent.check_losses(&losses)?;
    Ok((losses, gap))
}

/// The weight of the conservative term: β, times a learnt factor where the term has a target.
struct Weight<'a> {
    cfg: &'a Conservative,
    /// Logarithm of the factor.
    log: Scalar,
    steps: u64,
}

impl Weight<'_> {
    fn factor(&self) -> f64 {
        self.cfg.target.map_or(1.0, |_| self.log.value.exp().min(1e6))
    }

    fn value(&self) -> f64 {
        self.cfg.beta * self.factor()
    }

    fn step(&mut self, gap: f64) {
        if let Some(target) = self.cfg.target {
            self.steps += 1;
            let slope = -self.factor() * (self.cfg.beta * gap - target);
            self.log.step(self.cfg.target_lr, self.steps, slope);
        }
    }
}

/// What a checkpoint keeps.
struct State<'a> {
    learner: SacLearner,
    weight: Weight<'a>,
}

impl Checkpoint for State<'_> {
    fn save(&self, out: &mut Tensors) {
        self.learner.save(out);
        let Scalar { value, m, v } = self.weight.log;
        out.put_f64("factor", &[value, m, v]);
        out.put_u64("factor_steps", &[self.weight.steps]);
    }

    fn load(&mut self, from: &Tensors) -> Result<()> {
        self.learner.load(from)?;
        let factor = from.f64("factor", 3)?;
        self.weight.log = Scalar { value: factor[0], m: factor[1], v: factor[2] };
        self.weight.steps = from.u64("factor_steps", 1)?[0];
        Ok(())
    }
}

/// Mean f·(q − y)², f the row's factor; its gradient goes into `dq`.
fn squared_error(q: &[f32], y: &Array1<f32>, factors: &RowFactors, dq: &mut [f32]) -> f64 {
    let rows = q.len();
    let mut total = 0.0;
    for (row, ((q, y), dq)) in q.iter().zip(y).zip(dq).enumerate() {
        let factor = factors.at(row);
        total += f64::from(factor) * f64::from(q - y).powi(2);
        *dq = factor * (2.0 * (q - y) / rows as f32);
    }
    total / rows as f64
}

/// Mean of `q`; `weight` times its gradient is added to `dq`. 0 without rows.
fn mean(q: &[f32], weight: f64, dq: &mut [f32]) -> f64 {
    let rows = q.len().max(1) as f64;
    dq.iter_mut().for_each(|dq| *dq += (weight / rows) as f32);
    q.iter().map(|&q| f64::from(q)).sum::<f64>() / rows
}

/// Actions at which the critics are pushed down: three sources, `actions` of each, for every state. Rows run over states
/// first, then over actions, then over sources.
struct Probes {
    obs: Mat,
    act: Mat,
    /// Log-density of what each was drawn from.
    log_mu: Vec<f32>,
    states: usize,
    temperature: f64,
    pool: SoftMaxOver,
}

impl Probes {
    fn draw(
        agent: &Sac,
        pool: &ThreadPool,
        obs: &Mat,
        next_obs: &Mat,
        cfg: &Conservative,
        rng: &mut Rng,
    ) -> Self {
        let mut noises = || (0..cfg.actions).map(|_| Noise::draw(rng)).collect::<Vec<_>>();
        let here = agent.actor.sample_each(pool, obs.view(), &noises());
        let there = agent.actor.sample_each(pool, next_obs.view(), &noises());
        let shape = (cfg.actions * obs.nrows(), agent.actor.act_dim());
        let anywhere = Mat::from_shape_simple_fn(shape, || rng.range(-1.0, 1.0) as f32);
        let log_uniform = shape.1 as f32 * 0.5f32.ln();
        let drawn = || here.iter().chain(&there);
        let mut acts: Vec<_> = drawn().map(|(act, _)| act.view()).collect();
        acts.push(anywhere.view());
        let log_mu = drawn().flat_map(|(_, log_prob)| log_prob.iter().copied());
        Self {
            obs: ndarray::concatenate(Axis(0), &vec![obs.view(); 3 * cfg.actions]).expect("one width"),
            act: ndarray::concatenate(Axis(0), &acts).expect("one width"),
            log_mu: log_mu.chain(std::iter::repeat_n(log_uniform, shape.0)).collect(),
            states: obs.nrows(),
            temperature: cfg.temperature,
            pool: cfg.pool,
        }
    }

    /// Mean of T·log Σ exp((Q − log μ) / T); `weight` times its gradient is added to `dq`. 0 without states.
    fn soft_maximum(&self, q: &[f32], weight: f64, dq: &mut [f32]) -> f64 {
        let (rows, t) = (q.len(), self.temperature);
        // Rows of a group lie `stride` apart.
        let stride = match self.pool {
            SoftMaxOver::State => self.states,
            SoftMaxOver::Triples => rows / 3,
        };
        let mut total = 0.0;
        for group in 0..stride {
            let value = |i: usize| f64::from(q[i] - self.log_mu[i]) / t;
            let members = || (group..rows).step_by(stride);
            let largest = members().map(value).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = members().map(|i| (value(i) - largest).exp()).sum();
            total += t * (largest + sum.ln());
            for i in members() {
                dq[i] += (weight / stride as f64 * (value(i) - largest).exp() / sum) as f32;
            }
        }
        total / stride.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes(pool: SoftMaxOver) -> (Probes, Vec<f32>) {
        let cfg = Conservative { actions: 4, temperature: 0.7, pool, ..Conservative::default() };
        let mut rng = Rng::stream(0, "probe", 0);
        let sac = SacConfig { hidden: vec![16], ..SacConfig::default() };
        let agent = Sac::new(&sac, 3, 2, &ThreadPool::new(1), &mut rng).unwrap();
        let obs = Mat::from_shape_simple_fn((5, 3), || rng.normal() as f32);
        let probes = Probes::draw(&agent, &ThreadPool::new(1), &obs, &(&obs + 1.0), &cfg, &mut rng);
        let q = (0..probes.obs.nrows()).map(|_| rng.normal() as f32).collect();
        (probes, q)
    }

    #[test]
    fn the_gradient_of_the_soft_maximum_is_that_of_finite_differences() {
        for pool in [SoftMaxOver::State, SoftMaxOver::Triples] {
            let (probes, q) = probes(pool);
            let mut dq = vec![0.0; q.len()];
            probes.soft_maximum(&q, 2.0, &mut dq);
            for i in 0..q.len() {
                let at = |by: f32| {
                    let mut q = q.clone();
                    q[i] += by;
                    probes.soft_maximum(&q, 1.0, &mut vec![0.0; q.len()])
                };
                let slope = 2.0 * (at(1e-2) - at(-1e-2)) / 2e-2;
                assert!((slope - f64::from(dq[i])).abs() < 1e-4, "{pool:?} {i}: {slope} {}", dq[i]);
            }
            // It is a mean of soft maxima: raising every Q by 1 raises it by 1.
            let sum: f64 = dq.iter().map(|&d| f64::from(d)).sum();
            assert!((sum - 2.0).abs() < 1e-5, "{sum}");
        }
    }

    #[test]
    fn a_soft_maximum_over_a_state_counts_all_its_actions_and_one_over_triples_three() {
        for (pool, actions) in [(SoftMaxOver::State, 12.0f64), (SoftMaxOver::Triples, 3.0)] {
            let (probes, _) = probes(pool);
            // Q = log μ everywhere: T·log of the number of actions.
            let found = probes.soft_maximum(&probes.log_mu, 1.0, &mut vec![0.0; probes.log_mu.len()]);
            assert!((found - 0.7 * actions.ln()).abs() < 1e-6, "{found}");
        }
        let (probes, _) = probes(SoftMaxOver::State);
        assert!(probes.log_mu[2 * 20..].iter().all(|&l| (l - 0.25f32.ln()).abs() < 1e-6));
        for block in 0..12 {
            assert_eq!(probes.obs.row(block * 5 + 3), probes.obs.row(3));
        }
    }
}
