//! A critics' loss of two means: logged rows count together as much as one wants, however many of them a batch has.

use super::{Losses, Sac};
use crate::batch::Batch;
use crate::error::Result;
use crate::nn::Noise;
use crate::rng::Rng;

/// Which rows of a batch count how much in the critics' loss: weight · mean over the first rows + (1 − weight) · mean over the
/// others. Where either has no rows, all rows count alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoMeans {
    /// How many rows come first: the logged ones of a mixed batch.
    pub first: usize,
    /// What their mean loss counts, from 0 to 1.
    pub weight: f32,
}

/// Factors on the losses of single rows, whose sum is divided by the number of all rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowFactors {
    /// The rows that the first factor belongs to; the second belongs to the others.
    pub(super) first: usize,
    pub(super) factors: [f32; 2],
}

impl RowFactors {
    pub(crate) fn of(means: Option<TwoMeans>, rows: usize) -> Self {
        match means {
            Some(TwoMeans { first, weight }) if (1..rows).contains(&first) => {
                let all = rows as f32;
                let factors = [weight * all / first as f32, (1.0 - weight) * all / (rows - first) as f32];
                Self { first, factors }
            }
            _ => Self { first: rows, factors: [1.0; 2] },
        }
    }

    /// The factor of one row.
    pub(crate) fn at(&self, row: usize) -> f32 {
        self.factors[usize::from(row >= self.first)]
    }
}

impl Sac {
    /// [`Sac::update`] with a critics' loss of two means; without them, the same. Actor and temperature count all rows alike.
    ///
    /// # Errors
    /// As [`Sac::update`].
    pub fn update_two_means(
        &mut self,
        batch: &Batch,
        means: Option<TwoMeans>,
        rng: &mut Rng,
    ) -> Result<Losses> {
        let (next, current) = (Noise::draw(rng), Noise::draw(rng));
        self.update_two_means_with(batch, means, next, current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{Field, Tensors};
    use crate::sac::SacConfig;
    use crate::sac::tests::{agent, batch, layers, network, small};

    const ROWS: usize = 33;
    const LOGGED: usize = 12;

    /// The agent after an update on a batch whose first rows have this weight.
    fn updated(threads: usize, batch: &Batch, means: Option<TwoMeans>) -> (Tensors, Losses) {
        let mut agent = agent(threads, &small());
        let losses = agent.update_two_means_with(batch, means, Noise::Key(1), Noise::Key(2)).unwrap();
        (agent.save(), losses)
    }

    fn weighted(weight: f32) -> Option<TwoMeans> {
        Some(TwoMeans { first: LOGGED, weight })
    }

    /// Largest difference between the critics' tensors.
    fn difference(a: &Tensors, b: &Tensors) -> f32 {
        let names = a.names().filter(|name| name.starts_with("critic."));
        names.fold(0.0, |worst, name| {
            let [a, b] = [a, b].map(|from| from.f32(name, from.shape(name).unwrap()).unwrap());
            a.iter().zip(&b).fold(worst, |worst, (a, b)| worst.max((a - b).abs()))
        })
    }

    #[test]
    fn weights_like_the_shares_change_nothing_and_neither_does_a_batch_of_one_kind() {
        let batch = batch(ROWS, 5, 2, 0);
        let (plain, losses) = updated(2, &batch, None);
        let mut usual = agent(2, &small());
        usual.update_with(&batch, Noise::Key(1), Noise::Key(2)).unwrap();
        assert_eq!(usual.save(), plain);
        let (alike, same) = updated(2, &batch, weighted(LOGGED as f32 / ROWS as f32));
        assert!(difference(&plain, &alike) < 1e-6, "{}", difference(&plain, &alike));
        assert!((losses.critic - same.critic).abs() < 1e-6 * losses.critic);
        for first in [0, ROWS, ROWS + 5] {
            assert_eq!(updated(2, &batch, Some(TwoMeans { first, weight: 0.9 })).0, plain);
        }
        assert!(difference(&plain, &updated(2, &batch, weighted(0.9)).0) > 1e-6, "other weights do");
    }

    #[test]
    fn rows_without_weight_teach_the_critics_nothing() {
        let (one, other) = (batch(ROWS, 5, 2, 0), batch(ROWS, 5, 2, 1));
        let mixed = |logged: &Batch, imagined: &Batch| {
            let mut rows = logged.clone();
            for i in LOGGED..ROWS {
                rows.obs.row_mut(i).assign(&imagined.obs.row(i));
                rows.act.row_mut(i).assign(&imagined.act.row(i));
                rows.next_obs.row_mut(i).assign(&imagined.next_obs.row(i));
                (rows.rew[i], rows.done[i]) = (imagined.rew[i], imagined.done[i]);
            }
            rows
        };
        for (weight, changed) in [(1.0, mixed(&one, &other)), (0.0, mixed(&other, &one))] {
            let [a, b] = [&one, &changed].map(|batch| updated(2, batch, weighted(weight)));
            assert_eq!(difference(&a.0, &b.0), 0.0);
            assert!((a.1.critic - b.1.critic).abs() < 1e-12, "nor do they count in the loss");
            assert_ne!(a.1.actor, b.1.actor, "the actor sees all rows");
        }
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let batch = batch(ROWS, 5, 2, 0);
        let one = updated(1, &batch, weighted(0.8));
        assert!([2, 3, 7].into_iter().all(|threads| updated(threads, &batch, weighted(0.8)) == one));
    }

    #[test]
    fn the_gradient_equals_finite_differences() {
        let mut agent = agent(2, &SacConfig { hidden: vec![9, 7], ..small() });
        let batch = batch(ROWS, 5, 2, 3);
        let y = agent.td_target(&batch, Noise::Key(1));
        let mut critics: Vec<_> = (0..3).map(|j| layers(&agent.critics, j, Field::Weight)).collect();
        let plain = |critic: &[(Vec<f64>, Vec<f64>)]| {
            let square = |i: usize| {
                let pair = batch.obs.row(i).into_iter().chain(batch.act.row(i)).map(|&x| f64::from(x));
                (network(critic, false, &pair.collect::<Vec<_>>())[0] - f64::from(y[i])).powi(2)
            };
            let mean =
                |rows: std::ops::Range<usize>| rows.clone().map(square).sum::<f64>() / rows.len() as f64;
            0.8 * mean(0..LOGGED) + 0.2 * mean(LOGGED..ROWS)
        };
        let losses =
            agent.update_two_means_with(&batch, weighted(0.8), Noise::Key(1), Noise::Key(2)).unwrap();
        let wanted = critics.iter().map(|critic| plain(critic)).sum::<f64>() / 3.0;
        assert!((losses.critic - wanted).abs() < 1e-5 * wanted, "{} {wanted}", losses.critic);
        for (j, critic) in critics.iter_mut().enumerate() {
            // After Adam's first step its first moment is a tenth of the gradient.
            for (l, (dw, db)) in layers(&agent.critics, j, Field::First).iter().enumerate() {
                for (i, d) in dw.iter().chain(db).enumerate() {
                    let mut at = |step: f64| {
                        let (w, b) = &mut critic[l];
                        *(if i < dw.len() { &mut w[i] } else { &mut b[i - dw.len()] }) += step;
                        plain(critic)
                    };
                    let numeric = (at(1e-6) - at(-2e-6)) / 2e-6;
                    at(1e-6);
                    assert!(
                        (10.0 * d - numeric).abs() < 2e-5 * (1.0 + numeric.abs()),
                        "{j} {l} {i}: {d} {numeric}"
                    );
                }
            }
        }
    }
}
