//! Small networks at the speed of the machine: dense layers, Adam, tanh-Gaussian heads, threads.
//!
//! Everything is preallocated and fused. A gradient step allocates nothing. A layer's bias, activation and slope are
//! applied while its product is in registers. Adam consumes a weight's gradient the moment it is summed.
//! Results are the same bits for any number of threads, because every sum has one fixed order.
//!
//! Two blocks run networks: [`MlpEnsemble::predict`] forward, [`Fitter::step`] forward and back. Losses that need more
//! than one row or network at a time are built on [`Shard`] and [`MlpEnsemble::train`].

mod activations;
mod adam;
mod backward;
mod buffer;
mod jvp;
mod layer;
pub(crate) mod layer_norm;
pub mod math;
pub(crate) mod matmul;
#[cfg(target_arch = "x86_64")]
pub(crate) mod matmul_x86;
mod mlp_ensemble;
mod packed_matrix;
mod peak;
mod scratch_pool;
mod shape;
mod shard;
mod tanh_gaussian;
mod tensors;
#[cfg(test)]
mod tests;
mod thread_pool;
mod weight_gradient;

pub use activations::Activations;
pub use adam::{AdamStep, Scalar};
pub use backward::Transposed;
pub use buffer::{Buf, LANES};
pub use jvp::Jvp;
pub use layer::{Activation, Panel, Weights};
pub use matmul::{Detected, Simd};
pub(crate) use matmul::{Kernel, dispatch};
pub use mlp_ensemble::{Field, Init, Keep, MlpEnsemble, Net, NetMut};
pub use packed_matrix::PackedMatrix;
pub use peak::peak;
pub use scratch_pool::ScratchPool;
pub use shape::Shape;
pub use shard::{Fitter, Shard, TrainStep};
pub use tanh_gaussian::{Noise, TanhGaussianHead};
pub use tensors::Tensors;
pub use thread_pool::ThreadPool;
