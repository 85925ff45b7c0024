//! Where neighbours are searched: which columns of a transition, on which scale, by which distance.

use ndarray::{Array1, Array2, s};
use offing_knn::{Metric, Threads, TreeConfig};
use serde::{Deserialize, Serialize};

use super::ScoreGradient;
use super::embedding::{Distortion, Embedding, EmbeddingConfig};
use crate::batch::{Batch, Mat};
use crate::error::{Error, Result, invalid};
use crate::rng::Rng;

/// The search vector: which parts of a transition are put side by side (⊕).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchVector {
    /// s⊕a⊕s', the paper's choice.
    #[default]
    #[serde(rename = "s+a+s'")]
    ObsActNext,
    /// s⊕a (Table 3; the bound of Theorem 1 is proved through it).
    #[serde(rename = "s+a")]
    ObsAct,
    /// s⊕s' (Table 3).
    #[serde(rename = "s+s'")]
    ObsNext,
    /// s⊕a⊕r⊕s' (Table 10).
    #[serde(rename = "s+a+r+s'")]
    ObsActRewNext,
}

/// The distance between two search vectors (Table 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distance {
    /// √Σ(x−y)².
    #[default]
    Euclidean,
    /// Σ|x−y|.
    Manhattan,
    /// 1 − cos(x, y).
    Cosine,
}

/// The scale of the columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColumnScale {
    /// As logged: the paper mentions no scaling.
    #[default]
    Raw,
    /// Mean 0 and deviation 1 over the data. A constant column keeps its scale (its deviation counts as 1), so that
    /// any departure from the one value ever seen still counts.
    Standardised,
}

/// The map from transitions to points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Space {
    pub(super) vector: SearchVector,
    pub(super) obs_dim: usize,
    pub(super) act_dim: usize,
    /// Mean and 1/deviation of each column; `None` for raw columns.
    scale: Option<(Vec<f32>, Vec<f32>)>,
    /// Columns that never change, when standardised.
    pub(super) constant: Vec<usize>,
    embedding: Option<Embedding>,
    /// What the embedding costs in exactness, on a sample of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) distortion: Option<Distortion>,
}

/// Rows on which an embedding is measured.
const MEASURED: usize = 1000;

/// How the points of a search are indexed.
pub(super) fn tree_config(metric: Distance, threads: usize) -> TreeConfig {
    TreeConfig { metric: metric.into(), threads: Threads::Exactly(threads), ..TreeConfig::default() }
}

/// A search's complaint in this library's words.
impl From<offing_knn::Error> for Error {
    fn from(error: offing_knn::Error) -> Self {
        invalid!("neighbour search: {error}")
    }
}

impl From<Distance> for Metric {
    fn from(distance: Distance) -> Self {
        match distance {
            Distance::Euclidean => Self::Euclidean,
            Distance::Manhattan => Self::Manhattan,
            Distance::Cosine => Self::Cosine,
        }
    }
}

impl SearchVector {
    /// Number of columns for states and actions of the given widths.
    pub fn width(self, obs_dim: usize, act_dim: usize) -> usize {
        match self {
            // Saturating: a stranger's card may hold any widths.
            Self::ObsActNext => obs_dim.saturating_mul(2).saturating_add(act_dim),
            Self::ObsAct => obs_dim.saturating_add(act_dim),
            Self::ObsNext => obs_dim.saturating_mul(2),
            Self::ObsActRewNext => obs_dim.saturating_mul(2).saturating_add(act_dim).saturating_add(1),
        }
    }

    /// The search vectors of a batch, one a row, unscaled.
    pub fn rows(self, batch: &Batch) -> Mat {
        let (s, a) = (batch.obs_dim(), batch.act_dim());
        let mut out = Array2::zeros((batch.len(), self.width(s, a)));
        out.slice_mut(s![.., ..s]).assign(&batch.obs);
        let mut at = s;
        if self != Self::ObsNext {
            out.slice_mut(s![.., at..at + a]).assign(&batch.act);
            at += a;
        }
        if self == Self::ObsActRewNext {
            out.column_mut(at).assign(&batch.rew);
            at += 1;
        }
        if self != Self::ObsAct {
            out.slice_mut(s![.., at..]).assign(&batch.next_obs);
        }
        out
    }

    /// What column `col` holds, for messages: `obs[3]`, `act[0]`, `rew`, `next_obs[5]`.
    pub fn column_name(self, col: usize, obs_dim: usize, act_dim: usize) -> String {
        let act = if self == Self::ObsNext { 0 } else { act_dim };
        let rew = usize::from(self == Self::ObsActRewNext);
        match col {
            c if c < obs_dim => format!("obs[{c}]"),
            c if c < obs_dim + act => format!("act[{}]", c - obs_dim),
            c if c < obs_dim + act + rew => "rew".into(),
            c => format!("next_obs[{}]", c - obs_dim - act - rew),
        }
    }
}

impl Space {
    /// The space of the data and its points.
    pub(super) fn fit(
        vector: SearchVector,
        columns: ColumnScale,
        embedding: Option<&EmbeddingConfig>,
        data: &Batch,
    ) -> Result<(Self, Mat)> {
        let (obs_dim, act_dim) = (data.obs_dim(), data.act_dim());
        let mut points = vector.rows(data);
        check(&points, |c| vector.column_name(c, obs_dim, act_dim), "the data")?;
        let (scale, constant) = match columns {
            ColumnScale::Raw => (None, Vec::new()),
            ColumnScale::Standardised => {
                let (mean, inverse, constant) = moments(&points);
                standardise(&mut points, &mean, &inverse);
                (Some((mean, inverse)), constant)
            }
        };
        let embedding = embedding.map(|e| Embedding::new(e, points.ncols())).transpose()?;
        let mut distortion = None;
        if let Some(embedding) = &embedding {
            // Copies of one row have no distances to compare; there is nothing to say about them.
            distortion = embedding.distortion(&points, MEASURED, &mut Rng::stream(0, "distortion", 0)).ok();
            points = embedding.apply(&points);
        }
        Ok((Self { vector, obs_dim, act_dim, scale, constant, embedding, distortion }, points))
    }

    /// Width of a point.
    pub(super) fn dim(&self) -> usize {
        let width = self.vector.width(self.obs_dim, self.act_dim);
        self.embedding.as_ref().map_or(width, Embedding::dim)
    }

    /// Whether this space, which may come from a file, has the parts of its widths and of these settings.
    pub(super) fn agrees_with(
        &self,
        vector: SearchVector,
        columns: ColumnScale,
        embedding: Option<&EmbeddingConfig>,
    ) -> bool {
        let width = self.vector.width(self.obs_dim, self.act_dim);
        let own = self.embedding.as_ref();
        self.vector == vector
            && self.scale.is_some() == (columns == ColumnScale::Standardised)
            && self.scale.iter().all(|(mean, inverse)| mean.len() == width && inverse.len() == width)
            && self.constant.iter().all(|column| *column < width)
            && own.is_none_or(|e| e.inputs() == width)
            && own.map(Embedding::config) == embedding
    }

    /// The points of imagined or logged rows.
    pub(super) fn place(&self, batch: &Batch) -> Result<Mat> {
        let (obs_dim, act_dim) = (self.obs_dim, self.act_dim);
        batch.check_widths("rows to score", obs_dim, act_dim)?;
        let mut points = self.vector.rows(batch);
        check(&points, |c| self.vector.column_name(c, obs_dim, act_dim), "the rows to score")?;
        if let Some((mean, inverse)) = &self.scale {
            standardise(&mut points, mean, inverse);
        }
        Ok(match &self.embedding {
            Some(embedding) => embedding.apply(&points),
            None => points,
        })
    }
}

/// From gradients at points to gradients at transitions; not through an embedding.
impl Space {
    pub(super) fn split_gradient(&self, score: Array1<f32>, mut slopes: Mat) -> ScoreGradient {
        if let Some((_, inverse)) = &self.scale {
            for mut row in slopes.rows_mut() {
                row.iter_mut().zip(inverse).for_each(|(slope, inverse)| *slope *= inverse);
            }
        }
        let (rows, s, a) = (slopes.nrows(), self.obs_dim, self.act_dim);
        let (vector, next) = (self.vector, slopes.ncols().saturating_sub(s));
        let part = |there: bool, from: usize, width: usize| match there {
            true => slopes.slice(s![.., from..from + width]).to_owned(),
            false => Mat::zeros((rows, width)),
        };
        ScoreGradient {
            obs: part(true, 0, s),
            act: part(vector != SearchVector::ObsNext, s, a),
            next_obs: part(vector != SearchVector::ObsAct, next, s),
            score,
        }
    }
}

/// Refuses values that are not finite, by the name of their column.
fn check(points: &Mat, name: impl Fn(usize) -> String, whose: &str) -> Result<()> {
    match points.indexed_iter().find(|(_, x)| !x.is_finite()) {
        None => Ok(()),
        Some(((row, col), x)) => Err(invalid!(
            "{whose}: wanted finite values, found {x} in `{}` of row {row}; leave the column out of the search vector, \
             or drop such rows (`offing data audit` lists them)",
            name(col)
        )),
    }
}

/// Mean, 1/deviation and the constant columns, in f64.
pub(super) fn moments(points: &Mat) -> (Vec<f32>, Vec<f32>, Vec<usize>) {
    let (n, width) = points.dim();
    let (mut mean, mut square) = (vec![0.0f64; width], vec![0.0f64; width]);
    for row in points.rows() {
        mean.iter_mut().zip(row).for_each(|(m, &x)| *m += f64::from(x));
    }
    mean.iter_mut().for_each(|m| *m /= n as f64);
    for row in points.rows() {
        square
            .iter_mut()
            .zip(row.iter().zip(&mean))
            .for_each(|(s, (&x, m))| *s += (f64::from(x) - m).powi(2));
    }
    let mut constant = Vec::new();
    let inverse = square.iter().zip(&mean).enumerate().map(|(col, (square, mean))| {
        let std = (square / n as f64).sqrt();
        if std < 1e-7 * mean.abs().max(1e-30) {
            constant.push(col);
            return 1.0;
        }
        (1.0 / std) as f32
    });
    let inverse = inverse.collect();
    (mean.iter().map(|&m| m as f32).collect(), inverse, constant)
}

pub(super) fn standardise(points: &mut Mat, mean: &[f32], inverse: &[f32]) {
    for mut row in points.rows_mut() {
        row.iter_mut().zip(mean.iter().zip(inverse)).for_each(|(x, (m, i))| *x = (*x - m) * i);
    }
}
