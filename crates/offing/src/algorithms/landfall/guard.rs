//! What Landfall makes of imagined steps far from the data.

use ndarray::Array2;

use crate::algorithms::lambda_return::Fate;
use crate::algorithms::returns::Returns;
use crate::batch::Mat;
use crate::dynamics::{DynamicsModel, Ensemble, Members};
use crate::error::Result;
use crate::pessimism::{CalibratedRule, Verdict};
use crate::uncertainty::Uncertainty;
use crate::unroll::{Unroll, UnrollGradient};

/// The estimator and what is done about its scores.
pub(super) struct Guard<'a> {
    pub(super) estimator: Option<&'a dyn Uncertainty>,
    pub(super) rule: CalibratedRule,
}

/// What the guard makes of trajectories.
pub(super) struct Scored {
    /// Rewards less penalties, scaled; H × rows.
    pub(super) rew: Array2<f32>,
    pub(super) fate: Array2<Fate>,
    /// Factor from rewards to scaled ones.
    pub(super) reward_scale: f32,
    /// The rows of the steps looked at, and ∂penalty/∂(s, a, s') there, in raw rewards.
    slopes: Option<(Vec<usize>, [Mat; 3])>,
    /// Means over the steps.
    pub(super) u: f64,
    pub(super) penalty: f64,
}

impl Guard<'_> {
    /// Looks at step `picks[i]` of each trajectory i and lets it stand for all: its penalty counts as often as there are steps.
    /// That is right on average, and a search for each step would cost more than all else.
    pub(super) fn score(
        &self,
        unroll: &Unroll,
        model: &Ensemble,
        returns: &Returns,
        picks: &[usize],
    ) -> Result<Scored> {
        let all = unroll.steps(model);
        let (steps, rows) = unroll.rew().dim();
        let mut rew = unroll.rew().clone();
        let mut fate = Array2::from_shape_fn((steps, rows), |(t, i)| {
            match (unroll.lost()[[t, i]], all.batch.done[t * rows + i]) {
                (true, _) => Fate::Unbelieved,
                (_, true) => Fate::Ends,
                _ => Fate::GoesOn,
            }
        });
        let (mut slopes, mut u, mut penalty) = (None, 0.0, 0.0);
        if let Some(estimator) = self.estimator {
            let places: Vec<usize> = picks.iter().enumerate().map(|(i, t)| t * rows + i).collect();
            let mut step = all.select(&places);
            if estimator.needs() == Members::All {
                step.prediction = Some(model.predict(&step.batch.obs, &step.batch.act));
            }
            let found = estimator.score_gradient(&step)?;
            let scores = found.score.to_vec();
            let limit = self.rule.epsilon().unwrap_or(self.rule.max_score());
            for (i, (&score, cost)) in scores.iter().zip(self.rule.penalties(&scores)).enumerate() {
                let place = [picks[i], i];
                rew[place] -= steps as f32 * cost;
                u += f64::from(score) / rows as f64;
                penalty += f64::from(cost) / rows as f64;
                if score > limit && limit > 0.0 {
                    fate[place] = match self.rule.verdict(true) {
                        Verdict::Halt => {
                            rew[place] = self.rule.halting_reward();
                            Fate::Ends
                        }
                        _ => Fate::Unbelieved,
                    };
                }
            }
            let mut parts = [found.obs, found.act, found.next_obs];
            let factors: Vec<f32> = self.rule.penalty_slopes(&scores).map(|d| steps as f32 * d).collect();
            for part in &mut parts {
                for (mut row, &factor) in part.rows_mut().into_iter().zip(&factors) {
                    row *= factor;
                }
            }
            slopes = Some((places, parts));
        }
        rew *= returns.scale;
        Ok(Scored { rew, fate, reward_scale: returns.scale, slopes, u, penalty })
    }
}

impl Scored {
    /// Adds what flows through the penalties: `drew` is the loss's gradient at the scaled rewards.
    pub(super) fn add_gradient(&self, drew: &Array2<f32>, gradient: &mut UnrollGradient) {
        let Some((places, [dobs, dact, dnext])) = &self.slopes else { return };
        let rows = drew.ncols();
        for (i, &at) in places.iter().enumerate() {
            let factor = -drew[[at / rows, at % rows]] * self.reward_scale;
            gradient.obs.row_mut(at).scaled_add(factor, &dobs.row(i));
            gradient.act.row_mut(at).scaled_add(factor, &dact.row(i));
            gradient.obs.row_mut(at + rows).scaled_add(factor, &dnext.row(i));
        }
    }
}
