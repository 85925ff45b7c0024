//! The policy π(a|s): a ReLU network with a tanh-squashed Gaussian on top. Policies of other learners, with tanh units or
//! a clipped Gaussian, can be loaded, evaluated and exported too.

use ndarray::{Array1, ArrayView2};

use crate::batch::Mat;
use crate::error::{Error, Result, invalid};
use crate::nn::{
    Activation, Activations, Field, Init, Keep, MlpEnsemble, Noise, PackedMatrix, ScratchPool, Shape,
    TanhGaussianHead, Tensors, ThreadPool, Weights,
};
use crate::policy::{MeanPolicy, Policy};
use crate::reach::Reach;
use crate::rng::Rng;
use crate::units::ActionRange;

/// Rows a thread takes at once: their activations fit the second-level cache.
const CHUNK: usize = 120;

/// A policy that can act for one observation or a batch, with noise or without.
#[derive(Clone, Debug)]
pub struct Actor {
    pub(crate) net: MlpEnsemble,
    act_dim: usize,
    log_std: [f32; 2],
    /// Actions are a plain Gaussian's, clipped to [-1, 1].
    clipped: bool,
    /// What −1 and 1 stand for outside, where they stand for something else.
    range: Option<ActionRange>,
    scratch: ScratchPool<Scratch>,
}

#[derive(Debug)]
struct Scratch {
    obs: PackedMatrix,
    trace: Activations,
    head: TanhGaussianHead,
}

impl Actor {
    /// A fresh policy.
    pub fn new(obs_dim: usize, act_dim: usize, hidden: &[usize], log_std: [f32; 2], rng: &mut Rng) -> Self {
        let shape = Shape::new(obs_dim, hidden, 2 * act_dim, Activation::Relu);
        let net = MlpEnsemble::new(shape, 1, Init::Uniform, Keep::Moments, rng);
        Self { net, act_dim, log_std, clipped: false, range: None, scratch: ScratchPool::default() }
    }

    /// The same weights with or without layer normalisation of the hidden layers (linear, normalisation, activation). For a fresh
    /// policy: to one that has learnt, it is another function.
    #[must_use]
    pub fn with_layer_norm(mut self, layer_norm: bool) -> Self {
        self.net = self.net.with_layer_norm(layer_norm);
        self
    }

    /// A policy whose network gives all μ, then all log σ. Weights that are not finite are an error.
    pub(crate) fn from_net(net: MlpEnsemble, log_std: [f32; 2], clipped: bool) -> Result<Self> {
        if net.not_finite().is_some() {
            return Err(invalid!("policy: wanted finite weights, found NaN or infinite ones"));
        }
        let act_dim = net.shape().outputs(net.shape().layers() - 1) / 2;
        Ok(Self { net, act_dim, log_std, clipped, range: None, scratch: ScratchPool::default() })
    }

    /// Starts a fresh policy's mean action at the mean of `act`. From 0, cloning actions that lie near a bound overshoots into the
    /// flat end of tanh and stays there.
    #[must_use]
    pub fn centred_on(mut self, act: &Mat) -> Self {
        const NEAR_BOUND: f32 = 0.999;
        let last = self.net.shape().layers() - 1;
        let (weight, mut bias) = self.net.get(0, last, Field::Weight);
        for (bias, column) in bias.iter_mut().zip(act.columns()) {
            let mean = column.iter().map(|&a| f64::from(a)).sum::<f64>() / column.len().max(1) as f64;
            *bias += (mean as f32).clamp(-NEAR_BOUND, NEAR_BOUND).atanh();
        }
        self.net.set(0, last, Field::Weight, &weight, &bias);
        self
    }

    /// Width of an observation.
    pub fn obs_dim(&self) -> usize {
        self.net.shape().inputs(0)
    }

    /// Width of an action.
    pub fn act_dim(&self) -> usize {
        self.act_dim
    }

    /// Clamp of log σ.
    pub fn log_std(&self) -> [f32; 2] {
        self.log_std
    }

    /// Whether actions are a plain Gaussian's, clipped to [-1, 1], rather than squashed by tanh.
    pub fn clipped(&self) -> bool {
        self.clipped
    }

    /// What −1 and 1 stand for, where actions have units of their own. [`Policy::act`], saved files and ONNX speak those;
    /// batches of actions stay within [−1, 1], as learners want them.
    pub fn action_range(&self) -> Option<&ActionRange> {
        self.range.as_ref()
    }

    /// The same policy with actions of such units.
    #[must_use]
    pub fn with_action_range(mut self, range: Option<ActionRange>) -> Self {
        self.range = range;
        self
    }

    /// Activation of the hidden units.
    pub fn units(&self) -> Activation {
        self.net.shape().activation()
    }

    /// Whether the hidden layers are normalised.
    pub fn layer_norm(&self) -> bool {
        self.net.shape().layer_norm()
    }

    /// Actions for a batch and their log-densities. Row i's noise depends on the noise's key and i alone.
    pub fn sample(
        &self,
        pool: &ThreadPool,
        obs: ArrayView2<'_, f32>,
        noise: Noise<'_>,
    ) -> (Mat, Array1<f32>) {
        self.sample_each(pool, obs, &[noise]).remove(0)
    }

    /// Several actions for each row of a batch, one for each noise, from one pass through the network.
    pub fn sample_each(
        &self,
        pool: &ThreadPool,
        obs: ArrayView2<'_, f32>,
        noises: &[Noise<'_>],
    ) -> Vec<(Mat, Array1<f32>)> {
        let (rows, width) = (obs.nrows(), self.act_dim);
        assert_eq!(obs.ncols(), self.obs_dim(), "observations of the width this actor was made for");
        let mut samples: Vec<_> = noises.iter().map(|_| (vec![0.0; rows * width], vec![0.0; rows])).collect();
        let mut chunks: Vec<Vec<_>> = (0..rows.div_ceil(CHUNK)).map(|_| Vec::new()).collect();
        for (act, log_prob) in &mut samples {
            let parts = act.chunks_mut(CHUNK * width).zip(log_prob.chunks_mut(CHUNK));
            chunks.iter_mut().zip(parts).for_each(|(chunk, part)| chunk.push(part));
        }
        pool.for_each_mut(&mut chunks, |i, chunk| {
            let (first, rows) = (i * CHUNK, CHUNK.min(rows - i * CHUNK));
            self.with_scratch(rows, |s| {
                s.obs.load(obs, first, rows, 0);
                s.trace.forward(self.net.net(0), Weights::Current, &s.obs, rows);
                for ((act, log_prob), noise) in chunk.iter_mut().zip(noises) {
                    s.head.sample(self.net.simd(), &s.trace.out, rows, *noise, first);
                    act.copy_from_slice(&s.head.act[..rows * width]);
                    log_prob.copy_from_slice(&s.head.log_prob[..rows]);
                }
            });
        });
        let matrix = |act| Mat::from_shape_vec((rows, width), act).expect("one action a row was written");
        samples.into_iter().map(|(act, log_prob)| (matrix(act), Array1::from_vec(log_prob))).collect()
    }

    /// Actions for a batch, with noise.
    pub fn act_batch(&self, pool: &ThreadPool, obs: &Mat, rng: &mut Rng) -> Mat {
        self.sample(pool, obs.view(), Noise::draw(rng)).0
    }

    /// Actions for a batch, without noise.
    pub fn mean_batch(&self, pool: &ThreadPool, obs: &Mat) -> Mat {
        self.sample(pool, obs.view(), Noise::Zero).0
    }

    fn with_scratch(&self, rows: usize, work: impl FnOnce(&mut Scratch)) {
        let make = |rows: usize| Scratch {
            obs: PackedMatrix::new(rows, self.obs_dim()),
            trace: Activations::forward_only(self.net.shape(), rows),
            head: TanhGaussianHead::new(rows, self.act_dim, self.log_std).clipped(self.clipped),
        };
        self.scratch.with(
            || make(rows),
            |scratch| {
                if scratch.obs.capacity() < rows {
                    *scratch = make(CHUNK);
                }
                work(scratch);
            },
        );
    }

    fn act_one(&self, obs: &[f32], noise: Noise<'_>, act: &mut [f32]) {
        assert_eq!(obs.len(), self.obs_dim(), "an observation of the width this actor was made for");
        self.with_scratch(1, |s| {
            s.obs.load_row(0, obs, 0);
            s.trace.forward(self.net.net(0), Weights::Current, &s.obs, 1);
            s.head.sample(self.net.simd(), &s.trace.out, 1, noise, 0);
            act.copy_from_slice(&s.head.act[..self.act_dim]);
        });
        if let Some(range) = &self.range {
            range.outward_one(act);
        }
    }

    /// The weights alone, named as policies are stored: `hidden.<i>.*`, `mean.*`, `log_std.*`; and `tanh_units`, `layer_norm`,
    /// `clipped`, `action_low` and `action_high` for a policy that has these.
    pub fn to_policy(&self) -> Tensors {
        let mut out = Tensors::default();
        let (shape, last) = (self.net.shape(), self.net.shape().layers() - 1);
        for l in 0..=last {
            let (weight, bias) = self.net.get(0, l, Field::Weight);
            let (inputs, outputs) = (shape.inputs(l), shape.outputs(l));
            let mut put = |name: String, weight: &[f32], bias: &[f32]| {
                out.put_f32(format!("{name}.weight"), &[bias.len(), inputs], weight.to_vec());
                out.put_f32(format!("{name}.bias"), &[bias.len()], bias.to_vec());
            };
            if l < last {
                put(format!("hidden.{l}"), &weight, &bias);
            } else {
                let half = outputs / 2;
                put("mean".into(), &weight[..half * inputs], &bias[..half]);
                put("log_std".into(), &weight[half * inputs..], &bias[half..]);
            }
        }
        out.put_f32("log_std_range", &[2], self.log_std.to_vec());
        if let Some(ActionRange { low, high }) = &self.range {
            out.put_f32("action_low", &[self.act_dim], low.clone());
            out.put_f32("action_high", &[self.act_dim], high.clone());
        }
        for (name, set) in [
            ("tanh_units", self.units() == Activation::Tanh),
            ("layer_norm", self.layer_norm()),
            ("clipped", self.clipped),
        ] {
            if set {
                out.put_u64(name, &[1]);
            }
        }
        out
    }

    /// Reads what [`Actor::to_policy`] wrote; a file without `log_std_range` has the usual [-20, 2].
    pub fn from_policy(tensors: &Tensors) -> Result<Self> {
        let size = |name: &str, axis: usize| {
            // A matrix with entries: its sides are then no larger than its file, whatever a header says.
            let matrix = tensors.shape(name).filter(|s| s.len() == 2 && !s.contains(&0));
            matrix.map(|s| s[axis]).ok_or_else(|| {
                invalid!(
                    "tensor `{name}`: wanted a matrix with entries, found none; the file is not a policy"
                )
            })
        };
        let count = (0..).take_while(|l| tensors.shape(&format!("hidden.{l}.weight")).is_some()).count();
        let hidden: Result<Vec<usize>> = (0..count).map(|l| size(&format!("hidden.{l}.weight"), 0)).collect();
        let hidden = hidden?;
        let obs_dim = size(if count == 0 { "mean.weight" } else { "hidden.0.weight" }, 1)?;
        let act_dim = size("mean.weight", 0)?;
        let log_std = match tensors.shape("log_std_range") {
            Some(_) => {
                let range = tensors.f32("log_std_range", &[2])?;
                let [low, high] = [range[0], range[1]];
                if !(low <= high && low.is_finite() && high.is_finite()) {
                    return Err(invalid!(
                        "tensor `log_std_range`: wanted a lower and an upper bound, found {low} and {high}"
                    ));
                }
                [low, high]
            }
            None => [-20.0, 2.0],
        };
        let flag = |name: &str| match tensors.shape(name) {
            Some(_) => Ok::<bool, Error>(tensors.u64(name, 1)?[0] != 0),
            None => Ok(false),
        };
        let units = if flag("tanh_units")? { Activation::Tanh } else { Activation::Relu };
        let shape = Shape::new(obs_dim, &hidden, 2 * act_dim, units).with_layer_norm(flag("layer_norm")?);
        // All tensors are found and fit each other before room for a network of these sizes is made.
        let (mut layers, mut reach) = (Vec::new(), Reach::default());
        for l in 0..=count {
            let (inputs, outputs) = (shape.inputs(l), shape.outputs(l));
            let names =
                if l < count { vec![format!("hidden.{l}")] } else { vec!["mean".into(), "log_std".into()] };
            let (mut weight, mut bias) = (Vec::new(), Vec::new());
            for name in &names {
                let outputs = outputs / names.len();
                weight.extend(tensors.f32(&format!("{name}.weight"), &[outputs, inputs])?);
                bias.extend(tensors.f32(&format!("{name}.bias"), &[outputs])?);
            }
            let sums = weight.chunks_exact(inputs).map(|row| row.iter().map(|w| f64::from(w.abs())).sum());
            reach.layer(&sums.collect::<Vec<f64>>(), &bias);
            if l < count && (units == Activation::Tanh || shape.layer_norm()) {
                reach.settle(outputs);
            }
            layers.push((weight, bias));
        }
        if !reach.is_finite() {
            return Err(invalid!(
                "policy: wanted weights that ordinary observations do not drive to infinity, found larger ones; train it again"
            ));
        }
        let mut net = MlpEnsemble::zeros(shape, 1, Keep::Moments);
        for (l, (weight, bias)) in layers.iter().enumerate() {
            net.set(0, l, Field::Weight, weight, bias);
        }
        let mut actor = Self::from_net(net, log_std, flag("clipped")?)?;
        if tensors.shape("action_low").is_some() {
            let [low, high] = ["action_low", "action_high"].map(|name| tensors.f32(name, &[act_dim]));
            actor.range = Some(ActionRange { low: low?, high: high? });
        }
        Ok(actor)
    }
}

impl Policy for Actor {
    fn act(&self, obs: &[f32], rng: &mut Rng, act: &mut [f32]) {
        self.act_one(obs, Noise::draw(rng), act);
    }
}

impl MeanPolicy for Actor {
    fn mean_act(&self, obs: &[f32], act: &mut [f32]) {
        self.act_one(obs, Noise::Zero, act);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Deterministic;

    fn actor() -> Actor {
        Actor::new(5, 3, &[32, 20], [-5.0, 2.0], &mut Rng::stream(1, "actor", 0))
    }

    #[test]
    fn one_row_and_a_batch_agree_and_noise_matters() {
        let actor = actor();
        let mut rng = Rng::stream(2, "obs", 0);
        let obs = Mat::from_shape_fn((300, 5), |_| rng.normal() as f32);
        let mean = actor.mean_batch(&ThreadPool::new(2), &obs);
        let mut one = [0.0; 3];
        for row in [0, 119, 120, 299] {
            Deterministic(&actor).act(obs.row(row).as_slice().unwrap(), &mut rng, &mut one);
            assert_eq!(mean.row(row).as_slice().unwrap(), one);
        }
        let noise = Noise::Key(5);
        let (a, log_prob) = actor.sample(&ThreadPool::new(1), obs.view(), noise);
        let (b, _) = actor.sample(&ThreadPool::new(3), obs.view(), noise);
        assert_eq!(a, b, "threads change nothing");
        assert_ne!(a, mean);
        let both = actor.sample_each(&ThreadPool::new(2), obs.view(), &[Noise::Zero, noise]);
        assert_eq!((&both[0].0, &both[1].0), (&mean, &a), "one pass serves several noises");
        assert!(a.iter().all(|x| x.abs() <= 1.0) && log_prob.iter().all(|p| p.is_finite()));
    }

    #[test]
    fn a_saved_policy_acts_alike_here_and_in_the_policy_module() {
        let actor = actor();
        let bytes = actor.to_policy().to_bytes().unwrap();
        let back = Actor::from_policy(&Tensors::from_bytes(&bytes).unwrap()).unwrap();
        let plain = crate::policy::TanhGaussian::from_bytes(&bytes, std::path::Path::new("p")).unwrap();
        let obs = [0.3, -1.0, 2.0, 0.0, 0.5];
        let (mut a, mut b, mut c) = ([0.0; 3], [0.0; 3], [0.0; 3]);
        let mut rng = Rng::stream(0, "x", 0);
        Deterministic(&actor).act(&obs, &mut rng, &mut a);
        Deterministic(&back).act(&obs, &mut rng, &mut b);
        Deterministic(&plain).act(&obs, &mut rng, &mut c);
        assert_eq!(a, b);
        assert!(a.iter().zip(&c).all(|(a, c)| (a - c).abs() < 1e-6), "{a:?} {c:?}");
        assert!(Actor::from_policy(&Tensors::default()).is_err());
    }

    #[test]
    fn policies_that_would_abort_or_act_with_nan_are_refused() {
        let refused = |change: &dyn Fn(&mut Tensors)| {
            let mut tensors = actor().to_policy();
            change(&mut tensors);
            let error = Actor::from_policy(&tensors).unwrap_err().to_string();
            let bytes = tensors.to_bytes().unwrap();
            assert!(crate::policy::TanhGaussian::from_bytes(&bytes, std::path::Path::new("p")).is_err());
            assert!(!error.contains('\n'), "{error}");
            error
        };
        let empty = |name: &'static str, shape: [usize; 2]| {
            refused(&move |t: &mut Tensors| t.put_f32(name, &shape, Vec::new()))
        };
        assert!(empty("hidden.1.weight", [1 << 40, 0]).contains("a matrix with entries"));
        assert!(empty("hidden.0.weight", [1 << 62, 0]).contains("a matrix with entries"));
        assert!(empty("mean.weight", [1 << 63, 0]).contains("a matrix with entries"));
        // Each is small; the network between them would have 250,000,000,000 weights.
        let wide = refused(&|t: &mut Tensors| {
            t.put_f32("hidden.0.weight", &[500_000, 1], vec![0.0; 500_000]);
            t.put_f32("hidden.0.bias", &[500_000], vec![0.0; 500_000]);
            t.put_f32("hidden.1.weight", &[500_000, 1], vec![0.0; 500_000]);
        });
        assert!(wide.contains("hidden.1.weight"), "{wide}");
        let range = refused(&|t: &mut Tensors| t.put_f32("log_std_range", &[2], vec![2.0, -5.0]));
        assert!(range.contains("found 2 and -5"), "{range}");
        refused(&|t: &mut Tensors| t.put_f32("log_std_range", &[2], vec![f32::NAN, 2.0]));
        let huge = refused(&|t: &mut Tensors| t.put_f32("hidden.1.weight", &[20, 32], vec![1e35; 640]));
        assert!(huge.contains("infinity"), "{huge}");
    }

    #[test]
    fn tanh_units_normalisation_and_a_clip_survive_a_file_and_act_alike_in_the_policy_module() {
        let flags = ["tanh_units", "layer_norm", "clipped"];
        for chosen in [vec![0, 2], vec![1], vec![0, 1, 2]] {
            let mut tensors = actor().to_policy();
            chosen.iter().for_each(|&flag| tensors.put_u64(flags[flag], &[1]));
            acts_alike(&tensors);
        }
        let normalised = actor().with_layer_norm(true);
        assert!(normalised.layer_norm() && !actor().layer_norm());
        assert!(normalised.to_policy().shape("layer_norm").is_some(), "the file says so");
        assert!(actor().to_policy().shape("layer_norm").is_none(), "files without are what they were");
        let obs = Mat::ones((1, 5));
        let act = |actor: Actor| actor.mean_batch(&ThreadPool::new(1), &obs);
        assert_ne!(act(normalised), act(actor()));
    }

    /// The policy of these tensors acts alike from a file, on one row, on a batch, and in the policy module.
    fn acts_alike(tensors: &Tensors) {
        let policy = Actor::from_policy(tensors).unwrap();
        assert_eq!(policy.to_policy(), *tensors);
        let bytes = tensors.to_bytes().unwrap();
        let plain = crate::policy::TanhGaussian::from_bytes(&bytes, std::path::Path::new("p")).unwrap();
        let obs = Mat::from_shape_fn((50, 5), |(i, j)| (i as f32 - 25.0) * (j as f32 - 2.0) * 0.3);
        let mut rng = Rng::stream(0, "x", 0);
        let (mut one, mut other) = ([0.0; 3], [0.0; 3]);
        let mean = policy.mean_batch(&ThreadPool::new(1), &obs);
        for (row, mean) in obs.rows().into_iter().zip(mean.rows()) {
            Deterministic(&policy).act(row.as_slice().unwrap(), &mut rng, &mut one);
            Deterministic(&plain).act(row.as_slice().unwrap(), &mut rng, &mut other);
            assert_eq!(mean.as_slice().unwrap(), one);
            assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-6), "{one:?} {other:?}");
        }
        let (acts, log_prob) = policy.sample(&ThreadPool::new(1), obs.view(), Noise::Key(1));
        assert!(acts.iter().any(|a| a.abs() == 1.0) || !policy.clipped(), "some are cut");
        assert!(acts.iter().all(|a| a.abs() <= 1.0) && log_prob.iter().all(|p| p.is_finite()));
    }
}
