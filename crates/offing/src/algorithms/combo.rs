//! COMBO (Yu et al. 2021): no estimator; the critics are pushed down at the policy's and random actions of all rows and
//! up at the dataset's own.
//!
//! Loss of critic j: mean (Q_j − y)² + β · (mean_s T·log Σ_a exp((Q_j(s, a) − log μ(a)) / T) − mean over real rows Q_j).
//! The actions a of a state s: some from π(·|s), as many from π(·|s') and as many uniform; μ is what each was drawn from.

use ndarray::{Array1, ArrayView1, s};
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
                train.session.follow(rollout.model, &learner.agent.actor, &mut metrics)?;
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
    let (rows, beta) = (batch.len(), weight.value());
    // A row of the batch, and where it is one of the states its probes, are one group.
    let probed = |row: usize| states.contains(&row).then(|| row - states.start);
    let obs_dim = batch.obs.ncols();
    let terms = session.timer.time("critics", || {
        agent.critic_step_by_group(
            rows,
            |row| 1 + probed(row).map_or(0, |_| 3 * cfg.actions),
            |row, i, pair| {
                let act = match (i, probed(row)) {
                    (1.., Some(state)) => probes.act(state, i - 1),
                    _ => batch.act.row(row),
                };
                let (obs, to) = pair.split_at_mut(obs_dim);
                obs.iter_mut().zip(batch.obs.row(row)).for_each(|(to, x)| *to = *x);
                to.iter_mut().zip(act).for_each(|(to, a)| *to = *a);
            },
            |_, row, q, dq| {
                let (factor, distance) = (factors.at(row), q[0] - y[row]);
                dq[0] = factor * (2.0 * distance / rows as f32);
                let mut terms =
                    Terms { error: f64::from(factor) * f64::from(distance).powi(2), ..Terms::default() };
                if row < real {
                    dq[0] -= (beta / real as f64) as f32;
                    terms.real = f64::from(q[0]);
                }
                if let Some(state) = probed(row) {
                    terms.soft_maximum = probes.soft_maximum(state, &q[1..], beta, &mut dq[1..]);
                }
                terms
            },
        )
    });
    // Means over the critics.
    let mean = |of: fn(&Terms) -> f64| terms.iter().flatten().map(of).sum::<f64>() / terms.len() as f64;
    losses.critic = mean(|t| t.error) / rows as f64;
    let gap = mean(|t| t.soft_maximum) - mean(|t| t.real) / real.max(1) as f64;
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

/// What a row and its probes add to a critic's loss.
#[derive(Default)]
struct Terms {
    /// f·(q − y)², f the row's factor.
    error: f64,
    /// q, of a row of the dataset.
    real: f64,
    /// The state's share of the mean soft maximum.
    soft_maximum: f64,
}

/// Actions at which the critics are pushed down: three sources, `actions` of each, for every state. Those of a state run over
/// sources, then over actions.
struct Probes {
    /// At π(·|s), then at π(·|s'): actions and their log-densities, draw after draw.
    drawn: Vec<(Mat, Array1<f32>)>,
    /// Uniform ones: draws × states.
    anywhere: Mat,
    log_uniform: f32,
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
        let mut drawn = agent.actor.sample_each(pool, obs.view(), &noises());
        drawn.extend(agent.actor.sample_each(pool, next_obs.view(), &noises()));
        let shape = (cfg.actions * obs.nrows(), agent.actor.act_dim());
        Self {
            drawn,
            anywhere: Mat::from_shape_simple_fn(shape, || rng.range(-1.0, 1.0) as f32),
            log_uniform: shape.1 as f32 * 0.5f32.ln(),
            states: obs.nrows(),
            temperature: cfg.temperature,
            pool: cfg.pool,
        }
    }

    /// Probe `i` of a state.
    fn act(&self, state: usize, i: usize) -> ArrayView1<'_, f32> {
        match self.drawn.get(i) {
            Some((act, _)) => act.row(state),
            None => self.anywhere.row((i - self.drawn.len()) * self.states + state),
        }
    }

    /// Log-density of what probe `i` of a state was drawn from.
    fn log_mu(&self, state: usize, i: usize) -> f32 {
        self.drawn.get(i).map_or(self.log_uniform, |(_, log_prob)| log_prob[state])
    }

    /// A state's share of the mean of T·log Σ exp((Q − log μ) / T); `weight` times its gradient is added to `dq`.
    fn soft_maximum(&self, state: usize, q: &[f32], weight: f64, dq: &mut [f32]) -> f64 {
        let t = self.temperature;
        // Probes of one soft maximum lie `stride` apart, and there are as many maxima in a state.
        let stride = match self.pool {
            SoftMaxOver::State => 1,
            SoftMaxOver::Triples => q.len() / 3,
        };
        let (maxima, mut total) = ((self.states * stride) as f64, 0.0);
        for group in 0..stride {
            let members = || (group..q.len()).step_by(stride);
            let value = |i: usize| f64::from(q[i] - self.log_mu(state, i)) / t;
            let largest = members().map(value).fold(f64::NEG_INFINITY, f64::max);
            let shares: Vec<f64> = members().map(|i| (value(i) - largest).exp()).collect();
            let sum: f64 = shares.iter().sum();
            total += t * (largest + sum.ln());
            for (i, share) in members().zip(shares) {
                dq[i] += (weight / maxima * share / sum) as f32;
            }
        }
        total / maxima
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes of five states, and values of them, state after state.
    fn probes(pool: SoftMaxOver) -> (Probes, Vec<f32>) {
        let cfg = Conservative { actions: 4, temperature: 0.7, pool, ..Conservative::default() };
        let mut rng = Rng::stream(0, "probe", 0);
        let sac = SacConfig { hidden: vec![16], ..SacConfig::default() };
        let agent = Sac::new(&sac, 3, 2, &ThreadPool::new(1), &mut rng).unwrap();
        let obs = Mat::from_shape_simple_fn((5, 3), || rng.normal() as f32);
        let probes = Probes::draw(&agent, &ThreadPool::new(1), &obs, &(&obs + 1.0), &cfg, &mut rng);
        let q = (0..5 * 12).map(|_| rng.normal() as f32).collect();
        (probes, q)
    }

    /// The mean over all states.
    fn soft_maximum(probes: &Probes, q: &[f32], weight: f64, dq: &mut [f32]) -> f64 {
        let of_states = q.chunks_exact(12).zip(dq.chunks_exact_mut(12)).enumerate();
        of_states.map(|(state, (q, dq))| probes.soft_maximum(state, q, weight, dq)).sum()
    }

    #[test]
    fn the_gradient_of_the_soft_maximum_is_that_of_finite_differences() {
        for pool in [SoftMaxOver::State, SoftMaxOver::Triples] {
            let (probes, q) = probes(pool);
            let mut dq = vec![0.0; q.len()];
            soft_maximum(&probes, &q, 2.0, &mut dq);
            for i in 0..q.len() {
                let at = |by: f32| {
                    let mut q = q.clone();
                    q[i] += by;
                    soft_maximum(&probes, &q, 1.0, &mut vec![0.0; q.len()])
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
            let (probes, q) = probes(pool);
            // Q = log μ everywhere: T·log of the number of actions.
            let q: Vec<f32> = (0..q.len()).map(|i| probes.log_mu(i / 12, i % 12)).collect();
            let found = soft_maximum(&probes, &q, 1.0, &mut vec![0.0; q.len()]);
            assert!((found - 0.7 * actions.ln()).abs() < 1e-6, "{found}");
        }
        let (probes, _) = probes(SoftMaxOver::State);
        for i in 0..12 {
            let uniform = (probes.log_mu(3, i) - 0.25f32.ln()).abs() < 1e-6;
            assert_eq!(uniform, i >= 8, "the last four are uniform");
            let from = if i < 8 { probes.drawn[i].0.row(3) } else { probes.anywhere.row((i - 8) * 5 + 3) };
            assert_eq!(probes.act(3, i), from);
        }
    }
}
