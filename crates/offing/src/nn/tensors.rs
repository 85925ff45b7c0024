//! Named tensors: networks and optimisers on disk, bit for bit.
//!
//! ```
//! use offing::nn::Tensors;
//! let mut kept = Tensors::default();
//! kept.put_f32("bias", &[2], vec![0.5, -1.0]);
//! kept.put_u64("step", &[7]);
//! let back = Tensors::from_bytes(&kept.to_bytes().unwrap()).unwrap();
//! assert_eq!(back.f32("bias", &[2]).unwrap(), [0.5, -1.0]);
//! assert!(back.f32("bias", &[3]).unwrap_err().to_string().contains("[3]"));
//! ```

use std::collections::{BTreeMap, HashMap};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::mlp_ensemble::{Field, MlpEnsemble};
use crate::checksum::{TENSORS_KEY, check_tensors, of_tensors};
use crate::error::{Result, invalid};

/// Tensors by name, in the safetensors format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensors(BTreeMap<String, Tensor>);

#[derive(Clone, Debug, PartialEq)]
struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    /// Little-endian, as in the file.
    bytes: Vec<u8>,
}

impl Tensors {
    /// Adds f32 values, row-major.
    pub fn put_f32(&mut self, name: impl Into<String>, shape: &[usize], values: Vec<f32>) {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "a tensor fills its shape");
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.0.insert(name.into(), Tensor { dtype: Dtype::F32, shape: shape.to_vec(), bytes });
    }

    /// Adds f64 values.
    pub fn put_f64(&mut self, name: impl Into<String>, values: &[f64]) {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.0.insert(name.into(), Tensor { dtype: Dtype::F64, shape: vec![values.len()], bytes });
    }

    /// Adds counters.
    pub fn put_u64(&mut self, name: impl Into<String>, values: &[u64]) {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.0.insert(name.into(), Tensor { dtype: Dtype::U64, shape: vec![values.len()], bytes });
    }

    /// The f32 tensor of that name and shape.
    pub fn f32(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let tensor = self.find(name, Dtype::F32, shape)?;
        Ok(tensor.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    /// The `len` f64 values of that name.
    pub fn f64(&self, name: &str, len: usize) -> Result<Vec<f64>> {
        let tensor = self.find(name, Dtype::F64, &[len])?;
        Ok(tensor.bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect())
    }

    /// The `len` counters of that name.
    pub fn u64(&self, name: &str, len: usize) -> Result<Vec<u64>> {
        let tensor = self.find(name, Dtype::U64, &[len])?;
        Ok(tensor.bytes.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect())
    }

    /// The shape of a tensor, when there is one of that name.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.0.get(name).map(|t| t.shape.as_slice())
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Adds all tensors of `other`, with `prefix.` before their names.
    pub fn put_all(&mut self, prefix: &str, other: Tensors) {
        self.0.extend(other.0.into_iter().map(|(name, tensor)| (format!("{prefix}.{name}"), tensor)));
    }

    /// The tensors whose names start with `prefix.`, without it.
    pub fn under(&self, prefix: &str) -> Tensors {
        let inside = |name: &str| Some(name.strip_prefix(prefix)?.strip_prefix('.')?.to_string());
        Self(self.0.iter().filter_map(|(name, tensor)| Some((inside(name)?, tensor.clone()))).collect())
    }

    /// The content of a safetensors file. Equal tensors give equal bytes. The file's metadata hold a checksum over
    /// names, shapes and values, which [`Tensors::from_bytes`] demands.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let metadata = HashMap::from([(TENSORS_KEY.to_string(), self.checksum())]);
        let views = self.0.iter().map(|(name, t)| {
            TensorView::new(t.dtype, t.shape.clone(), &t.bytes).map(|view| (name.as_str(), view))
        });
        let views: std::result::Result<Vec<_>, _> = views.collect();
        views
            .and_then(|views| safetensors::serialize(views, Some(metadata)))
            .map_err(|e| invalid!("cannot write tensors: {e}"))
    }

    /// Reads what [`Tensors::to_bytes`] wrote. A checksum that is missing or does not fit is an error.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        match Self::read(bytes)? {
            (read, true) => Ok(read),
            _ => Err(invalid!(
                "wanted tensors with offing's checksum, found none: the file is damaged or of another program; use another copy"
            )),
        }
    }

    /// Reads the content of any safetensors file, of other programs as well: only where offing wrote a checksum must it fit.
    pub fn from_foreign_bytes(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes).map(|(read, _)| read)
    }

    /// The tensors, and whether a checksum vouches for them.
    fn read(bytes: &[u8]) -> Result<(Self, bool)> {
        let file = SafeTensors::deserialize(bytes)
            .map_err(|e| invalid!("wanted safetensors, found something else or a damaged file ({e})"))?;
        let tensor = |view: TensorView<'_>| Tensor {
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            bytes: view.data().to_vec(),
        };
        let read = Self(file.iter().map(|(name, view)| (name.to_string(), tensor(view))).collect());
        Ok((read, check_tensors(bytes, &file)?))
    }

    /// As [`check_tensors`] wants it.
    fn checksum(&self) -> String {
        of_tensors(
            self.0.iter().map(|(name, t)| (name.as_str(), t.dtype, t.shape.as_slice(), t.bytes.as_slice())),
        )
    }

    fn find(&self, name: &str, dtype: Dtype, shape: &[usize]) -> Result<&Tensor> {
        let wanted = format!("{dtype:?} of shape {shape:?}");
        match self.0.get(name) {
            Some(t) if t.dtype == dtype && t.shape == shape => Ok(t),
            Some(t) => Err(invalid!(
                "tensor `{name}`: wanted {wanted}, found {:?} of shape {:?}; the file belongs to another configuration",
                t.dtype,
                t.shape
            )),
            None => Err(invalid!(
                "tensor `{name}`: wanted {wanted}, found no such tensor; the file is of another kind"
            )),
        }
    }
}

impl MlpEnsemble {
    /// Adds `<prefix>.<net>.<layer>.weight` and `.bias`, in PyTorch's layout, and `….m`, `.v` and `.target` of each
    /// where the ensemble keeps them.
    pub fn save(&self, prefix: &str, to: &mut Tensors) {
        for (net, l, field, name, shape) in self.layers(prefix) {
            let (weight, bias) = self.get(net, l, field);
            to.put_f32(name("weight"), &shape, weight);
            to.put_f32(name("bias"), &shape[..1], bias);
        }
    }

    /// Restores what [`MlpEnsemble::save`] added.
    pub fn load(&mut self, prefix: &str, from: &Tensors) -> Result<()> {
        let mut found = Vec::new();
        for (net, l, field, name, shape) in self.layers(prefix) {
            let (weight, bias) = (from.f32(&name("weight"), &shape)?, from.f32(&name("bias"), &shape[..1])?);
            found.push((net, l, field, weight, bias));
        }
        for (net, l, field, weight, bias) in found {
            self.set(net, l, field, &weight, &bias);
        }
        Ok(())
    }

    /// Network, layer, field, the names of its tensors and the shape of its weight, for all that this ensemble keeps.
    fn layers(
        &self,
        prefix: &str,
    ) -> impl Iterator<Item = (usize, usize, Field, impl Fn(&str) -> String, [usize; 2])> {
        let all = (0..self.nets()).flat_map(|net| (0..self.shape().layers()).map(move |l| (net, l)));
        all.flat_map(move |(net, l)| {
            self.fields().map(move |(field, suffix)| {
                let name = move |what: &str| format!("{prefix}.{net}.{l}.{what}{suffix}");
                (net, l, field, name, [self.shape().outputs(l), self.shape().inputs(l)])
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_demanded_of_our_files_and_a_damaged_key_is_refused() {
        let mut kept = Tensors::default();
        kept.put_f32("weight", &[3], vec![1.0, 2.0, 3.0]);
        let good = kept.to_bytes().unwrap();
        assert_eq!(Tensors::from_bytes(&good).unwrap(), kept);
        let at = good.windows(TENSORS_KEY.len()).position(|part| part == TENSORS_KEY.as_bytes()).unwrap();
        // Each byte of the key, and weights that only the checksum can tell from the right ones.
        for i in at..at + TENSORS_KEY.len() {
            let mut bad = good.clone();
            bad[i] = if bad[i] == b'x' { b'y' } else { b'x' };
            let weights = bad.len() - 12;
            bad[weights] ^= 1;
            for read in [Tensors::from_bytes, Tensors::from_foreign_bytes] {
                let error = read(&bad).unwrap_err().to_string();
                assert!(error.contains("use another copy"), "{i}: {error}");
            }
        }
        // Another program's file: welcome as a policy, not as a checkpoint.
        let view = || TensorView::new(Dtype::F32, vec![1], &[0, 0, 128, 63]).unwrap();
        for metadata in [None, Some(HashMap::from([("format".to_string(), "pt".to_string())]))] {
            let foreign = safetensors::serialize([("weight", view())], metadata).unwrap();
            assert_eq!(Tensors::from_foreign_bytes(&foreign).unwrap().f32("weight", &[1]).unwrap(), [1.0]);
            let error = Tensors::from_bytes(&foreign).unwrap_err().to_string();
            assert!(error.contains("offing's checksum, found none"), "{error}");
        }
    }
}
