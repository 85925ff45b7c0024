//! RAMBO's step of the model against the policy (Rigter et al. 2022): likely where the policy does badly, and still
//! likely on the data.
//!
//! Minimises λ · mean_i A_i ln p(s'_i, r_i | s_i, a_i) over imagined rows, where p is the elites' mixture, plus the usual
//! loss of all members on real rows. The caller rolls out the rows and computes the advantages A.

use serde::{Deserialize, Serialize};

use super::data::check_rows;
use super::ensemble::Ensemble;
use super::head::Bounds;
use super::part::{self, BatchTerms, ModelShard};
use crate::batch::Batch;
use crate::error::{Error, Result, invalid, require};
use crate::nn::{Keep, MlpEnsemble, Scalar, Tensors, TrainStep};

/// Settings of the adversary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdversaryConfig {
    /// Learning rate.
    pub lr: f64,
    /// Weight decay of each layer. Without it, RAMBO takes `model.ensemble.decay`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decay: Vec<f32>,
    /// Weight of the bounds' spread in the loss.
    pub bound_weight: f32,
}

impl Default for AdversaryConfig {
    fn default() -> Self {
        Self { lr: 3e-4, decay: Vec::new(), bound_weight: 0.001 }
    }
}

impl AdversaryConfig {
    /// Finds settings that cannot work for networks of so many layers.
    pub fn validate_for(&self, layers: usize) -> Result<()> {
        let (lr, decay) = (self.lr, self.decay.len());
        require!(lr > 0.0 && lr.is_finite(), "adversary.step.lr: wanted a positive number, found {lr}");
        require!(
            decay == layers,
            "adversary.step.decay: wanted {layers} numbers, one for each hidden layer and one for the output, found \
             {decay}; leave it out to take the ensemble's"
        );
        Ok(())
    }
}

/// What a step found, before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct AdversaryLosses {
    /// Negative log-likelihood of the real rows, mean over members (as the trainer reports it).
    pub nll: f64,
    /// Mean of A · ln p over the imagined rows; without λ.
    pub adversarial: f64,
}

/// Adam's state for steps of a trained ensemble.
#[derive(Debug)]
pub struct Adversary {
    cfg: AdversaryConfig,
    /// The moments of all weights. The weights themselves are the model's, lent for the length of a step.
    moments: MlpEnsemble,
    bounds: Bounds,
    steps: u64,
    real: Vec<ModelShard>,
    /// The imagined rows, once for each elite.
    imagined: Vec<Vec<ModelShard>>,
}

impl Ensemble {
    /// Prepares adversarial steps of this model, with fresh moments.
    pub fn adversary(&self, cfg: &AdversaryConfig) -> Result<Adversary> {
        let shape = self.stack.shape();
        cfg.validate_for(shape.layers())?;
        let moments = MlpEnsemble::zeros(shape.clone(), self.members(), Keep::Moments).without_weights();
        let bounds = Bounds::new(self.obs_dim() + 1, 0.0, 0.0);
        let (real, imagined) = (Vec::new(), Vec::new());
        Ok(Adversary { cfg: cfg.clone(), moments, bounds, steps: 0, real, imagined })
    }
}

impl Adversary {
    /// One gradient step of all members and the bounds of `model`, the one this was made for (or a copy of it).
    ///
    /// `advantage` has one number for each imagined row. Without imagined rows, or with `lambda` 0, it is a plain step on
    /// the real rows. An error leaves the model unfit for use when it says that a loss is not finite.
    pub fn step(
        &mut self,
        model: &mut Ensemble,
        imagined: &Batch,
        advantage: &[f32],
        lambda: f64,
        real: &Batch,
    ) -> Result<AdversaryLosses> {
        self.check(model, imagined, advantage, lambda, real)?;
        self.steps += 1;
        for (mine, theirs) in
            [(&mut self.bounds.max, &model.bounds.max), (&mut self.bounds.min, &model.bounds.min)]
        {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| mine.value = theirs.value);
        }
        self.moments.swap_weights(&mut model.stack);
        let losses = self.descend(model, imagined, advantage, lambda, real);
        self.moments.swap_weights(&mut model.stack);
        let values = |bounds: &[Scalar]| bounds.iter().map(|b| Scalar::new(b.value)).collect();
        model.set_bounds(Bounds { max: values(&self.bounds.max), min: values(&self.bounds.min) });
        losses
    }

    /// The step itself, while the weights are in `self.moments`.
    fn descend(
        &mut self,
        model: &Ensemble,
        imagined: &Batch,
        advantage: &[f32],
        lambda: f64,
        real: &Batch,
    ) -> Result<AdversaryLosses> {
        let (weights, adversarial) = self.weigh(model, imagined, advantage, lambda);
        if !adversarial.is_finite() {
            return Err(self.not_finite("the mean of advantage · log-likelihood", adversarial));
        }
        let (pool, scaler) = (&model.pool, &model.scaler);
        part::cut(&mut self.real, self.moments.shape(), pool.shards(real.len()), 0.0);
        let (rows, width) = (imagined.len(), model.obs_dim() + 1);
        let scale = 1.0 / (real.len() * width) as f32;
        let step = TrainStep { decay: &self.cfg.decay, ..TrainStep::new(self.cfg.lr, self.steps) };
        let (mut dmax, mut dmin) = (vec![0.0f64; width], vec![0.0f64; width]);
        let (mut nll, mut terms) = (0.0, BatchTerms::default());
        for member in 0..model.members() {
            let net = self.moments.net(member);
            pool.for_each_mut(&mut self.real, |_, shard| {
                let first = shard.shard.rows.start;
                shard.set_bounds(&self.bounds);
                shard.load((scaler, None), real, |i| first + i);
                shard.forward(net);
                shard.backward(net, |_| scale);
            });
            let elite = model.elites().iter().position(|&e| e == member).filter(|_| !weights.is_empty());
            if let Some(e) = elite {
                let weights = &weights[e * rows..][..rows];
                pool.for_each_mut(&mut self.imagined[e], |_, shard| {
                    let first = shard.shard.rows.start;
                    // ln p = −½ Σ_d ((μ − y)² e^−lv + lv) + constant.
                    shard.backward(net, |i| (-0.5 * weights[first + i]) as f32);
                });
            }
            terms.take(&self.real);
            terms.add_bound_gradients(&mut dmax, &mut dmin);
            let loss = terms.loss / (real.len() * width) as f64;
            if !loss.is_finite() {
                return Err(self.not_finite(&format!("the loss of member {member} on real rows"), loss));
            }
            nll += loss / model.members() as f64;
            let imagined = elite.map_or(&[][..], |e| &self.imagined[e]);
            terms.take(imagined);
            terms.add_bound_gradients(&mut dmax, &mut dmin);
            let shards: Vec<&ModelShard> = self.real.iter().chain(imagined).collect();
            self.moments.train(pool, member..member + 1, shards.len(), |i| &shards[i].shard, &step);
        }
        let (weight, lr, t) = (f64::from(self.cfg.bound_weight), self.cfg.lr, self.steps);
        for i in 0..width {
            self.bounds.max[i].step(lr, t, dmax[i] + weight);
            self.bounds.min[i].step(lr, t, dmin[i] - weight);
        }
        Ok(AdversaryLosses { nll, adversarial })
    }

    /// Runs the imagined rows through every elite. Returns λ A_i/n · (elite's share of row i's likelihood), elite after
    /// elite, and the mean of A ln p; nothing and 0 when there is nothing to do.
    fn weigh(
        &mut self,
        model: &Ensemble,
        imagined: &Batch,
        advantage: &[f32],
        lambda: f64,
    ) -> (Vec<f64>, f64) {
        let (rows, elites, width) = (imagined.len(), model.elites(), model.obs_dim() + 1);
        if rows == 0 || lambda == 0.0 {
            return (Vec::new(), 0.0);
        }
        self.imagined.resize_with(elites.len(), Vec::new);
        let mut log_density = vec![0.0f64; elites.len() * rows];
        for (e, (shards, out)) in self.imagined.iter_mut().zip(log_density.chunks_exact_mut(rows)).enumerate()
        {
            let net = self.moments.net(elites[e]);
            part::cut(shards, self.moments.shape(), model.pool.shards(rows), 0.0);
            let mut rest = out;
            let mut tasks = Vec::with_capacity(shards.len());
            for shard in shards.iter_mut() {
                let (mine, others) = rest.split_at_mut(shard.shard.rows.len());
                rest = others;
                tasks.push((shard, mine));
            }
            model.pool.for_each_mut(&mut tasks, |_, (shard, losses)| {
                let first = shard.shard.rows.start;
                shard.set_bounds(&self.bounds);
                shard.load((&model.scaler, None), imagined, |i| first + i);
                shard.forward(net);
                shard.losses(net, losses);
            });
        }
        let constant = 0.5 * width as f64 * std::f64::consts::TAU.ln();
        log_density.iter_mut().for_each(|l| *l = -0.5 * *l - constant);
        let mut total = 0.0;
        let mut weights = log_density;
        for i in 0..rows {
            let of_row = |weights: &[f64], e: usize| weights[e * rows + i];
            let largest = (0..elites.len()).map(|e| of_row(&weights, e)).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..elites.len()).map(|e| (of_row(&weights, e) - largest).exp()).sum();
            let log_p = largest + sum.ln() - (elites.len() as f64).ln();
            let a = f64::from(advantage[i]);
            total += a * log_p;
            for e in 0..elites.len() {
                let share = (of_row(&weights, e) - largest).exp() / sum;
                weights[e * rows + i] = lambda * a / rows as f64 * share;
            }
        }
        (weights, total / rows as f64)
    }

    /// Moments and step count, for [`Adversary::load`].
    pub fn save(&self) -> Tensors {
        let mut out = Tensors::default();
        self.moments.save("adversary", &mut out);
        for (name, bounds) in [("max_log_var", &self.bounds.max), ("min_log_var", &self.bounds.min)] {
            let flat: Vec<f64> = bounds.iter().flat_map(|b| [b.m, b.v]).collect();
            out.put_f64(format!("adversary.{name}"), &flat);
        }
        out.put_u64("adversary.steps", &[self.steps]);
        out
    }

    /// Resumes from what [`Adversary::save`] gave; [`Ensemble::save`] saves the model apart.
    pub fn load(&mut self, from: &Tensors) -> Result<()> {
        let mut moments = self.moments.clone();
        moments.load("adversary", from)?;
        let read = |name: &str, width: usize| -> Result<Vec<Scalar>> {
            let flat = from.f64(&format!("adversary.{name}"), 2 * width)?;
            Ok(flat.as_chunks::<2>().0.iter().map(|&[m, v]| Scalar { value: 0.0, m, v }).collect())
        };
        let width = self.bounds.max.len();
        let bounds = Bounds { max: read("max_log_var", width)?, min: read("min_log_var", width)? };
        self.steps = from.u64("adversary.steps", 1)?[0];
        (self.moments, self.bounds) = (moments, bounds);
        Ok(())
    }

    fn check(
        &self,
        model: &Ensemble,
        imagined: &Batch,
        advantage: &[f32],
        lambda: f64,
        real: &Batch,
    ) -> Result<()> {
        let at = format!("adversary step {}", self.steps + 1);
        require!(
            model.stack.shape() == self.moments.shape() && model.members() == self.moments.nets(),
            "{at}: wanted the model it was made for, found one of another shape"
        );
        for (name, rows) in [("imagined", imagined), ("real", real)] {
            check_rows(rows).map_err(|e| invalid!("{at}: {}", e.to_string().replace("training", name)))?;
            rows.check_widths(&format!("{at}: {name} rows"), model.obs_dim(), model.act_dim())?;
        }
        let (imagined, advantages) = (imagined.len(), advantage.len());
        require!(
            !real.is_empty() && advantages == imagined,
            "{at}: wanted real rows and an advantage for each imagined row, found {} real rows and {advantages} \
             advantages for {imagined}",
            real.len()
        );
        if let Some(i) = advantage.iter().position(|a| !a.is_finite()) {
            return Err(invalid!("{at}: wanted finite advantages, found {} at row {i}", advantage[i]));
        }
        require!(lambda.is_finite(), "{at}: wanted a finite lambda, found {lambda}");
        Ok(())
    }

    fn not_finite(&self, what: &str, value: f64) -> Error {
        invalid!(
            "{what} became {value} at adversary step {}; lower its lr or lambda, and go back to an earlier model",
            self.steps
        )
    }
}
