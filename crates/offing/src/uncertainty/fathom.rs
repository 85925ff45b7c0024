//! Fathom: ask the data itself what follows (s, a), and score how far the model's answer is from it. Our own, beyond the
//! paper; search-based like SUMO, but it predicts.
//!
//! *Before use*: z-score (s, a); at 1500 random rows fit a ridge-linear map of Δs = s' − s on the 50 nearest rows; its
//! slopes B_i say which directions matter, G = mean B_iB_iᵀ with eigenvalues of at least 1e-3 of the largest; rows are
//! indexed as x = G^½·z(s, a).
//! *A query*: over its 50 nearest rows, with means x̄, Δ̄ and centred X: A = XᵀX + 0.1·mean(diag XᵀX)·I, B = A⁻¹Xᵀ(Δ − Δ̄),
//! p = Δ̄ + (x − x̄)B, σ² the mean squared residuals, h = (x − x̄)A⁻¹(x − x̄)ᵀ, and
//! **e = √ Σ_j [(ŝ' − s − p)_j² + σ_j²(1 + h)]**, an error in the units of the state.
//!
//! The constants were fixed in a trial on one dataset, before any study (docs/deviations.md); they are not settings.

use std::sync::OnceLock;

use ndarray::Array1;
use offing_knn::{NeighborIndex, Neighbors, Tree};
use serde::{Deserialize, Serialize};

use super::local_fit::{FITS, LocalFits, map_fits};
use super::members::{apply, every_prediction, predict_in_chunks};
use super::mixture_std::MixtureStdConfig;
use super::space::{Distance, SearchVector, moments, standardise, tree_config};
use super::stored_fits::StoredFits;
use super::sumo::{Sumo, SumoConfig};
use super::{BuildContext, EstimatorConfig, Uncertainty, finite};
use crate::batch::{Batch, Mat};
use crate::dynamics::{DynamicsModel, EnsembleConfig, Members, ModelStep};
use crate::error::{Result, invalid, require};
use crate::linalg::root_floored;
use crate::nn::ThreadPool;
use crate::rng::Rng;

/// Rows of a local fit.
const NEIGHBORS: usize = 50;
/// Local fits behind the metric.
const PROBES: usize = 1500;
/// Smallest eigenvalue of the metric, as a share of the largest.
const FLOOR: f64 = 1e-3;
/// Data rows searched at once for the largest score: their neighbour lists stay small.
const SWEEP: usize = 8192;

/// What the error is combined with, and how it is found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FathomConfig {
    /// What the error e is combined with.
    pub variant: FathomVariant,
    /// Instead of fitting at every query, fit once at this many rows of the data (all, when it has fewer) and use the
    /// nearest row's fit: much cheaper, and .01 to .04 of rank correlation worse in the trial. A fit takes
    /// 4·(d·m + d²/2 + d + 2m) bytes for d = |s| + |a| and m = |s|: 2.9 kB for halfcheetah.
    pub stored: Option<usize>,
    /// Look for the data's largest score among so many rows only: those that SUMO finds loneliest, where the largest score
    /// most likely is, or random ones in the variant without SUMO. The result can be too small, never too large. Without
    /// it, all rows, which takes minutes on a million.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline_rows: Option<usize>,
}

/// The variants of the trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FathomVariant {
    /// e alone (variant A).
    Fit,
    /// √(e·u), u being SUMO's score: search alone, no ensemble (variant B).
    #[default]
    Search,
    /// (e·u·mixture-std)^⅓, which needs every member's prediction (variant C).
    Ensemble,
}

impl FathomConfig {
    /// Finds settings that cannot work for so many rows.
    fn validate_for(&self, rows: usize) -> Result<()> {
        let least = NEIGHBORS + 2;
        require!(rows >= least, "fathom: wanted at least {least} rows of data, found {rows}");
        for (name, value) in [("stored", self.stored), ("baseline_rows", self.baseline_rows)] {
            require!(
                value != Some(0),
                "fathom: wanted {name} of at least 1, found 0; leave it out for all rows"
            );
        }
        Ok(())
    }
}

impl EstimatorConfig for FathomConfig {
    fn validate(&self, rows: usize, _model: &EnsembleConfig) -> Result<()> {
        self.validate_for(rows)
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Uncertainty>> {
        let model = context.model.map(|m| m as &dyn DynamicsModel);
        Ok(Box::new(Fathom::new(self, context.data, model, &context.pool, context.seed)?))
    }
}

/// The estimator.
#[derive(Debug)]
pub struct Fathom {
    variant: FathomVariant,
    whitening: Whitening,
    points: Mat,
    delta: Mat,
    index: Tree,
    stored: Option<StoredFits>,
    /// Missing in variant A.
    sumo: Option<Sumo>,
    /// The data's own mixture deviations, in variant C.
    mixture: Vec<f32>,
    pool: ThreadPool,
    seed: u64,
    baseline_rows: Option<usize>,
    max_score: OnceLock<f32>,
}

impl Fathom {
    /// Learns the metric and indexes the rows of `data`. `model` is needed by the ensemble variant alone.
    pub fn new(
        config: &FathomConfig,
        data: &Batch,
        model: Option<&dyn DynamicsModel>,
        pool: &ThreadPool,
        seed: u64,
    ) -> Result<Self> {
        config.validate_for(data.len())?;
        // Refuses what is not finite, and is needed anyway for variants B and C.
        let sumo = Sumo::new(&SumoConfig::default(), data, pool.threads())?;
        let delta = &data.next_obs - &data.obs;
        let (whitening, points) = Whitening::fit(data, &delta, pool, seed)?;
        let index = tree(&points, pool)?;
        let mixture = match (config.variant, model) {
            (FathomVariant::Ensemble, Some(model)) => mixture(model, data)?,
            (FathomVariant::Ensemble, None) => {
                return Err(invalid!(
                    "fathom: variant = \"ensemble\" wanted a trained ensemble, found none; use variant = \"search\""
                ));
            }
            _ => Vec::new(),
        };
        let mut it = Self {
            variant: config.variant,
            whitening,
            points,
            delta,
            index,
            stored: None,
            sumo: (config.variant != FathomVariant::Fit).then_some(sumo),
            mixture,
            pool: pool.clone(),
            seed,
            baseline_rows: config.baseline_rows,
            max_score: OnceLock::new(),
        };
        it.stored = config.stored.map(|rows| it.store(rows, seed)).transpose()?;
        Ok(it)
    }

    /// The error e of transitions that need not come from a model.
    pub fn error_rows(&self, rows: &Batch) -> Result<Array1<f32>> {
        let (s, a) = (self.delta.ncols(), self.points.ncols() - self.delta.ncols());
        rows.check_widths("rows to score", s, a)?;
        if let Some(row) = (0..rows.len()).find(|&i| rows.next_obs.row(i).iter().any(|x| !x.is_finite())) {
            return Err(invalid!("fathom: `next_obs` of row {row} is not finite"));
        }
        let points = self.whitening.apply(&SearchVector::ObsAct.rows(rows));
        let change = &rows.next_obs - &rows.obs;
        match &self.stored {
            Some(stored) => stored.errors(&points, &change, &self.pool),
            None => {
                let near = self.index.search(points.view(), NEIGHBORS)?;
                Ok(self.errors(&points, &change, &near, None))
            }
        }
    }

    /// e of each row over its neighbours, all but the row's own number when those are given.
    fn errors(&self, points: &Mat, change: &Mat, near: &Neighbors, own: Option<&[usize]>) -> Array1<f32> {
        map_fits(&self.pool, points.nrows(), (points.ncols(), change.ncols()), |fits, first, count| {
            let list = |row: usize| -> Vec<usize> {
                let all = near.ids.row(row).into_iter().map(|&id| id as usize);
                all.filter(|&id| own.map(|o| o[row]) != Some(id)).take(NEIGHBORS).collect()
            };
            let lists: Vec<_> = (first..first + count).map(list).collect();
            fits.compute(&self.points, &self.delta, &lists);
            fits.errors(count, |fit| (points.row(first + fit), change.row(first + fit)))
        })
    }

    fn store(&self, rows: usize, seed: u64) -> Result<StoredFits> {
        let n = self.points.nrows();
        let mut rng = Rng::stream(seed, "fathom.stored", 0);
        let chosen = sample(n, rows, &mut rng);
        let anchors = self.points.select(ndarray::Axis(0), &chosen);
        let near = self.index.search(anchors.view(), NEIGHBORS)?;
        let (d, m) = (self.points.ncols(), self.delta.ncols());
        StoredFits::new(tree(&anchors, &self.pool)?, d, m, &near, (&self.points, &self.delta), &self.pool)
    }

    fn combine(&self, e: f32, u: impl FnOnce() -> f32, mixture: impl FnOnce() -> f32) -> f32 {
        let e = f64::from(e);
        match self.variant {
            FathomVariant::Fit => e as f32,
            FathomVariant::Search => (e * f64::from(u())).sqrt() as f32,
            FathomVariant::Ensemble => (e * f64::from(u()) * f64::from(mixture())).cbrt() as f32,
        }
    }

    /// The largest score of the data's rows, each fitted without itself.
    fn find_max_score(&self) -> Result<f32> {
        let u: Vec<f32> = match &self.sumo {
            None => Vec::new(),
            Some(sumo) => {
                let near = sumo.index.search_self(sumo.config.k)?;
                near.kth().into_iter().map(|d| sumo.score_of(d)).collect()
            }
        };
        let mut largest = 0.0f32;
        // Rows that lie near to one another in the index share most of their search.
        let mut wanted = vec![false; self.points.nrows()];
        self.candidates(&u).into_iter().for_each(|row| wanted[row] = true);
        let order: Vec<usize> =
            self.index.order().iter().map(|&id| id as usize).filter(|&id| wanted[id]).collect();
        for rows in order.chunks(SWEEP) {
            let cut = |m: &Mat| m.select(ndarray::Axis(0), rows);
            let (points, change) = (cut(&self.points), cut(&self.delta));
            let near = self.index.search(points.view(), NEIGHBORS + 1)?;
            for (&row, &e) in rows.iter().zip(&self.errors(&points, &change, &near, Some(rows))) {
                largest = largest.max(self.combine(e, || u[row], || self.mixture[row]));
            }
        }
        Ok(largest)
    }

    /// The rows among which the largest score is looked for.
    fn candidates(&self, u: &[f32]) -> Vec<usize> {
        let n = self.points.nrows();
        match self.baseline_rows {
            Some(count) if count < n && u.is_empty() => {
                sample(n, count, &mut Rng::stream(self.seed, "fathom.baseline", 0))
            }
            Some(count) if count < n => {
                let mut rows: Vec<usize> = (0..n).collect();
                rows.sort_by(|&a, &b| u[b].total_cmp(&u[a]).then(a.cmp(&b)));
                rows.truncate(count);
                rows
            }
            _ => (0..n).collect(),
        }
    }
}

impl Uncertainty for Fathom {
    fn score(&self, step: &ModelStep) -> Result<Array1<f32>> {
        let e = self.error_rows(&step.batch)?;
        let u = self.sumo.as_ref().map(|s| s.score_rows(&step.batch)).transpose()?;
        let mixture = match self.variant {
            FathomVariant::Ensemble => {
                Some(apply(&MixtureStdConfig {}, every_prediction("fathom", step)?, None))
            }
            _ => None,
        };
        let at = |from: &Option<Array1<f32>>, row: usize| from.as_ref().map_or(1.0, |f| f[row]);
        let score = |(row, &e): (usize, &f32)| self.combine(e, || at(&u, row), || at(&mixture, row));
        finite("fathom", e.iter().enumerate().map(score).collect())
    }

    fn needs(&self) -> Members {
        if self.variant == FathomVariant::Ensemble { Members::All } else { Members::One }
    }

    fn max_loo_score(&self) -> f32 {
        let find = || self.find_max_score().expect("the data was searched when it was indexed");
        *self.max_score.get_or_init(find)
    }
}

/// The metric: z-score, then G^½.
#[derive(Debug)]
struct Whitening {
    mean: Vec<f32>,
    /// Row-major: x_i = Σ_j map[i·d + j]·(y_j − mean_j).
    map: Vec<f64>,
}

impl Whitening {
    /// Learns the metric; returns it with the data's points.
    fn fit(data: &Batch, delta: &Mat, pool: &ThreadPool, seed: u64) -> Result<(Self, Mat)> {
        let raw = SearchVector::ObsAct.rows(data);
        let (mean, inverse, _) = moments(&raw);
        let (n, d, m) = (raw.nrows(), raw.ncols(), delta.ncols());
        let mut scaled = raw.clone();
        standardise(&mut scaled, &mean, &inverse);
        let chosen = sample(n, PROBES, &mut Rng::stream(seed, "fathom.metric", 0));
        let probes = scaled.select(ndarray::Axis(0), &chosen);
        let near = tree(&scaled, pool)?.search(probes.view(), NEIGHBORS)?;
        // Summed in one order, whatever the threads.
        let mut gram = vec![0.0; d * d];
        let mut fits = LocalFits::new(d, m);
        let lists: Vec<Vec<usize>> =
            near.ids.rows().into_iter().map(|list| list.iter().map(|&id| id as usize).collect()).collect();
        for lists in lists.chunks(FITS) {
            fits.compute(&scaled, delta, lists);
            (0..lists.len()).for_each(|fit| fits.add_slopes(fit, &mut gram));
        }
        gram.iter_mut().for_each(|g| *g /= chosen.len() as f64);
        require!(
            gram.iter().any(|g| *g > 0.0),
            "fathom: wanted states that change with (s, a), found a dataset whose s' − s never does"
        );
        let mut map = root_floored(gram, d, FLOOR);
        map.iter_mut().enumerate().for_each(|(at, t)| *t *= f64::from(inverse[at % d]));
        let it = Self { mean, map };
        let points = it.apply(&raw);
        Ok((it, points))
    }

    fn apply(&self, raw: &Mat) -> Mat {
        let d = self.mean.len();
        let mut out = Mat::zeros(raw.dim());
        let mut centred = vec![0.0f64; d];
        for (from, mut to) in raw.rows().into_iter().zip(out.rows_mut()) {
            centred.iter_mut().zip(from.iter().zip(&self.mean)).for_each(|(c, (x, m))| *c = f64::from(x - m));
            for (to, row) in to.iter_mut().zip(self.map.chunks_exact(d)) {
                *to = row.iter().zip(&centred).map(|(t, c)| t * c).sum::<f64>() as f32;
            }
        }
        out
    }
}

fn tree(points: &Mat, pool: &ThreadPool) -> Result<Tree> {
    Ok(Tree::new(&tree_config(Distance::Euclidean, pool.threads()), points.view())?)
}

/// `count` different rows of `n` in ascending order; all of them when there are not more.
fn sample(n: usize, count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..n).collect();
    if count < n {
        for i in 0..count {
            rows.swap(i, i + rng.below(n - i));
        }
        rows.truncate(count);
        rows.sort_unstable();
    }
    rows
}

/// The data's own mixture deviations.
fn mixture(model: &dyn DynamicsModel, data: &Batch) -> Result<Vec<f32>> {
    let mut all = Vec::with_capacity(data.len());
    predict_in_chunks(model, data, data.len(), |prediction| {
        all.extend(finite("mixture-std", apply(&MixtureStdConfig {}, prediction, None))?);
        Ok(())
    })?;
    Ok(all)
}

#[cfg(test)]
mod tests;
