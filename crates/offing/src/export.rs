//! Policies for other runtimes: ONNX.
//!
//! The graph takes `obs` (batch × obs_dim) and gives `action` = tanh(μ), and `mean` (μ) and `log_std`
//! (clamped log σ) for those who want to sample: a = tanh(mean + exp(log_std)·ε). For a clipped policy, clip to
//! [-1, 1] replaces tanh in both. A policy whose actions have units of their own gives them in those units.
//!
//! ```
//! use offing::{Rng, export::onnx, sac::Actor};
//! let actor = Actor::new(11, 3, &[32, 32], [-5.0, 2.0], &mut Rng::stream(0, "doc", 0));
//! let bytes = onnx(&actor).unwrap();
//! assert!(bytes.len() > 4 * (11 * 32 + 32 * 32 + 32 * 6));
//! ```

use crate::error::Result;
use crate::nn::{Activation, layer_norm};
use crate::proto::Message;
use crate::sac::Actor;

/// Operator set and file version: runtimes of the last years (ONNX Runtime 1.6 and later) read it. LayerNormalization came with
/// 17, so a normalised layer is written out in its parts.
const OPSET: u64 = 13;
const IR_VERSION: u64 = 7;
/// TensorProto.FLOAT.
const FLOAT: u64 = 1;

/// The policy as the content of an `.onnx` file.
pub fn onnx(actor: &Actor) -> Result<Vec<u8>> {
    let policy = actor.to_policy();
    let hidden = (0..).take_while(|l| policy.shape(&format!("hidden.{l}.weight")).is_some()).count();
    let units = if actor.units() == Activation::Tanh { "Tanh" } else { "Relu" };
    let (mut nodes, mut last) = (Vec::new(), "obs".to_string());
    for l in 0..hidden {
        nodes.push(gemm(&last, &format!("hidden.{l}"), &format!("linear.{l}")));
        let mut free = format!("linear.{l}");
        if actor.layer_norm() {
            nodes.extend(normalise(&free, &format!("normalised.{l}")));
            free = format!("normalised.{l}");
        }
        nodes.push(node(units, &[&free], &format!("features.{l}")));
        last = format!("features.{l}");
    }
    let [low, high] = actor.log_std();
    // What −1 and 1 stand for comes after the squashing.
    let squashed = if actor.action_range().is_some() { "action.unit" } else { "action" };
    let (squash, constants, about) = match actor.clipped() {
        false => (
            node("Tanh", &["mean"], squashed),
            vec![],
            "A tanh-Gaussian policy: action = tanh(mean); a sample is tanh(mean + exp(log_std) * noise).",
        ),
        true => (
            node("Clip", &["mean", "action.low", "action.high"], squashed),
            vec![("action.low", -1.0), ("action.high", 1.0)],
            "A clipped Gaussian policy: action = clip(mean, -1, 1); a sample is clip(mean + exp(log_std) * noise, -1, 1).",
        ),
    };
    nodes.push(gemm(&last, "mean", "mean"));
    nodes.push(squash);
    let mut scales = Vec::new();
    if let Some(range) = actor.action_range() {
        let pairs = || range.low.iter().zip(&range.high);
        let [half, middle] = [
            pairs().map(|(low, high)| 0.5 * (high - low)).collect::<Vec<f32>>(),
            pairs().map(|(low, high)| 0.5 * (low + high)).collect(),
        ];
        nodes.push(node("Mul", &["action.unit", "action.half_width"], "action.centred"));
        nodes.push(node("Add", &["action.centred", "action.middle"], "action"));
        let width = [actor.act_dim()];
        scales = vec![tensor("action.half_width", &width, &half), tensor("action.middle", &width, &middle)];
    }
    nodes.push(gemm(&last, "log_std", "log_std.free"));
    nodes.push(node("Clip", &["log_std.free", "log_std.low", "log_std.high"], "log_std"));
    let layers = policy.names().filter(|n| n.ends_with(".weight") || n.ends_with(".bias"));
    let layers = layers.map(|name| {
        let shape = policy.shape(name).unwrap_or_default();
        Ok(tensor(name, shape, &policy.f32(name, shape)?))
    });
    let epsilon = actor.layer_norm().then_some(("layer_norm.epsilon", layer_norm::EPSILON));
    let constants =
        constants.into_iter().chain([("log_std.low", low), ("log_std.high", high)]).chain(epsilon);
    let graph = Message::default()
        .messages(1, nodes)
        .text(2, "policy")
        .messages(5, layers.collect::<Result<Vec<_>>>()?)
        .messages(5, scales)
        .messages(5, constants.map(|(name, value)| tensor(name, &[], &[value])))
        .message(11, matrix("obs", actor.obs_dim()))
        .messages(12, ["action", "mean", "log_std"].map(|name| matrix(name, actor.act_dim())));
    let model = Message::default()
        .number(1, IR_VERSION)
        .text(2, "offing")
        .text(3, env!("CARGO_PKG_VERSION"))
        .text(6, about)
        .message(7, graph)
        .message(8, Message::default().text(1, "").number(2, OPSET));
    Ok(model.0)
}

/// NodeProto.
fn node(operator: &str, inputs: &[&str], output: &str) -> Message {
    let node = inputs.iter().fold(Message::default(), |node, input| node.text(1, input));
    node.text(2, output).text(3, &format!("{operator}:{output}")).text(4, operator)
}

/// y = x Wᵀ + b, with W as it is stored: outputs × inputs.
fn gemm(input: &str, layer: &str, output: &str) -> Message {
    let transposed = Message::default().text(1, "transB").number(3, 1).number(20, 2); // AttributeProto.INT
    node("Gemm", &[input, &format!("{layer}.weight"), &format!("{layer}.bias")], output)
        .message(5, transposed)
}

/// y = (x − mean x) / √(var x + ε) of each row.
fn normalise(input: &str, output: &str) -> [Message; 7] {
    let part = |name: &str| format!("{output}.{name}");
    let [mean, centred, squares] = ["mean", "centred", "squares"].map(part);
    let [variance, shifted, deviation] = ["variance", "shifted", "deviation"].map(part);
    // The columns' axis; AttributeProto.INTS.
    let columns = || Message::default().text(1, "axes").number(8, 1).number(20, 7);
    [
        node("ReduceMean", &[input], &mean).message(5, columns()),
        node("Sub", &[input, &mean], &centred),
        node("Mul", &[&centred, &centred], &squares),
        node("ReduceMean", &[&squares], &variance).message(5, columns()),
        node("Add", &[&variance, "layer_norm.epsilon"], &shifted),
        node("Sqrt", &[&shifted], &deviation),
        node("Div", &[&centred, &deviation], output),
    ]
}

/// TensorProto.
fn tensor(name: &str, shape: &[usize], values: &[f32]) -> Message {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let tensor = shape.iter().fold(Message::default(), |tensor, &size| tensor.number(1, size as u64));
    tensor.number(2, FLOAT).text(8, name).bytes(9, &bytes)
}

/// ValueInfoProto of a float matrix with any number of rows.
fn matrix(name: &str, width: usize) -> Message {
    let sizes = [Message::default().text(2, "batch"), Message::default().number(1, width as u64)];
    let matrix = Message::default().number(1, FLOAT).message(2, Message::default().messages(1, sizes));
    Message::default().text(1, name).message(2, Message::default().message(1, matrix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::MeanPolicy;
    use crate::rng::Rng;
    use crate::units::ActionRange;
    use std::collections::BTreeMap;

    /// The fields of a message: number and content (a varint as its eight bytes).
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let content = match tag & 7 {
                0 => varint(&mut bytes).to_le_bytes().to_vec(),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (content, rest) = bytes.split_at(length);
                    bytes = rest;
                    content.to_vec()
                }
                other => panic!("wire type {other} is not written here"),
            };
            found.push((tag >> 3, content));
        }
        found
    }

    fn texts(message: &[u8], field: u64) -> Vec<String> {
        let found = fields(message).into_iter().filter(|(number, _)| *number == field);
        found.map(|(_, text)| String::from_utf8(text).unwrap()).collect()
    }

    #[test]
    fn every_input_of_a_node_is_given_before_it_and_tensors_fill_their_shapes() {
        let actor = Actor::new(5, 3, &[8, 4], [-5.0, 2.0], &mut Rng::stream(1, "actor", 0));
        check(&actor, 2, &["Gemm", "Relu", "Gemm", "Relu", "Gemm", "Tanh", "Gemm", "Clip"]);
        let mut tensors = actor.to_policy();
        tensors.put_u64("tanh_units", &[1]);
        tensors.put_u64("clipped", &[1]);
        let clipped = Actor::from_policy(&tensors).unwrap();
        check(&clipped, 4, &["Gemm", "Tanh", "Gemm", "Tanh", "Gemm", "Clip", "Gemm", "Clip"]);
    }

    #[test]
    fn a_normalised_layer_is_written_in_its_parts() {
        let actor = Actor::new(5, 3, &[8, 4], [-5.0, 2.0], &mut Rng::stream(1, "actor", 0));
        let layer = ["Gemm", "ReduceMean", "Sub", "Mul", "ReduceMean", "Add", "Sqrt", "Div", "Relu"];
        let head = ["Gemm", "Tanh", "Gemm", "Clip"];
        check(&actor.with_layer_norm(true), 3, &[&layer[..], &layer, &head].concat());
    }

    /// What the graph gives for one observation, by the definitions of its operators.
    fn run(model: &[u8], obs: &[f32]) -> BTreeMap<String, Vec<f32>> {
        let graph = fields(model).into_iter().find(|(number, _)| *number == 7).unwrap().1;
        let mut known = BTreeMap::from([("obs".to_string(), obs.to_vec())]);
        for (_, tensor) in fields(&graph).iter().filter(|(number, _)| *number == 5) {
            let raw = fields(tensor).into_iter().find(|(number, _)| *number == 9).unwrap().1;
            let values = raw.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            known.insert(texts(tensor, 8).remove(0), values);
        }
        for (_, node) in fields(&graph).iter().filter(|(number, _)| *number == 1) {
            let inputs: Vec<&Vec<f32>> = texts(node, 1).iter().map(|name| &known[name]).collect();
            let x = inputs[0];
            let each = |f: fn(f32) -> f32| x.iter().map(|&x| f(x)).collect::<Vec<_>>();
            // Of one width, or a number beside a row.
            let pairs = |f: fn(f32, f32) -> f32| {
                x.iter().zip(inputs[1].iter().cycle()).map(|(&x, &y)| f(x, y)).collect::<Vec<_>>()
            };
            let out = match texts(node, 4).remove(0).as_str() {
                "Gemm" => {
                    let rows = inputs[1].chunks_exact(x.len()).zip(inputs[2]);
                    rows.map(|(w, b)| b + w.iter().zip(x).map(|(w, x)| w * x).sum::<f32>()).collect()
                }
                "Relu" => each(|x| x.max(0.0)),
                "Tanh" => each(f32::tanh),
                "Sqrt" => each(f32::sqrt),
                "Clip" => x.iter().map(|x| x.clamp(inputs[1][0], inputs[2][0])).collect(),
                "Sub" => pairs(|x, y| x - y),
                "Mul" => pairs(|x, y| x * y),
                "Add" => pairs(|x, y| x + y),
                "Div" => pairs(|x, y| x / y),
                "ReduceMean" => {
                    let axes = fields(node).into_iter().find(|(number, _)| *number == 5).unwrap().1;
                    assert_eq!((texts_of_first(&axes), number(&axes, 8)), ("axes".to_string(), 1));
                    vec![x.iter().sum::<f32>() / x.len() as f32]
                }
                other => panic!("{other} is not written here"),
            };
            known.insert(texts(node, 2).remove(0), out);
        }
        known
    }

    fn texts_of_first(message: &[u8]) -> String {
        String::from_utf8(fields(message)[0].1.clone()).unwrap()
    }

    fn number(message: &[u8], field: u64) -> u64 {
        let found = fields(message).into_iter().find(|(number, _)| *number == field).unwrap().1;
        u64::from_le_bytes(found.try_into().unwrap())
    }

    #[test]
    fn the_graph_computes_what_the_actor_does() {
        let fresh = || Actor::new(5, 3, &[40, 20], [-5.0, 2.0], &mut Rng::stream(1, "actor", 0));
        let range = ActionRange { low: vec![0.0, -3.0, 7.0], high: vec![40.0, -1.0, 7.0] };
        let mut clipped = fresh().with_layer_norm(true).to_policy();
        clipped.put_u64("tanh_units", &[1]);
        clipped.put_u64("clipped", &[1]);
        let actors = [
            fresh(),
            fresh().with_layer_norm(true),
            fresh().with_layer_norm(true).with_action_range(Some(range)),
            Actor::from_policy(&clipped).unwrap(),
        ];
        let mut rng = Rng::stream(2, "obs", 0);
        for (which, actor) in actors.iter().enumerate() {
            let model = onnx(actor).unwrap();
            for _ in 0..50 {
                let obs: Vec<f32> = (0..5).map(|_| 3.0 * rng.normal() as f32).collect();
                let (mut wanted, found) = ([0.0; 3], run(&model, &obs));
                actor.mean_act(&obs, &mut wanted);
                let off = found["action"].iter().zip(wanted).map(|(a, b)| (a - b).abs() / (1.0 + b.abs()));
                assert!(off.fold(0.0, f32::max) < 1e-5, "{which}: {:?} {wanted:?}", found["action"]);
            }
        }
    }

    /// The graph is whole, has so many constants beside its layers, and these operators.
    fn check(actor: &Actor, constants: usize, wanted: &[&str]) {
        let model = onnx(actor).unwrap();
        let graph = fields(&model).into_iter().find(|(number, _)| *number == 7).unwrap().1;
        let mut known = vec!["obs".to_string()];
        for (_, tensor) in fields(&graph).iter().filter(|(number, _)| *number == 5) {
            known.extend(texts(tensor, 8));
            let parts = fields(tensor);
            let size = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
            let wanted: u64 = parts.iter().filter(|(n, _)| *n == 1).map(|(_, d)| size(d)).product();
            let raw = parts.iter().find(|(n, _)| *n == 9).unwrap().1.len() as u64;
            assert_eq!(raw, 4 * wanted, "{:?}", texts(tensor, 8));
        }
        assert_eq!(known.len(), 1 + 2 * 4 + constants, "three layers and one more head, and the clamps");
        let mut operators = Vec::new();
        for (_, node) in fields(&graph).iter().filter(|(number, _)| *number == 1) {
            for input in texts(node, 1) {
                assert!(known.contains(&input), "{input} is used before it is given");
            }
            known.extend(texts(node, 2));
            operators.extend(texts(node, 4));
        }
        assert_eq!(operators, wanted);
        for (_, output) in fields(&graph).iter().filter(|(number, _)| *number == 12) {
            assert!(known.contains(&texts(output, 1)[0]));
        }
    }
}
