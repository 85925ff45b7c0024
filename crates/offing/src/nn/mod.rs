//! Small networks at the speed of the machine: dense layers, Adam, tanh-Gaussian heads, threads.
//!
//! Everything is preallocated and fused: a gradient step allocates nothing, a layer's bias, activation and slope are
//! applied while its product is in registers, and a weight's gradient is consumed by Adam the moment it is summed.
//! Results are the same bits for any number of threads, because every sum has one fixed order.

mod adam;
mod backward;
mod buffer;
mod gaussian;
mod gradient;
mod layer;
pub mod math;
mod matmul;
mod matrix;
mod mlp;
mod peak;
mod pool;
mod shape;
mod jvp;
mod thread_pool;
mod tensors;
#[cfg(test)]
mod tests;
mod activations;

pub use activations::Activations;
pub use adam::{AdamConfig, AdamStep, Scalar};
pub use buffer::{Buf, LANES};
pub use gaussian::{Noise, TanhGaussianHead};
pub use jvp::Jvp;
pub use layer::{Activation, Panel, Weights};
pub use matmul::{Detected, Simd};
pub use matrix::PackedMatrix;
pub(crate) use mlp::TrainStep;
pub use mlp::{Field, Init, Keep, MlpEnsemble, Net};
pub use peak::peak;
pub use pool::ScratchPool;
pub use shape::Shape;
pub use tensors::Tensors;
pub use thread_pool::ThreadPool;
