//! Distance-preserving embeddings: a random projection, or the randomised network the paper leaves for future work.
//!
//! Searching fewer dimensions is cheaper and no longer exact; [`Embedding::distortion`] measures what it costs.

use offing_knn::{NeighborIndex, Tree, TreeConfig};
use serde::{Deserialize, Serialize};

use crate::batch::Mat;
use crate::error::{Error, Result, require};
use crate::rng::Rng;
use crate::stats;

/// The embedding that SUMO searches in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum EmbeddingConfig {
    /// x ↦ Wx/√dim with standard normal W (Johnson & Lindenstrauss): squared distances are right on average.
    Projection {
        /// Dimensions to search in.
        dim: usize,
        /// Seed of W.
        #[serde(default)]
        seed: u64,
    },
    /// A network with random weights that are never trained: x ↦ W₂·leaky(W₁x + b), leaky(z) = max(z, z/2). Leaky
    /// units keep it one-to-one in distribution; its scale makes squared distances right on average near the data.
    Network {
        /// Dimensions to search in.
        dim: usize,
        /// Hidden units.
        #[serde(default = "hidden")]
        hidden: usize,
        /// Seed of the weights.
        #[serde(default)]
        seed: u64,
    },
}

/// Weights of a layer, 128 MB: a search in more dimensions than such a layer has would be cheaper without it.
const MAX_WEIGHTS: usize = 1 << 24;

fn hidden() -> usize {
    256
}

impl EmbeddingConfig {
    /// Finds sizes that cannot work.
    pub(super) fn validate(&self) -> Result<()> {
        let (dim, hidden) = match *self {
            Self::Projection { dim, .. } => (dim, 1),
            Self::Network { dim, hidden, .. } => (dim, hidden),
        };
        require!(
            dim > 0 && hidden > 0,
            "embedding: wanted dim and hidden of at least 1, found {dim} and {hidden}"
        );
        Ok(())
    }
}

/// An embedding with its weights, a function of its configuration and the input's width alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "EmbeddingSpec", into = "EmbeddingSpec")]
pub struct Embedding {
    spec: EmbeddingSpec,
    /// Input-major weights of each layer.
    layers: Vec<RandomLayer>,
}

/// What an embedding is made from; what is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct EmbeddingSpec {
    config: EmbeddingConfig,
    inputs: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct RandomLayer {
    weight: Vec<f64>,
    bias: Vec<f64>,
}

/// How an embedding changes distances: ratios of embedded to true distance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distortion {
    /// Pairs measured.
    pub pairs: usize,
    /// Mean ratio.
    pub mean: f64,
    /// Deviation of the ratio.
    pub std: f64,
    /// Smallest ratio.
    pub min: f64,
    /// Largest ratio.
    pub max: f64,
    /// Rank correlation of true and embedded distance.
    pub spearman: f64,
    /// Of the rows tried, how many keep their nearest neighbour.
    pub same_neighbor: f64,
}

impl Embedding {
    /// Draws the weights for inputs of `inputs` columns.
    pub fn new(config: &EmbeddingConfig, inputs: usize) -> Result<Self> {
        let spec = EmbeddingSpec { config: config.clone(), inputs };
        let (sizes, seed) = match *config {
            EmbeddingConfig::Projection { dim, seed } => (vec![inputs, dim], seed),
            EmbeddingConfig::Network { dim, hidden, seed } => (vec![inputs, hidden, dim], seed),
        };
        require!(!sizes.contains(&0), "embedding: wanted at least one of each, found sizes {sizes:?}");
        let weights = sizes.windows(2).map(|pair| pair[0].saturating_mul(pair[1])).max().unwrap_or(0);
        require!(
            weights <= MAX_WEIGHTS,
            "embedding: wanted at most {MAX_WEIGHTS} weights a layer, found sizes {sizes:?}"
        );
        let mut rng = Rng::stream(seed, "embedding", 0);
        let mut layers = Vec::new();
        for (l, pair) in sizes.windows(2).enumerate() {
            // E[leaky'(z)²] = (1 + 1/4)/2 for half of the units on each side.
            let gain: f64 = if l == 0 { 1.0 } else { 1.0 / 0.625 };
            let scale = (gain / pair[1] as f64).sqrt();
            let weight = (0..pair[0] * pair[1]).map(|_| scale * rng.normal()).collect();
            let first_of_network = l + 2 < sizes.len();
            let bias =
                (0..pair[1]).map(|_| if first_of_network { scale * rng.normal() } else { 0.0 }).collect();
            layers.push(RandomLayer { weight, bias });
        }
        Ok(Self { spec, layers })
    }

    /// What it was made from.
    pub(super) fn config(&self) -> &EmbeddingConfig {
        &self.spec.config
    }

    /// Width of a point to embed.
    pub(super) fn inputs(&self) -> usize {
        self.spec.inputs
    }

    /// Width of an embedded point.
    pub fn dim(&self) -> usize {
        self.layers.last().map_or(self.spec.inputs, |l| l.bias.len())
    }

    /// Embeds points, one a row. A row's result depends on that row alone.
    pub fn apply(&self, points: &Mat) -> Mat {
        let mut out = Mat::zeros((points.nrows(), self.dim()));
        let (mut now, mut next) = (Vec::new(), Vec::new());
        for (from, mut to) in points.rows().into_iter().zip(out.rows_mut()) {
            now.clear();
            now.extend(from.iter().map(|&x| f64::from(x)));
            for (l, layer) in self.layers.iter().enumerate() {
                if l > 0 {
                    now.iter_mut().for_each(|z| *z = z.max(0.5 * *z));
                }
                next.clone_from(&layer.bias);
                for (x, row) in now.iter().zip(layer.weight.chunks_exact(layer.bias.len())) {
                    next.iter_mut().zip(row).for_each(|(y, w)| *y += x * w);
                }
                std::mem::swap(&mut now, &mut next);
            }
            to.iter_mut().zip(&now).for_each(|(to, x)| *to = *x as f32);
        }
        out
    }

    /// Measures ratios of distances over random pairs and nearest neighbours among `rows` of the points.
    pub fn distortion(&self, points: &Mat, rows: usize, rng: &mut Rng) -> Result<Distortion> {
        let n = points.nrows();
        let chosen: Vec<usize> = (0..rows.min(n)).map(|_| rng.below(n)).collect();
        let sample = points.select(ndarray::Axis(0), &chosen);
        let image = self.apply(&sample);
        let nearest = |m: &Mat| Tree::new(&TreeConfig::default(), m.view()).and_then(|t| t.search_self(1));
        let (near, near_image) = (nearest(&sample)?, nearest(&image)?);
        let distance = |m: &Mat, i: usize, j: usize| {
            let sum: f64 = m.row(i).iter().zip(m.row(j)).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            sum.sqrt()
        };
        let (mut truth, mut embedded) = (Vec::new(), Vec::new());
        for i in 0..sample.nrows() {
            for j in [near.ids[[i, 0]] as usize, rng.below(sample.nrows())] {
                let d = distance(&sample, i, j);
                if d > 0.0 {
                    truth.push(d);
                    embedded.push(distance(&image, i, j));
                }
            }
        }
        require!(truth.len() >= 2, "embedding: wanted rows that differ, found copies of one row");
        let ratio: Vec<f64> = truth.iter().zip(&embedded).map(|(d, e)| e / d).collect();
        let mean = ratio.iter().sum::<f64>() / ratio.len() as f64;
        let var = ratio.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / ratio.len() as f64;
        let same = near.ids.iter().zip(&near_image.ids).filter(|(a, b)| a == b).count();
        Ok(Distortion {
            pairs: ratio.len(),
            mean,
            std: var.sqrt(),
            min: ratio.iter().copied().fold(f64::INFINITY, f64::min),
            max: ratio.iter().copied().fold(0.0, f64::max),
            spearman: stats::spearman(&truth, &embedded),
            same_neighbor: same as f64 / sample.nrows() as f64,
        })
    }
}

impl TryFrom<EmbeddingSpec> for Embedding {
    type Error = Error;
    fn try_from(spec: EmbeddingSpec) -> Result<Self> {
        Self::new(&spec.config, spec.inputs)
    }
}

impl From<Embedding> for EmbeddingSpec {
    fn from(embedding: Embedding) -> Self {
        embedding.spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_right_on_average_and_the_error_shrinks_with_dimensions() {
        let mut rng = Rng::stream(0, "points", 0);
        // Forty columns that really are a bent eight-dimensional sheet.
        let hidden = Mat::from_shape_fn((1500, 8), |_| rng.normal() as f32);
        let weight = Mat::from_shape_fn((8, 40), |_| rng.normal() as f32);
        let points = hidden.dot(&weight).mapv(|x| x + x.sin());
        for network in [false, true] {
            let mut spread = Vec::new();
            for dim in [8, 32] {
                let cfg = if network {
                    EmbeddingConfig::Network { dim, hidden: 256, seed: 1 }
                } else {
                    EmbeddingConfig::Projection { dim, seed: 1 }
                };
                let found = Embedding::new(&cfg, 40).unwrap().distortion(&points, 1000, &mut rng).unwrap();
                assert!((found.mean - 1.0).abs() < 0.2, "{cfg:?} {found:?}");
                assert!(found.spearman > if dim == 8 { 0.6 } else { 0.85 }, "{cfg:?} {found:?}");
                spread.push(found.std / found.mean);
            }
            assert!(spread[1] < 0.75 * spread[0], "{spread:?}");
        }
    }

    #[test]
    fn it_comes_back_from_its_recipe() {
        let cfg = EmbeddingConfig::Network { dim: 5, hidden: 16, seed: 3 };
        let made = Embedding::new(&cfg, 7).unwrap();
        let back: Embedding = serde_json::from_str(&serde_json::to_string(&made).unwrap()).unwrap();
        assert_eq!(made, back);
        assert!(Embedding::new(&EmbeddingConfig::Projection { dim: 0, seed: 0 }, 7).is_err());
        assert!(serde_json::from_str::<EmbeddingConfig>(r#"{"kind":"projection","dim":3,"sed":1}"#).is_err());
    }
}
