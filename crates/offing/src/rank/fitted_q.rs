//! Fitted Q evaluation: Q(s, a) ← r + γ Q̄(s', π(s')) on logged rows, then the mean of Q(s₀, π(s₀)) over first states.

use ndarray::{Array1, Axis, Zip};
use serde::{Deserialize, Serialize};

use super::first_states;
use crate::batch::{Batch, Mat};
use crate::data::Dataset;
use crate::error::{Error, Result, require};
use crate::nn::{ThreadPool, Weights};
use crate::replay::gather;
use crate::rng::Rng;
use crate::run::ControlFlow;
use crate::sac::{Actor, Sac, SacConfig};

/// How Q is fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FittedQConfig {
    /// Gradient steps.
    pub steps: u64,
    /// Rows in a batch.
    pub batch: usize,
    /// Hidden widths.
    pub hidden: Vec<usize>,
    /// Learning rate.
    pub lr: f64,
    /// Discount (γ).
    pub gamma: f64,
    /// Share of the new weights in the target at every step (τ).
    pub tau: f32,
}

impl Default for FittedQConfig {
    fn default() -> Self {
        Self { steps: 20_000, batch: 256, hidden: vec![256; 2], lr: 3e-4, gamma: 0.99, tau: 0.005 }
    }
}

/// What fitted Q evaluation says about a policy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FittedQ {
    /// Mean of Q(s₀, π(s₀)): the discounted return it expects.
    pub value: f64,
    /// Root of the mean squared error of Q against its target, over the last tenth of the steps: how far the fit is from
    /// being a fixed point.
    pub error: f64,
}

/// Fits Q for the policy's mean action. Two networks learn, and the smaller counts in the target: what ruins this
/// estimate is overestimation at actions that are not in the data. Targets are clamped to what any policy can reach. `watch`
/// is called with the step and says whether to go on.
pub fn fitted_q(
    cfg: &FittedQConfig,
    data: &Dataset,
    policy: &Actor,
    pool: &ThreadPool,
    seed: u64,
    watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<FittedQ> {
    let rows = &data.rows;
    require!(
        cfg.steps > 0 && cfg.batch > 0,
        "fitted Q: wanted at least one step and one row a batch, found 0"
    );
    let sac = SacConfig {
        hidden: cfg.hidden.clone(),
        critic_lr: cfg.lr,
        gamma: cfg.gamma,
        tau: cfg.tau,
        ..SacConfig::default()
    };
    let mut q =
        Sac::new(&sac, rows.obs_dim(), rows.act_dim(), pool, &mut Rng::stream(seed, "fitted-q/init", 0))?;
    let next_act = policy.mean_batch(pool, &rows.next_obs);
    let (lowest, highest) = return_range(&rows.rew, cfg.gamma);
    let mut batch = Batch::empty(rows.obs_dim(), rows.act_dim());
    let (mut error, mut counted) = (0.0, 0);
    for step in 0..cfg.steps {
        let mut rng = Rng::stream(seed, "fitted-q/batch", step);
        let picks: Vec<usize> = (0..cfg.batch).map(|_| rng.below(rows.len())).collect();
        gather(rows, &picks, &mut batch);
        let next = q.min_q(Weights::Target, batch.next_obs.view(), next_act.select(Axis(0), &picks).view());
        let y = Zip::from(&batch.rew).and(&batch.done).and(&next).map_collect(|&r, &done, &next| {
            let going_on = if done { 0.0 } else { cfg.gamma as f32 };
            (r + going_on * next).clamp(lowest, highest)
        });
        let loss = q.critic_step(&batch, &y);
        q.sync_targets();
        require!(
            loss.is_finite(),
            "fitted Q: the error became {loss} at step {}; lower its learning rate",
            step + 1
        );
        if step >= cfg.steps - cfg.steps.div_ceil(10) {
            (error, counted) = (error + loss, counted + 1);
        }
        if (step + 1).is_multiple_of(100) && watch(step + 1) == ControlFlow::Break(()) {
            return Err(Error::Stopped);
        }
    }
    let starts: Mat = first_states(data);
    let values = q.min_q(Weights::Current, starts.view(), policy.mean_batch(pool, &starts).view());
    let value = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
    Ok(FittedQ { value, error: (error / f64::from(counted)).sqrt() })
}

/// The discounted returns that rewards like the data's allow: r/(1 − γ) for ever, or the end of the episode.
fn return_range(rewards: &Array1<f32>, gamma: f64) -> (f32, f32) {
    let for_ever = 1.0 / (1.0 - gamma).max(1e-6) as f32;
    let low = rewards.iter().copied().fold(f32::INFINITY, f32::min);
    let high = rewards.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    (low.min(low * for_ever), high.max(high * for_ever))
}
