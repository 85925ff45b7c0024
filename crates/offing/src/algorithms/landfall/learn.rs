//! Landfall's losses: the anchor, the return through the model, the critics.

use ndarray::{Array1, Array2, Axis, s};

use super::Found;
use super::config::LandfallConfig;
use super::guard::Scored;
use crate::algorithms::lambda_return::{Fate, Trajectories};
use crate::algorithms::returns::Returns;
use crate::batch::{Batch, Mat};
use crate::data::Dataset;
use crate::nn::{ThreadPool, Weights};
use crate::rng::Rng;
use crate::sac::{Actor, Sac, Standardiser};
use crate::unroll::{Unroll, UnrollGradient, stack};

/// Largest weight of a row in the cloning loss, as a multiple of the mean weight.
const MOST_WEIGHT: f64 = 20.0;

impl LandfallConfig {
    /// Weights of the data's rows in the cloning loss, with mean 1.
    pub(super) fn weigh(
        &self,
        agent: &Sac,
        data: &Dataset,
        standardiser: &Standardiser,
        returns: &Returns,
    ) -> Vec<f32> {
        const ROWS: usize = 4096;
        if self.anchor.selectivity == 0.0 {
            return Vec::new();
        }
        let mut advantage = Vec::with_capacity(data.rows.len());
        for first in (0..data.rows.len()).step_by(ROWS) {
            let rows = first..data.rows.len().min(first + ROWS);
            let mut obs = data.rows.obs.slice(s![rows.clone(), ..]).to_owned();
            standardiser.apply(&mut obs);
            let act = agent.actor.mean_batch(agent.pool(), &obs);
            let value = agent.q_values(Weights::Current, obs.view(), act.view());
            let value = value.mean_axis(Axis(0)).expect("there are critics");
            advantage.extend(rows.zip(value).map(|(row, v)| f64::from(returns.values[row] - v)));
        }
        weights_of(&advantage, self.anchor.selectivity)
    }

    /// The gradient of anchor · mean w·(π(s) − a)² at the actions π(s).
    pub(super) fn anchor_gradient(
        &self,
        anchored: &Mat,
        act: &Mat,
        (anchor, weight): (f32, impl Fn(usize) -> f32),
        found: &mut Found,
    ) -> Mat {
        let mut gradient = anchored - act;
        found.cloning = gradient.mapv(|e| f64::from(e * e)).mean().unwrap_or(0.0);
        found.anchor = f64::from(anchor) * found.cloning;
        let scale = 2.0 * anchor / gradient.len().max(1) as f32;
        for (i, mut row) in gradient.rows_mut().into_iter().enumerate() {
            row *= scale * weight(i);
        }
        gradient
    }

    /// The gradient of −mean y_0 / mean |y_0| at the trajectories, and all y_t. Trajectories that follow a terminal do not
    /// count.
    pub(super) fn return_gradient(
        &self,
        agent: &mut Sac,
        unroll: &Unroll,
        standardiser: &Standardiser,
        scored: &Scored,
        done: &Array1<bool>,
        found: &mut Found,
    ) -> (UnrollGradient, Array2<f32>) {
        let (steps, rows) = scored.rew.dim();
        let (gamma, lambda) = (self.sac.gamma as f32, self.unroll.lambda);
        let mut obs = unroll.obs().clone();
        standardiser.apply(&mut obs);
        let (dobs, dact, (drew, y)) =
            agent.value_gradient(Weights::Target, (&obs, unroll.act()), |values, dq| {
                let smallest: Vec<usize> = values
                    .columns()
                    .into_iter()
                    .map(|q| (0..q.len()).fold(0, |best, j| if q[j] < q[best] { j } else { best }))
                    .collect();
                let q = Array2::from_shape_fn((steps + 1, rows), |(t, i)| {
                    let at = t * rows + i;
                    values[[smallest[at], at]]
                });
                let view = Trajectories {
                    rew: scored.rew.view(),
                    q: q.view(),
                    fate: scored.fate.view(),
                    gamma,
                    lambda,
                };
                let y = view.returns();
                let size = y.row(0).mapv(f32::abs).mean().unwrap_or(0.0).max(1e-6);
                found.q = f64::from(y.row(0).mean().unwrap_or(0.0));
                let scale = -1.0 / (size * rows as f32);
                let counted = (0..rows).filter(|&i| !done[i]);
                let climbed: f64 = counted.map(|i| f64::from(scale * y[[0, i]])).sum();
                found.actor = climbed + found.anchor;
                let (drew, dvalue) = view.gradient(|i| if done[i] { 0.0 } else { scale });
                for (at, &j) in smallest.iter().enumerate() {
                    dq[[j, at]] = dvalue[[at / rows, at % rows]];
                }
                (drew, y)
            });
        let mut gradient = UnrollGradient { obs: dobs, act: dact, rew: &drew * scored.reward_scale };
        for mut row in gradient.obs.rows_mut() {
            row.iter_mut().zip(standardiser.std()).for_each(|(d, std)| *d /= std);
        }
        scored.add_gradient(&drew, &mut gradient);
        (gradient, y)
    }

    /// One step of the critics on logged rows, whose next state begins a trajectory, and on one imagined row of each
    /// trajectory.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn learn_values(
        &self,
        agent: &mut Sac,
        unroll: &Unroll,
        standardiser: &Standardiser,
        (batch, logged): (&Batch, usize),
        scored: &Scored,
        y: &Array2<f32>,
        returns: &Returns,
        rng: &mut Rng,
    ) -> f64 {
        let (steps, rows) = y.dim();
        let gamma = self.sac.gamma as f32;
        let bound = |y: f32| y.clamp(returns.least, returns.most);
        let mut wanted: Vec<f32> = (0..logged)
            .map(|i| bound(batch.rew[i] + if batch.done[i] { 0.0 } else { gamma * y[[0, i]] }))
            .collect();
        let picks: Vec<(usize, usize)> = (0..rows).map(|i| (rng.below(steps), i)).collect();
        wanted.extend(picks.iter().map(|&at| bound(y[at])));
        let places: Vec<usize> = picks.iter().map(|&(t, i)| t * rows + i).collect();
        let mut imagined = unroll.obs().select(Axis(0), &places);
        standardiser.apply(&mut imagined);
        let obs = stack(batch.obs.slice(s![..logged, ..]), imagined.view());
        let imagined = unroll.act().select(Axis(0), &places);
        let act = stack(batch.act.slice(s![..logged, ..]), imagined.view());
        // A trajectory counts as far as it is believed, and not at all after a terminal.
        let counts = |i: usize| {
            let (t, i) = picks[i];
            !batch.done[i]
                && (0..=t).all(|t| scored.fate[[t, i]] != Fate::Unbelieved)
                && (0..t).all(|t| scored.fate[[t, i]] == Fate::GoesOn)
        };
        let counted: Vec<bool> = (0..logged + rows).map(|i| i < logged || counts(i - logged)).collect();
        let [real, imagined] = match self.unroll.logged_weight {
            None => [1.0, 1.0],
            Some(share) => {
                // As factors of rows whose losses are divided by the number of all.
                let all = counted.len() as f32;
                let believed = counted[logged..].iter().filter(|&&c| c).count();
                [share * all / logged.max(1) as f32, (1.0 - share) * all / believed.max(1) as f32]
            }
        };
        let weight = |i: usize| match (counted[i], i < logged) {
            (false, _) => 0.0,
            (true, true) => real,
            (true, false) => imagined,
        };
        critic_step(agent, (&obs, &act), &wanted.into(), weight, self.unroll.expectile)
    }
}

/// Root mean square of what logged actions differ from the actor's, column by column.
pub(super) fn spread_around(
    actor: &Actor,
    data: &Dataset,
    standardiser: &Standardiser,
    pool: &ThreadPool,
) -> Vec<f32> {
    const ROWS: usize = 16384;
    let rows: Vec<usize> = (0..data.rows.len()).step_by(data.rows.len().div_ceil(ROWS).max(1)).collect();
    let mut obs = data.rows.obs.select(Axis(0), &rows);
    standardiser.apply(&mut obs);
    let error = actor.mean_batch(pool, &obs) - data.rows.act.select(Axis(0), &rows);
    let mean_square = error.mapv(|e| f64::from(e * e)).mean_axis(Axis(0)).expect("there are rows");
    mean_square.iter().map(|square| square.sqrt() as f32).collect()
}

/// exp(selectivity · A / deviation), with mean 1 and no weight above [`MOST_WEIGHT`].
pub(super) fn weights_of(advantage: &[f64], selectivity: f64) -> Vec<f32> {
    let rows = advantage.len().max(1) as f64;
    let mean = advantage.iter().sum::<f64>() / rows;
    let deviation = (advantage.iter().map(|a| (a - mean).powi(2)).sum::<f64>() / rows).sqrt();
    if deviation <= 1e-9 {
        return Vec::new();
    }
    let raw: Vec<f64> =
        advantage.iter().map(|a| (selectivity * (a - mean) / deviation).exp().min(MOST_WEIGHT)).collect();
    let mean = raw.iter().sum::<f64>() / rows;
    raw.into_iter().map(|w| (w / mean) as f32).collect()
}

/// One step of all critics towards an expectile of y; returns the weighted mean loss before it.
pub(super) fn critic_step(
    agent: &mut Sac,
    (obs, act): (&Mat, &Mat),
    y: &Array1<f32>,
    weight: impl Fn(usize) -> f32,
    expectile: f32,
) -> f64 {
    agent.critic_step_with(obs, act, |q, dq| {
        let (mut loss, rows) = (0.0, y.len() as f32);
        for (q, mut dq) in q.rows().into_iter().zip(dq.rows_mut()) {
            for i in 0..y.len() {
                let (value, slope) = value_loss(q[i] - y[i], expectile);
                loss += f64::from(weight(i) * value);
                dq[i] = weight(i) * slope / rows;
            }
        }
        loss / q.len() as f64
    })
}

/// Huber's loss of q − y, quadratic below 1, and its slope. Errors upwards count 2 (1 − τ) times and errors downwards 2 τ
/// times, so that q becomes the expectile τ of its targets (LEQ, Park & Lee 2025), and their mean at 0.5.
pub(super) fn value_loss(error: f32, expectile: f32) -> (f32, f32) {
    let side = 2.0 * if error > 0.0 { 1.0 - expectile } else { expectile };
    match error.abs() < 1.0 {
        true => (side * 0.5 * error * error, side * error),
        false => (side * (error.abs() - 0.5), side * error.signum()),
    }
}
