//! The trained ensemble: predictions by every member, steps by one elite a row.
//!
//! ```
//! use offing::dynamics::{DynamicsModel, Ensemble, EnsembleConfig, Members};
//! use offing::nn::ThreadPool;
//! use offing::{Batch, Mat, Rng};
//! // The state moves by the action, and the reward is the state.
//! let mut rng = Rng::stream(0, "world", 0);
//! let obs = Mat::from_shape_fn((8000, 1), |_| rng.normal() as f32);
//! let act = Mat::from_shape_fn((8000, 1), |_| rng.normal() as f32);
//! let rows = Batch { next_obs: &obs + &act, rew: obs.column(0).to_owned(), done: vec![false; 8000].into(), obs, act };
//! let cfg = EnsembleConfig { hidden: vec![32; 4], max_epochs: Some(30), ..EnsembleConfig::default() };
//! let model = Ensemble::fit(&cfg, &rows, 0, &ThreadPool::new(2), |_, _| Ok(())).unwrap();
//! let step = model.step(&rows.obs, &rows.act, Members::One, &mut rng);
//! let error = (&step.batch.next_obs - &rows.next_obs).mapv(f32::abs).mean().unwrap();
//! assert!(error < 0.3, "{error}");
//! ```

use std::sync::OnceLock;

use ndarray::{Array1, Array3, s};

use super::config::EnsembleConfig;
use super::custom::Correction;
use super::data::{Scaler, TargetScale};
use super::head::{Bounds, Head};
use super::termination::Termination;
use super::trainer::{FitProgress, Trainer};
use super::{DynamicsModel, Members, ModelStep, Prediction, sampled_batch};
use crate::batch::{Batch, Mat};
use crate::error::{Result, invalid, require};
use crate::nn::{
    Activation, Activations, Keep, MlpEnsemble, Noise, PackedMatrix, Scalar, ScratchPool, Shape, Tensors,
    ThreadPool, Transposed, Weights,
};
use crate::rng::Rng;
use crate::units::Units;

/// Rows a thread takes at once: their activations fit the second-level cache.
const CHUNK: usize = 120;

/// A trained ensemble of Gaussian networks over (s' − s, r).
#[derive(Clone, Debug)]
pub struct Ensemble {
    pub(super) stack: MlpEnsemble,
    pub(super) scaler: Scaler,
    pub(super) bounds: Bounds,
    elites: Vec<usize>,
    holdout: Vec<f64>,
    pub(super) pool: ThreadPool,
    scratch: ScratchPool<PredictScratch>,
    /// Of every member, for gradients at the inputs; made when they are first wanted.
    transposed: OnceLock<Vec<Transposed>>,
    /// When an imagined episode ends.
    pub termination: Termination,
    correction: Correction,
    /// Steps take the mean instead of a sample.
    pub deterministic: bool,
}

#[derive(Debug)]
struct PredictScratch {
    x: PackedMatrix,
    trace: Activations,
    head: Head,
}

impl Ensemble {
    /// Trains an ensemble to the end. `progress` is called after every update; it may save the trainer for a later
    /// [`Trainer::load`], and an error it returns ends training.
    pub fn fit(
        cfg: &EnsembleConfig,
        rows: &Batch,
        seed: u64,
        pool: &ThreadPool,
        mut progress: impl FnMut(&FitProgress, &Trainer<'_>) -> Result<()>,
    ) -> Result<Self> {
        let mut trainer = Trainer::new(cfg, rows, seed, pool)?;
        loop {
            let now = trainer.step()?;
            progress(&now, &trainer)?;
            if now.finished {
                return trainer.finish();
            }
        }
    }

    pub(super) fn assemble(
        stack: MlpEnsemble,
        scaler: Scaler,
        bounds: Bounds,
        elites: Vec<usize>,
        holdout: Vec<f64>,
        pool: &ThreadPool,
    ) -> Self {
        Self {
            stack,
            scaler,
            bounds,
            elites,
            holdout,
            pool: pool.clone(),
            scratch: ScratchPool::default(),
            transposed: OnceLock::new(),
            termination: Termination::Never,
            correction: Correction::default(),
            deterministic: false,
        }
    }

    /// Takes new bounds after weights have changed. What was derived from the old ones is made anew.
    pub(super) fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.scratch = ScratchPool::default();
        self.transposed = OnceLock::new();
    }

    /// The transposed weights of every member.
    pub(super) fn transposed(&self) -> &[Transposed] {
        let of = |member| Transposed::of(self.stack.net(member), Weights::Current);
        self.transposed.get_or_init(|| (0..self.stack.nets()).map(of).collect())
    }

    /// The same model with a termination function.
    pub fn with_termination(mut self, termination: Termination) -> Self {
        self.termination = termination;
        self
    }

    /// The same model with its sampled steps changed.
    pub fn with_correction(mut self, correction: Correction) -> Self {
        self.correction = correction;
        self
    }

    /// The same model with its termination rule for steps in standard units.
    pub fn in_units(mut self, units: &Units) -> Self {
        self.termination = self.termination.in_units(units);
        self
    }

    /// The same model with steps made by these members alone; predictions are still everyone's.
    pub fn with_members(mut self, elites: Vec<usize>) -> Self {
        assert!(!elites.is_empty() && elites.iter().all(|&e| e < self.members()), "members of this model");
        self.elites = elites;
        self
    }

    /// Number of members.
    pub fn members(&self) -> usize {
        self.stack.nets()
    }

    /// The members that make steps, best first.
    pub fn elites(&self) -> &[usize] {
        &self.elites
    }

    /// Hold-out mean squared error of each member's chosen weights, in the units of (s' − s, r).
    pub fn holdout(&self) -> &[f64] {
        &self.holdout
    }

    /// Width of a state.
    pub fn obs_dim(&self) -> usize {
        self.bounds.max.len() - 1
    }

    /// Width of an action.
    pub fn act_dim(&self) -> usize {
        self.stack.shape().inputs(0) - self.obs_dim()
    }

    /// The whole model as named tensors (without its termination function, which is configuration).
    pub fn save(&self) -> Tensors {
        let mut out = Tensors::default();
        self.stack.save("model", &mut out);
        self.scaler.save("scaler.", &mut out);
        let values = |bounds: &[Scalar]| bounds.iter().map(|b| b.value).collect::<Vec<_>>();
        out.put_f64("max_log_var", &values(&self.bounds.max));
        out.put_f64("min_log_var", &values(&self.bounds.min));
        let wide: Vec<u64> = self.elites.iter().map(|&e| e as u64).collect();
        out.put_u64("elites", &wide);
        out.put_f64("holdout", &self.holdout);
        out.put_u64("silu", &[u64::from(self.stack.shape().activation() == Activation::Silu)]);
        if self.stack.shape().layer_norm() {
            out.put_u64("layer_norm", &[1]);
        }
        out
    }

    /// Restores weights and bounds that [`Ensemble::save`] gave for this model; its termination function stays.
    pub fn restore(&mut self, from: &Tensors) -> Result<()> {
        let saved = Self::load(from, &self.pool)?;
        require!(
            saved.stack.shape() == self.stack.shape() && saved.members() == self.members(),
            "a model: wanted one of the size in use, found another; the checkpoint belongs to another configuration"
        );
        let (termination, correction) = (self.termination.clone(), self.correction.clone());
        *self = Self { termination, correction, deterministic: self.deterministic, ..saved };
        Ok(())
    }

    /// Reads what [`Ensemble::save`] wrote.
    pub fn load(from: &Tensors, pool: &ThreadPool) -> Result<Self> {
        let size = |name: &str, axis: usize| {
            let size = from.shape(name).and_then(|s| s.get(axis).copied()).filter(|&n| n > 0);
            size.ok_or_else(|| invalid!("tensor `{name}` is missing; the file is not a model"))
        };
        let members = size("holdout", 0)?;
        let layers = (0..).take_while(|l| from.shape(&format!("model.0.{l}.weight")).is_some()).count();
        let sizes: Result<Vec<usize>> =
            (0..layers).map(|l| size(&format!("model.0.{l}.weight"), 0)).collect();
        let (sizes, inputs) = (sizes?, size("model.0.0.weight", 1)?);
        let width = size("max_log_var", 0)?;
        let (&outputs, hidden) =
            sizes.split_last().ok_or_else(|| invalid!("the file has no model layers"))?;
        if outputs != 2 * width || inputs < width {
            return Err(invalid!(
                "a model: wanted {} outputs for {width} bounds, found {outputs} (and {inputs} inputs); the file is damaged",
                2 * width
            ));
        }
        let activation = if from.u64("silu", 1)?[0] != 0 { Activation::Silu } else { Activation::Relu };
        let shape = Shape::new(inputs, hidden, outputs, activation);
        let shape = shape.with_layer_norm(from.shape("layer_norm").is_some());
        let mut stack = MlpEnsemble::zeros(shape, members, Keep::Weights);
        stack.load("model", from)?;
        if let Some((member, l)) = stack.not_finite() {
            return Err(invalid!(
                "tensor `model.{member}.{l}`: wanted finite weights, found NaN or infinite ones; train the model again"
            ));
        }
        let read = |name: &str| -> Result<Vec<Scalar>> {
            Ok(from.f64(name, width)?.into_iter().map(Scalar::new).collect())
        };
        let bounds = Bounds { max: read("max_log_var")?, min: read("min_log_var")? };
        let elites: Vec<usize> =
            from.u64("elites", size("elites", 0)?)?.into_iter().map(|e| e as usize).collect();
        let known = elites.iter().all(|&e| e < members);
        require!(known, "a model: wanted elites below {members}, found {elites:?}");
        let scaler = Scaler::from_tensors("scaler.", from, inputs)?;
        Ok(Self::assemble(stack, scaler, bounds, elites, from.f64("holdout", members)?, pool))
    }

    fn check(&self, obs: &Mat, act: &Mat) {
        assert!(
            obs.ncols() == self.obs_dim() && act.ncols() == self.act_dim() && obs.nrows() == act.nrows(),
            "states and actions of the widths this model was trained on"
        );
    }

    /// Means and deviations of `member` for the rows `rows`, flat, as (s', r).
    fn run(
        &self,
        member: usize,
        obs: &Mat,
        act: &Mat,
        rows: RowIndices<'_>,
        mean: &mut [f32],
        std: &mut [f32],
    ) {
        let width = self.obs_dim() + 1;
        let n = mean.len() / width;
        let make = || {
            let shape = self.stack.shape();
            let mut head = Head::new(CHUNK, width);
            head.set_bounds(&self.bounds);
            PredictScratch {
                x: PackedMatrix::new(CHUNK, shape.inputs(0)),
                trace: Activations::forward_only(shape, CHUNK),
                head,
            }
        };
        self.scratch.with(make, |s| {
            for i in 0..n {
                self.scaler.load(obs, act, rows.at(i), &mut s.x, i);
            }
            s.trace.forward(self.stack.net(member), Weights::Current, &s.x, n);
            s.head.deviations(self.stack.simd(), &s.trace.out, n);
            mean.copy_from_slice(&s.head.mean[..n * width]);
            std.copy_from_slice(&s.head.spread[..n * width]);
            for (i, mean) in mean.chunks_exact_mut(width).enumerate() {
                // The network predicts the change; the reward, last, is not added to.
                mean.iter_mut().zip(obs.row(rows.at(i))).for_each(|(m, s)| *m += s);
            }
        });
    }

    /// What these members predict, in their order.
    pub fn predict_by(&self, chosen: &[usize], obs: &Mat, act: &Mat) -> Prediction {
        self.check(obs, act);
        let (rows, width, members) = (obs.nrows(), self.obs_dim() + 1, chosen.len());
        let (mut mean, mut std) = (vec![0.0; members * rows * width], vec![0.0; members * rows * width]);
        let per_member = (rows * width).max(1);
        let mut pieces = Vec::new();
        for (&member, (mean, std)) in
            chosen.iter().zip(mean.chunks_mut(per_member).zip(std.chunks_mut(per_member)))
        {
            let chunks = mean.chunks_mut(CHUNK * width).zip(std.chunks_mut(CHUNK * width));
            pieces.extend(chunks.enumerate().map(|(i, (mean, std))| (member, i * CHUNK, mean, std)));
        }
        self.pool.for_each_mut(&mut pieces, |_, (member, first, mean, std)| {
            self.run(*member, obs, act, RowIndices::From(*first), mean, std);
        });
        let shape = (members, rows, width);
        let array = |flat| Array3::from_shape_vec(shape, flat).expect("every member wrote every row");
        Prediction { mean: array(mean), std: array(std) }
    }

    /// Means and deviations by the member chosen for each row. Only that member is computed: rows are grouped.
    fn run_chosen(&self, obs: &Mat, act: &Mat, member: &Array1<u32>) -> (Mat, Mat) {
        let (rows, width) = (obs.nrows(), self.obs_dim() + 1);
        let mut grouped: Vec<u32> = (0..rows as u32).collect();
        grouped.sort_by_key(|&row| member[row as usize]);
        let (mut mean, mut std) = (vec![0.0; rows * width], vec![0.0; rows * width]);
        // Pieces of one member and at most CHUNK rows.
        let mut pieces = Vec::new();
        let (mut means, mut stds) = (mean.as_mut_slice(), std.as_mut_slice());
        for group in grouped.chunk_by(|&a, &b| member[a as usize] == member[b as usize]) {
            for piece in group.chunks(CHUNK) {
                let (m, rest) = means.split_at_mut(piece.len() * width);
                let (s, others) = stds.split_at_mut(piece.len() * width);
                (means, stds) = (rest, others);
                pieces.push((piece, m, s));
            }
        }
        self.pool.for_each_mut(&mut pieces, |_, (piece, mean, std)| {
            let chosen = member[piece[0] as usize] as usize;
            self.run(chosen, obs, act, RowIndices::Listed(piece), mean, std);
        });
        let mut out = (Mat::zeros((rows, width)), Mat::zeros((rows, width)));
        for (i, &row) in grouped.iter().enumerate() {
            let from = i * width..(i + 1) * width;
            for (out, flat) in [(&mut out.0, &mean), (&mut out.1, &std)] {
                let mut to = out.row_mut(row as usize);
                to.iter_mut().zip(&flat[from.clone()]).for_each(|(to, x)| *to = *x);
            }
        }
        out
    }
}

impl DynamicsModel for Ensemble {
    fn members(&self) -> usize {
        Ensemble::members(self)
    }

    fn predict(&self, obs: &Mat, act: &Mat) -> Prediction {
        self.predict_by(&(0..self.members()).collect::<Vec<_>>(), obs, act)
    }

    fn done(&self, obs: &Mat, act: &Mat, next_obs: &Mat) -> Array1<bool> {
        self.termination.done(obs, act, next_obs)
    }

    fn draw_members(&self, rows: usize, rng: &mut Rng) -> Array1<u32> {
        (0..rows).map(|_| self.elites[rng.below(self.elites.len())] as u32).collect()
    }

    fn step_by(
        &self,
        member: Array1<u32>,
        obs: &Mat,
        act: &Mat,
        members: Members,
        rng: &mut Rng,
    ) -> ModelStep {
        self.check(obs, act);
        let width = self.obs_dim() + 1;
        let noise = if self.deterministic { Noise::Zero } else { Noise::draw(rng) };
        let (prediction, (mean, std)) = match members {
            Members::One => (None, self.run_chosen(obs, act, &member)),
            Members::All => {
                let prediction = self.predict(obs, act);
                let chosen = prediction.by(&member);
                (Some(prediction), chosen)
            }
        };
        let mut sampled = mean.clone();
        let flat = sampled.as_slice_mut().expect("a fresh matrix is contiguous");
        let mut pieces: Vec<_> = flat.chunks_mut(CHUNK * width).collect();
        self.pool.for_each_mut(&mut pieces, |i, piece| {
            let n = piece.len() / width;
            let mut eps = vec![0.0; piece.len()];
            noise.fill(i * CHUNK, width, &mut eps);
            let std = std.slice(s![i * CHUNK..i * CHUNK + n, ..]);
            for ((x, e), sd) in piece.iter_mut().zip(&eps).zip(std) {
                *x += sd * e;
            }
        });
        self.correction.apply(obs, act, &mut sampled);
        let batch = sampled_batch(self, obs, act, &sampled);
        ModelStep { batch, member, mean, std, prediction }
    }
}

/// Which rows of a batch a piece of work covers.
#[derive(Clone, Copy)]
enum RowIndices<'a> {
    From(usize),
    Listed(&'a [u32]),
}

impl RowIndices<'_> {
    #[inline]
    fn at(&self, i: usize) -> usize {
        match self {
            Self::From(first) => first + i,
            Self::Listed(rows) => rows[i] as usize,
        }
    }
}

/// Mean squared error of each member's means on the rows `held`, over rows and columns of (s' − s, r), in the units that
/// the members learn.
pub(super) fn holdout_error(
    stack: &MlpEnsemble,
    (scaler, targets): (&Scaler, Option<&TargetScale>),
    data: &Batch,
    held: &[u32],
    pool: &ThreadPool,
) -> Vec<f64> {
    let (width, members) = (data.obs_dim() + 1, stack.nets());
    let chunks: Vec<&[u32]> = held.chunks(CHUNK).collect();
    let mut sums = vec![0.0f64; members * chunks.len()];
    pool.for_each_mut(&mut sums, |i, sum| {
        let (member, rows) = (i / chunks.len(), chunks[i % chunks.len()]);
        let mut x = PackedMatrix::new(rows.len(), stack.shape().inputs(0));
        let mut trace = Activations::forward_only(stack.shape(), rows.len());
        for (i, &row) in rows.iter().enumerate() {
            scaler.load(&data.obs, &data.act, row as usize, &mut x, i);
        }
        trace.forward(stack.net(member), Weights::Current, &x, rows.len());
        let mut want = vec![0.0; width];
        for (i, &row) in rows.iter().enumerate() {
            let row = row as usize;
            for (col, want) in want.iter_mut().enumerate() {
                let last = col == width - 1;
                *want = if last { data.rew[row] } else { data.next_obs[[row, col]] - data.obs[[row, col]] };
            }
            targets.into_iter().for_each(|scale| scale.apply(&mut want));
            for (col, want) in want.iter().enumerate() {
                *sum += f64::from(trace.out.get(i, col) - want).powi(2);
            }
        }
    });
    let per_member = sums.chunks_exact(chunks.len());
    per_member.map(|sums| sums.iter().sum::<f64>() / (held.len() * width) as f64).collect()
}
