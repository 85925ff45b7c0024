//! Behaviour cloning: an actor learns the dataset's actions. A baseline, and the start of MOReL and RAMBO.

use serde::{Deserialize, Serialize};

use super::Actor;
use crate::batch::Batch;
use crate::error::{Result, invalid};
use crate::nn::{Fitter, Tensors, ThreadPool};

/// Distance that actions keep from ±1 before tanh⁻¹, which is infinite there; logged actions often lie at the ends.
const EDGE: f32 = 1e-3;

/// What cloning minimises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Mean (tanh μ(s) − a)², the usual baseline. The noise is fitted by likelihood and leaves the mean alone.
    #[default]
    Mse,
    /// −log π(a|s).
    Nll,
}

/// An optimiser for behaviour cloning.
#[derive(Debug)]
pub struct Cloner {
    objective: Objective,
    fitter: Fitter,
}

impl Cloner {
    /// An optimiser with learning rate `lr`. The actor holds the moments: use one optimiser for one actor.
    pub fn new(objective: Objective, lr: f64) -> Self {
        Self { objective, fitter: Fitter::new(lr, 0.0) }
    }

    /// Changes the learning rate.
    pub fn set_lr(&mut self, lr: f64) {
        self.fitter.set_lr(lr);
    }

    /// The same optimiser after so many steps.
    #[must_use]
    pub fn after(mut self, steps: u64) -> Self {
        self.fitter.steps = steps;
        self
    }

    /// One step of the actor on the batch; returns the mean loss before it.
    pub fn step(&mut self, actor: &mut Actor, pool: &ThreadPool, batch: &Batch) -> Result<f64> {
        self.step_weighted(actor, pool, batch, |_| 1.0)
    }

    /// The same with a weight for each row of the batch.
    pub fn step_weighted(
        &mut self,
        actor: &mut Actor,
        pool: &ThreadPool,
        batch: &Batch,
        weight: impl Fn(usize) -> f32 + Sync,
    ) -> Result<f64> {
        let (objective, [low, high], width) = (self.objective, actor.log_std(), actor.act_dim());
        let scale = 1.0 / batch.len() as f32;
        let load =
            |row: usize, x: &mut [f32]| x.iter_mut().zip(batch.obs.row(row)).for_each(|(x, s)| *x = *s);
        let total = self.fitter.step(&mut actor.net, pool, batch.len(), load, |row, out, gradient| {
            let (mut loss, scale) = (0.0, scale * weight(row));
            for j in 0..width {
                let (mean, raw, target) = (out[j], out[width + j], batch.act[[row, j]]);
                let log_std = raw.clamp(low, high);
                let precision = (-2.0 * log_std).exp();
                let off = target.clamp(EDGE - 1.0, 1.0 - EDGE).atanh() - mean;
                let dlog = if raw == log_std { 1.0 - off * off * precision } else { 0.0 };
                let dmean = match objective {
                    Objective::Nll => {
                        // −log π(a|s) up to terms without parameters.
                        loss += f64::from(0.5 * off * off * precision + log_std);
                        -off * precision
                    }
                    Objective::Mse => {
                        let squashed = mean.tanh();
                        let miss = squashed - target;
                        loss += f64::from(miss * miss);
                        2.0 * miss * (1.0 - squashed * squashed)
                    }
                };
                gradient[j] = scale * dmean;
                gradient[width + j] = scale * dlog;
            }
            f64::from(weight(row)) * loss
        });
        let loss = total / batch.len() as f64;
        if loss.is_finite() {
            return Ok(loss);
        }
        Err(invalid!(
            "the cloning loss became {loss} at step {}; check the data for non-finite values, or lower the learning rate",
            self.fitter.steps
        ))
    }

    /// Steps taken, and the actor's weights and moments.
    pub fn save(&self, actor: &Actor) -> Tensors {
        let mut out = Tensors::default();
        actor.net.save("actor", &mut out);
        out.put_u64("steps", &[self.fitter.steps]);
        out
    }

    /// Restores what [`Cloner::save`] returned.
    pub fn load(&mut self, actor: &mut Actor, from: &Tensors) -> Result<()> {
        let steps = from.u64("steps", 1)?[0];
        actor.net.load("actor", from)?;
        self.fitter.steps = steps;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Mat;
    use crate::nn::Noise;
    use crate::rng::Rng;
    use ndarray::Array1;

    /// Rows whose action is a smooth function of the state, with a little noise.
    fn rows(n: usize) -> Batch {
        let mut rng = Rng::stream(3, "rows", 0);
        let obs = Mat::from_shape_fn((n, 3), |_| rng.normal() as f32);
        let mut act = Mat::zeros((n, 2));
        for i in 0..n {
            act[[i, 0]] = (0.8 * obs[[i, 0]] + 0.1 * rng.normal() as f32).tanh();
            act[[i, 1]] = (obs[[i, 1]] * obs[[i, 2]] * 0.3).tanh();
        }
        let done = Array1::from_elem(n, false);
        Batch { next_obs: obs.clone(), obs, act, rew: Array1::zeros(n), done }
    }

    fn train(objective: Objective, layer_norm: bool, threads: usize, steps: usize) -> (Actor, f64) {
        let (data, pool) = (rows(2000), ThreadPool::new(threads));
        let mut actor = Actor::new(3, 2, &[64, 64], [-5.0, 2.0], &mut Rng::stream(0, "init", 0))
            .with_layer_norm(layer_norm);
        let mut cloner = Cloner::new(objective, 1e-3);
        let mut rng = Rng::stream(1, "draw", 0);
        let mut loss = 0.0;
        for _ in 0..steps {
            let picks: Vec<usize> = (0..200).map(|_| rng.below(2000)).collect();
            loss = cloner.step(&mut actor, &pool, &data.select(&picks)).unwrap();
        }
        (actor, loss)
    }

    #[test]
    fn both_objectives_learn_the_actions_and_how_sure_they_are() {
        for (objective, layer_norm) in
            [(Objective::Mse, false), (Objective::Nll, false), (Objective::Mse, true)]
        {
            let (actor, _) = train(objective, layer_norm, 2, 1500);
            let (data, pool) = (rows(2000), ThreadPool::new(2));
            let miss = (&actor.mean_batch(&pool, &data.obs) - &data.act).mapv(|x| x * x).mean().unwrap();
            assert!(miss < 0.01, "{objective:?}: {miss}");
            let (sampled, _) = actor.sample(&pool, data.obs.view(), Noise::Key(1));
            let spread = (&sampled - &actor.mean_batch(&pool, &data.obs)).mapv(f32::abs);
            let (noisy, exact) = (spread.column(0).mean().unwrap(), spread.column(1).mean().unwrap());
            assert!(noisy > 0.03 && noisy < 0.3 && exact < noisy, "{objective:?}: {noisy} {exact}");
        }
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        for layer_norm in [false, true] {
            let (a, first) = train(Objective::Nll, layer_norm, 1, 40);
            let (b, second) = train(Objective::Nll, layer_norm, 3, 40);
            assert_eq!(first.to_bits(), second.to_bits());
            assert_eq!(a.to_policy(), b.to_policy());
        }
    }

    #[test]
    fn a_resumed_cloner_goes_on_bit_for_bit() {
        let (data, pool) = (rows(256), ThreadPool::new(1));
        let mut actor = Actor::new(3, 2, &[16], [-5.0, 2.0], &mut Rng::stream(0, "init", 0));
        let mut cloner = Cloner::new(Objective::Mse, 1e-2);
        cloner.step(&mut actor, &pool, &data).unwrap();
        let kept = cloner.save(&actor);
        let mut other = Actor::new(3, 2, &[16], [-5.0, 2.0], &mut Rng::stream(9, "init", 0));
        let mut again = Cloner::new(Objective::Mse, 1e-2);
        again.load(&mut other, &kept).unwrap();
        let (a, b) = (cloner.step(&mut actor, &pool, &data), again.step(&mut other, &pool, &data));
        assert_eq!(a.unwrap().to_bits(), b.unwrap().to_bits());
        assert_eq!(actor.to_policy(), other.to_policy());
    }

    #[test]
    fn a_centred_actor_begins_at_the_mean_action() {
        let (mut data, pool) = (rows(500), ThreadPool::new(1));
        data.act.column_mut(0).fill(-0.995);
        data.act.column_mut(1).fill(1.0);
        let fresh = Actor::new(3, 2, &[64, 64], [-5.0, 2.0], &mut Rng::stream(0, "init", 0));
        let act = fresh.centred_on(&data.act).mean_batch(&pool, &data.obs);
        assert!(act.column(0).iter().all(|a| (-0.9975..-0.99).contains(a)), "{act}");
        assert!(act.column(1).iter().all(|a| (0.997..1.0).contains(a)), "near the bound, not on it: {act}");
    }

    #[test]
    fn a_loss_that_is_no_number_is_named() {
        let mut data = rows(64);
        data.act[[5, 0]] = f32::NAN;
        let mut actor = Actor::new(3, 2, &[16], [-5.0, 2.0], &mut Rng::stream(0, "init", 0));
        let error =
            Cloner::new(Objective::Mse, 1e-3).step(&mut actor, &ThreadPool::new(1), &data).unwrap_err();
        assert!(error.to_string().contains("cloning loss became NaN at step 1"), "{error}");
    }
}
