//! Networks against a plain f64 version of themselves, and gradients against finite differences of it.

use super::*;
use crate::rng::Rng;

/// The oracle: one network in f64, by the textbook.
struct Plain {
    layers: Vec<(Vec<f64>, Vec<f64>)>,
    activation: Activation,
    layer_norm: bool,
}

impl Plain {
    fn of(stack: &MlpEnsemble, net: usize, field: Field) -> Self {
        let wide = |v: Vec<f32>| v.into_iter().map(f64::from).collect();
        let layers = (0..stack.shape().layers())
            .map(|l| {
                let (w, b) = stack.get(net, l, field);
                (wide(w), wide(b))
            })
            .collect();
        let (activation, layer_norm) = (stack.shape().activation(), stack.shape().layer_norm());
        Self { layers, activation, layer_norm }
    }

    fn forward(&self, x: &[f64]) -> Vec<f64> {
        let mut x = x.to_vec();
        for (l, (w, b)) in self.layers.iter().enumerate() {
            let z = b.iter().enumerate().map(|(j, b)| {
                b + w[j * x.len()..][..x.len()].iter().zip(&x).map(|(w, x)| w * x).sum::<f64>()
            });
            let (mut z, last): (Vec<f64>, _) = (z.collect(), l + 1 == self.layers.len());
            if self.layer_norm && !last {
                let mean = |z: &[f64]| z.iter().sum::<f64>() / z.len() as f64;
                let centre = mean(&z);
                z.iter_mut().for_each(|z| *z -= centre);
                let var = mean(&z.iter().map(|z| z * z).collect::<Vec<_>>());
                z.iter_mut().for_each(|z| *z /= (var + f64::from(layer_norm::EPSILON)).sqrt());
            }
            x = z
                .into_iter()
                .map(|z| match self.activation {
                    _ if last => z,
                    Activation::Relu => z.max(0.0),
                    Activation::Silu => z / (1.0 + (-z).exp()),
                    Activation::Tanh => z.tanh(),
                })
                .collect();
        }
        x
    }

    /// The loss Σ coefficient · output of the gradient tests.
    fn loss(&self, rows: &[Vec<f64>], coefficients: &[f64]) -> f64 {
        let out = rows.iter().flat_map(|x| self.forward(x));
        out.zip(coefficients).map(|(y, c)| y * c).sum()
    }
}

struct Case {
    stack: MlpEnsemble,
    plain: Plain,
    rows: Vec<Vec<f64>>,
    coefficients: Vec<f64>,
    shards: Vec<Shard>,
}

/// Activation of the hidden layers, and whether they are normalised.
#[derive(Clone, Copy)]
struct Hidden(Activation, bool);

impl From<Activation> for Hidden {
    fn from(activation: Activation) -> Self {
        Self(activation, false)
    }
}

/// Every kind of hidden layer.
const HIDDEN: [Hidden; 6] = [
    Hidden(Activation::Relu, false),
    Hidden(Activation::Silu, false),
    Hidden(Activation::Tanh, false),
    Hidden(Activation::Relu, true),
    Hidden(Activation::Silu, true),
    Hidden(Activation::Tanh, true),
];

/// The second of two networks, with rows in shards of the given sizes, run forward and backward.
fn case(sizes: &[usize], hidden: impl Into<Hidden>, split: &[usize], simd: Simd) -> Case {
    let Hidden(activation, layer_norm) = hidden.into();
    let mut rng = Rng::stream(3, "case", sizes.iter().sum::<usize>() as u64);
    let (inputs, outputs) = (sizes[0], sizes[sizes.len() - 1]);
    let shape = Shape::new(inputs, &sizes[1..sizes.len() - 1], outputs, activation);
    let shape = shape.with_layer_norm(layer_norm);
    let stack = MlpEnsemble::new(shape, 2, Init::Uniform, Keep::Moments, &mut rng).with_simd(simd);
    let plain = Plain::of(&stack, 1, Field::Weight);
    let total: usize = split.iter().sum();
    let rows: Vec<Vec<f64>> =
        (0..total).map(|_| (0..inputs).map(|_| f64::from(rng.normal() as f32)).collect()).collect();
    let coefficients: Vec<f64> = (0..total * outputs).map(|_| f64::from(rng.normal() as f32)).collect();
    let (mut shards, mut done) = (Vec::new(), 0);
    for &n in split {
        // Two rows more than needed: capacity and row count must not be confused.
        let mut x = PackedMatrix::new(n + 2, inputs);
        let flat: Vec<f32> = rows[done..done + n].iter().flatten().map(|&x| x as f32).collect();
        x.load_flat(&flat, inputs, 0);
        let mut shard = Shard { rows: done..done + n, x, nets: vec![Activations::new(stack.shape(), n + 2)] };
        shard.forward(&stack, 1, Weights::Current);
        let flat: Vec<f32> =
            coefficients[done * outputs..(done + n) * outputs].iter().map(|&c| c as f32).collect();
        shard.nets[0].dout.load_flat(&flat, outputs, 0);
        shard.backward(&stack, 1);
        shards.push(shard);
        done += n;
    }
    Case { stack, plain, rows, coefficients, shards }
}

/// The gradient of the case's network.
fn gradient(case: &Case) -> MlpEnsemble {
    let zeros = MlpEnsemble::zeros(case.stack.shape().clone(), 1, Keep::Weights);
    let mut gradient = zeros.with_simd(case.stack.net(0).simd());
    gradient.set_to_gradient(case.shards.len(), |i| &case.shards[i]);
    gradient
}

/// Every kind of hidden layer on every kind of instructions that this machine has.
fn everywhere() -> impl Iterator<Item = (Hidden, Simd)> {
    HIDDEN.into_iter().flat_map(|hidden| Simd::all().into_iter().map(move |simd| (hidden, simd)))
}

const SHAPES: [&[usize]; 5] = [&[5, 18, 7, 3], &[23, 33, 1], &[4, 16, 16, 16, 36], &[3, 2], &[40, 20, 1]];

fn close(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!((got - want).abs() <= tolerance * (1.0 + want.abs()), "{what}: got {got}, want {want}");
}

#[test]
fn outputs_equal_the_textbook_network() {
    for (hidden, simd) in everywhere() {
        for sizes in SHAPES {
            let case = case(sizes, hidden, &[13, 1, 7], simd);
            let (outputs, mut row) = (sizes[sizes.len() - 1], 0);
            for shard in &case.shards {
                let n = shard.rows.len();
                let mut out = vec![0.0; n * outputs];
                shard.nets[0].out.store_flat(&mut out, outputs, 0);
                let mut lean = Activations::forward_only(case.stack.shape(), n + 2);
                lean.forward(case.stack.net(1), Weights::Current, &shard.x, n);
                let mut again = vec![0.0; n * outputs];
                lean.out.store_flat(&mut again, outputs, 0);
                assert_eq!(out, again, "forward-only gives the same bits");
                for out in out.chunks_exact(outputs) {
                    for (got, want) in out.iter().zip(case.plain.forward(&case.rows[row])) {
                        close(f64::from(*got), want, 2e-6, "output");
                    }
                    row += 1;
                }
            }
        }
    }
}

#[test]
fn weight_gradients_equal_finite_differences() {
    for (hidden, simd) in everywhere() {
        for sizes in SHAPES {
            let mut case = case(sizes, hidden, &[6, 9], simd);
            let gradient = gradient(&case);
            for l in 0..sizes.len() - 1 {
                let (dw, db) = gradient.get(0, l, Field::Weight);
                for i in 0..dw.len() + db.len() {
                    let bias = i.checked_sub(dw.len());
                    let mut at = |step: f64| {
                        let (w, b) = &mut case.plain.layers[l];
                        let value = if let Some(j) = bias { &mut b[j] } else { &mut w[i] };
                        let kept = *value;
                        *value += step;
                        let loss = case.plain.loss(&case.rows, &case.coefficients);
                        let (w, b) = &mut case.plain.layers[l];
                        *(if let Some(j) = bias { &mut b[j] } else { &mut w[i] }) = kept;
                        loss
                    };
                    let numeric = (at(1e-6) - at(-1e-6)) / 2e-6;
                    let got = bias.map_or_else(|| dw[i], |j| db[j]);
                    close(f64::from(got), numeric, 2e-5, "weight gradient");
                }
            }
        }
    }
}

#[test]
fn input_gradients_equal_finite_differences() {
    for hidden in HIDDEN {
        for sizes in SHAPES {
            let mut case = case(sizes, hidden, &[11], Simd::detect());
            let inputs = sizes[0];
            let n = case.shards[0].rows.len();
            let mut dx = PackedMatrix::new(n, inputs);
            let cols = inputs / 2..inputs;
            case.shards[0].nets[0].input_gradient(case.stack.net(1), n, cols.clone(), &mut dx);
            for row in 0..n {
                for col in cols.clone() {
                    let mut at = |step: f64| {
                        case.rows[row][col] += step;
                        let loss = case.plain.loss(&case.rows, &case.coefficients);
                        case.rows[row][col] -= step;
                        loss
                    };
                    let numeric = (at(1e-6) - at(-1e-6)) / 2e-6;
                    close(f64::from(dx.get(row, col)), numeric, 2e-5, "input gradient");
                }
            }
        }
    }
}

#[test]
fn a_mapped_backward_pass_gives_the_rows_it_names() {
    for layer_norm in [false, true] {
        let mut case = case(&[5, 18, 20, 1], Hidden(Activation::Relu, layer_norm), &[14], Simd::detect());
        let (n, net) = (case.shards[0].rows.len(), case.stack.net(1));
        let trace = &mut case.shards[0].nets[0];
        let mut all = PackedMatrix::new(n, 5);
        trace.input_gradient(net, n, 0..5, &mut all);
        let map: Vec<u32> = vec![13, 2, 7];
        for (i, &row) in map.iter().enumerate() {
            trace.dout.set(i, 0, case.coefficients[row as usize] as f32);
        }
        trace.backward(net, map.len(), Some(&map));
        let mut some = PackedMatrix::new(n, 5);
        trace.input_gradient(net, map.len(), 0..5, &mut some);
        for (i, &row) in map.iter().enumerate() {
            for col in 0..5 {
                assert_eq!(some.get(i, col), all.get(row as usize, col));
            }
        }
    }
}

#[test]
fn weights_transposed_before_give_the_same_input_gradient_to_the_bit() {
    for (simd, hidden) in Simd::all().into_iter().flat_map(|simd| HIDDEN.map(|hidden| (simd, hidden))) {
        for sizes in SHAPES {
            let mut case = case(sizes, hidden, &[11], simd);
            let (rows, net) = (case.shards[0].rows.len(), case.stack.net(1));
            let trace = &mut case.shards[0].nets[0];
            let [mut fresh, mut kept] = [(); 2].map(|()| PackedMatrix::new(rows, sizes[0]));
            trace.input_gradient(net, rows, 0..sizes[0], &mut fresh);
            trace.backward_to_input(net, &Transposed::of(net, Weights::Current), rows, &mut kept);
            let bits = |of: &PackedMatrix| of.data().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(&fresh) == bits(&kept) && fresh.data().iter().any(|&x| x != 0.0), "{sizes:?}");
        }
    }
}

#[test]
fn training_gives_the_same_bits_for_any_threads_and_any_split_of_the_rows() {
    let train = |threads: usize, split: &[usize]| {
        let mut case = case(&[23, 64, 48, 12], Activation::Silu, split, Simd::detect());
        let step = TrainStep { decay: &[1e-3, 1e-4], ..TrainStep::new(1e-3, 1) };
        case.stack.train(&ThreadPool::new(threads), 1..2, case.shards.len(), |i| &case.shards[i], &step);
        (0..3).map(|l| case.stack.get(1, l, Field::Weight)).collect::<Vec<_>>()
    };
    let one = train(1, &[30]);
    assert_eq!(one, train(2, &[15, 15]));
    assert_eq!(one, train(5, &[1, 13, 6, 7, 3]));
    let before = case(&[23, 64, 48, 12], Activation::Silu, &[30], Simd::detect());
    assert_ne!(one[0], before.stack.get(1, 0, Field::Weight), "training moves the weights");
}

#[test]
fn a_training_step_is_adam_on_the_gradient_with_decay() {
    let mut case = case(&[6, 17, 1], Activation::Relu, &[9], Simd::detect());
    let step = TrainStep { decay: &[0.1, 0.1], ..TrainStep::new(0.01, 1) };
    let gradient = gradient(&case);
    let mut wanted = Vec::new();
    for l in 0..2 {
        let (mut w, mut b) = case.stack.get(1, l, Field::Weight);
        let (mut dw, db) = gradient.get(0, l, Field::Weight);
        dw.iter_mut().zip(&w).for_each(|(d, w)| *d += 0.1 * w);
        for (p, g) in w.iter_mut().chain(&mut b).zip(dw.iter().chain(&db)) {
            step.adam.apply(p, &mut 0.0, &mut 0.0, *g);
        }
        wanted.push((w, b));
    }
    case.stack.train(&ThreadPool::new(2), 1..2, 1, |i| &case.shards[i], &step);
    for (l, (w, b)) in wanted.iter().enumerate() {
        let (got_w, got_b) = case.stack.get(1, l, Field::Weight);
        for (got, want) in got_w.iter().chain(&got_b).zip(w.iter().chain(b)) {
            close(f64::from(*got), f64::from(*want), 1e-6, "weight");
        }
    }
}

#[test]
fn a_fitted_row_loss_and_its_shards_give_the_same_bits_for_any_threads() {
    let run = |threads: usize| {
        let mut rng = Rng::stream(0, "fit", 0);
        let shape = Shape::new(3, &[20], 2, Activation::Relu);
        let mut net = MlpEnsemble::new(shape, 1, Init::Uniform, Keep::Moments, &mut rng);
        let inputs: Vec<f32> = (0..900).map(|_| rng.normal() as f32).collect();
        let (pool, mut fitter) = (ThreadPool::new(threads), Fitter::new(1e-2, 1e-3));
        let load = |row: usize, x: &mut [f32]| x.copy_from_slice(&inputs[row * 3..][..3]);
        let losses: Vec<f64> = (0..60)
            .map(|_| {
                fitter.step(&mut net, &pool, 300, load, |row, out, gradient| {
                    let error = out[1] - inputs[row * 3] * inputs[row * 3 + 1];
                    gradient[1] = 2.0 * error / 300.0;
                    f64::from(error * error) / 300.0
                })
            })
            .collect();
        let mut out = vec![0.0; 600];
        net.predict(&pool, (0, Weights::Current), (&mut out, 2), load);
        (losses, out, net.flat(0))
    };
    let one = run(1);
    assert!(one.0[59] < 0.3 * one.0[0], "{:?}", one.0);
    assert_eq!(one, run(2));
    assert_eq!(one, run(5));
}

#[test]
fn fresh_weights_follow_their_distribution() {
    let mut rng = Rng::stream(0, "init", 0);
    let shape = || Shape::new(100, &[200], 3, Activation::Relu);
    let uniform = MlpEnsemble::new(shape(), 1, Init::Uniform, Keep::MomentsAndTarget, &mut rng);
    let (w, b) = uniform.get(0, 0, Field::Weight);
    assert!(w.iter().chain(&b).all(|x| x.abs() <= 0.1) && w.iter().any(|x| x.abs() > 0.0999));
    assert_eq!(uniform.get(0, 1, Field::Target), uniform.get(0, 1, Field::Weight));
    let normal = MlpEnsemble::new(shape(), 1, Init::TruncatedNormal, Keep::Weights, &mut rng);
    let (w, b) = normal.get(0, 0, Field::Weight);
    let var = w.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / w.len() as f64;
    // A normal cut at two deviations has 0.774 of its variance left.
    assert!((var / (0.05f64.powi(2) * 0.774) - 1.0).abs() < 0.03, "{var}");
    assert!(w.iter().all(|x| x.abs() <= 0.1001) && b.iter().all(|&b| b == 0.0));
}

/// Outputs, gradients and weights after steps of Adam: the same bits on every kind of instructions. Shapes and rows leave
/// tiles of every height, single panels beside pairs, and panels that are not full.
#[test]
fn all_instructions_give_the_same_bits() {
    let wanted = Simd::all().last().copied().expect("plain Rust is always there");
    let shapes: [&[usize]; 4] = [&[23, 64, 48, 12], &[5, 18, 7, 3], &[40, 33, 1], &[17, 100, 100, 35]];
    for (hidden, simd) in everywhere() {
        for (sizes, split) in shapes.into_iter().flat_map(|s| (1..30).map(move |n| (s, [n, 31]))) {
            let result = |simd: Simd| {
                let mut case = case(sizes, hidden, &split, simd);
                let mut bits: Vec<u32> = Vec::new();
                for shard in &case.shards {
                    let mut out = vec![0.0; shard.rows.len() * sizes[sizes.len() - 1]];
                    shard.nets[0].out.store_flat(&mut out, sizes[sizes.len() - 1], 0);
                    bits.extend(out.iter().map(|x| x.to_bits()));
                }
                let gradient = gradient(&case);
                bits.extend(gradient.flat(0).iter().map(|x| x.to_bits()));
                let adam = TrainStep::new(1e-3, 1);
                case.stack.train(&ThreadPool::new(1), 1..2, 2, |i| &case.shards[i], &adam);
                bits.extend(case.stack.flat(1).iter().map(|x| x.to_bits()));
                bits
            };
            assert!(result(simd) == result(wanted), "{} differs at {sizes:?}, {split:?}", simd.name());
        }
    }
}
