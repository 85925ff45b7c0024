//! The gradient through an unrolled policy, with and without layer normalisation, beside finite differences in f64.

use super::*;
use crate::nn::{Field, MlpEnsemble, Tensors};
use crate::rng::Rng;
use crate::sac::SacConfig;

const ROWS: usize = 6;
const STEPS: usize = 3;
const OBS: usize = 5;
const ACT: usize = 2;

/// Weight and bias of each layer.
type Layers = Vec<(Vec<f64>, Vec<f64>)>;

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

/// A network in f64, by the textbook.
fn network(layers: &Layers, layer_norm: bool, activation: fn(f64) -> f64, x: &[f64]) -> Vec<f64> {
    let mut x = x.to_vec();
    for (l, (weight, bias)) in layers.iter().enumerate() {
        let rows = weight.chunks_exact(x.len()).zip(bias);
        let mut z: Vec<f64> =
            rows.map(|(w, b)| b + w.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>()).collect();
        if l + 1 < layers.len() {
            if layer_norm {
                let mean = z.iter().sum::<f64>() / z.len() as f64;
                let variance = z.iter().map(|z| (z - mean).powi(2)).sum::<f64>() / z.len() as f64;
                z.iter_mut().for_each(|z| *z = (*z - mean) / (variance + 1e-5).sqrt());
            }
            z.iter_mut().for_each(|z| *z = activation(*z));
        }
        x = z;
    }
    x
}

fn layers_of(net: &MlpEnsemble, field: Field) -> Layers {
    let layer = |l: usize| net.get(0, l, field);
    (0..net.shape().layers()).map(|l| (wide(&layer(l).0), wide(&layer(l).1))).collect()
}

/// A model of normalised SiLU networks, and the weights of its members.
struct World {
    model: Ensemble,
    members: Vec<Layers>,
    mean: Vec<f64>,
    inverse: Vec<f64>,
}

impl World {
    fn new(pool: &ThreadPool) -> Self {
        let golden =
            Tensors::from_foreign_bytes(include_bytes!("../../tests/golden/landfall.safetensors")).unwrap();
        let from = golden.under("model");
        let read = |name: String| wide(&from.f32(&name, from.shape(&name).unwrap()).unwrap());
        let layer =
            |m: usize, l: usize| (read(format!("model.{m}.{l}.weight")), read(format!("model.{m}.{l}.bias")));
        Self {
            model: Ensemble::load(&from, pool).unwrap(),
            members: (0..2).map(|m| (0..3).map(|l| layer(m, l)).collect()).collect(),
            mean: read("scaler.mean".into()),
            inverse: read("scaler.inverse".into()),
        }
    }

    /// The mean change of the state, and the reward.
    fn step(&self, member: usize, obs: &[f64], act: &[f64]) -> Vec<f64> {
        let scales = self.mean.iter().zip(&self.inverse);
        let x: Vec<f64> =
            obs.iter().chain(act).zip(scales).map(|(x, (mean, inverse))| (x - mean) * inverse).collect();
        network(&self.members[member], true, |z| z / (1.0 + (-z).exp()), &x)
    }
}

/// One step of an actor on a loss that is linear in all that an unroll makes, and the loss in f64.
struct Case {
    world: World,
    pool: ThreadPool,
    agent: Sac,
    unroll: Unroll,
    standardiser: Standardiser,
    start: Mat,
    anchors: Mat,
    gradient: UnrollGradient,
    danchored: Mat,
}

impl Case {
    fn new(actor_layer_norm: bool, threads: usize) -> Self {
        let (pool, mut rng) = (ThreadPool::new(threads), Rng::stream(3, "case", 0));
        let world = World::new(&pool);
        let cfg = SacConfig { hidden: vec![9, 18], actor_layer_norm, ..SacConfig::default() };
        let agent = Sac::new(&cfg, OBS, ACT, &pool, &mut rng).unwrap();
        let unroll = Unroll::new(&agent.actor, &world.model, (ROWS, STEPS), ROWS, &pool);
        let mut mat = |rows: usize, cols: usize| Mat::from_shape_fn((rows, cols), |_| rng.normal() as f32);
        let standardiser = Standardiser::of(&(mat(40, OBS) * 2.0 + 1.0));
        let all = (STEPS + 1) * ROWS;
        let gradient = UnrollGradient { obs: mat(all, OBS), act: mat(all, ACT), rew: mat(STEPS, ROWS) };
        let (start, anchors, danchored) = (mat(ROWS, OBS), mat(ROWS, OBS), mat(ROWS, ACT));
        Self { world, pool, agent, unroll, standardiser, start, anchors, gradient, danchored }
    }

    fn train(&mut self) {
        let Self { world, pool, agent, unroll, standardiser, .. } = self;
        unroll.forward(&agent.actor, (&world.model, 0), standardiser, pool, &self.start, || 0.0);
        assert!(!unroll.lost().iter().any(|&lost| lost));
        unroll.anchor(&agent.actor, pool, &self.anchors);
        unroll.train_actor(agent, &world.model, standardiser, pool, (&self.gradient, &self.danchored));
    }

    fn act(&self, actor: &Layers, seen: &[f64]) -> Vec<f64> {
        let out = network(actor, self.agent.actor.layer_norm(), |z| z.max(0.0), seen);
        out[..ACT].iter().map(|mean| mean.tanh()).collect()
    }

    fn loss(&self, actor: &Layers, members: &[u32]) -> f64 {
        let dot = |row: ndarray::ArrayView1<'_, f32>, values: &[f64]| {
            row.iter().zip(values).map(|(&d, x)| f64::from(d) * x).sum::<f64>()
        };
        let mut total = 0.0;
        for (i, &member) in members.iter().enumerate() {
            let anchored = self.act(actor, &wide(&self.anchors.row(i).to_vec()));
            total += dot(self.danchored.row(i), &anchored);
            let mut obs = wide(&self.start.row(i).to_vec());
            for t in 0..=STEPS {
                let scales = self.standardiser.mean().iter().zip(self.standardiser.std());
                let seen: Vec<f64> = obs
                    .iter()
                    .zip(scales)
                    .map(|(x, (&mean, &std))| (x - f64::from(mean)) / f64::from(std))
                    .collect();
                let act = self.act(actor, &seen);
                total += dot(self.gradient.obs.row(t * ROWS + i), &obs);
                total += dot(self.gradient.act.row(t * ROWS + i), &act);
                if t < STEPS {
                    let change = self.world.step(member as usize, &obs, &act);
                    total += f64::from(self.gradient.rew[[t, i]]) * change[OBS];
                    obs.iter_mut().zip(&change).for_each(|(x, change)| *x += change);
                }
            }
        }
        total
    }
}

#[test]
fn the_gradient_through_the_model_equals_finite_differences() {
    for layer_norm in [false, true] {
        let mut case = Case::new(layer_norm, 2);
        let mut actor = layers_of(&case.agent.actor.net, Field::Weight);
        case.train();
        let members = case.unroll.steps[0].members().to_vec();
        // After Adam's first step its first moment is a tenth of the gradient.
        let moments = layers_of(&case.agent.actor.net, Field::First);
        let largest = moments.iter().flat_map(|(w, b)| w.iter().chain(b)).fold(0.0f64, |a, d| a.max(d.abs()));
        for (l, (dw, db)) in moments.iter().enumerate() {
            for (i, d) in dw.iter().chain(db).enumerate() {
                let mut at = |step: f64| {
                    let (w, b) = &mut actor[l];
                    *(if i < dw.len() { &mut w[i] } else { &mut b[i - dw.len()] }) += step;
                    case.loss(&actor, &members)
                };
                let numeric = (at(1e-6) - at(-2e-6)) / 2e-6;
                at(1e-6);
                let off = (10.0 * d - numeric).abs();
                assert!(off < 1e-5 * (1.0 + 10.0 * largest), "{layer_norm} {l} {i}: {} {numeric}", 10.0 * d);
            }
        }
    }
}

#[test]
fn threads_do_not_change_a_bit_of_a_normalised_actor() {
    let run = |threads: usize| {
        let mut case = Case::new(true, threads);
        (0..3).for_each(|_| case.train());
        case.agent.save()
    };
    let one = run(1);
    assert!(one == run(2) && one == run(3));
}
