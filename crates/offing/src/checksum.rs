//! SHA-256 over rows: the names under which models, indexes and runs find their data again.
//!
//! Content and order decide the names of cached files; the tests of the callers pin them.

use std::collections::BTreeMap;

use ndarray::ArrayView1;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use crate::batch::{Batch, Mat};
use crate::error::{Result, invalid, nearest};

/// Eight digits that tell texts apart in names of files: FNV-1a, a name and not a proof.
pub fn short_hash(text: impl AsRef<[u8]>) -> String {
    let mix = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    format!("{:08x}", (text.as_ref().iter().fold(0xcbf2_9ce4_8422_2325, mix) >> 32) as u32)
}

/// A checksum under construction.
#[derive(Default)]
pub(crate) struct Checksum {
    hash: Sha256,
    bytes: Vec<u8>,
}

impl Checksum {
    /// Begins with the settings that decide beside the rows.
    pub(crate) fn of(head: &str) -> Self {
        let mut it = Self::default();
        it.hash.update(head);
        it
    }

    /// Adds numbers, each as four bytes, little end first.
    pub(crate) fn numbers(&mut self, values: impl Iterator<Item = f32>) {
        self.bytes.clear();
        self.bytes.extend(values.flat_map(f32::to_le_bytes));
        self.hash.update(&self.bytes);
    }

    /// Adds a matrix, row after row.
    pub(crate) fn rows(&mut self, matrix: &Mat) {
        matrix.rows().into_iter().for_each(|row: ArrayView1<'_, f32>| self.numbers(row.iter().copied()));
    }

    /// Adds s, a, s' and r, one whole column after the other.
    pub(crate) fn transitions(&mut self, batch: &Batch) {
        [&batch.obs, &batch.act, &batch.next_obs].into_iter().for_each(|matrix| self.rows(matrix));
        self.numbers(batch.rew.iter().copied());
    }

    /// The checksum as 64 hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        hex(&self.hash.finalize())
    }
}

/// Key of the checksum in the metadata of a safetensors file that offing wrote.
pub(crate) const TENSORS_KEY: &str = "offing_sha256";

/// SHA-256 over names, types, shapes and values of tensors, in the order of their names.
pub(crate) fn of_tensors<'a>(
    tensors: impl Iterator<Item = (&'a str, Dtype, &'a [usize], &'a [u8])>,
) -> String {
    let mut hash = Sha256::new();
    for (name, dtype, shape, bytes) in tensors {
        hash.update(format!("{name} {dtype:?} {shape:?} "));
        hash.update(bytes);
    }
    hex(&hash.finalize())
}

/// Whether offing's checksum vouches for a safetensors file; other programs write none. One that does not fit is an error.
pub(crate) fn check_tensors(bytes: &[u8], file: &SafeTensors<'_>) -> Result<bool> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| invalid!("cannot read tensors: {e}"))?;
    let metadata = header.metadata().iter().flatten();
    // A key that is almost ours is ours with a damage: its weights must not pass as another program's.
    let kept: Vec<_> = metadata.filter(|(key, _)| nearest(TENSORS_KEY, &[key]).is_some()).collect();
    let sum = || {
        let views: BTreeMap<&str, TensorView<'_>> = file.iter().collect();
        of_tensors(views.iter().map(|(name, view)| (*name, view.dtype(), view.shape(), view.data())))
    };
    match kept[..] {
        [] => Ok(false),
        [(key, kept)] if key == TENSORS_KEY && *kept == sum() => Ok(true),
        _ => Err(invalid!(
            "wanted tensors that match the file's checksum, found others: the file is damaged; use another copy"
        )),
    }
}

/// The SHA-256 of bytes, in hexadecimal digits.
pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_hash_is_the_first_half_of_fnv_1a() {
        // Published values of the 64-bit FNV-1a: cbf29ce484222325, af63dc4c8601ec8c, 85944171f73967e8.
        assert_eq!(["", "a", "foobar"].map(short_hash), ["cbf29ce4", "af63dc4c", "85944171"]);
    }

    #[test]
    fn the_empty_checksum_is_the_standards() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!((Checksum::default().finish(), of_bytes(b"")), (empty.to_string(), empty.to_string()));
        assert_eq!(Checksum::of("ab").finish(), of_bytes(b"ab"));
    }

    #[test]
    fn transitions_go_in_column_by_column_as_they_always_did() {
        // hashlib.sha256(b"head" + struct.pack("<12f", 1,2,3,4, .5,-.5, 2,3,4,5, 10,20)).hexdigest(): models and
        // indexes on disk are found by it.
        let rows = Batch {
            obs: ndarray::arr2(&[[1.0, 2.0], [3.0, 4.0]]),
            act: ndarray::arr2(&[[0.5], [-0.5]]),
            next_obs: ndarray::arr2(&[[2.0, 3.0], [4.0, 5.0]]),
            rew: ndarray::arr1(&[10.0, 20.0]),
            done: ndarray::arr1(&[false, true]),
        };
        let mut sum = Checksum::of("head");
        sum.transitions(&rows);
        assert_eq!(sum.finish(), "bdf656b025814d724a03e5c5ced1314153ff24bb0b8bd4f5dccb88645ede5a94");
    }
}
