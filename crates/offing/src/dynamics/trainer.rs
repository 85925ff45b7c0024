//! Training the ensemble: bootstrap, hold-out, early stop per member, and a state that resumes bit for bit.

use super::config::EnsembleConfig;
use super::data::{Scaler, TargetScale, check_rows, shuffle, split};
use super::ensemble::{Ensemble, holdout_error};
use super::head::Bounds;
use super::part::{self, BatchTerms, ModelShard};
use crate::batch::Batch;
use crate::error::{Result, invalid};
use crate::nn::{Init, Keep, MlpEnsemble, Net, Scalar, Shape, Tensors, ThreadPool, TrainStep};
use crate::rng::Rng;

/// An ensemble in training on some rows.
#[derive(Debug)]
pub struct Trainer<'a> {
    cfg: EnsembleConfig,
    rows: &'a Batch,
    pool: ThreadPool,
    seed: u64,
    scaler: Scaler,
    /// Of what is learnt, where it is standardised.
    targets: Option<TargetScale>,
    report: FitReport,
    train: Vec<u32>,
    held: Vec<u32>,
    /// Each member's rows in this epoch's order.
    order: Vec<Vec<u32>>,
    stack: MlpEnsemble,
    best: MlpEnsemble,
    bounds: Bounds,
    /// Room for a batch that all threads share.
    shared: Vec<ModelShard>,
    /// Room for a batch of each thread's own.
    own: Vec<Vec<ModelShard>>,
    /// What each member's last batch gave.
    terms: Vec<BatchTerms>,
    /// Sums of the gradients of the bounds, upper and lower.
    dbounds: [Vec<f64>; 2],
    state: State,
}

/// Where training stands, beside the weights.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    updates: u64,
    epoch: u64,
    /// Batches done in this epoch.
    position: u64,
    /// Epochs since any member improved.
    stale: u64,
    finished: bool,
    /// Sum of the losses of this epoch's batches.
    loss_sum: f64,
    /// Best hold-out error of each member; infinite before the first epoch ends.
    best_error: Vec<f64>,
    /// Hold-out error of each member after the last epoch.
    last_error: Vec<f64>,
}

/// What there is to tell about the data a model was fitted to.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FitReport {
    /// Rows trained on.
    pub train_rows: usize,
    /// Rows held out.
    pub holdout_rows: usize,
    /// Columns of (s, a) that never change: they are passed on as they are minus their value.
    pub constant_inputs: Vec<usize>,
}

/// How far training is.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct FitProgress {
    /// Epochs finished.
    pub epoch: u64,
    /// Gradient steps taken.
    pub updates: u64,
    /// Gradient steps of one epoch.
    pub updates_per_epoch: u64,
    /// Gradient steps at most; `None` where only the hold-out error ends the training.
    pub most_updates: Option<u64>,
    /// Loss per member, mean over this epoch so far (or over the one that just ended).
    pub loss: f64,
    /// Hold-out mean squared error of each member after the last epoch; empty before.
    pub holdout: Vec<f64>,
    /// Best hold-out error of each member so far; empty before the first epoch ends.
    pub best: Vec<f64>,
    /// True when this step ended an epoch.
    pub epoch_ended: bool,
    /// True when training is over.
    pub finished: bool,
}

impl<'a> Trainer<'a> {
    /// Prepares training on `rows`; everything random follows from `seed`.
    pub fn new(cfg: &EnsembleConfig, rows: &'a Batch, seed: u64, pool: &ThreadPool) -> Result<Self> {
        cfg.validate()?;
        check_rows(rows)?;
        cfg.validate_for(rows.len())?;
        let (train, held) = split(rows.len(), cfg.holdout, cfg.holdout_max, seed);
        let (scaler, constant_inputs) = Scaler::fit(rows, &train);
        let targets = cfg.standardise_targets.then(|| TargetScale::fit(rows, &train));
        let report = FitReport { train_rows: train.len(), holdout_rows: held.len(), constant_inputs };
        let (obs, act) = (rows.obs_dim(), rows.act_dim());
        let shape = Shape::new(obs + act, &cfg.hidden, 2 * (obs + 1), cfg.activation);
        let shape = shape.with_layer_norm(cfg.layer_norm);
        let mut rng = Rng::stream(seed, "model-init", 0);
        let stack =
            MlpEnsemble::new(shape.clone(), cfg.members, Init::TruncatedNormal, Keep::Moments, &mut rng);
        let best = MlpEnsemble::zeros(shape, cfg.members, Keep::Weights);
        let unknown = vec![f64::INFINITY; cfg.members];
        let mut trainer = Self {
            cfg: cfg.clone(),
            rows,
            pool: pool.clone(),
            seed,
            scaler,
            targets,
            report,
            train,
            held,
            order: Vec::new(),
            stack,
            best,
            bounds: Bounds::new(obs + 1, cfg.max_log_var, cfg.min_log_var),
            shared: Vec::new(),
            own: (0..pool.threads()).map(|_| Vec::new()).collect(),
            terms: vec![BatchTerms::default(); cfg.members],
            dbounds: [vec![0.0; obs + 1], vec![0.0; obs + 1]],
            state: State { best_error: unknown.clone(), last_error: unknown, ..State::default() },
        };
        trainer.draw_order();
        Ok(trainer)
    }

    /// What was found in the data.
    pub fn report(&self) -> &FitReport {
        &self.report
    }

    /// How far training is, between steps.
    pub fn now(&self) -> FitProgress {
        self.progress(self.state.finished, self.state.position)
    }

    /// Floating-point operations of the matrix products one gradient step of all members on `rows` rows each needs, a
    /// multiply-add counting as two.
    pub fn step_flop(&self, rows: usize) -> f64 {
        (2 * rows * self.cfg.members * self.stack.shape().training_multiplies()) as f64
    }

    /// One gradient step of every member; after the last of an epoch, also the hold-out error, the choice of the best
    /// weights and the decision to stop. Nothing once training is over.
    pub fn step(&mut self) -> Result<FitProgress> {
        if !self.state.finished {
            let size = self.cfg.batch_size;
            let first = self.state.position as usize * size;
            let last = (first + size).min(self.train.len());
            // Moved out and back, so that the rows can be read while the networks change.
            let order = std::mem::take(&mut self.order);
            let loss = self.step_on(|member| &order[member][first..last]);
            self.order = order;
            self.state.loss_sum += loss?;
            self.state.position += 1;
            let enough = self.cfg.max_updates.is_some_and(|most| self.state.updates >= most);
            if enough || last == self.train.len() {
                return self.end_epoch();
            }
        }
        Ok(self.now())
    }

    /// One gradient step of every member on the rows `rows_of(member)`, all of one number; returns the members' mean
    /// negative log-likelihood before it.
    pub fn step_on<'r>(&mut self, rows_of: impl Fn(usize) -> &'r [u32] + Sync) -> Result<f64> {
        let (batch_size, width) = (rows_of(0).len(), self.rows.obs_dim() + 1);
        let (members, threads, shape) = (self.cfg.members, self.pool.threads(), self.stack.shape());
        // A thread takes members whole, so that their weights, moments and activations stay with one core. Those that do
        // not come out even are shared row by row.
        let whole = members - members % threads;
        if whole < members {
            part::cut(&mut self.shared, shape, self.pool.shards(batch_size), self.cfg.beta);
        }
        for own in self.own.iter_mut().filter(|_| whole > 0) {
            part::cut(own, shape, ThreadPool::shards_of(1, batch_size), self.cfg.beta);
        }
        let everywhere = self.shared.iter_mut().chain(self.own.iter_mut().flatten());
        everywhere.for_each(|shard| shard.set_bounds(&self.bounds));
        self.state.updates += 1;
        let lr = self.cfg.lr_at(self.state.updates);
        let step = TrainStep { decay: &self.cfg.decay, ..TrainStep::new(lr, self.state.updates) };
        let scale = 1.0 / (batch_size * width) as f32;
        let (scales, data) = ((&self.scaler, self.targets.as_ref()), self.rows);
        let pass = |shard: &mut ModelShard, member: usize, net: Net<'_>| {
            let rows = &rows_of(member)[shard.shard.rows.clone()];
            shard.load(scales, data, |i| rows[i] as usize);
            shard.forward(net);
            shard.backward(net, |_| scale);
        };
        for first in (0..whole).step_by(threads) {
            let members = self.stack.nets_mut().zip(&mut self.terms).enumerate().skip(first);
            self.pool.for_each_item(members.zip(&mut self.own), |_, ((member, (net, terms)), shards)| {
                assert_eq!(rows_of(*member).len(), batch_size, "one batch size for all members");
                shards.iter_mut().for_each(|shard| pass(shard, *member, net.net()));
                terms.take(shards);
                if terms.loss.is_finite() {
                    net.train(shards.len(), |i| &shards[i].shard, &step);
                }
            });
        }
        for member in whole..members {
            assert_eq!(rows_of(member).len(), batch_size, "one batch size for all members");
            let net = self.stack.net(member);
            self.pool.for_each_mut(&mut self.shared, |_, shard| pass(shard, member, net));
            self.terms[member].take(&self.shared);
            if self.terms[member].loss.is_finite() {
                let shards = &self.shared;
                self.stack.train(&self.pool, member..member + 1, shards.len(), |i| &shards[i].shard, &step);
            }
        }
        let [dmax, dmin] = &mut self.dbounds;
        dmax.fill(0.0);
        dmin.fill(0.0);
        let mut total = 0.0;
        for (member, terms) in self.terms.iter().enumerate() {
            let loss = terms.loss / (batch_size * width) as f64;
            if !loss.is_finite() {
                return Err(invalid!(
                    "the model's loss became {loss} for member {member} at update {} (epoch {}); lower model.ensemble.lr, or \
                     look for extreme values with `offing data audit`",
                    self.state.updates,
                    self.state.epoch
                ));
            }
            total += loss;
            terms.add_bound_gradients(dmax, dmin);
        }
        let weight = f64::from(self.cfg.bound_weight);
        let t = self.state.updates;
        for i in 0..width {
            self.bounds.max[i].step(lr, t, dmax[i] + weight);
            self.bounds.min[i].step(lr, t, dmin[i] - weight);
        }
        Ok(total / self.cfg.members as f64)
    }

    /// The finished model: each member's best weights, elites by hold-out error.
    pub fn finish(mut self) -> Result<Ensemble> {
        if self.state.best_error.iter().any(|e| !e.is_finite()) {
            return Err(invalid!(
                "the model was not trained for a whole epoch yet, so no weights have been chosen; train longer"
            ));
        }
        let mut ranked: Vec<usize> = (0..self.cfg.members).collect();
        ranked.sort_by(|&a, &b| self.state.best_error[a].total_cmp(&self.state.best_error[b]));
        ranked.truncate(self.cfg.elites);
        if let Some(targets) = &self.targets {
            targets.fold(&mut self.best, &mut self.bounds);
        }
        Ok(Ensemble::assemble(self.best, self.scaler, self.bounds, ranked, self.state.best_error, &self.pool))
    }

    /// Everything that is not derived from the data, the configuration and the seed.
    pub fn save(&self) -> Tensors {
        let (mut out, s) = (Tensors::default(), &self.state);
        self.stack.save("model", &mut out);
        self.best.save("best", &mut out);
        for (name, bounds) in [("max_log_var", &self.bounds.max), ("min_log_var", &self.bounds.min)] {
            let flat: Vec<f64> = bounds.iter().flat_map(|b| [b.value, b.m, b.v]).collect();
            out.put_f64(name, &flat);
        }
        self.scaler.save("scaler.", &mut out);
        out.put_u64("state", &[s.updates, s.epoch, s.position, s.stale, u64::from(s.finished)]);
        out.put_f64("loss_sum", &[s.loss_sum]);
        out.put_f64("best_error", &s.best_error);
        out.put_f64("last_error", &s.last_error);
        out
    }

    /// Resumes from what [`Trainer::save`] gave, on the same data with the same configuration and seed.
    pub fn load(&mut self, from: &Tensors) -> Result<()> {
        let (width, members) = (self.rows.obs_dim() + 1, self.cfg.members);
        let (mut stack, mut best) = (self.stack.clone(), self.best.clone());
        stack.load("model", from)?;
        best.load("best", from)?;
        let read = |name: &str| -> Result<Vec<Scalar>> {
            let flat = from.f64(name, 3 * width)?;
            Ok(flat.as_chunks::<3>().0.iter().map(|&[value, m, v]| Scalar { value, m, v }).collect())
        };
        let bounds = Bounds { max: read("max_log_var")?, min: read("min_log_var")? };
        let scaler = Scaler::from_tensors("scaler.", from, self.rows.obs_dim() + self.rows.act_dim())?;
        let counts = from.u64("state", 5)?;
        self.state = State {
            updates: counts[0],
            epoch: counts[1],
            position: counts[2],
            stale: counts[3],
            finished: counts[4] != 0,
            loss_sum: from.f64("loss_sum", 1)?[0],
            best_error: from.f64("best_error", members)?,
            last_error: from.f64("last_error", members)?,
        };
        (self.stack, self.best, self.bounds, self.scaler) = (stack, best, bounds, scaler);
        self.draw_order();
        Ok(())
    }

    fn end_epoch(&mut self) -> Result<FitProgress> {
        let batches = self.state.position;
        self.state.last_error = holdout_error(
            &self.stack,
            (&self.scaler, self.targets.as_ref()),
            self.rows,
            &self.held,
            &self.pool,
        );
        self.state.epoch += 1;
        let mut improved = false;
        for member in 0..self.cfg.members {
            let (error, best) = (self.state.last_error[member], self.state.best_error[member]);
            if !error.is_finite() {
                return Err(invalid!(
                    "the model's hold-out error became {error} for member {member} after epoch {}; lower \
                     model.ensemble.lr",
                    self.state.epoch
                ));
            }
            // The first epoch always counts: nothing was kept before.
            if best.is_infinite() || (best - error) / best > self.cfg.improvement {
                self.best.copy_weights(member, &self.stack, member);
                self.state.best_error[member] = error;
                improved = true;
            }
        }
        self.state.stale = if improved { 0 } else { self.state.stale + 1 };
        let s = &self.state;
        self.state.finished = s.stale >= self.cfg.patience as u64
            || self.cfg.max_epochs.is_some_and(|most| s.epoch >= most as u64)
            || self.cfg.max_updates.is_some_and(|most| s.updates >= most);
        let progress = self.progress(true, batches);
        self.state.position = 0;
        self.state.loss_sum = 0.0;
        self.draw_order();
        Ok(progress)
    }

    fn progress(&self, epoch_ended: bool, batches: u64) -> FitProgress {
        let s = &self.state;
        let known = |errors: &[f64]| if errors[0].is_finite() { errors.to_vec() } else { Vec::new() };
        let updates_per_epoch = self.train.len().div_ceil(self.cfg.batch_size) as u64;
        let by_epochs = self.cfg.max_epochs.map(|epochs| epochs as u64 * updates_per_epoch);
        FitProgress {
            epoch: s.epoch,
            updates: s.updates,
            updates_per_epoch,
            most_updates: [by_epochs, self.cfg.max_updates].into_iter().flatten().min(),
            loss: s.loss_sum / batches.max(1) as f64,
            holdout: known(&s.last_error),
            best: known(&s.best_error),
            epoch_ended,
            finished: s.finished,
        }
    }

    /// Each member's rows: its own draw with replacement, the same in every epoch, newly shuffled for this one. It
    /// follows from the seed and the epoch alone, so a checkpoint need not hold it.
    fn draw_order(&mut self) {
        let (seed, train, epoch) = (self.seed, &self.train, self.state.epoch);
        let bootstrap = self.cfg.bootstrap;
        let draw = |member: usize| {
            let mut rows = train.clone();
            if bootstrap {
                let mut rng = Rng::stream(seed, "bootstrap", member as u64);
                rows.iter_mut().for_each(|row| *row = train[rng.below(train.len())]);
            }
            let stream = epoch * 1_000_003 + member as u64;
            shuffle(&mut rows, &mut Rng::stream(seed, "model-epoch", stream));
            rows
        };
        self.order.resize(self.cfg.members, Vec::new());
        self.pool.for_each_mut(&mut self.order, |member, order| *order = draw(member));
    }
}
