//! The behaviour policy that D4RL's files carry (`metadata/policy`): two hidden layers and a tanh-Gaussian.

use std::fs;
use std::path::Path;

use ndarray::Array1;
use safetensors::tensor::{Dtype, TensorView};
use sha2::{Digest, Sha256};

use super::hdf5::{Hdf5, SIGNATURE};
use crate::batch::Mat;
use crate::data::policy_set::LoadedPolicy;
use crate::error::{Error, Result};
use crate::policy::TanhGaussian;

/// Where the layers are, and what they are called in a policy of offing's.
const LAYERS: [(&str, &str); 4] =
    [("fc0", "hidden.0"), ("fc1", "hidden.1"), ("last_fc", "mean"), ("last_fc_log_std", "log_std")];

/// The policy that recorded a D4RL file, from the file itself.
///
/// # Errors
/// A file that cannot be read, or one without such a policy.
pub fn recorded_policy(path: &Path) -> Result<LoadedPolicy> {
    let start = fs::File::open(path).and_then(|mut file| {
        let mut bytes = [0; SIGNATURE.len()];
        std::io::Read::read_exact(&mut file, &mut bytes).map(|()| bytes)
    });
    let start = start.map_err(|e| Error::io(path, "read", e))?;
    let absent = |what: &str| {
        Error::file(
            path,
            format!(
                "wanted a D4RL file with its behaviour policy under metadata/policy, found {what}; give policies with --policies"
            ),
        )
    };
    if start != SIGNATURE {
        return Err(absent("no HDF5"));
    }
    let file = Hdf5::open(path)?;
    let holds = |key: &str| file.names().iter().any(|name| name.trim_start_matches('/') == key);
    for (key, known) in [("nonlinearity", "relu"), ("output_distribution", "tanh_gaussian")] {
        let key = format!("metadata/policy/{key}");
        if let Some(found) = holds(&key).then(|| file.remark(&key)).flatten().filter(|found| found != known) {
            return Err(absent(&format!("`{found}` as {key}")));
        }
    }
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (theirs, ours) in LAYERS {
        let keys = ["weight", "bias"].map(|part| format!("metadata/policy/{theirs}/{part}"));
        if let Some(missing) = keys.iter().find(|key| !holds(key)) {
            return Err(absent(&format!("no `{missing}`")));
        }
        let weight: Mat = file.array(&keys[0])?.matrix()?;
        let bias: Array1<f32> = file.array(&keys[1])?.column()?;
        let bytes = |x: &f32| x.to_le_bytes();
        tensors.push((
            format!("{ours}.weight"),
            weight.shape().to_vec(),
            weight.iter().flat_map(bytes).collect(),
        ));
        tensors.push((format!("{ours}.bias"), bias.shape().to_vec(), bias.iter().flat_map(bytes).collect()));
    }
    let views: std::result::Result<Vec<_>, _> = (tensors.iter())
        .map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)))
        .collect();
    let bytes = views.and_then(|views| safetensors::serialize(views, None));
    let bytes = bytes.map_err(|e| absent(&format!("layers that do not fit together ({e})")))?;
    Ok(LoadedPolicy {
        file: path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        policy: TanhGaussian::from_bytes(&bytes, path)?,
        digest: Sha256::digest(&bytes).into(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ndarray::Array1;

    use super::super::hdf5_write::Hdf5Writer;
    use super::*;
    use crate::policy::{Deterministic, Policy};
    use crate::rng::Rng;

    fn write(path: &Path, units: &str, layers: &[&str]) {
        let file = Hdf5Writer::create(path, path).unwrap();
        for (i, &layer) in layers.iter().enumerate() {
            let (inputs, outputs) = [(3, 4), (4, 4), (4, 2), (4, 2)][i];
            let weight = Mat::from_shape_fn((outputs, inputs), |(o, j)| 0.1 * (o + j) as f32);
            file.put(&format!("metadata/policy/{layer}/weight"), weight.view()).unwrap();
            file.put(&format!("metadata/policy/{layer}/bias"), Array1::from_elem(outputs, 0.2f32).view())
                .unwrap();
        }
        let texts = BTreeMap::from([("nonlinearity".to_string(), units.to_string())]);
        file.texts("metadata/policy", &texts).unwrap();
        file.close().unwrap();
    }

    #[test]
    fn the_policy_in_a_file_acts_as_its_layers_say() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hopper-medium.hdf5");
        let all = ["fc0", "fc1", "last_fc", "last_fc_log_std"];
        write(&path, "relu", &all);
        let found = recorded_policy(&path).unwrap();
        assert_eq!((found.policy.obs_dim(), found.policy.act_dim()), (3, 2));
        let mut act = [0.0; 2];
        Deterministic(&found.policy).act(&[1.0, 0.5, -0.2], &mut Rng::stream(0, "t", 0), &mut act);
        let layer = |x: &[f32], outputs: usize| -> Vec<f32> {
            let sum =
                |o: usize| x.iter().enumerate().map(|(j, x)| 0.1 * (o + j) as f32 * x).sum::<f32>() + 0.2;
            (0..outputs).map(sum).collect()
        };
        let relu = |x: Vec<f32>| x.into_iter().map(|x| x.max(0.0)).collect::<Vec<_>>();
        let mean = layer(&relu(layer(&relu(layer(&[1.0, 0.5, -0.2], 4)), 4)), 2);
        assert!(act.iter().zip(mean).all(|(a, m)| (a - m.tanh()).abs() < 1e-6), "{act:?}");
    }

    #[test]
    fn a_file_without_such_a_policy_is_one_clear_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.hdf5");
        let all = ["fc0", "fc1", "last_fc", "last_fc_log_std"];
        for (units, layers, words) in [
            ("tanh", &all[..], "found `tanh`"),
            ("relu", &all[..3], "no `metadata/policy/last_fc_log_std/weight`"),
        ] {
            write(&path, units, layers);
            let error = recorded_policy(&path).unwrap_err().to_string();
            assert!(error.contains(words) && error.lines().count() == 1, "{error}");
        }
        std::fs::write(&path, "obs_0,act_0,reward\n").unwrap();
        assert!(recorded_policy(&path).unwrap_err().to_string().contains("found no HDF5"));
    }
}
