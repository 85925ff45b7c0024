//! Policies that act in a simulator, one observation at a time.
//!
//! Three traits say how something acts, one for each place:
//!
//! - [`Policy`] acts in a simulator and sees one observation. Evaluation, export and most datasets need no more, so it is
//!   the one to implement for a policy of one's own.
//! - `rollout::BatchPolicy` acts in a learnt model, on a matrix of states at once: what algorithms train.
//! - `Behaviour`, beside the generation of datasets in `data`, may also look at the simulator's state and keep a plan over
//!   an episode. Every policy is one.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};

use crate::checksum::check_tensors;
use crate::error::{Error, Result, bad_file};
use crate::reach::Reach;
use crate::rng::Rng;
use crate::units::ActionRange;

/// Chooses an action for one observation.
///
/// ```
/// use offing::Rng;
/// use offing::env::point_mass::PointMassSimulators;
/// use offing::env::{EnvPool, Physics};
/// use offing::eval::evaluate;
/// use offing::policy::{Policy, UniformPolicy};
///
/// /// Steers towards the origin and brakes.
/// struct Spring;
///
/// impl Policy for Spring {
///     fn act(&self, obs: &[f32], _rng: &mut Rng, act: &mut [f32]) {
///         let (position, velocity) = obs.split_at(2);
///         for ((a, x), v) in act.iter_mut().zip(position).zip(velocity) {
///             *a = -x - v;
///         }
///     }
/// }
///
/// let envs = EnvPool::of_task(&PointMassSimulators, "point-mass", Physics::default());
/// let (ours, chance) = (evaluate(&envs, &Spring, 10, 0)?, evaluate(&envs, &UniformPolicy, 10, 0)?);
/// assert!(ours.mean() > chance.mean());
/// # Ok::<(), offing::Error>(())
/// ```
pub trait Policy: Send + Sync {
    /// Writes the action for `obs` into `act`. Entries beyond ±1 are allowed; what they do is up to the simulator. All
    /// randomness must come from `rng`, so that an evaluation follows from its seed.
    fn act(&self, obs: &[f32], rng: &mut Rng, act: &mut [f32]);
}

/// Every action uniform in [-1, 1): the behaviour of a `random` dataset when no policy is given.
#[derive(Clone, Copy, Debug)]
pub struct UniformPolicy;

impl Policy for UniformPolicy {
    fn act(&self, _obs: &[f32], rng: &mut Rng, act: &mut [f32]) {
        act.iter_mut().for_each(|a| *a = rng.range(-1.0, 1.0) as f32);
    }
}

/// A ReLU network with a tanh-squashed Gaussian on top: a = tanh(μ(s) + σ(s)·ε).
///
/// Stored as safetensors with `hidden.<i>.weight` (out × in), `hidden.<i>.bias`, `mean.*`, `log_std.*`, and optionally
/// `log_std_range`, the clamp of log σ. Three more numbers are optional: `tanh_units` (1: hidden units are tanh, not ReLU)
/// and `clipped` (1: a = μ(s) + σ(s)·ε cut to [-1, 1], not squashed), as natural policy gradient has them, and `layer_norm` (1:
/// hidden layers are normalised before their activation, without a gain and a bias). So are `action_low` and `action_high`,
/// what -1 and 1 stand for: a policy learnt from a log in other units acts in those.
#[derive(Clone, Debug)]
pub struct TanhGaussian {
    hidden: Vec<Layer>,
    mean: Layer,
    log_std: Layer,
    /// Clamp of log σ.
    range: [f32; 2],
    tanh_units: bool,
    layer_norm: bool,
    clipped: bool,
    /// What −1 and 1 stand for, where actions have units of their own.
    action_range: Option<ActionRange>,
}

/// A policy with noise that can act without it.
pub trait MeanPolicy: Policy {
    /// Writes the action for `obs` without noise into `act`.
    fn mean_act(&self, obs: &[f32], act: &mut [f32]);
}

/// A policy without its noise: how a trained policy is scored.
#[derive(Clone, Copy, Debug)]
pub struct Deterministic<'a, P>(pub &'a P);

impl<P: MeanPolicy> Policy for Deterministic<'_, P> {
    fn act(&self, obs: &[f32], _rng: &mut Rng, act: &mut [f32]) {
        self.0.mean_act(obs, act);
    }
}

/// y = W x + b, with W stored input-major so that an input that ReLU set to zero costs nothing.
#[derive(Clone, Debug)]
struct Layer {
    weight: Vec<f32>,
    bias: Vec<f32>,
    inputs: usize,
}

impl Layer {
    fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// Sums inputs in ascending order, so the bits do not depend on the machine or on a batch around this row.
    fn apply(&self, x: &[f32], y: &mut Vec<f32>) {
        y.clear();
        y.extend_from_slice(&self.bias);
        for (&x, weights) in x.iter().zip(self.weight.chunks_exact(self.outputs())) {
            if x != 0.0 {
                y.iter_mut().zip(weights).for_each(|(y, w)| *y += x * w);
            }
        }
    }
}

impl TanhGaussian {
    /// Reads a policy file.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| Error::io(path, "read", e))?;
        Self::from_bytes(&bytes, path)
    }

    /// Reads a policy from the content of a safetensors file; `path` is only used in error messages.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self> {
        let file = SafeTensors::deserialize(bytes).map_err(|e| {
            bad_file!(
                path,
                "wanted a policy as safetensors, found something unreadable ({e}); check the path"
            )
        })?;
        check_tensors(bytes, &file).map_err(|e| Error::file(path, e.to_string()))?;
        let mut hidden = BTreeMap::new();
        for name in file.names() {
            if let Some(index) = name.strip_prefix("hidden.").and_then(|n| n.strip_suffix(".weight")) {
                let index: usize =
                    index.parse().map_err(|_| bad(path, name, "hidden.<number>.weight", index))?;
                hidden.insert(index, layer(&file, &format!("hidden.{index}"), path)?);
            }
        }
        let policy = Self {
            hidden: hidden.into_values().collect(),
            mean: layer(&file, "mean", path)?,
            log_std: layer(&file, "log_std", path)?,
            tanh_units: flag(&file, "tanh_units", path)?,
            layer_norm: flag(&file, "layer_norm", path)?,
            clipped: flag(&file, "clipped", path)?,
            range: range(&file, path)?,
            action_range: action_range(&file, path)?,
        };
        policy.check_widths(path)?;
        if !policy.stays_finite() {
            let (wanted, hint) =
                ("weights that ordinary observations do not drive to infinity", "train it again");
            return Err(Error::key(path, "weights", wanted, "larger ones", hint));
        }
        Ok(policy)
    }

    /// As [`Reach`] has it.
    fn stays_finite(&self) -> bool {
        let mut reach = Reach::default();
        let rows = |layer: &Layer| -> Vec<f64> {
            let (mut sums, outputs) = (vec![0.0; layer.outputs()], layer.outputs());
            layer.weight.iter().enumerate().for_each(|(i, w)| sums[i % outputs] += f64::from(w.abs()));
            sums
        };
        for layer in &self.hidden {
            reach.layer(&rows(layer), &layer.bias);
            if self.tanh_units || self.layer_norm {
                reach.settle(layer.outputs());
            }
        }
        [&self.mean, &self.log_std].into_iter().all(|head| {
            let mut reach = reach.clone();
            reach.layer(&rows(head), &head.bias);
            reach.is_finite()
        })
    }

    fn check_widths(&self, path: &Path) -> Result<()> {
        let mut width = self.obs_dim();
        for (i, layer) in self.hidden.iter().enumerate() {
            if layer.inputs != width {
                let (key, found) = (format!("hidden.{i}.weight"), format!("{} inputs", layer.inputs));
                return Err(bad(path, &key, &format!("{width} inputs, as the layer before gives"), &found));
            }
            width = layer.outputs();
        }
        for (head, key) in [(&self.mean, "mean.weight"), (&self.log_std, "log_std.weight")] {
            if head.inputs != width || head.outputs() != self.act_dim() {
                let found = format!("{} × {}", head.outputs(), head.inputs);
                return Err(bad(path, key, &format!("shape {} × {width}", self.act_dim()), &found));
            }
        }
        if let Some(range) = &self.action_range
            && (range.low.len() != self.act_dim() || range.high.len() != self.act_dim())
        {
            let (wanted, found) = (self.act_dim(), range.low.len().min(range.high.len()));
            return Err(bad(
                path,
                "action_low, action_high",
                &format!("{wanted} numbers each"),
                &format!("{found}"),
            ));
        }
        Ok(())
    }

    /// Width of the observation this policy takes.
    pub fn obs_dim(&self) -> usize {
        self.hidden.first().unwrap_or(&self.mean).inputs
    }

    /// Width of the action this policy gives.
    pub fn act_dim(&self) -> usize {
        self.mean.outputs()
    }

    /// The last hidden activation.
    fn trunk(&self, obs: &[f32]) -> Vec<f32> {
        let (mut x, mut y) = (obs.to_vec(), Vec::new());
        for layer in &self.hidden {
            layer.apply(&x, &mut y);
            if self.layer_norm {
                normalise(&mut y);
            }
            match self.tanh_units {
                true => y.iter_mut().for_each(|v| *v = v.tanh()),
                false => y.iter_mut().for_each(|v| *v = v.max(0.0)),
            }
            std::mem::swap(&mut x, &mut y);
        }
        x
    }

    /// The action that a value of the Gaussian stands for.
    fn bound(&self, z: f32) -> f32 {
        if self.clipped { z.clamp(-1.0, 1.0) } else { z.tanh() }
    }
}

impl Policy for TanhGaussian {
    fn act(&self, obs: &[f32], rng: &mut Rng, act: &mut [f32]) {
        let features = self.trunk(obs);
        let (mut mean, mut log_std) = (Vec::new(), Vec::new());
        self.mean.apply(&features, &mut mean);
        self.log_std.apply(&features, &mut log_std);
        for ((a, mean), log_std) in act.iter_mut().zip(&mean).zip(&log_std) {
            let std = log_std.clamp(self.range[0], self.range[1]).exp();
            *a = self.bound(mean + std * rng.normal() as f32);
        }
        if let Some(range) = &self.action_range {
            range.outward_one(act);
        }
    }
}

impl MeanPolicy for TanhGaussian {
    fn mean_act(&self, obs: &[f32], act: &mut [f32]) {
        let mut mean = Vec::new();
        self.mean.apply(&self.trunk(obs), &mut mean);
        act.iter_mut().zip(&mean).for_each(|(a, mean)| *a = self.bound(*mean));
        if let Some(range) = &self.action_range {
            range.outward_one(act);
        }
    }
}

/// (y − mean y) / √(var y + ε), with PyTorch's ε, as `nn` has it.
fn normalise(y: &mut [f32]) {
    const EPSILON: f64 = 1e-5;
    let count = y.len() as f64;
    let mean = y.iter().map(|&y| f64::from(y)).sum::<f64>() / count;
    let variance = y.iter().map(|&y| (f64::from(y) - mean).powi(2)).sum::<f64>() / count;
    let scale = 1.0 / (variance + EPSILON).sqrt();
    y.iter_mut().for_each(|y| *y = ((f64::from(*y) - mean) * scale) as f32);
}

fn bad(path: &Path, key: &str, wanted: &str, found: &str) -> Error {
    Error::key(path, key, wanted, found, "use a policy saved by offing or one with tensors of that layout")
}

fn action_range(file: &SafeTensors, path: &Path) -> Result<Option<ActionRange>> {
    if file.tensor("action_low").is_err() {
        return Ok(None);
    }
    let read = |name: &str| tensor(file, name, 1, path).map(|(values, _)| values);
    Ok(Some(ActionRange { low: read("action_low")?, high: read("action_high")? }))
}

fn layer(file: &SafeTensors, name: &str, path: &Path) -> Result<Layer> {
    let (weight, shape) = tensor(file, &format!("{name}.weight"), 2, path)?;
    let (bias, _) = tensor(file, &format!("{name}.bias"), 1, path)?;
    let (outputs, inputs) = (shape[0], shape[1]);
    if bias.len() != outputs || inputs == 0 || outputs == 0 {
        let (wanted, found) = (format!("{outputs} entries"), format!("{}", bias.len()));
        return Err(bad(path, &format!("{name}.bias"), &wanted, &found));
    }
    let transposed = (0..inputs).flat_map(|i| (0..outputs).map(move |o| (o, i)));
    Ok(Layer { weight: transposed.map(|(o, i)| weight[o * inputs + i]).collect(), bias, inputs })
}

/// The clamp of log σ; where a file has none, that of the first SAC code.
fn range(file: &SafeTensors, path: &Path) -> Result<[f32; 2]> {
    const KEY: &str = "log_std_range";
    if !file.names().contains(&KEY) {
        return Ok([-20.0, 2.0]);
    }
    match tensor(file, KEY, 1, path)?.0[..] {
        [low, high] if low <= high => Ok([low, high]),
        ref other => Err(bad(path, KEY, "a lower and an upper bound", &format!("{other:?}"))),
    }
}

/// An optional number that says yes or no; without it, no.
fn flag(file: &SafeTensors, key: &str, path: &Path) -> Result<bool> {
    let Ok(view) = file.tensor(key) else { return Ok(false) };
    match (view.dtype(), view.data().as_chunks::<8>().0) {
        (Dtype::U64, [bytes]) => Ok(u64::from_le_bytes(*bytes) != 0),
        (dtype, _) => {
            Err(bad(path, key, "one number of type U64", &format!("{dtype:?} of shape {:?}", view.shape())))
        }
    }
}

fn tensor(file: &SafeTensors, key: &str, rank: usize, path: &Path) -> Result<(Vec<f32>, Vec<usize>)> {
    let wanted = format!("an f32 tensor of rank {rank}");
    let view = file.tensor(key).map_err(|_| bad(path, key, &wanted, "no such tensor"))?;
    if view.dtype() != Dtype::F32 || view.shape().len() != rank {
        return Err(bad(path, key, &wanted, &format!("{:?} of shape {:?}", view.dtype(), view.shape())));
    }
    let values: Vec<f32> = view.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    match values.iter().position(|v| !v.is_finite()) {
        Some(i) => Err(bad(path, key, "finite values", &format!("{} at entry {i}", values[i]))),
        None => Ok((values, view.shape().to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::TensorView;

    /// A 2-3-1 network with hand-chosen weights, as file content.
    fn tiny(mutate: impl Fn(&mut Vec<(String, Vec<usize>, Vec<f32>)>)) -> Vec<u8> {
        let mut tensors = vec![
            ("hidden.0.weight".into(), vec![3, 2], vec![1.0, 2.0, -1.0, 0.5, 0.0, 1.0]),
            ("hidden.0.bias".into(), vec![3], vec![0.0, 0.25, -10.0]),
            ("mean.weight".into(), vec![1, 3], vec![0.5, -1.0, 3.0]),
            ("mean.bias".into(), vec![1], vec![0.125]),
            ("log_std.weight".into(), vec![1, 3], vec![0.0; 3]),
            ("log_std.bias".into(), vec![1], vec![-30.0]),
        ];
        mutate(&mut tensors);
        let bytes: Vec<_> = tensors
            .iter()
            .map(|(name, shape, values)| {
                (
                    name.clone(),
                    shape.clone(),
                    values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>(),
                )
            })
            .collect();
        let views =
            bytes.iter().map(|(n, s, b)| (n.clone(), TensorView::new(Dtype::F32, s.clone(), b).unwrap()));
        safetensors::serialize(views, None).unwrap()
    }

    #[test]
    fn the_forward_pass_is_the_formula() {
        let policy = TanhGaussian::from_bytes(&tiny(|_| ()), Path::new("p")).unwrap();
        let mut act = [0.0];
        Deterministic(&policy).act(&[1.0, 0.5], &mut Rng::stream(0, "t", 0), &mut act);
        // hidden = relu([1+1, -1+.25+.25, .5-10]) = [2, 0, 0]; mean = .5*2 + .125
        assert_eq!(act[0], 1.125f32.tanh());
        policy.act(&[1.0, 0.5], &mut Rng::stream(0, "t", 0), &mut act);
        assert!((act[0] - 1.125f32.tanh()).abs() < 1e-6, "log σ is clamped at -20, so the noise is tiny");
    }

    #[test]
    fn a_file_may_say_how_its_noise_is_clamped() {
        let bytes = tiny(|t| t.push(("log_std_range".into(), vec![2], vec![0.0, 2.0])));
        let policy = TanhGaussian::from_bytes(&bytes, Path::new("p")).unwrap();
        let mut act = [0.0];
        policy.act(&[1.0, 0.5], &mut Rng::stream(0, "t", 0), &mut act);
        let noise = Rng::stream(0, "t", 0).normal() as f32;
        assert_eq!(act[0], (1.125 + noise).tanh(), "log σ = −30 is raised to 0");
    }

    #[test]
    fn damaged_files_are_one_clear_line() {
        let check = |bytes: &[u8], wanted: &str| {
            let error = TanhGaussian::from_bytes(bytes, Path::new("p.safetensors")).unwrap_err().to_string();
            assert!(
                error.contains(wanted) && error.contains("p.safetensors") && !error.contains('\n'),
                "{error}"
            );
        };
        check(b"<html>", "safetensors");
        check(
            &tiny(|t| t.truncate(4)),
            "`log_std.weight`: wanted an f32 tensor of rank 2, found no such tensor",
        );
        check(&tiny(|t| t[2].2[1] = f32::NAN), "found NaN at entry 1");
        check(&tiny(|t| t[2] = ("mean.weight".into(), vec![1, 2], vec![0.0; 2])), "wanted shape 1 × 3");
        check(&tiny(|t| t[1].1 = vec![1, 3]), "rank 1");
        check(&tiny(|t| t.push(("clipped".into(), vec![1], vec![1.0]))), "wanted one number of type U64");
        check(
            &tiny(|t| t.push(("log_std_range".into(), vec![2], vec![2.0, -5.0]))),
            "a lower and an upper bound",
        );
    }
}
